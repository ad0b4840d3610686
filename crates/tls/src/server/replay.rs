use std::collections::HashSet;
use std::fmt;
use std::mem;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use openssl::rand::rand_bytes;

use crate::error::ConfigError;
use crate::limits::{REPLAY_ENTRIES, REPLAY_LIFE};

/// Remembers ClientHellos with early data, so that each is taken once (RFC 8446 section 8.2).
///
/// Whenever it does not know it says no: then the session is resumed and the client sends its data
/// again, once the handshake is done. It is asked in the middle of a handshake, so it must not take long.
pub trait ReplayFilter: Send + Sync {
    /// What names this filter's memory. It is written into tickets, and early data comes into question
    /// with tickets of the same scope alone.
    ///
    /// Filters that share their memory have the same one; a memory that begins anew needs a new one,
    /// unless it denies everything until what came before is too old.
    fn scope(&self) -> [u8; 16];

    /// Whether this binder, by its hash, comes for the first time within
    /// [`REPLAY_LIFE`]; from then on it does not.
    fn is_first(&self, binder: [u8; 32]) -> bool;
}

/// What a filter has said before the handshake, which needs longer than a handshake can wait: a ClientHello with
/// early data has come for the first time.
///
/// The binder is public, so it can be read and asked about before TLS sees it; TLS then takes early data if that is
/// the binder it has checked, and the ticket is of the scope. See
/// [`ServerContext::accept_first`](crate::ServerContext::accept_first).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstSeen {
    /// That of the filter's memory when it was asked.
    pub scope: [u8; 16],
    /// Of the first binder, [`binder_key`](crate::wire::binder_key).
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

/// A filter in the memory of one process: early data is taken with its own tickets only.
///
/// It denies everything for [`REPLAY_LIFE`] after its start, and what exceeds its capacity. It
/// measures time with a monotonic clock.
pub struct MemoryFilter {
    scope: [u8; 16],
    clock: Box<dyn Fn() -> Duration + Send + Sync>,
    capacity: usize,
    seen: Mutex<Seen>,
}

/// What came since the last turn, and what came between the last two.
#[derive(Default)]
struct Seen {
    turned: Duration,
    newer: HashSet<[u8; 32]>,
    older: HashSet<[u8; 32]>,
}

impl MemoryFilter {
    /// A filter that starts now, with room for [`REPLAY_ENTRIES`].
    ///
    /// # Errors
    /// [`ConfigError::Openssl`]: no randomness.
    pub fn new() -> Result<Self, ConfigError> {
        let start = Instant::now();
        Self::with_clock(REPLAY_ENTRIES, move || start.elapsed())
    }

    /// A filter with room for `capacity` ClientHellos of each [`REPLAY_LIFE`], by a clock that shows the
    /// time since the start.
    ///
    /// # Errors
    /// [`ConfigError::Openssl`]: no randomness.
    pub fn with_clock(
        capacity: usize,
        clock: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Result<Self, ConfigError> {
        let mut scope = [0; 16];
        rand_bytes(&mut scope)?;
        Ok(Self { scope, clock: Box::new(clock), capacity, seen: Mutex::default() })
    }
}

impl ReplayFilter for MemoryFilter {
    fn scope(&self) -> [u8; 16] {
        self.scope
    }

    fn is_first(&self, binder: [u8; 32]) -> bool {
        let now = (self.clock)();
        if now < REPLAY_LIFE {
            return false;
        }
        // No call can leave the sets half changed.
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.turn(now);
        let is_known = seen.older.contains(&binder) || seen.newer.contains(&binder);
        if is_known || seen.newer.len() >= self.capacity {
            return false;
        }
        seen.newer.insert(binder)
    }
}

impl Seen {
    /// Forgets what came longer than [`REPLAY_LIFE`] ago. Nothing goes earlier, and all within twice that.
    fn turn(&mut self, now: Duration) {
        let since = now.saturating_sub(self.turned);
        if since < REPLAY_LIFE {
            return;
        }
        self.older = mem::take(&mut self.newer);
        if since >= 2 * REPLAY_LIFE {
            self.older.clear();
        }
        self.turned = now;
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

    /// A filter with a clock in milliseconds.
    fn filter(capacity: usize) -> (MemoryFilter, impl Fn(Duration)) {
        let clock = Arc::new(AtomicU64::new(0));
        let shown = Arc::clone(&clock);
        let show = move || Duration::from_millis(shown.load(Ordering::SeqCst));
        let set = move |to: Duration| {
            clock.store(u64::try_from(to.as_millis()).unwrap(), Ordering::SeqCst);
        };
        (MemoryFilter::with_clock(capacity, show).unwrap(), set)
    }

    const TICK: Duration = Duration::from_millis(1);

    #[test]
    fn denies_until_what_came_before_it_is_too_old() {
        let (filter, set) = filter(10);
        assert!(!filter.is_first([1; 32]));
        set(REPLAY_LIFE - TICK);
        assert!(!filter.is_first([1; 32]));
        set(REPLAY_LIFE);
        assert!(filter.is_first([1; 32]));
    }

    #[test]
    fn takes_each_once_within_its_life_whenever_it_turns() {
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
    fn a_full_one_denies_and_recovers() {
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
}
