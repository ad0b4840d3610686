//! Summarises many pages: how many gain how much, by their size, and what load times correlate
//! with.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{PagePlan, Point, Saving, Shares, Sources, Sweep, by_name};
use crate::sim::profile::Expected;
use crate::sim::tcp::Technique;
use crate::statistics::Correlation;
use crate::statistics::mean;

/// Number of classes of pages by size, each with the same number of pages; two for fewer than
/// [`QUARTERS_FROM`] pages.
const CLASSES: usize = 4;
const QUARTERS_FROM: usize = 8;

/// Maximum hosts kept over all pages, those that save most.
const HOSTS: usize = 50;

/// Summary of all pages.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Overall {
    /// Number of pages.
    pub pages: usize,
    /// Mean page load time as recorded, over the pages that have one.
    pub recorded_ms: Option<f64>,
    /// Mean page load time without any technique.
    pub none_ms: f64,
    /// Shares that edges for the operator's hosts save of the mean times; `None` by the published
    /// rules.
    pub edges: Option<Shares>,
    /// Number of pages whose tree is a guess, and that are in no order of hosts.
    pub guesses: usize,
    /// Sources of all parents.
    pub parents: Sources,
    /// Each technique alone.
    pub alone: Vec<Gain>,
    /// Each technique of the order with all before it; the last has all.
    pub cumulative: Vec<Gain>,
    /// Gains of all techniques by page size, smallest pages first.
    pub by_size: Vec<SizeClass>,
    /// Correlations of the page load time.
    pub correlations: Correlations,
    /// Means over round-trip times in ms.
    pub by_rtt: Sweep,
    /// Means over bandwidths in Mbit/s.
    pub by_rate: Sweep,
    /// Hosts that save most over all pages.
    pub hosts: Vec<HostTotal>,
}

/// Gain of pages by a technique.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Gain {
    /// The technique that gains.
    #[serde(serialize_with = "by_name")]
    pub technique: Technique,
    /// Mean page load time.
    pub page_load_ms: f64,
    /// Share by which the mean is lower.
    pub saved: f64,
    /// Mean time of a resource, from when it was known to be needed, and the share by which it is
    /// lower (BLAST, figures 6 c and d).
    pub resource_ms: f64,
    #[allow(missing_docs)] // as above
    pub resource_saved: f64,
    /// Mean of the pages' shares: each page counts the same, however long it takes.
    pub mean_saved: f64,
    /// Share of the pages that gain a quarter or more.
    pub pages_25: f64,
    /// Share of the pages that gain a half or more.
    pub pages_50: f64,
    /// Share of the pages that are slower by more than one percent.
    pub pages_slower: f64,
    /// Shares by which the means are lower if only the operator's hosts take part.
    pub own: Shares,
}

/// Pages of similar size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SizeClass {
    /// Bytes of all responses, of the smallest page and the largest.
    pub bytes: (u64, u64),
    /// Number of pages.
    pub pages: usize,
    /// Mean page load time without any technique.
    pub none_ms: f64,
    /// Mean page load time with all techniques of the order.
    pub all_ms: f64,
    /// Share by which this is lower.
    pub saved: f64,
    /// Share of the pages that gain a quarter or more by all.
    pub pages_25: f64,
    /// Share of the pages that gain a half or more by all.
    pub pages_50: f64,
}

/// Correlations of page load times with properties of pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Correlations {
    /// Correlations of simulated times, without any technique.
    pub simulated: Correlated,
    /// Correlations of recorded times, where there are some.
    pub recorded: Correlated,
    /// Correlations of the share that all techniques of the order save.
    pub gain: Correlated,
    /// Correlation of simulated and recorded times, page by page.
    pub simulated_on_recorded: Option<Correlation>,
}

/// Correlations with each property; `None` for fewer than three pages, or where all are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Correlated {
    /// Minimum round trips of the load.
    pub min_rtt: Option<Correlation>,
    /// Number of resources.
    pub resources: Option<Correlation>,
    /// Bytes of all responses.
    pub bytes: Option<Correlation>,
    /// Resources on the longest path from the document.
    pub height: Option<Correlation>,
}

/// A host of several pages.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HostTotal {
    /// Name and port.
    pub host: String,
    /// Number of pages where it is one of those that save most.
    pub pages: usize,
    /// Sum over these pages of what an edge for it alone saves with TurboTLS, in ms.
    pub turbotls_ms: f64,
    /// Sum of the savings of TurboTLS with early data, in ms.
    pub early_ms: f64,
}

impl Overall {
    /// Summarises the plans of pages, which have the same questions.
    pub fn from_plans<'a>(plans: impl IntoIterator<Item = &'a PagePlan>) -> Self {
        let plans: Vec<&PagePlan> = plans.into_iter().collect();
        Self {
            pages: plans.len(),
            recorded_ms: mean(plans.iter().filter_map(|plan| plan.recorded_ms)),
            none_ms: mean(plans.iter().map(|plan| plan.none.page_load_ms)).unwrap_or_default(),
            edges: plans
                .iter()
                .any(|plan| plan.hosts.edges.is_some())
                .then(|| mean_shares(plans.iter().map(|plan| (plan.none, plan.hosts.saved)))),
            guesses: plans.iter().filter(|plan| plan.parents.are_a_guess()).count(),
            parents: Sources {
                count: plans.iter().map(|plan| plan.parents.count).sum(),
                guessed: plans.iter().map(|plan| plan.parents.guessed).sum(),
            },
            alone: gains(&plans, |plan| &plan.alone),
            cumulative: gains(&plans, |plan| &plan.cumulative),
            by_size: by_size(&plans),
            correlations: correlations(&plans),
            by_rtt: sweep(&plans, |plan| &plan.by_rtt),
            by_rate: sweep(&plans, |plan| &plan.by_rate),
            hosts: hosts(&plans),
        }
    }
}

/// Returns the share of true values; zero if there are none.
fn share(of: impl Iterator<Item = bool>) -> f64 {
    mean(of.map(|holds| f64::from(u8::from(holds)))).unwrap_or_default()
}

/// Returns the shares by which the means of several times are lower, given those of each.
fn mean_shares(of: impl Iterator<Item = (Expected, Shares)> + Clone) -> Shares {
    let page_load = of.clone().map(|(none, shares)| Some((none.page_load_ms, shares.page_load)));
    let paint = of.clone().map(|(none, shares)| none.largest_paint_ms.zip(shares.largest_paint));
    let on_load = of.map(|(none, shares)| none.on_load_ms.zip(shares.on_load));
    Shares {
        page_load: mean_share(page_load).unwrap_or_default(),
        largest_paint: mean_share(paint),
        on_load: mean_share(on_load),
    }
}

fn mean_share(of: impl Iterator<Item = Option<(f64, f64)>>) -> Option<f64> {
    let (mut before, mut less) = (0.0, 0.0);
    for (time, share) in of.flatten() {
        before += time;
        less += time * share;
    }
    (before > 0.0).then(|| less / before)
}

fn gains(plans: &[&PagePlan], savings: fn(&PagePlan) -> &[Saving]) -> Vec<Gain> {
    let count = plans.first().map_or(0, |plan| savings(plan).len());
    (0..count).filter_map(|at| gain(plans, savings, at)).collect()
}

fn gain(plans: &[&PagePlan], savings: fn(&PagePlan) -> &[Saving], at: usize) -> Option<Gain> {
    let all: Vec<&Saving> = plans.iter().filter_map(|plan| savings(plan).get(at)).collect();
    let page_load_ms = mean(all.iter().map(|saving| saving.expected.page_load_ms))?;
    let none_ms = mean(plans.iter().map(|plan| plan.none.page_load_ms))?;
    let resource_ms = mean(all.iter().map(|saving| saving.expected.resource_ms))?;
    let none_resource_ms = mean(plans.iter().map(|plan| plan.none.resource_ms))?;
    Some(Gain {
        technique: all.first()?.technique,
        page_load_ms,
        saved: super::saved(none_ms, page_load_ms),
        resource_ms,
        resource_saved: super::saved(none_resource_ms, resource_ms),
        mean_saved: mean(all.iter().map(|saving| saving.saved))?,
        pages_25: share(all.iter().map(|saving| saving.saved >= 0.25)),
        pages_50: share(all.iter().map(|saving| saving.saved >= 0.5)),
        pages_slower: share(all.iter().map(|saving| saving.saved < -0.01)),
        own: mean_shares(plans.iter().zip(&all).map(|(plan, saving)| (plan.none, saving.own))),
    })
}

fn by_size(plans: &[&PagePlan]) -> Vec<SizeClass> {
    let mut plans = plans.to_vec();
    plans.sort_by_key(|plan| plan.shape.response_bytes);
    let count = if plans.len() < QUARTERS_FROM { CLASSES / 2 } else { CLASSES };
    let bounds = (0..=count).map(|at| plans.len() * at / count).collect::<Vec<_>>();
    bounds.windows(2).filter_map(|ends| class(plans.get(ends[0]..ends[1])?)).collect()
}

fn class(plans: &[&PagePlan]) -> Option<SizeClass> {
    let (first, last) = (plans.first()?, plans.last()?);
    let none_ms = mean(plans.iter().map(|plan| plan.none.page_load_ms))?;
    let all_ms = mean(plans.iter().map(|plan| plan.all().page_load_ms))?;
    Some(SizeClass {
        bytes: (first.shape.response_bytes, last.shape.response_bytes),
        pages: plans.len(),
        none_ms,
        all_ms,
        saved: super::saved(none_ms, all_ms),
        pages_25: share(plans.iter().map(|plan| plan.saved() >= 0.25)),
        pages_50: share(plans.iter().map(|plan| plan.saved() >= 0.5)),
    })
}

fn correlations(plans: &[&PagePlan]) -> Correlations {
    Correlations {
        simulated: correlated(plans, |plan| Some(plan.none.page_load_ms)),
        recorded: correlated(plans, |plan| plan.recorded_ms),
        gain: correlated(plans, |plan| Some(plan.saved())),
        simulated_on_recorded: correlation(
            plans,
            |plan| plan.recorded_ms,
            |plan| plan.none.page_load_ms,
        ),
    }
}

fn correlated(plans: &[&PagePlan], time: fn(&PagePlan) -> Option<f64>) -> Correlated {
    Correlated {
        min_rtt: correlation(plans, time, |plan| f64::from(plan.shape.min_rtt)),
        resources: correlation(plans, time, |plan| plan.shape.resources as f64),
        bytes: correlation(plans, time, |plan| plan.shape.response_bytes as f64),
        height: correlation(plans, time, |plan| f64::from(plan.shape.height)),
    }
}

fn correlation(
    plans: &[&PagePlan],
    time: fn(&PagePlan) -> Option<f64>,
    on: fn(&PagePlan) -> f64,
) -> Option<Correlation> {
    let pairs = plans.iter().filter_map(|plan| Some((on(plan), time(plan)?)));
    Correlation::from_pairs(&pairs.collect::<Vec<_>>())
}

/// Returns a sweep of means, point by point.
fn sweep(plans: &[&PagePlan], read: fn(&PagePlan) -> &Sweep) -> Sweep {
    let Some(first) = plans.first().map(|plan| read(plan)) else { return Sweep::default() };
    let points = first
        .points
        .iter()
        .enumerate()
        .map(|(place, point): (usize, &Point)| {
            let means = (0..first.arms.len()).map(|arm: usize| {
                let times = plans.iter().filter_map(|plan| {
                    read(plan).points.get(place)?.page_load_ms.get(arm).copied()
                });
                mean(times).unwrap_or_default()
            });
            Point::new(point.at, means.collect())
        })
        .collect();
    Sweep { arms: first.arms.clone(), points }
}

fn hosts(plans: &[&PagePlan]) -> Vec<HostTotal> {
    let mut totals: BTreeMap<&str, HostTotal> = BTreeMap::new();
    for host in plans.iter().flat_map(|plan| &plan.hosts.alone) {
        let total = totals.entry(&host.host).or_default();
        total.pages += 1;
        total.turbotls_ms += host.turbotls_ms;
        total.early_ms += host.early_ms;
    }
    let mut totals: Vec<HostTotal> = totals
        .into_iter()
        .map(|(host, total): (&str, HostTotal)| HostTotal { host: host.to_owned(), ..total })
        .collect();
    totals.sort_by(|one, other| other.early_ms.total_cmp(&one.early_ms));
    totals.truncate(HOSTS);
    totals
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Host, Hosts};
    use crate::sim::profile::Expected;
    use crate::tree::Shape;

    fn expected(page_load_ms: f64) -> Expected {
        Expected { page_load_ms, resource_ms: 1.0, ..Expected::default() }
    }

    fn saving(technique: Technique, ms: f64) -> Saving {
        let saved = 1.0 - ms / 1000.0;
        let own = Shares { page_load: saved / 2.0, ..Shares::default() };
        Saving { technique, expected: expected(ms), saved, own }
    }

    fn host(host: &str, early_ms: f64) -> Host {
        Host {
            host: host.into(),
            resources: 1,
            turbotls_ms: 1.0,
            fop_ms: 1.0,
            early_ms,
            early_resource_ms: 0.0,
        }
    }

    /// A page of so many bytes and round trips that takes 1000 ms, and `all` with all.
    fn plan(response_bytes: u64, min_rtt: u32, all: f64) -> PagePlan {
        let shape = Shape { resources: 10, response_bytes, min_rtt, ..Shape::default() };
        let point = Point::new(50.0, vec![1000.0, all]);
        let alone = vec![host("a.test:443", 10.0), host("b.test:443", all / 10.0)];
        PagePlan {
            shape,
            recorded_ms: None,
            none: expected(1000.0),
            alone: vec![saving(Technique::TurboTls, 900.0)],
            cumulative: vec![saving(Technique::TurboTls, 900.0), saving(Technique::ZeroRtt, all)],
            by_rtt: Sweep { arms: vec!["none".into(), "all".into()], points: vec![point] },
            by_rate: Sweep::default(),
            recorded_path_ms: None,
            simulated_path_ms: None,
            without: vec![],
            hosts: Hosts { alone, ..Hosts::default() },
            parents: Sources::default(),
        }
    }

    #[test]
    fn shares_of_pages_that_gain_enough() {
        let plans = [(1, 800.0), (2, 750.0), (3, 500.0), (4, 1020.0)];
        let plans = plans.map(|(bytes, all)| plan(bytes, 3, all));
        let overall = Overall::from_plans(&plans);
        let all = overall.cumulative[1];
        assert_eq!((all.technique, all.page_load_ms), (Technique::ZeroRtt, 767.5));
        assert_eq!((all.pages_25, all.pages_50, all.pages_slower), (0.5, 0.25, 0.25));
        assert!((all.saved - 0.2325).abs() < 1e-12 && (all.mean_saved - 0.2325).abs() < 1e-12);
        assert_eq!((overall.alone[0].pages_25, overall.alone[0].page_load_ms), (0.0, 900.0));
        // Two halves: of the smaller pages one gains a quarter, of the larger one gains a half.
        let classes: Vec<_> =
            overall.by_size.iter().map(|of| (of.bytes, of.pages_25, of.pages_50)).collect();
        assert_eq!(classes, [((1, 2), 0.5, 0.0), ((3, 4), 0.5, 0.5)]);
        let saved = overall.by_size.iter().map(|class| class.saved);
        assert!(saved.zip([0.225, 0.24]).all(|(found, saved)| (found - saved).abs() < 1e-12));
        assert_eq!(overall.by_rtt.points[0].page_load_ms, [1000.0, 767.5]);
        assert!((overall.by_rtt.points[0].saved[1] - 0.2325).abs() < 1e-12);
        assert!((all.own.page_load - 0.2325 / 2.0).abs() < 1e-12, "{:?}", all.own);
    }

    #[test]
    fn classes_have_as_many_pages_each() {
        let plans: Vec<PagePlan> = (0..11).map(|bytes| plan(bytes, 3, 900.0)).collect();
        let sizes: Vec<_> =
            Overall::from_plans(&plans).by_size.iter().map(|class| class.pages).collect();
        assert_eq!(sizes, [2, 3, 3, 3]);
        let one = Overall::from_plans(&plans[..1]);
        assert_eq!(one.by_size.len(), 1);
        assert_eq!(Overall::from_plans([]), Overall::default());
    }

    #[test]
    fn load_times_hang_on_what_they_grow_with() {
        let mut plans = [(5, 3), (7, 4), (6, 5)].map(|(bytes, rtts)| plan(bytes, rtts, 900.0));
        for (plan, ms) in plans.iter_mut().zip([300.0, 400.0, 500.0]) {
            plan.none = expected(ms);
        }
        let of = Overall::from_plans(&plans).correlations;
        assert!((of.simulated.min_rtt.unwrap().linear - 1.0).abs() < 1e-12);
        assert!((of.simulated.bytes.unwrap().linear - 0.5).abs() < 1e-12);
        assert_eq!((of.simulated.resources, of.recorded.min_rtt), (None, None));
    }

    #[test]
    fn hosts_of_all_pages_are_added_up() {
        let plans = [plan(1, 3, 300.0), plan(1, 3, 500.0)];
        let hosts = Overall::from_plans(&plans).hosts;
        assert_eq!((hosts[0].host.as_str(), hosts[0].pages), ("b.test:443", 2));
        assert_eq!((hosts[0].early_ms, hosts[1].early_ms), (80.0, 20.0));
    }
}
