//! Bounds the processor time that handshakes of unproven addresses cost.

use core::time::Duration;

use crate::limits::{COST_MEMORY, HANDSHAKE_COST, UNPROVEN_WORK_BURST};
use crate::time::Instant;

/// Processor time spent on sessions that have not joined: a leaky bucket.
///
/// A session costs as much as the costliest of late when it starts, what was measured once that is
/// known, and nothing once it has joined: its address is proven, as that of a TCP client. So the
/// bound holds for spoofed ClientHellos, and clients that join in time never meet it.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, Hash))]
pub(super) struct Work {
    /// Time spent and not yet granted again, as of `at`.
    spent: Duration,
    at: Instant,
    /// Costliest handshake since `since`, and in the [`COST_MEMORY`] before: a mean would let cheap
    /// ones make room for a burst of costly ones.
    costliest: Duration,
    before: Duration,
    since: Instant,
}

impl Default for Work {
    fn default() -> Self {
        Self {
            spent: Duration::ZERO,
            at: Instant::ZERO,
            costliest: Duration::ZERO,
            before: HANDSHAKE_COST,
            since: Instant::ZERO,
        }
    }
}

impl Work {
    /// Charges a handshake that is about to start, and returns its cost; `None` if there is no time
    /// for it. `granted` is the processor time for such handshakes in a second.
    pub(super) fn start(&mut self, now: Instant, granted: Duration) -> Option<Duration> {
        if self.is_used_up(now, granted) {
            return None;
        }
        let cost = self.expected(now);
        self.spent += cost;
        Some(cost)
    }

    /// Returns true if there is no time for one more handshake.
    pub(super) fn is_used_up(&mut self, now: Instant, granted: Duration) -> bool {
        // In nanoseconds: a flood comes every few microseconds, and must not round its share away.
        let passed = now.since(core::mem::replace(&mut self.at, now)).as_nanos();
        let again = granted.as_nanos().saturating_mul(passed) / 1_000_000_000;
        let again = Duration::from_nanos(u64::try_from(again).unwrap_or(u64::MAX));
        self.spent = self.spent.saturating_sub(again);
        let cost = self.expected(now);
        // One that costs more than the whole burst starts when nothing else is owed.
        !self.spent.is_zero() && self.spent + cost > granted.saturating_mul(UNPROVEN_WORK_BURST)
    }

    /// Returns the expected cost of a handshake.
    fn expected(&mut self, now: Instant) -> Duration {
        if now.since(self.since) >= COST_MEMORY && !self.costliest.is_zero() {
            self.before = core::mem::take(&mut self.costliest);
            self.since = now;
        }
        self.costliest.max(self.before)
    }

    /// Replaces the `charged` cost by the measured one, and returns that.
    pub(super) fn measured(&mut self, charged: Duration, cost: Duration) -> Duration {
        self.costliest = self.costliest.max(cost);
        self.spent = self.spent.saturating_sub(charged).saturating_add(cost);
        cost
    }

    /// Gives back the cost of a session that has joined.
    pub(super) fn joined(&mut self, cost: Duration) {
        self.spent = self.spent.saturating_sub(cost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const GRANTED: Duration = Duration::from_millis(100);

    fn at(millis: u32) -> Instant {
        Instant::ZERO + MS * millis
    }

    /// Starts handshakes of a millisecond each until one is refused; returns how many started.
    fn fill(work: &mut Work, now: Instant) -> u32 {
        let mut count = 0;
        while work.start(now, GRANTED).is_some() {
            count += 1;
            assert!(count < 1_000_000);
        }
        count
    }

    fn of_a_millisecond() -> Work {
        Work { before: MS, ..Work::default() }
    }

    #[test]
    fn a_burst_starts_and_then_what_is_granted() {
        let mut work = of_a_millisecond();
        assert_eq!(fill(&mut work, at(0)), 200);
        assert_eq!(fill(&mut work, at(100)), 10);
        assert_eq!(fill(&mut work, at(1_100)), 100);
        assert_eq!(fill(&mut work, at(600_000)), 200);
    }

    #[test]
    fn a_flood_does_not_round_away_what_is_granted() {
        let mut work = of_a_millisecond();
        fill(&mut work, at(0));
        let mut started = 0;
        for tick in 1..=1_000_000 {
            let now = Instant::ZERO + Duration::from_nanos(700) * tick;
            started += u32::from(work.start(now, GRANTED).is_some());
        }
        assert_eq!(started, 70, "in 0.7 s");
    }

    #[test]
    fn sessions_that_join_cost_nothing() {
        let mut work = of_a_millisecond();
        for _ in 0..10_000 {
            let cost = work.start(at(0), GRANTED).unwrap();
            work.joined(cost);
        }
        assert_eq!(fill(&mut work, at(0)), 200);
    }

    #[test]
    fn the_costliest_of_late_is_what_the_next_is_expected_to_cost() {
        let mut work = of_a_millisecond();
        let charged = work.start(at(0), GRANTED).unwrap();
        assert_eq!(work.measured(charged, MS * 50), MS * 50);
        // Of 200 ms, 50 are spent.
        assert_eq!(fill(&mut work, at(0)), 3);
        // Cheap ones do not hide it before it is forgotten.
        let mut cheap = |now, expected| {
            assert_eq!(work.expected(now), expected);
            (0..100).for_each(|_| assert_eq!(work.measured(MS, MS), MS));
        };
        cheap(at(9_999), MS * 50);
        cheap(at(10_000), MS * 50);
        cheap(at(19_999), MS * 50);
        cheap(at(20_000), MS);
        // Without any, the last ones tell.
        assert_eq!((work.expected(at(30_000)), work.expected(at(90_000))), (MS, MS));
    }

    #[test]
    fn one_that_costs_more_than_the_burst_starts_alone() {
        let mut work = Work { before: MS * 5_000, ..Work::default() };
        assert_eq!(fill(&mut work, at(0)), 1);
        assert_eq!(fill(&mut work, at(49_000)), 0);
        assert_eq!(fill(&mut work, at(51_000)), 1);
    }
}
