//! `headstart lab run`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use headstart_emulation::{CapturedPacket, Privilege, own_hosts_file, privilege, read_capture};
use serde_json::{Value, json};

use super::bars::{self, Verdict};
use super::browser;
use super::builtin;
use super::capture::Captures;
use super::cell::{self, Cell, ClientSide, Context, Place};
use super::environment::Environment;
use super::experiment::{Experiment, LinkEffect};
use super::page::LoadLine;
use super::plan::{Extent, Mode, Plan, Stage};
use super::privacy::{self, Finding};
use super::process::{Broken, product, this_program};
use super::results::{self, Folder};
use super::summary::{self, CellSummary, Groups, Told};
use super::topology::{self, Topology};
use super::tor;
use super::trial::Key;
use super::workload::{Handshakes, Seen};
use crate::interrupt::Interrupt;
use crate::lab::options::LabRunOptions;
use crate::network;
use crate::progress::{Progress, in_words};
use headstart::base::failure::{Failure, NEGATIVE};
use headstart::base::output;

/// An experiment to run, and the place of its results.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) experiment: Experiment,
    /// The experiment as it is written beside its results.
    pub(crate) text: String,
    pub(crate) extent: Extent,
    pub(crate) seed: Option<u64>,
    pub(crate) out: Option<PathBuf>,
    pub(crate) pcap: bool,
    /// True if loads of pages are to be [kept](Finished::loads).
    pub(crate) keeps_loads: bool,
}

/// Results of a run, beside the folder.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) cells: Vec<CellSummary>,
    pub(crate) loads: Vec<LoadLine>,
    /// Where the results are.
    pub(crate) place: PathBuf,
    pub(super) verdicts: Vec<Verdict>,
}

/// Runs an experiment and writes its results. Call it while the process has one thread.
///
/// # Errors
/// The experiment is wrong, the machine does not allow it, or the user interrupted.
pub(crate) fn run(options: &LabRunOptions) -> Result<ExitCode, Failure> {
    if let Some((experiment, text)) = browser::find(&options.experiment)? {
        return browser::run(options, experiment, &text);
    }
    let finished = match options.experiment.as_str() {
        tor::NAME => tor::run(options)?,
        _ => run_usual(options)?,
    };
    if options.json {
        let text = serde_json::to_string_pretty(&finished.cells).unwrap_or_default();
        output::print(format!("{text}\n").as_bytes())?;
    } else {
        output::print(summary::table(&finished.cells).as_bytes())?;
    }
    Ok(finished.conclusion())
}

/// Leaves those of an experiment's links that the user names; all if none are named.
///
/// # Errors
/// There is no such link.
pub(super) fn keep_links<L>(
    named: &[String],
    links: &mut Vec<L>,
    name: impl Fn(&L) -> &str,
) -> Result<(), Failure> {
    if let Some(unknown) =
        named.iter().find(|named| !links.iter().any(|link| name(link) == **named))
    {
        let known: Vec<String> = links.iter().map(|link| format!("'{}'", name(link))).collect();
        return Err(Failure::usage(format!("the experiment has no link '{unknown}'"))
            .hint(format!("it has {}", known.join(", "))));
    }
    links.retain(|link| named.is_empty() || named.iter().any(|named| named == name(link)));
    Ok(())
}

/// The error of a short form that has none of the links named.
pub(super) fn no_links() -> Failure {
    Failure::usage("the short form has none of these links").hint("leave out --quick or --link")
}

fn run_usual(options: &LabRunOptions) -> Result<Finished, Failure> {
    let (mut experiment, text) = builtin::find(&options.experiment)?;
    keep_links(&options.links, &mut experiment.link, |link| &link.name)?;
    let extent = match (options.quick, options.full) {
        (true, _) => Extent::Quick,
        (false, true) => Extent::Full,
        (false, false) => Extent::Usual,
    };
    carry_out(Order {
        experiment,
        text,
        extent,
        seed: options.seed,
        out: options.out.clone(),
        pcap: options.pcap,
        keeps_loads: false,
    })
}

/// The same without a word on standard output.
pub(crate) fn carry_out(order: Order) -> Result<Finished, Failure> {
    let mut plan = Plan::new(order.experiment, order.extent, order.seed)?;
    plan.read_pages()?;
    topology::check(&plan)?;
    cell::check_tools(&plan)?;
    let root = privilege() == Privilege::Root;
    network::become_privileged()?;
    let program = product()?;
    topology::hosts_file(&plan).map_or(Ok(()), |text| own_hosts_file(&text)).map_err(|error| {
        Failure::usage(format!("cannot give the programs their hosts: {error}"))
            .hint("it takes a mount namespace: run it as root")
    })?;
    let fast_open = ClientSide::attach(&plan, &program)?.map(Arc::new);
    let interrupt = Interrupt::listen()?;
    let place = order.out.unwrap_or_else(|| results::default_place(&plan.experiment.name));
    let folder = Folder::create(&place)?;
    let place = Place { program, peer: this_program()?, work: folder.work()?, fast_open };
    let mut run = Run::new(plan, folder, place, order.pcap, root, interrupt)?;
    run.loads = order.keeps_loads.then(Vec::new);
    let measured = run.measure();
    run.progress.done();
    measured?;
    run.finish(&order.text)
}

/// A run that goes on.
struct Run {
    plan: Plan,
    folder: Folder,
    place: Place,
    environment: Environment,
    groups: Groups,
    /// Loads of pages, if they are kept.
    loads: Option<Vec<LoadLine>>,
    progress: Progress,
    interrupt: Interrupt,
    captures: Option<PathBuf>,
}

impl Run {
    fn new(
        plan: Plan,
        folder: Folder,
        place: Place,
        pcap: bool,
        root: bool,
        interrupt: Interrupt,
    ) -> Result<Self, Failure> {
        Ok(Self {
            place,
            environment: Environment::new(&plan, root),
            groups: Groups::default(),
            loads: None,
            progress: Progress::with_turns(plan.turns()),
            captures: pcap.then(|| folder.captures()).transpose()?,
            plan,
            folder,
            interrupt,
        })
    }

    fn measure(&mut self) -> Result<(), Failure> {
        eprintln!(
            "{}: {} stages, {} cells, about {}; results in {}",
            self.plan.experiment.name,
            self.plan.stages.len(),
            self.plan.cells(),
            in_words(self.plan.estimate()),
            self.folder.place().display(),
        );
        for stage in self.plan.stages.clone() {
            self.progress.stage(&stage.name());
            let topology = Topology::build(&stage)?;
            let captures = self.captures(&stage)?;
            let captures =
                captures.map(|folder| Captures::begin(&folder, &stage, &topology)).transpose()?;
            let cells = self.stage(&stage, &topology)?;
            let files = match captures {
                Some(captures) => captures.finish(|warning| self.progress.note(warning))?,
                None => Vec::new(),
            };
            self.conclude(&stage, &cells, &files)?;
            self.environment.add_stage(&stage, &topology.lab);
            self.folder.flush()?;
        }
        Ok(())
    }

    /// Where packets of a stage are captured, if they are: whatever is decided by them can be
    /// looked at again.
    fn captures(&self, stage: &Stage) -> Result<Option<PathBuf>, Failure> {
        match (&self.captures, stage.mode) {
            (None, Mode::Case(_)) => self.folder.captures().map(Some),
            // Counted in, and gone with the run: they are large.
            (None, Mode::Workload) => self.folder.work().map(Some),
            (captures, _) => Ok(captures.clone()),
        }
    }

    /// Everything on one link with one variant.
    fn stage(&mut self, stage: &Stage, topology: &Topology) -> Result<Vec<Cell>, Failure> {
        let interrupt = self.interrupt.clone();
        let name = self.plan.experiment.name.clone();
        let seed = self.plan.seed;
        let context = Context { experiment: &name, stage, topology, interrupt: &interrupt, seed };
        let mut cells =
            cell::begin(&self.place, stage, topology, &interrupt).map_err(interrupted)?;
        for column in stage.variant.columns() {
            cells
                .iter()
                .for_each(|cell| self.groups.expect(cell.key(context, &column), stage.link.rtt));
        }
        for cell in &mut cells {
            cell.warm_up(context).map_err(interrupted)?;
        }
        for (round, order) in (1..).zip(stage.order(self.plan.seed)) {
            for number in order {
                if let Some(cell) = cells.get_mut(number).filter(|cell| cell.goes_on(stage)) {
                    self.turn(cell, context, round)?;
                }
                self.progress.step();
            }
            if !cells.iter().any(|cell| cell.goes_on(stage)) {
                break;
            }
        }
        if let Some(why) = idle(stage, topology) {
            self.progress.note(&format!("broken: {}: {why}", stage.name()));
            for cell in &mut cells {
                cell.broken.get_or_insert_with(|| why.clone());
            }
        }
        Ok(cells)
    }

    /// Puts what is known of whole cells beside their samples.
    fn conclude(
        &mut self,
        stage: &Stage,
        cells: &[Cell],
        files: &[PathBuf],
    ) -> Result<(), Failure> {
        let mut findings = vec![None; cells.len()];
        let mut handshakes = vec![None; cells.len()];
        if stage.mode == Mode::Workload {
            let packets = files.first().map(|file| packets_in(file)).transpose()?;
            handshakes = cells.iter().map(|cell| counted(cell, packets.as_deref())).collect();
            let all: Vec<_> = cells.iter().map(visited).collect();
            self.folder
                .add_to_captures(&format!("{}-connections.json", stage.file_name()), &all)?;
        }
        if let Mode::Case(boundary) = stage.mode {
            // One client, one file; without it, or one that lacks packets, nothing is decided.
            let seen = files.first().map(|file| connections_in(file)).transpose()?;
            let seen = seen.unwrap_or_default();
            let decided = cells.iter().map(|cell| {
                let (cases, servers) = cell.cases();
                Some(privacy::decide(boundary, &servers, cases, &seen))
            });
            findings = decided.collect();
            let all: Vec<_> = cells.iter().zip(&findings).map(decision).collect();
            self.folder.add_to_captures(&format!("{}-cases.json", stage.file_name()), &all)?;
        }
        for (cell, (finding, handshakes)) in cells.iter().zip(findings.into_iter().zip(handshakes))
        {
            self.tell(cell, stage, finding, handshakes);
        }
        Ok(())
    }

    fn turn(&mut self, cell: &mut Cell, context: Context<'_>, round: u32) -> Result<(), Failure> {
        let was_broken = cell.broken.is_some();
        for timed in cell.turn(context, round).map_err(interrupted)? {
            let row = timed.judged(context.topology);
            self.folder.add(&row)?;
            self.groups.add(&row, context.stage.link.rtt);
            // Those of a page are one for each row.
            if let Some(load) = cell.page_loads.pop() {
                let line = LoadLine::new(row.key(), row.trial, row.flagged, load);
                self.folder.add_load(&line)?;
                self.loads.iter_mut().for_each(|loads| loads.push(line.clone()));
            }
        }
        if let Some(why) = cell.broken.as_ref().filter(|_| !was_broken) {
            self.progress.note(&format!(
                "broken: {}: {}: {why}",
                context.stage.name(),
                cell.name()
            ));
        }
        Ok(())
    }

    fn tell(
        &mut self,
        cell: &Cell,
        stage: &Stage,
        privacy: Option<Finding>,
        handshakes: Option<Handshakes>,
    ) {
        // Packets of programs that broke may be any.
        let contradiction = handshakes.as_ref().and_then(Handshakes::contradiction);
        if let Some(why) = contradiction.as_ref().filter(|_| cell.broken.is_none()) {
            self.progress.note(&format!("broken: {}: {}: {why}", stage.name(), cell.name()));
        }
        let columns = stage.variant.columns();
        let link = &stage.link.name;
        let told = Told {
            load: cell.load,
            links: cell.links,
            flight_bytes: cell.flight_bytes,
            broken: cell.broken.clone().or(contradiction),
            in_groups: matches!(stage.mode, Mode::Group(_)),
            privacy,
            handshakes,
        };
        self.groups.tell(
            |key: &Key| key.link == *link && columns.contains(&key.variant) && cell.is(key),
            &told,
        );
    }

    fn finish(mut self, text: &str) -> Result<Finished, Failure> {
        self.environment.end();
        let cells = self.groups.summaries();
        let experiment = &self.plan.experiment;
        let verdicts =
            bars::judge(&experiment.bar, &self.groups, self.plan.extent.is_quick(), self.plan.seed);
        if let Some(warning) = self.environment.warning() {
            eprintln!("{warning}");
        }
        let place = self.folder.finish(&cells, &verdicts, &self.environment, text)?;
        Ok(Finished { cells, loads: self.loads.unwrap_or_default(), place, verdicts })
    }
}

impl Finished {
    /// A request for a run without pages.
    pub(super) const fn new(
        cells: Vec<CellSummary>,
        place: PathBuf,
        verdicts: Vec<Verdict>,
    ) -> Self {
        Self { cells, loads: Vec::new(), place, verdicts }
    }

    /// Says where the results are and whether they are as they should be.
    pub(crate) fn conclusion(&self) -> ExitCode {
        let Self { place, verdicts, cells, .. } = self;
        let broken = cells.iter().filter(|cell| cell.broken.is_some()).count();
        let missed: Vec<_> = verdicts.iter().filter(|verdict| !verdict.met).collect();
        missed.iter().for_each(|verdict| eprintln!("{}", bars::line(verdict)));
        let met = verdicts.len() - missed.len();
        let and = if broken > 0 { format!(", {broken} cells broken") } else { String::new() };
        eprintln!("{}: {met} of {} bars met{and}", place.display(), verdicts.len());
        match missed.is_empty() && broken == 0 {
            true => ExitCode::SUCCESS,
            false => ExitCode::from(NEGATIVE),
        }
    }
}

/// The connections of a client that a file shows.
fn connections_in(file: &Path) -> Result<Vec<privacy::Connection>, Failure> {
    Ok(privacy::connections(&packets_in(file)?))
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

/// The connections of a cell one by one, for whoever wants to count otherwise.
fn visited(cell: &Cell) -> Value {
    json!({ "cell": cell.name(), "connections": cell.visited() })
}

/// Returns the evidence about one cell, for whoever looks at its capture again.
fn decision((cell, finding): (&Cell, &Option<Finding>)) -> Value {
    let (cases, servers) = cell.cases();
    json!({ "cell": cell.name(), "servers": servers, "cases": cases, "finding": finding })
}

/// Returns the reason why the stage shows nothing of its box, if it does not: what the link must do
/// did not happen.
fn idle(stage: &Stage, topology: &Topology) -> Option<String> {
    let acts = stage.link.acts.filter(|acts| !topology.acts().show(*acts))?;
    let did = match acts {
        LinkEffect::Drops => "dropped",
        LinkEffect::Replies => "answered",
        LinkEffect::Adds => "added",
        LinkEffect::Changes => "changed",
    };
    Some(format!("the box did nothing: it {did} no packet, so the figures show a link without it"))
}

pub(super) fn interrupted(broken: Broken) -> Failure {
    match broken {
        Broken::Interrupted => Failure::usage("interrupted; all programs of the run are ended")
            .hint("run it again; --quick takes minutes"),
        Broken::Program(why) => Failure::usage(why),
    }
}
