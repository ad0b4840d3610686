//! Sites and the edges before them, on nodes of an emulated network.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use headstart_emulation::{Node, Scheduling};
use headstart_openers::site::{Authority, SiteOrigin};

use super::agent::METRICS;
use crate::interrupt::Interrupt;
use crate::lab::listening::await_port;
use crate::lab::process::{Broken, Program};
use crate::lab::site;
use crate::lab::topology::HTTPS;
use crate::network::failed;
use headstart::base::failure::Failure;

/// Behind an edge that passes TLS on, and behind one that speaks it.
const BEHIND: u16 = 8443;
const IN_CLEAR: u16 = 8080;

/// Scheduling of servers: before Chromium, which would otherwise keep the network and the sites
/// waiting for the processors that it has them share. They need little. Agents are on the machine
/// of Chromium, and have no such right.
pub(super) const BEFORE_CHROMIUM: Scheduling = Scheduling { cpu: None, realtime: true };

/// Servers that answer: host N of all sites has 10.`net`.0.N at each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Front {
    /// The sites themselves.
    Origin = 100,
    /// An edge that passes TLS on to them.
    PassThrough = 101,
    /// An edge that speaks TLS.
    Terminating = 102,
    /// An edge that passes TLS on to sites that say what their pages need.
    Hinting = 103,
    /// The same, of sites that say it before they have made the document.
    EarlyHinting = 104,
    /// The same, of sites much of whose knowledge is out of date.
    StaleHinting = 105,
}

impl Front {
    /// All that stand at the sites themselves.
    pub(super) const OF_SITES: [Self; 5] =
        [Self::Origin, Self::PassThrough, Self::Hinting, Self::EarlyHinting, Self::StaleHinting];

    /// Returns true if the sites send Early Hints.
    pub(super) const fn is_early(self) -> bool {
        matches!(self, Self::EarlyHinting | Self::StaleHinting)
    }

    /// The address of a host, counted from 0.
    pub(super) fn address(self, host: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, self as u8, 0, u8::try_from(host + 1).unwrap_or(u8::MAX))
    }

    fn listen(self, hosts: usize) -> Vec<SocketAddr> {
        (0..hosts).map(|host| SocketAddr::new(self.address(host).into(), HTTPS)).collect()
    }
}

/// Settings that edges start with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Edges<'e> {
    /// This program.
    pub(super) program: &'e Path,
    pub(super) node: &'e Node,
    /// Number of hosts of all sites.
    pub(super) hosts: usize,
    pub(super) interrupt: &'e Interrupt,
}

/// The sites, without an edge.
pub(super) fn origin(
    node: &Node,
    front: Front,
    origin: &SiteOrigin,
    hosts: usize,
) -> Result<(), Failure> {
    serve(origin.clone(), front.listen(hosts), true, node)
}

impl Edges<'_> {
    /// An edge that passes TLS on to the sites.
    pub(super) fn pass_through(self) -> Result<Program, Broken> {
        let origin = SocketAddr::new(Front::Origin.address(0).into(), HTTPS);
        self.passing(Front::PassThrough, origin)
    }

    /// Sites that say more, and an edge that passes TLS on to them.
    pub(super) fn hinting(self, front: Front, origin: &SiteOrigin) -> Result<Program, Failure> {
        let behind = SocketAddr::new(front.address(0).into(), BEHIND);
        serve(origin.clone(), vec![behind], true, self.node)?;
        self.passing(front, behind).map_err(Failure::from)
    }

    /// An edge that speaks TLS, before the sites in clear.
    pub(super) fn terminating(
        self,
        origin: &SiteOrigin,
        identities: &[(PathBuf, PathBuf)],
        maps: Option<&Path>,
    ) -> Result<Program, Failure> {
        let behind = SocketAddr::new(Front::Terminating.address(0).into(), IN_CLEAR);
        serve(origin.clone(), vec![behind], false, self.node)?;
        let mut command = self.edge(Front::Terminating, &format!("http://{behind}"));
        for (certificate, key) in identities {
            command.arg("--cert").arg(certificate).arg("--key").arg(key);
        }
        command.args(["--min-tls", "1.3", "--early-data", "--early-data-requests", "safe"]);
        command.args(["--metrics", &METRICS.to_string()]);
        if let Some(maps) = maps {
            command.args(["--fast-open", "--fast-open-maps"]).arg(maps);
        }
        self.start(Front::Terminating, command).map_err(Failure::from)
    }

    fn passing(self, front: Front, origin: SocketAddr) -> Result<Program, Broken> {
        let mut command = self.edge(front, &origin.to_string());
        // The sites take it.
        command.arg("--early-data");
        self.start(front, command)
    }

    fn edge(self, front: Front, origin: &str) -> Command {
        let mut command = self.node.command(self.program);
        command.args(["edge", "--log", "error", "--origin", origin]);
        for address in front.listen(self.hosts) {
            command.args(["--listen", &address.to_string()]);
        }
        BEFORE_CHROMIUM.apply_to(&mut command);
        command
    }

    fn start(self, front: Front, command: Command) -> Result<Program, Broken> {
        let mut edge = Program::start(self.node, "edge", command)?;
        for address in front.listen(self.hosts) {
            await_port(self.node, address, &mut edge, self.interrupt)?;
        }
        Ok(edge)
    }
}

/// Writes the certificate and the key of each host, for edges.
pub(super) fn identities(
    authority: &Authority,
    hosts: &[String],
    folder: &Path,
) -> Result<Vec<(PathBuf, PathBuf)>, Failure> {
    std::fs::create_dir_all(folder).map_err(|error| {
        Failure::usage(format!("cannot write to {}: {error}", folder.display()))
    })?;
    hosts
        .iter()
        .map(|host: &String| {
            authority.issue(host).and_then(|identity| identity.store(authority, folder, host))
        })
        .collect::<Result<_, _>>()
        .map_err(|error| failed(&error))
}

/// Serves until the process ends.
fn serve(
    origin: SiteOrigin,
    addresses: Vec<SocketAddr>,
    over_tls: bool,
    node: &Node,
) -> Result<(), Failure> {
    site::start(origin, addresses, over_tls, Some(node), BEFORE_CHROMIUM).map(drop)
}

/// All addresses that a node with these fronts has.
pub(super) fn addresses(fronts: &[Front], hosts: usize) -> Vec<IpAddr> {
    fronts
        .iter()
        .flat_map(|front: &Front| {
            let front = *front;
            (0..hosts).map(move |host| IpAddr::from(front.address(host)))
        })
        .collect()
}
