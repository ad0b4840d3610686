//! What operators see: checks before a start, signals, reloads, and the words for failures.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::daemon::{Daemon, until};
use crate::edge::closed;
use crate::files::Files;

const NAME: &str = "www.example.com";

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
    command.args(arguments).env_clear().stdin(Stdio::null()).stdout(Stdio::null());
    command
}

pub(crate) fn daemon(role: &str, arguments: &[&str]) -> Daemon {
    let all = [role, "--listen=127.0.0.1:0", "--metrics=127.0.0.1:0"];
    Daemon::start(&mut command(&[&all, arguments].concat()))
}

/// Exit code and lines of a check.
fn checked(arguments: &[&str]) -> (Option<i32>, String) {
    let output = command(arguments).arg("--check").stdout(Stdio::piped()).output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

pub(crate) fn line<'a>(text: &'a str, words: &str) -> &'a str {
    text.lines().find(|line| line.contains(words)).unwrap_or_else(|| panic!("{words}: {text}"))
}

#[test]
fn a_check_names_all_problems_at_once() {
    let (files, down, taken) = (Files::new(), closed(), TcpListener::bind("127.0.0.1:0").unwrap());
    files.issue(NAME);
    let [_, cert, _, key] = files.certificate(NAME);
    let origin = format!("--origin={NAME}=http://{down}");
    let listen = format!("--listen={},192.0.2.1:0", taken.local_addr().unwrap());
    let swapped = ["--cert", &key, "--key", &cert, "--client-ca", &key];
    let arguments = [&["edge", &origin, &listen], &swapped[..]].concat();
    let (code, text) = checked(&arguments);
    assert_eq!(code, Some(1), "{text}");
    assert!(line(&text, "problem  certificate").contains("is a private key, and"), "{text}");
    line(&text, "problem  client_ca");
    assert!(line(&text, "problem  origin").contains("cannot connect: Connection refused"));
    assert!(line(&text, "problem  listen").contains("192.0.2.1:0"), "{text}");
    assert!(line(&text, "note     listen").contains("is in use"), "{text}");
    assert!(text.contains("hint: --cert and --key are swapped"), "{text}");
    let (code, text) = checked(&[&arguments[..], &["--json"]].concat());
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, json["ok"].as_bool()), (Some(1), Some(false)), "{text}");
}

#[test]
fn a_check_beside_the_running_edge_finds_no_problem() {
    let (files, origin) = (Files::new(), TcpListener::bind("127.0.0.1:0").unwrap());
    files.issue(NAME);
    let origin = format!("--origin={NAME}=http://{}", origin.local_addr().unwrap());
    let certificate = files.certificate(NAME);
    let arguments: Vec<_> =
        certificate.iter().map(String::as_str).chain([origin.as_str()]).collect();
    let edge = daemon("edge", &arguments);
    let listen = format!("--listen={}", edge.address("listening address=").unwrap());
    let (code, text) = checked(&[&["edge", &listen], &arguments[..]].concat());
    assert_eq!(code, Some(0), "{text}");
    line(&text, "ok       certificate");
    line(&text, "ok       origin");
    assert_eq!(text.matches("is in use").count(), 2, "TCP and UDP: {text}");
}

#[test]
fn a_check_names_certificates_that_clients_refuse() {
    let (files, origin) = (Files::new(), TcpListener::bind("127.0.0.1:0").unwrap());
    files.issue_until(NAME, -60);
    let origin = format!("--origin=other.example=http://{}", origin.local_addr().unwrap());
    let [_, cert, _, key] = files.certificate(NAME);
    let arguments = ["edge", "--listen=127.0.0.1:0", &origin, "--cert", &cert, "--key", &key];
    let (code, text) = checked(&arguments);
    assert_eq!(code, Some(1), "{text}");
    line(&text, "certificate has expired");
    line(&text, "no certificate is for other.example");
}

#[test]
fn an_agent_is_checked_as_well() {
    let arguments = ["agent", "--listen=127.0.0.1:0", "--resolver=127.0.0.1:53"];
    let (code, text) = checked(&arguments);
    assert_eq!(code, Some(0), "{text}");
    let wrong = ["--socket=/nonexistent/socket", "--listen=192.0.2.1:1080"];
    let (code, text) = checked(&[&arguments[..], &wrong].concat());
    assert_eq!(code, Some(1), "{text}");
    line(&text, "there is no directory /nonexistent");
    line(&text, "reachable by other machines");
}

#[test]
fn user_signals_end_nothing() {
    let mut agent = daemon("agent", &["--resolver=127.0.0.1:53"]);
    agent.signal(Signal::USR1);
    until("it says so", || agent.logged("SIGUSR1 does nothing") == 1);
    agent.signal(Signal::TERM);
    assert!(agent.ended().success());
    until("the end of its log", || agent.log().ends_with(" stopped\n"));
}

#[test]
fn a_second_stop_counts_what_it_ends() {
    let mut agent = daemon("agent", &["--resolver=127.0.0.1:53"]);
    let _waits = TcpStream::connect(agent.address("listening address=").unwrap()).unwrap();
    until("it is there", || agent.count("headstart_connections_active", &[]) == 1);
    agent.signal(Signal::INT);
    until("it stops", || agent.logged("stopping; a second signal ends them at once") == 1);
    agent.signal(Signal::INT);
    assert!(agent.ended().success());
    until("it counts", || agent.logged("stopped before they ended connections=1") == 1);
}

#[test]
fn a_reload_names_options_that_need_a_restart() {
    let (files, origin) = (Files::new(), closed());
    let write = |more: &str| {
        files.write("toml", format!("[edge]\norigin = '{origin}'\n{more}").as_bytes(), 0o644)
    };
    let config = write("");
    let edge = daemon("edge", &["--config", &config]);
    write("idle-timeout = '3m'");
    edge.signal(Signal::HUP);
    until("it reads", || edge.logged("configuration read again") == 1);
    assert_eq!(edge.logged("a reload does not apply it"), 0);
    write("log = 'warn'\nmax-connections = 99");
    edge.signal(Signal::HUP);
    until("it warns", || edge.logged("a reload does not apply it") == 1);
    line(&edge.log(), "options=--max-connections, --log");
}

/// Returns how many reloads were taken, and how many not.
fn reloads(edge: &Daemon) -> [u64; 2] {
    ["\"ok\"", "\"kept\""]
        .map(|result| edge.count("headstart_reloads_total", &["what=\"configuration\"", result]))
}

#[test]
fn a_configuration_that_is_kept_counts_as_failed() {
    let (files, good) = (Files::new(), format!("[edge]\norigin = '{}'\n", closed()));
    let config = files.write("toml", good.as_bytes(), 0o644);
    let edge = daemon("edge", &["--config", &config]);
    files.write("toml", b"[edge]\norigin = 'nonsense'\n", 0o644);
    edge.signal(Signal::HUP);
    until("it is kept", || edge.logged("configuration kept: ") == 1);
    assert_eq!(reloads(&edge), [0, 1]);
    files.write("toml", good.as_bytes(), 0o644);
    edge.signal(Signal::HUP);
    until("it is read", || edge.logged("configuration read again") == 1);
    assert_eq!(reloads(&edge), [1, 1]);
}

#[test]
fn a_check_probes_the_status_page_and_the_joins_of_a_fleet() {
    let files = Files::new();
    let taken = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [status, joins] = taken.each_ref().map(|taken| taken.local_addr().unwrap());
    let status = format!("--status={status}");
    let fleet = files.path("fleet");
    let made = command(&["keys", "new", "--fleet", &fleet]).status().unwrap();
    assert!(made.success());
    let text = std::fs::read_to_string(&fleet).unwrap() + &format!("edge 1 {joins}\n");
    files.write("fleet", text.as_bytes(), 0o600);
    let (origin, keys) = (format!("--origin={}", closed()), files.keys("keys"));
    let edge = ["edge", "--listen=127.0.0.1:0", &origin, "--keys", &keys, "--fleet", &fleet];
    let (_, text) = checked(&[&edge[..], &["--fleet-edge=1", &status]].concat());
    assert_eq!(text.matches("is in use").count(), 2, "{text}");
    line(&text, &format!("TCP {joins} is in use"));
    let (_, text) = checked(&[&edge[..], &["--fleet-edge=2"]].concat());
    line(&text, "no edge of the fleet has the number 2");
    let (_, text) = checked(&["agent", "--listen=127.0.0.1:0", "--resolver=[::1]:53", &status]);
    assert_eq!(text.matches("is in use").count(), 1, "{text}");
}

#[test]
fn an_agent_says_which_server_it_cannot_reach() {
    let (agent, down) = (daemon("agent", &["--resolver=127.0.0.1:53"]), closed());
    let mut client = TcpStream::connect(agent.address("listening address=").unwrap()).unwrap();
    write!(client, "CONNECT {down} HTTP/1.1\r\nHost: {down}\r\n\r\n").unwrap();
    let _ = client.read_to_end(&mut Vec::new());
    until("it says so", || agent.logged("cannot connect") == 1);
    let log = agent.log();
    let warning = line(&log, "cannot connect");
    assert!(warning.contains(" WARN ") && warning.contains("Connection refused"), "{warning}");
    assert!(warning.contains(&format!("host=127.0.0.1 port={}", down.port())), "{warning}");
}

#[test]
fn a_misspelt_variable_is_named() {
    let mut agent =
        command(&["agent", "--listen=127.0.0.1:0", "--metrics=127.0.0.1:0", "--resolver=[::1]:53"]);
    let known = [("HEADSTART_AGENT_UID", "1"), ("HEADSTART_AGENT_IDLE_TIMEOUT", "9s")];
    let agent = Daemon::start(agent.envs(known).env("HEADSTART_AGENT_IDLE_TIMOUT", "9s"));
    assert_eq!(agent.logged("no option has this environment variable"), 1);
    line(&agent.log(), "variable=\"HEADSTART_AGENT_IDLE_TIMOUT\"");
}

#[test]
fn few_open_files_are_said_once() {
    let origin = format!("--origin={}", closed());
    let edge = ["edge", "--listen=127.0.0.1:0", "--metrics=127.0.0.1:0", &origin];
    let program = env!("CARGO_BIN_EXE_headstart");
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -n 200; exec \"$0\" \"$@\"", program]).args(edge);
    let edge = Daemon::start(shell.stdin(Stdio::null()).stdout(Stdio::null()));
    assert_eq!(edge.logged("fewer connections than --max-connections"), 1);
    line(&edge.log(), "connections=87");
}

#[test]
fn the_access_log_is_json_if_the_log_is() {
    let (files, origin) = (Files::new(), crate::origin::Origin::start());
    files.issue(NAME);
    let origin = format!("--origin={}", origin.http());
    let certificate = files.certificate(NAME);
    let options = ["--access-log", "--log-format=json", &origin, "--listen=127.0.0.1:0"];
    let mut edge = command(&["edge"]);
    let mut edge = edge.args(certificate).args(options).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(edge.stderr.take().unwrap()).lines().map(Result::unwrap);
    let object = |line: String| serde_json::from_str::<serde_json::Value>(&line).unwrap();
    let address = lines.by_ref().map(object).find(|line| line["message"] == "listening").unwrap();
    let port = address["address"].as_str().unwrap().rsplit(':').next().unwrap();
    let to = format!("{NAME}:443:127.0.0.1:{port}");
    let url = format!("https://{NAME}/bytes/3?secret=1");
    let curl = Command::new("curl").args(["-sk", "--connect-to", &to, &url]).output().unwrap();
    assert!(curl.status.success(), "{curl:?}");
    let request = lines.by_ref().map(object).find(|line| line["message"] == "request").unwrap();
    let ended = lines.by_ref().map(object).find(|line| line["message"] == "connection").unwrap();
    edge.kill().unwrap();
    edge.wait().unwrap();
    assert_eq!(request["target"], "headstart::access");
    for (field, value) in [("method", "GET"), ("path", "/bytes/3"), ("early", "no")] {
        assert_eq!(request[field], value, "{request}");
    }
    assert_eq!((&request["status"], &request["bytes"]), (&200.into(), &3.into()), "{request}");
    assert_eq!((&ended["opening"], &ended["result"]), (&"plain".into(), &"closed".into()));
}

#[test]
fn an_edge_without_an_origin_is_not_ready_until_it_is_back() {
    let (down, files) = (crate::ports::free(), Files::new());
    let config = files.write("toml", b"[edge]\nhealth-check = '1s'\n", 0o644);
    let mut edge = command(&["edge", "--listen=127.0.0.1:0", "--metrics=127.0.0.1:0"]);
    let edge = Daemon::start(edge.args(["--config", &config, &format!("--origin={down}")]));
    until("it is said", || edge.logged("cannot connect to the origin") == 1);
    until("it is not ready", || !edge.is_ready());
    let name = format!("origin=\"{down}\"");
    assert_eq!(edge.count("headstart_origins", &["down"]), 1);
    assert_eq!(edge.count("headstart_origin_up", &[&name]), 0);
    let _origin = TcpListener::bind(down).unwrap();
    until("it is ready", || edge.is_ready());
    until("it is said", || edge.logged("the origin is back") == 1);
    assert_eq!(edge.count("headstart_origins", &["up"]), 1);
    assert_eq!(edge.count("headstart_origin_up", &[&name]), 1);
}
