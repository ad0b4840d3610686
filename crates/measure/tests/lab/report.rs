//! `headstart lab report` as a process, on folders drawn from a seeded law.

mod fixture;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fixture::{ARMS, Fixture, Link, edit};
use quick_xml::Reader;
use quick_xml::XmlVersion;
use quick_xml::events::Event;
use serde_json::Value;

use crate::beside_others;
use crate::call::{Outcome, outcome};
use crate::samples;

fn report(arguments: &[&Path]) -> Outcome {
    let _machine = beside_others();
    let mut command = Command::new(crate::programs::LAB);
    outcome(command.args(["lab", "report"]).args(arguments).env_clear().output().unwrap())
}

/// The HTML of a folder, and the text on the terminal.
fn rendered(fixture: &Fixture) -> (String, String) {
    let dir = tempfile::tempdir().unwrap();
    fixture.write(dir.path());
    let (code, out, err) = report(&[dir.path()]);
    assert_eq!(code, Some(0), "{err}");
    (fs::read_to_string(dir.path().join("report.html")).unwrap(), out)
}

/// Checks that a document is XML without what its parser must not let pass, and gives its text and
/// the names of its elements.
fn parse(html: &str) -> (String, Vec<String>) {
    let mut reader = Reader::from_str(html);
    reader.config_mut().enable_all_checks(true);
    let (mut text, mut elements) = (String::new(), Vec::new());
    loop {
        match reader.read_event().unwrap() {
            Event::Start(start) | Event::Empty(start) => {
                elements.push(String::from_utf8(start.name().as_ref().to_vec()).unwrap());
                for attribute in start.attributes() {
                    attribute.unwrap().normalized_value(XmlVersion::Implicit1_0).unwrap();
                }
            }
            Event::Text(words) => text.push_str(&words.decode().unwrap()),
            Event::GeneralRef(name) => {
                text.push_str(match &*name {
                    b"lt" => "<",
                    b"gt" => ">",
                    b"amp" => "&",
                    b"quot" => "\"",
                    other => panic!("&{};", String::from_utf8_lossy(other)),
                });
            }
            Event::Eof => return (text, elements),
            _ => {}
        }
    }
}

/// Everything that a report can show. Left in the target folder, to be looked at.
fn everything(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let fixture = Fixture {
        links: vec![
            Link { name: "paris-paris", rtt_ms: 0.261, slow: 0.0, fails: 0.0 },
            Link { name: "paris-oregon", rtt_ms: 133.021, slow: 0.0, fails: 0.0 },
            Link { name: "loss 5 %", rtt_ms: 50.0, slow: 0.1, fails: 0.05 },
        ],
        suites: vec!["p256", "mlkem512-mldsa44"],
        arms: ARMS.into(),
        trials: 60,
        reference: Some("turbotls"),
    };
    fixture.write(&dir);
    dir
}

#[test]
fn the_html_is_well_formed_and_needs_nothing_else() {
    let dir = everything("report-of-everything");
    let (code, _, err) = report(&[&dir]);
    assert_eq!(code, Some(0), "{err}");
    let html = fs::read_to_string(dir.join("report.html")).unwrap();
    let (text, elements) = parse(&html);
    for absent in ["script", "link", "img", "iframe", "object"] {
        assert!(!elements.contains(&absent.to_owned()), "{absent}");
    }
    for absent in ["http:", "https:", "url(", "@import", " src=", "NaN", "inf "] {
        assert!(!html.contains(absent), "{absent}");
    }
    // Three distributions, a timeline and its three colour keys for each link and suite; the
    // answer, and a chart over links for each suite.
    let pictures = elements.iter().filter(|name| *name == "svg").count();
    assert_eq!(pictures, 3 * 2 * (3 + 1 + 3) + 1 + 2);
    for shown in [
        "A fixture, drawn and not measured",
        "headstart lab run fixture",
        "2026-11-21T12:00:00Z",
        "exactness.realtime",
        "78 µs",
        "2 of 3",
        "ratio max to tls13 of first request byte",
        "Aguilar-Melchor",
        "timed out",
        "no answer over UDP in time",
        "not measured in this run",
        "turbo-0rtt",
        "(log)",
    ] {
        assert!(text.contains(shown), "{shown}");
    }
    assert!(html.len() < 1_000_000, "{} bytes", html.len());
}

#[test]
fn names_cannot_become_markup() {
    let hostile = "<script>alert(\"a & b\")</script> 'x'";
    let fixture = Fixture {
        links: vec![Link { name: hostile, rtt_ms: 10.0, slow: 0.0, fails: 0.0 }],
        arms: vec![("tls13", "plain", 2.0), ("<b>&", "turbo", 1.0)],
        ..Fixture::small()
    };
    let (html, _) = rendered(&fixture);
    let (text, elements) = parse(&html);
    assert!(text.contains(hostile) && text.contains("<b>&"), "{text}");
    assert!(!elements.iter().any(|name| name == "script"));
    assert!(!elements.iter().any(|name| name == "b") || !html.contains("<b>&"), "{html}");
}

#[test]
fn the_numbers_are_those_of_the_summary() {
    let dir = tempfile::tempdir().unwrap();
    Fixture::small().write(dir.path());
    let (_, out, _) = report(&[dir.path()]);
    let html = fs::read_to_string(dir.path().join("report.html")).unwrap();
    let (text, _) = parse(&html);
    let summary: Value =
        serde_json::from_slice(&fs::read(dir.path().join("summary.json")).unwrap()).unwrap();
    for arm in 0..2 {
        for of in ["first_request_byte", "first_response_byte", "last_response_byte"] {
            let shown = format!("{:.1}", summary[arm][of]["p50"].as_f64().unwrap());
            assert!(text.contains(&shown) && out.contains(&shown), "{arm} {of}: {shown}\n{out}");
        }
        for percentile in ["p90", "max"] {
            let ms = summary[arm]["first_request_byte"][percentile].as_f64().unwrap();
            assert!(text.contains(&format!("{ms:.1}")), "{percentile}");
        }
    }
    let [plain, turbo] =
        [0, 1].map(|arm: usize| summary[arm]["first_request_byte"]["p50"].as_f64().unwrap());
    let ratio = turbo / plain;
    assert!(text.contains(&format!("{ratio:.3}")) && out.contains(&format!("{ratio:.3} [")));
    // The paper's medians for Oregon, and ours in parts of them.
    for printed in ["266.984 / 268.386 / 268.54", "133.981 / 135.45 / 135.583"] {
        assert!(text.contains(printed) && out.contains(printed), "{printed}\n{out}");
    }
    let beside = turbo / 133.981;
    assert!(text.contains(&format!("{beside:.3}")) && out.contains(&format!("{beside:.3} [")));
}

#[test]
fn json_has_the_figures_and_writes_no_file() {
    let dir = tempfile::tempdir().unwrap();
    Fixture::small().write(dir.path());
    let (_, text, _) = report(&[dir.path()]);
    fs::remove_file(dir.path().join("report.html")).unwrap();
    let (code, out, err) = report(&[dir.path(), Path::new("--json")]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(!dir.path().join("report.html").exists());
    let runs: Value = serde_json::from_str(&out).unwrap();
    let [run] = &runs.as_array().unwrap()[..] else { panic!("{runs}") };
    assert_eq!((&run["trials"], &run["bars"]["figures"]["all"]), (&80.into(), &1.into()));
    let summary: Value =
        serde_json::from_slice(&fs::read(dir.path().join("summary.json")).unwrap()).unwrap();
    let cells = &run["groups"][0]["cells"];
    for arm in [0, 1] {
        for name in ["/arm", "/n", "/openings", "/first_response_byte/p50"] {
            assert_eq!(cells[arm].pointer(name), summary[arm].pointer(name), "{name}");
        }
    }
    let estimates = [&cells[1]["to_baseline"]["first_request_byte"], &published(run)["to_paper"]];
    for estimate in estimates {
        let [value, low, high] = [&estimate["value"], &estimate["ci95"][0], &estimate["ci95"][1]]
            .map(|figure| format!("{:.3}", figure.as_f64().unwrap()));
        assert!(text.contains(&format!("{value} [{low}, {high}]")), "{value}\n{text}");
    }
}

/// Ours beside the published row of TurboTLS.
fn published(run: &Value) -> &Value {
    let mut lines = run["published"].as_array().unwrap().iter();
    &lines.find(|line| line["arm"] == "turbo" && line["ours"].is_object()).unwrap()["ours"]
}

#[test]
fn the_answer_and_its_picture_come_first() {
    let dir = everything("answer-of-everything");
    let (code, out, err) = report(&[&dir]);
    assert_eq!(code, Some(0), "{err}");
    let html = fs::read_to_string(dir.join("report.html")).unwrap();
    let (text, _) = parse(&html);
    let answer = "-0rtt takes least: 0.0";
    assert!(out.lines().nth(1).is_some_and(|line| line.contains(answer)), "{out}");
    let places = [
        answer,
        "Left of 1 is faster",
        ", over what is swept",
        "are flagged: while they ran",
        "paris-oregon · p256",
        "Times here are drawn",
        "exactness.realtime",
    ];
    let places = places.map(|part| text.find(part).unwrap_or_else(|| panic!("{part}")));
    assert!(places.is_sorted(), "{places:?}");
    // Contents: each link and suite.
    assert!(html.contains("<a href=\"#run-0-group-5\">loss 5 % · mlkem512-mldsa44</a>"));
}

/// Without a trial that was not flagged there is no such median: nothing has failed.
#[test]
fn flagged_trials_have_not_failed() {
    let dir = tempfile::tempdir().unwrap();
    Fixture::small().write(dir.path());
    edit(dir.path(), "summary.json", |text| {
        let mut summary: Value = serde_json::from_str(&text).unwrap();
        summary[1]["flagged"] = summary[1]["n"].clone();
        summary.to_string()
    });
    let (code, _, err) = report(&[dir.path()]);
    assert_eq!(code, Some(0), "{err}");
    let (text, _) = parse(&fs::read_to_string(dir.path().join("report.html")).unwrap());
    assert!(text.contains("all flagged"), "{text}");
}

#[test]
fn the_end_of_a_page_load_comes_first() {
    let dir = tempfile::tempdir().unwrap();
    Fixture::small().write(dir.path());
    let times = report(&[dir.path()]).1;
    assert!(
        times.contains("request, ms p50") && times.contains(" to the first request byte"),
        "{times}"
    );
    edit(dir.path(), "experiment.toml", |text| {
        text + "[[variant]]\nwork.page = { file = \"page.har\" }\n"
    });
    let (code, out, err) = report(&[dir.path()]);
    assert_eq!(code, Some(0), "{err}");
    assert!(
        out.contains("page load, ms p50") && out.contains(" to the end of the page load"),
        "{out}"
    );
    let (text, _) = parse(&fs::read_to_string(dir.path().join("report.html")).unwrap());
    let end = text.find("ms to the end of the page load").unwrap();
    assert!(end < text.find("ms to the first request byte").unwrap());
}

#[test]
fn a_report_is_reproducible() {
    let dir = tempfile::tempdir().unwrap();
    Fixture::small().write(dir.path());
    let [first, second] = [(); 2].map(|()| {
        let (code, out, err) = report(&[dir.path()]);
        assert_eq!(code, Some(0), "{err}");
        (fs::read_to_string(dir.path().join("report.html")).unwrap(), out)
    });
    assert_eq!(first, second);
}

#[test]
fn few_trials_are_labelled() {
    let few = Fixture { trials: 5, ..Fixture::small() };
    let enough = Fixture { trials: 6, ..Fixture::small() };
    let words = "no interval of 95 %";
    let ((html, out), (html_enough, out_enough)) = (rendered(&few), rendered(&enough));
    assert!(html.contains(words) && out.contains(words));
    assert!(!html_enough.contains(words) && !out_enough.contains(words));
}

#[test]
fn an_arm_that_never_completed_is_shown() {
    let (html, out) = rendered(&Fixture {
        links: vec![Link { name: "dead", rtt_ms: 10.0, slow: 0.0, fails: 1.0 }],
        ..Fixture::small()
    });
    let (text, _) = parse(&html);
    assert!(text.contains("40 (100 %)") && out.contains("40 (100 %)"), "{out}");
    assert!(text.contains("no trial came so far"));
    assert!(out.contains("failed [failed, failed]"), "{out}");
}

/// Failed trials rank behind all others: with three of ten failed, the slowest tenth is among them,
/// and the median is later than that of what completed.
#[test]
fn failed_trials_rank_behind_all_others() {
    let (html, out) = rendered(&Fixture {
        links: vec![Link { name: "bad", rtt_ms: 10.0, slow: 0.0, fails: 0.3 }],
        ..Fixture::small()
    });
    let (text, _) = parse(&html);
    assert!(text.contains("max failed") && out.contains("max failed"), "{out}");
    assert!(text.contains("one that failed counts as slower"), "{text}");
}

#[test]
fn cells_that_were_cut_short_say_why() {
    let dir = tempfile::tempdir().unwrap();
    Fixture::small().write(dir.path());
    edit(dir.path(), "summary.json", |text| {
        let mut summary: Value = serde_json::from_str(&text).unwrap();
        summary[1]["broken"] = "the server died".into();
        summary[1]["server_cpu_ms"] = 0.75.into();
        summary[1]["exchanges_per_s"] = 31.5.into();
        summary[1]["flagged"] = 1.into();
        summary[1]["p50_unflagged"] = 133.7.into();
        summary.to_string()
    });
    let (code, out, err) = report(&[dir.path()]);
    assert!(
        code == Some(0) && out.contains("Broken: turbo, p256, paris-oregon: the server died"),
        "{err}{out}"
    );
    let (text, _) = parse(&fs::read_to_string(dir.path().join("report.html")).unwrap());
    assert!(
        text.contains("the server died")
            && text.contains("0.750")
            && text.contains("CPU ms, server")
            && text.contains("31.5")
            && text.contains("133.7")
            && text.contains("exchanges per s")
    );
}

#[test]
fn several_folders_make_one_report() {
    let dir = tempfile::tempdir().unwrap();
    let (one, other) = (dir.path().join("one"), dir.path().join("other"));
    Fixture::small().write(&one);
    Fixture { reference: None, ..Fixture::small() }.write(&other);
    let (code, out, err) = report(&[&one, &other]);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(err.contains("hint: add --html FILE"), "{err}");
    let html = dir.path().join("both.html");
    let (code, out, err) = report(&[&one, &other, Path::new("--html"), &html]);
    assert_eq!((code, out.matches(": 80 trials, ").count()), (Some(0), 2), "{err}");
    parse(&fs::read_to_string(&html).unwrap());
}

/// Returns the message about a folder after `change`; nothing may have been written.
fn refused(change: impl Fn(&Path)) -> String {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("results");
    Fixture::small().write(&dir);
    change(&dir);
    let (code, out, err) = report(&[&dir]);
    assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
    assert!(err.starts_with("error: ") && err.contains("\nhint: "), "{err}");
    assert!(!dir.join("report.html").exists());
    err
}

#[test]
fn half_a_result_is_refused() {
    let json = ["summary.json", "bars.json", "environment.json"];
    for name in [&json[..], &["samples.csv.zst", "experiment.toml"]].concat() {
        if name != "bars.json" {
            let output = refused(|dir| fs::remove_file(dir.join(name)).unwrap());
            assert!(output.contains(name.trim_end_matches(".zst")), "{output}");
        }
        let output = refused(|dir| fs::write(dir.join(name), [0xff, 0xfe]).unwrap());
        assert!(output.contains(name.trim_end_matches(".zst")), "{output}");
    }
    let gone = refused(|dir| fs::remove_dir_all(dir).unwrap());
    assert!(gone.contains("no such folder"), "{gone}");
    let partial = refused(|dir| fs::rename(dir, dir.with_extension("partial")).unwrap());
    assert!(partial.contains("results.partial is of a run that did not end"), "{partial}");
    let empty = refused(|dir| {
        edit(dir, "samples.csv.zst", |text| text.lines().next().unwrap().to_owned() + "\n");
    });
    assert!(empty.contains("no trials"), "{empty}");
    let none = refused(|dir| fs::write(dir.join("summary.json"), "[]").unwrap());
    assert!(none.contains("no results"), "{none}");
}

#[test]
fn results_with_uncompressed_samples_are_read() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("results");
    Fixture::small().write(&dir);
    let compressed = report(&[&dir]);
    assert_eq!(compressed.0, Some(0), "{}", compressed.2);
    fs::write(dir.join("samples.csv"), samples::text(&dir)).unwrap();
    fs::remove_file(dir.join("samples.csv.zst")).unwrap();
    assert_eq!(report(&[&dir]), compressed);
}

#[test]
fn results_of_another_form_are_refused_with_a_hint() {
    let other = refused(|dir| {
        edit(dir, "summary.json", |text| text.replace("\"rtt_ms\"", "\"round_trip\""));
    });
    assert!(other.contains("missing field `rtt_ms`"), "{other}");
    assert!(other.contains("hint: the file is damaged, or of another version"), "{other}");
}

#[test]
fn a_folder_that_contradicts_itself_is_refused() {
    let cut = refused(|dir| {
        edit(dir, "samples.csv.zst", |text| {
            let lines: Vec<&str> = text.lines().collect();
            lines[..lines.len() - 5].join("\n") + "\n"
        });
    });
    assert!(cut.contains("35 trials") && cut.contains("summary.json says"), "{cut}");
    let torn = refused(|dir| {
        edit(dir, "samples.csv.zst", |text| text[..text.len() - 30].to_owned());
    });
    assert!(torn.contains("samples.csv"), "{torn}");
    let changed = refused(|dir| {
        edit(dir, "summary.json", |text| {
            let mut summary: Value = serde_json::from_str(&text).unwrap();
            summary[1]["first_request_byte"]["p50"] = 1.0.into();
            summary.to_string()
        });
    });
    assert!(changed.contains("turbo, p256, paris-oregon has first request byte"), "{changed}");
    let missing = refused(|dir| {
        edit(dir, "summary.json", |text| {
            let mut summary: Vec<Value> = serde_json::from_str(&text).unwrap();
            summary.truncate(1);
            Value::Array(summary).to_string()
        });
    });
    assert!(missing.contains("turbo over paris-oregon"), "{missing}");
    let unknown = refused(|dir| {
        edit(dir, "experiment.toml", |text| text.replace("turbotls", "nothing"));
    });
    assert!(unknown.contains("no published table 'nothing'"), "{unknown}");
    let negative = refused(|dir| {
        edit(dir, "samples.csv.zst", |text| text.replace(",turbo,1", ",turbo,-1"));
    });
    assert!(negative.contains("no time"), "{negative}");
}
