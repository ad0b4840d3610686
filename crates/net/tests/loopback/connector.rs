//! The client's stream on real sockets, against an acceptor or a misbehaving server.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use headstart_net::advert::Advert;
use headstart_net::dns::{DnsConfig, Resolver};
use headstart_net::{
    Acceptor, AcceptorConfig, Carrier, ClientStream, Connector, ConnectorConfig, Edge, NotUsed,
    PathReason, PlainReason, ResetReason, ServerConfig, ServerStream, Target,
};
use headstart_proto::hello::{self, Progress};
use headstart_proto::join::{Join, acceptance};
use headstart_proto::wire::{Request, Response};
use headstart_proto::{RouteTag, SessionId};
use headstart_testkit::hello::{CraftedHello, record};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

use crate::join::parsed;
use crate::time::{TIMEOUT, stop_clock};

const HELLO: usize = 300;
const FLIGHT: &[u8] = b"the server's flight";
const FINISHED: &[u8] = b"Finished and a request";

fn client_hello() -> Vec<u8> {
    CraftedHello { random: rand::random(), ..CraftedHello::sized(HELLO) }.stream()
}

fn connector(edge: SocketAddr) -> Connector {
    Connector::new(config(edge, Advert::default()))
}

fn config(edge: SocketAddr, advert: Advert) -> ConnectorConfig {
    let dns = DnsConfig { name_servers: vec![edge], ..DnsConfig::default() };
    let mut config = ConnectorConfig::new(Resolver::new(&dns).unwrap());
    let edge = Edge { host: edge.ip().to_string(), port: edge.port(), advert };
    config.edges = Arc::new(move |_| Some(edge.clone()));
    config
}

/// Returns the offer of an edge that takes the datagrams at the port of another server.
fn with_udp_at(server: SocketAddr) -> Advert {
    Advert { udp: NonZeroU16::new(server.port()), ..Advert::default() }
}

fn bind(server: ServerConfig) -> Acceptor {
    let config = AcceptorConfig { server, ..AcceptorConfig::default() };
    Acceptor::bind("127.0.0.1:0".parse().unwrap(), config).unwrap()
}

/// Accepts until the end of the test; returns the streams, of which a session that TCP has joined
/// is one.
fn streams_of(mut acceptor: Acceptor) -> UnboundedReceiver<ServerStream> {
    let (streams, accepted) = unbounded_channel();
    tokio::spawn(async move {
        while let Ok(arrival) = acceptor.accept().await {
            let streams = streams.clone();
            tokio::spawn(async move {
                if let Ok(Some(stream)) = arrival.establish().await {
                    let _ = streams.send(stream);
                }
            });
        }
    });
    accepted
}

async fn next(streams: &mut UnboundedReceiver<ServerStream>) -> ServerStream {
    timeout(TIMEOUT, streams.recv()).await.expect("nothing to serve").unwrap()
}

fn connect(connector: &Connector) -> ClientStream {
    connector.connect(&Target::new("test.example", 443)).unwrap()
}

/// Serves one connection with two tasks, which know nothing of each other.
async fn serve_by_halves(mut acceptor: Acceptor) {
    loop {
        let arrival = acceptor.accept().await.unwrap();
        tokio::spawn(async move {
            let Ok(Some(stream)) = arrival.establish().await else { return };
            let (mut reader, mut writer) = tokio::io::split(stream);
            tokio::spawn(async move {
                reader.read_exact(&mut [0; HELLO]).await.unwrap();
                let mut second = [0; FINISHED.len()];
                reader.read_exact(&mut second).await.unwrap();
                assert_eq!(second, FINISHED);
                tokio::task::yield_now().await;
            });
            tokio::task::yield_now().await;
            writer.write_all(FLIGHT).await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
            writer.write_all(b"answer").await.unwrap();
            writer.shutdown().await.unwrap();
        });
    }
}

#[tokio::test]
async fn halves_of_a_stream_in_two_tasks_wake_each_other() {
    let acceptor = bind(ServerConfig::default());
    let connector = connector(acceptor.local_addr());
    tokio::spawn(serve_by_halves(acceptor));
    for _ in 0..20 {
        let (mut reader, mut writer) = tokio::io::split(connect(&connector));
        let reads = tokio::spawn(async move {
            let mut all = Vec::new();
            reader.read_to_end(&mut all).await.map(|_| all)
        });
        tokio::task::yield_now().await;
        writer.write_all(&client_hello()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        writer.write_all(FINISHED).await.unwrap();
        let read = timeout(TIMEOUT, reads).await.expect("the reader hangs");
        assert_eq!(read.unwrap().unwrap(), [FLIGHT, b"answer"].concat());
    }
}

/// Parses a stream as TLS records; fails where it is none, or at the end of a part of one.
fn assert_whole_records(stream: &[u8]) {
    let mut rest = stream;
    while !rest.is_empty() {
        let at = stream.len() - rest.len();
        let header = rest.first_chunk().unwrap_or_else(|| panic!("part of a header at {at}"));
        let [kind, major, _, high, low] = *header;
        let length = u16::from_be_bytes([high, low]);
        assert!((20..=24).contains(&kind) && major == 3 && length <= 16_640, "no record at {at}");
        rest = rest.get(5 + usize::from(length)..).unwrap_or_else(|| panic!("cut off at {at}"));
    }
}

/// Passes one connection on to `server`; returns what the client has sent, and what the server has.
async fn tap(listener: TcpListener, server: SocketAddr) -> (Vec<u8>, Vec<u8>) {
    let (client, _) = listener.accept().await.unwrap();
    let server = TcpStream::connect(server).await.unwrap();
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::join!(pass(from_client, to_server), pass(from_server, to_client))
}

async fn pass(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) -> Vec<u8> {
    let mut passed = Vec::new();
    loop {
        let before = passed.len();
        if from.read_buf(&mut passed).await.unwrap() == 0 {
            to.shutdown().await.unwrap();
            return passed;
        }
        to.write_all(&passed[before..]).await.unwrap();
    }
}

/// Both ends go over from UDP to TCP in the middle of a record (W-JOIN-4).
#[tokio::test]
async fn both_streams_of_a_joined_connection_are_whole_tls_records() {
    let _stopped = stop_clock();
    let acceptor = bind(ServerConfig { early_data: true, ..ServerConfig::default() });
    let edge = acceptor.local_addr();
    let middle = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let advert = Advert { early_data: true, ..with_udp_at(edge) };
    let connector = Connector::new(config(middle.local_addr().unwrap(), advert));
    let tapped = tokio::spawn(tap(middle, edge));
    let mut streams = streams_of(acceptor);

    let (hello, second) = (client_hello(), record(23, &[3; 1000]));
    let (early, late) = second.split_at(500);
    // The second is longer than all slots together carry.
    let (first_record, second_record) = (record(22, &[1; 90]), record(23, &[2; 12_000]));
    let flight = [first_record.clone(), second_record.clone()].concat();
    let response = record(23, b"response");
    let client = async {
        let mut stream = connect(&connector);
        stream.write_all(&[&hello, early].concat()).await.unwrap();
        let mut got = vec![0];
        stream.read_exact(&mut got).await.unwrap();
        stream.write_all(late).await.unwrap();
        stream.read_to_end(&mut got).await.unwrap();
        stream.shutdown().await.unwrap();
        got
    };
    let server = async {
        let mut stream = next(&mut streams).await;
        stream.write_all(&flight).await.unwrap();
        let mut got = vec![0; HELLO + second.len()];
        stream.read_exact(&mut got).await.unwrap();
        stream.write_all(&response).await.unwrap();
        stream.shutdown().await.unwrap();
        got
    };
    let (at_client, at_server) =
        timeout(TIMEOUT, async { tokio::join!(client, server) }).await.expect("a stream hangs");
    assert_eq!(at_client, [&flight[..], &response].concat());
    assert_eq!(at_server, [&hello[..], &second].concat());

    let (from_client, from_server) = timeout(TIMEOUT, tapped).await.unwrap().unwrap();
    assert_whole_records(&from_client);
    assert_whole_records(&from_server);
    let first = parsed(&from_client);
    let join = Join::read(&first).expect("TCP does not begin with a join");
    assert_eq!(usize::try_from(join.client_offset).unwrap(), HELLO);
    assert_eq!(from_client[first.end..], second[..]);
    let start = u32::try_from(first_record.len()).unwrap();
    assert!(join.server_offset > start, "nothing of the second record came over UDP");
    let expected = [acceptance(&join.key, start), second_record, response].concat();
    assert_eq!(from_server, expected);
}

/// The edge may have bytes for it that did not come in time, or that it may not take over UDP.
#[tokio::test]
async fn a_client_that_delivered_nothing_over_udp_goes_plain_and_gets_its_session() {
    let _stopped = stop_clock();
    for (hold, reason) in [(false, PlainReason::NoServerBytes), (true, PlainReason::Held)] {
        let acceptor = bind(ServerConfig::default());
        let config = config(acceptor.local_addr(), Advert::default());
        let connector = Connector::new(ConnectorConfig { hold, ..config });
        let mut streams = streams_of(acceptor);
        let server = async {
            let mut stream = next(&mut streams).await;
            if !hold {
                stream.joined().await.unwrap();
            }
            stream.write_all(FLIGHT).await.unwrap();
            let mut got = [0; HELLO + FINISHED.len()];
            stream.read_exact(&mut got).await.unwrap();
            assert_eq!(got[HELLO..], *FINISHED);
            stream.opened_by()
        };
        let client = async {
            let mut stream = connect(&connector);
            // What cannot go over UDP waits for TCP, and the edge's answer is enough to go on.
            stream.write_all(&[&client_hello(), FINISHED].concat()).await.unwrap();
            let mut flight = [0; FLIGHT.len()];
            stream.read_exact(&mut flight).await.unwrap();
            assert_eq!(flight, *FLIGHT);
            let report = stream.report().unwrap();
            (report.opened_by, report.not_used)
        };
        let both = timeout(TIMEOUT, async { tokio::join!(server, client) });
        let (at_server, at_client) = both.await.expect("a stream hangs");
        assert_eq!(at_server, Carrier::TurboTls, "the ClientHello ran twice");
        assert_eq!(at_client, (Carrier::Tcp, Some(NotUsed::Fallback(reason))));
    }
}

/// Returns the session id of the flight from each of two source ports.
async fn two_flights(udp: &UdpSocket) -> [SessionId; 2] {
    let (mut ids, mut buffer) = (BTreeMap::new(), [0; 2048]);
    while ids.len() < 2 {
        let (length, from) = udp.recv_from(&mut buffer).await.unwrap();
        ids.insert(from, Request::parse(&buffer[..length]).unwrap().id);
    }
    ids.into_values().collect::<Vec<_>>().try_into().unwrap()
}

// W-ID-1
#[tokio::test]
async fn each_connection_has_a_session_id_of_its_own() {
    let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let acceptor = bind(ServerConfig::default());
    let advert = with_udp_at(udp.local_addr().unwrap());
    let connector = Connector::new(config(acceptor.local_addr(), advert));
    let (mut one, mut other) = (connect(&connector), connect(&connector));
    for stream in [&mut one, &mut other] {
        stream.write_all(&client_hello()).await.unwrap();
    }
    let ids = tokio::select! {
        ids = timeout(TIMEOUT, two_flights(&udp)) => ids.expect("two flights"),
        _ = one.read_u8() => panic!("nobody answers"),
        _ = other.read_u8() => panic!("nobody answers"),
    };
    assert_ne!(ids[0], ids[1]);
}

/// Answers all datagrams with these server bytes, under a tag of its own.
async fn answer_over_udp(udp: UdpSocket, payload: &'static [u8]) {
    let mut buffer = [0; 2048];
    loop {
        let (length, from) = udp.recv_from(&mut buffer).await.unwrap();
        let Ok(request) = Request::parse(&buffer[..length]) else { continue };
        let response = Response {
            id: request.id,
            seq: request.seq,
            tag: RouteTag([1; 4]),
            ack: u32::try_from(HELLO).unwrap(),
            offset: 0,
            payload,
        };
        udp.send_to(&response.emit(), from).await.unwrap();
    }
}

/// Returns a connector of whose connections an earlier start of the edge has answered the
/// datagrams, with these bytes, and the streams that the edge serves.
async fn restarted(
    payload: &'static [u8],
    early_data: bool,
) -> (Connector, UnboundedReceiver<ServerStream>) {
    let before = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let advert = Advert { early_data, ..with_udp_at(before.local_addr().unwrap()) };
    tokio::spawn(answer_over_udp(before, payload));
    let acceptor = bind(ServerConfig::default());
    let connector = Connector::new(config(acceptor.local_addr(), advert));
    (connector, streams_of(acceptor))
}

/// Serves one connection; returns how it was opened.
async fn serve_one(streams: &mut UnboundedReceiver<ServerStream>) -> Carrier {
    let mut stream = next(streams).await;
    let mut got = [0; HELLO + FINISHED.len()];
    timeout(TIMEOUT, stream.read_exact(&mut got)).await.unwrap().unwrap();
    assert_eq!(got[HELLO..], *FINISHED);
    stream.write_all(FLIGHT).await.unwrap();
    stream.opened_by()
}

/// Writes both flights at once, and reads the server's.
async fn use_at_once(stream: &mut ClientStream) -> io::Result<()> {
    stream.write_all(&[&client_hello(), FINISHED].concat()).await?;
    let mut flight = [0; FLIGHT.len()];
    timeout(TIMEOUT, stream.read_exact(&mut flight)).await.expect("hangs")?;
    assert_eq!(flight, *FLIGHT);
    Ok(())
}

#[tokio::test]
async fn an_uncommitted_client_of_a_restarted_edge_goes_plain_and_is_served() {
    let _stopped = stop_clock();
    let (connector, mut streams) = restarted(b"", false).await;
    let mut stream = connect(&connector);
    let (carrier, used) = tokio::join!(serve_one(&mut streams), use_at_once(&mut stream));
    used.unwrap();
    assert_eq!(carrier, Carrier::Tcp);
    let report = stream.report().unwrap();
    let no_bytes = NotUsed::Fallback(PlainReason::NoServerBytes);
    assert_eq!((report.opened_by, report.not_used), (Carrier::Tcp, Some(no_bytes)));
}

/// It joins, so that an edge that has the session does not give them to the origin again.
#[tokio::test]
async fn a_client_that_sent_early_data_to_a_restarted_edge_is_served_from_the_start() {
    let _stopped = stop_clock();
    let (connector, mut streams) = restarted(b"", true).await;
    let mut stream = connect(&connector);
    let (carrier, used) = tokio::join!(serve_one(&mut streams), use_at_once(&mut stream));
    used.unwrap();
    assert_eq!(carrier, Carrier::Tcp);
    assert_eq!(stream.report().unwrap().opened_by, Carrier::TurboTls);
}

#[tokio::test]
async fn a_restarted_edge_harms_one_committed_client_and_not_the_next() {
    let _stopped = stop_clock();
    let (connector, mut streams) = restarted(FLIGHT, false).await;
    let mut stream = connect(&connector);
    // Its first flight is there; the join is refused.
    use_at_once(&mut stream).await.unwrap();
    let error = timeout(TIMEOUT, stream.read(&mut [0])).await.expect("hangs").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    assert_eq!(stream.report().unwrap().reset, Some(ResetReason::CommittedRefusal));
    let mut stream = connect(&connector);
    let (carrier, used) = tokio::join!(serve_one(&mut streams), use_at_once(&mut stream));
    used.unwrap();
    assert_eq!(carrier, Carrier::Tcp);
    assert_eq!(stream.report().unwrap().not_used, Some(NotUsed::Path(PathReason::Reset)));
}

/// Answers a ClientHello as a TLS server does, and resets connections that begin with a join.
async fn reset_joins(listener: TcpListener) {
    loop {
        let (mut tcp, _) = listener.accept().await.unwrap();
        tokio::spawn(async move {
            let mut bytes = Vec::new();
            let hello = loop {
                match hello::read(&bytes).unwrap() {
                    Progress::Complete(hello) => break hello,
                    Progress::Incomplete => assert!(tcp.read_buf(&mut bytes).await.unwrap() > 0),
                }
            };
            if Join::read(&hello).is_some() {
                return tcp.set_zero_linger().unwrap();
            }
            tcp.write_all(FLIGHT).await.unwrap();
            let mut finished = [0; FINISHED.len()];
            tcp.read_exact(&mut finished).await.unwrap();
            tcp.write_all(&finished).await.unwrap();
        });
    }
}

/// Reads the server's flight, and then an echo.
async fn echo(stream: &mut ClientStream) -> io::Result<()> {
    stream.write_all(&client_hello()).await?;
    let mut flight = [0; FLIGHT.len()];
    stream.read_exact(&mut flight).await?;
    assert_eq!(flight, *FLIGHT);
    stream.write_all(FINISHED).await?;
    let mut back = [0; FINISHED.len()];
    stream.read_exact(&mut back).await?;
    assert_eq!(back, *FINISHED);
    Ok(())
}

#[tokio::test]
async fn a_network_that_resets_joins_harms_one_connection_and_not_the_next() {
    let _stopped = stop_clock();
    let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let advert = with_udp_at(udp.local_addr().unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let connector = Connector::new(config(listener.local_addr().unwrap(), advert));
    tokio::spawn(answer_over_udp(udp, FLIGHT));
    tokio::spawn(reset_joins(listener));
    let mut stream = connect(&connector);
    timeout(TIMEOUT, echo(&mut stream)).await.expect("hangs").unwrap_err();
    assert_eq!(stream.report().unwrap().reset, Some(ResetReason::JoinLost));
    let second = stream.read(&mut [0]).await.unwrap_err();
    assert_eq!(second.kind(), io::ErrorKind::ConnectionReset, "the stream revived");
    for _ in 0..20 {
        let mut stream = connect(&connector);
        timeout(TIMEOUT, echo(&mut stream)).await.expect("hangs").unwrap();
        assert_eq!(stream.report().unwrap().opened_by, Carrier::Tcp);
    }
}

#[tokio::test]
async fn an_error_at_the_start_appears_at_the_first_use() {
    // Bound, so that no other socket gets the port, and not listening.
    let nobody = TcpSocket::new_v4().unwrap();
    nobody.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let mut stream = connect(&connector(nobody.local_addr().unwrap()));
    stream.start();
    tokio::time::sleep(Duration::from_millis(20)).await;
    let error = stream.connected().await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "{error}");
}

#[tokio::test]
async fn the_stream_buffers_little_for_an_application_that_does_not_read() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut stream = connect(&connector(listener.local_addr().unwrap()));
    let writes = async {
        let (mut server, _) = listener.accept().await.unwrap();
        server.read_exact(&mut [0; HELLO]).await.unwrap();
        let full = timeout(Duration::from_secs(2), flood(&mut server)).await;
        assert!(full.is_err(), "TCP never pushed back");
    };
    stream.write_all(&client_hello()).await.unwrap();
    let uses = async {
        loop {
            // Writing drives the stream as much as reading does.
            stream.write_all(b"x").await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        () = writes => {}
        () = uses => {}
    }
}

async fn flood(server: &mut TcpStream) {
    for _ in 0..200 {
        server.write_all(&[0; 1 << 20]).await.unwrap();
    }
}
