//! What is checked: a conversation, its edges, the harm that may be done, and planted mistakes.

use std::sync::Arc;
use std::time::Duration;
use std::vec::Vec;

use headstart_testkit::hello::CraftedHello;

use crate::{
    ClientConfig, EdgeNumber, RouteKey, RouteRing, RouteTag, Routes, Server, ServerConfig,
};

/// The application's second flight, a record; sent once it has the whole server flight.
const REQUEST: usize = 60;
/// Lengths of the records of the server flight.
const FLIGHT: [usize; 2] = [700, 800];
/// Ends of what the origin writes at once: the server flight in two pieces, then the response.
pub(super) const WRITES: [usize; 3] = [1000, 1500, 1550];
/// Origins that one run can open.
const ORIGINS: usize = 8;

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
    pub(super) client: Vec<u8>,
    /// One stream for each origin connection.
    pub(super) server: Vec<Vec<u8>>,
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

    pub(super) fn server(&self, edge: u8, start: u8) -> Server {
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
