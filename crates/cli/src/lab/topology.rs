//! The emulated network of a stage: clients behind their links, servers behind theirs.

use std::cell::Cell;
use std::net::Ipv4Addr;
use std::time::Duration;

use headstart_lab::{Counters, Host, Lab, Link, Node, element_forms};

use super::plan::{Plan, Stage};
use crate::demo;
use crate::failure::Failure;

/// Servers' addresses are 10.`SERVER_NET + number`.0.`cell`, so that each cell has one of its own: port 443
/// for all of them, as some boxes look at nothing else, and nothing learnt of one address helps another.
const SERVER_NET: u8 = 100;

/// Addresses that several servers share are 10.99.0.`cell`.
const SHARED_NET: u8 = 99;

/// Fast Open for clients and servers (ip-sysctl: 1 | 2); both must have it for the arm that uses it.
const FAST_OPEN: (&str, &str) = ("/proc/sys/net/ipv4/tcp_fastopen", "3");

/// The network of one stage.
#[derive(Debug)]
pub(crate) struct Topology {
    pub(crate) lab: Lab,
    clients: u8,
    servers: u8,
    late: Duration,
    seen: Cell<Faults>,
}

/// Finds mistakes in the text of links before anything is built.
pub(crate) fn check(plan: &Plan) -> Result<(), Failure> {
    for stage in &plan.stages {
        let name = &stage.link.name;
        path(&format!("link '{name}': path"), &stage.link.client_path())?;
        let server_path = stage.link.server_path.as_deref().unwrap_or_default();
        path(&format!("link '{name}': server_path"), server_path)?;
        check_boxes(stage)?;
    }
    Ok(())
}

/// Boxes that the emulated networks of this build do not have.
fn check_boxes(stage: &Stage) -> Result<(), Failure> {
    let missing = match (stage.link.split_tcp, stage.servers() > 1) {
        (true, _) => "a proxy that splits TCP connections",
        (_, true) => "addresses that several servers share",
        (false, false) => return Ok(()),
    };
    Err(Failure::usage(format!("{}: this build has no {missing}", stage.name()))
        .hint("`headstart lab list` shows the experiments"))
}

impl Topology {
    pub(crate) fn build(stage: &Stage) -> Result<Self, Failure> {
        let late = stage.late;
        let (clients, servers) = (stage.clients(), stage.servers());
        let path = stage.link.client_path();
        let server_path = stage.link.server_path.clone().unwrap_or_default();
        let mut hosts = Vec::new();
        for number in 0..clients {
            hosts.push(on_path(Host::new(client_name(number)), &path)?);
        }
        for number in 0..servers {
            let mut host = on_path(Host::new(server_name(number)), &server_path)?;
            for cell in 0..stage.cells.len() {
                host = host.address(server_address(number, cell));
            }
            hosts.push(host);
        }
        let lab = Lab::build(hosts).map_err(|error| demo::not_built(&error))?;
        let topology = Self { lab, clients, servers, late, seen: Cell::default() };
        topology.set_up()?;
        Ok(topology)
    }

    fn set_up(&self) -> Result<(), Failure> {
        let (file, value) = FAST_OPEN;
        for node in self.lab.nodes() {
            node.run(|| std::fs::write(file, value)).flatten().map_err(|error| {
                Failure::usage(format!("cannot set {file} on {}: {error}", node.name()))
            })?;
        }
        Ok(())
    }

    pub(crate) fn clients(&self) -> impl Iterator<Item = &Node> {
        (0..self.clients).filter_map(|number| self.lab.node(&client_name(number)))
    }

    pub(crate) fn servers(&self) -> impl Iterator<Item = &Node> {
        (0..self.servers).filter_map(|number| self.lab.node(&server_name(number)))
    }

    /// The address that clients of this cell connect to.
    pub(crate) fn target(&self, cell: usize) -> Ipv4Addr {
        if self.servers > 1 { shared_address(cell) } else { server_address(0, cell) }
    }

    /// Whether the forwarder did anything wrong since it was last asked, by its own record.
    pub(crate) fn disturbed(&self) -> bool {
        let now = Faults::of(&self.lab.counters());
        let before = self.seen.replace(now);
        let late = now.worst > before.worst && now.worst > self.late;
        late || now.lost > before.lost
    }
}

/// What the forwarder did wrong so far.
#[derive(Debug, Clone, Copy, Default)]
struct Faults {
    worst: Duration,
    lost: u64,
}

impl Faults {
    fn of(counters: &Counters) -> Self {
        let lost = counters.ports.iter().map(|port| port.missed + port.refused).sum();
        Self { worst: counters.lateness.max, lost }
    }
}

/// The two directions of a path. `what` is what messages call it.
fn path(what: &str, text: &str) -> Result<[Link; 2], Failure> {
    let parse = || text.parse::<Link>();
    let wrong = |error| {
        let forms: Vec<_> = element_forms().collect();
        Failure::usage(format!("{what}: '{text}': {error}"))
            .hint(format!("elements are {}", forms.join("; ")))
    };
    Ok([parse().map_err(wrong)?, parse().map_err(wrong)?])
}

fn on_path(host: Host, text: &str) -> Result<Host, Failure> {
    let [outbound, inbound] = path("link", text)?;
    Ok(host.outbound(outbound).inbound(inbound))
}

fn client_name(number: u8) -> String {
    format!("client-{}", number + 1)
}

fn server_name(number: u8) -> String {
    format!("server-{}", number + 1)
}

/// Cells are counted from 0, at most [`CELLS_MAX`](super::experiment::CELLS_MAX).
fn server_address(server: u8, cell: usize) -> Ipv4Addr {
    address(SERVER_NET + server, cell)
}

fn shared_address(cell: usize) -> Ipv4Addr {
    address(SHARED_NET, cell)
}

fn address(net: u8, cell: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, net, 0, u8::try_from(cell + 1).unwrap_or(u8::MAX))
}
