//! One direction while a connection opens: copies bytes through whatever the stream currently is.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::relay::{Direction, Fault, Stage};

/// Bytes copied at a time while a connection opens; a TLS flight rarely has more.
pub(super) const BUFFER: usize = 8 * 1024;

/// Rounds of one direction before the task yields.
const BUDGET: usize = 32;

/// A buffer, and the progress of its source.
pub(super) struct Flow {
    buffer: Vec<u8>,
    filled: usize,
    written: usize,
    stage: Stage,
    bytes: u64,
    /// True if something was written since the receiver was last flushed.
    unflushed: bool,
}

impl Flow {
    /// Starts with `head`, which was read before.
    pub(super) fn new(head: &[u8]) -> Self {
        let mut buffer = head.to_vec();
        buffer.resize(BUFFER.max(head.len()), 0);
        Self {
            buffer,
            filled: head.len(),
            written: 0,
            stage: Stage::Reading,
            bytes: 0,
            unflushed: false,
        }
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
        count.fetch_add(self.bytes - before, Ordering::Relaxed);
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
                _ if self.written < self.filled => self.poll_write(cx, to).map_err(Fault::To),
                Stage::Reading => match self.poll_read(cx, from).map_err(Fault::From) {
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

    fn poll_read<R>(&mut self, cx: &mut Context<'_>, from: &mut R) -> Poll<io::Result<()>>
    where
        R: AsyncRead + Unpin,
    {
        let mut buffer = ReadBuf::new(&mut self.buffer);
        ready!(Pin::new(from).poll_read(cx, &mut buffer))?;
        self.filled = buffer.filled().len();
        self.written = 0;
        if self.filled == 0 {
            self.stage = Stage::Ended;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write<W>(&mut self, cx: &mut Context<'_>, to: &mut W) -> Poll<io::Result<()>>
    where
        W: AsyncWrite + Unpin,
    {
        let waiting = self.buffer.get(self.written..self.filled).unwrap_or_default();
        match ready!(Pin::new(to).poll_write(cx, waiting))? {
            0 => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            count => {
                self.written += count;
                self.bytes += count as u64;
                self.unflushed = true;
                Poll::Ready(Ok(()))
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
        let held = flow.buffer.get(flow.written..flow.filled).unwrap_or_default();
        Self::resumed(held.to_vec(), flow.stage, flow.bytes)
    }
}
