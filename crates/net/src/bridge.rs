//! Joins a connection that is still opening with an ordinary one, until splicing can take over.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::relay::{RelayCounts, RelayEnd, RelayLimits, RelayReason, relay};

/// Bytes copied at a time while a connection opens; a TLS flight rarely has more.
const BUFFER: usize = 8 * 1024;

/// Turns of one direction before the task gives way to others.
const BUDGET: usize = 32;

/// A stream that becomes a plain TCP connection after its opening.
pub trait Handoff: AsyncRead + AsyncWrite + Unpin {
    /// Whether nothing is left but what TCP carries.
    fn is_transparent(&self) -> bool;

    /// The TCP connection of a transparent stream; `None` if it has none yet.
    fn into_tcp(self) -> Option<TcpStream>;

    /// Ends the connection so that the peer sees a reset, not an end in order.
    fn reset(self);
}

/// Passes bytes between `opening` and `other` until both are done.
///
/// Half-closes and resets are passed on: an error of one side resets the other.
///
/// # Errors
/// Those of either side while the connection opens; later ones are in the [`RelayEnd`].
pub async fn bridge(
    mut opening: impl Handoff,
    mut other: TcpStream,
    limits: RelayLimits,
    counts: &RelayCounts,
) -> io::Result<RelayEnd> {
    match pump(&mut opening, &mut other, &[], limits.idle).await {
        Ok(Pumped::Open) => {}
        Ok(Pumped::Ended) => {
            return Ok(RelayEnd { reason: RelayReason::Closed, bytes_a_to_b: 0, bytes_b_to_a: 0 });
        }
        Err(error) => {
            let _ = other.set_zero_linger();
            opening.reset();
            return Err(error);
        }
    }
    match opening.into_tcp() {
        Some(tcp) => Ok(relay(tcp, other, limits, counts).await),
        None => Err(io::ErrorKind::NotConnected.into()),
    }
}

/// How a [`pump`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pumped {
    /// The opening is over: its TCP connection can be relayed.
    Open,
    /// Both streams have ended and their ends were passed on: nothing is left to do.
    Ended,
}

/// The first part of [`bridge`]: copies both ways until `opening` is transparent, for at most
/// `limit`. `head` was read from `other` before, and goes first.
///
/// # Errors
/// Those of either side, `TimedOut`; both are then to be reset.
pub async fn pump(
    opening: &mut impl Handoff,
    other: &mut TcpStream,
    head: &[u8],
    limit: Option<Duration>,
) -> io::Result<Pumped> {
    let mut up = Direction::new(head);
    let mut down = Direction::new(&[]);
    let copied = poll_fn(|cx| {
        let up_done = up.poll(cx, &mut *other, &mut *opening)?.is_ready();
        let down_done = down.poll(cx, &mut *opening, &mut *other)?.is_ready();
        if up_done && down_done {
            return Poll::Ready(Ok(Pumped::Ended));
        }
        if up.is_empty() && down.is_empty() && opening.is_transparent() {
            return Poll::Ready(Ok(Pumped::Open));
        }
        Poll::Pending
    });
    match limit {
        Some(limit) => tokio::time::timeout(limit, copied).await?,
        None => copied.await,
    }
}

/// One direction: a buffer, and whether its source has ended.
struct Direction {
    buffer: Vec<u8>,
    filled: usize,
    written: usize,
    end: End,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Open,
    Read,
    Passed,
}

impl Direction {
    fn new(head: &[u8]) -> Self {
        let mut buffer = head.to_vec();
        buffer.resize(BUFFER.max(head.len()), 0);
        Self { buffer, filled: head.len(), written: 0, end: End::Open }
    }

    const fn is_empty(&self) -> bool {
        self.written == self.filled && !matches!(self.end, End::Read)
    }

    /// Ready when the end of the source was passed on.
    fn poll<R, W>(&mut self, cx: &mut Context<'_>, from: &mut R, to: &mut W) -> io::Result<Poll<()>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        for _ in 0..BUDGET {
            let step = if self.written < self.filled {
                self.poll_write(cx, to)?
            } else {
                match self.end {
                    End::Open => self.poll_read(cx, from)?,
                    End::Read => self.poll_end(cx, to)?,
                    End::Passed => return Ok(Poll::Ready(())),
                }
            };
            if step.is_pending() {
                return Ok(Poll::Pending);
            }
        }
        cx.waker().wake_by_ref();
        Ok(Poll::Pending)
    }

    fn poll_read<R>(&mut self, cx: &mut Context<'_>, from: &mut R) -> io::Result<Poll<()>>
    where
        R: AsyncRead + Unpin,
    {
        let mut buffer = ReadBuf::new(&mut self.buffer);
        if Pin::new(from).poll_read(cx, &mut buffer)?.is_pending() {
            return Ok(Poll::Pending);
        }
        self.filled = buffer.filled().len();
        self.written = 0;
        if self.filled == 0 {
            self.end = End::Read;
        }
        Ok(Poll::Ready(()))
    }

    fn poll_write<W>(&mut self, cx: &mut Context<'_>, to: &mut W) -> io::Result<Poll<()>>
    where
        W: AsyncWrite + Unpin,
    {
        let waiting = self.buffer.get(self.written..self.filled).unwrap_or_default();
        match Pin::new(to).poll_write(cx, waiting)? {
            Poll::Ready(0) => Err(io::ErrorKind::WriteZero.into()),
            Poll::Ready(count) => {
                self.written += count;
                Ok(Poll::Ready(()))
            }
            Poll::Pending => Ok(Poll::Pending),
        }
    }

    fn poll_end<W>(&mut self, cx: &mut Context<'_>, to: &mut W) -> io::Result<Poll<()>>
    where
        W: AsyncWrite + Unpin,
    {
        let ended = Pin::new(to).poll_shutdown(cx)?;
        if ended.is_ready() {
            self.end = End::Passed;
        }
        Ok(ended)
    }
}
