//! Pages from HAR files, as different programs write them.

use std::io::Read;
use std::time::Duration;

use headstart_pageload::har::{self, Har, HarError, Kind, Priority, Recording};
use headstart_pageload::page::{
    BYTES_MAX, Confidence, Dependency, PageError, Part, Protocol, Reason, Resource,
};
use headstart_pageload::sim::blast::{Plan, Settings, Simulator};
use headstart_pageload::tree::{CriticalPath, Tree};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{Repeated, with};

const DOCUMENT: &str = "https://a.test/";

fn file(pages: Value, entries: &[Value]) -> Value {
    let creator = json!({ "name": "test" });
    json!({ "log": { "version": "1.2", "creator": creator, "pages": pages, "entries": entries } })
}

fn one_page() -> Value {
    json!([{
        "id": "page_1", "title": DOCUMENT, "startedDateTime": at(0),
        "pageTimings": { "onContentLoad": 400, "onLoad": 900.5 },
    }])
}

fn at(ms: u64) -> String {
    format!("2026-11-21T10:00:{:02}.{:03}Z", ms / 1000, ms % 1000)
}

/// Asked for at a time, over an open connection: the first byte came after 100 ms, the last after
/// 100 more.
fn entry(url: &str, started: u64, initiator: Value) -> Value {
    json!({
        "pageref": "page_1",
        "_initiator": initiator,
        "_priority": "High",
        "_resourceType": "script",
        "_connectionId": "7",
        "connection": "443",
        "serverIPAddress": "192.0.2.1",
        "startedDateTime": at(started),
        "time": 200,
        "request": {
            "method": "GET", "url": url, "headers": [], "headersSize": 300, "bodySize": 0,
        },
        "response": {
            "status": 200, "httpVersion": "h2", "headers": [], "headersSize": -1, "bodySize": -1,
            "redirectURL": "", "content": { "size": 9000, "mimeType": "text/javascript" },
            "_transferSize": 1000, "_error": null, "_fetchedViaServiceWorker": false,
        },
        "timings": {
            "blocked": 0, "dns": -1, "connect": -1, "ssl": -1,
            "send": 0, "wait": 100, "receive": 100,
        },
    })
}

fn document() -> Value {
    let opened =
        with(entry(DOCUMENT, 0, json!({ "type": "other" })), "/_resourceType", json!("document"));
    let timings = json!({
        "blocked": 5, "dns": 15, "connect": 50, "ssl": 30, "send": 0, "wait": 100, "receive": 100
    });
    with(with(opened, "/timings", timings), "/time", json!(270))
}

fn parser(url: &str) -> Value {
    json!({ "type": "parser", "url": url, "lineNumber": 3 })
}

fn script(frames: &[&str]) -> Value {
    let frames: Vec<Value> =
        frames.iter().map(|url| json!({ "functionName": "f", "url": url })).collect();
    json!({ "type": "script", "stack": { "callFrames": frames } })
}

fn read(file: &Value) -> Result<Har, HarError> {
    har::read(file.to_string().as_bytes())
}

fn page(entries: &[Value]) -> Recording {
    let mut har = read(&file(one_page(), entries)).unwrap();
    assert_eq!((har.recordings.len(), har.entries), (1, entries.len()));
    let recording = har.recordings.pop().unwrap();
    let page = &recording.page;
    assert_eq!(page.resources().len() + page.ignored().total(), entries.len());
    recording
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn after(on: usize, part: Part, then: u64) -> Dependency {
    Dependency { on, part, then: ms(then) }
}

fn ignored(recording: &Recording) -> Vec<(Reason, usize)> {
    recording.page.ignored().iter().collect()
}

#[test]
fn a_page_as_chromium_records_it() {
    let style = with(
        entry("https://a.test/a.css", 220, parser(DOCUMENT)),
        "/_resourceType",
        json!("stylesheet"),
    );
    let code = entry("https://b.test/b.js", 290, parser(DOCUMENT));
    let data = entry("https://b.test/data", 500, script(&["https://b.test/b.js", DOCUMENT]));
    let recording = page(&[document(), style, code, data]);
    let page = &recording.page;
    assert_eq!(page.name(), DOCUMENT);
    let resources = page.resources();
    assert!(resources[0].dependencies.is_empty());
    // Of the 100 ms in which the document came 50 had passed.
    assert_eq!(resources[1].dependencies, [after(0, Part::Bytes(500), 0)]);
    assert_eq!(resources[2].dependencies, [after(0, Part::Whole, 20)]);
    // The script came last, so that its run decided; the document had to be there.
    assert_eq!(resources[3].dependencies, [after(2, Part::Whole, 10), after(0, Part::Whole, 0)]);
    let timings = resources[0].measured.unwrap();
    assert_eq!(
        [timings.queued, timings.dns, timings.connect, timings.tls],
        [5, 15, 20, 30].map(ms)
    );
    assert_eq!((timings.wait, timings.receive, timings.end()), (ms(100), ms(100), ms(270)));
    // A round trip is what TCP took.
    assert_eq!(resources[0].server_time, ms(80));
    // Nothing says how long one to the other server is, so that the shortest answer counts.
    assert_eq!(
        (resources[2].server_time, recording.round_trips[1]),
        (ms(80), ms(20)),
        "same address"
    );
    assert_eq!((resources[0].request_bytes, resources[0].response_bytes), (300, 1000));
    assert_eq!(
        resources.iter().map(|one| one.connection).collect::<Vec<_>>(),
        [Some(0), Some(0), Some(1), Some(1)]
    );
    let servers: Vec<_> =
        page.servers().iter().map(|one| (one.host.as_str(), one.port, one.tls)).collect();
    assert_eq!(servers, [("a.test", 443, true), ("b.test", 443, true)]);
    assert!(
        page.servers().iter().all(|one| one.protocol == Protocol::Http2 && one.address.is_some())
    );
    let facts = recording.facts[1];
    assert_eq!(
        (facts.kind, facts.priority, facts.status),
        (Kind::Style, Some(Priority::High), 200)
    );
    assert_eq!(page.recorded().on_load, Some(Duration::from_micros(900_500)));
    assert_eq!(page.recorded().page_load_time, Some(ms(700)));
    let parents = recording.parents;
    assert_eq!((parents.roots, parents.recorded, parents.unknown_initiators), (1, 3, 0));
    let path = CriticalPath::from_page(page).unwrap();
    assert_eq!(path.steps.iter().map(|step| step.resource).collect::<Vec<_>>(), [0, 2, 3]);
    assert_eq!(path.breakdown.total(), ms(700));
    assert_eq!(Tree::from_page(page).shape(page).min_rtt, 5);
}

/// A page that redirects, and whose scripts fetch data, set timers, and were redirected themselves.
#[test]
fn resources_of_early_hints_give_no_round_trip_time() {
    let [plain, hinted] =
        ["https://a.test/b.js", "https://a.test/h.js"].map(|url| entry(url, 275, parser(DOCUMENT)));
    let hinted = with(hinted, "/_fromEarlyHints", json!(true));
    let hinted = with(with(hinted, "/timings/wait", json!(1)), "/time", json!(101));
    let recording = page(&[document(), plain, hinted]);
    let server_times: Vec<Duration> =
        recording.page.resources().iter().map(|resource| resource.server_time).collect();
    // TCP took 20 ms to connect; what came out of the cache took none.
    assert_eq!(server_times, [ms(80), ms(80), ms(0)]);
}

#[test]
fn a_page_that_chromium_recorded() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/chromium.har");
    let har = har::read(std::fs::File::open(file).unwrap()).unwrap();
    let recording = &har.recordings[0];
    let resources = recording.page.resources();
    let paths: Vec<&str> = resources
        .iter()
        .map(|resource| resource.url.trim_start_matches("http://127.0.0.1:8000"))
        .collect();
    let parents: Vec<(&str, &str)> = resources
        .iter()
        .zip(&paths)
        .filter_map(|(resource, path)| Some((*path, paths[resource.parent()?])))
        .collect();
    assert_eq!(
        parents,
        [
            ("/", "/start"),
            ("/a.css", "/"),
            ("/a.js", "/"),
            ("/1.png", "/"),
            ("/data.json", "/a.js"),
            ("/bg.png", "/a.css"),
            ("/moved.js", "/"),
            ("/2.png", "/"),
            ("/late.js", "/a.js"),
            ("/there.js", "/moved.js"),
            ("/end.json", "/late.js"),
            ("/pixel.png", "/there.js"),
            // Nobody asked for it.
            ("/favicon.ico", "/there.js"),
        ]
    );
    assert_eq!((recording.page.redirects(), recording.parents.recorded), (1, 12));
    // The document came over 400 ms: what it names first was asked for first, and before all of it
    // was there.
    let whole = resources[1].response_bytes;
    let [style, script, image] =
        [2, 3, 4].map(|id: usize| resources[id].dependencies[0].part.bytes_of(whole));
    assert!(style <= script && script < image && image < whole);
    let total = recording.parents.agreement.total();
    assert_eq!((total.of, total.agreed), (10, 7), "of what the rule says");
    // It can be loaded in simulated time.
    let settings = Settings::default();
    let load = Simulator::new().load(&Plan::new(&recording.page, &settings), &settings, 1);
    assert!(load.resources.iter().all(|times| times.last > times.created));
    // The server sleeps for 60 ms before it answers.
    assert!(resources.iter().all(|one| one.server_time >= ms(60)));
}

/// Without initiators, with the TLS time beside that of connecting, and ports for connections.
fn of_firefox(url: &str, started: u64, timings: Value, mime_type: &str) -> Value {
    let sum: u64 = timings.as_object().unwrap().values().filter_map(Value::as_u64).sum();
    json!({
        "pageref": "page_1",
        "startedDateTime": at(started).replace('Z', "+00:00"),
        "request": {
            "bodySize": 0, "method": "GET", "url": url, "httpVersion": "HTTP/1.1", "cookies": [],
            "headers": [{ "name": "Host", "value": "a.test" }], "queryString": [],
            "headersSize": 386,
        },
        "response": {
            "status": 200, "statusText": "OK", "httpVersion": "HTTP/1.1", "headers": [],
            "cookies": [], "content": { "mimeType": mime_type, "size": 5000 }, "redirectURL": "",
            "headersSize": 100, "bodySize": 2000,
        },
        "cache": {}, "timings": timings, "time": sum, "_securityState": "secure",
        "serverIPAddress": "192.0.2.1", "connection": "443",
    })
}

#[test]
fn a_page_as_firefox_records_it() {
    let opening = json!({
        "blocked": 0, "dns": 10, "connect": 40, "ssl": 50, "send": 0, "wait": 100, "receive": 100,
    });
    let reused = json!({
        "blocked": 0, "dns": 0, "connect": 0, "ssl": 0, "send": 0, "wait": 40, "receive": 60,
    });
    let pages = json!([{
        "startedDateTime": 0, "id": "page_1", "title": "A\u{1b}[31m page",
        "pageTimings": { "onContentLoad": -1, "onLoad": 700 },
    }]);
    let entries = [
        of_firefox(DOCUMENT, 0, opening, "text/html"),
        of_firefox("https://a.test/b.js", 250, reused.clone(), "application/javascript"),
        of_firefox("https://a.test/c.png", 320, reused.clone(), "image/png"),
        of_firefox("https://a.test/d.json", 400, reused, "application/json"),
        // Out of the cache.
        with(
            with(
                of_firefox("https://a.test/e.css", 260, json!({}), "text/css"),
                "/response/bodySize",
                json!(0),
            ),
            "/serverIPAddress",
            json!(null),
        ),
    ];
    let har = read(&file(pages, &entries)).unwrap();
    let recording = &har.recordings[0];
    let page = &recording.page;
    assert_eq!(page.name(), "A [31m page");
    assert_eq!(ignored(recording), [(Reason::Cached, 1)]);
    let timings = page.resources()[0].measured.unwrap();
    assert_eq!((timings.connect, timings.tls, timings.end()), (ms(40), ms(50), ms(300)));
    assert_eq!(page.resources()[0].response_bytes, 2100);
    assert!(page.resources().iter().all(|one| one.connection.is_none()));
    let found: Vec<_> = page.resources().iter().map(|one| (one.parent(), one.confidence)).collect();
    // Both the document and the script are parents, and the script came last; the image cannot have
    // asked for the data.
    let (only, last) = (Confidence::Only, Confidence::Last);
    let by_rule = [(Some(0), only), (Some(1), last), (Some(1), only)];
    assert_eq!(found[1..], by_rule);
    assert_eq!(page.resources()[1].dependencies, [after(0, Part::Bytes(1050), 0)]);
    assert_eq!(recording.parents.agreement.total().of, 0, "nothing to compare with");
}

fn redirect(url: &str, started: u64, to: &str) -> Value {
    let other = entry(url, started, json!({ "type": "other" }));
    with(with(other, "/response/status", json!(301)), "/response/redirectURL", json!(to))
}

#[test]
fn redirects_lead_to_what_follows() {
    let entries = [
        redirect("http://a.test/", 0, "https://a.test/old"),
        redirect("https://a.test/old", 200, "/#top"),
        with(document(), "/startedDateTime", json!(at(400))),
        redirect("https://b.test/x.js", 650, "x2.js"),
        entry("https://b.test/x2.js", 850, parser(DOCUMENT)),
    ];
    let recording = page(&entries);
    let page = &recording.page;
    assert_eq!(page.redirects(), 2);
    let parents: Vec<_> = page.resources().iter().map(Resource::parent).collect();
    assert_eq!(parents, [None, Some(0), Some(1), Some(2), Some(3)]);
    let redirects: Vec<_> = page.resources().iter().map(|one| one.redirect).collect();
    assert_eq!(redirects, [true, true, false, true, false]);
    assert!(!page.servers()[0].tls);
    assert_eq!(page.without_redirects(|_| true).resources().len(), 3);
}

/// Chromium answers by itself, from the list of sites that are only spoken to over TLS (RFC 6797).
#[test]
fn redirects_to_https_by_the_browser_cost_nothing() {
    let internal = with(entry("http://a.test/", 0, json!(null)), "/response/status", json!(307));
    let internal = with(internal, "/response/redirectURL", json!(DOCUMENT));
    let internal = with(internal, "/response/_transferSize", json!(0));
    let internal = with(internal, "/serverIPAddress", json!(""));
    let timings = json!({ "blocked": 10, "send": 0, "wait": -1.4, "receive": 0 });
    let internal = with(internal, "/timings", timings);
    let later = with(document(), "/startedDateTime", json!(at(9)));
    let style = entry("https://a.test/a.css", 300, parser(DOCUMENT));
    let recording = page(&[internal, later, style]);
    assert_eq!(ignored(&recording), [(Reason::Cached, 1)]);
    assert_eq!((recording.page.redirects(), recording.parents.roots), (0, 1));
    let resources = recording.page.resources();
    assert_eq!(resources[0].measured.unwrap().started, Duration::ZERO, "it is the first");
    assert_eq!(resources[1].dependencies, [after(0, Part::Whole, 21)]);
}

#[test]
fn a_redirect_to_itself_ends() {
    let own = with(entry(DOCUMENT, 0, json!(null)), "/response/status", json!(302));
    let own = with(own, "/response/redirectURL", json!(DOCUMENT));
    let again = with(own.clone(), "/startedDateTime", json!(at(300)));
    let recording = page(&[own, again, with(document(), "/startedDateTime", json!(at(600)))]);
    let parents: Vec<_> = recording.page.resources().iter().map(Resource::parent).collect();
    assert_eq!((parents, recording.page.redirects()), (vec![None, Some(0), Some(1)], 2));
}

/// A script that the document names.
fn other(url: &str) -> Value {
    entry(url, 300, parser(DOCUMENT))
}

#[test]
fn entries_that_are_no_resources_are_counted() {
    let cases = [
        (other("data:text/plain,x"), Reason::NotFetched),
        (other("blob:https://a.test/1"), Reason::NotFetched),
        (other("chrome-extension://abc/x.js"), Reason::NotFetched),
        (other("wss://a.test/socket"), Reason::WebSocket),
        (
            with(other("https://a.test/socket"), "/_resourceType", json!("websocket")),
            Reason::WebSocket,
        ),
        (with(other("https://a.test/socket"), "/response/status", json!(101)), Reason::WebSocket),
        (other("https://"), Reason::Url),
        (other("no url"), Reason::Url),
        (other(&format!("https://{}/", "a.".repeat(200))), Reason::Url),
        (with(other("https://a.test/"), "/_fromCache", json!("disk")), Reason::Cached),
        (
            with(
                with(other("https://a.test/"), "/response/_transferSize", json!(0)),
                "/serverIPAddress",
                json!(""),
            ),
            Reason::Cached,
        ),
        (
            with(other("https://a.test/"), "/response/_fetchedViaServiceWorker", json!(true)),
            Reason::ServiceWorker,
        ),
        (with(other("https://a.test/"), "/_fetchType", json!("Memory Cache")), Reason::Cached),
        (
            with(other("https://a.test/"), "/_fetchType", json!("Service Worker")),
            Reason::ServiceWorker,
        ),
        (with(other("https://a.test/"), "/_was_pushed", json!("1")), Reason::Pushed),
        (with(other("https://a.test/"), "/_initiator", json!({ "type": "push" })), Reason::Pushed),
        (
            with(other("https://a.test/"), "/response/_error", json!("net::ERR_ABORTED")),
            Reason::Aborted,
        ),
        (
            with(other("https://a.test/"), "/response/_failureText", json!("net::ERR_TIMED_OUT")),
            Reason::Aborted,
        ),
        (
            with(other("https://a.test/"), "/response/_error", json!("net::ERR_BLOCKED_BY_CLIENT")),
            Reason::Blocked,
        ),
        (with(other("https://a.test/"), "/response/status", json!(0)), Reason::Aborted),
        (with(other("https://a.test/"), "/response", json!(null)), Reason::Aborted),
        (with(other("https://a.test/"), "/request", json!(null)), Reason::Malformed),
        (with(other("https://a.test/"), "/request", json!({})), Reason::Malformed),
        (with(other("https://a.test/"), "/startedDateTime", json!("yesterday")), Reason::Times),
        (with(other("https://a.test/"), "/startedDateTime", json!({})), Reason::Times),
        (
            with(other("https://a.test/"), "/startedDateTime", json!("1999-12-31T23:59:59.999Z")),
            Reason::Times,
        ),
        (
            with(other("https://a.test/"), "/startedDateTime", json!("9999-12-31T23:59:59.999Z")),
            Reason::Times,
        ),
        (with(other("https://a.test/"), "/timings", json!(null)), Reason::Times),
        (with(other("https://a.test/"), "/timings/wait", json!(-7)), Reason::Times),
        (with(other("https://a.test/"), "/timings/receive", json!(null)), Reason::Times),
        (with(other("https://a.test/"), "/startedDateTime", json!(at(40_000))), Reason::Late),
    ];
    for (entry, reason) in cases {
        let recording = page(&[document(), entry.clone()]);
        assert_eq!(ignored(&recording), [(reason, 1)], "{entry}");
    }
    // A page of which nothing is left.
    let cached = with(document(), "/_fromCache", json!("memory"));
    let local = with(entry("data:,x", 0, json!(null)), "/timings", json!(null));
    let error = read(&file(one_page(), &[cached, local.clone(), local])).unwrap_err();
    assert!(matches!(&error, HarError::AllIgnored(ignored) if ignored.total() == 3), "{error}");
    assert_eq!(
        error.to_string(),
        "none of its requests is a resource of a page: 1 from the browser's cache, \
         2 data:, blob: and other URLs of no server"
    );
}

/// Neither a page of centuries, nor one without resources: the clock of most requests is right.
#[test]
fn wrong_clocks_are_told_by_most_requests() {
    let [wrong, one, two] =
        [300, 400, 500].map(|ms| entry(&format!("https://a.test/{ms}"), ms, parser(DOCUMENT)));
    let wrong = with(wrong, "/startedDateTime", json!("1970-01-01T00:00:00Z"));
    let entries = [wrong, document(), one, two];
    let [early, late] = ["1970-01-02T12:00:00Z", "9999-01-01T00:00:00Z"]
        .map(|started| with(one_page(), "/0/startedDateTime", json!(started)));
    for pages in [one_page(), early, late, json!([])] {
        let mut har = read(&file(pages.clone(), &entries)).unwrap();
        let recording = har.recordings.remove(0);
        assert_eq!(ignored(&recording), [(Reason::Times, 1)], "{pages}");
        assert_eq!(recording.page.resources().len(), 3);
        assert_eq!(recording.page.recorded().page_load_time, Some(ms(700)));
    }
}

#[test]
fn an_initiator_may_be_no_resource_itself() {
    let cached = with(
        entry("https://a.test/cached.js", 280, parser(DOCUMENT)),
        "/_fromCache",
        json!("disk"),
    );
    let timings = json!({ "blocked": 0, "send": 0, "wait": 2, "receive": 3 });
    let cached = with(cached, "/timings", timings);
    let asked = entry("https://a.test/asked", 300, script(&["https://a.test/cached.js"]));
    let recording = page(&[document(), cached, asked]);
    let [_, asked] = recording.page.resources() else { panic!("two resources") };
    assert_eq!(asked.dependencies, [after(0, Part::Whole, 30)], "the script's own time is in it");
    assert_eq!(asked.confidence, Confidence::Recorded);
}

#[test]
fn initiators_that_cannot_be_are_counted() {
    let entries = [
        document(),
        entry("https://a.test/a.js", 300, script(&["https://a.test/b.js"])),
        entry("https://a.test/b.js", 510, script(&["https://a.test/a.js"])),
        entry("https://a.test/c.js", 705, script(&["https://a.test/nowhere.js"])),
        entry("https://a.test/d.js", 730, script(&["https://a.test/d.js"])),
    ];
    let recording = page(&entries);
    let found: Vec<_> =
        recording.page.resources().iter().map(|one| (one.parent(), one.confidence)).collect();
    let (only, recorded) = (Confidence::Only, Confidence::Recorded);
    // The third waited for what is said; where it is said wrongly, what came 5 ms, and what came 30
    // ms before counts.
    let expected =
        [(None, recorded), (Some(0), only), (Some(1), recorded), (Some(2), only), (Some(2), only)];
    assert_eq!(found, expected);
    let parents = recording.parents;
    assert_eq!((parents.impossible_initiators, parents.unknown_initiators), (1, 1));
}

#[test]
fn the_rule_is_compared_with_what_is_recorded() {
    let entries = [
        document(),
        entry("https://a.test/a.js", 220, parser(DOCUMENT)),
        entry("https://a.test/b.js", 225, parser(DOCUMENT)),
        // Just after a.js, and while b.js came.
        entry("https://a.test/c.js", 421, script(&["https://a.test/a.js"])),
        // Just after c.js; but it was the document's timer.
        entry("https://a.test/d.js", 640, script(&[DOCUMENT])),
    ];
    let agreement = page(&entries).parents.agreement;
    let total = agreement.total();
    assert_eq!((total.of, total.agreed), (4, 2), "{agreement:?}");
    assert_eq!((agreement.only.of, agreement.only.agreed), (3, 2));
    assert_eq!(total.share(), Some(0.5));
}

#[test]
fn preflights_come_before_what_they_ask_leave_for() {
    let preflight = with(
        entry(
            "https://b.test/data",
            290,
            json!({ "type": "preflight", "url": "https://b.test/data" }),
        ),
        "/request/method",
        json!("OPTIONS"),
    );
    let data = entry("https://b.test/data", 490, script(&[DOCUMENT]));
    let recording = page(&[document(), preflight, data]);
    let [_, preflight, data] = recording.page.resources() else { panic!("three resources") };
    assert_eq!(preflight.dependencies, [after(0, Part::Whole, 20)]);
    assert_eq!(data.dependencies, [after(1, Part::Whole, 0), after(0, Part::Whole, 0)]);
}

#[test]
fn stacks_name_scripts_by_the_url_before_redirects() {
    let moved = with(
        entry("https://a.test/moved.js", 290, parser(DOCUMENT)),
        "/response/status",
        json!(301),
    );
    let moved = with(moved, "/response/redirectURL", json!("there.js"));
    let there = entry("https://a.test/there.js", 490, parser(DOCUMENT));
    let asked = entry("https://a.test/pixel", 700, script(&["https://a.test/moved.js"]));
    let recording = page(&[document(), moved, there, asked]);
    assert_eq!(recording.page.resources()[3].dependencies, [after(2, Part::Whole, 10)]);
}

#[test]
fn a_script_waits_for_the_data_that_it_asked_for() {
    let asking = "https://a.test/a.js";
    let data = entry("https://a.test/data", 500, script(&[asking]));
    let entries = [
        document(),
        entry(asking, 290, parser(DOCUMENT)),
        with(data, "/_resourceType", json!("fetch")),
        // 30 ms after the data; 51 ms after; of another script.
        entry("https://a.test/then", 730, script(&[asking])),
        entry("https://a.test/later", 751, script(&[asking])),
        entry("https://a.test/other", 740, script(&[DOCUMENT])),
    ];
    let recording = page(&entries);
    for (url, dependencies) in [
        ("then", vec![after(2, Part::Whole, 30), after(1, Part::Whole, 0)]),
        ("later", vec![after(1, Part::Whole, 261)]),
        ("other", vec![after(0, Part::Whole, 470)]),
    ] {
        let found = recording.page.resources().iter().find(|one| one.url.ends_with(url));
        assert_eq!(found.unwrap().dependencies, dependencies, "{url}");
    }
}

#[test]
fn fonts_of_others_have_connections_of_their_own() {
    let [own, theirs, code] = [
        ("https://a.test/own.woff2", 290, "font"),
        ("https://b.test/theirs.woff2", 291, "font"),
        ("https://b.test/code.js", 292, "script"),
    ]
    .map(|(url, started, kind)| {
        with(entry(url, started, parser(DOCUMENT)), "/_resourceType", json!(kind))
    });
    let recording = page(&[document(), own, theirs, code]);
    let servers: Vec<_> =
        recording.page.servers().iter().map(|one| (one.host.as_str(), one.anonymous)).collect();
    assert_eq!(servers, [("a.test", false), ("b.test", true), ("b.test", false)]);
}

#[test]
fn data_of_others_have_connections_of_their_own_where_these_carry_nothing_else() {
    let mut entries = vec![document()];
    entries.extend(
        [
            ("https://b.test/code.js", "script", "1", 290),
            ("https://b.test/data", "xhr", "2", 291),
            ("https://c.test/code.js", "script", "3", 292),
            ("https://c.test/data", "fetch", "3", 293),
            ("https://a.test/data", "xhr", "4", 294),
        ]
        .map(|(url, kind, connection, started)| {
            let entry = with(entry(url, started, parser(DOCUMENT)), "/_resourceType", json!(kind));
            with(entry, "/_connectionId", json!(connection))
        }),
    );
    let recording = page(&entries);
    let servers: Vec<_> =
        recording.page.servers().iter().map(|one| (one.host.as_str(), one.anonymous)).collect();
    let expected = [("a.test", false), ("b.test", false), ("b.test", true), ("c.test", false)];
    assert_eq!(servers, expected);
}

#[test]
fn several_pages_of_a_file() {
    let pages = json!([
        { "id": "p1", "title": "one", "startedDateTime": at(0), "pageTimings": {} },
        {
            "id": "p2", "title": "two", "startedDateTime": at(10_000),
            "pageTimings": { "onLoad": null },
        },
        { "id": "p3", "title": "three", "startedDateTime": at(20_000) },
    ]);
    let second = with(document(), "/startedDateTime", json!(at(10_000)));
    let script = entry("https://a.test/x.js", 10_300, parser(DOCUMENT));
    let entries = [
        (json!("p2"), second),
        (json!("p1"), document()),
        // Chromium leaves it out for some.
        (json!(null), script),
        (json!("p4"), document()),
        (json!("p3"), entry("data:,x", 0, json!(null))),
    ]
    .map(|(page, entry)| with(entry, "/pageref", page));
    let har = read(&file(pages, &entries)).unwrap();
    let found: Vec<_> = har
        .recordings
        .iter()
        .map(|recording| (recording.page.name(), recording.page.resources().len()))
        .collect();
    assert_eq!(found, [("one", 1), ("two", 2)]);
    let none: Vec<_> = har.ignored.iter().collect();
    assert_eq!(none, [(Reason::NotFetched, 1), (Reason::NoPage, 1)]);
    assert_eq!(har.entries, 5);
    // Without a list of pages, those that entries name; or all is one.
    let [p, q, nameless] =
        [json!("p"), json!("q"), json!(null)].map(|page| with(document(), "/pageref", page));
    let named = read(&json!({ "log": { "entries": [p, q] } })).unwrap();
    assert_eq!(named.recordings.len(), 2);
    let one = read(&json!({ "log": { "entries": [nameless], "pages": null } }));
    assert_eq!(one.unwrap().recordings[0].page.name(), DOCUMENT);
}

fn error(bytes: &[u8]) -> HarError {
    har::read(bytes).unwrap_err()
}

#[test]
fn malformed_har_files_are_refused_with_the_position() {
    assert!(matches!(error(b""), HarError::NoBytes));
    assert!(matches!(error(b"\x1f\x08"), HarError::Json { .. }));
    assert!(matches!(error(b"\x1f\x8b\x08\0\0\0\0\0\0"), HarError::Compressed("zcat")));
    assert!(matches!(error(br#"{"log": {"entries": []}}"#), HarError::Empty));
    assert!(error(br#"{"log": {}}"#).to_string().contains("missing field `entries`"));
    assert!(error(br#"{"entries": []}"#).to_string().contains("missing field `log`"));
    let whole = serde_json::to_string_pretty(&file(one_page(), &[document(), document()])).unwrap();
    let cut = error(&whole.as_bytes()[..whole.len() - 400]);
    assert!(cut.to_string().contains("entry 1 (from 0): EOF while parsing"), "{cut}");
    assert_eq!(cut.hint(), "the file is cut off; save it again");
    let wrong = read(&file(one_page(), &[document(), with(document(), "/timings", json!("x"))]))
        .unwrap_err();
    assert!(wrong.to_string().contains("entry 1 (from 0): invalid type: string \"x\""), "{wrong}");
    assert!(wrong.to_string().contains("at line 1 column"), "{wrong}");
    let mut latin = whole.into_bytes();
    let place = latin.windows(6).position(|window| window == b"a.test").unwrap();
    latin[place] = 0xe4;
    let latin = error(&latin);
    assert!(latin.to_string().contains("invalid unicode code point at line"), "{latin}");
}

#[test]
fn byte_order_marks_are_skipped() {
    let text = format!("\u{feff}{}", file(one_page(), &[document()]));
    assert_eq!(har::read(text.as_bytes()).unwrap().entries, 1);
}

#[test]
fn one_resource_and_five_thousand() {
    assert_eq!(page(&[document()]).page.resources().len(), 1);
    let others = (0..5000_u64).map(|number| {
        entry(&format!("https://a.test/{number}.js"), 300 + number / 10, json!(null))
    });
    let entries: Vec<Value> = [document()].into_iter().chain(others).collect();
    let recording = page(&entries);
    assert_eq!(recording.page.resources().len(), 5001);
    assert!(recording.page.resources()[1..].iter().all(|one| one.parent().is_some()));
}

#[test]
fn more_entries_than_a_page_may_have_are_counted() {
    let count = har::limits::ENTRIES + 10;
    let small = json!({
        "startedDateTime": at(0), "request": { "url": DOCUMENT }, "response": { "status": 200 },
        "timings": { "wait": 0, "receive": 0 },
    });
    let entry = format!(",{small}").into_bytes();
    let head = format!("{{\"log\": {{\"entries\": [{small}");
    let head = head.as_bytes();
    let input = head.chain(Repeated::new(&entry, count - 1)).chain(&b"]}}"[..]);
    let har = har::read(input).unwrap();
    assert_eq!(har.entries, count);
    assert_eq!(ignored(&har.recordings[0]), [(Reason::TooMany, 10)]);
}

/// A value that may stand anywhere.
fn odd() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!(null)),
        Just(json!(-1)),
        Just(json!(-5000.5)),
        Just(json!(1e300)),
        Just(json!("")),
        Just(json!("https://a.test/1.js")),
        Just(json!("http://[::1]:99999/")),
        Just(json!("data:,")),
        Just(json!([])),
        Just(json!({})),
        Just(json!(true)),
        Just(json!(302)),
        Just(json!("2026-11-21T09:59:00.000Z")),
        any::<i64>().prop_map(|number| json!(number)),
        ".{0,20}".prop_map(|text| json!(text)),
    ]
}

/// Ways to the places of an entry.
const PLACES: [&str; 30] = [
    "/pageref",
    "/_initiator",
    "/_initiator/type",
    "/_initiator/url",
    "/_initiator/stack",
    "/_priority",
    "/_resourceType",
    "/_connectionId",
    "/connection",
    "/serverIPAddress",
    "/startedDateTime",
    "/time",
    "/request",
    "/request/url",
    "/request/method",
    "/request/headersSize",
    "/response",
    "/response/status",
    "/response/httpVersion",
    "/response/redirectURL",
    "/response/bodySize",
    "/response/content",
    "/response/_transferSize",
    "/response/_error",
    "/timings",
    "/timings/blocked",
    "/timings/connect",
    "/timings/wait",
    "/timings/receive",
    "/timings/ssl",
];

fn mutated() -> impl Strategy<Value = Value> {
    let change = (0..8_usize, 0..PLACES.len(), odd());
    let starts = prop::collection::vec(0..2000_u64, 8);
    (starts, prop::collection::vec(change, 0..12)).prop_map(|(starts, changes)| {
        let mut entries: Vec<Value> = vec![document()];
        for (number, started) in starts.into_iter().enumerate() {
            let from = match number % 3 {
                0 => parser(DOCUMENT),
                1 => script(&[&format!("https://a.test/{}.js", number.wrapping_sub(1)), DOCUMENT]),
                _ => json!(null),
            };
            entries.push(entry(&format!("https://a.test/{number}.js"), started, from));
        }
        for (at, place, value) in changes {
            let (parent, key) = PLACES[place].rsplit_once('/').unwrap();
            if let Some(Value::Object(object)) = entries[at].pointer_mut(parent) {
                object.insert(key.into(), value);
            }
        }
        file(one_page(), &entries)
    })
}

fn check(har: &Har) -> Result<(), TestCaseError> {
    let of_pages = har
        .recordings
        .iter()
        .map(|recording| recording.page.resources().len() + recording.page.ignored().total());
    prop_assert_eq!(of_pages.sum::<usize>() + har.ignored.total(), har.entries);
    for recording in &har.recordings {
        let page = &recording.page;
        prop_assert_eq!(recording.facts.len(), page.resources().len());
        prop_assert_eq!(recording.round_trips.len(), page.servers().len());
        let last = page.resources().iter().map(|one| one.measured.unwrap().end()).max();
        let path = CriticalPath::from_page(page).unwrap();
        prop_assert_eq!(Some(path.breakdown.total()), last);
        let tree = Tree::from_page(page);
        prop_assert_eq!(tree.lines().len(), page.resources().len());
        let parents = recording.parents;
        let known = [parents.roots, parents.recorded, parents.only, parents.chosen, parents.last];
        prop_assert_eq!(known.into_iter().sum::<usize>(), page.resources().len());
    }
    Ok(())
}

proptest! {
    #[test]
    fn every_entry_is_a_resource_or_counted(file in mutated()) {
        match read(&file) {
            Ok(har) => check(&har)?,
            Err(HarError::AllIgnored(ignored)) => prop_assert_eq!(ignored.total(), 9),
            // A size that cannot be.
            Err(HarError::Page(PageError::Bytes(bytes))) => prop_assert!(bytes > BYTES_MAX),
            // A field of the specification that has another type.
            Err(HarError::Json { entry, .. }) => prop_assert!(entry.is_some()),
            Err(error) => return Err(TestCaseError::fail(error.to_string())),
        }
    }

    #[test]
    fn damaged_files_are_no_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        length in any::<prop::sample::Index>(),
    ) {
        let entries = [document(), entry("https://a.test/a.js", 300, script(&[DOCUMENT]))];
        let mut text = file(one_page(), &entries).to_string().into_bytes();
        for (at, byte) in changes {
            let at = at.index(text.len());
            text[at] = byte;
        }
        if let Ok(har) = har::read(text.as_slice()) {
            check(&har)?;
        }
        text.truncate(length.index(text.len()));
        prop_assert!(har::read(text.as_slice()).is_err());
    }
}
