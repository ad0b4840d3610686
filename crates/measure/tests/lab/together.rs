//! `headstart lab run all`: what it keeps, what it refuses and how it ends early.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use headstart_testkit::has_net;
use serde_json::{Value, json};

use crate::interrupts::{left, said_after, wait};
use crate::{alone, headstart};

fn names() -> Vec<String> {
    let output = headstart(&["lab", "list", "--json"]);
    let list: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    list.iter().map(|entry| entry["name"].as_str().unwrap().to_owned()).collect()
}

/// The commit that the program gives for its own.
fn commit() -> String {
    let mut git = Command::new("git");
    git.args(["describe", "--always", "--dirty", "--abbrev=12", "--exclude", "*"]);
    let output = git.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Returns the kind of build of the tests, which is the program's as well.
fn build() -> &'static str {
    if cfg!(debug_assertions) { "debug" } else { "release" }
}

/// Results of a short run: one cell of four trials and one bar.
fn write_results(folder: &Path, commit: &str, met: bool) {
    let environment = json!({ "commit": commit, "build": build(), "quick": true, "seconds": 3.0 });
    let cell = json!({
        "experiment": "x", "arm": "tls13", "suite": "p256", "link": "l", "variant": "", "n": 4,
        "failed": 1, "flagged": 2, "first_request_byte": null, "first_response_byte": null,
        "last_response_byte": null, "rtts": null, "rtt_ms": 1.0, "openings": {},
    });
    let bar = json!({
        "bar": { "arm": "tls13" }, "arm": "tls13", "suite": "p256", "link": "l", "variant": "",
        "condition": "rtts_max", "limit": 2.0, "found": 2.0, "met": met,
    });
    fs::create_dir_all(folder).unwrap();
    let files = [("environment", environment), ("summary", json!([cell])), ("bars", json!([bar]))];
    for (name, value) in files {
        fs::write(folder.join(name).with_extension("json"), value.to_string()).unwrap();
    }
}

/// Exit code, standard output and standard error of a run of all into `place`.
fn run_all(place: &Path, further: &[&str]) -> (Option<i32>, String, String) {
    let out = place.to_str().unwrap();
    let output = headstart(&[&["lab", "run", "all", "--quick", "--out", out], further].concat());
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    (output.status.code(), out, err)
}

#[test]
fn results_of_this_build_are_kept_and_counted_together() {
    let place = tempfile::tempdir().unwrap();
    let names = names();
    for name in &names {
        write_results(&place.path().join(name), &commit(), true);
    }
    let (code, text, said) = run_all(place.path(), &["--json"]);
    assert_eq!(code, Some(0), "{said}");
    let entries: Vec<Value> = serde_json::from_str(&text).unwrap();
    assert_eq!(entries.len(), names.len());
    for entry in &entries {
        let counts = ["results", "trials", "failed", "flagged"].map(|name| entry[name].clone());
        assert_eq!(counts, [json!("kept"), json!(4), json!(1), json!(2)], "{entry}");
        assert_eq!(entry["bars"]["figures"], json!({ "met": 1, "all": 1 }), "{entry}");
    }

    write_results(&place.path().join(&names[1]), &commit(), false);
    let (code, text, said) = run_all(place.path(), &[]);
    assert_eq!(code, Some(1), "a bar was missed: {said}");
    assert_eq!(text.lines().count(), 1 + names.len(), "{text}");
    assert!(text.contains("2 (50 %)") && text.contains("0 of 1"), "{text}");
}

#[test]
fn results_of_another_build_or_size_are_refused_before_anything_is_measured() {
    let place = tempfile::tempdir().unwrap();
    let last = place.path().join(names().pop().unwrap());
    write_results(&last, "0123456789ab", true);
    let (code, _, said) = run_all(place.path(), &[]);
    assert_eq!(code, Some(2), "{said}");
    let found = format!("is of the {} build of 0123456789ab in its short form", build());
    assert!(said.contains(&found) && said.contains("hint: "), "{said}");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "{said}");

    write_results(&last, &commit(), true);
    let output = headstart(&["lab", "run", "all", "--out", place.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2), "in its usual size");
}

#[test]
fn options_of_some_experiments_are_refused() {
    let place = tempfile::tempdir().unwrap();
    for option in [&["--link", "x"][..], &["--beside", "/bin/true"], &["--qlog", "x"], &["--pcap"]]
    {
        let (code, _, said) = run_all(place.path(), option);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("not all experiments have --"), "{said}");
    }
}

/// Returns a short run of all in `place`, and the folder that is there once its first experiment is
/// under way.
fn short_run(place: &Path) -> (Command, PathBuf) {
    let mut command = crate::interrupts::headstart();
    command.args(["lab", "run", "all", "--quick", "--out", "all"]);
    (command, place.join("all").join(format!("{}.partial", names()[0])))
}

#[test]
fn an_interrupt_ends_the_experiment_under_way_and_the_rest() {
    if !has_net() {
        return;
    }
    let _machine = alone();
    let place = tempfile::tempdir().unwrap();
    let place = place.path().canonicalize().unwrap();
    let (mut command, first) = short_run(&place);
    let text = said_after("INT", &mut command, &place, || first.exists());
    assert!(text.contains("the same command with the same --out goes on"), "{text}");
    assert_eq!(left(&place), [""; 0], "{text}");
    assert_eq!(left(&place.join("all")), [""; 0], "{text}");
}

#[test]
fn the_experiment_under_way_ends_with_a_run_that_is_killed() {
    if !has_net() {
        return;
    }
    let _machine = alone();
    let place = tempfile::tempdir().unwrap();
    let place = place.path().canonicalize().unwrap();
    let (mut command, first) = short_run(&place);
    command.current_dir(&place).env("TMPDIR", &place).stdin(Stdio::null()).stderr(Stdio::null());
    let mut run = command.spawn().unwrap();
    wait(|| first.exists() || run.try_wait().unwrap().is_some());
    let begun = first.exists();
    run.kill().unwrap();
    run.wait().unwrap();
    assert!(begun && wait(|| left(&place).is_empty()), "{:?}", left(&place));
}
