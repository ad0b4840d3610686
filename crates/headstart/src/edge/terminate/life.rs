//! Time limits of a terminated connection, in all and idle.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use headstart_net::{ByteCounts, LimitClock, RelayLimits, ServerStream, TimeLimit, TlsHandle};
use headstart_tls::TlsError;
use tokio::time::Instant;

use super::body::Pending;
use crate::base::log_throttle::LogThrottle;
use crate::base::printable::printable_word;
use crate::metrics::{self, Direction, Outcome};

/// Time without a request after which a client is told to leave: what nginx allows.
const KEEP_ALIVE: Duration = Duration::from_secs(75);

/// Time without a request after which the connection ends. Only a client that sends something now
/// and then, and no request, gets this far.
const UNUSED_MAX: Duration = Duration::from_secs(135);

/// Time after which a connection takes no more requests: what nginx allows (`keepalive_time`).
const AGE_MAX: Duration = Duration::from_secs(60 * 60);

/// Bytes of bodies that have to move for a client to count as one that still reads its responses:
/// up to 8 MiB of complete ones may wait in the connection, and a slow client needs its time for
/// them.
const READING: u64 = 1024;

/// More than any client takes for a handshake, and not beyond the end of the clock.
const HANDSHAKE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Handshakes that fail: anybody may cause them.
static FAILED: LogThrottle = LogThrottle::new();

/// Longest interval between two checks of a connection, and so by how much its limits may be late.
const LOOK_EVERY: Duration = Duration::from_secs(15);

/// Reason for the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// Both sides have closed it in order.
    Closed,
    /// The handshake failed: the client does not speak TLS, or rejects the edge's parameters.
    Refused,
    /// One side broke off.
    Broken,
    /// The origin cannot be connected to.
    Unreachable,
    /// The handshake was not done in time.
    Handshake,
    /// Nothing was sent for too long.
    Idle,
    /// The client has taken nothing of a response for too long.
    Stalled,
    /// Others need the memory that it holds.
    Evicted,
    /// The origin broke off a response, and what it had sent is passed on.
    CutShort,
    /// It has reached the limit on its total time.
    Total,
}

impl Over {
    pub(super) const fn outcome(self) -> Outcome {
        match self {
            Self::Closed => Outcome::Closed,
            Self::Refused => Outcome::Refused,
            Self::Broken | Self::CutShort | Self::Evicted => Outcome::Reset,
            Self::Unreachable => Outcome::Unreachable,
            Self::Handshake | Self::Idle | Self::Stalled | Self::Total => Outcome::TimedOut,
        }
    }
}

/// Event of a time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// No request has come for a while: happens once.
    Unused,
    Over(Over),
}

/// Time limits on what a client sends and takes.
#[derive(Clone, Copy, Debug)]
pub(in crate::edge) struct ClientTimeouts {
    /// Time for the head of a request, from its first byte on.
    pub(in crate::edge) head: Duration,
    /// Time that a client may take nothing of a response.
    pub(in crate::edge) stalled: Duration,
}

/// Time limits of one connection.
#[derive(Debug)]
pub(super) struct Life {
    tls: TlsHandle<ServerStream>,
    pending: Pending,
    begun: Instant,
    handshake_until: Instant,
    clock: Clock,
    look_every: Duration,
    look_at: Instant,
    client: ClientTimeouts,
    in_tunnel: bool,
    /// Bytes that were reported.
    reported: ByteCounts,
    counted: AtomicBool,
}

impl Life {
    /// Starts the limits of a connection that begins now; `pending` are its requests.
    pub(super) fn new(
        tls: TlsHandle<ServerStream>,
        pending: Pending,
        handshake: Duration,
        limits: RelayLimits,
        client: ClientTimeouts,
    ) -> Self {
        let begun = Instant::now();
        let shortest = client.head.min(client.stalled);
        Self {
            tls,
            pending,
            begun,
            handshake_until: begun + handshake.min(HANDSHAKE_MAX),
            clock: Clock::new(begun, limits),
            look_every: look_every(limits.idle.map_or(shortest, |idle| idle.min(shortest))),
            look_at: begun,
            client,
            in_tunnel: false,
            reported: ByteCounts::default(),
            counted: AtomicBool::new(false),
        }
    }

    /// Waits until the edge may respond to the client.
    ///
    /// # Errors
    /// Why it cannot be.
    pub(super) async fn opened(&self) -> Result<(), Over> {
        match tokio::time::timeout_at(self.handshake_until, self.tls.opened()).await {
            Ok(Ok(())) => {
                if self.tls.is_done() {
                    self.done();
                }
                Ok(())
            }
            Ok(Err(error)) => Err(self.failed(&error)),
            Err(_) => Err(self.too_slow()),
        }
    }

    /// Drives the handshake; ends only if it fails.
    pub(super) async fn handshake(&self) -> Over {
        match tokio::time::timeout_at(self.handshake_until, self.tls.done()).await {
            Ok(Ok(())) => {
                self.done();
                std::future::pending().await
            }
            Ok(Err(error)) => self.failed(&error),
            Err(_) => self.too_slow(),
        }
    }

    /// Returns the next event. Cancel safe.
    pub(super) async fn next(&mut self) -> Event {
        loop {
            let limit = self.clock.movement.next().map(|(at, _)| at);
            let look_at = limit.map_or(self.look_at, |limit| limit.min(self.look_at));
            tokio::select! {
                over = self.handshake() => return Event::Over(over),
                () = self.pending.client().eviction() => return Event::Over(Over::Evicted),
                () = tokio::time::sleep_until(look_at) => {}
            }
            if let Some(event) = self.look(Instant::now()) {
                return event;
            }
        }
    }

    /// Notes that all bytes are now those of a tunnel.
    pub(super) fn enter_tunnel(&mut self) {
        self.in_tunnel = true;
    }

    /// Adds the bytes since the last report to the metrics, and a handshake that is done: a client
    /// whose request was early data may close before anybody has waited for that.
    pub(super) fn report(&mut self) {
        if self.tls.is_done() {
            self.done();
        }
        let moved = self.tls.byte_counts();
        metrics::relayed(Direction::ToServer, moved.read - self.reported.read);
        metrics::relayed(Direction::ToClient, moved.written - self.reported.written);
        self.reported = moved;
    }

    fn look(&mut self, now: Instant) -> Option<Event> {
        self.report();
        self.look_at = now + self.look_every;
        let (stalled, all_cancelled) = self.pending.client().cancel_stalled(self.client.stalled);
        for _ in 0..stalled {
            metrics::limit_hit("answer_not_taken");
        }
        if !all_cancelled {
            return Some(Event::Over(Over::Stalled));
        }
        if self.pending.client().head_age() >= self.client.head {
            metrics::limit_hit("request_head_time");
            return Some(Event::Over(Over::Idle));
        }
        let moved = match self.in_tunnel {
            true => self.reported.read.wrapping_add(self.reported.written),
            false => self.pending.client().moved(),
        };
        let seen =
            Seen { moved, begun: self.pending.begun(), is_pending: !self.pending.is_empty() };
        self.clock.look(now, seen)
    }

    fn done(&self) {
        self.count(|| metrics::handshake(&self.tls.facts(), self.begun.elapsed()));
    }

    fn failed(&self, error: &std::io::Error) -> Over {
        let fault = error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>());
        self.count(|| {
            metrics::handshake_failed("failed");
            match fault {
                // Scanners that break off are noise.
                None | Some(TlsError::Truncated | TlsError::Alert(TlsError::CLOSE_NOTIFY)) => {
                    tracing::debug!(%error, "a client broke off its handshake");
                }
                Some(_) => self.log_handshake("failed", &error),
            }
        });
        Over::Refused
    }

    fn too_slow(&self) -> Over {
        self.count(|| {
            metrics::handshake_failed("timed_out");
            self.log_handshake("timed_out", &"not done in time (--hello-timeout)");
        });
        Over::Handshake
    }

    fn log_handshake(&self, result: &'static str, error: &dyn fmt::Display) {
        let Some(left_out) = FAILED.line_about(result, std::time::Instant::now()) else { return };
        let client = self.tls.with_transport(|client| {
            let hello = client.client_hello();
            let name = hello.and_then(|hello| hello.server_name.as_deref()).unwrap_or("-");
            (client.peer_addr(), printable_word(name).into_owned())
        });
        let (client, name) = client.unzip();
        let client = client.map(tracing::field::display);
        tracing::info!(client, name, %error, left_out, "no TLS with a client");
    }

    /// Counts the outcome of the handshake, once.
    fn count(&self, count: impl FnOnce()) {
        if !self.counted.swap(true, Ordering::Relaxed) {
            count();
        }
    }
}

/// Observation of a connection.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Bytes of bodies that have moved, both ways; of a tunnel all bytes.
    moved: u64,
    /// Requests so far.
    begun: u64,
    /// True if some responses are not complete.
    is_pending: bool,
}

/// Time limits of a connection, checked against observations.
#[derive(Debug)]
struct Clock {
    /// Measures movement of bodies; PING, SETTINGS and WINDOW_UPDATE are none.
    movement: LimitClock,
    /// Measures use: requests, and responses that are still read.
    usage: LimitClock,
    uses: u64,
    seen: Seen,
    /// Bytes that had moved when it was last used.
    read: u64,
    old_at: Option<Instant>,
    /// True once the connection was told to take no more requests.
    notified: bool,
}

impl Clock {
    fn new(begun: Instant, limits: RelayLimits) -> Self {
        Self {
            movement: LimitClock::since(limits, begun),
            usage: LimitClock::since(idle(KEEP_ALIVE), begun),
            uses: 0,
            seen: Seen::default(),
            read: 0,
            old_at: begun.checked_add(AGE_MAX),
            notified: false,
        }
    }

    fn look(&mut self, now: Instant, seen: Seen) -> Option<Event> {
        let reads = seen.moved.saturating_sub(self.read) >= READING;
        if seen.is_pending || seen.begun != self.seen.begun || reads {
            self.read = seen.moved;
            self.uses += 1;
        }
        self.seen = seen;
        match self.movement.note(now, seen.moved.wrapping_add(seen.begun), false) {
            Some(TimeLimit::Total) => return Some(Event::Over(Over::Total)),
            Some(TimeLimit::Idle) => return Some(Event::Over(Over::Idle)),
            None => {}
        }
        let unused = self.usage.note(now, self.uses, false).is_some();
        if unused && self.notified {
            return Some(Event::Over(Over::Idle));
        }
        let is_old = self.old_at.is_some_and(|old_at| now >= old_at);
        if !self.notified && (unused || is_old) {
            self.notified = true;
            // If it is used all the same, it has the whole time again.
            self.usage = LimitClock::since(idle(UNUSED_MAX - KEEP_ALIVE), now);
            return Some(Event::Unused);
        }
        None
    }
}

const fn idle(limit: Duration) -> RelayLimits {
    RelayLimits { idle: Some(limit), half_closed_idle: None, total: None }
}

/// Returns the interval of checks: often enough to exceed an idle limit by a quarter at most.
fn look_every(idle: Duration) -> Duration {
    (idle / 4).clamp(Duration::from_millis(10), LOOK_EVERY)
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(600);

    fn clock(total: Option<Duration>) -> (Instant, Clock) {
        let limits = RelayLimits { idle: Some(IDLE), half_closed_idle: None, total };
        let begun = Instant::now();
        (begun, Clock::new(begun, limits))
    }

    /// Returns the clock's events for a connection that `at` shows second by second.
    fn events(
        total: Option<Duration>,
        seconds: u64,
        at: impl Fn(u64) -> Seen,
    ) -> Vec<(u64, Event)> {
        let (begun, mut clock) = clock(total);
        (0..seconds)
            .filter_map(|second| {
                let event = clock.look(begun + Duration::from_secs(second), at(second));
                event.map(|event| (second, event))
            })
            .collect()
    }

    const GONE: Event = Event::Over(Over::Idle);

    #[test]
    fn an_unused_connection_is_told_to_leave_and_then_made_to() {
        assert_eq!(events(None, 136, |_| Seen::default()), [(75, Event::Unused), (135, GONE)]);
        // Nor does a byte now and then help.
        assert_eq!(
            events(None, 136, |second| Seen { moved: 4 * second, ..Seen::default() }),
            [(75, Event::Unused), (135, GONE)]
        );
    }

    #[test]
    fn requests_and_responses_that_are_still_read_are_use() {
        assert!(
            events(None, 600, |second| Seen {
                begun: second / 60,
                moved: second / 60,
                ..Seen::default()
            })
            .is_empty()
        );
        assert!(
            events(None, 600, |second| Seen { moved: 20 * second, ..Seen::default() }).is_empty()
        );
        assert_eq!(
            events(None, 180, |second: u64| Seen {
                is_pending: second < 100,
                begun: 1,
                ..Seen::default()
            }),
            [(99 + 75, Event::Unused)]
        );
    }

    #[test]
    fn nothing_lasts_longer_than_it_may() {
        let waits = Seen { is_pending: true, ..Seen::default() };
        assert_eq!(events(None, 601, |_| waits), [(600, GONE)]);
        let total = Some(Duration::from_secs(50));
        assert_eq!(events(total, 51, |_| waits), [(50, Event::Over(Over::Total))]);
        assert!(events(Some(Duration::MAX), 60, |_| waits).is_empty(), "nobody lives to see it");
    }

    #[test]
    fn a_connection_takes_requests_for_an_hour() {
        assert_eq!(
            events(None, 2 * 3600, |second| Seen {
                moved: second,
                begun: second,
                ..Seen::default()
            }),
            [(3600, Event::Unused)]
        );
    }
}
