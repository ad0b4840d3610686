//! Observation of connections: cookies in SYNs and SYN-ACKs, tickets in ClientHellos, also over
//! UDP; and all other bytes, in which any of these may stand, too.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use headstart_emulation::{CapturedPacket, TcpSegment, UdpDatagram};
use headstart_pageload::sharing;
use headstart_proto::SessionId;
use headstart_proto::hello::{self, ClientHello, Progress};
use headstart_proto::join::Join;
use headstart_proto::wire::{Request, Response};

use crate::stream::Stream;

/// One TCP connection of the client whose packets were captured, or the flight of TurboTLS beside
/// one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Connection {
    /// Time at which its first packet passed the client's interface, since 1970.
    pub(crate) at: Duration,
    pub(crate) server: SocketAddr,
    /// Identifiers that the client sent in clear, by which it may be known again.
    pub(crate) shown: Vec<Identifier>,
    /// Cookies that it was sent in clear.
    pub(crate) handed_out: Vec<Identifier>,
    /// True if its whole ClientHello was seen: else there may be more identifiers than are known.
    pub(crate) whole_hello: bool,
    /// True if the server resumed a session of TLS 1.3; `None` if what was seen does not tell, or
    /// another connection here does: the flight tells for a join, TCP for a flight never joined.
    pub(crate) resumed: Option<bool>,
    /// The beginnings of both streams, each in pieces without holes, the options of SYNs, and
    /// datagrams.
    bytes: Vec<Vec<u8>>,
}

/// Value by which a client may be known again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identifier {
    pub(crate) kind: Kind,
    pub(crate) bytes: Vec<u8>,
}

/// Position of an identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// In an option of TCP Fast Open.
    Cookie,
    /// In a ClientHello, as the identity of a pre-shared key.
    Ticket,
}

/// Length of the prefix by which tickets are compared with each other and with cookies: OpenSSL's
/// tickets begin with a key name of this length, which may be a cookie. The longest cookie is as
/// long (RFC 7413 section 4.1.1).
const HEAD: usize = 16;

/// The shortest cookie (RFC 7413 section 4.1.1).
const SHORTEST: usize = 4;

/// Bytes shown of an identifier, to people.
const SHOWN: usize = 4;

impl Identifier {
    /// Returns true if one of them is the beginning of the other, as far as a ticket's name goes.
    ///
    /// Servers that name their tickets by a key all clients have in common give tickets that are
    /// alike here: the lab's own do so where FOP is off, which no experiment of this kind has.
    pub(crate) fn is_alike(&self, other: &Self) -> bool {
        let length = self.bytes.len().min(other.bytes.len()).min(HEAD);
        length >= SHORTEST && self.bytes.get(..length) == other.bytes.get(..length)
    }

    /// Returns the part to look for elsewhere; `None` if it is too short to mean anything.
    fn head(&self) -> Option<&[u8]> {
        let head = self.bytes.get(..HEAD).unwrap_or(&self.bytes);
        (head.len() >= SHORTEST).then_some(head)
    }
}

impl Connection {
    /// Returns true if an identifier stands anywhere in what passed, whatever it may be there.
    pub(crate) fn has(&self, identifier: &Identifier) -> bool {
        let Some(head) = identifier.head() else { return false };
        self.bytes.iter().any(|run| run.windows(head.len()).any(|window| window == head))
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
    let joined: HashSet<_> = seen.all.iter().filter_map(Following::joins).collect();
    seen.all.into_iter().map(|following| following.end(&joined)).collect()
}

/// Observer that sees all packets of a client, in their order.
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
        // A retransmitted SYN is not a new connection; a reused port is.
        let known = known
            .filter(|at| !is_new || self.all.get(*at).is_some_and(|one| one.isn == segment.seq));
        let at = match known {
            Some(at) => at,
            None if is_new => {
                self.segments.insert((client, server), self.all.len());
                self.begin(packet.at, server, segment.seq, None)
            }
            // It began before the capture.
            None => return,
        };
        if let Some(following) = self.all.get_mut(at) {
            following.on_segment(packet.from_node, segment);
        }
    }

    /// A piece of a flight of TurboTLS, or an answer to one; anything else over UDP is none of
    /// TLS's.
    fn on_datagram(&mut self, packet: &CapturedPacket, datagram: &UdpDatagram<'_>) {
        match packet.from_node {
            true => self.on_request(packet, datagram),
            false => self.on_response(datagram),
        }
    }

    fn on_request(&mut self, packet: &CapturedPacket, datagram: &UdpDatagram<'_>) {
        let Ok(request) = Request::parse(datagram.payload) else { return };
        let server = datagram.destination;
        let known = self.datagrams.get(&(server, request.id)).copied();
        let at = known.unwrap_or_else(|| self.begin(packet.at, server, 0, Some(request.id)));
        self.datagrams.insert((server, request.id), at);
        if let Some(following) = self.all.get_mut(at) {
            following.client.keep(request.offset, request.payload);
            following.apart.push(datagram.payload.to_vec());
        }
    }

    fn on_response(&mut self, datagram: &UdpDatagram<'_>) {
        let Ok(response) = Response::parse(datagram.payload) else { return };
        let known = self.datagrams.get(&(datagram.source, response.id)).copied();
        if let Some(following) = known.and_then(|at| self.all.get_mut(at)) {
            following.answer.keep(response.offset, response.payload);
            following.apart.push(datagram.payload.to_vec());
        }
    }

    fn begin(
        &mut self,
        at: Duration,
        server: SocketAddr,
        isn: u32,
        flight: Option<SessionId>,
    ) -> usize {
        self.all.push(Following {
            at,
            server,
            flight,
            isn,
            answer_isn: None,
            shown: Vec::new(),
            handed_out: Vec::new(),
            client: Stream::default(),
            answer: Stream::default(),
            apart: Vec::new(),
        });
        self.all.len() - 1
    }
}

/// A connection as its packets come.
struct Following {
    at: Duration,
    server: SocketAddr,
    /// Session of a flight over UDP; none over TCP.
    flight: Option<SessionId>,
    /// Sequence number of the SYN, where there is one, and of the SYN-ACK once it was seen.
    isn: u32,
    answer_isn: Option<u32>,
    shown: Vec<Identifier>,
    handed_out: Vec<Identifier>,
    client: Stream,
    answer: Stream,
    /// Options of SYNs, and datagrams.
    apart: Vec<Vec<u8>>,
}

impl Following {
    fn on_segment(&mut self, from_client: bool, segment: &TcpSegment<'_>) {
        if segment.syn {
            self.on_syn(from_client, segment);
        }
        let isn = if from_client { Some(self.isn) } else { self.answer_isn };
        let Some(isn) = isn else { return };
        // Data in the SYN are the first bytes of the stream.
        let first = isn.wrapping_add(1);
        let begins = if segment.syn { first } else { segment.seq };
        let stream = if from_client { &mut self.client } else { &mut self.answer };
        stream.keep(begins.wrapping_sub(first), segment.payload);
    }

    fn on_syn(&mut self, from_client: bool, segment: &TcpSegment<'_>) {
        if !from_client {
            self.answer_isn = Some(segment.seq);
        }
        self.apart.push(segment.options.to_vec());
        let list = if from_client { &mut self.shown } else { &mut self.handed_out };
        for cookie in segment.fast_open().into_iter().filter(|cookie| !cookie.is_empty()) {
            let identifier = Identifier { kind: Kind::Cookie, bytes: cookie.to_vec() };
            if !list.contains(&identifier) {
                list.push(identifier);
            }
        }
    }

    fn hello(&self) -> Option<ClientHello> {
        hello::read(&self.client.beginning()).ok().and_then(Progress::complete)
    }

    /// The session over UDP that it takes over.
    fn joins(&self) -> Option<SessionId> {
        Some(Join::read(&self.hello()?)?.key.session_id())
    }

    /// `joined` has the sessions over UDP that went on over TCP.
    fn end(self, joined: &HashSet<SessionId>) -> Connection {
        // A join looks like a resumption, and is the TCP part of a flight, which is here as well.
        let is_join = self.joins().is_some();
        let hello = self.hello().filter(|_| !is_join);
        let Self { at, server, flight, mut shown, handed_out, client, answer, apart, .. } = self;
        let went_on = flight.is_none_or(|id| joined.contains(&id));
        let whole_hello = hello.is_some();
        let tickets = hello.into_iter().flat_map(|hello| hello.psk_identities);
        shown.extend(tickets.map(|bytes| Identifier { kind: Kind::Ticket, bytes }));
        let resumed = sharing::resumes(&answer.beginning()).filter(|_| !is_join && went_on);
        let streams = [client, answer].into_iter().flat_map(|stream| stream.runs());
        let bytes = streams.map(|(_, run)| run).chain(apart).collect();
        Connection { at, server, shown, handed_out, whole_hello, resumed, bytes }
    }
}
