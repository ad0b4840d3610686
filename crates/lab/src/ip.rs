//! What the forwarder needs to know of an IP packet (RFC 791, RFC 8200).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{Packet, Protocol};

/// IPv6 extension headers looked through for the transport protocol; ordinary packets have none or one.
const MAX_EXTENSION_HEADERS: usize = 8;

impl Packet {
    /// A whole IP packet, told apart by its protocol field; `None` if it is neither IPv4 nor IPv6.
    pub fn from_ip(bytes: Vec<u8>) -> Option<Packet> {
        let number = match version(&bytes)? {
            Version::V4 => *bytes.get(9)?,
            Version::V6 => ipv6_protocol(&bytes)?,
        };
        let protocol = match number {
            6 => Protocol::Tcp,
            17 => Protocol::Udp,
            _ => Protocol::Other,
        };
        Some(Packet { protocol, bytes })
    }

    /// Where the IP packet goes.
    pub fn destination(&self) -> Option<IpAddr> {
        let bytes = &self.bytes;
        Some(match version(bytes)? {
            Version::V4 => Ipv4Addr::from(*bytes.get(16..)?.first_chunk::<4>()?).into(),
            Version::V6 => Ipv6Addr::from(*bytes.get(24..)?.first_chunk::<16>()?).into(),
        })
    }

    /// The Ethernet type of the IP packet.
    pub(crate) fn ether_type(&self) -> Option<[u8; 2]> {
        Some(match version(&self.bytes)? {
            Version::V4 => [0x08, 0x00],
            Version::V6 => [0x86, 0xdd],
        })
    }
}

enum Version {
    V4,
    V6,
}

fn version(bytes: &[u8]) -> Option<Version> {
    match bytes.first()? >> 4 {
        4 => Some(Version::V4),
        6 => Some(Version::V6),
        _ => None,
    }
}

/// The protocol behind the extension headers (RFC 8200 section 4).
fn ipv6_protocol(bytes: &[u8]) -> Option<u8> {
    let mut next = *bytes.get(6)?;
    let mut at = 40;
    for _ in 0..MAX_EXTENSION_HEADERS {
        let header = match next {
            // Hop-by-hop, routing, destination options: length in units of 8 bytes beyond the first 8.
            0 | 43 | 60 => bytes.get(at..at + 2)?,
            // Fragment: 8 bytes; the length byte is reserved.
            44 => &[*bytes.get(at)?, 0],
            _ => break,
        };
        next = *header.first()?;
        at += 8 + 8 * usize::from(*header.get(1)?);
    }
    Some(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ipv4(protocol: u8) -> Vec<u8> {
        let mut bytes = vec![0x45; 20];
        bytes[9] = protocol;
        bytes[16..].copy_from_slice(&[10, 77, 2, 1]);
        bytes
    }

    fn ipv6(next: u8, rest: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 40];
        bytes[0] = 0x60;
        bytes[6] = next;
        bytes[24] = 0xfd;
        bytes[39] = 1;
        bytes.extend(rest);
        bytes
    }

    fn protocol(bytes: Vec<u8>) -> Option<Protocol> {
        Packet::from_ip(bytes).map(|packet| packet.protocol)
    }

    #[test]
    fn protocols() {
        for (number, expected) in [(6, Protocol::Tcp), (17, Protocol::Udp), (1, Protocol::Other)] {
            assert_eq!(protocol(ipv4(number)), Some(expected));
            assert_eq!(protocol(ipv6(number, &[])), Some(expected));
        }
    }

    #[test]
    fn behind_extension_headers() {
        let hop_by_hop = [44, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let fragment = [17, 255, 0, 0, 0, 0, 0, 0];
        assert_eq!(protocol(ipv6(0, &[&hop_by_hop[..], &fragment].concat())), Some(Protocol::Udp));
        assert_eq!(protocol(ipv6(0, &[17])), None);
        assert_eq!(protocol(ipv6(0, &[0; 80])), Some(Protocol::Other));
    }

    #[test]
    fn destinations() {
        let to = |bytes| Packet::from_ip(bytes).and_then(|packet| packet.destination());
        assert_eq!(to(ipv4(17)), Some("10.77.2.1".parse().unwrap()));
        assert_eq!(to(ipv6(17, &[])), Some("fd00::1".parse().unwrap()));
    }

    #[test]
    fn whatever_comes_is_no_panic() {
        for whole in [ipv4(17), ipv6(0, &[0; 16])] {
            for length in 0..whole.len() {
                let _ = Packet::from_ip(whole[..length].to_vec())
                    .and_then(|packet| packet.destination());
            }
        }
        assert_eq!(protocol(vec![0x55; 60]), None);
        assert_eq!(protocol(vec![]), None);
    }
}
