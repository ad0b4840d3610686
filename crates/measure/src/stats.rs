//! Percentiles, and how far the medians can be trusted.
//!
//! Percentiles are by nearest rank, so each is a time that was measured. A trial that failed took
//! for ever: it ranks above all times, as infinity, or an arm that gives up on slow connections
//! would be the fastest. Intervals are 95 % bootstrap intervals (percentile method, Efron &
//! Tibshirani 1993, chapter 13) with a fixed seed: the same samples always give the same report.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rand_distr::{Beta, Distribution};
use serde::{Deserialize, Serialize};

/// Resamples of a bootstrap interval. Its ends then move by about 2 % of its width from seed to
/// seed.
const RESAMPLES: usize = 2_000;

/// Share that the interval leaves out below and above.
const TAIL: f64 = 0.025;

/// Seed of intervals whose caller names none.
const SEED: u64 = 0x0068_6561_6473_7461;

/// Samples below which no interval of 95 % for a median exists: five lie on one side of it with a
/// probability of 2 / 2^5 = 6 %.
pub(crate) const FEW: usize = 6;

/// Samples below which the 90th percentile, or the 99th, would be the maximum by another name.
pub(crate) const P90_LEAST: usize = 10;
pub(crate) const P95_LEAST: usize = 20;
pub(crate) const P99_LEAST: usize = 100;

/// The distribution of one measure, in the unit of the samples. None where it lies among those that
/// failed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Summary {
    /// Samples, with those that failed.
    #[serde(default)]
    pub(crate) n: usize,
    /// Median.
    pub(crate) p50: Option<f64>,
    /// 90th percentile; none either of fewer than [`P90_LEAST`] samples.
    pub(crate) p90: Option<f64>,
    /// 95th percentile; none either of fewer than [`P95_LEAST`] samples.
    #[serde(default)]
    pub(crate) p95: Option<f64>,
    /// 99th percentile; none either of fewer than [`P99_LEAST`] samples.
    pub(crate) p99: Option<f64>,
    #[serde(default)]
    pub(crate) max: Option<f64>,
    /// 95 % interval of the median.
    pub(crate) ci95: [Option<f64>; 2],
    /// Mean; none where a sample failed, as it took for ever.
    #[serde(default)]
    pub(crate) mean: Option<f64>,
    /// Standard deviation of the samples; none of fewer than two, or where one failed.
    #[serde(default)]
    pub(crate) sd: Option<f64>,
}

impl Summary {
    /// Summarises samples; `None` without any. A failed one is infinite.
    pub(crate) fn from_samples(samples: &[f64]) -> Option<Self> {
        let n = samples.len();
        let sorted = Sorted::new(samples)?;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED);
        let medians = sorted.resampled_median()?;
        let (mean, sd) = mean_and_deviation(samples);
        Some(Self {
            n,
            p50: sorted.percentile(0.5, 1),
            p90: sorted.percentile(0.9, P90_LEAST),
            p95: sorted.percentile(0.95, P95_LEAST),
            p99: sorted.percentile(0.99, P99_LEAST),
            max: sorted.percentile(1.0, 1),
            ci95: interval(|| medians.draw(&mut random)).map(finite),
            mean: finite(mean),
            sd: finite(sd),
        })
    }
}

/// Returns the mean and deviation that papers print; neither is finite where a sample is not, and a
/// single one has no deviation.
fn mean_and_deviation(samples: &[f64]) -> (f64, f64) {
    let count = samples.len() as f64;
    let mean = samples.iter().sum::<f64>() / count;
    let squares = samples.iter().map(|sample| (sample - mean).powi(2)).sum::<f64>();
    // Of a sample, by one less than its size (Bessel's correction).
    (mean, (squares / (count - 1.0)).sqrt())
}

/// A share of trials with its 95 % interval: that of Wilson (1927), which is sound for shares near
/// 0 and 1, too. None without trials.
pub(crate) fn share(count: u64, of: u64) -> Option<Estimate> {
    let (n, share) = (of as f64, count as f64 / of as f64);
    let square = NORMAL * NORMAL;
    let middle = share + square / (2.0 * n);
    let spread = NORMAL * (share * (1.0 - share) / n + square / (4.0 * n * n)).sqrt();
    let ends = [middle - spread, middle + spread];
    let ci95 = ends.map(|end| (end / (1.0 + square / n)).clamp(0.0, 1.0));
    (of > 0).then_some(Estimate { value: share, ci95 })
}

/// The standard normal distribution exceeds this in [`TAIL`] of all cases.
const NORMAL: f64 = 1.959_963_985;

/// Times of trials, with those that failed behind them.
pub(crate) fn with_failed(times: &[f64], failed: usize) -> Vec<f64> {
    times.iter().copied().chain(std::iter::repeat_n(f64::INFINITY, failed)).collect()
}

/// Returns the time; `None` for one that never came.
fn finite(time: f64) -> Option<f64> {
    time.is_finite().then_some(time)
}

/// An estimate and its 95 % interval, whose ends may be infinite: there, medians lie among trials
/// that failed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Estimate {
    /// The estimate itself.
    pub(crate) value: f64,
    /// Its 95 % interval.
    pub(crate) ci95: [f64; 2],
}

impl Estimate {
    /// Changes each figure.
    pub(crate) fn map(self, change: impl Fn(f64) -> f64) -> Self {
        Self { value: change(self.value), ci95: self.ci95.map(change) }
    }

    /// The same in another unit.
    pub(crate) fn scaled(self, factor: f64) -> Self {
        Self { value: self.value * factor, ci95: self.ci95.map(|end| end * factor) }
    }
}

/// Returns the ratio of two medians. None if either has no median, or that of `to` or of one of its
/// resamples can be zero.
pub(crate) fn ratio_of_medians(of: &[f64], to: &[f64], seed: u64) -> Option<Estimate> {
    if to.iter().any(|sample| *sample <= 0.0) {
        return None;
    }
    compare(of, to, seed, |of, to| of / to)
}

/// The median of `of` less that of `to`. None if either has no median.
pub(crate) fn difference_of_medians(of: &[f64], to: &[f64], seed: u64) -> Option<Estimate> {
    compare(of, to, seed, |of, to| of - to)
}

/// The mean with its interval. None without samples.
pub(crate) fn mean(samples: &[f64], seed: u64) -> Option<Estimate> {
    let (value, _) = (!samples.is_empty()).then(|| mean_and_deviation(samples))?;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    Some(Estimate { value, ci95: interval(|| resampled_mean(samples, &mut random)) })
}

/// Returns the ratio of two means. None if either has no samples.
pub(crate) fn ratio_of_means(of: &[f64], to: &[f64], seed: u64) -> Option<Estimate> {
    if of.is_empty() || to.is_empty() {
        return None;
    }
    let [(one, _), (other, _)] = [of, to].map(mean_and_deviation);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let ci95 = interval(|| resampled_mean(of, &mut random) / resampled_mean(to, &mut random));
    Some(Estimate { value: one / other, ci95 })
}

fn resampled_mean(samples: &[f64], random: &mut Xoshiro256PlusPlus) -> f64 {
    let count = samples.len();
    let drawn = (0..count).filter_map(|_| samples.get(random.random_range(0..count)));
    drawn.sum::<f64>() / count as f64
}

/// The mean with the interval of Student's t, which is right for few samples of about a normal
/// distribution: resampled means lie too close together. None of fewer than two.
pub(crate) fn mean_of_few(samples: &[f64]) -> Option<Estimate> {
    let quantile = student(samples.len().checked_sub(1)?)?;
    let (value, sd) = mean_and_deviation(samples);
    let half = quantile * sd / (samples.len() as f64).sqrt();
    Some(Estimate { value, ci95: [value - half, value + half] })
}

/// Returns the slope of the line by least squares (Draper & Smith 1998, section 1.4). Its interval
/// takes deviations from it as independent. None of fewer than three points, or of one moment.
pub(crate) fn slope(points: &[(f64, f64)]) -> Option<Estimate> {
    let freedom = points.len().checked_sub(2)?;
    let quantile = student(freedom)?;
    let [mean_x, mean_y] = [|point: &(f64, f64)| point.0, |point: &(f64, f64)| point.1]
        .map(|of| points.iter().map(of).sum::<f64>() / points.len() as f64);
    let squares: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let products: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let value = finite(products / squares)?;
    let deviation = |(x, y): &(f64, f64)| y - mean_y - value * (x - mean_x);
    let left: f64 = points.iter().map(|point| deviation(point).powi(2)).sum();
    let half = quantile * (left / freedom as f64 / squares).sqrt();
    Some(Estimate { value, ci95: [value - half, value + half] })
}

/// The 97.5 % quantile of Student's t (NIST/SEMATECH e-Handbook, 1.3.6.7.2); beyond 30 degrees of
/// freedom that of 30, 4 % too wide at most.
fn student(freedom: usize) -> Option<f64> {
    const QUANTILES: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
        2.052, 2.048, 2.045, 2.042,
    ];
    let at = freedom.min(QUANTILES.len()).checked_sub(1)?;
    QUANTILES.get(at).copied()
}

fn compare(
    of: &[f64],
    to: &[f64],
    seed: u64,
    operation: impl Fn(f64, f64) -> f64,
) -> Option<Estimate> {
    let (of, to) = (Sorted::new(of)?, Sorted::new(to)?);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (of_medians, to_medians) = (of.resampled_median()?, to.resampled_median()?);
    let value = operation(finite(of.quantile(0.5))?, finite(to.quantile(0.5))?);
    let ci95 = interval(|| {
        let drawn = operation(of_medians.draw(&mut random), to_medians.draw(&mut random));
        // If both resamples failed, neither is better, so the first does not win.
        if drawn.is_nan() { f64::INFINITY } else { drawn }
    });
    Some(Estimate { value, ci95 })
}

/// The percentile interval of what `resample` gives.
fn interval(mut resample: impl FnMut() -> f64) -> [f64; 2] {
    let mut drawn: Vec<f64> = (0..RESAMPLES).map(|_| resample()).collect();
    drawn.sort_by(f64::total_cmp);
    let drawn = Sorted(drawn);
    [drawn.quantile(TAIL), drawn.quantile(1.0 - TAIL)]
}

/// Samples in order; at least one.
struct Sorted(Vec<f64>);

impl Sorted {
    fn new(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        (!sorted.is_empty()).then_some(Self(sorted))
    }

    /// A percentile; `None` of fewer samples than it takes, or among those that failed.
    fn percentile(&self, share: f64, least: usize) -> Option<f64> {
        (self.0.len() >= least).then(|| self.quantile(share)).and_then(finite)
    }

    fn quantile(&self, share: f64) -> f64 {
        self.0.get(nearest_rank(self.0.len(), share) - 1).copied().unwrap_or(f64::NAN)
    }

    fn resampled_median(&self) -> Option<ResampledMedian<'_>> {
        let (count, rank) = (self.0.len(), nearest_rank(self.0.len(), 0.5));
        let place = Beta::new(rank as f64, (count + 1 - rank) as f64).ok()?;
        Some(ResampledMedian { sorted: &self.0, place })
    }
}

/// Medians of resamples, without the resamples: the k-th smallest of n uniform draws is distributed
/// as Beta(k, n + 1 - k), and drawing with replacement is rounding such draws down to a sample. So
/// 2,000 resamples of 30,000 samples cost 2,000 draws and not 60 million.
struct ResampledMedian<'a> {
    sorted: &'a [f64],
    place: Beta<f64>,
}

impl ResampledMedian<'_> {
    fn draw(&self, random: &mut Xoshiro256PlusPlus) -> f64 {
        let last = self.sorted.len() - 1;
        let index = whole(self.place.sample(random) * self.sorted.len() as f64).min(last);
        self.sorted.get(index).copied().unwrap_or(f64::NAN)
    }
}

/// The rank, from 1, of the sample that at least `share` of `count` samples do not exceed.
fn nearest_rank(count: usize, share: f64) -> usize {
    // 0.9 of 10 must be 9 even if rounding puts the product slightly above.
    whole((share * count as f64 - 1e-9).ceil()).clamp(1, count)
}

/// The whole part of a number that counts samples.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn whole(number: f64) -> usize {
    number.max(0.0) as usize
}

#[cfg(test)]
mod tests {
    use rand_distr::{Exp, LogNormal, Normal};

    use super::*;

    fn ordinals(count: u32) -> Vec<f64> {
        (1..=count).rev().map(f64::from).collect()
    }

    /// `count` draws of a law whose median is known.
    fn drawn(law: impl Distribution<f64>, count: usize, seed: u64) -> Vec<f64> {
        law.sample_iter(Xoshiro256PlusPlus::seed_from_u64(seed)).take(count).collect()
    }

    /// The share of `runs` intervals that hold the truth.
    fn coverage(truth: f64, runs: u64, ci95: impl Fn(u64) -> [f64; 2]) -> f64 {
        let hits = (0..runs).filter(|run| {
            let [low, high] = ci95(*run);
            low <= truth && truth <= high
        });
        hits.count() as f64 / runs as f64
    }

    #[test]
    fn intervals_of_few_hold_the_mean_as_often_as_they_say() {
        let [low, high] = mean_of_few(&[1.0, 2.0, 3.0]).unwrap().ci95;
        // 4.303 / sqrt(3)
        assert!((low + 0.484).abs() < 0.001 && (high - 4.484).abs() < 0.001, "{low} {high}");
        assert_eq!(mean_of_few(&[1.0]), None);
        for count in [2, 3, 10] {
            let held = coverage(5.0, 2_000, |run| {
                mean_of_few(&drawn(Normal::new(5.0, 2.0).unwrap(), count, run)).unwrap().ci95
            });
            assert!((0.935..0.965).contains(&held), "{count}: {held}");
        }
    }

    #[test]
    fn the_interval_of_a_slope_holds_it_as_often_as_it_says() {
        let straight: Vec<_> = (0..9).map(|x| (f64::from(x), 3.0 - 2.0 * f64::from(x))).collect();
        let Estimate { value, ci95 } = slope(&straight).unwrap();
        assert!((value + 2.0).abs() < 1e-12 && ci95[1] - ci95[0] < 1e-9, "{ci95:?}");
        assert!(slope(&straight[..2]).is_none() && slope(&[(1.0, 1.0); 5]).is_none());
        let held = coverage(0.5, 1_000, |seed| {
            let noise = drawn(rand_distr::StandardNormal, 20, seed);
            let line = ordinals(20).into_iter().zip(noise).map(|(x, noise)| (x, 0.5 * x + noise));
            slope(&line.collect::<Vec<_>>()).unwrap().ci95
        });
        assert!((0.93..0.97).contains(&held), "{held}");
    }

    #[test]
    fn percentiles_are_samples_by_nearest_rank() {
        for (count, expected) in [
            (1, [Some(1.0), None, None, Some(1.0)]),
            (9, [Some(5.0), None, None, Some(9.0)]),
            (10, [Some(5.0), Some(9.0), None, Some(10.0)]),
            (99, [Some(50.0), Some(90.0), None, Some(99.0)]),
            (100, [Some(50.0), Some(90.0), Some(99.0), Some(100.0)]),
            (101, [Some(51.0), Some(91.0), Some(100.0), Some(101.0)]),
        ] {
            let summary = Summary::from_samples(&ordinals(count)).unwrap();
            assert_eq!(summary.n, count as usize);
            assert_eq!([summary.p50, summary.p90, summary.p99, summary.max], expected, "{count}");
        }
        assert_eq!(Summary::from_samples(&[]), None);
    }

    /// Failures are slower than everything: of 100 with 5 failed, one in a hundred takes for ever,
    /// and so does the slowest.
    #[test]
    fn failures_rank_slower_than_everything() {
        let summary = Summary::from_samples(&with_failed(&ordinals(95), 5)).unwrap();
        assert_eq!((summary.n, summary.p50, summary.p90), (100, Some(50.0), Some(90.0)));
        assert_eq!((summary.p99, summary.max), (None, None));
        let most = with_failed(&ordinals(4), 6);
        let summary = Summary::from_samples(&most).unwrap();
        assert_eq!((summary.n, summary.p50, summary.ci95[1]), (10, None, None));
        assert!(Summary::from_samples(&with_failed(&[], 3)).unwrap().p50.is_none());
        let whole = ordinals(10);
        assert_eq!(ratio_of_medians(&most, &whole, 1), None);
        assert_eq!(ratio_of_medians(&whole, &most, 1), None);
        assert_eq!(difference_of_medians(&most, &most, 1), None);
        // Only one of the medians can be among the failures: the ratio has no upper bound.
        let close = ratio_of_medians(&with_failed(&ordinals(11), 9), &whole, 1).unwrap();
        assert!(close.value.is_finite() && close.ci95[1].is_infinite(), "{close:?}");
        let json = serde_json::to_value(Summary::from_samples(&most).unwrap()).unwrap();
        assert!(json["p50"].is_null() && json["n"] == 10, "{json}");
    }

    /// Means have the deviation of a sample: of 2, 4, 4, 4, 5, 5, 7 and 9, the textbook's 5, and
    /// the square root of 32 / 7.
    #[test]
    fn means_have_the_deviation_of_a_sample() {
        let (mean, sd) = mean_and_sd(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert_eq!(mean, Some(5.0));
        assert!((sd.unwrap() - (32.0_f64 / 7.0).sqrt()).abs() < 1e-12, "{sd:?}");
        assert_eq!(mean_and_sd(&[3.0]), (Some(3.0), None));
        assert_eq!(mean_and_sd(&with_failed(&[1.0, 2.0], 1)), (None, None));
    }

    fn mean_and_sd(samples: &[f64]) -> (Option<f64>, Option<f64>) {
        let summary = Summary::from_samples(samples).unwrap();
        (summary.mean, summary.sd)
    }

    /// Wilson's interval of 1 in 10 is 1.8 to 40.4 %, of none in 10 it is 0 to 27.8 %.
    #[test]
    fn shares_have_an_interval_at_both_ends() {
        for (count, expected) in
            [(1, [0.1, 0.018, 0.404]), (0, [0.0, 0.0, 0.278]), (10, [1.0, 0.722, 1.0])]
        {
            let Estimate { value, ci95: [low, high] } = share(count, 10).unwrap();
            assert_eq!([value, low, high].map(|share| (share * 1e3).round() / 1e3), expected);
        }
        assert_eq!(share(0, 0), None);
    }

    /// For 100 samples the exact bootstrap law of the median gives ranks 41 and 60 (from the
    /// binomial sum P(B(100, j/100) >= 50), j = 40: 0.027, 41: 0.044; j = 59: 0.973, 60: 0.983,
    /// give or take one rank of simulation).
    #[test]
    fn the_interval_of_a_median_is_that_of_the_bootstrap() {
        let [low, high] = Summary::from_samples(&ordinals(100)).unwrap().ci95.map(Option::unwrap);
        assert!((40.0..=42.0).contains(&low), "{low}");
        assert!((58.0..=61.0).contains(&high), "{high}");
    }

    #[test]
    fn medians_are_drawn_as_if_each_resample_were_made() {
        let samples = drawn(Exp::new(1.0).unwrap(), 25, 1);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(2);
        let mut literal: Vec<f64> = (0..20_000)
            .map(|_| {
                let again: Vec<f64> =
                    samples.iter().map(|_| samples[random.random_range(0..25)]).collect();
                Sorted::new(&again).unwrap().quantile(0.5)
            })
            .collect();
        literal.sort_by(f64::total_cmp);
        let sorted = Sorted::new(&samples).unwrap();
        let medians = sorted.resampled_median().unwrap();
        let mut short: Vec<f64> = (0..20_000).map(|_| medians.draw(&mut random)).collect();
        short.sort_by(f64::total_cmp);
        for sample in sorted.0 {
            let [one, other] = [&literal, &short]
                .map(|all| all.partition_point(|drawn| *drawn <= sample) as f64 / 20_000.0);
            assert!((one - other).abs() < 0.02, "at {sample}");
        }
    }

    #[test]
    fn a_report_is_reproducible() {
        let samples = drawn(LogNormal::new(0.0, 1.0).unwrap(), 50, 3);
        assert_eq!(Summary::from_samples(&samples), Summary::from_samples(&samples));
        let other = ordinals(50);
        assert_eq!(ratio_of_medians(&samples, &other, 7), ratio_of_medians(&samples, &other, 7));
    }

    #[test]
    fn ratios_and_differences_are_of_the_medians() {
        let (of, to) = (ordinals(99), vec![100.0; 7]);
        let ratio = ratio_of_medians(&of, &to, 1).unwrap();
        assert_eq!(ratio.value, 0.5);
        assert!(ratio.ci95[0] < 0.5 && 0.5 < ratio.ci95[1], "{ratio:?}");
        let difference = difference_of_medians(&of, &to, 1).unwrap();
        assert_eq!(difference.value, -50.0);
        // One of the two does not vary, so both intervals come from the same draws.
        assert_eq!(difference.ci95, ratio.ci95.map(|end| end * 100.0 - 100.0));
        assert_eq!(ratio_of_medians(&of, &[], 1), None);
        assert_eq!(ratio_of_medians(&of, &[0.0, 1.0], 1), None);
        assert_eq!(difference_of_medians(&[], &to, 1), None);
    }

    #[test]
    fn ratios_of_means_are_no_ratios_of_medians() {
        let (of, to) = ([1.0, 1.0, 7.0], [6.0; 5]);
        let Estimate { value, ci95: [low, high] } = ratio_of_means(&of, &to, 1).unwrap();
        assert_eq!(value, 0.5);
        assert!((1.0 / 6.0..0.5).contains(&low) && (0.5..=7.0 / 6.0).contains(&high));
        assert_eq!(ratio_of_means(&[], &to, 1), None);
    }

    #[test]
    fn intervals_hold_the_truth_about_95_times_in_100() {
        let exponential = Exp::new(1.0).unwrap();
        let median = coverage(2.0_f64.ln(), 400, |run| {
            Summary::from_samples(&drawn(exponential, 60, run)).unwrap().ci95.map(Option::unwrap)
        });
        let ratio = coverage(0.5, 400, |run| {
            let (of, to) = (drawn(exponential, 60, run), drawn(exponential, 60, 1_000 + run));
            let of: Vec<f64> = of.iter().map(|sample| sample * 0.5).collect();
            ratio_of_medians(&of, &to, run).unwrap().ci95
        });
        let difference = coverage(0.0, 400, |run| {
            let (of, to) = (drawn(exponential, 60, run), drawn(exponential, 60, 1_000 + run));
            difference_of_medians(&of, &to, run).unwrap().ci95
        });
        let mean = coverage(1.0, 200, |run| mean(&drawn(exponential, 60, run), run).unwrap().ci95);
        // Four standard deviations of 400 coin tosses, plus the method's own error at n = 60.
        for (name, share) in
            [("median", median), ("ratio", ratio), ("difference", difference), ("mean", mean)]
        {
            assert!((0.90..=0.995).contains(&share), "{name}: {share}");
        }
    }
}
