use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use headstart_proto::join::Join;
use headstart_proto::{
    Attachment, Discard, JoinOutcome, Server, ServerConfig, ServerEvent, SessionId, Transmit,
};
use headstart_tls::keyring::KeyRing;
use ipnet::IpNet;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::AcceptorConfig;
use super::event::{NewSession, SessionEvent, SessionSender};
use super::fleet::Fleet;
use super::generations::{Generations, SessionHolder, Stray};
use crate::careful::CarefulResume;
use crate::clock::Clock;
use crate::timeline::{EdgeTimeline, Timelines};
use crate::udp::{Datagram, Received, UdpPort};

/// Time that a stream waits for a permit; by then its client has given up too.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(60);

/// State shared by the UDP tasks, the accepted connections and the running sessions of one
/// acceptor.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) hello_timeout: Duration,
    balancers: Vec<IpNet>,
    pub(super) ports: Vec<Arc<UdpPort>>,
    clock: Clock,
    new_sessions: mpsc::Sender<NewSession>,
    permits: Arc<Semaphore>,
    /// Bounds the connections that wait for a permit to as many as may be establishing.
    waiting: Semaphore,
    pub(super) fleet: Option<Arc<Fleet>>,
    pub(super) generations: Option<Arc<Generations>>,
    pub(super) careful: Option<Arc<CarefulResume>>,
    has_timelines: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Of this acceptor alone (W-ADMIT-7).
    server: Server,
    /// In a fleet, the keys that the core makes tags with. Weak, because no datagram may arrive for
    /// days, and that must not keep the keys from being wiped.
    keys: Weak<KeyRing>,
    /// Sender to the task of each running session.
    senders: HashMap<SessionId, SessionSender>,
    timelines: Timelines,
    /// True once the acceptor is closed.
    closed: bool,
    /// Sessions that the gauge shows for this acceptor; all acceptors of a process add up in it.
    shown: usize,
}

impl Shared {
    pub(super) fn new(
        config: AcceptorConfig,
        ports: Vec<Arc<UdpPort>>,
        new_sessions: mpsc::Sender<NewSession>,
    ) -> Self {
        let state = State {
            server: Server::new(config.server),
            keys: Weak::new(),
            senders: HashMap::new(),
            timelines: Timelines::new(config.timelines),
            closed: false,
            shown: 0,
        };
        Self {
            hello_timeout: config.hello_timeout,
            balancers: config.balancers,
            ports,
            clock: Clock::start(),
            new_sessions,
            permits: config.permits,
            waiting: Semaphore::new(config.establishing),
            fleet: config.fleet,
            generations: config.generations,
            careful: config.careful,
            has_timelines: config.timelines,
            state: Mutex::new(state),
        }
    }

    /// Registers the sessions here with the fleet, if there is one.
    pub(super) fn enter_fleet(self: &Arc<Self>) {
        if let Some(fleet) = &self.fleet {
            let acceptor: Weak<Self> = Arc::downgrade(self);
            fleet.enter(acceptor);
        }
    }

    /// Returns the joins that other processes of this edge pass on for sessions here.
    pub(super) fn enter_generations(self: &Arc<Self>) -> mpsc::Receiver<Stray> {
        let Some(generations) = &self.generations else { return mpsc::channel(1).1 };
        let acceptor: Weak<Self> = Arc::downgrade(self);
        generations.enter(acceptor)
    }

    /// Returns true if connections from this address begin with a PROXY header.
    pub(super) fn is_balancer(&self, address: IpAddr) -> bool {
        self.balancers.iter().any(|network| network.contains(&address))
    }

    /// Returns a timeline for a connection that arrives.
    pub(super) fn timeline(&self) -> EdgeTimeline {
        EdgeTimeline::new(self.has_timelines)
    }

    pub(super) fn configure(&self, server: ServerConfig) {
        self.lock().server.configure(server);
    }

    pub(super) fn unproven(&self) -> usize {
        self.lock().server.unproven()
    }

    /// Waits for a permit to serve a stream.
    ///
    /// # Errors
    /// `ResourceBusy` if too many wait already, or no permit is free in time.
    pub(super) async fn permit(self: &Arc<Self>) -> io::Result<OwnedSemaphorePermit> {
        if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            return Ok(permit);
        }
        metrics::counter!("headstart_limits_hit_total", "limit" => "max_connections").increment(1);
        let Ok(_waiting) = self.waiting.try_acquire() else {
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, "too many connections wait"));
        };
        self.end_overdue_session();
        let permit = Arc::clone(&self.permits).acquire_owned();
        let permit = tokio::time::timeout(PERMIT_TIMEOUT, permit).await.map_err(|_| {
            io::Error::new(io::ErrorKind::ResourceBusy, "too many connections for too long")
        })?;
        permit.map_err(io::Error::other)
    }

    /// Ends a session that outlived its promised time, to free its permit.
    fn end_overdue_session(self: &Arc<Self>) {
        let mut state = self.lock();
        state.server.give_way(self.clock.now());
        self.process_output(state);
    }

    /// Ends all sessions, and starts no more.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.server = Server::new(ServerConfig::default());
        state.senders.clear();
        state.show();
    }

    /// Handles a batch of datagrams under one lock.
    pub(super) fn handle_datagrams<'a>(
        self: &Arc<Self>,
        datagrams: impl Iterator<Item = Received<'a>>,
    ) {
        let now = self.clock.now();
        let mut state = self.lock();
        if state.closed {
            return;
        }
        state.renew_keys(self.fleet.as_deref());
        let (mut outcomes, mut started) = (Outcomes::default(), false);
        for Received { from, to, bytes } in datagrams {
            state.server.pause(self.permits.available_permits() == 0);
            let outcome = state.server.handle_datagram(now, from, Some(to), bytes);
            state.timelines.received(bytes, outcome);
            outcomes.add(outcome.err());
            // Each session takes its permit before the next datagram is handled.
            started |= self.dispatch_all(&mut state);
        }
        if started {
            // The tasks that wait for this processor to serve the session go first: an answer that
            // is ready replaces the acknowledgement. Without such tasks this does nothing.
            drop(state);
            thread::yield_now();
            state = self.lock();
        }
        self.process_output(state);
        outcomes.count();
    }

    /// Handles expired deadlines; returns when to call again.
    pub(super) fn handle_timeout(self: &Arc<Self>) -> Option<tokio::time::Instant> {
        let mut state = self.lock();
        state.server.handle_timeout(self.clock.now());
        state.show();
        let next = state.server.poll_timeout();
        self.process_output(state);
        next.map(|moment| self.clock.to_tokio(moment))
    }

    pub(super) fn handle_origin_data(self: &Arc<Self>, id: SessionId, bytes: &[u8]) -> usize {
        let mut state = self.lock();
        let taken = state.server.handle_origin_data(id, bytes);
        self.process_output(state);
        taken
    }

    pub(super) fn handle_cost(&self, id: SessionId, cost: Duration) {
        self.lock().server.handle_cost(id, cost);
    }

    pub(super) fn handle_origin_finished(&self, id: SessionId) {
        self.lock().server.handle_origin_finished(id);
    }

    pub(super) fn handle_origin_lost(&self, id: SessionId) {
        let now = self.clock.now();
        let mut state = self.lock();
        state.senders.remove(&id);
        state.timelines.ended(&id);
        state.server.handle_origin_lost(now, id);
    }

    /// Returns true if the session of a join runs here.
    pub(super) fn has(&self, join: &Join) -> bool {
        self.lock().server.runs(&join.key.session_id())
    }

    /// Returns the outcome, and the sender to the session's task if it still runs.
    pub(super) fn handle_join(
        self: &Arc<Self>,
        peer: SocketAddr,
        join: &Join,
    ) -> (JoinOutcome, Option<SessionSender>) {
        let mut state = self.lock();
        state.renew_keys(self.fleet.as_deref());
        let outcome = state.server.handle_join(self.clock.now(), peer, join);
        self.joined(state, outcome)
    }

    /// Does the same for a join that no other edge decides.
    pub(super) fn handle_join_here(
        self: &Arc<Self>,
        peer: SocketAddr,
        join: &Join,
    ) -> (JoinOutcome, Option<SessionSender>) {
        let mut state = self.lock();
        let outcome = state.server.handle_join_here(self.clock.now(), peer, join);
        self.joined(state, outcome)
    }

    fn joined(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State>,
        outcome: JoinOutcome,
    ) -> (JoinOutcome, Option<SessionSender>) {
        // `settle` notifies a session that the join ended; one refused for bad offsets stays.
        let sender = match &outcome {
            JoinOutcome::Joined(handover) => state.end(&handover.id),
            JoinOutcome::Fresh | JoinOutcome::Refused | JoinOutcome::Elsewhere(_) => None,
        };
        self.process_output(state);
        (outcome, sender)
    }

    pub(super) fn handle_plain(
        &self,
        peer: SocketAddr,
        hello: &[u8],
    ) -> (Attachment, Option<SessionSender>) {
        if self.ports.is_empty() {
            return (Attachment::New, None);
        }
        let mut state = self.lock();
        let attachment = state.server.handle_plain(self.clock.now(), peer, hello);
        let sender = match &attachment {
            Attachment::Attached(handover) => state.end(&handover.id),
            Attachment::New => None,
        };
        (attachment, sender)
    }

    /// Does what the core asks for; sends datagrams after releasing the lock.
    fn process_output(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        self.dispatch_all(&mut state);
        let transmits: Vec<Transmit> =
            std::iter::from_fn(|| state.server.poll_transmit()).collect();
        transmits.iter().for_each(|transmit| state.timelines.sent(&transmit.bytes));
        drop(state);
        transmits.iter().for_each(|transmit| self.send(transmit));
    }

    /// Returns true if a session began.
    fn dispatch_all(self: &Arc<Self>, state: &mut State) -> bool {
        let mut started = false;
        while let Some(event) = state.server.poll_event() {
            started |= matches!(event, ServerEvent::Started { .. });
            self.dispatch(state, event);
        }
        started
    }

    fn dispatch(self: &Arc<Self>, state: &mut State, event: ServerEvent) {
        match event {
            ServerEvent::Started { id, peer, hello, bytes } => {
                // No task accepts: the session ends, and the client finds a new stream on TCP.
                let Ok(slot) = self.new_sessions.try_reserve() else {
                    return state.server.handle_origin_lost(self.clock.now(), id);
                };
                let (sender, events) = mpsc::unbounded_channel();
                state.senders.insert(id, sender);
                let timeline = state.timelines.started(id);
                // There was a permit just now; if another stream took it, the session waits for the
                // next.
                let permit = Arc::clone(&self.permits).try_acquire_owned().ok();
                slot.send(NewSession { id, peer, hello, bytes, events, permit, timeline });
            }
            ServerEvent::ClientBytes { id, bytes } => {
                if let Some(sender) = state.senders.get(&id) {
                    let _ = sender.send(SessionEvent::ClientBytes(bytes));
                }
            }
            ServerEvent::Expired { id } => {
                state.timelines.expired(&id);
                if let Some(sender) = state.senders.remove(&id) {
                    let _ = sender.send(SessionEvent::Expired);
                }
            }
        }
    }

    /// Sends a datagram; one that cannot be sent now is lost, as on the network: TCP has the bytes.
    fn send(&self, transmit: &Transmit) {
        let sent = self.ports.first().map_or_else(
            || Err(io::ErrorKind::NotConnected.into()),
            |port| {
                let Transmit { to, from, bytes } = transmit;
                port.try_send(&Datagram { to: *to, from: *from, bytes })
            },
        );
        let outcome = if sent.is_ok() { "sent" } else { "failed" };
        metrics::counter!(
            "headstart_udp_datagrams_total",
            "direction" => "to_client", "outcome" => outcome,
        )
        .increment(1);
    }

    /// Locks the state. A panic elsewhere with the lock held leaves the core consistent: it does
    /// not panic half-way through a change.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionHolder for Shared {
    fn is_stray(&self, join: &Join) -> bool {
        let mut state = self.lock();
        state.renew_keys(self.fleet.as_deref());
        state.server.is_stray(join)
    }
}

impl State {
    /// Ends a session that TCP takes over; returns the sender to its task.
    fn end(&mut self, id: &SessionId) -> Option<SessionSender> {
        self.timelines.ended(id);
        self.senders.remove(id)
    }

    /// Gives the core the ring's keys if they have changed. Sessions begin with datagrams, so
    /// checking when some arrive is enough.
    fn renew_keys(&mut self, fleet: Option<&Fleet>) {
        if let Some((keys, routes)) = fleet.and_then(|fleet| fleet.routes(&self.keys)) {
            self.server.set_routes(Some(routes));
            self.keys = keys;
        }
    }

    fn show(&mut self) {
        let unproven = self.server.unproven();
        metrics::gauge!("headstart_sessions_unproven")
            .increment(to_float(unproven) - to_float(self.shown));
        self.shown = unproven;
    }
}

/// Outcomes of a batch. Counted once for each kind and without the lock: looking a counter up costs
/// as much as dropping a datagram.
#[derive(Default)]
struct Outcomes(Vec<(Option<Discard>, u64)>);

impl Outcomes {
    fn add(&mut self, discard: Option<Discard>) {
        match self.0.iter_mut().find(|(known, _)| *known == discard) {
            Some((_, count)) => *count += 1,
            None => self.0.push((discard, 1)),
        }
    }

    fn count(self) {
        for (discard, count) in self.0 {
            let outcome = discard.map_or("accepted", Discard::name);
            metrics::counter!(
                "headstart_udp_datagrams_total",
                "direction" => "to_server", "outcome" => outcome,
            )
            .increment(count);
            if discard.is_some_and(Discard::is_limit) {
                metrics::counter!("headstart_limits_hit_total", "limit" => outcome)
                    .increment(count);
            }
        }
    }
}

/// Converts a count that fits a float exactly.
fn to_float(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}
