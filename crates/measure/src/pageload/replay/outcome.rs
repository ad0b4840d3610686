//! Results of a replay: of each link and arm, and of each resource.

use headstart_openers::{PageLoad, PageTimes};
use headstart_pageload::statistics::{Accuracy, Quantiles};
use serde::Serialize;

use super::{Link, Recorded};

use crate::lab::page::LoadLine;
use crate::lab::runner::Finished;
use crate::lab::summary::CellSummary;
use crate::pageload::options::ReplayOptions;
use crate::simulated::{ReplaySettings, Simulated, network};
use crate::stats::{Estimate, Summary, ratio_of_medians, with_failed};

/// All of it. The names are a contract.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    pub(super) suite: String,
    pub(super) first_visit: bool,
    pub(super) pages: Vec<OfPage>,
    /// The simulator against all medians, where it knows the link.
    pub(super) simulator: Option<Accuracy>,
    /// Where every load is.
    pub(super) folder: String,
}

#[derive(Debug, Serialize)]
pub(super) struct OfPage {
    pub(super) file: String,
    pub(super) page: String,
    pub(super) resources: usize,
    pub(super) response_bytes: u64,
    pub(super) links: Vec<OfLink>,
}

#[derive(Debug, Serialize)]
pub(super) struct OfLink {
    pub(super) link: String,
    pub(super) path: String,
    pub(super) rtt_ms: f64,
    /// As they were named.
    pub(super) arms: Vec<OfArm>,
}

#[derive(Debug, Serialize)]
pub(super) struct OfArm {
    pub(super) arm: String,
    pub(super) loads: usize,
    pub(super) failed: usize,
    /// Loads during which the lab sent a packet too late.
    pub(super) flagged: usize,
    /// Until 95 % of the resources are there, in ms.
    pub(super) page_load_ms: Option<Summary>,
    /// Until all are there, in ms.
    pub(super) full_load_ms: Option<Summary>,
    /// Prediction of `full_load_ms` by the simulator (profile tcp), where it knows the link.
    pub(super) simulated_ms: Option<f64>,
    /// Ratio of the median of `full_load_ms` to that of the first arm.
    pub(super) to_first: Option<Estimate>,
    /// Medians over loads.
    pub(super) connections: Option<f64>,
    pub(super) handshakes: Option<f64>,
    pub(super) resumptions: Option<f64>,
    /// Connections whose first request left before the handshake was done.
    pub(super) early: Option<f64>,
    /// Connections opened sooner than by TCP and then TLS.
    pub(super) fast: Option<f64>,
    /// Medians of each resource over loads, in ms since the load began.
    pub(super) times: Vec<PageTimes>,
    /// Reason of the first failed load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

impl Outcome {
    pub(super) fn new(
        pages: &[Recorded],
        options: &ReplayOptions,
        links: &[Link],
        finished: &Finished,
        all: &[LoadLine],
    ) -> Self {
        let pages: Vec<_> =
            pages.iter().map(|page| OfPage::new(page, options, links, (finished, all))).collect();
        Self {
            suite: options.suite.to_string(),
            first_visit: options.first_visit,
            simulator: accuracy(&pages),
            pages,
            folder: finished.place.display().to_string(),
        }
    }
}

impl OfPage {
    fn new(
        recorded: &Recorded,
        options: &ReplayOptions,
        links: &[Link],
        (finished, all): (&Finished, &[LoadLine]),
    ) -> Self {
        let page = &recorded.page;
        let way = ReplaySettings {
            connections: options.connections.parse().unwrap_or_default(),
            first_visit: options.first_visit,
            suite: options.suite,
        };
        let simulated = Simulated::new(page, way);
        let links = links.iter().map(|link: &Link| {
            let network = network(&link.path, link.rtt);
            let (name, variant) = (link.name.as_str(), recorded.name.as_str());
            let first = options.arms.first().map(|arm| loads(all, (name, variant, arm.name())));
            let first = first.unwrap_or_default();
            let arms = options.arms.iter().map(|arm| {
                let own = (name, variant, arm.name());
                let measured = OfArm::new(arm.name(), &loads(all, own), &first);
                let simulated_ms = simulated
                    .as_ref()
                    .zip(network)
                    .map(|(simulated, network)| simulated.full_load_ms(*arm, network));
                let error = broken(finished, own).or(measured.error);
                OfArm { simulated_ms, error, ..measured }
            });
            let rtt_ms = link.rtt.as_secs_f64() * 1e3;
            let arms = arms.collect();
            OfLink { link: link.name.clone(), path: link.path.clone(), rtt_ms, arms }
        });
        Self {
            file: recorded.file.display().to_string(),
            page: page.name().to_owned(),
            resources: page.resources().len(),
            response_bytes: page.resources().iter().map(|one| one.response_bytes).sum(),
            links: links.collect(),
        }
    }
}

/// Link, variant and arm.
type Own<'k> = (&'k str, &'k str, &'k str);

fn loads<'l>(all: &'l [LoadLine], own: Own<'_>) -> Vec<&'l LoadLine> {
    all.iter()
        .filter(|load| (load.link.as_str(), load.variant.as_str(), load.arm.as_str()) == own)
        .collect()
}

/// Returns the reason why a cell has no more loads.
fn broken(finished: &Finished, own: Own<'_>) -> Option<String> {
    let mut cells = finished.cells.iter();
    let cell = cells.find(|cell: &&CellSummary| {
        (cell.link.as_str(), cell.variant.as_str(), cell.arm.as_str()) == own
    });
    cell?.broken.clone()
}

/// The simulator against all medians that it has.
fn accuracy(pages: &[OfPage]) -> Option<Accuracy> {
    let links = pages.iter().flat_map(|page| &page.links);
    let pairs = links.flat_map(|link| &link.arms);
    let pairs = pairs.filter_map(|arm| Some((arm.simulated_ms?, arm.full_load_ms?.p50?)));
    Accuracy::from_pairs(&pairs.collect::<Vec<_>>())
}

impl OfArm {
    fn new(arm: &str, loads: &[&LoadLine], first: &[&LoadLine]) -> Self {
        let whole: Vec<_> = loads.iter().copied().filter(|load| load.load.ok).collect();
        let error = loads.iter().find(|load| !load.load.ok).map(|load| load.load.error.clone());
        Self {
            arm: arm.to_owned(),
            loads: loads.len(),
            failed: loads.len() - whole.len(),
            flagged: loads.iter().filter(|load| load.flagged).count(),
            page_load_ms: Summary::from_samples(&samples(loads, |load| load.load.page_load_ms)),
            full_load_ms: Summary::from_samples(&full(loads)),
            simulated_ms: None,
            to_first: ratio_of_medians(&full(loads), &full(first), SEED),
            connections: median_of(&whole, |load| load.connections.into()),
            handshakes: median_of(&whole, |load| load.handshakes.into()),
            resumptions: median_of(&whole, |load| load.resumptions.into()),
            early: median_of(&whole, |load| load.early.into()),
            fast: median_of(&whole, |load| load.fast.into()),
            times: times(&whole),
            error,
        }
    }
}

/// Seed of intervals, so that the same loads give the same.
const SEED: u64 = 1;

fn full(loads: &[&LoadLine]) -> Vec<f64> {
    samples(loads, |load| load.load.full_load_ms)
}

/// Returns the times of loads; those that failed took for ever.
fn samples(loads: &[&LoadLine], read: fn(&LoadLine) -> Option<f64>) -> Vec<f64> {
    let times: Vec<f64> = loads.iter().filter_map(|load| read(load)).collect();
    with_failed(&times, loads.len() - times.len())
}

fn times(loads: &[&LoadLine]) -> Vec<PageTimes> {
    let resources = loads.first().map_or(0, |load| load.load.resources.len());
    (0..resources)
        .map(|id| {
            let own = loads.iter().filter_map(|load| load.load.resources.get(id));
            PageTimes {
                created: median(own.clone().filter_map(|times| times.created)),
                sent: median(own.clone().filter_map(|times| times.sent)),
                first: median(own.clone().filter_map(|times| times.first)),
                last: median(own.filter_map(|times| times.last)),
            }
        })
        .collect()
}

fn median_of(loads: &[&LoadLine], figure: impl Fn(&PageLoad) -> f64) -> Option<f64> {
    median(loads.iter().map(|load| figure(&load.load)))
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    Quantiles::from_values(values).map(|quantiles| quantiles.p50)
}

#[cfg(test)]
mod tests {
    use headstart_openers::PageLoad;

    use super::*;
    use crate::lab::trial::Key;

    fn load(ms: Option<f64>) -> LoadLine {
        let key = Key {
            experiment: "replay".into(),
            link: "l".into(),
            variant: String::new(),
            suite: "p256".into(),
            arm: "turbo".into(),
        };
        let times = PageTimes { last: ms, ..PageTimes::default() };
        let load = PageLoad {
            ok: ms.is_some(),
            full_load_ms: ms,
            page_load_ms: ms,
            connections: 4,
            resources: vec![times],
            error: if ms.is_none() { "it broke".into() } else { String::new() },
            ..PageLoad::default()
        };
        LoadLine::new(key, 1, false, load)
    }

    #[test]
    fn loads_that_failed_took_for_ever() {
        let all = [Some(30.0), None, Some(10.0), Some(20.0), Some(40.0)].map(load);
        let all: Vec<_> = all.iter().collect();
        let arm = OfArm::new("turbo", &all, &all);
        assert_eq!((arm.loads, arm.failed, arm.connections), (5, 1, Some(4.0)));
        assert_eq!(arm.full_load_ms.unwrap().p50, Some(30.0));
        assert_eq!(arm.to_first.unwrap().value, 1.0);
        assert_eq!(arm.times[0].last, Some(20.0), "of those that were whole");
        assert_eq!(arm.error.as_deref(), Some("it broke"));
    }

    #[test]
    fn arms_without_loads_report_nothing() {
        let arm = OfArm::new("fop", &[], &[]);
        assert!(arm.full_load_ms.is_none() && arm.to_first.is_none() && arm.times.is_empty());
        assert_eq!((arm.error, arm.loads), (None, 0));
    }
}
