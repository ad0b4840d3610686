//! `headstart lab run all`: every experiment that is built in, one after another and on one build.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::chart::figure::share;
use crate::folder;
use crate::interrupt::Interrupt;
use crate::json::json;
use crate::lab::bars::Tally;
use crate::lab::options::LabRunOptions;
use crate::lab::report::folder as written;
use crate::lab::summary::CellSummary;
use crate::lab::{builtin, environment, process, results};
use crate::progress::in_words;
use crate::table::{header, table};
use headstart::base::failure::{Failure, NEGATIVE};
use headstart::base::output;

/// Stands where others have the name of an experiment.
pub(super) const NAME: &str = "all";

/// Share of the processors' time that the rest of the machine may take when an experiment begins,
/// and the time over which it is measured.
const BUSY_MAX: f64 = 0.1;
const WATCHED: Duration = Duration::from_secs(2);

/// Time in which the machine must become idle: programs of the experiment before may still end.
const SETTLES: Duration = Duration::from_secs(60);

/// Parts of what stands for a commit where there is none.
const UNKNOWN: &str = "unknown";
const DIRTY: &str = "-dirty";

/// Interval at which a wait looks whether the user has interrupted.
const LOOK: Duration = Duration::from_millis(100);

/// An experiment that has been run, or could not be.
#[derive(Debug, Serialize)]
struct Entry {
    experiment: String,
    /// Results that were there before are `kept`; an experiment without any has `none`.
    results: &'static str,
    /// Cells without results.
    broken: usize,
    trials: u64,
    failed: u64,
    flagged: u64,
    bars: Option<Tally>,
    seconds: f64,
}

/// The parts of environment.json by which results are told apart.
#[derive(Debug, PartialEq, Deserialize)]
struct Origin {
    commit: String,
    build: String,
    quick: bool,
    seconds: f64,
}

/// Runs what has no results yet in the folder of `--out`, each in a process of its own.
pub(super) fn run(options: &LabRunOptions) -> Result<ExitCode, Failure> {
    check(options)?;
    let place = options.out.clone().unwrap_or_else(|| results::default_place(NAME));
    folder::make(&place, "--out")?;
    let interrupt = Interrupt::listen()?;
    let names = builtin::names()?;
    // Before anything is measured, for hours: all that is there must be of this build.
    names.iter().try_for_each(|name| check_origin(&place.join(name), options))?;
    let mut entries = Vec::new();
    for (at, name) in names.iter().enumerate() {
        let folder = place.join(name);
        let kept = folder.exists();
        let note = if kept { ": kept" } else { "" };
        eprintln!("[{} of {}] {name}{note}", at + 1, names.len());
        if !kept {
            measure(name, &folder, options, &interrupt)?;
            // Somebody may have committed meanwhile.
            check_origin(&folder, options)?;
        }
        entries.push(Entry::read(name, &folder, kept)?);
    }
    let text = if options.json { json(&entries)? } else { text(&entries) };
    output::print(text.as_bytes())?;
    eprintln!("results in {}", place.display());
    Ok(if entries.iter().all(Entry::is_good) { ExitCode::SUCCESS } else { NEGATIVE.into() })
}

/// Refuses options that not every experiment has.
fn check(options: &LabRunOptions) -> Result<(), Failure> {
    let given = [
        ("--link", !options.links.is_empty()),
        ("--beside", options.beside.is_some()),
        ("--full", options.full),
        ("--pcap", options.pcap),
        ("--qlog", options.qlog.qlog.is_some()),
    ];
    if let Some((name, _)) = given.into_iter().find(|(_, given)| *given) {
        return Err(Failure::usage(format!("not all experiments have {name}"))
            .hint("give it to the run of one experiment"));
    }
    let commit = environment::commit();
    if !options.quick && (commit == UNKNOWN || commit.ends_with(DIRTY)) {
        return Err(Failure::usage(format!("the results would be of no commit ({commit})"))
            .hint("commit what has changed, and run the program that was built from it"));
    }
    Ok(())
}

/// Refuses results of another build or of another size.
fn check_origin(folder: &Path, options: &LabRunOptions) -> Result<(), Failure> {
    if !folder.exists() {
        return Ok(());
    }
    let origin: Origin = written::json(folder, "environment.json")?;
    let (commit, build) = (environment::commit(), environment::BUILD);
    if (&*origin.commit, &*origin.build, origin.quick) == (&*commit, build, options.quick) {
        return Ok(());
    }
    let Origin { commit: other, build: made, .. } = &origin;
    let size = if origin.quick { "short" } else { "usual" };
    let found =
        format!("{} is of the {made} build of {other} in its {size} form", folder.display());
    Err(Failure::usage(format!("{found}, and this is the {build} build of {commit}"))
        .hint("name another folder with --out, or remove this one"))
}

/// Runs one experiment to its end.
fn measure(
    name: &str,
    folder: &Path,
    options: &LabRunOptions,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    if !options.quick && !options.busy {
        await_idle(interrupt)?;
    }
    let mut command = Command::new(env::current_exe().map_err(|error| unstarted(name, &error))?);
    command.args(["lab", "run", name, "--out"]).arg(folder);
    command.args(options.quick.then_some("--quick"));
    command.args(options.seed.map(|seed| format!("--seed={seed}")));
    // Its own process group: Ctrl-C reaches it once, from here.
    command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
    headstart_emulation::interrupt_with_parent(&mut command);
    let child = command.spawn().map_err(|error| unstarted(name, &error))?;
    let status = ended(child, interrupt).map_err(|error| unstarted(name, &error))?;
    if interrupt.is_set() {
        return Err(interrupted());
    }
    if !folder.exists() {
        eprintln!("note: {name} has no results ({status})");
    }
    Ok(())
}

fn unstarted(name: &str, error: &std::io::Error) -> Failure {
    Failure::usage(format!("cannot run {name}: {error}"))
}

fn interrupted() -> Failure {
    Failure::usage("interrupted").hint("the same command with the same --out goes on from here")
}

/// Waits for the end of a run, and passes an interrupt on to it.
fn ended(mut child: Child, interrupt: &Interrupt) -> std::io::Result<ExitStatus> {
    let mut told = false;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if interrupt.is_set() && !std::mem::replace(&mut told, true) {
            let _ = kill_process(Pid::from_child(&child), Signal::INT);
        }
        thread::sleep(LOOK);
    }
}

/// Waits until nobody else uses the machine.
fn await_idle(interrupt: &Interrupt) -> Result<(), Failure> {
    let until = Instant::now() + SETTLES;
    loop {
        let Some(busy) = busy_share() else { return Ok(()) };
        if interrupt.is_set() {
            return Err(interrupted());
        }
        if busy <= BUSY_MAX {
            return Ok(());
        }
        if Instant::now() >= until {
            let percent = 100.0 * busy;
            return Err(Failure::usage(format!(
                "the machine is busy: others take {percent:.0} % of its processors' time"
            ))
            .hint("end them and repeat the command, which goes on; --busy measures all the same"));
        }
    }
}

/// Returns the share of the processors' time that was used while this process slept.
fn busy_share() -> Option<f64> {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let (before, begun) = (used(cpus)?, Instant::now());
    thread::sleep(WATCHED);
    let used = used(cpus)?.saturating_sub(before);
    Some(used.as_secs_f64() / (begun.elapsed().as_secs_f64() * cpus as f64))
}

/// Returns the time that these processors were not idle so far.
fn used(cpus: usize) -> Option<Duration> {
    (0..cpus).map(process::busy).sum()
}

impl Entry {
    /// Reads the results of an experiment, if it has any.
    fn read(name: &str, folder: &Path, kept: bool) -> Result<Self, Failure> {
        let mut entry = Self {
            experiment: name.to_owned(),
            results: if kept { "kept" } else { "new" },
            broken: 0,
            trials: 0,
            failed: 0,
            flagged: 0,
            bars: None,
            seconds: 0.0,
        };
        if !folder.exists() {
            entry.results = "none";
            return Ok(entry);
        }
        let cells: Vec<CellSummary> = written::json(folder, "summary.json")?;
        entry.broken = cells.iter().filter(|cell| cell.broken.is_some()).count();
        for cell in &cells {
            entry.trials += cell.n;
            entry.failed += cell.failed;
            entry.flagged += cell.flagged;
        }
        entry.bars = Some(Tally::new(&written::verdicts(folder)?));
        entry.seconds = written::json::<Origin>(folder, "environment.json")?.seconds;
        Ok(entry)
    }

    fn is_good(&self) -> bool {
        self.broken == 0 && self.bars.is_some_and(Tally::all_met)
    }

    fn cells(&self) -> Vec<String> {
        vec![
            self.experiment.clone(),
            self.results.into(),
            self.broken.to_string(),
            self.trials.to_string(),
            share(self.failed, self.trials),
            share(self.flagged, self.trials),
            self.bars.map_or("–".into(), Tally::figures),
            self.bars.map_or("–".into(), Tally::completion),
            in_words(Duration::from_secs_f64(self.seconds)),
        ]
    }
}

fn text(entries: &[Entry]) -> String {
    let names = ["experiment", "results", "broken", "trials", "failed", "flagged", "bars met"];
    let names = [&names[..], &["completion", "took"]].concat();
    let rows: Vec<_> =
        [header(&names)].into_iter().chain(entries.iter().map(Entry::cells)).collect();
    table(&rows, &[0, 1])
}
