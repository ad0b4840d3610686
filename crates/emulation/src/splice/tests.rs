//! A client, and two servers at one address, in virtual time.

use std::net::SocketAddr;
use std::time::Duration;

use super::*;
use crate::ip::has_right_checksums;
use crate::switch::{Port, Switch};
use crate::tls::made::{client_hello, record};
use crate::{Balance, Delay, Link};

const MS: Duration = Duration::from_millis(1);
const CLIENT: usize = 0;
/// Names whose server is on the list, with its port.
const LISTED: [(&str, usize); 2] = [("a.test", 1), ("b.test", 2)];
/// First sequence numbers of client and server: either soon wraps around.
const OURS: u32 = u32::MAX - 3;
const THEIRS: u32 = 5;

fn client() -> SocketAddr {
    ([10, 77, 1, 1], 5000).into()
}

fn shared() -> SocketAddr {
    ([192, 0, 2, 1], 443).into()
}

/// The client is 10 ms from the balancer, each server 1 ms.
struct Net {
    switch: Switch,
    now: Duration,
}

impl Net {
    fn new() -> Net {
        let mut switch = Switch::default();
        let port = |millis| {
            let [outbound, inbound] = [(); 2].map(|()| Link::default().with(Delay::millis(millis)));
            Port { outbound, inbound }
        };
        switch.add_port([client().ip()], port(10));
        for (name, _) in LISTED {
            let server = switch.add_port([], port(1));
            switch.share(shared().ip(), Balance::NameElseSource, server, &[name.to_owned()]);
        }
        Net { switch, now: Duration::ZERO }
    }

    /// Sends a packet by a port; returns all that arrives then, with its port and time on the way.
    fn send(&mut self, port: usize, packet: Packet) -> Vec<(usize, Duration, Packet)> {
        self.now += 100 * MS;
        let sent = self.now;
        self.switch.handle(sent, port, packet);
        let all = std::iter::from_fn(|| self.switch.poll(Duration::MAX));
        let all: Vec<_> =
            all.map(|packet| (packet.port, packet.due - sent, packet.packet)).collect();
        assert!(all.iter().all(|(_, _, packet)| has_right_checksums(packet)));
        all
    }

    fn client_sends(&mut self, segment: Packet) -> Vec<(usize, Duration, Packet)> {
        self.send(CLIENT, segment)
    }

    /// Connects, and returns the sequence number of the answer to the SYN.
    fn connect(&mut self) -> u32 {
        let answered = self.client_sends(there(OURS, 0, SYN, b""));
        let [(CLIENT, took, answer)] = answered.as_slice() else { panic!("{answered:?}") };
        let (flow, segment) = parts(answer).unwrap();
        assert_eq!((*took, flow.source, segment.flags), (20 * MS, shared(), SYN | ACK));
        assert_eq!((segment.ack, &answer.bytes[segment.options]), (OURS.wrapping_add(1), OPTIONS));
        segment.seq
    }

    /// The port of the server to which the connection with this ClientHello is opened.
    fn opened_to(&mut self, name: &str) -> usize {
        let seq = self.connect();
        let opened = self.client_sends(there(OURS + 1, seq + 1, ACK, &client_hello(name)));
        let [(server, _, syn)] = opened.as_slice() else { panic!("{opened:?}") };
        assert_eq!(*syn, there(OURS, 0, SYN, b""));
        *server
    }
}

const OPTIONS: &[u8] = &[2, 4, 5, 180];

fn segment(from: SocketAddr, to: SocketAddr, fields: TcpFields<'_>) -> Packet {
    let options = if fields.flags & SYN == 0 { &[] } else { OPTIONS };
    tcp(from, to, TcpFields { options, window: WINDOW, ..fields }).unwrap()
}

/// A segment of the client.
fn there(seq: u32, ack: u32, flags: u8, payload: &[u8]) -> Packet {
    segment(client(), shared(), TcpFields { seq, ack, flags, payload, ..TcpFields::default() })
}

/// A segment of a server.
fn back(seq: u32, ack: u32, flags: u8, payload: &[u8]) -> Packet {
    segment(shared(), client(), TcpFields { seq, ack, flags, payload, ..TcpFields::default() })
}

#[test]
fn a_connection_is_the_same_at_both_ends_but_for_the_servers_numbers() {
    let mut net = Net::new();
    let seq = net.connect();
    let hello = client_hello("b.test");
    let (head, tail) = hello.split_at(30);
    let next = (OURS + 1).wrapping_add(30);
    assert!(net.client_sends(there(OURS + 1, seq + 1, ACK, head)).is_empty());
    let asked = net.client_sends(there(next, seq + 1, ACK, tail));
    assert_eq!(asked, [(2, 11 * MS, there(OURS, 0, SYN, b""))]);
    // More that comes before the server answers.
    let after = (OURS + 1).wrapping_add(u32::try_from(hello.len()).unwrap());
    assert!(net.client_sends(there(after, seq + 1, ACK, &record(23, b"early"))).is_empty());
    let kept = net.send(2, back(THEIRS, OURS.wrapping_add(1), SYN | ACK, b""));
    let shifted = |seq, payload: &[u8]| (2, 2 * MS, there(seq, THEIRS + 1, ACK, payload));
    let expected = [(OURS + 1, head), (next, tail), (after, &record(23, b"early"))]
        .map(|(seq, bytes)| shifted(seq, bytes));
    assert_eq!(kept, expected);

    let answered = net.send(2, back(THEIRS + 1, after, ACK, b"answer"));
    assert_eq!(answered, [(CLIENT, 11 * MS, back(seq + 1, after, ACK, b"answer"))]);
    let acknowledged = net.client_sends(there(after, seq + 7, ACK, b""));
    assert_eq!(acknowledged, [(2, 11 * MS, there(after, THEIRS + 7, ACK, b""))]);
}

#[test]
fn the_list_decides_and_else_a_hash_of_the_name() {
    for (name, server) in LISTED {
        assert_eq!(Net::new().opened_to(name), server, "{name}");
    }
    let spread = |name: &str| Net::new().opened_to(name);
    let names: Vec<_> = (0..40).map(|number| format!("www{number}.test")).collect();
    let first: Vec<_> = names.iter().map(|name| spread(name)).collect();
    assert!((1..=2).all(|server| first.contains(&server)));
    assert_eq!(first, names.iter().map(|name| spread(name)).collect::<Vec<_>>());
}

/// A SYN of the balancer's that is lost, or the answer to it, is made up for by the client's
/// repetition, and a SYN of the client's is answered each time.
#[test]
fn what_is_lost_comes_again() {
    let mut net = Net::new();
    let seq = net.connect();
    assert_eq!(net.connect(), seq);
    let hello = there(OURS + 1, seq + 1, ACK, &client_hello("a.test"));
    for _ in 0..2 {
        let asked = net.client_sends(hello.clone());
        assert_eq!(asked, [(1, 11 * MS, there(OURS, 0, SYN, b""))]);
    }
    // Another connection of the same ports begins anew.
    let answered = net.client_sends(there(77, 0, SYN, b""));
    assert_eq!(parts(&answered[0].2).unwrap().1.ack, 78);
}

#[test]
fn what_is_no_tls_or_refused_is_reset() {
    let mut net = Net::new();
    let seq = net.connect();
    let fields = TcpFields { seq: seq + 1, flags: RST, ..TcpFields::default() };
    let reset = tcp(shared(), client(), fields).unwrap();
    let answered = net.client_sends(there(OURS + 1, seq + 1, ACK, b"GET / HTTP/1.1"));
    assert_eq!(answered, [(CLIENT, 20 * MS, reset.clone())]);

    let mut net = Net::new();
    assert_eq!(net.opened_to("a.test"), 1);
    let refused = net.send(1, back(0, OURS.wrapping_add(1), RST | ACK, b""));
    assert_eq!(refused, [(CLIENT, 11 * MS, reset)]);
}

/// UDP goes by the other rule, and connections that the balancer does not know pass from the
/// servers, but not to them.
#[test]
fn all_else_is_left_alone() {
    let mut net = Net::new();
    let datagram = crate::ip::udp(client(), shared(), b"?").unwrap();
    let servers: Vec<_> = (0..3).map(|_| net.client_sends(datagram.clone())[0].0).collect();
    assert!(servers[0] != CLIENT && servers.iter().all(|server| *server == servers[0]));
    let unknown = back(7, 8, ACK, b"");
    assert_eq!(net.send(1, unknown.clone()), [(CLIENT, 11 * MS, unknown)]);
    assert!(net.client_sends(there(7, 8, ACK, b"")).is_empty());
}
