//! The time limits of a relay.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep};

use super::{RelayLimits, RelayReason};

/// The limits of a relay on one timer, which is reset only when it fires.
pub(crate) struct Clock {
    limits: RelayLimits,
    started: Instant,
    last_moved: Instant,
    moved: u64,
    half_closed: bool,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Clock {
    pub(crate) fn new(limits: RelayLimits) -> Self {
        Self::since(limits, Instant::now())
    }

    /// Creates a clock that started at `started`.
    pub(crate) fn since(limits: RelayLimits, started: Instant) -> Self {
        let last_moved = started;
        Self { limits, started, last_moved, moved: 0, half_closed: false, sleep: None }
    }

    /// Notes progress (`moved` differs from last time); ready when a limit is reached.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        moved: u64,
        half_closed: bool,
    ) -> Poll<RelayReason> {
        if self.limits == RelayLimits::default() {
            return Poll::Pending;
        }
        let now = Instant::now();
        if moved != self.moved || half_closed != self.half_closed {
            self.moved = moved;
            self.last_moved = now;
        }
        let shorter = half_closed && !self.half_closed;
        self.half_closed = half_closed;
        self.poll_timer(cx, now, shorter)
    }

    fn poll_timer(
        &mut self,
        cx: &mut Context<'_>,
        mut now: Instant,
        mut set: bool,
    ) -> Poll<RelayReason> {
        loop {
            let Some((deadline, reason)) = self.next() else {
                return Poll::Pending;
            };
            if deadline <= now {
                return Poll::Ready(reason);
            }
            let sleep =
                self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
            if set {
                sleep.as_mut().reset(deadline);
            }
            if sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            now = Instant::now();
            set = true;
        }
    }

    /// Returns the limit that is reached first.
    fn next(&self) -> Option<(Instant, RelayReason)> {
        let idle = match (self.limits.idle, self.limits.half_closed_idle) {
            (Some(idle), Some(half_closed)) if self.half_closed => Some(idle.min(half_closed)),
            (None, half_closed) if self.half_closed => half_closed,
            (idle, _) => idle,
        };
        // A limit beyond the range of the clock counts as none.
        let idle = idle.and_then(|idle| self.last_moved.checked_add(idle));
        let total = self.limits.total.and_then(|total| self.started.checked_add(total));
        match (idle, total) {
            (Some(idle), Some(total)) if total <= idle => Some((total, RelayReason::TotalLimit)),
            (Some(idle), _) => Some((idle, RelayReason::IdleLimit)),
            (None, Some(total)) => Some((total, RelayReason::TotalLimit)),
            (None, None) => None,
        }
    }
}
