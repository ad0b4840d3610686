//! Early data that an attacker has recorded, and sends again.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::early::{NAME, send};
use crate::edge::Edge;
use crate::files::Files;
use crate::origin::Origin;
use crate::tools::request;

/// How long the server's flight is kept back, so that all that a client says before it is one flight.
const HELD: Duration = Duration::from_millis(300);

/// Longer than an edge takes to pass a request on.
const SOON: Duration = Duration::from_millis(700);

/// A way to `edge` on which each client's first flight is recorded.
fn recorded(edge: SocketAddr) -> (SocketAddr, mpsc::Receiver<Vec<u8>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let (flights, recorded) = mpsc::channel();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let flights = flights.clone();
            thread::spawn(move || record(client, edge, &flights));
        }
    });
    (address, recorded)
}

fn record(client: TcpStream, edge: SocketAddr, flights: &mpsc::Sender<Vec<u8>>) {
    let server = TcpStream::connect(edge).unwrap();
    let flight = flight(&client);
    (&server).write_all(&flight).unwrap();
    let _ = flights.send(flight);
    thread::scope(|scope| {
        scope.spawn(|| pass(&client, &server));
        pass(&server, &client);
    });
}

/// What a client says before it hears anything.
fn flight(mut client: &TcpStream) -> Vec<u8> {
    let (mut flight, mut room) = (Vec::new(), [0; 4096]);
    client.set_read_timeout(Some(HELD)).unwrap();
    while let Ok(count @ 1..) = client.read(&mut room) {
        flight.extend_from_slice(&room[..count]);
    }
    client.set_read_timeout(None).unwrap();
    flight
}

fn pass(mut from: &TcpStream, mut to: &TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}

/// Sends a recorded flight to an edge, and waits until it has done with it whatever it does.
fn replay(edge: &Edge, flight: &[u8]) {
    let mut tcp = TcpStream::connect(edge.address).unwrap();
    tcp.write_all(flight).unwrap();
    let count = tcp.read(&mut [0; 1]).unwrap();
    assert_eq!(count, 1, "the ClientHello itself is answered");
    thread::sleep(SOON);
}

#[test]
fn a_request_comes_once_whatever_is_replayed() {
    let (files, origin) = (Files::new(), Origin::start());
    files.issue(NAME);
    let keys = files.keys("keys");
    let origins = format!("--origin={}", origin.http());
    let start = || {
        let flags = [origins.as_str(), "--keys", &keys, "--early-data-requests=on"];
        Edge::start(&files, &[NAME], &flags)
    };
    // With the same keys, and as old as the first: what it refuses it refuses for want of its own tickets.
    let (edge, other) = (start(), start());
    let (way, flights) = recorded(edge.address);
    let text = request("POST", "/head/once", NAME).replace("connection: close\r\n", "");
    let said = send(&edge, &files, Some(way), &text);
    assert!(said.contains("POST /head/once"), "{said}");
    assert_eq!(origin.asked("POST /head/once"), 1);
    let flight = flights.try_iter().last().expect("it went that way");
    replay(&edge, &flight);
    replay(&other, &flight);
    let address = edge.address;
    drop(edge);
    let restarted = start();
    assert_ne!(restarted.address, address);
    replay(&restarted, &flight);
    assert_eq!(origin.asked("POST /head/once"), 1);
}
