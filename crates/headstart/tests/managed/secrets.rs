//! No secret reaches a program: its memory is searched for those that the server has logged.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

use headstart_testkit::Running;

use crate::agent::Agent;
use crate::client::request;
use crate::edge::until;
use crate::files::Files;
use crate::server::{NAME, Server, files};

/// Path that the program asks for; once the server has seen it, the handshake is done on both
/// sides.
const PATH: &str = "/words-of-the-program";

/// Starts a program that waits for an answer that never comes.
fn curl(server: &Server, arguments: &[&str], input: Stdio) -> Running {
    let mut command = Command::new("curl");
    command.args(["-sS", "--max-time", "60"]).args(arguments).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap());
    let child = command.stdin(input).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("the server hears the program", || server.output().contains(PATH));
    Running(child)
}

/// A server that logs its secrets in `name`, with one kind of TLS.
fn server(files: &Files, name: &str, version: &str) -> (Server, String) {
    let log = files.path(name);
    (Server::start(files, &["-keylogfile", &log, version]), log)
}

/// The secrets of a log in NSS's format: of TLS 1.2 that of the session, of 1.3 those that come of
/// it.
fn secrets(log: &str) -> Vec<Vec<u8>> {
    let text = fs::read_to_string(log).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let secrets: Vec<_> = lines.map(|line| bytes(line.rsplit(' ').next().unwrap())).collect();
    assert!(!secrets.is_empty());
    secrets
}

fn bytes(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

/// All that a process can read of its own.
fn memory(id: u32) -> Vec<Vec<u8>> {
    let mut maps = String::new();
    File::open(format!("/proc/{id}/maps")).unwrap().read_to_string(&mut maps).unwrap();
    let file = File::open(format!("/proc/{id}/mem")).unwrap();
    let regions = maps.lines().filter(|line| line.split(' ').nth(1).unwrap().starts_with('r'));
    let regions: Vec<_> = regions
        .filter_map(|line: &str| {
            let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
            let from = u64::from_str_radix(from, 16).unwrap();
            let length = u64::from_str_radix(to, 16).unwrap() - from;
            let mut buffer = vec![0; usize::try_from(length).unwrap()];
            // The kernel's own pages, for example, cannot be read.
            file.read_exact_at(&mut buffer, from).ok().map(|()| buffer)
        })
        .collect();
    assert!(regions.iter().map(Vec::len).sum::<usize>() > 1 << 20, "there is more in a program");
    regions
}

fn holds(memory: &[Vec<u8>], bytes: &[u8]) -> bool {
    memory.iter().any(|region| {
        let mut at = region.iter().enumerate().filter(|(_, byte)| **byte == bytes[0]);
        at.any(|(at, _)| region[at..].starts_with(bytes))
    })
}

/// Returns the number of secrets that a program has.
fn found(program: &Running, log: &str) -> usize {
    let memory = memory(program.0.id());
    assert!(holds(&memory, PATH.as_bytes()), "the search finds what is there");
    secrets(log).iter().filter(|secret| holds(&memory, secret)).count()
}

/// curl passes its configuration to the agent's socket.
fn managed(server: &Server, agent: &Agent) -> Running {
    let ask = request(&server.address.to_string(), &server.fields());
    let file = agent.path("request");
    fs::write(&file, format!("{ask}GET {PATH} HTTP/1.1\r\nhost: {NAME}\r\n\r\n")).unwrap();
    let socket = agent.socket();
    // The path means nothing to telnet; it is a word that the search has to find.
    let url = format!("telnet://agent{PATH}");
    let arguments = ["--unix-socket", socket.to_str().unwrap(), &url];
    curl(server, &arguments, File::open(file).unwrap().into())
}

#[test]
fn a_managed_program_has_no_secret_and_one_with_its_own_tls_has() {
    let files = files();
    let agent = Agent::start(&[]);
    for version in ["-tls1_3", "-tls1_2"] {
        let (open, open_log) = server(&files, &format!("open{version}"), version);
        let roots = files.path(&format!("{NAME}.pem"));
        let port = open.address.port();
        let resolve = format!("{NAME}:{port}:127.0.0.1");
        let url = format!("https://{NAME}:{port}{PATH}");
        let arguments = ["--http1.1", "--cacert", &roots, "--resolve", &resolve, &url];
        let own = curl(&open, &arguments, Stdio::null());
        assert!(found(&own, &open_log) > 0, "{version}: secrets are to be found where they are");

        let (closed, closed_log) = server(&files, &format!("closed{version}"), version);
        let program = managed(&closed, &agent);
        assert_eq!(found(&program, &closed_log), 0, "{version}");
    }
}

#[test]
fn the_agent_leaves_no_core() {
    let agent = Agent::start(&[]);
    let limits = fs::read_to_string(format!("/proc/{}/limits", agent.id())).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    let words: Vec<_> = core.split_whitespace().collect();
    assert_eq!(words[4..6], ["0", "0"], "{core}");
    if !rustix::process::getuid().is_root() {
        // A non-dumpable process belongs to root, and nobody else may read its memory.
        let memory = File::open(format!("/proc/{}/mem", agent.id()));
        assert!(memory.is_err(), "others of this user can read it");
    }
}

#[test]
fn nothing_of_a_session_is_logged_or_listed() {
    let files = files();
    let (server, log) = server(&files, "log", "-tls1_2");
    let agent = Agent::start(&["--log", "trace"]);
    let answer = server.connect(&agent, &[]);
    assert!(!answer.resumed());
    let (_, listed) = crate::client::call(&agent, "GET", "/sessions", "");
    agent.until_audited(&["managed connection"], 1);
    let text = format!("{}{listed}", agent.log());
    for secret in secrets(&log) {
        let digits: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(!text.contains(&digits));
        assert!(!text.contains(&format!("{secret:?}")[1..60]));
    }
}
