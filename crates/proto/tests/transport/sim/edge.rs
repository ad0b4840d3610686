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
use super::tcp::{Direction, Segment};
use super::{Log, Script};

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
    pub(super) fn new(script: &Script, host: Host) -> Self {
        let machine = match host {
            Host::Edge(config) => Some(Server::new(config)),
            Host::TlsServer => None,
        };
        Self {
            script: script.clone(),
            host,
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
    pub(super) fn restart(&mut self, now: Duration, accepted: bool, tcp: &mut Direction) {
        let script = self.script.clone();
        let mut old = std::mem::replace(self, Self::new(&script, self.host));
        old.origins.iter_mut().for_each(|origin| origin.closed = true);
        self.origins = old.origins;
        if accepted {
            tcp.send(now, &Segment::Reset);
            self.connection = Connection::Closed;
        }
    }

    pub(super) fn unproven(&self) -> usize {
        self.machine.as_ref().map_or(0, Server::unproven)
    }

    pub(super) fn handle_datagram(
        &mut self,
        now: Duration,
        from: SocketAddr,
        bytes: &[u8],
        log: &mut Log,
    ) {
        let Some(machine) = &mut self.machine else {
            return;
        };
        if let Ok(request) = Request::parse(bytes) {
            self.requests.insert((request.id, request.seq), bytes.len());
            log.note(
                now,
                "edge",
                format_args!(
                    "request {} arrives, {} bytes at {}",
                    request.seq,
                    request.payload.len(),
                    request.offset
                ),
            );
        }
        if let Err(reason) = machine.handle_datagram(at(now), from, None, bytes) {
            log.note(now, "edge", format_args!("drops it: {}", reason.name()));
        }
    }

    pub(super) fn handle_segment(
        &mut self,
        now: Duration,
        peer: SocketAddr,
        segment: Segment,
        tcp: &mut Direction,
        log: &mut Log,
    ) {
        match segment {
            Segment::Bytes(bytes) => self.handle_bytes(now, peer, bytes, tcp, log),
            Segment::Finished => self.handle_finished(now, tcp),
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
    pub(super) fn drive(
        &mut self,
        now: Duration,
        client: SocketAddr,
        udp: &mut Link,
        tcp: &mut Direction,
        log: &mut Log,
    ) -> bool {
        let mut busy = false;
        loop {
            let worked = self.take_events(now, log)
                | self.take_transmits(now, client, udp)
                | self.feed_sessions(now, log)
                | self.feed_connection(now, tcp, log);
            if !worked {
                return busy;
            }
            busy = true;
        }
    }

    fn take_events(&mut self, now: Duration, log: &mut Log) -> bool {
        let mut any = false;
        while let Some(event) = self.machine.as_mut().and_then(Server::poll_event) {
            any = true;
            match event {
                ServerEvent::Started { id, bytes, .. } => {
                    self.hello_over_udp = true;
                    log.note(
                        now,
                        "edge",
                        format_args!("starts the origin with {} bytes", bytes.len()),
                    );
                    let origin = self.open(now, &bytes);
                    self.sessions.insert(id, origin);
                }
                ServerEvent::ClientBytes { id, bytes } => {
                    log.note(now, "edge", format_args!("passes on {} bytes", bytes.len()));
                    self.origins[self.sessions[&id]].receive(now, &bytes);
                }
                ServerEvent::Expired { id } => {
                    log.note(now, "edge", format_args!("forgets the session"));
                    let origin = self.sessions.remove(&id).expect("an expired session was started");
                    self.origins[origin].closed = true;
                }
            }
        }
        any
    }

    fn take_transmits(&mut self, now: Duration, client: SocketAddr, udp: &mut Link) -> bool {
        let mut any = false;
        while let Some(transmit) = self.machine.as_mut().and_then(Server::poll_transmit) {
            any = true;
            let response = Response::parse(&transmit.bytes).expect("own datagrams are well-formed");
            let key = (response.id, response.seq);
            let request = self.requests.get(&key).expect("it answers a request");
            assert!(self.answered.insert(key), "a request is answered once");
            assert!(transmit.bytes.len() <= DATAGRAM_MAX.min(request * AMPLIFICATION));
            assert_eq!(transmit.to, client);
            udp.send(now, Packet::udp(transmit.bytes));
        }
        any
    }

    /// Feeds the machine bytes of origins whose session is not joined.
    fn feed_sessions(&mut self, now: Duration, log: &mut Log) -> bool {
        let Some(machine) = &mut self.machine else {
            return false;
        };
        let mut any = false;
        for (id, index) in &self.sessions {
            let origin = &mut self.origins[*index];
            let taken = machine.handle_origin_data(*id, origin.peek());
            origin.take(taken);
            if taken > 0 {
                log.note(now, "edge", format_args!("takes {taken} bytes of the origin"));
            }
            let end = origin.ends();
            match end {
                Some(End::Finished) => machine.handle_origin_finished(*id),
                Some(End::Reset) => machine.handle_origin_lost(at(now), *id),
                None => {}
            }
            any |= taken > 0 || end.is_some();
        }
        any
    }

    fn feed_connection(&mut self, now: Duration, tcp: &mut Direction, log: &mut Log) -> bool {
        let Connection::Through { origin, .. } = self.connection else {
            return false;
        };
        let origin = &mut self.origins[origin];
        let bytes = origin.peek().to_vec();
        origin.take(bytes.len());
        let end = origin.ends();
        if !bytes.is_empty() {
            log.note(now, "edge", format_args!("relays {} bytes", bytes.len()));
            tcp.send(now, &Segment::Bytes(bytes.clone()));
        }
        match end {
            Some(End::Finished) => tcp.send(now, &Segment::Finished),
            Some(End::Reset) => tcp.send(now, &Segment::Reset),
            None => {}
        }
        !bytes.is_empty() || end.is_some()
    }

    fn handle_bytes(
        &mut self,
        now: Duration,
        peer: SocketAddr,
        mut bytes: Vec<u8>,
        tcp: &mut Direction,
        log: &mut Log,
    ) {
        match &mut self.connection {
            Connection::First(first) => {
                first.append(&mut bytes);
                self.look(now, peer, tcp, log);
            }
            Connection::Hello(start) => {
                start.append(&mut bytes);
                self.look_for_hello(now, peer, tcp, log);
            }
            Connection::Through { origin, skip } => {
                let dropped = bytes.len().min(*skip);
                *skip -= dropped;
                self.origins[*origin].receive(now, &bytes[dropped..]);
            }
            Connection::Closed => {}
        }
    }

    fn handle_finished(&mut self, now: Duration, tcp: &mut Direction) {
        let taken = std::mem::replace(&mut self.connection, Connection::Closed);
        let origin = match taken {
            Connection::Through { origin, .. } => origin,
            Connection::First(bytes) | Connection::Hello(bytes) if !bytes.is_empty() => {
                self.open(now, &bytes)
            }
            _ => return tcp.send(now, &Segment::Finished),
        };
        self.origins[origin].finish_input();
        self.connection = Connection::Through { origin, skip: 0 };
    }

    /// Tells a join from a client stream.
    fn look(&mut self, now: Duration, peer: SocketAddr, tcp: &mut Direction, log: &mut Log) {
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
            return self.look_for_hello(now, peer, tcp, log);
        };
        let Some(machine) = &mut self.machine else {
            // An ordinary server does not know the ticket, and answers as to any other client.
            let other = acceptance(&JoinKey::new([0; 16]), 0);
            tcp.send(now, &Segment::Bytes(other));
            tcp.send(now, &Segment::Finished);
            self.connection = Connection::Closed;
            return;
        };
        let rest = bytes.split_off(end);
        let outcome = machine.handle_join(at(now), peer, &join);
        match outcome {
            JoinOutcome::Joined(handover) => {
                log.note(now, "edge", format_args!("accepts the join"));
                let answer = acceptance(&join.key, handover.server_offset);
                tcp.send(now, &Segment::Bytes(answer));
                self.carry_out(now, handover, tcp);
                self.handle_bytes(now, peer, rest, tcp, log);
            }
            JoinOutcome::Fresh => {
                log.note(now, "edge", format_args!("does not know the session: a new stream"));
                tcp.send(now, &Segment::Bytes(acceptance(&join.key, 0)));
                self.connection = Connection::Hello(rest);
                self.look_for_hello(now, peer, tcp, log);
            }
            JoinOutcome::Refused => {
                log.note(now, "edge", format_args!("refuses the join"));
                tcp.send(now, &Segment::Bytes(REFUSAL.to_vec()));
                tcp.send(now, &Segment::Finished);
                self.connection = Connection::Closed;
            }
            JoinOutcome::Elsewhere(edge) => panic!("edge {edge} without a fleet"),
        }
    }

    fn look_for_hello(
        &mut self,
        now: Duration,
        peer: SocketAddr,
        tcp: &mut Direction,
        log: &mut Log,
    ) {
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
            (Some(machine), Some(end)) => machine.handle_plain(at(now), peer, &bytes[..end]),
            _ => Attachment::New,
        };
        match attachment {
            Attachment::Attached(handover) => {
                log.note(
                    now,
                    "edge",
                    format_args!("attaches the plain stream to the running ClientHello"),
                );
                self.carry_out(now, handover, tcp);
                self.handle_bytes(now, peer, bytes, tcp, log);
            }
            Attachment::New => {
                log.note(
                    now,
                    "edge",
                    format_args!("starts the origin with {} bytes of TCP", bytes.len()),
                );
                let origin = self.open(now, &bytes);
                self.connection = Connection::Through { origin, skip: 0 };
            }
        }
    }

    fn carry_out(&mut self, now: Duration, handover: Handover, tcp: &mut Direction) {
        let origin =
            self.sessions.remove(&handover.id).expect("a session that is handed over was started");
        if !handover.client_bytes.is_empty() {
            self.origins[origin].receive(now, &handover.client_bytes);
        }
        if !handover.server_bytes.is_empty() {
            tcp.send(now, &Segment::Bytes(handover.server_bytes));
        }
        match handover.end {
            OriginEnd::Open => {}
            OriginEnd::Finished => tcp.send(now, &Segment::Finished),
            OriginEnd::Reset => tcp.send(now, &Segment::Reset),
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
