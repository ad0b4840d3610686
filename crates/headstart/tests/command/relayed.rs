//! The daemons' metrics of the bytes they relayed.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;

use headstart::edge::proxy_protocol;

use crate::daemon::{Daemon, PATIENCE, until};

const QUESTION: [u8; 1_000] = [b'q'; 1_000];
static ANSWER: [u8; 300_000] = [b'a'; 300_000];

/// A daemon and a connection to it.
fn start(role: &str, arguments: &[&str]) -> (Daemon, TcpStream) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
    command.args([role, "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]).args(arguments);
    let daemon = Daemon::start(command.stdin(Stdio::null()));
    let stream = TcpStream::connect(daemon.address("listening address=").unwrap()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    (daemon, stream)
}

/// Waits until it has counted one exchange.
fn until_relayed(daemon: &Daemon) {
    for (direction, bytes) in [("to_server", QUESTION.len()), ("to_client", ANSWER.len())] {
        let label = format!("direction=\"{direction}\"");
        let count = || daemon.count("headstart_relayed_bytes_total", &[&label]);
        until(&format!("{bytes} bytes {direction}"), || count() == bytes as u64);
    }
}

/// A server that answers one question.
fn origin() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut question = Vec::new();
        stream.read_to_end(&mut question).unwrap();
        assert!(question == QUESTION);
        stream.write_all(&ANSWER).unwrap();
    });
    address
}

fn exchange(stream: &mut TcpStream) {
    stream.write_all(&QUESTION).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(answer == ANSWER);
}

#[test]
fn an_edge_counts_bytes_by_direction() {
    let (edge, mut stream) = start("edge", &["--origin", &origin().to_string()]);
    exchange(&mut stream);
    until_relayed(&edge);
}

#[test]
fn an_agent_counts_bytes_by_direction() {
    let (agent, mut stream) = start("agent", &[]);
    let origin = origin();
    write!(stream, "CONNECT {origin} HTTP/1.1\r\nhost: {origin}\r\n\r\n").unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    assert!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head));
    exchange(&mut stream);
    until_relayed(&agent);
}

/// A server that sends back what comes.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
        }
    });
    address
}

/// A connection of `client`, as a balancer says, over which a word has come back; `None` if the
/// edge closes it.
fn opened(edge: SocketAddr, client: &str) -> Option<TcpStream> {
    let header = proxy_protocol::header(client.parse().unwrap(), edge).unwrap();
    let mut stream = TcpStream::connect(edge).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&[&header[..], b"word"].concat()).unwrap();
    stream.read_exact(&mut [0; 4]).is_ok().then_some(stream)
}

#[test]
fn one_address_leaves_connections_to_others() {
    let origin = echo().to_string();
    let flags = ["--proxy-protocol-from=127.0.0.1/32", "--max-connections=8"];
    let (edge, _own) = start("edge", &[&["--origin", &origin], &flags[..]].concat());
    let address = edge.address("listening address=").unwrap();
    let attacker: Vec<_> =
        (1..=8).filter_map(|port| opened(address, &format!("203.0.113.7:{port}"))).collect();
    assert_eq!(attacker.len(), 6, "three quarters");
    assert!(opened(address, "203.0.113.8:1").is_some());
    let refused = edge.count("headstart_limits_hit_total", &["limit=\"address_connections\""]);
    assert_eq!(refused, 2);
    drop(attacker);
    until("its share is free again", || opened(address, "203.0.113.7:9").is_some());
}

/// One customer has thousands of networks.
#[test]
fn one_site_of_ipv6_leaves_connections_to_others() {
    let origin = echo().to_string();
    let flags = ["--proxy-protocol-from=127.0.0.1/32", "--max-connections=8"];
    let (edge, _own) = start("edge", &[&["--origin", &origin], &flags[..]].concat());
    let address = edge.address("listening address=").unwrap();
    let attacker: Vec<_> = (1..=8)
        .filter_map(|number| opened(address, &format!("[2001:db8:7:{number}::1]:1")))
        .collect();
    assert_eq!(attacker.len(), 6, "three quarters");
    assert!(opened(address, "[2001:db8:8::1]:1").is_some());
}
