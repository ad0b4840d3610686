//! Errors that keep an agent with a socket from starting, and others that do not.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::process::Command;

use crate::agent::{Agent, fails, sessions};
use crate::client::call;
use crate::files::Files;

#[test]
fn a_live_socket_is_left_alone_and_a_dead_one_replaced() {
    let agent = Agent::start(&[]);
    let (code, text) = fails(&agent.socket(), &[]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("another program listens on ") && text.contains("\nhint: "), "{text}");
    assert_eq!(call(&agent, "GET", "/policies", "").0, 200, "the first one goes on");
    let dir = agent.kill();
    assert!(dir.path().join("socket").exists(), "nobody was there to remove it");
    let agent = Agent::start_in(dir, &[]);
    assert_eq!(call(&agent, "GET", "/policies", "").0, 200);
}

#[test]
fn somebody_elses_socket_and_files_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (other, file) = (dir.path().join("other"), dir.path().join("file"));
    let _listener = UnixListener::bind(&other).unwrap();
    fs::write(&file, "mine").unwrap();
    let (code, text) = fails(&other, &[]);
    assert!(code == Some(2) && text.contains("another program listens on "), "{text}");
    let (code, text) = fails(&file, &[]);
    assert!(code == Some(2) && text.contains("is there, and is no socket"), "{text}");
    assert_eq!(fs::read(&file).unwrap(), b"mine");
    let (code, text) = fails(&dir.path().join("none").join("socket"), &[]);
    assert!(code == Some(2) && text.contains("hint: make its directory first"), "{text}");
}

#[test]
fn the_socket_is_its_owners_unless_said_otherwise() {
    let group = rustix::process::getgid().as_raw().to_string();
    let shared = ["--socket-mode", "660", "--socket-group", group.as_str()];
    for (arguments, mode) in [(&[][..], 0o600), (&shared[..], 0o660)] {
        let agent = Agent::start(arguments);
        let file = fs::symlink_metadata(agent.socket()).unwrap();
        assert!(file.file_type().is_socket());
        assert_eq!(file.permissions().mode() & 0o777, mode);
        assert_eq!(file.gid().to_string(), group);
    }
    let dir = tempfile::tempdir().unwrap();
    for wrong in [["--socket-mode", "999"], ["--socket-group", "no such group"]] {
        let (code, text) = fails(&dir.path().join("socket"), &wrong);
        assert!(code == Some(2) && text.contains("invalid value"), "{text}");
    }
}

#[test]
fn client_certificates_are_checked_at_the_start() {
    let files = Files::new();
    files.issue("client.example");
    let socket = files.path("socket");
    let without_key = format!("a={}", files.path("client.example.pem"));
    assert_refused(&socket, &[&without_key], "it holds a secret that others may read (mode 0644)");
    let pem = files.write("both.pem", b"nothing", 0o600);
    let (a, b) = (format!("a={pem}"), format!("b={pem}"));
    assert_refused(&socket, &[&a], "invalid certificate or key");
    assert_refused(&socket, &["a"], "write NAME=FILE");
    let both: Vec<_> = ["pem", "key"]
        .iter()
        .flat_map(|ending| fs::read(files.path(&format!("client.example.{ending}"))).unwrap())
        .collect();
    files.write("both.pem", &both, 0o600);
    assert_refused(&socket, &[&a, &a], "two client certificates called a");
    let agent = Agent::start(&["--client-certificate", &a, "--client-certificate", &b]);
    assert_eq!(call(&agent, "GET", "/", "").0, 200);
}

fn assert_refused(socket: &str, certificates: &[&str], words: &str) {
    let arguments = certificates.iter().flat_map(|name| ["--client-certificate", *name]);
    let (code, text) = fails(socket.as_ref(), &arguments.collect::<Vec<_>>());
    assert!(code == Some(2) && text.contains(words) && text.contains("\nhint: "), "{text}");
}

/// The kernel ends it at its first byte: a client that reads the file then must find no token, for
/// an empty one can be proved by anyone.
#[test]
fn an_agent_that_ends_while_it_makes_a_token_leaves_none() {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    let mut agent = Command::new("sh");
    agent.args(["-c", "ulimit -f 0; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_headstart")]);
    agent.args(["agent", "--listen", "127.0.0.1:0", "--managed-listen", "127.0.0.1:0"]);
    let output = agent.arg("--managed-token").arg(&token).output().unwrap();
    assert!(!output.status.success(), "{output:?}");
    assert!(!token.exists(), "{output:?}");
    let token = token.to_str().unwrap();
    let agent =
        Agent::start_in(dir, &["--managed-listen", "127.0.0.1:0", "--managed-token", token]);
    assert!(fs::read_to_string(agent.path("token")).unwrap().trim().len() >= 32);
}

#[test]
fn without_an_agent_the_command_says_how_to_start_one() {
    let (code, _, err) = crate::call::call(&["sessions", "list", "--socket", "/nonexistent"]);
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("hint: start one: headstart agent --socket /nonexistent"), "{err}");
    let (_, _, err) = crate::call::call(&["sessions", "list"]);
    assert!(err.contains("XDG_RUNTIME_DIR is not set\nhint: name it with --socket"), "{err}");
    let agent = Agent::start(&[]);
    assert_eq!(sessions(&agent, &["list"]).0, Some(0));
}
