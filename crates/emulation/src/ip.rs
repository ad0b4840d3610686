//! IP packets (RFC 791, RFC 8200), as far as the forwarder and the elements read and change them.
//!
//! Packets are made by etherparse, and read and changed by hand and in place: that library reads
//! headers into values and writes whole packets afresh, while a box that is emulated changes a few
//! bytes and leaves the rest as it came, wrong checksums included.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;

use crate::{Packet, Protocol};

mod checksum;
mod made;

#[cfg(test)]
pub(crate) use checksum::has_right_checksums;
pub(crate) use made::{ACK, RST, SYN, TcpFields, fragments, tcp, too_big, udp};

/// IPv6 extension headers looked through for the transport protocol; ordinary packets have none or
/// one.
const MAX_EXTENSION_HEADERS: usize = 8;

/// Bytes of a transport header that identify the flow; an ICMP error quotes at least these (RFC
/// 792).
const FLOW_BYTES: usize = 8;

/// The flag of IPv4 in byte 6 of its header.
const DONT_FRAGMENT: u8 = 0x40;

/// Offsets of the sequence and acknowledgement numbers in a TCP header.
pub(crate) const SEQ: usize = 4;
pub(crate) const ACKNOWLEDGED: usize = 8;

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

impl Packet {
    /// A whole IP packet, told apart by its protocol field; `None` if it is neither IPv4 nor IPv6.
    pub fn from_ip(bytes: Vec<u8>) -> Option<Packet> {
        let protocol = protocol(upper(&bytes)?.protocol);
        Some(Packet { protocol, bytes })
    }

    /// Returns the source of the IP packet.
    pub fn source(&self) -> Option<IpAddr> {
        address(&self.bytes, Side::Source)
    }

    /// Returns the destination of the IP packet.
    pub fn destination(&self) -> Option<IpAddr> {
        address(&self.bytes, Side::Destination)
    }

    /// The flow of a whole TCP or UDP packet.
    pub(crate) fn flow(&self) -> Option<Flow> {
        Headers::read(&self.bytes)?.flow(&self.bytes)
    }

    /// The Ethernet type of the IP packet.
    pub(crate) fn ether_type(&self) -> Option<[u8; 2]> {
        Some(match version(&self.bytes)? {
            Version::V4 => [0x08, 0x00],
            Version::V6 => [0x86, 0xdd],
        })
    }
}

/// The two ends of a TCP connection or UDP exchange, as one direction of its packets has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Flow {
    pub(crate) protocol: Protocol,
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
}

impl Flow {
    /// The flow of the packets that go back.
    pub(crate) fn back(self) -> Flow {
        Flow { source: self.destination, destination: self.source, ..self }
    }

    /// The same in every run and release.
    pub(crate) fn stable_hash(&self) -> u64 {
        let ends = [self.source, self.destination].into_iter();
        let ends = ends.flat_map(|end| [octets(end.ip()), end.port().to_be_bytes().into()]);
        stable_hash([u8::from(self.protocol == Protocol::Udp)].into_iter().chain(ends.flatten()))
    }
}

/// A hash that is the same in every run and release, so that a choice made by it can be repeated.
///
/// FNV-1a, and the finalizer of SplitMix64 so that neighbouring addresses and ports spread over all
/// bits.
pub(crate) fn stable_hash(bytes: impl IntoIterator<Item = u8>) -> u64 {
    let hash = bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// The address as bytes to hash.
pub(crate) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().into(),
        IpAddr::V6(address) => address.octets().into(),
    }
}

/// One end of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Source,
    Destination,
}

/// Positions of the headers of an IP packet, checked against its length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Headers {
    version: Version,
    upper: Upper,
    /// End of the packet by its own length field.
    end: usize,
}

/// A whole TCP segment's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: u8,
    /// Range of its options in the packet.
    pub(crate) options: Range<usize>,
    /// Range of its data in the packet.
    pub(crate) payload: Range<usize>,
}

impl Headers {
    /// Reads the headers of a whole packet; `None` if it is not IP or shorter than it says.
    pub(crate) fn read(bytes: &[u8]) -> Option<Headers> {
        Headers::quoted(bytes).filter(|headers| headers.end <= bytes.len())
    }

    /// Reads the headers of a packet whose end may be missing, as ICMP errors quote them.
    pub(crate) fn quoted(bytes: &[u8]) -> Option<Headers> {
        let version = version(bytes)?;
        let end = match version {
            Version::V4 => u16_at(bytes, 2)?.into(),
            Version::V6 => 40 + usize::from(u16_at(bytes, 4)?),
        };
        let upper = upper(bytes)?;
        (upper.at <= end).then_some(Headers { version, upper, end })
    }

    /// The flow of a TCP or UDP packet; a fragment other than the first has none.
    pub(crate) fn flow(&self, bytes: &[u8]) -> Option<Flow> {
        let protocol = protocol(self.upper.protocol);
        if protocol == Protocol::Other || self.upper.is_later_fragment {
            return None;
        }
        let header = bytes.get(self.upper.at..self.end.min(bytes.len()))?.get(..FLOW_BYTES)?;
        let source = SocketAddr::new(address(bytes, Side::Source)?, u16_at(header, 0)?);
        let destination = SocketAddr::new(address(bytes, Side::Destination)?, u16_at(header, 2)?);
        Some(Flow { protocol, source, destination })
    }

    /// The TCP header of an unfragmented segment.
    pub(crate) fn segment(&self, bytes: &[u8]) -> Option<Segment> {
        let at = self.upper.at;
        if self.upper.protocol != TCP || self.upper.is_later_fragment {
            return None;
        }
        let header = bytes.get(at..self.end)?;
        let data = 4 * usize::from(header.get(12)? >> 4);
        (20..=header.len()).contains(&data).then_some(Segment {
            seq: u32_at(header, SEQ)?,
            ack: u32_at(header, ACKNOWLEDGED)?,
            flags: *header.get(13)?,
            options: at + 20..at + data,
            payload: at + data..self.end,
        })
    }

    /// Returns the range of the data of an unfragmented UDP datagram.
    pub(crate) fn datagram(&self) -> Option<Range<usize>> {
        let at = self.upper.at + FLOW_BYTES;
        let is_one = self.upper.protocol == UDP && !self.upper.is_later_fragment;
        (is_one && at <= self.end).then_some(at..self.end)
    }

    /// Returns the offset of the packet that an ICMP error quotes (RFC 792, RFC 4443).
    pub(crate) fn icmp_quote(&self, bytes: &[u8]) -> Option<usize> {
        let kind = *bytes.get(self.upper.at)?;
        let is_error = match self.upper.protocol {
            // Unreachable, quench, time exceeded, parameter problem.
            ICMP => matches!(kind, 3 | 4 | 11 | 12),
            ICMPV6 => kind < 128,
            _ => false,
        };
        (is_error && !self.upper.is_later_fragment).then_some(self.upper.at + 8)
    }

    /// Returns true if routers may split the packet: IPv4 without Don't Fragment.
    pub(crate) fn is_splittable(&self, bytes: &[u8]) -> bool {
        matches!(self.version, Version::V4)
            && bytes.get(6).is_some_and(|flags| flags & DONT_FRAGMENT == 0)
    }

    /// Returns true if the packet begins with a transport header.
    pub(crate) fn has_transport(&self) -> bool {
        !self.upper.is_later_fragment
    }

    /// Writes address and port of a TCP or UDP packet; an address of the other family changes
    /// nothing.
    pub(crate) fn set_end(&self, bytes: &mut [u8], side: Side, to: SocketAddr) {
        if self.set_address(bytes, side, to.ip()) {
            let port = self.upper.at + if side == Side::Source { 0 } else { 2 };
            self.patch(bytes, port, &to.port().to_be_bytes());
        }
    }

    /// Writes an address; false if it is of the other family.
    pub(crate) fn set_address(&self, bytes: &mut [u8], side: Side, to: IpAddr) -> bool {
        let place = address_place(self.version, side);
        match (to, &self.version) {
            (IpAddr::V4(to), Version::V4) => {
                let old = replace(bytes, place.start, &to.octets());
                checksum::update(bytes, 10, &old, &to.octets());
                self.update_transport(bytes, &old, &to.octets());
            }
            (IpAddr::V6(to), Version::V6) => {
                let old = replace(bytes, place.start, &to.octets());
                self.update_transport(bytes, &old, &to.octets());
            }
            _ => return false,
        }
        true
    }

    /// Overwrites bytes of the transport header, from an even place on.
    pub(crate) fn patch(&self, bytes: &mut [u8], at: usize, new: &[u8]) {
        let old = replace(bytes, at, new);
        self.update_transport(bytes, &old, new);
    }

    /// Adds to a number of a TCP segment, at this place of its header.
    pub(crate) fn shift(&self, bytes: &mut [u8], place: usize, by: u32) {
        let at = self.upper.at + place;
        if let Some(number) = u32_at(bytes, at) {
            self.patch(bytes, at, &number.wrapping_add(by).to_be_bytes());
        }
    }

    /// Recomputes the checksum of an ICMP message.
    pub(crate) fn refresh_icmp(&self, bytes: &mut [u8]) {
        checksum::refresh_icmp(bytes, self);
    }

    /// Brings the transport checksum up to date; other transports than TCP and UDP are left alone.
    fn update_transport(&self, bytes: &mut [u8], old: &[u8], new: &[u8]) {
        let place = match self.upper.protocol {
            TCP => 16,
            UDP => 6,
            _ => return,
        };
        let at = self.upper.at + place;
        // A zero in UDP says that there is no checksum (RFC 768).
        if self.upper.is_later_fragment
            || (self.upper.protocol == UDP && u16_at(bytes, at) == Some(0))
        {
            return;
        }
        checksum::update(bytes, at, old, new);
        if self.upper.protocol == UDP && u16_at(bytes, at) == Some(0) {
            replace(bytes, at, &[0xff, 0xff]);
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Version {
    V4,
    V6,
}

/// The part behind the IP header and its extensions.
#[derive(Clone, Copy, Debug)]
struct Upper {
    protocol: u8,
    at: usize,
    /// True for a fragment other than the first, which has no transport header.
    is_later_fragment: bool,
}

fn version(bytes: &[u8]) -> Option<Version> {
    match bytes.first()? >> 4 {
        4 => Some(Version::V4),
        6 => Some(Version::V6),
        _ => None,
    }
}

fn protocol(number: u8) -> Protocol {
    match number {
        TCP => Protocol::Tcp,
        UDP => Protocol::Udp,
        _ => Protocol::Other,
    }
}

fn upper(bytes: &[u8]) -> Option<Upper> {
    match version(bytes)? {
        Version::V4 => ipv4_upper(bytes),
        Version::V6 => ipv6_upper(bytes),
    }
}

fn ipv4_upper(bytes: &[u8]) -> Option<Upper> {
    let at = 4 * usize::from(bytes.first()? & 0x0f);
    let is_later_fragment = u16_at(bytes, 6)? & 0x1fff != 0;
    (at >= 20).then_some(Upper { protocol: *bytes.get(9)?, at, is_later_fragment })
}

/// The protocol behind the extension headers (RFC 8200 section 4).
fn ipv6_upper(bytes: &[u8]) -> Option<Upper> {
    let mut upper = Upper { protocol: *bytes.get(6)?, at: 40, is_later_fragment: false };
    for _ in 0..MAX_EXTENSION_HEADERS {
        let at = upper.at;
        let length = match upper.protocol {
            // Hop-by-hop, routing, destination options: length in units of 8 bytes beyond the first
            // 8.
            0 | 43 | 60 => 8 + 8 * usize::from(*bytes.get(at + 1)?),
            // Fragment: 8 bytes; the length byte is reserved.
            44 => 8,
            _ => break,
        };
        if upper.protocol == 44 {
            upper.is_later_fragment = u16_at(bytes, at + 2)? & 0xfff8 != 0;
        }
        upper.protocol = *bytes.get(at)?;
        upper.at += length;
        if upper.is_later_fragment {
            break;
        }
    }
    Some(upper)
}

fn address_place(version: Version, side: Side) -> Range<usize> {
    match (version, side) {
        (Version::V4, Side::Source) => 12..16,
        (Version::V4, Side::Destination) => 16..20,
        (Version::V6, Side::Source) => 8..24,
        (Version::V6, Side::Destination) => 24..40,
    }
}

fn address(bytes: &[u8], side: Side) -> Option<IpAddr> {
    let version = version(bytes)?;
    let octets = bytes.get(address_place(version, side))?;
    Some(match version {
        Version::V4 => Ipv4Addr::from(*octets.first_chunk::<4>()?).into(),
        Version::V6 => Ipv6Addr::from(*octets.first_chunk::<16>()?).into(),
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Writes over the bytes there and returns them; beyond the end nothing happens, and `new` comes
/// back as if it had been there.
fn replace(bytes: &mut [u8], at: usize, new: &[u8]) -> Vec<u8> {
    let Some(place) = bytes.get_mut(at..at + new.len()) else {
        return new.to_vec();
    };
    let old = place.to_vec();
    place.copy_from_slice(new);
    old
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
        for (bytes, to) in [(ipv4(17), "10.77.2.1"), (ipv6(17, &[]), "fd00::1")] {
            let packet = Packet::from_ip(bytes).unwrap();
            assert_eq!(packet.destination(), Some(to.parse().unwrap()));
        }
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
