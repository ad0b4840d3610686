//! One opening: the real [`Client`], one or two real [`Server`]s, an application, origins, TCP, and
//! a network that does what it likes with datagrams.
//!
//! After each action, the drivers here do all that the machines ask for, as those of `net` do.

mod client;
mod edges;
mod moves;
mod properties;

use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use std::vec::Vec;

use super::network::{Bug, Harm, Network, WRITES};
use crate::limits::SESSION_LIFE;
use crate::wire::{Request, Response};
use crate::{Client, Instant, JoinKey, RouteTag, Server, SessionId, Wait};
pub(super) use moves::Action;
pub(super) use properties::Claim;

const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 40_000);
const OTHER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)), 40_000);

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
}

/// Takes one copy of a datagram, or leaves it there as well.
fn deliver(datagram: &mut Datagram, doubled: bool, left: &mut Harm) -> Arc<[u8]> {
    left.doubled -= u8::from(doubled);
    datagram.copies -= u8::from(!doubled);
    datagram.bytes.clone()
}
