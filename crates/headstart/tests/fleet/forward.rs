//! A balancer that brings a client's datagrams to one edge and its TCP to another.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::thread;

use serde_json::Value;

use crate::client::NAME;
use crate::edge::Edge;
use crate::ports::free;
use crate::site::{Site, keys};

/// Tries of a client: on loopback the grace for datagrams is 2 ms, which a busy machine may miss.
const TRIES: usize = 40;

/// The one address that clients know.
fn balancer(udp: SocketAddr, tcp: SocketAddr) -> SocketAddr {
    let (listener, datagrams) = loop {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        if let Ok(datagrams) = UdpSocket::bind(listener.local_addr().unwrap()) {
            break (listener, datagrams);
        }
    };
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || pass(&client, &TcpStream::connect(tcp)?));
        }
    });
    thread::spawn(move || balance(&Arc::new(datagrams), udp));
    address
}

/// Each client has a socket of its own towards the edge.
fn balance(clients: &Arc<UdpSocket>, edge: SocketAddr) {
    let mut known: HashMap<SocketAddr, Arc<UdpSocket>> = HashMap::new();
    let mut room = [0; 2048];
    while let Ok((length, from)) = clients.recv_from(&mut room) {
        let towards = known.entry(from).or_insert_with(|| {
            let socket = Arc::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
            socket.connect(edge).unwrap();
            let (back, clients) = (Arc::clone(&socket), Arc::clone(clients));
            thread::spawn(move || {
                let mut room = [0; 2048];
                while let Ok(length) = back.recv(&mut room) {
                    let _ = clients.send_to(&room[..length], from);
                }
            });
            socket
        });
        let _ = towards.send(&room[..length]);
    }
}

fn pass(client: &TcpStream, server: &TcpStream) -> io::Result<()> {
    thread::scope(|scope| {
        let (mut from, mut to) = (client, server);
        scope.spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(std::net::Shutdown::Write);
        });
        let (mut from, mut to) = (server, client);
        let _ = io::copy(&mut from, &mut to);
        to.shutdown(std::net::Shutdown::Write)
    })
}

/// `headstart get` of a site that TurboTLS may open.
fn get(site: &Site, at: SocketAddr) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
    command.args(["get", &format!("https://{NAME}/head"), "--json"]);
    command.args(["--edge", &format!("{NAME}={at}"), "--opening", "turbo"]);
    command.args(["--cacert", &site.files.path(&format!("{NAME}.pem"))]);
    let output = command.env_clear().output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn joins(edge: &Edge, outcome: &str) -> u64 {
    edge.count("headstart_joins_total", &[&format!("outcome=\"{outcome}\"")])
}

/// A site with a fleet of two, whose edges take joins at these addresses.
fn fleet(site: &Site) -> [String; 2] {
    let text = std::fs::read_to_string(site.fleet()).unwrap();
    let [one, two] = [free(), free()];
    let edges = format!("{text}edge 1 {one}\nedge 2 {two}\n");
    site.files.write("fleet", edges.as_bytes(), 0o600);
    let ring = site.files.keys("keys");
    assert_eq!(keys(&["show", &ring]).code, Some(0));
    ["--fleet-edge=1".into(), "--fleet-edge=2".into()]
}

#[test]
fn tcp_that_comes_to_another_edge_finds_its_session() {
    let site = Site::new();
    let numbers = fleet(&site);
    let ring = site.files.path("keys");
    let [owner, other] = numbers.map(|number| site.edge(&ring, &[&number]));
    let address = balancer(owner.address, other.address);
    for _ in 0..TRIES {
        let said = get(&site, address);
        assert_eq!(said["status"], 200, "{said}");
        if joins(&other, "forwarded") > 0 {
            break;
        }
    }
    let forwarded = joins(&other, "forwarded");
    assert!(forwarded > 0, "never in {TRIES} tries");
    assert_eq!(joins(&owner, "joined"), forwarded);
    assert_eq!(joins(&other, "joined"), 0);

    // With the owner gone, clients still get through: their stream restarts where it arrived.
    drop(owner);
    let said = get(&site, address);
    assert_eq!(said["status"], 200, "{said}");
}

#[test]
fn an_edge_that_is_not_in_the_list_does_not_start() {
    let site = Site::new();
    fleet(&site);
    let ring = site.files.path("keys");
    let certificate = site.files.certificate(NAME);
    let mut all: Vec<_> = certificate.iter().map(String::as_str).collect();
    all.extend(["--origin=http://localhost:1", "--fleet", site.fleet(), "--keys", &ring]);
    for (flag, words) in [
        ("--fleet-edge=3", "no edge of the fleet has the number 3\nhint: "),
        ("--fleet-edge=0", "--fleet-edge"),
    ] {
        let (code, said) = crate::edge::fails(&[&all[..], &[flag]].concat());
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(words), "{said}");
    }
    let unsealed = crate::edge::fails(&["--origin=http://localhost:1", "--keys=redis://localhost"]);
    assert!(unsealed.1.contains("--fleet is missing"), "{}", unsealed.1);
}
