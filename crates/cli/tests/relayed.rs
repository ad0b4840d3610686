//! What the daemons say of the bytes they relayed.
#![allow(clippy::unwrap_used)] // a test may panic, its helper functions too

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(120);

const QUESTION: [u8; 1_000] = [b'q'; 1_000];
static ANSWER: [u8; 300_000] = [b'a'; 300_000];

struct Daemon {
    child: Child,
    listen: SocketAddr,
    metrics: SocketAddr,
}

impl Daemon {
    fn start(role: &str, arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_headstart"))
            .args([role, "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"])
            .args(arguments)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = said(child.stderr.take().unwrap());
        let mut daemon = Self { child, listen: NOWHERE, metrics: NOWHERE };
        while daemon.listen == NOWHERE || daemon.metrics == NOWHERE {
            let line = said.recv_timeout(PATIENCE).expect("it says where it listens");
            let found =
                |words| line.split_once(words).and_then(|(_, text)| text.trim().parse().ok());
            daemon.listen = found("listening address=").unwrap_or(daemon.listen);
            daemon.metrics = found("metrics address=").unwrap_or(daemon.metrics);
        }
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

/// What is not known yet.
const NOWHERE: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));

/// The lines of a log; all are read, whoever listens.
fn said(stderr: ChildStderr) -> mpsc::Receiver<String> {
    let (said, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            let _ = said.send(line);
        }
    });
    lines
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
