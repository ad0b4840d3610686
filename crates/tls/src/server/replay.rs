use std::collections::HashSet;
use std::fmt;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use openssl::rand::rand_bytes;

use crate::error::ConfigError;
use crate::limits::{CLOCK_SLACK, REPLAY_ENTRIES, REPLAY_LIFE};

/// Replay cache: remembers ClientHellos with early data, so that each is accepted once (RFC 8446
/// section 8.2).
///
/// In doubt it returns false: then the session is resumed, and the client sends its data again once
/// the handshake is done. OpenSSL calls it during a handshake, so it must not take long.
pub trait ReplayFilter: Send + Sync {
    /// Returns the name of this filter's memory. It is written into tickets, and only tickets of
    /// the same scope allow early data.
    ///
    /// Filters that share their memory have the same scope; a memory that starts over needs a new
    /// one, unless it denies everything until all earlier ClientHellos are too old. Called for each
    /// ClientHello with early data that OpenSSL considers fresh, before
    /// [`is_first`](Self::is_first).
    fn scope(&self) -> [u8; 16];

    /// Returns true if the binder with this hash arrives for the first time within [`REPLAY_LIFE`];
    /// later calls return false.
    fn is_first(&self, binder: [u8; 32]) -> bool;
}

/// A filter's answer from before the handshake, for filters that take longer than a handshake can
/// wait: a ClientHello with early data has arrived for the first time.
///
/// The binder is public, so the caller can read it and ask about it before TLS sees it. TLS then
/// accepts early data if it has verified that binder, and the ticket has the scope. See
/// [`ServerContext::accept_first`](crate::ServerContext::accept_first).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstSeen {
    /// Scope of the filter's memory when it was asked.
    pub scope: [u8; 16],
    /// The [`binder_key`](crate::wire::binder_key) of the first binder.
    pub binder: [u8; 32],
}

/// Denies all early data.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoEarlyData;

impl ReplayFilter for NoEarlyData {
    fn scope(&self) -> [u8; 16] {
        [0; 16]
    }

    fn is_first(&self, _: [u8; 32]) -> bool {
        false
    }
}

/// A replay cache in the memory of one process: accepts early data only with its own tickets.
///
/// Denies everything for [`REPLAY_LIFE`] after its start, and everything beyond its capacity. It
/// measures time with a monotonic clock. If the wall clock is set back, it disowns earlier tickets:
/// OpenSSL judges freshness by that clock.
pub struct MemoryFilter {
    clocks: Box<dyn Fn() -> Clocks + Send + Sync>,
    capacity: usize,
    seen: Mutex<Seen>,
}

/// Readings of two clocks at one moment.
#[derive(Clone, Copy)]
struct Clocks {
    /// Time since the start, by a clock that nobody sets.
    since_start: Duration,
    /// Time since 1970, by the clock that dates tickets.
    wall: Duration,
}

struct Seen {
    scope: [u8; 16],
    /// Moment of the greatest lead of the wall clock over the other.
    ahead: Clocks,
    /// Time at which the generations last changed.
    rotated: Duration,
    /// Binders since then.
    newer: HashSet<[u8; 32]>,
    /// Binders between the last two changes.
    older: HashSet<[u8; 32]>,
}

impl MemoryFilter {
    /// Creates a filter that starts now, with room for [`REPLAY_ENTRIES`].
    ///
    /// # Errors
    /// [`ConfigError::Openssl`]: a failure of randomness.
    pub fn new() -> Result<Self, ConfigError> {
        let start = Instant::now();
        Self::build(REPLAY_ENTRIES, move || Clocks { since_start: start.elapsed(), wall: wall() })
    }

    /// Creates a filter with room for `capacity` ClientHellos in each [`REPLAY_LIFE`], with a clock
    /// that shows the time since the start and a wall clock that is never set.
    ///
    /// # Errors
    /// [`ConfigError::Openssl`]: a failure of randomness.
    pub fn with_clock(
        capacity: usize,
        clock: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Result<Self, ConfigError> {
        Self::build(capacity, move || {
            let now = clock();
            Clocks { since_start: now, wall: now }
        })
    }

    /// Creates a filter as [`with_clock`](Self::with_clock) does, with a wall clock that shows the
    /// time since 1970 and may be set.
    ///
    /// # Errors
    /// [`ConfigError::Openssl`]: a failure of randomness.
    pub fn with_clocks(
        capacity: usize,
        clock: impl Fn() -> Duration + Send + Sync + 'static,
        wall: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Result<Self, ConfigError> {
        Self::build(capacity, move || Clocks { since_start: clock(), wall: wall() })
    }

    fn build(
        capacity: usize,
        clocks: impl Fn() -> Clocks + Send + Sync + 'static,
    ) -> Result<Self, ConfigError> {
        let mut scope = [0; 16];
        rand_bytes(&mut scope)?;
        let (rotated, newer, older) = Default::default();
        let seen = Mutex::new(Seen { scope, ahead: clocks(), rotated, newer, older });
        Ok(Self { clocks: Box::new(clocks), capacity, seen })
    }

    /// Locks the memory after an update of its clocks; also returns the time since the start.
    fn lock(&self) -> (MutexGuard<'_, Seen>, Duration) {
        // A panic leaves the memory usable: no call changes it in two steps.
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        // Read the clocks under the lock, so that their readings are in order.
        let now = (self.clocks)();
        seen.note_clocks(now);
        (seen, now.since_start)
    }
}

/// Returns the time since 1970; OpenSSL reads the same clock.
fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

impl ReplayFilter for MemoryFilter {
    fn scope(&self) -> [u8; 16] {
        self.lock().0.scope
    }

    fn is_first(&self, binder: [u8; 32]) -> bool {
        let (mut seen, now) = self.lock();
        if now < REPLAY_LIFE {
            return false;
        }
        seen.rotate(now);
        let is_known = seen.older.contains(&binder) || seen.newer.contains(&binder);
        if is_known || seen.newer.len() >= self.capacity {
            return false;
        }
        seen.newer.insert(binder)
    }
}

impl Seen {
    /// Compares the clocks, and changes the scope if the wall clock was set back.
    ///
    /// Otherwise earlier ClientHellos would be fresh again after this memory forgets them; with a
    /// new scope, no ticket of that time matches this memory. In small steps the clock may go back
    /// [`CLOCK_SLACK`] in all.
    fn note_clocks(&mut self, now: Clocks) {
        let (wall, expected) =
            (now.wall + self.ahead.since_start, self.ahead.wall + now.since_start);
        if wall + CLOCK_SLACK < expected {
            self.scope = u128::from_be_bytes(self.scope).wrapping_add(1).to_be_bytes();
            self.ahead = now;
        } else if wall > expected {
            self.ahead = now;
        }
    }

    /// Forgets binders older than [`REPLAY_LIFE`]: none earlier, and all within twice that time.
    fn rotate(&mut self, now: Duration) {
        let since = now.saturating_sub(self.rotated);
        if since < REPLAY_LIFE {
            return;
        }
        self.older = mem::take(&mut self.newer);
        if since >= 2 * REPLAY_LIFE {
            self.older.clear();
        }
        self.rotated = now;
    }
}

impl fmt::Debug for MemoryFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryFilter").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Creates a filter with a clock in milliseconds.
    fn filter(capacity: usize) -> (MemoryFilter, impl Fn(Duration)) {
        let clock = Arc::new(AtomicU64::new(0));
        let shown = Arc::clone(&clock);
        (
            MemoryFilter::with_clock(capacity, move || {
                Duration::from_millis(shown.load(Ordering::SeqCst))
            })
            .unwrap(),
            move |to: Duration| {
                clock.store(u64::try_from(to.as_millis()).unwrap(), Ordering::SeqCst);
            },
        )
    }

    const TICK: Duration = Duration::from_millis(1);

    #[test]
    fn denies_until_earlier_hellos_are_too_old() {
        let (filter, set) = filter(10);
        assert!(!filter.is_first([1; 32]));
        set(REPLAY_LIFE - TICK);
        assert!(!filter.is_first([1; 32]));
        set(REPLAY_LIFE);
        assert!(filter.is_first([1; 32]));
    }

    #[test]
    fn accepts_each_once_within_its_life_at_any_offset() {
        for offset in 0..40 {
            let (filter, set) = filter(10);
            let start = REPLAY_LIFE + Duration::from_secs(offset);
            set(REPLAY_LIFE);
            assert!(filter.is_first([0; 32]), "starts the first generation");
            set(start);
            assert!(filter.is_first([1; 32]));
            assert!(!filter.is_first([1; 32]));
            set(start + REPLAY_LIFE);
            assert!(!filter.is_first([1; 32]), "offset {offset}");
            set(start + 3 * REPLAY_LIFE);
            assert!(filter.is_first([1; 32]), "forgotten, {offset}");
        }
    }

    #[test]
    fn a_full_filter_denies_and_recovers() {
        let (filter, set) = filter(2);
        set(REPLAY_LIFE);
        assert!(filter.is_first([1; 32]) && filter.is_first([2; 32]));
        assert!(!filter.is_first([3; 32]), "one too many");
        set(2 * REPLAY_LIFE);
        assert!(filter.is_first([4; 32]));
        assert!(!filter.is_first([1; 32]), "still known");
    }

    #[test]
    fn scopes_differ() {
        assert_ne!(filter(1).0.scope(), filter(1).0.scope());
    }

    /// Creates a filter and a function that sets its clocks: the time since the start, and the wall
    /// clock.
    fn filter_and_clocks() -> (MemoryFilter, impl Fn(Duration, Duration)) {
        let shown: Arc<Mutex<(Duration, Duration)>> = Arc::new(Mutex::new((DAY, 100 * DAY)));
        let [start, wall, set] = [(); 3].map(|()| Arc::clone(&shown));
        let filter = MemoryFilter::with_clocks(
            10,
            move || start.lock().unwrap().0,
            move || wall.lock().unwrap().1,
        );
        (filter.unwrap(), move |since_start, wall| *set.lock().unwrap() = (since_start, wall))
    }

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    #[test]
    fn setting_the_wall_clock_back_disowns_earlier_tickets() {
        let (filter, set) = filter_and_clocks();
        let first = filter.scope();
        set(2 * DAY, 101 * DAY);
        assert_eq!(filter.scope(), first, "both advanced");
        set(2 * DAY + CLOCK_SLACK, 101 * DAY);
        assert_eq!(filter.scope(), first, "at the limit");
        set(2 * DAY + CLOCK_SLACK + TICK, 101 * DAY);
        let second = filter.scope();
        assert_ne!(second, first);
        assert_eq!(filter.scope(), second, "once per change");
        assert!(filter.is_first([1; 32]) && !filter.is_first([1; 32]), "newer tickets work");
    }

    #[test]
    fn notices_small_steps_back_and_a_return_from_the_future() {
        let (filter, set) = filter_and_clocks();
        let first = filter.scope();
        for step in 1..=3 {
            set(
                DAY + step * 2 * REPLAY_LIFE,
                100 * DAY + step * (2 * REPLAY_LIFE - CLOCK_SLACK / 2),
            );
            assert_eq!(filter.scope() == first, step < 3, "step {step}");
        }
        let (filter, set) = filter_and_clocks();
        let first = filter.scope();
        set(DAY + TICK, 200 * DAY);
        assert_eq!(filter.scope(), first, "ahead");
        set(DAY + 2 * TICK, 100 * DAY + 2 * TICK);
        assert_ne!(filter.scope(), first, "right again");
    }
}
