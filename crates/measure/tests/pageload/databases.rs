//! `headstart pageload db` as a process: keys, databases of recordings, looks at them, exports,
//! and fetching.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::thread::{self, JoinHandle};

use serde_json::{Value, json};

use crate::place::{Outcome, Place};

const PAGE: &str = "https://www.example.com/";

fn place() -> Place {
    Place::new(&["db"], &[])
}

/// Recordings of one page on `days` days, and a database of them.
fn place_with_database(days: u32) -> Place {
    let place = place();
    place.prints(&["keygen", "maker.key"]);
    let names: Vec<String> = (1..=days).map(|day| format!("{day}.har")).collect();
    for (day, name) in (1..).zip(&names) {
        fs::write(place.path(name), har(day).to_string()).unwrap();
    }
    let mut arguments = vec!["build", "--out", "pages.hsdb", "--sign", "maker.key"];
    arguments.extend(names.iter().map(String::as_str));
    place.prints(&arguments);
    place
}

/// Returns the file for browsers in this format.
fn exported(place: &Place, format: &str) -> Value {
    serde_json::from_str(&place.prints(&["export", "pages.hsdb", "--format", format])).unwrap()
}

/// A load of the page on a day: a redirect, a style sheet, a POST, and an image of that day.
fn har(day: u32) -> Value {
    let picture = format!("https://static.example.com/{day}.png");
    let entries = [
        (0, "GET", "http://example.com/", 301, PAGE, "text/html"),
        (30, "GET", PAGE, 200, "", "text/html"),
        (60, "GET", "https://static.example.com/main.css", 200, "", "text/css"),
        (61, "POST", "https://static.example.com/count", 200, "", "text/plain"),
        (62, "GET", &picture, 200, "", "image/png"),
    ];
    let entries = entries.map(|(ms, method, url, status, to, kind)| {
        json!({
            "pageref": "page_1",
            "startedDateTime": format!("2026-11-{day:02}T10:00:00.{ms:03}Z"),
            "time": 20,
            "request": {
                "method": method, "url": url, "httpVersion": "h2", "headersSize": 100,
                "bodySize": 0, "headers": [], "cookies": [], "queryString": []
            },
            "response": {
                "status": status, "statusText": "", "httpVersion": "h2", "headers": [],
                "cookies": [], "redirectURL": to, "headersSize": 100, "bodySize": 1000,
                "content": {"size": 1000, "mimeType": kind}
            },
            "cache": {},
            "timings": {
                "blocked": 0, "dns": -1, "connect": -1, "ssl": -1, "send": 0, "wait": 15,
                "receive": 5
            },
            "connection": "1"
        })
    });
    json!({"log": {
        "version": "1.2",
        "creator": {"name": "test", "version": "1"},
        "pages": [{
            "startedDateTime": format!("2026-11-{day:02}T10:00:00.000Z"), "id": "page_1",
            "title": "page", "pageTimings": {"onLoad": 200}
        }],
        "entries": entries
    }})
}

#[test]
fn from_recordings_to_what_browsers_read() {
    let place = place_with_database(4);
    let known = place.json(&["show", "pages.hsdb", "--url", "http://example.com/"]);
    assert_eq!(known["redirect"], json!([{"to": PAGE, "permanent": true}]));
    assert_eq!(known["page"]["document"], PAGE);
    assert_eq!(known["page"]["recordings"], 4);
    let css = json!([{"url": "https://static.example.com/main.css", "kind": "style"}]);
    assert_eq!(known["page"]["prefetch"], css);
    let links = place.prints(&["export", "pages.hsdb", "--format", "links", "--url", PAGE]);
    let expected = "Link: <https://static.example.com>; rel=preconnect\n\
        Link: <https://static.example.com/main.css>; rel=preload; as=style\n";
    assert_eq!(links, expected);
    let rules = exported(&place, "speculation-rules");
    assert_eq!(rules["https://www.example.com"]["prefetch"][0]["urls"], json!(["/"]));
    let extension = exported(&place, "extension");
    assert_eq!(extension["redirects"][0]["to"], PAGE);
    let sign = ["--sign", "maker.key", "--out", "pages.hsdx"];
    place.prints(&[&["export", "pages.hsdb", "--format", "extension"][..], &sign].concat());
    assert!(fs::read(place.path("pages.hsdx")).unwrap().starts_with(b"\x89HSDE"));
    let other = [&["export", "pages.hsdb", "--format", "links"][..], &sign].concat();
    assert!(place.fails_as(&other, 2).contains("only the format of the extension is signed"));
    let summary = place.prints(&["show", "pages.hsdb"]);
    assert!(summary.contains("databases: redirect, server, http2, prefetch"), "{summary}");
    let (code, out, _) = place.call(&["show", "pages.hsdb", "--url", "https://other.example/"]);
    assert_eq!((code, out.as_str()), (Some(1), "nothing is known of https://other.example/\n"));
}

#[test]
fn reports_omissions_and_quality() {
    let place = place_with_database(4);
    fs::write(place.path("broken.har"), "{").unwrap();
    let files = ["1.har", "2.har", "3.har", "4.har", "broken.har"];
    let (code, out, err) =
        place.call(&[&["build", "--json", "--figures", "--recordings", "1"][..], &files].concat());
    assert_eq!(code, Some(2));
    assert!(err.contains("broken.har"), "{err}");
    let made: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&made["recordings"], &made["pages"]), (&json!(4), &json!(1)));
    assert_eq!(made["left_out"]["URLs not asked for by GET, without authorization, each time"], 1);
    assert_eq!(made["unreadable"][0]["file"], "broken.har");
    let day = &made["figures"][0];
    assert_eq!((&day["age"], &day["loads"]), (&json!("a day"), &json!(3)));
    // The style sheet each day. On day 2, the image of day 1 is expected in vain.
    assert_eq!(day["prefetch"]["used"], 3);
    assert_eq!(day["prefetch"]["wrong"], 1);
    assert_eq!(day["redirect"]["hits"], 1.0);
    assert_eq!((&made["by_load"]["loads"], &made["by_load"]["known"]), (&json!(4), &json!(4)));
    let mean = made["by_load"]["mean_of_loads"]["hits"].as_f64().unwrap();
    assert!((0.1..1.0).contains(&mean), "{mean}");
    let (_, text, _) =
        place.call(&[&["build", "--figures", "--recordings", "1"][..], &files].concat());
    let percent = format!("mean of loads  {:.1} % / ", 100.0 * mean);
    assert!(text.contains(&percent), "{text}");
}

#[test]
fn only_good_files_pass_the_check() {
    let place = place_with_database(3);
    let good = place.prints(&["check", "pages.hsdb", "--key", "maker.key.pub"]);
    assert!(good.starts_with("good: 1 page, made 20"), "{good}");
    place.prints(&["keygen", "other.key"]);
    let unknown = place.fails_as(&["check", "pages.hsdb", "--key", "other.key.pub"], 1);
    assert!(unknown.contains("unknown key"), "{unknown}");
    let mut bytes = fs::read(place.path("pages.hsdb")).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(place.path("changed.hsdb"), bytes).unwrap();
    let changed = place.fails_as(&["check", "changed.hsdb", "--key", "maker.key.pub"], 1);
    assert!(changed.contains("checksum"), "{changed}");
    place.fails_as(&["check", "1.har", "--key", "maker.key.pub"], 1);
    place.fails_with_hint(&["show", "1.har"]);
    place.fails_with_hint(&["check", "pages.hsdb", "--key", "maker.key"]);
}

#[test]
fn keys_are_never_overwritten() {
    let place = place();
    place.prints(&["keygen", "maker.key"]);
    let mode = fs::metadata(place.path("maker.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let secret = fs::read(place.path("maker.key")).unwrap();
    place.fails_with_hint(&["keygen", "maker.key"]);
    assert_eq!(fs::read(place.path("maker.key")).unwrap(), secret);
    // A public key that is there keeps the secret one from being made.
    fs::remove_file(place.path("maker.key")).unwrap();
    place.fails_with_hint(&["keygen", "maker.key"]);
    assert!(!place.path("maker.key").exists());
}

/// A server that gives one answer, and what it was asked.
fn serve(answer: Vec<u8>) -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/pages.hsdb", listener.local_addr().unwrap());
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            request.push(byte[0]);
        }
        // The client may have had enough.
        let _ = stream.write_all(&answer);
        String::from_utf8(request).unwrap()
    });
    (url, server)
}

fn ok(body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// Fetches from a server with one answer; what is said, and what the server was asked.
fn fetch(place: &Place, answer: Vec<u8>) -> (Outcome, String) {
    let (url, server) = serve(answer);
    let fetched = place.call(&["fetch", &url, "--key", "maker.key.pub", "--file", "in_use.hsdb"]);
    (fetched, server.join().unwrap())
}

#[test]
fn a_newer_database_replaces_the_one_in_use() {
    let place = place_with_database(3);
    let offered = fs::read(place.path("pages.hsdb")).unwrap();
    let ((code, _, err), asked) = fetch(&place, ok(&offered));
    assert_eq!(code, Some(0), "{err}");
    assert_eq!(fs::read(place.path("in_use.hsdb")).unwrap(), offered);
    // The same request for all: where, and that the connection ends.
    let lines: Vec<&str> = asked.trim_end().lines().collect();
    assert_eq!(lines[0], "GET /pages.hsdb HTTP/1.1");
    assert!(
        lines[1].starts_with("host: 127.0.0.1:") && lines[2..] == ["connection: close"],
        "{asked}"
    );
    let ((code, _, err), _) = fetch(&place, ok(&offered));
    assert!(code == Some(0) && err.contains("is the newest"), "{err}");
    // What is older, changed, or another thing is refused, and the one in use stays.
    let mut older = offered.clone();
    older[12..20].copy_from_slice(&1u64.to_be_bytes());
    let mut changed = offered.clone();
    *changed.last_mut().unwrap() ^= 1;
    // A file in use that is damaged is mended, although the one that is offered is no newer.
    fs::write(place.path("in_use.hsdb"), &changed).unwrap();
    let ((code, _, err), _) = fetch(&place, ok(&offered));
    assert!(code == Some(0) && err.contains("is new: 1 page, made 20"), "{err}");
    assert_eq!(fs::read(place.path("in_use.hsdb")).unwrap(), offered);
    fs::remove_file(place.path("in_use.hsdb")).unwrap();
    for (answer, why) in [
        (ok(&older), "signature"),
        (ok(&changed), "checksum"),
        (ok(b"<html>"), "ends too soon"),
        (
            b"HTTP/1.1 302 Found\r\nlocation: /x\r\ncontent-length: 0\r\n\r\n".to_vec(),
            "leads elsewhere",
        ),
        (b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_vec(), "404"),
    ] {
        let ((code, _, err), _) = fetch(&place, answer);
        assert!(code == Some(1) && err.contains(why), "{why}: {err}");
        assert!(!place.path("in_use.hsdb").exists());
    }
}

#[test]
fn an_older_database_is_refused_however_well_signed() {
    let place = place_with_database(3);
    let older = fs::read(place.path("pages.hsdb")).unwrap();
    // The date of a database is in seconds.
    thread::sleep(std::time::Duration::from_millis(1100));
    place.prints(&[
        "build",
        "--out",
        "in_use.hsdb",
        "--sign",
        "maker.key",
        "1.har",
        "2.har",
        "3.har",
    ]);
    let newer = fs::read(place.path("in_use.hsdb")).unwrap();
    let (url, server) = serve(ok(&older));
    let fetched =
        place.fails_as(&["fetch", &url, "--key", "maker.key.pub", "--file", "in_use.hsdb"], 1);
    assert!(fetched.contains("older than the one in use"), "{fetched}");
    server.join().unwrap();
    assert_eq!(fs::read(place.path("in_use.hsdb")).unwrap(), newer);
    let check = ["check", "pages.hsdb", "--key", "maker.key.pub", "--in-use", "in_use.hsdb"];
    assert!(place.fails_as(&check, 1).contains("older"));
}
