//! What BLAST asks of its simulator: what each feature saves, alone and on top of others, and what pipelining would.

use super::blast::{Feature, Features, Plan, Settings, Simulator};
use crate::page::Page;

/// Mean page load times, in seconds, with none of the features, with one, and with more and more of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Savings {
    /// None.
    pub none: f64,
    /// Each alone.
    pub alone: Vec<(Feature, f64)>,
    /// Each with all before it.
    pub cumulative: Vec<(Feature, f64)>,
    /// All but 0-RTT.
    pub all_but_zero_rtt: f64,
}

impl Savings {
    /// Of `pages` under `settings`, whose own features count as none.
    ///
    /// Databases know a page with the probability `hit_rate`. What is said is the expectation, over `draws` loads of each page.
    #[must_use]
    pub fn of(pages: &[Page], settings: &Settings, hit_rate: f64, draws: u64) -> Self {
        let hit_rate = hit_rate.clamp(0.0, 1.0);
        let mean = |features: Features| {
            let with = |features| mean(pages, &Settings { features, ..*settings }, draws);
            let hit = with(features);
            let missed = features.without_databases();
            if missed == features { hit } else { hit_rate * hit + (1.0 - hit_rate) * with(missed) }
        };
        let all = Features::of(&Feature::ALL);
        let upto = (1..)
            .zip(Feature::ALL)
            .map(|(count, feature)| (feature, mean(Features::of(&Feature::ALL[..count]))));
        Self {
            none: mean(Features::default()),
            alone: Feature::ALL
                .map(|feature| (feature, mean(Features::default().with(feature))))
                .to_vec(),
            cumulative: upto.collect(),
            all_but_zero_rtt: mean(Features { zero_rtt: false, ..all }),
        }
    }
}

/// Connections to a server, and requests on each, of which BLAST compares the page load times.
pub const PIPELINING: [(usize, usize); 5] = [(6, 6), (6, 20), (20, 6), (20, 20), (1, 100)];

/// Mean page load time of `pages`, in seconds, for each of so many `connections` and so many requests on each.
#[must_use]
pub fn pipelining(
    pages: &[Page],
    settings: &Settings,
    sweep: &[(usize, usize)],
    draws: u64,
) -> Vec<((usize, usize), f64)> {
    let of = |&(connections, depth): &(usize, usize)| {
        let settings = Settings { http2: false, connections, depth, ..*settings };
        ((connections, depth), mean(pages, &settings, draws))
    };
    sweep.iter().map(of).collect()
}

/// Of the page load time, in seconds. Zero without pages.
fn mean(pages: &[Page], settings: &Settings, draws: u64) -> f64 {
    let mut simulator = Simulator::new();
    let (mut total, mut count) = (0.0, 0.0);
    for page in pages {
        let plan = Plan::new(page, settings);
        for seed in 0..draws {
            total += simulator.load(&plan, settings, seed).page_load_time().as_secs_f64();
            count += 1.0;
        }
    }
    if count > 0.0 { total / count } else { 0.0 }
}
