//! Openings, page loads and workloads over emulated links, arm by arm: most experiments.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use headstart_emulation::{CapturedPacket, Privilege, own_hosts_file, privilege, read_capture};
use serde_json::{Value, json};

use super::capture::Captures;
use super::cell::{self, Cell, ClientSide, Context, RunContext};
use super::environment::About;
use super::experiment::{Experiment, LinkEffect};
use super::page::LoadLine;
use super::plan::{Mode, Plan, RunSize, Stage};
use super::privacy::{self, Finding};
use super::process::{product, this_program};
use super::runner::{Outline, Run, Scenario};
use super::summary::CellFacts;
use super::topology::{self, Topology};
use super::trial::Key;
use super::workload::{Handshakes, Seen};
use headstart::base::failure::Failure;
use headstart::qlog::{Directory, Vantage};

/// A run of such an experiment.
#[derive(Debug)]
pub(crate) struct Openings {
    plan: Plan,
    /// The experiment as it is written beside its results.
    text: String,
    /// True if packets of all clients are captured.
    pcap: bool,
    /// Where programs write qlog files, if they do.
    qlog: Option<PathBuf>,
    program: PathBuf,
    fast_open: Option<Arc<ClientSide>>,
    /// Arms whose programs this user may not attach.
    left_out: BTreeSet<&'static str>,
    captures: Option<PathBuf>,
    loads: Vec<LoadLine>,
}

impl Openings {
    /// Plans a run; `text` is the experiment as it is written beside its results.
    pub(crate) fn new(
        experiment: Experiment,
        text: String,
        extent: RunSize,
        seed: Option<u64>,
    ) -> Result<Self, Failure> {
        let mut plan = Plan::new(experiment, extent, seed)?;
        let left_out = match privilege() {
            Privilege::Root => BTreeSet::new(),
            _ => plan.leave_out_programs(),
        };
        plan.read_pages()?;
        topology::check(&plan)?;
        cell::check_tools(&plan)?;
        Ok(Self {
            plan,
            text,
            pcap: false,
            qlog: None,
            program: product()?,
            fast_open: None,
            left_out,
            captures: None,
            loads: Vec::new(),
        })
    }

    /// Captures the packets of all clients, or of those alone whose captures decide something.
    pub(crate) fn with_captures(self, pcap: bool) -> Self {
        Self { pcap, ..self }
    }

    /// Has edges, agents and clients write qlog files there.
    pub(crate) fn with_qlog(self, path: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path else { return Ok(self) };
        Directory::open(path, Vantage::Lab)?;
        let path = path
            .canonicalize()
            .map_err(|error| Failure::usage(format!("--qlog {}: {error}", path.display())))?;
        Ok(Self { qlog: Some(path), ..self })
    }

    /// Returns the directory for packet captures of a stage, if there are any: so that decisions by
    /// them can be checked later.
    fn captures(&self, stage: &Stage, run: &Run) -> Result<Option<PathBuf>, Failure> {
        match (&self.captures, stage.mode) {
            (None, Mode::Case(_)) => run.folder.captures().map(Some),
            // Needed only for counting, and deleted with the run because they are large.
            (None, Mode::Workload) => run.folder.work().map(Some),
            (captures, _) => Ok(captures.clone()),
        }
    }

    /// Takes all turns on one link with one variant.
    fn trials(
        &mut self,
        place: &RunContext,
        stage: &Stage,
        topology: &Topology,
        run: &mut Run,
    ) -> Result<Vec<Cell>, Failure> {
        let interrupt = run.interrupt.clone();
        let name = self.plan.experiment.name.clone();
        let seed = self.plan.seed;
        let context = Context { experiment: &name, stage, topology, interrupt: &interrupt, seed };
        let mut cells = cell::begin(place, stage, topology, &interrupt)?;
        for column in stage.variant.columns() {
            cells
                .iter()
                .for_each(|cell| run.groups.expect(cell.key(context, &column), stage.link.rtt));
        }
        for cell in &mut cells {
            cell.warm_up(context)?;
        }
        for (round, order) in (1..).zip(stage.order(self.plan.seed)) {
            for number in order {
                if let Some(cell) = cells.get_mut(number).filter(|cell| cell.goes_on(stage)) {
                    self.turn(cell, context, round, run)?;
                }
                run.progress.step();
            }
            if !cells.iter().any(|cell| cell.goes_on(stage)) {
                break;
            }
        }
        if let Some(why) = idle(stage, topology) {
            run.progress.note(&format!("broken: {}: {why}", stage.name()));
            for cell in &mut cells {
                cell.broken.get_or_insert_with(|| why.clone());
            }
        }
        Ok(cells)
    }

    fn turn(
        &mut self,
        cell: &mut Cell,
        context: Context<'_>,
        round: u32,
        run: &mut Run,
    ) -> Result<(), Failure> {
        let was_broken = cell.broken.is_some();
        for timed in cell.turn(context, round)? {
            let row = timed.judged(context.topology);
            run.add(&row, context.stage.link.rtt)?;
            // A page has one load for each row.
            if let Some(load) = cell.page_loads.pop() {
                let line = LoadLine::new(row.key(), row.trial, row.flagged, load);
                run.folder.add_load(&line)?;
                self.loads.push(line);
            }
        }
        if let Some(why) = cell.broken.as_ref().filter(|_| !was_broken) {
            run.progress.note(&format!("broken: {}: {}: {why}", context.stage.name(), cell.name()));
        }
        Ok(())
    }
}

impl Scenario for Openings {
    type Extra = Vec<LoadLine>;

    fn outline(&self) -> Outline {
        let plan = &self.plan;
        Outline {
            name: plan.experiment.name.clone(),
            text: self.text.clone(),
            stages: plan.stages.iter().map(Stage::name).collect(),
            cells: plan.cells(),
            turns: plan.turns(),
            estimate: plan.estimate(),
            bars: plan.experiment.bar.clone(),
            about: About {
                quick: plan.extent.is_quick(),
                full: plan.extent == RunSize::Full,
                seed: plan.seed,
                late: plan.experiment.late,
                programs: cell::versions(plan),
                sysctls: BTreeMap::from([topology::FAST_OPEN, topology::MTU_PROBING]),
            },
        }
    }

    fn prepare(&mut self) -> Result<(), Failure> {
        let hosts = topology::hosts_file(&self.plan);
        hosts.map_or(Ok(()), |text| own_hosts_file(&text)).map_err(|error| {
            Failure::usage(format!("cannot give the programs their hosts: {error}"))
                .hint("it takes a mount namespace: run it as root")
        })?;
        self.fast_open = ClientSide::attach(&self.plan, &self.program)?.map(Arc::new);
        Ok(())
    }

    fn build(&mut self, run: &mut Run) -> Result<(), Failure> {
        for arm in &self.left_out {
            run.progress.note(&format!("{arm} is left out: its programs take root"));
        }
        if !self.left_out.is_empty() {
            run.environment.add("left_out", json!(self.left_out));
        }
        self.captures = self.pcap.then(|| run.folder.captures()).transpose()?;
        Ok(())
    }

    fn stage(&mut self, number: usize, run: &mut Run) -> Result<(), Failure> {
        let Some(stage) = self.plan.stages.get(number).cloned() else { return Ok(()) };
        let place = RunContext {
            program: self.program.clone(),
            peer: this_program()?,
            work: run.folder.work()?,
            fast_open: self.fast_open.clone(),
            qlog: self.qlog.clone(),
        };
        let topology = Topology::build(&stage)?;
        let folder = self.captures(&stage, run)?;
        let captures = folder.map(|folder| Captures::begin(&folder, &stage, &topology));
        let captures = captures.transpose()?;
        let cells = self.trials(&place, &stage, &topology, run)?;
        let files = match captures {
            Some(captures) => captures.finish(|warning| run.progress.note(warning))?,
            None => Vec::new(),
        };
        conclude(&stage, &cells, &files, run)?;
        run.environment.add_stage(&stage, &topology.lab);
        Ok(())
    }

    fn conclude(self, _: &mut Run) -> Result<Vec<LoadLine>, Failure> {
        Ok(self.loads)
    }
}

/// Adds what is known of whole cells beside their samples.
fn conclude(
    stage: &Stage,
    cells: &[Cell],
    files: &[PathBuf],
    run: &mut Run,
) -> Result<(), Failure> {
    let mut findings = vec![None; cells.len()];
    let mut handshakes = vec![None; cells.len()];
    if stage.mode == Mode::Workload {
        let packets = files.first().map(|file| packets_in(file)).transpose()?;
        handshakes = cells.iter().map(|cell| counted(cell, packets.as_deref())).collect();
        let all: Vec<_> = cells.iter().map(visited).collect();
        run.folder.add_to_captures(&format!("{}-connections.json", stage.file_name()), &all)?;
    }
    if let Mode::Case(boundary) = stage.mode {
        // There is one file per client; without it, or if it lacks packets, nothing is decided.
        let packets = files.first().map(|file| packets_in(file)).transpose()?;
        let seen = privacy::connections(&packets.unwrap_or_default());
        let decided = cells.iter().map(|cell| {
            let (cases, servers) = cell.cases();
            Some(privacy::decide(boundary, &servers, cases, &seen))
        });
        findings = decided.collect();
        let all: Vec<_> = cells.iter().zip(&findings).map(decision).collect();
        run.folder.add_to_captures(&format!("{}-cases.json", stage.file_name()), &all)?;
    }
    for (cell, (finding, handshakes)) in cells.iter().zip(findings.into_iter().zip(handshakes)) {
        tell(cell, stage, finding, handshakes, run);
    }
    Ok(())
}

/// Adds what is known of a whole cell to its groups.
fn tell(
    cell: &Cell,
    stage: &Stage,
    privacy: Option<Finding>,
    handshakes: Option<Handshakes>,
    run: &mut Run,
) {
    // Packets of programs that broke prove nothing.
    let contradiction = handshakes.as_ref().and_then(Handshakes::contradiction);
    if let Some(why) = contradiction.as_ref().filter(|_| cell.broken.is_none()) {
        run.progress.note(&format!("broken: {}: {}: {why}", stage.name(), cell.name()));
    }
    let columns = stage.variant.columns();
    let link = &stage.link.name;
    let facts = CellFacts {
        load: cell.load,
        openings: cell.openings.clone(),
        links: cell.links,
        flight_bytes: cell.flight_bytes,
        broken: cell.broken.clone().or(contradiction),
        in_groups: matches!(stage.mode, Mode::Group(_)),
        privacy,
        handshakes,
        ..CellFacts::default()
    };
    run.groups.tell(
        |key: &Key| key.link == *link && columns.contains(&key.variant) && cell.is(key),
        &facts,
    );
}

fn packets_in(file: &Path) -> Result<Vec<CapturedPacket>, Failure> {
    read_capture(file).map_err(|error| {
        Failure::usage(format!("cannot read {}: {error}", file.display())).hint("is the disk full?")
    })
}

/// Returns the handshakes that servers have counted for a cell, and packets of its client show.
fn counted(cell: &Cell, packets: Option<&[CapturedPacket]>) -> Option<Handshakes> {
    let (_, servers) = cell.cases();
    cell.handshakes(packets.map(|packets| Seen::from_packets(packets, &servers)))
}

/// Returns the connections of a cell one by one, for other statistics.
fn visited(cell: &Cell) -> Value {
    json!({ "cell": cell.name(), "connections": cell.visited() })
}

/// Returns the evidence about one cell, to check it against its capture.
fn decision((cell, finding): (&Cell, &Option<Finding>)) -> Value {
    let (cases, servers) = cell.cases();
    json!({ "cell": cell.name(), "servers": servers, "cases": cases, "finding": finding })
}

/// Returns the reason why the stage shows nothing of its box, if it does not: what the link must do
/// did not happen.
fn idle(stage: &Stage, topology: &Topology) -> Option<String> {
    let missing = stage.link.acts.filter(|effect| !topology.effects().shows(*effect))?;
    let did = match missing {
        LinkEffect::Drops => "dropped",
        LinkEffect::Replies => "answered",
        LinkEffect::Adds => "added",
        LinkEffect::Changes => "changed",
    };
    Some(format!("the box did nothing: it {did} no packet, so the figures show a link without it"))
}
