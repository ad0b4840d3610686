//! The published rules against what the published simulator says.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::io::Read;
use std::time::Duration;

use headstart_pageload::blast::{self, Logged, Record};
use headstart_pageload::sim::blast::{Features, Plan, Settings, Simulator};

/// Loads of one page and setting: the groups of records are drawn.
const SEEDS: u64 = 5;

#[test]
fn the_published_simulator_agrees() {
    let Some(folder) = std::env::var_os("HEADSTART_DATA") else {
        eprintln!("skipped: HEADSTART_DATA names no folder of data sets");
        return;
    };
    let file = std::path::Path::new(&folder).join("blast/blast-train.jsonl.gz");
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(file).unwrap())
        .read_to_string(&mut text)
        .unwrap();
    let logged: Vec<Logged> = text
        .lines()
        .filter_map(|line| match blast::read(line).unwrap() {
            Record::Logged(logged) => Some(logged),
            _ => None,
        })
        .collect();
    assert_eq!(logged.len(), 96);
    let mut errors: BTreeMap<&str, (f64, f64, f64, usize)> = BTreeMap::new();
    for load in &logged {
        for (name, reference) in &load.reference {
            let settings = settings(name);
            let plan = Plan::new(&load.page, &settings);
            let mut simulator = Simulator::new();
            for seed in 0..SEEDS {
                let said = simulator.load(&plan, &settings, seed);
                let error = errors.entry(name).or_default();
                let page = said.page_load_time().as_secs_f64() - reference.page_load_time;
                error.0 += page.abs();
                error.1 +=
                    (said.mean_resource_time().as_secs_f64() - reference.resource_time).abs();
                error.2 += page;
                error.3 += 1;
            }
        }
    }
    let mut worst = 0.0f64;
    for (name, (page, resource, bias, count)) in &errors {
        #[allow(clippy::cast_precision_loss)]
        let count = *count as f64;
        let (page, resource, bias) = (page / count, resource / count, bias / count);
        println!("{name:14} page {page:.3} s ({bias:+.3})  resource {resource:.3} s");
        let bar = match *name {
            "bw82" => 0.06,
            "pipe164" => 0.08,
            _ => 0.05,
        };
        worst = worst.max(page / bar).max(resource / bar);
    }
    assert!(worst <= 1.0, "{worst}");
}

fn settings(name: &str) -> Settings {
    let usual = Settings::default();
    let rate = |rate| Settings { rate, ..usual };
    let rtt = |millis| Settings { rtt: Duration::from_millis(millis), ..usual };
    let with = |features| Settings { features, ..usual };
    let none = Features::default();
    let order: [fn(Features) -> Features; 6] = [
        |f| Features { fast_open: true, ..f },
        |f| Features { optimistic_data: true, ..f },
        |f| Features { zero_rtt: true, ..f },
        |f| Features { redirect_database: true, ..f },
        |f| Features { http2_database: true, ..f },
        |f| Features { prefetch_database: true, ..f },
    ];
    let cumulative = |count| order[..count].iter().fold(none, |features, add| add(features));
    match name {
        "h2" => usual,
        "pipe" => Settings { rate: 347_000, http2: false, depth: 6, ..usual },
        "pipe164" => Settings { http2: false, depth: 6, ..usual },
        "cum_tfo" => with(cumulative(1)),
        "cum_opt" => with(cumulative(2)),
        "cum_0rtt" => with(cumulative(3)),
        "cum_redirect" => with(cumulative(4)),
        "cum_h2db" => with(cumulative(5)),
        "cum_prefetch" => with(cumulative(6)),
        "all_but_0rtt" => with(Features { zero_rtt: false, ..cumulative(6) }),
        "ind_tfo" => with(order[0](none)),
        "ind_opt" => with(order[1](none)),
        "ind_0rtt" => with(order[2](none)),
        "ind_redirect" => with(order[3](none)),
        "ind_h2db" => with(order[4](none)),
        "ind_prefetch" => with(order[5](none)),
        "rtt0.4" => rtt(400),
        "rtt1.2" => rtt(1200),
        "bw82" => rate(82_000),
        "bw328" => rate(328_000),
        other => panic!("a setting that is not known: {other}"),
    }
}
