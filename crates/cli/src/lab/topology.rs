//! The emulated network of a stage: clients behind their links, servers behind theirs.

use std::net::Ipv4Addr;
use std::time::Duration;

use headstart_lab::{Host, Lab, LabOptions, Link, Node, Packet, Path, SplitTcp, path_forms};

use super::cell::LinkActs;
use super::experiment::LinkSpec;
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
pub(super) const FAST_OPEN: (&str, &str) = ("/proc/sys/net/ipv4/tcp_fastopen", "3");

/// TCP finds out a small MTU that no ICMP tells of, after some retransmissions (ip-sysctl: 1); otherwise no arm over TCP
/// gets through there.
pub(super) const MTU_PROBING: (&str, &str) = ("/proc/sys/net/ipv4/tcp_mtu_probing", "1");

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
        let client = path(&format!("link '{name}': path"), &stage.link.client_path())?;
        let server_path = stage.link.server_path.as_deref().unwrap_or_default();
        let server = path(&format!("link '{name}': server_path"), server_path)?;
        check_rtt(&stage.link, client, server)?;
    }
    Ok(())
}

/// How far a link's `rtt`, by which times become round trips, may be from what its elements make of it.
const RTT_TOLERANCE: f64 = 0.01;

/// Packets sent through a path in virtual time to learn its delay.
const PROBES: u32 = 2_000;

/// Time between them: more than any queue or jitter here lasts, so that none waits for another.
const APART: Duration = Duration::from_secs(10);

/// What drawing so few packets from a jitter may move the mean of their middle half by, in parts of that half's
/// width: four deviations (0.6 of the width each, by the square root of [`PROBES`]), both ways.
const PROBE_ERROR: f64 = 0.08;

/// Refuses a round-trip time that is not that of the elements.
fn check_rtt(link: &LinkSpec, client: Path, server: Path) -> Result<(), Failure> {
    let ways = [client.outbound, server.inbound, server.outbound, client.inbound];
    let Some(delays) = ways.map(delay).into_iter().collect::<Option<Vec<_>>>() else {
        // A box that lets nothing through but whole connections: nothing is known of its delay.
        return Ok(());
    };
    let real: f64 = delays.iter().map(|delay| delay.mean).sum();
    let error: f64 = delays.iter().map(|delay| delay.width * PROBE_ERROR).sum();
    let said = link.rtt.as_secs_f64();
    if (said - real).abs() <= RTT_TOLERANCE * real + error {
        return Ok(());
    }
    let (name, ms) = (&link.name, real * 1e3);
    Err(Failure::usage(format!(
        "link '{name}': rtt is {:?}, its elements make {ms:.3} ms",
        link.rtt
    ))
    .hint("times are divided by rtt to count round trips: write what the elements make"))
}

/// How long packets are under way, in seconds.
struct Delay {
    mean: f64,
    /// Between the quartiles.
    width: f64,
}

/// Of the middle half of small TCP packets, so that one that is lost, repeated or held up does not count.
fn delay(mut link: Link) -> Option<Delay> {
    let mut delays: Vec<f64> =
        (0..PROBES).filter_map(|number| once(&mut link, APART * number)).collect();
    delays.sort_by(f64::total_cmp);
    let middle = delays.get(delays.len() / 4..delays.len() - delays.len() / 4)?;
    let (first, last) = (middle.first()?, middle.last()?);
    Some(Delay { mean: middle.iter().sum::<f64>() / middle.len() as f64, width: last - first })
}

fn once(link: &mut Link, sent: Duration) -> Option<f64> {
    link.send(sent, Packet::tcp([]));
    let mut delay = None;
    while let Some(due) = link.next_due().filter(|due| *due < sent + APART) {
        if link.poll(due).is_some() {
            delay.get_or_insert((due - sent).as_secs_f64());
        }
    }
    delay
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
        let options = LabOptions { late: stage.late, pinned: true, split_tcp: proxies(stage) };
        let lab = Lab::build_with(hosts, options).map_err(|error| demo::not_built(&error))?;
        let topology = Self { lab, clients, servers };
        topology.set_up()?;
        Ok(topology)
    }

    /// What all links did so far.
    pub(crate) fn acts(&self) -> LinkActs {
        let counters = self.lab.counters();
        let links = counters.ports.iter().flat_map(|port| [port.outbound, port.inbound]);
        links.fold(LinkActs::default(), |acts, link| LinkActs {
            dropped: acts.dropped + link.dropped,
            replied: acts.replied + link.replied,
            added: acts.added + link.added,
        })
    }

    fn set_up(&self) -> Result<(), Failure> {
        for node in self.lab.nodes() {
            for (file, value) in [FAST_OPEN, MTU_PROBING] {
                node.run(|| std::fs::write(file, value)).flatten().map_err(|error| {
                    Failure::usage(format!("cannot set {file} on {}: {error}", node.name()))
                })?;
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::builtin;

    fn checked(rtt: u64, client: &str, server: &str) -> Result<(), Failure> {
        let text = format!("name = \"x\"\nrtt = \"{rtt}ms\"");
        let link: LinkSpec = toml::from_str(&text).unwrap();
        check_rtt(&link, client.parse().unwrap(), server.parse().unwrap())
    }

    #[test]
    fn a_round_trip_is_what_its_elements_make() {
        for (rtt, client, server) in [
            (60, "preset lte", ""),
            (10, "preset wifi", ""),
            (600, "delay 1ms", "delay 299ms"),
            (40, "delay 20ms, reorder 20% seed 16 by 10ms", ""),
            (40, "delay 20ms, down(udp delay 30ms)", ""),
            (50, "delay 25ms, bursts 5% mean-length 3 seed 15", ""),
        ] {
            checked(rtt, client, server).unwrap();
        }
        for (rtt, client, real) in
            [(68, "preset lte", 60.0), (12, "preset wifi", 10.0), (40, "delay 20300us", 40.6)]
        {
            let failure = checked(rtt, client, "").unwrap_err();
            let (_, made) = failure.message().split_once("its elements make ").unwrap();
            let made: f64 = made.trim_end_matches(" ms").parse().unwrap();
            assert!((made - real).abs() < 0.01 * real && failure.advice().is_some(), "{made}");
        }
    }

    #[test]
    fn nothing_is_said_of_paths_that_nothing_passes() {
        checked(5, "delay 20ms, drop tcp", "").unwrap();
    }

    #[test]
    fn the_experiments_say_the_round_trips_of_their_links() {
        for (experiment, _) in builtin::all().unwrap() {
            check(&Plan::new(experiment, false, None).unwrap()).unwrap();
        }
    }
}
