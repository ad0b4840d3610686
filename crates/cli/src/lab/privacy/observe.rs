//! What an observer sees of connections: cookies in SYNs and SYN-ACKs, tickets in ClientHellos.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use headstart_lab::{CapturedPacket, TcpSegment};
use headstart_proto::hello::{self, Progress};
use headstart_proto::limits::CLIENT_BYTES;

/// One TCP connection of the client whose packets were captured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Connection {
    /// When its first SYN passed the client's interface, since 1970.
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

/// The connections that the captured client opened, in the order of their SYNs.
pub(crate) fn connections(packets: &[CapturedPacket]) -> Vec<Connection> {
    let mut all: Vec<Following> = Vec::new();
    let mut newest: HashMap<(SocketAddr, SocketAddr), usize> = HashMap::new();
    for packet in packets {
        let Some(segment) = TcpSegment::read(&packet.bytes) else { continue };
        let (client, server) = match packet.from_node {
            true => (segment.source, segment.destination),
            false => (segment.destination, segment.source),
        };
        let known = newest.get(&(client, server)).copied();
        let is_new = packet.from_node && segment.syn && !segment.ack;
        // A SYN that is sent again is no new connection; a port that is used again is one.
        let is_again = known.and_then(|at| all.get(at)).is_some_and(|one| one.isn == segment.seq);
        if is_new && !is_again {
            newest.insert((client, server), all.len());
            all.push(Following::new(packet.at, server, segment.seq));
        }
        let place = newest.get(&(client, server)).copied();
        if let Some(following) = place.and_then(|at| all.get_mut(at)) {
            following.take(packet.from_node, &segment);
        }
    }
    all.into_iter().map(Following::end).collect()
}

/// A connection as its packets come.
struct Following {
    connection: Connection,
    /// Sequence number of the SYN.
    isn: u32,
    /// The beginning of the client's stream, by offset.
    pieces: BTreeMap<usize, Vec<u8>>,
}

impl Following {
    fn new(at: Duration, server: SocketAddr, isn: u32) -> Self {
        let connection = Connection { at, server, shown: Vec::new(), handed_out: Vec::new() };
        Self { connection, isn, pieces: BTreeMap::new() }
    }

    fn take(&mut self, from_client: bool, segment: &TcpSegment<'_>) {
        let Connection { shown, handed_out, .. } = &mut self.connection;
        let list = if from_client { shown } else { handed_out };
        for cookie in segment.fast_open().into_iter().filter(|cookie| !cookie.is_empty()) {
            let identifier = Identifier { kind: Kind::Cookie, bytes: cookie.to_vec() };
            if segment.syn && !list.contains(&identifier) {
                list.push(identifier);
            }
        }
        if from_client {
            self.keep(segment);
        }
    }

    /// Keeps what belongs to the beginning of the stream: data in the SYN is its first.
    fn keep(&mut self, segment: &TcpSegment<'_>) {
        let first = self.isn.wrapping_add(1);
        let begins = if segment.syn { first } else { segment.seq };
        let offset = usize::try_from(begins.wrapping_sub(first)).unwrap_or(usize::MAX);
        if segment.payload.is_empty() || offset >= CLIENT_BYTES {
            return;
        }
        let piece = self.pieces.entry(offset).or_default();
        if piece.len() < segment.payload.len() {
            *piece = segment.payload.to_vec();
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
