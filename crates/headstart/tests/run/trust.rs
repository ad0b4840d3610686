//! Listeners that are not taken for the agent: needs root, to be another user.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use headstart_testkit::has_net;

use crate::call::{Outcome, outcome};
use crate::daemon::Daemon;
use crate::files::Files;
use crate::kinds::OTHER;
use crate::program::{Program, headstart_run, resumed};
use crate::server::{PAGE, Server, files};

/// Stands for all users that do not exist in a user namespace.
const OVERFLOW_UID: u32 = 65534;

const WORK: [&str; 2] = ["--context", "work"];

/// An agent that `user` has started, in a directory of `owner`.
fn agent_of(user: u32, owner: u32, mode: u32) -> (tempfile::TempDir, Daemon) {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(mode)).unwrap();
    chown(dir.path(), Some(owner), None).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
    let ports = ["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"];
    command.arg("agent").args(ports).args(["--socket-mode", "666", "--socket"]);
    command.arg(dir.path().join("socket")).env_clear().env("HEADSTART_LOG", "debug");
    command.current_dir("/").uid(user).gid(user).stdin(Stdio::null()).stdout(Stdio::null());
    let agent = Daemon::start(&mut command);
    (dir, agent)
}

/// Makes two visits; returns which of them resumed a session that the agent had.
fn visits(socket: &Path, server: &Server, files: &Files, options: &[&str]) -> [bool; 2] {
    let options = [&WORK[..], options].concat();
    [(); 2].map(|()| resumed(&Program::curl(server, &[]).page(socket, files, &options)))
}

/// The listener at the socket can be any server to a program that asks there, and its directory
/// may have been made by anybody.
#[test]
fn a_directory_of_another_user_makes_no_agent_of_its_listener() {
    if !has_net() {
        return;
    }
    let files = files();
    let server = Server::start(&files, PAGE);
    for (owner, mode) in [(0, 0o1777), (OTHER, 0o755)] {
        let (dir, agent) = agent_of(OTHER, owner, mode);
        let socket = dir.path().join("socket");
        assert_eq!(visits(&socket, &server, &files, &[]), [false; 2], "{}", agent.log());
        assert!(!agent.log().contains("session of a program"), "{}", agent.log());
        let named = ["--agent-uid", &OTHER.to_string()];
        assert_eq!(visits(&socket, &server, &files, &named), [false, true], "{}", agent.log());
    }
}

#[test]
fn the_overflow_uid_is_nobody_even_if_it_is_named() {
    if !has_net() {
        return;
    }
    let files = files();
    let server = Server::start(&files, PAGE);
    let (dir, agent) = agent_of(OVERFLOW_UID, OVERFLOW_UID, 0o755);
    let socket = dir.path().join("socket");
    let named = ["--agent-uid", &OVERFLOW_UID.to_string()];
    for options in [&[][..], &named] {
        assert_eq!(visits(&socket, &server, &files, options), [false; 2], "{}", agent.log());
    }
    assert!(!agent.log().contains("session of a program"), "{}", agent.log());
}

#[test]
fn no_program_is_led_to_a_proxy_port_of_another_user() {
    if !has_net() {
        return;
    }
    let (_dir, other) = agent_of(OTHER, OTHER, 0o755);
    let address = other.address("headstart::agent::serve: listening address=").unwrap().to_string();
    let (code, out, err) = echo(&address, None);
    assert_eq!((code, out.as_str()), (Some(125), ""), "{err}");
    let reason = format!("the listener at {address} is not trusted: it is user {OTHER}, ");
    let hint = format!("\nhint: if the agent runs as that user, say so: --agent-uid {OTHER}");
    assert!(err.contains(&reason) && err.contains(&hint), "{err}");
    let (code, out, err) = echo(&address, Some(OTHER));
    assert_eq!((code, out.as_str(), err.as_str()), (Some(0), "ran\n", ""));
}

/// It could answer anything, also that sessions are forgotten.
#[test]
fn another_user_is_not_asked_about_sessions() {
    if !has_net() {
        return;
    }
    let (dir, agent) = agent_of(OTHER, OTHER, 0o755);
    let socket = dir.path().join("socket");
    let mut reasons = Vec::new();
    for named in [None, Some(OTHER)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
        command.args(["sessions", "forget", "--socket"]).arg(&socket).env_clear();
        command.envs(named.map(|uid| ("HEADSTART_AGENT_UID", uid.to_string())));
        reasons.push(outcome(command.output().unwrap()));
    }
    let [stranger, named] = reasons.try_into().unwrap();
    assert_eq!((stranger.0, stranger.1.as_str()), (Some(2), ""), "{}", stranger.2);
    assert!(stranger.2.contains("is not trusted: it is user 54321, "), "{}", stranger.2);
    assert!(stranger.2.contains("\nhint: if the agent runs as that user, "), "{}", stranger.2);
    assert_eq!((named.0, named.1.as_str()), (Some(0), "forgotten: 0\n"), "{}", named.2);
    drop(agent);
}

/// Has `headstart run` lead `echo` to this proxy; returns what comes of it.
fn echo(proxy: &str, agent_uid: Option<u32>) -> Outcome {
    let mut run = headstart_run(Path::new("/run/none"));
    run.args(["--preload", "", "--proxy", proxy, "--", "echo", "ran"]);
    run.envs(agent_uid.map(|uid| ("HEADSTART_AGENT_UID", uid.to_string())));
    outcome(run.output().unwrap())
}
