//! Early data: only what was given so, and only where server and policy allow it.

use std::io::Write;

use openssl::base64::encode_block;

use crate::agent::Agent;
use crate::client::call;
use crate::edge::until;
use crate::ports::free;
use crate::server::{NAME, Server, files, served};

/// Unlike anything that a server says by itself.
const EARLY: &str = "first-words-of-a-program";

fn field() -> String {
    encode_block(EARLY.as_bytes())
}

/// Makes one connection until the server has its bytes, by when the agent has a ticket.
fn visit(server: &Server, agent: &Agent, early: &str, words: &str) -> String {
    let answer = server.connect(agent, &[("Headstart-Early-Data", early)]);
    assert_eq!(answer.status, 200);
    let became = answer.field("Headstart-Early-Data").to_owned();
    let mut stream = answer.stream;
    stream.write_all(words.as_bytes()).unwrap();
    until("the server hears it", || server.output().contains(words));
    until("a ticket is kept", || {
        let (_, report) = call(agent, "GET", "/sessions", "");
        report["sessions"].as_array().is_some_and(|rows| !rows.is_empty())
    });
    became
}

#[test]
fn it_is_sent_once_a_session_allows_it() {
    let (_files, server, agent) = served(&["-early_data"]);
    assert_eq!(visit(&server, &agent, &field(), "words-one\n"), "none");
    assert!(!server.output().contains(EARLY), "without a session nothing is sent early, nor later");
    assert_eq!(visit(&server, &agent, &field(), "words-two\n"), "accepted");
    let text = server.output();
    assert_eq!(text.matches(EARLY).count(), 1, "{text}");
    assert!(text.find(EARLY) < text.find("words-two"));
    agent.until_audited(&["early_data=\"accepted\""], 1);
}

#[test]
fn a_policy_forbids_it() {
    let (_files, server, agent) = served(&["-early_data"]);
    assert_eq!(visit(&server, &agent, "", "words-one\n"), "none");
    assert_eq!(call(&agent, "PUT", "/policies/", r#"{"early_data": false}"#).0, 200);
    assert_eq!(visit(&server, &agent, &field(), "words-two\n"), "none");
    assert!(!server.output().contains(EARLY));
}

#[test]
fn more_than_the_session_allows_is_not_sent_early() {
    let files = files();
    let arguments = ["-early_data", "-max_early_data", "10"];
    let (server, agent) = (Server::start(&files, &arguments), Agent::start(&[]));
    assert_eq!(visit(&server, &agent, "", "words-one\n"), "none");
    assert_eq!(visit(&server, &agent, &field(), "words-two\n"), "none");
    assert!(!server.output().contains(EARLY));
}

/// The server has restarted and knows the ticket no more: the program sends the words itself.
#[test]
fn refused_early_data_is_the_programs_to_send() {
    let files = files();
    let (address, agent) = (free(), Agent::start(&[]));
    let server = Server::start_at(address, &files, NAME, &["-early_data"]);
    assert_eq!(visit(&server, &agent, "", "words-one\n"), "none");
    drop(server);
    let server = Server::start_at(address, &files, NAME, &["-early_data"]);
    assert_eq!(visit(&server, &agent, &field(), "words-two\n"), "refused");
    assert!(!server.output().contains(EARLY));
}
