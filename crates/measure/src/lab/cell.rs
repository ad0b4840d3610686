//! One arm with one suite on a lab: its servers and clients as processes, and their turns.

mod agent;
mod balancer;
mod beside;
mod case;
mod counted;
mod ech;
mod fast_open;
mod fleet;
mod origin;
mod page;
mod setting;
mod start;
mod tools;
mod workload;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use headstart_openers::{PageLoad, Trial, part_before};

use super::experiment::BeforeTrial;
use super::plan::{CellSpec, Mode, Stage};
use super::privacy::Case;
use super::process::{Broken, Program};
use super::topology::{LinkEffects, Topology};
use super::trial::{Done, Key, PeerLine, Row, failed};
use crate::interrupt::Interrupt;
use setting::Setting;

pub(crate) use agent::{Agent, Counts, scrape};
pub(crate) use counted::Counted;
pub(crate) use fast_open::{ClientSide, ServerSide};
pub(crate) use setting::RunContext;
pub(crate) use start::begin;
pub(crate) use tools::{check_tools, version, versions};

/// Time that a client may need beyond the time in which a connection fails, before it counts as
/// hung.
const PATIENCE: Duration = Duration::from_secs(10);

/// Value of the column `opening` where an agent opened and only it knows how.
const BY_AGENT: &str = "agent";

/// One arm with one suite, running.
#[derive(Debug)]
pub(crate) struct Cell {
    spec: CellSpec,
    setting: Setting,
    clients: Vec<Client>,
    /// Its clients, where they are programs of others.
    workload: Option<workload::Workload>,
    servers: Vec<Program>,
    /// Edges that others took over from; nobody waits for their end, so that their processor time
    /// can be read.
    predecessors: Vec<Program>,
    /// Programs attached to the interfaces of its servers.
    fast_open: Vec<ServerSide>,
    /// Its cases so far, where they are what it does.
    cases: Vec<Case>,
    /// Rows so far, apart for each value of the column `variant`.
    trials: u32,
    /// Number of the trial that goes on, as its row will have it.
    trial: u32,
    /// Turns so far.
    turns: u32,
    /// Client whose turn it is.
    turn: usize,
    /// Effects of links on its packets while it had its turns.
    pub(crate) links: LinkEffects,
    pub(crate) load: LoadTotals,
    /// Connections of loads by their opening, as agents have counted them.
    pub(crate) openings: BTreeMap<String, u64>,
    /// Loads of a page that nobody has taken yet.
    pub(crate) page_loads: Vec<PageLoad>,
    /// Bytes of the server's flight, as the server says.
    pub(crate) flight_bytes: Option<u64>,
    /// Its configuration of Encrypted ClientHello, for the arms that have one.
    ech_config_list: Option<String>,
    pub(crate) broken: Option<String>,
}

/// A client and, for the arm that needs one, the agent beside it.
#[derive(Debug)]
struct Client {
    program: Program,
    agent: Option<Agent>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct LoadTotals {
    pub(crate) connections: u64,
    /// Exchanges within the time of loading, of the last ones their parts.
    pub(crate) completed: f64,
    pub(crate) time: Duration,
    pub(crate) client_cpu: Duration,
    pub(crate) server_cpu: Duration,
}

/// A row, and when its connection began and ended.
#[derive(Debug)]
pub(crate) struct Timed {
    row: Row,
    from: Instant,
    to: Instant,
}

impl Timed {
    /// The row, flagged if the forwarder did anything wrong meanwhile.
    pub(crate) fn judged(mut self, topology: &Topology) -> Row {
        self.row.flagged = topology.lab.disturbed(self.from, self.to);
        self.row
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Context<'r> {
    pub(crate) experiment: &'r str,
    pub(crate) stage: &'r Stage,
    pub(crate) topology: &'r Topology,
    pub(crate) interrupt: &'r Interrupt,
    pub(crate) seed: u64,
}

impl Cell {
    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.spec.arm, self.spec.suite)
    }

    /// Returns true if samples of this key are its own, as far as arm and suite go.
    pub(crate) fn is(&self, key: &Key) -> bool {
        key.arm == self.spec.arm.name() && key.suite == self.spec.suite.name()
    }

    /// Its cases, and the addresses of its servers, by which a capture shows its connections.
    pub(crate) fn cases(&self) -> (&[Case], Vec<IpAddr>) {
        (&self.cases, self.setting.targets().map(|target| target.ip()).collect())
    }

    /// Connections that are not counted. Each client has its own sessions and path memory.
    pub(crate) fn warm_up(&mut self, context: Context<'_>) -> Result<(), Broken> {
        for turn in 0..self.clients.len() {
            for _ in 0..context.stage.warmup {
                self.turn = turn;
                let opened = match context.stage.mode {
                    Mode::Page => self.load_page(context).map(drop),
                    _ => self.open(context, context.stage.response, "").map(drop),
                };
                if self.note(opened)?.is_none() {
                    // Waiting for a program that hangs would cost this timeout in each turn.
                    return Ok(());
                }
            }
        }
        self.turn = 0;
        Ok(())
    }

    /// Its turn: the rows that came of it. A cell that breaks has a last row that says why.
    ///
    /// # Errors
    /// The user interrupted.
    pub(crate) fn turn(&mut self, context: Context<'_>, round: u32) -> Result<Vec<Timed>, Broken> {
        let mut rows = Vec::new();
        if !self.goes_on(context.stage) {
            return Ok(rows);
        }
        let (from, effects) = (Instant::now(), context.topology.effects());
        self.turns += 1;
        self.trial = self.trials + 1;
        let done = match context.stage.mode {
            Mode::One => {
                self.trials += 1;
                self.connect(context, (round, self.trials), "", &mut rows)
            }
            Mode::Page => self.page(context, round, &mut rows),
            Mode::Beside => self.beside(context, round, &mut rows),
            Mode::Group(count) => {
                let all = (0..count).map(|_| String::new());
                self.connect_anew(context, round, all, &mut rows)
            }
            // Visits to the host of this round, each at one of its addresses.
            Mode::Revisits(_) => {
                let visits = context.stage.visits(context.seed, round).into_iter();
                let all = visits.map(|address| format!("at {address}"));
                self.connect_anew(context, round, all, &mut rows)
            }
            Mode::Workload => self.visit(context, round, &mut rows),
            Mode::Case(boundary) => self.case(context, round, boundary, &mut rows),
            Mode::InFlight(in_flight, slice) => {
                let order =
                    format!("load {} {in_flight} {}", context.stage.response, slice.as_millis());
                self.load(context, round, &order, slice, &mut rows)
            }
            Mode::Rate(rate, slice) => {
                let share = rate / self.clients.len() as f64;
                let order =
                    format!("rate {} {share} {}", context.stage.response, slice.as_millis());
                self.load(context, round, &order, slice, &mut rows)
            }
        };
        self.turn = (self.turn + 1) % self.clients.len().max(1);
        if self.note(done)?.is_none() {
            let why = self.broken.clone().unwrap_or_default();
            let mut row = self.row(context, self.trial, round, failed(why));
            // Its opening is unknown.
            row.opening.clear();
            rows.push(Timed { row, from, to: Instant::now() });
        }
        self.links.add_since(effects, context.topology.effects());
        Ok(rows)
    }

    /// Returns true if it has another turn.
    pub(crate) fn goes_on(&self, stage: &Stage) -> bool {
        self.broken.is_none() && !stage.is_enough(self.turns, self.load.connections)
    }

    /// Makes one connection, whose row has this number.
    fn connect(
        &mut self,
        context: Context<'_>,
        (round, number): (u32, u32),
        how: &str,
        rows: &mut Vec<Timed>,
    ) -> Result<(), Broken> {
        self.trial = number;
        if let Some(before) = &context.stage.link.before {
            self.open_before(context, before)?;
        }
        let (trial, from, to) = self.open(context, context.stage.response, how)?;
        rows.push(Timed { row: self.row(context, number, round, trial), from, to });
        Ok(())
    }

    /// Forgets everything, then makes one connection for each of these.
    fn connect_anew(
        &mut self,
        context: Context<'_>,
        round: u32,
        all: impl Iterator<Item = String>,
        rows: &mut Vec<Timed>,
    ) -> Result<(), Broken> {
        self.forget(context)?;
        (1..)
            .zip(all)
            .try_for_each(|(number, how)| self.connect(context, (round, number), &how, rows))
    }

    /// Makes the connection before a trial, over the path that it has.
    fn open_before(&mut self, context: Context<'_>, before: &BeforeTrial) -> Result<(), Broken> {
        let Some(node) = context.topology.clients().nth(self.turn) else { return Err(no_client()) };
        if let Some(path) = &before.path {
            case::let_last_packets_pass(context);
            context.topology.change_path(node, path).map_err(Broken::Program)?;
        }
        let opened = self.open(context, before.response, "").map(drop);
        case::let_last_packets_pass(context);
        let path = context.stage.link.client_path();
        context.topology.change_path(node, &path).map_err(Broken::Program)?;
        opened
    }

    /// Makes one connection, by the client whose turn it is, with `response` bytes of a response;
    /// `how` has the further words of the order.
    fn open(
        &mut self,
        context: Context<'_>,
        response: u64,
        how: &str,
    ) -> Result<(Trial, Instant, Instant), Broken> {
        let patience = context.stage.timeout + PATIENCE;
        let Some(client) = self.clients.get_mut(self.turn) else { return Err(no_client()) };
        let before = client.agent.as_mut().map(Agent::counts).transpose()?;
        let from = Instant::now();
        client.program.tell(&format!("open {response} {how}"))?;
        let line = client.program.line(patience, context.interrupt)?;
        let Ok(PeerLine::Trial(mut trial)) = serde_json::from_str(&line.text) else {
            return Err(client.program.nonsense(&line.text));
        };
        if let (Some(agent), Some(before)) = (&mut client.agent, before) {
            agent.tell_opening(&before, &mut trial)?;
        }
        if !trial.ok {
            self.servers.iter_mut().try_for_each(Program::check)?;
        }
        Ok((trial, from, line.at))
    }

    /// All clients at once, each with its part of the load.
    fn load(
        &mut self,
        context: Context<'_>,
        round: u32,
        order: &str,
        slice: Duration,
        rows: &mut Vec<Timed>,
    ) -> Result<(), Broken> {
        let cpu_before = (self.server_cpu(), self.agent_cpu());
        let begun = Instant::now();
        let mut counts = Vec::new();
        for client in &mut self.clients {
            counts.push(client.agent.as_mut().map(Agent::counts).transpose()?.unwrap_or_default());
            client.program.tell(order)?;
        }
        if context.stage.variant.takeover {
            self.take_over(context, slice)?;
        }
        let load = Load { begun, patience: slice + context.stage.timeout + PATIENCE };
        for (number, before) in counts.iter().enumerate() {
            let from = rows.len();
            let done = self.take_load(context, round, number, load, rows)?;
            self.load.connections += done.connections;
            self.load.completed += done.completed_in_slice.unwrap_or_else(|| {
                let own = rows.iter().skip(from).filter(|timed| timed.row.ok);
                own.map(|timed| part_before(begun + slice, [timed.from, timed.to])).sum()
            });
            self.load.client_cpu += millis(done.cpu_ms);
            if let Some(agent) =
                self.clients.get_mut(number).and_then(|client| client.agent.as_mut())
            {
                agent.add_openings(before, done.connections, &mut self.openings)?;
            }
        }
        self.load.time += slice;
        self.load.server_cpu += self.server_cpu().saturating_sub(cpu_before.0);
        self.load.client_cpu += self.agent_cpu().saturating_sub(cpu_before.1);
        self.servers.iter_mut().try_for_each(Program::check)
    }

    /// Reads one client's account of its load, line by line.
    fn take_load(
        &mut self,
        context: Context<'_>,
        round: u32,
        number: usize,
        load: Load,
        rows: &mut Vec<Timed>,
    ) -> Result<Done, Broken> {
        loop {
            let Some(client) = self.clients.get_mut(number) else { return Err(no_client()) };
            let line = client.program.line(load.patience, context.interrupt)?;
            match serde_json::from_str(&line.text) {
                Ok(PeerLine::Done(done)) => return Ok(done),
                Ok(PeerLine::Trial(trial)) => {
                    self.trials += 1;
                    self.trial = self.trials + 1;
                    // The start of a failed one is unknown: any time since the load began.
                    let lasted = trial.ms_to_last_response_byte.filter(|_| trial.ok).map(millis);
                    let from = lasted.and_then(|lasted| line.at.checked_sub(lasted));
                    let from = from.unwrap_or(load.begun).max(load.begun);
                    let by_agent = client.agent.is_some();
                    let mut row = self.row(context, self.trials, round, trial);
                    if by_agent {
                        // Its counters do not tell concurrent connections apart.
                        BY_AGENT.clone_into(&mut row.opening);
                    }
                    rows.push(Timed { row, from, to: line.at });
                }
                _ => return Err(client.program.nonsense(&line.text)),
            }
        }
    }

    /// Everything that clients keep of earlier connections: their own, the kernel's cookies, the
    /// agent's.
    fn forget(&mut self, context: Context<'_>) -> Result<(), Broken> {
        let patience = context.stage.timeout + PATIENCE;
        for (client, node) in self.clients.iter_mut().zip(context.topology.clients()) {
            client.program.tell("forget")?;
            let line = client.program.line(patience, context.interrupt)?;
            if !matches!(serde_json::from_str(&line.text), Ok(PeerLine::Forgot { .. })) {
                return Err(client.program.nonsense(&line.text));
            }
            // With them goes what TCP remembers of the path: of private cookies too, so that arms
            // differ in nothing else.
            if self.spec.arm.opens_fast() || context.stage.mode == Mode::Page {
                for target in self.setting.targets() {
                    start::forget_cookies(node, target.ip())?;
                }
            }
            if let Some(agent) = client.agent.take() {
                // The old one must exit before the new one can bind its port.
                drop(agent);
                client.agent = Some(self.setting.agent(node, context.interrupt)?);
            }
        }
        Ok(())
    }

    fn row(&self, context: Context<'_>, trial: u32, round: u32, outcome: Trial) -> Row {
        let key = self.key(context, &context.stage.variant.column(trial));
        Row::new(key, trial, round, context.stage.link.rtt, outcome)
    }

    /// The key of its samples that have this in the column `variant`.
    pub(crate) fn key(&self, context: Context<'_>, column: &str) -> Key {
        Key {
            experiment: context.experiment.to_owned(),
            link: context.stage.link.name.clone(),
            variant: column.to_owned(),
            suite: self.spec.suite.to_string(),
            arm: self.spec.arm.to_string(),
        }
    }

    /// Keeps why the cell broke; only the user's wish goes on as an error.
    fn note<T>(&mut self, done: Result<T, Broken>) -> Result<Option<T>, Broken> {
        match done {
            Ok(value) => Ok(Some(value)),
            Err(Broken::Interrupted) => Err(Broken::Interrupted),
            Err(Broken::Program(why)) => {
                self.broken = Some(why);
                Ok(None)
            }
        }
    }

    fn server_cpu(&self) -> Duration {
        self.servers.iter().chain(&self.predecessors).filter_map(Program::cpu).sum()
    }

    fn agent_cpu(&self) -> Duration {
        let agents = self.clients.iter().filter_map(|client| client.agent.as_ref());
        agents.filter_map(Agent::cpu).sum()
    }
}

/// A stretch of load that goes on.
#[derive(Debug, Clone, Copy)]
struct Load {
    begun: Instant,
    /// Time that a client may be silent.
    patience: Duration,
}

fn no_client() -> Broken {
    Broken::Program("there is no client".into())
}

fn millis(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::experiment::LinkEffect;

    #[test]
    fn a_box_shows_itself_by_what_it_does() {
        let none = LinkEffects::default();
        let dropped = LinkEffects { dropped: 1, ..none };
        let shown = |effects: LinkEffects| {
            [LinkEffect::Drops, LinkEffect::Replies, LinkEffect::Adds, LinkEffect::Changes]
                .map(|effect| effects.shows(effect))
        };
        assert_eq!(shown(none), [false, false, false, true]);
        assert_eq!(shown(dropped), [true, false, false, true]);
        let mut cell = none;
        cell.add_since(dropped, LinkEffects { dropped: 4, replied: 2, added: 0 });
        assert_eq!(cell, LinkEffects { dropped: 3, replied: 2, added: 0 });
    }
}
