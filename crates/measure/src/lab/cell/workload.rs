//! Workloads of unmodified programs: each connection is a run of one program, to one of several
//! virtual hosts behind edges.
//!
//! The outcome of a handshake comes from the edges' counters, not from the program.

mod programs;
mod site;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use headstart_emulation::{Namespace, Node};
use headstart_openers::{Carrier, Trial};
use serde::Serialize;

use super::agent::{Agent, Counts};
use super::case::wait;
use super::counted::Counted;
use super::setting::Setting;
use super::{Cell, Context, PATIENCE, Timed, no_client};
use crate::interrupt::Interrupt;
use crate::lab::listening::NO_EARLY_DATA;
use crate::lab::process::{Broken, Program, cpu_of_children};
use crate::lab::topology::Topology;
use crate::lab::trial::{failed, rounded};
use crate::lab::workload::{Application, Handshakes, Seen, Visit, Way};

use programs::Received;
pub(crate) use programs::{check, versions};

/// Time that an edge may take to count a handshake whose program has ended.
const COUNTED: Duration = Duration::from_secs(2);

/// Interval between two readings of its counters in that time.
const ASK: Duration = Duration::from_millis(5);

/// The clients of a cell.
#[derive(Debug)]
pub(super) struct Workload {
    visits: Vec<Visit>,
    agent: Option<Agent>,
    /// The agent's socket, removed with the agent.
    socket: PathBuf,
    /// Reverse proxies, which run for the whole cell.
    proxies: BTreeMap<Application, Program>,
    /// Namespaces of the edges, and the addresses of their metrics.
    edges: Vec<(Namespace, SocketAddr)>,
    counted: Counted,
    handshakes: Handshakes,
    done: Vec<Visited>,
}

/// A connection of a workload, as it stands in results.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Visited {
    #[serde(flatten)]
    visit: Visit,
    ms: Option<f64>,
    full: u64,
    resumed: u64,
}

/// Processor time so far.
#[derive(Debug, Clone, Copy)]
struct Used {
    clients: Duration,
    servers: Duration,
}

impl Cell {
    /// Starts the agent, if sessions are shared, and the reverse proxies.
    pub(super) fn start_workload(
        &mut self,
        topology: &Topology,
        interrupt: &Interrupt,
    ) -> Result<(), Broken> {
        let setting = &self.setting;
        let node = topology.clients().next().ok_or_else(no_client)?;
        setting.write_programs()?;
        let socket = setting.socket();
        let shares = self.spec.arm.shares_sessions();
        let agent = shares.then(|| setting.sharing_agent(node, &socket, interrupt)).transpose()?;
        let mut proxies = BTreeMap::new();
        for program in setting.programs().filter(|program| program.way() == Way::OwnSessions) {
            proxies.insert(program, setting.reverse_proxy(node, program, interrupt)?);
        }
        let edges = topology.servers(setting.number);
        let edges = edges.map(|site| (site.node.namespace().clone(), setting.edge_metrics()));
        let mut workload = Workload {
            visits: Vec::new(),
            agent,
            socket,
            proxies,
            edges: edges.collect(),
            counted: Counted::default(),
            handshakes: Handshakes::default(),
            done: Vec::new(),
        };
        if self.spec.arm.sends_early_data() {
            // The edges are ready, and so began before.
            wait(interrupt, NO_EARLY_DATA)?;
        }
        workload.counted = workload.count()?;
        self.workload = Some(workload);
        Ok(())
    }

    /// Makes the connection of this round.
    pub(super) fn visit(
        &mut self,
        context: Context<'_>,
        round: u32,
        rows: &mut Vec<Timed>,
    ) -> Result<(), Broken> {
        self.trials += 1;
        let Self { workload: Some(workload), setting, servers, load, .. } = self else {
            return Err(no_client());
        };
        servers.iter_mut().try_for_each(Program::check)?;
        workload.check()?;
        if workload.visits.is_empty() {
            workload.visits = context.stage.workload(context.seed);
        }
        let number = usize::try_from(round.saturating_sub(1)).unwrap_or(usize::MAX);
        let Some(visit) = workload.visits.get(number).copied() else { return Err(no_client()) };
        let node = context.topology.clients().next().ok_or_else(no_client)?;
        let opened = workload.counts_of_agent(visit.program)?;
        let before = workload.used(servers);
        let from = Instant::now();
        let mut trial = setting.visit(node, visit, workload, context)?;
        let to = Instant::now();
        // The packets that close the connection are still under way.
        thread::sleep(context.stage.link.rtt);
        let after = workload.used(servers);
        load.connections += 1;
        load.client_cpu += after.clients.saturating_sub(before.clients);
        load.server_cpu += after.servers.saturating_sub(before.servers);
        workload.take_counts(visit, opened, &mut trial)?;
        rows.push(Timed { row: self.row(context, self.trials, round, trial), from, to });
        Ok(())
    }

    /// Returns the outcome of its handshakes, if its clients are programs.
    pub(crate) fn handshakes(&self, seen: Option<Seen>) -> Option<Handshakes> {
        let workload = self.workload.as_ref()?;
        Some(Handshakes { seen, ..workload.handshakes.clone() })
    }

    /// Returns its connections one by one, if its clients are programs.
    pub(crate) fn visited(&self) -> &[Visited] {
        self.workload.as_ref().map_or(&[], |workload| &workload.done)
    }
}

impl Setting {
    /// Makes one connection, from the start of a program to its exit.
    fn visit(
        &self,
        node: &Node,
        visit: Visit,
        workload: &Workload,
        context: Context<'_>,
    ) -> Result<Trial, Broken> {
        let begun = Instant::now();
        let received = match visit.program.way() {
            Way::OwnSessions => self.fetch_through_proxy(node, visit.program),
            _ => self.run(node, visit, &workload.socket, context.interrupt)?,
        };
        let ms =
            |moment: Instant| rounded(moment.saturating_duration_since(begun).as_secs_f64() * 1e3);
        let took = ms(Instant::now());
        Ok(match received {
            Ok(Received { bytes, first }) if bytes == self.stage.response => Trial {
                ok: true,
                // Unless an agent says otherwise.
                opening: Carrier::Tcp,
                ms_to_first_response_byte: first.map(ms),
                ms_to_last_response_byte: Some(took),
                bytes,
                ..Trial::default()
            },
            Ok(Received { bytes, .. }) => {
                failed(format!("{}: {bytes} bytes", visit.program.name()))
            }
            Err(why) => failed(format!("{}: {why}", visit.program.name())),
        })
    }

    /// Returns the time after which a program counts as hung and is killed.
    fn patience(&self) -> Duration {
        self.stage.timeout + PATIENCE
    }
}

impl Workload {
    fn check(&mut self) -> Result<(), Broken> {
        self.agent.as_mut().map_or(Ok(()), Agent::check)?;
        self.proxies.values_mut().try_for_each(Program::check)
    }

    fn used(&self, servers: &[Program]) -> Used {
        let agent = self.agent.as_ref().and_then(Agent::run_time);
        let proxies = self.proxies.values().filter_map(Program::run_time);
        let clients = cpu_of_children().into_iter().chain(agent).chain(proxies).sum();
        Used { clients, servers: servers.iter().filter_map(Program::run_time).sum() }
    }

    /// The agent's counts of connections, if it opens those of this program.
    fn counts_of_agent(&mut self, program: Application) -> Result<Option<Counts>, Broken> {
        let agent = self.agent.as_mut().filter(|_| program.way() != Way::OwnSessions);
        agent.map(Agent::counts).transpose()
    }

    /// Adds to `trial` the edges' counts since the last one, and its opening by the agent, whose
    /// counts were `opened`.
    fn take_counts(
        &mut self,
        visit: Visit,
        opened: Option<Counts>,
        trial: &mut Trial,
    ) -> Result<(), Broken> {
        if let (Some(agent), Some(before), true) = (&mut self.agent, opened, trial.ok) {
            agent.tell_opening(&before, trial)?;
        }
        let until = Instant::now() + COUNTED;
        let mut now = self.count()?;
        while trial.ok && now == self.counted && Instant::now() < until {
            thread::sleep(ASK);
            now = self.count()?;
        }
        let new = now.since(self.counted);
        let Counted { full, resumed, early, .. } = new;
        self.counted = now;
        self.handshakes.add(visit.program, new);
        trial.resumed = resumed > 0 && full == 0;
        trial.early_data = early > 0;
        if trial.ok && full + resumed != 1 {
            trial.reason = format!("{} handshakes", full + resumed);
        }
        let ms = trial.ms_to_last_response_byte;
        self.done.push(Visited { visit, ms, full, resumed });
        Ok(())
    }

    /// Returns the counts of the edges so far.
    fn count(&self) -> Result<Counted, Broken> {
        self.edges.iter().try_fold(Counted::default(), |all, (namespace, metrics)| {
            let one = Counted::read(namespace, *metrics);
            Ok(all.and(
                one.ok_or_else(|| {
                    Broken::Program(format!("the edge at {metrics} has no metrics"))
                })?,
            ))
        })
    }
}

/// Removes the agent's files: a killed agent does not.
impl Drop for Workload {
    fn drop(&mut self) {
        self.agent = None;
        for file in [self.socket.clone(), self.socket.with_extension("sock.lock")] {
            let _ = fs::remove_file(file);
        }
    }
}
