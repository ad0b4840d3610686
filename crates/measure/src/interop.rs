//! `headstart-lab interop`: each client with each server of several implementations, case by case
//! (docs/interop.md).

mod case;
mod cell;
mod evidence;
mod forger;
mod implementation;
mod judge;
mod matrix;
pub(crate) mod options;
mod tls;

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use headstart::base::failure::{Failure, NEGATIVE};
use headstart::base::output;

use self::case::{CASES, Case};
use self::cell::{Cell, NotPassed};
use self::implementation::Implementation;
use self::matrix::{Matrix, Outcome, Row};
use self::options::InteropOptions;
use crate::folder;
use crate::interrupt::Interrupt;
use crate::lab::process::Broken;
use crate::lab::runner::keep_named;
use crate::network;
use crate::progress::Progress;
use crate::recordings::on_threads;

/// A cell that is due: the case, the client and the server.
type Due<'i> = (&'static Case, &'i Implementation, &'i Implementation);

/// Runs the cells and prints the matrix. Call it while the process has one thread.
pub(crate) fn run(options: &InteropOptions) -> Result<ExitCode, Failure> {
    let mut all = vec![Implementation::product()?];
    all.extend(options.implementations.iter().cloned());
    let (mut clients, mut servers) = (all.clone(), all);
    let mut cases: Vec<_> = CASES.iter().collect();
    keep_named("implementation", &options.clients, &mut clients, |one| &one.name)?;
    keep_named("implementation", &options.servers, &mut servers, |one| &one.name)?;
    keep_named("case", &options.cases, &mut cases, |case| case.name)?;
    let mut due = Vec::new();
    for case in cases {
        due.extend(clients.iter().flat_map(|client| {
            servers.iter().map(move |server| -> Due<'_> { (case, client, server) })
        }));
    }
    let work = tempfile::tempdir().map_err(|error| unwritten(&std::env::temp_dir(), &error))?;
    let folder = options.out.as_deref().unwrap_or(work.path());
    if options.out.is_some() {
        folder::check_new(folder)?;
        folder::make(folder, "--out")?;
    }
    network::become_privileged()?;
    let interrupt = Interrupt::listen()?;
    let progress = Progress::with_turns(due.len() as u64);
    // What passes depends on the order of events and not on their speed: several run at a time.
    let rows = on_threads(options.jobs.into(), due.iter(), |due| {
        let row = run_one(due, folder, &interrupt);
        progress.step();
        row
    });
    progress.done();
    let matrix = Matrix { cells: rows.into_iter().collect::<Result<_, _>>()? };
    let json = serde_json::to_string_pretty(&matrix).unwrap_or_default() + "\n";
    if let Some(folder) = &options.out {
        for (name, text) in [("matrix.json", &json), ("matrix.html", &matrix.page())] {
            fs::write(folder.join(name), text).map_err(|error| unwritten(folder, &error))?;
        }
    }
    output::print(if options.json { json } else { matrix.text() }.as_bytes())?;
    match matrix.count(Outcome::Failed) {
        0 => Ok(ExitCode::SUCCESS),
        _ => Ok(ExitCode::from(NEGATIVE)),
    }
}

/// Runs one cell.
fn run_one(
    (case, client, server): &Due<'_>,
    folder: &Path,
    interrupt: &Interrupt,
) -> Result<Row, Failure> {
    let folder = folder.join(format!("{}-{}-{}", case.name, client.name, server.name));
    fs::create_dir(&folder).map_err(|error| unwritten(&folder, &error))?;
    if interrupt.is_set() {
        return Err(Broken::Interrupted.into());
    }
    let start = Instant::now();
    let (result, reason) = match (Cell { case, client, server, folder: &folder, interrupt }).run() {
        Ok(()) => (Outcome::Passed, None),
        Err(NotPassed::Failed(why)) => (Outcome::Failed, Some(why)),
        Err(NotPassed::Unsupported(name)) => {
            (Outcome::Unsupported, Some(format!("{name} does not have it")))
        }
        Err(NotPassed::Interrupted) => return Err(Broken::Interrupted.into()),
    };
    let seconds = start.elapsed().as_secs_f64();
    let [client, server] = [client, server].map(|one| one.name.clone());
    Ok(Row { case: case.name, client, server, result, reason, seconds })
}

fn unwritten(path: &Path, error: &std::io::Error) -> Failure {
    Failure::usage(format!("cannot write {}: {error}", path.display()))
}
