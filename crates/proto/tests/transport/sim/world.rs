//! Runs a scenario and returns its outcome.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use headstart_emulation::{Delay, Link};
use headstart_proto::{ClientConfig, ClientEvent, GraceEstimator, ServerConfig, Wait};

use super::client::{ClientSide, End};
use super::edge::{EdgeSide, Host};
use super::tcp::Direction;
use super::{GRACE, HALF, Log, RTT, Script, Turn};

/// Steps after which a run counts as stalled. The longest run takes some hundreds.
const STEPS: usize = 20_000;

/// All inputs of a run. The same scenario gives the same run.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) script: Script,
    /// `None`: the client knows of no edge, and the connection is plain.
    pub(crate) offer: Option<ClientConfig>,
    /// Time at which discovery finds the edge.
    pub(crate) offer_at: Duration,
    pub(crate) host: Host,
    /// Host at the other end of TCP, if not `host`.
    pub(crate) tcp_host: Option<Host>,
    /// The client driver's claim that TCP and datagrams reach the same address.
    pub(crate) same_address: bool,
    /// The client's address on TCP.
    pub(crate) tcp_source: IpAddr,
    pub(crate) up: Link,
    pub(crate) down: Link,
    /// Time at which TCP is connected; `None` if it is refused after one RTT.
    pub(crate) connect: Option<Duration>,
    /// True if a datagram is read before a SYN-ACK of the same moment.
    pub(crate) datagrams_first: bool,
    pub(crate) grace: Duration,
    /// Samples of the path and whether it is proven, which then decide in place of `grace`.
    pub(crate) path: Option<(GraceEstimator, bool)>,
    pub(crate) restart_at: Option<Duration>,
    pub(crate) unreachable_at: Option<Duration>,
    /// True if the client's driver bypasses the machine once that is transparent.
    pub(crate) splice: bool,
    /// True to keep a log.
    pub(crate) log: bool,
}

impl Scenario {
    /// Returns a scenario in which both sides support the protocol and the network only adds delay.
    pub(crate) fn new(script: Script) -> Self {
        Self {
            script,
            offer: Some(ClientConfig::default()),
            offer_at: Duration::ZERO,
            host: Host::Edge(ServerConfig::default()),
            tcp_host: None,
            same_address: true,
            tcp_source: CLIENT.ip(),
            up: Link::default().with(Delay(HALF)),
            down: Link::default().with(Delay(HALF)),
            connect: Some(RTT),
            datagrams_first: false,
            grace: GRACE,
            path: None,
            restart_at: None,
            unreachable_at: None,
            splice: true,
            log: false,
        }
    }

    fn wait(&self) -> Option<Wait> {
        match self.path {
            Some((path, proven)) => path.wait(self.connect?, self.script.starts_at, proven),
            None => Some(Wait::within(self.grace)),
        }
    }

    /// Returns the same conversation over TCP alone.
    pub(crate) fn plain(&self) -> Self {
        Self {
            offer: None,
            host: self.host,
            connect: self.connect,
            ..Self::new(self.script.clone())
        }
    }
}

/// The client's address on UDP.
pub(super) const CLIENT: SocketAddr =
    SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)), 40_000);

/// Results of a scenario.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Bytes the application received, and the end of its stream.
    pub(crate) app: (Vec<u8>, Option<End>),
    /// Bytes each connection to an origin received.
    pub(crate) origins: Vec<Vec<u8>>,
    /// Number of these that received a whole ClientHello.
    pub(crate) hellos: usize,
    /// True if a whole ClientHello came over UDP.
    pub(crate) hello_over_udp: bool,
    pub(crate) first_request: Option<Duration>,
    pub(crate) first_response: Option<Duration>,
    pub(crate) events: Vec<(Duration, ClientEvent)>,
    pub(crate) log: Log,
    pub(crate) unproven: usize,
}

impl Outcome {
    /// Returns the bytes received by the origin that served the application.
    pub(crate) fn origin(&self) -> &[u8] {
        self.origins.last().map_or(&[], Vec::as_slice)
    }

    /// Returns the time the client waited for datagrams after TCP had connected, until it joined or
    /// went plain. Checks that it ends within the grace after the last datagram.
    pub(crate) fn waited(&self, connect: Duration, grace: Duration) -> Duration {
        let decided_at = self.when(is_decision).expect("TCP connected");
        let before = self.events.iter().take_while(|(_, event)| !is_decision(event));
        let heard =
            before.filter(|(_, event)| matches!(event, ClientEvent::DatagramReceived { .. }));
        let last = heard.map(|(at, _)| *at).max().unwrap_or_default();
        assert!(decided_at <= connect.max(last) + grace);
        decided_at - connect
    }

    pub(crate) fn when(&self, wanted: impl Fn(&ClientEvent) -> bool) -> Option<Duration> {
        self.events.iter().find(|(_, event)| wanted(event)).map(|(at, _)| *at)
    }
}

/// Returns true if the client has stopped waiting for datagrams.
const fn is_decision(event: &ClientEvent) -> bool {
    matches!(event, ClientEvent::JoinSent { .. } | ClientEvent::Plain(_) | ClientEvent::Reset(_))
}

/// Runs until nothing is in flight and all state has expired.
pub(crate) fn run(scenario: Scenario) -> Outcome {
    let mut world = World::new(scenario);
    world.step();
    let mut steps = 0;
    while let Some(at) = world.next_due() {
        assert!(at >= world.now, "time goes forward");
        world.now = at;
        world.step();
        steps += 1;
        assert!(steps < STEPS, "stalled: {:?}", world.client.events.last());
    }
    world.client.check_tcp();
    world.outcome()
}

#[derive(Debug)]
struct World {
    now: Duration,
    scenario: Scenario,
    client: ClientSide,
    host: EdgeSide,
    /// The peer on TCP, if not `host`.
    other: Option<EdgeSide>,
    tcp_up: Direction,
    tcp_down: Direction,
    connecting: bool,
    log: Log,
}

impl World {
    fn new(scenario: Scenario) -> Self {
        let script = &scenario.script;
        let client = ClientSide::new(script, [7; 16], scenario.splice);
        let peer = SocketAddr::new(scenario.tcp_source, 50_000);
        let host = EdgeSide::new(script, scenario.host, peer);
        let other = scenario.tcp_host.map(|host| EdgeSide::new(script, host, peer));
        let log = Log { wanted: scenario.log, lines: Vec::new() };
        Self {
            now: Duration::ZERO,
            scenario,
            client,
            host,
            other,
            tcp_up: Direction::new(HALF),
            tcp_down: Direction::new(HALF),
            connecting: true,
            log,
        }
    }

    fn next_due(&self) -> Option<Duration> {
        [
            self.scenario.up.next_due(),
            self.scenario.down.next_due(),
            self.tcp_up.next_due(),
            self.tcp_down.next_due(),
            self.connecting.then(|| self.scenario.connect.unwrap_or(RTT)),
            self.scenario.offer.map(|_| self.scenario.offer_at),
            self.scenario.restart_at,
            self.scenario.unreachable_at,
            Some(self.scenario.script.starts_at).filter(|at| *at > self.now),
            self.client.next_due(),
            self.host.next_due(),
            self.other.as_ref().and_then(EdgeSide::next_due),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn step(&mut self) {
        self.offer();
        self.break_things();
        if self.scenario.datagrams_first {
            self.deliver_down();
            self.connect();
        } else {
            self.connect();
            self.deliver_down();
        }
        self.deliver_up();
        self.deliver_tcp();
        self.client.handle_time(self.now);
        self.host.handle_time(self.now);
        if let Some(other) = &mut self.other {
            other.handle_time(self.now);
        }
        self.drive();
    }

    fn offer(&mut self) {
        let due = self.scenario.offer_at <= self.now;
        if let Some(config) = self.scenario.offer.take_if(|_| due) {
            self.client.handle_offer(config);
            self.drive();
        }
    }

    fn break_things(&mut self) {
        if self.scenario.restart_at.take_if(|at| *at <= self.now).is_some() {
            self.log.note(self.now, "edge", "restarts");
            let accepted = self.scenario.connect.is_some_and(|at| at <= self.now + HALF);
            let (tcp, log) = (&mut self.tcp_down, &mut self.log);
            self.host.restart(accepted, &mut Turn { now: self.now, tcp, log });
        }
        if self.scenario.unreachable_at.take_if(|at| *at <= self.now).is_some() {
            self.client.handle_unreachable(self.now);
            self.drive();
        }
    }

    fn connect(&mut self) {
        let at = self.scenario.connect.unwrap_or(RTT);
        if !self.connecting || at > self.now {
            return;
        }
        self.connecting = false;
        if self.scenario.connect.is_some() {
            let wait = self.scenario.wait();
            self.client.handle_connected(self.now, self.scenario.same_address, wait);
        } else {
            self.log.note(self.now, "client", "TCP is refused");
            self.client.handle_refused();
        }
        self.drive();
    }

    fn deliver_down(&mut self) {
        while let Some(packet) = self.scenario.down.poll(self.now) {
            self.client.handle_datagram(self.now, &packet.bytes);
            self.drive();
        }
    }

    fn deliver_up(&mut self) {
        while let Some(packet) = self.scenario.up.poll(self.now) {
            let (tcp, log) = (&mut self.tcp_down, &mut self.log);
            self.host.handle_datagram(&packet.bytes, &mut Turn { now: self.now, tcp, log });
            self.drive();
        }
    }

    fn deliver_tcp(&mut self) {
        while let Some(segment) = self.tcp_up.poll(self.now) {
            let host = self.other.as_mut().unwrap_or(&mut self.host);
            let (tcp, log) = (&mut self.tcp_down, &mut self.log);
            host.handle_segment(segment, &mut Turn { now: self.now, tcp, log });
            self.drive();
        }
        while let Some(segment) = self.tcp_down.poll(self.now) {
            self.client.handle_segment(self.now, segment);
            self.drive();
        }
    }

    fn drive(&mut self) {
        let (now, log) = (self.now, &mut self.log);
        let mut turn = Turn { now, tcp: &mut self.tcp_up, log };
        self.client.drive(&mut self.scenario.up, &mut turn);
        let mut turn = Turn { now, tcp: &mut self.tcp_down, log };
        self.host.drive(&mut self.scenario.down, &mut turn);
        if let Some(other) = &mut self.other {
            other.drive(&mut self.scenario.down, &mut turn);
        }
    }

    fn outcome(self) -> Outcome {
        let other = self.other.into_iter().flat_map(|edge| edge.origins);
        let unproven = self.host.unproven();
        let hello_over_udp = self.host.hello_over_udp;
        let origins: Vec<_> = self.host.origins.into_iter().chain(other).collect();
        Outcome {
            app: (self.client.app.received, self.client.app.end),
            hellos: origins.iter().filter(|origin| origin.got_hello()).count(),
            hello_over_udp,
            origins: origins.into_iter().map(|origin| origin.received).collect(),
            first_request: self.client.first_request,
            first_response: self.client.app.first_response,
            events: self.client.events,
            log: self.log,
            unproven,
        }
    }
}
