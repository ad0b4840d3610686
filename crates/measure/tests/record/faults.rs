//! Pages that misbehave, and a recorder that is ended.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};

use headstart_testkit::Running;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use socket2::{Domain, Socket, Type};

use crate::place::{Place, browser, until};
use crate::server::{self, Server};
use crate::sites::read;

fn note(report: &Value) -> String {
    report["recordings"][0]["notes"].to_string()
}

#[test]
fn a_missing_answer_times_out() {
    let Some(_turn) = browser() else { return };
    let (place, server) = (Place::new(), server::start());
    let report = place.records(&[&format!("http://{server}/mostly")]);
    assert!(note(&report).contains("no load event: 1 of 42 requests did not end"), "{report}");
    assert_eq!(report["recordings"][0]["resources"], 41);
    let page = read(&place.recordings()[0]).page;
    assert_eq!(page.ignored().total(), 1, "what did not end is told as aborted");
}

#[test]
fn a_page_that_never_rests_is_recorded_until_its_time_is_over() {
    let Some(_turn) = browser() else { return };
    let (place, server) = (Place::new(), server::start());
    let report = place.records(&[&format!("http://{server}/polls"), "--timeout", "15s"]);
    assert!(note(&report).contains("not at rest within 15s"), "{report}");
}

#[test]
fn pages_that_never_stop_are_recorded() {
    let Some(_turn) = browser() else { return };
    let (place, server) = (Place::new(), server::start());
    let [rushes, streams, chats, floods] =
        ["rushes", "streams", "chats", "floods"].map(|path| format!("http://{server}/{path}"));
    for url in [&rushes, &streams] {
        // A page may take longer than 10 s to load where other tests run at the same time.
        let report = place.records(&[url, "--timeout", "25s"]);
        assert!(note(&report).contains("not at rest within 25s: "), "{report}");
    }
    // What is no request does not keep a page from being at rest, nor the recorder from ending, or
    // leaving, it.
    assert_eq!(note(&place.records(&[&chats])), "[]");
    assert!(server.requests("/socket") > 0);
    for how in [&["--screenshot"][..], &["--warm"], &["--revisit", "1s"]] {
        let report = place.records(&[&[floods.as_str()], how].concat());
        assert_eq!(
            (note(&report).as_str(), server.requests("/floods") > 0),
            ("[]", true),
            "{how:?}"
        );
    }
}

#[test]
fn messages_that_cannot_be_taken_do_not_end_the_load() {
    let Some(_turn) = browser() else { return };
    let (place, server) = (Place::new(), server::start());
    // Chromium takes its time over a message of 70 MB.
    let report = place.records(&[&format!("http://{server}/shouts"), "--timeout", "10m"]);
    assert!(note(&report).contains("passed over a message"), "{report}");
    assert_eq!(report["recordings"][0]["resources"], 2, "{report}");
    let report = place.records(&[&format!("http://{server}/halves")]);
    assert_eq!(note(&report), "[]");
    assert_eq!(report["recordings"][0]["resources"], 2, "{report}");
}

#[test]
fn proxies_of_the_environment_are_not_used_for_sites() {
    let Some(_turn) = browser() else { return };
    let place = Place::new();
    let proxy = format!("http://{}", closed());
    let mut command = place.command(&["app", "http://nowhere.test/", "--json"]);
    for name in ["http_proxy", "https_proxy", "all_proxy"] {
        command.env(name, &proxy).env(name.to_uppercase(), &proxy);
    }
    for desktop in ["XDG_CURRENT_DESKTOP", "DESKTOP_SESSION", "no_proxy", "NO_PROXY"] {
        command.env_remove(desktop);
    }
    let report = place.outcome(command.output().unwrap());
    report.failed(1, "http://nowhere.test/: the proxy cannot be reached");
    let report: Value = serde_json::from_str(&report.out).unwrap();
    assert_eq!(report["recordings"][0]["resources"], 104, "{report}");
}

#[test]
fn a_mostly_missing_page_is_not_recorded() {
    let Some(_turn) = browser() else { return };
    let (place, server) = (Place::new(), server::start());
    let hardly = place.call(&[&format!("http://{server}/hardly"), "--timeout", "10s"]);
    hardly.failed(1, "not loaded within 10s: 4 of 6 requests ended");
    assert!(place.recordings().is_empty());
}

#[test]
fn pages_that_lead_nowhere_are_told_apart() {
    let Some(_turn) = browser() else { return };
    let (place, server) = (Place::new(), server::start());
    for (path, words) in [
        ("circle", "redirects in circles"),
        ("ever-on", "one document after another"),
        ("download", "download"),
        ("nothing", "there is no page"),
    ] {
        place.call(&[&format!("http://{server}/{path}")]).failed(1, words);
    }
    let closed = closed();
    place.call(&[&format!("http://{closed}/")]).failed(1, "refuses connections");
    let nowhere = "--browser-arg=--host-resolver-rules=MAP * ~NOTFOUND";
    place.call(&["http://nowhere.test/", nowhere]).failed(1, "has no address");
    let proxy = format!("socks5://{closed}");
    place.call(&["http://nowhere.test/", "--proxy", &proxy]).failed(1, "proxy cannot be reached");
    assert!(place.recordings().is_empty());
    // One that fails does not keep others from being recorded.
    let (bad, good) = (format!("http://{server}/circle"), format!("http://{server}/plain"));
    let report = place.call(&[&bad, &good, "--json"]);
    report.failed(1, "redirects in circles");
    let report: Value = serde_json::from_str(&report.out).unwrap();
    assert_eq!(report["recordings"][0]["url"], good);
    assert_eq!(report["failures"].as_array().unwrap().len(), 1);
}

#[test]
fn windows_dialogs_and_downloads_are_closed() {
    let Some(_turn) = browser() else { return };
    let (place, server) = (Place::new(), server::start());
    let report = place.records(&[&format!("http://{server}/talks")]);
    assert!(note(&report).contains("closed a dialog (alert)"), "{report}");
    assert!(note(&report).contains("closed a dialog (confirm)"), "{report}");
    let report = place.records(&[&format!("http://{server}/saves")]);
    assert!(note(&report).contains("refused a download"), "{report}");
    // Chromium itself lets no page open windows by itself.
    let opens = format!("http://{server}/opens");
    let report = place.records(&[&opens, "--browser-arg=--disable-popup-blocking"]);
    assert!(note(&report).contains("closed a window"), "{report}");
    assert_eq!(report["recordings"][0]["resources"], 2, "nothing of the window: {report}");
}

#[test]
fn wrong_certificates_are_refused_with_a_hint() {
    let Some(_turn) = browser() else { return };
    let place = Place::new();
    let certificates = place.path("certificates").display().to_string();
    let mut site = Command::new(crate::programs::LAB);
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
    let mut site = Running(site.stdout(Stdio::piped()).spawn().unwrap());
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
    let report = place.records(&[url, &rule, "--trust", &authority]);
    assert_eq!(report["recordings"][0]["resources"], 104);
    assert!(fs::exists(format!("{certificates}/app.board.test.key")).unwrap());
}

/// An address that nobody listens on: as long as this runs, the kernel gives its port to nobody
/// else.
fn closed() -> SocketAddr {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    std::mem::forget(socket);
    address
}

#[test]
fn nothing_is_left_when_the_recorder_is_ended() {
    let Some(_turn) = browser() else { return };
    const ENDED: Option<i32> = Some(130);
    for (signals, code) in [
        (&[Signal::TERM][..], ENDED),
        (&[Signal::INT], ENDED),
        // A shell that ends, a session that is ended.
        (&[Signal::HUP, Signal::HUP], ENDED),
        (&[Signal::TERM, Signal::HUP], ENDED),
        (&[Signal::HUP, Signal::TERM], ENDED),
        (&[Signal::KILL], None),
    ] {
        let (place, server) = (Place::new(), server::start());
        let mut recorder = half_loaded(&place, &server);
        for signal in signals {
            kill_process(Pid::from_child(&recorder), *signal).unwrap();
        }
        assert_eq!(recorder.wait().unwrap().code(), code, "{signals:?}");
        if code.is_none() {
            // Chromium sees its pipe end; nobody is there to remove the profile.
            until("Chromium's end", || place.processes().is_empty());
        } else {
            place.is_clean();
        }
        assert!(place.recordings().is_empty());
    }
}

#[test]
fn nohup_outlives_the_terminal() {
    let Some(_turn) = browser() else { return };
    let (place, server) = (Place::new(), server::start());
    let recorder = half_loaded_by(&place, &server, "--ignore-signal=HUP");
    kill_process(Pid::from_child(&recorder), Signal::HUP).unwrap();
    place.outcome(recorder.wait_with_output().unwrap()).failed(1, "not loaded within 20s");
}

#[test]
fn a_browser_that_dies_or_hangs_while_a_page_loads_is_noticed() {
    let Some(_turn) = browser() else { return };
    for (is_victim, signal, words) in [
        (is_of_page as fn(&str) -> bool, Signal::KILL, "the page's process crashed"),
        (is_of_browser, Signal::KILL, "Chromium ended"),
        (is_of_browser, Signal::STOP, "not loaded within 20s"),
    ] {
        let (place, server) = (Place::new(), server::start());
        let recorder = half_loaded(&place, &server);
        let victims = place.pids(is_victim);
        assert!(!victims.is_empty(), "{words}");
        for pid in victims {
            // One that was kept ready for another page may be gone by itself.
            let _ = kill_process(pid, signal);
        }
        place.outcome(recorder.wait_with_output().unwrap()).failed(1, words);
        assert!(place.recordings().is_empty());
    }
}

fn is_of_page(line: &str) -> bool {
    line.contains("--type=renderer")
}

fn is_of_browser(line: &str) -> bool {
    !line.contains("--type=") && line.contains("--user-data-dir=")
}

/// A recorder whose page waits for an answer that never comes. It gives up late enough for a slow
/// machine to have got there.
fn half_loaded(place: &Place, server: &Server) -> Child {
    half_loaded_by(place, server, "--default-signal=HUP")
}

/// The same, started by env(1): whether SIGHUP is ignored is inherited, and this test may be run
/// so.
fn half_loaded_by(place: &Place, server: &Server, how: &str) -> Child {
    let mut env = Command::new("env");
    env.args([how, crate::programs::LAB]);
    let mut command = place.arm(env, &[&format!("http://{server}/hardly"), "--timeout", "20s"]);
    let recorder = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("the last requests of the page", || server.requests("/x/never") > 0);
    recorder
}
