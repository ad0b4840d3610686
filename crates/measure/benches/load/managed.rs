//! Managed TLS of the agent, beside a program that speaks TLS itself and beside HAProxy that does
//! it for the program.
//!
//! The program and what speaks TLS for it share one processor, as on a machine where both have work
//! to do; the origin has another. So a rate is what that one processor bears, whoever does the
//! work.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use headstart_sessions::limits::TICKETS_PER_SERVER;

use super::handshakes::{pin, processors};
use super::originators::{Arm, Origin};
use super::process;
use super::relay::ratios;
use super::report::Report;
use super::stats::quantile;
use super::terminators::versions;
use super::visits::{self, Answer, Task, Work};
use super::{Failure, Plan};

/// Connections at a time: as many as the agent keeps tickets of one server, each of which is shown
/// once. More at a time would have some full handshakes among resumptions.
const AT_ONCE: usize = TICKETS_PER_SERVER;

/// Before a turn is measured: by then sessions are there and windows have opened.
const SETTLE: Duration = Duration::from_millis(200);

/// Between two turns: what is left of one is then over, such as connections that are being closed.
const PAUSE: Duration = Duration::from_millis(100);

/// Where the client's processor is less busy in a turn, something else is what limits, mostly the
/// origin.
const BUSY: f64 = 0.95;

/// Share of connections that resume where they can: the first in a turn have nothing to resume.
const RESUMED_FLOOR: f64 = 0.99;

/// Label of what is measured beside rates, costs and times.
const BETWEEN: &str = "of that, what is between";
const CLIENT_BUSY: &str = "client's processor busy";
const ORIGIN_BUSY: &str = "origin's processor busy";
const RESUMED: &str = "part resumed";

/// Work of an arm.
#[derive(Clone, Copy)]
enum Load {
    Connections { resumes: bool },
    Latency { resumes: bool },
    Bulk(usize),
}

impl Load {
    const ALL: [Self; 6] = [
        Self::Connections { resumes: false },
        Self::Connections { resumes: true },
        Self::Latency { resumes: false },
        Self::Latency { resumes: true },
        Self::Bulk(1),
        Self::Bulk(16),
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Connections { resumes: false } => "connections full",
            Self::Connections { resumes: true } => "connections resumed",
            Self::Latency { resumes: false } => "latency full",
            Self::Latency { resumes: true } => "latency resumed",
            Self::Bulk(1) => "bulk, 1 stream",
            Self::Bulk(_) => "bulk, 16 streams",
        }
    }

    /// Returns what is measured; the first two are compared.
    const fn metrics(self) -> &'static [&'static str] {
        match self {
            Self::Connections { .. } => {
                &["per s", "CPU ms each", BETWEEN, CLIENT_BUSY, ORIGIN_BUSY, RESUMED]
            }
            Self::Latency { .. } => &["ms, median", "ms, 99th percentile", RESUMED],
            Self::Bulk(_) => &["GB per s", "CPU s per GB", BETWEEN, CLIENT_BUSY, ORIGIN_BUSY],
        }
    }

    /// Returns the number of things that rates and costs are about, and the units in a second of a
    /// cost.
    const fn units(self) -> (f64, f64) {
        match self {
            Self::Connections { .. } | Self::Latency { .. } => (1.0, 1e3),
            Self::Bulk(_) => (1e9, 1.0),
        }
    }

    /// Returns true if all connections resume, false if none does; `None` for bulk.
    const fn resumes(self) -> Option<bool> {
        match self {
            Self::Connections { resumes } | Self::Latency { resumes } => Some(resumes),
            Self::Bulk(_) => None,
        }
    }
}

/// Results of an arm's turns, by metric.
#[derive(Default)]
struct Series(HashMap<&'static str, Vec<f64>>);

impl Series {
    fn add(&mut self, metric: &'static str, value: f64) {
        self.0.entry(metric).or_default().push(value);
    }

    fn samples(&self, metric: &str) -> &[f64] {
        self.0.get(metric).map_or(&[], Vec::as_slice)
    }
}

/// Processors of the programs.
#[derive(Clone, Copy)]
struct Cpus {
    client: usize,
    origin: usize,
}

pub(crate) fn run(plan: &Plan, report: &mut Report) -> Result<bool, Failure> {
    let [origin, client] = processors()?;
    let cpus = Cpus { client, origin };
    let folder = tempfile::tempdir()?;
    // Threads and programs run where whoever starts them does.
    pin(cpus.origin)?;
    let origin = Origin::start(folder.path(), 9400);
    pin(cpus.client)?;
    let origin = origin?;
    let arms = start(folder.path(), &origin, plan.beside.as_deref())?;
    let between = arms.iter().filter_map(|arm| Some((arm.name, arm.between.as_ref()?)));
    for version in versions(between.chain([("the origin", &origin.program)]))? {
        report.note(&version);
    }
    report.note(&format!("all agree on {}", agreed(&arms)?));
    report.note(&format!(
        "client and what is between on CPU {}, the origin on CPU {}, one thread each; {AT_ONCE} \
            connections at a time",
        cpus.client, cpus.origin
    ));
    let mut met = true;
    for load in Load::ALL.into_iter().filter(|load| load.name().contains(&plan.only)) {
        met &= compare(plan, report, &arms, load, cpus)?;
    }
    Ok(met)
}

/// The agent first: it is what the others are compared with.
fn start(folder: &Path, origin: &Origin, beside: Option<&Path>) -> Result<Vec<Arm>, Failure> {
    let mut arms = vec![
        Arm::managed(folder, origin, "managed", None, 9401)?,
        Arm::direct(origin)?,
        Arm::haproxy(folder, origin, 9410)?,
    ];
    if let Some(program) = beside {
        arms.push(Arm::managed(folder, origin, "other managed", Some(program), 9402)?);
    }
    Ok(arms)
}

/// The version and the cipher of all arms: they have to be the same.
fn agreed(arms: &[Arm]) -> Result<String, Failure> {
    let mut all: Option<String> = None;
    for arm in arms {
        let answer = visits::once(&arm.way, false).map_err(|why| in_arm(arm, &why))?;
        match &all {
            Some(agreed) if *agreed != answer.agreed => {
                let name = arm.name;
                return Err(format!("{name} has {}, others {agreed}", answer.agreed).into());
            }
            _ => all = Some(answer.agreed),
        }
    }
    all.ok_or_else(|| "there is nothing to compare".into())
}

fn in_arm(arm: &Arm, why: &Failure) -> Failure {
    format!("{}: {why}", arm.name).into()
}

fn compare(
    plan: &Plan,
    report: &mut Report,
    arms: &[Arm],
    load: Load,
    cpus: Cpus,
) -> Result<bool, Failure> {
    let test = load.name();
    let mut all: Vec<Series> = arms.iter().map(|_| Series::default()).collect();
    for round in 0..plan.rounds {
        // Another order each round: what a turn leaves behind meets each arm alike.
        for turn in 0..arms.len() {
            let index = (round + turn) % arms.len();
            let (Some(arm), Some(series)) = (arms.get(index), all.get_mut(index)) else { continue };
            let values = measure(plan, arm, load, cpus).map_err(|why| in_arm(arm, &why))?;
            for (metric, value) in load.metrics().iter().zip(values) {
                report.sample(test, round, arm.name, metric, value);
                series.add(metric, value);
            }
        }
    }
    let mut met = true;
    for (arm, series) in arms.iter().zip(&all) {
        met &= summarize(report, arm.name, load, series);
    }
    let Some((managed, others)) = all.split_first() else { return Ok(met) };
    for (arm, other) in arms.iter().skip(1).zip(others) {
        set_against(report, arm.name, load, managed, other);
    }
    Ok(met)
}

/// The medians of one arm; whether it has resumed as often as was asked for.
fn summarize(report: &mut Report, arm: &str, load: Load, series: &Series) -> bool {
    let test = load.name();
    let mut met = true;
    for &metric in load.metrics() {
        let median = report.median(test, &format!("{arm}: {metric}"), series.samples(metric)).value;
        if metric == CLIENT_BUSY && median < BUSY {
            report.note(&format!(
                "{test}, {arm}: the client's processor was not what limits; the rate is the \
                    origin's, or that of waiting"
            ));
        }
        if metric != RESUMED {
            continue;
        }
        met &= match load.resumes() {
            Some(true) => report.bar(test, &format!("{arm} resumes"), median >= RESUMED_FLOOR),
            _ => report.bar(test, &format!("{arm} resumes nothing"), median == 0.0),
        };
    }
    met
}

/// The agent beside another arm, round by round.
fn set_against(report: &mut Report, other: &str, load: Load, managed: &Series, theirs: &Series) {
    let test = load.name();
    for &metric in load.metrics().iter().take(2) {
        let ratios = ratios(managed.samples(metric), theirs.samples(metric));
        report.median(test, &format!("managed / {other}, {metric}"), &ratios);
        if matches!(load, Load::Latency { .. }) {
            let pairs = managed.samples(metric).iter().zip(theirs.samples(metric));
            let more: Vec<f64> = pairs.map(|(ours, theirs)| ours - theirs).collect();
            report.median(test, &format!("managed - {other}, {metric}"), &more);
        }
    }
}

/// One turn, in the order of the load's metrics.
fn measure(plan: &Plan, arm: &Arm, load: Load, cpus: Cpus) -> Result<Vec<f64>, Failure> {
    std::thread::sleep(PAUSE);
    match load {
        Load::Connections { resumes } => {
            let work = Work::start(&arm.way, Task::Visits { resumes }, AT_ONCE);
            at_once(plan, arm, load, work, cpus)
        }
        Load::Bulk(streams) => {
            let work = Work::start(&arm.way, Task::Bulk, streams);
            at_once(plan, arm, load, work, cpus)
        }
        Load::Latency { resumes } => {
            let answers = visits::one_by_one(&arm.way, resumes, plan.turn)?;
            Ok(latencies(&answers))
        }
    }
}

fn latencies(answers: &[Answer]) -> Vec<f64> {
    let mut times: Vec<f64> =
        answers.iter().map(|answer| answer.first_byte.as_secs_f64() * 1e3).collect();
    times.sort_by(f64::total_cmp);
    let resumed = answers.iter().filter(|answer| answer.resumed).count();
    let part = resumed as f64 / answers.len() as f64;
    vec![quantile(&times, 0.5), quantile(&times, 0.99), part]
}

/// Work done and time spent up to a moment.
struct Reading {
    at: Instant,
    done: u64,
    resumed: u64,
    /// Seconds of processor time: of the client, and of what is between.
    client: f64,
    between: f64,
    busy: [f64; 2],
}

impl Reading {
    fn take(work: &Work, arm: &Arm, cpus: Cpus) -> Result<Self, Failure> {
        let (done, resumed) = work.done();
        let between = arm.between.as_ref().map_or(Ok(0.0), |program| program.cpu())?;
        let busy = [process::busy(cpus.client)?, process::busy(cpus.origin)?];
        let client = process::own_cpu()?;
        Ok(Self { at: Instant::now(), done, resumed, client, between, busy })
    }
}

/// A turn of clients that are at work at the same time.
fn at_once(
    plan: &Plan,
    arm: &Arm,
    load: Load,
    work: Work,
    cpus: Cpus,
) -> Result<Vec<f64>, Failure> {
    std::thread::sleep(SETTLE);
    let before = Reading::take(&work, arm, cpus)?;
    std::thread::sleep(plan.turn);
    let after = Reading::take(&work, arm, cpus)?;
    work.end()?;
    if after.done == before.done {
        return Err("nothing was done in a turn".into());
    }
    let (one, second) = load.units();
    let count = (after.done - before.done) as f64;
    let seconds = (after.at - before.at).as_secs_f64();
    let between = after.between - before.between;
    let spent = after.client - before.client + between;
    let cost = |spent: f64| spent * second / (count / one);
    let [client, origin] = [0, 1].map(|cpu| (after.busy[cpu] - before.busy[cpu]) / seconds);
    let resumed = (after.resumed - before.resumed) as f64 / count;
    // Bulk has no use for the last.
    Ok(vec![count / one / seconds, cost(spent), cost(between), client, origin, resumed])
}
