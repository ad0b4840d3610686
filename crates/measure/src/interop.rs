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
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use headstart::base::failure::{Failure, NEGATIVE};
use headstart::base::output;

use self::case::{CASES, Case};
use self::cell::{Cell, Miss};
use self::implementation::Implementation;
use self::matrix::{Matrix, Outcome, Row};
use self::options::InteropOptions;
use crate::interrupt::Interrupt;
use crate::lab::process::Broken;
use crate::network;

/// A cell that is due: the case, the client and the server.
type Due<'i> = (&'static Case, &'i Implementation, &'i Implementation);

/// Runs the cells and prints the matrix. Call it while the process has one thread.
///
/// # Errors
/// Wrong usage, a machine that does not allow it, files that cannot be written, an interrupt.
pub(crate) fn run(options: &InteropOptions) -> Result<ExitCode, Failure> {
    let mut all = vec![Implementation::product()?];
    all.extend(options.implementations.iter().cloned());
    let clients = named("implementation", &options.clients, &all, |one| &one.name)?;
    let servers = named("implementation", &options.servers, &all, |one| &one.name)?;
    let cases = named("case", &options.cases, CASES, |case| case.name)?;
    let mut due = Vec::new();
    for case in cases {
        due.extend(clients.iter().flat_map(|client| {
            servers.iter().map(move |server| -> Due<'_> { (case, client, server) })
        }));
    }
    let work = tempfile::tempdir().map_err(|error| unwritten(&std::env::temp_dir(), &error))?;
    let folder = options.out.as_deref().unwrap_or(work.path());
    if options.out.is_some() {
        fs::create_dir(folder).map_err(|error| unwritten(folder, &error))?;
    }
    network::become_privileged()?;
    let interrupt = Interrupt::listen()?;
    let matrix = Matrix { cells: run_all(&due, folder, options.jobs, &interrupt)? };
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

/// Runs cells, several at a time: what passes depends on the order of events, not on their speed.
fn run_all(
    due: &[Due<'_>],
    folder: &Path,
    jobs: u8,
    interrupt: &Interrupt,
) -> Result<Vec<Row>, Failure> {
    let next = Mutex::new(due.iter().enumerate());
    let take = || next.lock().ok()?.next();
    let work = || {
        let mut rows = Vec::new();
        while let Some((number, due)) = take() {
            match run_one(due, folder, interrupt)? {
                Some(row) => rows.push((number, row)),
                None => return Err(Failure::from(Broken::Interrupted)),
            }
        }
        Ok(rows)
    };
    let mut rows = Vec::new();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            let done = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            rows.extend(done?);
        }
        Ok::<_, Failure>(())
    })?;
    rows.sort_by_key(|(number, _)| *number);
    Ok(rows.into_iter().map(|(_, row)| row).collect())
}

/// Runs one cell; none if the user interrupted.
fn run_one(
    (case, client, server): &Due<'_>,
    folder: &Path,
    interrupt: &Interrupt,
) -> Result<Option<Row>, Failure> {
    let folder = folder.join(format!("{}-{}-{}", case.name, client.name, server.name));
    fs::create_dir(&folder).map_err(|error| unwritten(&folder, &error))?;
    let start = Instant::now();
    let (result, reason) = match (Cell { case, client, server, folder: &folder, interrupt }).run() {
        Ok(()) => (Outcome::Passed, None),
        Err(Miss::Failed(why)) => (Outcome::Failed, Some(why)),
        Err(Miss::Unsupported(name)) => {
            (Outcome::Unsupported, Some(format!("{name} does not have it")))
        }
        Err(Miss::Interrupted) => return Ok(None),
    };
    let seconds = start.elapsed().as_secs_f64();
    let [client, server] = [client, server].map(|one| one.name.clone());
    Ok(Some(Row { case: case.name, client, server, result, reason, seconds }))
}

/// Returns those that the user names; all if none are named.
fn named<'a, T>(
    what: &str,
    wanted: &[String],
    all: &'a [T],
    name: impl Fn(&T) -> &str,
) -> Result<Vec<&'a T>, Failure> {
    if let Some(unknown) = wanted.iter().find(|wanted| !all.iter().any(|one| name(one) == **wanted))
    {
        let known: Vec<_> = all.iter().map(&name).collect();
        return Err(Failure::usage(format!("there is no {what} '{unknown}'"))
            .hint(format!("there are {}", known.join(", "))));
    }
    let is_wanted =
        |one: &&T| wanted.is_empty() || wanted.iter().any(|wanted| name(one) == *wanted);
    Ok(all.iter().filter(is_wanted).collect())
}

fn unwritten(path: &Path, error: &std::io::Error) -> Failure {
    Failure::usage(format!("cannot write {}: {error}", path.display()))
}
