use std::net::SocketAddr;

use crate::element::fast_open_options;
use crate::ip::{ACK, Headers, RST, SYN, udp};

/// Bytes before the cookie in a Fast Open option: kind and length, and in its experimental form a
/// magic number.
const HEAD: usize = 2;
const EXPERIMENTAL_HEAD: usize = 4;

/// Kind of the option's own form (RFC 7413 section 4.1.1).
const FAST_OPEN: u8 = 34;

/// A TCP segment as an observer of the network sees it, for readers of captures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpSegment<'p> {
    /// Where it comes from.
    pub source: SocketAddr,
    /// Where it goes.
    pub destination: SocketAddr,
    /// Sequence number of its first byte, or of the SYN.
    pub seq: u32,
    /// True if the segment begins a direction of a connection.
    pub syn: bool,
    /// True if the segment acknowledges something.
    pub ack: bool,
    /// True if the segment breaks the connection off.
    pub reset: bool,
    /// Its options.
    pub options: &'p [u8],
    /// Its data.
    pub payload: &'p [u8],
}

impl<'p> TcpSegment<'p> {
    /// Reads a whole IP packet; `None` if it is something else, or a later fragment.
    pub fn read(packet: &'p [u8]) -> Option<Self> {
        let headers = Headers::read(packet)?;
        let segment = headers.segment(packet)?;
        let flow = headers.flow(packet)?;
        Some(Self {
            source: flow.source,
            destination: flow.destination,
            seq: segment.seq,
            syn: segment.flags & SYN != 0,
            ack: segment.flags & ACK != 0,
            reset: segment.flags & RST != 0,
            options: packet.get(segment.options)?,
            payload: packet.get(segment.payload)?,
        })
    }

    /// The cookies in its Fast Open options of either form, empty where one is asked for (RFC
    /// 7413).
    pub fn fast_open(&self) -> Vec<&'p [u8]> {
        let found = fast_open_options(self.options).into_iter();
        found
            .filter_map(|place| self.options.get(place))
            .map(|option: &'p [u8]| {
                let head =
                    if option.first() == Some(&FAST_OPEN) { HEAD } else { EXPERIMENTAL_HEAD };
                option.get(head..).unwrap_or_default()
            })
            .collect()
    }
}

/// A datagram of UDP as an observer of the network sees it, for readers of captures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpDatagram<'p> {
    /// Where it comes from.
    pub source: SocketAddr,
    /// Where it goes.
    pub destination: SocketAddr,
    /// Its data.
    pub payload: &'p [u8],
}

impl<'p> UdpDatagram<'p> {
    /// Reads a whole IP packet; `None` if it is something else, or a later fragment.
    pub fn read(packet: &'p [u8]) -> Option<Self> {
        let headers = Headers::read(packet)?;
        let place = headers.datagram()?;
        let flow = headers.flow(packet)?;
        let payload = packet.get(place)?;
        Some(Self { source: flow.source, destination: flow.destination, payload })
    }

    /// Makes a whole IP packet of it; `None` if the ends are of two families or it is too long.
    pub fn to_ip(&self) -> Option<Vec<u8>> {
        udp(self.source, self.destination, self.payload).map(|packet| packet.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip::{TcpFields, tcp};

    fn bytes(flags: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
        let fields = TcpFields { seq: 7, flags, options, payload, ..TcpFields::default() };
        let ends = ["10.77.1.1:5000".parse().unwrap(), "10.77.2.1:443".parse().unwrap()];
        tcp(ends[0], ends[1], fields).unwrap().bytes
    }

    #[test]
    fn a_segment_is_read() {
        let packet = bytes(SYN, &[2, 4, 5, 180], b"data");
        let segment = TcpSegment::read(&packet).unwrap();
        assert_eq!(
            (segment.source.port(), segment.destination.port(), segment.seq),
            (5000, 443, 7)
        );
        assert_eq!((segment.syn, segment.ack, segment.payload), (true, false, &b"data"[..]));
        assert!(segment.fast_open().is_empty());
        let answer = bytes(SYN | ACK, &[], b"");
        assert!(TcpSegment::read(&answer).unwrap().ack);
        assert!(!segment.reset && TcpSegment::read(&bytes(RST, &[], b"")).unwrap().reset);
    }

    #[test]
    fn cookies_of_both_forms_and_requests_are_found() {
        let options = [34, 6, 1, 2, 3, 4, 1, 1, 254, 8, 0xf9, 0x89, 5, 6, 7, 8, 34, 2];
        let packet = bytes(SYN, &options, b"");
        let segment = TcpSegment::read(&packet).unwrap();
        assert_eq!(segment.fast_open(), [&[1, 2, 3, 4][..], &[5, 6, 7, 8], &[]]);
    }

    #[test]
    fn other_packets_have_no_segment() {
        assert_eq!(TcpSegment::read(&[]), None);
        assert_eq!(TcpSegment::read(&[0x45; 30]), None);
        let [source, destination] = ["10.77.1.1:1", "10.77.2.1:2"].map(|end| end.parse().unwrap());
        let datagram = UdpDatagram { source, destination, payload: &[7; 40] };
        let packet = datagram.to_ip().unwrap();
        assert_eq!(TcpSegment::read(&packet), None);
        assert_eq!(UdpDatagram::read(&packet), Some(datagram));
        assert_eq!(UdpDatagram::read(&bytes(SYN, &[], b"data")), None);
    }
}
