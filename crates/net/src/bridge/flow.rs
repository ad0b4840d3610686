//! One direction while a connection opens: copies bytes through whatever the stream currently is.

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::{io, mem};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::relay::{Direction, Fault, Stage};

/// Bytes copied at a time while a connection opens; a TLS flight rarely has more.
pub(super) const BUFFER: usize = 8 * 1024;

/// Rounds of one direction before the task yields.
const BUDGET: usize = 32;

thread_local! {
    /// Read into, and as a rule written from: a connection at rest has no buffer.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; BUFFER].into_boxed_slice());
}

/// Bytes that the receiver has not taken yet, and the progress of their source.
pub(super) struct Flow {
    held: Vec<u8>,
    written: usize,
    stage: Stage,
    bytes: u64,
    /// True if something was written since the receiver was last flushed.
    unflushed: bool,
}

impl Flow {
    /// Starts with `head`, which was read before.
    pub(super) fn new(head: &[u8]) -> Self {
        let held = head.to_vec();
        Self { held, written: 0, stage: Stage::Reading, bytes: 0, unflushed: false }
    }

    /// Returns the number of bytes that the receiver took.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns true once the source has ended.
    pub(super) fn is_ended(&self) -> bool {
        self.stage != Stage::Reading
    }

    /// Moves bytes; ready once the end of the source was passed on.
    pub(super) fn poll<R, W>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut R,
        to: &mut W,
        count: &AtomicU64,
    ) -> Poll<Result<(), Fault>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let before = self.bytes;
        let result = self.poll_turns(cx, from, to);
        if self.bytes != before {
            count.fetch_add(self.bytes - before, Ordering::Relaxed);
        }
        result
    }

    fn poll_turns<R, W>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut R,
        to: &mut W,
    ) -> Poll<Result<(), Fault>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        for _ in 0..BUDGET {
            let turn = match self.stage {
                _ if !self.held.is_empty() => self.poll_held(cx, to).map_err(Fault::To),
                Stage::Reading => match self.poll_copy(cx, from, to) {
                    // A receiver such as TLS may still hold bytes, and nothing else would flush
                    // them.
                    Poll::Pending => {
                        ready!(self.poll_flush(cx, to).map_err(Fault::To))?;
                        Poll::Pending
                    }
                    turn => turn,
                },
                Stage::Ended => self.poll_end(cx, to).map_err(Fault::To),
                Stage::Done => return Poll::Ready(Ok(())),
            };
            ready!(turn)?;
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Reads once, and writes as much of it as the receiver takes; the rest is held. Pending if
    /// there is nothing to read.
    fn poll_copy<R, W>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut R,
        to: &mut W,
    ) -> Poll<Result<(), Fault>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut buffer = ReadBuf::new(scratch);
            ready!(Pin::new(from).poll_read(cx, &mut buffer)).map_err(Fault::From)?;
            let bytes = buffer.filled();
            if bytes.is_empty() {
                self.stage = Stage::Ended;
                return Poll::Ready(Ok(()));
            }
            // What is held is written in the next turn, or when the receiver takes it.
            let taken = match self.poll_write(cx, bytes, to).map_err(Fault::To)? {
                Poll::Ready(taken) => taken,
                Poll::Pending => 0,
            };
            self.held.extend_from_slice(bytes.get(taken..).unwrap_or_default());
            Poll::Ready(Ok(()))
        })
    }

    fn poll_held<W>(&mut self, cx: &mut Context<'_>, to: &mut W) -> Poll<io::Result<()>>
    where
        W: AsyncWrite + Unpin,
    {
        let held = mem::take(&mut self.held);
        let waiting = held.get(self.written..).unwrap_or_default();
        let polled = self.poll_write(cx, waiting, to);
        let taken = if let Poll::Ready(Ok(taken)) = polled { taken } else { 0 };
        if taken < waiting.len() {
            self.written += taken;
            self.held = held;
        } else {
            self.written = 0;
        }
        polled.map_ok(|_| ())
    }

    /// Writes `bytes`; returns how many were taken.
    fn poll_write<W>(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        to: &mut W,
    ) -> Poll<io::Result<usize>>
    where
        W: AsyncWrite + Unpin,
    {
        match ready!(Pin::new(to).poll_write(cx, bytes))? {
            0 => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            count => {
                self.bytes += count as u64;
                self.unflushed = true;
                Poll::Ready(Ok(count))
            }
        }
    }

    fn poll_flush<W>(&mut self, cx: &mut Context<'_>, to: &mut W) -> Poll<io::Result<()>>
    where
        W: AsyncWrite + Unpin,
    {
        if self.unflushed {
            ready!(Pin::new(to).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_end<W>(&mut self, cx: &mut Context<'_>, to: &mut W) -> Poll<io::Result<()>>
    where
        W: AsyncWrite + Unpin,
    {
        ready!(Pin::new(to).poll_shutdown(cx))?;
        self.stage = Stage::Done;
        Poll::Ready(Ok(()))
    }
}

impl From<Flow> for Direction {
    fn from(flow: Flow) -> Self {
        let mut held = flow.held;
        held.drain(..flow.written);
        Self::resumed(held, flow.stage, flow.bytes)
    }
}
