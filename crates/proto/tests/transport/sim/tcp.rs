//! One TCP connection: a delay each way, in order, without loss.

use std::time::Duration;

use headstart_emulation::{Delay, Link, Packet};

/// One arrival in a direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Segment {
    Bytes(Vec<u8>),
    Finished,
    Reset,
}

/// One direction, closed by its first [`Segment::Finished`] or [`Segment::Reset`].
#[derive(Debug)]
pub(super) struct Direction {
    link: Link,
    pub(super) is_closed: bool,
}

impl Direction {
    pub(super) fn new(delay: Duration) -> Self {
        Self { link: Link::default().with(Delay(delay)), is_closed: false }
    }

    pub(super) fn send(&mut self, now: Duration, segment: &Segment) {
        if self.is_closed {
            return;
        }
        self.is_closed = !matches!(segment, Segment::Bytes(_));
        let bytes = match segment {
            Segment::Bytes(bytes) => [&[0], bytes.as_slice()].concat(),
            Segment::Finished => vec![1],
            Segment::Reset => vec![2],
        };
        self.link.send(now, Packet::tcp(bytes));
    }

    pub(super) fn poll(&mut self, now: Duration) -> Option<Segment> {
        let packet = self.link.poll(now)?;
        Some(match packet.bytes.split_first() {
            Some((0, bytes)) => Segment::Bytes(bytes.to_vec()),
            Some((1, _)) => Segment::Finished,
            _ => Segment::Reset,
        })
    }

    pub(super) fn next_due(&self) -> Option<Duration> {
        self.link.next_due()
    }
}
