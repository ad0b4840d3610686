//! SYNs and SYN-ACKs that are lost: the agent sends a second SYN, once, where that helps.
//!
//! A connection whose first packet is lost loses all others, too. So the kernel's repetition after
//! a second helps nobody, and no check depends on how fast the machine is.

use std::collections::HashMap;
use std::time::Duration;

use headstart_emulation::{Element, Outputs, Packet, Protocol};

use crate::arms::agent;
use crate::curl::{Via, get, small};
use crate::daemon::Daemon;
use crate::figures::judged;
use crate::net::{Net, ms, until};
use crate::nginx::Nginx;

const RTT: Duration = ms(20);
const HOST: &str = "www.four.test";
const PORT: u16 = 1081;
const VIA: Via = Via::Socks(PORT);
const ORIGIN: [&str; 2] = ["--origin", "127.0.0.1:8443"];
const CONNECTIONS: u64 = 6;

/// Loses the TCP packets of every other connection, from the first on.
#[derive(Debug, Default)]
struct EveryOther {
    /// True for those that are lost, by the client's port.
    connections: HashMap<u16, bool>,
    /// True if the packets are those to the client.
    to_client: bool,
}

impl Element for EveryOther {
    fn handle(&mut self, _now: Duration, packet: Packet, out: &mut Outputs) {
        let Some(port) = client_port(&packet, self.to_client) else { return out.pass(packet) };
        let is_next_lost = self.connections.len().is_multiple_of(2);
        let is_lost = match begins(&packet) {
            true => *self.connections.entry(port).or_insert(is_next_lost),
            // Of one that began before this element was there, perhaps.
            false => self.connections.get(&port).is_some_and(|is_lost| *is_lost),
        };
        if !is_lost {
            out.pass(packet);
        }
    }
}

/// Lets the first connection through, and swallows others: a network with one connection for each
/// address.
#[derive(Debug, Default)]
struct OnlyFirst(Option<u16>);

impl Element for OnlyFirst {
    fn handle(&mut self, _now: Duration, packet: Packet, out: &mut Outputs) {
        let Some(port) = client_port(&packet, false) else { return out.pass(packet) };
        if *self.0.get_or_insert(port) == port {
            out.pass(packet);
        }
    }
}

/// The client's port, if the packet is of TCP over IPv4.
fn client_port(packet: &Packet, to_client: bool) -> Option<u16> {
    let bytes = &packet.bytes;
    if packet.protocol != Protocol::Tcp || bytes[0] >> 4 != 4 {
        return None;
    }
    let at = header(packet) + if to_client { 2 } else { 0 };
    Some(u16::from_be_bytes(bytes[at..at + 2].try_into().unwrap()))
}

/// True for a SYN and a SYN-ACK.
fn begins(packet: &Packet) -> bool {
    packet.bytes[header(packet) + 13] & 2 != 0
}

/// Where the TCP header begins.
fn header(packet: &Packet) -> usize {
    usize::from(packet.bytes[0] & 15) * 4
}

fn seconds(agent: &Daemon<'_>, outcome: &str) -> u64 {
    agent.count("headstart_second_syns_total", &[&format!("outcome=\"{outcome}\"")])
}

/// Each connection's SYN, or the answer to it, is lost; the second SYN opens it.
pub(crate) fn opens() {
    for (opening, to_client) in
        [("plain", false), ("plain", true), ("turbo", false), ("turbo", true)]
    {
        // A network of its own: servers repeat SYN-ACKs of connections that have been given up.
        let net = Net::new(RTT);
        let _nginx = Nginx::behind(&net);
        let _edge = Daemon::edge(&net, 0, &ORIGIN);
        let lossy = Some(Box::new(EveryOther { to_client, ..EveryOther::default() }) as _);
        let (up, down) = if to_client { (None, lossy) } else { (lossy, None) };
        net.set_link(RTT, up, down);
        let agent = agent(&net, PORT, opening, &[]);
        for done in 1..=CONNECTIONS {
            small(&net, VIA, HOST);
            agent.reaches("second SYNs used", done, |agent| seconds(agent, "used"));
        }
        assert_eq!(seconds(&agent, "in_vain"), 0, "{opening}, to the client: {to_client}");
    }
}

/// There is none if it is switched off: the connection fails as it would without an agent.
pub(crate) fn off() {
    let net = Net::new(RTT);
    let _nginx = Nginx::behind(&net);
    let _edge = Daemon::edge(&net, 0, &ORIGIN);
    net.set_link(RTT, Some(Box::new(EveryOther::default())), None);
    let agent = agent(&net, PORT, "plain", &["--second-syn", "off", "--connect-timeout", "2s"]);
    assert_ne!(get(&net, VIA, HOST, "/small").exit, 0);
    assert_eq!((seconds(&agent, "used"), seconds(&agent, "in_vain")), (0, 0));
}

/// SYNs or SYN-ACKs lost by their numbers, and whether the second SYN then opens the connection; if
/// both are lost, a repetition by one of the kernels does.
const LISTS: [(&str, bool); 4] = [
    ("up(drop-syn 1)", true),
    ("down(drop-syn-ack 1)", true),
    ("up(drop-syn 1), down(drop-syn-ack 1)", false),
    ("up(drop-syn 1,2)", false),
];

/// A connection with a second SYN is there before one without, and each has the right bytes.
pub(crate) fn by_list() {
    for (list, opens) in LISTS {
        for opening in ["plain", "turbo"] {
            judged(
                || [&[][..], &["--second-syn", "off"]].map(|more| opened(opening, list, more)),
                |[(with, seconds), (without, none)]| {
                    println!("  {opening:<5}  {list:<36}  {with:?}, without {without:?}");
                    assert_eq!((seconds[0] + seconds[1], *none), (1, [0, 0]), "{list}");
                    let is_right = with < without && (seconds[0] == 1 || !opens);
                    is_right.then_some(()).ok_or_else(|| {
                        format!("{list}: {with:?}, {seconds:?}, without {without:?}")
                    })
                },
            );
        }
    }
}

/// The time that one connection took to open, and second SYNs used and lost.
fn opened(opening: &str, list: &str, more: &[&str]) -> (Duration, [u64; 2]) {
    // As above.
    let net = Net::new(RTT);
    let _nginx = Nginx::behind(&net);
    let _edge = Daemon::edge(&net, 0, &ORIGIN);
    net.set_path(&format!("delay 10ms, {list}"));
    let agent = agent(&net, PORT, opening, more);
    let took = small(&net, VIA, HOST).opening;
    until("the connection's end", || agent.opened("plain") + agent.opened("turbo") > 0);
    (took, ["used", "lost"].map(|outcome| seconds(&agent, outcome)))
}

/// Farther away than is waited for where nothing is known: the first connection's second SYN is in
/// vain, later ones have none.
pub(crate) fn in_vain_once() {
    let net = Net::new(ms(600));
    let _nginx = Nginx::behind(&net);
    let _edge = Daemon::edge(&net, 0, &ORIGIN);
    let agent = agent(&net, PORT, "plain", &[]);
    for _ in 0..3 {
        small(&net, VIA, HOST);
    }
    agent.reaches("plain connections", 3, |agent| agent.opened("plain"));
    assert_eq!((seconds(&agent, "used"), seconds(&agent, "in_vain")), (0, 1));
}

/// Where a second connection gets no answer, the first goes on.
pub(crate) fn swallowed() {
    let net = Net::new(ms(600));
    let _nginx = Nginx::behind(&net);
    let _edge = Daemon::edge(&net, 0, &ORIGIN);
    net.set_link(ms(600), Some(Box::new(OnlyFirst::default())), None);
    let agent = agent(&net, PORT, "plain", &[]);
    small(&net, VIA, HOST);
    agent.reaches("second SYNs in vain", 1, |agent| seconds(agent, "in_vain"));
}
