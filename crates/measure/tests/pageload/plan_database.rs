//! Signed databases with `headstart pageload plan` and `simulate`, and files that become one.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::har::{compressed, file};
use crate::place::Place;

const FIRST: &str = "http://example.com/";
const PAGE: &str = "https://www.example.com/";
const STYLE: &str = "https://static.example.com/main.css";
const OLD: &str = "https://old.example.com/banner.png";
const NEW: &str = "https://static.example.com/new.js";

/// A load of the page on a day: a redirect, the document, and these.
fn har(day: u32, parts: &[&str]) -> Vec<u8> {
    let mut entries = vec![entry(day, 0, FIRST, 301, PAGE), entry(day, 30, PAGE, 200, "")];
    entries.extend(parts.iter().enumerate().map(|(at, url)| entry(day, 60 + at, url, 200, "")));
    file(PAGE, &format!("2026-11-{day:02}T10:00:00.000Z"), 200, &entries)
}

fn entry(day: u32, ms: usize, url: &str, status: u16, to: &str) -> Value {
    let kind = match url.rsplit_once('.').map(|(_, end)| end) {
        Some("css") => "text/css",
        Some("js") => "text/javascript",
        Some("png") => "image/png",
        _ => "text/html",
    };
    let initiator = match url {
        FIRST | PAGE => json!({ "type": "other" }),
        _ => json!({ "type": "parser", "url": PAGE }),
    };
    json!({
        "pageref": "p", "_initiator": initiator,
        "startedDateTime": format!("2026-11-{day:02}T10:00:00.{ms:03}Z"),
        "time": 20,
        "request": {
            "method": "GET", "url": url, "httpVersion": "h2", "headersSize": 100, "bodySize": 0,
            "headers": [],
        },
        "response": {
            "status": status, "httpVersion": "h2", "redirectURL": to, "headersSize": 100,
            "bodySize": 1_900, "headers": [], "content": { "size": 1_900, "mimeType": kind },
        },
        "timings": {
            "blocked": 0, "dns": -1, "connect": -1, "ssl": -1, "send": 0, "wait": 15, "receive": 5,
        },
    })
}

/// A database of three days, a load of the fourth, and one of another page.
fn place() -> Place {
    let days = [1, 2, 3].map(|day| har(day, &[STYLE, OLD]));
    let other = String::from_utf8(har(4, &[STYLE])).unwrap().replace("example.com", "example.org");
    let place = Place::new(
        &[],
        &[
            ("1.har", &days[0]),
            ("2.har", &days[1]),
            ("3.har", &days[2]),
            ("4.har", &har(4, &[STYLE, NEW])),
            ("other.har", other.as_bytes()),
        ],
    );
    place.prints(&["db", "keygen", "maker.key"]);
    let files = ["1.har", "2.har", "3.har"];
    let build = ["db", "build", "--out", "pages.hsdb", "--sign", "maker.key"];
    place.prints(&[&build[..], &files].concat());
    place
}

const DATABASE: [&str; 4] = ["--database", "pages.hsdb", "--key", "maker.key.pub"];

fn tally(used: u64, wrong: u64, missed: u64) -> Value {
    json!({ "used": used, "wrong": wrong, "missed": missed })
}

fn with_database<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    [arguments, &DATABASE].concat()
}

#[test]
fn a_plan_with_what_a_database_knows() {
    let place = place();
    let json = place.json(&with_database(&["plan", "4.har", "--rtt", "100ms"]));
    let page = &json["pages"][0];
    let known = &page["database"];
    assert_eq!(known["pages"], tally(1, 0, 0), "{known}");
    assert_eq!(known["redirects"], tally(1, 0, 0));
    // The page's own and that of its parts; the one of the banner is not needed any more.
    assert_eq!(known["servers"], tally(2, 1, 0));
    assert_eq!(known["prefetch"], tally(1, 1, 1));
    // 2,000 bytes each; how large the banner is, the database does not say.
    assert_eq!(known["prefetch_bytes"], tally(2_000, 2_000, 2_000));
    assert_eq!(json["database"]["file"], "pages.hsdb");
    assert!(json["database"]["made"].as_str().unwrap().starts_with("20"), "{}", json["database"]);
    assert_eq!(json["database"]["prefetch"], known["prefetch"]);
    assert_eq!(page["learned_from"], false, "it is newer than all that it was made of");
    assert!(sure(&json).contains(": made of other loads than these."), "{}", sure(&json));
    assert!(steps(&json).iter().any(|step| step.ends_with("-db")), "{:?}", steps(&json));
    let again = place.json(&with_database(&["plan", "3.har", "--rtt", "100ms"]));
    assert_eq!(again["pages"][0]["learned_from"], true);
    assert!(sure(&again).contains("1 load may be among those it was made of"), "{}", sure(&again));
    assert!(!steps(&again).iter().any(|step| step.ends_with("-db")), "{:?}", steps(&again));
    let without = place.json(&["plan", "4.har", "--rtt", "100ms"]);
    assert!(without["database"].is_null() && without["pages"][0]["database"].is_null());
    // A recording alone does not say what a prefetch database would have.
    assert_eq!(saved(&without, "prefetch-db"), 0.0);
    assert!(saved(&json, "prefetch-db") > 1.0, "{}", saved(&json, "prefetch-db"));
    assert!((saved(&json, "redirect-db") - saved(&without, "redirect-db")).abs() < 1e-9);
    // Of the other page it knows nothing, and saves nothing.
    let other = place.json(&with_database(&["plan", "other.har", "--rtt", "100ms"]));
    assert_eq!(other["pages"][0]["database"]["pages"], tally(0, 0, 1));
    for technique in ["redirect-db", "http2-db", "server-db", "prefetch-db"] {
        assert_eq!(saved(&other, technique), 0.0, "{technique}");
    }
}

#[test]
fn reports_prefetches_used_and_in_vain() {
    let place = place();
    let text = place.prints(&with_database(&["plan", "4.har", "other.har", "--html", "plan.html"]));
    let lines: Vec<String> =
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert!(text.contains("\nWhat pages.hsdb (made 20"), "{text}");
    for line in [
        "needed in it share in vain",
        "pages 2 1 50.0 % 0",
        "redirects to them 2 1 50.0 % 0",
        "servers 4 2 50.0 % 1",
        "URLs to prefetch 3 1 33.3 % 1",
        "bytes of these * 6.0 kB 2.0 kB 33.3 % 2.0 kB",
    ] {
        assert!(lines.iter().any(|other| other == line), "{line:?} in\n{text}");
    }
    let html = fs::read_to_string(place.path("plan.html")).unwrap();
    let mut reader = quick_xml::Reader::from_str(&html);
    while !matches!(reader.read_event().unwrap(), quick_xml::events::Event::Eof) {}
    assert!(html.contains("What the database had") && html.contains("pages.hsdb (made 20"));
    let text = place.prints(&with_database(&["simulate", "4.har", "--technique", "prefetch-db"]));
    assert!(text.contains("\nWhat pages.hsdb (made 20"), "{text}");
}

#[test]
fn loads_with_what_a_database_knows() {
    let place = place();
    let arms = ["simulate", "4.har", "other.har", "--rtt", "100ms", "--technique", "none"];
    let arms = [&arms[..], &["--technique", "redirect-db+server-db+prefetch-db"]].concat();
    for profile in ["tcp", "blast"] {
        let arms = [&arms[..], &["--profile", profile]].concat();
        let arms: Vec<&str> = match profile {
            "tcp" => arms,
            _ => arms
                .iter()
                .map(|of| of.strip_suffix("+server-db+prefetch-db").unwrap_or(of))
                .collect(),
        };
        let json = place.json(&with_database(&arms));
        let [known, unknown] = [0, 1].map(|page: usize| {
            let arms = &json["pages"][page]["arms"];
            [0, 1].map(|arm: usize| arms[arm]["page_load_ms"].as_f64().unwrap())
        });
        assert!(known[1] < known[0] - 50.0, "{profile}: {known:?}");
        assert_eq!(unknown[0], unknown[1], "{profile}: nothing is known of it");
        assert_eq!(json["pages"][0]["database"]["redirects"], tally(1, 0, 0));
        assert_eq!(json["database"]["pages"], tally(1, 0, 1));
    }
}

fn sure(json: &Value) -> String {
    json["conclusion"]["sure"].to_string()
}

/// Techniques of what to do first.
fn steps(json: &Value) -> Vec<String> {
    let steps = json["conclusion"]["first"].as_array().unwrap();
    steps.iter().map(|step| step["technique"].as_str().unwrap_or_default().to_owned()).collect()
}

fn saved(json: &Value, technique: &str) -> f64 {
    let alone = json["pages"][0]["alone"].as_array().unwrap();
    let of = alone.iter().find(|of| of["technique"] == technique).unwrap();
    json["pages"][0]["none"]["resource_ms"].as_f64().unwrap() - of["resource_ms"].as_f64().unwrap()
}

#[test]
fn only_signed_databases_are_used() {
    let place = place();
    place.prints(&["db", "keygen", "other.key"]);
    let mut changed = fs::read(place.path("pages.hsdb")).unwrap();
    *changed.last_mut().unwrap() ^= 1;
    fs::write(place.path("changed.hsdb"), changed).unwrap();
    place.prints(&["db", "build", "1.har", "2.har", "3.har", "--out", "unsigned.hsdb"]);
    for command in ["plan", "simulate"] {
        let unknown = "pages.hsdb is not good: it is signed with the unknown key";
        for (database, key, code, expected) in [
            ("pages.hsdb", "other.key.pub", 1, unknown),
            ("changed.hsdb", "maker.key.pub", 1, "checksum"),
            ("unsigned.hsdb", "maker.key.pub", 1, "not signed"),
            ("4.har", "maker.key.pub", 1, "not a page database"),
            ("none.hsdb", "maker.key.pub", 2, "cannot read none.hsdb"),
            ("pages.hsdb", "maker.key", 2, "no public Ed25519 key"),
        ] {
            let with = [command, "4.har", "--database", database, "--key", key];
            let text = place.fails_as(&with, code);
            assert!(text.contains(expected), "{text}");
        }
        // A database needs the key that signed it; and a hit rate is for simulated ones.
        place.fails(&[command, "4.har", "--database", "pages.hsdb"]);
        place.fails(&[command, "4.har", "--key", "maker.key.pub"]);
        place.fails(&with_database(&[command, "4.har", "--hit-rate", "60"]));
    }
}

#[test]
fn an_empty_database_replaces_no_other() {
    let place = place();
    let before = fs::read(place.path("pages.hsdb")).unwrap();
    let build = ["db", "build", "4.har", "--out", "pages.hsdb", "--sign", "maker.key"];
    let text = place.fails_as(&build, 1);
    assert!(text.contains("pages.hsdb is not written: no page has 3 recordings"), "{text}");
    // The same recording three times is one.
    let thrice = [&build[..], &["4.har", "4.har"]].concat();
    place.fails_as(&thrice, 1);
    assert_eq!(fs::read(place.path("pages.hsdb")).unwrap(), before);
    // Nor does it take that of what is no file.
    symlink("/dev/null", place.path("null")).unwrap();
    let null = ["db", "build", "1.har", "2.har", "3.har", "--out", "null"];
    assert!(place.fails_as(&null, 2).contains("it is no regular file"));
    assert!(fs::symlink_metadata(place.path("null")).unwrap().is_symlink());
}

#[test]
fn compressed_recordings_are_learned_from() {
    let place = place();
    for day in 1..=3 {
        let har = fs::read(place.path(&format!("{day}.har"))).unwrap();
        fs::write(place.path(&format!("{day}.har.gz")), compressed(&har)).unwrap();
    }
    let json = place.json(&["db", "build", "1.har.gz", "2.har.gz", "3.har.gz"]);
    assert_eq!((&json["pages"], &json["prefetch"]), (&json!(1), &json!(2)));
    // All of the folder: three of them are there twice, and the fourth load of the page has no
    // banner.
    let json = place.json(&["db", "build", "."]);
    assert_eq!(
        (&json["recordings"], &json["pages"], &json["prefetch"]),
        (&json!(5), &json!(1), &json!(1))
    );
    assert_eq!(json["left_out"]["recordings that are there already"], 3);
}
