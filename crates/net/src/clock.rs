use std::time::Duration;

use headstart_proto::Instant;
use rustix::time::{ClockId, clock_gettime};

/// Translates between the runtime's clock and that of the core, which has none of its own.
///
/// Uses tokio's clock rather than the system's, so that tests can pause it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    epoch: tokio::time::Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { epoch: tokio::time::Instant::now() }
    }

    pub(crate) fn now(self) -> Instant {
        Instant::from_epoch(self.epoch.elapsed())
    }

    pub(crate) fn to_tokio(self, moment: Instant) -> tokio::time::Instant {
        self.epoch + moment.since_epoch()
    }
}

/// Returns the time of the runtime's clock, for what outlives the clock of one connection.
pub(crate) fn now() -> std::time::Instant {
    tokio::time::Instant::now().into_std()
}

/// A clock that runs on while the machine sleeps, as the server's does; [`std::time::Instant`]
/// stands still. For anything that has to end in time at the other side too, such as sessions.
#[derive(Clone, Debug)]
pub struct BootClock {
    start: std::time::Instant,
    boot: Duration,
}

impl BootClock {
    /// Starts a clock now.
    #[must_use]
    pub fn start() -> Self {
        Self { start: std::time::Instant::now(), boot: since_boot() }
    }

    /// Returns the time, ahead of an [`Instant`](std::time::Instant) by the time that the machine
    /// slept.
    #[must_use]
    pub fn now(&self) -> std::time::Instant {
        self.at(since_boot())
    }

    fn at(&self, boot: Duration) -> std::time::Instant {
        self.start + boot.saturating_sub(self.boot)
    }
}

/// Returns the time since boot, including sleep (clock_gettime(2), CLOCK_BOOTTIME).
fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_asleep_counts() {
        let clock = BootClock::start();
        let night = Duration::from_secs(8 * 3600);
        let (before, after) = (clock.at(clock.boot), clock.at(clock.boot + night));
        assert_eq!(after - before, night);
        assert_eq!(clock.at(Duration::ZERO), before, "time ran backwards");
    }

    #[test]
    fn while_awake_it_agrees_with_instant() {
        let (clock, begin) = (BootClock::start(), std::time::Instant::now());
        let first = clock.now();
        std::thread::sleep(Duration::from_millis(20));
        let second = clock.now();
        assert!(second - first >= Duration::from_millis(20));
        assert!(second - first <= begin.elapsed());
    }
}
