//! `headstart pageload validate` with `--replays` and `--browser`: the simulator against loads over
//! real sockets and in a browser, as results of the lab have them.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::call::outcome;
use crate::place::Place;

/// Two pages of which the second is held out, over a link that the simulator has and one that it
/// does not have.
const EXPERIMENT: &str = r#"
name = "two"
title = "Two pages"
about = "A test"
trials = 3
quick_trials = 1
arms = ["tls13", "turbo"]
suites = ["p256"]

[[link]]
name = "100 ms"
rtt = "100ms"

[[link]]
name = "jitter"
rtt = "100ms"
path = "delay 50ms jitter 1ms"

[[variant]]
name = "first"
work.page = { file = "page.json" }

[[variant]]
name = "second"
work.page = { file = "page.json" }
"#;

/// One request: three round trips by TLS 1.3 over TCP, two by TurboTLS.
fn page() -> Value {
    json!({
        "name": "small", "head_bytes": 4000,
        "requests": [{
            "id": 0, "method": "GET", "url_path": "/", "host": "a.test",
            "group": 0, "connection": 0,
            "after_head_of_group": null, "after_completion_of_group": null,
            "request_bytes": 400, "response_bytes": 1000,
        }],
    })
}

fn cell(variant: &str, link: &str, arm: &str, ms: f64) -> Value {
    json!({
        "experiment": "two", "variant": variant, "link": link, "arm": arm, "suite": "p256",
        "n": 3, "failed": 0, "flagged": 0, "openings": {}, "rtts": null, "rtt_ms": 100.0,
        "first_request_byte": null, "first_response_byte": null,
        "last_response_byte": {
            "p50": ms, "p90": null, "p99": null, "max": ms, "mean": ms, "sd": 0.0, "ci95": [ms, ms],
        },
    })
}

fn place(cells: &[Value]) -> Place {
    let [page, cells] = [page(), json!(cells)].map(|value| value.to_string().into_bytes());
    Place::new(
        &["validate"],
        &[
            ("page.json", &page),
            ("results/experiment.toml", EXPERIMENT.as_bytes()),
            ("results/summary.json", &cells),
        ],
    )
}

#[test]
fn held_out_pages_decide() {
    // Simulated: 300.5 and 200.5 ms, with the processor time of a full handshake.
    let place = place(&[
        cell("first", "100 ms", "tls13", 601.0),
        cell("second", "100 ms", "tls13", 300.5),
        cell("second", "100 ms", "turbo", 250.625),
        cell("second", "jitter", "tls13", 300.0),
    ]);
    // Of two pairs there is no order.
    let (code, out, err) = place.call(&["--replays", "results", "--json"]);
    assert_eq!((code, err.as_str()), (Some(1), ""));
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&report["holds"], &report["left_out"]), (&json!(false), &json!(1)));
    let held_out = &report["groups"][0];
    assert_eq!((&held_out["name"], &held_out["times"]["n"]), (&json!("pages held out"), &json!(2)));
    for (value, expected) in [
        // Nothing of one, a fifth of the other.
        (&held_out["times"]["mean_absolute_percentage_error"], 0.1),
        (&held_out["times"]["bias"], -0.1),
        // Saved: 16.6 % measured, 33.3 % simulated.
        (&held_out["saving_error_points"], 100.0 * (50.125 / 300.5)),
        (&report["groups"][1]["times"]["bias"], -0.5),
    ] {
        let value = value.as_f64().unwrap();
        assert!((value - expected).abs() < 1e-3, "{value} is not {expected}");
    }
    let (_, text, _) = place.call(&["--replays", "results"]);
    assert!(text.contains("1 cell is without a median, or over links"), "{text}");
}

#[test]
fn results_of_something_else_are_refused() {
    let place = place(&[]);
    assert!(place.fails(&["--replays", "results"]).contains("has no loads of pages"));
    assert!(place.fails(&["--replays", "none"]).contains("cannot read"));
    std::fs::remove_file(place.path("page.json")).unwrap();
    assert!(place.fails(&["--replays", "results"]).contains("there is no recorded page page.json"));
}

/// docs/results.md has what the command says of the committed results.
#[test]
fn the_page_of_results_has_the_table() {
    if std::env::var_os("HEADSTART_DATA").is_none() {
        eprintln!("skipped: HEADSTART_DATA names no folder of data sets");
        return;
    }
    let root = root();
    let page = std::fs::read_to_string(root.join("docs/results.md")).unwrap();
    let (_, command) = page.split_once("\n$ headstart pageload validate --replays ").unwrap();
    let (folder, text) = command.split_once('\n').unwrap();
    let (text, _) = text.split_once("```").unwrap();
    let mut command = std::process::Command::new(crate::programs::LAB);
    command.args(["pageload", "validate", "--replays", folder]).current_dir(root);
    let (code, out, _) = outcome(command.output().unwrap());
    assert_eq!((code, out.as_str()), (Some(0), text));
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Calls a command about pages on the committed run in a browser.
fn on_committed(args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = std::process::Command::new(crate::programs::LAB);
    outcome(command.arg("pageload").args(args).current_dir(root()).output().unwrap())
}

/// The mean of a figure of cells, in percent.
fn mean(cells: &[&Value], of: impl Fn(&Value, &str) -> f64, name: &str) -> f64 {
    cells.iter().map(|cell| of(cell, name)).sum::<f64>() / cells.len() as f64 * 100.0
}

fn figure(cell: &Value, name: &str) -> f64 {
    cell[name].as_f64().unwrap()
}

/// Figures of docs/pageload.md, from the committed recordings and loads.
#[test]
fn loads_in_a_browser_are_as_promised() {
    let call = ["validate", "--browser", "lab/results/2026-11-22-browser", "--json"];
    let (code, text, err) = on_committed(&call[..3]);
    println!("{text}");
    assert_eq!((code, err.as_str()), (Some(0), ""), "{text}");
    assert!(text.ends_with("both bars are kept over all links.\n"), "{text}");
    let report: Value = serde_json::from_str(&on_committed(&call).1).unwrap();
    let page = std::fs::read_to_string(root().join("docs/pageload.md")).unwrap();
    for link in ["50 ms", "0.8 s"] {
        let cells = report["cells"].as_array().unwrap().iter();
        let cells: Vec<&Value> = cells.filter(|cell| cell["link"] == link).collect();
        let [found, then, now] = ["found", "promised_then", "promised"]
            .map(|name| format!("{:.1} %", mean(&cells, figure, name)));
        let apart = mean(
            &cells,
            |cell, name| (figure(cell, name) - figure(cell, "found")).abs(),
            "promised",
        );
        let off = mean(
            &cells,
            |cell, name| (figure(cell, name) / figure(cell, "measured_ms") - 1.0).abs(),
            "predicted_ms",
        );
        let n = cells.len();
        let row =
            format!("| {link} | all | {n} | {found} | {then} | {now} | {apart:.1} | {off:.1} % |");
        assert!(page.contains(&row), "{row}");
    }
}

/// Keeps of each page only what wins on held-out loads; docs/databases.md has the command.
#[test]
fn databases_have_what_wins_on_held_out_loads() {
    let folder = "lab/results/2026-11-22-browser/recordings";
    let files = std::fs::read_dir(root().join(folder)).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let near = names.filter(|name| name.starts_with("50-ms-"));
    let near: Vec<String> = near.map(|name| format!("{folder}/{name}")).collect();
    let mut call = vec!["db", "build", "--proven", "50ms", "--rate", "50Mbit", "--json"];
    call.extend(near.iter().map(String::as_str));
    let (code, out, err) = on_committed(&call);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let report: Value = serde_json::from_str(&out).unwrap();
    let proven = report["proven"].as_array().unwrap();
    let kept = proven.iter().filter(|page| page["kept"] != "nothing").count();
    assert_eq!((proven.len(), &report["pages"]), (3, &json!(kept)), "{out}");
    for page in proven {
        assert_eq!(page["loads"], 5);
        let tried = page["tried"].as_array().unwrap();
        // What wins is first, and kept; the others are told, too.
        assert!(tried.len() >= 5, "{page}");
        assert_eq!(page["kept"] != "nothing", tried[0]["wins"] == true, "{page}");
        assert!(tried.iter().all(|one| one["saved"].as_array().unwrap().len() == 5), "{page}");
    }
    assert!(kept > 0, "{out}");
    call.retain(|arg| *arg != "--json");
    let (_, text, _) = on_committed(&call);
    println!("{text}");
    assert!(text.contains("Tried on loads that were held out") && text.contains("rejected"));
}
