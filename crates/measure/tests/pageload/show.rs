//! `headstart pageload show` as a process: exit codes, hints, text, JSON, pictures.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use quick_xml::events::Event;
use serde_json::{Value, json};

use crate::har::{compressed, entry, file};
use crate::place::{Place, outcome};

fn place(files: &[(&str, &[u8])]) -> Place {
    Place::new(&["show"], files)
}

/// A document, a script that it names, and data that the script asks for; and one out of the cache.
fn har(host: &str) -> Vec<u8> {
    let opening = json!({
        "blocked": 5, "dns": 15, "connect": 100, "ssl": 60, "send": 0, "wait": 80, "receive": 100,
    });
    let reused = json!({ "blocked": 1, "send": 0, "wait": 60, "receive": 40 });
    let [document, script, data, other] =
        ["", "a.js", "b", "c.js"].map(|path| format!("https://{host}/{path}"));
    let parser = json!({ "type": "parser", "url": document });
    let frames = json!({ "type": "script", "stack": { "callFrames": [{ "url": script }] } });
    let mut cached = entry(&other, "00.260", &parser, 20_000, &reused);
    cached["_fromCache"] = json!("disk");
    let entries = [
        entry(&document, "00.000", &json!({ "type": "other" }), 20_000, &opening),
        entry(&script, "00.250", &parser, 20_000, &reused),
        entry(&data, "00.371", &frames, 20_000, &reused),
        cached,
    ];
    file(&document, "2026-11-21T10:00:00.000Z", 480, &entries)
}

#[test]
fn one_page_as_text() {
    let place = place(&[("page.har", &har("a.test"))]);
    let text = place.prints(&["page.har"]);
    for line in [
        "https://a.test/\n",
        "  95 % loaded after 0.47 s, all after 0.47 s, load event after 0.48 s\n",
        "  3 resources from 1 server over 1 connection: 900 B there, 60.0 kB back\n",
        "  tree height 3, minRTT 5, 0 redirects to the document, largest server 3 resources\n",
        "\nParents: 2 recorded; 0 by time",
        "\nNo resources: 1\n  from the browser's cache: 1\n",
    ] {
        assert!(text.contains(line), "{line:?} in\n{text}");
    }
    // Each below what asked for it, all on the critical path, and only the first opened a
    // connection.
    for row in ["  *+  a.test/  ", "  *     a.test/a.js  ", "  *       a.test/b  "] {
        assert!(text.contains(row), "{row:?} in\n{text}");
    }
    let few = place.prints(&["page.har", "--rows", "1"]);
    assert!(few.contains("  and 2 more (--rows N)\n") && !few.contains("a.test/b"), "{few}");
}

/// A load with all events, whose script blocks rendering.
fn with_events() -> Vec<u8> {
    let mut har: Value = serde_json::from_slice(&har("a.test")).unwrap();
    har["log"]["pages"][0]["pageTimings"]["onContentLoad"] = json!(371);
    har["log"]["pages"][0]["pageTimings"]["_largestContentfulPaint"] = json!(420);
    let script = &mut har["log"]["entries"][1];
    script["_priority"] = json!("High");
    script["_resourceType"] = json!("script");
    har["log"]["entries"][2]["_priority"] = json!("VeryLow");
    har.to_string().into_bytes()
}

#[test]
fn text_is_as_wide_as_the_terminal() {
    let place = place(&[("page.har", &with_events())]);
    for columns in [80, 100, 160] {
        let mut command = place.command(&["page.har"]);
        let (_, text, _) = outcome(command.env("COLUMNS", columns.to_string()).output().unwrap());
        let (_, tree) = text.split_once("\nTree (").unwrap();
        let rows: Vec<&str> = tree.lines().skip(3).take(4).collect();
        let widest = rows.iter().map(|row| row.chars().count()).max();
        assert_eq!(widest, Some(columns), "{rows:?}");
        assert!(
            text.lines()
                .filter(|line| !line.starts_with("  ."))
                .all(|line| line.chars().count() <= columns.max(100)),
            "{text}"
        );
    }
}

#[test]
fn events_priorities_and_what_blocks_rendering() {
    let place = place(&[("page.har", &with_events())]);
    let text = place.prints(&["page.har"]);
    for part in ["  D DOMContentLoaded 0.37 s", "  P LCP 0.42 s", "  L load event 0.48 s"] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
    let row =
        |name: &str| text.lines().find(|line| line.contains(name) && line.contains(" kB")).unwrap();
    assert!(
        row("a.test/a.js").starts_with("  * !") && row("a.test/a.js").ends_with("    H"),
        "{text}"
    );
    assert!(row("a.test/b ").ends_with("   VL"), "{text}");
    // The script ends where the document was parsed; the first row has all three events behind it.
    assert_eq!(row("a.test/  ").matches(':').count(), 3, "{text}");
    let json = place.json(&["page.har"]);
    let page = &json["pages"][0];
    assert_eq!(
        (&page["content_loaded_ms"], &page["largest_paint_ms"]),
        (&json!(371.0), &json!(420.0))
    );
    let blocks: Vec<_> =
        page["resources"].as_array().unwrap().iter().map(|one| &one["blocks_rendering"]).collect();
    assert_eq!(blocks, [&json!(false), &json!(true), &json!(false)]);
}

#[test]
fn colours_are_there_where_they_are_wanted() {
    let place = place(&[("page.har", &with_events())]);
    let call = |arguments: &[&str], no_color: &str| {
        let mut command = place.command(arguments);
        outcome(command.env("NO_COLOR", no_color).output().unwrap()).1
    };
    // Standard output is no terminal.
    for plain in [&["page.har"][..], &["page.har", "--color", "never"]] {
        assert!(!call(plain, "").contains('\x1b'), "{plain:?}");
    }
    let coloured = call(&["page.har", "--color", "always"], "1");
    assert!(
        coloured.contains("\x1b[1;31m*+  a.test/ ") && coloured.contains("\x1b[36m#"),
        "{coloured}"
    );
    let mut plain = coloured;
    for style in ["1;31", "2", "33", "34", "35", "36", "0"] {
        plain = plain.replace(&format!("\x1b[{style}m"), "");
    }
    assert_eq!(plain, call(&["page.har"], ""));
}

#[test]
fn a_waterfall_is_filtered_without_a_script() {
    let place = place(&[("page.har", &with_events())]);
    place.prints(&["page.har", "--html", "page.html", "--svg", "page.svg"]);
    let html = fs::read_to_string(place.path("page.html")).unwrap();
    for part in [
        r#"<input type="radio" class="of-script" name="page-0" id="page-0-script"/>"#,
        ".load .of-script:checked ~ .rows .row:not(.script)",
        r#"<details class="row all critical blocking script">"#,
        "<i class=\"lcp\" style=\"left:",
        "<dt>priority</dt><dd>H, blocks rendering</dd>",
    ] {
        assert!(html.contains(part), "{part:?} in\n{html}");
    }
    assert!(!html.contains("of-font\" name"), "no font, no choice");
    let svg = fs::read_to_string(place.path("page.svg")).unwrap();
    assert!(svg.contains("<title>DOMContentLoaded</title>") && svg.contains("<title>LCP</title>"));
}

#[test]
fn one_page_as_json() {
    let place = place(&[("page.har", &har("a.test"))]);
    let json = place.json(&["page.har"]);
    let page = &json["pages"][0];
    assert_eq!(page["page_load_ms"], 472.0);
    assert_eq!((&page["shape"]["min_rtt"], &page["shape"]["height"]), (&json!(5), &json!(3)));
    let path = &page["critical_path_ms"];
    let parts = ["queue", "tls", "server_wait", "transfer", "other"]
        .map(|part| path[part].as_f64().unwrap());
    assert!((parts.iter().sum::<f64>() - 472.0).abs() < 1e-6, "{parts:?}");
    assert_eq!(page["ignored"], json!({ "cached": 1 }));
    let data = &page["resources"][2];
    assert_eq!((&data["parent"], &data["parent_is"]), (&json!(1), &json!("recorded")));
    assert_eq!((&data["client_ms"], &data["min_rtt"]), (&json!(20.0), &json!(5)));
    assert_eq!(page["servers"][0]["round_trip_ms"], 40.0);
    assert_eq!(json["unreadable"], json!([]));
}

#[test]
fn several_pages_and_one_that_is_broken() {
    let place = place(&[
        ("a.har", &har("a.test")),
        ("b.har", &har("b.test")[..700]),
        ("c.har", &har("c.test")),
    ]);
    let (code, text, err) = place.call(&["a.har", "b.har", "c.har"]);
    assert_eq!(code, Some(2), "{err}");
    assert!(err.starts_with("warning: cannot read b.har: ") && err.contains("entry 1"), "{err}");
    assert!(text.starts_with("2 pages, with shares"), "{text}");
    for part in
        ["https://a.test/", "https://c.test/", "Over all pages", "\nnote: 1 file was not read"]
    {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
    let (_, json, _) = place.call(&["a.har", "b.har", "c.har", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["unreadable"][0]["file"], "b.har");
    assert_eq!(json["pages"].as_array().map(Vec::len), Some(2));
    assert_eq!(json["pages"][0]["resources"], Value::Null, "only of one page");
}

/// Folders and patterns: what is in them is read, other files are named, and the rest is shown.
#[test]
fn folders_and_patterns() {
    let place = place(&[
        ("all/a.har", &har("a.test")),
        ("all/b.har", &har("b.test")),
        ("all/notes.txt", b"no recording"),
        ("all/more/c.har", &har("c.test")),
        ("none/notes.txt", b"no recording"),
    ]);
    let pipe = place.path("all/pipe.har");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // A name is a name first.
    fs::write(place.path("[x].har"), har("x.test")).unwrap();
    let both = ["all/a.har", "all/b.har"];
    for (arguments, files) in [
        (&["all"][..], &both[..]),
        // The pipe is not waited for.
        (&["all/*.har"], &both),
        (&["all/[ab].har"], &both),
        (&["all/**/c.*", "all/?.har"], &["all/more/c.har", "all/a.har", "all/b.har"]),
        (&["[x].har"], &["[x].har"]),
    ] {
        let json = place.json(arguments);
        let pages = json["pages"].as_array().unwrap();
        let found: Vec<_> = pages.iter().map(|page| page["file"].as_str().unwrap()).collect();
        assert_eq!(found, files, "{arguments:?}");
    }

    let (code, text, err) = place.call(&["all", "none", "other/*.har", "all/[.har"]);
    assert_eq!(code, Some(2), "{err}");
    assert!(text.starts_with("2 pages, with shares"), "{text}");
    assert!(text.contains("\nnote: 3 files were not read"), "{text}");
    for line in [
        "warning: there is no recording in none\n",
        "warning: no file matches other/*.har\n",
        "warning: all/[.har is no pattern: ",
    ] {
        assert!(err.contains(line), "{line} in\n{err}");
    }
    assert!(place.fails_with_hint(&["none"]).contains("there is no recording in none"));
}

/// Recordings come from others: neither what they name nor their own names may command a terminal
/// or break a picture.
#[test]
fn hostile_names() {
    let mut hostile: Value = serde_json::from_slice(&har("a.test")).unwrap();
    hostile["log"]["pages"][0]["title"] =
        json!("\u{1b}]0;x\u{7}\u{9b}2J\u{202e}</title></text><script>x</script>]]>&\"'\u{ffff}");
    let place =
        place(&[("\u{1b}[2Ja\n.har", hostile.to_string().as_bytes()), ("\u{1b}[2Jb.har", b"{")]);
    let names = ["\u{1b}[2Ja\n.har", "\u{1b}[2Jb.har"];
    let (code, text, err) =
        place.call(&[names[0], names[1], "--svg", "page.svg", "--html", "page.html"]);
    assert_eq!(code, Some(2), "{err}");
    let picture = fs::read_to_string(place.path("page.svg")).unwrap();
    let report = fs::read_to_string(place.path("page.html")).unwrap();
    for text in [text, err, picture.clone(), report.clone()] {
        let mut controls = text.chars().filter(|char| !matches!(char, '\n' | '\t'));
        assert!(!controls.any(char::is_control), "{text:?}");
        assert!(!text.contains(['\u{202e}', '\u{ffff}']), "{text:?}");
    }
    assert!(!picture.contains("<script") && !report.contains("<script"));
}

#[test]
fn pictures_are_well_formed() {
    let place = place(&[("page.har", &har("a.test")), ("b.har", &har("b.test"))]);
    place.prints(&["page.har", "--svg", "page.svg", "--html", "page.html"]);
    place.prints(&["page.har", "b.har", "--html", "both.html"]);
    for name in ["page.svg", "page.html", "both.html"] {
        let text = fs::read_to_string(place.path(name)).unwrap();
        let mut reader = quick_xml::Reader::from_str(&text);
        while reader.read_event().unwrap_or_else(|error| panic!("{name}: {error}")) != Event::Eof {}
        assert!(text.contains("a.test/a.js"), "{name}");
        assert!(!text.contains("<script") && !text.contains("src="), "{name}");
    }
}

#[test]
fn pages_that_cannot_be_shown_are_reported() {
    let twice = json!({ "log": { "entries": [], "pages": [] } }).to_string();
    let place = place(&[
        ("a.har", &har("a.test")),
        ("b.har", &har("b.test")),
        ("empty.har", twice.as_bytes()),
    ]);
    assert!(place.fails_with_hint(&["none.har"]).contains("cannot read none.har"));
    assert!(place.fails_with_hint(&["empty.har"]).contains("there is no request in it"));
    assert!(
        place
            .fails_with_hint(&["a.har", "b.har", "--svg", "x.svg"])
            .contains("a picture shows one page")
    );
    assert!(place.fails_with_hint(&["a.har", "--page", "2"]).contains("no file has so many pages"));
}

#[test]
fn standard_input_is_read() {
    let place = place(&[]);
    let mut command = place.command(&["-"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&har("a.test")).unwrap();
    let (code, out, _) = outcome(child.wait_with_output().unwrap());
    assert_eq!(code, Some(0));
    assert!(out.starts_with("https://a.test/\n  -\n"), "{out}");
}

/// Memory of the program, some 20 MiB, and what a file may add.
const MEMORY: u64 = 64 << 20;

/// Returns the most memory that a process has had so far, in bytes.
fn peak(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn a_gzip_bomb_is_refused_with_little_memory() {
    let place = place(&[]);
    let mut command = place.command(&["-"]);
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(&compressed(b"{\"log\": {\"entries\": [{\"pageref\": \"")).unwrap();
    // Four times the memory; the last pipe of it, 64 kB, is not read yet when the peak is.
    let part = compressed(&vec![b'x'; 1 << 20]);
    for _ in 0..4 * (MEMORY >> 20) {
        input.write_all(&part).unwrap();
    }
    let peak = peak(child.id());
    drop(input);
    let (code, _, err) = outcome(child.wait_with_output().unwrap());
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("hint: the file is cut off"), "{err}");
    assert!(peak < MEMORY, "{} MiB", peak >> 20);

    let deep = [b"{\"x\": ".to_vec(), vec![b'['; 2 << 20]].concat();
    fs::write(place.path("deep.har.gz"), compressed(&deep)).unwrap();
    let err = place.fails_with_hint(&["deep.har.gz"]);
    assert!(err.contains("lists and objects within each other"), "{err}");
}

/// Recordings of CS244 have no times: a tree, but no waterfall.
#[test]
fn recordings_of_cs244() {
    let recording = json!({
        "name": "small", "head_bytes": 4000,
        "requests": [
            { "url_path": "/", "host": "a.test", "group": 0, "connection": 0,
              "after_head_of_group": null, "after_completion_of_group": null,
              "request_bytes": 300, "response_bytes": 9000 },
            { "url_path": "/x.png", "host": "b.test", "group": 1, "connection": 1,
              "after_head_of_group": 0, "after_completion_of_group": null,
              "request_bytes": 300, "response_bytes": 500 },
        ],
    });
    let place = place(&[("small.json", recording.to_string().as_bytes())]);
    let text = place.prints(&["small.json"]);
    assert!(text.contains("small\n") && text.contains("tree height 2, minRTT 4"), "{text}");
    assert!(text.contains("\n   +    b.test/x.png"), "{text}");
    assert!(place.fails_with_hint(&["small.json", "--svg", "x.svg"]).contains("no times"));
}
