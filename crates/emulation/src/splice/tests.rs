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
/// Initial sequence numbers; the client's soon wraps around.
const CLIENT_ISN: u32 = u32::MAX - 3;
const SERVER_ISN: u32 = 5;

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

    /// Sends a packet into a port; returns the packets that arrive, with their ports and transit
    /// times.
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
        let answered = self.client_sends(from_client(CLIENT_ISN, 0, SYN, b""));
        let [(CLIENT, took, answer)] = answered.as_slice() else { panic!("{answered:?}") };
        let (flow, segment) = parts(answer).unwrap();
        assert_eq!((*took, flow.source, segment.flags), (20 * MS, shared(), SYN | ACK));
        assert_eq!(
            (segment.ack, &answer.bytes[segment.options]),
            (CLIENT_ISN.wrapping_add(1), OPTIONS)
        );
        segment.seq
    }

    /// Sends a ClientHello for `name`; returns the port of the server that the balancer connects
    /// to.
    fn opened_to(&mut self, name: &str) -> usize {
        let seq = self.connect();
        let opened =
            self.client_sends(from_client(CLIENT_ISN + 1, seq + 1, ACK, &client_hello(name)));
        let [(server, _, syn)] = opened.as_slice() else { panic!("{opened:?}") };
        assert_eq!(*syn, from_client(CLIENT_ISN, 0, SYN, b""));
        *server
    }
}

const OPTIONS: &[u8] = &[2, 4, 5, 180];

fn segment(from: SocketAddr, to: SocketAddr, fields: TcpFields<'_>) -> Packet {
    let options = if fields.flags & SYN == 0 { &[] } else { OPTIONS };
    tcp(from, to, TcpFields { options, window: WINDOW, ..fields }).unwrap()
}

fn from_client(seq: u32, ack: u32, flags: u8, payload: &[u8]) -> Packet {
    segment(client(), shared(), TcpFields { seq, ack, flags, payload, ..TcpFields::default() })
}

fn from_server(seq: u32, ack: u32, flags: u8, payload: &[u8]) -> Packet {
    segment(shared(), client(), TcpFields { seq, ack, flags, payload, ..TcpFields::default() })
}

#[test]
fn only_the_servers_sequence_numbers_differ_between_the_two_ends() {
    let mut net = Net::new();
    let seq = net.connect();
    let hello = client_hello("b.test");
    let (head, tail) = hello.split_at(30);
    let next = (CLIENT_ISN + 1).wrapping_add(30);
    assert!(net.client_sends(from_client(CLIENT_ISN + 1, seq + 1, ACK, head)).is_empty());
    let syns = net.client_sends(from_client(next, seq + 1, ACK, tail));
    assert_eq!(syns, [(2, 11 * MS, from_client(CLIENT_ISN, 0, SYN, b""))]);
    // More data, sent before the server answers.
    let after = (CLIENT_ISN + 1).wrapping_add(u32::try_from(hello.len()).unwrap());
    assert!(net.client_sends(from_client(after, seq + 1, ACK, &record(23, b"early"))).is_empty());
    let kept = net.send(2, from_server(SERVER_ISN, CLIENT_ISN.wrapping_add(1), SYN | ACK, b""));
    let shifted = |seq, payload: &[u8]| (2, 2 * MS, from_client(seq, SERVER_ISN + 1, ACK, payload));
    let expected = [(CLIENT_ISN + 1, head), (next, tail), (after, &record(23, b"early"))]
        .map(|(seq, bytes)| shifted(seq, bytes));
    assert_eq!(kept, expected);

    let answered = net.send(2, from_server(SERVER_ISN + 1, after, ACK, b"answer"));
    assert_eq!(answered, [(CLIENT, 11 * MS, from_server(seq + 1, after, ACK, b"answer"))]);
    let acknowledged = net.client_sends(from_client(after, seq + 7, ACK, b""));
    assert_eq!(acknowledged, [(2, 11 * MS, from_client(after, SERVER_ISN + 7, ACK, b""))]);
}

#[test]
fn unlisted_names_are_spread_by_hash() {
    for (name, server) in LISTED {
        assert_eq!(Net::new().opened_to(name), server, "{name}");
    }
    let spread = |name: &str| Net::new().opened_to(name);
    let names: Vec<_> = (0..40).map(|number| format!("www{number}.test")).collect();
    let first: Vec<_> = names.iter().map(|name| spread(name)).collect();
    assert!((1..=2).all(|server| first.contains(&server)));
    assert_eq!(first, names.iter().map(|name| spread(name)).collect::<Vec<_>>());
}

/// The client's retransmissions make the balancer repeat its own SYN, so that a lost one, or a lost
/// answer, costs nothing more. Each SYN of the client's is answered.
#[test]
fn retransmissions_of_the_client_repeat_the_balancers_syn() {
    let mut net = Net::new();
    let seq = net.connect();
    assert_eq!(net.connect(), seq);
    let hello = from_client(CLIENT_ISN + 1, seq + 1, ACK, &client_hello("a.test"));
    for _ in 0..2 {
        let syns = net.client_sends(hello.clone());
        assert_eq!(syns, [(1, 11 * MS, from_client(CLIENT_ISN, 0, SYN, b""))]);
    }
    // Another connection of the same ports starts afresh.
    let answered = net.client_sends(from_client(77, 0, SYN, b""));
    assert_eq!(parts(&answered[0].2).unwrap().1.ack, 78);
}

#[test]
fn clients_without_tls_or_a_server_are_reset() {
    let mut net = Net::new();
    let seq = net.connect();
    let fields = TcpFields { seq: seq + 1, flags: RST, ..TcpFields::default() };
    let reset = tcp(shared(), client(), fields).unwrap();
    let answered = net.client_sends(from_client(CLIENT_ISN + 1, seq + 1, ACK, b"GET / HTTP/1.1"));
    assert_eq!(answered, [(CLIENT, 20 * MS, reset.clone())]);

    let mut net = Net::new();
    assert_eq!(net.opened_to("a.test"), 1);
    let refused = net.send(1, from_server(0, CLIENT_ISN.wrapping_add(1), RST | ACK, b""));
    assert_eq!(refused, [(CLIENT, 11 * MS, reset)]);
}

/// UDP is balanced by source; of unknown TCP connections only the servers' segments pass.
#[test]
fn udp_and_unknown_connections_are_not_spliced() {
    let mut net = Net::new();
    let datagram = crate::ip::udp(client(), shared(), b"?").unwrap();
    let servers: Vec<_> = (0..3).map(|_| net.client_sends(datagram.clone())[0].0).collect();
    assert!(servers[0] != CLIENT && servers.iter().all(|server| *server == servers[0]));
    let unknown = from_server(7, 8, ACK, b"");
    assert_eq!(net.send(1, unknown.clone()), [(CLIENT, 11 * MS, unknown)]);
    assert!(net.client_sends(from_client(7, 8, ACK, b"")).is_empty());
}
