//! Numbers as text, with as many digits as they carry.

use crate::stats::Summary;
use crate::stats::{Estimate, P90_LEAST, P99_LEAST};

/// A time: microseconds below 10 ms, four or more digits above.
pub(crate) fn ms(time: f64) -> String {
    if time.is_infinite() {
        return "∞".into();
    }
    let digits = match time.abs() {
        time if time < 9.9995 => 3,
        time if time < 99.995 => 2,
        _ => 1,
    };
    format!("{time:.digits$}")
}

/// Formats a time, or `failed` if too many trials failed for one.
pub(crate) fn or_failed(time: Option<f64>) -> String {
    time.map_or_else(|| "failed".into(), ms)
}

/// The median, or a dash where nothing was tried.
pub(crate) fn middle(times: Option<Summary>) -> String {
    times.map_or_else(|| "–".into(), |times| or_failed(times.p50))
}

/// The 90th percentile, where there are enough trials for one.
pub(crate) fn p90(times: Option<Summary>) -> String {
    let enough = times.filter(|times| times.n >= P90_LEAST);
    enough.map_or_else(|| "–".into(), |times| or_failed(times.p90))
}

/// The 99th percentile, or the maximum where there are too few trials for one.
pub(crate) fn p99(times: Option<Summary>) -> String {
    match times {
        None => "–".into(),
        Some(times) if times.n < P99_LEAST => format!("max {}", or_failed(times.max)),
        Some(times) => or_failed(times.p99),
    }
}

/// The mean with the standard deviation, or a dash where there is none.
pub(crate) fn mean(times: Option<Summary>) -> String {
    let both = times.and_then(|times| Some((times.mean?, times.sd)));
    both.map_or_else(|| "–".into(), |(mean, sd)| with_deviation(mean, sd))
}

/// A mean as papers print it.
pub(crate) fn with_deviation(mean: f64, sd: Option<f64>) -> String {
    let sd = sd.map_or(String::new(), |sd| format!(" ({})", ms(sd)));
    format!("{}{sd}", ms(mean))
}

/// A share of all, in percent.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// A share or ratio.
pub(crate) fn ratio(ratio: f64) -> String {
    if ratio.is_infinite() {
        return "∞".into();
    }
    if ratio.abs() < 9.9995 { format!("{ratio:.3}") } else { format!("{ratio:.1}") }
}

/// A time that was added or saved: with its sign.
pub(crate) fn change(time: f64) -> String {
    match time {
        time if time < 0.0 => format!("−{}", ms(-time)),
        time => format!("+{}", ms(time)),
    }
}

/// The two ends of an interval, each as `end` writes it.
pub(crate) fn interval(ci95: [f64; 2], end: impl Fn(f64) -> String) -> String {
    let [low, high] = ci95.map(end);
    format!("[{low}, {high}]")
}

/// The interval of a median, whose ends may lie among those that failed.
pub(crate) fn median_interval(times: &Summary) -> String {
    let [low, high] = times.ci95.map(or_failed);
    format!("[{low}, {high}]")
}

/// A median with its interval.
pub(crate) fn median(times: &Summary) -> String {
    format!("{} {}", or_failed(times.p50), median_interval(times))
}

/// A ratio with its interval.
pub(crate) fn estimate(estimate: &Estimate) -> String {
    format!("{} {}", ratio(estimate.value), interval(estimate.ci95, ratio))
}

/// A count and what it is of, in percent.
pub(crate) fn share(count: u64, total: u64) -> String {
    if total == 0 {
        return "0".into();
    }
    let percent = 100.0 * count as f64 / total as f64;
    let digits = if count == 0 || percent >= 10.0 { 0 } else { 1 };
    format!("{count} ({percent:.digits$} %)")
}

pub(crate) fn per_s(rate: f64) -> String {
    if rate < 99.95 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{Summary, with_failed};

    #[test]
    fn digits_follow_the_size() {
        let all = [0.0521, 1.299, 9.9999, 13.983, 99.999, 540.036].map(ms);
        assert_eq!(all, ["0.052", "1.299", "10.00", "13.98", "100.0", "540.0"]);
        assert_eq!([0.5019, 12.34].map(ratio), ["0.502", "12.3"]);
        assert_eq!([-133.05, 0.2].map(change), ["−133.1", "+0.200"]);
        assert_eq!(interval([1.0, 2.5], ms), "[1.000, 2.500]");
        assert_eq!(interval([1.0, f64::INFINITY], ratio), "[1.000, ∞]");
    }

    #[test]
    fn percentiles_are_named_for_what_they_are() {
        for (count, failed, expected) in [
            (9_u32, 0, ["5.000", "–", "max 9.000"]),
            (10, 0, ["5.000", "9.000", "max 10.00"]),
            (100, 0, ["50.00", "90.00", "99.00"]),
            (95, 5, ["50.00", "90.00", "failed"]),
            (4, 6, ["failed", "failed", "max failed"]),
            (0, 0, ["–", "–", "–"]),
        ] {
            let times: Vec<f64> = (1..=count).map(f64::from).collect();
            let times = Summary::from_samples(&with_failed(&times, failed));
            assert_eq!([middle(times), p90(times), p99(times)], expected, "{count}, {failed}");
        }
    }

    #[test]
    fn means_stand_with_their_deviation() {
        let times = Summary::from_samples(&[1.0, 2.0, 3.0]);
        assert_eq!(mean(times), "2.000 (1.000)");
        assert_eq!(mean(Summary::from_samples(&[1.0])), "1.000");
        assert_eq!(mean(Summary::from_samples(&with_failed(&[1.0], 1))), "–");
        assert_eq!([0.393, 0.0].map(percent), ["39.3 %", "0.0 %"]);
    }

    #[test]
    fn shares_are_counts_with_their_percentage() {
        assert_eq!(share(0, 10), "0 (0 %)");
        assert_eq!(share(1, 500), "1 (0.2 %)");
        assert_eq!(share(5, 10), "5 (50 %)");
        assert_eq!(share(0, 0), "0");
    }
}
