//! lab/experiments/soak.toml, and when its events come.

use std::num::NonZeroU16;
use std::time::Duration;

use serde::Deserialize;

use crate::lab::experiment::{Bar, file_with, text};
use headstart::base::failure::Failure;

/// Name on the command line.
pub(in crate::lab) const NAME: &str = "soak";

/// The file.
pub(in crate::lab) const TEXT: &str = include_str!("../../../../../lab/experiments/soak.toml");

/// Beginning of the line by which a file is known to be such an experiment.
const MARK: &str = "quick_duration";

/// Share of the time in which events come; the rest is load alone.
const BUSY: f64 = 0.6;

/// Times of events that each pass leaves out at its end: an exchange that hangs by one of the last
/// events has then failed before the next process is killed, which would excuse it.
const CALM: usize = 4;

/// Time to start and end the programs, for the estimate.
const AROUND: Duration = Duration::from_secs(15);

/// The experiment, as its file says it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::lab) struct Experiment {
    pub(in crate::lab) name: String,
    pub(in crate::lab) title: String,
    pub(in crate::lab) about: String,
    #[serde(deserialize_with = "text::time")]
    duration: Duration,
    #[serde(deserialize_with = "text::time")]
    quick_duration: Duration,
    /// Times that every event comes.
    passes: NonZeroU16,
    /// Interval at which processes are looked at.
    #[serde(deserialize_with = "text::time")]
    every: Duration,
    #[serde(deserialize_with = "text::time")]
    quick_every: Duration,
    /// Exchanges at a time, and the pause of each worker between two.
    pub(super) workers: NonZeroU16,
    #[serde(deserialize_with = "text::time")]
    pub(super) pause: Duration,
    /// Bytes of most bodies at most, and of the large ones, of which there is one among so many.
    pub(super) small: u64,
    pub(super) large: u64,
    pub(super) large_among: NonZeroU16,
    /// Time after which an exchange has failed.
    #[serde(deserialize_with = "text::time")]
    pub(super) timeout: Duration,
    #[serde(deserialize_with = "text::time")]
    pub(super) rtt: Duration,
    #[serde(default = "one")]
    pub(super) seed: u64,
    #[serde(default)]
    pub(super) bar: Vec<Bar>,
}

/// A process of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Redis,
    Origin(u8),
    Edge(u8),
    Agent,
}

/// Something that happens to the site while clients use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// SIGKILL, and a new process after a moment.
    Kill(Part),
    /// Another certificate and key in the files of all edges.
    Certificate,
    /// The next key of the ring in Redis.
    Keys,
    /// The client's network drops UDP, or passes it again.
    Udp { blocked: bool },
    /// The wall clocks of an edge and of the agent jump ahead, or back again.
    Clock { ahead: bool },
}

/// Edges of the fleet.
pub(super) const EDGES: u8 = 3;

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Redis => f.write_str("redis"),
            Self::Origin(number) => write!(f, "origin-{}", number + 1),
            Self::Edge(number) => write!(f, "edge-{}", number + 1),
            Self::Agent => f.write_str("agent"),
        }
    }
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Kill(part) => write!(f, "{part} killed"),
            Self::Certificate => f.write_str("new certificate"),
            Self::Keys => f.write_str("key ring rotated"),
            Self::Udp { blocked: true } => f.write_str("UDP blocked"),
            Self::Udp { blocked: false } => f.write_str("UDP back"),
            Self::Clock { ahead: true } => f.write_str("clocks ahead"),
            Self::Clock { ahead: false } => f.write_str("clocks back"),
        }
    }
}

impl Experiment {
    /// Reads the text; `source` is what messages call it.
    pub(in crate::lab) fn parse(source: &str, text: &str) -> Result<Self, Failure> {
        toml::from_str(text).map_err(|error| {
            Failure::usage(format!("{source}: {}", error.to_string().trim_end()))
                .hint("lab/README.md has the form of a soak")
        })
    }

    /// Finds the built-in experiment, or one in a file, with its text.
    pub(in crate::lab) fn find(name: &str) -> Result<Option<(Self, String)>, Failure> {
        let text = if name == NAME { Some(TEXT.to_owned()) } else { file_with(name, MARK) };
        text.map(|text| Ok((Self::parse(name, &text)?, text))).transpose()
    }

    pub(super) const fn duration(&self, quick: bool) -> Duration {
        if quick { self.quick_duration } else { self.duration }
    }

    pub(super) const fn every(&self, quick: bool) -> Duration {
        if quick { self.quick_every } else { self.every }
    }

    pub(in crate::lab) fn estimate(&self, quick: bool) -> Duration {
        AROUND + self.duration(quick)
    }

    /// Returns every event with its time, in order.
    pub(super) fn schedule(&self, quick: bool) -> Vec<(Duration, Step)> {
        let passes = if quick { 1 } else { self.passes.get() };
        let calm = [None; CALM];
        let slots: Vec<Option<Step>> =
            (0..passes).flat_map(|number| pass(number).into_iter().map(Some).chain(calm)).collect();
        let between = self.duration(quick).mul_f64(BUSY / slots.len() as f64);
        let times = (0..).map(|number: u32| between * number + between / 2);
        times.zip(slots).filter_map(|(at, step)| Some((at, step?))).collect()
    }
}

/// Returns each event once; the origins take turns.
fn pass(number: u16) -> Vec<Step> {
    let origin = Part::Origin(u8::try_from(number % u16::from(EDGES)).unwrap_or_default());
    let edges = (0..EDGES).map(Part::Edge);
    // The agent last: after the reset of a committed client its paths stay plain for a day.
    let killed = edges.chain([Part::Redis, origin, Part::Agent]).map(Step::Kill);
    let others = [
        Step::Certificate,
        Step::Keys,
        Step::Udp { blocked: true },
        Step::Udp { blocked: false },
        Step::Clock { ahead: true },
        Step::Clock { ahead: false },
    ];
    killed.chain(others).collect()
}

const fn one() -> u64 {
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_comes_in_each_pass_and_the_end_is_calm() {
        let (soak, text) = Experiment::find(NAME).unwrap().unwrap();
        assert_eq!((soak.name.as_str(), text.as_str()), (NAME, TEXT));
        let [quick, whole] = [true, false].map(|quick| soak.schedule(quick));
        assert_eq!(whole.len(), quick.len() * usize::from(soak.passes.get()));
        for (schedule, quick) in [(&quick, true), (&whole, false)] {
            assert!(schedule.is_sorted_by_key(|(at, _)| *at));
            let last = schedule.last().unwrap().0;
            assert!(last < soak.duration(quick).mul_f64(BUSY), "{last:?}");
        }
        let killed = |part| whole.iter().filter(|(_, step)| *step == Step::Kill(part)).count();
        assert_eq!(killed(Part::Edge(2)), usize::from(soak.passes.get()));
        assert!((0..EDGES).all(|number| killed(Part::Origin(number)) > 0));
        assert!(soak.duration(true) <= Duration::from_secs(300));
    }

    #[test]
    fn a_file_with_a_wrong_key_is_refused_and_one_of_another_kind_is_not_taken() {
        assert!(Experiment::parse("x", &format!("pasess = 1\n{TEXT}")).is_err());
        let zero = TEXT.replace("workers = ", "workers = 0 #");
        assert!(Experiment::parse("x", &zero).is_err());
        assert!(Experiment::find("load").unwrap().is_none());
    }
}
