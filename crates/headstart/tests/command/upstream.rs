//! The agent's connections through a SOCKS5 proxy: its doors, what it says of failures, and a proxy
//! of other making.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};

use headstart_testkit::Running;
use headstart_testkit::hello::CraftedHello;

use crate::call::call;
use crate::daemon::{Daemon, PATIENCE, until};
use crate::edge::closed;
use crate::socks::{Proxy, echo, socks};

const SECRET: &str = "topsecret";

fn agent(upstream: &str, arguments: &[&str]) -> (Daemon, SocketAddr) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
    command.args(["agent", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]).args(arguments);
    command.env_clear().env("HEADSTART_LOG", "trace").env("HEADSTART_AGENT_UPSTREAM", upstream);
    let daemon = Daemon::start(command.stdin(Stdio::null()));
    let at = daemon.address("listening address=").unwrap();
    (daemon, at)
}

fn through(proxy: &Proxy) -> String {
    format!("socks5://{}", proxy.at)
}

fn connect(agent: SocketAddr, target: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(agent).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut one = [0];
        stream.read_exact(&mut one).unwrap();
        head.push(one[0]);
    }
    (stream, String::from_utf8(head).unwrap())
}

fn echoed(stream: &mut TcpStream, text: &[u8]) {
    stream.write_all(text).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    assert!(received == text, "{} of {} bytes", received.len(), text.len());
}

fn granted(agent: &Daemon, manner: &str) -> u64 {
    let manner = format!("manner=\"{manner}\"");
    agent.count("headstart_upstream_connections_total", &[&manner, "result=\"granted\""])
}

/// Names reach the proxy as they were written: that they do not exist here shows that nobody looked
/// them up.
#[test]
fn both_doors_lead_through_the_proxy() {
    let (proxy, port) = (Proxy::start(0), echo());
    for (option, opening) in [("always", "optimistic"), ("never", "upstream")] {
        let ports = port.to_string();
        let arguments = ["--upstream-optimistic", option, "--upstream-ports", &ports];
        let (daemon, at) = agent(&through(&proxy), &arguments);
        echoed(&mut socks(at, None, "socks.invalid", port).unwrap(), &[1; 50_000]);
        let (mut stream, head) = connect(at, &format!("connect.invalid:{port}"));
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        echoed(&mut stream, &[2; 50_000]);
        let opened = format!("opening=\"{opening}\"");
        let ended = [opened.as_str(), "result=\"closed\""];
        until("both are counted", || daemon.count("headstart_connections_total", &ended) == 2);
        let manner = if option == "always" { "optimistic" } else { "waiting" };
        assert_eq!(granted(&daemon, manner), 2);
    }
    let targets: Vec<_> = proxy.requests().into_iter().map(|request| request.target).collect();
    let each = [format!("socks.invalid:{port}"), format!("connect.invalid:{port}")];
    assert_eq!(targets, [each.clone(), each].concat());
}

/// Where the client waits for the server's first word, it hears what the proxy says.
#[test]
fn replies_of_the_proxy_are_passed_on() {
    for (code, words) in [
        (5, "connection refused (code 5)"),
        (2, "not allowed by its rules"),
        (1, "general failure"),
    ] {
        let proxy = Proxy::start(code);
        let (_daemon, at) = agent(&through(&proxy), &[]);
        assert_eq!(socks(at, None, "mail.invalid", 25).unwrap_err(), code);
        let (mut stream, head) = connect(at, "mail.invalid:25");
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(head.starts_with("HTTP/1.1 502"), "{head}");
        assert!(text.contains(words) && text.contains("\nhint: "), "{text}");
    }
}

#[test]
fn a_proxy_that_is_down_is_named_and_no_password_is_shown() {
    let (daemon, at) = agent(&format!("socks5://user:{SECRET}@{}", closed()), &[]);
    assert_eq!(socks(at, None, "mail.invalid", 25).unwrap_err(), 1);
    let (mut stream, head) = connect(at, "mail.invalid:25");
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(head.starts_with("HTTP/1.1 502"), "{head}");
    assert!(text.contains("the upstream proxy cannot be reached: connection refused"), "{text}");
    // A client of a client-first port was told yes: it sees a reset, and the log has the reason.
    let mut early = socks(at, None, "www.invalid", 443).unwrap();
    let mut received = Vec::new();
    assert!(early.read_to_end(&mut received).is_err() || received.is_empty());
    until("the log says why", || daemon.logged("the upstream proxy cannot be reached") >= 3);
    assert!(!daemon.log().contains(SECRET), "{}", daemon.log());
}

#[test]
fn each_context_has_a_login_of_its_own() {
    let (proxy, port) = (Proxy::start(0), echo());
    let (daemon, at) = agent(&through(&proxy), &["--upstream-isolation", "context"]);
    for user in [None, Some("work"), Some("home"), Some("work")] {
        echoed(&mut socks(at, user, "a.invalid", port).unwrap(), b"x");
    }
    let requests = proxy.requests();
    let logins: Vec<_> = requests.iter().map(|request| request.user.as_deref().unwrap()).collect();
    assert!(logins.iter().all(|login| !login.contains("work") && login.len() == 44), "{logins:?}");
    assert_eq!(logins[1], logins[3]);
    assert!(logins[0] != logins[1] && logins[1] != logins[2] && logins[0] != logins[2]);
    assert!(logins.iter().all(|login| !daemon.log().contains(login)), "a login is in the log");
}

#[test]
fn mistakes_end_the_agent_with_a_hint_and_without_the_password() {
    for (upstream, isolation, words) in [
        ("http://user:topsecret@localhost:8080", "none", "http is not supported, socks5 is"),
        ("socks5://user:topsecret@localhost", "none", "HOST:PORT is missing or malformed"),
        ("socks5://topsecret@localhost:9050", "none", "a user name and no password"),
        (
            "socks5://user:topsecret@localhost:9050",
            "context",
            "--upstream-isolation context makes them",
        ),
    ] {
        let (code, _, text) =
            call(&["agent", "--upstream", upstream, "--upstream-isolation", isolation]);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains(words) && text.contains("\nhint: "), "{text}");
        assert!(!text.contains(SECRET), "{text}");
    }
}

/// A small proxy in use, which reads what there is and looks at the first message of it: whatever
/// comes together with that is lost. The agent finds out and asks step by step; nothing is lost or
/// doubled.
#[test]
fn a_proxy_of_other_making_that_loses_early_bytes() {
    let Some(microsocks) = Microsocks::start() else { return };
    let port = echo();
    let ports = port.to_string();
    let (daemon, at) = agent(&format!("socks5://{}", microsocks.at), &["--tls-ports", &ports]);
    for round in 0..3_u8 {
        let sent = [CraftedHello::sized(100).stream(), vec![round; 30_000]].concat();
        // It does not support half-closed connections.
        let mut stream = socks(at, None, "localhost", port).unwrap();
        stream.write_all(&sent).unwrap();
        let mut received = vec![0; sent.len()];
        stream.read_exact(&mut received).unwrap();
        assert!(received == sent);
    }
    let all = ["optimistic", "fallback", "waiting"].map(|manner| granted(&daemon, manner));
    assert_eq!(all.iter().sum::<u64>(), 3, "{all:?}");
}

struct Microsocks {
    _child: Running,
    at: SocketAddr,
}

impl Microsocks {
    /// Starts it; `None` where network tests are not asked for and it is not there.
    fn start() -> Option<Self> {
        // Nobody else listens at this address, so that nobody takes the port meanwhile.
        let own = Ipv4Addr::new(127, 77, 0, 1);
        let at = TcpListener::bind((own, 0)).unwrap().local_addr().unwrap();
        let mut command = Command::new("microsocks");
        command.args(["-i", &own.to_string(), "-p", &at.port().to_string()]);
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let Ok(child) = child else {
            assert!(std::env::var_os("HEADSTART_TEST_NET").is_none(), "microsocks is missing");
            eprintln!("skipped: there is no microsocks");
            return None;
        };
        until("microsocks listens", || TcpStream::connect(at).is_ok());
        Some(Self { _child: Running(child), at })
    }
}
