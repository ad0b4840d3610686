//! Connections through a proxy on loopback sockets, with scripted proxies.

use headstart_proto::Carrier;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use headstart_testkit::hello::CraftedHello;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};
use tokio::time::timeout;

use super::exchange::Exchange;
use super::standing::Standing;
use super::*;
use crate::bridge::Handoff;
use crate::connector::{ClientStream, Connector, ConnectorConfig};
use crate::dns::{DnsConfig, Resolver};
use crate::report::OpeningEvent;
use crate::target::Target;

/// Generous limit: only a very busy machine could reach it.
const LONG: Duration = Duration::from_secs(60);

/// Openings whose first bytes left before any reply, and after all.
const EARLY: Carrier = Carrier::Proxy { optimistic: true };
const STEPWISE: Carrier = Carrier::Proxy { optimistic: false };

const GREETING: [u8; 3] = [5, 1, 0];
const METHOD: [u8; 2] = [5, 0];
const GRANTED: [u8; 10] = [5, 0, 0, 1, 0, 0, 0, 0, 0, 0];

/// Returns the request for port 443 of origin.test.
fn request() -> Vec<u8> {
    [&[5, 1, 0, 3, 11][..], b"origin.test", &[1, 187]].concat()
}

fn hello() -> Vec<u8> {
    CraftedHello::sized(300).stream()
}

fn upstream(at: SocketAddr, optimistic: Optimistic) -> Upstream {
    let (host, port) = (at.ip().to_string(), at.port());
    let silence = Duration::from_secs(20);
    let timeouts = Timeouts { silence, ..Timeouts::default() };
    Upstream { host, port, login: Login::None, optimistic, timeouts }
}

fn connector(upstream: Upstream) -> Connector {
    connector_asking(upstream, "127.0.0.1:1".parse().unwrap())
}

fn connector_asking(upstream: Upstream, name_server: SocketAddr) -> Connector {
    let dns = DnsConfig { name_servers: vec![name_server], ..DnsConfig::default() };
    let resolver = Resolver::new(&dns).unwrap();
    let upstream = Some(Arc::new(upstream));
    Connector::new(ConnectorConfig { upstream, ..ConnectorConfig::new(resolver) })
}

fn connect(connector: &Connector) -> ClientStream {
    connector.connect(&Target::new("origin.test", 443)).unwrap()
}

/// Listens, and runs `script` on each connection, with its number from 0; counts them.
async fn proxy<F, W>(script: F) -> (SocketAddr, Arc<AtomicUsize>)
where
    F: Fn(usize, TcpStream) -> W + Send + 'static,
    W: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            client.set_nodelay(true).unwrap();
            tokio::spawn(script(counted.fetch_add(1, Ordering::Relaxed), client));
        }
    });
    (at, count)
}

async fn expect(stream: &mut TcpStream, wanted: &[u8]) {
    let mut read = vec![0; wanted.len()];
    timeout(LONG, stream.read_exact(&mut read)).await.unwrap().unwrap();
    assert_eq!(read, wanted);
}

/// Plays the proxy up to its reply, step by step as RFC 1928 says.
async fn negotiate(client: &mut TcpStream) {
    expect(client, &GREETING).await;
    client.write_all(&METHOD).await.unwrap();
    expect(client, &request()).await;
}

/// Plays the proxy step by step, and the target behind it.
async fn conventional(mut client: TcpStream) {
    negotiate(&mut client).await;
    client.write_all(&GRANTED).await.unwrap();
    echo(client).await;
}

async fn echo(mut client: TcpStream) {
    let (mut read, mut write) = client.split();
    let _ = tokio::io::copy(&mut read, &mut write).await;
}

/// Sends `flight` and checks its echo; returns how the connection was opened.
async fn echoed(stream: &mut ClientStream, flight: &[u8]) -> Carrier {
    let mut received = vec![0; flight.len()];
    timeout(LONG, async {
        stream.write_all(flight).await.unwrap();
        stream.read_exact(&mut received).await.unwrap();
    })
    .await
    .unwrap();
    assert_eq!(received, flight);
    assert!(stream.is_transparent(), "the rest can be spliced");
    stream.report().unwrap().opened_by
}

fn standing(connector: &Connector, at: SocketAddr) -> Standing {
    let known = upstream(at, Optimistic::Auto);
    connector.standings().standing(&known, std::time::Instant::now())
}

fn learn(connector: &Connector, at: SocketAddr, standing: Standing) {
    let known = upstream(at, Optimistic::Auto);
    connector.standings().learn(&known, standing, std::time::Instant::now());
}

async fn failure(stream: &mut ClientStream) -> UpstreamError {
    let error = timeout(LONG, stream.connected()).await.unwrap().unwrap_err();
    *error.get_ref().unwrap().downcast_ref().unwrap()
}

#[tokio::test]
async fn steps_and_hello_leave_before_any_reply() {
    let (at, _) = proxy(|_, mut client| async move {
        // Everything arrived before any reply was sent.
        expect(&mut client, &[&GREETING[..], &request(), &hello()].concat()).await;
        client.write_all(&[&METHOD[..], &GRANTED, &hello()].concat()).await.unwrap();
        echo(client).await;
    })
    .await;
    let connector = connector(upstream(at, Optimistic::Auto));
    let mut stream = connect(&connector);
    assert_eq!(echoed(&mut stream, &hello()).await, EARLY);
    assert_eq!(standing(&connector, at), Standing::Trusted);
    let events = &stream.report().unwrap().timeline;
    let early = OpeningEvent::Upstream(UpstreamEvent::SentEarly(hello().len()));
    assert!(events.iter().any(|moment| moment.event == early), "{events:?}");
    // The stream goes on where the proxy left it.
    assert_eq!(echoed(&mut stream, b"more").await, EARLY);
}

/// Bytes that must not arrive twice wait for the reply of an unknown proxy, but not of a trusted
/// one.
#[tokio::test]
async fn unrepeatable_data_waits_until_the_proxy_is_known() {
    let (at, _) = proxy(|number, mut client| async move {
        expect(&mut client, &[&GREETING[..], &request()].concat()).await;
        let flight = match number {
            0 | 3 => b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            _ => hello(),
        };
        if number > 0 {
            expect(&mut client, &flight).await;
        }
        let mut room = [0];
        let ahead = timeout(Duration::from_millis(50), client.peek(&mut room)).await;
        assert!(ahead.is_err(), "{number}: more than allowed was sent early");
        client.write_all(&[&METHOD[..], &GRANTED].concat()).await.unwrap();
        if number > 0 {
            client.write_all(&flight).await.unwrap();
        }
        echo(client).await;
    })
    .await;
    let connector = connector(upstream(at, Optimistic::Auto));
    let request = b"GET / HTTP/1.1\r\n\r\n";
    echoed(&mut connect(&connector), request).await;
    assert_eq!(standing(&connector, at), Standing::Unknown, "nothing was sent early");
    let early_data = [hello(), b"early data".to_vec()].concat();
    echoed(&mut connect(&connector), &early_data).await;
    assert_eq!(standing(&connector, at), Standing::Trusted);
    learn(&connector, at, Standing::Unknown);
    echoed(&mut connect(&connector), &hello()).await;
    echoed(&mut connect(&connector), request).await;
}

#[tokio::test]
async fn login_goes_along_and_names_stay_names() {
    let name_server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (at, _) = proxy(|_, mut client| async move {
        let login = [&[1, 4][..], b"user", &[6], b"secret"].concat();
        expect(&mut client, &[&[5, 1, 2][..], &login, &request()].concat()).await;
        client.write_all(&[&[5, 2, 1, 0][..], &GRANTED].concat()).await.unwrap();
        echo(client).await;
    })
    .await;
    let login = Login::Fixed(Credentials::new(b"user", b"secret").unwrap());
    assert!(!format!("{login:?} {:?}", Credentials::new(b"user", b"secret")).contains("secret"));
    let upstream = Upstream { login, ..upstream(at, Optimistic::Auto) };
    let connector = connector_asking(upstream, name_server.local_addr().unwrap());
    assert_eq!(echoed(&mut connect(&connector), b"hello").await, EARLY);
    let query = name_server.try_recv(&mut [0; 512]);
    assert_eq!(query.unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "a name was looked up");
}

#[tokio::test]
async fn each_context_has_its_own_login() {
    let logins = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&logins);
    let (at, _) = proxy(move |_, mut client| {
        let seen = Arc::clone(&seen);
        async move {
            expect(&mut client, &[5, 1, 2, 1, 1]).await;
            let mut login = [0; 3];
            client.read_exact(&mut login).await.unwrap();
            seen.lock().unwrap().push(login[0]);
            expect(&mut client, &request()).await;
            client.write_all(&[&[5, 2, 1, 0][..], &GRANTED].concat()).await.unwrap();
            echo(client).await;
        }
    })
    .await;
    let login = Login::ByContext(Arc::new(|context| {
        Credentials::new(&[u8::try_from(context.uid?).unwrap()], b"x")
    }));
    let connector = connector(Upstream { login, ..upstream(at, Optimistic::Auto) });
    assert!(connector.uses_contexts());
    for user in [3, 4, 3] {
        let mut target = Target::new("origin.test", 443);
        target.context = Context::user(user);
        echoed(&mut connector.connect(&target).unwrap(), b"x").await;
    }
    assert_eq!(*logins.lock().unwrap(), [3, 4, 3]);
    // Without a login the proxy could not separate the context, so the connection fails.
    assert!(connector.connect(&Target::new("origin.test", 443)).is_err());
}

/// A proxy that reads all available bytes and handles only the first message.
async fn discarding(mut client: TcpStream) {
    let mut room = [0; 4096];
    for reply in [&METHOD[..], &GRANTED] {
        // Writes that arrive together are read together, however the sender split them.
        tokio::time::sleep(Duration::from_millis(20)).await;
        if !matches!(client.read(&mut room).await, Ok(1..)) {
            return;
        }
        client.write_all(reply).await.unwrap();
    }
    echo(client).await;
}

async fn closing(mut client: TcpStream) {
    tokio::time::sleep(Duration::from_millis(20)).await;
    let mut room = [0; 4096];
    let read = client.read(&mut room).await.unwrap();
    if read > GREETING.len() {
        return;
    }
    client.write_all(&METHOD).await.unwrap();
    expect(&mut client, &request()).await;
    client.write_all(&GRANTED).await.unwrap();
    echo(client).await;
}

/// The client falls back, resends what was lost, and remembers.
#[tokio::test]
async fn after_a_close_on_early_bytes_the_client_goes_step_by_step() {
    let (at, count) = proxy(|_, client| closing(client)).await;
    let connector = connector(upstream(at, Optimistic::Auto));
    let flight = [hello(), b"early data".to_vec()].concat();
    assert_eq!(echoed(&mut connect(&connector), &flight).await, STEPWISE);
    assert_eq!(standing(&connector, at), Standing::Objects);
    assert_eq!(count.load(Ordering::Relaxed), 2);
    assert_eq!(echoed(&mut connect(&connector), &flight).await, STEPWISE);
    assert_eq!(
        count.load(Ordering::Relaxed),
        3,
        "the third connection did not go step by step immediately"
    );
}

#[tokio::test]
async fn a_second_lane_goes_step_by_step_when_early_bytes_are_lost() {
    for flight in [hello(), b"no TLS".to_vec()] {
        let (at, _) = proxy(|_, client| discarding(client)).await;
        let timeouts = Timeouts { silence: Duration::from_millis(200), ..Timeouts::default() };
        let connector = connector(Upstream { timeouts, ..upstream(at, Optimistic::Auto) });
        assert_eq!(echoed(&mut connect(&connector), &flight).await, STEPWISE);
        assert_eq!(standing(&connector, at), Standing::Silent);
    }
}

/// The proxy understood everything: how a target treats a ClientHello says nothing about the proxy.
#[tokio::test]
async fn a_close_by_the_target_is_not_the_proxys_objection() {
    let (at, _) = proxy(|_, mut client| async move {
        negotiate(&mut client).await;
        client.write_all(&GRANTED).await.unwrap();
        expect(&mut client, &hello()).await;
    })
    .await;
    let connector = connector(upstream(at, Optimistic::Auto));
    let mut stream = connect(&connector);
    stream.write_all(&hello()).await.unwrap();
    let read = timeout(LONG, stream.read(&mut [0; 1])).await.unwrap();
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    assert_eq!(standing(&connector, at), Standing::Unknown);
}

/// A step-by-step refusal stands, even if the proxy lost early bytes on the other lane.
#[tokio::test]
async fn a_proxy_that_loses_early_bytes_can_still_refuse() {
    let (at, count) = proxy(|number, mut client| async move {
        if number == 0 {
            client.write_all(&METHOD).await.unwrap();
            let _ = client.read_to_end(&mut Vec::new()).await;
            return;
        }
        negotiate(&mut client).await;
        client.write_all(&[5, 5, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
    })
    .await;
    let (silence, reply) = (Duration::from_millis(200), 10 * LONG);
    let timeouts = Timeouts { silence, reply, ..Timeouts::default() };
    let connector = connector(Upstream { timeouts, ..upstream(at, Optimistic::Auto) });
    let mut stream = connect(&connector);
    stream.write_all(&hello()).await.unwrap();
    assert_eq!(failure(&mut stream).await, UpstreamError::Refused(5));
    assert_eq!(count.load(Ordering::Relaxed), 2);
}

/// A server that speaks first does not show whether the ClientHello arrived.
#[tokio::test]
async fn trust_needs_an_answer_to_the_hello() {
    let (at, _) = proxy(|_, mut client| async move {
        negotiate(&mut client).await;
        client.write_all(&[&GRANTED[..], b"SSH-2.0-peer"].concat()).await.unwrap();
        let _ = client.read_to_end(&mut Vec::new()).await;
    })
    .await;
    let connector = connector(upstream(at, Optimistic::Auto));
    let mut stream = connect(&connector);
    stream.write_all(&hello()).await.unwrap();
    let mut received = [0; 12];
    timeout(LONG, stream.read_exact(&mut received)).await.unwrap().unwrap();
    assert_eq!(standing(&connector, at), Standing::Unknown);
}

/// The first lane of a slow proxy gets its answer first, and the second lane is dropped.
#[tokio::test]
async fn a_slow_proxy_does_not_count_as_objecting() {
    let (at, _) = proxy(|number, mut client| async move {
        if number > 0 {
            // The proxy delays both connections alike.
            std::future::pending::<()>().await;
        }
        expect(&mut client, &[&GREETING[..], &request(), &hello()].concat()).await;
        client.write_all(&METHOD).await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        client.write_all(&[&GRANTED[..], &hello()].concat()).await.unwrap();
        echo(client).await;
    })
    .await;
    let timeouts = Timeouts { silence: Duration::from_millis(50), ..Timeouts::default() };
    let connector = connector(Upstream { timeouts, ..upstream(at, Optimistic::Auto) });
    assert_eq!(echoed(&mut connect(&connector), &hello()).await, EARLY);
    assert_eq!(standing(&connector, at), Standing::Trusted);
}

/// Bytes that may have reached the target are not resent: the application gets an error, and the
/// next connection waits.
#[tokio::test]
async fn bytes_that_may_not_be_repeated_are_not_resent() {
    let (at, count) = proxy(|number, mut client| async move {
        if number == 0 {
            let flight = [hello(), b"early data".to_vec()].concat();
            expect(&mut client, &[&GREETING[..], &request(), &flight].concat()).await;
            client.write_all(&METHOD).await.unwrap();
            return;
        }
        conventional(client).await;
    })
    .await;
    let connector = connector(upstream(at, Optimistic::Auto));
    learn(&connector, at, Standing::Trusted);
    let mut stream = connect(&connector);
    stream.write_all(&[hello(), b"early data".to_vec()].concat()).await.unwrap();
    assert_eq!(failure(&mut stream).await, UpstreamError::Closed(Step::Request));
    assert_eq!(count.load(Ordering::Relaxed), 1, "the proxy was contacted twice");
    assert_eq!(standing(&connector, at), Standing::Unknown, "the proxy is no longer trusted");
    echoed(&mut connect(&connector), &hello()).await;
}

/// The proxy may have been restarted: the ClientHello is resent, and the proxy has to prove its
/// support again.
#[tokio::test]
async fn a_close_by_a_trusted_proxy_does_not_count_as_an_objection() {
    let (at, _) = proxy(|number, mut client| async move {
        match number {
            0 => expect(&mut client, &[&GREETING[..], &request(), &hello()].concat()).await,
            _ => conventional(client).await,
        }
    })
    .await;
    let connector = connector(upstream(at, Optimistic::Auto));
    learn(&connector, at, Standing::Trusted);
    assert_eq!(echoed(&mut connect(&connector), &hello()).await, STEPWISE);
    assert_eq!(standing(&connector, at), Standing::Unknown);
}

/// A proxy that takes early bytes for its next message speaks of a general failure.
#[tokio::test]
async fn a_general_failure_of_an_unknown_proxy_is_an_objection() {
    let (at, _) = proxy(|number, mut client| async move {
        if number > 0 {
            return conventional(client).await;
        }
        expect(&mut client, &GREETING).await;
        client
            .write_all(&[METHOD.as_slice(), &[5, 1, 0, 1, 0, 0, 0, 0, 0, 0]].concat())
            .await
            .unwrap();
        let _ = client.read_to_end(&mut Vec::new()).await;
    })
    .await;
    let connector = connector(upstream(at, Optimistic::Auto));
    assert_eq!(echoed(&mut connect(&connector), &hello()).await, STEPWISE);
    assert_eq!(standing(&connector, at), Standing::Objects);
}

#[tokio::test]
async fn a_refusal_is_passed_on_and_is_no_objection() {
    for (reply, expected) in [
        (&[5, 0xff][..], UpstreamError::NoMethod),
        (&[5, 0, 5, 1][..], UpstreamError::Refused(1)),
        (&[5, 0, 5, 2, 0, 1][..], UpstreamError::Refused(2)),
        (&[5, 0, 5, 5, 0, 1, 0, 0, 0, 0, 0, 0][..], UpstreamError::Refused(5)),
        (&[5, 0, 5, 0xf0][..], UpstreamError::Refused(0xf0)),
        (&[5, 2][..], UpstreamError::Garbage(Step::Method)),
        (&[5, 0, 5, 0, 0, 9][..], UpstreamError::Garbage(Step::Request)),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", UpstreamError::Garbage(Step::Method)),
        (&[4, 91][..], UpstreamError::Garbage(Step::Method)),
        (&[5, 0, 4][..], UpstreamError::Garbage(Step::Request)),
        (&[5, 0, 5, 0, 0, 3, 200, 1][..], UpstreamError::Closed(Step::Request)),
        (&[5][..], UpstreamError::Closed(Step::Method)),
        (&[][..], UpstreamError::Closed(Step::Method)),
    ] {
        for optimistic in [Optimistic::Auto, Optimistic::Always, Optimistic::Never] {
            let (at, _) = proxy(move |_, mut client| async move {
                let mut room = [0; 4096];
                let _ = client.read(&mut room).await;
                client.write_all(reply).await.unwrap();
                client.shutdown().await.unwrap();
                let _ = client.read_to_end(&mut Vec::new()).await;
            })
            .await;
            let connector = connector(upstream(at, optimistic));
            let mut stream = connect(&connector);
            assert_eq!(failure(&mut stream).await, expected, "{reply:?} {optimistic:?}");
            assert!(stream.report().unwrap().address.is_none());
            assert_eq!(standing(&connector, at), Standing::Unknown, "{reply:?}");
        }
    }
}

#[tokio::test]
async fn a_rejected_login_is_reported() {
    for optimistic in [Optimistic::Auto, Optimistic::Never] {
        let (at, _) = proxy(|_, mut client| async move {
            let _ = client.read(&mut [0; 4096]).await;
            client.write_all(&[5, 2, 1, 1]).await.unwrap();
            let _ = client.read_to_end(&mut Vec::new()).await;
        })
        .await;
        let login = Login::Fixed(Credentials::new(b"user", b"secret").unwrap());
        let connector = connector(Upstream { login, ..upstream(at, optimistic) });
        assert_eq!(failure(&mut connect(&connector)).await, UpstreamError::LoginRefused);
    }
}

#[tokio::test]
async fn a_proxy_that_is_down_or_silent_fails_the_connection() {
    // Bound, so that no other socket gets the port, and not listening.
    let down = TcpSocket::new_v4().unwrap();
    down.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let refused = UpstreamError::Unreachable(std::io::ErrorKind::ConnectionRefused);
    let connector_down = connector(upstream(down.local_addr().unwrap(), Optimistic::Auto));
    assert_eq!(failure(&mut connect(&connector_down)).await, refused);
    for (sent, step) in [(&b""[..], Step::Method), (&METHOD, Step::Request)] {
        let (at, _) = proxy(move |_, mut client| async move {
            client.write_all(sent).await.unwrap();
            let _ = client.read_to_end(&mut Vec::new()).await;
        })
        .await;
        let short = Duration::from_millis(100);
        let negotiation = if sent.is_empty() { short } else { LONG };
        let timeouts = Timeouts { negotiation, reply: short, ..Timeouts::default() };
        let connector = connector(Upstream { timeouts, ..upstream(at, Optimistic::Always) });
        assert_eq!(failure(&mut connect(&connector)).await, UpstreamError::Silent(step));
    }
}

/// A half-close before the proxy has connected is passed on after the bytes written before it.
#[tokio::test]
async fn an_early_end_comes_last() {
    let (at, _) = proxy(|_, mut client| async move {
        negotiate(&mut client).await;
        client.write_all(&GRANTED).await.unwrap();
        let mut sent = Vec::new();
        client.read_to_end(&mut sent).await.unwrap();
        client.write_all(&sent).await.unwrap();
    })
    .await;
    let connector = connector(upstream(at, Optimistic::Auto));
    let mut stream = connect(&connector);
    stream.write_all(b"all there is").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut received = Vec::new();
    timeout(LONG, stream.read_to_end(&mut received)).await.unwrap().unwrap();
    assert_eq!(received, b"all there is");
}

#[tokio::test]
async fn a_name_too_long_for_a_request_is_refused() {
    let connector = connector(upstream("127.0.0.1:1".parse().unwrap(), Optimistic::Auto));
    assert!(connector.connect(&Target::new("a".repeat(256), 443)).is_err());
    assert!(connector.connect(&Target::new("a".repeat(255), 443)).is_ok());
}

#[test]
fn logins_are_within_their_limits() {
    for (user, password, fits) in [
        (1, 1, true),
        (255, 255, true),
        (0, 1, false),
        (1, 0, false),
        (256, 1, false),
        (1, 256, false),
    ] {
        let login = Credentials::new(&vec![b'u'; user], &vec![b'p'; password]);
        assert_eq!(login.is_some(), fits, "{user} {password}");
    }
}

#[test]
fn standings_expire() {
    let standings = Standings::default();
    let known = upstream("127.0.0.1:9050".parse().unwrap(), Optimistic::Auto);
    let now = std::time::Instant::now();
    for (standing, memory) in
        [(Standing::Objects, OBJECTION_MEMORY), (Standing::Trusted, TRUST_MEMORY)]
    {
        standings.learn(&known, standing, now);
        assert_eq!(standings.standing(&known, now + memory - Duration::from_millis(1)), standing);
        assert_eq!(standings.standing(&known, now + memory), Standing::Unknown);
    }
}

/// Returns an exchange that has sent what it may.
fn exchange(login: &Credentials, early: bool) -> Exchange {
    let mut exchange = Exchange::new("origin.test", 443, Some(login), early).unwrap();
    while exchange.poll_bytes().is_some() {}
    exchange
}

/// Tor answers this way. A client that goes step by step has not sent a login yet, and gets no such
/// answer.
#[test]
fn an_accepted_login_implies_its_method() {
    let login = Credentials::new(b"u", b"p").unwrap();
    let mut early = exchange(&login, true);
    for byte in [&[1, 0][..], &GRANTED].concat() {
        assert!(early.wants() > 0);
        early.handle_bytes(&[byte]).unwrap();
    }
    assert!(early.is_granted() && early.wants() == 0);
    assert_eq!(exchange(&login, true).handle_bytes(&[1, 1]), Err(UpstreamError::LoginRefused));
    let garbage = Err(UpstreamError::Garbage(Step::Method));
    assert_eq!(exchange(&login, false).handle_bytes(&[1]), garbage);
}

#[test]
fn addresses_are_sent_as_addresses() {
    for (host, expected) in [
        ("192.0.2.1", vec![5, 1, 0, 1, 192, 0, 2, 1, 0, 80]),
        ("::1", [&[5, 1, 0, 4][..], &[0; 15], &[1, 0, 80]].concat()),
        ("[::1]", [&[5, 1, 0, 4][..], &[0; 15], &[1, 0, 80]].concat()),
        ("a", vec![5, 1, 0, 3, 1, b'a', 0, 80]),
    ] {
        let mut exchange = Exchange::new(host, 80, None, true).unwrap();
        assert_eq!(exchange.poll_bytes().unwrap().as_slice(), GREETING);
        assert_eq!(exchange.poll_bytes().unwrap().as_slice(), expected);
        assert!(exchange.poll_bytes().is_none() && exchange.has_requested());
    }
}

/// Replies with any kind of address, and the offset of the first byte of the target.
fn replies() -> impl Strategy<Value = (Vec<u8>, usize)> {
    let address = prop_oneof![
        Just(vec![1, 0, 0, 0, 0]),
        Just([&[4][..], &[9; 16]].concat()),
        (0..=255_u8).prop_map(|length| [&[3, length][..], &vec![b'n'; length.into()]].concat()),
    ];
    (address, proptest::collection::vec(any::<u8>(), 0..40)).prop_map(|(address, behind)| {
        let replies = [&METHOD[..], &[5, 0, 0], &address, &[0, 0]].concat();
        let length = replies.len();
        ([replies, behind].concat(), length)
    })
}

proptest! {
    #[test]
    fn exactly_the_replies_are_read(
        (bytes, length) in replies(),
        cuts in proptest::collection::vec(1..30_usize, 1..20),
    ) {
        let mut exchange = Exchange::new("origin.test", 443, None, true).unwrap();
        let (mut at, mut cuts) = (0, cuts.into_iter().cycle());
        while exchange.wants() > 0 {
            let take = exchange.wants().min(cuts.next().unwrap()).min(bytes.len() - at);
            exchange.handle_bytes(&bytes[at..at + take]).unwrap();
            at += take;
        }
        prop_assert!(exchange.is_granted());
        prop_assert_eq!(at, length);
    }

    #[test]
    fn no_reply_makes_the_exchange_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..600),
        login in any::<bool>(),
    ) {
        let login = login.then(|| Credentials::new(b"u", b"p").unwrap());
        let mut exchange = Exchange::new("origin.test", 443, login.as_ref(), true).unwrap();
        let mut rest = bytes.as_slice();
        while exchange.wants() > 0 && !rest.is_empty() {
            let (now, later) = rest.split_at(exchange.wants().min(rest.len()));
            if exchange.handle_bytes(now).is_err() {
                return Ok(());
            }
            rest = later;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// For any schedule of partial replies and writes, the bytes pass exactly once, in order.
    #[test]
    fn bytes_pass_exactly_once(
        cuts in proptest::collection::vec((1..8_usize, any::<bool>()), 1..12),
        writes in proptest::collection::vec(1..700_usize, 1..6),
        tls in any::<bool>(),
        objects in 0..3_u8,
        trusted in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let (at, _) = proxy(move |_, client| {
                let cuts = cuts.clone();
                async move {
                    match objects {
                        0 => in_pieces(client, cuts).await,
                        1 => closing(client).await,
                        _ => conventional(client).await,
                    }
                }
            })
            .await;
            let connector = connector(upstream(at, Optimistic::Auto));
            if trusted && objects != 1 {
                learn(&connector, at, Standing::Trusted);
            }
            let rest: Vec<u8> = (0..3000_u32).map(|number| number.to_le_bytes()[0]).collect();
            let sent = if tls { [hello(), rest].concat() } else { rest };
            let stream = connect(&connector);
            let (mut read, mut write) = tokio::io::split(stream);
            let to_send = sent.clone();
            let writing = tokio::spawn(async move {
                let (mut left, mut writes) = (to_send.as_slice(), writes.into_iter().cycle());
                while !left.is_empty() {
                    let (now, later) = left.split_at(writes.next().unwrap().min(left.len()));
                    write.write_all(now).await.unwrap();
                    tokio::task::yield_now().await;
                    left = later;
                }
                write.shutdown().await.unwrap();
            });
            let mut received = Vec::new();
            timeout(LONG, read.read_to_end(&mut received)).await.unwrap().unwrap();
            writing.await.unwrap();
            assert!(received == sent, "{} of {} bytes", received.len(), sent.len());
        });
    }
}

/// A proxy that supports early bytes and sends its replies in pieces, some of them late.
async fn in_pieces(mut client: TcpStream, cuts: Vec<(usize, bool)>) {
    expect(&mut client, &[&GREETING[..], &request()].concat()).await;
    let replies = [&METHOD[..], &GRANTED].concat();
    let (mut left, mut cuts) = (replies.as_slice(), cuts.into_iter().cycle());
    while !left.is_empty() {
        let (length, pause) = cuts.next().unwrap();
        let (now, later) = left.split_at(length.min(left.len()));
        client.write_all(now).await.unwrap();
        if pause {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        left = later;
    }
    echo(client).await;
}
