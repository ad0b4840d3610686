//! Benchmarks as files: lab/experiments/relay.toml and its kin.

use std::num::{NonZeroU8, NonZeroU16, NonZeroU32};
use std::time::Duration;

use serde::Deserialize;

use super::flood;
use super::siege::{Kind, Siege};
use crate::lab::experiment::{Bar, file_with, text};
use headstart::base::failure::Failure;

/// Longest time before an attack: more would say no more of it.
pub(super) const QUIET_MAX: Duration = Duration::from_secs(12);

/// Time before and after each turn, with a siege also until connections are there and it is over,
/// and to start the programs of a variant: for the estimate.
const BESIDE_TURN: Duration = Duration::from_millis(300);
const BESIDE_SIEGE: Duration = Duration::from_millis(300);
const START: Duration = Duration::from_secs(2);
const START_SIEGE: Duration = Duration::from_secs(1);

/// Time in which a connection that waits is opened.
const HOLD: Duration = Duration::from_micros(1_000);

/// The arm of another build of the product.
pub(super) const OTHER: &str = "other";

/// Each by its text.
const TEXTS: [&str; 6] = [
    include_str!("../../../../../lab/experiments/relay.toml"),
    include_str!("../../../../../lab/experiments/handshakes.toml"),
    include_str!("../../../../../lab/experiments/managed.toml"),
    include_str!("../../../../../lab/experiments/attack.toml"),
    include_str!("../../../../../lab/experiments/attack-http.toml"),
    include_str!("../../../../../lab/experiments/idle.toml"),
];

/// A benchmark, as its file says it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Benchmark {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) about: String,
    /// Subject of the measurement.
    pub(super) bench: Subject,
    /// Turns of each arm.
    rounds: NonZeroU32,
    quick_rounds: NonZeroU32,
    #[serde(deserialize_with = "text::time")]
    turn: Duration,
    #[serde(deserialize_with = "text::time")]
    quick_turn: Duration,
    /// Threads of each proxy; programs that speak TLS have one.
    #[serde(default = "one")]
    pub(super) threads: NonZeroU8,
    /// Datagrams of an attacker in a second.
    #[serde(default)]
    pub(super) rate: u32,
    /// Exchanges of honest clients in a second, beside a siege.
    #[serde(default = "few")]
    pub(super) honest: NonZeroU16,
    /// Programs to compare; the others are set against the first.
    pub(super) arms: Vec<String>,
    pub(super) variant: Vec<Variant>,
    #[serde(default)]
    pub(super) bar: Vec<Bar>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Subject {
    /// Proxies that pass bytes on.
    Relay,
    /// Servers that speak TLS in front of an origin.
    Handshakes,
    /// Programs that speak TLS for a client.
    Managed,
    /// An edge that gets datagrams from attackers.
    Attack,
    /// Servers that speak TLS in front of an origin, with attackers among their clients.
    AttackHttp,
}

impl Subject {
    /// Returns true if the arms speak TLS with clients.
    pub(super) const fn terminates(self) -> bool {
        matches!(self, Self::Handshakes | Self::AttackHttp)
    }
}

/// One load, put on all arms in turn.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Variant {
    pub(super) name: String,
    pub(super) work: Work,
    /// Arms it is limited to.
    arms: Option<Vec<String>>,
    /// True if all TLS sessions are to be resumed, false if none is.
    #[serde(default)]
    pub(super) resumes: bool,
    /// True if a server that speaks TLS passes bytes on, over a connection to the origin for each
    /// of a client; else requests, over connections that are kept.
    #[serde(default)]
    pub(super) bytes: bool,
    /// True if the edge passes TLS on to an nginx that speaks it.
    #[serde(default)]
    pub(super) passes: bool,
    /// Connections that wait meanwhile, with several numbers in a variant each.
    #[serde(default)]
    held: Vec<u16>,
    /// Server names that the edge knows, in the same way.
    #[serde(default)]
    names: Vec<u32>,
    /// Turns of this load at most, and how long they are at least.
    rounds: Option<NonZeroU32>,
    #[serde(default, deserialize_with = "text::some_time")]
    turn: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Work {
    /// Connections at a time, each followed by the next. Of one at a time each is a sample.
    Connections(NonZeroU16),
    /// Streams without end.
    Bulk(NonZeroU8),
    /// Datagrams of an attacker, and connections of others meanwhile.
    Flood(flood::Kind),
    /// An attack by clients, and connections of others before, meanwhile and afterwards.
    Siege(Siege),
}

impl Variant {
    /// Returns a variant for each number of connections that wait; itself if there is none.
    fn each_held(self) -> Vec<Self> {
        if self.held.is_empty() {
            return vec![self];
        }
        let numbers = self.held.iter();
        let each = numbers.map(|number: &u16| {
            let name = format!("{}, {number} held", self.name);
            Self { name, held: vec![*number], ..self.clone() }
        });
        each.collect()
    }

    /// Returns a variant for each number of server names; itself if there is none.
    fn each_names(self) -> Vec<Self> {
        if self.names.is_empty() {
            return vec![self];
        }
        let numbers = self.names.iter();
        let each = numbers.map(|number: &u32| {
            let name = format!("{}, {number} names", self.name);
            Self { name, names: vec![*number], ..self.clone() }
        });
        each.collect()
    }

    /// Returns the number of connections that wait during a turn.
    pub(super) fn held(&self) -> u16 {
        self.held.first().copied().unwrap_or_default()
    }

    /// Returns the number of server names that an edge knows, if it is not one for all.
    pub(super) fn names(&self) -> Option<u32> {
        self.names.first().copied()
    }

    /// Returns true if its servers sign with RSA of 2,048 bits, so that the ClientHellos that wait
    /// at one time are half a second of work.
    pub(super) const fn has_slow_key(&self) -> bool {
        matches!(self.work, Work::Siege(Siege { kind: Kind::SpoofedHellos, .. }))
    }
}

impl Benchmark {
    /// Reads the text; `source` is what messages call it.
    fn parse(source: &str, text: &str) -> Result<Self, Failure> {
        let bench: Self = toml::from_str(text).map_err(|error| {
            Failure::usage(format!("{source}: {}", error.to_string().trim_end()))
                .hint("lab/README.md has the form of benchmarks")
        })?;
        let variants = bench.variant.into_iter();
        let variant = variants.flat_map(Variant::each_held).flat_map(Variant::each_names).collect();
        Ok(Self { variant, ..bench })
    }

    /// Returns how many turns each arm has of a variant.
    pub(super) fn rounds(&self, variant: &Variant, quick: bool) -> u32 {
        let rounds = if quick { self.quick_rounds } else { self.rounds };
        rounds.min(variant.rounds.unwrap_or(NonZeroU32::MAX)).get()
    }

    /// Returns how long a turn of a variant is.
    pub(super) fn turn(&self, variant: &Variant, quick: bool) -> Duration {
        match quick {
            true => self.quick_turn,
            false => self.turn.max(variant.turn.unwrap_or_default()),
        }
    }

    pub(crate) fn stages(&self) -> Vec<String> {
        self.variant.iter().map(|variant| variant.name.clone()).collect()
    }

    pub(super) fn arms_of(&self, variant: &Variant) -> impl Iterator<Item = &String> {
        let only = variant.arms.as_ref();
        self.arms
            .iter()
            .filter(move |arm| *arm == OTHER || only.is_none_or(|only| only.contains(arm)))
    }

    pub(crate) fn cells(&self) -> usize {
        self.variant.iter().map(|variant| self.arms_of(variant).count()).sum()
    }

    pub(crate) fn turns(&self, quick: bool) -> u64 {
        let turns = self.variant.iter().map(|variant| {
            u64::from(self.rounds(variant, quick)) * self.arms_of(variant).count() as u64
        });
        turns.sum()
    }

    /// Estimates the duration of a run.
    pub(crate) fn estimate(&self, quick: bool) -> Duration {
        let variants = self.variant.iter().map(|variant| {
            let arms = u32::try_from(self.arms_of(variant).count()).unwrap_or(u32::MAX);
            let time = self.turn(variant, quick);
            let (start, turn) = match variant.work {
                Work::Siege(siege) => {
                    let quiet = time.min(QUIET_MAX);
                    (START_SIEGE, quiet + time + BESIDE_SIEGE + siege.begins())
                }
                _ => (START, time),
            };
            let turn = turn + HOLD * u32::from(variant.held());
            start + (turn + BESIDE_TURN) * self.rounds(variant, quick) * arms
        });
        variants.sum()
    }
}

/// Returns the benchmarks that are built in, with their texts.
pub(crate) fn all() -> Result<Vec<(Benchmark, &'static str)>, Failure> {
    TEXTS.iter().map(|text| Ok((Benchmark::parse("built in", text)?, *text))).collect()
}

/// Returns the benchmark of this name, or in this file; `None` if that is no benchmark.
pub(crate) fn find(name: &str) -> Result<Option<(Benchmark, String)>, Failure> {
    if let Some((bench, text)) = all()?.into_iter().find(|(bench, _)| bench.name == name) {
        return Ok(Some((bench, text.to_owned())));
    }
    match file_with(name, "bench = ") {
        Some(text) => Ok(Some((Benchmark::parse(name, &text)?, text))),
        None => Ok(None),
    }
}

const fn one() -> NonZeroU8 {
    NonZeroU8::MIN
}

/// No more than a debug build sustains with the attackers beside it on two CPUs.
const fn few() -> NonZeroU16 {
    NonZeroU16::MIN.saturating_add(99)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::experiment::ANY;

    /// A bar that no cell can meet or miss is a mistake.
    #[test]
    fn those_built_in_name_what_they_have_and_are_short_in_their_short_form() {
        for (bench, text) in all().unwrap() {
            let quick = bench.estimate(true);
            assert!(quick < Duration::from_secs(60), "{}: {quick:?}", bench.name);
            assert!(bench.turns(true) < bench.turns(false), "{}", bench.name);
            for bar in &bench.bar {
                let mut arms = bar.against.iter().chain([&bar.arm]);
                assert!(arms.all(|arm| arm == ANY || bench.arms.contains(arm)), "{bar:?}");
                let variants = bar.variant.iter().chain(&bar.against_variant);
                let mut variants = variants.filter(|name| *name != ANY);
                assert!(variants.all(|name| bench.stages().contains(name)), "{bar:?}");
            }
            for variant in &bench.variant {
                let known = variant.arms.iter().flatten().all(|arm| bench.arms.contains(arm));
                assert!(known && bench.arms_of(variant).count() > 0, "{}", variant.name);
            }
            let nothing = text.replace("rounds = 1\n", "rounds = 0\n");
            assert!(Benchmark::parse("x", &nothing).is_err(), "{}", bench.name);
        }
        assert!(find("relay").unwrap().is_some() && find("turbotls-table").unwrap().is_none());
    }

    #[test]
    fn lists_of_numbers_are_variants() {
        let text = "name = \"a\"\nheld = [1, 20]\nnames = [3, 4]\nwork.connections = 8";
        let variant: Variant = toml::from_str(text).unwrap();
        let all: Vec<_> = variant.each_held().into_iter().flat_map(Variant::each_names).collect();
        let all: Vec<_> =
            all.iter().map(|one| (one.name.as_str(), one.held(), one.names())).collect();
        let expected = [
            ("a, 1 held, 3 names", 1, Some(3)),
            ("a, 1 held, 4 names", 1, Some(4)),
            ("a, 20 held, 3 names", 20, Some(3)),
            ("a, 20 held, 4 names", 20, Some(4)),
        ];
        assert_eq!(all, expected);
    }
}
