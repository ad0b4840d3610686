//! The clock of Redis beside that of this machine.
//!
//! Redis forgets by its clock, and an edge says by its own what early data is fresh. They have to
//! agree, and that of Redis has to go on as time does: what it has forgotten early would be fresh
//! once more.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use headstart_tls::limits::CLOCK_SLACK;
use tokio::time::Instant;

use super::redis::{ANSWER, Redis, RedisFailure};

/// Tolerance of a clock between two looks: slewing, a smeared leap second, and rounded
/// milliseconds.
const STEP: Duration = Duration::from_secs(1);

/// The time there, in milliseconds.
const TIME: &str = "\
local time = redis.call('TIME')
return time[1] * 1000 + math.floor(time[2] / 1000)";

/// Time of Redis's clock at some moment between two.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    before: Instant,
    after: Instant,
    shown: Duration,
}

impl Look {
    pub(super) async fn at(redis: &Redis) -> Result<Self, RedisFailure> {
        let before = Instant::now();
        let shown: u64 = redis.ask(redis::cmd("EVAL").arg(TIME).arg(0), ANSWER).await?;
        let shown = Duration::from_millis(shown);
        Ok(Self { before, after: Instant::now(), shown })
    }

    /// Returns true if the clock went on since `earlier` as time did.
    pub(super) fn follows(&self, earlier: &Self) -> bool {
        let least = self.before.saturating_duration_since(earlier.after);
        let most = self.after.saturating_duration_since(earlier.before);
        let gone = self.shown.checked_sub(earlier.shown);
        gone.is_some_and(|gone| least <= gone + STEP && gone <= most + STEP)
    }

    /// # Errors
    /// The clock of this machine shows another time.
    pub(super) fn agrees(&self) -> Result<(), RedisFailure> {
        // An answer may take a while, which counts as a difference only if it is too long.
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

/// Since 1970; OpenSSL reads the same clock.
fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks that took a tenth of a second each: at such a time here, a clock showed that there.
    fn look(start: Instant, at: u64, shown: u64) -> Look {
        let before = start + Duration::from_millis(at);
        let after = before + Duration::from_millis(100);
        Look { before, after, shown: Duration::from_millis(shown) }
    }

    #[tokio::test]
    async fn a_clock_goes_on_or_was_set() {
        let start = Instant::now();
        let first = look(start, 0, 1_000_000);
        for shown in [1_001_000, 1_000_000, 1_002_000, 1_002_100] {
            assert!(look(start, 1_000, shown).follows(&first), "{shown}");
        }
        for shown in [999_999, 0, 1_002_101, 5_000_000] {
            assert!(!look(start, 1_000, shown).follows(&first), "{shown}");
        }
        assert!(!look(start, 3_000, 1_001_000).follows(&first), "it stood still");
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
