//! The second SYN: another connection to an address that leaves the first one unanswered.
//!
//! The kernel repeats a lost SYN after a second (RFC 6298 section 2), twenty round trips of 50 ms.
//! A second connection after two of them mostly finds the network as it usually is. There is one
//! for each race at most, so that a network that is full is asked for twice as much, not for more.

use std::time::Duration;

use tokio::time::Instant;

/// Wait for a SYN-ACK where nothing is known of the path, and the longest where round trips are
/// shorter: what RFC 8305 section 5 recommends before another address is tried.
const WAIT_MAX: Duration = Duration::from_millis(250);

/// Longest round trip: the kernel has repeated the SYN before a longer one is over.
const RTT_MAX: Duration = Duration::from_secs(1);

/// Shortest wait: below it the scheduling of either machine decides.
const WAIT_MIN: Duration = Duration::from_millis(10);

/// Round trips after which a SYN-ACK counts as lost, and where they are long: a quarter of one more
/// is for what the network and the machines need now and then.
const ROUND_TRIPS: f64 = 2.0;
const LONG_ROUND_TRIPS: f64 = 1.25;

/// State of the second SYN of a race.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SecondSyn {
    /// There is none.
    #[default]
    Off,
    /// It leaves when the first attempt that still runs is so old.
    After(Duration),
    /// It has left, as this attempt.
    Sent(usize),
}

impl SecondSyn {
    /// Leaves two round trips after the first SYN; `rtt` is `None` if none is known.
    pub(super) fn for_path(rtt: Option<Duration>) -> Self {
        Self::After(rtt.map_or(WAIT_MAX, wait))
    }

    /// Takes note of a round trip that was seen since, and may shorten the wait.
    pub(super) fn learn(&mut self, rtt: Duration) {
        if let Self::After(known) = self {
            *known = wait(rtt).min(*known);
        }
    }

    /// Returns when it leaves, if the first attempt that still runs started at `started`.
    pub(super) fn due(self, started: Instant) -> Option<Instant> {
        match self {
            Self::After(wait) => started.checked_add(wait),
            Self::Off | Self::Sent(_) => None,
        }
    }

    /// Returns the number of its attempt, once it has left.
    pub(super) const fn attempt(self) -> Option<usize> {
        match self {
            Self::Sent(number) => Some(number),
            Self::Off | Self::After(_) => None,
        }
    }
}

fn wait(rtt: Duration) -> Duration {
    let rtt = rtt.min(RTT_MAX);
    rtt.mul_f64(ROUND_TRIPS).clamp(WAIT_MIN, WAIT_MAX.max(rtt.mul_f64(LONG_ROUND_TRIPS)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_is_two_round_trips_within_bounds() {
        let millis = Duration::from_millis;
        assert_eq!(SecondSyn::for_path(None), SecondSyn::After(millis(250)));
        assert_eq!(SecondSyn::for_path(Some(millis(50))), SecondSyn::After(millis(100)));
        assert_eq!(SecondSyn::for_path(Some(millis(1))), SecondSyn::After(millis(10)));
        assert_eq!(SecondSyn::for_path(Some(millis(150))), SecondSyn::After(millis(250)));
        assert_eq!(SecondSyn::for_path(Some(millis(600))), SecondSyn::After(millis(750)));
        assert_eq!(SecondSyn::for_path(Some(Duration::MAX)), SecondSyn::After(millis(1250)));

        let mut learnt = SecondSyn::for_path(Some(millis(50)));
        learnt.learn(millis(80));
        assert_eq!(learnt, SecondSyn::After(millis(100)), "longer than it was");
        learnt.learn(millis(30));
        assert_eq!(learnt, SecondSyn::After(millis(60)));
        let mut sent = SecondSyn::Sent(1);
        sent.learn(millis(30));
        assert_eq!((sent, sent.due(Instant::now())), (SecondSyn::Sent(1), None));
    }
}
