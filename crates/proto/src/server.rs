//! All unjoined sessions of one edge (docs/draft-headstart-turbotls.md#edge-behavior).

mod admission;
mod recent;
mod session;
#[cfg(test)]
mod tests;
mod work;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

pub use admission::host;
use admission::{Admission, Stage};
use recent::Recent;
use session::{Phase, Session};
use work::Work;

use crate::error::Discard;
use crate::event::ServerEvent;
use crate::hello::{self, ClientHello};
use crate::id::{HelloHash, RouteTag, SessionId};
use crate::join::Join;
use crate::limits::{
    GATHERING_LIFE, SESSION_LIFE, SESSION_LIFE_SPARE, SESSIONS, SESSIONS_GATHERING, UNPROVEN_SHARE,
};
use crate::route::{EdgeNumber, Routes};
use crate::time::Instant;
use crate::wire::Request;

/// Policy of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub struct ServerConfig {
    /// Maximum number of concurrent streams to origins; unproven sessions get one in
    /// [`UNPROVEN_SHARE`] of them, and at most [`SESSIONS`].
    pub origin_streams: usize,
    /// Processor time for handshakes of unproven sessions in a second, with
    /// [`UNPROVEN_WORK_BURST`](crate::limits::UNPROVEN_WORK_BURST) times as much at once.
    pub unproven_work: Duration,
    /// Passes bytes after the ClientHello on before the join (`ed=1`); with
    /// [`same_address`](Self::same_address) they wait for the join.
    pub early_data: bool,
    /// Accepts a join only from the session's own address: needed if the origin is told the
    /// address.
    pub same_address: bool,
    /// Sent in every response: random for each start of the edge, so that clients cannot confuse
    /// the answers of two starts; never zero. In a fleet, part of it goes into the tags of
    /// [`Routes`].
    pub tag: RouteTag,
}

impl Default for ServerConfig {
    fn default() -> Self {
        let origin_streams = SESSIONS * UNPROVEN_SHARE;
        Self {
            origin_streams,
            unproven_work: Duration::MAX,
            early_data: false,
            same_address: false,
            tag: RouteTag([0, 0, 0, 1]),
        }
    }
}

impl ServerConfig {
    /// Returns true if early data may go to the origin now. An origin that is told the client's
    /// address must not act before the address is proven.
    const fn passes_early_data(&self) -> bool {
        // W-RUN-4
        self.early_data && !self.same_address
    }
}

/// A datagram to send.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub struct Transmit {
    /// The client's address.
    pub to: SocketAddr,
    /// The local address that the client wrote to, if known.
    pub from: Option<IpAddr>,
    /// The UDP payload.
    pub bytes: Vec<u8>,
}

/// Everything TCP needs to continue a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handover {
    /// The session, which has ended in the server.
    pub id: SessionId,
    /// Client bytes that the origin has not received; they precede those from TCP.
    pub client_bytes: Vec<u8>,
    /// Number of bytes at the start of the client's TCP stream that are already known: drop them.
    pub skip: usize,
    /// Offset in the server stream from which TCP continues: the start of a record.
    pub server_offset: u32,
    /// Server bytes to send first over TCP.
    pub server_bytes: Vec<u8>,
    /// State of the origin's stream after `server_bytes`.
    pub end: OriginEnd,
}

/// State of the origin's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub enum OriginEnd {
    /// More may come.
    Open,
    /// The origin finished its stream: shut TCP down for writing.
    Finished,
    /// The origin broke off: reset TCP.
    Reset,
}

/// The result of a [`Join`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinOutcome {
    /// Accept it from the handover's offset on, then continue as the handover says.
    Joined(Handover),
    /// The session is not known here. Accept it from offset 0 on; what follows on TCP is a client
    /// stream from its start.
    Fresh,
    /// Refuse it and close.
    Refused,
    /// Another edge of the fleet answered the client: forward the stream there, join included. If
    /// that is impossible, call [`Server::handle_join_here`] instead.
    Elsewhere(EdgeNumber),
}

/// A TCP stream that began with a ClientHello which is no join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attachment {
    /// Its ClientHello is already running: write no answer; the handover's bytes go first.
    Attached(Handover),
    /// An ordinary connection.
    New,
}

/// All unjoined sessions of one edge, and a memory of those that just ended.
///
/// Feed it datagrams and the origin's bytes. After each call, drain
/// [`poll_event`](Self::poll_event) and [`poll_transmit`](Self::poll_transmit), and call
/// [`handle_timeout`](Self::handle_timeout) at [`poll_timeout`](Self::poll_timeout).
/// [`limits`](crate::limits) bound memory and work, whoever sends.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, Hash))]
pub struct Server {
    config: ServerConfig,
    /// Fleet routing; `None` if this edge is alone.
    routes: Option<Routes>,
    paused: bool,
    sessions: BTreeMap<SessionId, Session>,
    /// Deadlines of sessions without a whole ClientHello, oldest first; these may be evicted.
    gathering: BTreeSet<(Instant, SessionId)>,
    /// Ends of running sessions' promised time.
    running: BTreeSet<(Instant, SessionId)>,
    /// Deadlines of running sessions that outlived their promised time, oldest first; these may be
    /// evicted.
    spared: BTreeSet<(Instant, SessionId)>,
    admission: Admission,
    work: Work,
    /// Sessions that ended: their datagrams are dropped, their joins refused.
    ended: Recent<SessionId, ()>,
    /// ClientHellos that started or ended.
    hellos: Recent<HelloHash, ()>,
    /// ClientHellos of all running sessions, however old.
    running_hellos: BTreeMap<HelloHash, SessionId>,
    transmits: VecDeque<Transmit>,
    /// Sessions whose first answer is pending: without payload, unless the origin is faster.
    owed: VecDeque<SessionId>,
    events: VecDeque<ServerEvent>,
}

impl Server {
    /// Creates an edge without sessions.
    #[must_use]
    pub fn new(config: ServerConfig) -> Self {
        Self {
            config,
            routes: None,
            paused: false,
            sessions: BTreeMap::new(),
            gathering: BTreeSet::new(),
            running: BTreeSet::new(),
            spared: BTreeSet::new(),
            admission: Admission::default(),
            work: Work::default(),
            ended: Recent::default(),
            hellos: Recent::default(),
            running_hellos: BTreeMap::new(),
            transmits: VecDeque::new(),
            owed: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Replaces the configuration except the tag, which running sessions rely on.
    pub const fn configure(&mut self, config: ServerConfig) {
        self.config = ServerConfig { tag: self.config.tag, ..config };
    }

    /// Sets the fleet, or its new keys. Existing sessions keep their tags.
    pub fn set_routes(&mut self, routes: Option<Routes>) {
        self.routes = routes;
    }

    /// Stops or resumes starting sessions: for a driver that could not serve one.
    ///
    /// While paused, clients get no answer and fall back to TCP. Running sessions continue, and
    /// incomplete ones wait.
    pub const fn pause(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// Returns the number of unjoined sessions, whose addresses are unproven.
    #[must_use]
    pub fn unproven(&self) -> usize {
        self.sessions.len()
    }

    /// Takes a datagram `from` a client, sent to the local address `to`.
    ///
    /// # Errors
    /// [`Discard`] if it was dropped; the caller need only count it.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        from: SocketAddr,
        to: Option<IpAddr>,
        datagram: &[u8],
    ) -> Result<(), Discard> {
        // W-FRAME-4, W-ADMIT-8
        let request = Request::parse(datagram).map_err(Discard::Wire)?;
        let mut hello = None;
        if !self.sessions.contains_key(&request.id) {
            // First, as it is cheap: in a flood most go no further.
            if self.work.is_used_up(now, self.config.unproven_work) {
                return Err(Discard::WorkLimit);
            }
            if request.offset == 0 {
                hello = hello::read(request.payload).map_err(Discard::Hello)?.complete();
            }
            self.admit(now, from, to, request.id)?;
        }
        let result = self.take_request(now, from, &request, hello, datagram.len());
        if matches!(result, Err(Discard::Hello(_) | Discard::HelloRuns)) {
            self.end(now, request.id);
        }
        result
    }

    /// Takes bytes from the origin. Returns how many were taken; the rest waits for the join.
    pub fn handle_origin_data(&mut self, id: SessionId, bytes: &[u8]) -> usize {
        let Some(session) = self.sessions.get_mut(&id) else {
            return 0;
        };
        let taken = session.take_server_bytes(bytes);
        session.answer(id, &mut self.transmits);
        taken
    }

    /// Reports the processor time that the handshake of a session took until it was answered.
    ///
    /// Without it the session counts as the costliest one of late, or as
    /// [`HANDSHAKE_COST`](crate::limits::HANDSHAKE_COST).
    pub fn handle_cost(&mut self, id: SessionId, cost: Duration) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.cost = self.work.measured(session.cost, cost);
        }
    }

    /// Reports that the origin's stream is finished after the bytes taken so far.
    pub fn handle_origin_finished(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.end(OriginEnd::Finished);
        }
    }

    /// Reports that the origin cannot be reached, or broke off.
    ///
    /// If it sent nothing, the server forgets the session: the client's TCP stream starts over and
    /// meets the same failure. Otherwise the client gets the bytes there are, then the reset.
    pub fn handle_origin_lost(&mut self, now: Instant, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        // W-REPLY-3
        session.end(OriginEnd::Reset);
        if !session.has_server_bytes() {
            self.remove(now, id);
            self.ended.forget(&id);
        }
    }

    /// Returns true if a session runs here, so that a join may continue it.
    #[must_use]
    pub fn runs(&self, id: &SessionId) -> bool {
        self.sessions.get(id).is_some_and(Session::is_running)
    }

    /// Returns true if another process of this edge may have the session of a join: somebody has
    /// answered its client, no other edge is named, and no session with its tag runs here.
    #[must_use]
    pub fn is_stray(&self, join: &Join) -> bool {
        let session = self.sessions.get(&join.key.session_id());
        let is_here = session.is_some_and(|it| it.is_running() && it.tag == join.tag);
        join.tag != RouteTag::default() && !is_here && self.owner(join).is_none()
    }

    /// Takes a join that arrived on TCP from `peer`.
    ///
    /// A session is joined once; a wrong key names another session, so keys cannot be probed. With
    /// another edge's tag, that edge decides, even if this one knows the session: a copy of the
    /// flight may have arrived here, but the client holds the other edge's bytes.
    pub fn handle_join(&mut self, now: Instant, peer: SocketAddr, join: &Join) -> JoinOutcome {
        match self.owner(join) {
            // W-FLEET-1
            Some(edge) => JoinOutcome::Elsewhere(edge),
            None => self.handle_join_here(now, peer, join),
        }
    }

    /// Returns the other edge that the join's tag names.
    fn owner(&self, join: &Join) -> Option<EdgeNumber> {
        let routes = self.routes.as_ref()?;
        let owner = routes.owner(join.tag, &join.key.session_id())?;
        (owner != routes.own).then_some(owner)
    }

    /// Handles a join as [`handle_join`](Self::handle_join) does, but always here: for one that
    /// another edge has forwarded, and for one that could not be forwarded.
    pub fn handle_join_here(&mut self, now: Instant, peer: SocketAddr, join: &Join) -> JoinOutcome {
        let id = join.key.session_id();
        let from_start = join.client_offset == 0 && join.server_offset == 0;
        // W-TAKEOVER-2
        let unknown = if from_start { JoinOutcome::Fresh } else { JoinOutcome::Refused };
        let running = self.sessions.get(&id).filter(|session| session.is_running());
        // Under another tag, another start of this edge, or another edge, answered the client,
        // which may hold its bytes; a late copy of the flight started the session here.
        let here = running.filter(|it| [it.tag, RouteTag::default()].contains(&join.tag));
        let Some(session) = here else {
            let gathers = running.is_none() && self.sessions.contains_key(&id);
            if gathers {
                self.end(now, id);
            }
            // W-TAKEOVER-1
            if self.ended.get(now, &id).is_some() {
                return JoinOutcome::Refused;
            }
            // W-TAKEOVER-9
            let may_be_forgotten = self.config.early_data && !self.ended.is_complete(now);
            if gathers || from_start && !may_be_forgotten {
                // Its datagrams come late now, and must not start a second stream; nor may another
                // join.
                self.ended.insert(now, id, ());
            }
            return if may_be_forgotten { JoinOutcome::Refused } else { unknown };
        };
        // W-TAKEOVER-3, W-TAKEOVER-10
        if self.config.same_address && !session.is_from(peer.ip()) {
            self.end(now, id);
            return unknown;
        }
        // W-TAKEOVER-4
        if !session.allows(join.client_offset, join.server_offset) {
            return JoinOutcome::Refused;
        }
        let handover = self.hand_over(now, peer, id, join.client_offset, join.server_offset);
        handover.map_or(JoinOutcome::Refused, JoinOutcome::Joined)
    }

    /// Takes a TCP stream from `peer` that begins with the whole ClientHello `hello`, without a
    /// join.
    ///
    /// If that ClientHello runs for a session of the same address, the stream takes the session
    /// over. Otherwise the server remembers the ClientHello, so that a late copy over UDP starts
    /// nothing, and forgets its fragments that came over UDP.
    pub fn handle_plain(&mut self, now: Instant, peer: SocketAddr, hello: &[u8]) -> Attachment {
        let hash = HelloHash::from_bytes(hello);
        let running =
            self.running_hellos.get(&hash).copied().filter(|id| {
                self.sessions.get(id).is_some_and(|session| session.is_from(peer.ip()))
            });
        // W-PLAIN-1, W-PLAIN-3
        if let Some(handover) = running.and_then(|id| self.hand_over(now, peer, id, 0, 0)) {
            return Attachment::Attached(handover);
        }
        // W-PLAIN-2
        if self.hellos.get(now, &hash).is_none() {
            self.hellos.insert(now, hash, ());
        }
        self.forget_fragments(now, peer.ip(), hello);
        Attachment::New
    }

    /// Frees the slot of a session whose ClientHello came on TCP: the oldest of the address that
    /// holds nothing else.
    fn forget_fragments(&mut self, now: Instant, address: IpAddr, hello: &[u8]) {
        let oldest = self.admission.of_host(address).find(|id| {
            let session = self.sessions.get(id).filter(|session| !session.is_running());
            session.is_some_and(|session| session.is_from(address) && session.may_be(hello))
        });
        if let Some(id) = oldest {
            self.end(now, id);
        }
    }

    /// Reports that the time given by [`poll_timeout`](Self::poll_timeout) has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some((deadline, id)) = self.next_deadline() {
            if deadline > now {
                break;
            }
            if !self.spare(now, id) {
                self.end(now, id);
            }
        }
        self.ended.expire(now);
        self.hellos.expire(now);
        self.admission.expire(now);
    }

    /// Returns the time at which to call [`handle_timeout`](Self::handle_timeout).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.next_deadline().map(|(deadline, _)| deadline)
    }

    /// Returns the next datagram to send.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        while let Some(id) = self.owed.pop_front() {
            if let Some(session) = self.sessions.get_mut(&id) {
                session.acknowledge(id, &mut self.transmits);
            }
        }
        self.transmits.pop_front()
    }

    /// Returns the next task for the driver.
    pub fn poll_event(&mut self) -> Option<ServerEvent> {
        self.events.pop_front()
    }

    fn admit(
        &mut self,
        now: Instant,
        from: SocketAddr,
        to: Option<IpAddr>,
        id: SessionId,
    ) -> Result<(), Discard> {
        if self.ended.get(now, &id).is_some() {
            return Err(Discard::Ended);
        }
        if self.paused {
            self.give_way(now);
            return Err(Discard::Paused);
        }
        self.admission.check(now, from.ip())?;
        let total = self.places();
        while self.gathering.len() >= SESSIONS_GATHERING.min(total) {
            self.displace_gathering(now).ok_or(Discard::SessionLimit)?;
        }
        // W-ADMIT-3
        while self.sessions.len() >= total {
            let displaced = self.displace_gathering(now).is_some() || self.give_way(now);
            displaced.then_some(()).ok_or(Discard::SessionLimit)?;
        }
        self.admission.enter(from.ip(), id);
        let deadline = now + GATHERING_LIFE;
        self.gathering.insert((deadline, id));
        self.sessions.insert(id, Session::new(from, to, deadline, self.tag(&id)));
        Ok(())
    }

    /// Returns the tag for the responses of a session that begins now.
    fn tag(&self, id: &SessionId) -> RouteTag {
        let start = u32::from_be_bytes(self.config.tag.0);
        self.routes.as_ref().map_or(self.config.tag, |routes| routes.tag(start, id))
    }

    /// Ends the oldest session that outlived its promised time; returns false if there is none. For
    /// a driver that needs its slot.
    pub fn give_way(&mut self, now: Instant) -> bool {
        let oldest = self.spared.first().copied();
        if let Some((_, oldest)) = oldest {
            self.end(now, oldest);
        }
        oldest.is_some()
    }

    /// Ends the oldest session that was promised nothing.
    fn displace_gathering(&mut self, now: Instant) -> Option<()> {
        let (_, oldest) = self.gathering.first().copied()?;
        self.end(now, oldest);
        Some(())
    }

    /// Returns the maximum number of concurrent sessions.
    fn places(&self) -> usize {
        SESSIONS.min(self.config.origin_streams / UNPROVEN_SHARE)
    }

    fn take_request(
        &mut self,
        now: Instant,
        from: SocketAddr,
        request: &Request<'_>,
        hello: Option<ClientHello>,
        size: usize,
    ) -> Result<(), Discard> {
        let Some(session) = self.sessions.get_mut(&request.id) else {
            return Err(Discard::Ended);
        };
        session.take_request(from, request, size)?;
        if session.is_running() {
            if session.passes_early_data() {
                let bytes = session.take_client_bytes();
                if !bytes.is_empty() {
                    self.events.push_back(ServerEvent::ClientBytes { id: request.id, bytes });
                }
            }
        } else if let Some(hello) =
            hello.map_or_else(|| session.parse_hello(), |hello| Ok(Some(hello)))?
        {
            if self.paused {
                return Err(Discard::Paused);
            }
            // W-RUN-1
            self.start(now, request.id, hello)?;
        }
        if let Some(session) = self.sessions.get_mut(&request.id) {
            session.answer(request.id, &mut self.transmits);
        }
        Ok(())
    }

    /// Starts a session whose ClientHello is complete: it gets its first answer, and the origin its
    /// bytes.
    fn start(&mut self, now: Instant, id: SessionId, hello: ClientHello) -> Result<(), Discard> {
        let hello_end = hello.end;
        let Some(session) = self.sessions.get_mut(&id) else {
            return Err(Discard::Ended);
        };
        let hash = HelloHash::from_bytes(session.hello_bytes(hello_end));
        if self.hellos.get(now, &hash).is_some() || self.running_hellos.contains_key(&hash) {
            // W-RUN-2
            return Err(Discard::HelloRuns);
        }
        let granted = self.config.unproven_work;
        session.cost = self.work.start(now, granted).ok_or(Discard::WorkLimit)?;
        // A copy of a session that was forgotten early looks new.
        // W-RUN-5
        let is_new = self.hellos.is_complete(now) && self.ended.is_complete(now);
        let early_data = self.config.passes_early_data() && is_new;
        self.hellos.insert(now, hash, ());
        self.running_hellos.insert(hash, id);
        self.gathering.remove(&(session.deadline, id));
        // W-END-1
        session.deadline = now + SESSION_LIFE;
        self.running.insert((session.deadline, id));
        self.admission.advance(session.peer.ip(), id, Stage::Running);
        session.phase = Phase::Running { hello: hash, passed: hello_end, early_data };
        let mut bytes = session.hello_bytes(hello_end).to_vec();
        if early_data {
            bytes.append(&mut session.take_client_bytes());
        }
        let peer = session.peer;
        // W-RUN-3
        self.owed.push_back(id);
        let hello = Box::new(hello);
        self.events.push_back(ServerEvent::Started { id, peer, hello, bytes });
        while let Some(spared) = self.admission.crowded_out(now, peer.ip()) {
            self.end(now, spared);
        }
        Ok(())
    }

    /// Hands a session over to TCP from `peer`.
    fn hand_over(
        &mut self,
        now: Instant,
        peer: SocketAddr,
        id: SessionId,
        client_offset: u32,
        server_offset: u32,
    ) -> Option<Handover> {
        let session = self.remove(now, id)?;
        self.work.joined(session.cost);
        if session.is_from(peer.ip()) {
            self.admission.joined(now, peer.ip());
        }
        session.hand_over(id, client_offset, server_offset)
    }

    /// Keeps a session past its promised time, while its origin is open, until another needs its
    /// slot; such sessions get at most half of all slots.
    fn spare(&mut self, now: Instant, id: SessionId) -> bool {
        let Some(session) = self.sessions.get_mut(&id) else { return false };
        if !session.is_origin_open() || !self.running.remove(&(session.deadline, id)) {
            return false;
        }
        // W-END-3
        session.deadline = session.deadline + (SESSION_LIFE_SPARE - SESSION_LIFE);
        self.spared.insert((session.deadline, id));
        self.admission.advance(session.peer.ip(), id, Stage::Spared);
        while self.spared.len() > self.places() / 2 {
            self.give_way(now);
        }
        true
    }

    /// Ends a session that nobody will join, and closes the origin's stream.
    fn end(&mut self, now: Instant, id: SessionId) {
        if self.remove(now, id).is_some_and(|session| session.is_running()) {
            self.events.push_back(ServerEvent::Expired { id });
        }
    }

    fn remove(&mut self, now: Instant, id: SessionId) -> Option<Session> {
        let session = self.sessions.remove(&id)?;
        self.admission.leave(session.peer.ip(), id);
        self.gathering.remove(&(session.deadline, id));
        self.running.remove(&(session.deadline, id));
        self.spared.remove(&(session.deadline, id));
        // W-TAKEOVER-6, W-END-2
        if let Some(hello) = session.hello() {
            self.ended.insert(now, id, ());
            self.hellos.insert(now, hello, ());
            self.running_hellos.remove(&hello);
        }
        Some(session)
    }

    fn next_deadline(&self) -> Option<(Instant, SessionId)> {
        let first = [&self.gathering, &self.running, &self.spared].map(BTreeSet::first);
        first.into_iter().flatten().min().copied()
    }
}
