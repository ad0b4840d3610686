use core::ops::{Add, Sub};
use core::time::Duration;

/// A moment on the caller's monotonic clock, as the time since an epoch of the caller's choice.
///
/// The core reads no clock, so tests run in virtual time and a run can be replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(Duration);

impl Instant {
    /// The epoch itself.
    pub const ZERO: Self = Self(Duration::ZERO);

    /// Returns the moment `since_epoch` after the epoch.
    #[must_use]
    pub const fn from_epoch(since_epoch: Duration) -> Self {
        Self(since_epoch)
    }

    /// Returns the time since the epoch.
    #[must_use]
    pub const fn since_epoch(self) -> Duration {
        self.0
    }

    /// Returns the time from `earlier` to `self`; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(wait))
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    fn sub(self, wait: Duration) -> Self {
        Self(self.0.saturating_sub(wait))
    }
}

/// A moment on the wall clock: whole seconds since the start of 1970 in UTC, without leap seconds.
///
/// Used where machines must agree, or where the moment outlives a process, such as a cookie's
/// expiry. The wall clock may be set, so it cannot measure waits: use [`Instant`] for those.
/// Neither converts into the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixSeconds(pub u64);

impl UnixSeconds {
    /// Returns the time from `earlier` to `self`; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_secs(self.0.saturating_sub(earlier.0))
    }
}

/// Adds whole seconds; a fraction of a second is dropped.
impl Add<Duration> for UnixSeconds {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time.as_secs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_ends_at_its_epoch() {
        let (second, moment) =
            (Duration::from_secs(1), Instant::from_epoch(Duration::from_secs(3)));
        assert_eq!((moment + second - second, moment - second * 4), (moment, Instant::ZERO));
    }
}
