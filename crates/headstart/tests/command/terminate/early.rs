//! Early data: what is taken, when it is passed on, and as what.

use std::thread;
use std::time::Duration;

use super::aged::{Aged, NAME, RAW};
use super::replay::recorded;
use super::tools::{request, s_client, s_client_to};
use crate::edge::{Edge, PATIENCE, until};
use crate::files::Files;
use crate::origin::Origin;

/// Pause between attempts: an edge takes no early data in its first 20 s.
const PAUSE: Duration = Duration::from_secs(1);

/// A request that leaves the connection open.
fn early(method: &str, path: &str) -> String {
    request(method, path, NAME).replace("connection: close\r\n", "")
}

/// Gets a session for early data, into the file `session`.
pub(crate) fn visit(edge: &Edge, files: &Files) -> String {
    let session = files.path("session");
    s_client(edge, NAME, &["-sess_out", &session], &request("GET", "/head/visit", NAME));
    session
}

/// Sends `text` as early data until the edge accepts it; returns the client's output.
///
/// A request follows that ends the connection, whether the first was accepted or not.
fn send(edge: &Edge, files: &Files, text: &str) -> String {
    send_recorded(edge, files, text).0
}

/// Does the same; returns the client's first flight as well.
pub(crate) fn send_recorded(edge: &Edge, files: &Files, text: &str) -> (String, Vec<u8>) {
    let mut output = String::new();
    let mut flight = Vec::new();
    until("early data is taken", || {
        (output, flight) = try_send(edge, files, text, &request("GET", "/head/last", NAME));
        let taken = output.contains("Early data was accepted");
        if !taken {
            assert!(output.contains("GET /head/last"), "it was served all the same: {output}");
            thread::sleep(PAUSE);
        }
        taken
    });
    (output, flight)
}

/// Sends `text` as early data and `rest` behind it; returns the client's output and its first
/// flight.
fn try_send(edge: &Edge, files: &Files, text: &str, rest: &str) -> (String, Vec<u8>) {
    let session = visit(edge, files);
    let file = files.write("early", text.as_bytes(), 0o600);
    let (way, flights) = recorded(edge.address);
    let output = s_client_to(way, NAME, &["-sess_in", &session, "-early_data", &file], rest);
    (output, flights.recv_timeout(PATIENCE).expect("it went that way"))
}

/// Returns the part of a client's output that is the response to `METHOD PATH`.
fn response_to<'a>(report: &'a str, what: &str) -> &'a str {
    let from = report.find(&format!("{what}\n")).unwrap_or_else(|| panic!("no {what}: {report}"));
    report[from..].split("HTTP/1.1").next().unwrap()
}

#[test]
fn without_the_option_there_is_no_early_data() {
    let (files, origin) = (Files::new(), Origin::start());
    files.issue(NAME);
    let edge = Edge::start(&files, &[NAME], &[&format!("--origin={}", origin.http())]);
    let session = visit(&edge, &files);
    let file = files.write("early", early("GET", "/head/early").as_bytes(), 0o600);
    let flags = ["-sess_in", &session, "-early_data", &file];
    let text = s_client(&edge, NAME, &flags, &request("GET", "/head/last", NAME));
    assert!(text.contains("Early data was not sent"), "{text}");
    assert!(text.contains("Reused, TLSv1.3") && text.contains("GET /head/last"), "{text}");
    assert_eq!(origin.requests("GET /head/early"), 0);
}

/// Returns the number of requests as early data with this outcome.
fn count(edge: &Edge, outcome: &str) -> u64 {
    edge.count("headstart_early_requests_total", &[&format!("outcome=\"{outcome}\"")])
}

pub(crate) fn safe_at_once_and_others_wait(aged: &Aged) {
    let (edge, files, origin) = (&aged.safe, &aged.files, &aged.origin);
    let text = send(edge, files, &early("GET", "/head/safe"));
    let get = response_to(&text, "GET /head/safe");
    assert!(get.contains("early-data: 1\n") && get.contains("forwarded: for=127.0.0.1;"), "{get}");
    assert!(!response_to(&text, "GET /head/last").contains("early-data"), "{text}");
    assert_eq!(origin.requests("GET /head/safe"), 1);
    assert_eq!((count(edge, "passed"), count(edge, "held")), (1, 0));

    let text = send(edge, files, &early("POST", "/head/safe"));
    assert!(!response_to(&text, "POST /head/safe").contains("early-data"), "{text}");
    assert_eq!((origin.requests("POST /head/safe"), count(edge, "held")), (1, 1));

    // With a body that comes later: the handshake goes on though nobody reads the request to its
    // end.
    let post =
        format!("POST /upload HTTP/1.1\r\nhost: {NAME}\r\ncontent-length: 20000\r\n\r\nbegin");
    let rest = "x".repeat(20_000 - 5) + &request("GET", "/head/last", NAME);
    let (text, _) = try_send(edge, files, &post, &rest);
    assert!(text.contains("Early data was accepted") && text.contains("\n20000 "), "{text}");
    assert_eq!(count(edge, "held"), 2);
    until("the handshakes are counted", || accepted(edge) >= 3);
}

/// Returns the number of handshakes with early data.
fn accepted(edge: &Edge) -> u64 {
    edge.count("headstart_tls_handshakes_total", &["early_data=\"accepted\""])
}

/// The response ends the connection, mostly before the client's Finished is here.
pub(crate) fn a_connection_of_early_data_alone_is_counted(aged: &Aged) {
    let before = accepted(&aged.safe);
    let only = request("GET", "/head/only", NAME);
    let (text, _) = try_send(&aged.safe, &aged.files, &only, "");
    assert!(text.contains("Early data was accepted") && text.contains("GET /head/only"), "{text}");
    until("the handshake is counted", || accepted(&aged.safe) > before);
}

/// An upgrade waits for the end of the handshake: the bytes behind it may do anything, though GET
/// itself does nothing.
pub(crate) fn an_upgrade_waits(aged: &Aged) {
    let edge = &aged.safe;
    let before = count(edge, "held");
    let upgrade = early("GET", "/head/upgrade")
        .replace("\r\n\r\n", "\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n");
    let text = send(edge, &aged.files, &upgrade);
    let upgraded = response_to(&text, "GET /head/upgrade");
    assert!(upgraded.contains("upgrade: websocket"), "{upgraded}");
    assert!(!upgraded.contains("early-data"), "{upgraded}");
    assert_eq!(count(edge, "held"), before + 1);
}

pub(crate) fn an_origin_may_refuse(aged: &Aged) {
    let text = send(&aged.safe, &aged.files, &early("GET", "/early"));
    assert!(text.contains("HTTP/1.1 425 Too Early"), "the origin's response passes: {text}");
    // The edge does not retry by itself.
    assert_eq!((aged.origin.requests("GET /early"), count(&aged.safe, "too_early")), (1, 1));
}

pub(crate) fn all_at_once(aged: &Aged) {
    let text = send(&aged.on, &aged.files, &early("POST", "/head/on"));
    assert!(response_to(&text, "POST /head/on").contains("early-data: 1\n"), "{text}");
    assert_eq!((aged.origin.requests("POST /head/on"), count(&aged.on, "held")), (1, 0));
}

/// It agrees on no protocol, so that it has sessions of its own.
pub(crate) fn raw_bytes(aged: &Aged) {
    let files = &aged.files;
    let (session, file) = (files.path("raw"), files.write("early", b"early and ", 0o600));
    let raw = |edge: &Edge, flags: &[&str], text: &str| {
        let to = edge.address.to_string();
        let all = ["timeout", "150", "openssl", "s_client", "-ign_eof", "-connect", &to];
        super::tools::run(&[&all[..], &["-servername", RAW], flags].concat(), text)
    };
    for (edge, is_taken) in [(&aged.on, true), (&aged.safe, false)] {
        raw(edge, &["-sess_out", &session], "visit\n");
        let output = raw(edge, &["-sess_in", &session, "-early_data", &file], "late\n");
        assert!(output.contains("Reused, TLSv1.3"), "{output}");
        assert_eq!(output.contains("Early data was accepted"), is_taken, "{output}");
        assert_eq!(output.contains("got: early and late"), is_taken, "{output}");
        assert_eq!(output.contains("got: late"), !is_taken, "{output}");
    }
}
