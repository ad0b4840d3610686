//! One connection's TLS and its transport, polled under one lock.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use headstart_tls::{Conn, Progress, Read, TlsError};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::ByteCounts;
use crate::proven_addr::ProvenAddr;

/// Bytes read from the transport at a time, on the stack: two records of the largest size, which
/// are slightly longer than their plain text.
const READ: usize = 33 * 1024;

/// Plain text accepted in one write: four records, whose bytes then leave in one system call. It
/// bounds the memory of a connection, since no more is accepted before they have left.
const WRITE: usize = 64 * 1024;

/// Output backlog beyond which reads wait: more than any write leaves behind. Only a peer that
/// keeps requesting new keys without reading the answers causes it.
pub(super) const BACKLOG: usize = 2 * WRITE;

/// Plain text of a record (RFC 8446 section 5.1): the most that one call of OpenSSL returns.
const RECORD: usize = 16 * 1024;

/// Progress of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nothing can be read or written.
    Opening,
    /// A server that reads early data and may answer it.
    Early,
    /// The handshake is done.
    Open,
    /// It failed; every later call reports the error.
    Failed(io::ErrorKind),
}

pub(super) struct Engine<S> {
    conn: Conn,
    /// `None` once a handle has closed it.
    transport: Option<S>,
    /// Set for a server whose client has not proven its address yet.
    proven: Option<ProvenAddr>,
    /// Records for the transport.
    outgoing: Vec<u8>,
    /// Number of their bytes already written.
    sent: usize,
    /// True if the transport has bytes that were not flushed.
    unflushed: bool,
    /// Early data taken from TLS, so that the handshake continues, and not read yet. Bounded by the
    /// session's limit.
    early: Vec<u8>,
    stage: Stage,
    /// The transport has ended.
    ended: bool,
    /// close_notify is written, or about to be.
    closing: bool,
    /// True for a client that has written early data: until the handshake is done it can neither
    /// read nor answer.
    sends_early: bool,
    /// True if another task may have something to do.
    changed: bool,
    moved: ByteCounts,
}

impl<S> Engine<S> {
    pub(super) fn new(conn: Conn, transport: S, proven: Option<ProvenAddr>) -> Self {
        Self {
            conn,
            transport: Some(transport),
            proven,
            outgoing: Vec::new(),
            sent: 0,
            unflushed: false,
            early: Vec::new(),
            stage: Stage::Opening,
            ended: false,
            closing: false,
            sends_early: false,
            changed: false,
            moved: ByteCounts::default(),
        }
    }

    pub(super) const fn stage(&self) -> Stage {
        self.stage
    }

    pub(super) const fn conn(&self) -> &Conn {
        &self.conn
    }

    pub(super) fn conn_mut(&mut self) -> &mut Conn {
        &mut self.conn
    }

    pub(super) const fn byte_counts(&self) -> ByteCounts {
        self.moved
    }

    pub(super) const fn transport(&self) -> Option<&S> {
        self.transport.as_ref()
    }

    /// Returns true if other tasks may have something to do since the last call.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::replace(&mut self.changed, false)
    }

    /// Takes the transport; all later polls fail.
    pub(super) fn take_transport(&mut self) -> Option<S> {
        self.fail_as(io::ErrorKind::NotConnected);
        self.transport.take()
    }

    fn enter(&mut self, stage: Stage) {
        self.stage = stage;
        self.changed = true;
    }

    /// Records a failure; later calls report the first one.
    fn fail_as(&mut self, kind: io::ErrorKind) {
        if !matches!(self.stage, Stage::Failed(_)) {
            self.enter(Stage::Failed(kind));
        }
    }

    /// Fails because of the transport.
    fn broken(&mut self, error: io::Error) -> io::Error {
        self.fail_as(error.kind());
        error
    }

    /// Passes on the client's address, which its bytes on TCP prove: TLS must know it before it
    /// handles those bytes.
    fn learn_peer(&mut self) {
        if let Some(address) = self.proven.as_ref().and_then(ProvenAddr::get) {
            self.conn.set_peer(address.ip().to_canonical());
            self.proven = None;
        }
    }

    /// Returns the number of bytes that the transport has yet to accept.
    fn backlog(&self) -> usize {
        self.outgoing.len().saturating_sub(self.sent) + self.conn.leaving()
    }

    /// Copies early data to the reader; returns true if there was any.
    fn give_early(&mut self, buf: &mut ReadBuf<'_>) -> bool {
        let count = self.early.len().min(buf.remaining());
        buf.put_slice(self.early.get(..count).unwrap_or_default());
        self.early.drain(..count);
        if self.early.is_empty() {
            // Not only cleared: this frees the memory.
            self.early = Vec::new();
        }
        self.moved.read += count as u64;
        count > 0
    }

    /// Continues the handshake; returns true once it is done.
    fn advance(&mut self) -> Result<bool, TlsError> {
        match self.conn.handshake()? {
            Progress::Done => return Ok(true),
            Progress::Wait => return Ok(false),
            Progress::EarlyData if self.sends_early => return Ok(false),
            Progress::EarlyData => {}
        }
        if self.stage == Stage::Opening {
            self.enter(Stage::Early);
        }
        self.take_early()?;
        // The input may have held the end of early data, and the client's Finished behind it.
        Ok(matches!(self.conn.handshake()?, Progress::Done))
    }

    /// Copies available records to the reader, as far as they fit; returns true if there were any,
    /// or the end. The next read reports an end or a failure behind a record.
    fn read_records(&mut self, buf: &mut ReadBuf<'_>) -> Result<bool, TlsError> {
        let before = self.moved.read;
        while buf.remaining() > 0 {
            let room = buf.initialize_unfilled_to(buf.remaining().min(RECORD));
            match self.conn.read(room) {
                Ok(Read::Bytes(count)) => {
                    buf.advance(count);
                    self.moved.read += count as u64;
                }
                Err(error) if self.moved.read == before => return Err(error),
                Ok(Read::End) => return Ok(true),
                Ok(Read::Wait) | Err(_) => break,
            }
        }
        Ok(self.moved.read > before)
    }

    fn take_early(&mut self) -> Result<(), TlsError> {
        let mut room = [0; 4096];
        while let Read::Bytes(count) = self.conn.read(&mut room)? {
            self.early.extend_from_slice(room.get(..count).unwrap_or_default());
            self.changed = true;
        }
        Ok(())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Engine<S> {
    /// Ready when the handshake is done.
    pub(super) fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match self.stage {
                Stage::Open => return Poll::Ready(Ok(())),
                Stage::Failed(kind) => return Poll::Ready(Err(kind.into())),
                Stage::Opening | Stage::Early => {}
            }
            let done = match self.advance() {
                Ok(done) => done,
                Err(error) => return Poll::Ready(Err(self.fail(cx, error))),
            };
            // Only input drives the handshake: output that cannot leave now leaves with a later
            // poll.
            if let Poll::Ready(sent) = self.poll_outgoing(cx) {
                sent?;
            }
            if done {
                self.enter(Stage::Open);
                return Poll::Ready(Ok(()));
            }
            ready!(self.poll_incoming(cx))?;
            self.changed = true;
        }
    }

    /// Ready when the peer may be answered.
    pub(super) fn poll_opened(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.stage {
            Stage::Early => Poll::Ready(Ok(())),
            Stage::Open | Stage::Failed(_) => self.poll_open(cx),
            Stage::Opening => match self.poll_open(cx) {
                Poll::Pending if self.stage == Stage::Early => Poll::Ready(Ok(())),
                polled => polled,
            },
        }
    }

    /// Reads plain text. Every round takes bytes from the transport, and tokio bounds the
    /// transport's share of the task's time.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buf.remaining() == 0 || self.give_early(buf) {
            return Poll::Ready(Ok(()));
        }
        if self.stage != Stage::Open {
            let opened = self.poll_open(cx);
            if self.give_early(buf) {
                return Poll::Ready(Ok(()));
            }
            ready!(opened)?;
        }
        loop {
            match self.read_records(buf) {
                Ok(true) => return Poll::Ready(Ok(())),
                Ok(false) => {}
                Err(error) => return Poll::Ready(Err(self.fail(cx, error))),
            }
            // Records of the protocol itself may need an answer. Sending it is the writer's
            // concern, as long as it is small.
            if self.poll_outgoing(cx).is_pending() && self.backlog() > BACKLOG {
                return Poll::Pending;
            }
            ready!(self.poll_incoming(cx))?;
        }
    }

    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let piece = bytes.get(..bytes.len().min(WRITE)).unwrap_or_default();
        loop {
            ready!(self.poll_writable(cx))?;
            if piece.is_empty() {
                return Poll::Ready(Ok(0));
            }
            match self.conn.write(piece) {
                Ok(0) => {}
                Ok(count) => {
                    self.moved.written += count as u64;
                    // The bytes are accepted. The next write reports a failure.
                    let _ = self.poll_outgoing(cx);
                    return Poll::Ready(Ok(count));
                }
                Err(error) => return Poll::Ready(Err(self.fail(cx, error))),
            }
            // TLS must receive from the peer first.
            match self.stage {
                Stage::Open => {
                    ready!(self.poll_incoming(cx))?;
                    self.changed = true;
                }
                _ => ready!(self.poll_open(cx))?,
            }
        }
    }

    /// Ready when TLS accepts plain text, and all its earlier output has left.
    fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.closing {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        ready!(self.poll_opened(cx))?;
        self.poll_outgoing(cx)
    }

    pub(super) fn poll_write_early(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Stage::Failed(kind) = self.stage {
            return Poll::Ready(Err(kind.into()));
        }
        self.sends_early = true;
        let taken = match self.conn.write_early(bytes) {
            Ok(taken) => taken,
            Err(error) => return Poll::Ready(Err(self.fail(cx, error))),
        };
        self.moved.written += taken as u64;
        let _ = self.poll_outgoing(cx);
        Poll::Ready(Ok(taken))
    }

    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Stage::Failed(kind) = self.stage {
            return Poll::Ready(Err(kind.into()));
        }
        self.poll_outgoing(cx)
    }

    /// Shuts the stream down. An answer to early data may be complete before the handshake is;
    /// closing the connection then would reset it when the client's Finished comes, and lose the
    /// answer.
    pub(super) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_open(cx))?;
        if !self.closing {
            self.closing = true;
            self.conn.close();
        }
        ready!(self.poll_outgoing(cx))?;
        match &mut self.transport {
            Some(transport) => Pin::new(transport).poll_shutdown(cx),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    /// Ready when the peer has ended, or the connection failed.
    pub(super) fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut room = [MaybeUninit::uninit(); READ];
        while let Some(transport) = &mut self.transport {
            let mut room = ReadBuf::uninit(&mut room);
            let read = ready!(Pin::new(transport).poll_read(cx, &mut room));
            if read.is_err() || room.filled().is_empty() {
                break;
            }
        }
        Poll::Ready(())
    }

    /// Ready when the transport has accepted all output.
    fn poll_outgoing(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match ready!(self.poll_send(cx)) {
            Ok(()) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(self.broken(error))),
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(transport) = &mut self.transport else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        let mut transport = Pin::new(transport);
        loop {
            let left = self.outgoing.get(self.sent..).unwrap_or_default();
            if left.is_empty() {
                self.sent = 0;
                self.outgoing = self.conn.poll_bytes().unwrap_or_default();
                if self.outgoing.is_empty() {
                    break;
                }
                continue;
            }
            let count = ready!(transport.as_mut().poll_write(cx, left))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += count;
            self.moved.transport += count as u64;
            self.unflushed = true;
        }
        if self.unflushed {
            ready!(transport.poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Gives TLS input from the transport; ready if there were bytes, or the end.
    fn poll_incoming(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // TLS knows of the end, and still waits for bytes that cannot come.
        let gone =
            if self.ended { io::ErrorKind::UnexpectedEof } else { io::ErrorKind::NotConnected };
        let transport = match &mut self.transport {
            Some(transport) if !self.ended => Pin::new(transport),
            _ => return Poll::Ready(Err(self.broken(gone.into()))),
        };
        let mut room = [MaybeUninit::uninit(); READ];
        let mut room = ReadBuf::uninit(&mut room);
        let read = ready!(transport.poll_read(cx, &mut room));
        if let Err(error) = read {
            return Poll::Ready(Err(self.broken(error)));
        }
        self.moved.transport += room.filled().len() as u64;
        self.learn_peer();
        match room.filled() {
            [] => {
                self.ended = true;
                self.conn.handle_end();
            }
            bytes => self.conn.handle_bytes(bytes),
        }
        Poll::Ready(Ok(()))
    }

    /// Fails because of the peer's input, and sends as much of the alert as possible without
    /// waiting. Does not reset the connection: a reset would overtake the alert.
    fn fail(&mut self, cx: &mut Context<'_>, error: TlsError) -> io::Error {
        let kind = match error {
            TlsError::Truncated => io::ErrorKind::UnexpectedEof,
            _ => io::ErrorKind::InvalidData,
        };
        self.fail_as(kind);
        if self.poll_outgoing(cx).is_ready()
            && let Some(transport) = &mut self.transport
        {
            let _ = Pin::new(transport).poll_shutdown(cx);
        }
        io::Error::new(kind, error)
    }
}
