//! Compares the published simulator with the same rules here, on the published pages.

use std::collections::BTreeMap;
use std::time::Duration;

use super::blast::{Feature, Features, Plan, Settings, Simulator};
use crate::blast::{Logged, Reference};
use crate::statistics::mean;

/// Number of loads averaged for each page and setting: the published simulator draws how many
/// records arrive at a time, and so do we, but with other draws.
pub const DRAWS: u64 = 25;

/// Returns the settings of a run of the published simulator, by their name in the data set.
pub fn settings(name: &str) -> Option<Settings> {
    let usual = Settings::default();
    Some(match name {
        "h2" => usual,
        "pipe" => Settings { rate: 347_000, ..pipelining() },
        "pipe164" => pipelining(),
        "rtt0.4" => Settings { rtt: Duration::from_millis(400), ..usual },
        "rtt1.2" => Settings { rtt: Duration::from_millis(1200), ..usual },
        "bw82" => Settings { rate: 82_000, ..usual },
        "bw328" => Settings { rate: 328_000, ..usual },
        "all_but_0rtt" => {
            let features = Features { zero_rtt: false, ..Features::from_list(&Feature::ALL) };
            Settings { features, ..usual }
        }
        _ => Settings { features: Features::from_list(features(name)?), ..usual },
    })
}

/// Returns the features of settings that differ in nothing else.
fn features(name: &str) -> Option<&'static [Feature]> {
    Some(match name {
        "cum_tfo" => &Feature::ALL[..1],
        "cum_opt" => &Feature::ALL[..2],
        "cum_0rtt" => &Feature::ALL[..3],
        "cum_redirect" => &Feature::ALL[..4],
        "cum_h2db" => &Feature::ALL[..5],
        "cum_prefetch" => &Feature::ALL,
        "ind_tfo" => &[Feature::FastOpen],
        "ind_opt" => &[Feature::OptimisticData],
        "ind_0rtt" => &[Feature::ZeroRtt],
        "ind_redirect" => &[Feature::RedirectDatabase],
        "ind_h2db" => &[Feature::Http2Database],
        "ind_prefetch" => &[Feature::PrefetchDatabase],
        _ => return None,
    })
}

fn pipelining() -> Settings {
    Settings { http2: false, depth: 6, ..Settings::default() }
}

/// Distance of the rules here from the published simulator under one setting; times in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Agreement {
    /// Number of pages.
    pub pages: usize,
    /// Mean absolute error of the page load time.
    pub page_error: f64,
    /// Mean absolute error of the mean time of a resource.
    pub resource_error: f64,
    /// Mean page load time here.
    pub page_mean: f64,
    /// Mean page load time as published.
    pub page_published: f64,
}

impl Agreement {
    /// Returns the largest acceptable mean absolute error, for pages and for resources: a twentieth
    /// of a second, and more where draws weigh more.
    pub fn bar(setting: &str) -> f64 {
        match setting {
            "bw82" => 0.06,
            "pipe164" => 0.08,
            _ => 0.05,
        }
    }

    fn from_pairs(pairs: &[(Reference, Reference)]) -> Self {
        let page_errors = pairs.iter().map(|(simulated, published)| {
            (simulated.page_load_time - published.page_load_time).abs()
        });
        let resource_errors = pairs.iter().map(|(simulated, published)| {
            (simulated.resource_time - published.resource_time).abs()
        });
        let simulated = pairs.iter().map(|(simulated, _)| simulated.page_load_time);
        let published = pairs.iter().map(|(_, published)| published.page_load_time);
        Self {
            pages: pairs.len(),
            page_error: mean(page_errors).unwrap_or_default(),
            resource_error: mean(resource_errors).unwrap_or_default(),
            page_mean: mean(simulated).unwrap_or_default(),
            page_published: mean(published).unwrap_or_default(),
        }
    }
}

/// Compares all `pages`, by setting. Unknown settings are left out.
pub fn agreement(pages: &[Logged], draws: u64) -> BTreeMap<String, Agreement> {
    let mut pairs: BTreeMap<String, Vec<(Reference, Reference)>> = BTreeMap::new();
    let mut simulator = Simulator::new();
    for logged in pages {
        for (name, published) in &logged.reference {
            if let Some(settings) = settings(name) {
                let plan = Plan::new(&logged.page, &settings);
                let simulated = mean_load(&mut simulator, &plan, &settings, draws);
                pairs.entry(name.clone()).or_default().push((simulated, *published));
            }
        }
    }
    pairs.into_iter().map(|(name, pairs)| (name, Agreement::from_pairs(&pairs))).collect()
}

/// Returns the mean of `draws` loads.
fn mean_load(simulator: &mut Simulator, plan: &Plan, settings: &Settings, draws: u64) -> Reference {
    let (mut pages, mut resources, mut count) = (0.0, 0.0, 0.0);
    for seed in 0..draws.max(1) {
        let load = simulator.load(plan, settings, seed);
        pages += load.page_load_time().as_secs_f64();
        resources += load.mean_resource_time().as_secs_f64();
        count += 1.0;
    }
    Reference { page_load_time: pages / count, resource_time: resources / count }
}
