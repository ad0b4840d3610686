//! TurboTLS that the server itself advertises, inside TLS: no DNS record, and no configuration.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::thread;

use crate::agent::Agent;
use crate::client::connect;
use crate::edge::Edge;
use crate::files::Files;
use crate::front::Front;
use crate::origin::Origin;
use crate::server::{NAME, fields, files};

/// An edge with its origin, which advertises `value` in its tickets.
fn advertising(files: &Files, value: &str) -> (Edge, Origin) {
    let origin = Origin::start();
    let to_origin = format!("--origin={}", origin.http());
    let edge = Edge::start(files, &[NAME], &[&to_origin, &format!("--advertise={value}")]);
    (edge, origin)
}

/// Makes a request over a managed connection, and returns how that was opened.
fn opened(agent: &Agent, to: &str, fields: &[(&str, &str)]) -> String {
    let answer = connect(agent, to, fields);
    let opening = answer.field("Headstart-Opening").to_owned();
    assert!(answer.get("/head").starts_with("HTTP/1.1 200"));
    opening
}

// W-TLS-1
#[test]
fn a_server_is_believed_that_has_proven_who_it_is_and_by_the_same_context_alone() {
    let files = files();
    let (edge, _origin) = advertising(&files, "v=2,slots=6");
    let front = Front::new(edge.address, edge.address);
    let agent = Agent::start(&["--opening", "turbo"]);
    let (to, roots) = (front.address.to_string(), files.path(&format!("{NAME}.pem")));
    let (checked, unchecked) = (fields(NAME, &roots), fields(NAME, "none"));
    for _ in 0..2 {
        assert_eq!(opened(&agent, &to, &unchecked), "plain", "whoever answers may be anybody");
    }
    assert_eq!(opened(&agent, &to, &checked), "plain", "nothing was learnt of anybody");
    front.hold();
    assert_eq!(opened(&agent, &to, &checked), "turbo");
    let private = [checked.as_slice(), &[("Headstart-Context", "private")]].concat();
    assert_eq!(opened(&agent, &to, &private), "plain");
    assert_eq!(opened(&agent, &to, &unchecked), "plain");
    front.hold();
    assert_eq!(opened(&agent, &to, &checked), "turbo", "every ticket says it again");
}

// W-TLS-3
#[test]
fn what_is_not_answered_is_forgotten() {
    let files = files();
    let (edge, _origin) = advertising(&files, "v=2");
    let front = Front::new(nonsense(), edge.address);
    let agent = Agent::start(&["--opening", "turbo"]);
    let (to, roots) = (front.address.to_string(), files.path(&format!("{NAME}.pem")));
    let fields = fields(NAME, &roots);
    assert_eq!(opened(&agent, &to, &fields), "plain");
    assert_eq!(plain(&agent), (1, 0), "DNS advertises no such port");
    front.hold();
    assert_eq!(opened(&agent, &to, &fields), "plain");
    assert_eq!(plain(&agent), (1, 1), "it was tried");
    assert_eq!(opened(&agent, &to, &fields), "plain");
    assert_eq!(plain(&agent), (2, 1), "it is not known any more");
}

/// Counts the connections that were plain for want of an offer, and for want of an answer.
fn plain(agent: &Agent) -> (u64, u64) {
    let [port, silence] = ["reason=\"port\"", "reason=\"silence\""]
        .map(|reason| agent.count("headstart_fallbacks_total", &[reason]));
    (port, silence)
}

/// Starts a server that answers each datagram with one that is no answer.
fn nonsense() -> SocketAddr {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = socket.local_addr().unwrap();
    thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&vec![0; length], from);
        }
    });
    address
}
