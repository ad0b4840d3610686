//! A balancer that brings a client's datagrams to one edge and its TCP to another.

use std::net::SocketAddr;
use std::process::Command;

use serde_json::{Value, json};

use crate::client::NAME;
use crate::edge::Edge;
use crate::front::Front;
use crate::ports::free;
use crate::site::{Site, keys};

/// `headstart get` of a site that TurboTLS may open.
fn get(site: &Site, at: SocketAddr) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
    command.args(["get", &format!("https://{NAME}/head"), "--json"]);
    command.args(["--edge", &format!("{NAME}={at}"), "--opening", "turbo"]);
    command.args(["--cacert", &site.files.path(&format!("{NAME}.pem"))]);
    let output = command.env_clear().output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{message}");
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
    let front = Front::new(owner.address, other.address);
    front.hold();
    let report = get(&site, front.address);
    assert_eq!([&report["status"], &report["opening"]], [&json!(200), &json!("turbo")], "{report}");
    assert_eq!(joins(&other, "forwarded"), 1);
    assert_eq!([joins(&owner, "joined"), joins(&other, "joined")], [1, 0]);

    // With the owner gone, clients still get through: their stream restarts where it arrived.
    drop(owner);
    let report = get(&site, front.address);
    assert_eq!(report["status"], 200, "{report}");
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
        let (code, text) = crate::edge::fails(&[&all[..], &[flag]].concat());
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains(words), "{text}");
    }
    let unsealed = crate::edge::fails(&["--origin=http://localhost:1", "--keys=redis://localhost"]);
    assert!(unsealed.1.contains("--fleet is missing"), "{}", unsealed.1);
}
