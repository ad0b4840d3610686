//! Faults cost a full handshake, never a connection.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use openssl::ssl::{SslAcceptor, SslFiletype, SslMethod};
use rustix::process::Signal;

use crate::agent::Agent;
use crate::client::{connect, dial, request};
use crate::edge::{Edge, until};
use crate::origin::Origin;
use crate::ports::free;
use crate::server::{NAME, PAGE, Server, fields, files, served};

/// The events of the session store, which the metrics have a second later.
fn event(agent: &Agent, name: &str) -> u64 {
    agent.count("headstart_sessions_total", &[&format!("event=\"{name}\"")])
}

#[test]
fn a_ticket_that_is_raced_for_is_given_once() {
    const PROGRAMS: usize = 8;
    let (files, origin) = (files(), Origin::start());
    let edge = Edge::start(&files, &[NAME], &[&format!("--origin={}", origin.http())]);
    let agent = Arc::new(Agent::start(&[]));
    let roots = files.path(&format!("{NAME}.pem"));
    let fields = Arc::new([
        ("Headstart-TLS", "managed".to_owned()),
        ("Headstart-Server-Name", NAME.to_owned()),
        ("Headstart-Verify", roots),
    ]);
    let to = edge.address.to_string();
    assert!(!head(&agent, &fields, &to));
    let start = Arc::new(Barrier::new(PROGRAMS));
    let programs = (0..PROGRAMS).map(|_| {
        let (agent, fields, to) = (Arc::clone(&agent), Arc::clone(&fields), to.clone());
        let start = Arc::clone(&start);
        thread::spawn(move || {
            start.wait();
            head(&agent, &fields, &to)
        })
    });
    let programs: Vec<_> = programs.collect();
    let resumed = programs.into_iter().map(|program| program.join().unwrap());
    let resumed = resumed.filter(|resumed| *resumed).count() as u64;
    assert!(resumed > 0);
    until("the metrics have it", || event(&agent, "taken") == resumed);
    assert_eq!(event(&agent, "refused"), 0);
}

/// Returns true if a connection that asks an edge for something is resumed.
fn head(agent: &Agent, fields: &[(&str, String); 3], to: &str) -> bool {
    let fields = fields.iter().map(|(name, value)| (*name, value.as_str()));
    let answer = connect(agent, to, &fields.collect::<Vec<_>>());
    let resumed = answer.resumed();
    assert!(answer.get("/head").starts_with("HTTP/1.1 200"));
    resumed
}

#[test]
fn a_program_that_dies_with_a_ticket_has_spent_it() {
    let (_files, server, agent) = served(PAGE);
    server.visit(&agent, &[]);
    // Its request has arrived, and it has gone.
    let mut dying = dial(&agent);
    dying.write_all(request(&server.address.to_string(), &server.fields()).as_bytes()).unwrap();
    drop(dying);
    until("it has taken one", || event(&agent, "taken") == 1);
    assert!(server.visit(&agent, &[]), "there was another one");
    until("that is taken too", || event(&agent, "taken") == 2);
    until("nothing is left of it", || agent.count("headstart_connections_active", &["agent"]) == 0);
}

#[test]
fn a_server_with_new_keys_costs_one_full_handshake() {
    let files = files();
    let (address, agent) = (free(), Agent::start(&[]));
    let server = Server::start_at(address, &files, NAME, PAGE);
    server.visit(&agent, &[]);
    drop(server);
    let server = Server::start_at(address, &files, NAME, PAGE);
    assert!(!server.visit(&agent, &[]), "it knows the ticket no more");
    assert!(server.visit(&agent, &[]), "and the others of that time are not tried");
    until("it is counted", || event(&agent, "refused") == 1);
}

#[test]
fn a_server_without_tickets_is_served() {
    let (_files, server, agent) = served(&["-www", "-num_tickets", "0"]);
    for _ in 0..3 {
        assert!(!server.visit(&agent, &[]));
    }
}

#[test]
fn a_certificate_that_changed_is_seen_at_the_next_full_handshake() {
    let (files, other) = (files(), files());
    let (address, agent) = (free(), Agent::start(&[]));
    let server = Server::start_at(address, &files, NAME, PAGE);
    server.visit(&agent, &[]);
    let roots = files.path(&format!("{NAME}.pem"));
    drop(server);
    let _fresh = Server::start_at(address, &other, NAME, PAGE);
    let fields = fields(NAME, &roots);
    for _ in 0..2 {
        let (status, error) = connect(&agent, &address.to_string(), &fields).owned_refusal();
        assert!(status == 502 && error.starts_with("certificate"), "{status} {error}");
    }
}

/// Nobody has seen a ticket whose handshake never began: the next connection has it.
#[test]
fn a_ticket_comes_back_if_there_was_no_connection() {
    let files = files();
    let (address, agent) = (free(), Agent::start(&[]));
    let server = Server::start_at(address, &files, NAME, PAGE);
    server.visit(&agent, &[]);
    let roots = files.path(&format!("{NAME}.pem"));
    drop(server);
    let fields = fields(NAME, &roots);
    let answer = connect(&agent, &address.to_string(), &fields);
    assert_eq!(answer.refused(), (502, "refused"));
    until("it is back", || event(&agent, "given_back") == 1);
}

#[test]
fn a_server_that_says_nothing_is_given_up() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let agent = Agent::start(&["--connect-timeout", "500ms"]);
    let to = silent.local_addr().unwrap().to_string();
    let answer =
        connect(&agent, &to, &[("Headstart-TLS", "managed"), ("Headstart-Verify", "none")]);
    assert_eq!(answer.refused(), (504, "timed_out"));
}

#[test]
fn a_stop_lets_connections_end_and_removes_the_socket() {
    let files = files();
    let (server, mut agent) =
        (Server::start(&files, PAGE), Agent::start(&["--shutdown-timeout", "50s"]));
    let open = server.connect(&agent, &[]);
    let mut silent = dial(&agent);
    agent.signal(Signal::TERM);
    // Clients that have not asked yet are closed; connected ones continue.
    assert_eq!(silent.read(&mut [0; 1]).unwrap_or(0), 0);
    thread::sleep(Duration::from_millis(100));
    assert!(open.get("/").contains("HTTP/1.0 200 ok"));
    assert!(agent.ended().success());
    assert!(!agent.socket().exists());
}

#[test]
fn a_reload_keeps_sessions_and_connections() {
    let (_files, server, agent) = served(PAGE);
    server.visit(&agent, &[]);
    let open = server.connect(&agent, &[]);
    agent.signal(Signal::HUP);
    until("it is read again", || agent.log().contains("configuration read again"));
    assert!(open.get("/").contains("HTTP/1.0 200 ok"));
    assert!(server.visit(&agent, &[]));
}

/// Many servers forget their close_notify. What they have said is all there, and nobody takes it
/// for an end in order.
#[test]
fn bytes_before_an_abrupt_end_are_delivered() {
    const BYTES: usize = 4 << 20;
    let files = files();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    let roots = files.path(&format!("{NAME}.pem"));
    let mut acceptor = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server()).unwrap();
    acceptor.set_certificate_chain_file(&roots).unwrap();
    acceptor.set_private_key_file(files.path(&format!("{NAME}.key")), SslFiletype::PEM).unwrap();
    let acceptor = acceptor.build();
    let serving = thread::spawn(move || {
        let (tcp, _) = listener.accept().unwrap();
        let mut tls = acceptor.accept(tcp).unwrap();
        tls.write_all(&vec![7; BYTES]).unwrap();
        // Once dropped, it sends nothing more.
    });
    let agent = Agent::start(&[]);
    let fields = fields(NAME, &roots);
    let mut stream = connect(&agent, &to, &fields).stream;
    let (mut buffer, mut count) = ([0; 4096], 0);
    while let Ok(more @ 1..) = stream.read(&mut buffer) {
        count += more;
    }
    assert_eq!(count, BYTES);
    serving.join().unwrap();
    assert!(stream.write_all(b"x").is_err(), "both directions are closed");
}

/// Bytes of both directions, also those behind a request that is not answered yet, and ends of
/// each.
#[test]
fn bytes_pass_both_ways_and_each_way_ends_by_itself() {
    let files = files();
    let server = Server::start(&files, &["-rev"]);
    let agent = Agent::start(&[]);
    let mut answer = server.connect(&agent, &[]);
    answer.stream.write_all(b"abc\n").unwrap();
    let mut back = [0; 4];
    answer.stream.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"cba\n");
    answer.stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(answer.rest(), "");
}
