//! Medians, and how far they can be trusted.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

/// Resamples of a bootstrap interval, and the seed of all of them: the same samples always give the
/// same.
const RESAMPLES: usize = 10_000;
const SEED: u64 = 1;

/// A median with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Median {
    pub(crate) value: f64,
    /// An interval of at least 95 % by order statistics (binomial, no assumption about the
    /// distribution), unless it is by bootstrap; the whole range where there are fewer than six
    /// samples.
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) samples: usize,
}

impl Median {
    pub(crate) fn from_samples(samples: &[f64]) -> Self {
        let mut sorted = samples.to_vec();
        let value = middle(&mut sorted);
        let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
        let count = sorted.len();
        let left = left_out(count);
        Self { value, low: at(left), high: at(count.saturating_sub(1 + left)), samples: count }
    }

    /// Summarises with a bootstrap interval of 95 % (percentile method, Efron & Tibshirani 1993,
    /// chapter 13): narrower than that by order statistics, which covers at least so much whatever
    /// the distribution.
    pub(crate) fn bootstrapped(samples: &[f64]) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED);
        let count = samples.len();
        let mut medians: Vec<f64> = (0..RESAMPLES)
            .map(|_| {
                let draws = (0..count).filter_map(|_| samples.get(random.random_range(0..count)));
                middle(&mut draws.copied().collect::<Vec<_>>())
            })
            .collect();
        medians.sort_by(f64::total_cmp);
        let [low, high] = [0.025, 0.975].map(|share| quantile(&medians, share));
        Self { value: middle(&mut samples.to_vec()), low, high, samples: count }
    }
}

/// The median; sorts the samples.
fn middle(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    let at = |index: usize| samples.get(index).copied().unwrap_or(f64::NAN);
    f64::midpoint(at(samples.len().saturating_sub(1) / 2), at(samples.len() / 2))
}

/// Samples to leave out at each end: the most for which the rest covers the median in 95 of 100
/// cases.
fn left_out(count: usize) -> usize {
    let mut probability = 0.5_f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    let mut tail = 0.0;
    for index in 0..count / 2 {
        tail += probability;
        if tail > 0.025 {
            return index;
        }
        probability *= (count - index) as f64 / (index + 1) as f64;
    }
    count / 2
}

/// The value below which `share` of the samples lie.
pub(crate) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1) as f64;
    let index = sorted.iter().enumerate().position(|(index, _)| index as f64 >= last * share);
    index.and_then(|index| sorted.get(index)).copied().unwrap_or(f64::NAN)
}
