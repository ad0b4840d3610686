//! Joins a connection that is still opening to an ordinary one, until splicing can take over.

mod flow;
#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::relay::{
    Directions, LimitClock, Relay, RelayCounts, RelayEnd, RelayLimits, RelayReason, Side,
};
use flow::Flow;

/// A stream that becomes a plain TCP connection after its opening.
pub trait Handoff: AsyncRead + AsyncWrite + Unpin {
    /// Returns true once TCP alone carries the stream.
    fn is_transparent(&self) -> bool;

    /// Returns the TCP connection of a transparent stream; `None` if it has none yet.
    fn into_tcp(self) -> Option<TcpStream>;

    /// Closes the connection with a reset, not in order.
    fn reset(self);
}

/// A stream that has nothing to open.
impl Handoff for TcpStream {
    fn is_transparent(&self) -> bool {
        true
    }

    fn into_tcp(self) -> Option<TcpStream> {
        Some(self)
    }

    fn reset(self) {
        // On error, an ordinary close must do.
        let _ = self.set_zero_linger();
    }
}

/// Passes bytes between `opening`, which is [`Side::A`], and `other` until both are done.
///
/// `head` was read from `other` before, and goes first. `opened` is called once, when the opening
/// is over, also after a failure. Half-closes and resets are passed on: an error of one side resets
/// the other. The limits hold from the start, and bytes of the opening are counted like all others.
pub async fn bridge<H: Handoff>(
    opening: H,
    other: TcpStream,
    head: &[u8],
    limits: RelayLimits,
    counts: &RelayCounts,
    opened: impl FnOnce(&H),
) -> RelayEnd {
    Start::new(opening, other, head, limits).run(counts, opened).await
}

/// Outcome of an opening.
enum Outcome {
    /// Only TCP is left, to be relayed.
    Transparent,
    /// Both directions ended in order before that.
    Ended,
    Failed(RelayReason),
}

/// State until `opening` is transparent.
struct Start<H: Handoff> {
    ends: Ends<H>,
    /// From `opening` to `other`.
    down: Flow,
    /// From `other` to `opening`.
    up: Flow,
    clock: LimitClock,
}

impl<H: Handoff> Start<H> {
    fn new(opening: H, other: TcpStream, head: &[u8], limits: RelayLimits) -> Self {
        Self {
            ends: Ends(Some((opening, other))),
            down: Flow::new(&[]),
            up: Flow::new(head),
            clock: LimitClock::new(limits),
        }
    }

    /// Drives the opening, then continues as a relay.
    async fn run(mut self, counts: &RelayCounts, opened: impl FnOnce(&H)) -> RelayEnd {
        let outcome = poll_fn(|cx| self.poll(cx, counts)).await;
        if let Some((opening, _)) = &self.ends.0 {
            opened(opening);
        }
        let Self { ends, down, up, clock } = self;
        let (bytes_a_to_b, bytes_b_to_a) = (down.bytes(), up.bytes());
        let reason = match outcome {
            Outcome::Transparent => match ends.into_tcp() {
                Some((a, b)) => {
                    let directions = Directions { ab: down.into(), ba: up.into() };
                    return Relay::new(a, b, directions, clock).run(counts).await;
                }
                None => RelayReason::Reset(Side::A),
            },
            Outcome::Ended => {
                ends.close();
                RelayReason::Closed
            }
            Outcome::Failed(reason) => reason,
        };
        RelayEnd { reason, bytes_a_to_b, bytes_b_to_a }
    }

    fn poll(&mut self, cx: &mut Context<'_>, counts: &RelayCounts) -> Poll<Outcome> {
        let Some((opening, other)) = &mut self.ends.0 else { return Poll::Pending };
        let up = self.up.poll(cx, other, opening, &counts.b_to_a);
        if let Poll::Ready(Err(fault)) = up {
            return Poll::Ready(Outcome::Failed(fault.reason(Side::B, Side::A)));
        }
        // Either direction may find the opening over. The bytes it still holds are relayed first.
        if opening.is_transparent() {
            return Poll::Ready(Outcome::Transparent);
        }
        let down = self.down.poll(cx, opening, other, &counts.a_to_b);
        if let Poll::Ready(Err(fault)) = down {
            return Poll::Ready(Outcome::Failed(fault.reason(Side::A, Side::B)));
        }
        if opening.is_transparent() {
            return Poll::Ready(Outcome::Transparent);
        }
        if up.is_ready() && down.is_ready() {
            return Poll::Ready(Outcome::Ended);
        }
        let moved = self.up.bytes().wrapping_add(self.down.bytes());
        let half_closed = self.up.is_ended() || self.down.is_ended();
        self.clock.poll(cx, moved, half_closed).map(|limit| Outcome::Failed(limit.into()))
    }
}

/// The two connections; dropped with them inside, it resets both.
struct Ends<H: Handoff>(Option<(H, TcpStream)>);

impl<H: Handoff> Ends<H> {
    /// Returns both as TCP connections.
    fn into_tcp(mut self) -> Option<(TcpStream, TcpStream)> {
        let (opening, other) = self.0.take()?;
        match opening.into_tcp() {
            Some(tcp) => Some((tcp, other)),
            None => {
                let _ = other.set_zero_linger();
                None
            }
        }
    }

    /// Closes both in order.
    fn close(mut self) {
        self.0 = None;
    }
}

impl<H: Handoff> Drop for Ends<H> {
    fn drop(&mut self) {
        if let Some((opening, other)) = self.0.take() {
            opening.reset();
            // On error, an ordinary close must do.
            let _ = other.set_zero_linger();
        }
    }
}
