//! What the daemons say of the bytes they relayed.
#![allow(clippy::unwrap_used)] // a test may panic, its helper functions too

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

const QUESTION: [u8; 1_000] = [b'q'; 1_000];
static ANSWER: [u8; 300_000] = [b'a'; 300_000];

struct Daemon {
    child: Child,
    listen: SocketAddr,
    metrics: SocketAddr,
}

impl Daemon {
    fn start(role: &str, arguments: &[&str]) -> Self {
        let (listen, metrics) = (free_address(), free_address());
        let child = Command::new(env!("CARGO_BIN_EXE_headstart"))
            .args([role, "--listen", &listen.to_string(), "--metrics", &metrics.to_string()])
            .args(arguments)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let daemon = Self { child, listen, metrics };
        until(|| daemon.ask("/readyz").is_some_and(|answer| answer.contains(" 200 ")));
        daemon
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.listen).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    fn ask(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.metrics).ok()?;
        write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    fn has_relayed(&self, direction: &str, bytes: usize) -> bool {
        let line = format!("headstart_relayed_bytes_total{{direction=\"{direction}\"}} {bytes}\n");
        self.ask("/metrics").is_some_and(|answer| answer.contains(&line))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address that was free a moment ago.
fn free_address() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

fn until(what: impl Fn() -> bool) {
    let started = Instant::now();
    while !what() {
        assert!(started.elapsed() < PATIENCE, "it never comes true");
        thread::sleep(Duration::from_millis(20));
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
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(answer == ANSWER);
}

#[test]
fn an_edge_counts_bytes_by_direction() {
    let edge = Daemon::start("edge", &["--origin", &origin().to_string()]);
    exchange(&mut edge.connect());
    until(|| edge.has_relayed("to_server", QUESTION.len()));
    until(|| edge.has_relayed("to_client", ANSWER.len()));
}

#[test]
fn an_agent_counts_bytes_by_direction() {
    let agent = Daemon::start("agent", &[]);
    let mut stream = agent.connect();
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
    until(|| agent.has_relayed("to_server", QUESTION.len()));
    until(|| agent.has_relayed("to_client", ANSWER.len()));
}
