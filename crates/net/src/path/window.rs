//! Openings, and bytes of their slots, that may be in flight on one path at once.
//!
//! Both begin with what any edge and path can take. More openings follow as the edge accepts joins,
//! by the rule of edges (docs/draft-headstart-turbotls.md#limits-of-the-edge), and more bytes as
//! answers come in time. So the flights of many connections leave at the pace of the answers, as
//! TCP's segments do.

use std::time::Instant;

use headstart_proto::limits::{
    HELLO_MEMORY, REQUEST_MIN, SESSIONS_PER_ADDRESS, SESSIONS_PER_JOINER,
};

/// Bytes of slots that any path can take: eight connections with fifteen slots each.
pub(super) const BYTES_FIRST: usize = 8 * 15 * REQUEST_MIN;

/// Most bytes of slots on any path: eighty connections with fifteen slots each.
pub(super) const BYTES_MAX: usize = 10 * BYTES_FIRST;

/// Openings in flight from which on one more counts as one of many.
pub(super) const CROWD: usize = SESSIONS_PER_ADDRESS / 2;

/// Openings whose part in the bounds is taken back where one of many had no answer: if more than
/// one in five has none, the bounds shrink.
const TAKEN_BACK: usize = 4;

/// Use of one path, and the largest use that worked so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    openings: usize,
    bytes: usize,
    learnt: Learnt,
    learnt_at: Option<Instant>,
    /// Time of the last first answer to an opening.
    answered_at: Option<Instant>,
    /// Time of a silence that took something back; those of openings that left before it say no
    /// more of the path.
    shrunk_at: Option<Instant>,
}

/// Room that a path has beyond the first bounds; forgotten when no join was accepted for
/// [`HELLO_MEMORY`], as the edge forgets them.
#[derive(Clone, Copy, Debug, Default)]
struct Learnt {
    openings: usize,
    bytes: usize,
}

/// A part of the window that one opening uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    /// Number of slots, at least one.
    pub(super) slots: usize,
    /// Length of all slots.
    pub(super) bytes: usize,
    /// Time at which they left.
    left: Instant,
    /// True if the opening is one of many.
    pub(super) crowded: bool,
}

impl Window {
    /// Grants as many of `slots` slots of `slot_bytes` as fit; `None` if not even one does.
    pub(super) fn grant(&mut self, slots: usize, slot_bytes: usize, now: Instant) -> Option<Grant> {
        // W-SEND-6
        let learnt = self.learnt(now);
        let room = (BYTES_FIRST + learnt.bytes).saturating_sub(self.bytes);
        let slots = slots.min(room / slot_bytes.max(1));
        if slots == 0 || self.openings >= SESSIONS_PER_ADDRESS + learnt.openings {
            return None;
        }
        let bytes = slots * slot_bytes;
        let crowded = self.is_crowded();
        self.openings += 1;
        self.bytes += bytes;
        Some(Grant { slots, bytes, left: now, crowded })
    }

    /// Returns true if one more opening is one of many.
    pub(super) const fn is_crowded(&self) -> bool {
        self.openings >= CROWD
    }

    /// Returns true if an opening has eight others beside it, now or when it began.
    pub(super) const fn is_one_of_many(&self, grant: &Grant) -> bool {
        grant.crowded || self.openings > CROWD
    }

    /// Returns true if another opening was answered after the flight of this one left.
    pub(super) fn is_answered_since(&self, grant: &Grant) -> bool {
        self.answered_at.is_some_and(|at| grant.left <= at)
    }

    /// Takes note of an answer to an opening in time; one of many makes room for another.
    pub(super) fn answer(&mut self, grant: &Grant, now: Instant) {
        self.answered_at = Some(now);
        if grant.crowded {
            let bytes = self.learnt.bytes + grant.bytes;
            self.learnt.bytes = bytes.min(BYTES_MAX - BYTES_FIRST);
        }
    }

    /// Frees what an opening used.
    pub(super) fn release(&mut self, grant: &Grant) {
        self.openings = self.openings.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(grant.bytes);
    }

    /// Takes note of a join that the edge accepted.
    pub(super) fn join(&mut self, now: Instant) {
        self.learnt = self.learnt(now);
        let most = SESSIONS_PER_JOINER - SESSIONS_PER_ADDRESS;
        self.learnt.openings = (self.learnt.openings + 1).min(most);
        self.learnt_at = Some(now);
    }

    /// Takes note of an opening that had no answer. Returns true if there may have been too many at
    /// once: a part of what was learnt is taken back.
    pub(super) fn shrink(&mut self, grant: &Grant, now: Instant) -> bool {
        let Learnt { openings, bytes } = self.learnt(now);
        let again = self.shrunk_at.is_some_and(|at| grant.left <= at);
        if !grant.crowded || (openings == 0 && !again) {
            return false;
        }
        self.learnt = Learnt {
            openings: openings.saturating_sub(TAKEN_BACK),
            bytes: bytes.saturating_sub(TAKEN_BACK * grant.bytes),
        };
        if !again {
            self.shrunk_at = Some(now);
        }
        true
    }

    fn learnt(&self, now: Instant) -> Learnt {
        let fresh = self.learnt_at.is_some_and(|at| now < at + HELLO_MEMORY);
        if fresh { self.learnt } else { Learnt::default() }
    }
}

impl Grant {
    /// Takes note that the flight and the slots leave.
    pub(super) const fn leave(&mut self, now: Instant) {
        self.left = now;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SLOT: usize = REQUEST_MIN;
    const SLOTS: usize = 5;
    const ROUND_TRIP: Duration = Duration::from_millis(50);

    /// A path in virtual time: it carries slots one after the other at a rate, and answers each
    /// opening a round trip later, which is too late after another round trip.
    struct Bench {
        window: Window,
        now: Instant,
        bytes_per_second: f64,
        busy_until: Instant,
        under_way: Vec<(Instant, Grant)>,
        opened: u32,
    }

    impl Bench {
        fn new(mbit: u32) -> Self {
            let (window, now) = (Window::default(), Instant::now());
            let bytes_per_second = f64::from(mbit) * 125_000.0;
            let (under_way, opened) = (Vec::new(), 0);
            Self { window, now, bytes_per_second, busy_until: now, under_way, opened }
        }

        /// Ends the openings that are answered by now.
        fn end(&mut self) {
            let now = self.now;
            for (at, grant) in self.under_way.extract_if(.., |(at, _)| *at <= now) {
                if at <= grant.left + 2 * ROUND_TRIP {
                    self.window.answer(&grant, at);
                    self.window.join(at);
                    self.opened += 1;
                } else {
                    self.window.shrink(&grant, at);
                }
                self.window.release(&grant);
            }
        }

        /// Begins `count` openings within a round trip, and ends them; returns how many had an
        /// answer in time.
        fn wave(&mut self, count: u32) -> u32 {
            self.opened = 0;
            for _ in 0..count {
                self.now += ROUND_TRIP / count;
                self.end();
                let Some(grant) = self.window.grant(SLOTS, SLOT, self.now) else { continue };
                let carried = grant.bytes as f64 / self.bytes_per_second;
                self.busy_until = self.busy_until.max(self.now) + Duration::from_secs_f64(carried);
                self.under_way.push((self.busy_until + ROUND_TRIP, grant));
            }
            self.now += 20 * ROUND_TRIP;
            self.end();
            self.opened
        }

        fn waves(&mut self, count: u32) -> Vec<u32> {
            (0..8).map(|_| self.wave(count)).collect()
        }
    }

    #[test]
    fn a_path_learns_to_bear_many_openings_at_once() {
        assert_eq!(Bench::new(20).waves(20)[1..], [20; 7]);
        assert!(Bench::new(20).waves(80)[4..].iter().all(|opened| *opened >= 64));
        assert_eq!(Bench::new(100).waves(100)[4..], [100; 4]);
    }

    #[test]
    fn a_slow_path_bears_no_more_than_a_new_one() {
        for mbit in [1, 4] {
            let mut bench = Bench::new(mbit);
            bench.waves(100);
            assert!(bench.window.learnt(bench.now).bytes < BYTES_FIRST / 4, "{mbit}");
        }
    }

    // W-SEND-6
    #[test]
    fn bytes_and_openings_at_their_limits_and_one_over() {
        let (mut window, now) = (Window::default(), Instant::now());
        let whole = window.grant(2, BYTES_FIRST / 2, now).unwrap();
        assert_eq!(whole.slots, 2);
        assert!(window.grant(1, 1, now).is_none());
        window.release(&whole);
        assert_eq!(window.grant(3, BYTES_FIRST / 2, now).unwrap().slots, 2);
        let mut window = Window::default();
        let held: Vec<_> = std::iter::from_fn(|| window.grant(1, SLOT, now)).collect();
        assert_eq!(held.len(), SESSIONS_PER_ADDRESS);
        window.join(now);
        assert!(window.grant(1, SLOT, now).is_some());
        assert!(window.grant(1, SLOT, now).is_none());
        window.release(&held[0]);
        assert!(window.grant(1, BYTES_FIRST, now).is_none());
        assert!(window.grant(0, SLOT, now).is_none());
        assert!(window.grant(1, SLOT, now + HELLO_MEMORY).is_none(), "the edge has forgotten");
        assert!(window.grant(1, SLOT, now).is_some());
    }

    #[test]
    fn answers_to_others_count_for_one_of_many() {
        let (mut window, now) = (Window::default(), Instant::now());
        let first = window.grant(1, SLOT, now).unwrap();
        let others: Vec<_> = (0..CROWD - 1).map(|_| window.grant(1, SLOT, now).unwrap()).collect();
        assert!(!window.is_one_of_many(&first));
        let last = window.grant(1, SLOT, now).unwrap();
        assert!(window.is_one_of_many(&first) && window.is_one_of_many(&last));
        assert!(!window.is_answered_since(&first));
        window.answer(&others[0], now + ROUND_TRIP);
        assert!(window.is_answered_since(&first));
        let mut later = last;
        later.leave(now + 2 * ROUND_TRIP);
        assert!(!window.is_answered_since(&later), "the answer was there before the flight");
        others.iter().for_each(|other| window.release(other));
        assert!(!window.is_one_of_many(&first) && window.is_one_of_many(&last));
    }

    #[test]
    fn silences_among_many_shrink_the_window() {
        let (mut window, now) = (Window::default(), Instant::now());
        (0..500).for_each(|_| window.join(now));
        let held: Vec<_> = std::iter::from_fn(|| window.grant(1, SLOT, now)).collect();
        assert_eq!(held.len(), BYTES_FIRST / SLOT);
        let before = window.learnt(now).openings;
        assert!(!window.shrink(&held[0], now), "there was one alone");
        assert!(window.shrink(&held[CROWD], now));
        assert_eq!(window.learnt(now).openings, before - TAKEN_BACK);
        assert!(held[CROWD..].iter().all(|grant| window.shrink(grant, now)));
        assert_eq!(window.learnt(now).openings, 0);
        held.iter().for_each(|grant| window.release(grant));
        let later = now + ROUND_TRIP;
        let held: Vec<_> = std::iter::from_fn(|| window.grant(1, SLOT, later)).collect();
        assert_eq!(held.len(), SESSIONS_PER_ADDRESS);
        assert!(!window.shrink(&held[CROWD], later), "no more than any edge takes");
    }
}
