//! Figures of repeated measurements.

use std::time::Duration;

/// Returns a percentile of `values` (nearest rank).
pub(crate) fn percentile(values: &[Duration], percent: usize) -> Duration {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let rank = (percent * sorted.len()).div_ceil(100);
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// Returns the median.
pub(crate) fn median(values: &[Duration]) -> Duration {
    percentile(values, 50)
}

/// The smallest value.
pub(crate) fn fastest(values: &[Duration]) -> Duration {
    values.iter().copied().min().unwrap()
}

/// In milliseconds, for tables.
pub(crate) fn millis(value: Duration) -> f64 {
    value.as_secs_f64() * 1000.0
}

/// Returns a duration in round trips.
pub(crate) fn round_trips(value: Duration, rtt: Duration) -> f64 {
    value.as_secs_f64() / rtt.as_secs_f64()
}

/// Round trips that TurboTLS saves at least, by the medians of arms that take turns: what else the
/// machine does slows both.
pub(crate) const SAVED_MIN: f64 = 0.85;

/// Measurements of a quantity until one is as it should be. What is wrong is wrong each time.
const MEASUREMENTS: usize = 5;

/// Judges a measurement, and if that says no, another one: the machine is shared, and a burst of
/// other work spoils one cell of a table. All are printed, and `tools/run_tests.py` counts those
/// that were repeated.
pub(crate) fn judged<T>(measure: impl Fn() -> T, judge: impl Fn(&T) -> Result<(), String>) -> T {
    for _ in 1..MEASUREMENTS {
        let measured = measure();
        let Err(why) = judge(&measured) else { return measured };
        println!("  measured once more, because {why}");
    }
    let last = measure();
    judge(&last).unwrap_or_else(|why| panic!("{why}"));
    last
}
