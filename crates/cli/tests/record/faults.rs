//! Pages that misbehave, and a recorder that is ended.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::place::{PATIENCE, Place, has_browser};
use crate::server;
use crate::sites::read;

fn note(said: &Value) -> String {
    said["recordings"][0]["notes"].to_string()
}

#[test]
fn pages_that_never_end_are_recorded_when_most_is_there() {
    if !has_browser() {
        return;
    }
    let (place, server) = (Place::new(), server::start());
    let said = place.records(&[&format!("http://{server}/mostly")]);
    assert!(note(&said).contains("no load event: 1 of 42 requests did not end"), "{said}");
    assert_eq!(said["recordings"][0]["resources"], 41);
    let page = read(&place.recordings()[0]).page;
    assert_eq!(page.ignored().total(), 1, "what did not end is told as aborted");
    let said = place.records(&[&format!("http://{server}/polls"), "--timeout", "20s"]);
    assert!(note(&said).contains("not at rest within 20s"), "{said}");
    let hardly = place.call(&[&format!("http://{server}/hardly"), "--timeout", "15s"]);
    hardly.failed(1, "not loaded within 15s: 4 of 6 requests ended");
    assert_eq!(place.recordings().len(), 2, "and nothing of what failed");
}

#[test]
fn pages_that_lead_nowhere_are_told_apart() {
    if !has_browser() {
        return;
    }
    let (place, server) = (Place::new(), server::start());
    for (path, words) in [
        ("circle", "redirects in circles"),
        ("ever-on", "one document after another"),
        ("download", "download"),
        ("nothing", "there is no page"),
    ] {
        place.call(&[&format!("http://{server}/{path}")]).failed(1, words);
    }
    place.call(&["http://127.0.0.1:1/"]).failed(1, "refuses connections");
    let nowhere = "--browser-arg=--host-resolver-rules=MAP * ~NOTFOUND";
    place.call(&["http://nowhere.test/", nowhere]).failed(1, "has no address");
    let proxy = ["http://nowhere.test/", "--proxy", "socks5://127.0.0.1:1"];
    place.call(&proxy).failed(1, "the proxy cannot be reached");
    assert!(place.recordings().is_empty());
    // One that fails does not keep others from being recorded.
    let (bad, good) = (format!("http://{server}/circle"), format!("http://{server}/plain"));
    let said = place.call(&[&bad, &good, "--json"]);
    said.failed(1, "redirects in circles");
    let said: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(said["recordings"][0]["url"], good);
    assert_eq!(said["failures"].as_array().unwrap().len(), 1);
}

#[test]
fn windows_dialogs_and_downloads_are_closed() {
    if !has_browser() {
        return;
    }
    let (place, server) = (Place::new(), server::start());
    let said = place.records(&[&format!("http://{server}/talks")]);
    assert!(note(&said).contains("closed a dialog (alert)"), "{said}");
    assert!(note(&said).contains("closed a dialog (confirm)"), "{said}");
    let said = place.records(&[&format!("http://{server}/saves")]);
    assert!(note(&said).contains("refused a download"), "{said}");
}

#[test]
fn wrong_certificates_are_refused_and_told_whom_to_trust() {
    if !has_browser() {
        return;
    }
    let place = Place::new();
    let certificates = place.path("certificates").display().to_string();
    let mut site = Command::new(env!("CARGO_BIN_EXE_headstart"));
    site.args([
        "lab",
        "site",
        "app",
        "--listen",
        "127.0.0.1:0",
        "--json",
        "--certificates",
        &certificates,
    ]);
    let mut site = Ended(site.stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    let mut out = std::io::BufReader::new(site.0.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    let serving: Value = serde_json::from_str(&line).unwrap();
    let rule = format!(
        "--browser-arg=--host-resolver-rules=MAP * {}",
        serving["address"].as_str().unwrap()
    );
    let url = serving["sites"][0]["url"].as_str().unwrap();
    place.call(&[url, &rule]).failed(1, "its certificate is wrong");
    let authority = format!("{certificates}/authority.pem");
    let said = place.records(&[url, &rule, "--trust", &authority]);
    assert_eq!(said["recordings"][0]["resources"], 104);
    assert!(fs::exists(format!("{certificates}/app.board.test.key")).unwrap());
}

/// Killed when dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn nothing_is_left_when_the_recorder_is_ended() {
    if !has_browser() {
        return;
    }
    let server = server::start();
    for (signal, code) in
        [(Signal::TERM, Some(130)), (Signal::INT, Some(130)), (Signal::KILL, None)]
    {
        let place = Place::new();
        let mut recorder = place.start(&[&format!("http://{server}/hardly")]);
        let until = Instant::now() + PATIENCE;
        while !place.processes().iter().any(|line| line.contains("--type=renderer")) {
            assert!(Instant::now() < until, "Chromium does not start");
            thread::sleep(Duration::from_millis(20));
        }
        let pid = Pid::from_raw(i32::try_from(recorder.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        assert_eq!(recorder.wait().unwrap().code(), code, "{signal:?}");
        if signal == Signal::KILL {
            // Chromium sees its pipe end; nobody is there to remove the profile.
            while !place.processes().is_empty() {
                assert!(Instant::now() < until, "{:?}", place.processes());
                thread::sleep(Duration::from_millis(20));
            }
        } else {
            place.is_clean();
        }
        assert!(place.recordings().is_empty());
    }
}
