//! Hits and false positives of prefetching as BLAST counts them: load by load.
//!
//! [`Recordings::figures`](crate::db::Recordings::figures) sums over all loads, so that a load of
//! 400 resources counts as much as 40 of ten, and counts what a database may contain. BLAST gives
//! the mean over loads, of all their requests: also of documents, redirects and URLs that a
//! database leaves out.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;

use crate::db::Rules;
use crate::page::Page;

/// URLs that loads requested, by group of loads that are compared with each other.
#[derive(Debug, Default)]
pub struct RequestLog {
    /// Numbers of the URLs.
    urls: HashMap<String, u32>,
    /// URLs of each load, each as often as it was requested.
    groups: BTreeMap<String, Vec<Vec<u32>>>,
}

/// Two statistics of the same loads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LoadShares {
    /// Number of loads.
    pub loads: u32,
    /// Number of loads with enough others in their group; only these count below.
    pub known: u32,
    /// Means of the shares of each load: the statistic of BLAST.
    pub mean_of_loads: Option<Shares>,
    /// Shares of the sums over all loads, to which large loads contribute most.
    pub pooled: Option<Shares>,
}

/// Quality of what was expected of one load, or of several.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Shares {
    /// Share of the requests whose URL was expected.
    pub hits: f64,
    /// Share of the expected URLs that were not requested.
    pub false_positives: f64,
}

/// Counts of one load, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Number of requests.
    pub requests: u64,
    /// Number of requests whose URL was expected.
    pub hits: u64,
    /// Number of different URLs expected.
    pub expected: u64,
    /// Number of expected URLs that were not requested.
    pub wrong: u64,
}

impl Outcome {
    #[allow(clippy::cast_precision_loss)] // counts are far below 2^52
    fn shares(self) -> Shares {
        let share = |part: u64, all: u64| if all == 0 { 0.0 } else { part as f64 / all as f64 };
        Shares {
            hits: share(self.hits, self.requests),
            false_positives: share(self.wrong, self.expected),
        }
    }
}

impl LoadShares {
    /// Summarizes loads, `None` for those that nothing was known of.
    pub fn new(outcomes: impl IntoIterator<Item = Option<Outcome>>) -> Self {
        let mut all = Self::default();
        let (mut sum, mut shares) =
            (Outcome::default(), Shares { hits: 0.0, false_positives: 0.0 });
        for outcome in outcomes {
            all.loads += 1;
            let Some(outcome) = outcome else { continue };
            all.known += 1;
            sum.requests += outcome.requests;
            sum.hits += outcome.hits;
            sum.expected += outcome.expected;
            sum.wrong += outcome.wrong;
            let Shares { hits, false_positives } = outcome.shares();
            shares.hits += hits;
            shares.false_positives += false_positives;
        }
        if all.known > 0 {
            let known = f64::from(all.known);
            let Shares { hits, false_positives } = shares;
            let mean = Shares { hits: hits / known, false_positives: false_positives / known };
            (all.mean_of_loads, all.pooled) = (Some(mean), Some(sum.shares()));
        }
        all
    }
}

impl RequestLog {
    /// Adds a load to a group, such as that of its page.
    pub fn add(&mut self, group: &str, page: &Page) {
        let urls = page.resources().iter().map(|resource| resource.url.as_str());
        let load = urls.map(|url| number(&mut self.urls, url)).collect();
        self.groups.entry(group.to_owned()).or_default().push(load);
    }

    /// Compares each load with what the rules' share of the others in its group requested.
    #[must_use]
    pub fn leave_one_out(&self, rules: &Rules) -> LoadShares {
        LoadShares::new(self.groups.values().flat_map(|loads| {
            let counts = counts(loads);
            loads.iter().map(move |load| compare(load, &counts, loads.len() - 1, rules))
        }))
    }
}

fn number(urls: &mut HashMap<String, u32>, url: &str) -> u32 {
    if let Some(number) = urls.get(url) {
        return *number;
    }
    let number = u32::try_from(urls.len()).unwrap_or(u32::MAX);
    urls.insert(url.to_owned(), number);
    number
}

/// Returns the number of loads that requested each URL.
fn counts(loads: &[Vec<u32>]) -> HashMap<u32, u32> {
    let mut counts = HashMap::new();
    for url in loads.iter().flat_map(|load| load.iter().collect::<HashSet<_>>()) {
        *counts.entry(*url).or_default() += 1;
    }
    counts
}

/// Compares a load with the `others`; `counts` has the load as well.
fn compare(
    load: &[u32],
    counts: &HashMap<u32, u32>,
    others: usize,
    rules: &Rules,
) -> Option<Outcome> {
    let least = rules.recordings_min.max(1);
    let others = u32::try_from(others).ok().filter(|&others| others >= least)?;
    let requested: HashSet<u32> = load.iter().copied().collect();
    let expected: HashSet<u32> = counts
        .iter()
        .map(|(url, count)| (*url, count - u32::from(requested.contains(url))))
        .filter(|(_, count)| rules.are_enough(*count, others))
        .map(|(url, _)| url)
        .collect();
    Some(Outcome {
        requests: load.len() as u64,
        hits: load.iter().filter(|&url| expected.contains(url)).count() as u64,
        expected: expected.len() as u64,
        wrong: expected.difference(&requested).count() as u64,
    })
}
