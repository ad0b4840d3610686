use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use headstart_proto::HelloError;
use headstart_proto::hello::{self, Progress};
use headstart_proto::join::Join;
use headstart_proto::limits::CLIENT_BYTES;

use super::client_hello::Offer;
use super::packet::Segment;
use super::server_flight::{Answer, ServerFlight, State};
use super::stream::Stream;

/// First bytes of a TLS stream: a record with a handshake message that is a ClientHello.
const CLIENT_HELLO: [Option<u8>; 6] = [Some(22), Some(3), None, None, None, Some(1)];

/// A TCP connection whose handshake is still being read.
#[derive(Debug)]
pub(crate) struct Flow {
    /// Sequence number of the client's SYN, if that was captured.
    pub(crate) isn: Option<u32>,
    client: SocketAddr,
    server: SocketAddr,
    up: Stream,
    down: Stream,
    /// The client's first bytes, until the ClientHello is complete.
    first: Vec<u8>,
    /// The ClientHello, and the time at which it was complete.
    offer: Option<(Duration, Offer)>,
    flight: ServerFlight,
    /// Time of the server's answer.
    answered: Option<Duration>,
    cut: bool,
}

/// Outcome of a connection.
#[derive(Debug)]
pub(crate) enum Ending {
    Handshake(Box<Handshaken>),
    NotTls,
    /// It joins a session of TurboTLS.
    Join,
    Unreadable,
    Unanswered,
    CutOff,
}

/// A handshake whose first flights were both read.
#[derive(Debug)]
pub(crate) struct Handshaken {
    /// Time of the ClientHello.
    pub(crate) at: Duration,
    /// Time from which a ticket can be used: a round trip after the answer, since the client's
    /// Finished comes before it.
    pub(crate) ready: Duration,
    pub(crate) server: IpAddr,
    pub(crate) offer: Offer,
    pub(crate) answer: Answer,
}

impl Flow {
    /// Returns the connection that a segment begins: a SYN, a SYN-ACK, or, in a capture that began
    /// later, a ClientHello.
    pub(crate) fn begun_by(segment: &Segment<'_>) -> Option<Self> {
        let is_from_client = !segment.syn || segment.ack.is_none();
        if !segment.syn && !begins_client_hello(segment.payload) {
            return None;
        }
        let (client, server) = match is_from_client {
            true => (segment.source, segment.destination),
            false => (segment.destination, segment.source),
        };
        let isn = (segment.syn && is_from_client).then_some(segment.seq);
        Some(Self::new(client, server, isn))
    }

    fn new(client: SocketAddr, server: SocketAddr, isn: Option<u32>) -> Self {
        Self {
            isn,
            client,
            server,
            up: Stream::default(),
            down: Stream::default(),
            first: Vec::new(),
            offer: None,
            flight: ServerFlight::default(),
            answered: None,
            cut: false,
        }
    }

    /// Returns the number of bytes kept.
    pub(crate) fn kept(&self) -> usize {
        self.up.kept() + self.down.kept() + self.first.len() + self.flight.kept()
    }

    /// Handles a segment of either side; returns the outcome once it is certain.
    pub(crate) fn on_segment(&mut self, at: Duration, segment: &Segment<'_>) -> Option<Ending> {
        self.cut |= segment.cut;
        let data = segment.seq.wrapping_add(u32::from(segment.syn));
        if segment.source == self.client {
            self.up.begin(data);
            // The server continues where the client's acknowledgement ends.
            segment.ack.into_iter().for_each(|ack| self.down.begin(ack));
            self.on_client(at, data, segment.payload)
        } else {
            if segment.syn || self.down.is_begun() {
                self.down.begin(data);
            }
            if segment.syn {
                segment.ack.into_iter().for_each(|ack| self.up.begin(ack));
            }
            self.on_server(at, data, segment.payload)
        }
    }

    fn on_client(&mut self, at: Duration, seq: u32, bytes: &[u8]) -> Option<Ending> {
        if self.offer.is_some() || bytes.is_empty() {
            return None;
        }
        let first = &mut self.first;
        self.up.push(seq, bytes, |bytes| {
            let room = CLIENT_BYTES.saturating_sub(first.len());
            first.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        });
        match hello::read(&self.first) {
            Ok(Progress::Incomplete) => None,
            Ok(Progress::Complete(hello)) if Join::read(&hello).is_some() => Some(Ending::Join),
            Ok(Progress::Complete(hello)) => {
                self.offer = Some((at, Offer::from_hello(hello, &self.first)));
                self.first = Vec::new();
                self.up = Stream::default();
                self.ended()
            }
            Err(HelloError::NotTls) => Some(Ending::NotTls),
            Err(_) => Some(Ending::Unreadable),
        }
    }

    fn on_server(&mut self, at: Duration, seq: u32, bytes: &[u8]) -> Option<Ending> {
        let flight = &mut self.flight;
        self.down.push(seq, bytes, |bytes| flight.push(bytes));
        if self.flight.answer.version.is_some() {
            self.answered.get_or_insert(at);
        }
        self.ended()
    }

    /// Returns the outcome, if more cannot be learned.
    fn ended(&mut self) -> Option<Ending> {
        match self.flight.state {
            State::Reading => None,
            // The ClientHello may still come, where a capture has packets out of order.
            State::Done if self.offer.is_none() => None,
            State::Done | State::NotTls => Some(self.end()),
        }
    }

    /// Returns the outcome; nothing more of the connection will be read.
    pub(crate) fn end(&mut self) -> Ending {
        let answer = self.flight.answer;
        match self.offer.take() {
            Some((at, offer)) if answer.resumed.is_some() => {
                let answered = self.answered.unwrap_or(at);
                let ready = answered.saturating_add(answered.saturating_sub(at));
                let server = self.server.ip();
                Ending::Handshake(Box::new(Handshaken { at, ready, server, offer, answer }))
            }
            _ if self.cut => Ending::CutOff,
            Some(_) => Ending::Unanswered,
            None if self.first.is_empty() => Ending::NotTls,
            None => Ending::Unanswered,
        }
    }
}

fn begins_client_hello(payload: &[u8]) -> bool {
    let fits =
        |(byte, expected): (&u8, &Option<u8>)| expected.is_none_or(|expected| expected == *byte);
    payload.len() >= CLIENT_HELLO.len() && payload.iter().zip(&CLIENT_HELLO).all(fits)
}
