//! Reads captured frames down to the payload of TCP or UDP.

use std::net::{IpAddr, SocketAddr};

use etherparse::{
    EtherType, LaxNetSlice, LaxSlicedPacket, TcpSlice, TransportSlice, UdpSlice, ip_number,
};

/// Link type, which determines the first bytes of a frame
/// (<https://www.tcpdump.org/linktypes.html>).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// BSD loopback: four bytes with the address family.
    Loopback,
    Ethernet,
    /// Raw IP packets.
    Ip,
    /// Linux "cooked", version 1: `tcpdump -i any`.
    Cooked,
    /// Linux "cooked", version 2.
    Cooked2,
    Unknown,
}

impl Link {
    /// Returns the link type by the number in the file.
    pub(crate) fn from_linktype(linktype: i32) -> Self {
        // In pcap the upper half says how many bytes of checksum there are.
        match linktype & 0xffff {
            0 | 108 => Self::Loopback,
            1 => Self::Ethernet,
            // 12 and 14 are what some systems wrote for 101.
            12 | 14 | 101 | 228 | 229 => Self::Ip,
            113 => Self::Cooked,
            276 => Self::Cooked2,
            _ => Self::Unknown,
        }
    }
}

/// Contents of a frame.
#[derive(Debug)]
pub(crate) enum Packet<'a> {
    Tcp(Segment<'a>),
    Udp(Datagram<'a>),
    /// An IP fragment, which is not reassembled.
    Fragment,
    /// The link type is unknown.
    UnknownLink,
    /// Anything else.
    Other,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment<'a> {
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    pub(crate) seq: u32,
    pub(crate) ack: Option<u32>,
    pub(crate) syn: bool,
    pub(crate) payload: &'a [u8],
    /// True if part of the payload was not captured.
    pub(crate) cut: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Datagram<'a> {
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    pub(crate) payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Reads a frame of this link type.
    pub(crate) fn read(link: Link, frame: &'a [u8]) -> Self {
        if link == Link::Unknown {
            return Self::UnknownLink;
        }
        sliced(link, frame).and_then(Self::from_slices).unwrap_or(Self::Other)
    }

    fn from_slices(packet: LaxSlicedPacket<'a>) -> Option<Self> {
        let (source, destination) = addresses(packet.net.as_ref()?)?;
        let carried = packet.net.as_ref()?.ip_payload_ref()?;
        if carried.fragmented {
            let counts = matches!(carried.ip_number, ip_number::TCP | ip_number::UDP);
            return counts.then_some(Self::Fragment);
        }
        let transport = packet.transport?;
        let (from, to) = match &transport {
            TransportSlice::Tcp(tcp) => (tcp.source_port(), tcp.destination_port()),
            TransportSlice::Udp(udp) => (udp.source_port(), udp.destination_port()),
            _ => return None,
        };
        let ends = (SocketAddr::new(source, from), SocketAddr::new(destination, to));
        match transport {
            TransportSlice::Tcp(tcp) => Some(Self::Tcp(segment(ends, &tcp, carried.incomplete))),
            TransportSlice::Udp(udp) => Some(Self::Udp(datagram(ends, &udp))),
            _ => None,
        }
    }
}

/// Lengths beyond the captured bytes are no error: captures are often cut.
fn sliced(link: Link, frame: &[u8]) -> Option<LaxSlicedPacket<'_>> {
    match link {
        Link::Ethernet => LaxSlicedPacket::from_ethernet(frame).ok(),
        Link::Ip => LaxSlicedPacket::from_ip(frame).ok(),
        Link::Loopback => LaxSlicedPacket::from_ip(frame.get(4..)?).ok(),
        Link::Cooked => by_ether_type(frame.get(14..16)?, frame.get(16..)?),
        Link::Cooked2 => by_ether_type(frame.get(..2)?, frame.get(20..)?),
        Link::Unknown => None,
    }
}

fn by_ether_type<'a>(number: &[u8], packet: &'a [u8]) -> Option<LaxSlicedPacket<'a>> {
    let number = u16::from_be_bytes(number.try_into().ok()?);
    Some(LaxSlicedPacket::from_ether_type(EtherType(number), packet))
}

fn addresses(net: &LaxNetSlice<'_>) -> Option<(IpAddr, IpAddr)> {
    match net {
        LaxNetSlice::Ipv4(ip) => {
            let header = ip.header();
            Some((header.source_addr().into(), header.destination_addr().into()))
        }
        LaxNetSlice::Ipv6(ip) => {
            let header = ip.header();
            Some((header.source_addr().into(), header.destination_addr().into()))
        }
        LaxNetSlice::Arp(_) => None,
    }
}

fn segment<'a>(ends: (SocketAddr, SocketAddr), tcp: &TcpSlice<'a>, cut: bool) -> Segment<'a> {
    let (source, destination) = ends;
    Segment {
        source,
        destination,
        seq: tcp.sequence_number(),
        ack: tcp.ack().then(|| tcp.acknowledgment_number()),
        syn: tcp.syn(),
        payload: tcp.payload(),
        cut,
    }
}

fn datagram<'a>(
    (source, destination): (SocketAddr, SocketAddr),
    udp: &UdpSlice<'a>,
) -> Datagram<'a> {
    Datagram { source, destination, payload: udp.payload() }
}
