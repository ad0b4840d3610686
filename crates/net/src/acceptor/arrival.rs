use std::any::Any;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use headstart_proto::Carrier;
use headstart_proto::hello::{self, ClientHello, Progress};
use headstart_proto::join::{Join, REFUSAL, acceptance};
use headstart_proto::wire::Forward;
use headstart_proto::{Attachment, EdgeNumber, Handover, JoinOutcome, OriginEnd};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::event::{NewSession, SessionEvent, SessionSender, Tcp};
use super::fleet::{Forwarded, JoinHandler};
use super::generations::{Direction, SessionHolder, Stray, StrayJoin, count_join, give};
use super::proxied;
use super::session::Session;
use super::shared::Shared;
use super::stream::ServerStream;
use super::transport::ClientTransport;
use crate::careful::Watch;
use crate::closing::close_after_drain;
use crate::proven_addr::ProvenBy;
use crate::timeline::{EdgeEvent, EdgeTimeline};

/// Bytes of the first read of a connection: enough for the ClientHello of today's browsers.
const FIRST_READ: usize = 2048;

/// A connection not read yet, or a session whose ClientHello came over UDP.
#[derive(Debug)]
pub struct Arrival {
    peer: SocketAddr,
    timeline: EdgeTimeline,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Tcp(Establishing, Box<Unclassified>),
    Session(Session, Option<OwnedSemaphorePermit>, Box<ClientHello>),
}

/// Permit and guard of a TCP connection until it is classified.
#[derive(Debug)]
struct Establishing {
    _permit: OwnedSemaphorePermit,
    guard: Option<Box<dyn Any + Send + Sync>>,
}

impl Arrival {
    pub(super) fn tcp(permit: OwnedSemaphorePermit, first: Unclassified) -> Self {
        let establishing = Establishing { _permit: permit, guard: None };
        let (peer, timeline) = (first.transport.client(), first.timeline.clone());
        Self { peer, timeline, kind: Kind::Tcp(establishing, Box::new(first)) }
    }

    pub(super) fn session(shared: Arc<Shared>, new: NewSession) -> Self {
        let NewSession { id, peer, hello, bytes, events, permit, timeline } = new;
        let session = Session::new(shared, id, events, bytes);
        Self { peer, timeline, kind: Kind::Session(session, permit, hello) }
    }

    /// Returns the client's address, or its balancer's until the header is read; not proven if
    /// [`is_unproven`](Self::is_unproven).
    #[must_use]
    pub const fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// Returns true if anyone could have sent this, because it came over UDP.
    #[must_use]
    pub const fn is_unproven(&self) -> bool {
        matches!(self.kind, Kind::Session(..))
    }

    /// Keeps `guard` until the first bytes of a TCP connection are read, as long as it counts in
    /// [`establishing`](super::AcceptorConfig::establishing).
    pub fn keep_while_read(&mut self, guard: impl Send + Sync + 'static) {
        if let Kind::Tcp(establishing, _) = &mut self.kind {
            establishing.guard = Some(Box::new(guard));
        }
    }

    /// Returns its timeline, to which events are added until the connection is handed over. That of
    /// a TCP connection becomes empty when it joins a session.
    #[must_use]
    pub fn timeline(&self) -> EdgeTimeline {
        self.timeline.clone()
    }

    /// Reads as far as needed to classify the connection, and waits for a permit to serve it.
    ///
    /// Returns `None` if it was the TCP part of a session here, whose stream has it now, or that of
    /// a session of another process of this edge ([`Generations`](super::Generations)), or that of
    /// a session at another edge of the [`Fleet`](super::Fleet), to which it was forwarded until it
    /// ended.
    ///
    /// # Errors
    /// `TimedOut` if the client sends nothing or its session has already ended, `ResourceBusy` if
    /// there are too many connections, `InvalidData` if its join is refused, `UnexpectedEof` if
    /// nothing follows it, and any error of TCP.
    pub async fn establish(self) -> io::Result<Option<ServerStream>> {
        match self.kind {
            Kind::Session(session, permit, hello) => {
                let permit = match permit {
                    Some(permit) => permit,
                    None => session.shared.permit().await?,
                };
                let stream = ServerStream::session(session, self.peer, *hello, self.timeline);
                Ok(Some(stream.if_alive()?.with_permit(permit)))
            }
            Kind::Tcp(establishing, first) => {
                let shared = Arc::clone(&first.shared);
                let established = tokio::time::timeout(shared.hello_timeout, first.establish());
                let established = established.await??;
                if matches!(established, Established::Joined) {
                    return Ok(None);
                }
                // Connections that wait give up their permit of `establishing`: joins have to be
                // read.
                drop(establishing);
                let permit = shared.permit().await?;
                match established {
                    Established::Stream(stream) => Ok(Some(stream.with_permit(permit))),
                    Established::Forwarded(forwarded, client) => {
                        count_join("forwarded");
                        // It has the UDP port, which must be free before the last client leaves.
                        drop(shared);
                        forwarded.run(client).await;
                        Ok(None)
                    }
                    Established::Joined => Ok(None),
                }
            }
        }
    }
}

/// Classification of a TCP connection.
enum Established {
    /// A stream of its own.
    Stream(Box<ServerStream>),
    /// The TCP part of a session here, whose stream has it, or of one of another process.
    Joined,
    /// The TCP part of a session at another edge.
    Forwarded(Box<Forwarded>, TcpStream),
}

/// A TCP connection whose first bytes are being read.
#[derive(Debug)]
pub(super) struct Unclassified {
    shared: Arc<Shared>,
    transport: ClientTransport,
    opened_by: Carrier,
    read: Vec<u8>,
    /// Direction in which another process of this edge has passed it on.
    passed: Option<Direction>,
    timeline: EdgeTimeline,
}

impl JoinHandler for Shared {
    fn has_session(&self, join: &Join) -> bool {
        self.has(join)
    }

    fn handle_forwarded(
        self: Arc<Self>,
        link: ClientTransport,
        join: Join,
        read: Vec<u8>,
    ) -> Pin<Box<dyn Future<Output = io::Result<()>> + Send>> {
        let first = Unclassified { read, ..Unclassified::new(self, link, Carrier::Tcp) };
        Box::pin(first.join_forwarded(join))
    }
}

impl Unclassified {
    pub(super) fn new(shared: Arc<Shared>, transport: ClientTransport, opened_by: Carrier) -> Self {
        let timeline = shared.timeline();
        timeline.note(EdgeEvent::TcpConnected);
        Self { shared, transport, opened_by, read: Vec::new(), passed: None, timeline }
    }

    /// A join that another process has passed on.
    ///
    /// # Errors
    /// `ConnectionAborted` if the client is gone: no reason to wait before others are accepted.
    pub(super) fn stray(shared: Arc<Shared>, (stray, direction): Stray) -> io::Result<Self> {
        let peer = stray.peer().map_err(|_| io::ErrorKind::ConnectionAborted)?;
        let tcp = TcpStream::from_std(stray.tcp)?;
        let transport = match stray.client {
            Some(client) => ClientTransport::Relayed(tcp, client),
            None => ClientTransport::Tcp(tcp, peer),
        };
        let first = Self::new(shared, transport, Carrier::Tcp);
        Ok(Self { read: stray.read, passed: Some(direction), ..first })
    }

    /// Handles a join that another edge has read and forwards with the bytes behind it.
    async fn join_forwarded(self, join: Join) -> io::Result<()> {
        self.note_join(&join);
        let (outcome, sender) = self.shared.handle_join_here(self.client(), &join);
        match outcome {
            JoinOutcome::Joined(handover) => {
                count_join("joined");
                let server_offset = handover.server_offset;
                self.timeline.note(EdgeEvent::JoinAnswered { server_offset });
                let answer = acceptance(&join.key, server_offset);
                self.hand_over(answer, handover, sender, ProvenBy::Join).await
            }
            // The edge to which the client came decides whether it may be a new stream.
            JoinOutcome::Fresh | JoinOutcome::Refused | JoinOutcome::Elsewhere(_) => {
                self.refuse().await
            }
        }
    }

    async fn refuse(mut self) -> io::Result<()> {
        count_join("refused");
        self.timeline.note(EdgeEvent::JoinRefused);
        // W-ANSWER-3
        self.transport.write_all(&REFUSAL).await?;
        close_after_drain(self.transport).await?;
        Err(io::Error::new(io::ErrorKind::InvalidData, "the join was refused"))
    }

    async fn establish(mut self) -> io::Result<Established> {
        if let (Some(_), Some(tcp)) = (self.passed, self.transport.as_tcp()) {
            // The runtime has to find that out of a socket that it has not accepted.
            tcp.writable().await?;
        }
        self.read.reserve(FIRST_READ);
        if self.passed.is_none() && self.shared.is_balancer(self.client().ip()) {
            self.read_proxy_header().await?;
        }
        let hello = self.read_hello().await?;
        match hello.as_ref().and_then(Join::read) {
            Some(join) if matches!(self.transport, ClientTransport::Relayed(..)) => {
                self.read.drain(..hello.map_or(0, |hello| hello.end));
                self.join_forwarded(join).await.map(|()| Established::Joined)
            }
            Some(join) => self.join(join, hello.map_or(0, |hello| hello.end)).await,
            // W-PLAIN-4
            None => self.start_stream(Vec::new(), hello).await,
        }
    }

    fn note_join(&self, join: &Join) {
        let Join { client_offset, server_offset, .. } = *join;
        self.timeline.note(EdgeEvent::JoinReceived { client_offset, server_offset });
    }

    fn client(&self) -> SocketAddr {
        self.transport.client()
    }

    /// Reads what a balancer says of its client.
    async fn read_proxy_header(&mut self) -> io::Result<()> {
        loop {
            if let Some((length, client)) = proxied::read(&self.read)? {
                self.read.drain(..length);
                if let (ClientTransport::Tcp(_, address), Some(client)) =
                    (&mut self.transport, client)
                {
                    *address = client;
                }
                return Ok(());
            }
            if !self.read_more().await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Handles a join, which takes up `length` bytes.
    async fn join(mut self, join: Join, length: usize) -> io::Result<Established> {
        self.note_join(&join);
        if self.shared.is_stray(&join) {
            match self.pass_on(&join)? {
                Some(this) => self = this,
                None => return Ok(Established::Joined),
            }
        }
        let (outcome, sender) = self.shared.handle_join(self.client(), &join);
        let (outcome, sender) = match outcome {
            JoinOutcome::Elsewhere(owner) => match self.forward(owner, &join).await {
                Ok(forwarded) => {
                    let ClientTransport::Tcp(client, _) = self.transport else {
                        return Err(io::ErrorKind::Unsupported.into());
                    };
                    self.timeline.note(EdgeEvent::Forwarded);
                    return Ok(Established::Forwarded(Box::new(forwarded), client));
                }
                Err(reason) => {
                    // W-FLEET-3
                    metrics::counter!("headstart_forwards_failed_total", "reason" => reason)
                        .increment(1);
                    self.shared.handle_join_here(self.client(), &join)
                }
            },
            outcome => (outcome, sender),
        };
        self.read.drain(..length);
        match outcome {
            JoinOutcome::Joined(handover) => {
                count_join("joined");
                let server_offset = handover.server_offset;
                self.timeline.note(EdgeEvent::JoinAnswered { server_offset });
                let answer = acceptance(&join.key, server_offset);
                self.hand_over(answer, handover, sender, ProvenBy::Join).await?;
                Ok(Established::Joined)
            }
            JoinOutcome::Fresh => {
                count_join("fresh");
                self.timeline.note(EdgeEvent::JoinAnswered { server_offset: 0 });
                // Now: the client waits for it, even if the origin fails.
                let mut to_write = acceptance(&join.key, 0);
                self.transport.write_at_once(&mut to_write).await?;
                // W-JOIN-5
                let hello = self.read_hello().await?;
                self.start_stream(to_write, hello).await
            }
            // A join is forwarded only once (W-FLEET-4).
            JoinOutcome::Refused | JoinOutcome::Elsewhere(_) => {
                self.refuse().await.map(|()| Established::Joined)
            }
        }
    }

    /// Passes a join to the acceptor of this process that has its session, or else to the process
    /// of this edge that may have it; returns it if there is none.
    fn pass_on(self, join: &Join) -> io::Result<Option<Self>> {
        let Some(generations) = self.shared.generations.clone() else { return Ok(Some(self)) };
        let owner = generations.owner(join);
        if !self.transport.is_tcp() || (owner.is_none() && !generations.has_way(self.passed)) {
            return Ok(Some(self));
        }
        let client = self.client();
        let Some(tcp) = self.transport.into_tcp() else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let own = tcp.peer_addr().is_ok_and(|peer| peer == client);
        let client_behind = (!own).then_some(client);
        let stray = StrayJoin::new(tcp.into_std()?, client_behind, self.read);
        let passed = match &owner {
            // Should the session end meanwhile, no other process has it.
            Some(owner) => give(owner, stray, self.passed.unwrap_or(Direction::Back)),
            None => generations.pass(stray, self.passed),
        };
        match passed {
            Ok(()) => {
                if owner.is_none() {
                    count_join("passed");
                }
                self.timeline.note(EdgeEvent::PassedOn);
                Ok(None)
            }
            // Too many wait: restarted here, it might send early data to the origin again.
            Err(stray) if owner.is_some() || generations.has_way(self.passed) => {
                count_join("refused");
                self.timeline.note(EdgeEvent::JoinRefused);
                stray.refuse().map(|()| None)
            }
            Err(stray) => {
                let transport = ClientTransport::Tcp(TcpStream::from_std(stray.tcp)?, client);
                Ok(Some(Self { transport, read: stray.read, ..self }))
            }
        }
    }

    /// Asks the session's owner for it, with all that the client has sent.
    ///
    /// # Errors
    /// As [`Fleet::forward`](super::fleet::Fleet::forward).
    async fn forward(&self, owner: EdgeNumber, join: &Join) -> Result<Forwarded, &'static str> {
        let fleet = self.shared.fleet.as_ref().ok_or("unknown")?;
        fleet.forward(owner, Forward { client: self.client() }, &join.key, &self.read).await
    }

    /// Reads the ClientHello; returns `None` if the stream begins with something else, of which the
    /// origin decides.
    async fn read_hello(&mut self) -> io::Result<Option<ClientHello>> {
        loop {
            match hello::read(&self.read) {
                Ok(Progress::Complete(hello)) => return Ok(Some(hello)),
                Err(_) => return Ok(None),
                Ok(Progress::Incomplete) => {
                    if !self.read_more().await? {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Starts a stream here; `to_write` goes out before it.
    async fn start_stream(
        self,
        to_write: Vec<u8>,
        hello: Option<ClientHello>,
    ) -> io::Result<Established> {
        if self.read.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(hello) = hello.as_ref().and_then(|hello| self.read.get(..hello.end)) {
            let (attachment, sender) = self.shared.handle_plain(self.client(), hello);
            if let Attachment::Attached(handover) = attachment {
                count_join("attached");
                self.timeline.note(EdgeEvent::Attached);
                self.hand_over(to_write, handover, sender, ProvenBy::Start).await?;
                return Ok(Established::Joined);
            }
        }
        let (transport, to_read, by) = (self.transport, self.read, ProvenBy::Start);
        let (skip, finish, entries) = (0, false, Vec::new());
        let watch = transport.own_tcp().and_then(|tcp| self.shared.careful.as_ref()?.observe(tcp));
        let tcp = Tcp { transport, to_write, to_read, skip, finish, by, entries, watch };
        let stream = ServerStream::tcp(tcp, self.opened_by, hello, self.timeline);
        Ok(Established::Stream(Box::new(stream)))
    }

    /// Hands the connection to the session's task, or ends it as the origin ended; `to_write` goes
    /// out first.
    async fn hand_over(
        mut self,
        mut to_write: Vec<u8>,
        handover: Handover,
        sender: Option<SessionSender>,
        by: ProvenBy,
    ) -> io::Result<()> {
        let watch = self.watch(&handover, by);
        to_write.extend_from_slice(&handover.server_bytes);
        self.transport.write_at_once(&mut to_write).await?;
        let known = handover.skip.min(self.read.len());
        let mut to_read = handover.client_bytes;
        to_read.extend(self.read.drain(..).skip(known));
        let finish = handover.end == OriginEnd::Finished;
        let skip = handover.skip - known;
        let (transport, entries) = (self.transport, self.timeline.take());
        let tcp = Tcp { transport, to_write, to_read, skip, finish, by, entries, watch };
        let orphan = match sender {
            Some(sender) => match sender.send(SessionEvent::Joined(Box::new(tcp))) {
                Ok(()) => return Ok(()),
                Err(mpsc::error::SendError(SessionEvent::Joined(tcp))) => *tcp,
                Err(_) => return Ok(()),
            },
            None => tcp,
        };
        end_orphan(orphan, handover.end).await
    }

    /// Watches the connection, with Careful Resume. Nothing may have been written to it yet, so
    /// that it can begin with a jump.
    ///
    /// A join acknowledges initial data that went out over UDP. If some of it is missing, it may
    /// have been lost.
    fn watch(&self, handover: &Handover, by: ProvenBy) -> Option<Watch> {
        let (careful, tcp) = (self.shared.careful.as_ref()?, self.transport.own_tcp()?);
        if by == ProvenBy::Start {
            return careful.observe(tcp);
        }
        let is_whole = handover.server_bytes.is_empty();
        careful.resume(tcp, is_whole.then_some(handover.server_offset), &self.timeline)
    }

    /// Reads on; returns false at the end.
    async fn read_more(&mut self) -> io::Result<bool> {
        Ok(self.transport.read_buf(&mut self.read).await? > 0)
    }
}

/// Delivers the last bytes of an origin that has closed.
async fn end_orphan(mut orphan: Tcp, end: OriginEnd) -> io::Result<()> {
    orphan.transport.write_all(&orphan.to_write).await?;
    orphan.transport.flush().await?;
    if end == OriginEnd::Finished {
        close_after_drain(orphan.transport).await
    } else {
        orphan.transport.reset();
        Ok(())
    }
}
