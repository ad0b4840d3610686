//! Time to wait for the first datagram once TCP is connected.

use std::time::Duration;

/// Shortest grace: below it a busy receiver's scheduling would pass for a blocked network.
pub(super) const GRACE_MIN: Duration = Duration::from_millis(2);

/// The longest grace is half a round trip, but at least this: on short paths it costs little.
pub(super) const GRACE_MAX_FLOOR: Duration = Duration::from_millis(10);

/// Longest grace on a new path, which may not carry datagrams at all.
pub(super) const GRACE_MAX_FIRST: Duration = Duration::from_millis(25);

/// Largest lag that counts as a sample; a later datagram predicts nothing about the next.
pub(crate) const LAG_MAX: Duration = Duration::from_secs(2);

/// Smoothed lag of the first datagram after TCP's connection, and the grace derived from it.
///
/// The gains are those of RFC 6298 section 2: an eighth for the mean, a quarter for the
/// deviation, and the grace is the mean and four deviations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GraceEstimator {
    smoothed: Option<Smoothed>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Smoothed {
    lag: Duration,
    deviation: Duration,
}

impl GraceEstimator {
    /// Records that the first datagram came `lag` after TCP had connected; zero if before.
    ///
    /// A lag above [`LAG_MAX`] is not a sample.
    pub(crate) fn sample(&mut self, lag: Duration) {
        if lag > LAG_MAX {
            return;
        }
        self.smoothed = Some(match self.smoothed {
            None => Smoothed { lag, deviation: lag / 2 },
            Some(old) => Smoothed {
                lag: old.lag * 7 / 8 + lag / 8,
                deviation: old.deviation * 3 / 4 + old.lag.abs_diff(lag) / 4,
            },
        });
    }

    /// Returns how long to wait for a datagram after TCP took `rtt` to connect.
    pub(crate) fn grace(&self, rtt: Duration) -> Duration {
        match self.smoothed {
            None => (rtt / 4).clamp(GRACE_MIN, GRACE_MAX_FIRST),
            Some(Smoothed { lag, deviation }) => {
                (lag + deviation * 4).clamp(GRACE_MIN, Self::largest(rtt))
            }
        }
    }

    /// Returns the largest grace on a path where TCP took `rtt` to connect.
    pub(crate) fn largest(rtt: Duration) -> Duration {
        GRACE_MAX_FLOOR.max(rtt / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn after(lags: &[u64]) -> GraceEstimator {
        let mut grace = GraceEstimator::default();
        lags.iter().for_each(|lag| grace.sample(ms(*lag)));
        grace
    }

    #[test]
    fn first_time_is_a_quarter_of_the_round_trip() {
        let new = GraceEstimator::default();
        assert_eq!(new.grace(Duration::ZERO), ms(2));
        assert_eq!(new.grace(ms(8)), ms(2));
        assert_eq!(new.grace(ms(12)), ms(3));
        assert_eq!(new.grace(ms(100)), ms(25));
        assert_eq!(new.grace(ms(104)), ms(25));
    }

    #[test]
    fn worked_example() {
        // 4, then 8: mean 4 * 7/8 + 8/8 = 4.5; deviation 2 * 3/4 + 4/4 = 2.5; grace 14.5.
        let grace = after(&[4, 8]);
        assert_eq!(grace.grace(ms(100)), Duration::from_micros(14_500));
    }

    #[test]
    fn clamped_between_two_and_half_a_round_trip() {
        assert_eq!(after(&[0]).grace(ms(100)), ms(2));
        assert_eq!(after(&[40]).grace(ms(100)), ms(50));
        assert_eq!(after(&[40]).grace(ms(20)), ms(10));
        assert_eq!(after(&[40]).grace(ms(21)), Duration::from_micros(10_500));
    }

    #[test]
    fn samples_up_to_two_seconds() {
        assert_eq!(after(&[2000]).grace(ms(1000)), ms(500));
        assert_eq!(after(&[2001]), GraceEstimator::default());
        assert_eq!(after(&[1, 2001]), after(&[1]));
    }

    proptest! {
        #[test]
        fn always_within_its_bounds(
            lags in prop::collection::vec(0u64..5000, 0..50),
            rtt in 0u64..5000,
        ) {
            let rtt = ms(rtt);
            let grace = after(&lags).grace(rtt);
            let largest = GraceEstimator::largest(rtt).max(GRACE_MIN);
            prop_assert!((GRACE_MIN..=largest).contains(&grace));
        }

        #[test]
        fn a_steady_lag_is_learnt(lag in 3u64..40) {
            let grace = after(&vec![lag; 60]).grace(ms(200));
            prop_assert!(grace >= ms(lag - 1) && grace <= ms(lag + 1), "{grace:?}");
        }

        #[test]
        fn never_beyond_the_worst_seen(lags in prop::collection::vec(0u64..2000, 1..50)) {
            let estimator = after(&lags).smoothed.unwrap();
            let worst = ms(lags.iter().copied().max().unwrap());
            prop_assert!(estimator.lag <= worst && estimator.deviation <= worst);
        }
    }
}
