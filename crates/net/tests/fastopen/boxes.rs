//! Middleboxes that interfere with data in a SYN, for IPv4 only.

use std::sync::mpsc::Receiver;
use std::time::Duration;

use headstart_emulation::{Element, Outputs, Packet, Protocol};

use crate::packet::{ACK, SYN};
use crate::support::internet_checksum;
use crate::world::TIMEOUT;

const RST: u8 = 4;

/// Bytes of headers without options.
const IP: usize = 20;
const TCP: usize = 20;

/// IP protocol numbers.
const ICMP: u8 = 1;
const PROTOCOL_TCP: u8 = 6;

/// Treatment of SYNs with data; other packets pass.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SynDataBox {
    /// Answers with a reset, and drops them.
    Resets,
    /// Answers with ICMP "communication administratively prohibited" (RFC 1812 section 5.2.7.1),
    /// and drops them.
    Prohibits,
    /// Cuts off the second half of their data.
    Halves,
    /// Delays them by this much.
    Delays(Duration),
}

impl Element for SynDataBox {
    fn handle(&mut self, _now: Duration, packet: Packet, out: &mut Outputs) {
        let Some(data) = syn_data(&packet.bytes) else { return out.pass(packet) };
        match *self {
            Self::Resets => out.reply(Packet::tcp(reset(&packet.bytes))),
            Self::Prohibits => {
                let bytes = prohibited(&packet.bytes);
                out.reply(Packet { protocol: Protocol::Other, bytes });
            }
            Self::Halves => out.pass(Packet::tcp(shortened(&packet.bytes, data - data / 2))),
            Self::Delays(time) => out.pass_after(time, packet),
        }
    }
}

/// Holds the link up at the first SYN with data until it is told to go on.
#[derive(Debug)]
pub(crate) struct HoldUp(pub(crate) Option<Receiver<()>>);

impl Element for HoldUp {
    fn handle(&mut self, _now: Duration, packet: Packet, out: &mut Outputs) {
        if let Some(go_on) = self.0.take_if(|_| syn_data(&packet.bytes).is_some()) {
            let _ = go_on.recv_timeout(TIMEOUT);
        }
        out.pass(packet);
    }
}

/// Lets SYNs with data pass once there are so many.
#[derive(Debug)]
pub(crate) struct Gather {
    count: usize,
    held: Vec<Packet>,
}

impl Gather {
    pub(crate) const fn new(count: usize) -> Self {
        Self { count, held: Vec::new() }
    }
}

impl Element for Gather {
    fn handle(&mut self, _now: Duration, packet: Packet, out: &mut Outputs) {
        if syn_data(&packet.bytes).is_none() {
            return out.pass(packet);
        }
        self.held.push(packet);
        if self.held.len() >= self.count {
            self.held.drain(..).for_each(|packet| out.pass(packet));
        }
    }
}

/// Returns the number of data bytes, if the packet is a SYN with data.
fn syn_data(packet: &[u8]) -> Option<usize> {
    let is_plain_tcp = packet.first()? == &0x45 && packet.get(9)? == &PROTOCOL_TCP;
    let tcp = packet.get(IP..).filter(|_| is_plain_tcp)?;
    let is_syn = tcp.get(13)? & (SYN | ACK) == SYN;
    let data = tcp.len() - usize::from(tcp[12] >> 4) * 4;
    (is_syn && data > 0).then_some(data)
}

fn reset(about: &[u8]) -> Vec<u8> {
    let seq = u32::from_be_bytes(*about[IP + 4..].first_chunk().unwrap());
    let mut tcp = [&about[IP + 2..IP + 4], &about[IP..IP + 2], &[0; 4]].concat();
    tcp.extend(seq.wrapping_add(1).to_be_bytes());
    tcp.extend([5 << 4, RST | ACK, 0, 0, 0, 0, 0, 0]);
    assert_eq!(tcp.len(), TCP);
    let mut packet = back(about, PROTOCOL_TCP, &tcp);
    sign_tcp(&mut packet);
    packet
}

fn prohibited(about: &[u8]) -> Vec<u8> {
    let mut icmp = [&[3, 13, 0, 0, 0, 0, 0, 0], &about[..IP + 8]].concat();
    let sum = checksum(&icmp);
    icmp[2..4].copy_from_slice(&sum);
    back(about, ICMP, &icmp)
}

fn shortened(packet: &[u8], by: usize) -> Vec<u8> {
    let mut packet = packet[..packet.len() - by].to_vec();
    let length = u16::try_from(packet.len()).unwrap();
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    sign_ip(&mut packet);
    sign_tcp(&mut packet);
    packet
}

/// Returns a packet to the sender of `about`, apparently from its destination.
fn back(about: &[u8], protocol: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(IP + body.len()).unwrap().to_be_bytes();
    let head = [0x45, 0, length[0], length[1], 0, 0, 0x40, 0, 64, protocol, 0, 0];
    let mut packet = [&head[..], &about[16..20], &about[12..16], body].concat();
    sign_ip(&mut packet);
    packet
}

fn sign_ip(packet: &mut [u8]) {
    packet[10..12].fill(0);
    let sum = checksum(&packet[..IP]);
    packet[10..12].copy_from_slice(&sum);
}

fn sign_tcp(packet: &mut [u8]) {
    packet[IP + 16..IP + 18].fill(0);
    let length = u16::try_from(packet.len() - IP).unwrap().to_be_bytes();
    let pseudo = [&packet[12..20], &[0, PROTOCOL_TCP], &length].concat();
    let sum = checksum(&[&pseudo, &packet[IP..]].concat());
    packet[IP + 16..IP + 18].copy_from_slice(&sum);
}

/// Computes the Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> [u8; 2] {
    internet_checksum(bytes).to_be_bytes()
}
