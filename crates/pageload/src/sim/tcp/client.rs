//! The browser: what it asks for when, over which connections.

use std::collections::VecDeque;
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::super::events::{Events, Instant};
use super::super::triggers::{Triggers, Wait};
use super::super::{Load, Times};
use super::link::Line;
use super::sender::Sender;
use super::{Opening, Session, Settings, nanos};
use crate::page::{Page, Protocol};

/// A request of which the recording does not say how large it is, in bytes.
const REQUEST: u64 = 400;

/// What a server sends in a handshake, in bytes: with a chain of two certificates, and resumed.
const FLIGHT_FULL: u64 = 3_500;
const FLIGHT_RESUMED: u64 = 300;

/// How long the kernel waits for the answer to a SYN (RFC 6298), and for data at least before it sends again.
const SYN_TIMEOUT: Instant = 1_000_000_000;
const PROBE_TIMEOUT: Instant = 200_000_000;

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The client needs a resource.
    Needed(u32),
    /// A connection takes requests.
    Ready(u32),
    /// A request is at its server.
    Asked(u32, u32),
    /// A server has the response to a request.
    Made(u32, u32),
    /// A segment is at the client.
    Arrived(u32, u32),
    /// The acknowledgement of a segment that was sent then is at the server.
    Acknowledged(u32, Instant),
    /// The server sees that a segment was lost.
    Lost(u32, u32),
}

/// Loads pages over TCP.
#[derive(Debug, Default)]
pub struct Simulator(());

impl Simulator {
    /// One that has loaded nothing.
    #[must_use]
    pub fn new() -> Self {
        Self(())
    }

    /// One load of a page. The same `seed` gives the same.
    ///
    /// `takes_part` says of each server of the page whether connections to it may be opened otherwise than by TCP and
    /// full TLS.
    #[must_use]
    pub fn load(
        &self,
        page: &Page,
        settings: &Settings,
        takes_part: impl Fn(usize) -> bool,
        seed: u64,
    ) -> Load {
        if settings.hints.redirects && page.redirects() > 0 {
            let page = page.without_redirects();
            return Run::new(&page, settings, takes_part, seed).finish();
        }
        Run::new(page, settings, takes_part, seed).finish()
    }
}

/// One load, as it goes on.
struct Run<'a> {
    page: &'a Page,
    settings: &'a Settings,
    triggers: Triggers,
    events: Events<Event>,
    draws: Xoshiro256PlusPlus,
    now: Instant,
    rtt: Instant,
    down: Line,
    up: Line,
    servers: Vec<Server>,
    connections: Vec<Connection>,
    resources: Vec<Resource>,
    load: Load,
}

struct Server {
    takes_part: bool,
    http2: bool,
    /// What the client has from before, or from a connection of this load.
    cookie: bool,
    session: bool,
    /// From when on its address is known.
    resolved: Option<Instant>,
    resolution: Instant,
    queue: VecDeque<u32>,
    connections: Vec<u32>,
    opening: usize,
}

struct Connection {
    server: usize,
    ready: bool,
    requests: usize,
    sender: Sender,
}

struct Resource {
    wait: Wait,
    needed: bool,
    received: u64,
    /// How many of its triggers have gone off.
    triggered: usize,
}

impl<'a> Run<'a> {
    fn new(
        page: &'a Page,
        settings: &'a Settings,
        takes_part: impl Fn(usize) -> bool,
        seed: u64,
    ) -> Self {
        let triggers = Triggers::of_page(page);
        let mut draws = Xoshiro256PlusPlus::seed_from_u64(seed);
        let revisit = &settings.revisit;
        let mut has = |share: f64| draws.random::<f64>() < share;
        let servers = page.servers().iter().enumerate().map(|(id, server)| Server {
            takes_part: takes_part(id),
            http2: server.protocol != Protocol::Http1,
            cookie: has(revisit.cookies),
            session: has(revisit.sessions),
            resolved: None,
            resolution: if has(revisit.addresses) { 0 } else { nanos(settings.dns) },
            queue: VecDeque::new(),
            connections: Vec::new(),
            opening: 0,
        });
        let servers = servers.collect();
        let resource = |wait| Resource { wait, needed: false, received: 0, triggered: 0 };
        let resources = triggers.waits().map(resource).collect();
        let link = &settings.link;
        let times = vec![Times::default(); page.resources().len()];
        Self {
            page,
            settings,
            triggers,
            events: Events::new(),
            draws,
            now: 0,
            rtt: nanos(link.rtt),
            down: Line::new(link.down, link.queue),
            up: Line::new(link.up, link.queue),
            servers,
            connections: Vec::new(),
            resources,
            load: Load { resources: times, ..Load::default() },
        }
    }

    fn finish(mut self) -> Load {
        for (id, resource) in (0..).zip(self.page.resources()) {
            let prefetched = self.settings.hints.prefetch && resource.in_prefetch_database;
            if resource.dependencies.is_empty() || prefetched {
                self.events.at(0, Event::Needed(id));
            }
        }
        // After what is needed anyway: the document's server has its connection by then.
        if self.settings.hints.servers {
            while let Some((at, event)) = self.events.next_if_at(0) {
                self.now = at;
                self.on(event);
            }
            for server in 0..self.servers.len() {
                if self.servers[server].connections.is_empty() {
                    self.open(server);
                }
            }
        }
        while let Some((at, event)) = self.events.next() {
            self.now = at;
            self.on(event);
        }
        self.load
    }

    fn on(&mut self, event: Event) {
        match event {
            Event::Needed(id) => self.need(id),
            Event::Ready(connection) => self.ready(connection),
            Event::Asked(id, connection) => self.asked(id, connection),
            Event::Made(id, connection) => {
                let bytes = self.page.resources()[id as usize].response_bytes;
                self.connections[connection as usize].sender.respond(id, bytes);
                self.pump(connection);
            }
            Event::Arrived(connection, number) => self.arrived(connection, number),
            Event::Acknowledged(connection, sent) => {
                self.connections[connection as usize].sender.acknowledged(sent, self.now);
                self.pump(connection);
            }
            Event::Lost(connection, number) => {
                self.connections[connection as usize].sender.lost(number);
                self.send_again(connection, number);
            }
        }
    }

    fn need(&mut self, id: u32) {
        let resource = &mut self.resources[id as usize];
        if std::mem::replace(&mut resource.needed, true) {
            return;
        }
        self.load.resources[id as usize].created = Duration::from_nanos(self.now);
        let server = self.page.resources()[id as usize].server;
        self.servers[server].queue.push_back(id);
        self.dispatch(server);
    }

    fn ready(&mut self, connection: u32) {
        let server = self.connections[connection as usize].server;
        self.connections[connection as usize].ready = true;
        let own = &mut self.servers[server];
        own.opening -= 1;
        // What it has handed out serves the next.
        own.session = own.takes_part;
        own.cookie = own.takes_part;
        self.dispatch(server);
    }

    /// Sends what is asked of `server` on connections that are there, and opens those that are wanted.
    fn dispatch(&mut self, server: usize) {
        while let Some(&id) = self.servers[server].queue.front() {
            let Some(connection) = self.place(server) else { break };
            self.servers[server].queue.pop_front();
            self.ask(id, connection);
        }
        while self.wants_connection(server) {
            self.open(server);
        }
    }

    /// A connection that takes a request now.
    fn place(&self, server: usize) -> Option<u32> {
        let own = &self.servers[server];
        let connection = |id: &u32| &self.connections[*id as usize];
        let mut ready = own.connections.iter().filter(|id| connection(id).ready);
        if own.http2 { ready.next() } else { ready.find(|id| connection(id).requests == 0) }
            .copied()
    }

    fn wants_connection(&self, server: usize) -> bool {
        let own = &self.servers[server];
        // Until the first is there, the client does not know that one is enough.
        let known = self.settings.hints.http2 || own.connections.len() > own.opening;
        let most = if own.http2 && known { 1 } else { self.settings.connections };
        own.opening < own.queue.len() && own.connections.len() < most
    }

    fn open(&mut self, server: usize) {
        let id = u32::try_from(self.connections.len()).unwrap_or(u32::MAX);
        let ready = self.opened(server);
        self.servers[server].connections.push(id);
        self.servers[server].opening += 1;
        let sender = Sender::new();
        self.connections.push(Connection { server, ready: false, requests: 0, sender });
        self.load.connections += 1;
        self.load.handshakes += u32::from(self.page.servers()[server].tls);
        self.events.at(ready, Event::Ready(id));
    }

    /// When a connection that is opened now takes its first request.
    fn opened(&mut self, server: usize) -> Instant {
        let tls = self.page.servers()[server].tls;
        let own = &mut self.servers[server];
        let resolved = *own.resolved.get_or_insert(self.now + own.resolution);
        let session = match (tls, own.session) {
            (false, _) => Session::NoTls,
            (true, false) => Session::None,
            (true, true) if self.settings.early_data => Session::EarlyData,
            (true, true) => Session::Resumed,
        };
        let opening = if own.takes_part { self.settings.opening } else { Opening::Plain };
        let mut trips = opening.round_trips(session, own.cookie);
        if self.settings.hints.optimistic_data && opening.round_trips(session, true) < trips + 1 {
            trips = trips.saturating_sub(1);
        }
        let (flight, crypto) = match session {
            Session::NoTls => (0, Duration::ZERO),
            Session::None => (FLIGHT_FULL, self.settings.crypto.full),
            Session::Resumed | Session::EarlyData => (FLIGHT_RESUMED, self.settings.crypto.resumed),
        };
        let begin = self.now.max(resolved);
        let mut ready = begin + nanos(crypto);
        for trip in 0..trips {
            ready += self.rtt + self.lost_trip(if trip == 0 { SYN_TIMEOUT } else { PROBE_TIMEOUT });
        }
        // The server's flight takes its part of the link. Its end is awaited only where the request is.
        if flight > 0
            && let Some(end) = self.down.pass(begin, flight)
            && session != Session::EarlyData
        {
            ready = ready.max(end + self.rtt);
        }
        ready
    }

    /// What a round trip of two packets takes longer because one is lost.
    fn lost_trip(&mut self, timeout: Instant) -> Instant {
        let mut longer = 0;
        let mut timeout = timeout.max(2 * self.rtt.min(timeout));
        // After eight losses nobody waits.
        for _ in 0..8 {
            if !self.is_lost() && !self.is_lost() {
                break;
            }
            longer += timeout;
            timeout *= 2;
        }
        longer
    }

    fn is_lost(&mut self) -> bool {
        let loss = self.settings.link.loss;
        loss > 0.0 && self.draws.random::<f64>() < loss
    }

    fn ask(&mut self, id: u32, connection: u32) {
        self.connections[connection as usize].requests += 1;
        self.load.resources[id as usize].sent = Duration::from_nanos(self.now);
        let bytes = match self.page.resources()[id as usize].request_bytes {
            0 => REQUEST,
            bytes => bytes,
        };
        // A request is never dropped for want of room: it waits at the client.
        let left = self.up.pass(self.now, bytes).unwrap_or(self.now);
        let again = if self.is_lost() { PROBE_TIMEOUT.max(2 * self.rtt) } else { 0 };
        self.events.at(left + again + self.rtt / 2, Event::Asked(id, connection));
    }

    fn asked(&mut self, id: u32, connection: u32) {
        let resource = &self.page.resources()[id as usize];
        self.events.at(self.now + nanos(resource.server_time), Event::Made(id, connection));
        if self.settings.hints.early_hints && id as usize == self.page.redirects() {
            let at = self.now + self.rtt / 2;
            for trigger in self.triggers.of(id as usize) {
                self.events.at(at, Event::Needed(trigger.id));
            }
        }
    }

    /// Sends what the window lets.
    fn pump(&mut self, connection: u32) {
        while let Some((number, bytes)) =
            self.connections[connection as usize].sender.next(self.now, self.rtt)
        {
            self.transmit(connection, number, bytes);
        }
    }

    fn send_again(&mut self, connection: u32, number: u32) {
        let bytes = self.connections[connection as usize].sender.again(number, self.now);
        self.transmit(connection, number, bytes);
    }

    fn transmit(&mut self, connection: u32, number: u32, bytes: u64) {
        let left = self.down.pass(self.now, bytes).filter(|_| !self.is_lost());
        let Some(left) = left else {
            // Seen by what comes behind it, a round trip later.
            self.events.at(self.now + self.rtt, Event::Lost(connection, number));
            return;
        };
        let arrived = left + self.rtt / 2;
        self.events.at(arrived, Event::Arrived(connection, number));
        let acknowledged = arrived + self.rtt - self.rtt / 2;
        self.events.at(acknowledged, Event::Acknowledged(connection, self.now));
    }

    fn arrived(&mut self, connection: u32, number: u32) {
        let segments: Vec<_> =
            self.connections[connection as usize].sender.arrived(number).collect();
        for segment in segments {
            self.read(segment.resource, segment.bytes, connection);
        }
    }

    /// The client reads some of a response.
    fn read(&mut self, id: u32, bytes: u64, connection: u32) {
        let whole = self.page.resources()[id as usize].response_bytes.max(1);
        let times = &mut self.load.resources[id as usize];
        let resource = &mut self.resources[id as usize];
        if resource.received == 0 {
            times.first = Duration::from_nanos(self.now);
        }
        resource.received += bytes;
        let received = resource.received;
        self.trigger(id, received);
        if received >= whole {
            self.load.resources[id as usize].last = Duration::from_nanos(self.now);
            let connection = &mut self.connections[connection as usize];
            connection.requests -= 1;
            let server = connection.server;
            self.dispatch(server);
        }
    }

    /// Has the client ask for what `received` bytes of a response name.
    fn trigger(&mut self, id: u32, received: u64) {
        let begin = self.resources[id as usize].triggered;
        let due = self.triggers.of(id as usize)[begin..].iter();
        let due: Vec<_> = due.take_while(|trigger| trigger.bytes <= received).copied().collect();
        self.resources[id as usize].triggered += due.len();
        for trigger in due {
            let wait = &mut self.resources[trigger.id as usize].wait;
            if let Some(at) = wait.reached(self.now + trigger.then) {
                self.events.at(at, Event::Needed(trigger.id));
            }
        }
    }
}
