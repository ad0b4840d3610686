//! The port of loopback: both ends prove the token first, and then it is as the socket.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use headstart_client::{Error, Options, Verify};
use tokio::runtime::Runtime;

use crate::agent::{Agent, fails};
use crate::daemon::PATIENCE;
use crate::server::{NAME, PAGE, Server, files};

/// A nonce of a client that is not random.
const NONCE: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// An agent with a port, and the token's file.
fn start() -> (Agent, SocketAddr, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    let path = token.to_str().unwrap().to_owned();
    let agent =
        Agent::start_in(dir, &["--managed-listen", "127.0.0.1:0", "--managed-token", &path]);
    let port = agent.port();
    (agent, port, token)
}

fn read(token: &Path) -> String {
    std::fs::read_to_string(token).unwrap().trim().to_owned()
}

/// The client of the port: whether its connection to `server` was resumed.
fn managed(server: &Server, port: SocketAddr, token: &str) -> Result<bool, Error> {
    let roots = server.fields()[2].1.into();
    let options = Options {
        server_name: Some(NAME.into()),
        verify: Verify::Roots(roots),
        alpn: Vec::new(),
        ..Options::default()
    };
    Runtime::new().unwrap().block_on(async {
        let agent = headstart_client::Agent::port(port, token);
        let (host, port) = (server.address.ip().to_string(), server.address.port());
        let stream = agent.connect(&host, port, &options, b"").await?;
        Ok(stream.facts().unwrap().resumed)
    })
}

#[test]
fn clients_of_the_port_share_sessions_with_programs_of_the_socket() {
    let files = files();
    let server = Server::start(&files, PAGE);
    let (agent, port, token) = start();
    assert!(!server.visit(&agent, &[]));
    assert!(managed(&server, port, &read(&token)).unwrap());
    assert!(server.visit(&agent, &[]));
}

/// A connection to the port by hand.
struct Raw(TcpStream);

impl Raw {
    fn dial(port: SocketAddr) -> Self {
        let tcp = TcpStream::connect(port).unwrap();
        tcp.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(tcp)
    }

    /// Sends a request without a body; returns the head of its answer.
    fn ask(&mut self, request: &str, fields: &str) -> String {
        let head = format!("{request} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        self.0.write_all(head.as_bytes()).unwrap();
        String::from_utf8(self::head(&mut self.0)).unwrap()
    }

    /// Asks for the agent's proof; returns the fields that prove the token to it.
    fn prove(&mut self, token: &str) -> String {
        let answer = self.ask("GET /proof", &format!("Headstart-Nonce: {NONCE}\r\n"));
        let theirs = field(&answer, "headstart-nonce");
        let (client, agent) = (self.0.local_addr().unwrap(), self.0.peer_addr().unwrap());
        let ends = format!("{NONCE}\n{theirs}\n{client}\n{agent}\n");
        let proof = mac(token, &format!("headstart-proof agent\n{ends}"));
        assert_eq!(field(&answer, "headstart-proof"), proof);
        let proof = mac(token, &format!("headstart-proof client\n{ends}"));
        format!("Proxy-Authorization: Headstart {proof}\r\n")
    }
}

/// The value of a field of a head.
fn field<'a>(head: &'a str, name: &str) -> &'a str {
    let mut fields = head.lines().filter_map(|line| line.split_once(": "));
    fields.find(|(found, _)| found.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
}

/// HMAC-SHA256 by the system's openssl.
fn mac(token: &str, text: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("text");
    std::fs::write(&file, text).unwrap();
    let mut openssl = Command::new("openssl");
    openssl.args(["mac", "-digest", "SHA256", "-macopt", &format!("key:{token}"), "-in"]);
    let output = openssl.arg(file).arg("HMAC").output().unwrap();
    assert!(output.status.success(), "{}", text_of(&output));
    String::from_utf8(output.stdout).unwrap().trim().to_lowercase()
}

fn text_of(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

#[test]
fn without_a_proof_of_the_token_there_is_nothing() {
    let (agent, port, token) = start();
    let token = read(&token);
    for fields in [
        String::new(),
        format!("Proxy-Authorization: Bearer {token}\r\n"),
        format!("Proxy-Authorization: Headstart {token}\r\n"),
    ] {
        for request in ["GET /sessions", "CONNECT a.example:443"] {
            let answer = Raw::dial(port).ask(request, &fields);
            assert!(answer.starts_with("HTTP/1.1 407 "), "{request}: {answer}");
            assert_eq!(field(&answer, "proxy-authenticate"), "Headstart");
        }
    }
    assert_eq!(agent.count("headstart_limits_hit_total", &["managed_token"]), 6);
    let mut raw = Raw::dial(port);
    let proof = raw.prove(&token);
    let answer = raw.ask("GET /sessions", &proof);
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

/// The proof of a client that has connected is of no use on any other connection.
#[test]
fn a_replayed_proof_is_refused() {
    let (_agent, port, token) = start();
    let token = read(&token);
    let mut first = Raw::dial(port);
    let proof = first.prove(&token);
    let mut second = Raw::dial(port);
    second.prove(&token);
    let answer = second.ask("GET /sessions", &proof);
    assert!(answer.starts_with("HTTP/1.1 407 "), "{answer}");
    let answer = Raw::dial(port).ask("GET /sessions", &proof);
    assert!(answer.starts_with("HTTP/1.1 407 "), "{answer}");
    let answer = first.ask("GET /sessions", &proof);
    assert!(answer.starts_with("HTTP/1.1 200 "), "its own: {answer}");
}

/// Someone who listens at a port while the agent does not; sends on all that was said.
fn listener<F>(answers: F) -> (SocketAddr, Receiver<Vec<u8>>)
where
    F: Fn(TcpStream) -> Vec<u8> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (send, received) = channel();
    thread::spawn(move || {
        let (tcp, _) = listener.accept().unwrap();
        let _ = send.send(answers(tcp));
    });
    (address, received)
}

/// Reads the first request, answers with `answer` to it, and returns all that comes.
fn hear(mut tcp: TcpStream, answer: impl FnOnce(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let mut all = head(&mut tcp);
    let _ = tcp.write_all(&answer(&all));
    let _ = tcp.read_to_end(&mut all);
    all
}

/// Reads a head, or what there is of it.
fn head(tcp: &mut TcpStream) -> Vec<u8> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && tcp.read(&mut byte).is_ok_and(|count| count > 0) {
        head.extend_from_slice(&byte);
    }
    head
}

/// Asserts that a client of this port does not believe its listener, which has heard nothing.
fn assert_told_nothing(
    server: &Server,
    port: SocketAddr,
    token: &str,
    received: &Receiver<Vec<u8>>,
) {
    let refused = managed(server, port, token);
    assert!(matches!(refused, Err(Error::Untrusted { .. })), "{refused:?}");
    let received = String::from_utf8(received.recv_timeout(PATIENCE).unwrap()).unwrap();
    assert!(received.starts_with("GET /proof HTTP/1.1\r\n"), "{received}");
    assert_eq!(received.matches("\r\n\r\n").count(), 1, "there is one request: {received}");
    for secret in [token, "uthorization", "CONNECT", NAME] {
        assert!(!received.contains(secret), "{received}");
    }
}

#[test]
fn an_impostor_on_the_port_is_sent_neither_token_nor_request() {
    let files = files();
    let server = Server::start(&files, PAGE);
    let answer = format!(
        "HTTP/1.1 200 OK\r\nheadstart-version: TLS 1.3\r\nheadstart-nonce: {NONCE}\r\n\
         headstart-proof: {NONCE}\r\n\r\n"
    );
    let (port, received) = listener(move |tcp| hear(tcp, |_| answer.clone().into()));
    assert_told_nothing(&server, port, NONCE, &received);
}

/// It has the agent prove the token for it: the addresses of its own connection are others.
#[test]
fn an_impostor_that_relays_the_agents_proof_is_not_believed() {
    let files = files();
    let server = Server::start(&files, PAGE);
    let (_agent, port, token) = start();
    let (relay, received) = listener(move |tcp| {
        hear(tcp, |request| {
            let mut agent = TcpStream::connect(port).unwrap();
            agent.write_all(request).unwrap();
            let answer = head(&mut agent);
            assert!(answer.starts_with(b"HTTP/1.1 200 "), "the agent proves what it has");
            answer
        })
    });
    assert_told_nothing(&server, relay, &read(&token), &received);
    assert!(managed(&server, port, &read(&token)).is_ok());
}

fn curl(arguments: &[&str]) -> Output {
    let mut command = Command::new("curl");
    command.args(["-sS", "--max-time", "50"]).args(arguments).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap()).output().unwrap()
}

#[test]
fn the_socket_takes_curl_too() {
    let agent = Agent::start(&[]);
    let socket = agent.socket();
    let text = curl(&["--unix-socket", socket.to_str().unwrap(), "http://agent/policies"]);
    assert_eq!(text_of(&text), "{\"policies\":[]}\n");
}

#[test]
fn a_port_that_others_could_use_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let token = dir.path().join("token");
    let path = token.to_str().unwrap();
    let remote = ["--managed-listen", "0.0.0.0:0", "--managed-token", path];
    assert_refused(&socket, &remote, "is reachable by other machines");
    assert_refused(&socket, &["--managed-listen", "127.0.0.1:0"], "needs a token");
    assert_refused(&socket, &["--managed-token", path], "without a port");
    let local = ["--managed-listen", "127.0.0.1:0", "--managed-token", path];
    write(&token, "0123456789abcdef0123456789abcdef", 0o644);
    assert_refused(&socket, &local, "is open to other users (mode 0644)");
    write(&token, "guessed-by-a-person", 0o600);
    assert_refused(&socket, &local, "holds no token");
}

fn assert_refused(socket: &Path, arguments: &[&str], words: &str) {
    let (code, text) = fails(socket, arguments);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains(words) && text.contains("\nhint: "), "{text}");
}

fn write(path: &Path, text: &str, mode: u32) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}
