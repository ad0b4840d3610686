//! Log lines whose number strangers decide.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A line at most this often: anybody may cause a failure, and a log is not to be filled by it.
const EVERY: Duration = Duration::from_secs(1);

/// Lets one line of each kind pass a second, and counts the others.
#[derive(Debug)]
pub(crate) struct LogThrottle(Mutex<BTreeMap<&'static str, Lines>>);

#[derive(Debug, Default)]
struct Lines {
    last: Option<Instant>,
    left_out: u64,
}

impl LogThrottle {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// Returns the number of lines left out since the last one, if a line may be written.
    pub(crate) fn line(&self, now: Instant) -> Option<u64> {
        self.line_about("", now)
    }

    /// As [`line`](Self::line), for lines of this kind alone.
    pub(crate) fn line_about(&self, kind: &'static str, now: Instant) -> Option<u64> {
        let mut kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = kinds.entry(kind).or_default();
        if lines.last.is_some_and(|last| now.saturating_duration_since(last) < EVERY) {
            lines.left_out += 1;
            return None;
        }
        lines.last = Some(now);
        Some(std::mem::take(&mut lines.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_that_counts_the_others() {
        let (log_throttle, start) = (LogThrottle::new(), Instant::now());
        let lines = [0, 1, 999, 1000, 1500, 2000]
            .map(|millis| log_throttle.line(start + Duration::from_millis(millis)));
        assert_eq!(lines, [Some(0), None, None, Some(2), None, Some(1)]);
    }

    #[test]
    fn a_flood_of_one_kind_hides_no_other() {
        let (log_throttle, now) = (LogThrottle::new(), Instant::now());
        let lines = ["a", "a", "b", "a"].map(|kind| log_throttle.line_about(kind, now));
        assert_eq!(lines, [Some(0), None, Some(0), None]);
    }
}
