//! Remains of runs: of those that come to their end, and of those that the user ends.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use headstart_testkit::has_net;

use crate::{alone, samples};

/// Until a run has come so far, and until it has ended, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

pub(crate) fn wait(mut done: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        if done() {
            return true;
        }
        thread::sleep(Duration::from_millis(50));
    }
    done()
}

/// The command, started by env(1): whether SIGHUP is ignored is inherited, and a test may be run
/// so.
pub(crate) fn headstart() -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP", crate::programs::LAB]);
    command
}

/// Returns the output of a command that is started in `place`, and that gets a signal once it has
/// come so far: as from a terminal, with all that it has started. It ends with exit code 2.
pub(crate) fn said_after(
    signal: &str,
    command: &mut Command,
    place: &Path,
    has_come: impl Fn() -> bool,
) -> String {
    let file = place.join("said");
    command.current_dir(place).env("TMPDIR", place).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&file).unwrap());
    let mut run = command.spawn().unwrap();
    let mut ended = false;
    wait(|| {
        ended = run.try_wait().unwrap().is_some();
        ended || has_come()
    });
    let came = !ended && has_come();
    let group = format!("-{}", run.id());
    assert!(Command::new("kill").args(["-s", signal, "--", &group]).status().unwrap().success());
    let stopped = wait(|| run.try_wait().unwrap().is_some());
    if !stopped {
        let _ = run.kill();
    }
    let status = run.wait().unwrap();
    let text = fs::read_to_string(&file).unwrap();
    assert!(came && stopped, "{came} {stopped} {status}: {text}");
    assert_eq!(status.code(), Some(2), "{text}");
    text
}

/// Folders in `place` that runs make for themselves, and programs there that still run.
pub(crate) fn left(place: &Path) -> Vec<String> {
    let entries = fs::read_dir(place).unwrap().filter_map(Result::ok);
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut left: Vec<String> = names
        .filter(|name: &String| name.starts_with("headstart-") || name.ends_with(".partial"))
        .collect();
    // Who is killed is there for a moment.
    wait(|| running(place).is_empty());
    left.extend(running(place));
    left
}

/// Command lines of programs that run in that directory, or have it as an argument.
fn running(place: &Path) -> Vec<String> {
    processes(place).into_iter().map(|(_, line)| line).collect()
}

/// The same with their folders in /proc.
fn processes(place: &Path) -> Vec<(PathBuf, String)> {
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let own = processes.filter_map(|process: fs::DirEntry| {
        let process = process.path();
        let line = fs::read(process.join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let works = fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd.starts_with(place));
        let own = works || line.contains(&*place.to_string_lossy());
        (own && !line.is_empty()).then_some((process, line))
    });
    own.collect()
}

/// Experiment that takes minutes, or seconds with `--quick`.
const LONG: &str = r#"
name = "long"
title = "A run that is killed"
about = "A test"
trials = 5000
quick_trials = 3
arms = ["tls13"]
suites = ["p256"]

[[link]]
name = "20 ms"
rtt = "20ms"
"#;

/// Network namespaces of processes that run in a directory, or have it as an argument.
fn namespaces(place: &Path) -> BTreeSet<PathBuf> {
    let own = fs::read_link("/proc/self/ns/net").unwrap();
    let all = processes(place).into_iter();
    let all = all.filter_map(|(process, _)| fs::read_link(process.join("ns/net")).ok());
    all.filter(|namespace| *namespace != own).collect()
}

/// Returns true if a process is in one of these network namespaces.
fn are_held(namespaces: &BTreeSet<PathBuf>) -> bool {
    let mut processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    processes.any(|process| {
        fs::read_link(process.path().join("ns/net")).is_ok_and(|one| namespaces.contains(&one))
    })
}

/// The signal, as of `kill -9`, reaches the lab and none of its programs.
#[test]
fn a_killed_run_leaves_nothing_that_stops_the_next() {
    if !has_net() {
        return;
    }
    let _machine = alone();
    let place = tempfile::tempdir().unwrap();
    let place = place.path().canonicalize().unwrap();
    fs::write(place.join("long.toml"), LONG).unwrap();
    let mut command = headstart();
    command.args(["lab", "run", "long.toml", "--out", "results"]);
    command.current_dir(&place).env("TMPDIR", &place);
    let samples = place.join("results.partial/samples.csv");
    let mut run = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let is_measuring = wait(|| fs::metadata(&samples).is_ok_and(|file| file.len() > 0));
    let namespaces = namespaces(&place);
    run.kill().unwrap();
    run.wait().unwrap();
    assert!(is_measuring && !namespaces.is_empty(), "{is_measuring} {namespaces:?}");
    assert!(wait(|| running(&place).is_empty() && !are_held(&namespaces)), "{:?}", running(&place));
    assert!(!place.join("results").exists() && samples.exists(), "half a result has another name");

    let output = command.arg("--quick").stderr(Stdio::piped()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("removing what a run that did not end left in"), "{text}");
    assert_eq!(samples::text(&place.join("results")).lines().count(), 1 + 3, "{text}");
    assert_eq!(left(&place), [""; 0], "{text}");
}

/// While Tor bootstraps, and while it is measured. It takes the package tor.
#[test]
fn signals_leave_nothing_of_a_run_with_tor() {
    if !has_net() {
        return;
    }
    let _machine = alone();
    for (signal, sign) in [("INT", "work/tor/tor-exit-1/log"), ("HUP", "captures")] {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        let sign = place.join("results.partial").join(sign);
        let mut command = headstart();
        command.args(["lab", "run", "tor", "--quick", "--out", "results"]);
        let text = said_after(signal, &mut command, &place, || sign.exists());
        assert!(text.contains("interrupted; all programs of the run are ended"), "{text}");
        assert_eq!(left(&place), [""; 0], "{text}");
    }
}
