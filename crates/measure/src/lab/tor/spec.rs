//! lab/experiments/tor.toml.

use std::time::Duration;

use serde::Deserialize;

use super::Arm;
use super::visit::Suite;
use crate::lab::experiment::{Bar, text};
use headstart::base::failure::Failure;

/// Name on the command line.
pub(in crate::lab) const NAME: &str = "tor";

/// The file.
pub(in crate::lab) const TEXT: &str = include_str!("../../../../../lab/experiments/tor.toml");

/// Duration of a trial on average, in round trips of the circuit: the exchange, and the second
/// request.
const TRIAL_ROUND_TRIPS: u32 = 4;

/// A private Tor network until it stands, and what is read and written.
const BEFORE_AND_AFTER: Duration = Duration::from_secs(40);

/// The experiment, as its file says it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::lab) struct Experiment {
    pub(in crate::lab) name: String,
    pub(in crate::lab) title: String,
    pub(in crate::lab) about: String,
    trials: u32,
    quick_trials: u32,
    /// Rounds that are not counted.
    pub(super) warmup: u32,
    #[serde(default = "one")]
    pub(super) seed: u64,
    /// Bytes of a response.
    pub(super) response: usize,
    #[serde(deserialize_with = "text::time")]
    pub(super) timeout: Duration,
    arms: Vec<Arm>,
    suites: Vec<Suite>,
    pub(in crate::lab) link: Vec<LinkSpec>,
    pub(super) bar: Vec<Bar>,
}

/// Delays of the nodes, each way.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::lab) struct LinkSpec {
    pub(in crate::lab) name: String,
    /// The circuit's round trip that they make.
    #[serde(deserialize_with = "text::time")]
    pub(super) rtt: Duration,
    #[serde(deserialize_with = "text::time")]
    pub(super) client: Duration,
    #[serde(deserialize_with = "text::time")]
    pub(super) relay: Duration,
    #[serde(deserialize_with = "text::time")]
    pub(super) origin: Duration,
    #[serde(default = "yes")]
    quick: bool,
}

impl Experiment {
    pub(in crate::lab) fn parse() -> Result<Self, Failure> {
        toml::from_str(TEXT).map_err(|error| Failure::usage(format!("built in: {error}")))
    }

    pub(in crate::lab) fn links(&self, quick: bool) -> Vec<&LinkSpec> {
        self.link.iter().filter(|link| link.quick || !quick).collect()
    }

    pub(in crate::lab) const fn trials(&self, quick: bool) -> u32 {
        if quick { self.quick_trials } else { self.trials }
    }

    pub(super) fn each(&self) -> impl Iterator<Item = (Suite, Arm)> {
        self.suites.iter().flat_map(|suite| self.arms.iter().map(|arm| (*suite, *arm)))
    }

    /// Over all links.
    pub(in crate::lab) fn cells(&self) -> usize {
        self.each().count() * self.link.len()
    }

    /// Visits of a whole run.
    pub(in crate::lab) fn visits(&self) -> u64 {
        self.cells() as u64 * u64::from(self.trials + self.warmup)
    }

    /// Estimates the duration of a run.
    pub(in crate::lab) fn estimate(&self, quick: bool) -> Duration {
        let visits = self.each().map(|_| self.trials(quick) + self.warmup).sum::<u32>();
        BEFORE_AND_AFTER
            + self
                .links(quick)
                .iter()
                .map(|link: &&LinkSpec| link.rtt * TRIAL_ROUND_TRIPS * visits)
                .sum::<Duration>()
    }
}

const fn one() -> u64 {
    1
}

const fn yes() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_round_trip_is_that_of_the_links() {
        let experiment = Experiment::parse().unwrap();
        assert_eq!(experiment.name, NAME);
        for link in &experiment.link {
            let made = 2 * link.client + 12 * link.relay + 2 * link.origin;
            assert_eq!(made, link.rtt, "{}", link.name);
        }
        assert!(experiment.links(true).len() < experiment.links(false).len());
        assert_eq!(
            (experiment.arms.as_slice(), experiment.suites.as_slice()),
            (&Arm::ALL[..], &Suite::ALL[..])
        );
    }
}
