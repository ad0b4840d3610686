//! A request in the first flight over UDP, answered in datagrams: the client has no TCP connection
//! at all.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::thread;

use headstart_proto::JoinKey;
use headstart_proto::limits::SEQUENCES;
use headstart_proto::wire::{Request, Response};
use headstart_tls::{
    ClientConfig, ClientContext, Conn, EarlyData, Progress, Read as Given, Session, Trust,
};

use super::aged::{Aged, NAME};
use super::replay::{SOON, replay};
use crate::edge::{Edge, PATIENCE, until};

/// Client bytes in a datagram at most (docs/draft-headstart-turbotls.md#request).
const PAYLOAD: usize = 1212;

fn client() -> ClientContext {
    let config =
        ClientConfig { alpn: vec![b"http/1.1".to_vec()], ..ClientConfig::new(Trust::Anyone) };
    ClientContext::new(&config).unwrap()
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: {NAME}\r\n\r\n")
}

/// Returns the bytes that a connection has to send.
fn outgoing(conn: &mut Conn) -> Vec<u8> {
    std::iter::from_fn(|| conn.poll_bytes()).flatten().collect()
}

/// Returns the bytes that it gives to read now.
fn given(conn: &mut Conn) -> Vec<u8> {
    let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
    while let Given::Bytes(count) = conn.read(&mut buffer).unwrap() {
        all.extend_from_slice(&buffer[..count]);
    }
    all
}

/// Returns true if the origin has shown the head of its request.
fn is_whole(plaintext: &[u8]) -> bool {
    String::from_utf8_lossy(plaintext).contains("x-forwarded-proto: https\n")
}

/// An ordinary request over TCP, with which a session comes.
fn visit(edge: &Edge, context: &ClientContext) -> Session {
    let mut conn = context.connect(NAME, None, false).unwrap();
    let mut tcp = TcpStream::connect(edge.address).unwrap();
    tcp.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut plaintext, mut sent, mut buffer) = (Vec::new(), false, [0; 4096]);
    while !is_whole(&plaintext) {
        if conn.handshake().unwrap() == Progress::Done && !sent {
            sent = conn.write(get("/head/visit").as_bytes()).unwrap() > 0;
        }
        tcp.write_all(&outgoing(&mut conn)).unwrap();
        let count = tcp.read(&mut buffer).unwrap();
        assert!(count > 0, "it ended: {}", String::from_utf8_lossy(&plaintext));
        conn.handle_bytes(&buffer[..count]);
        plaintext.extend(given(&mut conn));
    }
    conn.poll_session().expect("a ticket").session
}

/// Sends a client stream in datagrams, and slots behind it, which repeat its first byte.
fn send(udp: &UdpSocket, stream: &[u8]) {
    let id = JoinKey::new(rand::random()).session_id();
    let flight = (0..).step_by(PAYLOAD).zip(stream.chunks(PAYLOAD));
    let slots = std::iter::repeat((0, &stream[..1]));
    for (seq, (offset, payload)) in (0..SEQUENCES).zip(flight.chain(slots)) {
        udp.send(&Request { id, seq, offset, payload }.emit()).unwrap();
    }
}

/// A connected socket of the client's own.
fn socket(edge: &Edge) -> UdpSocket {
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.connect(edge.address).unwrap();
    udp.set_read_timeout(Some(PATIENCE)).unwrap();
    udp
}

/// A client with a session of `edge` that has asked for `path` in its first flight, and that
/// flight.
fn asks(edge: &Edge, path: &str) -> (Conn, Vec<u8>) {
    let context = client();
    let session = visit(edge, &context);
    let mut conn = context.connect(NAME, Some(session), false).unwrap();
    let text = get(path);
    assert_eq!(conn.write_early(text.as_bytes()).unwrap(), text.len());
    let flight = outgoing(&mut conn);
    (conn, flight)
}

/// Passes datagrams to `conn`, and sends nothing, until the whole response is decrypted; returns
/// it.
fn receive(udp: &UdpSocket, conn: &mut Conn) -> String {
    let (mut pieces, mut next) = (BTreeMap::new(), 0);
    let (mut plaintext, mut buffer) = (Vec::new(), [0; 2048]);
    while !is_whole(&plaintext) {
        let length = udp.recv(&mut buffer).unwrap();
        let response = Response::parse(&buffer[..length]).unwrap();
        pieces.insert(response.offset, response.payload.to_vec());
        while let Some(piece) = pieces.remove(&next) {
            conn.handle_bytes(&piece);
            next += u32::try_from(piece.len()).unwrap();
            if piece.is_empty() {
                break;
            }
        }
        conn.handshake().unwrap();
        plaintext.extend(given(conn));
    }
    String::from_utf8(plaintext).unwrap()
}

/// The client has no TCP connection at all, and never says that it has heard anything.
pub(crate) fn served_in_datagrams(aged: &Aged) {
    let joins = || aged.safe.count("headstart_joins_total", &[]);
    let before = joins();
    let (mut conn, flight) = asks(&aged.safe, "/head/udp");
    let udp = socket(&aged.safe);
    send(&udp, &flight);
    let plaintext = receive(&udp, &mut conn);
    assert_eq!(conn.facts().early_data, EarlyData::Accepted);
    assert!(plaintext.starts_with("HTTP/1.1 200 OK\r\n"), "{plaintext}");
    for line in [
        "GET /head/udp",
        "early-data: 1",
        // Datagrams prove no address.
        "forwarded: for=unknown;proto=https",
        "x-forwarded-for: unknown",
    ] {
        assert!(plaintext.lines().any(|found| found == line), "{line} is not in\n{plaintext}");
    }
    assert_eq!((aged.origin.requests("GET /head/udp"), joins()), (1, before));
}

/// Returns the number of datagrams that an edge has read.
fn received(edge: &Edge) -> u64 {
    edge.count("headstart_udp_datagrams_total", &["direction=\"to_server\""])
}

/// Again as another session, from elsewhere, over TCP, and at edges with the same keys.
pub(crate) fn taken_once(aged: &Aged) {
    let before = [&aged.safe, &aged.on].map(received);
    let (mut conn, flight) = asks(&aged.safe, "/head/recorded");
    let udp = socket(&aged.safe);
    send(&udp, &flight);
    receive(&udp, &mut conn);
    send(&udp, &flight);
    send(&socket(&aged.safe), &flight);
    send(&socket(&aged.on), &flight);
    until("all are read", || {
        let [safe, on] = [&aged.safe, &aged.on].map(received);
        let flight = u64::from(SEQUENCES);
        safe >= before[0] + 3 * flight && on >= before[1] + flight
    });
    replay(&aged.safe, &flight);
    replay(&aged.on, &flight);
    thread::sleep(SOON);
    assert_eq!(aged.origin.requests("GET /head/recorded"), 1);
}

/// The handshake itself is answered: silence would not prove anything.
pub(crate) fn not_before_tcp(aged: &Aged) {
    let edge = &aged.safe_over_tcp;
    let udp = socket(edge);
    send(&udp, &asks(edge, "/head/waits").1);
    let mut buffer = [0; 2048];
    loop {
        let length = udp.recv(&mut buffer).unwrap();
        if !Response::parse(&buffer[..length]).unwrap().payload.is_empty() {
            break;
        }
    }
    thread::sleep(SOON);
    assert_eq!(aged.origin.requests("GET /head/waits"), 0);
    // Over TCP it is accepted: only the transport was wrong.
    let mut tcp = TcpStream::connect(edge.address).unwrap();
    tcp.write_all(&asks(edge, "/head/waits/no/more").1).unwrap();
    until("it is passed on", || aged.origin.requests("GET /head/waits/no/more") == 1);
}
