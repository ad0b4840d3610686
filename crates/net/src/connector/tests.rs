//! Data in the SYN on real sockets, with a stand-in for what the kernel does only with a program
//! attached.

use std::net::{IpAddr, SocketAddr, TcpStream as StdStream};

use headstart_proto::limits::COOKIE_LIFE;
use headstart_proto::wire::Response;
use headstart_proto::{Client, ClientConfig, JoinKey, PlainReason, RouteTag, SessionId};
use headstart_sessions::{Network, Unspendable, Visited};
use headstart_testkit::hello::CraftedHello;
use headstart_testkit::{BlackHole, black_hole, closed};
use rustix::io::Errno;
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::late::LateAnswer;
use super::*;
use crate::clock::Clock;
use crate::dns::{DnsConfig, Lookup};
use crate::netlink::network_to;
use crate::path::{Advice, PathKey, PathReason, SecondAdvice};
use crate::report::{FastOpenNotUsed, OpeningEvent};
use crate::time::{TIMEOUT, stop_clock};
use crate::udp::UdpPort;
use crate::{Carrier, ClientEvent, FastOpenEvent, NotFast};

const HOUR: Duration = Duration::from_secs(3600);

/// Behaviour of the stand-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// The server accepts the data.
    Accepts,
    /// The server answers the SYN, and gets the data only afterwards.
    Refuses,
    /// The SYN goes to this address, which does not answer.
    Silent(SocketAddr),
    /// The SYN goes to this address, which answers with a reset.
    Reset(SocketAddr),
    /// The system call fails.
    Fails(Errno),
    /// The kernel sends the SYN without data.
    Bare,
    /// No program is attached.
    Absent,
}

/// A cookie and the data beside it.
type Sent = (Cookie, Vec<u8>);

#[derive(Clone)]
struct Fake {
    mode: Mode,
    /// An address without a route.
    unreachable: Option<IpAddr>,
    sent: Arc<Mutex<Vec<Sent>>>,
}

impl Fake {
    fn new(mode: Mode) -> Self {
        Self { mode, unreachable: None, sent: Arc::default() }
    }

    fn sent(&self) -> Vec<Sent> {
        self.sent.lock().unwrap().clone()
    }
}

impl Kernel for Fake {
    fn probe(&self) -> Result<(), String> {
        match self.mode {
            Mode::Absent => Err("no program is attached".into()),
            _ => Ok(()),
        }
    }

    fn network_to(&self, destination: IpAddr) -> io::Result<Network> {
        match self.unreachable {
            Some(ip) if ip == destination => Err(io::ErrorKind::NetworkUnreachable.into()),
            _ => network_to(destination),
        }
    }

    fn connect(
        &self,
        to: SocketAddr,
        cookie: &Cookie,
        data: &[u8],
    ) -> io::Result<(TcpStream, usize)> {
        self.sent.lock().unwrap().push((*cookie, data.to_vec()));
        match self.mode {
            Mode::Absent => Err(Errno::NOPROTOOPT.into()),
            Mode::Fails(errno) => Err(errno.into()),
            Mode::Bare => Ok((pending_stream(&begin(to)), 0)),
            Mode::Silent(other) | Mode::Reset(other) => {
                Ok((pending_stream(&begin(other)), data.len()))
            }
            Mode::Accepts | Mode::Refuses => {
                let socket = begin(to);
                let (mut writer, data) = (pending_stream(&socket), data.to_vec());
                let length = data.len();
                // In the kernel they would be in the socket's queue already.
                tokio::spawn(async move { writer.write_all(&data).await });
                Ok((pending_stream(&socket), length))
            }
        }
    }

    fn was_accepted(&self, _: &TcpStream) -> io::Result<bool> {
        Ok(self.mode == Mode::Accepts)
    }
}

fn begin(to: SocketAddr) -> Socket {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None).unwrap();
    socket.set_nonblocking(true).unwrap();
    if let Err(error) = socket.connect(&to.into()) {
        assert_eq!(error.raw_os_error(), Some(Errno::INPROGRESS.raw_os_error()));
    }
    socket
}

fn pending_stream(socket: &Socket) -> TcpStream {
    TcpStream::from_std(StdStream::from(socket.try_clone().unwrap())).unwrap()
}

/// Starts a server that echoes everything.
async fn echo() -> SocketAddr {
    echo_at("127.0.0.1:0").await
}

async fn echo_at(address: &str) -> SocketAddr {
    let listener = TcpListener::bind(address).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut tcp, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let (mut reader, mut writer) = tcp.split();
                let _ = tokio::io::copy(&mut reader, &mut writer).await;
                let _ = writer.shutdown().await;
            });
        }
    });
    address
}

fn connector(server: SocketAddr, opening: OpeningPolicy, fop: bool, kernel: &Fake) -> Connector {
    let dns = DnsConfig { name_servers: vec![server], ..DnsConfig::default() };
    let mut config = ConnectorConfig::new(Resolver::new(&dns).unwrap());
    let advert = Advert { fop, ..Advert::default() };
    let edge = Edge { host: server.ip().to_string(), port: server.port(), advert };
    config.edges = Arc::new(move |_| Some(edge.clone()));
    config.opening = opening;
    Connector::with_kernel(config, Box::new(kernel.clone()))
}

/// Returns a connector to a server that offers and accepts cookies.
fn usual(server: SocketAddr, kernel: &Fake) -> Connector {
    connector(server, OpeningPolicy::Auto, true, kernel)
}

fn target() -> Target {
    Target { context: Context::user(1000), ..Target::new("test.example", HTTPS_PORT) }
}

/// Returns a random ClientHello of TLS 1.3 with 100 bytes of padding.
fn padded() -> CraftedHello {
    CraftedHello { random: rand::random(), ..CraftedHello::default() }.with(21, [0; 100])
}

/// Returns a ClientHello that resumes with a ticket of 200 bytes, all of them `fill`.
fn resuming(fill: u8) -> Vec<u8> {
    padded().ticket(&[fill; 200]).stream()
}

fn cookie(fill: u8) -> Cookie {
    Cookie::new([fill; 16])
}

/// Sends `hello` and more on a new connection, checks that every byte comes back once and returns
/// the report.
async fn exchange(connector: &Connector, target: &Target, hello: &[u8]) -> Report {
    talk(connector.connect(target).unwrap(), hello).await
}

/// Does the same where the name has these addresses, all with an edge that accepts cookies.
async fn exchange_at(
    addresses: &[IpAddr],
    port: u16,
    connector: &Connector,
    hello: &[u8],
) -> Report {
    let offer = Offer::Known(Advert { fop: true, ..Advert::default() });
    let lookup = Lookup::known(addresses.to_vec());
    let opening = Opening::new(Arc::clone(&connector.inner), &target(), port, lookup, offer);
    talk(ClientStream::new(Box::new(opening)), hello).await
}

async fn talk(mut stream: ClientStream, hello: &[u8]) -> Report {
    let talk = async {
        stream.write_all(hello).await?;
        let mut back = vec![0; hello.len()];
        stream.read_exact(&mut back).await?;
        assert_eq!(back, hello);
        stream.write_all(b"and more").await?;
        stream.shutdown().await?;
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await?;
        assert_eq!(rest, b"and more");
        Ok::<_, io::Error>(())
    };
    tokio::time::timeout(TIMEOUT, talk).await.expect("hangs").unwrap();
    stream.report().unwrap().clone()
}

/// Returns the reason from one exchange in which nothing leaves with the SYN.
async fn reason(connector: &Connector, target: &Target, hello: &[u8]) -> Option<FastOpenNotUsed> {
    let report = exchange(connector, target, hello).await;
    assert_eq!(report.opened_by, Carrier::Tcp);
    report.fast_open_not_used
}

#[tokio::test]
async fn a_ticket_opens_with_its_cookie_and_once() {
    let (server, kernel) = (echo().await, Fake::new(Mode::Accepts));
    let connector = usual(server, &kernel);
    let hello = resuming(7);
    let report = exchange(&connector, &target(), &hello).await;
    assert_eq!((report.opened_by, report.fast_open_not_used), (Carrier::Fop, None));
    assert_eq!(report.not_used, Some(NotUsed::FastOpen));
    assert_eq!(kernel.sent(), [(cookie(7), hello.clone())]);
    let sent = FastOpenEvent::SynSent { bytes: hello.len(), early_data: false };
    let answered = FastOpenEvent::Answered { accepted: true };
    for event in [sent, answered] {
        let noted =
            report.timeline.iter().any(|moment| moment.event == OpeningEvent::FastOpen(event));
        assert!(noted, "{event:?} is not in {:?}", report.timeline);
    }

    let try_beside = reason(&connector, &target(), &hello).await;
    assert_eq!(try_beside, Some(FastOpenNotUsed::Unspendable(Unspendable::Spent)));
    assert_eq!(kernel.sent().len(), 1, "the cookie was sent more than once");
    exchange(&connector, &target(), &resuming(8)).await;
    assert_eq!(kernel.sent().len(), 2);
}

// F-CLIENT-1
#[tokio::test]
async fn stored_cookies_open_only_in_their_context() {
    let (server, kernel) = (echo().await, Fake::new(Mode::Accepts));
    let connector = usual(server, &kernel);
    let (mine, hello) = (target(), padded().stream());
    let first = exchange(&connector, &mine, &hello).await;
    assert_eq!(first.fast_open_not_used, Some(FastOpenNotUsed::NoCookie));
    connector.keep_cookies(&mine, &first, [(cookie(1), HOUR), (cookie(2), Duration::ZERO)]);

    let theirs = Target { context: Context::user(1001), ..target() };
    let labelled = Context { label: Some("x".into()), ..Context::user(1000) };
    let labelled = Target { context: labelled, ..target() };
    let unknown = Target { context: Context::UNKNOWN, ..target() };
    let other_host = Target { host: "other.example".into(), ..target() };
    assert!(connector.asks_for_cookies(&mine) && !connector.asks_for_cookies(&unknown));
    for other in [theirs, labelled, unknown, other_host] {
        let reason = reason(&connector, &other, &hello).await;
        assert_eq!(reason, Some(FastOpenNotUsed::NoCookie), "{other:?}");
    }
    assert_eq!(exchange(&connector, &mine, &hello).await.opened_by, Carrier::Fop);
    assert_eq!(kernel.sent(), [(cookie(1), hello.clone())]);
    assert_eq!(reason(&connector, &mine, &hello).await, Some(FastOpenNotUsed::NoCookie));

    connector.keep_cookies(&mine, &first, [(cookie(3), HOUR)]);
    connector.forget_context(&mine.context);
    assert_eq!(reason(&connector, &mine, &hello).await, Some(FastOpenNotUsed::NoCookie));
}

#[tokio::test]
async fn a_reload_keeps_cookies_and_remembers_spent_ones() {
    let (server, kernel) = (echo().await, Fake::new(Mode::Accepts));
    let connector = usual(server, &kernel);
    let first = exchange(&connector, &target(), &resuming(7)).await;
    connector.keep_cookies(&target(), &first, [(cookie(1), HOUR)]);
    let config = connector.inner.config.clone();
    let reloaded = connector.reconfigured(config);
    let report = exchange(&reloaded, &target(), &resuming(7)).await;
    assert_eq!(report.opened_by, Carrier::Fop, "with the one that was kept");
    assert_eq!(kernel.sent().last().unwrap().0, cookie(1));
}

#[tokio::test]
async fn cookies_from_before_a_move_are_not_shown() {
    let (server, kernel) = (echo().await, Fake::new(Mode::Accepts));
    let connector = usual(server, &kernel);
    let first = exchange(&connector, &target(), &resuming(1)).await;
    connector.keep_cookies(&target(), &first, [(cookie(9), HOUR)]);
    let local = first.network.unwrap().local;
    connector.inner.cookies.leave(Change::Address([192, 0, 2, 1].into()));
    assert_eq!(connector.inner.cookies.jar().cookies(), 1);
    connector.inner.cookies.leave(Change::Address(local));
    let moved = reason(&connector, &target(), &resuming(2)).await;
    assert_eq!(moved, Some(FastOpenNotUsed::OtherNetwork));
    exchange(&connector, &target(), &resuming(3)).await;
    let sent: Vec<_> = kernel.sent().into_iter().map(|(cookie, _)| cookie).collect();
    assert_eq!(sent, [cookie(1), cookie(3)]);
}

/// Returns a connector that knows no edge.
fn unconfigured() -> Connector {
    let dns = DnsConfig { name_servers: vec![([127, 0, 0, 1], 53).into()], ..DnsConfig::default() };
    Connector::new(ConnectorConfig::new(Resolver::new(&dns).unwrap()))
}

/// Returns the slots that are offered to `target` at the address of [`MADE`].
fn known(connector: &Connector, target: &Target) -> Option<u8> {
    let mut offer = connector.discovery(target);
    assert_eq!(offer.at(MADE), None, "before DNS has said that it knows none");
    offer.learn(None);
    let known = offer.at(MADE)?;
    // W-TLS-4
    assert_eq!(known, Advert { slots: known.slots, ..Advert::default() });
    Some(known.slots)
}

/// Address of the server that advertised.
const MADE: SocketAddr =
    SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)), HTTPS_PORT);

// W-TLS-3
#[tokio::test]
async fn what_a_server_advertises_is_kept_until_it_does_not_hold() {
    let (connector, mine) = (unconfigured(), target());
    let opened = Report { address: Some(MADE), ..Report::default() };
    let good = Some(&b"v=2,slots=6"[..]);
    connector.keep_advert(&mine, &opened, good);
    assert_eq!(known(&connector, &mine), Some(6));
    assert_eq!(known(&connector, &Target { context: Context::user(1), ..mine.clone() }), None);
    assert_eq!(known(&connector, &Target { context: Context::UNKNOWN, ..mine.clone() }), None);
    assert_eq!(known(&connector, &Target { host: "other.example".into(), ..mine.clone() }), None);
    assert_eq!(known(&connector, &Target { port: 853, ..mine.clone() }), None);
    connector.keep_advert(&mine, &opened, Some(b"v=2,slots=9,fop=1,ed=1"));
    assert_eq!(known(&connector, &mine), Some(9));
    for void in [None, Some(&b"v=3"[..]), Some(b""), Some(b"v=2,udp=4443")] {
        connector.keep_advert(&mine, &opened, void);
        assert_eq!(known(&connector, &mine), None, "{void:?}");
        connector.keep_advert(&mine, &opened, good);
    }
    for reason in [PlainReason::Silence, PlainReason::Unreachable] {
        let not_used = Some(NotUsed::Fallback(reason));
        connector.keep_advert(&mine, &Report { not_used, ..opened.clone() }, good);
        assert_eq!(known(&connector, &mine), None, "{reason:?}");
        connector.keep_advert(&mine, &opened, good);
    }
    connector.leave(Change::Address([192, 0, 2, 7].into()));
    assert_eq!(known(&connector, &mine), None, "another network");
    connector.keep_advert(&mine, &opened, good);
    connector.forget_context(&mine.context);
    assert_eq!(known(&connector, &mine), None);
}

#[tokio::test]
async fn what_is_configured_goes_before_what_a_server_advertises() {
    let server = echo().await;
    let (connector, mine) = (usual(server, &Fake::new(Mode::Absent)), target());
    let report = Report { address: Some(server), ..Report::default() };
    connector.keep_advert(&mine, &report, Some(b"v=2,slots=6"));
    let kept = connector.inner.offers().get(&mine.service(), connector.inner.cookies.now());
    assert_eq!(kept, None);
}

#[tokio::test]
async fn refused_data_still_arrive_once() {
    let (server, kernel) = (echo().await, Fake::new(Mode::Refuses));
    let connector = usual(server, &kernel);
    for fill in 1..=3 {
        let refused = reason(&connector, &target(), &resuming(fill)).await;
        assert_eq!(refused, Some(FastOpenNotUsed::Refused));
    }
    let blocked = reason(&connector, &target(), &resuming(4)).await;
    assert_eq!(blocked, Some(FastOpenNotUsed::Path(PathReason::SynDataRefused)));
    assert_eq!(kernel.sent().len(), 3);
}

/// Any user can show cookies that no server accepts.
#[tokio::test]
async fn refusals_of_one_user_do_not_affect_others() {
    let (server, kernel) = (echo().await, Fake::new(Mode::Refuses));
    let connector = usual(server, &kernel);
    let blocked = FastOpenNotUsed::Path(PathReason::SynDataRefused);
    let refused = [FastOpenNotUsed::Refused; 3];
    let expected: Vec<_> = refused.into_iter().chain([blocked]).map(Some).collect();
    let mut fill = 0;
    for uid in [1000, 1001] {
        let target = Target { context: Context::user(uid), ..target() };
        let mut reasons = Vec::new();
        for _ in &expected {
            fill += 1;
            reasons.push(reason(&connector, &target, &resuming(fill)).await);
        }
        assert_eq!(reasons, expected, "{uid}");
    }
    // The label of a user makes no difference.
    let labelled = Context { label: Some("x".into()), ..Context::user(1000) };
    let labelled = Target { context: labelled, ..target() };
    assert_eq!(reason(&connector, &labelled, &resuming(9)).await, Some(blocked));
}

#[tokio::test]
async fn a_silent_syn_is_followed_by_a_bare_one_and_two_disable_the_path() {
    let (server, hole) = (echo().await, black_hole());
    let kernel = Fake::new(Mode::Silent(hole.address));
    let connector = usual(server, &kernel);
    for fill in 1..=2 {
        let report = exchange(&connector, &target(), &resuming(fill)).await;
        assert_eq!(report.opened_by, Carrier::Tcp);
        assert_eq!(report.fast_open_not_used, Some(FastOpenNotUsed::Lost));
        let silent = OpeningEvent::FastOpen(FastOpenEvent::Silent);
        let silent = report.timeline.iter().find(|moment| moment.event == silent).unwrap();
        assert!(silent.at >= headstart_proto::limits::SYN_SILENCE);
        let syns =
            report.timeline.iter().filter(|moment| moment.event == OpeningEvent::Syn(server));
        assert_eq!(syns.count(), 2, "{:?}", report.timeline);
    }
    let blocked = reason(&connector, &target(), &resuming(3)).await;
    assert_eq!(blocked, Some(FastOpenNotUsed::Path(PathReason::SynLost)));
    assert_eq!(kernel.sent().len(), 2);
    let connector_with_fop = connector.reconfigured(ConnectorConfig {
        opening: OpeningPolicy::Fop,
        ..connector.inner.config.clone()
    });
    let lost = reason(&connector_with_fop, &target(), &resuming(4)).await;
    assert_eq!(lost, Some(FastOpenNotUsed::Lost), "the path's record was heeded");
}

#[tokio::test]
async fn a_reset_syn_is_followed_by_a_bare_one_and_two_disable_the_path() {
    let (server, kernel) = (echo().await, Fake::new(Mode::Reset(closed())));
    let connector = usual(server, &kernel);
    for fill in 1..=2 {
        let report = exchange(&connector, &target(), &resuming(fill)).await;
        assert_eq!(report.opened_by, Carrier::Tcp);
        assert_eq!(report.fast_open_not_used, Some(FastOpenNotUsed::Lost));
        let failed = OpeningEvent::FastOpen(FastOpenEvent::Failed);
        assert!(report.timeline.iter().any(|moment| moment.event == failed), "{report:?}");
    }
    let blocked = reason(&connector, &target(), &resuming(3)).await;
    assert_eq!(blocked, Some(FastOpenNotUsed::Path(PathReason::SynLost)));
}

/// The next address is tried before the SYN counts as silent, so it wins as long as the first is
/// tried with data.
#[tokio::test]
async fn a_path_that_drops_data_is_learnt_even_if_another_address_wins() {
    let (server, hole) = (echo_at("0.0.0.0:0").await, black_hole());
    let kernel = Fake::new(Mode::Silent(hole.address));
    let connector = usual(server, &kernel);
    let addresses = [[127, 0, 0, 2], [127, 0, 0, 1]].map(IpAddr::from);
    for fill in 1..=2 {
        let report = exchange_at(&addresses, server.port(), &connector, &resuming(fill)).await;
        assert_eq!(report.fast_open_not_used, Some(FastOpenNotUsed::Lost));
    }
    let report = exchange_at(&addresses, server.port(), &connector, &resuming(3)).await;
    let blocked = FastOpenNotUsed::Path(PathReason::SynLost);
    assert_eq!(report.fast_open_not_used, Some(blocked));
    assert_eq!(report.address.unwrap().ip(), addresses[0]);
    assert_eq!(kernel.sent().len(), 2);
}

/// On a machine without IPv6 this is the case for IPv6 addresses, which come first.
#[tokio::test]
async fn an_address_without_a_route_is_tried_last() {
    let server = echo().await;
    let unreachable = IpAddr::from([127, 0, 0, 9]);
    let kernel = Fake { unreachable: Some(unreachable), ..Fake::new(Mode::Accepts) };
    let connector = usual(server, &kernel);
    let addresses = [unreachable, server.ip()];
    let report = exchange_at(&addresses, server.port(), &connector, &resuming(1)).await;
    assert_eq!(report.opened_by, Carrier::Fop, "{report:?}");
    assert_eq!(report.address, Some(server));

    // The last one is tried anyway, as without Fast Open.
    let kernel = Fake { unreachable: Some(server.ip()), ..Fake::new(Mode::Accepts) };
    let connector = usual(server, &kernel);
    let report = exchange_at(&[server.ip()], server.port(), &connector, &resuming(1)).await;
    assert_eq!((report.opened_by, report.address), (Carrier::Tcp, Some(server)));
    assert!(kernel.sent().is_empty());
}

#[tokio::test]
async fn without_kernel_support_the_connection_is_ordinary() {
    let server = echo().await;
    for (mode, expected, sent) in [
        (Mode::Absent, FastOpenNotUsed::Unavailable, 0),
        (Mode::Fails(Errno::NETUNREACH), FastOpenNotUsed::System, 1),
        (Mode::Bare, FastOpenNotUsed::System, 1),
    ] {
        let kernel = Fake::new(mode);
        let connector = usual(server, &kernel);
        assert_eq!(connector.uses_contexts(), mode != Mode::Absent);
        assert_eq!(reason(&connector, &target(), &resuming(1)).await, Some(expected));
        assert_eq!(kernel.sent().len(), sent);
    }
}

/// The program was detached, or the sysctl switched off, since the probe succeeded.
#[tokio::test]
async fn a_permanent_refusal_by_the_kernel_is_remembered() {
    let server = echo().await;
    for errno in [Errno::NOPROTOOPT, Errno::OPNOTSUPP] {
        let kernel = Fake::new(Mode::Fails(errno));
        let connector = usual(server, &kernel);
        let reasons = [1, 2].map(|fill| (fill, FastOpenNotUsed::Unavailable));
        for (fill, expected) in [(0, FastOpenNotUsed::System)].into_iter().chain(reasons) {
            assert_eq!(reason(&connector, &target(), &resuming(fill)).await, Some(expected));
        }
        assert_eq!(kernel.sent().len(), 1, "more than one cookie was lost");
        assert!(!connector.uses_contexts());
    }
}

#[tokio::test]
async fn a_ticket_older_than_its_cookie_costs_no_round_trip() {
    let (server, kernel) = (echo().await, Fake::new(Mode::Accepts));
    let connector = usual(server, &kernel);
    let (context, network) = (Context::user(1000), network_to(server.ip()).unwrap());
    let visit = Visit { host: "test.example", context: &context, network };
    for (fill, visited, expected) in [
        (1, Visited::Here { ago: COOKIE_LIFE - Duration::from_secs(1) }, Ok(cookie(1))),
        (2, Visited::Here { ago: COOKIE_LIFE }, Err(FastOpenNotUsed::TicketOld)),
        (2, Visited::Never, Ok(cookie(2))),
    ] {
        let spent = connector.inner.cookies.spend(&visit, Some(cookie(fill)), visited);
        assert_eq!(spent, expected, "{visited:?}");
    }
}

#[tokio::test]
async fn oversized_flights_go_over_udp_and_other_protocols_leave_the_syn_bare() {
    let (server, kernel) = (echo().await, Fake::new(Mode::Accepts));
    let connector = usual(server, &kernel);
    for (hello, expected) in [
        (padded().with(99, [0; 1200]).stream(), NotFast::TooLarge),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), NotFast::NotTls),
    ] {
        let report = exchange(&connector, &target(), &hello).await;
        assert_eq!(report.fast_open_not_used, Some(FastOpenNotUsed::Flight(expected)));
        // The echo server does not answer datagrams.
        assert_eq!(report.opened_by, Carrier::Tcp);
        let over_udp = report.timeline.iter().any(|moment| {
            matches!(moment.event, OpeningEvent::Transport(ClientEvent::FlightSent { .. }))
        });
        assert_eq!(over_udp, expected == NotFast::TooLarge, "{report:?}");
    }
    assert!(kernel.sent().is_empty());
}

#[tokio::test]
async fn a_server_that_speaks_first_is_heard() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let kernel = Fake::new(Mode::Accepts);
    let connector = usual(listener.local_addr().unwrap(), &kernel);
    let server = async {
        let (mut tcp, _) = listener.accept().await.unwrap();
        tcp.write_all(b"220 ready\r\n").await.unwrap();
    };
    let client = async {
        let mut stream = connector.connect(&target()).unwrap();
        let mut greeting = [0; 11];
        stream.read_exact(&mut greeting).await.unwrap();
        assert_eq!(&greeting, b"220 ready\r\n");
    };
    let both = async { tokio::join!(server, client) };
    tokio::time::timeout(TIMEOUT, both).await.expect("hangs");
    assert!(kernel.sent().is_empty());
}

#[tokio::test]
async fn a_syn_does_not_wait_for_a_silent_application() {
    let (server, kernel) = (echo().await, Fake::new(Mode::Accepts));
    let connector = usual(server, &kernel);
    let mut stream = connector.connect(&target()).unwrap();
    tokio::time::timeout(TIMEOUT, stream.connected()).await.expect("hangs").unwrap();
    let report = stream.report().unwrap();
    let late = FastOpenNotUsed::Flight(NotFast::HelloLate);
    assert_eq!(report.fast_open_not_used, Some(late));
    let waited =
        report.timeline.iter().find(|moment| moment.event == OpeningEvent::Syn(server)).unwrap();
    assert!(waited.at >= headstart_proto::limits::SYN_DATA_WAIT);

    // A SYN does not wait at all for an application that is not going to write first.
    let listens = Target { speaks_first: false, ..target() };
    let mut stream = connector.connect(&listens).unwrap();
    tokio::time::timeout(TIMEOUT, stream.connected()).await.expect("hangs").unwrap();
    let report = stream.report().unwrap();
    assert_eq!(report.fast_open_not_used, Some(FastOpenNotUsed::ConnectFirst));
    let waits = OpeningEvent::FastOpen(FastOpenEvent::Waiting);
    assert!(report.timeline.iter().all(|moment| moment.event != waits));
    assert!(kernel.sent().is_empty());
}

#[tokio::test]
async fn without_an_offer_there_is_no_reason_unless_requested() {
    let (server, kernel) = (echo().await, Fake::new(Mode::Accepts));
    for (policy, fop) in
        [(OpeningPolicy::Auto, false), (OpeningPolicy::Turbo, true), (OpeningPolicy::Plain, true)]
    {
        let connector = connector(server, policy, fop, &kernel);
        assert_eq!(reason(&connector, &target(), &resuming(1)).await, None, "{policy:?}");
    }
    assert!(kernel.sent().is_empty());
    assert!(!connector(server, OpeningPolicy::Auto, false, &kernel).asks_for_cookies(&target()));
    let connector_with_fop = connector(server, OpeningPolicy::Fop, false, &kernel);
    assert!(
        connector_with_fop.asks_for_cookies(&target()),
        "no cookies assumed at a configured edge"
    );
    let report = exchange(&connector_with_fop, &target(), &resuming(1)).await;
    assert_eq!(report.opened_by, Carrier::Fop, "a configured edge is believed to take them");
}

/// Opens a connection to an address that drops SYNs until there are so many, and where one second
/// SYN was in vain before; returns the SYNs of its timeline, and the advice on others.
async fn syns(second_syn: bool, lost: usize) -> (Vec<OpeningEvent>, SecondAdvice) {
    let BlackHole { address, listener, .. } = black_hole();
    let connector = connector(address, OpeningPolicy::Plain, false, &Fake::new(Mode::Absent));
    let config = ConnectorConfig { second_syn, ..connector.inner.config.clone() };
    let paths = Arc::clone(&connector.inner.paths);
    paths.record_connect(address, address.ip(), Duration::ZERO);
    paths.record_in_vain(address, address.ip());
    let mut stream = connector.reconfigured(config).connect(&target()).unwrap();
    // SYNs are lost, as the queue of the listener is full. Then there is room.
    let makes_room = tokio::task::spawn_blocking(move || {
        let waiting = format!("0100007F:{:04X} 02", address.port());
        let table = || std::fs::read_to_string("/proc/net/tcp").unwrap();
        while table().matches(&waiting).count() < lost {}
        listener.accept().unwrap();
        listener
    });
    stream.connected().await.unwrap();
    drop(makes_room.await.unwrap());
    let syns = stream.report().unwrap().timeline.iter().map(|moment| moment.event);
    let syns =
        syns.filter(|event| matches!(event, OpeningEvent::Syn(_) | OpeningEvent::SecondSyn(_)));
    (syns.collect(), paths.advise_second(address))
}

#[tokio::test]
async fn a_second_syn_connects_where_the_first_was_lost() {
    let (seen, advice) = syns(true, 1).await;
    assert!(
        matches!(seen[..], [OpeningEvent::Syn(first), OpeningEvent::SecondSyn(second)]
            if first == second),
        "{seen:?}"
    );
    assert!(matches!(advice, SecondAdvice::Send(_)));
    // The kernel's own, which no timeline has.
    assert_eq!(syns(false, 1).await.0.len(), 1);
}

/// Otherwise a path that loses every tenth SYN would soon have none any more.
#[tokio::test]
async fn a_second_syn_that_is_lost_is_not_in_vain() {
    let (seen, advice) = syns(true, 2).await;
    assert_eq!(seen.len(), 2);
    assert!(matches!(advice, SecondAdvice::Send(_)));
}

/// The address that TCP tries first drops SYNs, and another one wins.
#[tokio::test]
async fn a_second_syn_in_vain_counts_where_it_went() {
    let hole = black_hole();
    let server = echo_at(&format!("127.0.0.2:{}", hole.address.port())).await;
    let connector = connector(server, OpeningPolicy::Plain, false, &Fake::new(Mode::Absent));
    let inner = Arc::clone(&connector.inner);
    inner.paths.record_connect(hole.address, server.ip(), Duration::ZERO);
    let _stopped = stop_clock();
    for _ in 0..2 {
        let lookup = Lookup::known(vec![hole.address.ip(), server.ip()]);
        let offer = Offer::Never(NotUsed::Policy);
        let opening = Opening::new(Arc::clone(&inner), &target(), server.port(), lookup, offer);
        let hello = padded().stream();
        let talking =
            tokio::spawn(async move { talk(ClientStream::new(Box::new(opening)), &hello).await });
        while !talking.is_finished() {
            tokio::time::advance(Duration::from_millis(5)).await;
            std::thread::sleep(Duration::from_micros(100));
        }
        let report = talking.await.unwrap();
        assert_eq!(report.address, Some(server));
        let second = OpeningEvent::SecondSyn(hole.address);
        assert!(report.timeline.iter().any(|moment| moment.event == second), "{report:?}");
    }
    assert_eq!(inner.paths.advise_second(hole.address), SecondAdvice::Never);
    assert!(matches!(inner.paths.advise_second(server), SecondAdvice::Send(Some(_))));
}

/// Returns a session that fell back without an answer, and whose socket then got these datagrams.
fn late_answer(datagrams: impl Fn(SessionId) -> Vec<Vec<u8>>) -> LateAnswer {
    let key = JoinKey::new(rand::random());
    let id = key.session_id();
    let mut client = Client::new(key, ClientConfig::default());
    let clock = Clock::start();
    client.offer_udp(ClientConfig { slots: 1, ..ClientConfig::default() });
    client.handle_app_data(clock.now(), &padded().stream());
    client.handle_tcp_connected(clock.now(), true, None);
    assert!(client.awaits_late_datagram());
    let edge = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = edge.local_addr().unwrap();
    let socket = UdpPort::connect(address, None).unwrap();
    for datagram in datagrams(id) {
        edge.send_to(&datagram, socket.local_addr()).unwrap();
    }
    let key = PathKey { local: address.ip(), edge: address };
    let (awaited, rtt) = (true, Duration::from_millis(20));
    LateAnswer { client, clock, socket, key, awaited, rtt, due: tokio::time::Instant::now() + HOUR }
}

#[tokio::test]
async fn only_an_answer_to_the_session_is_a_late_answer() {
    let response = |id, seq| {
        let tag = RouteTag([1; 4]);
        Response { id, seq, tag, ack: 0, offset: 0, payload: &[] }.emit()
    };
    let other = JoinKey::new(rand::random()).session_id();
    // Garbage, one of another session, and one that answers what was not sent.
    let strangers = |id| vec![b"?".to_vec(), response(other, 0), response(id, 2)];
    let mut late = late_answer(|id| [strangers(id), vec![response(id, 1)]].concat());
    assert!(late.arrives().await);
    assert!(!late.client.awaits_late_datagram(), "that was another datagram");

    let (late, paths) = (late_answer(|id| vec![response(id, 0)]), PathMemory::default());
    let key = late.key;
    late.learn(&paths).await;
    let advice = paths.advise(key, std::time::Instant::now());
    assert!(matches!(advice, Advice::Turbo { proven: true, .. }), "{advice:?}");
}

/// Connects to an address whose server the ClientHello names, where `edge` is configured for the
/// name "test.example".
async fn exchange_unnamed(edge: SocketAddr, server: SocketAddr, hello: &[u8]) -> Report {
    let connector = usual(edge, &Fake::new(Mode::Absent));
    let target = Target::new(server.ip().to_string(), HTTPS_PORT);
    let (inner, offer) = (Arc::clone(&connector.inner), Offer::Unnamed(server));
    let lookup = Lookup::known(vec![server.ip()]);
    let opening = Opening::new(inner, &target, server.port(), lookup, offer);
    talk(ClientStream::new(Box::new(opening)), hello).await
}

#[tokio::test]
async fn an_address_has_the_offer_of_the_name_in_the_client_hello() {
    let (server, other) = (echo().await, echo().await);
    let named = padded().name("test.example").stream();
    let report = exchange_unnamed(server, server, &named).await;
    let offered =
        |report: &Report| report.timeline.iter().any(|entry| entry.event == OpeningEvent::Offered);
    assert!(offered(&report), "{report:?}");
    for (edge, hello, reason) in [
        (other, named, NotUsed::OtherAddress),
        (server, padded().stream(), NotUsed::Literal),
        (server, b"no TLS at all".to_vec(), NotUsed::Literal),
    ] {
        let report = exchange_unnamed(edge, server, &hello).await;
        assert_eq!(report.not_used, Some(reason));
        assert!(!offered(&report), "{report:?}");
    }
}
