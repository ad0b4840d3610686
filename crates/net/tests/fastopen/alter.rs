//! Network elements that alter SYNs with a cookie.

use std::time::Duration;

use headstart_emulation::{Element, Outputs, Packet};

use crate::packet::SYN;
use crate::support::internet_checksum;

/// Bytes of an option with one of our cookies and of the two no-ops that Linux puts after it.
pub(crate) const OPTION_ROOM: usize = 20;

/// Function that returns the options to replace the cookie's.
pub(crate) type Replacement = fn(cookie: &[u8]) -> Vec<u8>;

/// Replaces the cookie's option in SYNs.
#[derive(Debug)]
pub(crate) struct ReplaceOption(pub(crate) Replacement);

impl Element for ReplaceOption {
    fn handle(&mut self, _now: Duration, mut packet: Packet, out: &mut Outputs) {
        if let Some((tcp, at)) = find(&packet.bytes) {
            let mut options = (self.0)(&packet.bytes[at + 2..at + 18]);
            assert!(options.len() <= OPTION_ROOM);
            options.resize(OPTION_ROOM, 1);
            packet.bytes[at..at + OPTION_ROOM].copy_from_slice(&options);
            fix_checksums(&mut packet.bytes, tcp);
        }
        out.pass(packet);
    }
}

/// Inserts an empty destination options header before TCP in IPv6 packets (RFC 8200 section 4.6).
#[derive(Debug)]
pub(crate) struct ExtensionHeader;

impl Element for ExtensionHeader {
    fn handle(&mut self, _now: Duration, mut packet: Packet, out: &mut Outputs) {
        const DESTINATION_OPTIONS: u8 = 60;
        if let Some((tcp, _)) = find(&packet.bytes) {
            assert_eq!(tcp, 40, "IPv6");
            // Next header TCP, eight bytes, four of them padding.
            packet.bytes.splice(tcp..tcp, [6, 0, 1, 4, 0, 0, 0, 0]);
            packet.bytes[6] = DESTINATION_OPTIONS;
            let length = u16::try_from(packet.bytes.len() - 40).unwrap();
            packet.bytes[4..6].copy_from_slice(&length.to_be_bytes());
        }
        out.pass(packet);
    }
}

/// Returns the offsets of the TCP header and of the option with the cookie, if the packet is such a
/// SYN.
fn find(packet: &[u8]) -> Option<(usize, usize)> {
    let tcp = if packet[0] >> 4 == 4 { usize::from(packet[0] & 15) * 4 } else { 40 };
    let options = tcp + 20..tcp + usize::from(packet.get(tcp + 12)? >> 4) * 4;
    let is_syn = packet.get(tcp + 13)? & SYN != 0;
    let at = packet.get(options)?.windows(2).position(|window| window == [34, 18])?;
    is_syn.then_some((tcp, tcp + 20 + at))
}

fn fix_checksums(packet: &mut [u8], tcp: usize) {
    let addresses = if tcp == 40 { 8..40 } else { 12..20 };
    let length = u32::try_from(packet.len() - tcp).unwrap();
    packet[tcp + 16..tcp + 18].fill(0);
    let pseudo = [&packet[addresses], &length.to_be_bytes(), &[0, 0, 0, 6]].concat();
    let sum = internet_checksum(&[&pseudo[..], &packet[tcp..]].concat());
    packet[tcp + 16..tcp + 18].copy_from_slice(&sum.to_be_bytes());
}
