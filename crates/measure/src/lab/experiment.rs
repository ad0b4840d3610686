//! An experiment as a file: what is measured over which links, how often, and what must come out.

mod bar;
pub(super) mod text;
mod work;

use std::fmt;
use std::path::Path;
use std::time::Duration;

use headstart_openers::{Arm, OpeningPolicy, Suite};
use headstart_proto::limits::{COOKIE_LIFE, COOKIE_LIFE_MAX};
use serde::Deserialize;

use headstart::base::failure::Failure;

pub(crate) use bar::{ANY, Bar, Exception, Moment};
pub(crate) use work::{PageWork, Work};

/// Largest file read: the experiments here have a few kB.
const FILE_MAX: u64 = 1 << 20;

/// Longest name of a link or variant: they stand in tables and file names.
pub(crate) const NAME_MAX: usize = 60;

/// Trials of a cell at most; each is a line of the results and some memory.
const TRIALS_MAX: u32 = 1_000_000;

/// Arms x suites of one link at most: each has an address of its own, counted in one byte.
pub(super) const CELLS_MAX: usize = 250;

/// Servers, and clients, of one link at most; with the cells they are some hundred processes.
const NODES_MAX: u8 = 16;

/// Addresses of a host at most; each cell has as many.
const ADDRESSES_MAX: usize = 8;

/// Largest response asked for.
const RESPONSE_MAX: u64 = 100_000_000;

/// One experiment, as its file says it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Experiment {
    /// Short name, for the command line and the results: a-z, 0-9 and hyphens.
    pub(crate) name: String,
    /// One line for people.
    pub(crate) title: String,
    /// Purpose and method.
    pub(crate) about: String,
    /// The published table it reproduces: a file of lab/papers, without `.toml`.
    pub(crate) reference: Option<String>,
    /// Trials of a cell: connections one at a time, or groups of them with `first_and_later`. Under
    /// load, connections that a cell must have made before it has its last turn, if they fit in
    /// three times its `slices`.
    pub(crate) trials: u32,
    /// The same for `--quick`.
    pub(crate) quick_trials: u32,
    /// The same for `--full`, which there is only with this.
    pub(crate) full_trials: Option<u32>,
    /// Connections of a cell that are not counted: programs start cold, and sessions must be there.
    #[serde(default = "default_warmup")]
    pub(crate) warmup: u32,
    /// Seed of the order of trials.
    #[serde(default = "default_seed")]
    pub(crate) seed: u64,
    /// Bytes of a response.
    #[serde(default = "default_response")]
    pub(crate) response: u64,
    /// Connections at a time, as many as get done; one at a time without it.
    pub(crate) in_flight: Option<u32>,
    /// Time that a cell is loaded at a stretch, with `in_flight` or `rate`.
    #[serde(default = "default_slice", deserialize_with = "text::time")]
    pub(crate) slice: Duration,
    /// The same for `--quick`.
    #[serde(default = "default_quick_slice", deserialize_with = "text::time")]
    pub(crate) quick_slice: Duration,
    /// Stretches of load of a cell, at least; the arms take turns.
    #[serde(default = "default_slices")]
    pub(crate) slices: u32,
    /// Time at which a connection counts as failed.
    #[serde(default = "default_timeout", deserialize_with = "text::time")]
    pub(crate) timeout: Duration,
    /// A trial is flagged if the forwarder sent a packet later than this while it lasted; by
    /// default [`Experiment::late`] of the link's round-trip time.
    #[serde(default, deserialize_with = "text::some_time")]
    pub(crate) late: Option<Duration>,
    #[serde(deserialize_with = "text::list")]
    pub(crate) arms: Vec<Arm>,
    /// Cryptography to use.
    #[serde(deserialize_with = "text::list")]
    pub(crate) suites: Vec<Suite>,
    pub(crate) link: Vec<LinkSpec>,
    /// Other settings; one empty variant if there are none.
    #[serde(default)]
    pub(crate) variant: Vec<Variant>,
    /// Bars that the results must meet.
    #[serde(default)]
    pub(crate) bar: Vec<Bar>,
}

/// The path between clients and servers.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LinkSpec {
    pub(crate) name: String,
    /// Its round-trip time, by which times are divided to count round trips.
    #[serde(deserialize_with = "text::time")]
    pub(crate) rtt: Duration,
    /// Elements between each client and the network; by default the delay of half a round trip each
    /// way.
    pub(crate) path: Option<String>,
    /// Elements between each server and the network.
    pub(crate) server_path: Option<String>,
    /// Elements between each client and the network behind the boundary of a case.
    pub(crate) changed_path: Option<String>,
    /// A connection before each trial, which is not counted.
    pub(crate) before: Option<BeforeTrial>,
    /// A proxy in the middle ends TCP connections and opens its own, as satellite modems do.
    #[serde(default)]
    pub(crate) split_tcp: bool,
    /// Trials on this link, if not those of the experiment.
    pub(crate) trials: Option<u32>,
    /// Bytes of a response, if not those of the experiment.
    pub(crate) response: Option<u64>,
    /// Stretches of load on this link, if not those of the experiment, and how long they are.
    pub(crate) slices: Option<u32>,
    #[serde(default, deserialize_with = "text::some_time")]
    pub(crate) slice: Option<Duration>,
    /// Effect that its box must be seen to have: without it the cells show nothing.
    pub(crate) acts: Option<LinkEffect>,
    /// True if `--quick` uses it.
    #[serde(default = "yes")]
    pub(crate) quick: bool,
    /// Time that a trial takes beside its round trips, on average: only for the estimate of the
    /// run's time.
    #[serde(default, deserialize_with = "text::time")]
    pub(crate) extra: Duration,
}

/// A connection before each trial, from which both sides may learn of the path.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BeforeTrial {
    /// Bytes of its response.
    pub(crate) response: u64,
    /// Elements between the client and the network, if they change behind it.
    pub(crate) path: Option<String>,
}

/// Settings of the programs and of what stands between; those not given are the programs' own.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Variant {
    /// May be empty if there is one.
    #[serde(default)]
    pub(crate) name: String,
    /// Arms it is limited to.
    #[serde(default, deserialize_with = "text::some_list")]
    pub(crate) arms: Option<Vec<Arm>>,
    /// Suites it is limited to.
    #[serde(default, deserialize_with = "text::some_list")]
    pub(crate) suites: Option<Vec<Suite>>,
    /// Links it is limited to.
    pub(crate) links: Option<Vec<String>>,
    /// Work of a cell in its turn.
    #[serde(default)]
    pub(crate) work: Work,
    /// Slots of a TurboTLS client.
    pub(crate) slots: Option<u8>,
    /// Milliseconds that a TurboTLS client waits for the first datagram, instead of what it learns.
    pub(crate) grace: Option<u32>,
    /// `auto`, `turbo` or `plain`: which openings a TurboTLS client may use.
    #[serde(default, deserialize_with = "text::some")]
    pub(crate) policy: Option<OpeningPolicy>,
    /// Bytes of the server's flight, about; the certificate is padded.
    pub(crate) flight: Option<u32>,
    pub(crate) threads: Option<u16>,
    /// Threads for datagrams of TurboTLS servers.
    pub(crate) udp_workers: Option<u16>,
    /// Initial congestion window of the servers' TCP, in segments.
    pub(crate) initial_window: Option<u8>,
    #[serde(default)]
    pub(crate) origin: OriginKind,
    /// Servers, for each arm and suite.
    pub(crate) servers: Option<u8>,
    /// Rule by which the servers share the connections to one address.
    pub(crate) balance: Option<Balance>,
    /// True if the edges are a fleet, which shares keys and forwards joins.
    #[serde(default)]
    pub(crate) fleet: bool,
    /// True if a successor takes over from each edge in the middle of each stretch of load.
    #[serde(default)]
    pub(crate) takeover: bool,
    /// Life of the server's cookies.
    #[serde(default, deserialize_with = "text::some_time")]
    pub(crate) cookie_life: Option<Duration>,
    /// Clients, each on a node of its own behind such a link.
    pub(crate) clients: Option<u8>,
    /// Bytes of a response, if not those of the experiment.
    pub(crate) response: Option<u64>,
    /// True if `--quick` uses it.
    #[serde(default = "yes")]
    pub(crate) quick: bool,
}

/// Program that serves the origin of an arm.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OriginKind {
    /// The server of the lab.
    #[default]
    Builtin,
    Nginx,
    Haproxy,
}

/// Effect of a box on packets, as the counters of a link tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LinkEffect {
    /// It drops some.
    Drops,
    /// It answers some itself.
    Replies,
    /// It makes more of them.
    Adds,
    /// It changes, delays or reorders them, which nothing counts.
    Changes,
}

/// Rule by which a balancer chooses a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Balance {
    FiveTuple,
    Source,
    NameElseFiveTuple,
    NameElseSource,
    /// HAProxy on a machine of its own has TCP, all else goes like `FiveTuple`.
    Haproxy,
}

impl From<Balance> for headstart_emulation::Balance {
    fn from(balance: Balance) -> Self {
        match balance {
            Balance::FiveTuple | Balance::Haproxy => Self::Flow,
            Balance::Source => Self::Source,
            Balance::NameElseFiveTuple => Self::NameElseFlow,
            Balance::NameElseSource => Self::NameElseSource,
        }
    }
}

impl Experiment {
    /// The experiment of this text; `source` is what messages call it.
    pub(crate) fn parse(source: &str, text: &str) -> Result<Self, Failure> {
        let experiment: Self = toml::from_str(text).map_err(|error| {
            let error = error.to_string();
            Failure::usage(format!("{source}: {}", error.trim_end())).hint(FORMAT)
        })?;
        experiment.check().map_err(|wrong| {
            Failure::usage(format!("{source}: {}: {}", wrong.key, wrong.what)).hint(wrong.hint)
        })?;
        Ok(experiment)
    }

    /// Reads a file.
    pub(crate) fn read(path: &Path) -> Result<(Self, String), Failure> {
        let source = path.display().to_string();
        let unreadable = |error| Failure::usage(format!("cannot read {source}: {error}"));
        if std::fs::metadata(path).map_err(unreadable)?.len() > FILE_MAX {
            return Err(Failure::usage(format!("{source} is larger than {FILE_MAX} bytes"))
                .hint("is it an experiment?"));
        }
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        Ok((Self::parse(&source, &text)?, text))
    }

    /// Its variants: at least one.
    pub(crate) fn variants(&self) -> Vec<Variant> {
        match self.variant.as_slice() {
            [] => vec![Variant { quick: true, ..Variant::default() }],
            some => some.to_vec(),
        }
    }

    /// From when on a packet counts as late on a link of this round-trip time: what a calibrated
    /// lab is exact to, but no more than a twentieth of what is measured.
    pub(crate) fn late(&self, rtt: Duration) -> Duration {
        self.late.unwrap_or(LATE_MAX.min(rtt / LATE_PARTS))
    }

    fn check(&self) -> Result<(), Wrong> {
        if self.name.is_empty()
            || self.name.len() > NAME_MAX
            || !self
                .name
                .chars()
                .all(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        {
            return wrong("name", format!("'{}' is no name", self.name), "use a-z, 0-9 and -");
        }
        self.check_counts()?;
        names("link.name", self.link.iter().map(|link| link.name.as_str()))?;
        names("variant.name", self.variants().iter().map(|variant| variant.name.as_str()))?;
        self.link.iter().try_for_each(LinkSpec::check)?;
        self.variants().iter().try_for_each(|variant| variant.check(self))?;
        self.bar.iter().try_for_each(|bar| bar.check(self))
    }

    fn check_counts(&self) -> Result<(), Wrong> {
        within("trials", self.trials, 1..=TRIALS_MAX)?;
        within("quick_trials", self.quick_trials, 1..=self.trials)?;
        let full = self.full_trials.unwrap_or(self.trials);
        within("full_trials", full, self.trials..=TRIALS_MAX)?;
        within("warmup", self.warmup, 0..=1000)?;
        within("slices", self.slices, 1..=1000)?;
        within("response", self.response, 0..=RESPONSE_MAX)?;
        within("in_flight", self.in_flight.unwrap_or(1), 1..=10_000)?;
        for (key, time) in [
            ("slice", self.slice),
            ("quick_slice", self.quick_slice),
            ("timeout", self.timeout),
            ("late", self.late.unwrap_or(LATE_MAX)),
        ] {
            within(key, time, Duration::from_micros(1)..=Duration::from_secs(600))?;
        }
        if self.arms.is_empty() || self.suites.is_empty() || self.link.is_empty() {
            return wrong("arms, suites, [[link]]", "one is empty", "each needs at least one");
        }
        within("arms x suites", self.arms.len() * self.suites.len(), 1..=CELLS_MAX)
    }
}

/// Returns the text of a file of this name, if a line of it begins so: as in an experiment of
/// another form.
pub(crate) fn file_with(name: &str, begin: &str) -> Option<String> {
    let path = Path::new(name);
    let is_small = path.metadata().is_ok_and(|it| it.is_file() && it.len() <= FILE_MAX);
    let text = is_small.then(|| std::fs::read_to_string(path).ok()).flatten();
    text.filter(|text| text.lines().any(|line| line.starts_with(begin)))
}

impl LinkSpec {
    /// The elements between a client and the network, as text.
    pub(crate) fn client_path(&self) -> String {
        let half = self.rtt / 2;
        self.path.clone().unwrap_or_else(|| format!("delay {}us", half.as_nanos() as f64 / 1e3))
    }

    fn check(&self) -> Result<(), Wrong> {
        within("link.rtt", self.rtt, Duration::from_micros(1)..=Duration::from_secs(10))?;
        within("link.trials", self.trials.unwrap_or(1), 1..=TRIALS_MAX)?;
        within("link.slices", self.slices.unwrap_or(1), 1..=1000)?;
        within("link.response", self.response.unwrap_or(0), 0..=RESPONSE_MAX)?;
        let before = self.before.as_ref().map_or(0, |before| before.response);
        within("link.before.response", before, 0..=RESPONSE_MAX)?;
        let slice = self.slice.unwrap_or(Duration::from_secs(1));
        within("link.slice", slice, Duration::from_micros(1)..=Duration::from_secs(600))
    }
}

impl Variant {
    fn check(&self, experiment: &Experiment) -> Result<(), Wrong> {
        if self.balance.is_some() && self.servers.unwrap_or(1) < 2 {
            return wrong("variant.balance", "there is one server", "give servers = 2 or more");
        }
        if self.servers.unwrap_or(1) > 1 && self.balance.is_none() {
            let hint = "give balance = \"five-tuple\", \"source\" or another of lab/README.md";
            return wrong("variant.servers", "nothing chooses one of them", hint);
        }
        let arms = self.arms.as_ref().unwrap_or(&experiment.arms);
        self.work.check(self, arms, experiment)?;
        if (self.fleet || self.takeover) && arms.iter().any(|arm| *arm != Arm::TURBO_AGENT) {
            let hint = "list turbo-agent alone in the variant's `arms`";
            return wrong("variant.fleet, takeover", "an arm has no such edge", hint);
        }
        let suites = self.suites.as_ref().unwrap_or(&experiment.suites);
        if self.balance == Some(Balance::Haproxy) && (!self.fleet || suites.len() > 1) {
            let hint = "give fleet = true and one suite: its edges have their machines alone";
            return wrong("variant.balance", "HAProxy stands before one fleet", hint);
        }
        let is_load = matches!(self.work, Work::Rate(_) | Work::InFlight(_));
        if self.takeover && !is_load {
            let hint = "give work.rate or work.in_flight";
            return wrong("variant.takeover", "there is no load", hint);
        }
        if self.slots.is_some() || self.grace.is_some() {
            // An agent takes these from the advertisement and from what it learns.
            if let Some(arm) = arms.iter().find(|arm| arm.has_agent()) {
                let hint = "list the other arms in the variant's `arms`";
                let what = format!("{arm} has no such setting");
                return wrong("variant.slots, grace", what, hint);
            }
        }
        within("variant.slots", self.slots.unwrap_or(1), 1..=16)?;
        within("variant.flight", self.flight.unwrap_or(1), 1..=200_000)?;
        within("variant.servers", self.servers.unwrap_or(1), 1..=NODES_MAX)?;
        within("variant.clients", self.clients.unwrap_or(1), 1..=NODES_MAX)?;
        within("variant.threads", self.threads.unwrap_or(1), 1..=256)?;
        within("variant.udp_workers", self.udp_workers.unwrap_or(1), 1..=256)?;
        within("variant.initial_window", self.initial_window.unwrap_or(1), 1..=100)?;
        let life = self.cookie_life.unwrap_or(COOKIE_LIFE);
        within("variant.cookie_life", life, COOKIE_LIFE_MIN..=COOKIE_LIFE_MAX)?;
        within("variant.response", self.response.unwrap_or(0), 0..=RESPONSE_MAX)?;
        let mut links = self.links.iter().flatten();
        match links.find(|name| !experiment.link.iter().any(|link| link.name == **name)) {
            Some(name) => wrong("variant.links", format!("there is no link '{name}'"), LIST),
            None => Ok(()),
        }
    }
}

impl Variant {
    /// Returns the values of its rows in the column `variant`.
    pub(crate) fn columns(&self) -> Vec<String> {
        (1..=self.work.kinds()).map(|trial| self.column(trial)).collect()
    }

    /// Returns the value of this trial's row in the column `variant`; trials count from 1 in their
    /// group.
    pub(crate) fn column(&self, trial: u32) -> String {
        match self.work.column(trial) {
            Some(part) => format!("{} {part}", self.name).trim_start().to_owned(),
            None => self.name.clone(),
        }
    }

    /// Returns true if it has this link.
    pub(crate) fn on(&self, link: &LinkSpec) -> bool {
        self.links.as_ref().is_none_or(|links| links.contains(&link.name))
    }
}

/// A client does not use a cookie in its last two seconds, and a connection takes some time.
const COOKIE_LIFE_MIN: Duration = Duration::from_secs(4);

/// The exactness that a calibrated lab must have.
const LATE_MAX: Duration = Duration::from_micros(300);

/// The part of a round trip that a packet may be late on links where that is less.
const LATE_PARTS: u32 = 20;

const FORMAT: &str =
    "`headstart lab list --json` shows experiments that work; lab/README.md explains the keys";
const LIST: &str = "the names of [[link]] may stand there";

/// Error of an experiment that is well-formed.
struct Wrong {
    key: &'static str,
    what: String,
    hint: String,
}

fn wrong(key: &'static str, what: impl Into<String>, hint: impl Into<String>) -> Result<(), Wrong> {
    Err(Wrong { key, what: what.into(), hint: hint.into() })
}

fn within<T: PartialOrd + fmt::Debug>(
    key: &'static str,
    value: T,
    range: std::ops::RangeInclusive<T>,
) -> Result<(), Wrong> {
    if range.contains(&value) {
        return Ok(());
    }
    let hint = format!("{:?} to {:?} may stand there", range.start(), range.end());
    wrong(key, format!("{value:?} is out of range"), hint)
}

/// Names that are printable, short and different.
fn names<'n>(key: &'static str, names: impl Iterator<Item = &'n str>) -> Result<(), Wrong> {
    let mut seen = Vec::new();
    for name in names {
        if name.len() > NAME_MAX || name.chars().any(char::is_control) {
            return wrong(key, format!("{name:?} is no name"), "a short line of text");
        }
        if seen.contains(&name) {
            return wrong(key, format!("'{name}' is given twice"), "rows could not be told apart");
        }
        seen.push(name);
    }
    Ok(())
}

const fn default_warmup() -> u32 {
    2
}

const fn default_seed() -> u64 {
    1
}

const fn default_response() -> u64 {
    1000
}

/// Default duration of a slice: with [`default_slices`] as long as the TurboTLS paper's runs.
const fn default_slice() -> Duration {
    Duration::from_secs(1)
}

const fn default_quick_slice() -> Duration {
    Duration::from_secs(1)
}

/// Slices of each arm: enough that a disturbance of the machine affects all arms.
const fn default_slices() -> u32 {
    10
}

const fn default_timeout() -> Duration {
    Duration::from_secs(10)
}

const fn yes() -> bool {
    true
}

#[cfg(test)]
mod tests;
