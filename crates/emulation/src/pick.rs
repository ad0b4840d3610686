use std::collections::BTreeSet;
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

/// A silence longer than this ends a run, or may begin one.
///
/// Bursts are counted in packets, which says nothing of a link that carries none. What makes them
/// (interference, a handover, a queue that is full) lasts some ten milliseconds: after 100 ms
/// without packets the link is as it is at any moment, and a run does not wait for the next
/// connection.
pub(crate) const BURST_MEMORY: Duration = Duration::from_millis(100);

/// The packets that an element acts on.
///
/// Packets are counted from 1, each element counting those it sees; [`Only`](crate::Only) narrows
/// what it sees.
#[derive(Debug)]
pub struct Pick {
    seen: u64,
    rule: Rule,
}

#[derive(Debug)]
enum Rule {
    Every,
    Exact(BTreeSet<u64>),
    Random { probability: f64, draws: Box<Xoshiro256PlusPlus> },
    Bursts(Box<Bursts>),
}

/// The two-state model and its state.
#[derive(Debug)]
struct Bursts {
    share: f64,
    begin: f64,
    end: f64,
    /// True if the next packet is picked; drawn at first and again after a silence.
    within: bool,
    /// Time at which the last packet came.
    last: Option<Duration>,
    draws: Xoshiro256PlusPlus,
}

impl Pick {
    /// Every packet.
    pub fn every() -> Pick {
        Pick { seen: 0, rule: Rule::Every }
    }

    /// The packets with these numbers; the first packet is number 1.
    pub fn exact(numbers: impl IntoIterator<Item = u64>) -> Pick {
        Pick { seen: 0, rule: Rule::Exact(numbers.into_iter().collect()) }
    }

    /// Each packet independently with this probability, clamped to 0..=1; NaN counts as 0.
    ///
    /// The generator is a named one whose output is the same in every release, so a seed can be
    /// replayed.
    pub fn random(probability: f64, seed: u64) -> Pick {
        let probability = if probability.is_nan() { 0.0 } else { probability.clamp(0.0, 1.0) };
        let draws = Box::new(Xoshiro256PlusPlus::seed_from_u64(seed));
        Pick { seen: 0, rule: Rule::Random { probability, draws } }
    }

    /// This share of the packets, in runs whose length is geometric with this mean.
    ///
    /// The two-state model of Gilbert (1960), of Elliott's (1963) the case that picks all in the
    /// one state and none in the other: a run ends after each packet with probability 1 /
    /// `mean_length` and begins with the one that makes up the share. Numbers out of range count as
    /// the nearest that makes sense: a mean from 1 on, and long enough that runs are not more
    /// frequent than packets.
    ///
    /// The first packet, and each that comes more than 100 ms after the one before it, is picked
    /// with the probability `share`, whatever was so before the silence.
    pub fn bursts(share: f64, mean_length: f64, seed: u64) -> Pick {
        let share = if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) };
        let end = if mean_length > 1.0 { 1.0 / mean_length } else { 1.0 };
        let begin = if share < 1.0 { (end * share / (1.0 - share)).min(1.0) } else { 1.0 };
        let end = if share < 1.0 { end } else { 0.0 };
        let draws = Xoshiro256PlusPlus::seed_from_u64(seed);
        let bursts = Bursts { share, begin, end, within: false, last: None, draws };
        Pick { seen: 0, rule: Rule::Bursts(Box::new(bursts)) }
    }

    /// Counts the next packet, which comes at `now`, and returns true if it is picked.
    ///
    /// Time is since any epoch, as [`Link`](crate::Link) has it.
    pub fn next_is_picked(&mut self, now: Duration) -> bool {
        self.seen += 1;
        match &mut self.rule {
            Rule::Every => true,
            Rule::Exact(numbers) => numbers.contains(&self.seen),
            Rule::Random { probability, draws } => draws.random_bool(*probability),
            Rule::Bursts(bursts) => bursts.next_is_picked(now),
        }
    }
}

impl Bursts {
    fn next_is_picked(&mut self, now: Duration) -> bool {
        let last = self.last.replace(now);
        if last.is_none_or(|last| now.saturating_sub(last) > BURST_MEMORY) {
            self.within = self.draws.random_bool(self.share);
        }
        let picked = self.within;
        let turns = self.draws.random_bool(if picked { self.end } else { self.begin });
        self.within = picked != turns;
        picked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picked(pick: Pick, total: u32) -> Vec<bool> {
        picked_every(Duration::from_millis(1), pick, total)
    }

    /// Returns which of the packets are picked, with this much time from packet to packet.
    fn picked_every(gap: Duration, mut pick: Pick, total: u32) -> Vec<bool> {
        (0..total).map(|number| pick.next_is_picked(gap * number)).collect()
    }

    #[test]
    fn counts_from_one() {
        assert_eq!(picked(Pick::exact([1, 3]), 4), [true, false, true, false]);
        assert_eq!(picked(Pick::exact([0]), 3), [false; 3]);
    }

    #[test]
    fn certain_and_impossible() {
        assert_eq!(picked(Pick::every(), 5), [true; 5]);
        assert_eq!(picked(Pick::random(1.0, 1), 100), [true; 100]);
        assert_eq!(picked(Pick::random(7.5, 1), 100), [true; 100]);
        for nothing in [0.0, -1.0, f64::NAN] {
            assert_eq!(picked(Pick::random(nothing, 1), 100), [false; 100]);
        }
    }

    /// A seed printed by an old run must still mean the same packets.
    #[test]
    fn seeds_are_stable() {
        let numbers: Vec<usize> = (1..)
            .zip(picked(Pick::random(0.2, 7), 30))
            .filter(|(_, hit)| *hit)
            .map(|(number, _)| number)
            .collect();
        assert_eq!(numbers, SEED_7_AT_20_PERCENT);
    }
    const SEED_7_AT_20_PERCENT: &[usize] = &[1, 2, 10, 11, 12, 14, 16, 17, 18, 19, 26, 27, 28];

    /// A share of 5 % in runs of 4 packets on average.
    #[test]
    fn bursts_keep_share_and_length() {
        let picks = picked(Pick::bursts(0.05, 4.0, 42), 400_000);
        let hits = picks.iter().filter(|hit| **hit).count();
        let runs = picks.array_windows().filter(|[before, hit]| !before && *hit).count();
        // 5,000 runs of 4 are 20,000; the deviation of a run's length is 3.5, so five of the sum
        // are 1,900 or so.
        assert!((18_000..=22_000).contains(&hits), "{hits}");
        assert!((3.7..=4.3).contains(&(hits as f64 / runs as f64)), "{hits} in {runs}");
    }

    /// Returns how often the second of two packets is picked where the first was.
    fn second_is_picked(gap: Duration) -> f64 {
        let pairs = (0..20_000).map(|seed| picked_every(gap, Pick::bursts(0.1, 50.0, seed), 2));
        let second: Vec<bool> = pairs.filter(|pair| pair[0]).map(|pair| pair[1]).collect();
        // Five standard deviations of a binomial with n = 20,000, p = 0.1 are 212.
        assert!((1788..=2212).contains(&second.len()), "{}", second.len());
        count(&second) as f64 / second.len() as f64
    }

    fn count(picks: &[bool]) -> usize {
        picks.iter().filter(|hit| **hit).count()
    }

    /// A silence ends a run of losses. With runs of 50 packets on average at 10 %, the packet after
    /// a lost one is lost 98 times in 100 if the silence between them does not count, and 10 times
    /// after a silence that does.
    #[test]
    fn a_silence_ends_a_run() {
        assert!(second_is_picked(BURST_MEMORY) > 0.95);
        // Five standard deviations of a binomial with n = 2,000, p = 0.1 are 67.
        let after = second_is_picked(BURST_MEMORY + Duration::from_nanos(1));
        assert!((0.066..=0.134).contains(&after), "{after}");
    }

    /// The share stays what it is, whatever the time between packets.
    #[test]
    fn silences_keep_the_share() {
        let apart = picked_every(BURST_MEMORY * 2, Pick::bursts(0.05, 4.0, 42), 100_000);
        let hits = count(&apart);
        // Five standard deviations of a binomial with n = 100,000, p = 0.05 are 345.
        assert!((4655..=5345).contains(&hits), "{hits}");
    }

    #[test]
    fn bursts_at_the_edges() {
        assert_eq!(picked(Pick::bursts(0.0, 3.0, 1), 100), [false; 100]);
        assert_eq!(picked(Pick::bursts(1.0, 3.0, 1), 100), [true; 100]);
        assert_eq!(picked(Pick::bursts(f64::NAN, f64::NAN, 1), 100), [false; 100]);
        // Runs of one, as often as they can be: every other packet.
        let every_other = picked(Pick::bursts(0.5, 0.0, 1), 100);
        assert!(every_other.array_windows().all(|[one, next]| one != next));
    }

    /// Over one long run, and over the first packets of many neighbouring seeds.
    #[test]
    fn random_keeps_its_rate() {
        let long = count(&picked(Pick::random(0.05, 42), 100_000));
        let short: usize =
            (0..10_000).map(|seed| count(&picked(Pick::random(0.05, seed), 10))).sum();
        // Five standard deviations of a binomial with n = 100,000, p = 0.05 are 345.
        for hits in [long, short] {
            assert!((4655..=5345).contains(&hits), "{hits}");
        }
    }
}
