//! Recordings of real pages, several of each, without dates. Nothing of their URLs is printed.

use std::collections::{BTreeMap, BTreeSet};

use headstart_pageload::blast::{self, Record};
use headstart_pageload::db::{Facts, Figures, Horizon, Parts, Recordings, Rules, write};
use headstart_pageload::hits::{LoadShares, Outcome, RequestLog, Shares};
use headstart_pageload::page::Page;
use headstart_proto::UnixSeconds;
use serde_json::Value;

use crate::published::{lines, logged};

/// Hits of BLAST's prefetch database: mean over loads.
const HITS_OF_BLAST: f64 = 0.58;

#[test]
fn published_loads_are_told_from_others_of_their_pages() {
    let Some(pages) = logged() else { return };
    let mut recordings = Recordings::new();
    for logged in pages {
        recordings.add(&logged.page, None, &Facts::published()).unwrap();
    }
    assert_eq!(recordings.count(), 96);
    let rules = Rules::default();
    let built = recordings.build(&rules, Parts::ALL, UnixSeconds(0)).unwrap();
    let pages = built.database.pages();
    println!(
        "{} documents, {} in the database: {} redirects, {} servers, {} URLs; {} bytes",
        recordings.page_count(),
        pages.len(),
        pages.iter().flat_map(|page| &page.redirects).count(),
        pages.iter().flat_map(|page| &page.servers).count(),
        pages.iter().flat_map(|page| &page.prefetch).count(),
        write(&built.database, None).unwrap().len()
    );
    for (why, count) in &built.left_out {
        println!("  left out: {why}: {count}");
    }
    let figures = recordings.figures(&rules, Horizon::LeaveOneOut);
    println!("leave one out: {} loads, {} known", figures.loads, figures.known);
    let Figures { redirect, server, connections, http2, prefetch, prefetch_bytes, .. } = figures;
    for (name, tally) in [
        ("redirect", redirect),
        ("server", server),
        ("connections", connections),
        ("http2", http2),
        ("prefetch", prefetch),
        ("prefetch bytes", prefetch_bytes),
    ] {
        let [hits, wrong] = [tally.hits(), tally.false_positives()]
            .map(|share| share.map_or(-1.0, |share| share * 100.0));
        println!("  {name}: {hits:.1} % hits, {wrong:.1} % false positives ({tally:?})");
    }
    // The rule promises that what is prefetched is in nine of ten loads.
    assert!(prefetch.false_positives().unwrap() < 0.1);
    assert!(server.false_positives().unwrap() < 0.1);
    assert!(redirect.false_positives().unwrap() < 0.1);
}

/// The published loads, their configurations, and the published prefetch lists by page.
struct Published {
    loads: Vec<(Page, String)>,
    lists: BTreeMap<String, BTreeSet<String>>,
}

impl Published {
    fn read() -> Option<Self> {
        let mut all = Self { loads: Vec::new(), lists: BTreeMap::new() };
        for line in lines()? {
            let object: Value = serde_json::from_str(&line).unwrap();
            if let Record::Logged(logged) = blast::read(&line).unwrap() {
                all.loads.push((logged.page, object["cfg"].as_str().unwrap().into()));
            } else if object["set"] == "P" {
                let urls = object["urls"].as_array().unwrap().iter();
                let urls = urls.map(|url| url.as_str().unwrap().into()).collect();
                all.lists.insert(object["page"].as_str().unwrap().into(), urls);
            }
        }
        Some(all)
    }

    /// Compares each load with the published list of its page.
    fn lists(&self) -> LoadShares {
        LoadShares::new(self.loads.iter().map(|(page, _)| {
            let list = &self.lists[page.name()];
            let requested: BTreeSet<&str> =
                page.resources().iter().map(|resource| resource.url.as_str()).collect();
            let flagged = page.resources().iter().filter(|of| of.in_prefetch_database).count();
            let wrong = list.iter().filter(|url| !requested.contains(url.as_str())).count();
            Some(Outcome {
                requests: page.resources().len() as u64,
                hits: flagged as u64,
                expected: list.len() as u64,
                wrong: wrong as u64,
            })
        }))
    }

    /// Compares each load with all others of its page, or of its page and configuration.
    fn others(&self, share: u32, same_configuration: bool) -> LoadShares {
        let mut log = RequestLog::default();
        for (page, configuration) in &self.loads {
            let group = if same_configuration { configuration.as_str() } else { "" };
            log.add(&format!("{} {group}", page.name()), page);
        }
        log.leave_one_out(&Rules { share, ..Rules::default() })
    }
}

fn show(name: &str, LoadShares { loads, known, mean_of_loads, pooled }: LoadShares) -> Shares {
    println!("{name}: {known} of {loads} loads known");
    for (statistic, shares) in [("mean of loads", mean_of_loads), ("pooled", pooled)] {
        let Shares { hits, false_positives } = shares.unwrap();
        let [hits, wrong] = [hits, false_positives].map(|share| 100.0 * share);
        println!("  {statistic}: {hits:.1} % hits, {wrong:.1} % false positives");
    }
    mean_of_loads.unwrap()
}

#[test]
fn other_loads_tell_as_many_requests_as_the_published_lists() {
    let Some(published) = Published::read() else { return };
    let lists = published.lists();
    let theirs = show("published lists", lists);
    assert!(theirs.hits >= HITS_OF_BLAST, "{theirs:?}");
    // The two statistics of the same loads are far apart.
    assert!(lists.pooled.unwrap().hits < HITS_OF_BLAST / 2.0, "{lists:?}");
    for same_configuration in [false, true] {
        for share in [750, 800, 900, 950] {
            let which = if same_configuration { "of the same configuration" } else { "all" };
            let name = format!("in {} % of others, {which}", share / 10);
            show(&name, published.others(share, same_configuration));
        }
    }
    let ours = published.others(Rules::default().share, true).mean_of_loads.unwrap();
    assert!(ours.hits >= HITS_OF_BLAST, "{ours:?}");
    assert!(ours.false_positives < theirs.false_positives, "{ours:?}");
    let ours = published.others(Rules::default().share, false).mean_of_loads.unwrap();
    assert!(ours.hits > 0.5 && ours.false_positives < theirs.false_positives, "{ours:?}");
}
