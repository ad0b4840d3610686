//! Growth of a value of a process over time.

use serde::{Deserialize, Serialize};

use crate::stats::{Estimate, slope};

/// Blocks that values are put into: values next to each other are alike, and would make the
/// interval too narrow.
const BLOCKS: usize = 20;

/// Growth of one of the values of a process, since the start of its longest life.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Growth {
    /// Mean, in the unit of the series.
    pub(crate) mean: f64,
    /// Slope as a share of the mean in an hour.
    pub(crate) per_hour: Estimate,
    /// Time that the slope is of.
    pub(crate) seconds: f64,
}

impl Growth {
    /// Fits a line to the means of blocks of values, with their times in seconds; `None` of fewer
    /// than three.
    pub(crate) fn new(points: &[(f64, f64)]) -> Option<Self> {
        let all = points.chunks(points.len().div_ceil(BLOCKS).max(1));
        let points: Vec<_> = all.map(middle).collect();
        let mean = points.iter().map(|(_, value)| value).sum::<f64>() / points.len() as f64;
        let seconds = points.last()?.0 - points.first()?.0;
        let per_hour = slope(&points)?.scaled(3600.0 / mean);
        Some(Self { mean, per_hour, seconds })
    }

    /// Returns the slope and the ends of its interval.
    pub(crate) fn percent_per_hour(&self) -> [f64; 3] {
        let Estimate { value, ci95: [low, high] } = self.per_hour.scaled(100.0);
        [value, low, high]
    }

    /// Returns the growth over the whole time as a share of the mean; zero if the interval of the
    /// slope has zero in it.
    pub(crate) fn certain(&self) -> f64 {
        let Estimate { value, ci95: [low, high] } = self.per_hour;
        if low <= 0.0 && high >= 0.0 { 0.0 } else { value * self.seconds / 3600.0 }
    }
}

/// Returns the mean of some points.
fn middle(points: &[(f64, f64)]) -> (f64, f64) {
    let sum = points.iter().fold((0.0, 0.0), |sum, point| (sum.0 + point.0, sum.1 + point.1));
    (sum.0 / points.len() as f64, sum.1 / points.len() as f64)
}
