//! Clients that take their time.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

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

fn client_hello() -> Vec<u8> {
    let context = ClientContext::new(&ClientConfig::new(Trust::Anyone)).unwrap();
    let mut conn = context.connect(NAME, None, false).unwrap();
    conn.handshake().unwrap();
    conn.poll_bytes().unwrap()
}

/// Reads until the edge ends the connection, one way or another.
fn ended(stream: &mut impl Read) {
    let mut room = [0; 4096];
    loop {
        match stream.read(&mut room) {
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
    let say = |said: &[u8]| {
        let mut tcp = TcpStream::connect(edge.address).unwrap();
        tcp.set_read_timeout(Some(PATIENCE)).unwrap();
        // It may have ended by now.
        let _ = tcp.write_all(said);
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
fn what_is_no_tls_is_refused() {
    let files = Files::new();
    let (_origin, edge) = site(&files, "--hello-timeout=1m");
    let mut changed = client_hello();
    changed[50..].fill(0);
    for said in [&b"GET / HTTP/1.1\r\nhost: www.example.com\r\n\r\n"[..], &changed] {
        let mut tcp = TcpStream::connect(edge.address).unwrap();
        tcp.set_read_timeout(Some(PATIENCE)).unwrap();
        tcp.write_all(said).unwrap();
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
        until("it is asked", || origin.asked("GET /never") == 1);
        ended(&mut stream);
        until("it is counted", || {
            edge.count("headstart_connections_total", &["result=\"timed_out\""]) == 1
        });
    }
}
