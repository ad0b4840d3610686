//! Programs of this machine that mean harm: what they get is an answer, or nothing, and others go
//! on.

use std::io::{Read, Write};
use std::time::Instant;

use crate::agent::Agent;
use crate::client::{answer, ask, call, dial};
use crate::edge::until;
use crate::server::{PAGE, served};

#[test]
fn requests_that_are_too_large_are_refused() {
    let agent = Agent::start(&[]);
    let long = "x".repeat(40 * 1024);
    assert_eq!(ask(&agent, &format!("GET / HTTP/1.1\r\nx: {long}\r\n\r\n")).status, 431);
    let many = "x: y\r\n".repeat(65);
    assert_eq!(ask(&agent, &format!("GET / HTTP/1.1\r\n{many}\r\n")).status, 431);
    let body = format!("{{\"sharing\": \"off\"{}}}", " ".repeat(4096));
    assert_eq!(call(&agent, "PUT", "/policies/", &body).0, 413);
    let (_, report) = call(&agent, "GET", "/policies", "");
    assert_eq!(report["policies"].as_array().map(Vec::len), Some(0), "nothing was set");
    assert_eq!(ask(&agent, "GET / HTTP/1.1\r\nhost: a\r\n\r\n").status, 200, "it goes on");
}

#[test]
fn malformed_requests_are_refused() {
    let agent = Agent::start(&[]);
    assert_eq!(ask(&agent, "\x16\x03\x01\x02\x00 garbage\r\n\r\n").status, 400);
    for target in ["example.com", "example.com:0", ":443", "user@example.com:443"] {
        let answer = ask(&agent, &format!("CONNECT {target} HTTP/1.1\r\nhost: a\r\n\r\n"));
        assert_eq!(answer.status, 400, "{target}");
    }
    let body = "CONNECT a.example:443 HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabc";
    assert_eq!(ask(&agent, body).refused(), (400, "bad_request"));
    for (method, path, status) in [
        ("GET", "/nonesuch", 404),
        ("POST", "/sessions", 405),
        ("PUT", "/sessions", 405),
        ("GET", "/contexts/a", 405),
        ("GET", "/sessions?shape=round", 400),
        ("GET", "/sessions?server=a.example", 400),
        ("GET", "/policies/a?user=0", 400),
        ("PUT", "/policies/a", 400),
        ("DELETE", "/sessions?user=all&context=a", 400),
    ] {
        let expected = if path.contains("user=all") && !is_root() { 403 } else { status };
        assert_eq!(call(&agent, method, path, "").0, expected, "{method} {path}");
    }
}

fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

/// The longest that a request may take is ten seconds, whatever it sends meanwhile.
#[test]
fn a_request_that_never_ends_is_cut_off() {
    let agent = Agent::start(&[]);
    let (mut silent, mut slow) = (dial(&agent), dial(&agent));
    slow.write_all(b"GET /sessions HTTP/1.1\r\nhost: ").unwrap();
    let begun = Instant::now();
    let dripping = std::thread::spawn(move || {
        while slow.write_all(b"x").is_ok() {
            std::thread::sleep(std::time::Duration::from_millis(200));
            assert!(begun.elapsed() < crate::edge::PATIENCE);
        }
    });
    let mut rest = Vec::new();
    let _ = silent.read_to_end(&mut rest);
    dripping.join().unwrap();
    until("both are gone", || agent.count("headstart_connections_active", &["agent"]) == 0);
}

#[test]
fn a_user_has_three_quarters_of_the_connections() {
    let agent = Agent::start(&["--max-connections", "4"]);
    let own: Vec<_> = (0..3).map(|_| dial(&agent)).collect();
    until("all are accepted", || agent.count("headstart_connections_active", &["agent"]) == 3);
    let refused = answer(dial(&agent));
    assert_eq!(refused.refused(), (503, "overloaded"));
    assert!(refused.rest().contains("\nhint: "));
    assert_eq!(agent.count("headstart_limits_hit_total", &["managed_user"]), 1);
    drop(own);
    until("there is room again", || {
        let mut stream = dial(&agent);
        let sent = stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        sent.is_ok() && answer(stream).status == 200
    });
}

/// A list is long, and its reader takes none of it: the connection is held for seconds, and no
/// more.
#[test]
fn who_does_not_read_holds_up_nobody() {
    let (_files, server, agent) = served(PAGE);
    let readers: Vec<_> = (0..50)
        .map(|_| {
            let mut stream = dial(&agent);
            stream.write_all(b"GET /sessions HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
            stream
        })
        .collect();
    assert!(!server.visit(&agent, &[]));
    assert!(server.visit(&agent, &[]));
    drop(readers);
}
