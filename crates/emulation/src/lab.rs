use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::capture::Capture;
use crate::error::{LabError, no_node};
use crate::forwarder::{Counters, Forwarder};
use crate::host::Host;
use crate::namespace::Namespace;
use crate::node::{Node, Spawner};
use crate::record::Disturbance;
use crate::schedule::Exactness;
use crate::split::{SplitProxy, SplitTcp};
use crate::switch::{Diversion, Port, Switch};
use crate::wiring::{self, Routing};
use crate::{Link, Protocol};

/// Nodes a lab has at most: default addresses and hardware addresses count them in one byte.
const MAX_NODES: usize = 250;

/// Options for building a lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabOptions {
    /// Gives the forwarder the last CPU for itself, where there are several; see
    /// [`Scheduling::exact`].
    ///
    /// Off unless asked for: labs side by side would be in each other's way.
    ///
    /// [`Scheduling::exact`]: crate::Scheduling::exact
    pub pinned: bool,
    /// Packets that leave later than this count as [disturbed](Lab::disturbance); 0.3 ms, the
    /// exactness that a calibrated lab must have.
    pub late: Duration,
    /// Proxies that split TCP connections.
    pub split_tcp: Vec<SplitTcp>,
}

impl Default for LabOptions {
    fn default() -> LabOptions {
        LabOptions { pinned: false, late: Duration::from_micros(300), split_tcp: Vec::new() }
    }
}

/// Nodes in network namespaces of their own, joined in a star by emulated links that carry real
/// packets.
///
/// A packet from node A to node B passes A's outbound and then B's inbound link. Everything ends
/// with this value, or with the process, however it dies: namespaces have no names, and commands
/// started by [`Node::spawn`] are killed.
#[derive(Debug)]
pub struct Lab {
    // Dropped first: no packet moves while the rest is torn down.
    forwarder: Forwarder,
    _proxies: Vec<SplitProxy>,
    nodes: Vec<Node>,
    _network: Namespace,
}

impl Lab {
    /// Builds the nodes and starts to forward; needs [`Privilege::Root`](crate::Privilege::Root)
    /// and the command `ip`.
    pub fn build(hosts: Vec<Host>) -> Result<Lab, LabError> {
        Lab::build_with(hosts, LabOptions::default())
    }

    /// As [`build`](Lab::build), with options.
    pub fn build_with(mut hosts: Vec<Host>, options: LabOptions) -> Result<Lab, LabError> {
        for split in &options.split_tcp {
            hosts.extend(split.hosts());
        }
        let hosts = checked(hosts)?;
        let network = Namespace::new().map_err(LabError::system("creating a network namespace"))?;
        let spawner = Spawner::start().map_err(LabError::system("starting a thread"))?;
        let mut nodes = Vec::new();
        let mut wires = Vec::new();
        let mut switch = Switch::default();
        let ports = hosts.len();
        for (number, host) in (1..).zip(hosts) {
            let namespace =
                Namespace::new().map_err(LabError::system("creating a network namespace"))?;
            let shared = host.shared.iter().map(|(address, _)| *address);
            let addresses = host.addresses.iter().copied().chain(shared);
            let addresses: Vec<_> = addresses.chain(host.tcp_of.iter().copied()).collect();
            let routing = Routing { addresses: &addresses, initial_window: host.initial_window };
            wires.push(wiring::wire(number, routing, &namespace, &network)?);
            let port = switch.add_port(host.addresses.into_iter().chain(host.public), host.links);
            for (address, balance) in host.shared {
                switch.share(address, balance, port, &host.server_names);
            }
            for destination in host.tcp_of {
                let (protocol, to) = (Protocol::Tcp, port);
                for from in 0..ports {
                    switch.divert(Diversion { from, protocol, destination, to });
                }
            }
            nodes.push(Node { name: host.name, addresses, namespace, spawner: spawner.clone() });
        }
        for split in &options.split_tcp {
            split.lead(&nodes, &mut switch)?;
        }
        let forwarder = Forwarder::start(switch, wires, options.pinned, options.late)
            .map_err(LabError::system("starting the forwarder"))?;
        let splits = options.split_tcp.iter();
        let proxies = splits.map(|split| split.start(&nodes)).collect::<Result<_, _>>()?;
        Ok(Lab { forwarder, _proxies: proxies, nodes, _network: network })
    }

    /// The node of this name.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// The nodes in the order they were given.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Replaces a node's links while packets flow; what was in the old ones is dropped, their
    /// counts start again.
    ///
    /// False if there is no such node.
    pub fn set_links(&self, name: &str, outbound: Link, inbound: Link) -> bool {
        let Some(number) = self.nodes.iter().position(|node| node.name == name) else {
            return false;
        };
        self.forwarder
            .with_switch(|switch: &mut Switch| {
                switch.ports_mut().get_mut(number).map(|port| *port = Port { outbound, inbound })
            })
            .is_some()
    }

    /// The same with a path: what others send to the public addresses of its boxes comes here from
    /// now on.
    ///
    /// False if there is no such node, or if another node has one of the addresses.
    pub fn set_path(&self, name: &str, path: crate::Path) -> bool {
        let Some(number) = self.nodes.iter().position(|node| node.name == name) else {
            return false;
        };
        if path
            .public_addresses()
            .iter()
            .any(|address| self.nodes.iter().any(|node| node.addresses.contains(address)))
        {
            return false;
        }
        self.forwarder.with_switch(|switch| {
            for address in path.public_addresses() {
                switch.route_to(*address, number);
            }
        });
        self.set_links(name, path.outbound, path.inbound)
    }

    /// Returns the forwarder's counters, ports in the order of the nodes.
    pub fn counters(&self) -> Counters {
        self.forwarder.counters()
    }

    /// Returns how exact the forwarder can be here.
    pub fn exactness(&self) -> Exactness {
        self.forwarder.exactness()
    }

    /// Returns what the forwarder did wrong between two moments.
    ///
    /// It goes by the forwarder's own record, never by what came of it, so that results may be
    /// flagged by it. Ask soon after `to`: the record is long but not endless.
    pub fn disturbance(&self, from: Instant, to: Instant) -> Disturbance {
        self.forwarder.disturbance(from, to)
    }

    /// Returns true if the forwarder did anything wrong between two moments, or may have.
    pub fn disturbed(&self, from: Instant, to: Instant) -> bool {
        !self.disturbance(from, to).is_none()
    }

    /// Writes what passes a node's interface from now on to a file that Wireshark and tcpdump open
    /// (pcapng).
    ///
    /// Packets have the times at which they left the node, before its links, and reached it, behind
    /// its links. The file gets at most `limit` bytes, and is replaced if it is there. A new
    /// capture of a node ends an earlier one.
    pub fn capture(
        &self,
        name: &str,
        path: impl AsRef<Path>,
        limit: u64,
    ) -> Result<Capture, LabError> {
        let number = self.nodes.iter().position(|node| node.name == name);
        let number = number.ok_or_else(|| no_node(name))?;
        let (capture, tap) = Capture::start(name, path.as_ref(), limit)
            .map_err(LabError::system(format!("capturing to {}", path.as_ref().display())))?;
        self.forwarder.tap(number, tap);
        Ok(capture)
    }
}

/// Gives hosts their default addresses and refuses what cannot be built.
fn checked(mut hosts: Vec<Host>) -> Result<Vec<Host>, LabError> {
    if hosts.len() > MAX_NODES {
        return Err(LabError::Topology(format!("{} nodes are more than {MAX_NODES}", hosts.len())));
    }
    for (number, host) in (1..).zip(&mut hosts) {
        if host.addresses.is_empty() {
            host.addresses = default_addresses(number);
        }
    }
    let names = hosts.iter().map(|host| host.name.clone());
    let shared = shared_addresses(&hosts)?;
    let addresses = hosts.iter().flat_map(|host| host.addresses.iter().chain(&host.public));
    let addresses = addresses.chain(&shared).map(IpAddr::to_string);
    for mut list in [names.collect::<Vec<_>>(), addresses.collect()] {
        list.sort_unstable();
        if let Some([twice, _]) = list.array_windows().find(|[one, next]| one == next) {
            return Err(LabError::Topology(format!("two nodes or addresses are called {twice}")));
        }
    }
    Ok(hosts)
}

/// Each shared address once.
fn shared_addresses(hosts: &[Host]) -> Result<Vec<IpAddr>, LabError> {
    let mut balances = BTreeMap::new();
    for host in hosts {
        for (number, (address, balance)) in host.shared.iter().enumerate() {
            let twice = host.shared.iter().take(number).any(|(other, _)| other == address);
            if twice || balances.insert(*address, *balance).is_some_and(|other| other != *balance) {
                let what = "is shared twice by one node, or balanced in two ways";
                return Err(LabError::Topology(format!("{address} {what}")));
            }
        }
    }
    Ok(balances.into_keys().collect())
}

fn default_addresses(number: u8) -> Vec<IpAddr> {
    let mut addresses = vec![Ipv4Addr::new(10, 77, number, 1).into()];
    if wiring::has_ipv6() {
        addresses.push(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, number.into(), 1).into());
    }
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Balance;

    #[test]
    fn names_and_addresses_are_unique() {
        for hosts in [
            vec![Host::new("a"), Host::new("a")],
            vec![Host::new("a"), Host::new("b").address([10, 77, 1, 1])],
        ] {
            assert!(matches!(checked(hosts), Err(LabError::Topology(_))));
        }
        assert!(checked(vec![Host::new("a"), Host::new("b")]).is_ok());
    }

    fn shared(name: &str, balance: Balance) -> Host {
        Host::new(name).shared_address([192, 0, 2, 1], balance)
    }

    #[test]
    fn shared_addresses_are_shared_in_one_way_and_by_nobody_else() {
        for (other, is_right) in [
            (shared("b", Balance::Flow), true),
            (shared("b", Balance::Source), false),
            (shared("b", Balance::Flow).shared_address([192, 0, 2, 1], Balance::Flow), false),
            (Host::new("b").address([192, 0, 2, 1]), false),
            (Host::new("b").public([192, 0, 2, 1]), false),
            (Host::new("b").path("nat 192.0.2.1".parse().unwrap()), false),
            (Host::new("b").path("nat 192.0.2.2".parse().unwrap()), true),
        ] {
            let case = format!("{other:?}");
            let hosts = checked(vec![shared("a", Balance::Flow), other]);
            assert_eq!(hosts.is_ok(), is_right, "{case}");
        }
    }

    #[test]
    fn a_lab_has_a_largest_size() {
        for (count, fits) in [(MAX_NODES, true), (MAX_NODES + 1, false)] {
            let hosts = (0..count).map(|number| Host::new(number.to_string())).collect();
            assert_eq!(checked(hosts).is_ok(), fits, "{count}");
        }
    }
}
