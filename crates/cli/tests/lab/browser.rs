//! `headstart lab run` with Chromium: what it refuses, and a browser that crashes on the way.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::{alone, has_network};

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
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
    command.args(["lab", "run", experiment, "--out", "results"]).current_dir(place);
    command.env("PATH", path).env("TMPDIR", place).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn without_chromium_nothing_is_begun() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("crash.toml");
    fs::write(&file, EXPERIMENT).unwrap();
    let output = run(place.path(), "crash.toml", "/nonexistent");
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("there is no Chromium on this machine"), "{}", said(&output));
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    for (from, to, why) in [
        ("site = \"app\"", "site = \"weather\"", "no site 'weather'"),
        ("arms = [\"plain\"]", "arms = [\"fastest\"]", "unknown variant `fastest`"),
    ] {
        fs::write(&file, EXPERIMENT.replace(from, to)).unwrap();
        let output = run(place.path(), "crash.toml", "/nonexistent");
        assert_eq!(output.status.code(), Some(2));
        assert!(said(&output).contains(why), "{}", said(&output));
    }
}

/// The fourth browser, which is the first that is measured, ends at once.
#[test]
fn a_browser_that_crashes_is_one_failed_load() {
    if !has_network() || std::env::var_os("HEADSTART_TEST_BROWSER").is_none() {
        eprintln!("skipped: HEADSTART_TEST_NET=1 and HEADSTART_TEST_BROWSER=1 run it");
        return;
    }
    let _machine = alone();
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("crash.toml"), EXPERIMENT).unwrap();
    let programs = place.path().join("programs");
    fs::create_dir(&programs).unwrap();
    let chromium = programs.join("chromium");
    let path = std::env::var("PATH").unwrap();
    let script = format!(
        "#!/bin/sh\necho x >> {0}\n[ $(wc -l < {0}) = 4 ] && {{ echo 'no more' >&2; exit 3; }}\n\
         PATH={path} exec chromium \"$@\"\n",
        place.path().join("starts").display()
    );
    fs::write(&chromium, script).unwrap();
    fs::set_permissions(&chromium, fs::Permissions::from_mode(0o755)).unwrap();
    let output = run(place.path(), "crash.toml", &format!("{}:{path}", programs.display()));
    // A bar is missed, and all is written.
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("no more"), "{}", said(&output));
    let text = fs::read_to_string(place.path().join("results/browser.json")).unwrap();
    let outcome: Value = serde_json::from_str(&text).unwrap();
    let cell = &outcome["cells"][0];
    assert_eq!((cell["n"].as_u64(), cell["failed"].as_u64()), (Some(3), Some(1)), "{text}");
    assert!(cell["page_load_ms"]["value"].as_f64().unwrap() > 0.0);
    assert!(cell["predicted_ms"].as_f64().unwrap() > 0.0);
    let report = Command::new(env!("CARGO_BIN_EXE_headstart"))
        .args(["lab", "report", "results"])
        .current_dir(place.path())
        .output()
        .unwrap();
    assert_eq!(report.status.code(), Some(0), "{}", said(&report));
    let html = fs::read_to_string(place.path().join("results/report.html")).unwrap();
    assert!(html.contains("Page loads beside the prediction"));
    // Profiles are gone, and who used them.
    let left = fs::read_dir(place.path()).unwrap().filter_map(Result::ok);
    let left: Vec<String> = left.map(|entry| entry.file_name().to_string_lossy().into()).collect();
    assert!(!left.iter().any(|name| name.starts_with("headstart-")), "{left:?}");
    let own = place.path().display().to_string();
    let running = fs::read_dir("/proc").unwrap().filter_map(Result::ok).filter(|entry| {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(&own)
    });
    assert_eq!(running.count(), 0);
}
