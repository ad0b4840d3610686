//! Comparison of Redis's clock with this machine's.
//!
//! Redis expires keys by its clock, and an edge decides by its own which early data is fresh. The
//! clocks have to agree, and Redis's has to advance at the rate of time: early data whose key
//! expired too soon would count as fresh again.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use headstart_tls::limits::CLOCK_SLACK;
use tokio::time::Instant;

use super::redis::{ANSWER, Redis, RedisFailure};

/// Tolerance between two readings of a clock: slewing, a smeared leap second, and rounded
/// milliseconds.
const STEP: Duration = Duration::from_secs(1);

/// Script that returns Redis's time in milliseconds.
const TIME: &str = "\
local time = redis.call('TIME')
return time[1] * 1000 + math.floor(time[2] / 1000)";

/// Reading of Redis's clock, taken at some moment between `before` and `after`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    before: Instant,
    after: Instant,
    shown: Duration,
}

impl Reading {
    pub(super) async fn at(redis: &Redis) -> Result<Self, RedisFailure> {
        let before = Instant::now();
        let shown: u64 = redis.ask(redis::cmd("EVAL").arg(TIME).arg(0), ANSWER).await?;
        let shown = Duration::from_millis(shown);
        Ok(Self { before, after: Instant::now(), shown })
    }

    /// Returns true if the clock has advanced since `earlier` by the time that passed.
    pub(super) fn follows(&self, earlier: &Self) -> bool {
        let least = self.before.saturating_duration_since(earlier.after);
        let most = self.after.saturating_duration_since(earlier.before);
        let advance = self.shown.checked_sub(earlier.shown);
        advance.is_some_and(|advance| least <= advance + STEP && advance <= most + STEP)
    }

    /// Checks the reading against this machine's clock.
    ///
    /// # Errors
    /// They differ by more than [`CLOCK_SLACK`].
    pub(super) fn agrees(&self) -> Result<(), RedisFailure> {
        // A slow reply looks like a difference, which matters only above the slack.
        if is_near(self.shown, wall()) {
            return Ok(());
        }
        let slack = CLOCK_SLACK.as_secs();
        Err(RedisFailure::Refused(format!(
            "its clock and that of this machine differ by more than {slack} s"
        )))
    }
}

/// Returns true if the clock of Redis, in milliseconds since 1970, agrees with this machine's.
pub(super) fn agrees(shown: u64) -> bool {
    is_near(Duration::from_millis(shown), wall())
}

fn is_near(shown: Duration, wall: Duration) -> bool {
    shown.abs_diff(wall) <= CLOCK_SLACK
}

/// Returns the time since 1970; OpenSSL reads the same clock.
fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a reading of `shown` ms, which took from `at` ms after `start` a tenth of a second.
    fn reading(start: Instant, at: u64, shown: u64) -> Reading {
        let before = start + Duration::from_millis(at);
        let after = before + Duration::from_millis(100);
        Reading { before, after, shown: Duration::from_millis(shown) }
    }

    #[tokio::test]
    async fn a_clock_that_was_set_or_stopped_does_not_follow() {
        let start = Instant::now();
        let first = reading(start, 0, 1_000_000);
        for shown in [1_001_000, 1_000_000, 1_002_000, 1_002_100] {
            assert!(reading(start, 1_000, shown).follows(&first), "{shown}");
        }
        for shown in [999_999, 0, 1_002_101, 5_000_000] {
            assert!(!reading(start, 1_000, shown).follows(&first), "{shown}");
        }
        assert!(!reading(start, 3_000, 1_001_000).follows(&first), "it stopped");
    }

    #[test]
    fn clocks_agree_within_the_slack() {
        let (wall, tick) = (Duration::from_secs(1_790_000_000), Duration::from_millis(1));
        for near in [wall, wall + CLOCK_SLACK, wall - CLOCK_SLACK] {
            assert!(is_near(near, wall));
        }
        for far in [Duration::ZERO, wall + CLOCK_SLACK + tick, wall - CLOCK_SLACK - tick] {
            assert!(!is_near(far, wall));
        }
        assert!(agrees(u64::try_from(self::wall().as_millis()).unwrap()));
        assert!(!agrees(0));
    }
}
