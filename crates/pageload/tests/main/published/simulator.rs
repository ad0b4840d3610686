//! The published rules on the published pages. `headstart pageload validate` compares them with the
//! published simulator (measure/tests/pageload/plan.rs).

use std::time::Duration;

use headstart_pageload::blast::Logged;
use headstart_pageload::page::Page;
use headstart_pageload::sim::blast::{Feature, Features, Plan, Settings, Simulator};
use headstart_pageload::sim::tcp::{self, Link, Revisit, Technique, Techniques};

use super::logged;

/// Page load times in seconds.
fn load_times(pages: &[Logged], settings: &tcp::Settings) -> Vec<f64> {
    let loads = pages.iter().map(|logged| tcp::load(&logged.page, settings, 0));
    loads.map(|load| load.page_load_time().as_secs_f64()).collect()
}

/// Where bandwidth is not scarce, none of them; where it is, single pages can be slower, as queues
/// overflow at other times, but not pages in the mean.
#[test]
fn no_technique_slows_the_published_pages() {
    let Some(pages) = logged() else { return };
    for down in [None, Some(1_000_000)] {
        let link = Link { rtt: Duration::from_millis(100), down, ..Link::default() };
        let plain = tcp::Settings { link, revisit: Revisit::again(), ..tcp::Settings::default() };
        let before = load_times(&pages, &plain);
        for technique in Technique::ALL {
            let techniques = Techniques::from_list(&[technique]);
            let after = load_times(&pages, &tcp::Settings { techniques, ..plain.clone() });
            let ratios = before.iter().zip(&after).map(|(before, after)| after / before);
            let worst = ratios.fold(0.0, f64::max);
            let mean = after.iter().sum::<f64>() / before.iter().sum::<f64>();
            println!(
                "{technique:16} down {down:?}: {mean:.3} of the mean, {worst:.3} of the page that \
                    gains least"
            );
            assert!(
                mean <= 1.01 && (worst <= 1.001 || down.is_some()),
                "{technique}: {mean} {worst}"
            );
        }
    }
}

/// The tables of docs/pageload.md, beside the published ones (lab/papers/blast.toml).
#[test]
fn features_and_pipelining_as_the_paper_asks() {
    let Some(mut logged) = logged() else { return };
    let published: toml::Table =
        toml::from_str(include_str!("../../../../../lab/papers/blast.toml")).unwrap();
    let hit_rate = published["hit_rate"].as_float().unwrap();
    tables("all", &logged, hit_rate);
    logged.retain(|logged| logged.reference.contains_key("cum_prefetch"));
    tables("with references for features", &logged, hit_rate);
}

fn tables(name: &str, logged: &[Logged], hit_rate: f64) {
    let pages: Vec<Page> = logged.iter().map(|logged| logged.page.clone()).collect();
    let settings = Settings::default();
    for hit_rate in [1.0, hit_rate] {
        let savings = Savings::new(&pages, &settings, hit_rate, 5);
        let features = Features { zero_rtt: false, ..Features::from_list(&Feature::ALL) };
        let without = expected(&pages, &Settings { features, ..settings }, hit_rate, 5);
        println!(
            "{} pages, {name}, hit rate {hit_rate}: {savings:.2?}; without 0-RTT {without:.2}",
            pages.len()
        );
        assert!(savings.cumulative.is_sorted_by(|one, more| more.1 <= one.1 + 0.05), "{savings:?}");
        let all = savings.cumulative.last().unwrap().1;
        assert!(
            savings.alone.iter().all(|one| one.1 <= savings.none && one.1 > all),
            "{savings:?}"
        );
        assert!(all < without && without < savings.none);
    }
    let settings = Settings { rate: 347_000, ..settings };
    let times = PIPELINING.map(|(connections, depth)| {
        let settings = Settings { http2: false, connections, depth, ..settings };
        ((connections, depth), page_load_time(&pages, &settings, 5))
    });
    println!("{name}, pipelining: {times:.2?}");
    // As published: one connection is slowest, and more requests than six on each of six change
    // little.
    let [six, deeper, .., one] = times;
    assert!(times.iter().all(|other| other.1 <= one.1), "{times:?}");
    assert!((deeper.1 / six.1 - 1.0).abs() < 0.02, "{times:?}");
}

/// Connections to a server, and requests on each, of which BLAST compares the page load times.
const PIPELINING: [(usize, usize); 5] = [(6, 6), (6, 20), (20, 6), (20, 20), (1, 100)];

/// Mean page load times in seconds, by the published rules, in the order of BLAST.
#[derive(Debug)]
struct Savings {
    /// Without any feature.
    none: f64,
    /// Times with each feature alone.
    alone: Vec<(Feature, f64)>,
    /// Times with each feature and all before it.
    cumulative: Vec<(Feature, f64)>,
}

impl Savings {
    fn new(pages: &[Page], settings: &Settings, hit_rate: f64, draws: u64) -> Self {
        let all = Feature::ALL;
        let lists = all.iter().map(std::slice::from_ref).chain((1..=all.len()).map(|n| &all[..n]));
        let mut alone: Vec<(Feature, f64)> = lists
            .map(|list: &[Feature]| {
                let settings = Settings { features: Features::from_list(list), ..*settings };
                (*list.last().unwrap(), expected(pages, &settings, hit_rate, draws))
            })
            .collect();
        let cumulative = alone.split_off(all.len());
        let plain = Settings { features: Features::default(), ..*settings };
        Self { none: expected(pages, &plain, hit_rate, draws), alone, cumulative }
    }
}

/// Returns the mean page load time in seconds, if the databases know a page with the probability
/// `hit_rate`.
fn expected(pages: &[Page], settings: &Settings, hit_rate: f64, draws: u64) -> f64 {
    let missed = Settings { features: settings.features.without_databases(), ..*settings };
    let hit = page_load_time(pages, settings, draws);
    if missed == *settings {
        return hit;
    }
    hit_rate * hit + (1.0 - hit_rate) * page_load_time(pages, &missed, draws)
}

/// Returns the mean page load time in seconds, over `draws` loads of each page.
fn page_load_time(pages: &[Page], settings: &Settings, draws: u64) -> f64 {
    let mut simulator = Simulator::new();
    let mut total = 0.0;
    for page in pages {
        let plan = Plan::new(page, settings);
        for seed in 0..draws {
            total += simulator.load(&plan, settings, seed).page_load_time().as_secs_f64();
        }
    }
    let loads = u32::try_from(pages.len() as u64 * draws).unwrap();
    total / f64::from(loads)
}
