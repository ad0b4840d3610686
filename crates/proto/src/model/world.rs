//! One opening: the real [`Client`], one or two real [`Server`]s, an application, origins, TCP, and
//! a network that does what it likes with datagrams.
//!
//! After each action, the drivers here do all that the machines ask for, as those of `net` do.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use std::vec::Vec;

use headstart_testkit::hello::CraftedHello;

use crate::hello::{self, Progress};
use crate::join::{Join, REFUSAL, acceptance};
use crate::limits::{
    AMPLIFICATION, CLIENT_BYTES, DATAGRAM_MAX, EARLY_DATA_LIFE, HELLO_MEMORY, JOIN_MARGIN,
    SERVER_BYTES, SESSION_LIFE,
};
use crate::wire::{Request, Response};
use crate::{
    Attachment, Client, ClientConfig, ClientEvent, EdgeNumber, Handover, Instant, JoinKey,
    JoinOutcome, OriginEnd, ResetReason, RouteKey, RouteRing, RouteTag, Routes, Server,
    ServerConfig, ServerEvent, SessionId, Wait,
};

const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 40_000);
const OTHER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)), 40_000);
/// The application's second flight, a record; sent once it has the whole server flight.
const REQUEST: usize = 60;
/// Lengths of the records of the server flight.
const FLIGHT: [usize; 2] = [700, 800];
/// Ends of what the origin writes at once: the server flight in two pieces, then the response.
const WRITES: [usize; 3] = [1000, 1500, 1550];
/// What may go wrong without a timer: `SESSION_LIFE` less `JOIN_MARGIN`, `SESSION_LIFE` and
/// `HELLO_MEMORY`, `EARLY_DATA_LIFE`, and when a session of the first moment is forgotten.
const MARKS: [u64; 5] = [8, 10, 18, 20, 130];
/// Origins that one run can open.
const ORIGINS: usize = 8;

/// A property of every state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// The application receives a prefix of one origin's stream.
    ServerStream,
    /// Each origin receives a prefix of the client stream.
    ClientStream,
    /// One ClientHello is given to origins once, but for the cases of KNOWN-LIMITS.md.
    HelloOnce,
    /// The application is reset in the committed cases of docs/draft-headstart-turbotls.md
    /// (#failure-handling) alone.
    Reset,
    /// A request is answered at most once, to the address it came from.
    OneAnswer,
    /// An answer is at most three times as long as its request.
    ThreeTimes,
    /// Whatever happened to datagrams, both streams end once nothing is left to wait for.
    Finishes,
    /// Sessions hold no more than `limits` says, and none outlives its time.
    Limits,
    /// A running session is not given up within [`SESSION_LIFE`].
    Promise,
    /// No datagram leaves once TCP is connected, and nothing is written to TCP before.
    Order,
}

/// How often the network, and all else that is not under test, may do harm.
#[derive(Clone, Copy, Debug, Default, Hash, PartialEq, Eq)]
pub(super) struct Harm {
    /// Datagrams doubled.
    pub(super) doubled: u8,
    /// Requests that arrive from another address as well.
    pub(super) replayed: u8,
    /// Requests forged with the client's address and id.
    pub(super) forged_up: u8,
    /// Answers forged with the right id, without bytes.
    pub(super) forged_down: u8,
    /// ICMP errors.
    pub(super) unreachable: u8,
    /// TCP goes to another address than the datagrams, or comes from one.
    pub(super) other_server: u8,
    pub(super) other_source: u8,
    /// TCP breaks.
    pub(super) tcp_breaks: u8,
    /// TCP's first segment arrives in two.
    pub(super) split: u8,
    /// Edges restart.
    pub(super) restarts: u8,
    /// Joins that cannot be forwarded.
    pub(super) forward_fails: u8,
    /// Origins that break off.
    pub(super) origin_lost: u8,
    /// Timers that fire too early.
    pub(super) early: u8,
    /// The client does not wait for an answer that is not there.
    pub(super) not_awaited: u8,
}

/// A mistake planted between the machines and what is around them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bug {
    /// The edge sends each answer twice.
    AnswersTwice,
    /// The edge fills its answers beyond what the request allows.
    AnswersTooLong,
    /// The edge answers whatever address a request came from.
    AnswersAnyAddress,
    /// The answer to a join names the byte asked for, and the stream begins with its record.
    WrongOffset,
    /// The edge passes on client bytes that the origin has.
    SkipsNothing,
    /// The edge begins a new stream where a join continues one that it does not know.
    TakesUnknownJoin,
    /// The edge does not look for the session of a plain stream.
    PlainRunsAgain,
    /// The edge does not remember a ClientHello that came over TCP.
    ForgetsHello,
    /// The edge takes all joins for its own.
    IgnoresRoute,
    /// The edge has the same tag after a restart.
    KeepsTag,
    /// The client's timer is never set.
    ClientWithoutTimer,
    /// The client does not see how late TCP connected.
    ClockStands,
    /// The edge's timer is never set.
    EdgeWithoutTimer,
    /// The edge's timers run fast.
    EndsEarly,
}

/// What is checked: a conversation, the edges, and how much harm is done.
#[derive(Clone, Debug)]
pub(super) struct Network {
    /// Length of the ClientHello.
    pub(super) hello: usize,
    pub(super) client: ClientConfig,
    pub(super) edges: u8,
    /// Edges forward joins to each other.
    pub(super) fleet: bool,
    pub(super) same_address: bool,
    pub(super) harm: Harm,
    /// Time at which the run ends.
    pub(super) horizon: Duration,
    pub(super) bug: Option<Bug>,
    pub(super) streams: Arc<Streams>,
}

/// The bytes of both directions.
#[derive(Debug)]
pub(super) struct Streams {
    client: Vec<u8>,
    /// One stream for each origin connection.
    server: Vec<Vec<u8>>,
}

impl Network {
    /// Makes a network of one edge in which nothing goes wrong but loss and reordering.
    pub(super) fn new(hello: usize, slots: u8) -> Self {
        let mut client = CraftedHello::sized(hello).stream();
        client.extend(record(23, REQUEST, 0xc1));
        let server = (0..ORIGINS).map(|origin| {
            let seed = 0x11 * (1 + u8::try_from(origin).unwrap());
            let [first, second] = FLIGHT.map(|length| record(22, length, seed));
            [first, second, record(23, WRITES[2] - WRITES[1], seed)].concat()
        });
        let streams = Streams { client, server: server.collect() };
        Self {
            hello,
            client: ClientConfig { slots, ..ClientConfig::default() },
            edges: 1,
            fleet: false,
            same_address: false,
            harm: Harm::default(),
            horizon: Duration::from_secs(140),
            bug: None,
            streams: Arc::new(streams),
        }
    }

    fn server(&self, edge: u8, start: u8) -> Server {
        let start = if self.bug == Some(Bug::KeepsTag) { 0 } else { start };
        let mut server = Server::new(ServerConfig {
            early_data: self.client.early_data,
            same_address: self.same_address,
            tag: RouteTag([0, 0, edge + 1, start + 1]),
            ..ServerConfig::default()
        });
        let key = |epoch| RouteKey::new(epoch, [epoch; 16]);
        let ring = || RouteRing { previous: None, current: key(1), next: key(2) };
        let own = EdgeNumber::new(edge + 1).unwrap();
        server.set_routes(self.fleet.then(|| Routes { own, ring: ring() }));
        server
    }
}

/// Returns a record of `length` bytes, header included.
fn record(kind: u8, length: usize, seed: u8) -> Vec<u8> {
    let [high, low] = u16::try_from(length - 5).unwrap().to_be_bytes();
    let fragment = (0..length - 5).map(|at| (at * 31 + at / 256).to_le_bytes()[0] ^ seed);
    [kind, 3, 3, high, low].into_iter().chain(fragment).collect()
}

/// What happens next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// A request reaches an edge, and may do so again.
    Up {
        datagram: usize,
        edge: u8,
        doubled: bool,
    },
    /// A copy of a request reaches an edge from another address.
    Replay {
        datagram: usize,
        edge: u8,
    },
    /// An answer reaches the client, and may do so again.
    Down {
        datagram: usize,
        doubled: bool,
    },
    ForgeUp {
        edge: u8,
    },
    ForgeDown,
    Unreachable,
    Connect {
        edge: u8,
        same_server: bool,
        same_source: bool,
        waits: bool,
    },
    TcpUp {
        forwards: bool,
        split: bool,
    },
    TcpDown,
    TcpBreaks,
    ClientTimer {
        early: bool,
    },
    EdgeTimer {
        edge: u8,
    },
    /// Time passes until something is due; what is due already may fire later.
    TimePasses,
    OriginWrites {
        origin: usize,
    },
    OriginLost {
        origin: usize,
    },
    Restart {
        edge: u8,
    },
}

#[derive(Clone, Debug, Hash)]
struct Datagram {
    bytes: Arc<[u8]>,
    copies: u8,
}

#[derive(Clone, Debug, Hash)]
enum Segment {
    Bytes(Vec<u8>),
    Finished,
    Reset,
}

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
enum End {
    Finished,
    Reset,
}

/// TCP between client and edge: in order, without loss.
#[derive(Clone, Debug, Default, Hash)]
struct Tcp {
    connected: Option<(u8, SocketAddr)>,
    connected_at: Instant,
    up: VecDeque<Segment>,
    down: VecDeque<Segment>,
    up_finished: bool,
    broken: bool,
    edge: Connection,
}

/// The edge's end of TCP.
#[derive(Clone, Debug, Hash)]
enum Connection {
    /// Bytes before the end of the ClientHello; `plain` if it cannot be a join.
    First {
        bytes: Vec<u8>,
        plain: bool,
    },
    Through {
        origin: usize,
        skip: usize,
    },
    Closed,
}

impl Default for Connection {
    fn default() -> Self {
        Self::First { bytes: Vec::new(), plain: false }
    }
}

#[derive(Clone, Debug, Hash)]
struct Edge {
    server: Server,
    /// Number of restarts.
    start: u8,
    sessions: BTreeMap<SessionId, usize>,
    requests: BTreeMap<(SocketAddr, u8), Count>,
}

/// Requests taken and answers sent under one sequence number of one address.
#[derive(Clone, Copy, Debug, Default, Hash)]
struct Count {
    longest: usize,
    taken: u8,
    answers: u8,
}

/// One connection to an origin.
#[derive(Clone, Debug, Hash)]
struct Origin {
    edge: u8,
    start: u8,
    peer: IpAddr,
    begun: Instant,
    /// Bytes of the client stream that it has.
    received: usize,
    /// Number of its writes, bytes written, and bytes that the edge has taken.
    writes: usize,
    taken: usize,
    end_told: bool,
    /// Time since which only memory is left of its session.
    ended: Option<Instant>,
    expired: bool,
    lost: bool,
    closed: bool,
}

impl Origin {
    fn written(&self) -> usize {
        self.writes.checked_sub(1).map_or(0, |last| WRITES[last])
    }

    fn is_finished(&self) -> bool {
        self.writes == WRITES.len()
    }
}

/// The whole state.
#[derive(Clone, Debug, Hash)]
#[expect(clippy::derived_hash_with_manual_eq, reason = "equal by digest, as the checker sees it")]
pub(super) struct World {
    now: Instant,
    client: Client,
    /// Bytes that the application received, and from which origin they are.
    received: usize,
    source: Option<usize>,
    has_requested: bool,
    has_finished: bool,
    end: Option<End>,
    committed: bool,
    up: Vec<Datagram>,
    down: Vec<Datagram>,
    tcp: Tcp,
    edges: Vec<Edge>,
    origins: Vec<Origin>,
    left: Harm,
    /// Bit for each broken [`Claim`].
    broken: u16,
}

impl PartialEq for World {
    fn eq(&self, other: &Self) -> bool {
        let digest = |world: &Self| {
            let mut hasher = std::hash::DefaultHasher::new();
            world.hash(&mut hasher);
            hasher.finish()
        };
        digest(self) == digest(other)
    }
}

const WAIT: Wait = Wait {
    due: Duration::ZERO,
    grace: Duration::from_millis(25),
    first_bytes: Duration::from_millis(100),
};

impl World {
    pub(super) fn new(model: &Network) -> Self {
        let mut client = Client::new(JoinKey::new([7; 16]), model.client);
        client.offer_udp(model.client);
        let first = if model.client.early_data { model.streams.client.len() } else { model.hello };
        client.handle_app_data(Instant::ZERO, &model.streams.client[..first]);
        let edges = (0..model.edges).map(|edge| Edge {
            server: model.server(edge, 0),
            start: 0,
            sessions: BTreeMap::new(),
            requests: BTreeMap::new(),
        });
        let mut world = Self {
            now: Instant::ZERO,
            client,
            received: 0,
            source: None,
            has_requested: model.client.early_data,
            has_finished: false,
            end: None,
            committed: model.client.early_data,
            up: Vec::new(),
            down: Vec::new(),
            tcp: Tcp::default(),
            edges: edges.collect(),
            origins: Vec::new(),
            left: model.harm,
            broken: 0,
        };
        world.drive(model);
        world
    }

    pub(super) fn holds(&self, claim: Claim) -> bool {
        self.broken & (1 << claim as u16) == 0
    }

    fn claim(&mut self, claim: Claim, holds: bool) {
        self.broken |= u16::from(!holds) << claim as u16;
    }

    /// Returns true if both sides got everything over one origin, over UDP and TCP.
    pub(super) fn is_joined(&self, model: &Network) -> bool {
        self.committed && self.end == Some(End::Finished) && self.is_complete(model)
    }

    fn is_complete(&self, model: &Network) -> bool {
        let origin = self.source.and_then(|source| self.origins.get(source));
        let whole = origin.is_some_and(|origin| origin.received == model.streams.client.len());
        whole && self.received == WRITES[2]
    }

    pub(super) fn actions(&self, model: &Network, actions: &mut Vec<Action>) {
        let (left, edges) = (&self.left, 0..model.edges);
        if self.broken != 0 {
            return;
        }
        for (datagram, sent) in self.up.iter().enumerate() {
            for edge in edges.clone() {
                if sent.copies > 0 {
                    actions.push(Action::Up { datagram, edge, doubled: false });
                    if left.doubled > 0 {
                        actions.push(Action::Up { datagram, edge, doubled: true });
                    }
                }
                if left.replayed > 0 {
                    actions.push(Action::Replay { datagram, edge });
                }
            }
        }
        let open = self.end.is_none();
        for (datagram, _) in self.down.iter().enumerate().filter(|(_, it)| open && it.copies > 0) {
            actions.push(Action::Down { datagram, doubled: false });
            if left.doubled > 0 {
                actions.push(Action::Down { datagram, doubled: true });
            }
        }
        if left.forged_up > 0 {
            actions.extend(edges.clone().map(|edge| Action::ForgeUp { edge }));
        }
        if left.forged_down > 0 {
            actions.push(Action::ForgeDown);
        }
        if left.unreachable > 0 {
            actions.push(Action::Unreachable);
        }
        self.tcp_actions(model, actions);
        self.timer_actions(model, actions);
        for (number, origin) in self.origins.iter().enumerate().filter(|(_, it)| !it.closed) {
            if may_write(model, origin) {
                actions.push(Action::OriginWrites { origin: number });
            }
            if left.origin_lost > 0 && !origin.is_finished() {
                actions.push(Action::OriginLost { origin: number });
            }
        }
        if left.restarts > 0 {
            actions.extend(edges.map(|edge| Action::Restart { edge }));
        }
    }

    fn tcp_actions(&self, model: &Network, actions: &mut Vec<Action>) {
        let (left, both) = (&self.left, [true, false]);
        if self.tcp.connected.is_none() {
            for edge in 0..model.edges {
                for same_server in both.into_iter().filter(|same| *same || left.other_server > 0) {
                    for same_source in both.into_iter().filter(|it| *it || left.other_source > 0) {
                        for waits in both.into_iter().filter(|it| *it || left.not_awaited > 0) {
                            let way = Action::Connect { edge, same_server, same_source, waits };
                            actions.push(way);
                        }
                    }
                }
            }
            return;
        }
        if !self.tcp.up.is_empty() {
            actions.push(Action::TcpUp { forwards: true, split: false });
            if left.split > 0 {
                actions.push(Action::TcpUp { forwards: true, split: true });
            }
            if left.forward_fails > 0 {
                actions.push(Action::TcpUp { forwards: false, split: false });
            }
        }
        if !self.tcp.down.is_empty() {
            actions.push(Action::TcpDown);
        }
        if left.tcp_breaks > 0 && !self.tcp.broken && self.end.is_none() {
            actions.push(Action::TcpBreaks);
        }
    }

    fn timer_actions(&self, model: &Network, actions: &mut Vec<Action>) {
        if let Some(due) = self.client_timer(model) {
            let early = due > self.now;
            if !early || self.left.early > 0 {
                actions.push(Action::ClientTimer { early });
            }
        }
        for edge in 0..model.edges {
            if self.edge_timer(model, edge).is_some_and(|due| due <= self.now) {
                actions.push(Action::EdgeTimer { edge });
            }
        }
        if self.next_moment(model).is_some() {
            actions.push(Action::TimePasses);
        }
    }

    fn client_timer(&self, model: &Network) -> Option<Instant> {
        self.client.poll_timeout().filter(|_| model.bug != Some(Bug::ClientWithoutTimer))
    }

    fn edge_timer(&self, model: &Network, edge: u8) -> Option<Instant> {
        let due = self.edges[usize::from(edge)].server.poll_timeout()?;
        match model.bug {
            Some(Bug::EdgeWithoutTimer) => None,
            Some(Bug::EndsEarly) => Some(due - SESSION_LIFE / 2),
            _ => Some(due),
        }
    }

    /// Returns the next moment at which anything is due, or a memory or promise ends.
    fn next_moment(&self, model: &Network) -> Option<Instant> {
        let edges = (0..model.edges).filter_map(|edge| self.edge_timer(model, edge));
        let marks = MARKS.map(|mark| Instant::ZERO + Duration::from_secs(mark));
        let moments = self.client_timer(model).into_iter().chain(edges).chain(marks);
        let next = moments.filter(|moment| *moment > self.now).min()?;
        Some(next).filter(|next| next.since_epoch() <= model.horizon)
    }

    pub(super) fn act(&mut self, model: &Network, action: Action) {
        match action {
            Action::Up { datagram, edge, doubled } => {
                let bytes = deliver(&mut self.up[datagram], doubled, &mut self.left);
                self.request(model, edge, CLIENT, &bytes);
            }
            Action::Replay { datagram, edge } => {
                self.left.replayed -= 1;
                let bytes = self.up[datagram].bytes.clone();
                self.request(model, edge, OTHER, &bytes);
            }
            Action::Down { datagram, doubled } => {
                let bytes = deliver(&mut self.down[datagram], doubled, &mut self.left);
                self.client.handle_datagram(self.now, &bytes);
            }
            Action::ForgeUp { edge } => {
                self.left.forged_up -= 1;
                let id = JoinKey::new([7; 16]).session_id();
                let forged = Request { id, seq: 15, offset: 100, payload: &[0xee; 50] };
                self.request(model, edge, CLIENT, &forged.emit());
            }
            Action::ForgeDown => {
                self.left.forged_down -= 1;
                let id = JoinKey::new([7; 16]).session_id();
                let tag = RouteTag([0xee; 4]);
                let forged = Response { id, seq: 0, tag, ack: 1, offset: 0, payload: &[] };
                self.client.handle_datagram(self.now, &forged.emit());
            }
            Action::Unreachable => {
                self.left.unreachable -= 1;
                self.client.handle_unreachable(self.now);
            }
            Action::Connect { edge, same_server, same_source, waits } => {
                self.left.other_server -= u8::from(!same_server);
                self.left.other_source -= u8::from(!same_source);
                self.left.not_awaited -= u8::from(!waits);
                self.tcp.connected = Some((edge, if same_source { CLIENT } else { OTHER }));
                self.tcp.connected_at = self.now;
                let stands = model.bug == Some(Bug::ClockStands);
                let now = if stands { Instant::ZERO } else { self.now };
                self.client.handle_tcp_connected(now, same_server, waits.then_some(WAIT));
            }
            Action::TcpUp { forwards, split } => self.tcp_up(model, forwards, split),
            Action::TcpDown => self.tcp_down(),
            Action::TcpBreaks => {
                self.left.tcp_breaks -= 1;
                self.close_connection();
                self.break_tcp();
            }
            Action::ClientTimer { early } => {
                self.left.early -= u8::from(early);
                self.client.handle_timeout(self.now);
            }
            Action::EdgeTimer { edge } => {
                let fast = model.bug == Some(Bug::EndsEarly);
                let ahead = if fast { SESSION_LIFE / 2 } else { Duration::ZERO };
                self.edges[usize::from(edge)].server.handle_timeout(self.now + ahead);
            }
            Action::TimePasses => {
                self.now = self.next_moment(model).expect("a moment that was offered");
            }
            Action::OriginWrites { origin } => self.origins[origin].writes += 1,
            Action::OriginLost { origin } => {
                self.left.origin_lost -= 1;
                self.lose_origin(origin);
            }
            Action::Restart { edge } => {
                self.left.restarts -= 1;
                self.restart(model, edge);
            }
        }
        self.drive(model);
        self.judge(model);
    }

    fn request(&mut self, model: &Network, edge: u8, from: SocketAddr, bytes: &[u8]) {
        let at = &mut self.edges[usize::from(edge)];
        let peer = if model.bug == Some(Bug::AnswersAnyAddress) { CLIENT } else { from };
        if at.server.handle_datagram(self.now, peer, None, bytes).is_ok() {
            let request = Request::parse(bytes).expect("what is taken is a request");
            let count = at.requests.entry((from, request.seq)).or_default();
            count.longest = count.longest.max(bytes.len());
            count.taken += 1;
        }
    }

    /// Does all that the machines, the application and the origins ask for.
    fn drive(&mut self, model: &Network) {
        while self.drive_client(model) | self.drive_edges(model) {}
    }

    fn drive_client(&mut self, model: &Network) -> bool {
        let mut busy = false;
        while let Some(bytes) = self.client.poll_datagram() {
            self.claim(Claim::Order, self.tcp.connected.is_none());
            self.up.push(Datagram { bytes: bytes.into(), copies: 1 });
            busy = true;
        }
        while let Some(bytes) = self.client.poll_tcp() {
            self.claim(Claim::Order, self.tcp.connected.is_some() && !self.tcp.up_finished);
            self.tcp.up.push_back(Segment::Bytes(bytes));
            busy = true;
        }
        while let Some(bytes) = self.client.poll_app() {
            self.take_server_bytes(model, &bytes);
            busy = true;
        }
        while let Some(event) = self.client.poll_event() {
            match event {
                ClientEvent::JoinSent { server_offset, .. } => self.committed |= server_offset > 0,
                ClientEvent::Reset(reason) => self.reset(model, reason),
                _ => {}
            }
        }
        if self.client.wants_tcp_finish() && !self.tcp.up_finished {
            self.tcp.up_finished = true;
            self.tcp.up.push_back(Segment::Finished);
        }
        if self.client.is_app_finished() {
            self.end.get_or_insert(End::Finished);
        }
        if self.end.is_none() && self.received >= WRITES[1] && !self.has_requested {
            self.has_requested = true;
            self.client.handle_app_data(self.now, &model.streams.client[model.hello..]);
            busy = true;
        }
        if self.end.is_none() && self.received >= WRITES[2] && !self.has_finished {
            self.has_finished = true;
            self.client.handle_app_finished(self.now);
            busy = true;
        }
        busy
    }

    fn take_server_bytes(&mut self, model: &Network, bytes: &[u8]) {
        let range = self.received..self.received + bytes.len();
        let has = |origin: &usize| {
            let carried = range.end <= self.origins[*origin].written();
            carried && model.streams.server[*origin].get(range.clone()) == Some(bytes)
        };
        self.source = match self.source {
            Some(origin) => Some(origin).filter(has),
            None => (0..self.origins.len()).find(has),
        };
        self.claim(Claim::ServerStream, self.source.is_some() && self.end.is_none());
        self.claim(Claim::Order, self.tcp.connected.is_some());
        self.received = range.end;
    }

    /// Judges a reset for which the client decided.
    fn reset(&mut self, model: &Network, reason: ResetReason) {
        self.end = Some(End::Reset);
        let stalled = !self.tcp.up.is_empty() || !self.tcp.down.is_empty();
        // W-STATE-3: who connects later relies on nothing.
        let in_time = self.tcp.connected_at.since_epoch() + JOIN_MARGIN < SESSION_LIFE;
        let expired = self.origins.iter().any(|origin| origin.expired);
        let forgotten = expired && (in_time || model.client.early_data);
        let restarted = self.left.restarts < model.harm.restarts;
        let apart = model.edges > 1 && !model.fleet;
        let unforwarded = self.left.forward_fails < model.harm.forward_fails;
        let source = self.tcp.connected.map(|(_, peer)| peer);
        let unproven = model.same_address && source != Some(CLIENT);
        let lost = forgotten || restarted || apart || unforwarded || unproven;
        let allowed = match reason {
            ResetReason::CommittedRefusal | ResetReason::Refused => self.committed && lost,
            ResetReason::JoinLost => self.tcp.broken || stalled,
            ResetReason::EarlyDataTooOld => self.now.since_epoch() >= EARLY_DATA_LIFE,
            ResetReason::Protocol => self.tcp.broken,
        };
        self.claim(Claim::Reset, allowed);
        self.close_connection();
        self.tcp.broken = true;
        self.tcp.up.clear();
        self.tcp.down.clear();
    }

    fn drive_edges(&mut self, model: &Network) -> bool {
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

    fn tcp_up(&mut self, model: &Network, forwards: bool, split: bool) {
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

    fn tcp_down(&mut self) {
        match self.tcp.down.pop_front() {
            Some(Segment::Bytes(bytes)) => self.client.handle_tcp_data(&bytes),
            Some(Segment::Finished) => self.client.handle_tcp_finished(),
            Some(Segment::Reset) => self.break_tcp(),
            None => {}
        }
    }

    /// Breaks TCP at the client, as plain TLS would see it, too.
    fn break_tcp(&mut self) {
        self.tcp.broken = true;
        self.tcp.up.clear();
        self.tcp.down.clear();
        self.client.handle_tcp_failed();
        self.end.get_or_insert(End::Reset);
    }

    /// Closes the edge's end of TCP and its origin.
    fn close_connection(&mut self) {
        let closed = std::mem::replace(&mut self.tcp.edge, Connection::Closed);
        if let Connection::Through { origin, .. } = closed {
            self.origins[origin].closed = true;
        }
    }

    fn lose_origin(&mut self, number: usize) {
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
    fn restart(&mut self, model: &Network, number: u8) {
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

    /// Judges a state in which all is done that was asked for.
    fn judge(&mut self, model: &Network) {
        let waits = self.client_timer(model).is_some()
            || self.tcp.connected.is_none()
            || !self.tcp.up.is_empty()
            || !self.tcp.down.is_empty()
            || self.origins.iter().any(|origin| !origin.closed && may_write(model, origin));
        let lost = self.tcp.broken || self.origins.iter().any(|origin| origin.lost);
        let done = match self.end {
            None => false,
            Some(End::Finished) => self.is_complete(model) || lost,
            Some(End::Reset) => true,
        };
        self.claim(Claim::Finishes, waits || done);
        for edge in 0..model.edges {
            let (sessions, bytes) = self.edges[usize::from(edge)].server.holds();
            let ends = sessions == 0 || self.edge_timer(model, edge).is_some();
            let bounded = sessions <= 1 && bytes <= sessions * (CLIENT_BYTES + SERVER_BYTES);
            self.claim(Claim::Limits, ends && bounded);
        }
    }
}

/// Takes one copy of a datagram, or leaves it there as well.
fn deliver(datagram: &mut Datagram, doubled: bool, left: &mut Harm) -> Arc<[u8]> {
    left.doubled -= u8::from(doubled);
    datagram.copies -= u8::from(!doubled);
    datagram.bytes.clone()
}

/// Returns true if the origin has heard what its next write answers.
fn may_write(model: &Network, origin: &Origin) -> bool {
    match origin.writes {
        0 | 1 => origin.received >= model.hello,
        2 => origin.received == model.streams.client.len(),
        _ => false,
    }
}
