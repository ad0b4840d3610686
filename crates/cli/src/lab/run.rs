//! `headstart lab run`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use headstart_lab::{Privilege, privilege};

use super::bars::{self, Verdict};
use super::builtin;
use super::capture::Captures;
use super::cell::{self, Cell, Context, Place};
use super::environment::Environment;
use super::experiment::Acts;
use super::interrupt::Interrupt;
use super::plan::{Mode, Plan, Stage};
use super::process::Broken;
use super::progress::{Progress, in_words};
use super::results::{self, Folder};
use super::summary::{self, Groups, Told};
use super::topology::{self, Topology};
use super::trial::Key;
use crate::demo;
use crate::failure::{Failure, NEGATIVE};
use crate::options::LabRunOptions;
use crate::output;

/// Runs an experiment and writes its results. Call it while the process has one thread.
///
/// # Errors
/// The experiment is wrong, the machine does not allow it, or the user interrupted.
pub(crate) fn run(options: &LabRunOptions) -> Result<ExitCode, Failure> {
    let (experiment, text) = builtin::find(&options.experiment)?;
    let plan = Plan::new(experiment, options.quick, options.seed)?;
    topology::check(&plan)?;
    cell::check_tools(&plan)?;
    let root = privilege() == Privilege::Root;
    demo::become_privileged()?;
    let interrupt = Interrupt::listen()?;
    let place =
        options.out.clone().unwrap_or_else(|| results::default_place(&plan.experiment.name));
    let folder = Folder::create(&place)?;
    let mut run = Run::new(plan, folder, options.pcap, root, interrupt)?;
    let measured = run.measure();
    run.progress.done();
    measured?;
    run.finish(&text, options.json)
}

/// A run that goes on.
struct Run {
    plan: Plan,
    folder: Folder,
    place: Place,
    environment: Environment,
    groups: Groups,
    progress: Progress,
    interrupt: Interrupt,
    captures: Option<PathBuf>,
}

impl Run {
    fn new(
        plan: Plan,
        folder: Folder,
        pcap: bool,
        root: bool,
        interrupt: Interrupt,
    ) -> Result<Self, Failure> {
        let program = std::env::current_exe()
            .map_err(|error| Failure::usage(format!("cannot find this program: {error}")))?;
        Ok(Self {
            place: Place { program, work: folder.work()? },
            environment: Environment::new(&plan, root),
            groups: Groups::default(),
            progress: Progress::new(plan.turns()),
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
            let captures = self.captures.as_ref();
            let captures =
                captures.map(|folder| Captures::begin(folder, &stage, &topology)).transpose()?;
            self.stage(&stage, &topology)?;
            if let Some(captures) = captures {
                captures.finish(|warning| self.progress.note(warning))?;
            }
            self.environment.add_stage(&stage, &topology.lab);
            self.folder.flush()?;
        }
        Ok(())
    }

    /// Everything on one link with one variant.
    fn stage(&mut self, stage: &Stage, topology: &Topology) -> Result<(), Failure> {
        let interrupt = self.interrupt.clone();
        let name = self.plan.experiment.name.clone();
        let context = Context { experiment: &name, stage, topology, interrupt: &interrupt };
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
        cells.iter().for_each(|cell| self.tell(cell, context));
        Ok(())
    }

    fn turn(&mut self, cell: &mut Cell, context: Context<'_>, round: u32) -> Result<(), Failure> {
        let was_broken = cell.broken.is_some();
        for timed in cell.turn(context, round).map_err(interrupted)? {
            let row = timed.judged(context.topology);
            self.folder.add(&row)?;
            self.groups.add(&row, context.stage.link.rtt);
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

    /// Puts what is known of a whole cell beside its samples.
    fn tell(&mut self, cell: &Cell, context: Context<'_>) {
        let columns = context.stage.variant.columns();
        let link = &context.stage.link.name;
        let told = Told {
            load: cell.load,
            links: cell.links,
            flight_bytes: cell.flight_bytes,
            broken: cell.broken.clone(),
            in_groups: matches!(context.stage.mode, Mode::Group(_)),
        };
        let of = |key: &Key| key.link == *link && columns.contains(&key.variant) && cell.is(key);
        self.groups.tell(of, &told);
    }

    fn finish(mut self, text: &str, json: bool) -> Result<ExitCode, Failure> {
        self.environment.end();
        let cells = self.groups.summaries();
        let experiment = &self.plan.experiment;
        let verdicts = bars::judge(&experiment.bar, &self.groups, self.plan.quick, self.plan.seed);
        if let Some(warning) = self.environment.warning() {
            eprintln!("{warning}");
        }
        let place = self.folder.finish(&cells, &verdicts, &self.environment, text)?;
        if json {
            let text = serde_json::to_string_pretty(&cells).unwrap_or_default();
            output::print(format!("{text}\n").as_bytes())?;
        } else {
            output::print(summary::table(&cells).as_bytes())?;
        }
        let broken = cells.iter().filter(|cell| cell.broken.is_some()).count();
        Ok(conclusion(&place, &verdicts, broken))
    }
}

/// Why the stage shows nothing of its box, if it does not: what the link must do did not happen.
fn idle(stage: &Stage, topology: &Topology) -> Option<String> {
    let acts = stage.link.acts.filter(|acts| !topology.acts().show(*acts))?;
    let did = match acts {
        Acts::Drops => "dropped",
        Acts::Replies => "answered",
        Acts::Adds => "added",
        Acts::Changes => "changed",
    };
    Some(format!("the box did nothing: it {did} no packet, so the figures show a link without it"))
}

/// Says where the results are and whether they are as they should be.
fn conclusion(place: &Path, verdicts: &[Verdict], broken: usize) -> ExitCode {
    let missed: Vec<_> = verdicts.iter().filter(|verdict| !verdict.met).collect();
    missed.iter().for_each(|verdict| eprintln!("{}", bars::line(verdict)));
    let met = verdicts.len() - missed.len();
    let and = if broken > 0 { format!(", {broken} cells broken") } else { String::new() };
    eprintln!("{}: {met} of {} bars met{and}", place.display(), verdicts.len());
    if missed.is_empty() && broken == 0 { ExitCode::SUCCESS } else { ExitCode::from(NEGATIVE) }
}

fn interrupted(broken: Broken) -> Failure {
    match broken {
        Broken::Interrupted => Failure::usage("interrupted; all programs of the run are ended")
            .hint("run it again; --quick takes minutes"),
        Broken::Program(why) => Failure::usage(why),
    }
}
