//! A request in the first flight over UDP, answered in datagrams: the client has no TCP connection at all.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};

use headstart_proto::JoinKey;
use headstart_proto::limits::SEQUENCES;
use headstart_proto::wire::{Request, Response};
use headstart_tls::{
    ClientConfig, ClientContext, Conn, EarlyData, Progress, Read as Given, Session, Trust,
};

use crate::early;
use crate::edge::{Edge, PATIENCE};
use crate::files::Files;
use crate::origin::Origin;

const NAME: &str = "www.example.com";

/// Client bytes in a datagram at most (docs/wire.md section 3.1).
const PAYLOAD: usize = 1212;

fn client() -> ClientContext {
    let config =
        ClientConfig { alpn: vec![b"http/1.1".to_vec()], ..ClientConfig::new(Trust::Anyone) };
    ClientContext::new(&config).unwrap()
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: {NAME}\r\n\r\n")
}

/// What a connection has to send.
fn outgoing(conn: &mut Conn) -> Vec<u8> {
    std::iter::from_fn(|| conn.poll_bytes()).flatten().collect()
}

/// What it gives to read now.
fn given(conn: &mut Conn) -> Vec<u8> {
    let (mut all, mut room) = (Vec::new(), [0; 4096]);
    while let Given::Bytes(count) = conn.read(&mut room).unwrap() {
        all.extend_from_slice(&room[..count]);
    }
    all
}

/// Whether the origin has shown the head of its request.
fn is_whole(answer: &[u8]) -> bool {
    String::from_utf8_lossy(answer).contains("x-forwarded-proto: https\n")
}

/// An ordinary request over TCP, with which a session comes.
fn visit(edge: &Edge, context: &ClientContext) -> Session {
    let mut conn = context.connect(NAME, None, false).unwrap();
    let mut tcp = TcpStream::connect(edge.address).unwrap();
    tcp.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut answer, mut asked, mut room) = (Vec::new(), false, [0; 4096]);
    while !is_whole(&answer) {
        if conn.handshake().unwrap() == Progress::Done && !asked {
            asked = conn.write(get("/head/visit").as_bytes()).unwrap() > 0;
        }
        tcp.write_all(&outgoing(&mut conn)).unwrap();
        let count = tcp.read(&mut room).unwrap();
        assert!(count > 0, "it ended: {}", String::from_utf8_lossy(&answer));
        conn.handle_bytes(&room[..count]);
        answer.extend(given(&mut conn));
    }
    conn.poll_session().expect("a ticket").session
}

/// Sends a client stream in datagrams, and slots behind it.
fn send(udp: &UdpSocket, stream: &[u8]) {
    let id = JoinKey::new(rand::random()).session_id();
    let mut offset = 0;
    let empty = std::iter::repeat(&[][..]);
    for (seq, payload) in (0..SEQUENCES).zip(stream.chunks(PAYLOAD).chain(empty)) {
        let at = if payload.is_empty() { 0 } else { offset };
        udp.send(&Request { id, seq, offset: at, payload }.emit()).unwrap();
        offset += u32::try_from(payload.len()).unwrap();
    }
}

#[test]
fn early_data_in_datagrams_is_answered_in_datagrams() {
    let (files, origin) = (Files::new(), Origin::start());
    files.issue(NAME);
    let origins = format!("--origin={}", origin.http());
    let flags = [origins.as_str(), "--early-data", "--early-data-requests=safe"];
    let edge = Edge::start(&files, &[NAME], &flags);
    // The edge takes no early data in its first 20 s.
    early::send(&edge, &files, None, &get("/head/over/tcp"));

    let context = client();
    let session = visit(&edge, &context);
    let mut conn = context.connect(NAME, Some(session), false).unwrap();
    let text = get("/head/over/udp");
    assert_eq!(conn.write_early(text.as_bytes()).unwrap(), text.len());
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.connect(edge.address).unwrap();
    udp.set_read_timeout(Some(PATIENCE)).unwrap();
    send(&udp, &outgoing(&mut conn));

    let (mut pieces, mut next) = (BTreeMap::new(), 0);
    let (mut answer, mut room) = (Vec::new(), [0; 2048]);
    while !is_whole(&answer) {
        let length = udp.recv(&mut room).unwrap();
        let response = Response::parse(&room[..length]).unwrap();
        pieces.insert(response.offset, response.payload.to_vec());
        while let Some(piece) = pieces.remove(&next) {
            conn.handle_bytes(&piece);
            next += u32::try_from(piece.len()).unwrap();
            if piece.is_empty() {
                break;
            }
        }
        conn.handshake().unwrap();
        answer.extend(given(&mut conn));
    }
    assert_eq!(conn.facts().early_data, EarlyData::Accepted);
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    for line in [
        "GET /head/over/udp",
        "early-data: 1",
        // Datagrams prove no address.
        "forwarded: for=unknown;proto=https",
        "x-forwarded-for: unknown",
    ] {
        assert!(answer.lines().any(|found| found == line), "{line} is not in\n{answer}");
    }
    assert_eq!(origin.asked("GET /head/over/udp"), 1);
    assert_eq!(edge.count("headstart_joins_total", &[]), 0);
}
