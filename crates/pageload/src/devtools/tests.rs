use serde_json::{Value, json};

use super::*;
use crate::har;
use crate::page::Reason;

const WALL: f64 = 1_800_000_000.0;

fn request(id: &str, at: f64, kind: &str, url: &str, initiator: Value) -> Value {
    json!({
        "requestId": id, "timestamp": at, "wallTime": WALL + at, "type": kind, "frameId": "main",
        "initiator": initiator,
        "request": {
            "method": "GET", "url": url, "headers": { "Accept": "*/*" }, "initialPriority": "High",
        },
    })
}

fn response(status: u16, at: f64, opened: bool) -> Value {
    let connect = if opened { (0.0, 60.0) } else { (-1.0, -1.0) };
    let ssl = if opened { (20.0, 60.0) } else { (-1.0, -1.0) };
    json!({
        "status": status, "mimeType": "text/html", "protocol": "h2",
        "remoteIPAddress": "[2001:db8::1]", "connectionId": 7, "encodedDataLength": 200,
        "headers": {},
        "timing": {
            "requestTime": at, "dnsStart": -1, "dnsEnd": -1,
            "connectStart": connect.0, "connectEnd": connect.1,
            "sslStart": ssl.0, "sslEnd": ssl.1,
            "sendStart": 60, "sendEnd": 60, "receiveHeadersEnd": 80,
        },
    })
}

/// `Network.responseReceived`.
fn received(id: &str, at: f64, kind: &str, extra: bool, response: Value) -> (&'static str, Value) {
    let event = json!({
        "requestId": id, "timestamp": at, "type": kind, "hasExtraInfo": extra, "response": response,
    });
    ("Network.responseReceived", event)
}

/// `Network.dataReceived`.
fn data(id: &str, at: f64, bytes: u64, encoded: u64) -> (&'static str, Value) {
    let event = json!({
        "requestId": id, "timestamp": at, "dataLength": bytes, "encodedDataLength": encoded,
    });
    ("Network.dataReceived", event)
}

fn load(events: &[(&str, Value)]) -> Load {
    let mut load = Load::of_frame("main".into());
    for (method, event) in events {
        load.on_event(method, event);
    }
    load
}

fn read(load: &Load) -> har::Har {
    let about = About { title: "https://a.test/".into(), ..About::default() };
    har::read(load.har(&about).to_string().as_bytes()).unwrap()
}

/// A redirect, the document, a script of it, data of the script, and a picture that never comes.
fn page() -> Vec<(&'static str, Value)> {
    let parser = json!({ "type": "parser", "url": "https://a.test/en" });
    let script =
        json!({ "type": "script", "stack": { "callFrames": [{ "url": "https://a.test/s.js" }] } });
    let mut document =
        request("1", 10.1, "Document", "https://a.test/en", json!({ "type": "other" }));
    document["redirectResponse"] = response(302, 10.0, true);
    document["redirectHasExtraInfo"] = json!(true);
    vec![
        (
            "Network.requestWillBeSent",
            request("1", 10.0, "Document", "https://a.test/", json!({ "type": "other" })),
        ),
        (
            "Network.responseReceivedExtraInfo",
            json!({ "requestId": "1", "statusCode": 302, "headers": { "location": "/en" } }),
        ),
        ("Network.requestWillBeSent", document),
        (
            "Network.responseReceivedExtraInfo",
            json!({ "requestId": "1", "statusCode": 200, "headers": { "server": "x" } }),
        ),
        received("1", 10.2, "Document", true, response(200, 10.1, false)),
        data("1", 10.21, 900, 400),
        (
            "Network.requestWillBeSent",
            request("2", 10.22, "Script", "https://a.test/s.js", parser.clone()),
        ),
        (
            "Network.requestWillBeSent",
            request("3", 10.22, "Image", "https://a.test/never.png", parser),
        ),
        (
            "Network.loadingFinished",
            json!({ "requestId": "1", "timestamp": 10.25, "encodedDataLength": 620 }),
        ),
        received("2", 10.3, "Script", false, response(200, 10.22, false)),
        (
            "Network.loadingFinished",
            json!({ "requestId": "2", "timestamp": 10.32, "encodedDataLength": 1000 }),
        ),
        (
            "Network.requestWillBeSent",
            request("4", 10.33, "Fetch", "https://a.test/d.json", script),
        ),
        ("Network.requestServedFromCache", json!({ "requestId": "4" })),
        received(
            "4",
            10.34,
            "Fetch",
            false,
            json!({ "status": 200, "headers": {}, "connectionId": 0 }),
        ),
        (
            "Network.loadingFinished",
            json!({ "requestId": "4", "timestamp": 10.34, "encodedDataLength": 0 }),
        ),
        ("Page.loadEventFired", json!({ "timestamp": 10.5 })),
    ]
}

#[test]
fn a_load_is_a_har_file_with_recorded_parents() {
    let load = load(&page());
    assert_eq!((load.requests(), load.outstanding(), load.documents()), (5, 1, 1));
    assert!(load.is_loaded() && !load.is_mostly_there());
    let har = read(&load);
    let [recording] = &har.recordings[..] else { panic!("one page") };
    let urls: Vec<&str> = recording.page.resources().iter().map(|one| one.url.as_str()).collect();
    assert_eq!(urls, ["https://a.test/", "https://a.test/en", "https://a.test/s.js"]);
    let parents: Vec<_> =
        recording.page.resources().iter().map(crate::page::Resource::parent).collect();
    assert_eq!(parents, [None, Some(0), Some(1)]);
    assert_eq!((recording.parents.recorded, recording.parents.roots), (2, 1));
    assert_eq!(recording.page.redirects(), 1);
    let ignored: Vec<_> = recording.page.ignored().iter().collect();
    assert_eq!(ignored, [(Reason::Cached, 1), (Reason::Aborted, 1)]);
    let bytes: Vec<_> = recording.page.resources().iter().map(|one| one.response_bytes).collect();
    assert_eq!(bytes, [200, 620, 1000]);
    let first = recording.page.resources()[0].measured.unwrap();
    assert_eq!(
        (first.connect.as_millis(), first.tls.as_millis(), first.wait.as_millis()),
        (20, 40, 20)
    );
    assert_eq!(recording.page.recorded().on_load.unwrap().as_millis(), 500);
}

/// Loads the page with one more script that was in the cache since `at`; returns the number of
/// resources from early hints, and the last resource with its size.
fn with_cached(hinted: bool, at: f64) -> (usize, String, u64) {
    let parser = json!({ "type": "parser", "url": "https://a.test/en" });
    let answer = json!({
        "status": 200, "headers": { "content-length": "650" }, "connectionId": 0,
        "fromDiskCache": true, "fromEarlyHints": hinted, "responseTime": (WALL + at) * 1e3,
        "remoteIPAddress": "192.0.2.1",
    });
    let more = vec![
        ("Network.requestWillBeSent", request("5", 10.4, "Script", "https://a.test/h.js", parser)),
        received("5", 10.41, "Script", false, answer),
        data("5", 10.41, 700, 0),
        (
            "Network.loadingFinished",
            json!({ "requestId": "5", "timestamp": 10.42, "encodedDataLength": 0 }),
        ),
    ];
    let load = load(&[page(), more].concat());
    let har = read(&load);
    let last = har.recordings[0].page.resources().last().unwrap();
    (load.hinted(), last.url.clone(), last.response_bytes)
}

#[test]
fn resources_of_early_hints_belong_to_the_load() {
    assert_eq!(with_cached(true, 10.3), (1, "https://a.test/h.js".to_owned(), 650));
    // In the cache from before, named or not.
    let without = (0, "https://a.test/s.js".to_owned(), 1000);
    assert_eq!(with_cached(true, 9.9), without);
    assert_eq!(with_cached(false, 10.3), without);
}

#[test]
fn headers_that_come_apart_belong_to_their_hop() {
    let har = load(&page()).har(&About::default());
    let [redirect, document] = [0, 1].map(|at| &har["log"]["entries"][at]["response"]);
    assert_eq!(redirect["redirectURL"], "/en");
    assert_eq!(document["headers"], json!([{ "name": "server", "value": "x" }]));
    assert_eq!(document["status"], 200);
    let entry = &har["log"]["entries"][1];
    assert_eq!(
        (&entry["_connectionId"], &entry["serverIPAddress"]),
        (&json!("7"), &json!("2001:db8::1"))
    );
    assert_eq!(entry["startedDateTime"], "2027-01-15T08:00:10.100000Z");
    let blocked =
        json!({ "requestId": "3", "timestamp": 10.4, "errorText": "", "blockedReason": "csp" });
    let mut events = page();
    events.push(("Network.loadingFailed", blocked));
    let ignored: Vec<_> = read(&load(&events)).recordings[0].page.ignored().iter().collect();
    assert_eq!(ignored, [(Reason::Cached, 1), (Reason::Blocked, 1)]);
}

#[test]
fn the_largest_paint_is_told_since_the_first_request() {
    let mut events = page();
    events.extend([(10.4, "main"), (10.9, "other")].map(|(at, frame)| {
        let event = json!({ "event": {
            "frameId": frame, "type": "largest-contentful-paint", "time": WALL + at,
            "lcpDetails": { "renderTime": 0, "loadTime": WALL + at },
        } });
        ("PerformanceTimeline.timelineEventAdded", event)
    }));
    let load = load(&events);
    assert!((load.largest_paint_ms().unwrap() - 400.0).abs() < 0.001);
    let timings = &load.har(&About::default())["log"]["pages"][0]["pageTimings"];
    assert!((timings["_largestContentfulPaint"].as_f64().unwrap() - 400.0).abs() < 0.001);
}

#[test]
fn malformed_events_are_skipped() {
    let mut load = Load::default();
    for event in [
        json!(null),
        json!([]),
        json!({ "requestId": 7 }),
        json!({ "requestId": "1", "request": { "url": "https://a.test/" } }),
        json!({ "requestId": "1", "timestamp": 1.0, "request": { "url": "data:," } }),
        json!({ "requestId": "1", "timestamp": "soon", "request": { "url": "https://a.test/" } }),
    ] {
        for method in [
            "Network.requestWillBeSent",
            "Network.requestWillBeSentExtraInfo",
            "Network.responseReceivedExtraInfo",
            "Network.responseReceived",
            "Network.dataReceived",
            "Network.loadingFinished",
            "Network.loadingFailed",
            "Page.loadEventFired",
            "PerformanceTimeline.timelineEventAdded",
            "Else.where",
        ] {
            assert!(!load.on_event(method, &event), "{method} {event}");
        }
    }
    assert_eq!((load.requests(), load.outstanding(), load.is_mostly_there()), (0, 0, false));
    let empty = load.har(&About::default());
    assert_eq!(empty["log"]["entries"], json!([]));
}

#[test]
fn requests_are_bounded_and_counted() {
    let mut load = Load::default();
    for number in 0..ENTRIES + 10 {
        let url = format!("https://a.test/{number}");
        load.on_event("Network.requestWillBeSent", &request(&url, 1.0, "Image", &url, Value::Null));
    }
    assert_eq!((load.requests(), load.outstanding()), (ENTRIES + 10, ENTRIES));
}

#[test]
fn memory_for_large_events_is_bounded() {
    let mut load = Load::of_frame("main".into());
    let large = "x".repeat(1 << 20);
    let most = KEPT >> 20;
    for number in 0..most + 10 {
        let id = number.to_string();
        let mut event = request(&id, 10.0, "Fetch", "https://a.test/", json!({ "type": "other" }));
        event["request"]["headers"]["large"] = json!(large);
        assert!(load.on_event("Network.requestWillBeSent", &event));
        let extra = json!({ "requestId": id, "headers": { "large": large } });
        load.on_event("Network.requestWillBeSentExtraInfo", &extra);
        load.on_event("Network.loadingFinished", &json!({ "requestId": id, "timestamp": 11.0 }));
    }
    assert!(load.kept <= KEPT);
    assert_eq!(load.requests(), most + 10);
    assert!(load.left_out() > most / 2 && load.left_out() < most, "{}", load.left_out());
    assert!(load.is_mostly_there(), "what is left out is not waited for");
}

#[test]
fn a_script_in_a_url_is_not_kept_in_each_line_of_a_stack() {
    let url = format!("data:text/javascript,{}", "\u{e4}".repeat(1 << 20));
    let stack =
        json!({ "type": "script", "stack": { "callFrames": [{ "url": url }, { "url": url }] } });
    let mut load = Load::default();
    load.on_event(
        "Network.requestWillBeSent",
        &request("1", 1.0, "Fetch", "https://a.test/", stack),
    );
    assert!((100_000..200_000).contains(&load.kept), "{}", load.kept);
    assert!(load.har(&About::default()).to_string().len() < 200_000);
}
