//! Policies for the recorded pages of this tree: none is slower than nothing on loads that it was
//! not found on.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use flate2::read::GzDecoder;
use headstart_pageload::db::{Facts, Methods, Parts, Rules};
use headstart_pageload::har::{self, Recording};
use headstart_pageload::policy::{self, LOADS_MIN, Policy, Recorded};
use headstart_pageload::sim::tcp::{Delivery, Link, Settings};

/// Links of the experiment with a browser: their names in files, round trip in ms, bytes a second.
const LINKS: [(&str, u64, u64); 2] = [("50-ms-", 50, 6_250_000), ("0.8-s-", 800, 1_000_000)];

fn settings(rtt_ms: u64, rate: u64) -> Settings {
    let rate = Some(rate);
    let link = Link { rtt: Duration::from_millis(rtt_ms), down: rate, up: rate, ..Link::default() };
    Settings { link, delivery: Delivery::Document, ..Settings::default() }
}

fn read(path: &Path) -> (Recording, Facts) {
    let mut har = Vec::new();
    GzDecoder::new(File::open(path).unwrap()).read_to_end(&mut har).unwrap();
    let recording = har::read(har.as_slice()).unwrap().recordings.remove(0);
    let methods = Methods::read(har.as_slice()).unwrap();
    let facts = Facts::of_resources(&recording.page, &recording.facts, &methods);
    (recording, facts)
}

/// Recordings of all runs with a browser, by link and page.
fn recorded() -> BTreeMap<(usize, String), Vec<(Recording, Facts)>> {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/results");
    let folders = fs::read_dir(results).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: BTreeMap<(usize, String), Vec<(Recording, Facts)>> = BTreeMap::new();
    for folder in folders.map(|folder| folder.join("recordings")).filter(|folder| folder.is_dir()) {
        let mut files: Vec<PathBuf> =
            fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        for file in files {
            let name = file.file_name().unwrap().to_str().unwrap();
            let Some(link) = LINKS.iter().position(|(link, ..)| name.starts_with(link)) else {
                continue;
            };
            let load = read(&file);
            let page = format!("{}{}", folder.display(), load.0.page.document().url);
            pages.entry((link, page)).or_default().push(load);
        }
    }
    pages
}

/// Finds a policy on all loads but one, and returns it with what it saves of that one, and the
/// least that it surely saves of one further load.
fn held_out(loads: &[Recorded<'_>], out: usize, settings: &Settings) -> (Policy, f64, f64) {
    let mut others = loads.to_vec();
    others.remove(out);
    let tried = policy::tried(&others, settings, &Rules::default(), Parts::ALL);
    let kept = policy::kept(&tried);
    let entry = policy::learned(&others, &Rules::default(), Parts::ALL).unwrap();
    let load = policy::as_loaded(loads, settings).remove(out);
    let [saved, ..] = policy::effect(&load, &entry, settings, kept);
    let surely = tried.first().filter(|_| kept != Policy::NONE);
    (kept, saved.unwrap(), surely.map_or(0.0, |tried| tried.surely_of_one()))
}

#[test]
fn what_is_kept_is_never_slower_than_nothing() {
    let (mut pages, mut kept_any) = (0, 0);
    for ((link, name), loads) in recorded() {
        let (name_of_link, rtt, rate) = LINKS[link];
        let settings = settings(rtt, rate);
        let loads: Vec<Recorded<'_>> = loads
            .iter()
            .map(|(load, facts)| Recorded { page: &load.page, resources: &load.facts, facts })
            .collect();
        assert!(loads.len() > LOADS_MIN, "{name}: {} loads", loads.len());
        let all: Vec<(Policy, f64, f64)> =
            (0..loads.len()).map(|out| held_out(&loads, out, &settings)).collect();
        for (kept, saved, surely) in &all {
            println!(
                "{name_of_link}{}: {kept}: {:.1} % saved, surely {:.1} %",
                name.rsplit('/').nth(1).unwrap_or_default(),
                saved * 100.0,
                surely * 100.0
            );
            assert!(*saved >= surely.min(0.0), "{name}: {kept} saves {saved}, surely {surely}");
        }
        let mean = all.iter().map(|(_, saved, _)| saved).sum::<f64>() / all.len() as f64;
        assert!(mean >= 0.0, "{name}: {mean}");
        pages += 1;
        kept_any += usize::from(all.iter().any(|(kept, ..)| *kept != Policy::NONE));
    }
    assert!(pages >= 6, "{pages} pages");
    assert!(kept_any >= 4, "hardly anything is kept: of {kept_any} pages");
}

#[test]
fn nothing_is_kept_of_few_loads() {
    let loads = recorded().into_values().next().unwrap();
    let few: Vec<Recorded<'_>> = loads
        .iter()
        .take(LOADS_MIN - 1)
        .map(|(load, facts)| Recorded { page: &load.page, resources: &load.facts, facts })
        .collect();
    let tried = policy::tried(&few, &settings(50, 6_250_000), &Rules::default(), Parts::ALL);
    assert_eq!((tried.len(), policy::kept(&tried)), (0, Policy::NONE));
}
