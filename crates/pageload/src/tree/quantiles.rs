use serde::Serialize;

/// Distribution of some values: by nearest rank, each is one of them.
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
    /// Sorts values, without those that are no numbers; `None` if there are none.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // far below 2^53
    pub fn from_values(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let at = |percent: usize| {
            let rank = (values.len() * percent).div_ceil(100).max(1);
            values.get(rank - 1).copied()
        };
        Some(Self {
            count: values.len(),
            mean: values.iter().sum::<f64>() / values.len() as f64,
            min: at(0)?,
            p10: at(10)?,
            p25: at(25)?,
            p50: at(50)?,
            p75: at(75)?,
            p90: at(90)?,
            p95: at(95)?,
            p99: at(99)?,
            max: at(100)?,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

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
