//! `headstart lab` as it is called. Runs make network namespaces, so need root or a user namespace:
//! switched on by HEADSTART_TEST_NET=1.
#![allow(clippy::unwrap_used)] // a test may panic, its helper functions too

use std::process::{Command, Output};

const EXPERIMENT: &str = r#"
name = "shape"
title = "Round trips of three arms"
about = "A test: counts, not times"
trials = 3
quick_trials = 3
arms = ["tls13", "turbo", "quic"]
suites = ["p256"]

[[link]]
name = "40 ms"
rtt = "40ms"

[[bar]]
arm = "turbo"
against = "tls13"
ratio_max = 0.75

[[bar]]
arm = "*"
complete_min = 1.0
"#;

fn headstart(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_headstart")).args(arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_list_has_every_experiment_and_its_time() {
    let output = headstart(&["lab", "list", "--json"]);
    assert!(output.status.success(), "{}", said(&output));
    let list: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<_> = list.as_array().unwrap().iter().map(|one| one["name"].as_str()).collect();
    let expected = [
        "turbotls-table",
        "loss",
        "middleboxes",
        "balancer",
        "load",
        "size",
        "links",
        "ech",
        "fop-table",
        "fop-addresses",
        "fop-privacy",
    ]
    .map(Some);
    assert_eq!(names, expected);
}

#[test]
fn an_unknown_experiment_is_answered_with_the_known_ones() {
    let output = headstart(&["lab", "run", "nothing"]);
    assert_eq!(output.status.code(), Some(2));
    let said = said(&output);
    assert!(
        said.contains("there is no experiment 'nothing'\nhint: there are turbotls-table, "),
        "{said}"
    );
}

#[test]
fn a_small_run_counts_round_trips() {
    if std::env::var_os("HEADSTART_TEST_NET").is_none() {
        eprintln!("skipped: HEADSTART_TEST_NET is not set");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (file, place) = (dir.path().join("shape.toml"), dir.path().join("results"));
    std::fs::write(&file, EXPERIMENT).unwrap();
    let arguments = [file.to_str().unwrap(), "--json", "--out", place.to_str().unwrap()];
    let output = headstart(&[&["lab", "run"][..], &arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let cells: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    // Between the round trips of an arm and one more, with the programs' own time.
    for (cell, (arm, least, most)) in [("tls13", 1.9, 2.6), ("turbo", 0.9, 1.6), ("quic", 0.9, 1.6)]
        .iter()
        .enumerate()
        .map(|(number, expected)| (&cells[number], *expected))
    {
        assert_eq!((cell["arm"].as_str(), cell["n"].as_u64()), (Some(arm), Some(3)), "{cells}");
        assert_eq!(cell["failed"].as_u64(), Some(0), "{cells}");
        let rtts = cell["rtts"].as_f64().unwrap();
        assert!((least..most).contains(&rtts), "{arm}: {rtts}");
    }
    let samples = std::fs::read_to_string(place.join("samples.csv")).unwrap();
    assert_eq!(samples.lines().count(), 1 + 9);
    assert!(place.join("environment.json").exists() && place.join("experiment.toml").exists());
}

/// The row would otherwise be read as how arms fare with the box.
#[test]
fn a_box_that_does_nothing_breaks_its_cells() {
    if std::env::var_os("HEADSTART_TEST_NET").is_none() {
        eprintln!("skipped: HEADSTART_TEST_NET is not set");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (file, place) = (dir.path().join("idle.toml"), dir.path().join("results"));
    // Nothing of these connections is so long.
    let idle = "rtt = \"40ms\"\npath = \"delay 20ms, mtu 1500 silent\"\nacts = \"drops\"\n";
    let text = EXPERIMENT.replace("rtt = \"40ms\"\n", idle);
    std::fs::write(&file, text.replace("trials = 3", "trials = 1")).unwrap();
    let arguments = [file.to_str().unwrap(), "--json", "--out", place.to_str().unwrap()];
    let output = headstart(&[&["lab", "run"][..], &arguments].concat());
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("broken: 40 ms: the box did nothing"), "{said}");
    let cells: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for cell in cells.as_array().unwrap() {
        assert!(cell["broken"].is_string() && cell["links"]["dropped"] == 0, "{cell}");
    }
}

#[test]
fn a_round_trip_that_its_elements_do_not_make_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("wrong.toml");
    let wrong = "rtt = \"68ms\"\npath = \"preset lte\"\n";
    std::fs::write(&file, EXPERIMENT.replace("rtt = \"40ms\"\n", wrong)).unwrap();
    let output = headstart(&["lab", "run", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    let said = said(&output);
    assert!(
        said.contains("rtt is 68ms, its elements make 59.") && said.contains("\nhint: "),
        "{said}"
    );
}
