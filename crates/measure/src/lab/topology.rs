//! The emulated network of a stage: clients behind their links, servers behind theirs.

use std::net::Ipv4Addr;
use std::time::Duration;

use headstart_emulation::{Host, Lab, LabOptions, Link, Node, Packet, Path, SplitTcp, path_forms};

use super::experiment::{LinkEffect, LinkSpec};
use super::plan::{Mode, Plan, Stage};
use crate::network;
use headstart::base::failure::Failure;
use serde::{Deserialize, Serialize};

/// Port of every server that clients connect to: some boxes act on no other.
pub(crate) const HTTPS: u16 = 443;

/// A server's address for a cell is 10.`SERVER_NET + server`.0.`cell + 1`: all use [`HTTPS`], and
/// what is learnt about an address in one cell must not help another.
///
/// Further addresses of the same server and cell count up in the third octet, and after 255 in the
/// second. A stage with that many has one server, which needs no other second octet.
const SERVER_NET: u8 = 100;

/// Number of values of the third octet.
const THIRD_OCTETS: usize = 256;

/// The address that several servers share for a cell is 10.`SHARED_NET`.0.`cell + 1`.
const SHARED_NET: u8 = 99;

/// Name of HAProxy's node.
const HAPROXY: &str = "haproxy";

/// HAProxy's own address, from which it connects to edges.
pub(super) const HAPROXY_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 98, 0, 1);

/// Switches Fast Open on for clients and servers (ip-sysctl: 1 | 2): its arm needs both.
pub(super) const FAST_OPEN: (&str, &str) = ("/proc/sys/net/ipv4/tcp_fastopen", "3");

/// Makes TCP detect an MTU black hole, after some retransmissions (ip-sysctl: 1): otherwise no arm
/// over TCP gets through one.
pub(super) const MTU_PROBING: (&str, &str) = ("/proc/sys/net/ipv4/tcp_mtu_probing", "1");

/// The network of one stage.
#[derive(Debug)]
pub(crate) struct Topology {
    pub(crate) lab: Lab,
    clients: u8,
    servers: u8,
    /// Addresses of each server, for each cell.
    addresses: usize,
    /// For each cell, true if its servers have nodes of their own.
    separate: Vec<bool>,
}

/// A server's node, and the server's own address for one cell.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Site<'t> {
    pub(crate) node: &'t Node,
    pub(crate) own: Ipv4Addr,
    /// Number of the server, from 0.
    pub(crate) number: u8,
}

/// Returns the virtual hosts of a plan in the format of hosts(5), for programs that resolve names
/// themselves; `None` if the plan has no such programs.
pub(crate) fn hosts_file(plan: &Plan) -> Option<String> {
    let mut rows = String::new();
    for stage in plan.stages.iter().filter(|stage| stage.mode == Mode::Workload) {
        for cell in 0..stage.cells.len() {
            let address = match stage.servers() {
                0 | 1 => server_address(0, 0, cell),
                _ => shared_address(cell),
            };
            for host in 0..stage.hosts() {
                rows += &format!("{address} {}\n", stage.host_name(cell, host));
            }
        }
    }
    (!rows.is_empty()).then(|| format!("127.0.0.1 localhost\n::1 localhost\n{rows}"))
}

/// Checks the links of a plan before anything is built.
pub(crate) fn check(plan: &Plan) -> Result<(), Failure> {
    for stage in &plan.stages {
        let name = &stage.link.name;
        let client = path(&format!("link '{name}': path"), &stage.link.client_path())?;
        let server_path = stage.link.server_path.as_deref().unwrap_or_default();
        let server = path(&format!("link '{name}': server_path"), server_path)?;
        check_rtt(&stage.link, client, server)?;
        if let Some(changed) = &stage.link.changed_path {
            let server = path(&format!("link '{name}': server_path"), server_path)?;
            let client = path(&format!("link '{name}': changed_path"), changed)?;
            check_rtt(&stage.link, client, server)?;
        }
    }
    Ok(())
}

/// Tolerance between a link's stated `rtt`, by which results are divided, and the round trip that
/// its elements make; a fraction of the latter.
const RTT_TOLERANCE: f64 = 0.01;

/// Packets sent through a path in virtual time to learn its delay.
const PROBES: u32 = 2_000;

/// Time between probes: longer than any queue or jitter here lasts, so that none waits for another.
const PROBE_INTERVAL: Duration = Duration::from_secs(10);

/// Sampling error of a mean delay under jitter, as a fraction of the interquartile range.
///
/// Four standard errors for both directions together; one is 0.6 of the range, over the square root
/// of [`PROBES`].
const PROBE_ERROR: f64 = 0.08;

/// Returns the round-trip time of a client's path alone, up to the network.
pub(crate) fn round_trip(text: &str) -> Result<Duration, Failure> {
    let path = path("link", text)?;
    let delays = [path.outbound, path.inbound].map(delay).into_iter().collect::<Option<Vec<_>>>();
    let seconds = delays.map(|delays| delays.iter().map(|delay| delay.mean).sum::<f64>());
    let rtt = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    rtt.ok_or_else(|| {
        Failure::usage(format!("'{text}' lets nothing through"))
            .hint("name a link that packets pass, for example 'delay 20ms'")
    })
}

/// Rejects a link whose stated round-trip time is not that of its elements.
fn check_rtt(link: &LinkSpec, client: Path, server: Path) -> Result<(), Failure> {
    let links = [client.outbound, server.inbound, server.outbound, client.inbound];
    let Some(delays) = links.map(delay).into_iter().collect::<Option<Vec<_>>>() else {
        // A box that passes no single packet, only whole connections: its delay is unknown.
        return Ok(());
    };
    let real: f64 = delays.iter().map(|delay| delay.mean).sum();
    let error: f64 = delays.iter().map(|delay| delay.spread * PROBE_ERROR).sum();
    let stated = link.rtt.as_secs_f64();
    if (stated - real).abs() <= RTT_TOLERANCE * real + error {
        return Ok(());
    }
    let (name, ms) = (&link.name, real * 1e3);
    Err(Failure::usage(format!(
        "link '{name}': rtt is {:?}, its elements make {ms:.3} ms",
        link.rtt
    ))
    .hint("times are divided by rtt to count round trips: set it to what the elements make"))
}

/// Time that packets take through a link, in seconds.
struct Delay {
    mean: f64,
    /// Interquartile range.
    spread: f64,
}

/// Measures a link with small TCP packets; `None` if none gets through. The mean is that of the
/// middle half, so that a packet that is lost or held up does not count.
fn delay(mut link: Link) -> Option<Delay> {
    let mut delays: Vec<f64> =
        (0..PROBES).filter_map(|number| probe(&mut link, PROBE_INTERVAL * number)).collect();
    delays.sort_by(f64::total_cmp);
    let middle = delays.get(delays.len() / 4..delays.len() - delays.len() / 4)?;
    let (first, last) = (middle.first()?, middle.last()?);
    Some(Delay { mean: middle.iter().sum::<f64>() / middle.len() as f64, spread: last - first })
}

/// Returns the delay of a packet, or of its first copy.
fn probe(link: &mut Link, sent: Duration) -> Option<f64> {
    link.send(sent, Packet::tcp([]));
    let mut delay = None;
    while let Some(due) = link.next_due().filter(|due| *due < sent + PROBE_INTERVAL) {
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
        let separate = separate_cells(stage);
        let mut hosts = Vec::new();
        for number in 0..clients {
            let mut host = Host::new(client_name(number)).path(path("link", &client_path)?);
            if stage.changes_address() {
                host = host.address(client_address(number, 1)).address(client_address(number, 2));
            }
            hosts.push(host);
        }
        for (name, number, cells) in server_nodes(stage, &separate) {
            let host = Host::new(name).path(path("link", server_path)?);
            let host = match stage.variant.initial_window {
                Some(segments) => host.initial_window(segments),
                None => host,
            };
            hosts.push(
                cells
                    .into_iter()
                    .fold(host, |host, cell| with_server_addresses(host, stage, number, cell)),
            );
        }
        if stage.has_haproxy() {
            // Such a stage has one cell.
            hosts.push(Host::new(HAPROXY).address(HAPROXY_ADDRESS).tcp_of(shared_address(0)));
        }
        let options =
            LabOptions { late: stage.late, pinned: true, split_tcp: proxies(stage, &separate) };
        let lab = Lab::build_with(hosts, options).map_err(|error| network::not_built(&error))?;
        let topology = Self { lab, clients, servers, addresses: stage.addresses(), separate };
        topology.set_up()?;
        Ok(topology)
    }

    /// Puts a client behind another path, or back behind its own; packets in flight are lost.
    pub(crate) fn change_path(&self, client: &Node, text: &str) -> Result<(), String> {
        let path: Path = text.parse().map_err(|error| format!("'{text}': {error}"))?;
        match self.lab.set_path(client.name(), path) {
            true => Ok(()),
            false => Err(format!("'{text}' has an address of another node")),
        }
    }

    /// Returns the effects of all links so far.
    pub(crate) fn effects(&self) -> LinkEffects {
        let counters = self.lab.counters();
        let links = counters.ports.iter().flat_map(|port| [port.outbound, port.inbound]);
        links.fold(LinkEffects::default(), |sum, link| LinkEffects {
            dropped: sum.dropped + link.dropped,
            replied: sum.replied + link.replied,
            added: sum.added + link.added,
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

    pub(crate) fn servers(&self, cell: usize) -> impl Iterator<Item = Site<'_>> {
        let is_separate = self.separate.get(cell).is_some_and(|separate| *separate);
        (0..self.servers).filter_map(move |number| {
            let node = self.lab.node(&server_name(number, is_separate.then_some(cell)))?;
            Some(Site { node, own: server_address(number, 0, cell), number })
        })
    }

    pub(crate) fn haproxy(&self) -> Option<&Node> {
        self.lab.node(HAPROXY)
    }

    /// Returns the addresses that clients of this cell connect to.
    pub(crate) fn targets(&self, cell: usize) -> Vec<Ipv4Addr> {
        match self.servers {
            0 | 1 => (0..self.addresses).map(|number| server_address(0, number, cell)).collect(),
            _ => vec![shared_address(cell)],
        }
    }
}

/// Returns, for each cell, true if its servers need nodes of their own.
///
/// The BPF program of Fast Open Privacy acts on a port of a whole interface, for one server, and
/// takes the options of plain Fast Open out of all SYNs to that port.
fn separate_cells(stage: &Stage) -> Vec<bool> {
    stage.cells.iter().map(|cell| cell.arm.has_private_cookies()).collect()
}

/// Returns the nodes of servers: name, number of the server, and the cells that it serves there.
fn server_nodes(stage: &Stage, separate: &[bool]) -> Vec<(String, u8, Vec<usize>)> {
    let (alone, together): (Vec<usize>, Vec<usize>) =
        (0..separate.len()).partition(|cell| separate.get(*cell).is_some_and(|alone| *alone));
    let mut nodes = Vec::new();
    for number in 0..stage.servers() {
        if !together.is_empty() {
            nodes.push((server_name(number, None), number, together.clone()));
        }
        nodes.extend(
            alone.iter().map(|cell| (server_name(number, Some(*cell)), number, vec![*cell])),
        );
    }
    nodes
}

/// Gives a server's node its addresses for one cell.
fn with_server_addresses(mut host: Host, stage: &Stage, server: u8, cell: usize) -> Host {
    for number in 0..stage.addresses() {
        host = host.address(server_address(server, number, cell));
    }
    match stage.variant.balance {
        Some(balance) => host.shared_address(shared_address(cell), balance.into()),
        None => host,
    }
}

/// Parses a path, which error messages call `what`.
fn path(what: &str, text: &str) -> Result<Path, Failure> {
    text.parse().map_err(|error| {
        let forms: Vec<_> = path_forms().collect();
        Failure::usage(format!("{what}: '{text}': {error}"))
            .hint(format!("elements are {}", forms.join("; ")))
    })
}

/// Returns the proxies of a link that splits TCP, one between each client and each server; no
/// others have any.
fn proxies(stage: &Stage, separate: &[bool]) -> Vec<SplitTcp> {
    if !stage.link.split_tcp {
        return Vec::new();
    }
    let servers = server_nodes(stage, separate);
    let pairs = (0..stage.clients())
        .flat_map(|client| servers.iter().map(move |(server, ..)| (client, server)));
    pairs
        .map(|(client, server)| SplitTcp {
            client: client_name(client),
            server: server.clone(),
            ports: vec![HTTPS],
        })
        .collect()
}

fn client_name(number: u8) -> String {
    format!("client-{}", number + 1)
}

/// Returns the name of a server's node: its node for `cell` alone, or the one that all other cells
/// share.
fn server_name(number: u8, cell: Option<usize>) -> String {
    let suffix = cell.map_or(String::new(), |cell| format!("-of-{}", cell + 1));
    format!("server-{}{suffix}", number + 1)
}

/// Returns an address of a client that has several; the lab assigns the others' addresses.
fn client_address(client: u8, number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, client + 1, number)
}

/// Returns an address of a server for a cell. All count from 0; a cell's number is below
/// [`CELLS_MAX`](super::experiment::CELLS_MAX).
pub(crate) fn server_address(server: u8, number: usize, cell: usize) -> Ipv4Addr {
    let more = u8::try_from(number / THIRD_OCTETS).unwrap_or(u8::MAX);
    address(SERVER_NET.saturating_add(server).saturating_add(more), number % THIRD_OCTETS, cell)
}

fn shared_address(cell: usize) -> Ipv4Addr {
    address(SHARED_NET, 0, cell)
}

fn address(net: u8, number: usize, cell: usize) -> Ipv4Addr {
    let [number, cell] = [number, cell + 1].map(|part| u8::try_from(part).unwrap_or(u8::MAX));
    Ipv4Addr::new(10, net, number, cell)
}

/// Numbers of packets that links dropped, answered or added. A late packet of one cell may count
/// for the next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LinkEffects {
    pub(crate) dropped: u64,
    /// Answered by a box itself.
    pub(crate) replied: u64,
    pub(crate) added: u64,
}

impl LinkEffects {
    pub(crate) fn add_since(&mut self, before: Self, now: Self) {
        self.dropped += now.dropped.saturating_sub(before.dropped);
        self.replied += now.replied.saturating_sub(before.replied);
        self.added += now.added.saturating_sub(before.added);
    }

    /// Returns true if the counts show this effect; always for one that nothing counts.
    pub(crate) const fn shows(self, effect: LinkEffect) -> bool {
        match effect {
            LinkEffect::Drops => self.dropped > 0,
            LinkEffect::Replies => self.replied > 0,
            LinkEffect::Adds => self.added > 0,
            LinkEffect::Changes => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::lab::builtin;
    use crate::lab::plan::RunSize;

    fn checked(rtt: u64, client: &str, server: &str) -> Result<(), Failure> {
        let text = format!("name = \"x\"\nrtt = \"{rtt}ms\"");
        let link: LinkSpec = toml::from_str(&text).unwrap();
        check_rtt(&link, client.parse().unwrap(), server.parse().unwrap())
    }

    #[test]
    fn a_round_trip_is_the_sum_of_its_elements() {
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

    fn stage(arms: &str, variant: &str) -> Stage {
        plan(arms, variant).stages.remove(0)
    }

    fn plan(arms: &str, variant: &str) -> Plan {
        let text = format!(
            "name = \"x\"\ntitle = \"\"\nabout = \"\"\ntrials = 1\nquick_trials = 1\n\
             arms = [{arms}]\nsuites = [\"p256\"]\n[[link]]\nname = \"l\"\nrtt = \"1ms\"\n{variant}"
        );
        let experiment = crate::lab::experiment::Experiment::parse("x", &text).unwrap();
        Plan::new(experiment, RunSize::Usual, None).unwrap()
    }

    #[test]
    fn servers_with_private_cookies_have_nodes_of_their_own() {
        let some = stage("\"tls13\", \"fop\", \"tfo\", \"fop-agent\"", "");
        let expected =
            [("server-1", vec![0, 2]), ("server-1-of-2", vec![1]), ("server-1-of-4", vec![3])];
        assert_eq!(names(&some), expected.map(|(name, cells)| (name.to_owned(), cells)));
        let two = "[[variant]]\nservers = 2\nbalance = \"source\"";
        let only = stage("\"fop\"", two);
        let expected = ["server-1-of-1", "server-2-of-1"].map(|name| (name.to_owned(), vec![0]));
        assert_eq!(names(&only), expected);
    }

    fn names(stage: &Stage) -> Vec<(String, Vec<usize>)> {
        let nodes = server_nodes(stage, &separate_cells(stage)).into_iter();
        nodes.map(|(name, _, cells)| (name, cells)).collect()
    }

    #[test]
    fn virtual_hosts_have_the_addresses_of_their_cells() {
        let [one, three] = ["", "servers = 3\nbalance = \"five-tuple\""].map(|more| {
            let programs = "work.programs = { shares = { curl = 1 }, hosts = [2, 1] }";
            let variant = format!("[[variant]]\n{programs}\n{more}");
            hosts_file(&plan("\"today\", \"client\"", &variant)).unwrap()
        });
        assert!(one.contains("\n10.100.0.1 v1.c1.s1.lab.test\n"), "{one}");
        assert!(one.contains("\n10.100.0.2 v2.c2.s1.lab.test\n"), "{one}");
        assert!(three.contains("\n10.99.0.2 v1.c2.s1.lab.test\n"), "{three}");
        assert_eq!(hosts_file(&plan("\"tls13\"", "")), None);
    }

    /// Asks the kernel before anything is sent, so that no timer can have changed the window.
    #[test]
    fn servers_begin_with_the_window_of_their_variant() {
        if !headstart_testkit::has_net() {
            return;
        }
        let usual = first_window("");
        for segments in [1, 3, 30] {
            assert_ne!(usual, segments);
            assert_eq!(first_window(&format!("initial_window = {segments}")), segments);
        }
    }

    /// Returns the congestion window with which a server takes a client's connection.
    fn first_window(setting: &str) -> u32 {
        let stage = stage("\"tls13\"", &format!("[[variant]]\n{setting}"));
        let topology = Topology::build(&stage).unwrap();
        let (client, site) = (topology.clients().next().unwrap(), topology.servers(0).next());
        let Site { node, own, .. } = site.unwrap();
        let listener = node.run(|| TcpListener::bind((own, HTTPS))).unwrap().unwrap();
        let connected = client.run(|| TcpStream::connect((own, HTTPS))).unwrap().unwrap();
        let accepted = listener.accept().unwrap();
        let output = node.command("ss").args(["-tinH", "state", "established"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        drop((connected, accepted));
        let window = text.split_whitespace().find_map(|word| word.strip_prefix("cwnd:"));
        window.unwrap_or_else(|| panic!("no window: {text}")).parse().unwrap()
    }

    #[test]
    fn addresses_of_cells_differ() {
        let addresses = [server_address(0, 0, 0), server_address(0, 1, 0), server_address(1, 0, 2)];
        assert_eq!(
            addresses.map(|one| one.to_string()),
            ["10.100.0.1", "10.100.1.1", "10.101.0.3"]
        );
        let many = [255, 256, 1_000].map(|number| server_address(0, number, 0).to_string());
        assert_eq!(many, ["10.100.255.1", "10.101.0.1", "10.103.232.1"]);
    }

    #[test]
    fn the_round_trip_of_a_blocked_path_is_not_checked() {
        checked(5, "delay 20ms, drop tcp", "").unwrap();
    }

    #[test]
    fn built_in_experiments_state_the_round_trips_of_their_links() {
        for (experiment, _) in builtin::all().unwrap() {
            check(&Plan::new(experiment, RunSize::Usual, None).unwrap()).unwrap();
        }
    }
}
