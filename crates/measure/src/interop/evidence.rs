//! Evidence of one connection's opening in a capture at the client.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use headstart_emulation::{CapturedPacket, TcpSegment, UdpDatagram};
use headstart_proto::hello;
use headstart_proto::join::{Answer, Join};
use headstart_proto::wire::{Request, Response};

use crate::stream::Stream;

/// Bytes before the random of a ServerHello that begins a stream: headers and legacy_version.
const BEFORE_RANDOM: usize = 11;

/// The random of a HelloRetryRequest (RFC 8446 section 4.1.3).
const RETRY: [u8; 8] = [0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11];

/// Facts about an opening, from the packets that left the client and reached it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Evidence {
    /// Length of the ClientHello that went over UDP as a whole.
    pub(super) hello: Option<usize>,
    /// Parts of the client stream, by offset, that went over UDP.
    pub(super) pieces: usize,
    /// Client bytes that went over UDP.
    pub(super) client_bytes: usize,
    /// Server bytes that came over UDP before the first TCP connection was answered.
    pub(super) server_bytes: usize,
    /// The server stream began with a HelloRetryRequest.
    pub(super) retry: bool,
    /// A join of a session seen over UDP, and the server's answer to it.
    pub(super) join: Option<Join>,
    pub(super) answer: Option<Answer>,
    /// Resets of connections that carried bytes, by either end.
    pub(super) resets: usize,
    /// Datagrams of sessions that the client did not begin.
    pub(super) forged: usize,
}

/// Both streams of one TCP connection, and the sequence numbers of their first bytes.
#[derive(Debug, Default)]
struct Flow {
    up: Stream,
    down: Stream,
    first: [u32; 2],
}

impl Evidence {
    /// Reads the packets of one opening to `server`.
    pub(super) fn read(packets: &[CapturedPacket], server: SocketAddr) -> Self {
        let mut this = Self::default();
        let mut sessions: BTreeMap<[u8; 12], [Stream; 2]> = BTreeMap::new();
        let mut flows: BTreeMap<SocketAddr, Flow> = BTreeMap::new();
        let mut answered = false;
        for packet in packets {
            if let Some(datagram) = UdpDatagram::read(&packet.bytes) {
                if packet.from_node && datagram.destination == server {
                    if let Ok(request) = Request::parse(datagram.payload) {
                        let [up, _] = sessions.entry(request.id.0).or_default();
                        up.keep(request.offset, request.payload);
                    }
                } else if !packet.from_node && datagram.source == server {
                    match ours(datagram.payload, &mut sessions) {
                        Some((response, [_, down])) if !answered => {
                            down.keep(response.offset, response.payload);
                        }
                        Some(_) => {}
                        None => this.forged += 1,
                    }
                }
            } else if let Some(segment) = TcpSegment::read(&packet.bytes) {
                let (client, other) = match packet.from_node {
                    true => (segment.source, segment.destination),
                    false => (segment.destination, segment.source),
                };
                if other == server {
                    answered |= segment.syn && !packet.from_node;
                    let flow = flows.entry(client).or_default();
                    this.take_segment(flow, &segment, packet.from_node);
                }
            }
        }
        this.conclude(&sessions, &flows)
    }

    fn take_segment(&mut self, flow: &mut Flow, segment: &TcpSegment<'_>, from_node: bool) {
        let Flow { up, down, first: [first_up, first_down] } = flow;
        if segment.reset && up.pieces() > 0 {
            self.resets += 1;
        }
        let (stream, first) = if from_node { (up, first_up) } else { (down, first_down) };
        if segment.syn {
            *first = segment.seq.wrapping_add(1);
        }
        stream.keep(segment.seq.wrapping_sub(*first), segment.payload);
    }

    fn conclude(
        mut self,
        sessions: &BTreeMap<[u8; 12], [Stream; 2]>,
        flows: &BTreeMap<SocketAddr, Flow>,
    ) -> Self {
        for [up, down] in sessions.values() {
            let beginning = up.beginning();
            let hello = hello::read(&beginning).ok().and_then(hello::Progress::complete);
            self.hello = self.hello.or(hello.map(|hello| hello.end));
            self.pieces = self.pieces.max(up.pieces());
            self.client_bytes = self.client_bytes.max(beginning.len());
            let beginning = down.beginning();
            self.server_bytes = self.server_bytes.max(beginning.len());
            self.retry |=
                beginning.get(BEFORE_RANDOM..).is_some_and(|rest| rest.starts_with(&RETRY));
        }
        for flow in flows.values() {
            let beginning = flow.up.beginning();
            let Some(hello) = hello::read(&beginning).ok().and_then(hello::Progress::complete)
            else {
                continue;
            };
            let join = Join::read(&hello);
            let ours = |join: &Join| sessions.contains_key(&join.key.session_id().0);
            if let Some(join) = join.filter(ours) {
                self.answer = Some(Answer::read(&join.key, &flow.down.beginning()));
                self.join = Some(join);
            }
        }
        self
    }

    /// True if a session that began over UDP continues over TCP.
    pub(super) fn is_joined(&self) -> bool {
        matches!(self.answer, Some(Answer::Accepted(_)))
    }
}

/// The response in a datagram, and the session it is of.
fn ours<'s, 'd>(
    datagram: &'d [u8],
    sessions: &'s mut BTreeMap<[u8; 12], [Stream; 2]>,
) -> Option<(Response<'d>, &'s mut [Stream; 2])> {
    let response = Response::parse(datagram).ok()?;
    let session = sessions.get_mut(&response.id.0)?;
    Some((response, session))
}
