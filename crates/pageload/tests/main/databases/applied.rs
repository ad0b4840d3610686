//! Databases applied to a load, and the load's time then.

use std::time::Duration;

use headstart_pageload::db::{
    Connect, Coverage, Database, Hop, Http2, Kind, PageEntry, Parts, Prefetch, Redirect, Tally,
};
use headstart_pageload::page::{Page, Protocol};
use headstart_pageload::sim::profile::{Model, Profile};
use headstart_pageload::sim::{Load, blast, tcp};
use headstart_proto::UnixSeconds;

use super::made::page_entry;
use super::pages::{Asked, asked, page_behind, target};

const FIRST: &str = "http://a.test/";
const DOCUMENT: &str = "https://www.a.test/";
const STYLE: &str = "https://cdn.test/a.css";
const SCRIPT: &str = "https://cdn.test/b.js";
const OLD: &str = "https://cdn.test/old.js";
const AWAY: &str = "https://away.test/gone.png";

/// A redirect, the document, a style sheet, and a script that the style sheet asks for.
fn load() -> Page {
    page_behind(
        1,
        &[
            Asked { protocol: Protocol::Http1, ..asked(FIRST) },
            asked(DOCUMENT),
            Asked { parent: Some(1), bytes: 3_000, ..asked(STYLE) },
            Asked { parent: Some(2), bytes: 5_000, ..asked(SCRIPT) },
        ],
    )
}

fn entry() -> PageEntry {
    let hops = vec![Hop { to: target(DOCUMENT), permanent: true }];
    PageEntry {
        redirects: vec![Redirect { from: target(FIRST), hops, of_document: true }],
        servers: [(DOCUMENT, 1), (AWAY, 2)]
            .map(|(url, connections)| Connect {
                origin: target(url).origin,
                anonymous: false,
                connections,
            })
            .into(),
        prefetch: [STYLE, OLD, AWAY]
            .map(|url| Prefetch { target: target(url), kind: Kind::Other })
            .into(),
        ..page_entry(DOCUMENT)
    }
}

fn database(entry: PageEntry) -> Database {
    let http2 = [("cdn.test".to_owned(), Http2::Http2)].into();
    Database::new(UnixSeconds(1), Parts::ALL, vec![entry], http2).unwrap()
}

fn tally(used: u64, wrong: u64, missed: u64) -> Tally {
    Tally { used, wrong, missed }
}

#[test]
fn entries_and_unneeded_entries_are_counted() {
    let (applied, coverage) = database(entry()).apply(&load());
    let expected = Coverage {
        pages: tally(1, 0, 0),
        redirects: tally(1, 0, 0),
        // The document's is known, the one of style and script is not; one is not needed.
        servers: tally(1, 1, 1),
        // That of the document is not known to speak it.
        http2: tally(1, 0, 1),
        prefetch: tally(1, 2, 1),
        // Two in vain, of the mean of 3,000 and 5,000 bytes.
        prefetch_bytes: tally(3_000, 8_000, 5_000),
    };
    assert_eq!(coverage, expected);
    let marked: Vec<bool> = applied.resources().iter().map(|of| of.in_prefetch_database).collect();
    assert_eq!(marked, [false, false, true, false]);
    // What it is used as is not known, so that no field can say it.
    assert!(applied.resources().iter().all(|of| !of.in_links));
    // What the recording says stays.
    assert_eq!((applied.redirects(), applied.servers()), (1, load().servers()));
    let known = applied.known().unwrap();
    assert_eq!(known.other_servers.len(), 1, "old.js is of a server that the page needs");
    assert_eq!(
        (known.other_servers[0].host.as_str(), known.other_resources.len()),
        ("away.test", 2)
    );
    let mut twice = coverage;
    twice.merge(&coverage);
    assert_eq!(
        (twice.servers, twice.prefetch_bytes),
        (tally(2, 2, 2), tally(6_000, 16_000, 10_000))
    );
}

#[test]
fn fields_name_what_can_be_preloaded() {
    let prefetch = [(STYLE, Kind::Style), (SCRIPT, Kind::Data), (OLD, Kind::Script)];
    let prefetch = prefetch.map(|(url, kind)| Prefetch { target: target(url), kind });
    let (applied, _) = database(PageEntry { prefetch: prefetch.into(), ..entry() }).apply(&load());
    let linked: Vec<bool> = applied.resources().iter().map(|of| of.in_links).collect();
    assert_eq!(linked, [false, false, true, false]);
    let others = &applied.known().unwrap().other_resources;
    assert!(others.iter().all(|of| of.url == OLD && of.in_links));
}

#[test]
fn of_other_pages_it_knows_nothing() {
    let (applied, coverage) = database(page_entry("https://b.test/")).apply(&load());
    let nothing = Coverage {
        pages: tally(0, 0, 1),
        redirects: tally(0, 0, 1),
        servers: tally(0, 0, 2),
        http2: tally(1, 0, 1),
        prefetch: tally(0, 0, 2),
        prefetch_bytes: tally(0, 0, 8_000),
    };
    assert_eq!(coverage, nothing);
    let databases = "redirect-db+prefetch-db+server-db";
    for profile in [network(), published()] {
        assert_eq!(loads(&profile, &applied, databases), loads(&profile, &load(), "none"));
    }
}

#[test]
fn redirects_that_lead_elsewhere_are_no_help() {
    let mut elsewhere = entry();
    elsewhere.redirects[0].hops[0].to = target("https://www.a.test/moved");
    let (applied, coverage) = database(elsewhere).apply(&load());
    assert_eq!(coverage.redirects, tally(0, 1, 1));
    assert_eq!(loads(&network(), &applied, "redirect-db"), loads(&network(), &load(), "none"));
    // A page that redirects no more, but is known to.
    let direct = page_behind(0, &[asked(FIRST)]);
    assert_eq!(database(entry()).apply(&direct).1.redirects, tally(0, 1, 0));
}

#[test]
fn techniques_save_what_the_database_knows() {
    let whole = load();
    let (applied, _) = database(entry()).apply(&whole);
    for profile in [network(), published()] {
        let none = last(&loads(&profile, &whole, "none"));
        // The redirect is known in both.
        let redirect = last(&loads(&profile, &applied, "redirect-db"));
        assert_eq!(redirect, last(&loads(&profile, &whole, "redirect-db")));
        assert!(redirect < none);
        // The style sheet comes at once; so the script comes sooner, too.
        assert!(last(&loads(&profile, &applied, "prefetch-db")) < none);
    }
    // The document's server is known, and connected to behind the redirect's back; only the
    // recording shows that cdn.test is needed as well.
    let [all, known] = [&whole, &applied].map(|page| last(&loads(&network(), page, "server-db")));
    assert!(all < known && known < last(&loads(&network(), &whole, "none")));
}

#[test]
fn unneeded_entries_are_loaded_and_not_waited_for() {
    let page = load();
    let (applied, _) = database(entry()).apply(&page);
    let [none, servers, prefetched] = ["none", "server-db", "prefetch-db"]
        .map(|techniques| loads(&network(), &applied, techniques));
    let without = loads(&network(), &page, "none").connections;
    assert_eq!((none.resources.len(), none.connections), (4, without));
    // Two to away.test that nothing is asked of; the document's is there a moment sooner.
    assert_eq!(servers.connections, without + 2);
    // One, for what was prefetched from there; and as it is not known what cdn.test speaks, a
    // second one there.
    assert_eq!((prefetched.resources.len(), prefetched.connections), (4, without + 2));
    // On a slow link it costs what it weighs.
    let mut wasteful = entry();
    wasteful.prefetch.extend((0..100).map(|number| Prefetch {
        target: target(&format!("https://cdn.test/{number}")),
        kind: Kind::Image,
    }));
    let (wasteful, _) = database(wasteful).apply(&page);
    let [wasteful, applied] =
        [&wasteful, &applied].map(|page| last(&loads(&link(Some(50_000)), page, "prefetch-db")));
    // A hundred times 4,000 bytes at 50 kB/s are 8 s; no less than half of that is before the end
    // of the last.
    assert!(wasteful > applied + Duration::from_secs(4), "{wasteful:?} {applied:?}");
}

#[test]
fn http2_is_known_host_by_host() {
    let mut requests = vec![asked(DOCUMENT)];
    requests.extend((0..6).map(|number: u32| Asked {
        parent: Some(0),
        ..asked(&format!("https://cdn.test/{number}"))
    }));
    let page = page_behind(0, &requests);
    // One to the document, and one instead of six.
    for (known, connections) in [("cdn.test", 2), ("other.test", 7)] {
        let http2 = [(known.to_owned(), Http2::Http2)].into();
        let database =
            Database::new(UnixSeconds(1), Parts::ALL, vec![page_entry(DOCUMENT)], http2).unwrap();
        let load = loads(&network(), &database.apply(&page).0, "http2-db");
        assert_eq!(load.connections, connections, "{known}");
    }
}

fn network() -> Profile {
    link(None)
}

fn link(down: Option<u64>) -> Profile {
    let link = tcp::Link { rtt: Duration::from_millis(100), down, ..tcp::Link::default() };
    Profile::Tcp(tcp::Settings { link, ..tcp::Settings::default() })
}

fn published() -> Profile {
    Profile::Blast(blast::Settings::default())
}

fn loads(profile: &Profile, page: &Page, techniques: &str) -> Load {
    let model = Model { profile: profile.clone(), hit_rate: 1.0, seed: 0, draws: 1 };
    let mut load = None;
    model.loads(page, techniques.parse().unwrap(), |_, one| load = Some(one));
    load.unwrap()
}

fn last(load: &Load) -> Duration {
    load.full_load_time()
}
