//! Medians, and how far they can be trusted.

/// A median with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Median {
    pub(crate) value: f64,
    /// An interval of at least 95 % by order statistics (binomial, no assumption about the distribution);
    /// the whole range where there are fewer than six samples.
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) samples: usize,
}

impl Median {
    pub(crate) fn of(samples: &[f64]) -> Self {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
        let count = sorted.len();
        let value = f64::midpoint(at(count.saturating_sub(1) / 2), at(count / 2));
        let left = left_out(count);
        Self { value, low: at(left), high: at(count.saturating_sub(1 + left)), samples: count }
    }
}

/// Samples to leave out at each end: the most for which the rest covers the median in 95 of 100 cases.
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
