//! qlog files of `get`, an agent and an edge about the same connections (docs/qlog.md).

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::call::{call, outcome};
use crate::daemon::{Daemon, until};
use crate::edge::{self, Edge};
use crate::files::Files;
use crate::front::Front;
use crate::origin::Origin;

const NAME: &str = "www.site.localhost";

/// Content that only the application and the origin may know.
const SECRET: &str = "a-path-that-is-nobodys-business";

/// A file: its first record, its events, and all of it as text.
struct Log {
    header: Value,
    events: Vec<Value>,
    text: String,
}

impl Log {
    /// Reads a JSON text sequence (RFC 7464); none while it is being written.
    fn read(path: &Path) -> Option<Self> {
        let text = fs::read_to_string(path).unwrap();
        if !(text.contains("turbotls:connection_ended") && text.ends_with('\n')) {
            return None;
        }
        let records = text.strip_prefix('\u{1e}').expect("a separator").split('\u{1e}');
        let mut records = records.map(|record| {
            serde_json::from_str::<Value>(record.strip_suffix('\n').expect("a line")).unwrap()
        });
        let header = records.next().unwrap();
        let events = records.collect();
        Some(Self { header, events, text })
    }

    fn has(&self, name: &str) -> bool {
        self.events.iter().any(|event| event["name"] == name)
    }

    /// Checks what all files have in common, and that these events are there, in this order.
    fn check(&self, vantage: &str, side: &str, names: &[&str]) {
        let trace = &self.header["trace"];
        assert_eq!(self.header["file_schema"], "urn:ietf:params:qlog:file:sequential");
        assert_eq!(trace["vantage_point"]["name"], format!("headstart {vantage}"));
        assert_eq!(trace["vantage_point"]["type"], side);
        assert_eq!(trace["event_schemas"], serde_json::json!(["urn:headstart:turbotls-1"]));
        let times: Vec<_> =
            self.events.iter().map(|event| event["time"].as_f64().unwrap()).collect();
        assert!(times[0] == 0.0 && times.is_sorted(), "{times:?}");
        let mut events = self.events.iter();
        for name in names {
            assert!(events.any(|event| event["name"] == *name), "no {name}: {}", self.text);
        }
        let end = self.events.last().unwrap();
        assert_eq!(end["name"], "turbotls:connection_ended");
        assert_eq!([&end["data"]["opening"], &end["data"]["result"]], ["turbo", "closed"]);
        assert!(!self.text.contains(NAME) && !self.text.contains(SECRET), "{}", self.text);
    }
}

fn logs(directory: &str) -> Vec<Log> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    entries.filter_map(|entry| Log::read(&entry.unwrap().path())).collect()
}

/// Waits for the file of the first connection with such an event.
fn log_with(directory: &str, name: &str) -> Log {
    let mut found = None;
    until("its file is there", || {
        found = logs(directory).into_iter().find(|log| log.has(name));
        found.is_some()
    });
    found.unwrap()
}

#[test]
fn both_ends_of_a_connection_write_what_they_saw() {
    let (files, origin) = (Files::new(), Origin::start());
    files.issue(NAME);
    let [at_agent, at_get, at_edge, behind] =
        ["agent", "get", "edge", "behind"].map(|name| files.path(name));
    let inner = Edge::start(&files, &[NAME], &["--origin", &origin.http(), "--qlog", &behind]);
    let to = inner.address.to_string();
    let outer = Edge::start(&files, &[], &["--origin", &to, "--qlog", &at_edge]);
    let front = Front::new(outer.address, outer.address);
    let edge = format!("{NAME}={}", front.address);
    let url = format!("https://{NAME}/{SECRET}");
    let chain = files.path(&format!("{NAME}.pem"));

    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
    command.args(["agent", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]);
    command.args(["--edge", &edge, "--qlog", &at_agent]);
    let agent = Daemon::start(command.env_clear().stdin(Stdio::null()));
    let proxy = format!("socks5h://{}", agent.address("listening address=").unwrap());
    front.hold();
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--max-time", "150", "--cacert", &chain, "--proxy", &proxy, &url]);
    let (code, _, errors) =
        outcome(curl.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).output().unwrap());
    assert_eq!(code, Some(0), "{errors}");

    let log = log_with(&at_agent, "turbotls:committed");
    let names = [
        "turbotls:name_resolved",
        "turbotls:datagram_sent",
        "turbotls:datagram_received",
        "turbotls:committed",
        "turbotls:join_sent",
        "turbotls:join_answered",
        "turbotls:handed_over",
    ];
    log.check("agent", "client", &names);
    assert!(log.has("tcp:syn_sent") && log.has("tcp:connected"));
    assert!(!log.text.contains("127.0.0.1"), "{}", log.text);

    let log = log_with(&at_edge, "turbotls:join_received");
    let names = [
        "turbotls:datagram_received",
        "turbotls:session_started",
        "turbotls:datagram_sent",
        "tcp:connected",
        "turbotls:join_received",
        "turbotls:join_answered",
        "turbotls:handed_over",
    ];
    log.check("edge", "server", &names);
    // What its access log shows.
    assert!(log.text.contains("\"remote\":\"127.0.0.1:"), "{}", log.text);

    front.hold();
    let get = ["get", "--edge", &edge, "--cacert", &chain, "--qlog", &at_get, &url];
    let (code, _, errors) = call(&get);
    assert_eq!(code, Some(0), "{errors}");
    let log = log_with(&at_get, "turbotls:committed");
    log.check("get", "client", &["turbotls:datagram_sent", "turbotls:join_answered"]);
    assert!(log.text.contains(&format!("\"remote\":\"{}\"", front.address)), "{}", log.text);
    assert!(inner.logged("--qlog") + outer.logged("--qlog") + agent.logged("--qlog") == 0);
    assert!(logs(&behind).iter().all(|log| !log.has("turbotls:session_started")));
}

#[test]
fn a_stop_writes_the_files_of_connections_that_ended_before() {
    let (files, origin) = (Files::new(), Origin::start());
    files.issue(NAME);
    let at_edge = files.path("edge");
    let mut edge = Edge::start(&files, &[NAME], &["--origin", &origin.http(), "--qlog", &at_edge]);
    let connections = 20;
    for _ in 0..connections {
        drop(std::net::TcpStream::connect(edge.address).unwrap());
    }
    until("all have ended", || {
        edge.count("headstart_connections_total", &["refused"]) == connections
    });
    edge.signal(rustix::process::Signal::TERM);
    assert!(edge.ended().success());
    assert_eq!(logs(&at_edge).len() as u64, connections);
}

#[test]
fn a_directory_that_cannot_be_used_ends_a_start_with_advice() {
    let files = Files::new();
    let file = files.write("file", b"", 0o600);
    for (code, words) in [
        edge::fails(&["--origin", "localhost:1", "--qlog", &file]),
        edge::fails(&["--origin", "localhost:1", "--qlog", "/proc/qlog"]),
    ] {
        assert_eq!(code, Some(2), "{words}");
        assert!(words.contains("--qlog") && words.contains("hint: name a directory"), "{words}");
    }
    let (code, _, words) = call(&["get", "--qlog", &file, "https://localhost:1/"]);
    assert_eq!(code, Some(2), "{words}");
    assert!(words.contains("hint: name a directory"), "{words}");
}
