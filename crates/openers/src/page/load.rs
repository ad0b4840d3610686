//! The browser: what it asks for when, over which connections.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};

use super::browser::{Browser, triggers};
use super::connection::{Connection, Event};
use super::host_client::HostClients;
use super::plan::PagePlan;
use crate::arm::{Arm, Suite};
use crate::error::PeerError;
use crate::options::supported;
use headstart_proto::Carrier;

/// Time that connections may take to be closed together: each waits for its other end, and one that
/// nobody has used yet is opened first.
const CLOSING: Duration = Duration::from_secs(10);

/// Options of a client of pages.
#[derive(Clone, Debug)]
pub struct PageClientOptions {
    /// Opening of connections.
    pub arm: Arm,
    /// Cryptography; as the servers'.
    pub suite: Suite,
    /// Page to load.
    pub plan: PagePlan,
    /// Directory in which servers leave the trusted certificates.
    pub identity: PathBuf,
    /// Time limit of a load.
    pub timeout: Duration,
    /// Seed of the addresses that connections go to.
    pub seed: u64,
}

/// Loads a page over and over, and keeps between loads what the arm may keep.
#[derive(Clone)]
pub struct PageClient(Arc<Browser>);

/// One load of a page. Times are in milliseconds since its first resource was needed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PageLoad {
    /// True if every byte of every resource came and was right.
    pub ok: bool,
    /// Time until 95 % of the resources are there (BLAST, section 3.3).
    pub page_load_ms: Option<f64>,
    /// Time until all are there.
    pub full_load_ms: Option<f64>,
    /// Connections of TCP or QUIC.
    pub connections: u32,
    /// TLS handshakes.
    pub handshakes: u32,
    /// Connections with a session of an earlier one. Of QUIC only those with early data are known.
    pub resumptions: u32,
    /// Connections whose first request left before their handshake was done: as early data, or in
    /// the SYN.
    pub early: u32,
    /// Connections opened sooner than by TCP and then TLS: by TurboTLS, by a SYN with data that was
    /// taken, or QUIC.
    pub fast: u32,
    /// Bytes of all responses, with their heads.
    pub bytes: u64,
    /// Times of each of the page's resources, in their order.
    pub resources: Vec<PageTimes>,
    /// Error, or empty.
    pub error: String,
}

/// Times of a resource's events, in milliseconds since the load began; none for those that did not
/// happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PageTimes {
    /// The client knew that it needs it.
    pub created: Option<f64>,
    /// Time at which its request was handed to TLS.
    pub sent: Option<f64>,
    /// The first byte of the response came.
    pub first: Option<f64>,
    /// The last byte came.
    pub last: Option<f64>,
}

impl PageClient {
    /// A client that keeps nothing yet. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// A page that cannot be loaded, an arm that cannot load pages, or no certificate to trust.
    pub fn new(options: PageClientOptions) -> Result<Self, PeerError> {
        let PageClientOptions { arm, suite, plan, identity, timeout, seed } = options;
        supported(arm, suite)?;
        if !arm.loads_pages() {
            return Err(PeerError::new(format!("{arm} does not load pages"))
                .with_hint("use an arm without an agent and without ECH"));
        }
        plan.check()?;
        let clients = HostClients::new(arm, suite, &plan, &identity, timeout)?;
        let random = Mutex::new(StdRng::seed_from_u64(seed));
        let triggers = triggers(&plan);
        Ok(Self(Arc::new(Browser { plan, triggers, clients, timeout, random })))
    }

    /// Loads the page once.
    pub async fn load(&self) -> PageLoad {
        let mut loading = Loading::new(&self.0);
        let outcome = loading.run().await;
        loading.end(outcome).await
    }

    /// Drops sessions, cookies of its own and path memory.
    ///
    /// The kernel's Fast Open cookies stay: `ip tcp_metrics flush` in the client's namespace drops
    /// them.
    ///
    /// # Errors
    /// Want of memory.
    pub fn forget(&self) -> Result<(), PeerError> {
        self.0.clients.forget()
    }
}

/// A load that goes on.
struct Loading {
    browser: Arc<Browser>,
    begun: Instant,
    pools: Vec<Pool>,
    connections: Vec<Open>,
    tasks: JoinSet<()>,
    events: UnboundedReceiver<Event>,
    teller: UnboundedSender<Event>,
    /// Resources that are needed at a time that may be still to come.
    due: BinaryHeap<Reverse<(Instant, usize)>>,
    waits: Vec<Wait>,
    /// Number of resources that are missing.
    left: usize,
    load: PageLoad,
}

/// Connections for one set of resources.
#[derive(Default)]
struct Pool {
    queue: VecDeque<usize>,
    connections: Vec<usize>,
    /// Connections that are being opened for whatever waits first.
    opening: usize,
}

/// A connection as the browser sees it.
struct Open {
    pool: usize,
    ready: bool,
    /// It was opened for a request of its own.
    bound: bool,
    requests: usize,
    orders: UnboundedSender<usize>,
}

/// A resource that waits, and the progress of others that wait for it.
#[derive(Clone, Copy)]
struct Wait {
    parts: usize,
    at: Instant,
    triggered: usize,
}

impl Loading {
    fn new(browser: &Arc<Browser>) -> Self {
        let begun = Instant::now();
        let resources = &browser.plan.resources;
        // On QUIC, resources of one host share a connection whatever pools they are of.
        let pools = browser.plan.pools.len().max(browser.plan.hosts.len());
        let (teller, events) = unbounded_channel();
        let waits = resources
            .iter()
            .map(|one| Wait { parts: one.dependencies.len(), at: begun, triggered: 0 })
            .collect();
        Self {
            browser: Arc::clone(browser),
            begun,
            pools: std::iter::repeat_with(Pool::default).take(pools).collect(),
            connections: Vec::new(),
            tasks: JoinSet::new(),
            events,
            teller,
            due: BinaryHeap::new(),
            waits,
            left: resources.len(),
            load: PageLoad {
                resources: vec![PageTimes::default(); resources.len()],
                ..PageLoad::default()
            },
        }
    }

    async fn run(&mut self) -> Result<(), String> {
        let roots = self.browser.plan.resources.iter().enumerate();
        let roots = roots.filter(|(_, resource)| resource.dependencies.is_empty());
        self.due = roots.map(|(id, _)| Reverse((self.begun, id))).collect();
        let deadline = self.begun + self.browser.timeout;
        while self.left > 0 {
            let next = self.due.peek().map(|Reverse((at, _))| *at);
            if next.is_some_and(|at| at <= Instant::now()) {
                if let Some(Reverse((_, id))) = self.due.pop() {
                    self.need(id);
                }
                continue;
            }
            let wake = next.map_or(deadline, |at| at.min(deadline));
            tokio::select! {
                Some(event) = self.events.recv() => self.on(event)?,
                () = sleep_until(wake.into()) => {
                    if Instant::now() >= deadline {
                        return Err(format!("out of time: {} resources are not there", self.left));
                    }
                }
            }
        }
        Ok(())
    }

    /// Closes all connections, waits for their end, and gives the account of the load.
    async fn end(mut self, outcome: Result<(), String>) -> PageLoad {
        self.connections.clear();
        if outcome.is_ok() {
            let all = async { while self.tasks.join_next().await.is_some() {} };
            // The page has arrived: a connection that does not end does not affect it.
            let _ = timeout(CLOSING, all).await;
        }
        self.tasks.shutdown().await;
        self.load.ok = outcome.is_ok();
        self.load.error = outcome.err().unwrap_or_default();
        if self.load.ok {
            let mut ends: Vec<f64> =
                self.load.resources.iter().filter_map(|one| one.last).collect();
            ends.sort_by(f64::total_cmp);
            self.load.page_load_ms = ends.get(ends.len() * 95 / 100).copied();
            self.load.full_load_ms = ends.last().copied();
        }
        self.load
    }

    fn on(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Opened { connection, opening, resumed, early } => {
                self.load.handshakes += u32::from(resumed.is_some());
                self.load.resumptions += u32::from(resumed == Some(true));
                self.load.early += u32::from(early);
                self.load.fast += u32::from(opening != Carrier::Tcp);
                self.opened(connection);
            }
            Event::Sent { id, at } => {
                let ms = self.ms(at);
                self.note(id, |times| times.sent = Some(ms));
            }
            Event::Received { id, at, bytes } => {
                let ms = self.ms(at);
                self.note(id, |times| _ = times.first.get_or_insert(ms));
                self.trigger(id, at, bytes);
            }
            Event::Done { id, at, connection, bytes } => {
                self.load.bytes += bytes;
                self.left = self.left.saturating_sub(1);
                let ms = self.ms(at);
                self.note(id, |times| {
                    times.first.get_or_insert(ms);
                    times.last = Some(ms);
                });
                self.trigger(id, at, u64::MAX);
                self.free(connection);
            }
            Event::Failed(error) => return Err(error),
        }
        Ok(())
    }

    /// Rounds to the microsecond: no clock here is more exact.
    fn ms(&self, at: Instant) -> f64 {
        (at.saturating_duration_since(self.begun).as_secs_f64() * 1e6).round() / 1e3
    }

    fn note(&mut self, id: usize, change: impl FnOnce(&mut PageTimes)) {
        if let Some(times) = self.load.resources.get_mut(id) {
            change(times);
        }
    }

    fn need(&mut self, id: usize) {
        let ms = self.ms(Instant::now());
        self.note(id, |times| times.created = Some(ms));
        let pool = self.pool_of(id);
        if let Some(own) = self.pools.get_mut(pool) {
            own.queue.push_back(id);
        }
        self.dispatch(pool);
    }

    fn pool_of(&self, id: usize) -> usize {
        let plan = &self.browser.plan;
        let pool = plan.resources.get(id).map_or(0, |resource| resource.pool);
        match self.browser.clients.multiplex() {
            true => plan.pools.get(pool).copied().unwrap_or(0),
            false => pool,
        }
    }

    /// Sends what waits on connections that are there, and opens those that are wanted.
    fn dispatch(&mut self, pool: usize) {
        while let Some(connection) = self.place(pool) {
            let Some(id) = self.pools.get_mut(pool).and_then(|own| own.queue.pop_front()) else {
                break;
            };
            if let Some(connection) = self.connections.get_mut(connection) {
                connection.requests += 1;
                // A failed one has reported it.
                let _ = connection.orders.send(id);
            }
        }
        while self.wants_connection(pool) {
            self.open(pool);
        }
    }

    /// A connection that takes a request now.
    fn place(&self, pool: usize) -> Option<usize> {
        let multiplex = self.browser.clients.multiplex();
        self.pools
            .get(pool)?
            .connections
            .iter()
            .find(|one: &&usize| {
                let connection = self.connections.get(**one);
                connection.is_some_and(|one| one.ready && (multiplex || one.requests == 0))
            })
            .copied()
    }

    fn wants_connection(&self, pool: usize) -> bool {
        let Some(own) = self.pools.get(pool) else { return false };
        let multiplex = self.browser.clients.multiplex();
        let most = if multiplex { 1 } else { self.browser.plan.connections };
        own.opening < own.queue.len() && own.connections.len() < most
    }

    fn open(&mut self, pool: usize) {
        let plan = &self.browser.plan;
        let host = match self.browser.clients.multiplex() {
            true => pool,
            false => plan.pools.get(pool).copied().unwrap_or(0),
        };
        let Some(own) = self.pools.get_mut(pool) else { return };
        let number = self.connections.len();
        own.connections.push(number);
        let bound = self.browser.clients.need_request();
        let first = bound.then(|| own.queue.pop_front()).flatten();
        own.opening += usize::from(first.is_none());
        let (orders, received) = unbounded_channel();
        let requests = usize::from(first.is_some());
        self.connections.push(Open {
            pool,
            ready: false,
            bound: first.is_some(),
            requests,
            orders,
        });
        self.load.connections += 1;
        let connection = Connection {
            browser: Arc::clone(&self.browser),
            number,
            host,
            orders: received,
            events: self.teller.clone(),
        };
        self.tasks.spawn(connection.run(first));
    }

    fn opened(&mut self, connection: usize) {
        let Some(open) = self.connections.get_mut(connection) else { return };
        open.ready = true;
        let pool = open.pool;
        if let Some(own) = self.pools.get_mut(pool).filter(|_| !open.bound) {
            own.opening = own.opening.saturating_sub(1);
        }
        self.dispatch(pool);
    }

    /// A request on this connection has its response.
    fn free(&mut self, connection: usize) {
        let Some(open) = self.connections.get_mut(connection) else { return };
        open.requests = open.requests.saturating_sub(1);
        let pool = open.pool;
        self.dispatch(pool);
    }

    /// Marks as needed the resources that the first `bytes` of a response trigger.
    fn trigger(&mut self, id: usize, at: Instant, bytes: u64) {
        loop {
            let Some(wait) = self.waits.get_mut(id) else { return };
            let next = self.browser.triggers.get(id).and_then(|own| own.get(wait.triggered));
            let Some(due) = next.filter(|trigger| trigger.bytes <= bytes).copied() else { return };
            wait.triggered += 1;
            if let Some(waiting) = self.waits.get_mut(due.id) {
                waiting.at = waiting.at.max(at + due.then);
                waiting.parts = waiting.parts.saturating_sub(1);
                if waiting.parts == 0 {
                    self.due.push(Reverse((waiting.at, due.id)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use super::super::plan::{PageDependency, PageHost, PageResource};
    use super::*;
    use crate::options::ServerOptions;
    use crate::server::Server;

    /// Longer than any machine needs.
    const PATIENCE: Duration = Duration::from_secs(120);

    fn resource(pool: usize, bytes: u64, on: &[(usize, u64)]) -> PageResource {
        let dependency =
            |(on, bytes): &(usize, u64)| PageDependency { on: *on, bytes: *bytes, then_us: 0 };
        PageResource {
            pool,
            request_bytes: 400,
            response_bytes: bytes,
            dependencies: on.iter().map(dependency).collect(),
            ..PageResource::default()
        }
    }

    /// Two hosts; a redirect, a document, and much that it asks for.
    fn plan(address: SocketAddr) -> PagePlan {
        let host =
            |number| PageHost { name: format!("h{number}.page.test"), addresses: vec![address] };
        let mut resources = vec![
            PageResource { redirect: true, wait_us: 2_000, ..resource(0, 300, &[]) },
            resource(0, 50_000, &[(0, 300)]),
        ];
        resources.extend((0..20).map(|number| resource(number % 2, 9_000, &[(1, 4_000)])));
        resources.push(resource(1, 100, &[(5, u64::MAX), (6, 1)]));
        PagePlan { hosts: vec![host(1), host(2)], pools: vec![0, 1], connections: 6, resources }
    }

    fn options(arm: Arm, plan: PagePlan, identity: &std::path::Path) -> PageClientOptions {
        let identity = identity.to_owned();
        PageClientOptions { arm, suite: Suite::P256, plan, identity, timeout: PATIENCE, seed: 1 }
    }

    #[tokio::test]
    async fn every_arm_loads_a_page() {
        let directory = tempfile::tempdir().unwrap();
        let any_port = (Ipv4Addr::LOCALHOST, 0).into();
        for arm in Arm::all().filter(|arm| arm.loads_pages()) {
            let mut server = ServerOptions::new(arm, Suite::P256, any_port, directory.path());
            server.name = "*.page.test".into();
            let server = Server::start(server).unwrap();
            let plan = plan(server.local_addr());
            let bytes: u64 = plan.resources.iter().map(|one| one.response_bytes).sum();
            let client = PageClient::new(options(arm, plan, directory.path())).unwrap();
            let (first, again) = (client.load().await, client.load().await);
            for load in [&first, &again] {
                assert!(load.ok, "{arm}: {}", load.error);
                assert_eq!(load.bytes, bytes, "{arm}");
                assert!((2..=12).contains(&load.connections), "{arm}: {}", load.connections);
                let tls = if arm.is_clear() { 0 } else { load.handshakes };
                assert!(load.handshakes == tls && tls <= load.connections, "{arm}: {load:?}");
                in_order(arm, &load.resources);
            }
            let resumed = arm.resumes();
            assert_eq!(again.resumptions > 0, resumed, "{arm}: {}", again.resumptions);
            client.forget().unwrap();
            assert!(client.load().await.ok, "{arm}");
        }
    }

    fn in_order(arm: Arm, resources: &[PageTimes]) {
        for times in resources {
            let all = [times.created, times.sent, times.first, times.last].map(Option::unwrap);
            assert!(all[0] <= all[3] && all[1] <= all[2] && all[2] <= all[3], "{arm}: {times:?}");
        }
        assert!(resources[1].created >= resources[0].last, "{arm}: a redirect leads nowhere yet");
        let waits = resources.last().unwrap().created;
        assert!(waits >= resources[5].last && waits >= resources[6].first, "{arm}");
        // The server of the redirect thinks.
        assert!(resources[0].first.unwrap() - resources[0].sent.unwrap() >= 2.0, "{arm}");
    }

    #[tokio::test]
    async fn a_page_without_its_server_is_no_load() {
        let directory = tempfile::tempdir().unwrap();
        // Bound, so that no other socket gets the port, and not listening.
        let nobody = tokio::net::TcpSocket::new_v4().unwrap();
        nobody.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let plan = plan(nobody.local_addr().unwrap());
        let client = PageClient::new(options(Arm::HTTP, plan, directory.path())).unwrap();
        let load = client.load().await;
        assert!(!load.ok && load.page_load_ms.is_none(), "{load:?}");
        assert!(load.error.starts_with("h1.page.test: cannot connect"), "{}", load.error);
    }
}
