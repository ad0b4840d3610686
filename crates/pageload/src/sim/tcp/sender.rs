//! A server's sending on one connection, limited by its congestion window.

use std::collections::VecDeque;

use super::super::events::Instant;

/// Payload of a segment, in bytes: 1500 less IPv4 and TCP with timestamps.
pub(super) const SEGMENT: u64 = 1448;

/// Initial window in segments, also after a pause (RFC 6928).
const INITIAL_WINDOW: f64 = 10.0;

/// Share of the window that remains after a loss (RFC 9438 section 4.6).
const BETA: f64 = 0.7;

/// The window from which on growing round trips end its doubling, in segments, and by how much they
/// have to grow: an eighth, within these bounds (HyStart as in Linux).
///
/// What counts is the shortest of the first acknowledgements of a round, as the last of a burst
/// always wait for the first.
const HYSTART_WINDOW: f64 = 16.0;
const HYSTART_SAMPLES: u32 = 8;
const HYSTART_MIN: Instant = 4_000_000;
const HYSTART_MAX: Instant = 16_000_000;

/// Answers of a TurboTLS server to a flight with early data and the usual four slots, beside the
/// one that its own flight takes, and what each carries: 1,232 bytes less the header and a record's
/// own 22 (docs/draft-headstart-turbotls.md#sending-datagrams and #server-bytes).
const DATAGRAMS: u32 = 5;
const DATAGRAM: u64 = 1_185;

/// Returns the round trips beyond one that so many bytes need, in a window that doubles.
pub(super) fn further_flights(bytes: u64) -> u32 {
    let mut left = bytes.div_ceil(SEGMENT);
    let mut window = 10;
    (0..)
        .take_while(|_| {
            left = left.saturating_sub(window);
            window *= 2;
            left > 0
        })
        .fold(0, |count, _: u32| count + 1)
}

/// One direction of one connection.
#[derive(Debug)]
pub(super) struct Sender {
    /// True if responses take turns; otherwise they follow one another.
    turns: bool,
    /// Idle time after which the window starts anew (RFC 5681 section 4.1).
    idle: Instant,
    /// Waiting responses, in turn.
    responses: VecDeque<(u32, u64)>,
    /// Segments sent and not yet delivered to the client, in order.
    segments: VecDeque<Segment>,
    /// Number of the first of these.
    first: u32,
    window: f64,
    threshold: f64,
    in_flight: u32,
    /// Shortest round trip so far.
    shortest: Instant,
    round: Round,
    /// First segment whose loss would cut the window again.
    cut: u32,
    last_sent: Instant,
    usage: Usage,
    /// Time until which there are only datagrams, and how many.
    tcp_from: Instant,
    datagrams: u32,
}

/// Recent use of a sender's window: one that had nothing to send learns nothing about the path, and
/// its window stays (RFC 7661; `tcp_cwnd_validate` of Linux).
#[derive(Debug, Default)]
struct Usage {
    /// True if more would have been sent with a larger window.
    is_limited: bool,
    /// Maximum segments in flight.
    most: u32,
    /// Segment whose acknowledgement starts the next period.
    until: u32,
    sent: u32,
    acknowledged: u32,
}

impl Usage {
    fn look(&mut self, is_limited: bool, in_flight: u32) {
        let is_over = self.acknowledged >= self.until;
        if is_over || is_limited || (!self.is_limited && in_flight > self.most) {
            *self = Self { is_limited, most: in_flight, until: self.sent, ..*self };
        }
    }

    /// Returns true if the window held segments back.
    fn is_used(&self, window: f64, is_doubling: bool) -> bool {
        self.is_limited || (is_doubling && window < 2.0 * f64::from(self.most))
    }
}

/// The acknowledgements of what was sent in one round trip.
#[derive(Debug, Default)]
struct Round {
    begin: Instant,
    samples: u32,
    shortest: Instant,
}

impl Round {
    /// Adds one; returns the shortest of the first [`HYSTART_SAMPLES`] once there are as many.
    fn sample(&mut self, sent: Instant, now: Instant) -> Option<Instant> {
        if sent >= self.begin {
            *self = Self { begin: now, samples: 0, shortest: Instant::MAX };
        }
        self.samples += 1;
        self.shortest = self.shortest.min(now.saturating_sub(sent));
        (self.samples == HYSTART_SAMPLES).then_some(self.shortest)
    }
}

/// A piece of a response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) resource: u32,
    pub(super) bytes: u64,
    sent: Instant,
    arrived: bool,
    is_datagram: bool,
}

impl Sender {
    pub(super) fn new(idle: Instant, turns: bool) -> Self {
        Self {
            turns,
            idle,
            responses: VecDeque::new(),
            segments: VecDeque::new(),
            first: 0,
            window: INITIAL_WINDOW,
            threshold: f64::INFINITY,
            in_flight: 0,
            shortest: Instant::MAX,
            round: Round::default(),
            cut: 0,
            last_sent: 0,
            usage: Usage::default(),
            tcp_from: 0,
            datagrams: 0,
        }
    }

    /// Sends responses over UDP until the TCP connection is there, within the client's slots.
    pub(super) fn by_datagrams_until(&mut self, tcp_from: Instant) {
        self.tcp_from = tcp_from;
        self.datagrams = DATAGRAMS;
    }

    /// Adds a response to send.
    pub(super) fn respond(&mut self, resource: u32, bytes: u64) {
        self.responses.push_back((resource, bytes.max(1)));
    }

    /// Returns the next segment that may leave `now`: its number and payload.
    pub(super) fn next(&mut self, now: Instant) -> Option<(u32, u64)> {
        if now < self.tcp_from {
            self.datagrams = self.datagrams.checked_sub(1)?;
            return self.take(DATAGRAM, now);
        }
        if self.in_flight == 0 && now > self.last_sent + self.idle {
            self.window = self.window.min(INITIAL_WINDOW);
        }
        let is_full = f64::from(self.in_flight) + 1.0 > self.window;
        let taken = if is_full { None } else { self.take(SEGMENT, now) };
        let count = u32::from(taken.is_some());
        self.in_flight += count;
        self.usage.sent += count;
        self.usage.look(is_full && self.is_waiting(), self.in_flight);
        taken
    }

    /// Takes at most `most` bytes of the response whose turn it is.
    fn take(&mut self, most: u64, now: Instant) -> Option<(u32, u64)> {
        let (resource, left) = self.responses.pop_front()?;
        let bytes = left.min(most);
        let rest = (resource, left - bytes);
        match self.turns {
            _ if left == bytes => {}
            true => self.responses.push_back(rest),
            false => self.responses.push_front(rest),
        }
        let number = self.first + u32::try_from(self.segments.len()).unwrap_or(u32::MAX);
        let is_datagram = now < self.tcp_from;
        self.segments.push_back(Segment {
            resource,
            bytes,
            sent: now,
            arrived: false,
            is_datagram,
        });
        self.last_sent = now;
        Some((number, bytes))
    }

    /// Returns true if there is more to send.
    pub(super) fn is_waiting(&self) -> bool {
        !self.responses.is_empty()
    }

    /// Returns the number of unacknowledged segments.
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Returns true if a segment goes over UDP, outside the window.
    pub(super) fn is_datagram(&mut self, number: u32) -> bool {
        self.segment(number).is_some_and(|segment| segment.is_datagram)
    }

    /// Returns the payload of a segment to retransmit.
    pub(super) fn again(&mut self, number: u32, now: Instant) -> u64 {
        self.last_sent = now;
        self.segment(number).map_or(0, |segment| {
            segment.sent = now;
            segment.bytes
        })
    }

    /// Handles the arrival of a segment at the client.
    pub(super) fn arrived(&mut self, number: u32) {
        if let Some(segment) = self.segment(number) {
            segment.arrived = true;
        }
    }

    /// Returns the next piece that the client can read, in order.
    pub(super) fn read(&mut self) -> Option<Segment> {
        let segment = self.segments.pop_front_if(|segment| segment.arrived)?;
        self.first += 1;
        Some(segment)
    }

    /// Handles the client's acknowledgement of a segment sent at `sent`.
    pub(super) fn acknowledged(&mut self, sent: Instant, now: Instant) {
        self.in_flight = self.in_flight.saturating_sub(1);
        let round_trip = now.saturating_sub(sent);
        self.shortest = self.shortest.min(round_trip);
        let of_round = self.round.sample(sent, now);
        self.usage.acknowledged += 1;
        if !self.usage.is_used(self.window, self.window < self.threshold) {
            return;
        }
        if self.window >= self.threshold {
            self.window += 1.0 / self.window;
            return;
        }
        self.window += 1.0;
        let margin = (self.shortest / 8).clamp(HYSTART_MIN, HYSTART_MAX);
        if self.window >= HYSTART_WINDOW
            && of_round.is_some_and(|of_round| of_round > self.shortest + margin)
        {
            self.threshold = self.window;
        }
    }

    /// Handles a detected loss; the segment is retransmitted outside the window.
    pub(super) fn lost(&mut self, number: u32) {
        if number >= self.cut {
            self.window = (self.window * BETA).max(2.0);
            self.threshold = self.window;
            self.cut = self.first + u32::try_from(self.segments.len()).unwrap_or(u32::MAX);
        }
    }

    fn segment(&mut self, number: u32) -> Option<&mut Segment> {
        self.segments.get_mut(number.checked_sub(self.first)? as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Instant = 100_000_000;
    const IDLE: Instant = 3 * RTT;

    fn flight(sender: &mut Sender, now: Instant) -> u32 {
        let left = (0..).take_while(|_| sender.next(now).is_some()).count();
        u32::try_from(left).unwrap()
    }

    /// So many segments that were sent are acknowledged.
    fn acknowledged(sender: &mut Sender, count: u32, sent: Instant, now: Instant) {
        (0..count).for_each(|_| sender.acknowledged(sent, now));
    }

    #[test]
    fn the_window_doubles_each_round_trip() {
        let mut sender = Sender::new(IDLE, true);
        sender.respond(0, 1_000_000);
        let mut sizes = Vec::new();
        for round in 0..4 {
            let now = round * RTT;
            let size = flight(&mut sender, now);
            sizes.push(size);
            acknowledged(&mut sender, size, now, now + RTT);
        }
        assert_eq!(sizes, [10, 20, 40, 80]);
    }

    #[test]
    fn a_window_that_is_not_used_does_not_grow() {
        let mut sender = Sender::new(IDLE, true);
        let mut now = 0;
        for resource in 0..8 {
            sender.respond(resource, 3 * SEGMENT);
            assert_eq!(flight(&mut sender, now), 3);
            (0..3).for_each(|_| sender.acknowledged(now, now + RTT));
            now += RTT;
        }
        sender.respond(9, 1_000_000);
        assert_eq!(flight(&mut sender, now), 10);
        acknowledged(&mut sender, 10, now, now + RTT);
        assert_eq!(flight(&mut sender, now + RTT), 20);
    }

    #[test]
    fn datagrams_go_before_tcp_and_beside_its_window() {
        let mut sender = Sender::new(IDLE, true);
        sender.by_datagrams_until(RTT);
        sender.respond(0, 100 * SEGMENT);
        assert_eq!(flight(&mut sender, 0), DATAGRAMS);
        assert!(sender.is_datagram(0) && sender.in_flight() == 0);
        assert_eq!(flight(&mut sender, RTT), 10);
        assert!(!sender.is_datagram(DATAGRAMS));
    }

    #[test]
    fn a_growing_queue_ends_the_doubling() {
        let mut sender = Sender::new(IDLE, true);
        sender.respond(0, 1_000_000);
        assert_eq!(flight(&mut sender, 0), 10);
        acknowledged(&mut sender, 10, 0, RTT);
        let size = flight(&mut sender, RTT);
        acknowledged(&mut sender, size, RTT, 2 * RTT + RTT / 4);
        let next = flight(&mut sender, 3 * RTT);
        assert!((20..30).contains(&next), "{next}");
    }

    #[test]
    fn delay_behind_its_own_burst_does_not_end_slow_start() {
        let mut sender = Sender::new(IDLE, true);
        sender.respond(0, 1_000_000);
        let mut now = 0;
        for size in [10, 20, 40] {
            assert_eq!(flight(&mut sender, now), size);
            for behind in 0..size {
                sender.acknowledged(now, now + RTT + Instant::from(behind) * 1_000_000);
            }
            now += RTT + 40_000_000;
        }
    }

    #[test]
    fn segments_behind_a_lost_one_wait_for_it() {
        let mut sender = Sender::new(IDLE, true);
        sender.respond(7, 3 * SEGMENT);
        for number in 0..3 {
            assert_eq!(sender.next(0), Some((number, SEGMENT)));
        }
        sender.arrived(1);
        sender.arrived(2);
        assert!(sender.read().is_none());
        sender.lost(0);
        assert_eq!(sender.again(0, RTT), SEGMENT);
        sender.arrived(0);
        let read: Vec<u64> = std::iter::from_fn(|| Some(sender.read()?.bytes)).collect();
        assert_eq!(read, [SEGMENT; 3]);
    }

    #[test]
    fn losses_of_one_window_cut_it_once() {
        let mut sender = Sender::new(IDLE, true);
        sender.respond(0, 1_000_000);
        assert_eq!(flight(&mut sender, 0), 10);
        sender.lost(3);
        sender.lost(5);
        acknowledged(&mut sender, 10, 0, RTT);
        assert_eq!(flight(&mut sender, RTT), 8, "7 and what ten acknowledgements add");
    }

    #[test]
    fn after_a_pause_it_begins_again() {
        let mut sender = Sender::new(IDLE, true);
        sender.respond(0, 10 * SEGMENT);
        assert_eq!(flight(&mut sender, 0), 10);
        acknowledged(&mut sender, 10, 0, RTT);
        sender.respond(1, 1_000_000);
        let later = 10 * RTT + IDLE;
        assert_eq!(flight(&mut sender, later), 10);
    }

    #[test]
    fn responses_take_turns_where_they_can() {
        for (turns, order) in [(true, [1, 2, 1]), (false, [1, 1, 2])] {
            let mut sender = Sender::new(IDLE, turns);
            sender.respond(1, 2 * SEGMENT);
            sender.respond(2, SEGMENT / 2);
            for number in 0..3 {
                assert!(sender.is_waiting());
                assert_eq!(sender.next(0).unwrap().0, number);
                sender.arrived(number);
            }
            assert!(!sender.is_waiting());
            let read: Vec<u32> = std::iter::from_fn(|| Some(sender.read()?.resource)).collect();
            assert_eq!(read, order);
        }
    }

    #[test]
    fn large_flights_need_more_than_one_window() {
        let flights = [0, 10, 11, 30, 31].map(|segments| further_flights(segments * SEGMENT));
        assert_eq!(flights, [0, 0, 1, 1, 2]);
    }
}
