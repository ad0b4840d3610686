//! Numbers as text, with as many digits as they carry.

use super::folder::Times;
use crate::lab::stats::Estimate;

/// A time: microseconds below 10 ms, four or more digits above.
pub(super) fn ms(time: f64) -> String {
    let digits = match time.abs() {
        time if time < 9.9995 => 3,
        time if time < 99.995 => 2,
        _ => 1,
    };
    format!("{time:.digits$}")
}

/// A time, or a dash.
pub(super) fn some_ms(time: Option<f64>) -> String {
    time.map_or_else(|| "–".into(), ms)
}

/// A share or ratio.
pub(super) fn ratio(ratio: f64) -> String {
    if ratio.abs() < 9.9995 { format!("{ratio:.3}") } else { format!("{ratio:.1}") }
}

/// A time that was added or saved: with its sign.
pub(super) fn change(time: f64) -> String {
    match time {
        time if time < 0.0 => format!("−{}", ms(-time)),
        time => format!("+{}", ms(time)),
    }
}

/// The two ends of an interval, each as `end` writes it.
pub(super) fn interval(ci95: [f64; 2], end: impl Fn(f64) -> String) -> String {
    let [low, high] = ci95.map(end);
    format!("[{low}, {high}]")
}

/// A median with its interval.
pub(super) fn median(times: &Times) -> String {
    format!("{} {}", ms(times.p50), interval(times.ci95, ms))
}

/// A ratio with its interval.
pub(super) fn estimate(estimate: &Estimate) -> String {
    format!("{} {}", ratio(estimate.value), interval(estimate.ci95, ratio))
}

/// A count and what it is of, in percent.
pub(super) fn share(count: usize, of: usize) -> String {
    if of == 0 {
        return "0".into();
    }
    let percent = 100.0 * count as f64 / of as f64;
    let digits = if count == 0 || percent >= 10.0 { 0 } else { 1 };
    format!("{count} ({percent:.digits$} %)")
}

/// A rate.
pub(super) fn per_s(rate: f64) -> String {
    if rate < 99.95 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_follow_the_size() {
        let all = [0.0521, 1.299, 9.9999, 13.983, 99.999, 540.036].map(ms);
        assert_eq!(all, ["0.052", "1.299", "10.00", "13.98", "100.0", "540.0"]);
        assert_eq!([0.5019, 12.34].map(ratio), ["0.502", "12.3"]);
        assert_eq!([-133.05, 0.2].map(change), ["−133.1", "+0.200"]);
        assert_eq!(interval([1.0, 2.5], ms), "[1.000, 2.500]");
    }

    #[test]
    fn shares_are_counts_with_their_percentage() {
        assert_eq!(share(0, 10), "0 (0 %)");
        assert_eq!(share(1, 500), "1 (0.2 %)");
        assert_eq!(share(5, 10), "5 (50 %)");
        assert_eq!(share(0, 0), "0");
    }
}
