//! Time limits of whatever passes bytes on: relays, openings, tunnels, connections of HTTP.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep};

use super::RelayLimits;

/// Time limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeLimit {
    /// Nothing moved for too long.
    Idle,
    /// The whole lasted too long.
    Total,
}

/// Measures progress against [`RelayLimits`], on one timer that is reset only when it fires.
///
/// Either await [`poll`](Self::poll) beside the work that moves bytes, or call
/// [`note`](Self::note) at times of your own.
#[derive(Debug)]
pub struct LimitClock {
    limits: RelayLimits,
    started: Instant,
    last_moved: Instant,
    moved: u64,
    half_closed: bool,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl LimitClock {
    /// Starts a clock now.
    #[must_use]
    pub fn new(limits: RelayLimits) -> Self {
        Self::since(limits, Instant::now())
    }

    /// Creates a clock that started at `started`.
    #[must_use]
    pub fn since(limits: RelayLimits, started: Instant) -> Self {
        let last_moved = started;
        Self { limits, started, last_moved, moved: 0, half_closed: false, sleep: None }
    }

    /// Notes progress (`moved` differs from last time); returns the limit that is reached.
    pub fn note(&mut self, now: Instant, moved: u64, half_closed: bool) -> Option<TimeLimit> {
        if moved != self.moved || half_closed != self.half_closed {
            (self.moved, self.half_closed) = (moved, half_closed);
            self.last_moved = now;
        }
        self.next().filter(|(deadline, _)| *deadline <= now).map(|(_, limit)| limit)
    }

    /// Notes progress like [`note`](Self::note); ready when a limit is reached.
    ///
    /// Poll it after the work that moves bytes, in the same task: it sees the progress of a poll
    /// only then.
    pub fn poll(&mut self, cx: &mut Context<'_>, moved: u64, half_closed: bool) -> Poll<TimeLimit> {
        if self.limits == RelayLimits::default() {
            return Poll::Pending;
        }
        let mut set = half_closed && !self.half_closed;
        loop {
            if let Some(limit) = self.note(Instant::now(), moved, half_closed) {
                return Poll::Ready(limit);
            }
            let Some((deadline, _)) = self.next() else { return Poll::Pending };
            let sleep =
                self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
            if set {
                sleep.as_mut().reset(deadline);
            }
            if sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            set = true;
        }
    }

    /// Returns the limit that is reached first if nothing moves, and when.
    #[must_use]
    pub fn next(&self) -> Option<(Instant, TimeLimit)> {
        let idle = match (self.limits.idle, self.limits.half_closed_idle) {
            (Some(idle), Some(half_closed)) if self.half_closed => Some(idle.min(half_closed)),
            (None, half_closed) if self.half_closed => half_closed,
            (idle, _) => idle,
        };
        // A limit beyond the range of the clock counts as none.
        let idle = idle.and_then(|idle| self.last_moved.checked_add(idle));
        let total = self.limits.total.and_then(|total| self.started.checked_add(total));
        match (idle, total) {
            (Some(idle), Some(total)) if total <= idle => Some((total, TimeLimit::Total)),
            (Some(idle), _) => Some((idle, TimeLimit::Idle)),
            (None, Some(total)) => Some((total, TimeLimit::Total)),
            (None, None) => None,
        }
    }
}
