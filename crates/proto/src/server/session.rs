//! One unjoined session: the bytes that arrived, and the answers it owes.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use super::{Handover, OriginEnd, Transmit};
use crate::error::Discard;
use crate::hello::{self, ClientHello};
use crate::id::{HelloHash, RouteTag, SessionId};
use crate::limits::{AMPLIFICATION, CLIENT_BYTES, DATAGRAM_MAX, SERVER_BYTES};
use crate::reassembly::Reassembly;
use crate::record;
use crate::time::Instant;
use crate::wire::{RESPONSE_HEADER, Request, Response};

#[derive(Debug)]
#[cfg_attr(test, derive(Clone, Hash))]
pub(super) struct Session {
    /// The only source address and port of its datagrams.
    pub(super) peer: SocketAddr,
    /// The local address they are sent to.
    local: Option<IpAddr>,
    pub(super) deadline: Instant,
    /// Tag of all its responses, even if keys change meanwhile: a client accepts only one tag.
    pub(super) tag: RouteTag,
    pub(super) phase: Phase,
    client: Reassembly,
    /// Bitmap of the requests seen.
    seen: u16,
    /// Requests not answered yet, in order of arrival.
    slots: VecDeque<Slot>,
    /// The server stream from its start.
    server: Vec<u8>,
    /// Bytes of it sent over UDP.
    sent: usize,
    end: OriginEnd,
    /// Processor time of its handshake, as it is counted.
    pub(super) cost: Duration,
}

#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(Hash))]
pub(super) enum Phase {
    /// The ClientHello is incomplete; nothing was answered.
    Gathering,
    /// The origin is processing it and has received `passed` bytes of the client stream. With
    /// `early_data` it gets more of them before the join.
    Running { hello: HelloHash, passed: usize, early_data: bool },
}

/// A request that may be answered, with a response of at most `room` bytes.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(Hash))]
struct Slot {
    seq: u8,
    room: usize,
}

impl Session {
    pub(super) const fn new(
        peer: SocketAddr,
        local: Option<IpAddr>,
        deadline: Instant,
        tag: RouteTag,
    ) -> Self {
        Self {
            peer,
            local,
            deadline,
            tag,
            phase: Phase::Gathering,
            client: Reassembly::new(CLIENT_BYTES),
            seen: 0,
            slots: VecDeque::new(),
            server: Vec::new(),
            sent: 0,
            end: OriginEnd::Open,
            cost: Duration::ZERO,
        }
    }

    pub(super) const fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running { .. })
    }

    pub(super) const fn passes_early_data(&self) -> bool {
        matches!(self.phase, Phase::Running { early_data: true, .. })
    }

    pub(super) fn is_from(&self, address: IpAddr) -> bool {
        self.peer.ip().to_canonical() == address.to_canonical()
    }

    /// Returns true if its fragments may belong to this ClientHello.
    pub(super) fn may_be(&self, hello: &[u8]) -> bool {
        self.client.is_part_of(hello)
    }

    pub(super) const fn hello(&self) -> Option<HelloHash> {
        match self.phase {
            Phase::Running { hello, .. } => Some(hello),
            Phase::Gathering => None,
        }
    }

    pub(super) const fn has_server_bytes(&self) -> bool {
        !self.server.is_empty()
    }

    /// Stores a request of `size` bytes on the wire, and its slot.
    pub(super) fn take_request(
        &mut self,
        from: SocketAddr,
        request: &Request<'_>,
        size: usize,
    ) -> Result<(), Discard> {
        // W-ADMIT-4
        if from != self.peer {
            return Err(Discard::Address);
        }
        let bit = 1 << request.seq;
        // W-ADMIT-5
        if self.seen & bit != 0 {
            return Err(Discard::Repeated);
        }
        let offset = usize::try_from(request.offset).unwrap_or(usize::MAX);
        self.client.insert(offset, request.payload).map_err(Discard::Misfit)?;
        // W-ADMIT-6
        self.seen |= bit;
        // W-SIZE-1
        let room = DATAGRAM_MAX.min(size * AMPLIFICATION);
        self.slots.push_back(Slot { seq: request.seq, room });
        Ok(())
    }

    /// Returns the ClientHello, once it is complete.
    pub(super) fn parse_hello(&self) -> Result<Option<ClientHello>, Discard> {
        Ok(hello::read(self.client.prefix()).map_err(Discard::Hello)?.complete())
    }

    pub(super) fn hello_bytes(&self, end: usize) -> &[u8] {
        self.client.prefix().get(..end).unwrap_or_default()
    }

    /// Takes the in-order client bytes that the origin has not received.
    pub(super) fn take_client_bytes(&mut self) -> Vec<u8> {
        let Phase::Running { passed, .. } = &mut self.phase else {
            return Vec::new();
        };
        let prefix = self.client.prefix();
        let new = prefix.get(*passed..).unwrap_or_default().to_vec();
        *passed = prefix.len();
        new
    }

    pub(super) fn take_server_bytes(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(SERVER_BYTES.saturating_sub(self.server.len()));
        // Exact, or the vector may grow to twice the limit.
        self.server.reserve_exact(taken);
        self.server.extend_from_slice(bytes.get(..taken).unwrap_or_default());
        taken
    }

    /// Returns the bytes of memory held for both streams.
    #[cfg(test)]
    pub(super) fn allocated(&self) -> usize {
        self.client.allocated() + self.server.capacity()
    }

    pub(super) const fn is_origin_open(&self) -> bool {
        matches!(self.end, OriginEnd::Open)
    }

    pub(super) const fn end(&mut self, end: OriginEnd) {
        self.end = end;
    }

    /// Answers one slot without payload, unless one was answered with bytes: this shows the client
    /// that the path works, whatever the origin does.
    pub(super) fn acknowledge(&mut self, id: SessionId, transmits: &mut VecDeque<Transmit>) {
        if self.sent > 0 {
            return;
        }
        if let Some(slot) = self.slots.pop_front() {
            transmits.push_back(self.respond(id, slot, 0));
        }
    }

    /// Answers as many slots as there are server bytes for.
    pub(super) fn answer(&mut self, id: SessionId, transmits: &mut VecDeque<Transmit>) {
        // W-SEQ-2
        while self.sent < self.server.len() {
            let Some(slot) = self.slots.pop_front() else {
                break;
            };
            // W-REPLY-1
            let waiting = self.server.len() - self.sent;
            let bytes = waiting.min(slot.room.saturating_sub(RESPONSE_HEADER));
            transmits.push_back(self.respond(id, slot, bytes));
            self.sent += bytes;
        }
    }

    fn respond(&self, id: SessionId, slot: Slot, bytes: usize) -> Transmit {
        let payload = self.server.get(self.sent..self.sent + bytes).unwrap_or_default();
        // W-REPLY-2
        let ack = offset(self.client.prefix().len());
        // W-TAG-2
        let (seq, tag) = (slot.seq, self.tag);
        let response = Response { id, seq, tag, ack, offset: offset(self.sent), payload };
        // W-SEQ-3
        Transmit { to: self.peer, from: self.local, bytes: response.emit() }
    }

    /// Returns true if a join may continue from these offsets: bytes were received, and were sent.
    pub(super) fn allows(&self, client_offset: u32, server_offset: u32) -> bool {
        client_offset <= offset(self.client.prefix().len()) && server_offset <= offset(self.sent)
    }

    pub(super) fn hand_over(
        mut self,
        id: SessionId,
        client_offset: u32,
        server_offset: u32,
    ) -> Option<Handover> {
        let client_bytes = self.take_client_bytes();
        let known = self.client.prefix().len();
        // W-TAKEOVER-8
        let skip = known.checked_sub(usize::try_from(client_offset).ok()?)?;
        // W-ANSWER-2
        let from = record::start(&self.server, usize::try_from(server_offset).ok()?);
        let server_bytes = self.server.get(from..)?.to_vec();
        let server_offset = offset(from);
        // W-TAKEOVER-7
        Some(Handover { id, client_bytes, skip, server_offset, server_bytes, end: self.end })
    }
}

/// Converts an offset. Streams over UDP end below 2^24 by [`CLIENT_BYTES`] and [`SERVER_BYTES`].
fn offset(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}
