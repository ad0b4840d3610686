//! The rules of the simulator published with BLAST (Wang 2020, chapter 3 and its published
//! program).
//!
//! A connection takes one round trip for TCP, one for TLS, and on the first connection to a server
//! one more until the client knows that the server speaks HTTP/2 (ALPN). A request takes one round
//! trip to the first byte of its response. Bandwidth is each resource's own, never shared. Loss,
//! slow start and the servers' own time do not exist.

use std::collections::VecDeque;
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::events::{Events, Instant, nanos};
use super::triggers::{Trigger, Triggers, Wait};
use super::{Load, Times};
use crate::page::{self, Page, Protocol, Resource};

/// Maximum connections to one server, as browsers had them.
const CONNECTIONS: usize = 6;

/// Bytes of a TLS record: its payload, and its size on the wire.
const RECORD: u64 = 1401;
const RECORD_OVERHEAD: u64 = 29;

/// Bytes of the payload of a Tor cell, the unit in which data arrive.
const CELL: u64 = 498;

/// Maximum records that arrive in one group.
const GROUP_MAX: u64 = 10;

/// Time from the end of a group of records until the client requests what it names.
const PARSING: Instant = 1_000_000;

/// Time of TCP with Fast Open, to a server with an existing connection.
const FAST_OPEN: Instant = 1_000_000;

/// Time of TCP with optimistic data.
const OPTIMISTIC: Instant = 100_000_000;

/// Settings of a simulated load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Round-trip time.
    pub rtt: Duration,
    /// Bandwidth of each resource, in bytes a second.
    pub rate: u32,
    /// True if servers that support HTTP/2 use it.
    pub http2: bool,
    /// Maximum requests on an HTTP/1.1 connection at a time; 1 is no pipelining.
    pub depth: usize,
    /// Maximum connections to one server.
    pub connections: usize,
    /// Features that save time.
    pub features: Features,
}

impl Default for Settings {
    /// Returns the published settings: 0.8 s, 164 kB/s, HTTP/2, no features.
    fn default() -> Self {
        Self {
            rtt: Duration::from_millis(800),
            rate: 164_000,
            http2: true,
            depth: 1,
            connections: CONNECTIONS,
            features: Features::default(),
        }
    }
}

/// Features that BLAST proposes. Databases know every page: their hits are the caller's to choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// TCP Fast Open, to servers with an existing connection.
    pub fast_open: bool,
    /// The first flight leaves before TCP is known to be connected.
    pub optimistic_data: bool,
    /// TLS costs no round trip.
    pub zero_rtt: bool,
    /// The targets of the page's own redirects are known.
    pub redirect_database: bool,
    /// The servers that speak HTTP/2 are known.
    pub http2_database: bool,
    /// The resources that the page needs are known, and requested at once.
    pub prefetch_database: bool,
}

/// One of [`Features`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Feature {
    /// [`Features::fast_open`].
    FastOpen,
    /// [`Features::optimistic_data`].
    OptimisticData,
    /// [`Features::zero_rtt`].
    ZeroRtt,
    /// [`Features::redirect_database`].
    RedirectDatabase,
    /// [`Features::http2_database`].
    Http2Database,
    /// [`Features::prefetch_database`].
    PrefetchDatabase,
}

impl Feature {
    /// All features, in the order in which BLAST adds them.
    pub const ALL: [Self; 6] = [
        Self::FastOpen,
        Self::OptimisticData,
        Self::ZeroRtt,
        Self::RedirectDatabase,
        Self::Http2Database,
        Self::PrefetchDatabase,
    ];
}

impl Features {
    /// Collects the features of a list.
    pub fn from_list(list: &[Feature]) -> Self {
        list.iter().fold(Self::default(), |features, &feature| features.with(feature))
    }

    /// Adds a feature.
    #[must_use]
    pub fn with(mut self, feature: Feature) -> Self {
        *match feature {
            Feature::FastOpen => &mut self.fast_open,
            Feature::OptimisticData => &mut self.optimistic_data,
            Feature::ZeroRtt => &mut self.zero_rtt,
            Feature::RedirectDatabase => &mut self.redirect_database,
            Feature::Http2Database => &mut self.http2_database,
            Feature::PrefetchDatabase => &mut self.prefetch_database,
        } = true;
        self
    }

    fn prefetches(&self, resource: &Resource) -> bool {
        self.prefetch_database && resource.in_prefetch_database
    }

    /// Returns the features that remain on a page that no database knows.
    #[must_use]
    pub fn without_databases(self) -> Self {
        Self { redirect_database: false, http2_database: false, prefetch_database: false, ..self }
    }
}

/// A page, prepared to be loaded many times.
#[derive(Debug)]
pub struct Plan {
    servers: Vec<Target>,
    resources: Vec<Item>,
    triggers: Triggers,
}

#[derive(Debug)]
struct Target {
    tls: bool,
    http2: bool,
    in_http2_database: bool,
    pipelining: bool,
}

#[derive(Debug)]
struct Item {
    server: u32,
    bytes: u64,
    prefetched: bool,
}

impl Plan {
    /// Prepares a page under `settings`.
    pub fn new(page: &Page, settings: &Settings) -> Self {
        let features = &settings.features;
        if features.redirect_database && page.knows_redirects() {
            let page = page.without_redirects(|resource| features.prefetches(resource));
            return Self::new(&page, settings);
        }
        Self {
            servers: page
                .servers()
                .iter()
                .enumerate()
                .map(|(place, server): (usize, &page::Server)| Target {
                    tls: server.tls,
                    http2: settings.http2 && server.tls && server.protocol != Protocol::Http1,
                    in_http2_database: page.knows_http2(place),
                    pipelining: server.pipelining,
                })
                .collect(),
            resources: page
                .resources()
                .iter()
                .map(|resource: &Resource| Item {
                    server: u32::try_from(resource.server).unwrap_or(u32::MAX),
                    bytes: resource.response_bytes,
                    prefetched: features.prefetches(resource),
                })
                .collect(),
            triggers: Triggers::of_page(page),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The client needs a resource.
    Created(u32),
    /// A connection accepts requests.
    Ready(u32),
    /// A server is known to speak HTTP/2.
    Http2(u32),
    /// A resource is loaded, over a connection.
    Done(u32, u32),
}

/// Loads pages, reusing its memory.
#[derive(Debug)]
pub struct Simulator {
    events: Events<Event>,
    servers: Vec<Server>,
    connections: Vec<Connection>,
    /// True for each server where an attempt to send the queue may succeed. After a failure nothing
    /// changes until something happens at that server.
    worth: Vec<bool>,
    waits: Vec<Wait>,
    /// Triggers of one group of records.
    due: Vec<Trigger>,
    now: Instant,
}

#[derive(Debug, Default)]
struct Server {
    queue: VecDeque<u32>,
    connections: Vec<u32>,
    /// Number of connections that do not accept requests yet.
    opening: usize,
    /// Time at which the first accepts requests.
    established: Option<Instant>,
    /// True if known to speak HTTP/2.
    http2: bool,
}

#[derive(Debug)]
struct Connection {
    server: u32,
    ready: bool,
    requests: usize,
    /// Time at which the last of its responses is complete.
    free: Instant,
}

impl Default for Simulator {
    fn default() -> Self {
        Self::new()
    }
}

impl Simulator {
    /// Makes a simulator that has loaded nothing yet.
    pub fn new() -> Self {
        Self {
            events: Events::new(),
            servers: Vec::new(),
            connections: Vec::new(),
            worth: Vec::new(),
            waits: Vec::new(),
            due: Vec::new(),
            now: 0,
        }
    }

    /// Simulates one load. The same `seed` gives the same result.
    pub fn load(&mut self, plan: &Plan, settings: &Settings, seed: u64) -> Load {
        self.clear(plan);
        let resources = vec![Times::default(); plan.resources.len()];
        let mut run = Run {
            plan,
            rules: Rules::new(settings),
            draws: Xoshiro256PlusPlus::seed_from_u64(seed),
            load: Load { resources, ..Load::default() },
            state: self,
        };
        run.begin();
        while let Some((at, event)) = run.state.events.next() {
            run.state.now = at;
            run.on(event);
        }
        run.load
    }

    fn clear(&mut self, plan: &Plan) {
        self.events.clear();
        self.connections.clear();
        self.now = 0;
        self.servers.truncate(plan.servers.len());
        for server in &mut self.servers {
            server.queue.clear();
            server.connections.clear();
            server.opening = 0;
            server.established = None;
            server.http2 = false;
        }
        self.servers.resize_with(plan.servers.len(), Server::default);
        self.worth.clear();
        self.worth.resize(plan.servers.len(), false);
        self.waits.clear();
        self.waits.extend(plan.triggers.waits());
    }
}

/// Settings in the units of the simulation.
struct Rules {
    rtt: Instant,
    /// Nanoseconds for a cell.
    cell: Instant,
    settings: Settings,
}

impl Rules {
    fn new(settings: &Settings) -> Self {
        let rtt = nanos(settings.rtt);
        let cell = CELL * 1_000_000_000 / u64::from(settings.rate.max(1));
        Self { rtt, cell, settings: *settings }
    }
}

/// One load in progress.
struct Run<'a> {
    plan: &'a Plan,
    rules: Rules,
    draws: Xoshiro256PlusPlus,
    load: Load,
    state: &'a mut Simulator,
}

impl Run<'_> {
    fn begin(&mut self) {
        for (id, (item, wait)) in (0..).zip(self.plan.resources.iter().zip(&self.state.waits)) {
            if wait.parts == 0 || item.prefetched {
                self.state.events.at(0, Event::Created(id));
            }
        }
    }

    fn on(&mut self, event: Event) {
        match event {
            Event::Created(id) => {
                self.load.resources[id as usize].created = Duration::from_nanos(self.state.now);
                let server = self.plan.resources[id as usize].server;
                self.state.servers[server as usize].queue.push_back(id);
                self.dispatch(server);
            }
            Event::Ready(connection) => {
                let server = self.state.connections[connection as usize].server;
                self.state.connections[connection as usize].ready = true;
                self.state.servers[server as usize].opening -= 1;
                self.dispatch(server);
            }
            // It does not wake the queue.
            Event::Http2(server) => {
                self.state.servers[server as usize].http2 = true;
                self.state.worth[server as usize] = true;
            }
            Event::Done(_, connection) => {
                let connection = &mut self.state.connections[connection as usize];
                connection.requests -= 1;
                let server = connection.server;
                self.dispatch(server);
            }
        }
    }

    /// Sends what can be sent to `server`; if nothing can, what can be sent to others.
    fn dispatch(&mut self, server: u32) {
        if self.dispatch_to(server) {
            return;
        }
        for other in (0..).take(self.plan.servers.len()) {
            if other != server && self.state.worth[other as usize] {
                self.dispatch_to(other);
            }
        }
    }

    /// Sends the queue of a server; returns true if there was something to send. Stops at the first
    /// request without a connection.
    fn dispatch_to(&mut self, server: u32) -> bool {
        let mut any = false;
        let mut worth = false;
        let queued = self.state.servers[server as usize].queue.len();
        while let Some(&id) = self.state.servers[server as usize].queue.front() {
            let Some(connection) = self.place(server) else {
                worth = self.open(server, queued) || any;
                break;
            };
            self.state.servers[server as usize].queue.pop_front();
            self.send(id, connection);
            any = true;
        }
        self.state.worth[server as usize] = worth;
        any
    }

    /// Returns a connection that accepts a request now.
    fn place(&self, server: u32) -> Option<u32> {
        let all = &self.state.connections;
        let own = self.state.servers[server as usize].connections.iter().copied();
        let mut own = own.filter(|&id| all[id as usize].ready);
        if self.state.servers[server as usize].http2
            && let Some(id) = own.clone().next()
        {
            return Some(id);
        }
        let depth = if self.plan.servers[server as usize].pipelining {
            self.rules.settings.depth
        } else {
            1
        };
        let active = own.clone().filter(|&id| (1..depth).contains(&all[id as usize].requests));
        active
            .min_by_key(|&id| all[id as usize].requests)
            .or_else(|| own.find(|&id| all[id as usize].requests == 0))
    }

    /// Opens a connection if allowed and needed: for what was `queued` when the attempt began,
    /// although some of it may have been sent since. Returns true if it did.
    fn open(&mut self, server: u32, queued: usize) -> bool {
        let now = self.state.now;
        let target = &self.plan.servers[server as usize];
        let own = &mut self.state.servers[server as usize];
        if own.connections.len() >= self.rules.settings.connections.max(1) || own.opening >= queued
        {
            return false;
        }
        let features = &self.rules.settings.features;
        let mut tcp = self.rules.rtt;
        if features.optimistic_data {
            tcp = tcp.min(OPTIMISTIC);
        }
        if features.fast_open && own.established.is_some_and(|at| at <= now) {
            tcp = tcp.min(FAST_OPEN);
        }
        let tls = if target.tls && !features.zero_rtt { self.rules.rtt } else { 0 };
        let ready = now + tcp + tls;
        let first = own.connections.is_empty();
        own.established = Some(own.established.map_or(ready, |at| at.min(ready)));
        own.opening += 1;
        let id = u32::try_from(self.state.connections.len()).unwrap_or(u32::MAX);
        own.connections.push(id);
        own.http2 |= target.http2 && target.in_http2_database && features.http2_database;
        self.state.connections.push(Connection { server, ready: false, requests: 0, free: 0 });
        self.load.connections += 1;
        self.load.handshakes += u32::from(target.tls);
        self.state.events.at(ready, Event::Ready(id));
        if target.http2 && first {
            self.state.events.at(ready + self.rules.rtt, Event::Http2(server));
        }
        true
    }

    /// Sends a request, and schedules its response and what that names.
    fn send(&mut self, id: u32, connection: u32) {
        let now = self.state.now;
        let carrier = &mut self.state.connections[connection as usize];
        carrier.requests += 1;
        let mut first = now + self.rules.rtt;
        if !self.state.servers[carrier.server as usize].http2 {
            first = first.max(carrier.free);
        }
        let last = self.receive(id, first);
        let carrier = &mut self.state.connections[connection as usize];
        carrier.free = carrier.free.max(last);
        let times = &mut self.load.resources[id as usize];
        times.sent = Duration::from_nanos(now);
        times.first = Duration::from_nanos(first);
        times.last = Duration::from_nanos(last);
        self.state.events.at(last, Event::Done(id, connection));
    }

    /// Lets a response arrive in groups of records; returns its end.
    fn receive(&mut self, id: u32, first: Instant) -> Instant {
        let plan = self.plan;
        let bytes = plan.resources[id as usize].bytes;
        let triggers = plan.triggers.by_resource(id as usize);
        let (mut at, mut received, mut done) = (first, 0, 0);
        while received < bytes {
            let records = self.draws.random_range(1..=GROUP_MAX);
            let group = (records * RECORD).min(bytes - received);
            let wire = group + group.div_ceil(RECORD) * RECORD_OVERHEAD;
            at = at.saturating_add(wire.div_ceil(CELL).saturating_mul(self.rules.cell));
            received += group;
            let due = triggers[done..].iter().take_while(|trigger| trigger.bytes <= received);
            let end = done + due.count();
            self.reached(&triggers[done..end], at);
            done = end;
        }
        // An empty body is complete at once.
        self.reached(&triggers[done..], at);
        at
    }

    /// Handles a group of records at `at`, which makes the client request resources: in the order
    /// of the page, wherever in the group they are named.
    fn reached(&mut self, triggers: &[Trigger], at: Instant) {
        let Simulator { due, waits, events, .. } = &mut *self.state;
        due.clear();
        due.extend_from_slice(triggers);
        due.sort_unstable_by_key(|trigger| trigger.id);
        for trigger in due {
            let all = waits[trigger.id as usize].reached(at + PARSING + trigger.then);
            if let Some(at) = all
                && !self.plan.resources[trigger.id as usize].prefetched
            {
                events.at(at, Event::Created(trigger.id));
            }
        }
    }
}
