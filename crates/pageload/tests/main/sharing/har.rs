//! The sharing audit on HAR files, as different programs write them.

use headstart_pageload::sharing::{Audit, ReadError, RecordingKind, Report};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::with;

fn audited(har: &Value) -> Report {
    let mut audit = Audit::new();
    let text = har.to_string();
    let recording = audit.read("page.har", text.as_bytes()).unwrap();
    assert_eq!((recording.kind, recording.packets), (RecordingKind::Har, 0));
    audit.report(None)
}

fn error(text: &[u8]) -> ReadError {
    Audit::new().read("page.har", text).map(|_| ()).unwrap_err()
}

fn har(entries: &[Value]) -> Value {
    json!({
        "log": {
            "version": "1.2",
            "creator": { "name": "test", "version": "1" },
            "pages": [{ "id": "page_1", "title": "a page" }],
            "entries": entries,
            "comment": "",
        }
    })
}

/// A request that opened a connection, as Chromium writes it.
fn opened(url: &str, address: &str, connection: &str, second: u64) -> Value {
    json!({
        "_initiator": { "type": "parser" },
        "connection": connection,
        "request": { "method": "GET", "url": url, "httpVersion": "http/2.0", "headers": [] },
        "response": {
            "status": 200, "httpVersion": "http/2.0", "content": { "text": "x".repeat(100) },
        },
        "serverIPAddress": address,
        "startedDateTime": format!("2026-11-21T10:{:02}:{:02}.250Z", second / 60, second % 60),
        "time": 120.5,
        "timings": {
            "blocked": 1.5, "dns": 10, "connect": 60, "ssl": 40, "send": 0.2, "wait": 30.1,
            "receive": 5, "_blocked_queueing": 0.4
        },
    })
}

fn full(report: &Report) -> [u64; 3] {
    [report.today.full, report.client_only.full, report.client_and_server.full]
}

#[test]
fn handshakes_count_and_requests_on_open_connections_do_not() {
    let reused = with(
        opened("https://a.example/2", "198.51.100.1", "11", 1),
        "/timings",
        json!({
            "blocked": 1, "dns": -1, "connect": -1, "ssl": -1, "send": 0, "wait": 1, "receive": 1,
        }),
    );
    let report = audited(&har(&[
        opened("https://a.example/1", "198.51.100.1", "11", 0),
        reused,
        opened("https://a.example/3", "198.51.100.1", "12", 60),
        opened("https://A.example/4", "198.51.100.2", "13", 70),
        opened("https://b.example:8443/", "198.51.100.2", "14", 80),
    ]));
    assert_eq!(full(&report), [4, 3, 2]);
    assert_eq!((report.connections, report.connections_unknown), (4, 4));
    assert_eq!((report.names, report.addresses, report.seen.har_requests), (2, 2, 5));
    assert_eq!(report.versions.unknown, 4);
    assert_eq!(report.span.unwrap().length().as_secs(), 80);
    // 10:00:00.250, and what came before TLS: 1.5 + 10 + 20 ms.
    assert_eq!(report.span.unwrap().first_unix_ms % 1000, 250 + 31);
}

#[test]
fn a_handshake_that_is_told_twice_counts_once() {
    let twice = [
        opened("https://a.example/1", "198.51.100.1", "11", 0),
        opened("https://a.example/2", "198.51.100.1", "11", 0),
    ];
    assert_eq!(audited(&har(&twice)).connections, 1);
    // Firefox says the server's port, which names no connection; others say nothing, or a number.
    let ports = twice.clone().map(|entry| with(entry, "/connection", json!("443")));
    assert_eq!(audited(&har(&ports)).connections, 2);
    // Chromium since 2023 says both.
    let named = ports.map(|entry| with(entry, "/_connectionId", json!("12")));
    assert_eq!(audited(&har(&named)).connections, 1);
    let none = twice.clone().map(|entry| with(entry, "/connection", Value::Null));
    assert_eq!(audited(&har(&none)).connections, 2);
    let numbers = twice.map(|entry| with(entry, "/connection", json!(7)));
    assert_eq!(audited(&har(&numbers)).connections, 1);
}

#[test]
fn connections_without_tls_over_tcp_do_not_count() {
    let page = "https://a.example/";
    let entries = [
        opened("http://a.example/", "198.51.100.1", "1", 0),
        opened("data:text/plain,x", "", "2", 0),
        with(opened(page, "198.51.100.1", "3", 0), "/response/httpVersion", json!("h3")),
        with(opened(page, "198.51.100.1", "4", 0), "/response/httpVersion", json!("HTTP/3")),
        with(opened(page, "198.51.100.1", "5", 0), "/timings/ssl", json!(0)),
        with(opened(page, "198.51.100.1", "6", 0), "/timings/ssl", Value::Null),
    ];
    let report = audited(&har(&entries));
    assert_eq!((report.connections, report.seen.har_requests), (0, 6));
    assert_eq!(report.seen.har_quic_requests, 2);
}

#[test]
fn without_address_or_time_a_handshake_is_only_seen() {
    let entry = opened("https://a.example/", "198.51.100.1", "1", 0);
    for (place, value) in [
        ("/serverIPAddress", json!("")),
        ("/serverIPAddress", Value::Null),
        ("/startedDateTime", json!("yesterday")),
        // No name, and nothing that should come to a terminal.
        ("/request/url", json!("https://a\u{1b}[2Jb.example/")),
    ] {
        let report = audited(&har(&[with(entry.clone(), place, value)]));
        assert_eq!((report.connections, report.seen.har_incomplete), (0, 1), "{place}");
    }
}

#[test]
fn addresses_and_times_in_all_their_forms() {
    let [one, two, three, four] =
        ["1", "2", "3", "4"].map(|id| opened("https://a.example/", "[2001:db8::1]", id, 0));
    let entries = [
        one,
        with(two, "/serverIPAddress", json!("2001:db8::1")),
        with(three, "/serverIPAddress", json!("2001:db8::1%eth0")),
        with(four, "/startedDateTime", json!("2026-11-21T12:00:00.250+02:00")),
    ];
    let report = audited(&har(&entries));
    assert_eq!((report.connections, report.addresses), (4, 1));
    assert_eq!(report.span.unwrap().length().as_millis(), 0);
}

#[test]
fn versions_are_taken_from_security_details() {
    let entries = [
        ("1", "/_securityDetails", Some("TLS 1.3")),
        ("2", "/securityDetails", Some("TLS 1.2")),
        ("3", "/_securityDetails", Some("TLS 1.0")),
        ("4", "/_securityDetails", None),
    ]
    .map(|(id, place, protocol)| {
        let details = protocol.map_or(
            json!({}),
            |protocol| json!({ "protocol": protocol, "issuer": "x", "validFrom": 1.5 }),
        );
        with(opened("https://a.example/", "198.51.100.1", id, 0), place, details)
    });
    let versions = audited(&har(&entries)).versions;
    let counts = [versions.tls13, versions.tls12, versions.older, versions.unknown];
    assert_eq!(counts, [1; 4]);
}

#[test]
fn a_byte_order_mark_does_no_harm() {
    let text = har(&[opened("https://a.example/", "198.51.100.1", "1", 0)]).to_string();
    for before in ["\u{feff}", " \r\n\t"] {
        let mut audit = Audit::new();
        audit.read("page.har", format!("{before}{text}\n").as_bytes()).unwrap();
        assert_eq!(audit.report(None).connections, 1);
    }
}

#[test]
fn malformed_har_files_are_refused_with_a_reason() {
    let cases: [(&[u8], &str); 6] = [
        (b"{}", "missing field `log`"),
        (b"{\"log\": {}}", "missing field `entries`"),
        (b"{\"log\": []}", "expected an object with \"entries\""),
        (b"{\"log\": {\"entries\": 1}}", "expected a list of entries"),
        (b"{\"log\": {\"entries\": [{}]}}", "missing field `startedDateTime`"),
        (b"{\"log\": {\"entries\": []}} x", "trailing characters"),
    ];
    for (text, words) in cases {
        let error = error(text);
        let message = error.to_string();
        assert!(message.starts_with("it is not the JSON of a HAR file: "), "{message}");
        assert!(message.contains(words), "{message}");
        assert!(!error.hint().is_empty());
    }
}

#[test]
fn deep_nesting_overflows_no_stack() {
    // What does not count is passed over without recursion.
    let (open, close) = ("[".repeat(1_000_000), "]".repeat(1_000_000));
    let deep = format!("{{\"x\": {open}{close}, \"log\": {{\"entries\": []}}}}");
    assert!(Audit::new().read("page.har", deep.as_bytes()).is_ok());
    // What counts is not so deep; here a number was expected.
    let timings = format!("{{\"ssl\": {open}{close}}}");
    let entry = format!(
        "{{\"startedDateTime\": \"\", \"request\": {{\"url\": \"\"}}, \"timings\": {timings}}}"
    );
    let error = error(format!("{{\"log\": {{\"entries\": [{entry}]}}}}").as_bytes());
    assert!(error.to_string().contains("invalid type: sequence, expected f64"), "{error}");
    let deeper = open.repeat(2);
    let error = Audit::new().read("page.har", format!("{{\"x\": {deeper}").as_bytes()).map(|_| ());
    assert!(matches!(error, Err(ReadError::HarTooDeep)), "{error:?}");
}

#[test]
fn cut_off_at_any_place_it_is_refused() {
    let text = har(&[opened("https://a.example/", "198.51.100.1", "1", 0)]).to_string();
    for end in 1..text.len() {
        let part = &text.as_bytes()[..end];
        let error = error(part);
        let is_number = part.ends_with(b"-") || part.ends_with(b".");
        if is_number && error.to_string().contains("invalid number") {
            continue;
        }
        assert!(matches!(&error, ReadError::Har(json) if json.is_eof()), "{end}: {error}");
        assert_eq!(error.hint(), "the file is cut off; save it again");
    }
}

/// A connection whose first request lacks something counts with the next that tells of its
/// handshake.
#[test]
fn an_incomplete_entry_hides_no_later_one() {
    let entry = opened("https://a.example/", "198.51.100.1", "1", 0);
    let without = with(entry.clone(), "/serverIPAddress", Value::Null);
    let report = audited(&har(&[without, entry]));
    assert_eq!((report.connections, report.seen.har_incomplete), (1, 1));
}

#[test]
fn a_connection_is_named_by_text_or_a_number() {
    let entry = opened("https://a.example/", "198.51.100.1", "1", 0);
    let numbers = [json!(1), json!("1"), json!(-1), json!("-1")];
    let entries = numbers.map(|number| with(entry.clone(), "/connection", number));
    assert_eq!(audited(&har(&entries)).connections, 2);
    let list = with(entry, "/connection", json!([1]));
    let error = error(har(&[list]).to_string().as_bytes());
    assert!(error.to_string().contains("expected a string or a number"), "{error}");
}

/// A URL, a key and a name of a connection that are each larger than what is kept of them.
#[test]
fn long_strings_are_not_kept() {
    let long = "x".repeat(3_000_000);
    let url = format!("https://a.example/{long}");
    let entry = with(opened(&url, "198.51.100.1", "1", 0), "/connection", json!(long));
    let entry = with(entry, &format!("/{long}"), json!(long));
    let report = audited(&har(&[entry.clone(), entry]));
    assert_eq!((report.connections, report.names), (2, 1));
}

#[test]
fn a_har_and_a_capture_are_one_audit() {
    let text = har(&[opened("https://a.example/", "198.51.100.1", "1", 0)]).to_string();
    let mut audit = Audit::new();
    audit.read("1.har", text.as_bytes()).unwrap();
    audit.read("2.har", text.as_bytes()).unwrap();
    // Connections of one name in two files are two.
    let report = audit.report(None);
    assert_eq!((report.connections, report.recordings.len()), (2, 2));
}

proptest! {
    /// Changed bytes make an error or other figures, and never a panic.
    #[test]
    fn nothing_makes_it_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = har(&[
            opened("https://a.example/", "198.51.100.1", "1", 0),
            opened("https://[2001:db8::1]/", "[2001:db8::1]", "2", 1),
        ]).to_string().into_bytes();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let mut audit = Audit::new();
        let _ = audit.read("page.har", bytes.as_slice());
        let report = audit.report(None);
        prop_assert!(report.client_and_server.full <= report.client_only.full);
        prop_assert!(report.client_only.full <= report.today.full);
    }

    /// Values of the right kind, however strange.
    #[test]
    fn strange_values_do_no_harm(
        url in "(https|wss|http)://[a-z0-9.:@/\\[\\]?#%-]{0,40}",
        address in "[0-9a-f.:%\\[\\]]{0,30}",
        started in "[0-9TZ:.+ -]{0,40}",
        ssl in any::<f64>(),
        connect in any::<f64>(),
    ) {
        let entry = opened(&url, &address, "1", 0);
        let entry = with(entry, "/startedDateTime", json!(started));
        let entry = with(entry, "/timings/ssl", json!(ssl));
        let entry = with(entry, "/timings/connect", json!(connect));
        let report = audited(&har(&[entry]));
        prop_assert!(report.connections <= 1);
    }
}
