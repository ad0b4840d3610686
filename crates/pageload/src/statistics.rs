//! Distributions, correlations, and the accuracy of simulated times.

use serde::Serialize;

/// Correlation of two properties of the same things, -1 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Correlation {
    /// Correlation of the values (Pearson's).
    pub linear: f64,
    /// Correlation of the ranks (Spearman's); equal values share their mean rank.
    pub rank: f64,
}

impl Correlation {
    /// Correlates pairs of numbers; `None` for fewer than three pairs, or where one side is always
    /// the same.
    pub fn from_pairs(pairs: &[(f64, f64)]) -> Option<Self> {
        if pairs.len() < 3 {
            return None;
        }
        let (first, second): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
        let linear = linear(&first, &second)?;
        Some(Self { linear, rank: self::linear(&ranks(&first), &ranks(&second))? })
    }
}

fn linear(first: &[f64], second: &[f64]) -> Option<f64> {
    let (first_mean, second_mean) = (mean(first.iter().copied())?, mean(second.iter().copied())?);
    let (mut product, mut first_square, mut second_square) = (0.0, 0.0, 0.0);
    for (one, other) in first.iter().zip(second) {
        let (one, other) = (one - first_mean, other - second_mean);
        product += one * other;
        first_square += one * one;
        second_square += other * other;
    }
    let scale = (first_square * second_square).sqrt();
    (scale > 0.0).then(|| (product / scale).clamp(-1.0, 1.0))
}

/// Returns the mean of numbers; `None` if there are none.
pub(crate) fn mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0_u32);
    for value in values {
        sum += value;
        count += 1;
    }
    (count > 0).then(|| sum / f64::from(count))
}

/// Returns ranks from 1; equal values share their mean rank.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&one, &other| values[one].total_cmp(&values[other]));
    let mut ranks = vec![0.0; values.len()];
    let mut begin = 0;
    while begin < order.len() {
        let value = values[order[begin]];
        let same = order[begin..].iter().take_while(|&&at| values[at] == value).count().max(1);
        for &at in &order[begin..begin + same] {
            ranks[at] = begin as f64 + (same as f64 + 1.0) / 2.0;
        }
        begin += same;
    }
    ranks
}

/// Returns a percentile of sorted values by nearest rank; `None` if there are none.
fn percentile(sorted: &[f64], percent: usize) -> Option<f64> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

/// Accuracy of simulated times against measured ones.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Accuracy {
    /// Number of pairs of a simulated and a measured time.
    pub n: usize,
    /// Spearman's correlation; `None` for fewer than three pairs.
    pub rank_correlation: Option<f64>,
    /// Mean absolute error, as a share of the measured time.
    pub mean_absolute_percentage_error: f64,
    /// Mean error, as a share of the measured time: positive if simulated loads are slower.
    pub bias: f64,
}

impl Accuracy {
    /// Compares pairs of a simulated and a measured time; `None` without a pair. Measured times of
    /// zero are left out.
    pub fn from_pairs(pairs: &[(f64, f64)]) -> Option<Self> {
        let pairs: Vec<(f64, f64)> =
            pairs.iter().copied().filter(|(_, measured)| *measured > 0.0).collect();
        let errors: Vec<f64> =
            pairs.iter().map(|(simulated, measured)| simulated / measured - 1.0).collect();
        let absolute: Vec<f64> = errors.iter().map(|error| error.abs()).collect();
        Some(Self {
            n: pairs.len(),
            rank_correlation: Correlation::from_pairs(&pairs).map(|both| both.rank),
            mean_absolute_percentage_error: mean(absolute)?,
            bias: mean(errors)?,
        })
    }
}

/// Distribution of some values, by nearest rank: each quantile is one of the values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[allow(missing_docs)] // the names say it
pub struct Quantiles {
    pub count: usize,
    pub mean: f64,
    pub min: f64,
    pub p10: f64,
    pub p25: f64,
    pub p50: f64,
    pub p75: f64,
    pub p90: f64,
    pub p95: f64,
    pub p99: f64,
    pub max: f64,
}

impl Quantiles {
    /// Summarises values, ignoring those that are not finite; `None` if there are none.
    pub fn from_values(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        Some(Self {
            count: values.len(),
            mean: values.iter().sum::<f64>() / values.len() as f64,
            min: percentile(&values, 0)?,
            p10: percentile(&values, 10)?,
            p25: percentile(&values, 25)?,
            p50: percentile(&values, 50)?,
            p75: percentile(&values, 75)?,
            p90: percentile(&values, 90)?,
            p95: percentile(&values, 95)?,
            p99: percentile(&values, 99)?,
            max: percentile(&values, 100)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_curves() {
        let line = Correlation::from_pairs(&[(1.0, 10.0), (2.0, 8.0), (3.0, 6.0)]).unwrap();
        assert_eq!((line.linear, line.rank), (-1.0, -1.0));
        // Deviations -1 0 1 and -7 -3 10 (means 2 and 11): 17 / sqrt(2 * 158).
        let curve = Correlation::from_pairs(&[(1.0, 4.0), (2.0, 8.0), (3.0, 21.0)]).unwrap();
        assert!((curve.linear - 17.0 / 316.0_f64.sqrt()).abs() < 1e-12, "{curve:?}");
        assert_eq!(curve.rank, 1.0);
    }

    #[test]
    fn equal_values_share_their_ranks() {
        assert_eq!(ranks(&[5.0, 1.0, 5.0, 9.0, 5.0]), [3.0, 1.0, 3.0, 5.0, 3.0]);
        // Ranks 1, 2.5, 2.5, 4 and 1, 2, 3, 4: 4.5 / sqrt(4.5 * 5).
        let tied =
            Correlation::from_pairs(&[(1.0, 1.0), (2.0, 2.0), (2.0, 3.0), (7.0, 9.0)]).unwrap();
        assert!((tied.rank - 4.5 / 22.5_f64.sqrt()).abs() < 1e-12, "{tied:?}");
    }

    #[test]
    fn constants_correlate_with_nothing() {
        assert_eq!(Correlation::from_pairs(&[(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)]), None);
        assert_eq!(Correlation::from_pairs(&[(1.0, 1.0), (2.0, 2.0)]), None);
    }

    #[test]
    fn errors_are_shares_of_what_was_measured() {
        let of =
            Accuracy::from_pairs(&[(110.0, 100.0), (150.0, 200.0), (400.0, 400.0), (5.0, 0.0)]);
        let of = of.unwrap();
        assert_eq!((of.n, of.rank_correlation), (3, Some(1.0)));
        assert!((of.mean_absolute_percentage_error - 0.35 / 3.0).abs() < 1e-12);
        assert!((of.bias + 0.15 / 3.0).abs() < 1e-12);
        assert_eq!(Accuracy::from_pairs(&[(1.0, 0.0)]), None);
    }

    #[test]
    fn nearest_ranks() {
        let all = Quantiles::from_values((1..=100).rev().map(f64::from)).unwrap();
        assert_eq!((all.p10, all.p50, all.p99, all.max), (10.0, 50.0, 99.0, 100.0));
        assert_eq!((all.count, all.mean, all.min), (100, 50.5, 1.0));
        let one = Quantiles::from_values([7.0, f64::NAN]).unwrap();
        assert_eq!((one.count, one.min, one.p50, one.max), (1, 7.0, 7.0, 7.0));
        let three = Quantiles::from_values([3.0, 1.0, 2.0]).unwrap();
        assert_eq!((three.p25, three.p50, three.p75), (1.0, 2.0, 3.0));
        assert_eq!(Quantiles::from_values([]), None);
    }
}
