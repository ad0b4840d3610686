//! Time to wait for the first datagram once TCP is connected
//! (docs/draft-headstart-turbotls.md#grace-and-path-memory).

use core::time::Duration;

use crate::limits::{
    DEVIATION_FIRST, GRACE_MAX_FIRST, GRACE_MAX_FLOOR, GRACE_MIN, LAG_MAX, WORTHWHILE,
};

/// Limits of the wait for datagrams, counted from when TCP connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub struct Wait {
    /// Time when the answer is due: it lags the SYN-ACK by as much as the flight lagged the SYN.
    pub due: Duration,
    /// Time beyond `due`, or beyond the last datagram.
    pub grace: Duration,
    /// Time for the first server bytes once the edge has answered.
    ///
    /// The path carries datagrams then: it is the origin that takes its time, and over TCP its
    /// bytes would come later still.
    pub first_bytes: Duration,
}

impl Wait {
    /// Waits no longer than `grace`, for a flight that left with the SYN.
    #[must_use]
    pub const fn within(grace: Duration) -> Self {
        Self { due: Duration::ZERO, grace, first_bytes: Duration::ZERO }
    }
}

/// Smoothed lag of the first datagram after TCP's connection, and the grace derived from it.
///
/// The gains are those of RFC 6298 section 2: an eighth for the mean, a quarter for the
/// deviation, and the grace is the mean and four deviations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GraceEstimator {
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
    pub fn sample(&mut self, lag: Duration) {
        if lag > LAG_MAX {
            return;
        }
        self.smoothed = Some(match self.smoothed {
            None => Smoothed { lag, deviation: DEVIATION_FIRST.max(lag / 2) },
            Some(old) => Smoothed {
                lag: old.lag * 7 / 8 + lag / 8,
                deviation: old.deviation * 3 / 4 + old.lag.abs_diff(lag) / 4,
            },
        });
    }

    /// Returns how long to wait for the answer to a flight that left `delay` after the SYN, where
    /// TCP took `rtt` to connect; `None` if that promises too little.
    ///
    /// Over TCP the answer comes a round trip after the connection. A `proven` path, whose last
    /// opening had an answer, is waited for until then; elsewhere the wait may be in vain, and
    /// never exceeds [`largest`](Self::largest).
    #[must_use]
    pub fn wait(&self, rtt: Duration, delay: Duration, proven: bool) -> Option<Wait> {
        let saves = |lag: Duration| delay + lag + rtt / WORTHWHILE <= rtt;
        let lag = self.smoothed.map_or(Duration::ZERO, |smoothed| smoothed.lag);
        let end = match proven && saves(lag) {
            true => GRACE_MAX_FLOOR.max(rtt),
            false => Self::largest(rtt),
        };
        let grace = self.grace(rtt).min(end.saturating_sub(delay));
        let wait = Wait { due: delay, grace, first_bytes: rtt };
        Some(wait).filter(|_| saves(Duration::ZERO) && grace >= GRACE_MIN)
    }

    /// Returns the grace of a flight that left with the SYN, where TCP took `rtt` to connect.
    fn grace(&self, rtt: Duration) -> Duration {
        match self.smoothed {
            None => (rtt / 4).clamp(GRACE_MIN, GRACE_MAX_FIRST),
            Some(Smoothed { lag, deviation }) => {
                (lag + deviation * 4).clamp(GRACE_MIN, Self::largest(rtt))
            }
        }
    }

    /// Returns the largest grace on a path where TCP took `rtt` to connect.
    #[must_use]
    pub fn largest(rtt: Duration) -> Duration {
        GRACE_MAX_FLOOR.max(rtt / 2)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;

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
        // 8, then 16: mean 8 * 7/8 + 16/8 = 9; deviation 4 * 3/4 + 8/4 = 5; grace 29.
        assert_eq!(after(&[8, 16]).grace(ms(100)), ms(29));
    }

    #[test]
    fn one_early_answer_does_not_make_the_grace_short() {
        let graces = [1, 2, 4, 9].map(|count| after(&vec![0; count]).grace(ms(100)).as_micros());
        assert_eq!(graces, [12_000, 9_000, 5_062, 2_000]);
    }

    #[test]
    fn clamped_between_two_and_half_a_round_trip() {
        assert_eq!(after(&[0; 20]).grace(ms(100)), ms(2));
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

    /// Returns the time until the server's first bytes with a ClientHello `delay` behind the SYN,
    /// at a round trip of 50 ms, in ms: over UDP if the answer is waited for, and else over TCP.
    fn first_bytes(grace: GraceEstimator, proven: bool, lag: u64, delay: u64) -> u64 {
        match grace.wait(ms(50), ms(delay), proven) {
            Some(wait) if ms(delay + lag) <= wait.due + wait.grace => 50 + delay + lag,
            Some(wait) => 100 + u64::try_from((wait.due + wait.grace).as_millis()).unwrap(),
            None => 100,
        }
    }

    #[test]
    fn a_late_flight_is_waited_for_where_that_gains() {
        let known = [0, 5, 10, 25, 40, 43].map(|delay| first_bytes(after(&[0]), true, 0, delay));
        assert_eq!(known, [50, 55, 60, 75, 90, 93]);
        let new = GraceEstimator::default();
        let unknown = [0, 5, 10, 23, 25, 40].map(|delay| first_bytes(new, false, 0, delay));
        assert_eq!(unknown, [50, 55, 60, 73, 100, 100]);
        assert_eq!(after(&[0]).wait(ms(50), ms(44), true), None, "less than an eighth is saved");
        let silent = [25, 40].map(|delay| first_bytes(after(&[0]), false, 0, delay));
        assert_eq!(silent, [100, 100], "the last flight had no answer");
    }

    #[test]
    fn the_lag_of_the_path_counts() {
        let lags = after(&[8; 60]);
        let delays = [0, 15, 35, 36, 49];
        let times = delays.map(|delay| first_bytes(lags, true, 8, delay));
        assert_eq!(times, [58, 73, 93, 100, 100]);
    }

    #[test]
    fn a_wait_for_a_late_flight_ends_when_tcp_would_have_answered() {
        let jittery = after(&[0, 20, 0, 20]);
        let wait = jittery.wait(ms(50), ms(30), true).unwrap();
        assert_eq!((wait.due, wait.grace), (ms(30), ms(20)));
        let wait = jittery.wait(ms(50), ms(30), false);
        assert_eq!(wait, None);
        // On short paths a wait costs little.
        let wait = after(&[0; 20]).wait(ms(4), ms(3), true).unwrap();
        assert_eq!((wait.due, wait.grace), (ms(3), ms(2)));
    }

    proptest! {
        #[test]
        fn never_waits_longer_than_the_answer_over_tcp_takes(
            lags in prop::collection::vec(0u64..500, 0..20),
            rtt in 0u64..500,
            delay in 0u64..500,
            proven in any::<bool>(),
        ) {
            let rtt = ms(rtt);
            if let Some(wait) = after(&lags).wait(rtt, ms(delay), proven) {
                let end = if proven { rtt } else { rtt / 2 };
                prop_assert!(wait.due + wait.grace <= GRACE_MAX_FLOOR.max(end));
                prop_assert!(wait.due == ms(delay) && wait.grace >= GRACE_MIN);
                prop_assert!(wait.due <= rtt);
            }
        }

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
            prop_assert!(estimator.lag <= worst);
            prop_assert!(estimator.deviation <= worst.max(DEVIATION_FIRST));
        }
    }
}
