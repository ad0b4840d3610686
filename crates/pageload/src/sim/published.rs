//! Comparison of the published simulator with the same rules here, on the published pages.

use std::collections::BTreeMap;
use std::time::Duration;

use super::blast::{Feature, Features, Plan, Settings, Simulator};
use crate::blast::{Logged, Reference};

/// Loads of each page and setting of which the mean counts: the published simulator draws by chance
/// how many records come at a time, and so do we, but not the same.
pub const DRAWS: u64 = 25;

/// The settings under which the published simulator was run, by the names that the data set has for
/// them.
#[must_use]
pub fn settings(name: &str) -> Option<Settings> {
    let usual = Settings::default();
    let rate = |rate| Settings { rate, ..usual };
    let rtt = |millis| Settings { rtt: Duration::from_millis(millis), ..usual };
    let with = |features| Settings { features, ..usual };
    let alone = |feature| with(Features::default().with(feature));
    let first = |count| with(Features::from_list(&Feature::ALL[..count]));
    Some(match name {
        "h2" => usual,
        "pipe" => Settings { rate: 347_000, ..pipelining() },
        "pipe164" => pipelining(),
        "cum_tfo" => first(1),
        "cum_opt" => first(2),
        "cum_0rtt" => first(3),
        "cum_redirect" => first(4),
        "cum_h2db" => first(5),
        "cum_prefetch" => first(6),
        "all_but_0rtt" => with(Features { zero_rtt: false, ..Features::from_list(&Feature::ALL) }),
        "ind_tfo" => alone(Feature::FastOpen),
        "ind_opt" => alone(Feature::OptimisticData),
        "ind_0rtt" => alone(Feature::ZeroRtt),
        "ind_redirect" => alone(Feature::RedirectDatabase),
        "ind_h2db" => alone(Feature::Http2Database),
        "ind_prefetch" => alone(Feature::PrefetchDatabase),
        "rtt0.4" => rtt(400),
        "rtt1.2" => rtt(1200),
        "bw82" => rate(82_000),
        "bw328" => rate(328_000),
        _ => return None,
    })
}

fn pipelining() -> Settings {
    Settings { http2: false, depth: 6, ..Settings::default() }
}

/// Distance of the rules here from the published simulator, under one setting; times in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Agreement {
    /// Pages.
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
    /// The largest mean absolute error that the project lets pass, for pages and for resources: a
    /// twentieth of a second, and more where draws by chance weigh more.
    #[must_use]
    pub fn bar(setting: &str) -> f64 {
        match setting {
            "bw82" => 0.06,
            "pipe164" => 0.08,
            _ => 0.05,
        }
    }

    fn from_pairs(pairs: &[(Reference, Reference)]) -> Self {
        let count = pairs.iter().fold(0.0, |count, _| count + 1.0);
        let mean = |value: fn(&(Reference, Reference)) -> f64| {
            if pairs.is_empty() { 0.0 } else { pairs.iter().map(value).sum::<f64>() / count }
        };
        Self {
            pages: pairs.len(),
            page_error: mean(|(said, published)| {
                (said.page_load_time - published.page_load_time).abs()
            }),
            resource_error: mean(|(said, published)| {
                (said.resource_time - published.resource_time).abs()
            }),
            page_mean: mean(|(said, _)| said.page_load_time),
            page_published: mean(|(_, published)| published.page_load_time),
        }
    }
}

/// Compares all `pages`, by setting. Settings that are not known are left out.
#[must_use]
pub fn agreement(pages: &[Logged], draws: u64) -> BTreeMap<String, Agreement> {
    let mut pairs: BTreeMap<String, Vec<(Reference, Reference)>> = BTreeMap::new();
    let mut simulator = Simulator::new();
    for logged in pages {
        for (name, published) in &logged.reference {
            if let Some(settings) = settings(name) {
                let plan = Plan::new(&logged.page, &settings);
                let said = mean(&mut simulator, &plan, &settings, draws);
                pairs.entry(name.clone()).or_default().push((said, *published));
            }
        }
    }
    pairs.into_iter().map(|(name, pairs)| (name, Agreement::from_pairs(&pairs))).collect()
}

/// Returns the mean of `draws` loads.
fn mean(simulator: &mut Simulator, plan: &Plan, settings: &Settings, draws: u64) -> Reference {
    let (mut pages, mut resources, mut count) = (0.0, 0.0, 0.0);
    for seed in 0..draws.max(1) {
        let load = simulator.load(plan, settings, seed);
        pages += load.page_load_time().as_secs_f64();
        resources += load.mean_resource_time().as_secs_f64();
        count += 1.0;
    }
    Reference { page_load_time: pages / count, resource_time: resources / count }
}
