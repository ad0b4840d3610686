//! The experiment as a file, and what is to be done of it.

use std::path::Path;
use std::time::Duration;

use headstart_openers::site::Site;
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;
use serde::Deserialize;

use super::arm::Arm;
use super::visit::Visit;
use crate::lab::experiment::{Bar, file_with, text};
use crate::lab::site;
use crate::lab::trial::Key;
use headstart::base::failure::Failure;

/// The one that is built in.
const TEXT: &str = include_str!("../../../../../lab/experiments/browser.toml");

/// Loads of a cell at most: each takes seconds.
const TRIALS_MAX: u32 = 1_000;

/// Time that a load takes beside its round trips: starting Chromium, servers and scripts, and the 2
/// s in which nothing comes.
const OVERHEAD: Duration = Duration::from_secs(5);

/// Round trips of a load, about, until nothing comes any more: the longest way to a resource of the
/// sites has 32, and pictures wait behind others.
const ROUND_TRIPS: u32 = 42;

/// Building an emulated network, starting servers and making what sites consist of.
const SET_UP: Duration = Duration::from_secs(5);

/// The same with a Tor network.
const SET_UP_TOR: Duration = Duration::from_secs(40);

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
    /// Arms, in the order of tables.
    pub(crate) arms: Vec<Arm>,
    /// The suite's only name: Chromium chooses the cryptography.
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
    /// Number of arms with which all sites are loaded at the same time, each by a client of its own
    /// with a link of its own; without it, one load after the other.
    #[serde(default)]
    pub(crate) side_by_side: usize,
    /// A private Tor network between the clients behind `path` and the sites.
    pub(crate) tor: Option<TorDelays>,
    #[serde(default = "yes")]
    pub(crate) quick: bool,
}

/// Delays behind a client's own, each way: of each of Tor's nodes, and of the sites. A circuit has
/// three hops, and passes each of its nodes' links twice each way: the round trip is that of
/// `path`, 12 `relay` and 2 `origin`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TorDelays {
    #[serde(deserialize_with = "text::time")]
    pub(crate) relay: Duration,
    #[serde(deserialize_with = "text::time")]
    pub(crate) origin: Duration,
}

/// A site as it is loaded: by somebody who was never there, or comes back.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BrowserVariant {
    pub(crate) name: String,
    pub(crate) site: String,
    /// A second visit: cookies and TLS sessions are there, the cache is empty and no connection is
    /// open.
    #[serde(default)]
    pub(crate) again: bool,
    /// True for a copy of Chromium without a post-quantum key share, for measurements alone: there
    /// is no such setting.
    #[serde(default)]
    pub(crate) classical: bool,
    /// True for a Chromium that speaks HTTP/1.1 alone.
    #[serde(default)]
    pub(crate) http1: bool,
    /// Only over these links; all without Tor if none are named.
    pub(crate) links: Option<Vec<String>>,
    pub(crate) arms: Vec<Arm>,
    /// Further arms, of full runs alone.
    #[serde(default)]
    pub(crate) full_arms: Vec<Arm>,
    #[serde(default = "yes")]
    pub(crate) quick: bool,
}

const fn yes() -> bool {
    true
}

/// Name on the command line.
pub(crate) const NAME: &str = "browser";

/// The experiment of this name, or in this file, if it is one with a browser; with its text.
pub(crate) fn find(name: &str) -> Result<Option<(BrowserExperiment, String)>, Failure> {
    if name == NAME {
        return Ok(Some((BrowserExperiment::parse("built in", TEXT)?, TEXT.to_owned())));
    }
    match file_with(name, "site = ") {
        Some(text) => Ok(Some((BrowserExperiment::parse(name, &text)?, text))),
        None => Ok(None),
    }
}

impl BrowserExperiment {
    /// The one that is built in.
    pub(crate) fn built_in() -> Result<(Self, &'static str), Failure> {
        Ok((Self::parse("built in", TEXT)?, TEXT))
    }

    pub(super) fn parse(source: &str, text: &str) -> Result<Self, Failure> {
        let parsed: Self = toml::from_str(text).map_err(|error| {
            Failure::usage(format!("{source}: {}", error.to_string().trim_end()))
                .hint("lab/README.md has the form of experiments with a browser")
        })?;
        parsed.check().map_err(|what| Failure::usage(format!("{source}: {what}")))?;
        Ok(parsed)
    }

    fn check(&self) -> Result<(), String> {
        // A single pair gives no interval.
        let counts = [
            ("trials", self.trials, 2),
            ("quick_trials", self.quick_trials, 2),
            ("recordings", self.recordings, 1),
            ("quick_recordings", self.quick_recordings, 1),
        ];
        if let Some((key, count, least)) = counts
            .into_iter()
            .find(|(_, count, least): &(_, u32, u32)| !(*least..=TRIALS_MAX).contains(count))
        {
            return Err(format!("{key}: {count} is not {least} to {TRIALS_MAX}"));
        }
        if self.timeout < Duration::from_secs(1) || self.timeout > Duration::from_secs(600) {
            return Err(format!("timeout: {:?} is not 1s to 10min", self.timeout));
        }
        self.variant.iter().try_for_each(|variant| self.check_variant(variant))?;
        // Its exit finds a site at one place at a time.
        if let Some(link) =
            self.link.iter().find(|link| link.tor.is_some() && link.side_by_side > 1)
        {
            return Err(format!("link '{}': one arm at a time goes through Tor", link.name));
        }
        match self.link.is_empty() || self.variant.is_empty() {
            true => Err("there is no link, or no variant".into()),
            false => Ok(()),
        }
    }

    fn check_variant(&self, variant: &BrowserVariant) -> Result<(), String> {
        if Site::built_in(&variant.site).is_none() && !Path::new(&variant.site).exists() {
            let names = Site::names().join(", ");
            return Err(format!(
                "variant '{}': no site '{}': there are {names}",
                variant.name, variant.site
            ));
        }
        if let Some(arm) = variant.arms(false).find(|arm| !self.arms.contains(arm)) {
            return Err(format!("variant '{}': {arm} is not among the arms", variant.name));
        }
        let mut named = variant.links.iter().flatten();
        if let Some(name) = named.find(|name| self.link.iter().all(|link| link.name != **name)) {
            return Err(format!("variant '{}': there is no link '{name}'", variant.name));
        }
        let own = self.link.iter().filter(|link| variant.is_on(link));
        for link in own {
            let through = link.tor.is_some();
            if let Some(arm) = variant.arms(false).find(|arm| !arm.goes(through)) {
                let how = if through { "through" } else { "without" };
                let (variant, link) = (&variant.name, &link.name);
                return Err(format!(
                    "variant '{variant}': {arm} cannot be loaded {how} Tor, as over the link \
                        '{link}'"
                ));
            }
        }
        // Savings and predictions are relative to it.
        if !variant.arms.contains(&Arm::Plain) {
            return Err(format!("variant '{}': the arm plain is missing", variant.name));
        }
        Ok(())
    }
}

impl BrowserVariant {
    fn arms(&self, quick: bool) -> impl Iterator<Item = Arm> + '_ {
        let further = self.full_arms.iter().filter(move |_| !quick);
        self.arms.iter().chain(further).copied()
    }

    const fn visit(&self) -> Visit {
        let Self { again, classical, http1, .. } = *self;
        Visit { again, classical, http1 }
    }

    fn is_on(&self, link: &BrowserLink) -> bool {
        self.links.as_ref().map_or(link.tor.is_none(), |links| links.contains(&link.name))
    }
}

/// Loads of an experiment.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) experiment: BrowserExperiment,
    pub(crate) quick: bool,
    pub(crate) seed: u64,
    pub(crate) links: Vec<BrowserLink>,
    /// Each of a variant with an arm.
    pub(crate) cells: Vec<CellSpec>,
    pub(crate) sites: Vec<String>,
    pub(crate) trials: u32,
    pub(crate) recordings: u32,
}

/// Key of cells of several sites.
pub(super) type Kind = (Arm, Visit);

/// Site and arm of a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CellSpec {
    pub(crate) variant: String,
    /// Index in [`Plan::sites`].
    pub(crate) site: usize,
    pub(crate) visit: Visit,
    pub(crate) arm: Arm,
    /// Their names.
    links: Vec<String>,
}

impl CellSpec {
    /// A first visit by Chromium as it is, of no rounds.
    pub(super) fn first(variant: impl Into<String>, site: usize, arm: Arm) -> Self {
        let variant = variant.into();
        Self { variant, site, visit: Visit::default(), arm, links: Vec::new() }
    }

    pub(super) fn is_on(&self, link: &BrowserLink) -> bool {
        self.links.contains(&link.name)
    }

    pub(super) const fn kind(&self) -> Kind {
        (self.arm, self.visit)
    }
}

impl Plan {
    pub(crate) fn new(experiment: BrowserExperiment, quick: bool, seed: Option<u64>) -> Self {
        let links: Vec<BrowserLink> =
            experiment.link.iter().filter(|link| !quick || link.quick).cloned().collect();
        let mut sites: Vec<String> = Vec::new();
        let mut cells = Vec::new();
        for variant in experiment.variant.iter().filter(|variant| !quick || variant.quick) {
            let own = links.iter().filter(|link| variant.is_on(link));
            let own: Vec<String> = own.map(|link| link.name.clone()).collect();
            if own.is_empty() {
                continue;
            }
            let there = sites.iter().position(|site| *site == variant.site);
            let site = there.unwrap_or_else(|| {
                sites.push(variant.site.clone());
                sites.len() - 1
            });
            cells.extend(variant.arms(quick).map(|arm: Arm| CellSpec {
                variant: variant.name.clone(),
                site,
                visit: variant.visit(),
                arm,
                links: own.clone(),
            }));
        }
        let (trials, recordings) = match quick {
            true => (experiment.quick_trials, experiment.quick_recordings),
            false => (experiment.trials, experiment.recordings),
        };
        let seed = seed.unwrap_or(experiment.seed);
        Self { experiment, quick, seed, links, cells, sites, trials, recordings }
    }

    pub(crate) fn read_sites(&self) -> Result<Vec<Site>, Failure> {
        self.sites.iter().map(|name| site::find(name)).collect()
    }

    /// The turns over a link, round by round in an order that is drawn: places of cells that are
    /// loaded at the same time.
    pub(super) fn rounds(&self, link: &BrowserLink) -> Vec<Vec<Vec<usize>>> {
        let mut draws =
            Xoshiro256PlusPlus::seed_from_u64(self.seed ^ u64::from(link.rtt.subsec_micros()));
        let mut arms = self.arms(link);
        let rounds = (0..self.trials).map(|_| {
            arms.shuffle(&mut draws);
            self.beside(link, &arms)
        });
        rounds.collect()
    }

    /// Places of cells by their arm, where sites are loaded side by side; each alone where not.
    fn arms(&self, link: &BrowserLink) -> Vec<Vec<usize>> {
        let mut arms: Vec<Vec<usize>> = Vec::new();
        let here = self.cells.iter().enumerate().filter(|(_, cell)| cell.is_on(link));
        for (place, cell) in here {
            let same = arms.iter_mut().find(|arm| {
                link.side_by_side > 0
                    && self.first(arm).is_some_and(|first| first.kind() == cell.kind())
            });
            match same {
                Some(arm) => arm.push(place),
                None => arms.push(vec![place]),
            }
        }
        arms
    }

    /// As many of these arms in a turn as may be: all of one kind of visit, as they take as long as
    /// each other.
    fn beside(&self, link: &BrowserLink, arms: &[Vec<usize>]) -> Vec<Vec<usize>> {
        let mut turns: Vec<(usize, Vec<usize>)> = Vec::new();
        for arm in arms {
            let with_room = turns.iter_mut().find(|(count, turn)| {
                *count < link.side_by_side && self.visit(turn) == self.visit(arm)
            });
            match with_room {
                Some((count, turn)) => {
                    *count += 1;
                    turn.extend(arm);
                }
                None => turns.push((1, arm.clone())),
            }
        }
        turns.into_iter().map(|(_, turn)| turn).collect()
    }

    fn first(&self, turn: &[usize]) -> Option<&CellSpec> {
        self.cells.get(*turn.first()?)
    }

    fn visit(&self, turn: &[usize]) -> Option<Visit> {
        self.first(turn).map(|cell| cell.visit)
    }

    fn turns(&self, link: &BrowserLink) -> Vec<Vec<usize>> {
        self.beside(link, &self.arms(link))
    }

    /// Clients that are needed over a link.
    pub(super) fn lanes(&self, link: &BrowserLink) -> usize {
        self.turns(link).iter().map(Vec::len).max().unwrap_or(1)
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

    /// Returns the number of cells, over all links.
    pub(crate) fn cell_count(&self) -> usize {
        self.cells.iter().map(|cell| cell.links.len()).sum()
    }

    /// Turns of all links, recordings too.
    pub(crate) fn steps(&self) -> u64 {
        self.links
            .iter()
            .map(|link: &BrowserLink| {
                let recorded = self.sites.len().div_ceil(self.lanes(link)) as u64;
                let turns = self.turns(link).len() as u64;
                u64::from(self.trials) * turns + u64::from(self.recordings) * recorded
            })
            .sum()
    }

    /// About how long it takes.
    pub(crate) fn estimate(&self) -> Duration {
        self.links
            .iter()
            .map(|link: &BrowserLink| {
                let one = link.rtt * ROUND_TRIPS + OVERHEAD;
                let turns = self.turns(link);
                let again = turns.iter().filter(|turn| self.visit(turn).is_some_and(|it| it.again));
                let loads = u32::try_from(turns.len() + again.count()).unwrap_or(1);
                let recorded = self.sites.len().div_ceil(self.lanes(link));
                let recorded = self.recordings * u32::try_from(recorded).unwrap_or(1);
                let set_up = if link.tor.is_some() { SET_UP_TOR } else { SET_UP };
                set_up + one * (loads * self.trials + recorded)
            })
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(quick: bool) -> Plan {
        Plan::new(BrowserExperiment::built_in().unwrap().0, quick, None)
    }

    #[test]
    fn a_full_run_fits_three_hours_and_a_short_one_four_minutes() {
        let (full, quick) = (plan(false), plan(true));
        assert!(full.estimate() < Duration::from_secs(3 * 3600), "{:?}", full.estimate());
        assert!(quick.estimate() < Duration::from_secs(240), "{:?}", quick.estimate());
        assert_eq!((full.sites.len(), full.links.len(), full.trials), (3, 3, 10));
        assert_eq!((quick.sites.len(), quick.links.len()), (1, 1));
    }

    #[test]
    fn cells_exist_on_their_own_links_only() {
        let (mut experiment, _) = BrowserExperiment::built_in().unwrap();
        experiment.link.retain(|link| link.tor.is_some());
        let plan = Plan::new(experiment, false, None);
        assert_eq!((plan.cells.len(), plan.cell_count(), plan.sites.len()), (33, 33, 3));
        assert!(plan.cells.iter().all(|cell| cell.arm.goes(true)));
    }

    #[test]
    fn round_trips_through_tor_are_those_of_its_links() {
        let (experiment, _) = BrowserExperiment::built_in().unwrap();
        let links: Vec<_> = experiment.link.iter().filter(|link| link.tor.is_some()).collect();
        assert_eq!(links.len(), 1);
        for link in links {
            let path: headstart_emulation::Path = link.path.parse().unwrap();
            let tor = link.tor.unwrap();
            let made = path.nominal_delay().unwrap() + 12 * tor.relay + 2 * tor.origin;
            assert_eq!(made, link.rtt);
        }
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
    fn errors_in_a_file_are_reported() {
        for (from, to, why) in [
            ("site = \"app\"", "site = \"weather\"", "there are news, shop, app"),
            ("trials = 10", "trials = 1", "trials: 1"),
            ("timeout = \"120s\"", "timeout = \"1ms\"", "timeout"),
            ("arms = [\"plain\", \"0rtt\"]", "arms = [\"0rtt\"]", "plain is missing"),
            ("links = [\"50 ms\"]", "links = [\"51 ms\"]", "there is no link '51 ms'"),
            ("links = [\"Tor\"]", "links = [\"50 ms\"]", "cannot be loaded without Tor"),
            ("http1 = true", "http1 = true\nlinks = [\"Tor\"]", "cannot be loaded through Tor"),
            ("side_by_side = 1", "side_by_side = 2", "one arm at a time goes through Tor"),
            ("seed = 1", "sead = 1", "sead"),
        ] {
            let failure = BrowserExperiment::parse("x", &TEXT.replace(from, to)).unwrap_err();
            assert!(failure.message().contains(why), "{}", failure.message());
        }
    }
}
