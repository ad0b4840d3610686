//! The drivers of the edges, their origins, and TCP.

use std::net::SocketAddr;
use std::vec::Vec;

use super::{CLIENT, Claim, Connection, Datagram, End, Origin, Segment, World};
use crate::hello::{self, Progress};
use crate::join::{Join, REFUSAL, acceptance};
use crate::limits::{AMPLIFICATION, DATAGRAM_MAX, HELLO_MEMORY, SESSION_LIFE};
use crate::model::network::{Bug, Network};
use crate::{Attachment, Handover, JoinOutcome, OriginEnd, ServerEvent};

impl World {
    pub(super) fn drive_edges(&mut self, model: &Network) -> bool {
        let mut busy = false;
        for edge in 0..model.edges {
            while let Some(event) = self.edges[usize::from(edge)].server.poll_event() {
                self.serve(model, edge, event);
                busy = true;
            }
            while let Some(transmit) = self.edges[usize::from(edge)].server.poll_transmit() {
                self.send(model, edge, transmit.to, transmit.bytes);
                busy = true;
            }
            busy |= self.feed_sessions(model, edge);
        }
        busy | self.feed_connection(model)
    }

    fn serve(&mut self, model: &Network, edge: u8, event: ServerEvent) {
        match event {
            ServerEvent::Started { id, peer, bytes, .. } => {
                let origin = self.open(edge, peer, false);
                self.edges[usize::from(edge)].sessions.insert(id, origin);
                self.give(model, origin, &bytes);
            }
            ServerEvent::ClientBytes { id, bytes } => {
                let origin = self.edges[usize::from(edge)].sessions[&id];
                self.give(model, origin, &bytes);
            }
            ServerEvent::Expired { id } => {
                let origin = self.edges[usize::from(edge)].sessions.remove(&id);
                let at = &mut self.origins[origin.expect("an expired session was started")];
                (at.closed, at.expired, at.ended) = (true, true, Some(self.now));
                let foreign = self.tcp.connected.is_some_and(|(_, peer)| peer.ip() != at.peer);
                let promised = self.now.since(at.begun) >= SESSION_LIFE;
                self.claim(Claim::Promise, promised || (model.same_address && foreign));
            }
        }
    }

    fn send(&mut self, model: &Network, edge: u8, to: SocketAddr, mut bytes: Vec<u8>) {
        if model.bug == Some(Bug::AnswersTooLong) {
            bytes.resize(DATAGRAM_MAX + 1, 0);
        }
        let times = if model.bug == Some(Bug::AnswersTwice) { 2 } else { 1 };
        for _ in 0..times {
            let seq = bytes[14];
            let at = &mut self.edges[usize::from(edge)];
            let count = at.requests.entry((to, seq)).or_default();
            count.answers += 1;
            let count = *count;
            // Once its session is forgotten, a request that comes late may begin another.
            let forgot = self.origins.iter().any(|it| it.expired || it.lost || it.ended.is_some());
            let once = count.answers <= count.taken && (count.answers == 1 || forgot);
            self.claim(Claim::OneAnswer, once);
            let longest = DATAGRAM_MAX.min(count.longest * AMPLIFICATION);
            self.claim(Claim::ThreeTimes, bytes.len() <= longest);
            if to == CLIENT {
                self.down.push(Datagram { bytes: bytes.clone().into(), copies: 1 });
            }
        }
    }

    fn feed_sessions(&mut self, model: &Network, edge: u8) -> bool {
        let at = &mut self.edges[usize::from(edge)];
        let mut busy = false;
        for (id, number) in &at.sessions {
            let origin = &mut self.origins[*number];
            let pending = &model.streams.server[*number][origin.taken..origin.written()];
            let taken = at.server.handle_origin_data(*id, pending);
            origin.taken += taken;
            busy |= taken > 0;
            if origin.is_finished() && origin.taken == origin.written() && !origin.end_told {
                origin.end_told = true;
                at.server.handle_origin_finished(*id);
                busy = true;
            }
        }
        busy
    }

    fn feed_connection(&mut self, model: &Network) -> bool {
        let Connection::Through { origin: number, .. } = self.tcp.edge else { return false };
        let origin = &mut self.origins[number];
        let range = origin.taken..origin.written();
        if origin.closed || self.tcp.broken {
            return false;
        }
        let ends = origin.is_finished() && !origin.end_told;
        origin.taken = range.end;
        if !range.is_empty() {
            let bytes = model.streams.server[number][range.clone()].to_vec();
            self.tcp.down.push_back(Segment::Bytes(bytes));
        }
        if ends {
            self.origins[number].end_told = true;
            self.tcp.down.push_back(Segment::Finished);
        }
        !range.is_empty() || ends
    }

    /// Opens a stream to an origin, for a session or for a ClientHello that came over TCP.
    fn open(&mut self, edge: u8, peer: SocketAddr, over_tcp: bool) -> usize {
        let (now, start) = (self.now, self.edges[usize::from(edge)].start);
        let repeats = self.origins.iter().any(|it| {
            let here = it.edge == edge && it.start == start && it.peer == peer.ip();
            let forgotten = it.ended.is_some_and(|ended| now >= ended + HELLO_MEMORY);
            let excused = it.lost || forgotten || (it.expired && over_tcp);
            here && !excused
        });
        self.claim(Claim::HelloOnce, !repeats);
        self.origins.push(Origin {
            edge,
            start,
            peer: peer.ip(),
            begun: now,
            received: 0,
            writes: 0,
            taken: 0,
            end_told: false,
            ended: over_tcp.then_some(now),
            expired: false,
            lost: false,
            closed: false,
        });
        self.origins.len() - 1
    }

    fn give(&mut self, model: &Network, origin: usize, bytes: &[u8]) {
        let at = &mut self.origins[origin];
        let range = at.received..at.received + bytes.len();
        at.received = range.end;
        let exact = model.streams.client.get(range) == Some(bytes);
        self.claim(Claim::ClientStream, exact);
    }

    pub(super) fn tcp_up(&mut self, model: &Network, forwards: bool, split: bool) {
        self.left.forward_fails -= u8::from(!forwards);
        let (Some((edge, peer)), Some(segment)) = (self.tcp.connected, self.tcp.up.pop_front())
        else {
            return;
        };
        match segment {
            Segment::Bytes(mut bytes) => {
                if split {
                    self.left.split -= 1;
                    let rest = bytes.split_off(bytes.len() / 2);
                    self.tcp.up.push_front(Segment::Bytes(rest));
                }
                self.take_tcp_bytes(model, (edge, peer), bytes, forwards);
            }
            Segment::Finished | Segment::Reset => {}
        }
    }

    fn take_tcp_bytes(
        &mut self,
        model: &Network,
        from: (u8, SocketAddr),
        mut new: Vec<u8>,
        forwards: bool,
    ) {
        match &mut self.tcp.edge {
            Connection::First { bytes, plain } => {
                bytes.append(&mut new);
                let Ok(Progress::Complete(hello)) = hello::read(bytes) else { return };
                let (bytes, plain) = (std::mem::take(bytes), *plain);
                match Join::read(&hello).filter(|_| !plain) {
                    Some(join) => {
                        let rest = bytes[hello.end..].to_vec();
                        self.take_join(model, from, &join, rest, forwards);
                    }
                    None => self.take_plain(model, from, hello.end, bytes),
                }
            }
            Connection::Through { origin, skip } => {
                let (origin, dropped) = (*origin, new.len().min(*skip));
                *skip -= dropped;
                self.give(model, origin, &new[dropped..]);
            }
            Connection::Closed => {}
        }
    }

    fn take_join(
        &mut self,
        model: &Network,
        (edge, peer): (u8, SocketAddr),
        join: &Join,
        rest: Vec<u8>,
        forwards: bool,
    ) {
        let now = self.now;
        let here = |world: &mut Self, edge: u8| {
            let server = &mut world.edges[usize::from(edge)].server;
            (edge, server.handle_join_here(now, peer, join))
        };
        let (edge, outcome) = if model.bug == Some(Bug::IgnoresRoute) {
            here(self, edge)
        } else {
            match self.edges[usize::from(edge)].server.handle_join(now, peer, join) {
                JoinOutcome::Elsewhere(other) if forwards && other.get() <= model.edges => {
                    here(self, other.get() - 1)
                }
                JoinOutcome::Elsewhere(_) => here(self, edge),
                outcome => (edge, outcome),
            }
        };
        let unknown = model.bug == Some(Bug::TakesUnknownJoin);
        match outcome {
            JoinOutcome::Joined(handover) => {
                let asked = model.bug == Some(Bug::WrongOffset);
                let offset = if asked { join.server_offset } else { handover.server_offset };
                let answer = acceptance(&join.key, offset);
                self.tcp.down.push_back(Segment::Bytes(answer));
                self.carry_out(model, edge, handover);
                self.take_tcp_bytes(model, (edge, peer), rest, true);
            }
            JoinOutcome::Refused if unknown => {
                let answer = acceptance(&join.key, join.server_offset);
                self.tcp.down.push_back(Segment::Bytes(answer));
                let origin = self.open(edge, peer, false);
                self.tcp.edge = Connection::Through { origin, skip: 0 };
                self.take_tcp_bytes(model, (edge, peer), rest, true);
            }
            JoinOutcome::Fresh => {
                self.tcp.down.push_back(Segment::Bytes(acceptance(&join.key, 0)));
                self.tcp.connected = Some((edge, peer));
                self.tcp.edge = Connection::First { bytes: Vec::new(), plain: true };
                self.take_tcp_bytes(model, (edge, peer), rest, true);
            }
            JoinOutcome::Refused | JoinOutcome::Elsewhere(_) => {
                self.tcp.down.push_back(Segment::Bytes(REFUSAL.to_vec()));
                self.tcp.down.push_back(Segment::Finished);
                self.tcp.edge = Connection::Closed;
            }
        }
    }

    fn take_plain(
        &mut self,
        model: &Network,
        (edge, peer): (u8, SocketAddr),
        hello: usize,
        bytes: Vec<u8>,
    ) {
        let server = &mut self.edges[usize::from(edge)].server;
        let before = (model.bug == Some(Bug::ForgetsHello)).then(|| server.clone());
        let attachment = match model.bug {
            Some(Bug::PlainRunsAgain) => Attachment::New,
            _ => server.handle_plain(self.now, peer, &bytes[..hello]),
        };
        match (attachment, before) {
            (Attachment::Attached(handover), _) => self.carry_out(model, edge, handover),
            (Attachment::New, before) => {
                if let Some(before) = before {
                    *server = before;
                }
                let origin = self.open(edge, peer, true);
                self.tcp.edge = Connection::Through { origin, skip: 0 };
            }
        }
        self.take_tcp_bytes(model, (edge, peer), bytes, true);
    }

    fn carry_out(&mut self, model: &Network, edge: u8, handover: Handover) {
        let origin = self.edges[usize::from(edge)].sessions.remove(&handover.id);
        let origin = origin.expect("a session that is handed over was started");
        self.origins[origin].ended = Some(self.now);
        if !handover.server_bytes.is_empty() {
            self.tcp.down.push_back(Segment::Bytes(handover.server_bytes));
        }
        self.give(model, origin, &handover.client_bytes);
        let skip = if model.bug == Some(Bug::SkipsNothing) { 0 } else { handover.skip };
        self.tcp.edge = Connection::Through { origin, skip };
        match handover.end {
            OriginEnd::Open => {}
            OriginEnd::Finished => self.tcp.down.push_back(Segment::Finished),
            OriginEnd::Reset => self.tcp.down.push_back(Segment::Reset),
        }
    }

    pub(super) fn tcp_down(&mut self) {
        match self.tcp.down.pop_front() {
            Some(Segment::Bytes(bytes)) => self.client.handle_tcp_data(self.now, &bytes),
            Some(Segment::Finished) => self.client.handle_tcp_finished(),
            Some(Segment::Reset) => self.break_tcp(),
            None => {}
        }
    }

    /// Breaks TCP at the client, as plain TLS would see it, too.
    pub(super) fn break_tcp(&mut self) {
        self.tcp.broken = true;
        self.tcp.up.clear();
        self.tcp.down.clear();
        self.client.handle_tcp_failed();
        self.end.get_or_insert(End::Reset);
    }

    /// Closes the edge's end of TCP and its origin.
    pub(super) fn close_connection(&mut self) {
        let closed = std::mem::replace(&mut self.tcp.edge, Connection::Closed);
        if let Connection::Through { origin, .. } = closed {
            self.origins[origin].closed = true;
        }
    }

    pub(super) fn lose_origin(&mut self, number: usize) {
        let origin = &mut self.origins[number];
        (origin.closed, origin.lost) = (true, true);
        for edge in &mut self.edges {
            if let Some((id, _)) = edge.sessions.iter().find(|(_, it)| **it == number) {
                let id = *id;
                edge.server.handle_origin_lost(self.now, id);
                if !edge.server.runs(&id) {
                    edge.sessions.remove(&id);
                }
            }
        }
        if matches!(self.tcp.edge, Connection::Through { origin, .. } if origin == number) {
            self.tcp.down.push_back(Segment::Reset);
            self.tcp.edge = Connection::Closed;
        }
    }

    /// Replaces the process of an edge: the new one remembers nothing, and takes over a connection
    /// of which the old one has read nothing.
    pub(super) fn restart(&mut self, model: &Network, number: u8) {
        let edge = &mut self.edges[usize::from(number)];
        edge.start += 1;
        edge.server = model.server(number, edge.start);
        edge.sessions.clear();
        edge.requests.clear();
        let ours = |origin: &&mut Origin| origin.edge == number;
        self.origins.iter_mut().filter(ours).for_each(|origin| origin.closed = true);
        let at = self.tcp.connected.is_some_and(|(edge, _)| edge == number);
        let breaks = match &self.tcp.edge {
            Connection::First { bytes, plain } => at && (*plain || !bytes.is_empty()),
            Connection::Through { origin, .. } => at || self.origins[*origin].edge == number,
            Connection::Closed => false,
        };
        if breaks {
            self.tcp.edge = Connection::Closed;
            self.tcp.down.push_back(Segment::Reset);
        }
    }
}
