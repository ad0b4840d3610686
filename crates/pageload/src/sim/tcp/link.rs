//! One direction of the bottleneck: a queue that is served at a fixed rate.

use super::super::events::Instant;

/// Ethernet, IP, and TCP with timestamps, in bytes of each packet.
const HEADERS: u64 = 14 + 20 + 32;

/// One direction.
#[derive(Debug)]
pub(super) struct Line {
    /// Bytes a second.
    rate: Option<u64>,
    /// Bytes.
    queue: u64,
    /// When all that was given to it has left.
    busy: Instant,
}

impl Line {
    pub(super) fn new(rate: Option<u64>, queue: u64) -> Self {
        Self { rate: rate.map(|rate| rate.max(1)), queue, busy: 0 }
    }

    /// When a packet of `bytes` that comes `now` has left; none if the queue is full.
    pub(super) fn pass(&mut self, now: Instant, bytes: u64) -> Option<Instant> {
        let Some(rate) = self.rate else { return Some(now) };
        let waiting = self.busy.saturating_sub(now);
        // The first packet of an empty queue always passes.
        if waiting > 0 && Self::bytes_in(waiting, rate) + bytes > self.queue {
            return None;
        }
        self.busy = self.busy.max(now) + Self::time_of(bytes + HEADERS, rate);
        Some(self.busy)
    }

    fn time_of(bytes: u64, rate: u64) -> Instant {
        bytes.saturating_mul(1_000_000_000) / rate
    }

    fn bytes_in(time: Instant, rate: u64) -> u64 {
        u64::try_from(u128::from(time) * u128::from(rate) / 1_000_000_000).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_leave_one_after_the_other() {
        let mut line = Line::new(Some(1_000), 1_000);
        let each = 166_000_000;
        assert_eq!(line.pass(0, 100), Some(each));
        assert_eq!(line.pass(0, 100), Some(2 * each));
        let later = 10 * each;
        assert_eq!(line.pass(later, 100), Some(later + each), "nothing is left of before");
    }

    #[test]
    fn what_does_not_fit_is_dropped() {
        let mut line = Line::new(Some(1_000), 300);
        let passed = (0..10).filter(|_| line.pass(0, 100).is_some()).count();
        // 166 bytes each with their headers: the second meets 166 bytes of 300, the third 332.
        assert_eq!(passed, 2);
        assert!(Line::new(Some(1_000), 0).pass(0, 100).is_some());
        assert_eq!(Line::new(None, 0).pass(7, 100), Some(7));
    }
}
