//! Other users of the machine: needs root, to be another user.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use headstart_testkit::has_net;

use crate::agent::Agent;
use crate::client::call;
use crate::server::{NAME, PAGE, Server, files};

/// A user that owns nothing else.
pub(crate) const OTHER: u32 = 54_321;

/// Returns the answer to another user's request: `curl` on the socket.
pub(crate) fn as_other(agent: &Agent, arguments: &[&str]) -> String {
    let mut command = Command::new("curl");
    command.args(["-sS", "--max-time", "50", "--unix-socket"]).arg(agent.socket());
    command.args(arguments).current_dir("/").env_clear().uid(OTHER).gid(OTHER);
    let output = command.env("PATH", std::env::var_os("PATH").unwrap()).output().unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{out}{err}")
}

/// An agent whose socket everybody can use, and reach.
fn open_agent() -> Agent {
    let agent = Agent::start(&["--socket-mode", "666"]);
    let_pass(&agent);
    agent
}

/// Lets others come to the socket, whose own mode then counts.
pub(crate) fn let_pass(agent: &Agent) {
    set_permissions(agent.path(""), Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn another_user_has_nothing_of_ours_and_root_sees_all() {
    if !has_net() {
        return;
    }
    let files = files();
    let (server, agent) = (Server::start(&files, PAGE), open_agent());
    server.visit(&agent, &[]);
    assert_eq!(as_other(&agent, &["http://agent/sessions"]), "{\"sessions\":[]}\n");
    let put = ["-X", "PUT", "-d", r#"{"sharing": "off"}"#, "http://agent/policies/mine"];
    assert!(as_other(&agent, &put).contains("\"uid\":54321"));
    let forgotten = as_other(&agent, &["-X", "DELETE", "http://agent/sessions"]);
    assert_eq!(forgotten, "{\"forgotten\":0}\n");
    for query in ["user=0", "user=all"] {
        let text = as_other(&agent, &["-X", "DELETE", &format!("http://agent/sessions?{query}")]);
        assert!(text.contains("only root may name another user"), "{text}");
    }
    assert!(server.visit(&agent, &[]), "ours is still there");
    let (_, all) = call(&agent, "GET", "/policies", "");
    assert_eq!(all["policies"][0]["uid"], OTHER);
    let (_, own) = call(&agent, "GET", "/policies?user=0", "");
    assert_eq!(own["policies"].as_array().unwrap().len(), 0);
}

#[test]
fn a_socket_of_its_owner_is_closed_to_others() {
    if !has_net() {
        return;
    }
    let agent = Agent::start(&[]);
    let_pass(&agent);
    let text = as_other(&agent, &["http://agent/sessions"]);
    assert!(text.contains("curl: (7)"), "{text}");
}

/// The agent is root here, and must not read for others what they may not read themselves.
#[test]
fn roots_that_another_user_may_not_read_are_not_read_for_it() {
    if !has_net() {
        return;
    }
    let files = files();
    let (server, agent) = (Server::start(&files, PAGE), open_agent());
    let pem = std::fs::read(files.path(&format!("{NAME}.pem"))).unwrap();
    let hidden = files.write("hidden.pem", &pem, 0o600);
    let target = server.address.to_string();
    let [hidden, missing] = [&hidden, "/nonexistent"].map(|roots| {
        let verify = format!("Headstart-Verify: {roots}");
        let connect = ["-X", "CONNECT", "--request-target", &target];
        let fields = ["-H", "Headstart-TLS: managed", "-H", &verify];
        as_other(&agent, &[&connect[..], &fields, &["-D", "-", "http://agent/"]].concat())
    });
    assert!(hidden.contains("headstart-error: roots"), "{hidden}");
    let [hidden, missing] = [&hidden, &missing].map(|text| text.split_once("\r\n\r\n").unwrap().1);
    assert_eq!(hidden, missing, "nor is it told which of them is there");
}
