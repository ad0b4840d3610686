//! Evaluates databases: compares each load with what was learned from other loads.

use std::time::Duration;

use headstart_proto::UnixSeconds;
use serde::Serialize;

use super::learn::{Counts, Learned, Rules, Spoken};
use super::recordings::Recordings;
use super::visit::{Fit, Visit};

/// Selection of the loads that a load is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Horizon {
    /// Loads at least this much older. If the newest of them is twice as old or more, the load does
    /// not count: the result would belong to another horizon.
    After(Duration),
    /// All other loads of the page, regardless of their dates.
    LeaveOneOut,
}

/// Usual horizons: a day, a week, four weeks.
pub const HORIZONS: [Duration; 3] = [
    Duration::from_secs(86_400),
    Duration::from_secs(7 * 86_400),
    Duration::from_secs(28 * 86_400),
];

/// Quality that databases would have had over many loads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Number of loads compared.
    pub loads: u64,
    /// Number of loads whose page the database of that time had.
    pub known: u64,
    /// Mean age of the newest recording learned from; `None` without dates.
    pub mean_age: Option<Duration>,
    /// Redirects, in loads of known pages: `wrong` ones lead elsewhere, or nowhere.
    pub redirect: Tally,
    /// Servers, in loads of known pages.
    pub server: Tally,
    /// Connections to servers, in loads of known pages.
    pub connections: Tally,
    /// Hosts that speak HTTP/2, in all loads.
    pub http2: Tally,
    /// URLs, in loads of known pages.
    pub prefetch: Tally,
    /// Bytes of these URLs; for `wrong` ones, their size when last seen.
    pub prefetch_bytes: Tally,
    ages: Duration,
}

/// Counts of expectations and outcomes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Expected and needed.
    pub used: u64,
    /// Expected but not needed.
    pub wrong: u64,
    /// Needed but not expected.
    pub missed: u64,
}

impl Tally {
    /// Returns the share of what was needed that was expected.
    #[must_use]
    pub fn hits(&self) -> Option<f64> {
        share(self.used, self.used + self.missed)
    }

    /// Returns the share of what was expected that was not needed: false positives.
    #[must_use]
    pub fn false_positives(&self) -> Option<f64> {
        share(self.wrong, self.used + self.wrong)
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.used += other.used;
        self.wrong += other.wrong;
        self.missed += other.missed;
    }

    pub(super) fn add(&mut self, expected: u64, came: u64) {
        let used = expected.min(came);
        self.used += used;
        self.wrong += expected - used;
        self.missed += came - used;
    }
}

#[allow(clippy::cast_precision_loss)] // counts are far below 2^52
fn share(part: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| part as f64 / all as f64)
}

impl Recordings {
    /// Compares each load with what could be known at that time.
    #[must_use]
    pub fn figures(&self, rules: &Rules, horizon: Horizon) -> Figures {
        let mut figures = Figures::default();
        for visits in self.pages.values() {
            match horizon {
                Horizon::After(age) => self.page_after(visits, rules, age, &mut figures),
                Horizon::LeaveOneOut => self.page_without(visits, rules, &mut figures),
            }
        }
        match horizon {
            Horizon::After(age) => self.hosts_after(rules, age, &mut figures),
            Horizon::LeaveOneOut => self.hosts_without(rules, &mut figures),
        }
        figures.mean_age = u32::try_from(figures.loads)
            .ok()
            .filter(|loads| *loads > 0 && matches!(horizon, Horizon::After(_)))
            .map(|loads| figures.ages / loads);
        figures
    }

    /// Processes loads in the order of their dates, so that the window of loads to learn from only
    /// moves forward.
    fn page_after(&self, visits: &[Visit], rules: &Rules, age: Duration, figures: &mut Figures) {
        let mut counts = Counts::default();
        let (mut from, mut to) = (0, 0);
        for visit in visits {
            let Some(at) = visit.at else { continue };
            while let Some(next) = visits.get(to).filter(|next| is_older(next, at, age)) {
                counts.add(next);
                to += 1;
            }
            while to - from > rules.newest {
                counts.remove(&visits[from]);
                from += 1;
            }
            let newest = to.checked_sub(1).and_then(|last| visits.get(last)?.at);
            let Some(newest) = newest.filter(|newest| at.since(*newest) < 2 * age) else {
                continue;
            };
            figures.ages += at.since(newest);
            self.compare(&counts, visit, rules, figures);
        }
    }

    fn page_without(&self, visits: &[Visit], rules: &Rules, figures: &mut Figures) {
        if visits.len() < 2 {
            return;
        }
        let mut counts = Counts::from_visits(visits);
        for visit in visits {
            counts.remove(visit);
            self.compare(&counts, visit, rules, figures);
            counts.add(visit);
        }
    }

    fn compare(&self, counts: &Counts, visit: &Visit, rules: &Rules, figures: &mut Figures) {
        figures.loads += 1;
        if counts.visits < rules.recordings_min.max(1) {
            return;
        }
        figures.known += 1;
        let learned = counts.learned(rules, |target| self.path_of(target));
        self.redirects(&learned, visit, &mut figures.redirect);
        servers(&learned, visit, figures);
        prefetch(&learned, visit, figures);
    }

    fn redirects(&self, learned: &Learned, visit: &Visit, tally: &mut Tally) {
        for (from, chain) in &visit.redirects {
            let expected = learned.redirects.get(from).map(|chain| self.chain_end(*chain));
            match expected {
                None => tally.missed += 1,
                Some(to) if to == self.chain_end(*chain) => tally.used += 1,
                Some(_) => {
                    tally.wrong += 1;
                    tally.missed += 1;
                }
            }
        }
        let wrong = visit.fetched.iter().map(|fetched| fetched.target).filter(|url| {
            learned.redirects.contains_key(url)
                && visit.redirects.iter().all(|(from, _)| from != url)
        });
        tally.wrong += wrong.count() as u64;
    }

    /// Returns the URL that a chain of redirects leads to.
    fn chain_end(&self, chain: u32) -> Option<u32> {
        Some(self.known.chains.name(chain)?.hops.last()?.0)
    }

    fn hosts_after(&self, rules: &Rules, age: Duration, figures: &mut Figures) {
        let mut visits: Vec<&Visit> =
            self.pages.values().flatten().filter(|visit| visit.at.is_some()).collect();
        visits.sort_by_key(|visit| visit.at);
        let mut spoken = Spoken::default();
        let mut to = 0;
        for visit in &visits {
            let Some(at) = visit.at else { continue };
            while let Some(next) = visits.get(to).filter(|next| is_older(next, at, age)) {
                spoken.add(next);
                to += 1;
            }
            let newest = to.checked_sub(1).and_then(|last| visits.get(last)?.at);
            if newest.is_some_and(|newest| at.since(newest) < 2 * age) {
                hosts(&spoken, visit, rules, &mut figures.http2);
            }
        }
    }

    fn hosts_without(&self, rules: &Rules, figures: &mut Figures) {
        let mut spoken = Spoken::default();
        let visits = self.pages.values().filter(|visits| visits.len() > 1).flatten();
        visits.clone().for_each(|visit| spoken.add(visit));
        for visit in visits {
            spoken.remove(visit);
            hosts(&spoken, visit, rules, &mut figures.http2);
            spoken.add(visit);
        }
    }
}

fn is_older(visit: &Visit, than: UnixSeconds, by: Duration) -> bool {
    visit.at.is_none_or(|at| at + by <= than)
}

fn servers(learned: &Learned, visit: &Visit, figures: &mut Figures) {
    for (server, connections) in &visit.servers {
        let expected = learned.servers.get(server).copied();
        figures.server.add(u64::from(expected.is_some()), 1);
        figures.connections.add(expected.unwrap_or(0).into(), (*connections).into());
    }
    for (server, connections) in &learned.servers {
        if visit.servers.iter().all(|(other, _)| other != server) {
            figures.server.add(1, 0);
            figures.connections.add((*connections).into(), 0);
        }
    }
}

/// Counts the prefetch database. A resource that must never be prefetched counts as missed all the
/// same: the page waits for it.
fn prefetch(learned: &Learned, visit: &Visit, figures: &mut Figures) {
    let mut came = std::collections::HashSet::new();
    for fetched in visit.fetched.iter().filter(|fetched| fetched.fit != Fit::Redirect) {
        came.insert(fetched.target);
        let is_expected = learned.prefetch.contains_key(&fetched.target);
        figures.prefetch.add(u64::from(is_expected), 1);
        let bytes = fetched.bytes.into();
        figures.prefetch_bytes.add(if is_expected { bytes } else { 0 }, bytes);
    }
    for (_, wanted) in learned.prefetch.iter().filter(|(url, _)| !came.contains(url)) {
        figures.prefetch.add(1, 0);
        figures.prefetch_bytes.add(wanted.bytes.into(), 0);
    }
}

fn hosts(spoken: &Spoken, visit: &Visit, rules: &Rules, tally: &mut Tally) {
    for (host, speaks) in &visit.protocols {
        let expected = u64::from(spoken.speaks(*host, rules).is_some());
        tally.add(expected, speaks.is_some().into());
    }
}
