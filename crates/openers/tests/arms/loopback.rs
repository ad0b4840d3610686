//! Every arm with every suite against its server, on loopback.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use headstart_openers::{
    Arm, Carrier, Client, ClientOptions, Load, OTHER_NAME, OpeningPolicy, Server, ServerOptions,
    Suite, Trial, Visit,
};

const BYTES: u64 = 50_000;

fn any_port() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

fn pair(arm: Arm, suite: Suite, directory: &Path) -> (Server, ClientOptions) {
    let server = start(&ServerOptions::new(arm, suite, any_port(), directory));
    let client = ClientOptions::new(arm, suite, server.local_addr(), directory);
    (server, client)
}

/// Starts a server. A port that is free for TCP may be in use for UDP; then it tries another.
fn start(options: &ServerOptions) -> Server {
    (0..20).find_map(|_| Server::start(options.clone()).ok()).unwrap()
}

/// Sets the policy that ignores the silence of a busy machine.
fn steady(options: ClientOptions) -> ClientOptions {
    ClientOptions { policy: OpeningPolicy::Turbo, ..options }
}

fn assert_whole(arm: Arm, suite: Suite, trial: &Trial) {
    assert!(trial.ok, "{arm} {suite}: {trial:?}");
    assert_eq!((trial.bytes, trial.error.as_str()), (BYTES, ""), "{arm} {suite}");
    let times = [
        trial.ms_to_first_request_byte.unwrap(),
        trial.ms_to_first_response_byte.unwrap(),
        trial.ms_to_last_response_byte.unwrap(),
    ];
    assert!(times[0] > 0.0 && times.is_sorted(), "{arm} {suite}: {times:?}");
}

/// Asserts the arm's claim about its second connection and later ones; loopback has no SYN data by
/// default.
fn assert_as_claimed(arm: Arm, suite: Suite, trial: &Trial) {
    assert_whole(arm, suite, trial);
    assert_eq!(trial.resumed, arm.resumes(), "{arm} {suite}: {trial:?}");
    assert_eq!(trial.early_data, arm.sends_early_data(), "{arm} {suite}: {trial:?}");
    let quic = matches!(arm, Arm::QUIC | Arm::QUIC_EARLY_DATA);
    assert_eq!(trial.opening == Carrier::Quic, quic, "{arm} {suite}: {trial:?}");
    if matches!(arm, Arm::TLS13 | Arm::TLS13_RESUMED | Arm::TLS13_EARLY_DATA) {
        assert_eq!((trial.opening, trial.reason.as_str()), (Carrier::Tcp, ""), "{arm} {suite}");
    }
}

#[tokio::test]
async fn every_arm_opens_with_every_suite_and_delivers_every_byte() {
    let directory = tempfile::tempdir().unwrap();
    for suite in Suite::ALL {
        for arm in Arm::all() {
            // Others test arms with an agent (the test of proxies), with Encrypted ClientHello,
            // whose server is another program (the experiment `ech`), of programs (`sharing`), and
            // without TLS (pages).
            let is_here = !arm.has_agent()
                && !arm.has_haproxy()
                && !arm.encrypts_hello()
                && !arm.is_of_programs()
                && !arm.is_clear();
            if !is_here || !arm.supports(suite) {
                continue;
            }
            let (_server, options) = pair(arm, suite, directory.path());
            let client = Client::new(steady(options)).unwrap();
            let first = client.open(BYTES).await;
            assert_whole(arm, suite, &first);
            assert!(!first.resumed && !first.early_data, "{arm} {suite}: {first:?}");
            for _ in 0..3 {
                assert_as_claimed(arm, suite, &client.open(BYTES).await);
            }
            client.forget().unwrap();
            let again = client.open(BYTES).await;
            assert_whole(arm, suite, &again);
            assert!(!again.resumed && !again.early_data, "{arm} {suite}: {again:?}");
        }
    }
}

/// Contexts share neither sessions nor cookies, and neither do names.
#[tokio::test]
async fn nothing_is_used_in_another_context_or_under_another_name() {
    let directory = tempfile::tempdir().unwrap();
    for arm in [Arm::FOP_RESUMED, Arm::FOP_EARLY_DATA] {
        let (_server, options) = pair(arm, Suite::P256, directory.path());
        let client = Client::new(options).unwrap();
        let usual = Visit::new(BYTES);
        let private = Visit { context: Some("private".into()), ..usual.clone() };
        let other = Visit { name: Some(OTHER_NAME.into()), ..usual.clone() };
        for visit in [&usual, &private, &other] {
            let first = client.visit(visit).await;
            assert_whole(arm, Suite::P256, &first);
            assert_eq!((first.resumed, first.reason.as_str()), (false, "no_cookie"), "{visit:?}");
            let second = client.visit(visit).await;
            assert_as_claimed(arm, Suite::P256, &second);
            assert_ne!(second.reason, "no_cookie", "{visit:?}: {second:?}");
        }
    }
}

#[tokio::test]
async fn a_server_at_several_addresses_is_one() {
    let directory = tempfile::tempdir().unwrap();
    for arm in [Arm::TLS13_RESUMED, Arm::FAST_OPEN_RESUMED, Arm::FOP_RESUMED] {
        let mut options = ServerOptions::new(arm, Suite::P256, any_port(), directory.path());
        let started = (0..20).find_map(|_| {
            let any = std::net::TcpListener::bind(any_port()).unwrap();
            let port = any.local_addr().unwrap().port();
            drop(any);
            let addresses = [1, 2].map(|last| SocketAddr::from(([127, 0, 0, last], port)));
            (options.listen, options.more) = (addresses[0], vec![addresses[1]]);
            // Another process may have taken the port meanwhile.
            Server::start(options.clone()).ok().map(|server| (server, addresses))
        });
        let (_server, [first, second]) = started.expect("it starts");
        let mut options = ClientOptions::new(arm, Suite::P256, first, directory.path());
        options.more = vec![second];
        let client = Client::new(options).unwrap();
        for (at, resumed) in [(0, false), (1, true), (0, true)] {
            let trial = client.visit(&Visit { at, ..Visit::new(BYTES) }).await;
            assert_whole(arm, Suite::P256, &trial);
            assert_eq!(trial.resumed, resumed, "{arm} at {at}: {trial:?}");
        }
        let nowhere = client.visit(&Visit { at: 2, ..Visit::new(BYTES) }).await;
        assert_eq!(nowhere.error, "there is no address 2");
    }
}

#[tokio::test]
async fn unsupported_options_of_an_arm_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    let (_server, options) = pair(Arm::TLS13, Suite::P256, directory.path());
    let client = Client::new(options).unwrap();
    let named = Visit { name: Some(OTHER_NAME.into()), ..Visit::new(1) };
    assert_eq!(client.visit(&named).await.error, "tls13 knows no other name");
    let private = Visit { context: Some("x".into()), ..Visit::new(1) };
    assert_eq!(client.visit(&private).await.error, "tls13 knows no other context");
    let mut options =
        ServerOptions::new(Arm::TURBO_AGENT, Suite::P256, any_port(), directory.path());
    options.more = vec![any_port()];
    assert!(Server::start(options).unwrap_err().hint().unwrap().contains("--also"));
    let mut options = ServerOptions::new(Arm::TURBO, Suite::P256, any_port(), directory.path());
    options.cookie_life = Some(Duration::from_secs(9));
    assert!(Server::start(options).unwrap_err().hint().unwrap().contains("--cookie-life"));
}

/// The origin of an edge that speaks TLS: HTTP in clear.
#[tokio::test]
async fn the_server_of_fop_agent_speaks_http_in_clear() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let directory = tempfile::tempdir().unwrap();
    let options = ServerOptions::new(Arm::FOP_AGENT, Suite::P256, any_port(), directory.path());
    let server = start(&options);
    let mut tcp = tokio::net::TcpStream::connect(server.local_addr()).await.unwrap();
    let request = b"GET /bytes/3 HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n";
    tcp.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    tcp.read_to_end(&mut answer).await.unwrap();
    let mut content = [0; 3];
    headstart_openers::fill(0, &mut content);
    assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n") && answer.ends_with(&content), "{answer:?}");
}

#[tokio::test]
async fn an_arm_that_rustls_has_no_suite_for_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let options =
        ServerOptions::new(Arm::QUIC, Suite::MlKem512MlDsa44, any_port(), directory.path());
    assert!(Server::start(options).unwrap_err().hint().is_some());
    let options = ClientOptions::new(Arm::TURBO_AGENT, Suite::P256, any_port(), directory.path());
    assert!(Client::new(options).unwrap_err().hint().unwrap().contains("--proxy"));
}

/// An ECHConfigList for public.peer.test as OpenSSL 4.0.3 made it, whose key nobody has.
const ECH: &str = "AEP+DQA/igAgACDwrRDK4kSAldPo3k3myXJ1ZVQtv6GBrvT+gNuCYdGJEgAEAAEA\
                   AQAQcHVibGljLnBlZXIudGVzdAAA";

#[tokio::test]
async fn nothing_is_measured_where_the_server_takes_no_encrypted_hello() {
    let directory = tempfile::tempdir().unwrap();
    for (arm, plain) in [(Arm::TLS13_ECH, Arm::TLS13), (Arm::TURBO_ECH, Arm::TURBO)] {
        let (_server, usual) = pair(plain, Suite::P256, directory.path());
        let trial = Client::new(steady(usual.clone())).unwrap().open(BYTES).await;
        assert_whole(plain, Suite::P256, &trial);
        let options = ClientOptions { arm, ech: Some(ECH.to_owned()), ..usual };
        let trial = Client::new(steady(options)).unwrap().open(BYTES).await;
        assert!(!trial.ok && trial.error.starts_with("TLS: "), "{arm}: {trial:?}");
        assert_eq!((trial.bytes, trial.ms_to_first_request_byte), (0, None), "{arm}");
    }
}

#[tokio::test]
async fn encrypted_hellos_need_a_configuration_that_can_be_read() {
    let directory = tempfile::tempdir().unwrap();
    let (_server, usual) = pair(Arm::TLS13, Suite::P256, directory.path());
    for (arm, ech, hint) in [
        (Arm::TLS13_ECH, None, "--ech"),
        (Arm::TLS13, Some(ECH), "--ech"),
        (Arm::TLS13_ECH, Some("?"), "ech_config_list"),
        (Arm::TLS13_ECH, Some("AAAA"), "ech_config_list"),
    ] {
        let options = ClientOptions { arm, ech: ech.map(str::to_owned), ..usual.clone() };
        let refused = Client::new(options).unwrap_err();
        assert!(refused.hint().unwrap().contains(hint), "{refused}");
    }
    let options = ServerOptions::new(Arm::TURBO_ECH, Suite::P256, any_port(), directory.path());
    assert!(Server::start(options).unwrap_err().hint().unwrap().contains("headstart-ech-server"));
}

#[tokio::test]
async fn a_server_that_clients_do_not_know_is_not_trusted() {
    let (known, unknown) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for arm in [Arm::TLS13, Arm::TURBO, Arm::TURBO_PSK, Arm::QUIC] {
        let (_other, mut options) = pair(arm, Suite::P256, known.path());
        let (server, _) = pair(arm, Suite::P256, unknown.path());
        options.to = server.local_addr();
        let trial = Client::new(steady(options)).unwrap().open(BYTES).await;
        assert!(!trial.ok && !trial.error.is_empty(), "{arm}: {trial:?}");
        assert_eq!((trial.bytes, trial.ms_to_first_response_byte), (0, None), "{arm}");
    }
}

#[tokio::test]
async fn a_server_of_another_name_is_not_trusted() {
    let directory = tempfile::tempdir().unwrap();
    for arm in [Arm::TLS13, Arm::QUIC] {
        let (_server, options) = pair(arm, Suite::P256, directory.path());
        let options = ClientOptions { name: "other.test".to_owned(), ..options };
        let trial = Client::new(options).unwrap().open(BYTES).await;
        assert!(!trial.ok, "{arm}: {trial:?}");
    }
}

#[tokio::test]
async fn where_nobody_listens_a_trial_says_so() {
    let directory = tempfile::tempdir().unwrap();
    for arm in [Arm::TLS13, Arm::TURBO] {
        let (server, options) = pair(arm, Suite::P256, directory.path());
        drop(server);
        let options = ClientOptions { timeout: Duration::from_secs(5), ..steady(options) };
        // The listener goes with its task, soon.
        tokio::task::yield_now().await;
        let trial = Client::new(options).unwrap().open(BYTES).await;
        assert!(!trial.ok && !trial.error.is_empty(), "{arm}: {trial:?}");
        assert_eq!(trial.ms_to_first_request_byte, None, "{arm}");
    }
}

#[tokio::test]
async fn a_server_that_is_silent_is_given_up() {
    let directory = tempfile::tempdir().unwrap();
    let (_server, mut options) = pair(Arm::TLS13, Suite::P256, directory.path());
    let silent = tokio::net::TcpListener::bind(any_port()).await.unwrap();
    options.to = silent.local_addr().unwrap();
    options.timeout = Duration::from_millis(200);
    let trial = Client::new(options).unwrap().open(BYTES).await;
    assert_eq!(trial.error, "out of time: the connection was not opened");
}

#[tokio::test]
async fn long_flights_are_as_long_as_they_say() {
    let directory = tempfile::tempdir().unwrap();
    for arm in [Arm::TLS13, Arm::TURBO, Arm::QUIC] {
        let mut server = ServerOptions::new(arm, Suite::P256, any_port(), directory.path());
        server.flight = Some(20_000);
        let server = start(&server);
        assert!(server.flight_bytes().abs_diff(20_000) <= 16, "{}", server.flight_bytes());
        let options = ClientOptions::new(arm, Suite::P256, server.local_addr(), directory.path());
        let client = Client::new(steady(options)).unwrap();
        assert_whole(arm, Suite::P256, &client.open(BYTES).await);
    }
}

#[tokio::test]
async fn servers_of_several_flights_in_one_directory_are_all_trusted() {
    let directory = tempfile::tempdir().unwrap();
    for flight in [None, Some(3_000), Some(9_000)] {
        let mut options = ServerOptions::new(Arm::TLS13, Suite::P256, any_port(), directory.path());
        options.flight = flight;
        let server = start(&options);
        let to = server.local_addr();
        let client = ClientOptions::new(Arm::TLS13, Suite::P256, to, directory.path());
        let trial = Client::new(client).unwrap().open(BYTES).await;
        assert_whole(Arm::TLS13, Suite::P256, &trial);
    }
}

/// More in a row than one address may have sessions: each ends as its key comes.
#[tokio::test]
async fn every_connection_gets_a_key_over_udp() {
    let directory = tempfile::tempdir().unwrap();
    for suite in Suite::ALL {
        let (_server, options) = pair(Arm::TURBO_PSK, suite, directory.path());
        let client = Client::new(patient(options)).unwrap();
        // It shows how many slots the server's flight takes.
        assert_whole(Arm::TURBO_PSK, suite, &client.open(BYTES).await);
        for number in 0..20 {
            let trial = client.open(BYTES).await;
            assert_as_claimed(Arm::TURBO_PSK, suite, &trial);
            let opening = (trial.opening, trial.reason.as_str());
            assert_eq!(opening, (Carrier::TurboTls, ""), "{suite}, {number}: {trial:?}");
        }
    }
}

/// Has a client wait for datagrams, however busy the machine is.
fn patient(options: ClientOptions) -> ClientOptions {
    ClientOptions { grace: Some(Duration::from_secs(5)), ..steady(options) }
}

/// Passes datagrams of one client on to `udp`, and connections to `tcp`: a balancer that takes
/// them apart.
async fn apart(udp: SocketAddr, tcp: SocketAddr) -> SocketAddr {
    let (near, address) = loop {
        let address = stalling(tcp, usize::MAX, Duration::ZERO).await;
        // A port that is free for TCP may be in use for UDP.
        if let Ok(near) = tokio::net::UdpSocket::bind(address).await {
            break (near, address);
        }
    };
    let far = tokio::net::UdpSocket::bind(any_port()).await.unwrap();
    far.connect(udp).await.unwrap();
    tokio::spawn(async move {
        let (mut client, mut request, mut response) = (address, [0; 2048], [0; 2048]);
        loop {
            tokio::select! {
                received = near.recv_from(&mut request) => {
                    let (count, from) = received.unwrap();
                    client = from;
                    far.send(&request[..count]).await.unwrap();
                }
                received = far.recv(&mut response) => {
                    near.send_to(&response[..received.unwrap()], client).await.unwrap();
                }
            }
        }
    });
    address
}

/// The difference between the variants: by version 2 the client has delivered bytes of one server
/// when the other refuses its join.
#[tokio::test]
async fn a_key_that_another_server_has_is_refused_and_nothing_is_reset() {
    let directory = tempfile::tempdir().unwrap();
    for (arm, survives) in [(Arm::TURBO_PSK, true), (Arm::TURBO, false)] {
        let (one, options) = pair(arm, Suite::P256, directory.path());
        let (other, _) = pair(arm, Suite::P256, directory.path());
        let to = apart(one.local_addr(), other.local_addr()).await;
        let client = Client::new(patient(ClientOptions { to, ..options })).unwrap();
        let trial = client.open(BYTES).await;
        assert_eq!(trial.ok, survives, "{arm}: {trial:?}");
        if survives {
            let opening = (trial.opening, trial.reason.as_str());
            assert_eq!(opening, (Carrier::Tcp, "key_refused"), "{trial:?}");
        }
    }
}

/// A SOCKS5 proxy that takes one target, by name, to `to`.
async fn proxy(to: SocketAddr) -> SocketAddr {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
    let listener = tokio::net::TcpListener::bind(any_port()).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut near, _) = listener.accept().await.unwrap();
            let mut greeting = [0; 3];
            near.read_exact(&mut greeting).await.unwrap();
            near.write_all(&[5, 0]).await.unwrap();
            let mut request = vec![0; 5 + "peer.test".len() + 2];
            near.read_exact(&mut request).await.unwrap();
            assert_eq!(&request[..5], [5, 1, 0, 3, 9]);
            assert_eq!(&request[5..14], b"peer.test");
            assert_eq!(request[14..], to.port().to_be_bytes());
            let mut far = tokio::net::TcpStream::connect(to).await.unwrap();
            near.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
            tokio::spawn(async move { copy_bidirectional(&mut near, &mut far).await });
        }
    });
    address
}

#[tokio::test]
async fn plain_arms_go_through_a_proxy_that_is_told_the_name() {
    let directory = tempfile::tempdir().unwrap();
    for arm in [Arm::TURBO_AGENT, Arm::TLS13_EARLY_DATA] {
        let (server, mut options) = pair(arm, Suite::P256, directory.path());
        options.proxy = Some(proxy(server.local_addr()).await);
        let client = Client::new(options).unwrap();
        assert_whole(arm, Suite::P256, &client.open(BYTES).await);
        assert_as_claimed(arm, Suite::P256, &client.open(BYTES).await);
    }
}

#[tokio::test]
async fn loads_open_as_many_as_they_say() {
    let directory = tempfile::tempdir().unwrap();
    for arm in [Arm::TLS13, Arm::TURBO, Arm::QUIC] {
        let (_server, options) = pair(arm, Suite::P256, directory.path());
        let client = Arc::new(Client::new(steady(options)).unwrap());
        for load in [Load::InFlight(4), Load::PerSecond(50.0)] {
            let mut trials = Vec::new();
            let lasting = Duration::from_millis(400);
            let tally = client.load(BYTES, load, lasting, &mut |trial| trials.push(trial)).await;
            assert_eq!(tally.connections, u64::try_from(trials.len()).unwrap());
            assert!(tally.connections > 1 && tally.cpu_ms > 0.0, "{arm}: {tally:?}");
            assert!(tally.cpu_ms <= tally.ms * 64.0 && tally.done);
            assert!(tally.completed_in_slice <= tally.connections as f64, "{arm}: {tally:?}");
            trials.iter().for_each(|trial| assert_whole(arm, Suite::P256, trial));
        }
    }
}

/// Forwards connections to `to`: the first `quick` at once, the others after a pause.
async fn stalling(to: SocketAddr, quick: usize, pause: Duration) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind(any_port()).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        for number in 0.. {
            let (mut near, _) = listener.accept().await.unwrap();
            let pause = if number < quick { Duration::ZERO } else { pause };
            tokio::spawn(async move {
                tokio::time::sleep(pause).await;
                let mut far = tokio::net::TcpStream::connect(to).await.unwrap();
                tokio::io::copy_bidirectional(&mut near, &mut far).await
            });
        }
    });
    address
}

#[tokio::test]
async fn connections_that_last_beyond_the_slice_count_by_their_part_in_it() {
    let directory = tempfile::tempdir().unwrap();
    let (server, options) = pair(Arm::TLS13, Suite::P256, directory.path());
    let slice = Duration::from_secs(4);
    let to = stalling(server.local_addr(), 3, slice).await;
    let client = Arc::new(Client::new(ClientOptions { to, ..options }).unwrap());
    let mut trials = Vec::new();
    let load = Load::InFlight(3);
    let tally = client.load(BYTES, load, slice, &mut |trial| trials.push(trial)).await;
    trials.iter().for_each(|trial| assert_whole(Arm::TLS13, Suite::P256, trial));
    // The first three are over in no time, the next three go on for as long again as the slice.
    assert!(tally.completed_in_slice > 1.0 && tally.completed_in_slice < 6.0, "{tally:?}");
    assert!(tally.connections >= 6, "{tally:?}");
    assert!(tally.completed_in_slice.fract() > 0.0, "{tally:?}");
    assert_eq!(tally.slice_ms, 4000.0);
    assert!(tally.ms >= tally.slice_ms, "{tally:?}");
}

/// Forwards connections to `to`, and breaks off the first after so many bytes to the client.
async fn breaking(to: SocketAddr, bytes: u64) -> SocketAddr {
    use tokio::io::{AsyncReadExt, copy};
    let listener = tokio::net::TcpListener::bind(any_port()).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        for limit in [bytes, u64::MAX] {
            let (near, _) = listener.accept().await.unwrap();
            let far = tokio::net::TcpStream::connect(to).await.unwrap();
            let ((mut from_near, mut to_near), (from_far, mut to_far)) =
                (near.into_split(), far.into_split());
            tokio::spawn(async move {
                let mut from_far = from_far.take(limit);
                tokio::select! {
                    _ = copy(&mut from_far, &mut to_near) => {}
                    _ = copy(&mut from_near, &mut to_far) => {}
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn a_session_of_a_connection_that_broke_sends_early_data() {
    let directory = tempfile::tempdir().unwrap();
    let arm = Arm::TLS13_EARLY_DATA;
    let (server, options) = pair(arm, Suite::P256, directory.path());
    let to = breaking(server.local_addr(), BYTES / 2).await;
    let client = Client::new(ClientOptions { to, ..options }).unwrap();
    assert!(!client.open(BYTES).await.ok, "it broke");
    assert_as_claimed(arm, Suite::P256, &client.open(BYTES).await);
}

#[tokio::test]
async fn every_carrier_takes_ipv6() {
    let directory = tempfile::tempdir().unwrap();
    let listen: SocketAddr = "[::1]:0".parse().unwrap();
    if std::net::UdpSocket::bind(listen).is_err() {
        eprintln!("skipped: this machine has no IPv6");
        return;
    }
    for arm in [Arm::TLS13, Arm::FAST_OPEN, Arm::FOP, Arm::TURBO, Arm::TURBO_PSK, Arm::QUIC] {
        let server = start(&ServerOptions::new(arm, Suite::P256, listen, directory.path()));
        let options = ClientOptions::new(arm, Suite::P256, server.local_addr(), directory.path());
        let client = Client::new(steady(options)).unwrap();
        assert_whole(arm, Suite::P256, &client.open(BYTES).await);
    }
}

#[tokio::test]
async fn servers_that_share_a_directory_are_one() {
    let directory = tempfile::tempdir().unwrap();
    let (_one, options) = pair(Arm::TLS13, Suite::P256, directory.path());
    let (two, _) = pair(Arm::TLS13, Suite::P256, directory.path());
    let client = Client::new(ClientOptions { to: two.local_addr(), ..options }).unwrap();
    assert_whole(Arm::TLS13, Suite::P256, &client.open(BYTES).await);
}
