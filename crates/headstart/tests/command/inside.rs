//! Names that lead inside, with a name server that has every name lead to this machine.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::thread;

use crate::daemon::{Daemon, until};
use crate::socks::{echo, socks};

/// Reply of SOCKS: not allowed by the ruleset (RFC 1928 section 6).
const NOT_ALLOWED: u8 = 2;

/// Type A (RFC 1035 section 3.2.2).
const A: [u8; 2] = [0, 1];

/// The fixed part of a message.
const HEAD: usize = 12;

fn name_server() -> SocketAddr {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let at = socket.local_addr().unwrap();
    thread::spawn(move || {
        let mut buffer = [0; 1500];
        while let Ok((length, client)) = socket.recv_from(&mut buffer) {
            socket.send_to(&rebound(&buffer[..length]), client).unwrap();
        }
    });
    at
}

/// The answer to a query: 127.0.0.1 where an IPv4 address is asked for, else nothing.
fn rebound(query: &[u8]) -> Vec<u8> {
    let name = query[HEAD..].iter().position(|byte| *byte == 0).unwrap() + 1;
    let question = &query[HEAD..HEAD + name + 4];
    let answers = u8::from(question[name..].starts_with(&A));
    let mut answer = query[..2].to_vec();
    // A response, recursion available; one question, no more than one answer.
    answer.extend([0x81, 0x80, 0, 1, 0, answers, 0, 0, 0, 0]);
    answer.extend(question);
    if answers == 1 {
        // The name of the question, type A, class IN, a minute, four bytes.
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
    }
    answer
}

fn agent(arguments: &[&str]) -> (Daemon, SocketAddr) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
    command.args(["agent", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--resolver"]);
    command.arg(name_server().to_string()).args(arguments).env_clear().stdin(Stdio::null());
    let daemon = Daemon::start(&mut command);
    let at = daemon.address("listening address=").unwrap();
    (daemon, at)
}

#[test]
fn names_of_strangers_do_not_lead_inside() {
    let (origin, (daemon, at)) = (echo(), agent(&[]));
    let refused = socks(at, None, "rebound.example", origin).unwrap_err();
    assert_eq!(refused, NOT_ALLOWED);
    assert_eq!(daemon.count("headstart_limits_hit_total", &["name_leads_inside"]), 1);
    until("it says so", || daemon.logged("names must not lead there") == 1);
    let name = "name=\"rebound.example\"";
    assert!(daemon.logged("--allow-inside") == 1 && daemon.logged(name) == 1);
    // An address is what the program means itself.
    socks(at, None, "127.0.0.1", origin).unwrap();
}

#[test]
fn operators_have_names_lead_inside() {
    let origin = echo();
    for allowed in ["rebound.example", "*.example", "127.0.0.0/8", "all"] {
        let (_daemon, at) = agent(&["--allow-inside", allowed]);
        assert!(socks(at, None, "rebound.example", origin).is_ok(), "{allowed}");
    }
    let edge = format!("--edge=rebound.example=own.example:{origin}");
    let (daemon, at) = agent(&["--opening=plain", "--late-answer=true", &edge]);
    assert!(socks(at, None, "rebound.example", 443).is_ok(), "{}", daemon.log());
}
