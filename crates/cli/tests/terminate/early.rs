//! Early data: what is taken, when it is passed on, and as what.

use std::thread;
use std::time::Duration;

use crate::edge::{Edge, until};
use crate::files::Files;
use crate::origin::Origin;
use crate::tools::{request, s_client, s_client_to};

pub(crate) const NAME: &str = "www.example.com";

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

/// Sends `text` as early data until the edge takes it, at `to` or directly; what the client said then.
///
/// Behind it goes a request after which the connection ends, whether the first was taken or not.
pub(crate) fn send(
    edge: &Edge,
    files: &Files,
    to: Option<std::net::SocketAddr>,
    text: &str,
) -> String {
    let file = files.write("early", text.as_bytes(), 0o600);
    let mut said = String::new();
    until("early data is taken", || {
        let session = visit(edge, files);
        let flags = ["-sess_in", &session, "-early_data", &file];
        let last = request("GET", "/head/last", NAME);
        said = s_client_to(to.unwrap_or(edge.address), NAME, &flags, &last);
        let taken = said.contains("Early data was accepted");
        if !taken {
            assert!(said.contains("GET /head/last"), "it was served all the same: {said}");
            thread::sleep(PAUSE);
        }
        taken
    });
    said
}

/// The part of what a client said that answers `METHOD PATH`.
fn answer<'a>(said: &'a str, what: &str) -> &'a str {
    let from = said.find(&format!("{what}\n")).unwrap_or_else(|| panic!("no {what}: {said}"));
    said[from..].split("HTTP/1.1").next().unwrap()
}

#[test]
fn without_the_option_there_is_no_early_data() {
    let (files, origin) = (Files::new(), Origin::start());
    files.issue(NAME);
    let edge = Edge::start(&files, &[NAME], &[&format!("--origin={}", origin.http())]);
    let session = visit(&edge, &files);
    let file = files.write("early", early("GET", "/head/early").as_bytes(), 0o600);
    let flags = ["-sess_in", &session, "-early_data", &file];
    let said = s_client(&edge, NAME, &flags, &request("GET", "/head/last", NAME));
    assert!(said.contains("Early data was not sent"), "{said}");
    assert!(said.contains("Reused, TLSv1.3") && said.contains("GET /head/last"), "{said}");
    assert_eq!(origin.asked("GET /head/early"), 0);
}

#[test]
fn safe_requests_are_passed_on_at_once_and_others_wait() {
    let (files, origin) = (Files::new(), Origin::start());
    files.issue(NAME);
    let origins = format!("--origin={}", origin.http());
    let edge = Edge::start(&files, &[NAME], &[&origins, "--early-data-requests=safe"]);

    let said = send(&edge, &files, None, &early("GET", "/head/early"));
    let get = answer(&said, "GET /head/early");
    assert!(get.contains("early-data: 1\n") && get.contains("forwarded: for=127.0.0.1;"), "{get}");
    assert!(!answer(&said, "GET /head/last").contains("early-data"), "{said}");
    assert_eq!(origin.asked("GET /head/early"), 1);
    let count = |outcome: &str| {
        edge.count("headstart_early_requests_total", &[&format!("outcome=\"{outcome}\"")])
    };
    assert_eq!((count("passed"), count("held")), (1, 0));

    let said = send(&edge, &files, None, &early("POST", "/head/early"));
    assert!(!answer(&said, "POST /head/early").contains("early-data"), "{said}");
    assert_eq!((origin.asked("POST /head/early"), count("held")), (1, 1));

    // With a body that comes later: the handshake goes on though nobody reads the request to its end.
    let post =
        format!("POST /upload HTTP/1.1\r\nhost: {NAME}\r\ncontent-length: 20000\r\n\r\nbegin");
    let file = files.write("early", post.as_bytes(), 0o600);
    let session = visit(&edge, &files);
    let rest = "x".repeat(20_000 - 5) + &request("GET", "/head/last", NAME);
    let said = s_client(&edge, NAME, &["-sess_in", &session, "-early_data", &file], &rest);
    assert!(said.contains("Early data was accepted") && said.contains("\n20000 "), "{said}");
    assert_eq!(count("held"), 2);

    let said = send(&edge, &files, None, &early("GET", "/early"));
    assert!(said.contains("HTTP/1.1 425 Too Early"), "the origin's answer goes through: {said}");
    assert_eq!((origin.asked("GET /early"), count("too_early")), (1, 1));
    assert!(edge.count("headstart_tls_handshakes_total", &["early_data=\"accepted\""]) >= 4);
}

#[test]
fn with_on_all_requests_are_passed_on_at_once() {
    let (files, origin) = (Files::new(), Origin::start());
    files.issue(NAME);
    let (raw, _seen) = crate::raw::echo();
    let origins = format!("--origin={},raw.example.com=tcp://{raw}", origin.http());
    let edge = Edge::start(&files, &[NAME], &[&origins, "--early-data-requests=on"]);
    let said = send(&edge, &files, None, &early("POST", "/head/early"));
    assert!(answer(&said, "POST /head/early").contains("early-data: 1\n"), "{said}");
    assert_eq!(origin.asked("POST /head/early"), 1);

    // The raw origin gets early data, too. It agrees on no protocol, so it has sessions of its own.
    let (session, file) = (files.path("raw"), files.write("early", b"early and ", 0o600));
    let raw = |flags: &[&str], text: &str| {
        let mut all = vec!["timeout", "5", "openssl", "s_client", "-connect"];
        let to = edge.address.to_string();
        all.extend([to.as_str(), "-servername", "raw.example.com"]);
        all.extend(flags);
        crate::tools::run(&all, text)
    };
    raw(&["-sess_out", &session, "-ign_eof"], "visit");
    let said = raw(&["-sess_in", &session, "-early_data", &file, "-ign_eof"], "late");
    assert!(said.contains("Early data was accepted"), "{said}");
    assert!(said.contains("early and ") && said.contains("late"), "{said}");
}
