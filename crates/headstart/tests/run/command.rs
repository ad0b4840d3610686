//! `headstart run`: the environment, exit codes, hints.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use crate::call::{Outcome, outcome};
use crate::edge::closed;
use crate::library::library;
use crate::program::headstart_run;

fn ended(arguments: &[&str]) -> Outcome {
    outcome(headstart_run(Path::new("/run/none")).args(arguments).output().unwrap())
}

/// A listener of this user at a port of its own, and its address.
fn proxy() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

#[test]
fn the_environment_leads_through_the_agent() {
    let (_listener, address) = proxy();
    let library = library().to_str().unwrap();
    let options = ["--proxy", &address, "--preload", library, "--context", "work"];
    let (code, out, err) = ended(&[&options[..], &["--agent-uid", "7", "--", "env"]].concat());
    assert_eq!((code, err.as_str()), (Some(0), ""));
    for line in [
        &format!("https_proxy=http://{address}"),
        &format!("HTTPS_PROXY=http://{address}"),
        "HEADSTART_SOCKET=/run/none",
        "HEADSTART_CONTEXT=work",
        "HEADSTART_AGENT_UID=7",
        &format!("LD_PRELOAD={library}"),
    ] {
        assert!(out.lines().any(|found| found == line), "{line}: {out}");
    }
    assert!(!out.to_lowercase().contains("all_proxy"), "{out}");
    let (_, out, _) = ended(&["--preload", "", "--proxy", "", "--", "env"]);
    assert!(!out.contains("LD_PRELOAD") && !out.to_lowercase().contains("_proxy="), "{out}");
    assert!(!out.contains("HEADSTART_AGENT_UID"), "{out}");
}

#[test]
fn where_no_socket_is_named_that_is_said() {
    let (_listener, address) = proxy();
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    let output = command.args(["run", "--proxy", &address, "--", "env"]).output().unwrap();
    let (code, out, err) = outcome(output);
    assert!(code == Some(0) && err.contains("--socket PATH names it"), "{err}");
    assert!(out.contains("https_proxy=") && !out.contains("LD_PRELOAD"), "{out}");
}

#[test]
fn exit_codes_are_the_programs_or_say_why_it_did_not_run() {
    let options = ["--preload", "", "--proxy", "", "--"];
    assert_eq!(ended(&[&options[..], &["sh", "-c", "exit 7"]].concat()).0, Some(7));
    let (code, _, err) = ended(&[&options[..], &["/nonexistent"]].concat());
    assert!(code == Some(127) && err.contains("\nhint: "), "{err}");
    let (code, _, err) = ended(&[&options[..], &["/etc/passwd"]].concat());
    assert!(code == Some(126) && err.contains("\nhint: "), "{err}");
    for wrong in [
        &["--proxy", "nowhere", "--", "true"][..],
        &["--proxy", "", "--agent-uid", "root", "--", "true"],
        &["--preload", "/nonexistent", "--", "true"],
        &[],
    ] {
        let (code, _, err) = ended(wrong);
        assert_eq!(code, Some(2), "{err}");
    }
}

/// Otherwise the first process at that port would get what the program sends.
#[test]
fn a_proxy_port_that_nobody_listens_on_is_an_error() {
    let address = closed().to_string();
    let (code, out, err) = ended(&["--preload", "", "--proxy", &address, "--", "echo", "ran"]);
    assert_eq!((code, out.as_str()), (Some(125), ""), "{err}");
    let expected = format!("nobody listens at {address}\nhint: start the agent first: ");
    assert!(err.contains(&expected), "{err}");
}
