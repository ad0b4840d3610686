//! The client's datagrams: its flight, then slots for the responses, which repeat the flight.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::error::HelloError;
use crate::event::{ClientEvent, PlainReason};
use crate::hello::{self, Progress};
use crate::id::SessionId;
use crate::limits::{REQUEST_MIN, SEQUENCES};
use crate::wire::{REQUEST_HEADER, REQUEST_PAYLOAD_MAX, Request};

/// Payload bytes that fit into a slot without making it longer.
const SLOT_PAYLOAD: usize = REQUEST_MIN - REQUEST_HEADER;

#[derive(Debug)]
#[cfg_attr(test, derive(Clone, Hash))]
pub(super) struct Flight {
    id: SessionId,
    offered: bool,
    phase: Phase,
    /// Sequence numbers used so far.
    used: u8,
    /// Bitmap of the sequence numbers answered.
    answered: u16,
    queue: VecDeque<Vec<u8>>,
}

/// Progress of the flight: the ClientHello first, to one address; then early data where allowed.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(Hash))]
enum Phase {
    /// The stream has no whole ClientHello yet.
    Gathering,
    /// Nothing will go over UDP.
    Unfit(PlainReason),
    /// `sent` bytes of the stream went over UDP; the ClientHello ends at `hello_end`.
    Sent { hello_end: usize, sent: usize },
}

impl Flight {
    pub(super) const fn new(id: SessionId) -> Self {
        let queue = VecDeque::new();
        Self { id, offered: false, phase: Phase::Gathering, used: 0, answered: 0, queue }
    }

    pub(super) const fn offer(&mut self) {
        self.offered = true;
    }

    pub(super) const fn is_offered(&self) -> bool {
        self.offered
    }

    /// Queues the part of `stream` (the client stream from its start) that may go over UDP now.
    pub(super) fn send(
        &mut self,
        stream: &[u8],
        slots: u8,
        early_data: bool,
        events: &mut VecDeque<ClientEvent>,
    ) {
        // W-SEND-1
        if !self.offered {
            return;
        }
        match self.phase {
            Phase::Gathering => match hello::read(stream) {
                Ok(Progress::Incomplete) => {}
                Ok(Progress::Complete(hello)) => {
                    // W-SEND-3, W-SEND-7
                    let end = if early_data { stream.len() } else { hello.end };
                    self.send_bytes(stream, 0, end, hello.end, events);
                    // W-SEND-4
                    self.send_slots(slots, stream.get(..hello.end).unwrap_or_default(), events);
                }
                // W-SEND-2
                Err(error) => self.phase = Phase::Unfit(unfit(error)),
            },
            Phase::Sent { hello_end, sent } if early_data => {
                self.send_bytes(stream, sent, stream.len(), hello_end, events);
            }
            Phase::Sent { .. } | Phase::Unfit(_) => {}
        }
    }

    pub(super) fn poll(&mut self) -> Option<Vec<u8>> {
        self.queue.pop_front()
    }

    pub(super) const fn is_sent(&self) -> bool {
        matches!(self.phase, Phase::Sent { .. })
    }

    /// Returns the reason why nothing was sent by the time TCP is connected.
    pub(super) const fn why_not(&self) -> PlainReason {
        match self.phase {
            _ if !self.offered => PlainReason::NotOffered,
            Phase::Unfit(reason) => reason,
            Phase::Gathering | Phase::Sent { .. } => PlainReason::TcpFirst,
        }
    }

    pub(super) const fn sent_bytes(&self) -> usize {
        match self.phase {
            Phase::Sent { sent, .. } => sent,
            Phase::Gathering | Phase::Unfit(_) => 0,
        }
    }

    pub(super) const fn holds_early_data(&self) -> bool {
        matches!(self.phase, Phase::Sent { hello_end, sent } if sent > hello_end)
    }

    pub(super) const fn has_used(&self, seq: u8) -> bool {
        seq < self.used
    }

    /// Returns true if `seq` has not been answered yet.
    pub(super) const fn awaits_answer(&self, seq: u8) -> bool {
        self.answered & (1 << seq) == 0
    }

    pub(super) const fn take_answer(&mut self, seq: u8) {
        self.answered |= 1 << seq;
    }

    /// Returns true if every datagram sent has been answered.
    pub(super) const fn is_answered(&self) -> bool {
        self.answered.count_ones() == self.used as u32
    }

    fn send_bytes(
        &mut self,
        stream: &[u8],
        from: usize,
        to: usize,
        hello_end: usize,
        events: &mut VecDeque<ClientEvent>,
    ) {
        let mut sent = from;
        for payload in stream.get(from..to).unwrap_or_default().chunks(REQUEST_PAYLOAD_MAX) {
            let Ok(offset) = u32::try_from(sent) else {
                break;
            };
            let Some(seq) = self.queue_request(offset, payload) else {
                break;
            };
            sent += payload.len();
            events.push_back(ClientEvent::FlightSent { seq, offset, bytes: payload.len() });
        }
        self.phase = Phase::Sent { hello_end, sent };
    }

    /// Queues slots. The amplification limit sets their length, so each repeats a piece of the
    /// ClientHello instead of padding: the copies replace a lost datagram of the flight.
    fn send_slots(&mut self, slots: u8, hello: &[u8], events: &mut VecDeque<ClientEvent>) {
        for (offset, piece) in pieces(hello).take(slots.into()) {
            let Some(seq) = self.queue_request(offset, piece) else {
                break;
            };
            events.push_back(ClientEvent::SlotSent { seq });
        }
    }

    fn queue_request(&mut self, offset: u32, payload: &[u8]) -> Option<u8> {
        // W-SEQ-1, W-SEQ-4
        let seq = Some(self.used).filter(|seq| *seq < SEQUENCES)?;
        self.used += 1;
        self.queue.push_back(Request { id: self.id, seq, offset, payload }.emit());
        Some(seq)
    }
}

/// Yields pieces of the ClientHello with their offsets, from its end to its start, cyclically: the
/// last datagram of a flight is the shortest, so the fewest slots can replace it.
fn pieces(hello: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    let ends = (1..=hello.len()).rev().step_by(SLOT_PAYLOAD);
    ends.cycle().filter_map(|end| {
        let start = end.saturating_sub(SLOT_PAYLOAD);
        Some((u32::try_from(start).ok()?, hello.get(start..end)?))
    })
}

const fn unfit(error: HelloError) -> PlainReason {
    match error {
        HelloError::NotTls => PlainReason::NotTls,
        HelloError::NotHello | HelloError::Malformed | HelloError::TooLarge => PlainReason::Hello,
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn ranges(hello: usize, slots: usize) -> Vec<(u32, usize)> {
        let bytes = vec![0; hello];
        pieces(&bytes).take(slots).map(|(offset, piece)| (offset, piece.len())).collect()
    }

    #[test]
    fn pieces_run_from_end_to_start_and_wrap_around() {
        assert_eq!(ranges(1500, 5), [(1109, 391), (718, 391), (327, 391), (0, 327), (1109, 391)]);
        assert_eq!(ranges(300, 2), [(0, 300), (0, 300)]);
    }

    #[test]
    fn a_slot_holds_at_most_391_bytes() {
        assert_eq!(ranges(391, 2), [(0, 391), (0, 391)]);
        assert_eq!(ranges(392, 3), [(1, 391), (0, 1), (1, 391)]);
        assert_eq!(ranges(782, 3), [(391, 391), (0, 391), (391, 391)]);
    }
}
