//! One connection's TLS and its transport, polled under one lock.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use headstart_tls::{Conn, Progress, Read, TlsError};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Moved;
use crate::acceptor::ProvenAddr;

/// Bytes read from the transport at a time, on the stack: two records of the largest size, which have some bytes more
/// than their plain text.
const READ: usize = 33 * 1024;

/// Plain text taken in one write: four records, whose bytes then leave in one system call. It bounds what a
/// connection holds, since nothing more is taken before they have left.
const WRITE: usize = 64 * 1024;

/// Bytes on their way to the transport with which a reader still goes on: more than any write leaves. Only a peer
/// that asks for new keys again and again, and takes none of the answers, makes so many.
pub(super) const BACKLOG: usize = 2 * WRITE;

/// A record's plain text (RFC 8446 section 5.1): what one call of OpenSSL gives at most.
const RECORD: usize = 16 * 1024;

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nothing can be read or written.
    Opening,
    /// A server that reads early data and may answer it.
    Early,
    /// The handshake is done.
    Open,
    /// It failed; whoever asks is told so.
    Failed(io::ErrorKind),
}

pub(super) struct Engine<S> {
    conn: Conn,
    /// None once it was closed from elsewhere.
    transport: Option<S>,
    /// A server's client may yet turn out to be at another address.
    proven: Option<ProvenAddr>,
    /// Records on their way to the transport.
    outgoing: Vec<u8>,
    /// How many bytes of them are there.
    sent: usize,
    /// Whether the transport was written to since it was flushed.
    unflushed: bool,
    /// Early data nobody has read yet: it has to be taken for the handshake to go on. As much as the
    /// session allows, at most.
    early: Vec<u8>,
    stage: Stage,
    /// The transport has ended.
    ended: bool,
    /// close_notify is written, or about to be.
    closing: bool,
    /// A client that has written early data: nothing of the server's can be read or answered meanwhile.
    sends_early: bool,
    /// Something came that another task may wait for.
    changed: bool,
    moved: Moved,
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
            moved: Moved::default(),
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

    pub(super) const fn moved(&self) -> Moved {
        self.moved
    }

    pub(super) const fn transport(&self) -> Option<&S> {
        self.transport.as_ref()
    }

    /// Whether others may have got something to do since it was asked last.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::replace(&mut self.changed, false)
    }

    /// Whatever is polled later fails.
    pub(super) fn take_transport(&mut self) -> Option<S> {
        self.fail_as(io::ErrorKind::NotConnected);
        self.transport.take()
    }

    fn enter(&mut self, stage: Stage) {
        self.stage = stage;
        self.changed = true;
    }

    /// The first failure is the one that is told.
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

    /// A client proves its address by what it says on TCP: TLS has to know that before it hears what was said.
    fn learn_peer(&mut self) {
        if let Some(address) = self.proven.as_ref().and_then(ProvenAddr::get) {
            self.conn.set_peer(address.ip().to_canonical());
            self.proven = None;
        }
    }

    /// Bytes that the transport has yet to take.
    fn backlog(&self) -> usize {
        self.outgoing.len().saturating_sub(self.sent) + self.conn.leaving()
    }

    /// Gives the reader early data.
    fn give_early(&mut self, buf: &mut ReadBuf<'_>) -> bool {
        let count = self.early.len().min(buf.remaining());
        buf.put_slice(self.early.get(..count).unwrap_or_default());
        self.early.drain(..count);
        if self.early.is_empty() {
            // Not only empty: its memory is given back.
            self.early = Vec::new();
        }
        self.moved.read += count as u64;
        count > 0
    }

    /// Goes on with the handshake; whether it is done.
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
        // The end of early data may have been among it, and the client's Finished behind that.
        Ok(matches!(self.conn.handshake()?, Progress::Done))
    }

    /// Gives the reader all records that are there, as far as they fit, or the end; whether there was either. An end
    /// or a failure behind a record comes again with the next read.
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
            // Only input brings the handshake on: what cannot leave now leaves with a later poll.
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

    /// Every turn takes something from the transport, whose share of the task's time is bounded by tokio.
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
            // Records of the protocol itself may want an answer. Whether it leaves is the writer's concern, as
            // long as it is little.
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
                    // They are taken. A failure is told to the next write.
                    let _ = self.poll_outgoing(cx);
                    return Poll::Ready(Ok(count));
                }
                Err(error) => return Poll::Ready(Err(self.fail(cx, error))),
            }
            // TLS has to hear from the peer first.
            match self.stage {
                Stage::Open => {
                    ready!(self.poll_incoming(cx))?;
                    self.changed = true;
                }
                _ => ready!(self.poll_open(cx))?,
            }
        }
    }

    /// Ready when TLS may be given plain text, and all that it made before has left.
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

    /// An answer to early data may be finished before the handshake is; a connection that is closed then would
    /// reset when the client's Finished comes, and take the answer with it.
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

    /// Ready when the peer has ended, or broken.
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

    /// Ready when TLS has no byte left that the transport has not taken.
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

    /// Gives TLS what the transport has; ready when that was something, or the end.
    fn poll_incoming(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // TLS was told, and still waits: for bytes that cannot come.
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

    /// Fails because of what the peer said, and tells it as far as that goes at once. The alert is the end: a
    /// reset would overtake it.
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
