//! The emulated network of a stage: clients behind their links, servers behind theirs.

use std::net::Ipv4Addr;

use headstart_lab::{Host, Lab, LabOptions, Node, Path, SplitTcp, path_forms};

use super::plan::{Plan, Stage};
use crate::demo;
use crate::failure::Failure;

/// Port of every server that clients connect to: some boxes look at nothing else.
pub(crate) const HTTPS: u16 = 443;

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
}

/// Finds mistakes in the text of links before anything is built.
pub(crate) fn check(plan: &Plan) -> Result<(), Failure> {
    for stage in &plan.stages {
        let name = &stage.link.name;
        path(&format!("link '{name}': path"), &stage.link.client_path())?;
        let server_path = stage.link.server_path.as_deref().unwrap_or_default();
        path(&format!("link '{name}': server_path"), server_path)?;
    }
    Ok(())
}

impl Topology {
    pub(crate) fn build(stage: &Stage) -> Result<Self, Failure> {
        let (clients, servers) = (stage.clients(), stage.servers());
        let client_path = stage.link.client_path();
        let server_path = stage.link.server_path.as_deref().unwrap_or_default();
        let mut hosts = Vec::new();
        for number in 0..clients {
            hosts.push(Host::new(client_name(number)).path(path("link", &client_path)?));
        }
        for number in 0..servers {
            let mut host = Host::new(server_name(number)).path(path("link", server_path)?);
            for cell in 0..stage.cells.len() {
                host = host.address(server_address(number, cell));
                if let Some(balance) = stage.variant.balance {
                    host = host.shared_address(shared_address(cell), balance.into());
                }
            }
            hosts.push(host);
        }
        let options =
            LabOptions { late: stage.late, split_tcp: proxies(stage), ..LabOptions::default() };
        let lab = Lab::build_with(hosts, options).map_err(|error| demo::not_built(&error))?;
        let topology = Self { lab, clients, servers };
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
}

/// `what` is what messages call it.
fn path(what: &str, text: &str) -> Result<Path, Failure> {
    text.parse().map_err(|error| {
        let forms: Vec<_> = path_forms().collect();
        Failure::usage(format!("{what}: '{text}': {error}"))
            .hint(format!("elements are {}", forms.join("; ")))
    })
}

/// The proxies of a stage: one between each client and each server.
fn proxies(stage: &Stage) -> Vec<SplitTcp> {
    let pairs = (0..stage.clients())
        .flat_map(|client| (0..stage.servers()).map(move |server| (client, server)));
    let pairs = pairs.filter(|_| stage.link.split_tcp);
    pairs
        .map(|(client, server)| SplitTcp {
            client: client_name(client),
            server: server_name(server),
            ports: vec![HTTPS],
        })
        .collect()
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
