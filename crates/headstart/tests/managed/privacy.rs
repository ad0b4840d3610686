//! Policies apply at once, and forgotten sessions do not come back. `crossing.rs` tests that
//! contexts share no tickets.

use serde_json::json;

use crate::agent::Agent;
use crate::client::call;
use crate::server::{PAGE, served};

const WORK: (&str, &str) = ("Headstart-Context", "work");
const HOME: (&str, &str) = ("Headstart-Context", "home");

fn tickets(agent: &Agent) -> u64 {
    let (_, report) = call(agent, "GET", "/sessions", "");
    let rows = report["sessions"].as_array().unwrap();
    rows.iter().map(|row| row["tickets"].as_u64().unwrap()).sum()
}

#[test]
fn a_connection_can_be_stricter_than_its_context() {
    let (_files, server, agent) = served(PAGE);
    for policy in ["off", "isolate"] {
        assert!(!server.visit(&agent, &[("Headstart-Policy", policy)]));
        assert_eq!(tickets(&agent), 0, "{policy}");
    }
    assert!(!server.visit(&agent, &[]));
    let kept = tickets(&agent);
    for policy in ["off", "isolate"] {
        assert!(!server.visit(&agent, &[("Headstart-Policy", policy)]));
        assert_eq!(tickets(&agent), kept, "it takes none and adds none: {policy}");
    }
    assert!(server.visit(&agent, &[("Headstart-Policy", "share")]));
}

#[test]
fn a_context_with_sharing_off_loses_its_sessions_and_gets_no_others() {
    let (_files, server, agent) = served(PAGE);
    server.visit(&agent, &[WORK]);
    server.visit(&agent, &[HOME]);
    let (status, report) = call(&agent, "PUT", "/policies/work", r#"{"sharing": "off"}"#);
    assert_eq!((status, &report["sharing"]), (200, &json!("off")));
    for _ in 0..2 {
        assert!(!server.visit(&agent, &[WORK]));
        assert!(!server.visit(&agent, &[WORK, ("Headstart-Policy", "share")]), "no connection may");
    }
    assert!(server.visit(&agent, &[HOME]), "other contexts still share");
    let (_, report) = call(&agent, "GET", "/policies", "");
    assert_eq!(report["policies"].as_array().unwrap().len(), 1);
    assert_eq!(call(&agent, "DELETE", "/policies/work", "").0, 200);
    server.visit(&agent, &[WORK]);
    assert!(server.visit(&agent, &[WORK]));
    agent.until_audited(&["sessions changed", "\"work\"", "off"], 1);
}

/// A connection that is still open when its context ends stores no sessions.
#[test]
fn a_context_that_ended_leaves_no_sessions() {
    let (_files, server, agent) = served(PAGE);
    server.visit(&agent, &[WORK]);
    let open = server.connect(&agent, &[WORK]);
    let (status, report) = call(&agent, "DELETE", "/contexts/work", "");
    assert_eq!(status, 200);
    assert!(report["forgotten"].is_u64());
    open.get("/");
    assert_eq!(tickets(&agent), 0);
    assert!(!server.visit(&agent, &[WORK]));
}

/// Makes the agent forget sessions, and returns their number.
fn forget(agent: &Agent, query: &str) -> serde_json::Value {
    call(agent, "DELETE", &format!("/sessions{query}"), "").1["forgotten"].clone()
}

#[test]
fn forgotten_sessions_are_gone() {
    let (_files, server, agent) = served(PAGE);
    server.visit(&agent, &[WORK]);
    server.visit(&agent, &[]);
    assert_eq!(forget(&agent, "?server=other.example"), 0);
    // An empty context is the one without a label.
    assert_ne!(forget(&agent, "?server=WWW.example.com&context="), 0);
    assert!(!server.visit(&agent, &[]));
    assert!(server.visit(&agent, &[WORK]));
    assert_ne!(forget(&agent, ""), 0);
    assert_eq!(tickets(&agent), 0);
}

#[test]
fn no_session_is_on_disk() {
    let (_files, server, agent) = served(PAGE);
    server.visit(&agent, &[]);
    server.visit(&agent, &[]);
    let dir = agent.socket().parent().unwrap().to_owned();
    let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["socket", "socket.lock"]);
    // Neither can hold sessions, and an agent started in the same directory has none.
    let agent = Agent::start_in(agent.kill(), &[]);
    assert!(!server.visit(&agent, &[]));
}
