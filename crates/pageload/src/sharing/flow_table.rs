//! The open connections of a capture, in bounded memory.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};
use std::net::SocketAddr;
use std::time::Duration;

use headstart_proto::wire::Request;
use lru_slab::LruSlab;

use super::client_hello::Offer;
use super::connection::{Findings, Found, Handshake};
use super::flow::{Ending, Flow, Handshaken};
use super::limits::Limits;
use super::packet::{Datagram, Packet, Segment};
use super::server_flight::{Answer, Version};

/// Connections by their two ends; the one that has been silent longest gives way.
#[derive(Debug)]
pub(crate) struct FlowTable {
    limits: Limits,
    rows: HashMap<Key, u32>,
    entries: LruSlab<Row>,
    /// Bytes that all flows keep together.
    kept: usize,
}

/// The two ends of a connection, in the same order for both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    is_tcp: bool,
    ends: (SocketAddr, SocketAddr),
}

impl Key {
    fn from_addresses(is_tcp: bool, one: SocketAddr, other: SocketAddr) -> Self {
        Self { is_tcp, ends: (one.min(other), one.max(other)) }
    }
}

#[derive(Debug)]
struct Row {
    key: Key,
    entry: Entry,
}

#[derive(Debug)]
enum Entry {
    Open(Box<Flow>),
    /// Already counted; remembered so that a retransmitted segment begins nothing new.
    Ended {
        isn: Option<u32>,
    },
    Quic,
}

impl FlowTable {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, rows: HashMap::new(), entries: LruSlab::new(), kept: 0 }
    }

    /// Handles a packet of the capture.
    pub(crate) fn on_packet(&mut self, at: Duration, packet: &Packet<'_>, found: &mut Findings) {
        found.seen.packets += 1;
        match packet {
            Packet::Tcp(segment) => self.on_segment(at, segment, found),
            Packet::Udp(datagram) => self.on_datagram(datagram, found),
            Packet::Fragment => found.seen.fragments += 1,
            Packet::UnknownLink => found.seen.unknown_link_packets += 1,
            Packet::Other => found.seen.other_packets += 1,
        }
    }

    /// Ends everything still open.
    pub(crate) fn finish(&mut self, found: &mut Findings) {
        while let Some(row) = self.entries.lru() {
            if let Entry::Open(mut flow) = self.remove(row) {
                conclude(flow.end(), found, &self.limits);
            }
        }
    }

    fn on_segment(&mut self, at: Duration, segment: &Segment<'_>, found: &mut Findings) {
        let key = Key::from_addresses(true, segment.source, segment.destination);
        let known = self.rows.get(&key).copied();
        let begins = segment.syn && segment.ack.is_none();
        let row = match known {
            Some(row) if begins && self.isn(row) != Some(segment.seq) => {
                // The same ports again: another connection.
                self.end(row, found);
                self.remove(row);
                self.open(key, segment, found)
            }
            Some(row) => Some(row),
            None => self.open(key, segment, found),
        };
        if let Some(row) = row {
            self.feed(row, at, segment, found);
        }
    }

    fn isn(&self, row: u32) -> Option<u32> {
        match &self.entries.peek(row).entry {
            Entry::Open(flow) => flow.isn,
            Entry::Ended { isn } => *isn,
            Entry::Quic => None,
        }
    }

    fn open(&mut self, key: Key, segment: &Segment<'_>, found: &mut Findings) -> Option<u32> {
        let flow = Flow::begun_by(segment)?;
        found.seen.tcp_connections += 1;
        Some(self.insert(key, Entry::Open(Box::new(flow)), found))
    }

    fn feed(&mut self, row: u32, at: Duration, segment: &Segment<'_>, found: &mut Findings) {
        let Entry::Open(flow) = &mut self.entries.get_mut(row).entry else { return };
        let before = flow.kept();
        let ending = flow.on_segment(at, segment);
        self.kept = self.kept - before + flow.kept();
        if let Some(ending) = ending {
            self.close(row);
            conclude(ending, found, &self.limits);
        }
        while self.kept > self.limits.flow_bytes && self.displace(found) {}
    }

    /// Counts a flow that is still open, and remembers it as ended.
    fn end(&mut self, row: u32, found: &mut Findings) {
        if let Entry::Open(flow) = &mut self.entries.peek_mut(row).entry {
            let ending = flow.end();
            self.close(row);
            conclude(ending, found, &self.limits);
        }
    }

    fn close(&mut self, row: u32) {
        let entry = &mut self.entries.peek_mut(row).entry;
        if let Entry::Open(flow) = entry {
            self.kept -= flow.kept();
            *entry = Entry::Ended { isn: flow.isn };
        }
    }

    fn on_datagram(&mut self, datagram: &Datagram<'_>, found: &mut Findings) {
        if Request::parse(datagram.payload).is_ok() {
            found.seen.turbotls_datagrams += 1;
        }
        if is_quic_initial(datagram.payload) {
            self.on_quic(Key::from_addresses(false, datagram.source, datagram.destination), found);
        }
    }

    fn on_quic(&mut self, key: Key, found: &mut Findings) {
        match self.rows.get(&key) {
            Some(row) => {
                self.entries.get_mut(*row);
            }
            None => {
                found.seen.quic_connections += 1;
                self.insert(key, Entry::Quic, found);
            }
        }
    }

    fn insert(&mut self, key: Key, entry: Entry, found: &mut Findings) -> u32 {
        while self.rows.len() >= self.limits.flows.max(1) && self.displace(found) {}
        let row = self.entries.insert(Row { key, entry });
        self.rows.insert(key, row);
        row
    }

    /// Makes room; returns false if nothing is left to displace.
    fn displace(&mut self, found: &mut Findings) -> bool {
        let Some(row) = self.entries.lru() else { return false };
        if let Entry::Open(mut flow) = self.remove(row) {
            match flow.end() {
                ending @ Ending::Handshake(_) => conclude(ending, found, &self.limits),
                _ => found.seen.displaced += 1,
            }
        }
        true
    }

    fn remove(&mut self, row: u32) -> Entry {
        let Row { key, entry } = self.entries.remove(row);
        self.rows.remove(&key);
        if let Entry::Open(flow) = &entry {
            self.kept -= flow.kept();
        }
        entry
    }
}

/// Counts the outcome of a connection.
fn conclude(ending: Ending, found: &mut Findings, limits: &Limits) {
    let seen = &mut found.seen;
    match ending {
        Ending::Handshake(handshake) => keep(&handshake, found, limits),
        Ending::NotTls => seen.not_tls += 1,
        Ending::Join => seen.turbotls_joins += 1,
        Ending::Unreadable => seen.unreadable += 1,
        Ending::Unanswered => seen.unanswered += 1,
        Ending::CutOff => seen.cut_off += 1,
    }
}

fn keep(handshake: &Handshaken, found: &mut Findings, limits: &Limits) {
    let Handshaken { at, ready, server, offer, answer } = handshake;
    let id = id(offer, answer);
    if found.handshakes.contains(&id) {
        found.seen.copies += 1;
        return;
    }
    let is_resumed = answer.resumed == Some(true);
    let connection = Found {
        at: *at,
        ready: *ready,
        name: offer.name.as_deref(),
        address: *server,
        handshake: if is_resumed { Handshake::Resumed } else { Handshake::Full },
        is_private: answer.certificate_request,
    };
    if !found.push(connection, limits) {
        return;
    }
    found.handshakes.insert(id);
    let seen = &mut found.seen;
    seen.resumption_offered += u64::from(offer.resumption() || is_resumed);
    seen.resumption_refused += u64::from(offer.resumption() && !is_resumed);
    seen.early_data_offered += u64::from(offer.early_data);
    seen.encrypted_client_hello += u64::from(offer.ech);
    seen.hello_retry += u64::from(answer.retried);
    seen.client_certificate_requested += u64::from(answer.certificate_request);
    offer.psk.or(offer.ticket).into_iter().for_each(|bytes| found.tickets.offered.add(bytes));
    answer.ticket.into_iter().for_each(|bytes| found.tickets.in_clear.add(bytes));
    match answer.version {
        Some(Version::Tls13) => found.versions.tls13 += 1,
        Some(Version::Tls12) => found.versions.tls12 += 1,
        _ => found.versions.older += 1,
    }
}

/// Returns a digest that is the same for two recordings of one handshake: on both sides of a NAT or
/// a proxy that passes TLS through, or in two captures. It covers both randoms, as a client may
/// send one ClientHello twice.
fn id(offer: &Offer, answer: &Answer) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(&offer.random);
    hasher.write(&answer.random);
    hasher.finish()
}

/// Returns true for an Initial packet (RFC 9000 section 17.2.2, RFC 9369 section 3.2), with which a
/// connection begins.
fn is_quic_initial(payload: &[u8]) -> bool {
    let Some((&[first, version @ ..], _)) = payload.split_first_chunk::<5>() else { return false };
    let kind = first & 0b1111_0000;
    match u32::from_be_bytes(version) {
        // Version 1, and the drafts before it.
        1 | 0xff00_0000..=0xff00_00ff => kind == 0b1100_0000,
        0x6b33_43cf => kind == 0b1101_0000,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits { flows: 5, flow_bytes: 4000, connections: 100, names: 100 };

    /// Recounts the bytes kept.
    fn kept(table: &FlowTable) -> usize {
        let open = table.entries.iter().map(|(_, row)| match &row.entry {
            Entry::Open(flow) => flow.kept(),
            Entry::Ended { .. } | Entry::Quic => 0,
        });
        open.sum()
    }

    proptest! {
        /// After every packet the books are right and the limits hold; in the end nothing is left,
        /// and every connection has one end.
        #[test]
        fn limits_hold_after_every_packet(
            packets in prop::collection::vec(
                (0u16..12, any::<bool>(), 0u8..4, 0u32..3000, 0usize..1500, any::<bool>()),
                1..200,
            ),
        ) {
            let server = "198.51.100.1:443".parse().unwrap();
            let mut bytes = vec![0; 1500];
            bytes[..6].copy_from_slice(&[22, 3, 1, 0x20, 0, 1]);
            let mut table = FlowTable::new(LIMITS);
            let mut found = Findings::default();
            for (port, is_up, kind, seq, length, from_start) in packets {
                let client = SocketAddr::new([192, 0, 2, 7].into(), port);
                let (source, destination) = if is_up { (client, server) } else { (server, client) };
                let payload = &bytes[usize::from(!from_start) * 100..];
                let payload = &payload[..length.min(payload.len())];
                let packet = match kind {
                    0 => {
                        let payload = &[0xc0, 0, 0, 0, 1, 8];
                        Packet::Udp(Datagram { source, destination, payload })
                    }
                    kind => Packet::Tcp(Segment {
                        source,
                        destination,
                        seq: if kind == 1 { 0 } else { seq },
                        ack: (kind != 1).then_some(1),
                        syn: kind == 1,
                        payload: if kind == 1 { &[] } else { payload },
                        cut: false,
                    }),
                };
                table.on_packet(Duration::from_secs(1), &packet, &mut found);
                prop_assert_eq!(table.kept, kept(&table));
                prop_assert!(table.kept <= LIMITS.flow_bytes);
                prop_assert!(table.rows.len() <= LIMITS.flows);
                prop_assert_eq!(table.rows.len(), usize::try_from(table.entries.len()).unwrap());
            }
            table.finish(&mut found);
            prop_assert_eq!((table.kept, table.rows.len()), (0, 0));
            let seen = &found.seen;
            let ended = seen.not_tls + seen.unreadable + seen.unanswered + seen.displaced;
            prop_assert_eq!(seen.tcp_connections, ended);
        }
    }
}
