//! Whether a path bears data in the SYN: networks that strip them, or drop such SYNs altogether.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use headstart_proto::fastopen::Verdict;

use super::bounded::Bounded;
use super::standing::Standing;
use super::{NAMES, PATHS, PathKey, PathMemory, PathReason, flight_key};

/// SYNs with data without an answer, one after the other, that block a path.
///
/// Each costs 300 ms. A SYN or its answer is lost on a link with 5 % loss once in ten times, and twice
/// in a row once in a hundred.
pub const LOSSES_TO_BLOCK: u8 = 2;

/// SYNs whose data were not taken, one after the other, that block a path.
///
/// Each costs the round trip that TurboTLS would have saved. One may be a cookie that a server does not
/// take any more, two the same of a server with two stale ones.
pub const REFUSALS_TO_BLOCK: u8 = 3;

/// Failures of either kind, one after the other, that block a network for all edges.
///
/// More than two edges in a row are hardly all at fault by themselves.
pub const FAILURES_TO_BLOCK_NETWORK: u8 = 5;

/// Networks remembered; about 100 bytes each, 25 kB.
pub const NETWORKS: usize = 256;

/// Whether to open with data in the SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SynAdvice {
    /// Yes.
    Use {
        /// What TCP last took to connect there.
        rtt: Option<Duration>,
    },
    /// No.
    Bare {
        /// What happened.
        reason: PathReason,
        /// When to ask again.
        until: Instant,
        /// What TCP last took to connect there.
        rtt: Option<Duration>,
    },
}

#[derive(Debug)]
pub(super) struct SynTables {
    paths: Bounded<PathKey, SynPath>,
    /// By local address.
    networks: Bounded<IpAddr, Standing>,
    /// Names, and whether they said that their servers take cookies when they were last asked.
    names: Bounded<Box<str>, bool>,
}

#[derive(Clone, Copy, Debug, Default)]
struct SynPath {
    rtt: Option<Duration>,
    standing: Standing,
}

impl Default for SynTables {
    fn default() -> Self {
        Self {
            paths: Bounded::new(PATHS),
            networks: Bounded::new(NETWORKS),
            names: Bounded::new(NAMES),
        }
    }
}

impl SynTables {
    pub(super) fn forget_network(&mut self, local: IpAddr) {
        self.paths.retain(|key| key.local != local);
        self.networks.retain(|known| *known != local);
    }

    fn advise(&mut self, key: PathKey, now: Instant) -> SynAdvice {
        let rtt = self.paths.get(&key).and_then(|path| path.rtt);
        let permits = |standing: &mut Standing| standing.permits(now);
        match self.standings(key).into_iter().flatten().try_for_each(permits) {
            Ok(()) => SynAdvice::Use { rtt },
            Err((reason, until)) => SynAdvice::Bare { reason, until, rtt },
        }
    }

    /// Both have to agree before either counts this as its probe.
    fn begin(&mut self, key: PathKey, now: Instant) -> Result<(), PathReason> {
        if let SynAdvice::Bare { reason, .. } = self.advise(key, now) {
            return Err(reason);
        }
        for standing in self.standings(key).into_iter().flatten() {
            standing.ask(now).map_err(|(reason, _)| reason)?;
        }
        Ok(())
    }

    /// Of the network and of the path, as far as anything is known of them.
    fn standings(&mut self, key: PathKey) -> [Option<&mut Standing>; 2] {
        let path = self.paths.get(&key).map(|path| &mut path.standing);
        [self.networks.get(&key.local), path]
    }

    fn record(&mut self, key: PathKey, verdict: Verdict, now: Instant) {
        let path = &mut self.paths.get_or_default(key).standing;
        let network = self.networks.get_or_default(key.local);
        let (reason, to_block) = match verdict {
            Verdict::Accepted => {
                path.good();
                network.good();
                return;
            }
            Verdict::Refused => (PathReason::SynDataRefused, REFUSALS_TO_BLOCK),
            Verdict::Lost => (PathReason::SynLost, LOSSES_TO_BLOCK),
        };
        path.failed(reason, to_block, now);
        network.failed(reason, FAILURES_TO_BLOCK_NETWORK, now);
    }
}

impl PathMemory {
    /// Whether opening with data in the SYN on `key` is worth a try now.
    pub fn advise_syn(&self, key: PathKey, now: Instant) -> SynAdvice {
        self.lock().syn.advise(key, now)
    }

    /// To be asked once more right before a SYN with data leaves: after a back-off the first one may, and
    /// the others go on without until it reports, or for [`PROBE_LIFE`](super::PROBE_LIFE).
    ///
    /// # Errors
    /// Why this one may not.
    pub fn begin_syn(&self, key: PathKey, now: Instant) -> Result<(), PathReason> {
        self.lock().syn.begin(key, now)
    }

    /// Learns from an opening with data in the SYN on `key`.
    pub fn record_syn(&self, key: PathKey, verdict: Verdict, now: Instant) {
        self.lock().syn.record(key, verdict, now);
    }

    /// Remembers what TCP took to connect on `key`.
    pub fn record_rtt(&self, key: PathKey, rtt: Duration) {
        self.lock().syn.paths.get_or_default(key).rtt = Some(rtt);
    }

    /// Remembers whether `name` says that its servers take cookies.
    pub fn record_syn_offer(&self, name: &str, offered: bool) {
        let Some(key) = flight_key(name) else { return };
        let names = &mut self.lock().syn.names;
        // Most names never say so; they need no place.
        if offered || names.get(&key).is_some() {
            names.insert(key, offered);
        }
    }

    /// Whether `name` said so when it was last asked.
    pub fn expects_syn_offer(&self, name: &str) -> bool {
        let key = flight_key(name);
        key.is_some_and(|key| self.lock().syn.names.get(&key).copied().unwrap_or(false))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Advice, BACKOFF_FIRST, Outcome, PROBE_LIFE};
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    fn key(edge: u8) -> PathKey {
        PathKey { local: [10, 0, 0, 1].into(), edge: ([192, 0, 2, edge], 443).into() }
    }

    /// A memory and a clock.
    struct Bench {
        memory: PathMemory,
        now: Instant,
    }

    impl Bench {
        fn new() -> Self {
            Self { memory: PathMemory::new(), now: Instant::now() }
        }

        fn record(&self, edge: u8, verdicts: &[Verdict]) {
            for verdict in verdicts {
                self.memory.record_syn(key(edge), *verdict, self.now);
            }
        }

        /// None if a SYN with data may leave, as one then does.
        fn reason(&self, edge: u8) -> Option<PathReason> {
            self.memory.begin_syn(key(edge), self.now).err()
        }
    }

    #[test]
    fn a_new_path_is_used_and_nothing_is_known_of_it() {
        let bench = Bench::new();
        let advice = bench.memory.advise_syn(key(1), bench.now);
        assert_eq!(advice, SynAdvice::Use { rtt: None });
    }

    #[test]
    fn the_round_trip_is_remembered() {
        let bench = Bench::new();
        bench.memory.record_rtt(key(1), RTT);
        let advice = bench.memory.advise_syn(key(1), bench.now);
        assert_eq!(advice, SynAdvice::Use { rtt: Some(RTT) });
        assert_eq!(bench.memory.advise_syn(key(2), bench.now), SynAdvice::Use { rtt: None });
        bench.record(1, &[Verdict::Lost; 2]);
        let advice = bench.memory.advise_syn(key(1), bench.now);
        let until = bench.now + BACKOFF_FIRST;
        let expected = SynAdvice::Bare { reason: PathReason::SynLost, until, rtt: Some(RTT) };
        assert_eq!(advice, expected);
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
            assert_eq!(bench.reason(1), None, "not in a row");
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
    fn to_be_advised_is_not_to_begin() {
        let mut bench = Bench::new();
        bench.record(1, &[Verdict::Lost; 2]);
        bench.now += BACKOFF_FIRST;
        for _ in 0..3 {
            let advice = bench.memory.advise_syn(key(1), bench.now);
            assert_eq!(advice, SynAdvice::Use { rtt: None });
        }
        assert_eq!(bench.reason(1), None);
        let advice = bench.memory.advise_syn(key(1), bench.now);
        assert!(matches!(advice, SynAdvice::Bare { reason: PathReason::Probing, .. }));
    }

    #[test]
    fn a_network_that_fails_with_several_edges_is_blocked_for_all() {
        let mut bench = Bench::new();
        for edge in 1..FAILURES_TO_BLOCK_NETWORK {
            bench.record(edge, &[Verdict::Lost]);
        }
        assert_eq!(bench.reason(100), None);
        bench.record(FAILURES_TO_BLOCK_NETWORK, &[Verdict::Lost]);
        assert_eq!(bench.reason(100), Some(PathReason::SynLost));
        let elsewhere = PathKey { local: [10, 9, 9, 9].into(), ..key(100) };
        let advice = bench.memory.advise_syn(elsewhere, bench.now);
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
        // The path for two minutes now, and the network, whose first failures these are, for one.
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
    fn datagrams_and_syns_are_remembered_apart() {
        let bench = Bench::new();
        bench.record(1, &[Verdict::Lost; 9]);
        let advice = bench.memory.advise(key(1), bench.now);
        assert!(matches!(advice, Advice::Turbo { .. }));
        bench.memory.record(key(2), Outcome::Unreachable, bench.now);
        bench.memory.record_syn(key(2), Verdict::Accepted, bench.now);
        assert_eq!(bench.reason(2), None);
    }

    #[test]
    fn a_name_is_expected_to_offer_what_it_offered_last() {
        let memory = PathMemory::new();
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
