//! Cost of load balancing over several addresses for Fast Open (Sy et al. 2019, Table 6).
//!
//! A page needs connections in levels: those of one level are opened at the same time, when the
//! level before is there. A level is a round trip sooner only if all its connections are. Fast Open
//! of RFC 7413 keeps cookies by the server's address, and misses where a host is met at a new one;
//! cookies by host name do not.

use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

/// Probability of each number of saved round trips: none first, then one, up to all levels.
#[derive(Clone, Debug, PartialEq)]
pub struct Savings(Vec<f64>);

impl Savings {
    /// As it follows from the probability of a `miss` at each host, for levels of so many hosts.
    ///
    /// ```
    /// use headstart_pageload::balance::Savings;
    ///
    /// // The document's host, then 19 others; 24.7 % of hosts are met at a new address.
    /// let second_revisit = Savings::computed(&[1, 19], 0.247);
    /// assert!((second_revisit.of(1) - 0.751).abs() < 0.005);
    /// ```
    #[must_use]
    pub fn computed(levels: &[u32], miss: f64) -> Self {
        let hit = 1.0 - miss;
        let mut savings = vec![1.0];
        for &hosts in levels {
            let sooner = (0..hosts).fold(1.0, |all, _| all * hit);
            savings.push(0.0);
            for saved in (0..savings.len()).rev() {
                let fewer = if saved == 0 { 0.0 } else { savings[saved - 1] };
                savings[saved] = savings[saved] * (1.0 - sooner) + fewer * sooner;
            }
        }
        Self(savings)
    }

    /// As it comes out in `trials` loads with misses drawn by chance. The same `seed` gives the
    /// same.
    #[must_use]
    pub fn drawn(levels: &[u32], miss: f64, trials: u32, seed: u64) -> Self {
        let mut draws = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut counts = vec![0u32; levels.len() + 1];
        for _ in 0..trials {
            let sooner = |&&hosts: &&u32| {
                // All are drawn, so that a level costs as many draws whatever comes out.
                (0..hosts).filter(|_| draws.random::<f64>() < miss).count() == 0
            };
            counts[levels.iter().filter(sooner).count()] += 1;
        }
        Self(counts.iter().map(|&count| f64::from(count) / f64::from(trials.max(1))).collect())
    }

    /// Probability that exactly this many round trips are saved.
    #[must_use]
    pub fn probability(&self, round_trips: usize) -> f64 {
        self.0.get(round_trips).copied().unwrap_or(0.0)
    }

    /// Mean time saved where a round trip takes `rtt`.
    #[must_use]
    pub fn mean(&self, rtt: Duration) -> Duration {
        let mean = (0u32..).zip(&self.0).map(|(saved, share)| f64::from(saved) * share).sum();
        rtt.mul_f64(mean)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde::Deserialize;

    use super::*;

    /// The document's host, then the 19 others of the paper's page.
    const LEVELS: [u32; 2] = [1, 19];
    const RTT: Duration = Duration::from_millis(60);

    #[derive(Deserialize)]
    struct Published {
        rtt: u64,
        levels: Vec<u32>,
        row: Vec<Row>,
    }

    #[derive(Deserialize)]
    struct Row {
        place: String,
        missed: f64,
        saved: Vec<f64>,
        mean: f64,
    }

    impl Row {
        /// Within half a percentage point and a millisecond.
        fn agrees(&self, savings: &Savings, rtt: Duration) {
            for (saved, share) in self.saved.iter().enumerate() {
                let said = savings.probability(saved);
                assert!((said - share).abs() <= 0.005, "{}: {saved}: {savings:?}", self.place);
            }
            let said = -savings.mean(rtt).as_secs_f64() * 1e3;
            assert!((said - self.mean).abs() <= 1.0, "{}: {said} ms", self.place);
        }
    }

    #[test]
    fn table_6_by_both_methods() {
        let published = include_str!("../../../lab/papers/fop-balancing.toml");
        let published: Published = toml::from_str(published).unwrap();
        let rtt = Duration::from_millis(published.rtt);
        assert_eq!(published.row.len(), 6);
        for row in &published.row {
            let computed = Savings::computed(&published.levels, row.missed);
            let drawn = Savings::drawn(&published.levels, row.missed, 200_000, 6);
            println!("{}: {computed:.4?} {drawn:.4?}", row.place);
            row.agrees(&computed, rtt);
            row.agrees(&drawn, rtt);
        }
    }

    #[test]
    fn names_never_miss() {
        for savings in [Savings::computed(&LEVELS, 0.0), Savings::drawn(&LEVELS, 0.0, 10, 0)] {
            assert_eq!((savings.probability(2), savings.mean(RTT)), (1.0, 2 * RTT));
            assert_eq!(savings.probability(3), 0.0);
        }
    }

    #[test]
    fn the_same_seed_draws_the_same() {
        let drawn = |seed| Savings::drawn(&LEVELS, 0.3, 100, seed);
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
    }
}
