//! Tracks whether a path supports data in the SYN: some networks strip them, or drop such SYNs
//! altogether.
//!
//! From outside, a network that strips data looks like a server that rejects a cookie, and a
//! network that drops the SYN looks like a server that does: the user who chooses cookie and server
//! controls both. So failures are recorded for each user separately, and cannot keep another user
//! from opening fast.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use headstart_proto::fastopen::Verdict;

use super::bounded::{Bounded, User};
use super::connects::REPEATED;
use super::standing::Standing;
use super::{NAMES, PATHS, PathKey, PathMemory, PathReason, flight_key};

/// Consecutive unanswered SYNs with data that block a path.
///
/// Each costs 300 ms. On a link with 5 % loss, a SYN or its answer is lost once in ten times, and
/// twice in a row once in a hundred.
pub(super) const LOSSES_TO_BLOCK: u8 = 2;

/// Consecutive SYNs with rejected data that block a path.
///
/// Each costs the round trip that TurboTLS would have saved. One rejection may come from a stale
/// cookie, and two from two stale cookies of the same server.
pub(super) const REFUSALS_TO_BLOCK: u8 = 3;

/// Consecutive failures of either kind that block a network for all edges.
///
/// More than two edges in a row are unlikely to be at fault themselves.
pub(super) const FAILURES_TO_BLOCK_NETWORK: u8 = 5;

/// Networks remembered, for each user separately; about 100 bytes each, 25 kB.
pub(super) const NETWORKS: usize = 256;

/// Advice on opening with data in the SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SynAdvice {
    /// Use it.
    Use {
        /// Time that TCP last took to connect there.
        rtt: Option<Duration>,
    },
    /// Send the SYN bare.
    Bare {
        /// Reason.
        reason: PathReason,
        /// Time to ask again.
        until: Instant,
        /// Time that TCP last took to connect there.
        rtt: Option<Duration>,
    },
}

#[derive(Debug)]
pub(super) struct SynTables {
    /// Time that TCP last took to connect; shared by all users.
    rtts: Bounded<PathKey, Duration>,
    paths: Bounded<(User, PathKey), Standing>,
    /// Keyed by local address.
    networks: Bounded<(User, IpAddr), Standing>,
    /// Names, and whether they last advertised that their servers accept cookies.
    names: Bounded<Box<str>, bool>,
}

impl Default for SynTables {
    fn default() -> Self {
        Self {
            rtts: Bounded::new(PATHS),
            paths: Bounded::shared(PATHS, |(user, _)| *user),
            networks: Bounded::shared(NETWORKS, |(user, _)| *user),
            names: Bounded::new(NAMES),
        }
    }
}

impl SynTables {
    pub(super) fn forget_network(&mut self, local: IpAddr) {
        self.rtts.retain(|key, _| key.local != local);
        self.paths.retain(|(_, key), _| key.local != local);
        self.networks.retain(|(_, known), _| *known != local);
    }

    fn advise(&mut self, user: User, key: PathKey, now: Instant) -> SynAdvice {
        let rtt = self.rtts.get(&key).copied();
        let mut standings = self.standings(user, key).into_iter().flatten();
        match standings.try_for_each(|standing| standing.permits(now)) {
            Ok(()) => SynAdvice::Use { rtt },
            Err((reason, until)) => SynAdvice::Bare { reason, until, rtt },
        }
    }

    /// Starts an opening. Path and network must both agree before either counts it as its probe.
    fn begin(&mut self, user: User, key: PathKey, now: Instant) -> Result<(), PathReason> {
        if let SynAdvice::Bare { reason, .. } = self.advise(user, key, now) {
            return Err(reason);
        }
        for standing in self.standings(user, key).into_iter().flatten() {
            standing.ask(now).map_err(|(reason, _)| reason)?;
        }
        Ok(())
    }

    /// Returns the standings of the network and of the path, as far as they have any.
    fn standings(&mut self, user: User, key: PathKey) -> [Option<&mut Standing>; 2] {
        // F-CLIENT-6
        [self.networks.get(&(user, key.local)), self.paths.get(&(user, key))]
    }

    fn record(&mut self, user: User, key: PathKey, verdict: Verdict, now: Instant) {
        let (reason, to_block) = match verdict {
            Verdict::Accepted => {
                self.standings(user, key).into_iter().flatten().for_each(Standing::good);
                return;
            }
            Verdict::Refused => (PathReason::SynDataRefused, REFUSALS_TO_BLOCK),
            Verdict::Lost => (PathReason::SynLost, LOSSES_TO_BLOCK),
        };
        self.paths.get_or_default((user, key)).failed(reason, to_block, now);
        let network = self.networks.get_or_default((user, key.local));
        network.failed(reason, FAILURES_TO_BLOCK_NETWORK, now);
    }
}

impl PathMemory {
    /// Advises whether to open with data in the SYN on `key` now, based on the experience of
    /// `user`; users that the kernel does not identify count as one.
    pub(crate) fn advise_syn(&self, user: Option<u32>, key: PathKey, now: Instant) -> SynAdvice {
        self.lock().syn.advise(user, key, now)
    }

    /// Checks again right before a SYN with data leaves. After a back-off only the first SYN of
    /// `user` may carry data; the others leave bare until it reports, or for
    /// [`PROBE_LIFE`](super::standing::PROBE_LIFE).
    ///
    /// # Errors
    /// The reason why the SYN must leave bare.
    pub(crate) fn begin_syn(
        &self,
        user: Option<u32>,
        key: PathKey,
        now: Instant,
    ) -> Result<(), PathReason> {
        self.lock().syn.begin(user, key, now)
    }

    /// Learns from an opening of `user` with data in the SYN on `key`.
    pub(crate) fn record_syn(
        &self,
        user: Option<u32>,
        key: PathKey,
        verdict: Verdict,
        now: Instant,
    ) {
        self.lock().syn.record(user, key, verdict, now);
    }

    /// Records how long TCP took to connect on `key`, unless that may be of a repeated SYN.
    pub(crate) fn record_rtt(&self, key: PathKey, rtt: Duration) {
        if rtt < REPEATED {
            self.lock().syn.rtts.insert(key, rtt);
        }
    }

    /// Records whether `name` advertises that its servers accept cookies.
    pub(crate) fn record_syn_offer(&self, name: &str, offered: bool) {
        let Some(key) = flight_key(name) else { return };
        let names = &mut self.lock().syn.names;
        // Most names never advertise it; they need no entry.
        if offered || names.get(&key).is_some() {
            names.insert(key, offered);
        }
    }

    /// Returns true if `name` advertised it when last asked.
    pub(crate) fn expects_syn_offer(&self, name: &str) -> bool {
        let key = flight_key(name);
        key.is_some_and(|key| self.lock().syn.names.get(&key).copied().unwrap_or(false))
    }
}

#[cfg(test)]
mod tests {
    use super::super::standing::{BACKOFF_FIRST, PROBE_LIFE};
    use super::super::{Advice, Outcome};
    use super::*;

    const RTT: Duration = Duration::from_millis(100);
    const ME: User = Some(1000);

    fn key(edge: u16) -> PathKey {
        let [high, low] = edge.to_be_bytes();
        PathKey { local: [10, 0, 0, 1].into(), edge: ([192, 0, high, low], 443).into() }
    }

    /// A memory, a clock, and the user who opens.
    struct Bench {
        memory: PathMemory,
        now: Instant,
        user: User,
    }

    impl Bench {
        fn new() -> Self {
            Self { memory: PathMemory::default(), now: Instant::now(), user: ME }
        }

        fn record(&self, edge: u16, verdicts: &[Verdict]) {
            for verdict in verdicts {
                self.memory.record_syn(self.user, key(edge), *verdict, self.now);
            }
        }

        fn advice(&self, edge: u16) -> SynAdvice {
            self.memory.advise_syn(self.user, key(edge), self.now)
        }

        /// Returns `None` if a SYN with data may leave, and counts one as sent.
        fn reason(&self, edge: u16) -> Option<PathReason> {
            self.memory.begin_syn(self.user, key(edge), self.now).err()
        }
    }

    #[test]
    fn a_new_path_is_used_without_a_known_round_trip() {
        assert_eq!(Bench::new().advice(1), SynAdvice::Use { rtt: None });
    }

    #[test]
    fn the_round_trip_is_remembered() {
        let bench = Bench::new();
        bench.memory.record_rtt(key(1), RTT);
        assert_eq!(bench.advice(1), SynAdvice::Use { rtt: Some(RTT) });
        assert_eq!(bench.advice(2), SynAdvice::Use { rtt: None });
        bench.record(1, &[Verdict::Lost; 2]);
        let until = bench.now + BACKOFF_FIRST;
        let expected = SynAdvice::Bare { reason: PathReason::SynLost, until, rtt: Some(RTT) };
        assert_eq!(bench.advice(1), expected);
        let other = Bench { user: None, ..bench };
        assert_eq!(other.advice(1), SynAdvice::Use { rtt: Some(RTT) }, "shared by all users");
    }

    /// Any user can show cookies that no server accepts, and connect to servers that accept none.
    // F-CLIENT-6
    #[test]
    fn failures_of_one_user_do_not_count_against_others() {
        let (count, per_edge) = (u16::from(FAILURES_TO_BLOCK_NETWORK), REFUSALS_TO_BLOCK);
        for verdict in [Verdict::Refused, Verdict::Lost] {
            let mut bench = Bench::new();
            for edge in 1..=count {
                bench.record(edge, &vec![verdict; per_edge.into()]);
            }
            assert!(bench.reason(1).is_some() && bench.reason(100).is_some(), "{verdict:?}");
            for other in [Some(1001), None] {
                bench.user = other;
                assert_eq!((bench.reason(1), bench.reason(100)), (None, None), "{verdict:?}");
            }
        }
    }

    #[test]
    fn users_probe_and_succeed_separately() {
        let mut bench = Bench::new();
        bench.record(1, &[Verdict::Lost; 2]);
        bench.user = Some(1001);
        bench.record(1, &[Verdict::Lost; 2]);
        bench.now += BACKOFF_FIRST;
        assert_eq!((bench.reason(1), bench.reason(1)), (None, Some(PathReason::Probing)));
        bench.user = ME;
        assert_eq!((bench.reason(1), bench.reason(1)), (None, Some(PathReason::Probing)));
        bench.user = Some(1001);
        bench.record(1, &[Verdict::Accepted]);
        assert_eq!((bench.reason(1), bench.reason(1)), (None, None));
        bench.user = ME;
        assert_eq!(bench.reason(1), Some(PathReason::Probing));
    }

    #[test]
    fn a_user_who_fills_the_memory_evicts_only_its_own() {
        let mut bench = Bench::new();
        bench.record(1, &[Verdict::Lost; 2]);
        bench.user = Some(666);
        let (first, last) = (2, u16::try_from(PATHS).unwrap() + 1);
        for edge in first..=last {
            bench.record(edge, &[Verdict::Lost; 2]);
        }
        let tables = &mut bench.memory.lock().syn;
        assert!(tables.paths.get(&(Some(666), key(first))).is_none(), "another's was evicted");
        assert!(tables.paths.get(&(Some(666), key(last))).is_some());
        assert!(tables.paths.get(&(ME, key(1))).is_some());
    }

    #[test]
    fn each_failure_in_a_row_at_its_limit_and_one_fewer() {
        for (verdict, limit, reason) in [
            (Verdict::Lost, LOSSES_TO_BLOCK, PathReason::SynLost),
            (Verdict::Refused, REFUSALS_TO_BLOCK, PathReason::SynDataRefused),
        ] {
            let bench = Bench::new();
            let most = vec![verdict; usize::from(limit) - 1];
            bench.record(1, &most);
            assert_eq!(bench.reason(1), None);
            bench.record(1, &[Verdict::Accepted]);
            bench.record(1, &most);
            assert_eq!(bench.reason(1), None, "failures not in a row blocked the path");
            bench.record(1, &[verdict]);
            assert_eq!(bench.reason(1), Some(reason));
            assert_eq!(bench.reason(2), None, "another edge");
        }
    }

    #[test]
    fn one_at_a_time_probes_after_the_back_off_and_success_clears_it() {
        let mut bench = Bench::new();
        bench.record(1, &[Verdict::Lost; 2]);
        bench.now += BACKOFF_FIRST;
        assert_eq!(bench.reason(1), None);
        assert_eq!(bench.reason(1), Some(PathReason::Probing));
        bench.now += PROBE_LIFE;
        assert_eq!(bench.reason(1), None);
        bench.record(1, &[Verdict::Lost]);
        bench.now += BACKOFF_FIRST;
        assert_eq!(bench.reason(1), Some(PathReason::SynLost), "twice as long");
        bench.now += BACKOFF_FIRST;
        assert_eq!(bench.reason(1), None);
        bench.record(1, &[Verdict::Accepted]);
        assert_eq!((bench.reason(1), bench.reason(1)), (None, None));
    }

    #[test]
    fn advice_does_not_start_a_probe() {
        let mut bench = Bench::new();
        bench.record(1, &[Verdict::Lost; 2]);
        bench.now += BACKOFF_FIRST;
        for _ in 0..3 {
            assert_eq!(bench.advice(1), SynAdvice::Use { rtt: None });
        }
        assert_eq!(bench.reason(1), None);
        assert!(matches!(bench.advice(1), SynAdvice::Bare { reason: PathReason::Probing, .. }));
    }

    #[test]
    fn a_network_that_fails_with_several_edges_is_blocked_for_all() {
        let mut bench = Bench::new();
        let last = u16::from(FAILURES_TO_BLOCK_NETWORK);
        for edge in 1..last {
            bench.record(edge, &[Verdict::Lost]);
        }
        assert_eq!(bench.reason(100), None);
        bench.record(last, &[Verdict::Lost]);
        assert_eq!(bench.reason(100), Some(PathReason::SynLost));
        let elsewhere = PathKey { local: [10, 9, 9, 9].into(), ..key(100) };
        let advice = bench.memory.advise_syn(ME, elsewhere, bench.now);
        assert_eq!(advice, SynAdvice::Use { rtt: None });
        bench.now += BACKOFF_FIRST;
        bench.record(100, &[Verdict::Accepted]);
        assert_eq!((bench.reason(101), bench.reason(102)), (None, None));
    }

    #[test]
    fn a_blocked_path_does_not_use_up_the_probe_of_its_network() {
        let mut bench = Bench::new();
        bench.record(1, &[Verdict::Lost; 2]);
        bench.now += BACKOFF_FIRST;
        // The path is now blocked for two minutes, and the network, whose first failures these are,
        // for one.
        bench.record(1, &[Verdict::Lost]);
        bench.record(2, &[Verdict::Lost]);
        bench.record(3, &[Verdict::Lost]);
        assert_eq!(bench.reason(9), Some(PathReason::SynLost));
        bench.now += BACKOFF_FIRST;
        assert_eq!(bench.reason(1), Some(PathReason::SynLost));
        assert_eq!((bench.reason(2), bench.reason(3)), (None, Some(PathReason::Probing)));
    }

    #[test]
    fn a_network_that_was_left_is_forgotten() {
        let bench = Bench::new();
        bench.record(1, &[Verdict::Lost; 9]);
        bench.memory.forget_network([10, 9, 9, 9].into());
        assert_eq!(bench.reason(1), Some(PathReason::SynLost));
        bench.memory.forget_network(key(1).local);
        assert_eq!((bench.reason(1), bench.reason(2)), (None, None));
    }

    #[test]
    fn datagrams_and_syns_have_separate_records() {
        let bench = Bench::new();
        bench.record(1, &[Verdict::Lost; 9]);
        let advice = bench.memory.advise(key(1), bench.now);
        assert!(matches!(advice, Advice::Turbo { .. }));
        bench.memory.record(key(2), Outcome::Unreachable, bench.now);
        bench.record(2, &[Verdict::Accepted]);
        assert_eq!(bench.reason(2), None);
    }

    #[test]
    fn a_name_is_expected_to_repeat_its_last_offer() {
        let memory = PathMemory::default();
        assert!(!memory.expects_syn_offer("www.example"));
        memory.record_syn_offer("www.example", false);
        assert!(!memory.expects_syn_offer("www.example"));
        memory.record_syn_offer("WWW.example.", true);
        assert!(memory.expects_syn_offer("www.Example"));
        memory.record_syn_offer("www.example", false);
        assert!(!memory.expects_syn_offer("www.example"));
        assert!(!memory.expects_syn_offer(&"x".repeat(254)));
    }
}
