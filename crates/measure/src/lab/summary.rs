//! Summary of the samples, cell by cell.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use headstart_openers::Carrier;
use serde::{Deserialize, Serialize};

use super::cell::LoadTotals;
use super::experiment::Moment;
use super::growth::Growth;
use super::privacy::{Finding, Linkable};
use super::topology::LinkEffects;
use super::trial::{Key, Row, rounded};
use super::workload::Handshakes;
use crate::stats::{P90_LEAST, P99_LEAST, Summary, with_failed};
use crate::table::joined;

/// The arm of programs as they come.
const TODAY: &str = "today";

/// All cells of a run, in the order of the plan.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    groups: Vec<Group>,
}

/// The samples of one cell.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) key: Key,
    pub(crate) rtt: Duration,
    pub(crate) n: u64,
    pub(crate) failed: u64,
    flagged: u64,
    /// Trials whose request left with the first packet.
    pub(crate) zero_rtt: u64,
    pub(crate) resumed: u64,
    openings: BTreeMap<String, u64>,
    /// Failed trials by their error.
    errors: BTreeMap<String, u64>,
    request: Vec<f64>,
    response: Vec<f64>,
    last: Vec<f64>,
    /// Failed trials by their number.
    failed_at: BTreeMap<u32, u64>,
    /// Times to the first request byte of trials that nothing disturbed; one that failed took for
    /// ever.
    unflagged: Vec<f64>,
    /// Times to the last response byte, by the round.
    rounds: BTreeMap<u32, f64>,
    pub(crate) facts: CellFacts,
}

/// Facts about a cell beside its samples.
#[derive(Debug, Clone, Default)]
pub(crate) struct CellFacts {
    pub(crate) load: LoadTotals,
    /// Connections of loads by their opening, as agents have counted them: their samples do not
    /// tell.
    pub(crate) openings: BTreeMap<String, u64>,
    pub(crate) links: LinkEffects,
    pub(crate) flight_bytes: Option<u64>,
    pub(crate) broken: Option<String>,
    /// True if trials are numbered in groups, each after everything was forgotten.
    pub(crate) in_groups: bool,
    /// Finding about linking its connections, where the experiment asks.
    pub(crate) privacy: Option<Finding>,
    /// Outcome of its handshakes, where its clients are programs of others.
    pub(crate) handshakes: Option<Handshakes>,
    /// Service that honest clients kept, where others attacked.
    pub(crate) kept: Option<Kept>,
    /// Failures that nothing excuses, where processes are killed meanwhile.
    pub(crate) blame: Option<Blame>,
    /// Growth of a process, whose cell has no samples.
    pub(crate) growth: Option<Growth>,
}

/// Service of honest clients under attack, by medians over rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Kept {
    /// Shares of the rate and of the 99th percentile before: 0.5 is half the rate, or twice the
    /// time.
    pub(crate) rate: f64,
    pub(crate) p99: f64,
    /// Growth of the server's resident memory, in MB.
    pub(crate) grown_mb: f64,
    /// Resident memory for each connection that the attackers hold, in KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) held_kib: Option<f64>,
    /// Time from the attack's end until exchanges took as long as before.
    pub(crate) recovery_s: f64,
}

/// Failures that nothing excuses, and bytes that were wrong.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Blame {
    /// Exchanges so far.
    #[serde(skip)]
    pub(crate) exchanges: u32,
    /// Failures without a process that was killed under them.
    pub(crate) outside: u64,
    /// Exchanges with wrong content.
    pub(crate) wrong: u64,
}

/// One entry of summary.json. The names are a contract.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct CellSummary {
    pub(crate) experiment: String,
    pub(crate) arm: String,
    pub(crate) suite: String,
    pub(crate) link: String,
    pub(crate) variant: String,
    /// Trials, the failed ones too.
    pub(crate) n: u64,
    pub(crate) failed: u64,
    pub(crate) flagged: u64,
    #[serde(default)]
    pub(crate) flagged_share: Option<f64>,
    /// Median time to the first request byte without the flagged trials.
    #[serde(default)]
    pub(crate) p50_unflagged: Option<f64>,
    /// Failed trials by their place after everything was forgotten.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) failed_at: BTreeMap<u32, u64>,
    /// Effects of links on packets while the cell had its turns.
    #[serde(default)]
    pub(crate) links: LinkEffects,
    /// Times in ms; a trial that failed took longer than any.
    pub(crate) first_request_byte: Option<Summary>,
    pub(crate) first_response_byte: Option<Summary>,
    pub(crate) last_response_byte: Option<Summary>,
    /// Median time to the first request byte in round trips of the link.
    pub(crate) rtts: Option<f64>,
    pub(crate) rtt_ms: f64,
    pub(crate) openings: BTreeMap<String, u64>,
    /// Failed trials by their error.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) errors: BTreeMap<String, u64>,
    /// Trials that completed and whose request left with the first packet: early data that waited
    /// for no handshake, neither of TLS nor of TCP.
    #[serde(default)]
    pub(crate) zero_rtt: u64,
    /// Finding about linking its connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) privacy: Option<Finding>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) handshakes: Option<Handshakes>,
    /// Mean energy of a connection, by the model of the paper on session sharing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) energy_uah: Option<f64>,
    /// Service that honest clients kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kept: Option<Kept>,
    /// Failures that nothing excuses, and wrong bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) blame: Option<Blame>,
    /// Growth of a process over time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) growth: Option<Growth>,
    /// The median of the ratios of whole connections, round by round, to those of [`TODAY`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) to_today: Option<f64>,
    /// Whole exchanges, to the last response byte, that were over within the time of loading.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) exchanges_per_s: Option<f64>,
    /// Processor time of a connection: of the client with its agent, and of the server with its
    /// edge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client_cpu_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) server_cpu_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) flight_bytes: Option<u64>,
    /// Reason why the cell has fewer trials than it should.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) broken: Option<String>,
}

impl CellSummary {
    /// Returns the distribution of one of the times, in ms.
    pub(crate) const fn times(&self, moment: Moment) -> Option<Summary> {
        match moment {
            Moment::Request => self.first_request_byte,
            Moment::Response => self.first_response_byte,
            Moment::Last => self.last_response_byte,
        }
    }

    /// Returns true if the trial is one of this cell.
    pub(crate) fn holds(&self, trial: &Row) -> bool {
        self.arm == trial.arm
            && self.suite == trial.suite
            && self.link == trial.link
            && self.variant == trial.variant
    }

    /// Returns the name that a person would use.
    pub(crate) fn name(&self) -> String {
        joined(&[&self.arm, &self.suite, &self.link, &self.variant], ", ")
    }
}

impl Groups {
    /// Gives a cell its place, also if no sample ever comes of it.
    pub(crate) fn expect(&mut self, key: Key, rtt: Duration) {
        self.groups.push(Group::new(key, rtt));
    }

    /// Counts a sample.
    pub(crate) fn add(&mut self, row: &Row, rtt: Duration) {
        let key = row.key();
        let place = self.groups.iter().rposition(|group| group.key == key);
        let place = place.unwrap_or_else(|| {
            self.groups.push(Group::new(key, rtt));
            self.groups.len() - 1
        });
        if let Some(group) = self.groups.get_mut(place) {
            group.add(row);
        }
    }

    /// Adds what is known of a cell beside its samples, to all groups that are of it.
    pub(crate) fn tell(&mut self, of: impl Fn(&Key) -> bool, facts: &CellFacts) {
        for group in self.groups.iter_mut().filter(|group| of(&group.key)) {
            group.facts = facts.clone();
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter()
    }

    /// The entries of summary.json.
    pub(crate) fn summaries(&self) -> Vec<CellSummary> {
        self.groups
            .iter()
            .map(|group: &Group| {
                let today = self.sibling(group, TODAY).filter(|_| group.key.arm != TODAY);
                let to_today = today.and_then(|today| group.paired_ratio(today)).map(rounded);
                CellSummary { to_today, ..group.summary() }
            })
            .collect()
    }

    /// The cell of another arm beside it.
    fn sibling(&self, group: &Group, arm: &str) -> Option<&Group> {
        self.other(group, arm, &group.key.variant)
    }

    /// The cell of this arm and variant, on the same link with the same suite.
    pub(crate) fn other(&self, group: &Group, arm: &str, variant: &str) -> Option<&Group> {
        let Key { link, suite, .. } = &group.key;
        self.groups.iter().find(|Group { key, .. }| {
            key.arm == arm && key.variant == variant && (&key.link, &key.suite) == (link, suite)
        })
    }
}

impl Group {
    fn new(key: Key, rtt: Duration) -> Self {
        Self {
            key,
            rtt,
            n: 0,
            failed: 0,
            flagged: 0,
            zero_rtt: 0,
            resumed: 0,
            openings: BTreeMap::new(),
            errors: BTreeMap::new(),
            request: Vec::new(),
            response: Vec::new(),
            last: Vec::new(),
            failed_at: BTreeMap::new(),
            unflagged: Vec::new(),
            rounds: BTreeMap::new(),
            facts: CellFacts::default(),
        }
    }

    fn add(&mut self, row: &Row) {
        self.n += 1;
        self.flagged += u64::from(row.flagged);
        if !row.flagged {
            let time = row.ms_to_first_request_byte.filter(|_| row.ok);
            self.unflagged.push(time.unwrap_or(f64::INFINITY));
        }
        if !row.ok {
            self.failed += 1;
            *self.failed_at.entry(row.trial).or_default() += 1;
            *self.errors.entry(row.error.clone()).or_default() += 1;
            return;
        }
        *self.openings.entry(row.opening.clone()).or_default() += 1;
        self.zero_rtt += u64::from(row.is_zero_rtt());
        self.resumed += u64::from(row.resumed);
        self.request.extend(row.ms_to_first_request_byte);
        self.response.extend(row.ms_to_first_response_byte);
        self.last.extend(row.ms_to_last_response_byte);
        self.rounds.extend(row.ms_to_last_response_byte.map(|last| (row.round, last)));
    }

    /// Trials that were opened like plain TLS over TCP.
    pub(crate) fn plain(&self) -> u64 {
        self.openings().get(Carrier::Tcp.name()).copied().unwrap_or_default()
    }

    fn openings(&self) -> &BTreeMap<String, u64> {
        if self.facts.openings.is_empty() { &self.openings } else { &self.facts.openings }
    }

    /// The median of the ratios of whole connections to those of `other` in the same round: where
    /// rounds differ more than arms, as they do with real programs, medians of arms tell less.
    /// Rounds in which one failed are left out.
    pub(crate) fn paired_ratio(&self, other: &Self) -> Option<f64> {
        let pairs =
            self.rounds.iter().filter_map(|(round, own)| Some(own / other.rounds.get(round)?));
        Summary::from_samples(&pairs.collect::<Vec<_>>())?.p50
    }

    /// The times of all trials in ms; one that failed took for ever.
    pub(crate) fn ranked(&self, moment: Moment) -> Vec<f64> {
        let times = match moment {
            Moment::Request => &self.request,
            Moment::Response => &self.response,
            Moment::Last => &self.last,
        };
        with_failed(times, usize::try_from(self.failed).unwrap_or(usize::MAX))
    }

    fn summary(&self) -> CellSummary {
        let rtt_ms = self.rtt.as_secs_f64() * 1e3;
        let [first_request_byte, first_response_byte, last_response_byte] = Moment::ALL
            .map(|moment| Summary::from_samples(&self.ranked(moment)).map(to_the_microsecond));
        let load = self.facts.load;
        let in_groups = self.facts.in_groups;
        let each = |time: Duration| {
            let each = time.as_secs_f64() * 1e3 / load.connections as f64;
            (load.connections > 0).then(|| rounded(each))
        };
        let per_s = load.completed / load.time.as_secs_f64();
        CellSummary {
            experiment: self.key.experiment.clone(),
            arm: self.key.arm.clone(),
            suite: self.key.suite.clone(),
            link: self.key.link.clone(),
            variant: self.key.variant.clone(),
            n: self.n,
            failed: self.failed,
            flagged: self.flagged,
            flagged_share: (self.n > 0).then(|| rounded(self.flagged as f64 / self.n as f64)),
            p50_unflagged: Summary::from_samples(&self.unflagged).and_then(|times| times.p50),
            failed_at: if in_groups { self.failed_at.clone() } else { BTreeMap::new() },
            links: self.facts.links,
            rtts: first_request_byte.and_then(|times| Some(rounded(times.p50? / rtt_ms))),
            first_request_byte,
            first_response_byte,
            last_response_byte,
            rtt_ms,
            openings: self.openings().clone(),
            errors: self.errors.clone(),
            zero_rtt: self.zero_rtt,
            privacy: self.facts.privacy.clone(),
            energy_uah: self
                .facts
                .handshakes
                .as_ref()
                .and_then(Handshakes::energy_uah)
                .map(rounded),
            handshakes: self.facts.handshakes.clone(),
            kept: self.facts.kept,
            blame: self.facts.blame,
            growth: self.facts.growth,
            to_today: None,
            exchanges_per_s: (!load.time.is_zero()).then(|| rounded(per_s)),
            client_cpu_ms: each(load.client_cpu),
            server_cpu_ms: each(load.server_cpu),
            flight_bytes: self.facts.flight_bytes,
            broken: self.facts.broken.clone(),
        }
    }
}

/// Percentiles are samples, and those are rounded already.
fn to_the_microsecond(times: Summary) -> Summary {
    Summary { mean: times.mean.map(rounded), sd: times.sd.map(rounded), ..times }
}

/// The cells as a table for the terminal: a line each, under a line for link and variant.
pub(crate) fn table(cells: &[CellSummary]) -> String {
    let mut text = String::new();
    let mut under = None;
    for cell in cells {
        let place = (&cell.link, &cell.variant);
        if under != Some(place) {
            under = Some(place);
            let variant = if cell.variant.is_empty() { "" } else { ", " };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{}{variant}{}", cell.link, cell.variant);
        }
        let _ = writeln!(text, "  {}", line(cell));
    }
    text
}

/// One cell: how it went, when the first request byte left (median, 90th and 99th percentile, or
/// the longest).
fn line(cell: &CellSummary) -> String {
    let mut text = format!("{:<14} {:<16} {:>6} ok", cell.arm, cell.suite, cell.n - cell.failed);
    if cell.failed > 0 {
        let _ = write!(text, " {} failed", cell.failed);
    }
    match cell.first_request_byte {
        Some(times) => {
            let ms = |ms: Option<f64>| ms.map_or("failed".into(), |ms| format!("{ms:.2}"));
            let p90 = if times.n < P90_LEAST { "–".into() } else { ms(times.p90) };
            let (last, name) =
                if times.n < P99_LEAST { (times.max, "max") } else { (times.p99, "p99") };
            let (p50, last) = (ms(times.p50), ms(last));
            let _ = write!(text, "  {p50:>8} {p90:>8} {name} {last:>8} ms");
        }
        None => match &cell.growth {
            Some(growth) => text.push_str(&grown(growth)),
            None => text.push_str("  no times"),
        },
    }
    if let Some(rtts) = cell.rtts {
        let p99 = cell.first_request_byte.filter(|times| times.n >= P99_LEAST);
        let p99 = p99.and_then(|times| times.p99).map(|ms| ms / cell.rtt_ms);
        let p99 = p99.map_or(String::new(), |rtts| format!(" (p99 {rtts:.2})"));
        let _ = write!(text, "  {rtts:.2} RTT{p99}");
    }
    if let Some(rate) = cell.exchanges_per_s {
        let _ = write!(text, "  {rate:.0}/s");
    }
    for (opening, count) in &cell.openings {
        let _ = write!(text, "  {opening} {count}");
    }
    if cell.flagged > 0 {
        let without = cell.p50_unflagged.map_or("none".into(), |ms| format!("{ms:.2} ms"));
        let _ = write!(text, "  {} flagged, without them {without}", cell.flagged);
    }
    if cell.zero_rtt > 0 {
        let _ = write!(text, "  0-RTT {}", cell.zero_rtt);
    }
    if let Some(finding) = &cell.privacy {
        let word = finding.linkable.map_or("UNDECIDED", Linkable::word);
        let why = finding.evidence.first().map_or("", String::as_str);
        let _ = write!(text, "  {}: {word} ({why})", finding.boundary.title());
    }
    if let Some(handshakes) = &cell.handshakes {
        let all = handshakes.full + handshakes.resumed;
        let _ = write!(text, "  full handshakes {} of {all}", handshakes.full);
        if let Some(seen) = handshakes.seen.filter(|_| all > 0) {
            let _ = write!(text, "  {} bytes each", seen.bytes / all);
        }
        if let (Some(client), Some(server)) = (cell.client_cpu_ms, cell.server_cpu_ms) {
            let _ = write!(text, "  CPU {client:.2} + {server:.2} ms");
        }
        if let Some(energy) = cell.energy_uah {
            let _ = write!(text, "  {energy:.1} uAh by the paper's model");
        }
        if let Some(ratio) = cell.to_today {
            let _ = write!(text, "  takes {ratio:.3} of today");
        }
    }
    for (error, count) in &cell.errors {
        let _ = write!(text, "  {count} failed: {error}");
    }
    for (place, count) in &cell.failed_at {
        let _ = write!(text, "  {count} failed at connection {place}");
    }
    if let Some(why) = &cell.broken {
        let _ = write!(text, "  BROKEN: {why}");
    }
    text
}

/// The growth of a process.
fn grown(growth: &Growth) -> String {
    let [value, low, high] = growth.percent_per_hour();
    let minutes = growth.seconds / 60.0;
    format!("  {value:+.1} % an hour [{low:+.1} .. {high:+.1}] over {minutes:.1} min")
}

#[cfg(test)]
pub(crate) mod tests;
