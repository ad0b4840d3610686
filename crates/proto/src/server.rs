//! All unjoined sessions of one edge (docs/wire.md section 6).

mod admission;
mod recent;
mod session;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use admission::{Admission, Stage};
use recent::Recent;
use session::{Phase, Session};

use crate::error::Discard;
use crate::event::ServerEvent;
use crate::hello::{self, ClientHello};
use crate::id::{HelloHash, RouteTag, SessionId};
use crate::limits::{
    GATHERING_LIFE, SESSION_LIFE, SESSION_LIFE_SPARE, SESSIONS, SESSIONS_GATHERING, UNPROVEN_SHARE,
};
use crate::route::{EdgeNumber, Routes};
use crate::time::Instant;
use crate::wire::{Join, JoinAnswer, Request, Status};

/// Options of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Streams to origins at the same time; unproven sessions get one in [`UNPROVEN_SHARE`] of
    /// them, and at most [`SESSIONS`].
    pub origin_streams: usize,
    /// True to pass bytes behind the ClientHello on before the join (`ed=1`); with
    /// [`same_address`](Self::same_address) they wait for the join.
    pub early_data: bool,
    /// True if a session may be joined only from its own address: where the origin is told it.
    pub same_address: bool,
    /// Sent in every response: random for each start of the edge, so that nobody takes the answers
    /// of two starts for one; never zero. In a fleet a part of it goes into the tags of [`Routes`].
    pub tag: RouteTag,
}

impl Default for ServerConfig {
    fn default() -> Self {
        let origin_streams = SESSIONS * UNPROVEN_SHARE;
        Self { origin_streams, early_data: false, same_address: false, tag: RouteTag::default() }
    }
}

impl ServerConfig {
    /// An origin that is told the client's address acts on nothing before the address is proven.
    const fn passes_early_data(&self) -> bool {
        self.early_data && !self.same_address
    }
}

/// A datagram to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The client.
    pub to: SocketAddr,
    /// The own address that the client wrote to, where that is known.
    pub from: Option<IpAddr>,
    /// The UDP payload.
    pub bytes: Vec<u8>,
}

/// Everything that TCP has to go on with when a session passes to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handover {
    /// The session, now ended here.
    pub id: SessionId,
    /// Client bytes that the origin did not get yet; they come before those of TCP.
    pub client_bytes: Vec<u8>,
    /// So many bytes at the start of the client's TCP stream are known already: drop them.
    pub skip: usize,
    /// Server bytes that TCP has to begin with.
    pub server_bytes: Vec<u8>,
    /// State of the origin's stream behind `server_bytes`.
    pub end: OriginEnd,
}

/// State of the origin's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OriginEnd {
    /// More may come.
    Open,
    /// It finished its stream: TCP is shut down for writing.
    Finished,
    /// It broke off: TCP is reset.
    Reset,
}

/// The end of a [`Join`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinOutcome {
    /// Write the answer, then go on as the handover says.
    Joined(JoinAnswer, Handover),
    /// Write the answer; what follows on TCP is a client stream from its start.
    Fresh(JoinAnswer),
    /// Write the answer and close.
    Refused(JoinAnswer),
    /// Another edge of the fleet answered the client: forward the stream there, frame and all.
    /// Where that cannot be, ask [`Server::handle_join_here`] instead.
    Elsewhere(EdgeNumber),
}

/// A TCP stream that began with a ClientHello instead of a join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attachment {
    /// Its ClientHello runs already: no frame is written, the handover's bytes go first.
    Attached(Handover),
    /// An ordinary connection.
    New,
}

/// All sessions of one edge that are not joined, and the memory of those that just ended.
///
/// Feed it datagrams and the origin's bytes; after each call take [`poll_event`](Self::poll_event)
/// and [`poll_transmit`](Self::poll_transmit) until they are empty, and call
/// [`handle_timeout`](Self::handle_timeout) at [`poll_timeout`](Self::poll_timeout). Memory and
/// work are bounded by [`limits`](crate::limits), whoever sends.
#[derive(Debug)]
pub struct Server {
    config: ServerConfig,
    /// Routes to other edges; `None`: this edge is alone.
    routes: Option<Routes>,
    paused: bool,
    sessions: BTreeMap<SessionId, Session>,
    /// Ends of sessions without a whole ClientHello, the oldest first; they may be displaced.
    gathering: BTreeSet<(Instant, SessionId)>,
    /// Ends of running sessions' promised time.
    running: BTreeSet<(Instant, SessionId)>,
    /// Ends of running sessions that outlived it, the oldest first; they may be displaced.
    spared: BTreeSet<(Instant, SessionId)>,
    admission: Admission,
    /// Sessions that ended: their datagrams are dropped, their joins refused.
    ended: Recent<SessionId, ()>,
    /// ClientHellos that started or ended.
    hellos: Recent<HelloHash, ()>,
    /// ClientHellos of the sessions that run, however long.
    running_hellos: BTreeMap<HelloHash, SessionId>,
    transmits: VecDeque<Transmit>,
    /// Sessions whose first answer is owed: without payload, unless the origin is faster.
    owed: VecDeque<SessionId>,
    events: VecDeque<ServerEvent>,
}

impl Server {
    /// An edge without sessions.
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
            ended: Recent::default(),
            hellos: Recent::default(),
            running_hellos: BTreeMap::new(),
            transmits: VecDeque::new(),
            owed: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Replaces the configuration but for the tag, by which running sessions go on.
    pub const fn configure(&mut self, config: ServerConfig) {
        self.config = ServerConfig { tag: self.config.tag, ..config };
    }

    /// Tells it of its fleet, or of new keys. Sessions that are there keep their tags.
    pub fn set_routes(&mut self, routes: Option<Routes>) {
        self.routes = routes;
    }

    /// Stops sessions from starting, while the driver could not serve one.
    ///
    /// Clients hear nothing then, and come over TCP. What runs goes on, and what is half there
    /// waits.
    pub const fn pause(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// Sessions that are not joined: addresses that are not proven.
    #[must_use]
    pub fn unproven(&self) -> usize {
        self.sessions.len()
    }

    /// A datagram `from` a client, sent to the own address `to`.
    ///
    /// # Errors
    /// [`Discard`] where it was dropped; nothing is to be done about it but count.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        from: SocketAddr,
        to: Option<IpAddr>,
        datagram: &[u8],
    ) -> Result<(), Discard> {
        let request = Request::parse(datagram).map_err(Discard::Wire)?;
        let mut hello = None;
        if !self.sessions.contains_key(&request.id) {
            if request.offset == 0 && !request.payload.is_empty() {
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

    /// Bytes of the origin. Returns how many were taken; the rest waits for the join.
    pub fn handle_origin_data(&mut self, id: SessionId, bytes: &[u8]) -> usize {
        let Some(session) = self.sessions.get_mut(&id) else {
            return 0;
        };
        let taken = session.take_server_bytes(bytes);
        session.answer(id, &mut self.transmits);
        taken
    }

    /// The origin's stream is finished behind the bytes taken so far.
    pub fn handle_origin_finished(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.end(OriginEnd::Finished);
        }
    }

    /// The origin cannot be reached, or broke off.
    ///
    /// If it sent nothing, the session is forgotten: the client's TCP stream starts anew and sees
    /// for itself. Otherwise the client gets what there is, then the reset.
    pub fn handle_origin_lost(&mut self, now: Instant, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        session.end(OriginEnd::Reset);
        if !session.has_server_bytes() {
            self.remove(now, id);
            self.ended.forget(&id);
        }
    }

    /// A join arrived on TCP from `peer`.
    ///
    /// A session is joined once; a wrong key names another session, so it cannot be probed. With
    /// another edge's tag it is for that edge to decide, also where the session is known here as
    /// well: a copy of its flight may have come here, but what the client holds are the other's
    /// bytes.
    pub fn handle_join(&mut self, now: Instant, peer: SocketAddr, join: &Join) -> JoinOutcome {
        match self.owner(join) {
            Some(edge) => JoinOutcome::Elsewhere(edge),
            None => self.handle_join_here(now, peer, join),
        }
    }

    /// The other edge whose tag the join has.
    fn owner(&self, join: &Join) -> Option<EdgeNumber> {
        let routes = self.routes.as_ref()?;
        let owner = routes.owner(join.tag, &join.key.session_id())?;
        (owner != routes.own).then_some(owner)
    }

    /// As [`handle_join`](Self::handle_join), but never elsewhere: for a join that another edge has
    /// forwarded, and for one that could not be forwarded.
    pub fn handle_join_here(&mut self, now: Instant, peer: SocketAddr, join: &Join) -> JoinOutcome {
        let id = join.key.session_id();
        let from_start = join.client_offset == 0 && join.server_offset == 0;
        let again = self.ended.get(now, &id).is_some();
        let Some(session) = self.sessions.get(&id).filter(|session| session.is_running()) else {
            self.end(now, id);
            if !from_start || again {
                return refused();
            }
            // Its datagrams are only late now, and must not start a second stream.
            self.ended.insert(now, id, ());
            return fresh();
        };
        let elsewhere = self.config.same_address && !session.is_from(peer.ip());
        // The client was answered by another start of this edge, or by another edge, whose bytes it
        // may hold.
        let earlier = join.tag != session.tag && join.tag != RouteTag::default();
        if again {
            return refused();
        }
        if earlier && from_start && session.is_from(peer.ip()) {
            // A late copy of the flight started it: the stream that follows takes it over, and no
            // other join.
            self.ended.insert(now, id, ());
            return fresh();
        }
        if elsewhere || earlier {
            self.end(now, id);
            return if from_start { fresh() } else { refused() };
        }
        if !session.allows(join.client_offset, join.server_offset) {
            return refused();
        }
        let answer = JoinAnswer { status: Status::Joined, server_offset: join.server_offset };
        match self.hand_over(now, id, join.client_offset, join.server_offset) {
            Some(handover) => JoinOutcome::Joined(answer, handover),
            None => refused(),
        }
    }

    /// A TCP stream from `peer` begins with the whole ClientHello `hello`, without a join.
    ///
    /// If that ClientHello runs for a session of the same address, the stream takes it over;
    /// otherwise it is remembered, so that a late copy over UDP starts nothing, and its fragments
    /// that came over UDP are forgotten.
    pub fn handle_plain(&mut self, now: Instant, peer: SocketAddr, hello: &[u8]) -> Attachment {
        let hash = HelloHash::from_bytes(hello);
        let running =
            self.running_hellos.get(&hash).copied().filter(|id| {
                self.sessions.get(id).is_some_and(|session| session.is_from(peer.ip()))
            });
        if let Some(handover) = running.and_then(|id| self.hand_over(now, id, 0, 0)) {
            return Attachment::Attached(handover);
        }
        if self.hellos.get(now, &hash).is_none() {
            self.hellos.insert(now, hash, ());
        }
        self.forget_fragments(now, peer.ip(), hello);
        Attachment::New
    }

    /// Gives back the place of a session whose ClientHello came on TCP: the oldest of the address
    /// that holds nothing else.
    fn forget_fragments(&mut self, now: Instant, address: IpAddr, hello: &[u8]) {
        let is_this = |id: &SessionId| {
            let session = self.sessions.get(id).filter(|session| !session.is_running());
            session.is_some_and(|session| session.is_from(address) && session.may_be(hello))
        };
        let of_host = self.admission.of_host(address).find(is_this);
        if let Some(id) = of_host {
            self.end(now, id);
        }
    }

    /// The moment given by [`poll_timeout`](Self::poll_timeout) has come.
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
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.next_deadline().map(|(deadline, _)| deadline)
    }

    /// The next datagram to send.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        while let Some(id) = self.owed.pop_front() {
            if let Some(session) = self.sessions.get_mut(&id) {
                session.acknowledge(id, &mut self.transmits);
            }
        }
        self.transmits.pop_front()
    }

    /// The next thing to do.
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
        self.admission.check(from.ip())?;
        let total = self.places();
        while self.gathering.len() >= SESSIONS_GATHERING.min(total) {
            self.displace_gathering(now).ok_or(Discard::SessionLimit)?;
        }
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

    /// Returns the tag in responses of a session that begins now.
    fn tag(&self, id: &SessionId) -> RouteTag {
        let start = u32::from_be_bytes(self.config.tag.0);
        self.routes.as_ref().map_or(self.config.tag, |routes| routes.tag(start, id))
    }

    /// Ends the oldest session that outlived its promised time; false if there is none. For a
    /// driver that needs its place.
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

    /// Sessions at one time at most.
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
            if self.config.passes_early_data() {
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
            self.start(now, request.id, hello)?;
        }
        if let Some(session) = self.sessions.get_mut(&request.id) {
            session.answer(request.id, &mut self.transmits);
        }
        Ok(())
    }

    /// The ClientHello is whole: the session gets its first answer, and the origin its bytes.
    fn start(&mut self, now: Instant, id: SessionId, hello: ClientHello) -> Result<(), Discard> {
        let hello_end = hello.end;
        let Some(session) = self.sessions.get_mut(&id) else {
            return Err(Discard::Ended);
        };
        let hash = HelloHash::from_bytes(session.hello_bytes(hello_end));
        if self.hellos.get(now, &hash).is_some() || self.running_hellos.contains_key(&hash) {
            return Err(Discard::HelloRuns);
        }
        self.hellos.insert(now, hash, ());
        self.running_hellos.insert(hash, id);
        self.gathering.remove(&(session.deadline, id));
        session.deadline = now + SESSION_LIFE;
        self.running.insert((session.deadline, id));
        self.admission.advance(session.peer.ip(), id, Stage::Running);
        session.phase = Phase::Running { hello: hash, passed: hello_end };
        let mut bytes = session.hello_bytes(hello_end).to_vec();
        if self.config.passes_early_data() {
            bytes.append(&mut session.take_client_bytes());
        }
        let peer = session.peer;
        self.owed.push_back(id);
        let hello = Box::new(hello);
        self.events.push_back(ServerEvent::Started { id, peer, hello, bytes });
        while let Some(spared) = self.admission.crowded_out(peer.ip()) {
            self.end(now, spared);
        }
        Ok(())
    }

    fn hand_over(
        &mut self,
        now: Instant,
        id: SessionId,
        client_offset: u32,
        server_offset: u32,
    ) -> Option<Handover> {
        self.remove(now, id)?.hand_over(id, client_offset, server_offset)
    }

    /// Keeps a session whose promised time is over, and whose origin is there, until somebody needs
    /// its place, with at most half of all places for such sessions.
    fn spare(&mut self, now: Instant, id: SessionId) -> bool {
        let Some(session) = self.sessions.get_mut(&id) else { return false };
        if !session.is_origin_open() || !self.running.remove(&(session.deadline, id)) {
            return false;
        }
        session.deadline = session.deadline + (SESSION_LIFE_SPARE - SESSION_LIFE);
        self.spared.insert((session.deadline, id));
        self.admission.advance(session.peer.ip(), id, Stage::Spared);
        while self.spared.len() > self.places() / 2 {
            self.give_way(now);
        }
        true
    }

    /// Ends a session that nobody will join; the origin's stream is closed.
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

const fn fresh() -> JoinOutcome {
    JoinOutcome::Fresh(JoinAnswer { status: Status::Fresh, server_offset: 0 })
}

const fn refused() -> JoinOutcome {
    JoinOutcome::Refused(JoinAnswer { status: Status::Refused, server_offset: 0 })
}
