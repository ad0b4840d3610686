//! The connector on the real kernel, and on paths that interfere with data in SYNs: every
//! connection opens, every byte arrives once, and no cookie is sent twice.

use std::io;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use headstart_emulation::{Element, Loss, StripFastOpen};
use headstart_net::PathReason;
use headstart_net::advert::Advert;
use headstart_net::dns::{DnsConfig, Resolver};
use headstart_net::{
    Carrier, Connector, ConnectorConfig, Context, Edge, FastOpenEvent, FastOpenNotUsed,
    OpeningEvent, Report, Target,
};
use headstart_proto::cookie::Cookie;
use headstart_testkit::hello::CraftedHello;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::boxes::SynDataBox;
use crate::refused::no_kernel_cookie;
use crate::server::Server;
use crate::support::succeeds;
use crate::world::{INTERFACE, PORT, TIMEOUT, World, block_on, probe_fails};

/// Byte that ends a line for the server.
const END: u8 = b'\n';

/// Delay of a SYN that comes too late: after 300 ms the client sends another one, after a second
/// the kernel does.
const LATE: Duration = Duration::from_millis(700);

/// A ClientHello of TLS 1.3 that resumes with a ticket, which begins with a cookie, and more data
/// behind it.
struct Flight {
    cookie: Cookie,
    bytes: Vec<u8>,
}

impl Flight {
    fn new(world: &World) -> Self {
        loop {
            let flight = Self::with(world.cookie(0));
            if flight.bytes.iter().filter(|byte| **byte == END).count() == 1 {
                return flight;
            }
        }
    }

    fn with(cookie: Cookie) -> Self {
        let bytes = [&hello(&cookie)[..], b"and a request", &[END]].concat();
        Self { cookie, bytes }
    }
}

fn hello(cookie: &Cookie) -> Vec<u8> {
    CraftedHello::default().ticket(&[&cookie.as_bytes()[..], &[7; 184]].concat()).stream()
}

/// Returns a connector configured with its server, which accepts cookies.
pub(crate) fn connector(server: SocketAddr) -> Connector {
    let dns = DnsConfig { name_servers: vec![server], ..DnsConfig::default() };
    let mut config = ConnectorConfig::new(Resolver::new(&dns).unwrap());
    let advert = Advert { fop: true, ..Advert::default() };
    let edge = Edge { host: server.ip().to_string(), port: PORT, advert };
    config.edges = Arc::new(move |_| Some(edge.clone()));
    Connector::new(config)
}

/// Sends the flight to the server and checks the echo; returns the report.
async fn visit(connector: &Connector, flight: &Flight) -> Report {
    visit_as(0, connector, flight).await
}

async fn visit_as(user: u32, connector: &Connector, flight: &Flight) -> Report {
    let name = Target::new("www.example", 443);
    let mut stream = connector.connect(&Target { context: Context::user(user), ..name }).unwrap();
    let mut answer = Vec::new();
    let talk = async {
        stream.write_all(&flight.bytes).await?;
        stream.read_to_end(&mut answer).await
    };
    tokio::time::timeout(TIMEOUT, talk).await.expect("the server did not answer").unwrap();
    assert_eq!(answer, flight.bytes);
    stream.report().unwrap().clone()
}

/// Visits in a row by one connector, with a middlebox for packets from the client.
struct Row {
    world: World,
    server: Server,
    flights: Vec<Flight>,
    reports: Vec<Report>,
}

impl Row {
    fn with_fault(count: usize, fault: impl Element + 'static) -> Self {
        let world = World::new();
        let server = Server::start(&world);
        world.fault(Some(Box::new(fault)), None);
        let flights: Vec<_> = (0..count).map(|_| Flight::new(&world)).collect();
        let visits = async {
            let connector = connector(world.to(0));
            let mut reports = Vec::new();
            for flight in &flights {
                reports.push(visit(&connector, flight).await);
            }
            reports
        };
        let reports = world.client().run(|| block_on(visits)).unwrap();
        Self { world, server, flights, reports }
    }

    /// Returns the reasons why data in the SYN did not open them.
    fn reasons(&self) -> Vec<Option<FastOpenNotUsed>> {
        self.reports.iter().map(|report| report.fast_open_not_used).collect()
    }

    /// Checks that all opened in the ordinary way, each was served once, and those in `sent` sent
    /// their cookies once.
    fn is_ordinary(&self, sent: std::ops::Range<usize>) {
        assert!(self.reports.iter().all(|report| report.opened_by == Carrier::Tcp));
        let served = self.server.served(self.flights.len());
        let expected: Vec<_> =
            self.flights.iter().map(|flight| (Carrier::Tcp, flight.bytes.clone())).collect();
        assert_eq!(served, expected);
        let cookies: Vec<_> =
            self.flights[sent].iter().map(|flight| flight.cookie.as_bytes().to_vec()).collect();
        assert_eq!(self.world.capture.cookies(), cookies);
        no_kernel_cookie(&self.world);
    }

    /// Tells for each visit whether the event occurred.
    fn occurred(&self, event: FastOpenEvent) -> Vec<bool> {
        let timelines = self.reports.iter().map(|report| &report.timeline);
        timelines
            .map(|moments| {
                moments.iter().any(|moment| moment.event == OpeningEvent::FastOpen(event))
            })
            .collect()
    }
}

const LOST: Option<FastOpenNotUsed> = Some(FastOpenNotUsed::Lost);
const REFUSED: Option<FastOpenNotUsed> = Some(FastOpenNotUsed::Refused);

/// Every ticket opens once; a reused one opens nothing, and its cookie is not sent.
pub(crate) fn tickets_open_once() {
    let world = World::new();
    let server = Server::start(&world);
    let (one, other) = (Flight::new(&world), Flight::new(&world));
    let visits = async {
        let connector = connector(world.to(0));
        let mut opened = Vec::new();
        for flight in [&one, &one, &other] {
            let report = visit(&connector, flight).await;
            opened.push((report.opened_by, report.fast_open_not_used.map(FastOpenNotUsed::name)));
        }
        opened
    };
    let opened = world.client().run(|| block_on(visits)).unwrap();
    let fast = (Carrier::Fop, None);
    assert_eq!(opened, [fast, (Carrier::Tcp, Some("cookie_spent")), fast]);
    let cookies = [&one, &other].map(|flight| flight.cookie.as_bytes().to_vec());
    assert_eq!(world.capture.cookies(), cookies);
    let served = server.served(3).into_iter().map(|(_, line)| line);
    assert!(served.eq([&one, &one, &other].map(|flight| flight.bytes.clone())));
}

/// A user who shows cookies that no server accepts loses Fast Open there for a while; all other
/// users keep it.
pub(crate) fn made_up_cookies_of_another_user() {
    let world = World::new();
    let server = Server::start(&world);
    let made_up = [1, 2, 3, 4].map(|fill| Flight::with(Cookie::new([fill; 16])));
    let good = Flight::new(&world);
    let visits = async {
        let connector = connector(world.to(0));
        let mut reasons = Vec::new();
        for flight in &made_up {
            reasons.push(visit_as(666, &connector, flight).await.fast_open_not_used);
        }
        (reasons, visit_as(1000, &connector, &good).await)
    };
    let (reasons, other) = world.client().run(|| block_on(visits)).unwrap();
    let blocked = Some(FastOpenNotUsed::Path(PathReason::SynDataRefused));
    assert_eq!(reasons, [REFUSED, REFUSED, REFUSED, blocked]);
    assert_eq!((other.opened_by, other.fast_open_not_used), (Carrier::Fop, None));
    let shown = made_up[..3].iter().chain([&good]);
    let shown: Vec<_> = shown.map(|flight| flight.cookie.as_bytes().to_vec()).collect();
    assert_eq!(world.capture.cookies(), shown);
    assert_eq!(server.served(5).len(), 5);
}

/// Plain TCP connects before the kernel's second SYN, which would leave after a second.
pub(crate) fn syn_lost() {
    let row = Row::with_fault(1, Loss::exact([1]));
    assert_eq!(row.reasons(), [LOST]);
    assert_eq!(row.occurred(FastOpenEvent::Silent), [true]);
    row.is_ordinary(0..1);
    let [first, second] = &row.world.capture.syns()[..] else {
        panic!("{:?}", row.world.capture.syns())
    };
    assert!(!first.data.is_empty() && second.data.is_empty());
    assert_ne!(first.seq, second.seq, "both SYNs are of one connection");
}

/// A SYN-ACK that arrives too late opens nothing at the client, and is reset.
pub(crate) fn syn_late() {
    let row = Row::with_fault(1, SynDataBox::Delays(LATE));
    assert_eq!(row.reasons(), [LOST]);
    assert_eq!(row.world.capture.cookies(), [row.flights[0].cookie.as_bytes().to_vec()]);
    let begun = Instant::now();
    while row.world.stats().steered == 0 {
        assert!(begun.elapsed() < TIMEOUT, "the SYN never arrived");
        thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn syn_reset() {
    let row = Row::with_fault(3, SynDataBox::Resets);
    let blocked = Some(FastOpenNotUsed::Path(PathReason::SynLost));
    assert_eq!(row.reasons(), [LOST, LOST, blocked]);
    row.is_ordinary(0..2);
    assert_eq!(row.occurred(FastOpenEvent::Failed), [true, true, false]);
    assert_eq!(row.occurred(FastOpenEvent::Silent), [false; 3]);
}

pub(crate) fn syn_prohibited() {
    let row = Row::with_fault(1, SynDataBox::Prohibits);
    assert_eq!(row.reasons(), [LOST]);
    assert_eq!(row.occurred(FastOpenEvent::Failed), [true]);
    assert_eq!(row.occurred(FastOpenEvent::Silent), [false]);
    row.is_ordinary(0..1);
}

pub(crate) fn option_stripped() {
    let row = Row::with_fault(4, StripFastOpen);
    let blocked = Some(FastOpenNotUsed::Path(PathReason::SynDataRefused));
    assert_eq!(row.reasons(), [REFUSED, REFUSED, REFUSED, blocked]);
    row.is_ordinary(0..3);
}

/// The server acknowledges what arrived; the kernel sends the rest.
pub(crate) fn part_acknowledged() {
    let row = Row::with_fault(1, SynDataBox::Halves);
    assert_eq!(row.reasons(), [REFUSED]);
    let [syn] = &row.world.capture.syns()[..] else { panic!("{:?}", row.world.capture.syns()) };
    let [answer] = &row.world.capture.syn_acks()[..] else {
        panic!("{:?}", row.world.capture.all())
    };
    let half = u32::try_from(syn.data.len() / 2).unwrap();
    assert_eq!(answer.ack, syn.seq.wrapping_add(1 + half));
    let served = row.server.served(1);
    assert_eq!(served, [(Carrier::Fop, row.flights[0].bytes.clone())]);
    no_kernel_cookie(&row.world);
}

/// When Fast Open is switched off, the connector does not ask the kernel, and no cookie is lost.
pub(crate) fn switched_off() {
    let world = World::new();
    world.set(world.client(), "tcp_fastopen", "2").unwrap();
    let server = Server::start(&world);
    let flight = Flight::new(&world);
    let visit = async { visit(&connector(world.to(0)), &flight).await };
    let report = world.client().run(|| block_on(visit)).unwrap();
    assert_eq!(report.fast_open_not_used, Some(FastOpenNotUsed::Unavailable));
    assert_eq!(server.served(1), [(Carrier::Tcp, flight.bytes)]);
    assert!(world.capture.cookies().is_empty());
}

/// Fast Open is switched off or detached while the connector assumes that it works.
pub(crate) fn switched_off_or_detached_meanwhile() {
    for detach in [false, true] {
        let world = World::new();
        let server = Server::start(&world);
        let flights: Vec<_> = (0..3).map(|_| Flight::new(&world)).collect();
        let visits = async {
            let connector = connector(world.to(0));
            let first = visit(&connector, &flights[0]).await;
            assert_eq!(first.opened_by, Carrier::Fop);
            match detach {
                true => assert!(world.detach_client()),
                false => std::fs::write("/proc/sys/net/ipv4/tcp_fastopen", "2").unwrap(),
            }
            probe_fails();
            let mut reasons = Vec::new();
            for flight in &flights[1..] {
                reasons.push(visit(&connector, flight).await.fast_open_not_used);
            }
            Ok::<_, io::Error>(reasons)
        };
        let reasons = world.client().run(|| block_on(visits)).unwrap().unwrap();
        let expected = [FastOpenNotUsed::System, FastOpenNotUsed::Unavailable].map(Some);
        assert_eq!(reasons, expected, "detach: {detach}");
        assert_eq!(world.capture.cookies(), [flights[0].cookie.as_bytes().to_vec()]);
        assert_eq!(server.served(3).len(), 3);
    }
}

/// Runs ip(8) for this namespace's interface.
fn ip(arguments: &str) {
    succeeds(Command::new("ip").args(arguments.split(' ')).args(["dev", INTERFACE]));
}

/// An address that returns may be on another network: earlier cookies are not shown.
pub(crate) fn address_gone_and_back() {
    let world = World::new();
    let server = Server::start(&world);
    let flights: Vec<_> = (0..3).map(|_| Flight::new(&world)).collect();
    let [own, other] = [0, 1].map(|number| world.client_ip(number));
    let visits = async {
        ip(&format!("address del {other}/32"));
        let connector = connector(world.to(0));
        let follows = connector.clone();
        let follows = tokio::spawn(async move { follows.follow_networks().await });
        let mut opened = Vec::new();
        for (number, flight) in flights.iter().enumerate() {
            // The notifications have to be read, and the connector has to have started following.
            tokio::time::sleep(Duration::from_millis(20)).await;
            let report = visit(&connector, flight).await;
            opened.push((report.opened_by, report.fast_open_not_used));
            if number == 0 {
                ip(&format!("address del {own}/32"));
                ip(&format!("address add {own}/32"));
                ip("route add default");
            }
        }
        follows.abort();
        opened
    };
    let opened = world.client().run(|| block_on(visits)).unwrap();
    let fast = (Carrier::Fop, None);
    let moved = (Carrier::Tcp, Some(FastOpenNotUsed::OtherNetwork));
    assert_eq!(opened, [fast, moved, fast]);
    let cookies = [&flights[0], &flights[2]].map(|flight| flight.cookie.as_bytes().to_vec());
    assert_eq!(world.capture.cookies(), cookies);
    assert_eq!(server.served(3).len(), 3);
}
