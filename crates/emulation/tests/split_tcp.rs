//! A proxy that splits TCP, on real packets. Needs HEADSTART_TEST_NET=1 and root (or a user
//! namespace already entered).
#![allow(clippy::unwrap_used)]

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use headstart_emulation::{Host, Lab, LabError, LabOptions, SplitTcp};
use headstart_testkit::has_net;
use support::{PATIENCE, addresses, ends, udp};

const PORT: u16 = 443;

/// The server's links, each way; the client's have none.
const FAR: Duration = Duration::from_millis(100);

fn split() -> SplitTcp {
    SplitTcp { client: "client".into(), server: "server".into(), ports: vec![PORT] }
}

fn lab() -> Option<Lab> {
    let hosts = vec![Host::new("client"), Host::new("server").delay(FAR)];
    let options = LabOptions { split_tcp: vec![split()], ..LabOptions::default() };
    has_net().then(|| Lab::build_with(hosts, options).unwrap())
}

fn listen(lab: &Lab, family: usize) -> TcpListener {
    let (_, server) = ends(lab);
    support::listen(server, (addresses(server)[family], PORT))
}

fn connect(lab: &Lab, family: usize) -> TcpStream {
    let (client, server) = ends(lab);
    support::connect(client, (addresses(server)[family], PORT).into())
}

/// Measures a round trip to the server without a proxy.
fn udp_round_trip(lab: &Lab) -> Duration {
    let (client, server) = ends(lab);
    let [client, server] = [client, server].map(|node| udp(node, (node.ipv4().unwrap(), PORT)));
    let start = Instant::now();
    client.send_to(b"ping", server.local_addr().unwrap()).unwrap();
    let (_, from) = server.recv_from(&mut [0; 16]).unwrap();
    server.send_to(b"pong", from).unwrap();
    client.recv(&mut [0; 16]).unwrap();
    start.elapsed()
}

/// Measurements of a time until one is as it should be: the machine may be busy. What is wrong is
/// so each time.
const MEASUREMENTS: usize = 5;

/// Asserts that one of a few measurements is right.
fn once(measure: impl Fn() -> Result<(), String>) {
    let wrong: Vec<_> = (0..MEASUREMENTS).map_while(|_| measure().err()).collect();
    assert!(wrong.len() < MEASUREMENTS, "{wrong:#?}");
}

fn bytes(seed: u32, count: u32) -> Vec<u8> {
    (0..count).flat_map(|number| (number ^ seed).to_le_bytes()).collect()
}

#[test]
fn both_directions_are_carried_to_their_ends_unchanged() {
    let Some(lab) = lab() else { return };
    for family in [0, 1] {
        let listener = listen(&lab, family);
        let server = thread::spawn(move || {
            let (mut stream, from) = listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            // Half-close: the request's end comes through while the answer is still to come.
            let mut request = Vec::new();
            stream.read_to_end(&mut request).unwrap();
            stream.write_all(&bytes(7, 300_000)).unwrap();
            (request, from)
        });
        let mut client = connect(&lab, family);
        client.write_all(&bytes(3, 200_000)).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        let (request, from) = server.join().unwrap();
        assert!(request == bytes(3, 200_000), "{} bytes", request.len());
        assert!(answer == bytes(7, 300_000), "{} bytes", answer.len());
        // Neither end sees a proxy.
        assert_eq!(from, client.local_addr().unwrap());
    }
}

#[test]
fn the_client_is_connected_before_the_server_hears_of_it() {
    let Some(lab) = lab() else { return };
    let _listener = listen(&lab, 0);
    once(|| {
        let start = Instant::now();
        let _client = connect(&lab, 0);
        let tcp = start.elapsed();
        let udp = udp_round_trip(&lab);
        assert!(udp >= 2 * FAR, "{udp:?}");
        if tcp < udp / 2 { Ok(()) } else { Err(format!("TCP {tcp:?} UDP {udp:?}")) }
    });
}

/// Returns the time at which a connection stands, and the first byte of each end has arrived.
fn first_byte(lab: &Lab, family: usize, listener: &TcpListener) -> (Duration, Duration, Duration) {
    let start = Instant::now();
    let mut client = connect(lab, family);
    let connected = start.elapsed();
    client.write_all(b"?").unwrap();
    let mut server = listener.accept().unwrap().0;
    server.read_exact(&mut [0]).unwrap();
    let arrived = start.elapsed();
    server.write_all(b"!").unwrap();
    client.read_exact(&mut [0]).unwrap();
    (connected, arrived, start.elapsed())
}

/// The connection between the halves stands before it is needed; the long way lies between them.
#[test]
fn the_clients_first_bytes_take_half_a_round_trip() {
    let Some(lab) = lab() else { return };
    for family in [0, 1] {
        let listener = listen(&lab, family);
        // From now on connections stand ready.
        first_byte(&lab, family, &listener);
        once(|| {
            let (connected, arrived, answered) = first_byte(&lab, family, &listener);
            let round_trip = udp_round_trip(&lab);
            assert!(arrived >= FAR && answered >= 2 * FAR, "{arrived:?}, {answered:?}");
            let soon = connected < round_trip / 4
                && arrived < round_trip * 3 / 4
                && answered < round_trip * 5 / 4;
            let text = format!("{connected:?}, {arrived:?}, {answered:?} of {round_trip:?}");
            if soon { Ok(()) } else { Err(text) }
        });
    }
}

#[test]
fn a_server_that_refuses_resets_the_client() {
    let Some(lab) = lab() else { return };
    let mut client = connect(&lab, 0);
    let error = client.read(&mut [0; 16]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn resets_come_through_both_ways() {
    let Some(lab) = lab() else { return };
    let listener = listen(&lab, 0);
    for by_server in [true, false] {
        let client = connect(&lab, 0);
        let server = listener.accept().unwrap().0;
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        let (ended, mut other) = if by_server { (server, client) } else { (client, server) };
        socket2::SockRef::from(&ended).set_linger(Some(Duration::ZERO)).unwrap();
        drop(ended);
        assert_eq!(other.read(&mut [0; 16]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
}

#[test]
fn many_connections_at_a_time() {
    let Some(lab) = lab() else { return };
    let listener = listen(&lab, 0);
    let count = 50;
    let server = thread::spawn(move || {
        for _ in 0..count {
            let (mut stream, _) = listener.accept().unwrap();
            thread::spawn(move || {
                let mut number = [0; 4];
                stream.read_exact(&mut number).unwrap();
                stream.write_all(&number).unwrap();
            });
        }
    });
    let clients: Vec<_> = (0..count).map(|_| connect(&lab, 0)).collect();
    for (number, mut client) in (0_u32..).zip(&clients) {
        client.write_all(&number.to_be_bytes()).unwrap();
    }
    for (number, mut client) in (0_u32..).zip(&clients) {
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, number.to_be_bytes());
    }
    server.join().unwrap();
}

#[test]
fn a_proxy_needs_its_nodes() {
    if !has_net() {
        return;
    }
    let options = LabOptions { split_tcp: vec![split()], ..LabOptions::default() };
    let refused = Lab::build_with(vec![Host::new("client")], options).unwrap_err();
    assert!(matches!(&refused, LabError::Topology(what) if what.contains("server")), "{refused}");
}
