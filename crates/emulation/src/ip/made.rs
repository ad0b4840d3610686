//! Packets that boxes make themselves: TCP segments, ICMP errors, fragments.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::checksum::Sum;
use super::{Headers, ICMP, ICMPV6, Side, TCP, UDP, Upper, Version, address, replace, u16_at};
use crate::Packet;

pub(crate) const SYN: u8 = 0x02;
pub(crate) const RST: u8 = 0x04;
pub(crate) const ACK: u8 = 0x10;

/// The flag of IPv4 in byte 6 of its header.
pub(super) const DONT_FRAGMENT: u8 = 0x40;
const MORE_FRAGMENTS: u16 = 0x2000;

/// Hops a packet may go: the recommended default (RFC 1700).
const HOP_LIMIT: u8 = 64;

/// Longest ICMP error: RFC 1812 section 4.3.2.3, RFC 4443 section 2.4 (c).
const MAX_ICMP: usize = 576;
const MAX_ICMPV6: usize = 1280;

/// The routers of a lab: addresses of its own network that no node has.
const ROUTER_V4: Ipv4Addr = Ipv4Addr::new(10, 77, 255, 1);
const ROUTER_V6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0xff, 1);

/// Fields of a segment besides its addresses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TcpFields<'f> {
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: u8,
    /// Padded with zeros (end of options) to a multiple of four.
    pub(crate) options: &'f [u8],
    pub(crate) payload: &'f [u8],
}

/// A TCP segment with no window; `None` if the ends are of two families or it would be too long.
pub(crate) fn tcp(from: SocketAddr, to: SocketAddr, fields: TcpFields<'_>) -> Option<Packet> {
    let options = fields.options.len().next_multiple_of(4);
    let words = u8::try_from(5 + options / 4).ok().filter(|words| *words < 16)?;
    let mut body = Vec::new();
    body.extend(from.port().to_be_bytes());
    body.extend(to.port().to_be_bytes());
    body.extend(fields.seq.to_be_bytes());
    body.extend(fields.ack.to_be_bytes());
    body.extend([words << 4, fields.flags, 0, 0, 0, 0, 0, 0]);
    body.extend(fields.options);
    body.resize(20 + options, 0);
    body.extend(fields.payload);
    ip(from.ip(), to.ip(), TCP, &body)
}

/// A UDP datagram.
#[cfg(test)]
pub(crate) fn udp(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Option<Packet> {
    let mut body = Vec::new();
    body.extend(from.port().to_be_bytes());
    body.extend(to.port().to_be_bytes());
    body.extend(u16::try_from(8 + payload.len()).ok()?.to_be_bytes());
    body.extend([0, 0]);
    body.extend(payload);
    ip(from.ip(), to.ip(), UDP, &body)
}

/// The ICMP error about a packet that a link does not take: Fragmentation Needed or Packet Too Big
/// (RFC 1191, RFC 8201).
///
/// `None` for packets that no error may be about (RFC 1122 section 3.2.2): ICMP errors, and
/// fragments but the first.
pub(crate) fn too_big(about: &[u8], mtu: u16) -> Option<Packet> {
    let headers = Headers::read(about)?;
    if headers.icmp_quote(about).is_some() || !headers.has_transport() {
        return None;
    }
    let to = address(about, Side::Source)?;
    let (from, protocol, longest, kind): (IpAddr, _, _, _) = match headers.version {
        Version::V4 => (ROUTER_V4.into(), ICMP, MAX_ICMP - 28, [3, 4]),
        Version::V6 => (ROUTER_V6.into(), ICMPV6, MAX_ICMPV6 - 48, [2, 0]),
    };
    let mut body = Vec::from(kind);
    body.extend([0, 0, 0, 0]);
    body.extend(mtu.to_be_bytes());
    body.extend(about.iter().take(longest));
    ip(from, to, protocol, &body)
}

/// Splits an IPv4 packet so that no piece is longer than `mtu` (RFC 791 section 3.2); every piece
/// has all IP options.
///
/// Empty if there is no room for at least 8 bytes in a piece.
pub(crate) fn fragments(bytes: &[u8], mtu: u16) -> Vec<Vec<u8>> {
    let Some((headers, flags)) = Headers::read(bytes).zip(u16_at(bytes, 6)) else {
        return Vec::new();
    };
    let (header, body) = bytes.split_at(headers.upper.at.min(bytes.len()));
    let body = body.get(..headers.end.saturating_sub(header.len())).unwrap_or_default();
    let room = usize::from(mtu).saturating_sub(header.len()) / 8;
    if room == 0 {
        return Vec::new();
    }
    let (first, more) = (flags & 0x1fff, flags & MORE_FRAGMENTS);
    let last = body.len().div_ceil(8 * room).saturating_sub(1);
    body.chunks(8 * room)
        .enumerate()
        .filter_map(|(number, part): (usize, &[u8])| {
            let offset = first + u16::try_from(number * room).ok()?;
            let more = if number == last { more } else { MORE_FRAGMENTS };
            let mut piece = [header, part].concat();
            let length = u16::try_from(piece.len()).ok()?;
            replace(&mut piece, 2, &length.to_be_bytes());
            replace(&mut piece, 6, &((offset & 0x1fff) | more).to_be_bytes());
            seal_ipv4(&mut piece, header.len());
            Some(piece)
        })
        .collect()
}

/// An IP packet around a transport header and its data.
fn ip(from: IpAddr, to: IpAddr, protocol: u8, body: &[u8]) -> Option<Packet> {
    let mut bytes = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let length = u16::try_from(20 + body.len()).ok()?.to_be_bytes();
            let mut header = vec![0x45, 0, length[0], length[1], 0, 0, DONT_FRAGMENT, 0];
            header.extend([HOP_LIMIT, protocol, 0, 0]);
            header.extend(from.octets());
            header.extend(to.octets());
            seal_ipv4(&mut header, 20);
            header
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let length = u16::try_from(body.len()).ok()?.to_be_bytes();
            let mut header = vec![0x60, 0, 0, 0, length[0], length[1], protocol, HOP_LIMIT];
            header.extend(from.octets());
            header.extend(to.octets());
            header
        }
        _ => return None,
    };
    bytes.extend(body);
    let headers = Headers::read(&bytes)?;
    seal(&mut bytes, &headers);
    Packet::from_ip(bytes)
}

fn seal_ipv4(bytes: &mut [u8], header: usize) {
    replace(bytes, 10, &[0, 0]);
    let sum = Sum::default().add(bytes.get(..header).unwrap_or_default()).finish();
    replace(bytes, 10, &sum.to_be_bytes());
}

/// Computes the transport checksum of a whole packet.
pub(super) fn seal(bytes: &mut [u8], headers: &Headers) {
    let place = match headers.upper.protocol {
        TCP => 16,
        UDP => 6,
        ICMP | ICMPV6 => 2,
        _ => return,
    };
    let at = headers.upper.at + place;
    replace(bytes, at, &[0, 0]);
    let sum = match transport_sum(bytes, headers).finish() {
        0 if headers.upper.protocol == UDP => 0xffff,
        sum => sum,
    };
    replace(bytes, at, &sum.to_be_bytes());
}

/// Over the pseudo-header (RFC 9293 section 3.1, RFC 8200 section 8.1; none in ICMP for IPv4) and
/// the transport's bytes.
fn transport_sum(bytes: &[u8], headers: &Headers) -> Sum {
    let Upper { protocol, at, .. } = headers.upper;
    let body = bytes.get(at..headers.end.min(bytes.len())).unwrap_or_default();
    let sum = Sum::default().add(body);
    if protocol == ICMP {
        return sum;
    }
    let addresses = match headers.version {
        Version::V4 => 12..20,
        Version::V6 => 8..40,
    };
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    sum.add(bytes.get(addresses).unwrap_or_default()).add(&length.to_be_bytes()).add(&[0, protocol])
}

/// Returns true if a receiver would accept the packet.
#[cfg(test)]
pub(crate) fn has_right_checksums(packet: &Packet) -> bool {
    let bytes = &packet.bytes;
    let headers = Headers::read(bytes).expect("a whole packet");
    let ip_is_right = match headers.version {
        Version::V4 => Sum::default().add(&bytes[..headers.upper.at]).finish() == 0,
        Version::V6 => true,
    };
    ip_is_right && transport_sum(bytes, &headers).finish() == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(version: u8) -> (SocketAddr, SocketAddr) {
        let text = if version == 4 {
            ["10.77.1.1:40000", "10.77.2.1:443"]
        } else {
            ["[fd77::1:1]:40000", "[fd77::2:1]:443"]
        };
        (text[0].parse().unwrap(), text[1].parse().unwrap())
    }

    #[test]
    fn what_is_made_reads_back() {
        for version in [4, 6] {
            let (from, to) = ends(version);
            let fields = TcpFields {
                seq: 7,
                ack: 9,
                flags: SYN | ACK,
                options: &[34, 2, 1],
                payload: b"odd",
            };
            let packet = tcp(from, to, fields).unwrap();
            assert!(has_right_checksums(&packet));
            let flow = packet.flow().unwrap();
            assert_eq!((flow.source, flow.destination), (from, to));
            let segment = Headers::read(&packet.bytes).unwrap().segment(&packet.bytes).unwrap();
            assert_eq!((segment.seq, segment.ack, segment.flags), (7, 9, SYN | ACK));
            assert_eq!(packet.bytes[segment.options], [34, 2, 1, 0]);
            assert_eq!(&packet.bytes[segment.payload], b"odd");
            assert!(has_right_checksums(&udp(from, to, b"odd").unwrap()));
        }
        assert!(tcp(ends(4).0, ends(6).1, TcpFields::default()).is_none());
        let long = TcpFields { options: &[1; 41], ..TcpFields::default() };
        assert!(tcp(ends(4).0, ends(4).1, long).is_none());
    }

    /// An ICMP error quotes the packet, goes to its sender and is no longer than allowed.
    #[test]
    fn icmp_errors() {
        for (version, longest, mtu_at) in [(4, MAX_ICMP, 26), (6, MAX_ICMPV6, 46)] {
            let (from, to) = ends(version);
            let packet = udp(from, to, &[7; 1400]).unwrap();
            let error = too_big(&packet.bytes, 1300).unwrap();
            assert!(has_right_checksums(&error));
            assert_eq!((error.bytes.len(), error.destination()), (longest, Some(from.ip())));
            assert_eq!(u16_at(&error.bytes, mtu_at), Some(1300));
            let headers = Headers::read(&error.bytes).unwrap();
            let quote = &error.bytes[headers.icmp_quote(&error.bytes).unwrap()..];
            assert_eq!(quote, &packet.bytes[..quote.len()]);
            let flow = Headers::quoted(quote).unwrap().flow(quote).unwrap();
            assert_eq!(Some(flow), packet.flow());
            assert!(too_big(&error.bytes, 100).is_none());
        }
    }

    #[test]
    fn fragments_fit_and_make_up_the_whole() {
        let (from, to) = ends(4);
        let body: Vec<u8> = (0..=255).cycle().take(3000).collect();
        let packet = udp(from, to, &body).unwrap();
        let pieces = fragments(&packet.bytes, 1003);
        assert_eq!(pieces.len(), 4);
        let mut whole = Vec::<u8>::new();
        for (number, piece) in pieces.iter().enumerate() {
            assert!(piece.len() <= 1003 && usize::from(u16_at(piece, 2).unwrap()) == piece.len());
            let flags = u16_at(piece, 6).unwrap();
            assert_eq!(usize::from(flags & 0x1fff) * 8, whole.len());
            assert_eq!(flags & MORE_FRAGMENTS != 0, number < 3);
            assert_eq!(Sum::default().add(&piece[..20]).finish(), 0);
            whole.extend(&piece[20..]);
        }
        assert_eq!(whole, packet.bytes[20..]);
        // A fragment may be split again.
        let again = fragments(&pieces[1], 500);
        assert_eq!(u16_at(&again[1], 6), Some(MORE_FRAGMENTS | (980 / 8 + 480 / 8)));
        assert!(fragments(&packet.bytes, 27).is_empty());
    }
}
