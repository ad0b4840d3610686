//! Packets that boxes make themselves: TCP segments, ICMP errors, fragments.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use etherparse::icmpv4::DestUnreachableHeader::FragmentationNeeded;
use etherparse::{
    Icmpv4Type, Icmpv6Type, IpFragOffset, IpHeaders, Ipv4Header, PacketBuilder, PacketBuilderStep,
    TcpHeader,
};

use super::{Headers, Side, Version, address};
use crate::Packet;

pub(crate) const SYN: u8 = 0x02;
pub(crate) const RST: u8 = 0x04;
pub(crate) const ACK: u8 = 0x10;

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
    /// Bits: [`SYN`], [`RST`] and [`ACK`].
    pub(crate) flags: u8,
    pub(crate) window: u16,
    /// Padded with zeros (end of options) to a multiple of four.
    pub(crate) options: &'f [u8],
    pub(crate) payload: &'f [u8],
}

/// A TCP segment; `None` if the ends are of two families or it would be too long.
pub(crate) fn tcp(from: SocketAddr, to: SocketAddr, fields: TcpFields<'_>) -> Option<Packet> {
    let mut header = TcpHeader::new(from.port(), to.port(), fields.seq, fields.window);
    header.acknowledgment_number = fields.ack;
    header.syn = fields.flags & SYN != 0;
    header.rst = fields.flags & RST != 0;
    header.ack = fields.flags & ACK != 0;
    header.set_options_raw(fields.options).ok()?;
    let mut bytes = Vec::new();
    ip(from.ip(), to.ip())?.tcp_header(header).write(&mut bytes, fields.payload).ok()?;
    Packet::from_ip(bytes)
}

/// A UDP datagram; `None` as of [`tcp`].
pub(crate) fn udp(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Option<Packet> {
    let mut bytes = Vec::new();
    ip(from.ip(), to.ip())?.udp(from.port(), to.port()).write(&mut bytes, payload).ok()?;
    Packet::from_ip(bytes)
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
    let mut bytes = Vec::new();
    match headers.version {
        Version::V4 => {
            let why = FragmentationNeeded { next_hop_mtu: mtu };
            let kind = Icmpv4Type::DestinationUnreachable(why);
            let quote = &about[..about.len().min(MAX_ICMP - 28)];
            ip(ROUTER_V4.into(), to)?.icmpv4(kind).write(&mut bytes, quote).ok()?;
        }
        Version::V6 => {
            let kind = Icmpv6Type::PacketTooBig { mtu: mtu.into() };
            let quote = &about[..about.len().min(MAX_ICMPV6 - 48)];
            ip(ROUTER_V6.into(), to)?.icmpv6(kind).write(&mut bytes, quote).ok()?;
        }
    }
    Packet::from_ip(bytes)
}

/// Splits an IPv4 packet so that no piece is longer than `mtu` (RFC 791 section 3.2); every piece
/// has all IP options.
///
/// Empty if there is no room for at least 8 bytes in a piece.
pub(crate) fn fragments(bytes: &[u8], mtu: u16) -> Vec<Vec<u8>> {
    let Ok((whole, body)) = Ipv4Header::from_slice(bytes) else { return Vec::new() };
    let body = whole.payload_len().ok().and_then(|length| body.get(..length.into()));
    let body = body.unwrap_or_default();
    let room = usize::from(mtu).saturating_sub(whole.header_len()) / 8;
    if room == 0 {
        return Vec::new();
    }
    let count = body.len().div_ceil(8 * room);
    body.chunks(8 * room)
        .enumerate()
        .filter_map(|(number, part): (usize, &[u8])| {
            let mut header = whole.clone();
            header.dont_fragment = false;
            header.more_fragments |= number + 1 < count;
            let offset = whole.fragment_offset.value() + u16::try_from(number * room).ok()?;
            header.fragment_offset = IpFragOffset::try_new(offset).ok()?;
            header.set_payload_len(part.len()).ok()?;
            header.header_checksum = header.calc_header_checksum();
            Some([header.to_bytes().as_slice(), part].concat())
        })
        .collect()
}

/// Begins an IP packet; in IPv4 routers may not split it.
fn ip(from: IpAddr, to: IpAddr) -> Option<PacketBuilderStep<IpHeaders>> {
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            Some(PacketBuilder::ipv4(from.octets(), to.octets(), HOP_LIMIT))
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            Some(PacketBuilder::ipv6(from.octets(), to.octets(), HOP_LIMIT))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::u16_at;
    use super::*;
    use crate::ip::has_right_checksums;

    const MORE_FRAGMENTS: u16 = 0x2000;

    fn ends(version: u8) -> (SocketAddr, SocketAddr) {
        let text = if version == 4 {
            ["10.77.1.1:40000", "10.77.2.1:443"]
        } else {
            ["[fd77::1:1]:40000", "[fd77::2:1]:443"]
        };
        (text[0].parse().unwrap(), text[1].parse().unwrap())
    }

    #[test]
    fn built_packets_are_parsed_back() {
        for version in [4, 6] {
            let (from, to) = ends(version);
            let fields = TcpFields {
                seq: 7,
                ack: 9,
                flags: SYN | ACK,
                window: 300,
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
            let header = Ipv4Header::from_slice(piece).unwrap().0;
            assert_eq!(header.header_checksum, header.calc_header_checksum());
            whole.extend(&piece[20..]);
        }
        assert_eq!(whole, packet.bytes[20..]);
        // A fragment may be split again.
        let again = fragments(&pieces[1], 500);
        assert_eq!(u16_at(&again[1], 6), Some(MORE_FRAGMENTS | (980 / 8 + 480 / 8)));
        assert!(fragments(&packet.bytes, 27).is_empty());
    }
}
