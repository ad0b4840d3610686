//! The driver at the server: machine, UDP, TCP connection, connections to the origin.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use headstart_emulation::{Link, Packet};
use headstart_proto::hello::{self, Progress};
use headstart_proto::join::{Join, REFUSAL, acceptance};
use headstart_proto::limits::{AMPLIFICATION, DATAGRAM_MAX};
use headstart_proto::wire::{Request, Response};
use headstart_proto::{
    Attachment, Handover, Instant, JoinKey, JoinOutcome, OriginEnd, Server, ServerConfig,
    ServerEvent, SessionId,
};

use super::client::{End, at};
use super::origin::Origin;
use super::tcp::Segment;
use super::world::CLIENT;
use super::{Script, Turn};

/// Name in the log.
const EDGE: &str = "edge";

/// The peer at the server's address.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Host {
    /// An edge in front of an origin.
    Edge(ServerConfig),
    /// A TLS server without support for this protocol.
    TlsServer,
}

#[derive(Debug)]
pub(super) struct EdgeSide {
    script: Script,
    host: Host,
    /// The client's address on TCP.
    peer: SocketAddr,
    machine: Option<Server>,
    pub(super) origins: Vec<Origin>,
    /// True once a session was started.
    pub(super) hello_over_udp: bool,
    sessions: BTreeMap<SessionId, usize>,
    connection: Connection,
    requests: BTreeMap<(SessionId, u8), usize>,
    answered: BTreeSet<(SessionId, u8)>,
}

/// The one TCP connection of a scenario.
#[derive(Debug)]
enum Connection {
    /// Its first bytes are still unclear.
    First(Vec<u8>),
    /// It begins with a client stream whose ClientHello is incomplete.
    Hello(Vec<u8>),
    /// It is relayed to an origin; the next `skip` client bytes are dropped.
    Through {
        origin: usize,
        skip: usize,
    },
    Closed,
}

impl EdgeSide {
    pub(super) fn new(script: &Script, host: Host, peer: SocketAddr) -> Self {
        let machine = match host {
            Host::Edge(config) => Some(Server::new(config)),
            Host::TlsServer => None,
        };
        Self {
            script: script.clone(),
            host,
            peer,
            machine,
            origins: Vec::new(),
            hello_over_udp: false,
            sessions: BTreeMap::new(),
            connection: Connection::First(Vec::new()),
            requests: BTreeMap::new(),
            answered: BTreeSet::new(),
        }
    }

    /// Replaces the process: the new one remembers nothing, and resets a connection that the old
    /// one had `accepted`.
    pub(super) fn restart(&mut self, accepted: bool, turn: &mut Turn<'_>) {
        let script = self.script.clone();
        let mut old = std::mem::replace(self, Self::new(&script, self.host, self.peer));
        old.origins.iter_mut().for_each(|origin| origin.closed = true);
        self.origins = old.origins;
        if accepted {
            turn.send(&Segment::Reset);
            self.connection = Connection::Closed;
        }
    }

    pub(super) fn unproven(&self) -> usize {
        self.machine.as_ref().map_or(0, Server::unproven)
    }

    pub(super) fn handle_datagram(&mut self, bytes: &[u8], turn: &mut Turn<'_>) {
        let Some(machine) = &mut self.machine else {
            return;
        };
        if let Ok(request) = Request::parse(bytes) {
            self.requests.insert((request.id, request.seq), bytes.len());
            let (seq, length, offset) = (request.seq, request.payload.len(), request.offset);
            turn.note(EDGE, format_args!("request {seq} arrives, {length} bytes at {offset}"));
        }
        if let Err(reason) = machine.handle_datagram(at(turn.now), CLIENT, None, bytes) {
            turn.note(EDGE, format_args!("drops it: {}", reason.name()));
        }
    }

    pub(super) fn handle_segment(&mut self, segment: Segment, turn: &mut Turn<'_>) {
        match segment {
            Segment::Bytes(bytes) => self.handle_bytes(bytes, turn),
            Segment::Finished => self.handle_finished(turn),
            Segment::Reset => {
                if let Connection::Through { origin, .. } = self.connection {
                    self.origins[origin].closed = true;
                }
                self.connection = Connection::Closed;
            }
        }
    }

    pub(super) fn next_due(&self) -> Option<Duration> {
        let machine = self.machine.as_ref().and_then(Server::poll_timeout);
        let origins = self.origins.iter().filter_map(Origin::next_due);
        machine.map(Instant::since_epoch).into_iter().chain(origins).min()
    }

    pub(super) fn handle_time(&mut self, now: Duration) {
        if let Some(machine) = &mut self.machine
            && machine.poll_timeout().is_some_and(|due| due <= at(now))
        {
            machine.handle_timeout(at(now));
        }
        self.origins.iter_mut().for_each(|origin| origin.think(now));
    }

    /// Does all pending work. Returns true if there was any.
    pub(super) fn drive(&mut self, udp: &mut Link, turn: &mut Turn<'_>) -> bool {
        let mut busy = false;
        loop {
            let worked = self.take_events(turn)
                | self.take_transmits(turn.now, udp)
                | self.feed_sessions(turn)
                | self.feed_connection(turn);
            if !worked {
                return busy;
            }
            busy = true;
        }
    }

    fn take_events(&mut self, turn: &mut Turn<'_>) -> bool {
        let mut any = false;
        while let Some(event) = self.machine.as_mut().and_then(Server::poll_event) {
            any = true;
            match event {
                ServerEvent::Started { id, bytes, .. } => {
                    self.hello_over_udp = true;
                    let length = bytes.len();
                    turn.note(EDGE, format_args!("starts the origin with {length} bytes"));
                    let origin = self.open(turn.now, &bytes);
                    self.sessions.insert(id, origin);
                }
                ServerEvent::ClientBytes { id, bytes } => {
                    turn.note(EDGE, format_args!("passes on {} bytes", bytes.len()));
                    self.origins[self.sessions[&id]].receive(turn.now, &bytes);
                }
                ServerEvent::Expired { id } => {
                    turn.note(EDGE, "forgets the session");
                    let origin = self.sessions.remove(&id).expect("an expired session was started");
                    self.origins[origin].closed = true;
                }
            }
        }
        any
    }

    fn take_transmits(&mut self, now: Duration, udp: &mut Link) -> bool {
        let mut any = false;
        while let Some(transmit) = self.machine.as_mut().and_then(Server::poll_transmit) {
            any = true;
            let response = Response::parse(&transmit.bytes).expect("own datagrams are well-formed");
            let key = (response.id, response.seq);
            let request = self.requests.get(&key).expect("it answers a request");
            assert!(self.answered.insert(key), "a request is answered once");
            assert!(transmit.bytes.len() <= DATAGRAM_MAX.min(request * AMPLIFICATION));
            assert_eq!(transmit.to, CLIENT);
            udp.send(now, Packet::udp(transmit.bytes));
        }
        any
    }

    /// Feeds the machine bytes of origins whose session is not joined.
    fn feed_sessions(&mut self, turn: &mut Turn<'_>) -> bool {
        let Some(machine) = &mut self.machine else {
            return false;
        };
        let mut any = false;
        for (id, index) in &self.sessions {
            let origin = &mut self.origins[*index];
            let taken = machine.handle_origin_data(*id, origin.peek());
            origin.take(taken);
            if taken > 0 {
                turn.note(EDGE, format_args!("takes {taken} bytes of the origin"));
            }
            let end = origin.ends();
            match end {
                Some(End::Finished) => machine.handle_origin_finished(*id),
                Some(End::Reset) => machine.handle_origin_lost(at(turn.now), *id),
                None => {}
            }
            any |= taken > 0 || end.is_some();
        }
        any
    }

    fn feed_connection(&mut self, turn: &mut Turn<'_>) -> bool {
        let Connection::Through { origin, .. } = self.connection else {
            return false;
        };
        let origin = &mut self.origins[origin];
        let bytes = origin.peek().to_vec();
        origin.take(bytes.len());
        let end = origin.ends();
        if !bytes.is_empty() {
            turn.note(EDGE, format_args!("relays {} bytes", bytes.len()));
            turn.send(&Segment::Bytes(bytes.clone()));
        }
        match end {
            Some(End::Finished) => turn.send(&Segment::Finished),
            Some(End::Reset) => turn.send(&Segment::Reset),
            None => {}
        }
        !bytes.is_empty() || end.is_some()
    }

    fn handle_bytes(&mut self, mut bytes: Vec<u8>, turn: &mut Turn<'_>) {
        match &mut self.connection {
            Connection::First(first) => {
                first.append(&mut bytes);
                self.look(turn);
            }
            Connection::Hello(start) => {
                start.append(&mut bytes);
                self.look_for_hello(turn);
            }
            Connection::Through { origin, skip } => {
                let dropped = bytes.len().min(*skip);
                *skip -= dropped;
                self.origins[*origin].receive(turn.now, &bytes[dropped..]);
            }
            Connection::Closed => {}
        }
    }

    fn handle_finished(&mut self, turn: &mut Turn<'_>) {
        let taken = std::mem::replace(&mut self.connection, Connection::Closed);
        let origin = match taken {
            Connection::Through { origin, .. } => origin,
            Connection::First(bytes) | Connection::Hello(bytes) if !bytes.is_empty() => {
                self.open(turn.now, &bytes)
            }
            _ => return turn.send(&Segment::Finished),
        };
        self.origins[origin].finish_input();
        self.connection = Connection::Through { origin, skip: 0 };
    }

    /// Tells a join from a client stream.
    fn look(&mut self, turn: &mut Turn<'_>) {
        let Connection::First(bytes) = &mut self.connection else {
            return;
        };
        let hello = match hello::read(bytes) {
            Ok(Progress::Incomplete) => return,
            Ok(Progress::Complete(hello)) => Some(hello),
            Err(_) => None,
        };
        let mut bytes = std::mem::take(bytes);
        let Some((join, end)) = hello.and_then(|hello| Some((Join::read(&hello)?, hello.end)))
        else {
            self.connection = Connection::Hello(bytes);
            return self.look_for_hello(turn);
        };
        let Some(machine) = &mut self.machine else {
            // An ordinary server does not know the ticket, and answers as to any other client.
            let other = acceptance(&JoinKey::new([0; 16]), 0);
            turn.send(&Segment::Bytes(other));
            turn.send(&Segment::Finished);
            self.connection = Connection::Closed;
            return;
        };
        let rest = bytes.split_off(end);
        let outcome = machine.handle_join(at(turn.now), self.peer, &join);
        match outcome {
            JoinOutcome::Joined(handover) => {
                turn.note(EDGE, "accepts the join");
                let answer = acceptance(&join.key, handover.server_offset);
                turn.send(&Segment::Bytes(answer));
                self.carry_out(handover, turn);
                self.handle_bytes(rest, turn);
            }
            JoinOutcome::Fresh => {
                turn.note(EDGE, "does not know the session: a new stream");
                turn.send(&Segment::Bytes(acceptance(&join.key, 0)));
                self.connection = Connection::Hello(rest);
                self.look_for_hello(turn);
            }
            JoinOutcome::Refused => {
                turn.note(EDGE, "refuses the join");
                turn.send(&Segment::Bytes(REFUSAL.to_vec()));
                turn.send(&Segment::Finished);
                self.connection = Connection::Closed;
            }
            JoinOutcome::Elsewhere(edge) => panic!("edge {edge} without a fleet"),
        }
    }

    fn look_for_hello(&mut self, turn: &mut Turn<'_>) {
        let Connection::Hello(start) = &mut self.connection else {
            return;
        };
        let end = match hello::read(start) {
            Ok(Progress::Incomplete) => return,
            Ok(Progress::Complete(hello)) => Some(hello.end),
            Err(_) => None,
        };
        let bytes = std::mem::take(start);
        let attachment = match (&mut self.machine, end) {
            (Some(machine), Some(end)) => {
                machine.handle_plain(at(turn.now), self.peer, &bytes[..end])
            }
            _ => Attachment::New,
        };
        match attachment {
            Attachment::Attached(handover) => {
                turn.note(EDGE, "attaches the plain stream to the running ClientHello");
                self.carry_out(handover, turn);
                self.handle_bytes(bytes, turn);
            }
            Attachment::New => {
                let length = bytes.len();
                turn.note(EDGE, format_args!("starts the origin with {length} bytes of TCP"));
                let origin = self.open(turn.now, &bytes);
                self.connection = Connection::Through { origin, skip: 0 };
            }
        }
    }

    fn carry_out(&mut self, handover: Handover, turn: &mut Turn<'_>) {
        let origin =
            self.sessions.remove(&handover.id).expect("a session that is handed over was started");
        if !handover.client_bytes.is_empty() {
            self.origins[origin].receive(turn.now, &handover.client_bytes);
        }
        if !handover.server_bytes.is_empty() {
            turn.send(&Segment::Bytes(handover.server_bytes));
        }
        match handover.end {
            OriginEnd::Open => {}
            OriginEnd::Finished => turn.send(&Segment::Finished),
            OriginEnd::Reset => turn.send(&Segment::Reset),
        }
        self.connection = Connection::Through { origin, skip: handover.skip };
    }

    fn open(&mut self, now: Duration, bytes: &[u8]) -> usize {
        let mut origin = Origin::new(self.script.clone());
        origin.receive(now, bytes);
        self.origins.push(origin);
        self.origins.len() - 1
    }
}
