//! The runner: what all experiments share, from the folder of results to the verdicts.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use headstart_emulation::{Privilege, privilege};

use super::bars::{self, Tally, Verdict};
use super::environment::{About, Environment};
use super::experiment::Bar;
use super::results::{self, Folder};
use super::summary::{CellSummary, Groups};
use super::trial::Row;
use crate::interrupt::Interrupt;
use crate::network;
use crate::progress::{Progress, in_words};
use headstart::base::failure::{Failure, NEGATIVE};

/// An experiment that the runner carries out, stage by stage: one stage is one network.
pub(crate) trait Scenario {
    /// Results beside the folder.
    type Extra;

    /// Describes the run before anything is built.
    fn outline(&self) -> Outline;

    /// Enters namespaces and attaches programs to the kernel, while the process has one thread.
    fn prepare(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Starts what all stages use.
    fn build(&mut self, _: &mut Run) -> Result<(), Failure> {
        Ok(())
    }

    /// Builds a stage, counted from 0, takes its turns and adds their rows.
    ///
    /// # Errors
    /// The network cannot be built, results cannot be written, or the user interrupted. A program
    /// that breaks is no error: its cell is marked as broken.
    fn stage(&mut self, number: usize, run: &mut Run) -> Result<(), Failure>;

    /// Ends the programs of the run, and adds what is known of the whole of it.
    fn conclude(self, run: &mut Run) -> Result<Self::Extra, Failure>;
}

/// Facts about a run before anything is built.
#[derive(Debug)]
pub(crate) struct Outline {
    pub(crate) name: String,
    /// The experiment as it is written beside its results.
    pub(crate) text: String,
    pub(crate) stages: Vec<String>,
    pub(crate) cells: usize,
    /// Turns of all cells, for the progress bar.
    pub(crate) turns: u64,
    pub(crate) estimate: Duration,
    pub(crate) bars: Vec<Bar>,
    pub(crate) about: About,
}

/// A run that goes on.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) folder: Folder,
    pub(crate) environment: Environment,
    pub(crate) groups: Groups,
    pub(crate) progress: Progress,
    pub(crate) interrupt: Interrupt,
}

impl Run {
    /// Adds the row of a trial over a link with this round trip.
    pub(crate) fn add(&mut self, row: &Row, rtt: Duration) -> Result<(), Failure> {
        self.folder.add(row)?;
        self.groups.add(row, rtt);
        Ok(())
    }
}

/// Results of a run that ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) cells: Vec<CellSummary>,
    /// Directory of the results.
    pub(crate) place: PathBuf,
    verdicts: Vec<Verdict>,
}

/// Runs an experiment and writes its results. Call it while the process has one thread.
pub(crate) fn carry_out<S: Scenario>(
    scenario: S,
    out: Option<PathBuf>,
) -> Result<(Finished, S::Extra), Failure> {
    let outline = scenario.outline();
    let (quick, seed) = (outline.about.quick, outline.about.seed);
    let root = privilege() == Privilege::Root;
    network::become_privileged()?;
    // The scenario is dropped before the run: its programs write into the folder until they end.
    let mut run;
    let mut scenario = scenario;
    scenario.prepare()?;
    let interrupt = Interrupt::listen()?;
    let folder = Folder::create(&out.unwrap_or_else(|| results::default_place(&outline.name)))?;
    eprintln!(
        "{}: {} stages, {} cells, about {}; results in {}",
        outline.name,
        outline.stages.len(),
        outline.cells,
        in_words(outline.estimate),
        folder.place().display(),
    );
    run = Run {
        environment: Environment::new(outline.about, root),
        groups: Groups::default(),
        progress: Progress::with_turns(outline.turns),
        folder,
        interrupt,
    };
    let measured = measure(&mut scenario, &outline.stages, &mut run);
    run.progress.done();
    measured?;
    let extra = scenario.conclude(&mut run)?;
    run.environment.end();
    let cells = run.groups.summaries();
    let verdicts = bars::judge(&outline.bars, &run.groups, quick, seed);
    if let Some(warning) = run.environment.warning() {
        eprintln!("{warning}");
    }
    let place = run.folder.finish(&cells, &verdicts, &run.environment, &outline.text)?;
    Ok((Finished { cells, place, verdicts }, extra))
}

fn measure(scenario: &mut impl Scenario, stages: &[String], run: &mut Run) -> Result<(), Failure> {
    scenario.build(run)?;
    for (number, name) in stages.iter().enumerate() {
        run.progress.stage(name);
        scenario.stage(number, run)?;
        run.folder.flush()?;
    }
    Ok(())
}

impl Finished {
    /// Prints where the results are and which bars were missed; returns the exit code.
    pub(crate) fn conclusion(&self) -> ExitCode {
        let Self { place, verdicts, cells } = self;
        let broken = cells.iter().filter(|cell| cell.broken.is_some()).count();
        let missed: Vec<_> = verdicts.iter().filter(|verdict| !verdict.met).collect();
        missed.iter().for_each(|verdict| eprintln!("{}", bars::line(verdict)));
        let and = if broken > 0 { format!(", {broken} cells broken") } else { String::new() };
        eprintln!("{}: {}{and}", place.display(), Tally::new(verdicts));
        match missed.is_empty() && broken == 0 {
            true => ExitCode::SUCCESS,
            false => ExitCode::from(NEGATIVE),
        }
    }
}

/// Keeps the links, or items of another `kind`, that the user names; all if none are named.
pub(crate) fn keep_named<T>(
    kind: &str,
    named: &[String],
    items: &mut Vec<T>,
    name: impl Fn(&T) -> &str,
) -> Result<(), Failure> {
    if let Some(unknown) =
        named.iter().find(|named| !items.iter().any(|item| name(item) == **named))
    {
        let known: Vec<String> = items.iter().map(|item| format!("'{}'", name(item))).collect();
        return Err(Failure::usage(format!("there is no {kind} '{unknown}'"))
            .hint(format!("there are {}", known.join(", "))));
    }
    items.retain(|item| named.is_empty() || named.iter().any(|named| named == name(item)));
    Ok(())
}

/// The error of a short form that has none of the links named.
pub(super) fn no_links() -> Failure {
    Failure::usage("the short form has none of these links").hint("leave out --quick or --link")
}
