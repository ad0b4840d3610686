//! The published rules against what the published simulator says of the published pages.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader};

use headstart_pageload::blast::{self, Logged, Record};
use headstart_pageload::sim::published::{self, Agreement, DRAWS};

/// Loads of set A under the main settings, and under the others.
const PAGES: [usize; 2] = [96, 31];

#[test]
fn the_published_simulator_agrees() {
    let Some(folder) = std::env::var_os("HEADSTART_DATA") else {
        eprintln!("skipped: HEADSTART_DATA names no folder of data sets");
        return;
    };
    let pages = logged(std::path::Path::new(&folder));
    assert_eq!(pages.len(), PAGES[0]);
    let agreement = published::agreement(&pages, DRAWS);
    assert_eq!(agreement.len(), 19);
    for (setting, said) in &agreement {
        println!(
            "{setting:14} {:3} pages: error of pages {:.3} s, of resources {:.4} s; mean {:.2} s, published {:.2} s",
            said.pages, said.page_error, said.resource_error, said.page_mean, said.page_published
        );
    }
    for (setting, said) in agreement {
        assert!(PAGES.contains(&said.pages), "{setting}");
        let bar = Agreement::bar(&setting);
        assert!(said.page_error <= bar && said.resource_error <= bar, "{setting}: {said:?}");
    }
}

fn logged(folder: &std::path::Path) -> Vec<Logged> {
    let file = std::fs::File::open(folder.join("blast/blast-train.jsonl.gz")).unwrap();
    let lines = BufReader::new(flate2::read::GzDecoder::new(file)).lines();
    let logged = lines.filter_map(|line| match blast::read(&line.unwrap()).unwrap() {
        Record::Logged(logged) => Some(logged),
        _ => None,
    });
    logged.collect()
}
