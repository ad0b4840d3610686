//! The port of loopback: the token first, and then as the socket; with curl as the program.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::agent::{Agent, fails};
use crate::server::{PAGE, Server, files};

/// An agent with a port, and the token's file.
fn start() -> (Agent, SocketAddr, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    let path = token.to_str().unwrap().to_owned();
    let agent =
        Agent::start_in(dir, &["--managed-listen", "127.0.0.1:0", "--managed-token", &path]);
    let port = agent.port();
    (agent, port, token)
}

fn curl(arguments: &[&str]) -> Output {
    let mut command = Command::new("curl");
    command.args(["-sS", "--max-time", "50"]).args(arguments).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap()).output().unwrap()
}

fn text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

/// `curl` that has the agent speak TLS: its own URL is one of plain HTTP.
fn managed(server: &Server, port: SocketAddr, token: &str, more: &[&str]) -> Output {
    let proxy = format!("http://anybody:{token}@{port}");
    let roots = server.fields().map(|(name, value)| format!("{name}: {value}"));
    let mut arguments = vec!["--proxytunnel", "--proxy", &proxy];
    roots.iter().for_each(|field| arguments.extend(["--proxy-header", field.as_str()]));
    let url = format!("http://{}/", server.address);
    arguments.extend(more);
    arguments.push(&url);
    curl(&arguments)
}

#[test]
fn curl_shares_sessions_with_programs_of_the_socket() {
    let files = files();
    let server = Server::start(&files, PAGE);
    let (agent, port, token) = start();
    let token = std::fs::read_to_string(token).unwrap();
    assert!(!server.visit(&agent, &[]));
    for _ in 0..2 {
        let said = managed(&server, port, token.trim(), &[]);
        assert!(said.status.success(), "{}", text(&said));
        assert!(text(&said).contains("Reused, TLSv1.3"), "{}", text(&said));
    }
    assert!(server.visit(&agent, &[]));
}

#[test]
fn without_the_token_there_is_nothing() {
    let files = files();
    let server = Server::start(&files, PAGE);
    let (agent, port, token) = start();
    let wrong = managed(&server, port, "0123456789abcdef", &[]);
    assert_eq!(wrong.status.code(), Some(56), "{}", text(&wrong));
    let url = format!("http://{port}/sessions");
    let status = ["-o", "/dev/null", "-w", "%{http_code}"];
    assert_eq!(text(&curl(&[&status[..], &[url.as_str()]].concat())), "407");
    assert!(agent.count("headstart_limits_hit_total", &["managed_token"]) >= 2);
    let shown = format!("Authorization: Bearer {}", std::fs::read_to_string(token).unwrap().trim());
    assert_eq!(text(&curl(&[&status[..], &["-H", shown.as_str(), url.as_str()]].concat())), "200");
}

#[test]
fn the_socket_takes_curl_too() {
    let agent = Agent::start(&[]);
    let socket = agent.socket();
    let said = curl(&["--unix-socket", socket.to_str().unwrap(), "http://agent/policies"]);
    assert_eq!(text(&said), "{\"policies\":[]}\n");
}

#[test]
fn a_port_that_others_could_use_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let token = dir.path().join("token");
    let path = token.to_str().unwrap();
    let refused = |arguments: &[&str], words: &str| {
        let (code, said) = fails(&socket, arguments);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(words) && said.contains("\nhint: "), "{said}");
    };
    let remote = ["--managed-listen", "0.0.0.0:0", "--managed-token", path];
    refused(&remote, "is reachable by other machines");
    refused(&["--managed-listen", "127.0.0.1:0"], "needs a token");
    refused(&["--managed-token", path], "without a port");
    let local = ["--managed-listen", "127.0.0.1:0", "--managed-token", path];
    write(&token, "0123456789abcdef0123456789abcdef", 0o644);
    refused(&local, "is open to other users (mode 0644)");
    write(&token, "short", 0o600);
    refused(&local, "holds no token");
}

fn write(path: &Path, text: &str, mode: u32) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}
