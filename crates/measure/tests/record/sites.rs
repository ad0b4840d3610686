//! The built-in sites, recorded as they are described.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::process::Command;

use headstart_openers::site::{Site, SiteKind};
use headstart_pageload::har::{self, Recording};
use headstart_pageload::page::Protocol;
use headstart_pageload::tree::Tree;
use serde_json::json;

use crate::place::{Place, browser};

/// Levels that a tree may have more or less than described, where other data is taken for what a
/// script waited for.
const OTHER_DATA: usize = 3;

pub(crate) fn read(file: &std::path::Path) -> Recording {
    har::read(File::open(file).unwrap()).unwrap().recordings.remove(0)
}

/// The same resources of the same hosts, of each the parent that the description names, all of it
/// as recorded.
pub(crate) fn is_as_described(recording: &Recording, site: &Site) {
    let page = &recording.page;
    let urls = (0..site.resources().len()).map(|at| (site.url_of(at).replace("{lang}", "en"), at));
    let places: BTreeMap<String, usize> = urls.collect();
    let described: BTreeSet<&String> = places.keys().collect();
    let recorded: BTreeSet<&String> = page.resources().iter().map(|one| &one.url).collect();
    let (missing, more): (Vec<_>, Vec<_>) =
        (described.difference(&recorded).collect(), recorded.difference(&described).collect());
    assert!(missing.is_empty() && more.is_empty(), "missing {missing:?}, more {more:?}");
    let shape = site.shape();
    let found = Tree::from_page(page).shape(page);
    assert_eq!(found.resources, shape.resources);
    assert_eq!(page.redirects(), shape.redirects);
    let hosts: BTreeSet<&str> = page.servers().iter().map(|server| server.host.as_str()).collect();
    assert_eq!(hosts.len(), shape.hosts);
    assert_eq!(found.largest_server, shape.largest_host);
    // Headers come on top.
    let bytes = usize::try_from(found.response_bytes).unwrap();
    assert!((shape.bytes..shape.bytes + shape.bytes / 20).contains(&bytes), "{bytes}");
    assert!(page.servers().iter().all(|server| server.protocol == Protocol::Http2));
    assert!(page.resources().iter().all(|one| one.connection.is_some()));
    assert_eq!(recording.parents.roots + recording.parents.recorded, shape.resources, "no guesses");
    for one in page.resources() {
        let described = site.resources()[places[&one.url]].from;
        // Which data a script waited for is known by time alone: what came meanwhile may be taken
        // for it.
        let of_data = described.is_some_and(|at| site.resources()[at].kind == SiteKind::Data);
        let waited = one.dependencies.iter().map(|on| places[&page.resources()[on.on].url]);
        let waited: Vec<usize> = waited.collect();
        assert_eq!(waited.is_empty(), described.is_none(), "{}", one.url);
        let is_there = described.is_none_or(|at| of_data || waited.contains(&at));
        assert!(is_there, "{}: {waited:?}", one.url);
    }
    assert!((found.height as usize).abs_diff(shape.height) <= OTHER_DATA, "{}", found.height);
}

#[test]
fn sites_are_recorded_as_they_are_described() {
    let Some(_turn) = browser() else { return };
    let place = Place::new();
    let report = place.records(&["news", "shop", "app", "--screenshot"]);
    assert_eq!(report["failures"], json!([]));
    let names = Site::names();
    assert_eq!(report["recordings"].as_array().unwrap().len(), names.len());
    for (name, recorded) in names.iter().zip(report["recordings"].as_array().unwrap()) {
        let site = Site::built_in(name).unwrap();
        let file = place.path(recorded["file"].as_str().unwrap());
        is_as_described(&read(&file), &site);
        assert_eq!(recorded["notes"], json!([]), "{name}");
        for key in ["page_load_ms", "on_load_ms", "largest_paint_ms"] {
            assert!(recorded[key].as_f64().unwrap() > 0.0, "{name}: {key}");
        }
        let table = std::fs::read_to_string(file.with_extension("csv")).unwrap();
        assert_eq!(table.lines().count(), 105, "{name}");
        assert!(
            table.starts_with("id,parent,")
                && table.contains(",created_ms,connecting_ms,sent_ms,first_byte_ms,last_byte_ms,")
        );
        assert!(std::fs::read(file.with_extension("png")).unwrap().starts_with(b"\x89PNG"));
    }
    goes_on_to_show_and_plan(&place);
}

/// A recording goes on to the commands that read it.
fn goes_on_to_show_and_plan(place: &Place) {
    for arguments in [["pageload", "show", "--json"], ["pageload", "plan", "--json"]] {
        let mut command = Command::new(crate::programs::LAB);
        let output = command.args(arguments).args(place.recordings()).output().unwrap();
        let report = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {report}");
        assert!(output.stdout.starts_with(b"{"), "{arguments:?}");
    }
}

#[test]
fn a_second_visit_finds_most_of_it_cached() {
    let Some(_turn) = browser() else { return };
    let place = Place::new();
    let report = place.records(&["app", "--warm"]);
    let again = read(&place.recordings()[0]);
    let site = Site::built_in("app").unwrap();
    let [resources, ignored] =
        ["resources", "ignored"].map(|key| report["recordings"][0][key].as_u64().unwrap());
    assert_eq!(resources + ignored, site.resources().len() as u64);
    assert!(ignored > 60, "{report}");
    // The document is asked for all the same, and its answer is that nothing has changed.
    assert_eq!(
        (again.facts[0].status, again.page.resources()[0].response_bytes < 500),
        (304, true)
    );
    let har = std::fs::read_to_string(&place.recordings()[0]).unwrap();
    assert!(har.contains("with the cache of a load before"));
}

#[test]
fn a_revisit_starts_with_the_browsers_state() {
    let Some(_turn) = browser() else { return };
    let place = Place::new();
    let report = place.records(&["app", "--revisit", "0s"]);
    assert!(report["recordings"][0]["ignored"].as_u64().unwrap() > 60, "{report}");
    let again = read(&place.recordings()[0]);
    let first = again.page.resources()[0].measured.unwrap();
    assert!(first.connect.is_zero() && first.tls.is_zero(), "its connection is there: {first:?}");
    let har = std::fs::read_to_string(&place.recordings()[0]).unwrap();
    assert!(har.contains("again by the same browser after 0s"));
}

#[test]
fn several_loads_have_numbers_and_languages_their_pages() {
    let Some(_turn) = browser() else { return };
    let place = Place::new();
    let report = place.records(&["shop", "--runs", "2", "--language", "de-DE", "--think", "0ms"]);
    let files: Vec<String> = place
        .recordings()
        .iter()
        .map(|file| file.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    assert_eq!(files, ["bazaar.test-0001.har", "bazaar.test-0002.har"]);
    assert_eq!(report["recordings"].as_array().unwrap().len(), 2);
    let german = read(&place.recordings()[1]);
    let front = &german.page.resources()[german.page.redirects()];
    assert_eq!(front.url, "https://www.bazaar.test/de/welcome");
}
