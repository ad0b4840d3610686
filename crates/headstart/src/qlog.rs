//! Events of connections as qlog files (draft-ietf-quic-qlog-main-schema; docs/qlog.md).
//!
//! The events are those of `get --explain` and the status page, and those of
//! [`EdgeTimeline`]. Daemons hand them to a thread that writes, when a connection has ended; if it
//! does not keep up, connections go unlogged, and none waits.

mod event;
pub mod options;
#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use headstart_net::{EdgeTimeline, Report};
use rustix::fs::{Access, AtFlags, Mode, OFlags, accessat, openat, unlinkat};
use serde_json::{Value, json};

use crate::base::failure::Failure;
use crate::base::files::{FileFault, make_own_directory, open_own_directory};
use crate::base::log_throttle::LogThrottle;
use event::Event;
use options::QlogOptions;

/// Files in a directory, with which no more are written: 40 MB where each has 30 events.
const FILES_MAX: usize = 10_000;

/// Connections that wait to be written, each with at most 97 events: 2 MB.
const WAITING: usize = 256;

/// Ending of the files, as the draft recommends for its sequential format.
const ENDING: &str = ".sqlog";

/// Event schema of the files. Not in the registry of IANA: the project's own.
const SCHEMA: &str = "urn:headstart:turbotls-1";

/// Record separator of JSON text sequences (RFC 7464).
const RS: u8 = 0x1e;

/// Connections to be written by the thread of this process; `None` within once it has ended.
static QUEUE: OnceLock<Mutex<Option<SyncSender<Trace>>>> = OnceLock::new();

/// Connections that go unlogged.
static LOST: LogThrottle = LogThrottle::new();

/// Events of one connection, and how it went.
#[derive(Debug)]
pub struct Trace {
    events: Vec<(Instant, Event)>,
    shows_addresses: bool,
}

impl Trace {
    /// A connection to a server, as its report tells; addresses only if they are `shown`.
    pub(crate) fn opening(report: &Report, shown: bool) -> Self {
        let entries = report.timeline.iter();
        let entries =
            entries.map(|entry| (report.begun + entry.at, Event::Opening(entry.event))).collect();
        Self { events: entries, shows_addresses: shown }
    }

    /// A connection of this program's own, now that it has ended with this result.
    #[must_use]
    pub fn own(report: &Report, result: &'static str) -> Self {
        Self::opening(report, true).ended(report.opened_by.name(), result, report.address)
    }

    /// A connection to an edge.
    pub(crate) fn edge(timeline: &EdgeTimeline, shown: bool) -> Self {
        let entries = timeline.entries().into_iter();
        let events = entries.map(|(at, event)| (at, Event::Edge(event))).collect();
        Self { events, shows_addresses: shown }
    }

    /// Adds the end, now, with words of the program and the address of the other side.
    pub(crate) fn ended(
        mut self,
        opening: &'static str,
        result: &'static str,
        remote: Option<SocketAddr>,
    ) -> Self {
        self.events.push((Instant::now(), Event::Ended { opening, result, remote }));
        self
    }

    /// Returns true if nothing happened before its end.
    pub(crate) fn is_empty(&self) -> bool {
        self.events.len() <= 1
    }

    /// Returns the file of a connection that `vantage` saw. Its times count from the first event.
    fn text(&self, vantage: Vantage) -> Vec<u8> {
        let now = Instant::now();
        let begun = self.events.first().map_or(now, |(at, _)| *at);
        let wall = SystemTime::now().checked_sub(now.saturating_duration_since(begun));
        let mut text = Vec::new();
        add(&mut text, &vantage.header(wall.unwrap_or(SystemTime::UNIX_EPOCH)));
        for (at, event) in &self.events {
            let (name, data) = event.entry(self.shows_addresses);
            let ms = millis(at.saturating_duration_since(begun));
            add(&mut text, &json!({ "time": ms, "name": name, "data": data }));
        }
        text
    }
}

/// Adds a record of a JSON text sequence.
fn add(text: &mut Vec<u8>, record: &Value) {
    text.push(RS);
    text.extend_from_slice(record.to_string().as_bytes());
    text.push(b'\n');
}

/// Milliseconds to the microsecond.
fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

/// Program that sees the events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vantage {
    /// `headstart edge`.
    Edge,
    /// `headstart agent`.
    Agent,
    /// `headstart get`.
    Get,
    /// A client of `headstart lab`.
    Lab,
}

impl Vantage {
    const fn name(self) -> &'static str {
        match self {
            Self::Edge => "edge",
            Self::Agent => "agent",
            Self::Get => "get",
            Self::Lab => "lab",
        }
    }

    /// Returns the first record of a file.
    fn header(self, begun: SystemTime) -> Value {
        let side = if self == Self::Edge { "server" } else { "client" };
        json!({
            "file_schema": "urn:ietf:params:qlog:file:sequential",
            "serialization_format": "application/qlog+json-seq",
            // By these, tools that are older than the two above tell the format.
            "qlog_version": "0.3",
            "qlog_format": "JSON-SEQ",
            "trace": {
                "event_schemas": [SCHEMA],
                "vantage_point": { "name": format!("headstart {}", self.name()), "type": side },
                "common_fields": {
                    "time_format": "relative_to_epoch",
                    "reference_time": {
                        "clock_type": "monotonic",
                        "epoch": "unknown",
                        "wall_clock_time": humantime::format_rfc3339_millis(begun).to_string(),
                    },
                },
            },
        })
    }
}

/// A directory of qlog files.
#[derive(Debug)]
pub struct Directory {
    directory: File,
    vantage: Vantage,
    /// Tells the files of this process from those of others.
    start: u128,
    /// Files that were there, and those written since.
    files: usize,
    written: u64,
}

impl Directory {
    /// Makes the directory, or takes one of this user.
    ///
    /// # Errors
    /// Files cannot be written there, or others could.
    pub fn open(path: &Path, vantage: Vantage) -> Result<Self, Failure> {
        make_own_directory(path).map_err(|fault| unusable(path, &fault))?;
        let directory = open(path).map_err(|fault| unusable(path, &fault))?;
        let entries = fs::read_dir(path).map_err(|error| unusable(path, &error.into()))?;
        let is_file = |name: &std::ffi::OsStr| name.to_string_lossy().ends_with(ENDING);
        let files = entries.flatten().filter(|entry| is_file(&entry.file_name())).count();
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let opened = Self { directory, vantage, start: since.as_millis(), files, written: 0 };
        opened.warn_if_full();
        Ok(opened)
    }

    fn warn_if_full(&self) {
        if self.files >= FILES_MAX {
            tracing::warn!(files = FILES_MAX, "--qlog: the directory is full: no more are written");
        }
    }

    /// Writes the file of a connection, or says why not.
    pub fn write(&mut self, trace: &Trace) {
        if self.files >= FILES_MAX {
            return;
        }
        match self.create(&trace.text(self.vantage)) {
            Ok(()) => {
                self.files += 1;
                self.warn_if_full();
            }
            Err(error) => {
                if let Some(left_out) = LOST.line(Instant::now()) {
                    tracing::warn!(%error, left_out, "--qlog: cannot write");
                }
            }
        }
    }

    fn create(&mut self, text: &[u8]) -> io::Result<()> {
        let (start, number, id) = (self.start, self.written, process::id());
        let name = format!("{}-{start}-{id}-{number:06}{ENDING}", self.vantage.name());
        self.written += 1;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = openat(&self.directory, &name, flags | OFlags::CLOEXEC, mode)?;
        File::from(file).write_all(text).inspect_err(|_| {
            // Half a file is of no use, and a full disk needs its room.
            let _ = unlinkat(&self.directory, &name, AtFlags::empty());
        })
    }
}

/// Opens a directory of this user in which files can be made.
fn open(path: &Path) -> Result<File, FileFault> {
    let directory = open_own_directory(path)?;
    let access = Access::WRITE_OK | Access::EXEC_OK;
    accessat(&directory, ".", access, AtFlags::EACCESS).map_err(io::Error::from)?;
    Ok(directory)
}

/// Checks an existing directory.
///
/// # Errors
/// As [`Directory::open`].
pub(crate) fn check(path: &Path) -> Result<(), Failure> {
    open(path).map(drop).map_err(|fault| unusable(path, &fault))
}

fn unusable(path: &Path, fault: &FileFault) -> Failure {
    let failure = Failure::usage(format!("--qlog {}: {fault}", path.display()));
    let advice = fault.failure(path).advice().map(str::to_owned);
    failure.hint(advice.unwrap_or_else(|| "name a directory that this user can write to".into()))
}

/// Thread that writes the files of a daemon; dropped, it writes those that wait.
#[derive(Debug)]
pub(crate) struct Writer(Option<JoinHandle<()>>);

/// Starts to write files, if that is wanted.
///
/// # Errors
/// As [`Directory::open`].
pub(crate) fn start(options: &QlogOptions, vantage: Vantage) -> Result<Option<Writer>, Failure> {
    let Some(path) = &options.qlog else { return Ok(None) };
    let directory = Directory::open(path, vantage)?;
    let (sender, traces) = sync_channel(WAITING);
    let writer = thread::Builder::new().name("qlog".into()).spawn(|| write(directory, traces));
    let writer = writer.map_err(|error| unusable(path, &error.into()))?;
    *lock(QUEUE.get_or_init(Mutex::default)) = Some(sender);
    Ok(Some(Writer(Some(writer))))
}

fn write(mut directory: Directory, traces: Receiver<Trace>) {
    traces.iter().for_each(|trace| directory.write(&trace));
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Some(queue) = QUEUE.get() {
            *lock(queue) = None;
        }
        if let Some(writer) = self.0.take() {
            let _ = writer.join();
        }
    }
}

/// Returns true if connections of this process are logged.
pub(crate) fn is_on() -> bool {
    QUEUE.get().is_some()
}

/// Hands a connection to the thread that writes, unless nothing happened on it.
pub(crate) fn log(trace: Trace) {
    let Some(queue) = QUEUE.get().filter(|_| !trace.is_empty()) else { return };
    let is_full = lock(queue).as_ref().is_some_and(|queue| queue.try_send(trace).is_err());
    if is_full && let Some(left_out) = LOST.line(Instant::now()) {
        tracing::warn!(left_out, "--qlog: too many connections end at once: some go unlogged");
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
