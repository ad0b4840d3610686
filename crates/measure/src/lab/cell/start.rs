//! Starting the programs of a cell.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use headstart_emulation::{IP_COMMANDS, Node};
use headstart_openers::{Arm, Identity, NAME, OpeningPolicy, Suite};
use serde::Deserialize;

use super::fast_open::{ClientSide, ServerSide};
use super::{Cell, Client, LinkActs, LoadTotals, ech, origin};
use crate::interrupt::Interrupt;
use crate::lab::experiment::OriginKind;
use crate::lab::page::{self, StagePage};
use crate::lab::plan::{CellSpec, Stage};
use crate::lab::process::{Broken, Program};
use crate::lab::topology::{HTTPS, Site, Topology};

mod agent;

pub(crate) use agent::{Agent, Counts, scrape};

/// Port of the server behind an edge.
const BEHIND: u16 = 8443;

/// Time that a program may take until it is ready: making keys on a busy machine takes the most.
const READY: Duration = Duration::from_secs(30);

/// Interval at which a daemon is asked whether it listens.
const ASK: Duration = Duration::from_millis(5);

/// State that programs share over the whole run.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// The product, `headstart`.
    pub(crate) program: PathBuf,
    /// This program, which is every peer.
    pub(crate) peer: PathBuf,
    /// A folder for keys and configurations, which goes away with the run.
    pub(crate) work: PathBuf,
    /// Programs attached for clients with private cookies, if there are any.
    pub(crate) fast_open: Option<Arc<ClientSide>>,
}

/// All that starting a program of a cell depends on.
#[derive(Debug, Clone)]
pub(super) struct Setting {
    place: Place,
    pub(super) stage: Stage,
    pub(super) spec: CellSpec,
    pub(super) number: usize,
    /// At least one.
    targets: Vec<Ipv4Addr>,
}

/// Message of a server that is ready.
#[derive(Debug, Clone, Deserialize)]
struct Ready {
    ready: bool,
    flight_bytes: Option<u64>,
    ech_config_list: Option<String>,
}

/// Starts all cells of a stage. A cell whose programs do not start is broken, and says so.
///
/// # Errors
/// The user interrupted.
pub(crate) fn begin(
    place: &Place,
    stage: &Stage,
    topology: &Topology,
    interrupt: &Interrupt,
) -> Result<Vec<Cell>, Broken> {
    let mut cells: Vec<_> = stage
        .cells
        .iter()
        .enumerate()
        .map(|(number, spec)| {
            let targets = topology.targets(number);
            let (place, stage) = (place.clone(), stage.clone());
            let setting = Setting { place, stage, spec: *spec, number, targets };
            Cell {
                spec: *spec,
                setting,
                clients: Vec::new(),
                workload: None,
                servers: Vec::new(),
                fast_open: Vec::new(),
                cases: Vec::new(),
                trials: 0,
                trial: 1,
                turns: 0,
                turn: 0,
                links: LinkActs::default(),
                load: LoadTotals::default(),
                page_loads: Vec::new(),
                flight_bytes: None,
                ech_config_list: None,
                broken: None,
            }
        })
        .collect();
    // All are begun before any is waited for: they make their keys side by side.
    for step in [Cell::start_servers, Cell::await_servers, Cell::start_edges, Cell::start_clients] {
        for cell in &mut cells {
            if cell.broken.is_none() {
                let done = step(cell, topology, interrupt);
                cell.note(done)?;
            }
        }
    }
    Ok(cells)
}

impl Cell {
    fn start_servers(&mut self, topology: &Topology, _: &Interrupt) -> Result<(), Broken> {
        let setting = &self.setting;
        for site in topology.servers(setting.number) {
            if setting.spec.arm.has_private_cookies() {
                let (program, label) = (&setting.place.program, setting.pins(site.node));
                self.fast_open.push(ServerSide::attach(program, site.node, &label)?);
            }
            // Another kind of server takes its keys from the identity, which a server of the lab
            // makes.
            if setting.stage.variant.origin == OriginKind::Builtin {
                let maps = self.fast_open.last().map(|side| side.dir.as_path());
                self.servers.push(setting.server(site, maps)?);
            }
        }
        Ok(())
    }

    fn await_servers(&mut self, topology: &Topology, interrupt: &Interrupt) -> Result<(), Broken> {
        for server in &mut self.servers {
            let line = server.line(READY, interrupt)?;
            let ready = serde_json::from_str(&line.text).ok().filter(|ready: &Ready| ready.ready);
            let Some(ready) = ready else { return Err(server.nonsense(&line.text)) };
            self.flight_bytes = ready.flight_bytes;
            self.ech_config_list = ready.ech_config_list;
        }
        let setting = &self.setting;
        if setting.stage.variant.origin != OriginKind::Builtin {
            for site in topology.servers(setting.number) {
                let listen = setting.origin_address(site);
                self.servers.push(origin::start(setting, site.node, listen, interrupt)?);
            }
        }
        Ok(())
    }

    fn start_edges(&mut self, topology: &Topology, interrupt: &Interrupt) -> Result<(), Broken> {
        if self.setting.has_edge() {
            for (number, site) in topology.servers(self.setting.number).enumerate() {
                let maps = self.fast_open.get(number).map(|side| side.dir.as_path());
                self.servers.push(self.setting.edge(site, maps, interrupt)?);
            }
        }
        Ok(())
    }

    fn start_clients(&mut self, topology: &Topology, interrupt: &Interrupt) -> Result<(), Broken> {
        if self.spec.arm.is_of_programs() {
            return self.start_workload(topology, interrupt);
        }
        let setting = &self.setting;
        for node in topology.clients() {
            let has_agent = self.spec.arm.has_agent();
            let agent = has_agent.then(|| setting.agent(node, interrupt)).transpose()?;
            let program = setting.client(node, self.ech_config_list.as_deref())?;
            self.clients.push(Client { program, agent });
        }
        Ok(())
    }
}

impl Setting {
    /// The folder of keys: servers of one suite and flight are the same one.
    fn identities(&self) -> PathBuf {
        self.place.work.join(if self.stage.page.is_some() { "pages" } else { "identities" })
    }

    /// The keys of this cell's servers, for servers of other making.
    pub(super) fn identity(&self) -> Result<Identity, Broken> {
        let flight = self.stage.variant.flight.and_then(|bytes| usize::try_from(bytes).ok());
        Identity::obtain(&self.identities(), self.spec.suite, NAME, flight)
            .map_err(|error| Broken::Program(format!("no keys: {error}")))
    }

    /// This program.
    pub(super) fn program(&self) -> &Path {
        &self.place.program
    }

    pub(super) fn work(&self) -> &Path {
        &self.place.work
    }

    pub(super) fn response(&self) -> u64 {
        self.stage.response
    }

    pub(super) fn kind(&self) -> OriginKind {
        self.stage.variant.origin
    }

    pub(super) fn threads(&self) -> Option<u16> {
        self.stage.variant.threads
    }

    pub(super) fn suite(&self) -> Suite {
        self.spec.suite
    }

    /// Unique among the programs of a lab.
    pub(super) fn label(&self, node: &Node) -> String {
        format!("{}-{}", node.name(), self.number + 1)
    }

    /// Where pins for a server are, in a run.
    fn pins(&self, node: &Node) -> String {
        format!("{}-{}", self.stage.number + 1, node.name())
    }

    /// Where clients connect to: the first address.
    pub(super) fn target(&self) -> SocketAddr {
        let ip = self.targets.first().copied().unwrap_or(Ipv4Addr::UNSPECIFIED);
        (ip, HTTPS).into()
    }

    /// All addresses that clients connect to.
    pub(super) fn targets(&self) -> impl Iterator<Item = SocketAddr> {
        self.targets.iter().map(|ip| (*ip, HTTPS).into())
    }

    /// Where the origin is: behind an edge, or where clients connect to.
    pub(super) fn origin_address(&self, site: Site<'_>) -> SocketAddr {
        if self.has_edge() { (site.own, BEHIND).into() } else { self.target() }
    }

    /// Returns true if there is an edge before the origin.
    fn has_edge(&self) -> bool {
        let has_edge = matches!(self.spec.arm, Arm::TURBO_AGENT | Arm::TURBO_ECH | Arm::FOP_AGENT);
        has_edge || self.spec.arm.is_of_programs()
    }

    /// The arm that a program itself has: beside an agent clients speak plain TLS, and servers too
    /// where they speak it at all.
    fn spoken(&self, role: &str) -> Arm {
        match (self.spec.arm, role) {
            (Arm::TURBO_AGENT, _) => Arm::TLS13,
            (Arm::FOP_AGENT, "client") => Arm::TLS13_RESUMED,
            // The one whose server speaks HTTP in clear.
            (arm, "server") if arm.is_of_programs() => Arm::FOP_AGENT,
            (arm, _) => arm,
        }
    }

    fn server(&self, site: Site<'_>, maps: Option<&Path>) -> Result<Program, Broken> {
        let (node, listen) = (site.node, self.origin_address(site));
        if self.spec.arm.encrypts_hello() {
            return ech::start(self, node, listen);
        }
        let mut command = self.peer(node, "server");
        command.arg("--listen").arg(listen.to_string());
        option(&mut command, "--name", self.stage.page.as_ref().map(|_| page::NAMES));
        if !self.has_edge() {
            self.targets().skip(1).for_each(|also| option(&mut command, "--also", Some(also)));
            option(&mut command, "--fast-open-maps", maps.map(Path::display));
            option(&mut command, "--cookie-life", self.cookie_life());
        }
        option(&mut command, "--flight", self.stage.variant.flight);
        option(&mut command, "--threads", self.stage.variant.threads);
        // A page's servers are many, and one client has little for each.
        let usual = self.stage.page.as_ref().map(|_| 1);
        option(&mut command, "--udp-workers", self.stage.variant.udp_workers.or(usual));
        Program::start(node, self.title("server"), command)
    }

    pub(super) fn client(&self, node: &Node, ech: Option<&str>) -> Result<Program, Broken> {
        if let Some(page) = &self.stage.page {
            return self.page_client(node, page);
        }
        let mut command = self.peer(node, "client");
        option(&mut command, "--ech", ech);
        command.arg("--to").arg(self.target().to_string());
        self.targets().skip(1).for_each(|also| option(&mut command, "--also", Some(also)));
        command.arg("--timeout").arg(self.stage.timeout.as_secs_f64().to_string());
        if self.spec.arm.has_agent() {
            command.arg("--proxy").arg(Agent::listen(self.number).to_string());
        } else {
            option(&mut command, "--slots", self.stage.variant.slots);
            option(&mut command, "--grace", self.stage.variant.grace);
            option(&mut command, "--policy", self.stage.variant.policy);
        }
        let program = Program::start(node, self.title("client"), command)?;
        // It has no socket yet: those it makes are of this group.
        if !self.spec.arm.has_agent() {
            self.take(&program)?;
        }
        Ok(program)
    }

    /// A client that loads the page of the stage from this cell's servers.
    fn page_client(&self, node: &Node, page: &StagePage) -> Result<Program, Broken> {
        let file =
            self.place.work.join(format!("{}-{}.json", self.stage.number + 1, self.label(node)));
        let plan = page.plan(&self.targets().collect::<Vec<_>>());
        let written = serde_json::to_vec(&plan).map_err(io::Error::other);
        written.and_then(|text| std::fs::write(&file, text)).map_err(|error| {
            Broken::Program(format!("cannot write {}: {error}", file.display()))
        })?;
        let mut command = self.peer(node, "page");
        command.arg("--plan").arg(file);
        command.arg("--timeout").arg(self.stage.timeout.as_secs_f64().to_string());
        let program = Program::start(node, self.title("client"), command)?;
        self.take(&program)?;
        Ok(program)
    }

    /// Takes a program that opens connections among those that may have cookies, if this arm has
    /// any.
    fn take(&self, program: &Program) -> Result<(), Broken> {
        let side = self.place.fast_open.as_ref();
        let side = side.filter(|_| self.spec.arm.has_private_cookies());
        side.map_or(Ok(()), |side| side.take(program))
    }

    /// For servers that hand out cookies.
    fn cookie_life(&self) -> Option<String> {
        let life = self.stage.variant.cookie_life;
        let life = life.filter(|_| self.spec.arm.has_private_cookies());
        life.map(|life| format!("{}s", life.as_secs()))
    }

    fn peer(&self, node: &Node, role: &str) -> Command {
        let mut command = node.command(&self.place.peer);
        command.args(["lab", "peer", role, "--arm", self.spoken(role).name()]);
        command.args(["--suite", self.spec.suite.name(), "--identity"]).arg(self.identities());
        self.schedule(&mut command);
        command
    }

    /// Makes a program go before others, where one connection at a time leaves it asleep most of
    /// the time.
    pub(super) fn schedule(&self, command: &mut Command) {
        if let Some(scheduling) = self.stage.scheduling(self.number) {
            scheduling.apply_to(command);
        }
    }

    fn edge(
        &self,
        site: Site<'_>,
        maps: Option<&Path>,
        interrupt: &Interrupt,
    ) -> Result<Program, Broken> {
        if self.spec.arm.is_of_programs() {
            return self.site_edge(site, interrupt);
        }
        let (node, listen) = (site.node, self.target());
        let mut command = node.command(&self.place.program);
        command.args(["edge", "--log", "error", "--listen", &listen.to_string()]);
        if self.spec.arm == Arm::FOP_AGENT {
            return self.terminating_edge(site, command, maps, interrupt);
        }
        let origin = self.origin_address(site).to_string();
        // All that an edge can see of an encrypted ClientHello is the outer name: it has no other
        // origin.
        let name = self.spec.arm.encrypts_hello().then_some(ech::OUTER_NAME);
        command.arg("--origin").arg(name.map_or(origin.clone(), |name| format!("{name}={origin}")));
        option(&mut command, "--udp-workers", self.stage.variant.udp_workers);
        option(&mut command, "--workers", self.stage.variant.threads);
        self.schedule(&mut command);
        let mut edge = Program::start(node, self.title("edge"), command)?;
        await_port(node, listen, &mut edge, interrupt)?;
        Ok(edge)
    }

    /// An edge that speaks TLS itself and hands out cookies, before an origin that speaks HTTP in
    /// clear.
    fn terminating_edge(
        &self,
        site: Site<'_>,
        mut command: Command,
        maps: Option<&Path>,
        interrupt: &Interrupt,
    ) -> Result<Program, Broken> {
        let identity = self.identity()?;
        command.arg("--origin").arg(format!("http://{}", self.origin_address(site)));
        command.arg("--cert").arg(identity.chain_file());
        command.arg("--key").arg(identity.key_file());
        command.args(["--min-tls", "1.3"]);
        if let Some(maps) = maps {
            command.args(["--fast-open", "--fast-open-maps"]).arg(maps);
        }
        option(&mut command, "--workers", self.stage.variant.threads);
        self.schedule(&mut command);
        let mut edge = Program::start(site.node, self.title("edge"), command)?;
        await_port(site.node, self.target(), &mut edge, interrupt)?;
        Ok(edge)
    }

    pub(super) fn agent(&self, node: &Node, interrupt: &Interrupt) -> Result<Agent, Broken> {
        let mut command = node.command(&self.place.program);
        command.args(["agent", "--log", "error"]);
        command.args(["--edge", &format!("{NAME}={}", self.target())]);
        let usual =
            if self.spec.arm == Arm::FOP_AGENT { OpeningPolicy::Fop } else { OpeningPolicy::Auto };
        let policy = self.stage.variant.policy.unwrap_or(usual);
        command.args(["--opening", policy.name()]);
        self.schedule(&mut command);
        let agent = Agent::start(node, self.title("agent"), command, self.number, interrupt)?;
        self.take(agent.program())?;
        Ok(agent)
    }

    /// Returns the name of a program in messages.
    pub(super) fn title(&self, role: &str) -> String {
        format!("{role} of {} {}", self.spec.arm, self.spec.suite)
    }
}

fn option(command: &mut Command, name: &str, value: Option<impl ToString>) {
    if let Some(value) = value {
        command.arg(name).arg(value.to_string());
    }
}

/// Waits until something listens at `address` of `node`.
pub(crate) fn await_port(
    node: &Node,
    address: SocketAddr,
    program: &mut Program,
    interrupt: &Interrupt,
) -> Result<(), Broken> {
    let until = Instant::now() + READY;
    // Looked up and not tried, as a connection would be one of those that an agent counts.
    let listens =
        || std::fs::read_to_string(LISTENERS).is_ok_and(|text| is_listener(&text, address));
    while !node.run(listens).unwrap_or(false) {
        program.check()?;
        if interrupt.is_set() {
            return Err(Broken::Interrupted);
        }
        if Instant::now() > until {
            return Err(program.nonsense(&format!("nothing at {address} for {READY:?}")));
        }
        std::thread::sleep(ASK);
    }
    Ok(())
}

/// The sockets of the calling thread's namespace over IPv4 (proc_pid_net(5)).
const LISTENERS: &str = "/proc/thread-self/net/tcp";

/// TCP_LISTEN of the kernel's include/net/tcp_states.h, in hexadecimal.
const LISTENING: &str = "0A";

/// Returns true if a line of [`LISTENERS`] is of a socket that listens at this address, or at all
/// of this port.
fn is_listener(text: &str, address: SocketAddr) -> bool {
    let IpAddr::V4(ip) = address.ip() else { return false };
    // An address is written as the machine would show its four bytes as one number.
    let ip = u32::from_ne_bytes(ip.octets());
    let wanted = [ip, 0].map(|ip| format!("{ip:08X}:{:04X}", address.port()));
    text.lines().skip(1).any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let local = fields.next().unwrap_or_default();
        wanted.iter().any(|wanted| wanted == local) && fields.nth(1) == Some(LISTENING)
    })
}

/// Error of `ip` where there is nothing to flush: ESRCH.
const NOTHING_THERE: &str = "No such process";

/// The kernel's Fast Open cookies for one address, and the metrics of TCP beside which it keeps
/// them.
pub(super) fn forget_cookies(node: &Node, target: IpAddr) -> Result<(), Broken> {
    ip(node, &["tcp_metrics", "flush", &target.to_string()])
}

/// Runs a command of `ip` on a node.
pub(super) fn ip(node: &Node, arguments: &[&str]) -> Result<(), Broken> {
    for program in IP_COMMANDS {
        match node.command(program).args(arguments).output() {
            Ok(output) if output.status.success() => return Ok(()),
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                if said.contains(NOTHING_THERE) {
                    return Ok(());
                }
                return Err(Broken::Program(format!("ip {}: {said}", arguments.join(" "))));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Broken::Program(format!("{program}: {error}"))),
        }
    }
    Err(Broken::Program("the command `ip` was not found".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_seen_without_a_connection() {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let text = std::fs::read_to_string(LISTENERS).unwrap();
        assert!(is_listener(&text, address));
        assert!(!is_listener(&text, SocketAddr::new([127, 0, 0, 9].into(), address.port())));
        // A connection is none.
        let header = "  sl  local_address rem_address   st\n";
        let line = |state| format!("{header}   0: 0100007F:01BB 00000000:0000 {state} 0:0");
        let https = ([127, 0, 0, 1], 443).into();
        if cfg!(target_endian = "little") {
            assert!(is_listener(&line("0A"), https) && !is_listener(&line("01"), https));
        }
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err(), "nobody connected");
    }
}
