//! Choice of what databases and Early Hints say of a page: only what makes it faster, in
//! simulated loads that it was not learned from.
//!
//! Each [`Policy`] is tried: for each load in turn, databases are learned from the others, and what
//! the policy keeps of them is applied to it. A policy wins if it saves more, with confidence, than
//! the simulator is known to promise in vain, and makes no other metric worse by more than
//! [`TOLERANCE`]. Of those that win the one that surely saves most is kept; else nothing.

use std::collections::BTreeMap;
use std::fmt;

use headstart_proto::UnixSeconds;
use serde::Serialize;

use crate::db::{Database, Facts, PageEntry, Parts, Prefetch, Recordings, Rules};
use crate::har::{self, Kind};
use crate::page::Page;
use crate::sim::Load;
use crate::sim::browser::in_browser;
use crate::sim::tcp::{self, Settings, Techniques};
use crate::statistics::mean;

/// Loads that the search needs: one to judge by, and as many as the rules of databases ask for.
pub const LOADS_MIN: usize = 4;

/// Share by which the load event and the largest contentful paint may be later on average.
pub const TOLERANCE: f64 = 0.01;

/// Seed of the simulator. Without loss it draws nothing that matters.
const SEED: u64 = 1;

/// Parts of what databases know of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Policy {
    /// Follow known redirects.
    pub redirects: bool,
    /// Open connections early.
    pub servers: bool,
    /// Resources to name in `Link` fields.
    pub prefetch: Preloads,
}

/// Resources to name in `Link` fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Preloads {
    /// None.
    None,
    /// Styles, scripts and fonts: what others wait for.
    Urgent,
    /// All that the database has.
    All,
}

impl Policy {
    /// All policies that say something.
    fn all() -> impl Iterator<Item = Self> {
        let preloads = [Preloads::None, Preloads::Urgent, Preloads::All];
        (0..12_usize)
            .map(move |number| Self {
                redirects: number & 1 != 0,
                servers: number & 2 != 0,
                prefetch: preloads.get(number / 4).copied().unwrap_or(Preloads::None),
            })
            .filter(|policy| *policy != Self::NONE)
    }

    /// Says nothing.
    pub const NONE: Self = Self { redirects: false, servers: false, prefetch: Preloads::None };

    /// Returns an entry with what the policy keeps of it.
    #[must_use]
    pub fn keep(self, entry: &PageEntry) -> PageEntry {
        let mut entry = entry.clone();
        if !self.redirects {
            entry.redirects.clear();
        }
        if !self.servers {
            entry.servers.clear();
        }
        entry.prefetch.retain(|one: &Prefetch| match self.prefetch {
            Preloads::None => false,
            Preloads::Urgent => matches!(one.kind, Kind::Style | Kind::Script | Kind::Font),
            Preloads::All => true,
        });
        entry
    }

    /// Returns the share of the page load time by which simulated savings exceed a browser's: 3
    /// points on average, 10 where connections are opened ahead (docs/pageload.md, "In a browser").
    const fn promised_in_vain(self) -> f64 {
        if self.servers { 0.10 } else { 0.03 }
    }

    fn techniques(self) -> Techniques {
        Techniques {
            redirect_database: self.redirects,
            server_database: self.servers,
            prefetch_database: self.prefetch != Preloads::None,
            ..Techniques::default()
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefetch = match self.prefetch {
            Preloads::None => None,
            Preloads::Urgent => Some("preload styles, scripts, fonts"),
            Preloads::All => Some("preload all"),
        };
        let parts = [
            self.redirects.then_some("redirects"),
            self.servers.then_some("connections"),
            prefetch,
        ];
        let parts: Vec<&str> = parts.into_iter().flatten().collect();
        f.write_str(if parts.is_empty() { "nothing" } else { "" })?;
        f.write_str(&parts.join(", "))
    }
}

/// A load of a page, recorded with nothing.
#[derive(Clone, Copy, Debug)]
pub struct Recorded<'a> {
    /// The page.
    pub page: &'a Page,
    /// The browser's facts about each of its resources.
    pub resources: &'a [har::Facts],
    /// Facts that databases may learn of its requests.
    pub facts: &'a Facts,
}

/// A policy, and its effect on loads that it was not learned from.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tried {
    /// The policy.
    pub policy: Policy,
    /// Share of the page load time that it saves of each load.
    pub saved: Vec<f64>,
    /// The least of their mean, at 99.5 % confidence, less what the simulator promises in vain.
    pub surely: f64,
    /// Share that it saves of the load event and of the largest contentful paint, means.
    pub others: [Option<f64>; 2],
    /// True if it wins.
    pub wins: bool,
}

impl Tried {
    fn new(policy: Policy, saved: Vec<f64>, others: [Option<f64>; 2]) -> Option<Self> {
        let (mean, half) = bound(&saved)?;
        let surely = mean - half - policy.promised_in_vain();
        let harms = others.into_iter().flatten().any(|saved| saved < -TOLERANCE);
        Some(Self { policy, surely, others, wins: surely > 0.0 && !harms, saved })
    }

    /// Returns the least that one further simulated load saves, at 99.5 % confidence; negative if
    /// it may be slower.
    #[must_use]
    pub fn surely_of_one(&self) -> f64 {
        let count = self.saved.len() as f64;
        bound(&self.saved).map_or(0.0, |(mean, half)| mean - half * (count + 1.0).sqrt())
    }
}

/// Returns the mean, and how far below it that of all loads may be at 99.5 % confidence: by
/// Student's t, as there are few. None of fewer than two.
fn bound(saved: &[f64]) -> Option<(f64, f64)> {
    /// The 99.5 % quantile (NIST/SEMATECH e-Handbook, 1.3.6.7.2); beyond the last degree of freedom
    /// it is too wide. So confident because eleven policies are tried.
    const QUANTILES: [f64; 12] =
        [63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169, 3.106, 3.055];
    let freedom = saved.len().checked_sub(1)?;
    let quantile = QUANTILES.get(freedom.min(QUANTILES.len()).checked_sub(1)?)?;
    let average = mean(saved.iter().copied())?;
    let squares: f64 = saved.iter().map(|one| (one - average).powi(2)).sum();
    Some((average, quantile * (squares / freedom as f64 / saved.len() as f64).sqrt()))
}

/// Tries all policies on loads of one page over the link of `settings`, over which they were
/// recorded; of databases there are these `parts`. The best that wins comes first, then the others
/// by what they surely save; none if there are fewer than [`LOADS_MIN`] loads, or their page cannot
/// be in a database.
#[must_use]
pub fn tried(
    loads: &[Recorded<'_>],
    settings: &Settings,
    rules: &Rules,
    parts: Parts,
) -> Vec<Tried> {
    let folds = folds(loads, settings, rules, parts).unwrap_or_default();
    let mut all: Vec<Tried> = Policy::all()
        .filter(|policy| says_more(*policy, &folds))
        .filter_map(|policy| {
            let effects: Vec<[Option<f64>; 3]> = folds
                .iter()
                .map(|fold| effect(&fold.load, &fold.entry, settings, policy))
                .collect();
            let saved: Option<Vec<f64>> = effects.iter().map(|of| of[0]).collect();
            let others = [1, 2].map(|at| mean(effects.iter().filter_map(|of| of[at])));
            Tried::new(policy, saved?, others)
        })
        .collect();
    all.sort_by(|one, other| {
        (other.wins, other.surely)
            .partial_cmp(&(one.wins, one.surely))
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    all
}

/// Returns true if a policy says something, in some fold, that none before it says.
fn says_more(policy: Policy, folds: &[Fold]) -> bool {
    let mut less = Policy::all().take_while(|other| *other != policy).chain([Policy::NONE]);
    !less.any(|less| folds.iter().all(|fold| fold.says_same(policy, less)))
}

/// Returns the policy to keep: [`Policy::NONE`] unless one wins.
#[must_use]
pub fn kept(tried: &[Tried]) -> Policy {
    tried.first().filter(|first| first.wins).map_or(Policy::NONE, |first| first.policy)
}

/// Returns the shares of the page load time, of the load event and of the largest contentful paint
/// that a policy saves of a load, as its browser loads it.
#[must_use]
pub fn effect(
    load: &Page,
    entry: &PageEntry,
    settings: &Settings,
    policy: Policy,
) -> [Option<f64>; 3] {
    let database =
        Database::new(UnixSeconds(0), Parts::ALL, vec![policy.keep(entry)], BTreeMap::new());
    let Ok(database) = database else { return [None; 3] };
    let known = database.apply(load).0.with_urgencies_of(load);
    let [none, with] = [Policy::NONE, policy].map(|policy| {
        let settings = Settings { techniques: policy.techniques(), ..settings.clone() };
        tcp::load(&known, &settings, SEED)
    });
    saved(&none, &with)
}

fn saved(none: &Load, with: &Load) -> [Option<f64>; 3] {
    let [none, with] =
        [none, with].map(|load| [Some(load.page_load_time()), load.on_load, load.largest_paint]);
    std::array::from_fn(|at| {
        let (none, with) = (none[at]?.as_secs_f64(), with[at]?.as_secs_f64());
        (none > 0.0).then(|| 1.0 - with / none)
    })
}

/// One load as its browser loads it, and what the others tell of its page.
struct Fold {
    load: Page,
    entry: PageEntry,
}

impl Fold {
    fn says_same(&self, one: Policy, other: Policy) -> bool {
        one.keep(&self.entry) == other.keep(&self.entry)
    }
}

/// Holds each load out in turn; `None` if there are too few, or their page cannot be in a database.
fn folds(
    loads: &[Recorded<'_>],
    settings: &Settings,
    rules: &Rules,
    parts: Parts,
) -> Option<Vec<Fold>> {
    if loads.len() < LOADS_MIN {
        return None;
    }
    // One load fewer than there are has to be enough.
    let fewer = u32::try_from(loads.len() - 1).unwrap_or(u32::MAX);
    let rules = &Rules { recordings_min: rules.recordings_min.min(fewer), ..*rules };
    let pages = as_loaded(loads, settings).into_iter().enumerate();
    let folds = pages.map(|(out, load): (usize, Page)| {
        let mut others = loads.to_vec();
        others.remove(out);
        Some(Fold { load, entry: learned(&others, rules, parts)? })
    });
    folds.collect()
}

/// Returns the loads as their browser loads them.
#[must_use]
pub fn as_loaded(loads: &[Recorded<'_>], settings: &Settings) -> Vec<Page> {
    let all: Vec<_> = loads.iter().map(|one| (one.page.clone(), one.resources)).collect();
    in_browser(&all, settings)
}

/// Returns what databases of these parts learn of loads of one page.
#[must_use]
pub fn learned(loads: &[Recorded<'_>], rules: &Rules, parts: Parts) -> Option<PageEntry> {
    let mut recordings = Recordings::new();
    for load in loads {
        recordings.add(load.page, None, load.facts).ok()?;
    }
    let built = recordings.build(rules, parts, UnixSeconds(0)).ok()?;
    built.database.pages().first().cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_win_only_with_confidence_and_without_harm() {
        let policy = Policy { redirects: true, ..Policy::NONE };
        let none = [None; 2];
        for (saved, others, wins) in [
            ([0.10, 0.12, 0.11, 0.13], none, true),
            // By chance.
            ([0.01, 0.12, 0.03, 0.20], none, false),
            ([-0.10, -0.12, -0.11, -0.13], none, false),
            ([0.10, 0.12, 0.11, 0.13], [Some(-0.009), None], true),
            ([0.10, 0.12, 0.11, 0.13], [Some(0.2), Some(-0.011)], false),
            // No more than the simulator promises in vain.
            ([0.030, 0.031, 0.030, 0.031], none, false),
        ] {
            let tried = Tried::new(policy, saved.into(), others).unwrap();
            assert_eq!(tried.wins, wins, "{tried:?}");
        }
        assert!(Tried::new(policy, vec![0.5], none).is_none());
        let ahead = Policy { servers: true, ..policy };
        assert!(!Tried::new(ahead, vec![0.10, 0.12, 0.11, 0.13], none).unwrap().wins);
        // One further load varies more than the mean of all.
        let tried = Tried::new(policy, vec![0.10, 0.12, 0.11, 0.13], none).unwrap();
        assert!(tried.surely_of_one() < tried.surely && tried.surely < 0.115);
    }

    #[test]
    fn policies_are_told_in_words() {
        let all: Vec<String> = Policy::all().map(|policy| policy.to_string()).collect();
        assert_eq!(all.len(), 11);
        assert_eq!(all[2], "redirects, connections");
        assert_eq!(all[10], "redirects, connections, preload all");
        assert_eq!(Policy::NONE.to_string(), "nothing");
    }
}
