//! Relays bytes between two TCP connections until both have ended.
//!
//! Small pieces are copied through one buffer of the thread; where a connection delivers faster
//! than that buffer drains, bytes move by splice(2) through a pipe and are not copied at all
//! (`SPLICE_AFTER`).
//!
//! Memory: a relay with nothing in flight holds none. In each direction, at most `COPY_BUFFER`
//! bytes or one pipe of `PIPE_CAPACITY` bytes are in flight; beyond `PIPES_IN_USE` pipes in the
//! process, relays only copy. The rest is the kernel's socket buffers: a slow reader stops the
//! sender through TCP.

use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::TcpStream;

mod clock;
mod direction;
mod pipe;
#[cfg(test)]
mod tests;

pub use clock::{LimitClock, TimeLimit};
pub(crate) use direction::{Direction, Fault, Stage};

/// Time limits of a relay; `None` means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayLimits {
    /// Longest time without a byte in either direction.
    pub idle: Option<Duration>,
    /// Longest time without a byte once one direction has ended; the shorter of this and `idle`
    /// counts then.
    pub half_closed_idle: Option<Duration>,
    /// Longest total time.
    pub total: Option<Duration>,
}

/// Bytes relayed so far, readable while relays run; may be shared by many of them.
#[derive(Debug, Default)]
pub struct RelayCounts {
    pub(crate) a_to_b: AtomicU64,
    pub(crate) b_to_a: AtomicU64,
}

impl RelayCounts {
    /// Returns the bytes taken from `a` and given to the kernel for `b`.
    pub fn a_to_b(&self) -> u64 {
        self.a_to_b.load(Ordering::Relaxed)
    }

    /// Returns the bytes taken from `b` and given to the kernel for `a`.
    pub fn b_to_a(&self) -> u64 {
        self.b_to_a.load(Ordering::Relaxed)
    }
}

/// One of the two connections of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The opening stream of [`bridge`](crate::bridge()).
    A,
    /// The other connection.
    B,
}

/// Reason why a relay ended.
#[derive(Debug)]
pub enum RelayReason {
    /// Both directions ended in order, and every byte was passed on.
    Closed,
    /// This side reset its connection; the other side was reset too.
    Reset(Side),
    /// No byte moved for the idle limit; both sides were reset, so that it does not look like an
    /// orderly end.
    IdleLimit,
    /// The relay reached its total time; both sides were reset.
    TotalLimit,
    /// This side failed otherwise (for example timed out); both sides were reset.
    Error(Side, io::Error),
}

impl From<TimeLimit> for RelayReason {
    fn from(limit: TimeLimit) -> Self {
        match limit {
            TimeLimit::Idle => Self::IdleLimit,
            TimeLimit::Total => Self::TotalLimit,
        }
    }
}

/// Result of a relay.
#[derive(Debug)]
pub struct RelayEnd {
    /// Reason.
    pub reason: RelayReason,
    /// Bytes from `a` that the kernel took for `b`.
    pub bytes_a_to_b: u64,
    /// Bytes from `b` that the kernel took for `a`.
    pub bytes_b_to_a: u64,
}

/// Passes bytes between two connections in both directions until both have ended.
///
/// The end of one direction is passed on by shutdown and leaves the other direction open. A reset
/// is passed on as a reset (close with a linger time of zero) and never becomes an orderly end.
/// Both connections are closed when this is dropped; before [`run`](Self::run) has ended, with a
/// reset: a relay stopped half-way must not look like a regular end.
pub(crate) struct Relay {
    connections: Connections,
    directions: Directions,
    clock: LimitClock,
}

impl Relay {
    /// Creates a relay. `directions` holds bytes read before and not written; `clock` has run since
    /// the relay started.
    pub(crate) fn new(
        a: TcpStream,
        b: TcpStream,
        directions: Directions,
        clock: LimitClock,
    ) -> Self {
        Self { connections: Connections { a, b, orderly: false }, directions, clock }
    }

    /// Runs to the end; the result counts all bytes, also earlier ones.
    pub(crate) async fn run(&mut self, counts: &RelayCounts) -> RelayEnd {
        let reason = match self.connections.set_no_delay() {
            Ok(()) => self.pass(counts).await,
            Err(reason) => reason,
        };
        self.connections.orderly = matches!(reason, RelayReason::Closed);
        let directions = &self.directions;
        RelayEnd {
            reason,
            bytes_a_to_b: directions.ab.bytes(),
            bytes_b_to_a: directions.ba.bytes(),
        }
    }

    /// Runs both directions, the watch for resets and the clock in one task.
    async fn pass(&mut self, counts: &RelayCounts) -> RelayReason {
        let Self { connections, directions, clock } = self;
        let mut fault_a = pin!(fault(&connections.a));
        let mut fault_b = pin!(fault(&connections.b));
        std::future::poll_fn(|cx| {
            let moved = match directions.poll(cx, connections, counts) {
                Poll::Ready(reason) => return Poll::Ready(reason),
                Poll::Pending => directions.ab.bytes().wrapping_add(directions.ba.bytes()),
            };
            // A side that is being read shows its reset there, after the bytes before it. The watch
            // is for a side that is not.
            if !directions.ab.is_reading()
                && let Poll::Ready(error) = fault_a.as_mut().poll(cx)
            {
                return Poll::Ready(reason(Side::A, error));
            }
            if !directions.ba.is_reading()
                && let Poll::Ready(error) = fault_b.as_mut().poll(cx)
            {
                return Poll::Ready(reason(Side::B, error));
            }
            let half_closed = directions.ab.is_done() || directions.ba.is_done();
            clock.poll(cx, moved, half_closed).map(RelayReason::from)
        })
        .await
    }
}

/// The two connections; closes them with a reset unless the relay ended in order.
struct Connections {
    a: TcpStream,
    b: TcpStream,
    orderly: bool,
}

impl Connections {
    /// Disables Nagle's algorithm: bytes written at once were meant to leave at once.
    fn set_no_delay(&self) -> Result<(), RelayReason> {
        self.a.set_nodelay(true).map_err(|error| reason(Side::A, error))?;
        self.b.set_nodelay(true).map_err(|error| reason(Side::B, error))
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        if !self.orderly {
            // On error, an ordinary close must do.
            let _ = self.a.set_zero_linger();
            let _ = self.b.set_zero_linger();
        }
    }
}

/// Both directions.
#[derive(Default)]
pub(crate) struct Directions {
    pub(crate) ab: Direction,
    pub(crate) ba: Direction,
}

impl Directions {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        connections: &Connections,
        counts: &RelayCounts,
    ) -> Poll<RelayReason> {
        let ab = self.ab.poll(cx, &connections.a, &connections.b, &counts.a_to_b);
        if let Poll::Ready(Err(fault)) = ab {
            return Poll::Ready(fault.reason(Side::A, Side::B));
        }
        let ba = self.ba.poll(cx, &connections.b, &connections.a, &counts.b_to_a);
        if let Poll::Ready(Err(fault)) = ba {
            return Poll::Ready(fault.reason(Side::B, Side::A));
        }
        if ab.is_ready() && ba.is_ready() {
            // Closing does the same as shutting down the direction that ended last.
            return Poll::Ready(RelayReason::Closed);
        }
        if ab.is_ready()
            && let Err(fault) = self.ab.pass_end_on(&connections.b)
        {
            return Poll::Ready(fault.reason(Side::A, Side::B));
        }
        if ba.is_ready()
            && let Err(fault) = self.ba.pass_end_on(&connections.a)
        {
            return Poll::Ready(fault.reason(Side::B, Side::A));
        }
        Poll::Pending
    }
}

impl Fault {
    pub(crate) fn reason(self, from: Side, to: Side) -> RelayReason {
        match self {
            Self::From(error) => reason(from, error),
            Self::To(error) => reason(to, error),
        }
    }
}

fn reason(side: Side, error: io::Error) -> RelayReason {
    match error.kind() {
        // EPIPE is how Linux reports a reset that follows a FIN (tcp_reset in CLOSE_WAIT), ENOTCONN
        // one that was already reported.
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::NotConnected => RelayReason::Reset(side),
        _ => RelayReason::Error(side, error),
    }
}

/// Waits until the connection has failed.
async fn fault(stream: &TcpStream) -> io::Error {
    loop {
        if let Err(error) = stream.ready(Interest::ERROR).await {
            return error;
        }
        match stream.take_error() {
            Ok(Some(error)) | Err(error) => return error,
            // A read or a write took the error, and has reported it by now: nothing is left to
            // watch for.
            Ok(None) => std::future::pending().await,
        }
    }
}
