//! `headstart lab run` with Chromium: what it refuses, and browsers that crash or hang on the way.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use headstart_testkit::has_net;
use serde_json::Value;
use tempfile::TempDir;

use crate::alone;
use crate::interrupts::{headstart, left, said_after};

/// A site without anything but one load of each of three rounds.
const EXPERIMENT: &str = r#"
name = "crash"
title = "A browser that crashes"
about = "A test: what becomes of the load, and of the run"
trials = 3
quick_trials = 2
recordings = 3
quick_recordings = 3
timeout = "120s"
seed = 1
arms = ["plain"]
suites = ["chromium"]

[[link]]
name = "20 ms"
rtt = "20ms"
path = "delay 10ms"

[[variant]]
name = "app"
site = "app"
arms = ["plain"]

[[bar]]
arm = "*"
complete_min = 0.9
"#;

fn run(place: &Path, experiment: &str, path: &str) -> Output {
    let mut command = Command::new(crate::programs::LAB);
    command.args(["lab", "run", experiment, "--out", "results"]).current_dir(place);
    command.env("PATH", path).env("TMPDIR", place).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn without_chromium_nothing_is_begun() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("crash.toml");
    fs::write(&file, EXPERIMENT).unwrap();
    let output = run(place.path(), "crash.toml", "/nonexistent");
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("there is no Chromium on this machine"),
        "{}",
        stderr(&output)
    );
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    for (from, to, why) in [
        ("site = \"app\"", "site = \"weather\"", "no site 'weather'"),
        ("arms = [\"plain\"]", "arms = [\"fastest\"]", "unknown variant `fastest`"),
    ] {
        fs::write(&file, EXPERIMENT.replace(from, to)).unwrap();
        let output = run(place.path(), "crash.toml", "/nonexistent");
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(why), "{}", stderr(&output));
    }
}

fn has_browser() -> bool {
    let enabled = std::env::var_os("HEADSTART_TEST_BROWSER").is_some();
    if !enabled {
        eprintln!("skipped: HEADSTART_TEST_BROWSER is not set");
    }
    has_net() && enabled
}

/// A folder with the experiment; and a PATH by which each start of Chromium is a line in `starts`,
/// and the fourth, which is the first that is measured, does this instead.
fn with_fourth(instead: &str) -> (TempDir, String) {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("crash.toml"), EXPERIMENT).unwrap();
    let programs = place.path().join("programs");
    fs::create_dir(&programs).unwrap();
    let chromium = programs.join("chromium");
    let path = std::env::var("PATH").unwrap();
    let script = format!(
        "#!/bin/sh\necho x >> {0}\n[ $(wc -l < {0}) = 4 ] && {{ {instead}; }}\n\
         PATH={path} exec chromium \"$@\"\n",
        place.path().join("starts").display()
    );
    fs::write(&chromium, script).unwrap();
    fs::set_permissions(&chromium, fs::Permissions::from_mode(0o755)).unwrap();
    (place, format!("{}:{path}", programs.display()))
}

/// Profiles are gone, and who used them.
fn is_one_failed_load(instead: &str) -> (TempDir, String) {
    let (place, path) = with_fourth(instead);
    let output = run(place.path(), "crash.toml", &path);
    // A bar is missed, and all is written.
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let text = fs::read_to_string(place.path().join("results/browser.json")).unwrap();
    let outcome: Value = serde_json::from_str(&text).unwrap();
    let cell = &outcome["cells"][0];
    assert_eq!((cell["n"].as_u64(), cell["failed"].as_u64()), (Some(3), Some(1)), "{text}");
    assert!(cell["page_load_ms"]["value"].as_f64().unwrap() > 0.0);
    assert!(cell["predicted_ms"].as_f64().unwrap() > 0.0);
    assert_eq!(left(place.path()), [""; 0]);
    (place, stderr(&output))
}

#[test]
fn a_browser_that_crashes_is_one_failed_load() {
    if !has_browser() {
        return;
    }
    let _machine = alone();
    let (place, text) = is_one_failed_load("echo 'no more' >&2; exit 3");
    assert!(text.contains("no more"), "{text}");
    let report = Command::new(crate::programs::LAB)
        .args(["lab", "report", "results"])
        .current_dir(place.path())
        .output()
        .unwrap();
    assert_eq!(report.status.code(), Some(0), "{}", stderr(&report));
    let html = fs::read_to_string(place.path().join("results/report.html")).unwrap();
    assert!(html.contains("Page loads beside the prediction"));
}

#[test]
fn a_browser_that_hangs_is_one_failed_load() {
    if !has_browser() {
        return;
    }
    let _machine = alone();
    is_one_failed_load("kill -STOP $$");
}

#[test]
fn signals_leave_nothing_of_a_run_with_browsers() {
    if !has_browser() {
        return;
    }
    let _machine = alone();
    for signal in ["INT", "HUP"] {
        let (place, path) = with_fourth("exit 3");
        let starts = place.path().join("starts");
        let mut command = headstart();
        command.args(["lab", "run", "crash.toml", "--out", "results"]).env("PATH", path);
        let output = said_after(signal, &mut command, place.path(), || {
            fs::read_to_string(&starts).is_ok_and(|text| text.lines().count() >= 2)
        });
        assert!(output.contains("interrupted"), "{output}");
        assert_eq!(left(place.path()), [""; 0], "{output}");
    }
}
