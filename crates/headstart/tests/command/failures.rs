//! Lines of the log about connections that fail, at its default level.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output};

use openssl::ssl::{Ssl, SslContextBuilder, SslMethod, SslStream};

use crate::daemon::{Daemon, until};
use crate::files::Files;
use crate::front::Front;
use crate::operability::{daemon, line};
use crate::origin::Origin;

const NAME: &str = "www.example.com";

/// An edge with a certificate for [`NAME`], and its address.
fn edge(files: &Files, origin: &str) -> (Daemon, SocketAddr) {
    let certificate = files.certificate(NAME);
    let origin = format!("--origin={origin}");
    let all: Vec<_> = certificate.iter().map(String::as_str).chain([origin.as_str()]).collect();
    let edge = daemon("edge", &all);
    let address = edge.address("listening address=").unwrap();
    (edge, address)
}

/// Output of curl for `name`, for which it connects to `to`.
fn curl_to(to: SocketAddr, name: &str, arguments: &[&str]) -> Output {
    curl(name, &[&["--connect-to", &format!("{name}:443:{to}")], arguments].concat())
}

fn curl(name: &str, arguments: &[&str]) -> Output {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--max-time", "150"]).args(arguments).arg(format!("https://{name}/head"));
    curl.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).output().unwrap()
}

fn failed_handshakes(edge: &Daemon) -> u64 {
    edge.count("headstart_tls_handshakes_total", &["\"failed\""])
}

#[test]
fn an_agent_names_the_fault_of_a_request_and_not_clients_that_leave() {
    let agent = daemon("agent", &["--resolver=127.0.0.1:53"]);
    let to = agent.address("listening address=").unwrap();
    drop(TcpStream::connect(to).unwrap());
    until("it has left", || agent.count("headstart_limits_hit_total", &["\"closed\""]) == 1);
    let mut client = TcpStream::connect(to).unwrap();
    client.write_all(b"\x04\x01\0\x50\x7f\0\0\x01\0").unwrap();
    until("it is said", || agent.logged(" request refused ") == 1);
    let log = agent.log();
    let refusal = line(&log, " request refused ");
    assert!(refusal.contains(" WARN ") && refusal.contains("SOCKS4"), "{refusal}");
    assert_eq!(agent.logged("closed the connection"), 0);
}

#[test]
fn both_sides_log_a_join_that_comes_to_an_edge_without_its_session() {
    let (files, origin) = (Files::new(), Origin::start());
    files.issue(NAME);
    let [(_owner, at), (other, elsewhere)] = [(); 2].map(|()| edge(&files, &origin.http()));
    let front = Front::new(at, elsewhere);
    let agent = daemon("agent", &["--edge", &format!("{NAME}={}", front.address)]);
    let proxy = format!("socks5h://{}", agent.address("listening address=").unwrap());
    front.hold();
    let chain = files.path(&format!("{NAME}.pem"));
    assert!(!curl(NAME, &["--proxy", &proxy, "--cacert", &chain]).status.success());
    until("the agent says so", || agent.logged("connection reset while it opened") == 1);
    let log = agent.log();
    let reset = line(&log, "connection reset while it opened");
    assert!(reset.contains(" WARN ") && reset.contains("\"committed_refusal\""), "{reset}");
    until("the edge says so", || other.logged("connection refused") == 1);
    assert!(line(&other.log(), "connection refused").contains("client=127.0.0.1:"));
}

/// Keeps what is written, and has nothing to read.
#[derive(Debug, Default)]
struct Capture(Vec<u8>);

impl Read for Capture {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }
}

impl Write for Capture {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn client_hello() -> Vec<u8> {
    let context = SslContextBuilder::new(SslMethod::tls_client()).unwrap().build();
    let mut stream = SslStream::new(Ssl::new(&context).unwrap(), Capture::default()).unwrap();
    assert!(stream.connect().is_err());
    stream.get_ref().0.clone()
}

#[test]
fn an_edge_names_the_fault_of_a_handshake_and_not_clients_that_leave() {
    let (files, origin) = (Files::new(), Origin::start());
    files.issue(NAME);
    let (edge, to) = edge(&files, &origin.http());
    TcpStream::connect(to).unwrap().write_all(&client_hello()).unwrap();
    until("it has left", || failed_handshakes(&edge) == 1);
    assert!(!curl_to(to, NAME, &[]).status.success(), "it trusts the certificate");
    until("it is refused", || failed_handshakes(&edge) == 2);
    until("it is said", || edge.logged("no TLS with a client") == 1);
    let log = edge.log();
    let words = line(&log, "no TLS with a client");
    for part in [" INFO ", "client=127.0.0.1:", &format!("name=\"{NAME}\""), "alert"] {
        assert!(words.contains(part), "{words}");
    }
}

#[test]
fn an_edge_names_unknown_names_and_limits() {
    let (files, origin) = (Files::new(), Origin::start());
    files.issue(NAME);
    let (edge, to) = edge(&files, &format!("{NAME}={}", origin.http()));
    assert!(!curl_to(to, "other.example.com", &["-k"]).status.success());
    until("the name is said", || edge.logged("no origin has this name") == 1);
    assert!(line(&edge.log(), "no origin has this name").contains("name=other.example.com "));
    let large = format!("x: {}", "y".repeat(100_000));
    curl_to(to, NAME, &["-k", "--http1.1", "-H", &large]);
    until("the limit is said", || edge.logged("limit reached limit=\"request_head\"") == 1);
}

/// The hosts file gives an origin two addresses, and the origin listens on one of them.
#[test]
fn an_origin_with_two_addresses_is_served_by_the_one_that_answers() {
    if !headstart_testkit::has_net() {
        return;
    }
    let files = Files::new();
    let addresses = ["127.0.0.2", "127.0.0.3"];
    let lines = addresses.map(|address| format!("{address} two.example\n"));
    let hosts = files.write("hosts", lines.concat().as_bytes(), 0o644);
    // The order of the addresses is the resolver's: one of the two is first and refuses.
    for address in addresses {
        let origin = TcpListener::bind((address, 0)).unwrap();
        let mut edge = Command::new("unshare");
        edge.args(["--mount", "sh", "-c", "mount --bind \"$0\" /etc/hosts && exec \"$@\"", &hosts]);
        edge.args([env!("CARGO_BIN_EXE_headstart"), "edge", "--listen=127.0.0.1:0"]);
        edge.args(["--metrics=127.0.0.1:0", "--origin"]);
        edge.arg(format!("two.example:{}", origin.local_addr().unwrap().port()));
        let edge = Daemon::start(&mut edge);
        let mut client = TcpStream::connect(edge.address("listening address=").unwrap()).unwrap();
        client.write_all(b"not TLS").unwrap();
        let mut read = [0; 7];
        origin.accept().unwrap().0.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"not TLS");
        assert_eq!(edge.count("headstart_origin_up", &["two.example"]), 1);
    }
}
