//! Clients that take their time.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::time::Instant;

use headstart_proto::JoinKey;
use headstart_proto::wire::Request;
use headstart_tls::{ClientConfig, ClientContext, Trust};

use super::tools::tls;
use crate::edge::{Edge, PATIENCE, until};
use crate::files::Files;
use crate::origin::Origin;

const NAME: &str = "www.example.com";

fn site(files: &Files, limit: &str) -> (Origin, Edge) {
    let origin = Origin::start();
    files.issue(NAME);
    let edge = Edge::start(files, &[NAME], &[&format!("--origin={}", origin.http()), limit]);
    (origin, edge)
}

/// One that fits in a datagram.
fn client_hello() -> Vec<u8> {
    let groups = Some("X25519".to_owned());
    let config = ClientConfig { groups, ..ClientConfig::new(Trust::Anyone) };
    let context = ClientContext::new(&config).unwrap();
    let mut conn = context.connect(NAME, None, false).unwrap();
    conn.handshake().unwrap();
    conn.poll_bytes().unwrap()
}

/// Sends a whole ClientHello in a datagram from a network of its own, which `number` chooses.
fn hello_over_udp(edge: &Edge, number: u8) {
    let udp = UdpSocket::bind((Ipv4Addr::new(127, 1, number, 1), 0)).unwrap();
    let id = JoinKey::new(rand::random()).session_id();
    let datagram = Request { id, seq: 0, offset: 0, payload: &client_hello() }.emit();
    udp.send_to(&datagram, edge.address).unwrap();
}

/// Nobody joins, so the addresses may be forged.
#[test]
fn handshakes_of_unproven_clients_have_their_rate_and_tcp_goes_on() {
    const A_SECOND: u32 = 3;
    let files = Files::new();
    let (_origin, edge) = site(&files, &format!("--max-unproven-handshakes={A_SECOND}"));
    let taken = |outcome: &str| {
        let outcome = format!("outcome=\"{outcome}\"");
        edge.count("headstart_udp_datagrams_total", &["direction=\"to_server\"", &outcome])
    };
    let begun = Instant::now();
    (0..200).for_each(|number| hello_over_udp(&edge, number));
    until("all datagrams are read", || taken("accepted") + taken("work_limit") == 200);
    let granted = f64::from(A_SECOND) * (2.0 + begun.elapsed().as_secs_f64());
    let (accepted, refused) = (taken("accepted"), taken("work_limit"));
    assert!(accepted >= 6 && accepted as f64 <= granted, "{accepted}, {refused}");
    assert_eq!(edge.count("headstart_limits_hit_total", &["work_limit"]), refused);
    let mut stream = tls(&edge, NAME);
    write!(stream, "GET /head/tcp HTTP/1.1\r\nhost: {NAME}\r\nconnection: close\r\n\r\n").unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
}

/// Reads until the edge ends the connection, one way or another.
fn ended(stream: &mut impl Read) {
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) => {
                assert_ne!(error.kind(), ErrorKind::WouldBlock, "it would last for ever");
                return;
            }
        }
    }
}

#[test]
fn a_handshake_has_its_time() {
    let files = Files::new();
    let (_origin, edge) = site(&files, "--hello-timeout=1s");
    let hello = client_hello();
    let say = |text: &[u8]| {
        let mut tcp = TcpStream::connect(edge.address).unwrap();
        tcp.set_read_timeout(Some(PATIENCE)).unwrap();
        // It may have ended by now.
        let _ = tcp.write_all(text);
        ended(&mut tcp);
    };
    let connections =
        |result: &str| edge.count("headstart_connections_total", &[&format!("\"{result}\"")]);
    say(&hello[..0]);
    say(&hello[..hello.len() / 2]);
    until("both are refused", || connections("refused") == 2);
    // A field that comes too late counts as missing.
    until("a handshake is out of time", || {
        say(&hello);
        connections("timed_out") > 0
    });
    let handshakes = edge.count("headstart_tls_handshakes_total", &["result=\"timed_out\""]);
    assert!(handshakes >= connections("timed_out") && handshakes > 0);
}

#[test]
fn clients_without_tls_are_refused() {
    let files = Files::new();
    let (_origin, edge) = site(&files, "--hello-timeout=1m");
    let mut changed = client_hello();
    changed[50..].fill(0);
    for text in [&b"GET / HTTP/1.1\r\nhost: www.example.com\r\n\r\n"[..], &changed] {
        let mut tcp = TcpStream::connect(edge.address).unwrap();
        tcp.set_read_timeout(Some(PATIENCE)).unwrap();
        tcp.write_all(text).unwrap();
        ended(&mut tcp);
    }
    until("both are counted", || {
        edge.count("headstart_tls_handshakes_total", &["result=\"failed\""]) == 2
            && edge.count("headstart_connections_total", &["result=\"refused\""]) == 2
    });
}

#[test]
fn a_connection_is_quiet_and_lasts_no_longer_than_it_may() {
    // Enough for the handshake, and for the request to get to the origin.
    for limit in ["--idle-timeout=5s", "--total-timeout=5s"] {
        let files = Files::new();
        let (origin, edge) = site(&files, limit);
        let mut stream = tls(&edge, NAME);
        write!(stream, "GET /never HTTP/1.1\r\nhost: {NAME}\r\n\r\n").unwrap();
        until("the origin has the request", || origin.requests("GET /never") == 1);
        ended(&mut stream);
        until("it is counted", || {
            edge.count("headstart_connections_total", &["result=\"timed_out\""]) == 1
        });
    }
}
