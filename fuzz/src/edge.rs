//! A model of the edge around a `Server`: one client's TCP stream, and the origin streams.

use std::net::SocketAddr;

use headstart_proto::hello::{self, Progress};
use headstart_proto::join::{Join, REFUSAL, acceptance};
use headstart_proto::{
    Attachment, Handover, Instant, JoinOutcome, OriginEnd, Server, ServerConfig, ServerEvent,
    SessionId,
};

/// A stream to the origin.
pub struct Origin {
    /// Bytes that the origin received.
    pub got: Vec<u8>,
    /// The edge closed it, unjoined.
    pub closed: bool,
    /// The client sends nothing more.
    pub finished: bool,
    /// While the session is not joined.
    session: Option<SessionId>,
    /// Its bytes that the server did not take before the join.
    held: Vec<u8>,
    end: OriginEnd,
}

/// The client's TCP stream as the edge reads it.
enum Tcp {
    /// The bytes before it is known what they are; `joined` once a join was answered that began a
    /// new stream.
    Start {
        bytes: Vec<u8>,
        joined: bool,
    },
    /// To this origin, without the next `skip` bytes.
    Relay {
        origin: usize,
        skip: usize,
    },
    Closed,
}

pub struct Edge {
    pub server: Server,
    pub origins: Vec<Origin>,
    /// Bytes to write to the client's TCP stream.
    pub to_tcp: Vec<u8>,
    /// End of that stream behind them.
    pub tcp_end: OriginEnd,
    tcp: Tcp,
}

impl Edge {
    pub fn new(config: ServerConfig) -> Self {
        Self {
            server: Server::new(config),
            origins: Vec::new(),
            to_tcp: Vec::new(),
            tcp_end: OriginEnd::Open,
            tcp: Tcp::Start { bytes: Vec::new(), joined: false },
        }
    }

    /// Forgets everything; TCP must not have begun.
    pub fn restart(&mut self, config: ServerConfig) {
        for origin in &mut self.origins {
            origin.closed = true;
            origin.session = None;
        }
        self.server = Server::new(config);
    }

    pub fn has_tcp_begun(&self) -> bool {
        !matches!(&self.tcp, Tcp::Start { bytes, joined: false } if bytes.is_empty())
    }

    /// Takes the server's events; to be called after everything that was given to `server`.
    pub fn drain_events(&mut self) {
        while let Some(event) = self.server.poll_event() {
            match event {
                ServerEvent::Started { id, bytes, .. } => self.open(Some(id), bytes),
                ServerEvent::ClientBytes { id, bytes } => {
                    if let Some(origin) = self.of_session(id) {
                        self.origins[origin].got.extend_from_slice(&bytes);
                    }
                }
                ServerEvent::Expired { id } => {
                    if let Some(origin) = self.of_session(id) {
                        self.origins[origin].closed = true;
                        self.origins[origin].session = None;
                    }
                }
            }
        }
    }

    /// The origin stream that has neither ended nor been closed.
    pub fn live(&self) -> Option<usize> {
        self.origins.iter().rposition(|origin| !origin.closed && origin.end == OriginEnd::Open)
    }

    pub fn origin_writes(&mut self, index: usize, bytes: &[u8]) {
        let origin = &mut self.origins[index];
        match origin.session {
            Some(id) if origin.held.is_empty() => {
                let taken = self.server.handle_origin_data(id, bytes);
                origin.held.extend_from_slice(&bytes[taken..]);
            }
            Some(_) => origin.held.extend_from_slice(bytes),
            None => self.to_tcp.extend_from_slice(bytes),
        }
    }

    pub fn origin_finishes(&mut self, index: usize) {
        let origin = &mut self.origins[index];
        origin.end = OriginEnd::Finished;
        match origin.session {
            Some(id) if origin.held.is_empty() => self.server.handle_origin_finished(id),
            Some(_) => {}
            None => self.tcp_end = OriginEnd::Finished,
        }
    }

    pub fn origin_breaks(&mut self, now: Instant, index: usize) {
        let origin = &mut self.origins[index];
        origin.end = OriginEnd::Reset;
        match origin.session {
            Some(id) => self.server.handle_origin_lost(now, id),
            None => self.tcp_end = OriginEnd::Reset,
        }
    }

    pub fn handle_tcp(&mut self, now: Instant, peer: SocketAddr, bytes: &[u8]) {
        match &mut self.tcp {
            Tcp::Start { bytes: start, .. } => {
                start.extend_from_slice(bytes);
                self.begin(now, peer);
            }
            Tcp::Relay { origin, skip } => {
                let known = bytes.len().min(*skip);
                *skip -= known;
                self.origins[*origin].got.extend_from_slice(&bytes[known..]);
            }
            Tcp::Closed => {}
        }
        self.drain_events();
    }

    pub fn handle_tcp_finished(&mut self) {
        if let Tcp::Relay { origin, .. } = self.tcp {
            self.origins[origin].finished = true;
        }
    }

    fn begin(&mut self, now: Instant, peer: SocketAddr) {
        let Tcp::Start { bytes, joined } = &self.tcp else {
            return;
        };
        let bytes = bytes.clone();
        let hello = match hello::read(&bytes) {
            Ok(Progress::Incomplete) => return,
            Ok(Progress::Complete(hello)) => hello,
            Err(_) => return self.relay_new(&bytes),
        };
        match Join::read(&hello).filter(|_| !joined) {
            Some(join) => self.join(now, peer, &join, &bytes[hello.end..]),
            None => self.plain(now, peer, &bytes, hello.end),
        }
    }

    fn join(&mut self, now: Instant, peer: SocketAddr, join: &Join, rest: &[u8]) {
        match self.server.handle_join(now, peer, join) {
            JoinOutcome::Joined(handover) => {
                self.to_tcp.extend(acceptance(&join.key, handover.server_offset));
                self.take_over(now, peer, handover, rest);
            }
            JoinOutcome::Fresh => {
                self.to_tcp.extend(acceptance(&join.key, 0));
                self.tcp = Tcp::Start { bytes: rest.to_vec(), joined: true };
                self.drain_events();
                self.begin(now, peer);
            }
            JoinOutcome::Refused => {
                self.to_tcp.extend_from_slice(&REFUSAL);
                self.close();
            }
            JoinOutcome::Elsewhere(edge) => panic!("edge {edge} of no fleet"),
        }
    }

    fn plain(&mut self, now: Instant, peer: SocketAddr, bytes: &[u8], end: usize) {
        match self.server.handle_plain(now, peer, &bytes[..end]) {
            Attachment::Attached(handover) => self.take_over(now, peer, handover, bytes),
            Attachment::New => self.relay_new(bytes),
        }
    }

    fn relay_new(&mut self, bytes: &[u8]) {
        self.open(None, bytes.to_vec());
        let origin = self.origins.len() - 1;
        self.tcp = Tcp::Relay { origin, skip: 0 };
    }

    fn take_over(&mut self, now: Instant, peer: SocketAddr, handover: Handover, rest: &[u8]) {
        let Some(index) = self.of_session(handover.id) else {
            panic!("a session that never started was handed over");
        };
        let origin = &mut self.origins[index];
        origin.session = None;
        origin.got.extend_from_slice(&handover.client_bytes);
        self.to_tcp.extend_from_slice(&handover.server_bytes);
        self.to_tcp.append(&mut origin.held);
        self.tcp_end = origin.end;
        self.tcp = Tcp::Relay { origin: index, skip: handover.skip };
        self.handle_tcp(now, peer, rest);
    }

    fn open(&mut self, session: Option<SessionId>, got: Vec<u8>) {
        if let Some(forgotten) = session.and_then(|id| self.of_session(id)) {
            self.origins[forgotten].session = None;
        }
        self.origins.push(Origin {
            got,
            closed: false,
            finished: false,
            session,
            held: Vec::new(),
            end: OriginEnd::Open,
        });
    }

    fn of_session(&self, id: SessionId) -> Option<usize> {
        self.origins.iter().position(|origin: &Origin| origin.session == Some(id))
    }

    fn close(&mut self) {
        self.tcp = Tcp::Closed;
        self.tcp_end = OriginEnd::Finished;
    }
}
