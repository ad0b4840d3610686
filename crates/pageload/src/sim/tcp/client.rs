//! The browser: what it requests when, over which connections.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::super::events::{Events, Instant, nanos};
use super::super::triggers::{Triggers, Wait};
use super::super::{Load, Times};
use super::link::Line;
use super::sender::Sender;
use super::{Delivery, Revisit, Settings, Techniques, others};
use crate::page::{self, Page, Protocol};

/// Maximum loss: beyond it hardly anything arrives, and loads would not end.
const LOSS_MAX: f64 = 0.9;

/// Separates the draws of losses from those of the client's state, so that the latter do not depend
/// on what is sent.
const LOSSES: u64 = 0x6c6f_7373_6573;

pub(super) fn load(
    page: &Page,
    settings: &Settings,
    takes_part: &dyn Fn(usize) -> bool,
    seed: u64,
) -> Load {
    let mut draws = Xoshiro256PlusPlus::seed_from_u64(seed);
    let is_known = draws.random::<f64>() < settings.hit_rate;
    let techniques =
        if is_known { settings.techniques } else { settings.techniques.without_databases() };
    let at_start = techniques.prefetch_database && settings.delivery == Delivery::Start;
    let without = techniques.redirect_database && page.knows_redirects();
    let without = without.then(|| {
        page.without_redirects(|resource: &page::Resource| {
            at_start && resource.in_prefetch_database
        })
    });
    let page = without.as_ref().unwrap_or(page);
    let needed = page.resources().len();
    let others = others::others(page, settings.delivery, techniques);
    let page = others.as_ref().unwrap_or(page);
    let servers = servers(page, settings, techniques, takes_part, &mut draws);
    let mut run = Run::new(page, settings, techniques, servers, seed ^ LOSSES);
    run.begin(needed);
    while let Some((at, event)) = run.events.next() {
        run.now = at;
        run.on(event);
    }
    // Resources that are not needed are not awaited.
    run.load.resources.truncate(needed);
    run.load.estimate_events(page);
    run.load
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// The client needs a resource.
    Needed(u32),
    /// The client receives the head of the document's response.
    Head,
    /// A server answers in the handshake of a connection.
    Flight(u32),
    /// A connection accepts requests.
    Ready(u32),
    /// A server has the TCP part of a connection whose requests came over UDP.
    Joined(u32),
    /// A request arrives at its server.
    Asked(u32, u32),
    /// A server has the response to a request.
    Made(u32, u32),
    /// A segment arrives at the client.
    Arrived(u32, u32),
    /// The acknowledgement of a segment sent at that time arrives at the server.
    Acknowledged(u32, Instant),
    /// The server detects that a segment was lost.
    Lost(u32, u32),
}

/// One load in progress.
pub(super) struct Run<'a> {
    pub(super) page: &'a Page,
    pub(super) settings: &'a Settings,
    pub(super) techniques: Techniques,
    pub(super) triggers: Triggers,
    pub(super) events: Events<Event>,
    pub(super) now: Instant,
    pub(super) rtt: Instant,
    pub(super) down: Line,
    pub(super) up: Line,
    /// Servers of [`Page::servers`], then those of [`Self::apart`].
    pub(super) servers: Vec<Server>,
    /// Servers needed by frames of other sites, each with the one that stands for it there and has
    /// connections of its own.
    pub(super) apart: BTreeMap<usize, usize>,
    /// Time at which the address of a host is known, once it was requested.
    pub(super) resolved: Vec<Option<Instant>>,
    pub(super) connections: Vec<Connection>,
    pub(super) resources: Vec<Resource>,
    pub(super) load: Load,
    /// Requests that the browser holds back, in the order in which the page named them.
    pub(super) held: VecDeque<u32>,
    /// Delayable requests in flight.
    pub(super) delayable: Vec<u32>,
    losses: Xoshiro256PlusPlus,
}

#[derive(Clone)]
pub(super) struct Server {
    pub(super) takes_part: bool,
    pub(super) tls: bool,
    pub(super) http2: bool,
    /// True if the HTTP/2 database has it; without one, if the recording shows it.
    pub(super) in_http2_database: bool,
    /// Maximum requests on an HTTP/1.1 connection.
    pub(super) depth: usize,
    /// Time from which the client has what opens the next connection sooner.
    pub(super) session: Option<Instant>,
    pub(super) cookie: Option<Instant>,
    pub(super) private_cookie: Option<Instant>,
    /// Index of its host in [`Run::resolved`].
    pub(super) host: usize,
    pub(super) resolution: Instant,
    /// True if there is a connection from the start.
    pub(super) warm: bool,
    /// True once a request went to it.
    pub(super) is_asked: bool,
    pub(super) queue: VecDeque<u32>,
    pub(super) connections: Vec<u32>,
    pub(super) opening: usize,
}

pub(super) struct Connection {
    pub(super) server: usize,
    pub(super) ready: bool,
    /// True if the request does not wait for the server's flight.
    pub(super) early: bool,
    /// Bytes that the server sends in its handshake.
    pub(super) flight: u64,
    /// Requests without a response, in the order in which they were sent.
    pub(super) requests: VecDeque<Request>,
    pub(super) sender: Sender,
}

pub(super) struct Request {
    pub(super) id: u32,
    /// True if the server has its response.
    pub(super) made: bool,
    /// True if the server is sending it.
    pub(super) answered: bool,
}

pub(super) struct Resource {
    wait: Wait,
    /// True if the page has come to it.
    needed: bool,
    /// True if it was requested, perhaps before the page came to it.
    asked: bool,
    received: u64,
    /// Number of its triggers that have fired.
    triggered: usize,
}

/// Returns the servers as the client finds them.
fn servers(
    page: &Page,
    settings: &Settings,
    techniques: Techniques,
    takes_part: &dyn Fn(usize) -> bool,
    draws: &mut Xoshiro256PlusPlus,
) -> Vec<Server> {
    let Revisit { cookies, moved, sessions, shared_sessions, addresses, connections } =
        settings.revisit;
    let mut hosts: BTreeMap<(Option<usize>, String), usize> = BTreeMap::new();
    page.servers()
        .iter()
        .enumerate()
        .map(|(id, server): (usize, &page::Server)| {
            // As many draws whatever the settings: what one of them changes is not what another
            // finds.
            let [cookie, stays, session, address, connection] =
                std::array::from_fn(|_| draws.random::<f64>());
            let takes_part = takes_part(id);
            let shares = techniques.session_sharing && takes_part;
            let sessions = if shares { sessions.max(shared_sessions) } else { sessions };
            let known = hosts.len();
            // Without a name, it counts as a separate host.
            let name = (server.host.is_empty().then_some(id), server.host.clone());
            Server {
                takes_part,
                tls: server.tls,
                http2: server.tls && server.protocol != Protocol::Http1,
                in_http2_database: page.knows_http2(id),
                depth: if server.pipelining { settings.pools.depth.max(1) } else { 1 },
                session: (session < sessions).then_some(0),
                cookie: (cookie < cookies && stays >= moved).then_some(0),
                private_cookie: (cookie < cookies).then_some(0),
                host: *hosts.entry(name).or_insert(known),
                resolution: if address < addresses { 0 } else { nanos(settings.dns) },
                warm: connection < connections,
                is_asked: false,
                queue: VecDeque::new(),
                connections: Vec::new(),
                opening: 0,
            }
        })
        .collect()
}

impl<'a> Run<'a> {
    fn new(
        page: &'a Page,
        settings: &'a Settings,
        techniques: Techniques,
        mut servers: Vec<Server>,
        seed: u64,
    ) -> Self {
        let framed = page.resources().iter().filter(|resource| resource.in_foreign_frame);
        let framed: BTreeSet<usize> = framed.map(|resource| resource.server).collect();
        let apart = framed.into_iter().zip(servers.len()..).collect::<BTreeMap<_, _>>();
        let others: Vec<Server> = apart.keys().map(|server| servers[*server].clone()).collect();
        servers.extend(others);
        let triggers = Triggers::of_page(page);
        let resource =
            |wait| Resource { wait, needed: false, asked: false, received: 0, triggered: 0 };
        let resources = triggers.waits().map(resource).collect();
        let link = &settings.link;
        let times = vec![Times::default(); page.resources().len()];
        Self {
            page,
            settings,
            techniques,
            triggers,
            events: Events::new(),
            now: 0,
            rtt: nanos(link.rtt),
            down: Line::new(link.down, link.queue),
            up: Line::new(link.up, link.queue),
            resolved: vec![None; servers.len()],
            servers,
            apart,
            connections: Vec::new(),
            resources,
            load: Load { resources: times, ..Load::default() },
            held: VecDeque::new(),
            delayable: Vec::new(),
            losses: Xoshiro256PlusPlus::seed_from_u64(seed),
        }
    }

    /// Starts all resources; the first `needed` are the page's own, the others are requested in
    /// vain.
    fn begin(&mut self, needed: usize) {
        for server in 0..self.servers.len() {
            if self.servers[server].warm {
                self.add_warm(server);
            }
        }
        for (id, resource) in (0..).zip(&self.page.resources()[..needed]) {
            if resource.dependencies.is_empty() || self.is_known_at_start(resource) {
                self.need(id);
            }
        }
        if self.settings.delivery == Delivery::Start {
            self.begin_others(needed);
        }
    }

    pub(super) fn is_lost(&mut self) -> bool {
        let loss = self.settings.link.loss.min(LOSS_MAX);
        loss > 0.0 && self.losses.random::<f64>() < loss
    }

    fn on(&mut self, event: Event) {
        match event {
            Event::Needed(id) => self.need(id),
            Event::Head => self.head(),
            Event::Flight(connection) => self.answer(connection),
            Event::Ready(connection) => self.ready(connection),
            Event::Joined(connection) => self.pump(connection),
            Event::Asked(id, connection) => self.asked(id, connection),
            Event::Made(id, connection) => self.made(id, connection),
            Event::Arrived(connection, number) => self.arrived(connection, number),
            Event::Acknowledged(connection, sent) => {
                self.connections[connection as usize].sender.acknowledged(sent, self.now);
                self.pump(connection);
            }
            Event::Lost(connection, number) => self.send_again(connection, number),
        }
    }

    /// Handles the page coming to a resource. If it is there already, it has its effect now.
    pub(super) fn need(&mut self, id: u32) {
        let resource = &mut self.resources[id as usize];
        if std::mem::replace(&mut resource.needed, true) {
            return;
        }
        let received = resource.received;
        self.fetch(id);
        self.trigger(id, received);
    }

    /// Requests a resource, unless that was done before.
    pub(super) fn fetch(&mut self, id: u32) {
        let resource = &mut self.resources[id as usize];
        if std::mem::replace(&mut resource.asked, true) {
            return;
        }
        self.load.resources[id as usize].created = Duration::from_nanos(self.now);
        self.schedule(id);
    }

    /// Returns true if the page has come to a resource.
    pub(super) fn is_needed(&self, id: u32) -> bool {
        self.resources[id as usize].needed
    }

    /// Returns the server of a resource; in a frame of another site, the one with connections of
    /// its own.
    pub(super) fn server_of(&self, resource: &page::Resource) -> usize {
        let apart = self.apart.get(&resource.server).filter(|_| resource.in_foreign_frame);
        apart.copied().unwrap_or(resource.server)
    }

    /// Sends the requests to `server` on existing connections, and opens those that are wanted.
    pub(super) fn dispatch(&mut self, server: usize) {
        while let Some(&id) = self.servers[server].queue.front() {
            let Some(connection) = self.place(server) else { break };
            self.servers[server].queue.pop_front();
            self.ask(id, connection);
        }
        while self.wants_connection(server) {
            self.open(server);
        }
    }

    /// Returns a connection that accepts a request now: an idle one, or the one with the fewest
    /// requests.
    fn place(&self, server: usize) -> Option<u32> {
        let own = &self.servers[server];
        let connections = own.connections.iter().map(|&id| (id, &self.connections[id as usize]));
        let mut ready = connections.filter(|(_, connection)| connection.ready);
        if own.http2 {
            return ready.next().map(|(id, _)| id);
        }
        ready
            .filter(|(_, connection)| connection.requests.len() < own.depth)
            .min_by_key(|(_, connection)| connection.requests.len())
            .map(|(id, _)| id)
    }

    fn wants_connection(&self, server: usize) -> bool {
        let own = &self.servers[server];
        // Until the first has arrived, the client does not know that one suffices.
        let in_database = self.techniques.http2_database && own.in_http2_database;
        let known = in_database || own.connections.len() > own.opening;
        let most = if own.http2 && known { 1 } else { self.settings.pools.connections.max(1) };
        own.opening < own.queue.len() && own.connections.len() < most
    }

    /// Handles the client reading some of a response.
    pub(super) fn read(&mut self, id: u32, bytes: u64, connection: u32) {
        let whole = self.page.resources()[id as usize].response_bytes.max(1);
        let times = &mut self.load.resources[id as usize];
        let resource = &mut self.resources[id as usize];
        let is_first = resource.received == 0;
        if is_first {
            times.first = Duration::from_nanos(self.now);
        }
        resource.received += bytes;
        let received = resource.received;
        if received >= whole {
            times.last = Duration::from_nanos(self.now);
        }
        if is_first && id as usize == self.page.redirects() {
            self.events.at(self.now, Event::Head);
        }
        self.trigger(id, received);
        if received >= whole {
            let connection = &mut self.connections[connection as usize];
            let place = connection.requests.iter().position(|request| request.id == id);
            place.and_then(|place| connection.requests.remove(place));
            let server = connection.server;
            self.dispatch(server);
            self.finish(id);
        }
    }

    /// Requests what `received` bytes of a response name, if the page has come to it.
    fn trigger(&mut self, id: u32, received: u64) {
        while self.resources[id as usize].needed {
            let next = self.resources[id as usize].triggered;
            let next = self.triggers.by_resource(id as usize).get(next).copied();
            let Some(due) = next.filter(|trigger| trigger.bytes <= received) else { break };
            self.resources[id as usize].triggered += 1;
            let wait = &mut self.resources[due.id as usize].wait;
            if let Some(at) = wait.reached(self.now + due.then) {
                self.events.at(at, Event::Needed(due.id));
            }
        }
    }
}
