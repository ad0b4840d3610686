//! The examples for other languages in docs/managed.md do what they say.

use std::process::{Command, Stdio};

use crate::agent::Agent;
use crate::edge::Edge;
use crate::origin::Origin;
use crate::server::{NAME, files};

/// Read when the test runs: a document that is compiled in would have it built anew.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/managed.md");

/// The code in this language of the section for other languages.
fn example(language: &str) -> &'static str {
    let page: &str = std::fs::read_to_string(PAGE).unwrap().leak();
    let section = page.split("\n## ").find(|section| section.starts_with("Other languages\n"));
    let mut blocks = section.unwrap().split("```").skip(1).step_by(2);
    let code = blocks.find_map(|block| block.strip_prefix(language)?.strip_prefix('\n'));
    code.unwrap_or_else(|| panic!("no example in {language}"))
}

/// Returns the output of the program on an agent that knows the site of [`NAME`].
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
fn examples_do_what_they_say() {
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
    assert_eq!(origin.asked("GET /head"), 2);
    agent.until_audited(&["managed connection", "error=\"-\""], 2);
}
