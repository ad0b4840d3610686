//! Two edges behind a balancer that brings a client's datagrams to one and its TCP to the other:
//! they forward joins to each other, and no connection fails.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

use headstart_emulation::{Balance, Host};

use crate::curl::{Via, small};
use crate::daemon::Daemon;
use crate::net::{HTTPS, Net, at, ms, run, until};
use crate::nginx::Nginx;
use crate::programs::headstart;

/// Address of both edges.
const SITE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const EDGES: [&str; 2] = ["edge1", "edge2"];
/// Port at which edges take joins from each other.
const LINK: u16 = 4433;
const PORT: u16 = 1080;
/// Any of these names may be at any edge, but for the first, which is at the second edge where
/// balancers have a list.
const HOSTS: [&str; 4] = ["www.four.test", "a.four.test", "b.four.test", "c.four.test"];
const CONNECTIONS: usize = 16;

/// Ring and fleet file of both edges.
fn keys(net: &Net) -> [String; 2] {
    let [ring, fleet] = ["ring", "fleet"].map(|name| net.file(name).display().to_string());
    run(Command::new(headstart()).args(["keys", "new", "--fleet", &fleet]));
    run(Command::new(headstart()).args(["keys", "new", &ring]));
    let mut file = OpenOptions::new().append(true).open(&fleet).unwrap();
    for (number, name) in (1..).zip(EDGES) {
        let address = at(net.node(name).ipv4().unwrap(), LINK);
        writeln!(file, "edge {number} {address}").unwrap();
    }
    [ring, fleet]
}

fn forwarded(edge: &Daemon<'_>) -> u64 {
    edge.count("headstart_joins_total", &["outcome=\"forwarded\""])
}

/// Makes connections to each host, by TurboTLS and plainly, until `seen` says that the edges
/// forwarded what they should.
fn connects(balance: Balance, hosts: &[&str], seen: impl Fn(&[Daemon<'_>; 2]) -> bool) {
    let edges = EDGES.map(|name| Host::new(name).shared_address(SITE, balance));
    let [one, two] = edges;
    let client = Host::new("client").delay(ms(20));
    let net = Net::build(vec![client, one, two.server_name(HOSTS[0])]);
    let _origins = EDGES.map(|name| Nginx::start(&net, net.node(name), &["127.0.0.1:8443"]));
    let [ring, fleet] = keys(&net);
    let edges = [1, 2].map(|number: u16| {
        let node = net.node(EDGES[usize::from(number) - 1]);
        let own = number.to_string();
        let arguments = ["--origin", "127.0.0.1:8443", "--keys", &ring, "--fleet", &fleet];
        Daemon::edge_on(&net, node, number, &[&arguments[..], &["--fleet-edge", &own]].concat())
    });
    let site = format!("--edge=*.four.test={}", at(SITE, HTTPS));
    let agents = ["turbo", "plain"].map(|opening| {
        let port = PORT + u16::from(opening == "plain");
        (port, Daemon::agent(&net, port, &[&site, "--opening", opening]))
    });
    let mut connections = 0;
    until("joins to be forwarded", || {
        for host in hosts {
            for (port, _) in &agents {
                small(&net, Via::Socks(*port), host);
                connections += 1;
            }
        }
        connections >= CONNECTIONS && seen(&edges)
    });
    let [(_, turbo), _] = &agents;
    for reason in ["refused", "committed_refusal", "join_lost"] {
        assert_eq!(turbo.fell_back(reason), 0, "{balance:?}: {reason}");
    }
    println!(
        "  {balance:?}: {connections} connections, {} by UDP, {:?} forwarded",
        turbo.saved(),
        edges.each_ref().map(forwarded)
    );
}

pub(crate) fn equal_cost_paths() {
    connects(Balance::Flow, &HOSTS[..1], |edges| edges.iter().all(|edge| forwarded(edge) > 0));
}

pub(crate) fn by_name() {
    // The edge of the name gets all TCP, and half of the datagrams.
    connects(Balance::NameElseFlow, &HOSTS[..1], |[one, two]| {
        assert_eq!(forwarded(one), 0, "TCP came to the wrong edge");
        forwarded(two) > 0
    });
    connects(Balance::NameElseFlow, &HOSTS, |[_, two]| forwarded(two) > 0);
}
