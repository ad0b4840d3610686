//! `headstart sessions`: exit codes, output, hints.

use serde_json::Value;

use crate::agent::{Agent, sessions};
use crate::server::{NAME, PAGE, served};

fn ok(agent: &Agent, arguments: &[&str]) -> String {
    let (code, out, err) = sessions(agent, arguments);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    out
}

fn json(agent: &Agent, arguments: &[&str]) -> Value {
    serde_json::from_str(&ok(agent, &[arguments, &["--json"]].concat())).unwrap()
}

#[test]
fn sessions_are_listed_and_forgotten() {
    let (_files, server, agent) = served(PAGE);
    assert_eq!(ok(&agent, &["list"]).lines().count(), 1, "the head alone");
    server.visit(&agent, &[("Headstart-Context", "work"), ("Headstart-ALPN", "http/1.1")]);
    let out = ok(&agent, &["list"]);
    let row: Vec<_> = out.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!((row[0], row[1], row[3]), (NAME, "work", "http/1.1"), "{out}");
    assert_eq!(json(&agent, &["list"])["sessions"][0]["server"], NAME);
    assert_eq!(ok(&agent, &["forget", "other.example"]), "forgotten: 0\n");
    let forgotten = json(&agent, &["forget", NAME, "--context", "work"]);
    assert!(forgotten["forgotten"].as_u64().unwrap() >= 1);
    assert_eq!(ok(&agent, &["list"]).lines().count(), 1);
}

#[test]
fn policies_are_shown_set_and_taken_away() {
    let agent = Agent::start(&[]);
    assert_eq!(ok(&agent, &["policy"]).lines().count(), 1);
    let set = ["policy", "--context", "a b/c", "--sharing", "off", "--lifetime", "1h"];
    let set = json(&agent, &[&set[..], &["--early-data", "false"]].concat());
    assert_eq!((&set["context"], &set["sharing"]), (&"a b/c".into(), &"off".into()));
    assert_eq!((&set["lifetime_ms"], &set["early_data"]), (&3_600_000.into(), &false.into()));
    assert_eq!(json(&agent, &["policy", "--context", "a b/c"]), set);
    assert_eq!(json(&agent, &["policy"])["policies"], serde_json::json!([set]));
    ok(&agent, &["policy", "--sharing", "isolate"]);
    let inherited = json(&agent, &["policy", "--context", "other"]);
    assert_eq!(inherited["sharing"], "isolate", "that of the user holds for the rest");
    ok(&agent, &["policy", "--default"]);
    ok(&agent, &["forget", "--context", "a b/c", "--end"]);
    assert_eq!(json(&agent, &["policy"])["policies"], serde_json::json!([]));
}

#[test]
fn refusals_of_the_agent_exit_with_a_negative_answer() {
    let agent = Agent::start(&[]);
    let control = sessions(&agent, &["policy", "--context", "a\u{1}b"]);
    assert_eq!(control.0, Some(1), "{}", control.2);
    assert!(
        control.2.contains("error: a context has 1 to 255 bytes") && control.2.contains("\nhint: ")
    );
    for number in 0..64 {
        ok(&agent, &["policy", "--context", &number.to_string(), "--sharing", "off"]);
    }
    let full = sessions(&agent, &["policy", "--context", "one more", "--sharing", "off"]);
    assert_eq!(full.0, Some(1), "{}", full.2);
    assert!(full.2.contains("there are too many policies"), "{}", full.2);
    let wrong = sessions(&agent, &["policy", "--sharing", "sometimes"]);
    assert_eq!(wrong.0, Some(2), "{}", wrong.2);
}
