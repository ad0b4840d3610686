//! How long a terminated connection may take, and be quiet.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use headstart_net::{Moved, RelayLimits, ServerStream, TlsHandle};
use tokio::time::Instant;

use super::body::Pending;
use crate::metrics::{self, Direction, Outcome};

/// How long a client may be without a request: what nginx allows.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(75);

/// A connection is looked at so often at least, which makes its limits so much longer at most.
const LOOK_EVERY: Duration = Duration::from_secs(15);

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// Both sides have ended it in order.
    Closed,
    /// The handshake failed: the client is none of TLS, or does not want what there is.
    Refused,
    /// One side broke off.
    Broken,
    /// The origin cannot be connected to.
    Unreachable,
    /// The handshake was not done in time.
    Handshake,
    /// Nothing was sent for too long.
    Idle,
    /// It has lasted as long as any may.
    Total,
}

impl Over {
    pub(super) const fn outcome(self) -> Outcome {
        match self {
            Self::Closed => Outcome::Closed,
            Self::Refused => Outcome::Refused,
            Self::Broken => Outcome::Reset,
            Self::Unreachable => Outcome::Unreachable,
            Self::Handshake | Self::Idle | Self::Total => Outcome::TimedOut,
        }
    }
}

/// What time brings about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Nobody has asked for anything for a while: said once.
    Unused,
    Over(Over),
}

/// The limits of one connection.
#[derive(Debug)]
pub(super) struct Life {
    tls: TlsHandle<ServerStream>,
    pending: Pending,
    handshake_until: Instant,
    idle: Option<Duration>,
    total: Option<Instant>,
    /// How far it was when last looked at, and what was reported of it.
    moved: Moved,
    reported: Moved,
    quiet_since: Instant,
    look_at: Instant,
    unused: bool,
    counted: AtomicBool,
}

impl Life {
    /// Of a connection that begins now; `pending` are its requests.
    pub(super) fn new(
        tls: TlsHandle<ServerStream>,
        pending: Pending,
        handshake: Duration,
        limits: RelayLimits,
    ) -> Self {
        let now = Instant::now();
        Self {
            tls,
            pending,
            handshake_until: now + handshake,
            idle: limits.idle,
            // A limit beyond the end of the clock is none.
            total: limits.total.and_then(|total| now.checked_add(total)),
            moved: Moved::default(),
            reported: Moved::default(),
            quiet_since: now,
            look_at: now,
            unused: false,
            counted: AtomicBool::new(false),
        }
    }

    /// Waits until the client may be answered.
    ///
    /// # Errors
    /// Why it cannot be.
    pub(super) async fn opened(&self) -> Result<(), Over> {
        match tokio::time::timeout_at(self.handshake_until, self.tls.opened()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(self.failed(&error)),
            Err(_) => Err(self.too_slow()),
        }
    }

    /// Brings the handshake on; ends only if it fails.
    pub(super) async fn handshake(&self) -> Over {
        match tokio::time::timeout_at(self.handshake_until, self.tls.done()).await {
            Ok(Ok(())) => {
                self.count(|| metrics::handshake(&self.tls.facts()));
                std::future::pending().await
            }
            Ok(Err(error)) => self.failed(&error),
            Err(_) => self.too_slow(),
        }
    }

    /// The next thing that happens for want of time. Nothing is forgotten if it is dropped.
    pub(super) async fn next(&mut self) -> Event {
        loop {
            let look_at = self.total.map_or(self.look_at, |total| total.min(self.look_at));
            tokio::select! {
                over = self.handshake() => return Event::Over(over),
                () = tokio::time::sleep_until(look_at) => {}
            }
            if let Some(event) = self.look(Instant::now()) {
                return event;
            }
        }
    }

    /// Adds the bytes since the last report to the metrics.
    pub(super) fn report(&mut self) {
        let moved = self.tls.moved();
        metrics::relayed(Direction::ToServer, moved.read - self.reported.read);
        metrics::relayed(Direction::ToClient, moved.written - self.reported.written);
        self.reported = moved;
    }

    fn look(&mut self, now: Instant) -> Option<Event> {
        self.report();
        if self.reported.transport != self.moved.transport {
            self.moved = self.reported;
            self.quiet_since = now;
        }
        let quiet = now.saturating_duration_since(self.quiet_since);
        self.look_at = now + self.idle.map_or(LOOK_EVERY, look_every);
        if self.total.is_some_and(|total| now >= total) {
            return Some(Event::Over(Over::Total));
        }
        if self.idle.is_some_and(|idle| quiet >= idle) {
            return Some(Event::Over(Over::Idle));
        }
        let unused = !self.unused && quiet >= KEEP_ALIVE && self.pending.is_empty();
        self.unused |= unused;
        unused.then_some(Event::Unused)
    }

    fn failed(&self, error: &std::io::Error) -> Over {
        tracing::debug!(%error, "TLS with a client");
        self.count(|| metrics::handshake_failed("failed"));
        Over::Refused
    }

    fn too_slow(&self) -> Over {
        self.count(|| metrics::handshake_failed("timed_out"));
        Over::Handshake
    }

    /// Counts what became of the handshake, once.
    fn count(&self, count: impl FnOnce()) {
        if !self.counted.swap(true, Ordering::Relaxed) {
            count();
        }
    }
}

/// Often enough for an idle limit to be met by a quarter.
fn look_every(idle: Duration) -> Duration {
    (idle / 4).clamp(Duration::from_millis(10), LOOK_EVERY)
}
