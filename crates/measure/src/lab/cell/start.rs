//! Starting the programs of a cell.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use headstart_emulation::{IP_COMMANDS, Node};
use headstart_openers::{Arm, NAME, OTHER_NAME, OpeningPolicy};
use serde::Deserialize;

use super::agent::Agent;
use super::fast_open::ServerSide;
use super::setting::{RunContext, Setting, option};
use super::{Cell, Client, LoadTotals, ech, origin};
use crate::interrupt::Interrupt;
use crate::lab::experiment::OriginKind;
use crate::lab::listening::{READY, await_port};
use crate::lab::page::{self, StagePage};
use crate::lab::plan::Stage;
use crate::lab::process::{Broken, Program};
use crate::lab::topology::{LinkEffects, Site, Topology};

/// Message of a server that is ready.
#[derive(Debug, Clone, Deserialize)]
struct Ready {
    ready: bool,
    flight_bytes: Option<u64>,
    ech_config_list: Option<String>,
}

/// Starts all cells of a stage. A cell whose programs do not start is marked as broken.
///
/// # Errors
/// The user interrupted.
pub(crate) fn begin(
    place: &RunContext,
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
                predecessors: Vec::new(),
                fast_open: Vec::new(),
                cases: Vec::new(),
                trials: 0,
                trial: 1,
                turns: 0,
                turn: 0,
                links: LinkEffects::default(),
                load: LoadTotals::default(),
                openings: BTreeMap::new(),
                page_loads: Vec::new(),
                flight_bytes: None,
                ech_config_list: None,
                broken: None,
            }
        })
        .collect();
    // All are started before the first is awaited, so that they make their keys in parallel.
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
                self.servers.push(self.setting.edge(site, 0, maps, interrupt)?);
            }
        }
        if let Some(node) = topology.haproxy() {
            self.servers.push(self.setting.balancer(node, interrupt)?);
        }
        Ok(())
    }

    fn start_clients(&mut self, topology: &Topology, interrupt: &Interrupt) -> Result<(), Broken> {
        if self.spec.arm.is_of_programs() {
            return self.start_workload(topology, interrupt);
        }
        let setting = &self.setting;
        for node in topology.clients() {
            if self.spec.arm.has_haproxy() {
                let (listen, to) = (Agent::listen(setting.number), setting.target());
                self.servers.push(setting.proxy(node, listen, to, interrupt)?);
            }
            let has_agent = self.spec.arm.has_agent();
            let agent = has_agent.then(|| setting.agent(node, interrupt)).transpose()?;
            let program = setting.client(node, self.ech_config_list.as_deref())?;
            self.clients.push(Client { program, agent });
        }
        Ok(())
    }
}

impl Setting {
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
        // A page has many servers, and one client sends little to each.
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
        let proxy = self.spec.arm.has_haproxy().then(|| Agent::listen(self.number));
        command.arg("--to").arg(proxy.unwrap_or_else(|| self.target()).to_string());
        self.targets().skip(1).for_each(|also| option(&mut command, "--also", Some(also)));
        command.arg("--timeout").arg(self.stage.timeout.as_secs_f64().to_string());
        if self.spec.arm.has_agent() {
            command.arg("--proxy").arg(Agent::listen(self.number).to_string());
        } else {
            self.log(&mut command);
            option(&mut command, "--slots", self.stage.variant.slots);
            option(&mut command, "--grace", self.stage.variant.grace);
            option(&mut command, "--policy", self.stage.variant.policy);
        }
        let program = Program::start(node, self.title("client"), command)?;
        // It has no socket yet; those that it makes will belong to this group.
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
        let written = written.and_then(|text| std::fs::write(&file, text));
        written.map_err(|error| Broken::unwritten(&file, &error))?;
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

    /// Has a program write qlog files, if they are wanted.
    fn log(&self, command: &mut Command) {
        option(command, "--qlog", self.place.qlog.as_deref().map(Path::display));
    }

    /// An edge; `turn` tells edges that take over from each other apart.
    pub(super) fn edge(
        &self,
        site: Site<'_>,
        turn: u32,
        maps: Option<&Path>,
        interrupt: &Interrupt,
    ) -> Result<Program, Broken> {
        if self.spec.arm.is_of_programs() {
            return self.site_edge(site, interrupt);
        }
        let (node, listen) = (site.node, self.edge_address());
        if self.spec.arm.has_haproxy() {
            return self.proxy(node, listen, self.origin_address(site), interrupt);
        }
        let side = self.place.fast_open.as_ref().filter(|_| self.spec.arm.resumes_carefully());
        let program = &self.place.program;
        let mut command =
            side.map_or_else(|| node.command(program), |side| side.command(node, program));
        command.args(["edge", "--log", "error", "--listen", &listen.to_string()]);
        if side.is_some() {
            command.arg("--careful-resume");
        }
        self.log(&mut command);
        if self.spec.arm == Arm::FOP_AGENT {
            return self.terminating_edge(site, command, maps, interrupt);
        }
        let origin = self.origin_address(site).to_string();
        // All that an edge can see of an encrypted ClientHello is the outer name: it has no other
        // origin.
        let name = self.spec.arm.encrypts_hello().then_some(ech::OUTER_NAME);
        command.arg("--origin").arg(name.map_or(origin.clone(), |name| format!("{name}={origin}")));
        if self.spec.arm.sends_early_data() {
            command.arg("--early-data");
        }
        option(&mut command, "--udp-workers", self.stage.variant.udp_workers);
        option(&mut command, "--workers", self.stage.variant.threads);
        self.know_others(&mut command, site)?;
        let metrics = self.successor_metrics(turn);
        option(&mut command, "--metrics", metrics);
        self.schedule(&mut command);
        let mut edge = Program::start(node, self.title("edge"), command)?;
        await_port(node, metrics.unwrap_or(listen), &mut edge, interrupt)?;
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
        self.log(&mut command);
        for name in [NAME, OTHER_NAME] {
            command.args(["--edge", &format!("{name}={}", self.target())]);
        }
        let usual = match self.spec.arm {
            Arm::FOP_AGENT => OpeningPolicy::Fop,
            Arm::TLS13_AGENT => OpeningPolicy::Plain,
            _ => OpeningPolicy::Auto,
        };
        let policy = self.stage.variant.policy.unwrap_or(usual);
        command.args(["--opening", policy.name()]);
        self.schedule(&mut command);
        let agent = Agent::start(node, self.title("agent"), command, self.number, interrupt)?;
        self.take(agent.program())?;
        Ok(agent)
    }
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
                let error = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                if error.contains(NOTHING_THERE) {
                    return Ok(());
                }
                return Err(Broken::Program(format!("ip {}: {error}", arguments.join(" "))));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Broken::Program(format!("{program}: {error}"))),
        }
    }
    Err(Broken::Program("the command `ip` was not found".into()))
}
