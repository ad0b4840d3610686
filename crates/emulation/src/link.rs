use std::collections::{BinaryHeap, VecDeque};
use std::str::FromStr;
use std::time::Duration;

use crate::Packet;
use crate::element::{Element, Outputs};
use crate::parse::parse_elements;
use crate::words::ParseError;

/// Packets a link holds at most; what comes on top is dropped and counted.
///
/// 65,536 full-size packets are 98 MB: a second at 780 Mbit/s, more than the forwarder moves over
/// any round trip used here.
pub const MAX_QUEUED: usize = 65_536;

/// One direction of a network path, in anybody's time.
///
/// Time is a [`Duration`] since an epoch the caller chooses. Packets go in with
/// [`send`](Link::send), through the elements in order, and come out of [`poll`](Link::poll) in
/// order of their due times; of two packets due at once, the one that reached the end first comes
/// first. The same calls and seeds give the same packets.
///
/// A packet sent at a `now` before an earlier one counts as sent at the earlier one.
#[derive(Debug, Default)]
pub struct Link {
    elements: Vec<Placed>,
    under_way: BinaryHeap<Arrival>,
    at_end: VecDeque<(Duration, Packet)>,
    replies: VecDeque<Reply>,
    now: Duration,
    arrivals: u64,
    outputs: Outputs,
    counts: LinkCounts,
}

/// An element, and how far from the node it stands.
#[derive(Debug)]
pub(crate) struct Placed {
    /// Larger is nearer to the network's core.
    pub(crate) place: usize,
    pub(crate) element: Box<dyn Element>,
}

impl Placed {
    /// Default position of elements: the other direction has all of its
    /// elements before them.
    const CORE: usize = usize::MAX;
}

/// A packet that an element sent back.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) at: Duration,
    /// Position of the element.
    pub(crate) place: usize,
    pub(crate) packet: Packet,
}

/// Counters of the packets of a [`Link`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Packets sent into the link.
    pub sent: u64,
    /// Packets taken out of the link.
    pub delivered: u64,
    /// Packets dropped by an element.
    pub dropped: u64,
    /// Packets an element made, beyond the one it was given, and those sent back by elements of the
    /// other direction.
    pub added: u64,
    /// Packets an element sent back, such as ICMP errors; they pass the link of the other
    /// direction.
    pub replied: u64,
    /// Packets dropped because the link held [`MAX_QUEUED`] packets.
    pub overflowed: u64,
    /// Times an element began to treat packets in another way, such as a NAT that took its next
    /// address.
    pub changed: u64,
}

impl Link {
    /// A link made of these elements, first to last.
    pub fn new(elements: Vec<Box<dyn Element>>) -> Link {
        Link::placed(
            elements.into_iter().map(|element| Placed { place: Placed::CORE, element }).collect(),
        )
    }

    /// A link made of elements first to last, whose places between node and core are known.
    pub(crate) fn placed(elements: Vec<Placed>) -> Link {
        Link { elements, ..Link::default() }
    }

    /// The same link with one more element at its end.
    #[must_use]
    pub fn with(mut self, element: impl Element + 'static) -> Link {
        self.elements.push(Placed { place: Placed::CORE, element: Box::new(element) });
        self
    }

    /// Puts a packet in at `now`.
    pub fn send(&mut self, now: Duration, packet: Packet) {
        self.advance(now);
        self.counts.sent += 1;
        self.arrive(self.now, 0, packet);
        self.advance(self.now);
    }

    /// When to [`poll`](Link::poll) next; nothing comes out before, but an element may still drop
    /// the packet then.
    pub fn next_due(&self) -> Option<Duration> {
        let at_end = self.at_end.front().map(|(due, _)| *due);
        at_end.or_else(|| self.under_way.peek().map(|next| next.at))
    }

    /// The next packet that is due at `now` or was before; call until `None`.
    pub fn poll(&mut self, now: Duration) -> Option<Packet> {
        self.advance(now);
        let (_, packet) = self.at_end.pop_front_if(|(due, _)| *due <= now)?;
        self.counts.delivered += 1;
        Some(packet)
    }

    /// The next packet that an element sent back, and when; [`next_due`](Link::next_due) says
    /// nothing of these.
    pub fn take_reply(&mut self) -> Option<(Duration, Packet)> {
        self.take_placed_reply().map(|reply| (reply.at, reply.packet))
    }

    /// The same, with the place it comes from.
    pub(crate) fn take_placed_reply(&mut self) -> Option<Reply> {
        self.replies.pop_front()
    }

    /// Takes what an element of the inbound link sent back towards the core: this is the outbound
    /// link.
    pub(crate) fn carry_to_core(&mut self, reply: Reply) {
        let next = self.elements.iter().position(|element| element.place > reply.place);
        self.carry(reply, next);
    }

    /// Takes what an element of the outbound link sent back towards the node: this is the inbound
    /// link.
    pub(crate) fn carry_to_node(&mut self, reply: Reply) {
        let next = self
            .elements
            .iter()
            .position(|element| element.place < reply.place || element.place == Placed::CORE);
        self.carry(reply, next);
    }

    fn carry(&mut self, reply: Reply, next: Option<usize>) {
        self.advance(reply.at);
        self.counts.added += 1;
        self.arrive(self.now, next.unwrap_or(self.elements.len()), reply.packet);
        self.advance(self.now);
    }

    /// Returns the delay of every packet when the link is idle; `None` if it differs between
    /// packets.
    pub fn nominal_delay(&self) -> Option<Duration> {
        self.elements.iter().try_fold(Duration::ZERO, |sum, placed| {
            Some(sum.saturating_add(placed.element.nominal_delay()?))
        })
    }

    /// Returns the number of packets in the link.
    pub fn queued(&self) -> usize {
        self.under_way.len() + self.at_end.len() + self.replies.len()
    }

    /// Returns the counters.
    pub fn counts(&self) -> LinkCounts {
        self.counts
    }

    /// Moves every packet as far as it gets by `now`.
    fn advance(&mut self, now: Duration) {
        self.now = self.now.max(now);
        while let Some(next) = self.under_way.peek()
            && next.at <= self.now
            && let Some(arrival) = self.under_way.pop()
        {
            self.step(arrival);
        }
    }

    fn step(&mut self, arrival: Arrival) {
        let Some(Placed { place, element }) = self.elements.get_mut(arrival.element) else {
            self.at_end.push_back((arrival.at, arrival.packet));
            return;
        };
        let place = *place;
        element.handle(arrival.at, arrival.packet, &mut self.outputs);
        let mut outputs = std::mem::take(&mut self.outputs);
        self.count(outputs.len());
        self.counts.changed += outputs.take_changes();
        for (delay, packet) in outputs.drain() {
            self.arrive(arrival.at.saturating_add(delay), arrival.element + 1, packet);
        }
        for packet in outputs.drain_replies() {
            self.answer(Reply { at: arrival.at, place, packet });
        }
        self.outputs = outputs;
    }

    fn count(&mut self, outputs: usize) {
        match outputs {
            0 => self.counts.dropped += 1,
            many => self.counts.added += many as u64 - 1,
        }
    }

    fn answer(&mut self, reply: Reply) {
        if self.queued() >= MAX_QUEUED {
            self.counts.overflowed += 1;
            return;
        }
        self.counts.replied += 1;
        self.replies.push_back(reply);
    }

    fn arrive(&mut self, at: Duration, element: usize, packet: Packet) {
        if self.queued() >= MAX_QUEUED {
            self.counts.overflowed += 1;
            return;
        }
        self.arrivals += 1;
        self.under_way.push(Arrival { at, number: self.arrivals, element, packet });
    }
}

/// Parses a list such as `delay 50ms, loss 5% seed 7`; see [`element_forms`](crate::element_forms).
impl FromStr for Link {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Link, ParseError> {
        parse_elements(text).map(Link::new)
    }
}

/// A packet that reaches an element, or the end of the link, at some time.
#[derive(Debug)]
struct Arrival {
    at: Duration,
    number: u64,
    element: usize,
    packet: Packet,
}

/// Earliest is greatest, for a heap that gives the greatest; ties by number, which no two share.
impl Ord for Arrival {
    fn cmp(&self, other: &Arrival) -> std::cmp::Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl PartialOrd for Arrival {
    fn partial_cmp(&self, other: &Arrival) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Arrival {
    fn eq(&self, other: &Arrival) -> bool {
        self.number == other.number
    }
}

impl Eq for Arrival {}
