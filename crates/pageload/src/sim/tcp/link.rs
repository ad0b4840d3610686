//! One direction of the bottleneck: a queue served at a fixed rate.

use super::super::events::Instant;
use super::sender::SEGMENT;

/// Bytes of headers of each packet: Ethernet, IP, and TCP with timestamps.
const HEADERS: u64 = 14 + 20 + 32;

/// Minimum rate, in bytes a second: slower links load no pages, and would overflow the clock.
const RATE_MIN: u64 = 1_000;

/// Minimum queue, in bytes: two packets.
const QUEUE_MIN: u64 = 2 * (SEGMENT + HEADERS);

/// One direction of the link.
#[derive(Debug)]
pub(super) struct Line {
    /// Rate in bytes a second.
    rate: Option<u64>,
    /// Size of the queue in bytes.
    queue: u64,
    /// Time at which everything queued has left.
    busy: Instant,
}

impl Line {
    pub(super) fn new(rate: Option<u64>, queue: u64) -> Self {
        Self { rate: rate.map(|rate| rate.max(RATE_MIN)), queue: queue.max(QUEUE_MIN), busy: 0 }
    }

    /// Returns the time at which a packet of `bytes` that arrives `now` has left; `None` if the
    /// queue is full.
    pub(super) fn pass(&mut self, now: Instant, bytes: u64) -> Option<Instant> {
        let Some(rate) = self.rate else { return Some(now) };
        let waiting = bytes_in(self.waiting(now), rate);
        (waiting + bytes + HEADERS <= self.queue).then(|| self.wait(now, bytes))
    }

    /// Returns the time at which `bytes` that arrive `now` have left. They wait however full the
    /// queue is: their sender holds them back.
    pub(super) fn wait(&mut self, now: Instant, bytes: u64) -> Instant {
        let Some(rate) = self.rate else { return now };
        let packets = bytes.div_ceil(SEGMENT);
        self.busy =
            self.busy.max(now) + (bytes + packets * HEADERS).saturating_mul(1_000_000_000) / rate;
        self.busy
    }

    /// Returns the time that data arriving `now` waits before it is sent.
    pub(super) fn waiting(&self, now: Instant) -> Instant {
        self.busy.saturating_sub(now)
    }
}

/// Returns the number of bytes that leave in a time.
fn bytes_in(time: Instant, rate: u64) -> u64 {
    u64::try_from(u128::from(time) * u128::from(rate) / 1_000_000_000).unwrap_or(u64::MAX / 2)
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
    fn packets_over_capacity_are_dropped_or_queued() {
        let mut line = Line::new(Some(1_000), 0);
        let passed = (0..10).filter(|_| line.pass(0, SEGMENT).is_some()).count();
        assert_eq!(passed, 2);
        assert_eq!(line.waiting(0), 2 * (SEGMENT + HEADERS) * 1_000_000);
        let packets = 3 * (SEGMENT + HEADERS);
        assert_eq!(line.wait(0, 3 * SEGMENT), line.waiting(0));
        assert_eq!(line.waiting(0), (2 * (SEGMENT + HEADERS) + packets) * 1_000_000);
        assert_eq!(Line::new(None, 0).pass(7, 100), Some(7));
    }

    #[test]
    fn nothing_is_as_slow_as_nothing() {
        assert_eq!(Line::new(Some(0), 0).wait(0, 934), 1_000_000_000);
    }
}
