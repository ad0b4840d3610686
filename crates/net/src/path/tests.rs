//! Tests of the memory as a whole, in virtual time.

use super::standing::{BACKOFF_FIRST, BACKOFF_MAX, GAINLESS_TO_BLOCK, PROBE_LIFE};
use super::window::BYTES_FIRST;
use super::*;
use proptest::prelude::*;

const RTT: Duration = Duration::from_millis(100);
const SLOT: usize = 411;

fn key(n: u16) -> PathKey {
    let [high, low] = n.to_be_bytes();
    PathKey { local: [10, 0, 0, 1].into(), edge: ([192, 0, high, low], 443).into() }
}

fn opened(lag: u64) -> Outcome {
    Outcome::Opened { rtt: RTT, lag: Duration::from_millis(lag) }
}

fn late(lag: u64) -> Outcome {
    Outcome::Late { awaited: true, rtt: RTT, lag: Duration::from_millis(lag) }
}

/// A memory and a clock.
struct Bench {
    memory: Arc<PathMemory>,
    now: Instant,
}

impl Bench {
    fn new() -> Self {
        Self { memory: Arc::default(), now: Instant::now() }
    }

    fn record(&self, outcomes: &[Outcome]) {
        outcomes.iter().for_each(|outcome| self.memory.record(key(1), *outcome, self.now));
    }

    fn advice(&self) -> Advice {
        self.memory.advise(key(1), self.now)
    }

    fn reserve(&self, slots: usize, bytes: usize) -> Option<SlotReservation> {
        self.memory.reserve_slots(key(1), slots, bytes, self.now)
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    #[track_caller]
    fn assert_turbo(&self, probe: bool) {
        let advice = self.advice();
        assert!(matches!(advice, Advice::Turbo { probe: p, .. } if p == probe), "{advice:?}");
    }

    #[track_caller]
    fn assert_plain(&self, reason: PathReason, time: Duration) {
        assert_eq!(self.advice(), Advice::Plain { reason, until: self.now + time });
    }
}

const MILLISECOND: Duration = Duration::from_millis(1);
const BLOCKING: usize = SILENCES_TO_BLOCK as usize;

#[test]
fn a_new_path_is_used() {
    let advice = Bench::new().advice();
    assert_eq!(
        advice,
        Advice::Turbo { grace: GraceEstimator::default(), proven: false, probe: false }
    );
}

#[test]
fn silences_in_a_row_at_the_limit_block_and_one_fewer_do_not() {
    let bench = Bench::new();
    bench.record(&[Outcome::Silent; BLOCKING - 1]);
    bench.assert_turbo(false);
    bench.record(&[opened(1)]);
    bench.record(&[Outcome::Silent; BLOCKING - 1]);
    bench.assert_turbo(false);
    bench.record(&[Outcome::Silent]);
    bench.assert_plain(PathReason::Silent, BACKOFF_FIRST);
}

#[test]
fn silences_of_parallel_openings_do_not_double_the_back_off() {
    let bench = Bench::new();
    bench.record(&[Outcome::Silent; 10]);
    bench.assert_plain(PathReason::Silent, BACKOFF_FIRST);
}

#[test]
fn one_connection_at_a_time_probes_after_the_back_off() {
    let mut bench = Bench::new();
    bench.record(&[Outcome::Silent; BLOCKING]);
    bench.pass(BACKOFF_FIRST - MILLISECOND);
    bench.assert_plain(PathReason::Silent, MILLISECOND);
    bench.pass(MILLISECOND);
    bench.assert_turbo(true);
    bench.assert_plain(PathReason::Probing, PROBE_LIFE);
    bench.pass(PROBE_LIFE - MILLISECOND);
    bench.assert_plain(PathReason::Probing, MILLISECOND);
    bench.pass(MILLISECOND);
    bench.assert_turbo(true);
}

#[test]
fn a_good_probe_clears_a_bad_one_doubles_up_to_an_hour() {
    let mut bench = Bench::new();
    bench.record(&[Outcome::Silent; BLOCKING]);
    let mut expected = BACKOFF_FIRST;
    for _ in 0..40 {
        bench.assert_plain(PathReason::Silent, expected);
        bench.pass(expected);
        bench.assert_turbo(true);
        bench.record(&[Outcome::Silent]);
        expected = (expected * 2).min(BACKOFF_MAX);
    }
    assert_eq!(expected, BACKOFF_MAX);
    bench.pass(BACKOFF_MAX);
    bench.assert_turbo(true);
    bench.record(&[opened(1)]);
    bench.record(&[Outcome::Silent; BLOCKING - 1]);
    bench.assert_turbo(false);
    bench.record(&[Outcome::Silent]);
    bench.assert_plain(PathReason::Silent, BACKOFF_FIRST);
}

#[test]
fn a_path_is_proven_while_its_last_opening_had_an_answer() {
    let bench = Bench::new();
    for (outcomes, expected) in [
        (&[][..], false),
        (&[opened(1)], true),
        (&[Outcome::Silent], false),
        (&[late(50)], true),
        (&[Outcome::Silent, late(51)], false),
        (&[opened(1)], true),
    ] {
        bench.record(outcomes);
        let advice = bench.advice();
        let proven = matches!(advice, Advice::Turbo { proven: true, .. });
        assert_eq!(proven, expected, "{outcomes:?}");
    }
}

#[test]
fn a_path_is_not_proven_while_its_first_flight_is_on_its_way() {
    let bench = Bench::new();
    let _slots = bench.reserve(4, SLOT).unwrap();
    assert!(matches!(bench.advice(), Advice::Turbo { proven: false, .. }));
}

#[test]
fn a_path_on_which_nothing_is_gained_is_left_and_probed() {
    let mut bench = Bench::new();
    let gainless = Outcome::Opened { rtt: MILLISECOND, lag: 2 * MILLISECOND };
    // One of three gains.
    (1..GAINLESS_TO_BLOCK).for_each(|_| bench.record(&[gainless, opened(0), gainless]));
    bench.assert_turbo(false);
    bench.record(&[gainless]);
    bench.assert_plain(PathReason::Gainless, BACKOFF_FIRST);
    bench.pass(BACKOFF_FIRST);
    bench.assert_turbo(true);
    bench.record(&[gainless]);
    bench.assert_plain(PathReason::Gainless, 2 * BACKOFF_FIRST);
    bench.pass(2 * BACKOFF_FIRST);
    bench.assert_turbo(true);
    bench.record(&[opened(0)]);
    bench.assert_turbo(false);
}

#[test]
fn a_late_datagram_corrects_the_grace_instead_of_blocking() {
    let bench = Bench::new();
    for _ in 0..10 {
        bench.record(&[Outcome::Silent, late(50)]);
    }
    let Advice::Turbo { grace, proven: true, probe: false } = bench.advice() else { panic!() };
    let wait = grace.wait(RTT, Duration::ZERO, false).unwrap();
    assert!(wait.grace >= Duration::from_millis(49));
}

#[test]
fn a_datagram_later_than_any_grace_is_one_failure() {
    let bench = Bench::new();
    (1..BLOCKING).for_each(|_| bench.record(&[Outcome::Silent, late(51)]));
    bench.assert_turbo(false);
    bench.record(&[Outcome::Silent, late(51)]);
    bench.assert_plain(PathReason::Late, BACKOFF_FIRST);
}

#[test]
fn a_datagram_that_nobody_awaited_is_a_failure_of_its_own() {
    let bench = Bench::new();
    let lag = Duration::from_millis(51);
    bench.record(&[Outcome::Late { awaited: false, rtt: RTT, lag }; BLOCKING - 1]);
    bench.assert_turbo(false);
    bench.record(&[Outcome::Late { awaited: false, rtt: RTT, lag }]);
    bench.assert_plain(PathReason::Late, BACKOFF_FIRST);
}

#[test]
fn a_datagram_that_some_grace_covers_lifts_the_block() {
    let bench = Bench::new();
    bench.record(&[Outcome::Silent; BLOCKING]);
    bench.record(&[late(50)]);
    bench.assert_turbo(false);
}

#[test]
fn one_refusal_blocks() {
    for (outcome, reason) in
        [(Outcome::Unreachable, PathReason::Unreachable), (Outcome::Refused, PathReason::Refused)]
    {
        let bench = Bench::new();
        bench.record(&[outcome]);
        bench.assert_plain(reason, BACKOFF_FIRST);
    }
}

#[test]
fn a_reset_blocks_every_network_for_a_day() {
    let mut bench = Bench::new();
    bench.record(&[Outcome::Reset, opened(1)]);
    bench.assert_plain(PathReason::Reset, RESET_LIFE);
    let elsewhere = PathKey { local: [10, 9, 9, 9].into(), ..key(1) };
    assert!(matches!(bench.memory.advise(elsewhere, bench.now), Advice::Plain { .. }));
    bench.memory.forget_network(key(1).local);
    bench.pass(RESET_LIFE - MILLISECOND);
    bench.assert_plain(PathReason::Reset, MILLISECOND);
    bench.pass(MILLISECOND);
    bench.assert_turbo(false);
}

#[test]
fn paths_are_independent() {
    let bench = Bench::new();
    bench.record(&[Outcome::Unreachable]);
    let other_network = PathKey { local: [10, 9, 9, 9].into(), ..key(1) };
    for other in [key(2), other_network] {
        assert!(matches!(bench.memory.advise(other, bench.now), Advice::Turbo { .. }));
    }
}

#[test]
fn a_network_is_forgotten_and_others_are_not() {
    let bench = Bench::new();
    bench.record(&[Outcome::Unreachable]);
    bench.memory.forget_network([10, 9, 9, 9].into());
    bench.assert_plain(PathReason::Unreachable, BACKOFF_FIRST);
    bench.memory.forget_network(key(1).local);
    bench.assert_turbo(false);
}

#[test]
fn paths_at_the_limit_and_one_over() {
    let bench = Bench::new();
    let count = u16::try_from(PATHS).unwrap();
    for n in 1..=count {
        bench.memory.record(key(n), Outcome::Unreachable, bench.now);
    }
    bench.assert_plain(PathReason::Unreachable, BACKOFF_FIRST);
    // Path 1 was just used, so path 2 is evicted.
    bench.memory.record(key(count + 1), Outcome::Unreachable, bench.now);
    bench.assert_plain(PathReason::Unreachable, BACKOFF_FIRST);
    assert!(matches!(bench.memory.advise(key(2), bench.now), Advice::Turbo { .. }));
    assert!(matches!(bench.memory.advise(key(3), bench.now), Advice::Plain { .. }));
}

#[test]
fn flights_are_counted_up_to_the_largest_slot_number() {
    let memory = PathMemory::default();
    assert_eq!(memory.slots_for("www.example"), None);
    memory.record_flight("www.example", 0);
    assert_eq!(memory.slots_for("www.example"), None);
    for (datagrams, slots) in [(1, 1), (14, 14), (15, 14), (300, 14), (3, 3)] {
        memory.record_flight("WWW.example.", datagrams);
        assert_eq!(memory.slots_for("www.Example"), Some(slots));
    }
}

#[test]
fn names_at_the_limit_and_one_over() {
    let memory = PathMemory::default();
    let longest = "x".repeat(NAME_MAX);
    memory.record_flight(&longest, 3);
    assert_eq!(memory.slots_for(&longest), Some(3));
    memory.record_flight(&format!("{longest}x"), 3);
    assert_eq!(memory.slots_for(&format!("{longest}x")), None);
    for n in 1..NAMES {
        memory.record_flight(&format!("name{n}"), 2);
    }
    assert_eq!(memory.slots_for(&longest), Some(3));
    memory.record_flight("one over", 2);
    assert_eq!(memory.slots_for("name1"), None);
    assert_eq!(memory.slots_for("name2"), Some(2));
}

#[test]
fn reservations_on_other_paths_do_not_count() {
    let bench = Bench::new();
    let held: Vec<_> = std::iter::from_fn(|| bench.reserve(11, SLOT)).collect();
    let granted: usize = held.iter().map(SlotReservation::slots).sum();
    assert_eq!(granted, BYTES_FIRST / SLOT);
    let other = bench.memory.reserve_slots(key(2), 11, SLOT, bench.now);
    assert_eq!(other.unwrap().slots(), 11);
    drop(held);
    assert_eq!(bench.reserve(11, SLOT).unwrap().slots(), 11);
}

#[test]
fn a_path_that_is_forgotten_forgets_what_is_in_flight() {
    let bench = Bench::new();
    let held = bench.reserve(1, BYTES_FIRST).unwrap();
    bench.memory.forget_network(key(1).local);
    let whole = bench.reserve(1, BYTES_FIRST).unwrap();
    held.answer(bench.now);
    drop((held, whole));
    assert!(bench.reserve(1, BYTES_FIRST).is_some());
}

#[test]
fn a_silence_among_many_openings_says_nothing_of_the_path() {
    let mut bench = Bench::new();
    bench.record(&[opened(1); 40]);
    let held: Vec<_> = (0..20).map(|_| bench.reserve(1, SLOT).unwrap()).collect();
    assert!(bench.memory.is_crowded(key(1)) && !bench.memory.is_crowded(key(2)));
    assert!(held.last().is_some_and(|last| last.shrink(bench.now)));
    drop(held);
    bench.pass(MILLISECOND);
    assert!(!bench.reserve(1, SLOT).unwrap().shrink(bench.now), "one alone");
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        (0u64..3000).prop_map(opened),
        (0u64..3000).prop_map(late),
        Just(Outcome::Silent),
        Just(Outcome::Unreachable),
        Just(Outcome::Refused),
    ]
}

proptest! {
    /// For any outcomes: plain advice ends within the longest back-off, and one probe runs at a
    /// time.
    #[test]
    fn no_path_is_blocked_forever(steps in prop::collection::vec((outcome(), 0u64..5000), 0..60)) {
        let mut bench = Bench::new();
        for (outcome, seconds) in steps {
            bench.record(&[outcome]);
            if let Advice::Plain { until, .. } = bench.advice() {
                prop_assert!(until > bench.now && until <= bench.now + BACKOFF_MAX);
            }
            bench.pass(Duration::from_secs(seconds));
        }
        bench.pass(BACKOFF_MAX);
        let usable = matches!(bench.advice(), Advice::Turbo { .. });
        prop_assert!(usable);
        if let Advice::Turbo { probe, .. } = bench.advice() {
            prop_assert!(!probe, "two simultaneous probes");
        }
        bench.record(&[opened(0)]);
        let usable = matches!(bench.advice(), Advice::Turbo { probe: false, .. });
        prop_assert!(usable);
    }

    #[test]
    fn never_above_the_budget(
        steps in prop::collection::vec((1usize..20, 1usize..5000, any::<bool>()), 0..60),
    ) {
        let bench = Bench::new();
        let mut held: Vec<SlotReservation> = Vec::new();
        for (slots, bytes, release) in steps {
            if release && !held.is_empty() {
                held.remove(slots % held.len());
            }
            held.extend(bench.reserve(slots, bytes));
            let total: usize = held.iter().map(|reservation| reservation.grant.bytes).sum();
            prop_assert!(total <= BYTES_FIRST);
        }
    }
}

#[test]
fn an_incomplete_flight_only_raises_the_known_size() {
    let memory = PathMemory::default();
    memory.record_long_flight("a.example", 5);
    assert_eq!(memory.slots_for("a.example"), Some(5));
    memory.record_long_flight("a.example", 3);
    assert_eq!(memory.slots_for("a.example"), Some(5));
    memory.record_flight("a.example", 3);
    assert_eq!(memory.slots_for("a.example"), Some(3), "seen whole");
    memory.record_long_flight("a.example", 100);
    assert_eq!(memory.slots_for("a.example"), Some(SLOTS_MAX));
}
