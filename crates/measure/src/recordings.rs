//! Pages from files, whatever wrote them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

use flate2::read::MultiGzDecoder;
use headstart_pageload::blast::{self, Logged, Record};
use headstart_pageload::cs244;
use headstart_pageload::har::{self, Facts, Parents};
use headstart_pageload::page::{Ignored, Page};
use headstart_pageload::printable;

use crate::progress::Progress;
use headstart::base::failure::Failure;

/// Bytes by which a kind of file is told: the first keys are among them.
const HEAD: u64 = 4096;

/// Magic number of a compressed file (RFC 1952 section 2.3.1).
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Bytes of a line of published loads: the largest has 0.5 MB.
const LINE_BYTES: u64 = 64 << 20;

/// Published loads of one file: a hundred times as many as there are. They are in memory together.
const LOADS_MAX: usize = 10_000;

/// A page, and what its file says beside it.
#[derive(Debug)]
pub(crate) struct Recording {
    pub(crate) file: String,
    pub(crate) page: Page,
    /// Facts of a HAR file.
    pub(crate) har: Option<HarFacts>,
}

#[derive(Debug)]
pub(crate) struct HarFacts {
    /// Facts of each resource.
    pub(crate) facts: Vec<Facts>,
    pub(crate) parents: Parents,
    /// Round trip of each server, in ms.
    pub(crate) round_trips_ms: Vec<f64>,
}

/// The pages of one file, and entries that are of none.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(crate) recordings: Vec<Recording>,
    pub(crate) ignored: Ignored,
}

/// The name of a file, as a terminal and a report may have it: files come from others, their names
/// do, too.
pub(crate) fn name_of(path: &Path) -> String {
    printable(&path.to_string_lossy())
}

/// Reads files on all cores, and gives what `of` makes of each and its place, in their order.
///
/// Keeps the results alone: thousands of recordings are larger than their figures.
pub(crate) fn read_all<T: Send>(
    files: &[PathBuf],
    of: impl Fn(usize, Contents) -> T + Sync,
) -> Vec<(String, Result<T, Failure>)> {
    let progress = Progress::with_bytes(total(files));
    let done = on_all_cores(files.iter().enumerate(), |(place, path)| {
        let name = name_of(path);
        progress.stage(&name);
        let read = read(path, &name, &progress).map(|contents| of(place, contents));
        (name, read)
    });
    progress.done();
    done
}

/// Applies `of` to each, and returns the results in their order.
pub(crate) fn on_all_cores<T: Send, R: Send>(
    all: impl ExactSizeIterator<Item = T> + Send,
    of: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    on_threads(thread::available_parallelism().map_or(1, Into::into), all, of)
}

/// The same on at most so many threads.
pub(crate) fn on_threads<T: Send, R: Send>(
    threads: usize,
    all: impl ExactSizeIterator<Item = T> + Send,
    of: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let workers = threads.min(all.len());
    let done = Mutex::new(Vec::with_capacity(all.len()));
    let next = Mutex::new(all.enumerate());
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let Some((number, one)) = locked(&next).next() else { break };
                    let made = of(one);
                    locked(&done).push((number, made));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, made)| made).collect()
}

/// One page of one file, counted from 1.
pub(crate) fn read_page(path: &Path, number: usize) -> Result<Page, Failure> {
    let name = path.display().to_string();
    let progress = Progress::with_bytes(total(&[path]));
    let contents = read(path, &name, &progress);
    progress.done();
    let mut recordings = contents?.recordings.into_iter();
    let recording = recordings.nth(number.saturating_sub(1));
    recording.map(|recording| recording.page).ok_or_else(|| {
        Failure::usage(format!("{name} has no page {number}"))
            .hint("`headstart pageload show` tells what is in the file")
    })
}

/// Reads the one page of a HAR file in memory.
pub(crate) fn only_one(har: &[u8]) -> Result<har::Recording, String> {
    let read = har::read(har).map_err(|error| error.to_string())?;
    read.recordings.into_iter().next().ok_or_else(|| "there is no page in it".into())
}

/// A worker that panicked ends the program anyway, when the scope does.
fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn read(path: &Path, name: &str, progress: &Progress) -> Result<Contents, Failure> {
    let input = open(path).map_err(|error| unreadable(name, &error))?;
    let (head, whole) = peek(progress.wrap(input)).map_err(|error| unreadable(name, &error))?;
    if !head.starts_with(&GZIP) {
        return of_kind(&head, whole, name);
    }
    let (head, whole) =
        peek(MultiGzDecoder::new(whole)).map_err(|error| unreadable(name, &error))?;
    of_kind(&head, whole, name)
}

/// Bytes of all files; none if one has no length.
pub(crate) fn total(files: &[impl AsRef<Path>]) -> Option<u64> {
    let files = files.iter().map(|path| fs::metadata(path).ok().filter(fs::Metadata::is_file));
    files.map(|file| file.map(|file| file.len())).sum()
}

/// Opens a file, or standard input by the name `-`.
pub(crate) fn open(path: &Path) -> io::Result<Box<dyn Read>> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    let file = File::open(path)?;
    match file.metadata()?.is_dir() {
        true => Err(io::ErrorKind::IsADirectory.into()),
        false => Ok(Box::new(file)),
    }
}

pub(crate) fn unreadable(name: &str, error: &io::Error) -> Failure {
    Failure::usage(format!("cannot read {name}: {error}"))
        .hint("name a file that you may read, or - for standard input")
}

/// A file, decompressed if it is compressed.
pub(crate) fn open_unpacked(path: &Path) -> io::Result<Box<dyn Read>> {
    let (head, whole) = peek(open(path)?)?;
    Ok(if head.starts_with(&GZIP) { Box::new(MultiGzDecoder::new(whole)) } else { Box::new(whole) })
}

/// An input that begins with what was read of it already.
type Whole<R> = io::Chain<Cursor<Vec<u8>>, R>;

/// The first bytes, and all of them.
fn peek<R: Read>(mut input: R) -> io::Result<(Vec<u8>, Whole<R>)> {
    let mut head = Vec::new();
    input.by_ref().take(HEAD).read_to_end(&mut head)?;
    Ok((head.clone(), Cursor::new(head).chain(input)))
}

fn of_kind(head: &[u8], whole: impl Read, name: &str) -> Result<Contents, Failure> {
    match head {
        head if is_cs244(head) => cs244(whole, name),
        head if is_published(head) => published(whole, name),
        _ => har(whole, name),
    }
}

/// Returns true if a file is a recording of CS244 as JSON: a HAR file begins with `log`.
fn is_cs244(head: &[u8]) -> bool {
    let head = String::from_utf8_lossy(head);
    !head.contains("\"log\"")
        && ["\"requests\"", "\"head_bytes\""].iter().any(|key| head.contains(key))
}

/// Returns true if a file has page loads as published with BLAST, one in a line.
fn is_published(head: &[u8]) -> bool {
    head.trim_ascii_start().starts_with(b"{\"set\":")
}

/// The logged trees; lists and trees that were inferred are left out, as their times mean nothing.
fn published(input: impl Read, name: &str) -> Result<Contents, Failure> {
    let mut recordings = Vec::new();
    for line in logged(input, name) {
        let (number, logged) = line?;
        if recordings.len() == LOADS_MAX {
            return Err(Failure::usage(format!("{name} has more than {LOADS_MAX} page loads"))
                .hint("split it into several files"));
        }
        let page = without_names(&logged, number).ok_or_else(|| not_published(name, number, ""))?;
        recordings.push(Recording { file: name.to_owned(), page, har: None });
    }
    match recordings.is_empty() {
        false => Ok(Contents { recordings, ignored: Ignored::default() }),
        true => Err(not_published(name, 1, ": there is no logged load in it")),
    }
}

/// The logged trees of a file of published loads, each with the number of its line.
pub(crate) fn logged(
    input: impl Read,
    name: &str,
) -> impl Iterator<Item = Result<(usize, Logged), Failure>> {
    let mut input = BufReader::new(input);
    let mut number = 0;
    std::iter::from_fn(move || {
        loop {
            number += 1;
            match next_record(&mut input, name, number) {
                Ok(None) => break None,
                Ok(Some(Record::Logged(logged))) => break Some(Ok((number, logged))),
                Ok(Some(_)) => {}
                Err(failure) => break Some(Err(failure)),
            }
        }
    })
}

/// Reads the record of one line; `None` at the end of the file.
fn next_record(
    input: &mut impl BufRead,
    name: &str,
    number: usize,
) -> Result<Option<Record>, Failure> {
    let mut line = String::new();
    let read = input.take(LINE_BYTES).read_line(&mut line);
    if read.map_err(|error| unreadable(name, &error))? == 0 {
        return Ok(None);
    }
    let record = blast::read(&line);
    record.map(Some).map_err(|error| not_published(name, number, &format!(": {error}")))
}

fn not_published(name: &str, number: usize, why: &str) -> Failure {
    Failure::usage(format!("cannot read {name}, line {number}{why}"))
        .hint("name page loads published with BLAST (.jsonl)")
}

/// The page with numbers for sites and hosts: these are real ones, of people who did not know.
fn without_names(logged: &Logged, line: usize) -> Option<Page> {
    let page = &logged.page;
    let mut numbers = BTreeMap::new();
    let mut servers = page.servers().to_vec();
    for (place, server) in servers.iter_mut().enumerate() {
        // Half of the files have no name.
        let known = (!server.host.is_empty()).then(|| std::mem::take(&mut server.host));
        let number = known.map_or(place, |host| *numbers.entry(host).or_insert(place));
        server.host = format!("server-{number}.site-{}", logged.site);
    }
    let mut resources = page.resources().to_vec();
    resources.iter_mut().for_each(|one| one.url.clear());
    let name = format!("site {}, line {line}", logged.site);
    let same = Page::new(name, servers, resources).ok()?;
    Some(same.with_redirects(page.redirects()).with_ignored(page.ignored().clone()))
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
    let recordings = har
        .recordings
        .into_iter()
        .map(|recording: har::Recording| Recording {
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
        })
        .collect();
    Ok(Contents { recordings, ignored: har.ignored })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_from_all_cores_are_in_order() {
        let made = on_all_cores(0..1000, |number| number * 2);
        assert!(made.into_iter().eq((0..1000).map(|number| number * 2)));
        assert!(on_all_cores(0..0, |number: i32| number).is_empty());
    }

    #[test]
    fn file_names_cannot_control_the_terminal() {
        assert_eq!(name_of(Path::new("a\x1b[2J\n.har")), "a [2J .har");
    }

    #[test]
    fn kinds_of_files_are_told_by_their_beginning() {
        assert!(is_cs244(br#"{"name": "x", "head_bytes": 4000, "requests": ["#));
        assert!(!is_cs244(br#"{"log": {"comment": "\"requests\""}}"#));
        assert!(is_published(b"\n{\"set\":\"A\",\"site\":0"));
        assert!(!is_published(br#"{"log": {"version": "1.2"}}"#));
    }
}
