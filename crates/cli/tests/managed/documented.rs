//! The examples for other languages in docs/managed.md do what they say.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::agent::Agent;
use crate::edge::{Edge, until};
use crate::origin::Origin;
use crate::server::{NAME, files};

const PAGE: &str = include_str!("../../../../docs/managed.md");

/// The code in this language of the section for other languages.
fn example(language: &str) -> &'static str {
    let section = PAGE.split("\n## ").find(|section| section.starts_with("Other languages\n"));
    let mut blocks = section.unwrap().split("```").skip(1).step_by(2);
    let code = blocks.find_map(|block| block.strip_prefix(language)?.strip_prefix('\n'));
    code.unwrap_or_else(|| panic!("no example in {language}"))
}

/// Runs the command on an agent that knows the site of [`NAME`].
fn run(program: &str, arguments: &[&str], socket: &Path) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().env("HEADSTART_SOCKET", socket);
    command.env("PATH", std::env::var_os("PATH").unwrap()).stdin(Stdio::null());
    command.output().unwrap()
}

#[test]
fn examples_do_what_they_say() {
    let (files, origin) = (files(), Origin::start());
    let edge = Edge::start(&files, &[NAME], &[&format!("--origin={}", origin.http())]);
    let roots = files.path(&format!("{NAME}.pem"));
    let agent = Agent::start_trusting(&roots, &["--edge", &format!("{NAME}={}", edge.address)]);
    let script = files.write("get.js", example("js").as_bytes(), 0o600);
    for (at, (program, arguments)) in
        [("sh", ["-euc", example("sh")]), ("node", [&script, NAME])].iter().enumerate()
    {
        let output = run(program, arguments, &agent.socket());
        let (said, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{program}: {said}{errors}");
        assert!(said.contains("GET /head"), "{program}: {said}{errors}");
        until("it is in the log", || agent.audited(&["managed connection", "error=\"-\""]) > at);
    }
    assert_eq!(origin.asked("GET /head"), 2);
}
