//! `headstart pageload plan`, `simulate` and `validate` as processes: exit codes, hints,
//! text, JSON, CSV, reports.

use std::fs::{self, File};

use quick_xml::events::Event;
use serde_json::{Value, json};

use crate::har::{compressed, entry, file};
use crate::place::{Place, outcome};

fn place(files: &[(&str, &[u8])]) -> Place {
    Place::new(&[], files)
}

/// A document, a script of another host that it names, and one out of the cache.
fn har(host: &str) -> Vec<u8> {
    let document = format!("https://{host}/");
    let script = format!("https://static.{host}/a.js");
    let parser = json!({ "type": "parser", "url": document });
    let timings = json!({
        "blocked": 5, "dns": 15, "connect": 100, "ssl": 60, "send": 0, "wait": 80, "receive": 10,
    });
    let mut cached = entry(&format!("{document}c.js"), "00.260", &parser, 2_000, &timings);
    cached["_fromCache"] = json!("disk");
    let mut other = entry(&script, "00.250", &parser, 2_000, &timings);
    other["_connectionId"] = json!("2");
    let first = entry(&document, "00.000", &json!({ "type": "other" }), 2_000, &timings);
    file(&document, "2026-11-21T10:00:00.000Z", 480, &[first, other, cached])
}

/// A published load of one resource of 1,000 bytes, of which the published simulator said
/// `seconds`.
fn published(seconds: f64) -> Vec<u8> {
    let line = format!(
        r#"{{"set":"A","site":3,"page":"secret.test","inst":0,"cfg":"x","servers":[{{"host":"secret.test","port":443,"anon":0,"tls":1,"h2":1,"pipe_ok":0}}],"cols":["id","parent","server","req_bytes","size","parent_off","pf","url"],"res":[[0,-1,0,400,1000,0,0,"https://secret.test/way"]],"redirect_skip":0,"ref_sim":{{"h2":[{seconds},{seconds}]}}}}"#
    );
    [line.as_bytes(), b"\n"].concat()
}

/// Returns the time of a technique alone, in ms.
fn alone(page: &Value, technique: &str) -> f64 {
    let all = page["alone"].as_array().unwrap();
    let of = all.iter().find(|of| of["technique"] == technique).unwrap();
    of["page_load_ms"].as_f64().unwrap()
}

fn near(found: f64, expected: f64) -> bool {
    (found - expected).abs() < 1.5
}

#[test]
fn reports_the_savings_of_techniques() {
    let place = place(&[("page.har", &har("a.test"))]);
    let json = place.json(&["plan", "page.har", "--rtt", "100ms"]);
    let page = &json["pages"][0];
    let none = page["none"]["page_load_ms"].as_f64().unwrap();
    // Two connections one after the other.
    for (technique, saved) in
        [("turbotls", 200.0), ("fop", 200.0), ("0rtt", 200.0), ("resumption", 0.0)]
    {
        assert!(near(none - alone(page, technique), saved), "{technique} of {none}: {page}");
    }
    assert_eq!(
        (&json["setting"]["visit"], &json["setting"]["rtt_ms"]),
        (&json!("again"), &json!(100.0))
    );
    let hosts = page["hosts"]["alone"].as_array().unwrap();
    let names: Vec<_> = hosts.iter().map(|host| host["host"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 2);
    assert!(names.contains(&"a.test:443") && names.contains(&"static.a.test:443"), "{names:?}");
    assert!(
        hosts.iter().all(|host| near(host["turbotls_ms"].as_f64().unwrap(), 100.0)),
        "{hosts:?}"
    );
    assert_eq!(page["recorded_ms"], 460.0);
    assert_eq!(json["not_resources"], json!({ "cached": 1 }));

    let first = place.json(&["plan", "page.har", "--rtt", "100ms", "--visit", "first"]);
    let page = &first["pages"][0];
    assert!(near(page["none"]["page_load_ms"].as_f64().unwrap(), none));
    assert!(near(none - alone(page, "turbotls"), 200.0), "needs no state");
    assert!(near(none - alone(page, "0rtt"), 0.0), "needs a session");
}

#[test]
fn an_order_of_techniques() {
    let place = place(&[("page.har", &har("a.test"))]);
    let json = place.json(&["plan", "page.har", "--technique", "0rtt,turbotls,0rtt"]);
    assert_eq!(json["order"], json!(["0rtt", "turbotls"]));
    let cumulative = json["pages"][0]["cumulative"].as_array().unwrap();
    assert_eq!((cumulative.len(), &cumulative[1]["technique"]), (2, &json!("turbotls")));
    assert!(
        place
            .fails(&["plan", "page.har", "--technique", "magic"])
            .contains("'magic' is no technique")
    );
    let err = place.fails(&["plan", "page.har", "--profile", "blast", "--technique", "turbotls"]);
    assert!(err.contains("know nothing of turbotls\nhint: they know tfo, "), "{err}");
}

#[test]
fn a_plan_as_text() {
    let place = place(&[("page.har", &har("a.test"))]);
    let text = place.prints(&["plan", "page.har", "--rtt", "100ms", "--down", "8Mbit"]);
    for part in [
        "Profile tcp: round trip 100 ms; 8 Mbit/s down, no limit up; 0 % lost; a client that was \
            there before\n",
        "\nhttps://a.test/\n  2 resources from 2 servers, 4.0 kB back, minRTT 6\n",
        "\n  recorded 0.460 s, with round trips of 40 ms in the median of servers\n",
        "\nEach technique alone\n",
        "\nOver round trips: s until 95 % is loaded, and change of it\n",
        "\nWhat dominates: shares of the critical path\n",
        "\nIf this took no time\n",
        "\nWhich of your hosts to give an edge first\n",
        "\n  turbotls: TLS's first flights go over UDP while TCP connects\n",
        "\nOf the pages' entries no resources: 1\n  from the browser's cache: 1\n",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
}

/// A recording as other browsers save it: without initiators.
fn without_initiators(har: &[u8]) -> Vec<u8> {
    let mut har: Value = serde_json::from_slice(har).unwrap();
    for entry in har["log"]["entries"].as_array_mut().unwrap() {
        entry.as_object_mut().unwrap().remove("_initiator");
    }
    har.to_string().into_bytes()
}

#[test]
fn a_plan_begins_with_its_answer() {
    let mut recording: Value = serde_json::from_slice(&har("a.test")).unwrap();
    recording["log"]["pages"][0]["pageTimings"]["_largestContentfulPaint"] = json!(470);
    let place = place(&[("page.har", recording.to_string().as_bytes())]);
    let text = place.prints(&["plan", "page.har", "--rtt", "100ms"]);
    let (answer, rest) = text.split_once("\n\nDo first\n").unwrap();
    let answer = answer.replace('\n', " ");
    assert!(answer.starts_with("Edges in front of your 2 hosts ("), "{answer}");
    assert!(answer.contains(" would load 95 % of the page in 0."), "{answer}");
    assert!(!answer.contains("LCP") && rest.contains("  - LCP and load event: "), "{text}");
    assert!(answer.ends_with(" This is an estimate from one load."), "{answer}");
    for part in [
        "  1. ",
        "(turbotls alone: -",
        "\n\nHow sure is this?\n  - Parents: all are as recorded.\n  - One load: ",
        "\n  - Databases are taken to know this very recording",
        "\n  - Your hosts: the site of the document (",
    ] {
        assert!(rest.contains(part), "{part:?} in\n{text}");
    }
    let json = place.json(&["plan", "page.har", "--rtt", "100ms"]);
    let conclusion = &json["conclusion"];
    assert_eq!(
        format!("{} {}", text_of(&conclusion["answer"][0]), text_of(&conclusion["answer"][1])),
        answer
    );
    let first = conclusion["first"].as_array().unwrap();
    assert!((1..=3).contains(&first.len()), "{first:?}");
    // What a database saves by this recording is not told apart from what it was made of.
    assert!(first.iter().all(|step| !text_of(&step["technique"]).ends_with("-db")), "{first:?}");
    let saved: Vec<f64> = first.iter().map(|step| step["saved"].as_f64().unwrap()).collect();
    assert!(saved.is_sorted_by(|one, next| one >= next), "{saved:?}");
    let page = &json["pages"][0];
    let (none, edges) = (&page["none"], &page["hosts"]["edges"]);
    for event in ["largest_paint_ms", "on_load_ms"] {
        let [none, edges] = [none, edges].map(|of| of[event].as_f64().unwrap());
        assert!(near(none - edges, 400.0), "{event}: {none}, {edges}");
    }
    let point = &page["by_rtt"]["points"][0];
    assert_eq!(page["by_rtt"]["arms"][1], "your edges");
    assert!(point["saved"][1].as_f64().unwrap() > 0.1, "{point}");
    assert!(json["techniques"]["0rtt"].as_str().unwrap().contains("ClientHello"));
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap()
}

#[test]
fn a_guess_is_not_ranked() {
    let place =
        place(&[("guess.har", &without_initiators(&har("a.test"))), ("sure.har", &har("a.test"))]);
    let text = place.prints(&["plan", "guess.har", "--html", "plan.html"]);
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "If most of the inferred parents are right, edges in front of your 2 hosts",
        "This is a guess, without an order of hosts or steps",
        "1. Record the page in Chromium",
        "- Parents: 1 of 1 inferred from times",
        "Which of your hosts to give an edge first Not ranked: ",
    ] {
        assert!(flat.contains(part), "{part:?} in\n{text}");
    }
    assert!(!text.contains("an edge for it alone"), "{text}");
    assert!(is_well_formed(&place, "plan.html").contains("Not ranked: "));
    let json = place.json(&["plan", "guess.har"]);
    let hosts = &json["pages"][0]["hosts"];
    assert_eq!(
        (&hosts["are_ranked"], &hosts["alone"], &hosts["in_order"]),
        (&json!(false), &json!([]), &json!([]))
    );
    assert_eq!(json["conclusion"]["first"].as_array().map(Vec::len), Some(1));
    // One of two: hosts are ranked by the other.
    let json = place.json(&["plan", "guess.har", "sure.har"]);
    assert_eq!(
        (&json["overall"]["guesses"], &json["overall"]["hosts"][0]["pages"]),
        (&json!(1), &json!(1))
    );
    let text = place.prints(&["plan", "guess.har", "sure.har"]);
    assert!(text.contains("\n  - 2 loads of 1 page.\n"), "{text}");
}

#[test]
fn only_own_hosts_have_edges() {
    let mut recording = String::from_utf8(har("a.test")).unwrap();
    recording = recording.replace("static.a.test", "cdn.b.test");
    let place = place(&[("page.har", recording.as_bytes())]);
    let own = |options: &[&str]| {
        let json = place.json(&[&["plan", "page.har", "--rtt", "100ms"], options].concat());
        let hosts = json["pages"][0]["hosts"].clone();
        let saved = json["pages"][0]["none"]["page_load_ms"].as_f64().unwrap()
            - hosts["edges"]["page_load_ms"].as_f64().unwrap();
        (hosts["own"].clone(), hosts["others"].clone(), saved)
    };
    let (hosts, others, saved) = own(&[]);
    assert_eq!((hosts, others), (json!(["a.test:443"]), json!(1)));
    assert!(near(saved, 200.0), "{saved}");
    let (hosts, others, both) = own(&["--own", ".B.test", "--own", "a.test"]);
    assert_eq!((hosts, others), (json!(["a.test:443", "cdn.b.test:443"]), json!(0)));
    assert!(near(both, 400.0), "{both}");
    let (hosts, others, none) = own(&["--own", "b.test"]);
    assert_eq!((hosts, others), (json!([]), json!(2)));
    assert!(near(none, 0.0), "{none}");
    let text = place.prints(&["plan", "page.har", "--own", "b.test"]);
    assert!(text.starts_with("None of your hosts speaks TLS here"), "{text}");
    assert!(place.fails(&["plan", "page.har", "--own", "https://a.test"]).contains("write a host"));
}

/// The client's state and number of connections are parameters.
#[test]
fn the_initial_state_can_be_set() {
    let place = place(&[("page.har", &har("a.test")), ("old.jsonl", &published(2.4))]);
    let options = [&[][..], &["--moved", "100"], &["--warm", "100"]].map(|options: &[&str]| {
        let arms = ["--technique", "none", "--technique", "tfo", "--technique", "fop"];
        let all = [&["simulate", "page.har", "--rtt", "100ms"], &arms[..], options].concat();
        let json = place.json(&all);
        [0, 1, 2].map(|arm: usize| json["pages"][0]["arms"][arm]["page_load_ms"].as_f64().unwrap())
    });
    // Two connections one after the other: TCP and TLS of each, and two requests.
    let [[none, tfo, fop], [same, missed, found], open] = options;
    assert!(near(none - tfo, 200.0) && near(none - fop, 200.0), "{none}, {tfo}, {fop}");
    assert!(near(same, none) && near(missed, none) && near(found, fop), "{missed}, {found}");
    assert!(open.iter().all(|time| near(none - time, 400.0)), "{open:?}");

    for profile in ["tcp", "blast"] {
        let pools = ["--profile", profile, "--connections", "20", "--pipelining", "6"];
        let of = &place.json(&[&["simulate", "old.jsonl"], &pools[..]].concat())["setting"];
        assert_eq!((&of["connections"], &of["pipelining"]), (&json!(20), &json!(6)), "{profile}");
    }
    let wrong =
        place.fails_with_hint(&["simulate", "page.har", "--profile", "blast", "--warm", "1"]);
    assert!(wrong.contains("know nothing of --warm"), "{wrong}");
}

#[test]
fn many_pages_and_one_that_is_broken() {
    let place = place(&[
        ("all/a.har", &har("a.test")),
        ("all/b.har", &har("b.test")[..900]),
        ("all/c.har.gz", &compressed(&har("c.test"))),
        ("all/notes.txt", b"not a recording"),
    ]);
    let (code, text, err) = place.call(&["plan", "all", "--html", "plan.html"]);
    assert_eq!(code, Some(2), "{err}");
    assert!(err.starts_with("warning: cannot read all/b.har: "), "{err}");
    for part in [
        "\n2 pages: in the mean 95 % loaded after ",
        "\nAll techniques, by size of the page\n",
        "\nCorrelation of page load times with (of ranks)\n",
        "\nPages that gain most\n",
        "static.c.test:443",
        "\nnote: 1 file was not read, see the warnings\n",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
    let (_, json, _) = place.call(&["plan", "all", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&json["overall"]["pages"], &json["unreadable"][0]["file"]),
        (&json!(2), &json!("all/b.har"))
    );
    assert_eq!(json["not_resources"], json!({ "cached": 2 }));
    let files: Vec<_> =
        json["pages"].as_array().unwrap().iter().map(|page| &page["file"]).collect();
    assert_eq!(files, ["all/a.har", "all/c.har.gz"]);
    is_well_formed(&place, "plan.html");
    assert!(place.fails(&["plan", "none.har"]).contains("cannot read none.har"));
    fs::create_dir(place.path("empty")).unwrap();
    assert!(place.fails(&["plan", "empty"]).contains("there is no recording in empty"));
}

#[test]
fn reports_are_well_formed() {
    let place = place(&[("page.har", &har("a.test"))]);
    place.prints(&["plan", "page.har", "--html", "tcp.html"]);
    place.prints(&["plan", "page.har", "--profile", "blast", "--html", "blast.html"]);
    for name in ["tcp.html", "blast.html"] {
        let text = is_well_formed(&place, name);
        assert!(text.contains("<svg") && text.contains("https://a.test/"), "{name}");
    }
}

fn is_well_formed(place: &Place, name: &str) -> String {
    let text = fs::read_to_string(place.path(name)).unwrap();
    let mut reader = quick_xml::Reader::from_str(&text);
    while reader.read_event().unwrap_or_else(|error| panic!("{name}: {error}")) != Event::Eof {}
    assert!(!text.contains("<script") && !text.contains("src=") && !text.contains("NaN"), "{name}");
    text
}

#[test]
fn loads_one_by_one() {
    let place = place(&[("a.har", &har("a.test")), ("b.har", &har("b.test"))]);
    let arguments = ["simulate", "a.har", "b.har", "--loss", "5", "--draws", "20", "--seed", "7"];
    let arms = ["--technique", "none", "--technique", "turbotls+0rtt", "--csv", "loads.csv"];
    let json = place.json(&[&arguments[..], &arms].concat());
    let mut csv = csv::Reader::from_reader(File::open(place.path("loads.csv")).unwrap());
    let lines: Vec<(String, String, u64, f64)> = csv
        .deserialize()
        .map(|line: Result<std::collections::HashMap<String, String>, _>| {
            let line = line.unwrap();
            (
                line["file"].clone(),
                line["techniques"].clone(),
                line["seed"].parse().unwrap(),
                line["page_load_ms"].parse().unwrap(),
            )
        })
        .collect();
    assert_eq!(lines.len(), 2 * 2 * 20);
    assert!(lines.iter().all(|line| (7..27).contains(&line.2)));
    for page in json["pages"].as_array().unwrap() {
        for arm in page["arms"].as_array().unwrap() {
            let own = lines.iter().filter(|line| {
                page["file"] == line.0.as_str() && arm["techniques"] == line.1.as_str()
            });
            let times: Vec<f64> = own.map(|line| line.3).collect();
            assert_eq!((times.len(), &arm["loads"]), (20, &json!(20)));
            let mean = times.iter().sum::<f64>() / 20.0;
            assert!((mean - arm["page_load_ms"].as_f64().unwrap()).abs() < 1e-6);
        }
    }
    let once = fs::read(place.path("loads.csv")).unwrap();
    place.prints(&[&arguments[..], &arms].concat());
    assert_eq!(
        once,
        fs::read(place.path("loads.csv")).unwrap(),
        "the same seeds give the same loads"
    );
}

#[test]
fn loads_as_text() {
    let place = place(&[("a.har", &har("a.test")), ("b.har", &har("b.test"))]);
    let arms = ["--technique", "none", "--technique", "all", "--rtt", "100ms"];
    let text = place.prints(&[&["simulate", "a.har"], &arms[..]].concat());
    assert!(text.contains("\nhttps://a.test/ (2 resources, recorded 0.460 s)\n"), "{text}");
    assert!(text.contains("\n  none ") && text.contains("\n  turbotls+resumption+0rtt"), "{text}");
    let text = place.prints(&[&["simulate", "a.har", "b.har", "--rows", "1"], &arms[..]].concat());
    for part in [
        "\n2 pages, until 95 % is loaded, in s\n",
        "\n  and 1 more (--rows N)\n",
        "\nOver all pages, in s\n",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
}

#[test]
fn invalid_links_are_refused() {
    let place = place(&[("a.har", &har("a.test"))]);
    for arguments in [
        ["--down", "0Mbit"],
        ["--down", "8"],
        ["--rtt", "-1ms"],
        ["--loss", "90"],
        ["--hit-rate", "101"],
        ["--draws", "0"],
    ] {
        assert!(!place.fails(&[&["simulate", "a.har"], &arguments[..]].concat()).is_empty());
    }
    let err = place.fails(&["simulate", "a.har", "--profile", "blast", "--loss", "1"]);
    assert!(err.contains("the published rules know nothing of --loss"), "{err}");
    // No round trip at all is a link.
    place.prints(&["simulate", "a.har", "--rtt", "0ms"]);
}

#[test]
fn published_loads_have_no_names() {
    let place = place(&[("loads.jsonl", &[published(1.0), published(2.0)].concat())]);
    let text = place.prints(&["plan", "loads.jsonl", "--profile", "blast", "--html", "plan.html"]);
    let json = place.prints(&["simulate", "loads.jsonl", "--json"]);
    let html = fs::read_to_string(place.path("plan.html")).unwrap();
    for output in [&text, &json, &html] {
        assert!(output.contains("site 3, line 2") && !output.contains("secret"), "{output}");
    }
}

/// TCP, TLS and the request take 0.8 s each, three cells of 498 bytes at 164 kB/s the rest.
#[test]
fn bars_are_kept_or_missed() {
    let published_s = 2.4 + 3.0 * 498.0 / 164_000.0;
    let place = place(&[
        ("near.jsonl", &published(published_s + 0.03)),
        ("far.jsonl.gz", &compressed(&published(published_s + 0.07))),
        ("data/blast/blast-train.jsonl", &published(published_s)),
        ("none.jsonl", br#"{"set":"P","site":1,"page":"x"}"#),
    ]);
    let json = place.json(&["validate", "--blast", "near.jsonl"]);
    let h2 = &json["settings"]["h2"];
    assert_eq!((&json["holds"], &h2["n"], &h2["bar_s"]), (&json!(true), &json!(1), &json!(0.05)));
    for (key, expected) in [
        ("mae_plt_s", 0.03),
        ("mae_resource_s", 0.03),
        ("mean_plt_s", published_s),
        ("ref_mean_plt_s", published_s + 0.03),
    ] {
        assert!((h2[key].as_f64().unwrap() - expected).abs() < 1e-4, "{key}: {h2}");
    }
    let (code, text, err) = place.call(&["validate", "--reference", "far.jsonl.gz"]);
    assert_eq!((code, err.as_str()), (Some(1), ""));
    assert!(text.contains("missed") && text.ends_with("\n1 bar is missed.\n"), "{text}");
    let text = place.prints(&["validate", "--blast", "data"]);
    assert!(text.ends_with("\nAll bars are kept.\n") && !text.contains("secret"), "{text}");
    let named = place.command(&["validate"]).env("HEADSTART_DATA", place.path("data")).output();
    assert_eq!(named.unwrap().status.code(), Some(0));
    assert!(place.fails(&["validate"]).contains("hint: add --blast FILE"));
    assert!(place.fails(&["validate", "--blast", "none.jsonl"]).contains("has no results"));
    let err = place.fails(&["validate", "--blast", "."]);
    assert!(err.contains("there is no blast/blast-train.jsonl.gz in ."), "{err}");
}

#[test]
fn the_published_simulator_is_met() {
    let Some(folder) = std::env::var_os("HEADSTART_DATA") else {
        eprintln!("skipped: HEADSTART_DATA names no folder of data sets");
        return;
    };
    let place = place(&[]);
    let mut command = place.command(&["validate", "--json"]);
    let (code, json, err) = outcome(command.env("HEADSTART_DATA", folder).output().unwrap());
    assert_eq!((code, err.as_str()), (Some(0), ""), "{json}");
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["settings"].as_object().unwrap().len(), 19);
    assert_eq!(json["settings"]["h2"]["n"], 96);
}
