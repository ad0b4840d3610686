//! The experiment as a file, and what is to be done of it.

use std::path::Path;
use std::time::Duration;

use headstart_peers::site::Site;
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;
use serde::Deserialize;

use super::arm::Arm;
use crate::failure::Failure;
use crate::lab::experiment::{Bar, text};
use crate::lab::site;
use crate::lab::trial::Key;

/// The one that is built in.
const TEXT: &str = include_str!("../../../../../lab/experiments/browser.toml");

/// Largest file read.
const FILE_MAX: u64 = 1 << 20;

/// Loads of a cell at most: each takes seconds.
const TRIALS_MAX: u32 = 1_000;

/// What a load takes beside its round trips: starting Chromium, servers and scripts, and the 2 s in which nothing comes.
const OVERHEAD: Duration = Duration::from_secs(5);

/// Round trips of a load, about, until nothing comes any more: the longest way to a resource of the sites has 32, and pictures wait
/// behind others.
const ROUND_TRIPS: u32 = 42;

/// Building an emulated network, starting servers and making what sites consist of.
const SET_UP: Duration = Duration::from_secs(5);

/// An experiment with a browser.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BrowserExperiment {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) about: String,
    /// Loads of a cell.
    pub(crate) trials: u32,
    pub(crate) quick_trials: u32,
    /// Recordings of each site over each link.
    pub(crate) recordings: u32,
    pub(crate) quick_recordings: u32,
    /// Longest that a load may take.
    #[serde(deserialize_with = "text::time")]
    pub(crate) timeout: Duration,
    pub(crate) seed: u64,
    /// In the order of tables.
    pub(crate) arms: Vec<Arm>,
    /// One name: Chromium decides on its cryptography.
    pub(crate) suites: [String; 1],
    pub(crate) link: Vec<BrowserLink>,
    pub(crate) variant: Vec<BrowserVariant>,
    #[serde(default)]
    pub(crate) bar: Vec<Bar>,
}

/// A link between Chromium and all sites.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BrowserLink {
    pub(crate) name: String,
    #[serde(deserialize_with = "text::time")]
    pub(crate) rtt: Duration,
    /// Elements of the path.
    pub(crate) path: String,
    /// Whether the sites are loaded at the same time, each by a client of its own with a link of its own.
    #[serde(default)]
    pub(crate) side_by_side: bool,
    #[serde(default = "yes")]
    pub(crate) quick: bool,
}

/// A site as it is loaded: by somebody who was never there, or comes back.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BrowserVariant {
    pub(crate) name: String,
    pub(crate) site: String,
    /// A second visit: cookies and TLS sessions are there, the cache is empty and no connection is open.
    #[serde(default)]
    pub(crate) again: bool,
    /// By a copy of Chromium without a post-quantum key share, for measurements alone: there is no such setting.
    #[serde(default)]
    pub(crate) classical: bool,
    /// Only over these links.
    pub(crate) links: Option<Vec<String>>,
    pub(crate) arms: Vec<Arm>,
    #[serde(default = "yes")]
    pub(crate) quick: bool,
}

const fn yes() -> bool {
    true
}

/// What it is called on the command line.
pub(crate) const NAME: &str = "browser";

/// The experiment of this name, or in this file, if it is one with a browser; with its text.
///
/// # Errors
/// It is, and something in it is wrong.
pub(crate) fn find(name: &str) -> Result<Option<(BrowserExperiment, String)>, Failure> {
    if name == NAME {
        return Ok(Some((BrowserExperiment::parse("built in", TEXT)?, TEXT.to_owned())));
    }
    let path = Path::new(name);
    let is_small = path.metadata().is_ok_and(|it| it.is_file() && it.len() <= FILE_MAX);
    let text = is_small.then(|| std::fs::read_to_string(path).ok()).flatten();
    match text.filter(|text| text.lines().any(|line| line.starts_with("site = "))) {
        Some(text) => Ok(Some((BrowserExperiment::parse(name, &text)?, text))),
        None => Ok(None),
    }
}

impl BrowserExperiment {
    /// The one that is built in.
    pub(crate) fn built_in() -> Result<(Self, &'static str), Failure> {
        Ok((Self::parse("built in", TEXT)?, TEXT))
    }

    fn parse(source: &str, text: &str) -> Result<Self, Failure> {
        let parsed: Self = toml::from_str(text).map_err(|error| {
            Failure::usage(format!("{source}: {}", error.to_string().trim_end()))
                .hint("lab/README.md has the form of experiments with a browser")
        })?;
        parsed.check().map_err(|what| Failure::usage(format!("{source}: {what}")))?;
        Ok(parsed)
    }

    fn check(&self) -> Result<(), String> {
        let counts = [
            ("trials", self.trials),
            ("quick_trials", self.quick_trials),
            ("recordings", self.recordings),
            ("quick_recordings", self.quick_recordings),
        ];
        if let Some((key, count)) = counts.iter().find(|(_, n)| !(1..=TRIALS_MAX).contains(n)) {
            return Err(format!("{key}: {count} is not 1 to {TRIALS_MAX}"));
        }
        if self.timeout < Duration::from_secs(1) || self.timeout > Duration::from_secs(600) {
            return Err(format!("timeout: {:?} is not 1s to 10min", self.timeout));
        }
        for variant in &self.variant {
            if Site::built_in(&variant.site).is_none() && !Path::new(&variant.site).exists() {
                let names = Site::names().join(", ");
                return Err(format!(
                    "variant '{}': no site '{}': there are {names}",
                    variant.name, variant.site
                ));
            }
            if let Some(arm) = variant.arms.iter().find(|arm| !self.arms.contains(arm)) {
                return Err(format!("variant '{}': {arm} is not among the arms", variant.name));
            }
            let is_link = |name: &String| self.link.iter().any(|link| link.name == *name);
            if let Some(name) = variant.links.iter().flatten().find(|name| !is_link(name)) {
                return Err(format!("variant '{}': there is no link '{name}'", variant.name));
            }
            // Savings and predictions are to it.
            if !variant.arms.contains(&Arm::Plain) {
                return Err(format!("variant '{}': the arm plain is missing", variant.name));
            }
        }
        match self.link.is_empty() || self.variant.is_empty() {
            true => Err("there is no link, or no variant".into()),
            false => Ok(()),
        }
    }
}

/// What is to be done of an experiment.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) experiment: BrowserExperiment,
    pub(crate) quick: bool,
    pub(crate) seed: u64,
    pub(crate) links: Vec<BrowserLink>,
    /// Each of a variant with an arm.
    pub(crate) cells: Vec<CellSpec>,
    /// Names of the sites.
    pub(crate) sites: Vec<String>,
    pub(crate) trials: u32,
    pub(crate) recordings: u32,
}

/// What is loaded how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CellSpec {
    pub(crate) variant: String,
    /// Place in [`Plan::sites`].
    pub(crate) site: usize,
    pub(crate) again: bool,
    pub(crate) classical: bool,
    pub(crate) arm: Arm,
    links: Option<Vec<String>>,
}

impl CellSpec {
    /// A first visit by Chromium as it is, over any link.
    pub(super) fn first(variant: impl Into<String>, site: usize, arm: Arm) -> Self {
        let variant = variant.into();
        Self { variant, site, again: false, classical: false, arm, links: None }
    }

    pub(super) fn is_on(&self, link: &BrowserLink) -> bool {
        self.links.as_ref().is_none_or(|links| links.contains(&link.name))
    }
}

impl Plan {
    pub(crate) fn new(experiment: BrowserExperiment, quick: bool, seed: Option<u64>) -> Self {
        let links = experiment.link.iter().filter(|link| !quick || link.quick).cloned().collect();
        let mut sites: Vec<String> = Vec::new();
        let mut cells = Vec::new();
        for variant in experiment.variant.iter().filter(|variant| !quick || variant.quick) {
            let there = sites.iter().position(|site| *site == variant.site);
            let site = there.unwrap_or_else(|| {
                sites.push(variant.site.clone());
                sites.len() - 1
            });
            let of = |arm: &Arm| CellSpec {
                variant: variant.name.clone(),
                site,
                again: variant.again,
                classical: variant.classical,
                arm: *arm,
                links: variant.links.clone(),
            };
            cells.extend(variant.arms.iter().map(of));
        }
        let (trials, recordings) = match quick {
            true => (experiment.quick_trials, experiment.quick_recordings),
            false => (experiment.trials, experiment.recordings),
        };
        let seed = seed.unwrap_or(experiment.seed);
        Self { experiment, quick, seed, links, cells, sites, trials, recordings }
    }

    /// The sites, read.
    pub(crate) fn read_sites(&self) -> Result<Vec<Site>, Failure> {
        self.sites.iter().map(|name| site::find(name)).collect()
    }

    /// The turns over a link, round by round in an order that is drawn: places of cells that are loaded at the same time.
    pub(super) fn rounds(&self, link: &BrowserLink) -> Vec<Vec<Vec<usize>>> {
        let mut draws =
            Xoshiro256PlusPlus::seed_from_u64(self.seed ^ u64::from(link.rtt.subsec_micros()));
        let mut turns = self.turns(link);
        let mut round = || {
            turns.shuffle(&mut draws);
            turns.clone()
        };
        (0..self.trials).map(|_| round()).collect()
    }

    fn turns(&self, link: &BrowserLink) -> Vec<Vec<usize>> {
        let mut turns: Vec<Vec<usize>> = Vec::new();
        let here = self.cells.iter().enumerate().filter(|(_, cell)| cell.is_on(link));
        for (place, cell) in here {
            let kind = |of: &CellSpec| (of.arm, of.again, of.classical);
            let beside = turns.iter_mut().find(|turn| {
                let first = turn.first().and_then(|at| self.cells.get(*at));
                link.side_by_side && first.map(kind) == Some(kind(cell))
            });
            match beside {
                Some(turn) => turn.push(place),
                None => turns.push(vec![place]),
            }
        }
        turns
    }

    /// Clients that are needed over a link.
    pub(super) fn lanes(&self, link: &BrowserLink) -> usize {
        if link.side_by_side { self.sites.len() } else { 1 }
    }

    pub(super) fn key(&self, link: &BrowserLink, cell: &CellSpec) -> Key {
        Key {
            experiment: self.experiment.name.clone(),
            link: link.name.clone(),
            variant: cell.variant.clone(),
            suite: self.experiment.suites[0].clone(),
            arm: cell.arm.name().to_owned(),
        }
    }

    /// Turns of all links, recordings too.
    pub(crate) fn steps(&self) -> u64 {
        let of = |link: &BrowserLink| {
            let recorded = self.sites.len().div_ceil(self.lanes(link)) as u64;
            let turns = self.turns(link).len() as u64;
            u64::from(self.trials) * turns + u64::from(self.recordings) * recorded
        };
        self.links.iter().map(of).sum()
    }

    /// About how long it takes.
    pub(crate) fn estimate(&self) -> Duration {
        let of = |link: &BrowserLink| {
            let one = link.rtt * ROUND_TRIPS + OVERHEAD;
            let loads = |turn: &Vec<usize>| {
                let again =
                    turn.first().and_then(|at| self.cells.get(*at)).is_some_and(|it| it.again);
                if again { 2 } else { 1 }
            };
            let loads: u32 = self.turns(link).iter().map(loads).sum();
            let recorded =
                self.recordings * u32::try_from(self.sites.len() / self.lanes(link)).unwrap_or(1);
            SET_UP + one * (loads * self.trials + recorded)
        };
        self.links.iter().map(of).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(quick: bool) -> Plan {
        Plan::new(BrowserExperiment::built_in().unwrap().0, quick, None)
    }

    #[test]
    fn a_full_run_fits_two_hours_and_a_short_one_three_minutes() {
        let (full, quick) = (plan(false), plan(true));
        assert!(full.estimate() < Duration::from_secs(2 * 3600), "{:?}", full.estimate());
        assert!(quick.estimate() < Duration::from_secs(180), "{:?}", quick.estimate());
        assert_eq!((full.sites.len(), full.links.len(), full.trials), (3, 2, 10));
        assert_eq!((quick.sites.len(), quick.links.len()), (1, 1));
    }

    #[test]
    fn each_cell_has_a_turn_in_each_round_and_sites_share_it_where_they_may() {
        let plan = plan(false);
        for link in &plan.links {
            for round in plan.rounds(link) {
                let mut places: Vec<usize> = round.concat();
                places.sort_unstable();
                let here = plan.cells.iter().enumerate().filter(|(_, cell)| cell.is_on(link));
                assert_eq!(places, here.map(|(place, _)| place).collect::<Vec<_>>());
                let widest = round.iter().map(Vec::len).max();
                assert_eq!(widest, Some(plan.lanes(link)), "{}", link.name);
            }
        }
        assert_ne!(plan.rounds(&plan.links[0])[0], plan.rounds(&plan.links[0])[1]);
    }

    #[test]
    fn what_is_wrong_in_a_file_is_said() {
        for (from, to, why) in [
            ("site = \"app\"", "site = \"weather\"", "there are news, shop, app"),
            ("trials = 10", "trials = 0", "trials: 0"),
            ("timeout = \"120s\"", "timeout = \"1ms\"", "timeout"),
            ("arms = [\"plain\", \"0rtt\"]", "arms = [\"0rtt\"]", "plain is missing"),
            ("links = [\"50 ms\"]", "links = [\"51 ms\"]", "there is no link '51 ms'"),
            ("seed = 1", "sead = 1", "sead"),
        ] {
            let failure = BrowserExperiment::parse("x", &TEXT.replace(from, to)).unwrap_err();
            assert!(failure.message().contains(why), "{}", failure.message());
        }
    }
}
