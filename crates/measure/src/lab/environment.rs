//! Where, when and with what a run was made.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use headstart::companion;
use headstart_emulation::{Counters, Exactness, Lab, Scheduling};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::plan::Stage;

/// Kind of this build, in environment.json.
pub(crate) const BUILD: &str = if cfg!(debug_assertions) { "debug" } else { "release" };

/// environment.json.
#[derive(Debug, Serialize)]
pub(crate) struct Environment {
    command: Vec<String>,
    commit: String,
    version: &'static str,
    /// `optimised` or `debug` build: times of programs differ.
    build: &'static str,
    date: String,
    seconds: f64,
    kernel: String,
    cpu: String,
    cpus: usize,
    openssl: &'static str,
    privilege: &'static str,
    quick: bool,
    full: bool,
    seed: u64,
    /// Load of the machine over the last minute, before the run and at its end: others may have
    /// used it.
    load_before: Option<f64>,
    load_after: Option<f64>,
    /// Threshold of `flagged`, where the experiment sets it; otherwise a twentieth of the round
    /// trip, 300 us at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    late_us: Option<f64>,
    /// Versions of the programs beside this one.
    programs: BTreeMap<&'static str, String>,
    /// Set in each namespace.
    sysctls: BTreeMap<&'static str, &'static str>,
    #[serde(skip)]
    missed: u64,
    #[serde(skip)]
    refused: u64,
    stages: Vec<Value>,
    /// Facts that one kind of experiment knows.
    #[serde(flatten)]
    further: Map<String, Value>,
    #[serde(skip)]
    begun: SystemTime,
}

/// Facts about a run that are not the machine's.
#[derive(Debug, Clone, Default)]
pub(crate) struct About {
    pub(crate) quick: bool,
    pub(crate) full: bool,
    pub(crate) seed: u64,
    pub(crate) late: Option<Duration>,
    pub(crate) programs: BTreeMap<&'static str, String>,
    pub(crate) sysctls: BTreeMap<&'static str, &'static str>,
}

impl Environment {
    /// The state before the run; `root` says whether it runs without a user namespace.
    pub(crate) fn new(about: About, root: bool) -> Self {
        let About { quick, full, seed, late, programs, sysctls } = about;
        let begun = SystemTime::now();
        Self {
            command: command(),
            commit: commit(),
            version: env!("CARGO_PKG_VERSION"),
            build: BUILD,
            date: humantime::format_rfc3339_seconds(begun).to_string(),
            seconds: 0.0,
            kernel: first_line("/proc/sys/kernel/osrelease"),
            cpu: cpu_name(),
            cpus: std::thread::available_parallelism().map_or(0, usize::from),
            openssl: openssl::version::version(),
            privilege: if root { "root" } else { "user namespace" },
            quick,
            full,
            seed,
            load_before: load(),
            load_after: None,
            late_us: late.map(|late| late.as_secs_f64() * 1e6),
            programs,
            sysctls,
            missed: 0,
            refused: 0,
            stages: Vec::new(),
            further: Map::new(),
            begun,
        }
    }

    /// Adds what the forwarder says of a stage that is over.
    pub(crate) fn add_stage(&mut self, stage: &Stage, lab: &Lab) {
        let programs = stage.scheduling(0).map(Scheduling::granted).unwrap_or_default();
        let programs = json!({ "realtime": programs.realtime, "pinned": programs.cpu.is_some() });
        self.add_lab(&stage.name(), stage.late, programs, lab);
    }

    /// The same of an emulated network by itself; `programs` is how what ran in it was scheduled.
    pub(crate) fn add_lab(&mut self, name: &str, late: Duration, programs: Value, lab: &Lab) {
        let counters = lab.counters();
        self.missed += counters.ports.iter().map(|port| port.missed).sum::<u64>();
        self.refused += counters.ports.iter().map(|port| port.refused).sum::<u64>();
        self.stages.push(of_lab(name, late, programs, &counters, lab.exactness()));
    }

    pub(crate) fn add(&mut self, name: &str, value: Value) {
        self.further.insert(name.to_owned(), value);
    }

    /// Returns what spoils a run, if it happened.
    pub(crate) fn warning(&self) -> Option<String> {
        let (missed, refused) = (self.missed, self.refused);
        (missed + refused > 0).then(|| {
            format!(
                "warning: the forwarder missed {missed} frames and {refused} were refused: this \
                    machine was too slow, and losses in the results are not only those asked for"
            )
        })
    }

    /// State after the run.
    pub(crate) fn end(&mut self) {
        self.seconds = self.begun.elapsed().map_or(0.0, |elapsed| elapsed.as_secs_f64().round());
        self.load_after = load();
    }
}

fn of_lab(
    name: &str,
    late: Duration,
    programs: Value,
    counters: &Counters,
    exactness: Exactness,
) -> Value {
    let ports = &counters.ports;
    let links = ports.iter().flat_map(|port| [&port.outbound, &port.inbound]);
    json!({
        "name": name,
        "late_us": late.as_secs_f64() * 1e6,
        "programs": programs,
        "forwarder": {
            "realtime": exactness.realtime,
            "pinned": exactness.pinned,
            "timestamps": exactness.timestamps,
        },
        "packets": counters.lateness.count,
        "lateness_us": {
            "p50": counters.lateness.p50.as_micros(),
            "p99": counters.lateness.p99.as_micros(),
            "max": counters.lateness.max.as_micros(),
        },
        "missed": ports.iter().map(|port| port.missed).sum::<u64>(),
        "refused": ports.iter().map(|port| port.refused).sum::<u64>(),
        "overflowed": links.clone().map(|link| link.overflowed).sum::<u64>(),
        "dropped_by_links": links.map(|link| link.dropped).sum::<u64>(),
        "unroutable": counters.unroutable,
    })
}

/// Returns the commit of the checkout that this program was built in, `-dirty` behind it if files
/// have changed since; `unknown` without git or away from the checkout.
///
/// Read at run time: as a part of the program it would rebuild the program at each commit.
pub(crate) fn commit() -> String {
    let arguments = ["describe", "--always", "--dirty", "--abbrev=12", "--exclude", "*"];
    let mut git = Command::new("git");
    git.args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).stderr(Stdio::null());
    let output = git.output().ok().filter(|output| output.status.success());
    let text = output.and_then(|output| String::from_utf8(output.stdout).ok());
    text.map_or_else(|| "unknown".to_owned(), |text| text.trim().to_owned())
}

/// The program by its name alone: where it is installed says nothing of the run.
fn command() -> Vec<String> {
    let mut arguments =
        std::env::args().filter(|argument| !argument.starts_with(companion::CALLED_BY));
    arguments
        .next()
        .map(|path: String| {
            Path::new(&path).file_name().map_or(path.clone(), |name| name.to_string_lossy().into())
        })
        .into_iter()
        .chain(arguments)
        .collect()
}

fn first_line(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}

fn cpu_name() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("model name"));
    line.and_then(|line| line.split_once(':')).map_or(String::new(), |(_, name)| name.trim().into())
}

fn load() -> Option<f64> {
    first_line("/proc/loadavg").split(' ').next()?.parse().ok()
}
