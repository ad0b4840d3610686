//! Early data that an attacker has recorded, and sends again.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::Duration;

use super::aged::{Aged, NAME};
use super::early::{send_recorded, visit};
use super::tools::{request, s_client_to};
use crate::edge::{Edge, until};

/// Content type of a TLS record that holds early data (RFC 8446 section 5.1).
const APPLICATION_DATA: u8 = 23;

/// Longer than an edge takes to pass a request on.
pub(crate) const SOON: Duration = Duration::from_millis(700);

/// Starts a way to `edge` on which each client's first flight is recorded. The edge gets it as a
/// whole: it has read the early data before the client can end its handshake.
pub(crate) fn recorded(edge: SocketAddr) -> (SocketAddr, mpsc::Receiver<Vec<u8>>) {
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

/// Returns a client's records up to its early data, which is one of them.
fn flight(mut client: &TcpStream) -> Vec<u8> {
    let mut flight = Vec::new();
    loop {
        let mut record = vec![0; 5];
        client.read_exact(&mut record).unwrap();
        let length = u16::from_be_bytes([record[3], record[4]]);
        record.resize(5 + usize::from(length), 0);
        client.read_exact(&mut record[5..]).unwrap();
        flight.extend_from_slice(&record);
        if record[0] == APPLICATION_DATA {
            return flight;
        }
    }
}

fn pass(mut from: &TcpStream, mut to: &TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}

/// Sends a recorded flight to an edge, and waits until it has done with it whatever it does.
pub(crate) fn replay(edge: &Edge, flight: &[u8]) {
    let _tcp = answered(edge.address, flight, &Barrier::new(1));
    thread::sleep(SOON);
}

/// Connections on which one flight comes at once.
const COPIES: usize = 30;

/// Returns the first flight of a client with `text` as early data, which reaches no edge.
fn withheld(aged: &Aged, text: &str) -> Vec<u8> {
    let (session, files) = (visit(&aged.on, &aged.files), &aged.files);
    let early = files.write("early", text.as_bytes(), 0o600);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::scope(|scope| {
        let recorded = scope.spawn(|| flight(&listener.accept().unwrap().0));
        s_client_to(address, NAME, &["-sess_in", &session, "-early_data", &early], "");
        recorded.join().unwrap()
    })
}

/// Sends a flight on a new connection; returns it when the edge has answered.
fn answered(edge: SocketAddr, flight: &[u8], together: &Barrier) -> TcpStream {
    let mut tcp = TcpStream::connect(edge).unwrap();
    together.wait();
    tcp.write_all(flight).unwrap();
    assert_eq!(tcp.read(&mut [0; 1]).unwrap(), 1, "the ClientHello itself is answered");
    tcp
}

/// Sends a flight on many connections at once.
fn send_copies(edge: SocketAddr, flight: &[u8]) -> Vec<TcpStream> {
    let together = Barrier::new(COPIES);
    thread::scope(|scope| {
        let copies = [(); COPIES].map(|()| scope.spawn(|| answered(edge, flight, &together)));
        copies.map(|copy| copy.join().unwrap()).into()
    })
}

/// A flight that no edge has seen yet. A ticket may be too old for early data on a busy machine, so
/// it is tried until one was taken.
pub(crate) fn once_in_parallel(aged: &Aged) {
    let mut round = 0;
    until("early data is taken", || {
        round += 1;
        let path = format!("/head/parallel/{round}");
        let head = request("POST", &path, NAME).replace("connection: close\r\n", "");
        let post = head.replace("content-length: 0", "content-length: 4") + "body";
        let copies = send_copies(aged.on.address, &withheld(aged, &post));
        thread::sleep(SOON);
        drop(copies);
        until("the edge has done with all", || {
            aged.on.count("headstart_connections_active", &[]) == 0
        });
        let times = aged.origin.requests(&format!("POST {path}"));
        assert!(times <= 1, "{times} times");
        times == 1
    });
}

/// To the edge that took it, to another one with the same keys and of the same age, to one that has
/// started since.
pub(crate) fn once(aged: &Aged) {
    let text = request("POST", "/head/once", NAME).replace("connection: close\r\n", "");
    let (output, flight) = send_recorded(&aged.on, &aged.files, &text);
    assert!(output.contains("POST /head/once"), "{output}");
    assert_eq!(aged.origin.requests("POST /head/once"), 1);
    replay(&aged.on, &flight);
    replay(&aged.other, &flight);
    replay(&aged.restarted(), &flight);
    assert_eq!(aged.origin.requests("POST /head/once"), 1);
}
