//! `headstart pageload replay` as a process.

use std::path::Path;
use std::process::{Command, Output};

use headstart_testkit::has_net;
use serde_json::{Value, json};

use crate::alone;
use crate::samples::fastest;

fn headstart(arguments: &[&str]) -> Command {
    let mut command = Command::new(crate::programs::LAB);
    command.args(arguments).env_remove("HEADSTART_DATA");
    command
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A document, then four resources at once, and one when all of these are there; of two hosts, each
/// on a connection of its own.
fn page() -> Value {
    let mut requests = vec![request(0, 0, "a.test", 9_000, None)];
    requests.extend((1..5).map(|id| request(id, 1, "b.test", 3_000, Some(0))));
    requests.push(request(5, 2, "a.test", 500, Some(1)));
    json!({ "name": "small", "head_bytes": 4000, "requests": requests })
}

fn request(id: u32, group: u32, host: &str, bytes: u32, after: Option<u32>) -> Value {
    json!({
        "id": id, "method": "GET", "url_path": format!("/{id}"), "host": host,
        "group": group, "connection": id,
        "after_head_of_group": null, "after_completion_of_group": after,
        "request_bytes": 400, "response_bytes": bytes,
    })
}

fn replay(file: &Path, place: &Path, more: &[&str]) -> Output {
    let arguments =
        ["pageload", "replay", file.to_str().unwrap(), "--out", place.to_str().unwrap()];
    headstart(&[&arguments, more].concat()).output().unwrap()
}

#[test]
fn unsupported_replays_are_refused_with_a_hint() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("page.json");
    std::fs::write(&file, page().to_string()).unwrap();
    let place = dir.path().join("results");
    for (more, words) in [
        (&["--link", "no such link"][..], "no such link"),
        (&["--link", "drop tcp"], "lets nothing through"),
        (&["--arm", "turbo-agent"], "turbo-agent loads no pages"),
        (&["--connections", "many"], "neither `recorded` nor a number"),
        (&["--page", "2"], "has no page 2"),
    ] {
        let output = replay(&file, &place, more);
        assert_eq!(output.status.code(), Some(2), "{more:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(words), "{more:?}: {}", stderr(&output));
    }
    let output = replay(&dir.path().join("none.har"), &place, &[]);
    assert!(
        output.status.code() == Some(2) && stderr(&output).contains("hint: "),
        "{}",
        stderr(&output)
    );
}

#[test]
fn an_experiment_with_pages_that_are_not_there_says_so() {
    let output = headstart(&["lab", "run", "cs244", "--quick"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(text.contains("cs244/wikipedia.json") && text.contains("HEADSTART_DATA"), "{text}");
}

#[test]
fn openings_that_save_a_round_trip_save_it_on_a_whole_page() {
    if !has_net() {
        return;
    }
    let _machine = alone();
    let dir = tempfile::tempdir().unwrap();
    let (file, place) = (dir.path().join("page.json"), dir.path().join("results"));
    std::fs::write(&file, page().to_string()).unwrap();
    let arms = "http,http-tfo,tls13,tls13-0rtt,turbo,turbo-0rtt,quic";
    let more =
        ["--arm", arms, "--link", "delay 100ms", "--loads", "3", "--json", "--suite", "p256"];
    let output = replay(&file, &place, &[&more[..], &["--connections", "recorded"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
    // Three waves: in each a connection is opened and a request made. The last waits for a
    // connection, too, as each resource was recorded on one of its own. QUIC has one for each host,
    // where four responses of 3 kB at once are more than its first window. The first 9 kB are more
    // than what TurboTLS answers to early data before the client joins TCP.
    for (number, (arm, round_trips, connections)) in [
        ("http", 6.0, 6.0),
        ("http-tfo", 3.0, 6.0),
        ("tls13", 9.0, 6.0),
        ("tls13-0rtt", 6.0, 6.0),
        ("turbo", 6.0, 6.0),
        ("turbo-0rtt", 4.0, 6.0),
        ("quic", 6.0, 2.0),
    ]
    .into_iter()
    .enumerate()
    {
        let own = &outcome["pages"][0]["links"][0]["arms"][number];
        assert_eq!((own["arm"].as_str(), own["failed"].as_u64()), (Some(arm), Some(0)), "{own}");
        assert_eq!(own["connections"].as_f64(), Some(connections), "{own}");
        let rtts = fastest(&place, &[("arm", arm)], "ms_to_last_response_byte") / 200.0;
        // With the programs' own time.
        assert!((round_trips - 0.1..round_trips + 0.8).contains(&rtts), "{arm}: {rtts}");
        assert_eq!(own["times"].as_array().unwrap().len(), 6);
    }
    assert_eq!(outcome["simulator"]["n"].as_u64(), Some(7), "{}", outcome["simulator"]);
    let loads = std::fs::read_to_string(place.join("loads.jsonl")).unwrap();
    assert_eq!(loads.lines().count(), 3 * 7);
    let load: Value = serde_json::from_str(loads.lines().next().unwrap()).unwrap();
    assert_eq!(load["bytes"].as_u64(), Some(9_000 + 4 * 3_000 + 500), "{load}");
    assert!(place.join("samples.csv.zst").exists() && place.join("experiment.toml").exists());
}
