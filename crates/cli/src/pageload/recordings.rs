//! Pages from files, whatever wrote them.

use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

use headstart_pageload::cs244;
use headstart_pageload::har::{self, Facts, Parents};
use headstart_pageload::page::{Ignored, Page};

use super::progress::Progress;
use super::sharing;
use crate::failure::Failure;

/// Bytes by which a kind of file is told: the first keys are among them.
const HEAD: u64 = 4096;

/// A page, and what its file says beside it.
#[derive(Debug)]
pub(super) struct Recording {
    pub(super) file: String,
    pub(super) page: Page,
    /// Of a HAR file.
    pub(super) har: Option<HarFacts>,
}

#[derive(Debug)]
pub(super) struct HarFacts {
    /// Of each resource.
    pub(super) facts: Vec<Facts>,
    pub(super) parents: Parents,
    /// Of each server, in ms.
    pub(super) round_trips_ms: Vec<f64>,
}

/// The pages of one file, and entries that are of none.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) recordings: Vec<Recording>,
    pub(super) ignored: Ignored,
}

/// Reads files on all cores, and gives what `of` makes of each, in their order.
///
/// Only that is kept: thousands of recordings are larger than what is said of them.
pub(super) fn read_all<T: Send>(
    files: &[PathBuf],
    of: impl Fn(Contents) -> T + Sync,
) -> Vec<(String, Result<T, Failure>)> {
    let progress = Progress::new(sharing::total(files));
    let next = Mutex::new(files.iter().enumerate());
    let done = Mutex::new(Vec::with_capacity(files.len()));
    let work = || {
        loop {
            let Some((number, path)) = locked(&next).next() else { break };
            let name = path.display().to_string();
            progress.stage(name.clone());
            let read = read(path, &name, &progress).map(&of);
            locked(&done).push((number, name, read));
        }
    };
    let workers = thread::available_parallelism().map_or(1, Into::into).min(files.len());
    thread::scope(|scope| {
        for _ in 1..workers {
            scope.spawn(work);
        }
        work();
    });
    progress.done();
    let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_by_key(|(number, ..)| *number);
    done.into_iter().map(|(_, name, read)| (name, read)).collect()
}

/// One page of one file, counted from 1.
///
/// # Errors
/// It cannot be read, or has no such page.
pub(crate) fn read_page(path: &Path, number: usize) -> Result<Page, Failure> {
    let name = path.display().to_string();
    let progress = Progress::new(sharing::total(&[path]));
    let contents = read(path, &name, &progress);
    progress.done();
    let mut recordings = contents?.recordings.into_iter();
    let recording = recordings.nth(number.saturating_sub(1));
    recording.map(|recording| recording.page).ok_or_else(|| {
        Failure::usage(format!("{name} has no page {number}"))
            .hint("`headstart pageload show` tells what is in the file")
    })
}

/// A worker that panicked ends the program anyway, when the scope does.
fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn read(path: &Path, name: &str, progress: &Progress) -> Result<Contents, Failure> {
    let unreadable = |error: &io::Error| sharing::unreadable(name, error);
    let input = sharing::open(path).map_err(|error| unreadable(&error))?;
    let mut input = progress.of(input);
    let mut head = Vec::new();
    input.by_ref().take(HEAD).read_to_end(&mut head).map_err(|error| unreadable(&error))?;
    let is_cs244 = is_cs244(&head);
    let whole = Cursor::new(head).chain(input);
    if is_cs244 { cs244(whole, name) } else { har(whole, name) }
}

/// Whether a file is a recording of CS244 as JSON: a HAR file begins with `log`.
fn is_cs244(head: &[u8]) -> bool {
    let head = String::from_utf8_lossy(head);
    !head.contains("\"log\"")
        && ["\"requests\"", "\"head_bytes\""].iter().any(|key| head.contains(key))
}

fn cs244(input: impl Read, name: &str) -> Result<Contents, Failure> {
    let page = cs244::read_json(input).map_err(|error| {
        Failure::usage(format!("cannot read {name}: {error}"))
            .hint("name a HAR file, or a recording of CS244 as JSON")
    })?;
    let recording = Recording { file: name.to_owned(), page, har: None };
    Ok(Contents { recordings: vec![recording], ignored: Ignored::default() })
}

fn har(input: impl Read, name: &str) -> Result<Contents, Failure> {
    let har = har::read(input).map_err(|error| {
        Failure::usage(format!("cannot read {name}: {error}")).hint(error.hint())
    })?;
    let recording = |recording: har::Recording| Recording {
        file: name.to_owned(),
        page: recording.page,
        har: Some(HarFacts {
            facts: recording.facts,
            parents: recording.parents,
            round_trips_ms: recording
                .round_trips
                .iter()
                .map(|time| time.as_secs_f64() * 1e3)
                .collect(),
        }),
    };
    let recordings = har.recordings.into_iter().map(recording).collect();
    Ok(Contents { recordings, ignored: har.ignored })
}
