//! How far the simulator is from replays over real sockets.

/// One load time, measured and simulated, in the same unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// Above zero.
    pub measured: f64,
    /// By the simulator.
    pub simulated: f64,
}

/// What all pairs come to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Agreement {
    /// How many there are.
    pub pairs: usize,
    /// Spearman's: whether the simulator has loads in the order in which they were measured. None of fewer than three pairs, or
    /// where all are the same.
    pub rank_correlation: Option<f64>,
    /// Mean absolute error, in parts of what was measured.
    pub error: f64,
    /// Mean error: above zero where the simulator is slower.
    pub bias: f64,
    /// Largest absolute error.
    pub error_max: f64,
}

impl Agreement {
    /// None without pairs.
    #[must_use]
    pub fn of(pairs: &[Pair]) -> Option<Self> {
        let errors: Vec<f64> =
            pairs.iter().map(|pair| (pair.simulated - pair.measured) / pair.measured).collect();
        let count = errors.len() as f64;
        let error_max = errors.iter().map(|error| error.abs()).reduce(f64::max)?;
        let ranks = |of: fn(&Pair) -> f64| ranks(&pairs.iter().map(of).collect::<Vec<_>>());
        let correlation = (pairs.len() >= 3)
            .then(|| correlation(&ranks(|pair| pair.measured), &ranks(|pair| pair.simulated)));
        Some(Self {
            pairs: pairs.len(),
            rank_correlation: correlation.flatten(),
            error: errors.iter().map(|error| error.abs()).sum::<f64>() / count,
            bias: errors.iter().sum::<f64>() / count,
            error_max,
        })
    }
}

/// From 1; those that are equal share the mean of their ranks.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|one, other| values[*one].total_cmp(&values[*other]));
    let mut ranks = vec![0.0; values.len()];
    let mut begin = 0;
    for same in order.chunk_by(|one, other| values[*one].total_cmp(&values[*other]).is_eq()) {
        let middle = begin as f64 + (same.len() as f64 + 1.0) / 2.0;
        same.iter().for_each(|place| ranks[*place] = middle);
        begin += same.len();
    }
    ranks
}

/// Pearson's. None where all of one are the same.
fn correlation(one: &[f64], other: &[f64]) -> Option<f64> {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (one_mean, other_mean) = (mean(one), mean(other));
    let sum = |of: &dyn Fn(f64, f64) -> f64| {
        one.iter().zip(other).map(|(a, b)| of(a - one_mean, b - other_mean)).sum::<f64>()
    };
    let spread = (sum(&|a, _| a * a) * sum(&|_, b| b * b)).sqrt();
    (spread > 0.0).then(|| sum(&|a, b| a * b) / spread)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pairs: &[(f64, f64)]) -> Vec<Pair> {
        pairs.iter().map(|&(measured, simulated)| Pair { measured, simulated }).collect()
    }

    #[test]
    fn errors_are_parts_of_what_was_measured() {
        let agreement = Agreement::of(&pairs(&[(100.0, 110.0), (200.0, 160.0)])).unwrap();
        assert_eq!((agreement.pairs, agreement.rank_correlation), (2, None));
        let near = |found: f64, expected: f64| (found - expected).abs() < 1e-12;
        assert!(near(agreement.error, 0.15) && near(agreement.bias, -0.05), "{agreement:?}");
        assert!(near(agreement.error_max, 0.2));
        assert_eq!(Agreement::of(&[]), None);
    }

    #[test]
    fn the_order_is_compared_and_not_the_size() {
        let of = |list: &[(f64, f64)]| Agreement::of(&pairs(list)).unwrap().rank_correlation;
        assert_eq!(of(&[(1.0, 10.0), (2.0, 11.0), (3.0, 500.0)]), Some(1.0));
        assert_eq!(of(&[(1.0, 3.0), (2.0, 2.0), (3.0, 1.0)]), Some(-1.0));
        // 1 - 6 (1 + 1) / (4 (16 - 1)).
        let swapped = of(&[(1.0, 2.0), (2.0, 1.0), (3.0, 3.0), (4.0, 4.0)]).unwrap();
        assert!((swapped - 0.8).abs() < 1e-12, "{swapped}");
        assert_eq!(of(&[(1.0, 5.0), (2.0, 5.0), (3.0, 5.0)]), None);
    }

    #[test]
    fn equal_values_share_a_rank() {
        assert_eq!(ranks(&[5.0, 1.0, 5.0, 9.0]), [2.5, 1.0, 2.5, 4.0]);
    }
}
