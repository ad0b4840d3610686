//! The examples for other languages in docs/managed.md do what they say.

use std::process::{Command, Stdio};

use crate::agent::Agent;
use crate::edge::Edge;
use crate::origin::Origin;
use crate::server::{NAME, files};

/// Read at run time, so that editing the document rebuilds no test.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/managed.md");

/// Returns the example in `language` from the section "Other languages".
fn example(language: &str) -> &'static str {
    let page: &str = std::fs::read_to_string(PAGE).unwrap().leak();
    let section = page.split("\n## ").find(|section| section.starts_with("Other languages\n"));
    let mut blocks = section.unwrap().split("```").skip(1).step_by(2);
    let code = blocks.find_map(|block| block.strip_prefix(language)?.strip_prefix('\n'));
    code.unwrap_or_else(|| panic!("no example in {language}"))
}

/// Runs a program against an agent that knows the site [`NAME`]; returns its standard output.
fn run(program: &str, arguments: &[&str], agent: &Agent) -> String {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().env("HEADSTART_SOCKET", agent.socket());
    command.env("PATH", std::env::var_os("PATH").unwrap());
    let output = command.stdin(Stdio::null()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn documented_examples_fetch_a_page_through_the_agent() {
    let (files, origin) = (files(), Origin::start());
    let edge = Edge::start(&files, &[NAME], &[&format!("--origin={}", origin.http())]);
    let dir = tempfile::tempdir().unwrap();
    let at_edge = format!("{NAME}={}", edge.address);
    let roots = files.path(&format!("{NAME}.pem"));
    let agent = Agent::start_trusting(dir, &roots, &["--edge", &at_edge]);
    let script = files.write("get.js", example("js").as_bytes(), 0o600);
    for (program, arguments) in [("sh", ["-euc", example("sh")]), ("node", [script.as_str(), NAME])]
    {
        assert!(run(program, &arguments, &agent).contains("GET /head"), "{program}");
    }
    assert_eq!(origin.requests("GET /head"), 2);
    agent.until_audited(&["managed connection", "error=\"-\""], 2);
}
