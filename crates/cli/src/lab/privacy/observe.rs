//! What an observer sees of connections: cookies in SYNs and SYN-ACKs, tickets in ClientHellos, also over UDP.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use headstart_lab::{CapturedPacket, TcpSegment, UdpDatagram};
use headstart_proto::SessionId;
use headstart_proto::hello::{self, Progress};
use headstart_proto::limits::CLIENT_BYTES;
use headstart_proto::wire::Request;

/// One TCP connection of the client whose packets were captured, or the flight of TurboTLS beside one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Connection {
    /// When its first packet passed the client's interface, since 1970.
    pub(crate) at: Duration,
    pub(crate) server: SocketAddr,
    /// What the client sent in clear by which it may be known again.
    pub(crate) shown: Vec<Identifier>,
    /// Cookies that it was sent in clear.
    pub(crate) handed_out: Vec<Identifier>,
}

/// By what a client may be known again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identifier {
    pub(crate) kind: Kind,
    pub(crate) bytes: Vec<u8>,
}

/// Where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// In an option of TCP Fast Open.
    Cookie,
    /// In a ClientHello, as the identity of a pre-shared key.
    Ticket,
}

/// Bytes in front by which tickets are compared with each other and with cookies: OpenSSL's tickets begin with a name
/// of so many, which may be a cookie. The longest cookie is as long (RFC 7413 section 4.1.1).
const HEAD: usize = 16;

/// The shortest cookie (RFC 7413 section 4.1.1).
const SHORTEST: usize = 4;

/// Bytes shown of an identifier, to people.
const SHOWN: usize = 4;

impl Identifier {
    /// Whether one of them is the beginning of the other, as far as a ticket's name goes.
    ///
    /// Servers that name their tickets by a key all clients have in common give tickets that are alike here: the lab's
    /// own do so where FOP is off, which no experiment of this kind has.
    pub(crate) fn is_alike(&self, other: &Self) -> bool {
        let length = self.bytes.len().min(other.bytes.len()).min(HEAD);
        length >= SHORTEST && self.bytes.get(..length) == other.bytes.get(..length)
    }
}

impl fmt::Display for Identifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Cookie => "cookie",
            Kind::Ticket => "ticket",
        };
        write!(f, "{kind} ")?;
        self.bytes.iter().take(SHOWN).try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("…")
    }
}

/// The connections that the captured client opened, in the order of their first packets.
pub(crate) fn connections(packets: &[CapturedPacket]) -> Vec<Connection> {
    let mut seen = Observer::default();
    for packet in packets {
        if let Some(segment) = TcpSegment::read(&packet.bytes) {
            seen.on_segment(packet, &segment);
        } else if let Some(datagram) = UdpDatagram::read(&packet.bytes) {
            seen.on_datagram(packet, &datagram);
        }
    }
    seen.all.into_iter().map(Following::end).collect()
}

/// Whoever sees all packets of a client, in their order.
#[derive(Default)]
struct Observer {
    all: Vec<Following>,
    /// The newest connection between two ends, and that of each session over UDP.
    segments: HashMap<(SocketAddr, SocketAddr), usize>,
    datagrams: HashMap<(SocketAddr, SessionId), usize>,
}

impl Observer {
    fn on_segment(&mut self, packet: &CapturedPacket, segment: &TcpSegment<'_>) {
        let (client, server) = match packet.from_node {
            true => (segment.source, segment.destination),
            false => (segment.destination, segment.source),
        };
        let known = self.segments.get(&(client, server)).copied();
        let is_new = packet.from_node && segment.syn && !segment.ack;
        // A SYN that is sent again is no new connection; a port that is used again is one.
        let known = known
            .filter(|at| !is_new || self.all.get(*at).is_some_and(|one| one.isn == segment.seq));
        let at = match known {
            Some(at) => at,
            None if is_new => {
                self.segments.insert((client, server), self.all.len());
                self.begin(packet.at, server, segment.seq)
            }
            // Its beginning was before the capture's.
            None => return,
        };
        if let Some(following) = self.all.get_mut(at) {
            following.on_segment(packet.from_node, segment);
        }
    }

    /// A piece of a flight of TurboTLS; anything else over UDP is none of TLS's.
    fn on_datagram(&mut self, packet: &CapturedPacket, datagram: &UdpDatagram<'_>) {
        let request = Request::parse(datagram.payload).ok().filter(|_| packet.from_node);
        let Some(request) = request else { return };
        let server = datagram.destination;
        let known = self.datagrams.get(&(server, request.id)).copied();
        let at = known.unwrap_or_else(|| self.begin(packet.at, server, 0));
        self.datagrams.insert((server, request.id), at);
        if let Some(following) = self.all.get_mut(at) {
            following.keep(usize::try_from(request.offset).unwrap_or(usize::MAX), request.payload);
        }
    }

    fn begin(&mut self, at: Duration, server: SocketAddr, isn: u32) -> usize {
        let connection = Connection { at, server, shown: Vec::new(), handed_out: Vec::new() };
        self.all.push(Following { connection, isn, pieces: BTreeMap::new() });
        self.all.len() - 1
    }
}

/// A connection as its packets come.
struct Following {
    connection: Connection,
    /// Sequence number of the SYN, where there is one.
    isn: u32,
    /// The beginning of the client's stream, by offset.
    pieces: BTreeMap<usize, Vec<u8>>,
}

impl Following {
    fn on_segment(&mut self, from_client: bool, segment: &TcpSegment<'_>) {
        let Connection { shown, handed_out, .. } = &mut self.connection;
        let list = if from_client { shown } else { handed_out };
        for cookie in segment.fast_open().into_iter().filter(|cookie| !cookie.is_empty()) {
            let identifier = Identifier { kind: Kind::Cookie, bytes: cookie.to_vec() };
            if segment.syn && !list.contains(&identifier) {
                list.push(identifier);
            }
        }
        if from_client {
            // Data in the SYN are the first of the stream.
            let first = self.isn.wrapping_add(1);
            let begins = if segment.syn { first } else { segment.seq };
            let offset = usize::try_from(begins.wrapping_sub(first)).unwrap_or(usize::MAX);
            self.keep(offset, segment.payload);
        }
    }

    /// Keeps what belongs to the beginning of the stream.
    fn keep(&mut self, offset: usize, bytes: &[u8]) {
        if bytes.is_empty() || offset >= CLIENT_BYTES {
            return;
        }
        let piece = self.pieces.entry(offset).or_default();
        if piece.len() < bytes.len() {
            *piece = bytes.to_vec();
        }
    }

    fn end(mut self) -> Connection {
        let stream = self.stream();
        if let Ok(Progress::Complete(hello)) = hello::read(&stream) {
            let tickets = hello.psk_identities.into_iter();
            let tickets = tickets.map(|bytes| Identifier { kind: Kind::Ticket, bytes });
            self.connection.shown.extend(tickets);
        }
        self.connection
    }

    /// The beginning of the stream, as far as it has no hole.
    fn stream(&self) -> Vec<u8> {
        let mut stream = Vec::new();
        for (offset, piece) in &self.pieces {
            let Some(known) = stream.len().checked_sub(*offset) else { break };
            stream.extend_from_slice(piece.get(known..).unwrap_or_default());
        }
        stream
    }
}
