//! The emulated network of a link, with everything in it but Chromium.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use headstart_emulation::{Host, Lab, LabOptions, Node, TorNetwork};
use headstart_openers::site::{Authority, Site, SiteOptions, SiteOrigin};

use super::agent::METRICS;
use super::arm::Arm;
use super::databases::PageLinks;
use super::experiment::BrowserLink;
use super::servers::{self, Edges, Front, addresses, identities};
use super::stale;
use crate::chromium;
use crate::interrupt::Interrupt;
use crate::lab::cell::{ClientSide, Counted, ServerSide};
use crate::lab::process::Program;
use crate::lab::topology::{FAST_OPEN, MTU_PROBING};
use crate::lab::tor;
use crate::network;
use crate::network::failed;
use headstart::base::failure::Failure;

/// Hosts of all sites at most: addresses of one network.
const HOSTS_MAX: usize = 250;

/// Loads come one after the other between the same addresses: what TCP learns of a path in one is
/// not to be known in the next (ip-sysctl: 1).
const NO_METRICS: (&str, &str) = ("/proc/sys/net/ipv4/tcp_no_metrics_save", "1");

/// Set on each node.
pub(super) const SYSCTLS: [(&str, &str); 3] = [NO_METRICS, FAST_OPEN, MTU_PROBING];

/// From when on the forwarder sends a packet late: a tenth of the shortest round trip. Loads have
/// thousands of packets, of which one that is late by less changes nothing.
pub(super) const LATE: Duration = Duration::from_millis(5);

/// Tor's name for the circuit of a stream that has none yet.
const NO_CIRCUIT: &str = "0";

const SERVER: &str = "server";

/// A node of its own: the kernel's program of Fast Open acts on a port of a whole interface.
const EDGE: &str = "edge";

/// State that all stages of a run share.
#[derive(Debug, Clone)]
pub(super) struct RunContext {
    /// This program.
    pub(super) program: PathBuf,
    /// Directory for keys, removed with the run.
    pub(super) work: PathBuf,
    /// Programs attached to the control group of agents, where the user is root.
    pub(super) fast_open: Option<Arc<ClientSide>>,
}

/// A link, clients behind it, and servers.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) lab: Lab,
    /// Names of all sites' hosts, and of such as they once had, in the order of their addresses.
    pub(super) hosts: Vec<String>,
    sites: Vec<Site>,
    authority: Authority,
    fingerprint: String,
    place: RunContext,
    interrupt: Interrupt,
    // The lock is needed only because one thread at a time may use a program.
    edges: Mutex<Vec<Program>>,
    /// The sites, by the front that leads to them.
    origins: BTreeMap<Front, SiteOrigin>,
    _fast_open: Option<ServerSide>,
    /// Between the clients and the sites; for one thread at a time.
    tor: Option<Mutex<TorNetwork>>,
}

impl Stage {
    /// Builds it; `number` is that of no other stage of the run.
    pub(super) fn build(
        place: &RunContext,
        link: &BrowserLink,
        number: usize,
        sites: &[Site],
        lanes: usize,
        interrupt: &Interrupt,
    ) -> Result<Self, Failure> {
        let own = sites.iter().flat_map(Site::hosts).map(|host| host.name.clone());
        let hosts: Vec<String> = own.chain(stale::former_hosts()).collect();
        if hosts.len() > HOSTS_MAX {
            return Err(Failure::usage(format!("{} hosts are more than {HOSTS_MAX}", hosts.len())));
        }
        let authority = Authority::new().map_err(|error| failed(&error))?;
        let fingerprint = authority.fingerprint().map_err(|error| failed(&error))?;
        let mut stage = Self {
            lab: build_lab(link, lanes, hosts.len())?,
            hosts,
            sites: sites.to_vec(),
            authority,
            fingerprint,
            place: place.clone(),
            interrupt: interrupt.clone(),
            edges: Mutex::default(),
            origins: BTreeMap::new(),
            _fast_open: None,
            tor: None,
        };
        let origin = stage.origin(SiteOptions::default())?;
        servers::origin(stage.node(SERVER)?, Front::Origin, &origin, stage.hosts.len())?;
        match link.tor {
            Some(_) => stage.tor = Some(Mutex::new(stage.start_tor(number)?)),
            None => stage.start_edges(&origin, number)?,
        }
        stage.origins.insert(Front::Origin, origin);
        Ok(stage)
    }

    fn start_tor(&self, number: usize) -> Result<TorNetwork, Failure> {
        let work = self.place.work.join(format!("tor-{number}"));
        let names = self.addresses(Front::Origin);
        tor::start(&self.lab, &client_name(0), &names, &work, &self.interrupt)
    }

    /// Hosts with their addresses at a front.
    fn addresses(&self, front: Front) -> Vec<(String, Ipv4Addr)> {
        let hosts = self.hosts.iter().enumerate();
        hosts.map(|(at, host): (usize, &String)| (host.clone(), front.address(at))).collect()
    }

    fn start_edges(&mut self, origin: &SiteOrigin, number: usize) -> Result<(), Failure> {
        let folder = self.place.work.join(format!("identities-{number}"));
        let identities = identities(&self.authority, &self.hosts, &folder)?;
        let (server, edge) = (self.node(SERVER)?, self.node(EDGE)?);
        let passing = self.edges_on(server).pass_through()?;
        let side =
            self.place.fast_open.as_ref().map(|_| {
                ServerSide::attach(&self.place.program, edge, &format!("browser-{number}"))
            });
        let side = side.transpose()?;
        let maps = side.as_ref().map(ServerSide::dir);
        let terminating = self.edges_on(edge).terminating(origin, &identities, maps)?;
        self.edges().extend([passing, terminating]);
        self._fast_open = side;
        Ok(())
    }

    /// Starts the sites whose documents say more.
    pub(super) fn hint(&mut self, front: Front, links: PageLinks) -> Result<(), Failure> {
        let early_hints = front.is_early();
        let origin = self.origin(SiteOptions { links, early_hints, ..SiteOptions::default() })?;
        let server = self.node(SERVER)?;
        if self.has_tor() {
            servers::origin(server, front, &origin, self.hosts.len())?;
        } else {
            let hinting = self.edges_on(server).hinting(front, &origin)?;
            self.edges().push(hinting);
        }
        self.origins.insert(front, origin);
        Ok(())
    }

    /// Through Tor, has the exit connect to the front of an arm, as names are the same for all.
    pub(super) fn lead(&self, arm: Arm) -> Result<(), Failure> {
        let Some(tor) = self.tor() else { return Ok(()) };
        let mapped = tor.map_addresses(&self.addresses(arm.hinting().unwrap_or(Front::Origin)));
        mapped.map_err(|error| Failure::usage(format!("Tor maps no addresses: {error}")))
    }

    fn origin(&self, options: SiteOptions) -> Result<SiteOrigin, Failure> {
        SiteOrigin::new(&self.sites, &self.authority, &options).map_err(|error| failed(&error))
    }

    fn edges(&self) -> MutexGuard<'_, Vec<Program>> {
        self.edges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn edges_on<'s>(&'s self, node: &'s Node) -> Edges<'s> {
        let (program, interrupt) = (self.place.program.as_path(), &self.interrupt);
        Edges { program, node, hosts: self.hosts.len(), interrupt }
    }

    fn node(&self, name: &str) -> Result<&Node, Failure> {
        self.lab.node(name).ok_or_else(|| Failure::usage(format!("the lab has no {name}")))
    }

    /// The node of a client. There is one Tor client, for all of them.
    pub(super) fn client(&self, lane: usize) -> Result<&Node, Failure> {
        self.node(&client_name(if self.has_tor() { 0 } else { lane }))
    }

    pub(super) const fn has_tor(&self) -> bool {
        self.tor.is_some()
    }

    /// Tor's names of the circuits that connections to a site are on now.
    pub(super) fn circuits(&self, site: &Site) -> BTreeSet<String> {
        // By the site's names, and by the addresses that the exit found.
        let own: HashSet<&str> = site.hosts().iter().map(|own| own.name.as_str()).collect();
        let known = Front::OF_SITES.into_iter().flat_map(|front| self.addresses(front));
        let known = known.filter(|(name, _)| own.contains(name.as_str()));
        let addresses: HashSet<String> = known.map(|(_, address)| address.to_string()).collect();
        let all = self.tor().and_then(|tor| tor.streams().ok()).unwrap_or_default();
        // One that waits for a circuit is on none: 0.
        all.into_iter()
            .filter(|stream| stream.circuit != NO_CIRCUIT)
            .filter(|stream| {
                let host = stream.target.rsplit_once(':').map_or("", |(host, _)| host);
                own.contains(host) || addresses.contains(host)
            })
            .map(|stream| stream.circuit)
            .collect()
    }

    fn tor(&self) -> Option<MutexGuard<'_, TorNetwork>> {
        self.tor.as_ref().map(|tor| tor.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) const fn place(&self) -> &RunContext {
        &self.place
    }

    /// Checks that edges, and Tor, still run.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.tor().is_some_and(|mut tor| !tor.is_running()) {
            return Err(tor::ended());
        }
        self.edges().iter_mut().try_for_each(Program::check).map_err(Failure::from)
    }

    /// Returns the handshakes counted by those who speak TLS with Chromium in this arm; `None` if
    /// they do not tell.
    pub(super) fn handshakes(&self, arm: Arm) -> Option<Counted> {
        if arm == Arm::ZeroRtt && !self.has_tor() {
            return Counted::read(self.lab.node(EDGE)?.namespace(), METRICS);
        }
        let origin = self.origins.get(&arm.hinting().unwrap_or(Front::Origin))?;
        let [all, resumed, early] = origin.handshakes();
        Some(Counted { full: all.saturating_sub(resumed), resumed, early, failed: 0 })
    }

    /// Returns Chromium's arguments about names and certificates.
    pub(super) fn arguments(&self, front: Front) -> Vec<String> {
        let mapped = self.addresses(front).into_iter();
        let mut rules: Vec<String> =
            mapped.map(|(host, address)| format!("MAP {host} {address}")).collect();
        // Nothing else answers, except for requests to this machine itself.
        rules.push("MAP * ~NOTFOUND".into());
        rules.push("EXCLUDE 127.0.0.1".into());
        vec![
            format!("--host-resolver-rules={}", rules.join(", ")),
            chromium::trusting(&self.fingerprint),
            chromium::DIRECT.into(),
        ]
    }

    /// Returns the arguments of a Chromium that finds everything but this machine through a proxy.
    pub(super) fn proxied(&self, proxy: &str) -> Vec<String> {
        vec![format!("--proxy-server={proxy}"), chromium::trusting(&self.fingerprint)]
    }
}

fn build_lab(link: &BrowserLink, lanes: usize, hosts: usize) -> Result<Lab, Failure> {
    let mut nodes = Vec::new();
    for lane in 0..if link.tor.is_some() { 1 } else { lanes } {
        let path = link.path.parse().map_err(|error| {
            Failure::usage(format!("link '{}': '{}': {error}", link.name, link.path))
        })?;
        nodes.push(Host::new(client_name(lane)).path(path));
    }
    let behind = link.tor.map_or(Duration::ZERO, |tor| tor.origin);
    nodes.push(server(SERVER, behind, &Front::OF_SITES, hosts));
    match link.tor {
        None => nodes.push(server(EDGE, behind, &[Front::Terminating], hosts)),
        Some(tor) => nodes.extend(TorNetwork::hosts(tor.relay)),
    }
    // Chromium needs every processor, so the forwarder has none reserved.
    let options = LabOptions { late: LATE, pinned: false, ..LabOptions::default() };
    let lab = Lab::build_with(nodes, options).map_err(|error| network::not_built(&error))?;
    for node in lab.nodes() {
        for (file, value) in SYSCTLS {
            node.run(|| std::fs::write(file, value)).flatten().map_err(|error| {
                Failure::usage(format!("cannot set {file} on {}: {error}", node.name()))
            })?;
        }
    }
    Ok(lab)
}

fn server(name: &str, delay: Duration, fronts: &[Front], hosts: usize) -> Host {
    let host = Host::new(name).delay(delay);
    addresses(fronts, hosts).into_iter().fold(host, Host::address)
}

fn client_name(lane: usize) -> String {
    format!("client-{}", lane + 1)
}
