//! Handmade SYNs with unusual headers and options.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::support::internet_checksum;

/// The protected port.
pub(crate) const PORT: u16 = 443;

/// Options that every SYN here begins with: MSS 1460 and SACK permitted, padded.
pub(crate) const USUAL: [u8; 8] = [2, 4, 0x05, 0xb4, 4, 2, 1, 1];

const SERVER4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 200);
const SERVER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 200);

/// TCP flags.
pub(crate) const FIN: u8 = 1;
pub(crate) const SYN: u8 = 2;
pub(crate) const RST: u8 = 4;
pub(crate) const ACK: u8 = 16;

/// Header before the IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// An Ethernet header of 14 bytes.
    Ethernet,
    /// No header, as on a tun device. A test run still reads bytes 12 and 13 as the Ethernet type:
    /// the source address must have 08 00, or 86 dd, there.
    Bare,
}

/// One packet to the server.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) link: Link,
    /// Destination Ethernet address; a test run has all zeros, that of loopback.
    pub(crate) station: [u8; 6],
    /// A VLAN tag still in the frame.
    pub(crate) vlan: Option<u16>,
    pub(crate) from: IpAddr,
    pub(crate) port: u16,
    pub(crate) flags: u8,
    /// TCP options, a multiple of four bytes.
    pub(crate) options: Vec<u8>,
    pub(crate) data: Vec<u8>,
    /// IPv4 options, a multiple of four bytes.
    pub(crate) ip_options: Vec<u8>,
    /// Flags and fragment offset of IPv4.
    pub(crate) fragment: u16,
    /// Number of an IPv6 extension header before TCP, which then has eight bytes.
    pub(crate) extension: Option<u8>,
    /// Protocol number, if not TCP.
    pub(crate) protocol: u8,
    /// Length of the TCP header in words, if wrong.
    pub(crate) words: Option<u8>,
}

impl Frame {
    /// Returns a SYN with data, without Fast Open.
    pub(crate) fn syn(from: IpAddr) -> Self {
        Self {
            link: Link::Ethernet,
            station: [0; 6],
            vlan: None,
            from,
            port: PORT,
            flags: SYN,
            options: USUAL.to_vec(),
            data: b"first flight".to_vec(),
            ip_options: Vec::new(),
            // Don't fragment.
            fragment: 0x4000,
            extension: None,
            protocol: 6,
            words: None,
        }
    }

    /// Adds a Fast Open option behind the others, padded.
    pub(crate) fn fast_open(mut self, cookie: &[u8]) -> Self {
        self.options.extend(option(34, cookie));
        self.padded()
    }

    /// Adds these options behind the others, padded.
    pub(crate) fn options(mut self, options: &[u8]) -> Self {
        self.options.extend(options);
        self.padded()
    }

    fn padded(mut self) -> Self {
        let whole = self.options.len().next_multiple_of(4);
        self.options.resize(whole, 1);
        assert!(whole <= 40, "{whole} bytes of options");
        self
    }

    /// Returns the same frame with no-operations instead of everything behind the usual options.
    pub(crate) fn stripped(&self) -> Self {
        let mut stripped = self.clone();
        stripped.options.iter_mut().skip(USUAL.len()).for_each(|byte| *byte = 1);
        stripped
    }

    /// Returns the packet, with correct checksums.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let segment = self.segment();
        let (kind, header) = match self.from {
            IpAddr::V4(from) => ([0x08, 0x00], self.ipv4(from, segment.len())),
            IpAddr::V6(from) => ([0x86, 0xdd], self.ipv6(from, segment.len())),
        };
        let tag = self.vlan.map(|vlan| [&[0x81, 0x00][..], &vlan.to_be_bytes()].concat());
        let ethernet =
            [&self.station[..], &[2, 0, 0, 0, 0, 2], &tag.unwrap_or_default(), &kind].concat();
        let link = if self.link == Link::Ethernet { ethernet } else { Vec::new() };
        [link, header, segment].concat()
    }

    fn segment(&self) -> Vec<u8> {
        let words = u8::try_from(5 + self.options.len() / 4).unwrap();
        let mut segment = 40_000_u16.to_be_bytes().to_vec();
        segment.extend(self.port.to_be_bytes());
        segment.extend([0x11, 0x22, 0x33, 0x44, 0, 0, 0, 0]);
        segment.extend([self.words.unwrap_or(words) << 4, self.flags]);
        segment.extend([0xfa, 0xf0, 0, 0, 0, 0]);
        segment.extend(&self.options);
        segment.extend(&self.data);
        let covered = [self.pseudo_header(segment.len()), segment.clone()].concat();
        let sum = internet_checksum(&covered);
        segment[16..18].copy_from_slice(&sum.to_be_bytes());
        segment
    }

    fn pseudo_header(&self, length: usize) -> Vec<u8> {
        let (from, to) = match self.from {
            IpAddr::V4(from) => (from.octets().to_vec(), SERVER4.octets().to_vec()),
            IpAddr::V6(from) => (from.octets().to_vec(), SERVER6.octets().to_vec()),
        };
        let rest = [0, self.protocol];
        [from, to, rest.to_vec(), u16::try_from(length).unwrap().to_be_bytes().to_vec()].concat()
    }

    fn ipv4(&self, from: Ipv4Addr, length: usize) -> Vec<u8> {
        let own = 20 + self.ip_options.len();
        let mut header = vec![0x40 | u8::try_from(own / 4).unwrap(), 0];
        header.extend(u16::try_from(own + length).unwrap().to_be_bytes());
        header.extend([0x12, 0x34]);
        header.extend(self.fragment.to_be_bytes());
        header.extend([64, self.protocol, 0, 0]);
        header.extend(from.octets());
        header.extend(SERVER4.octets());
        header.extend(&self.ip_options);
        let sum = internet_checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        header
    }

    fn ipv6(&self, from: Ipv6Addr, length: usize) -> Vec<u8> {
        let extension = match self.extension {
            Some(_) => vec![self.protocol, 0, 1, 4, 0, 0, 0, 0],
            None => Vec::new(),
        };
        let mut header = vec![0x60, 0, 0, 0];
        header.extend(u16::try_from(extension.len() + length).unwrap().to_be_bytes());
        header.extend([self.extension.unwrap_or(self.protocol), 64]);
        header.extend(from.octets());
        header.extend(SERVER6.octets());
        header.extend(extension);
        header
    }
}

/// Returns a TCP option with its kind and length in front.
pub(crate) fn option(kind: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len() + 2).unwrap();
    [&[kind, length][..], content].concat()
}
