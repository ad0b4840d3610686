//! Frames and capture files.

/// A link type, and how its frames are made of IP packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    Null,
    Ethernet,
    Vlan,
    TwoVlans,
    Raw,
    Ipv4,
    Ipv6,
    Loop,
    Cooked,
    Cooked2,
    /// One that nobody reads: Bluetooth.
    Other,
}

pub(crate) const LINKS: [Link; 8] = [
    Link::Null,
    Link::Ethernet,
    Link::Vlan,
    Link::TwoVlans,
    Link::Raw,
    Link::Loop,
    Link::Cooked,
    Link::Cooked2,
];

impl Link {
    pub(crate) fn number(self) -> u16 {
        match self {
            Self::Null => 0,
            Self::Ethernet | Self::Vlan | Self::TwoVlans => 1,
            Self::Raw => 101,
            Self::Loop => 108,
            Self::Cooked => 113,
            Self::Other => 187,
            Self::Ipv4 => 228,
            Self::Ipv6 => 229,
            Self::Cooked2 => 276,
        }
    }

    pub(crate) fn frame(self, packet: &[u8]) -> Vec<u8> {
        let is_v6 = packet.first().is_some_and(|byte| byte >> 4 == 6);
        let kind: [u8; 2] = if is_v6 { [0x86, 0xdd] } else { [0x08, 0x00] };
        let addresses = [0x02; 12];
        let before: Vec<u8> = match self {
            Self::Raw | Self::Ipv4 | Self::Ipv6 | Self::Other => Vec::new(),
            Self::Null => vec![if is_v6 { 30 } else { 2 }, 0, 0, 0],
            Self::Loop => vec![0, 0, 0, if is_v6 { 30 } else { 2 }],
            Self::Ethernet => [&addresses[..], &kind].concat(),
            Self::Vlan => [&addresses[..], &[0x81, 0, 0, 7], &kind].concat(),
            Self::TwoVlans => [&addresses[..], &[0x88, 0xa8, 0, 7, 0x81, 0, 0, 8], &kind].concat(),
            Self::Cooked => [&[0, 0, 3, 4, 0, 6, 2, 2, 2, 2, 2, 2, 0, 0][..], &kind].concat(),
            Self::Cooked2 => [&kind[..], &[0; 18]].concat(),
        };
        [before, packet.to_vec()].concat()
    }
}

/// A pcap file, little-endian, in microseconds; packets with their times in milliseconds.
pub(crate) fn pcap<'a>(link: Link, packets: impl IntoIterator<Item = (u64, &'a [u8])>) -> Vec<u8> {
    let mut file = pcap_header(link);
    for (at, packet) in packets {
        file.extend(pcap_packet(at, &link.frame(packet)));
    }
    file
}

pub(crate) fn pcap_header(link: Link) -> Vec<u8> {
    let mut header = 0xa1b2_c3d4_u32.to_le_bytes().to_vec();
    header.extend([2, 0, 4, 0]);
    header.extend([0; 8]);
    header.extend(262_144_u32.to_le_bytes());
    header.extend(u32::from(link.number()).to_le_bytes());
    header
}

pub(crate) fn pcap_packet(at_ms: u64, frame: &[u8]) -> Vec<u8> {
    let seconds = u32::try_from(at_ms / 1000).unwrap();
    let micros = u32::try_from(at_ms % 1000 * 1000).unwrap();
    let length = u32::try_from(frame.len()).unwrap();
    let head = [seconds, micros, length, length].map(u32::to_le_bytes).concat();
    [head, frame.to_vec()].concat()
}

/// A pcap file, big-endian, in nanoseconds.
pub(crate) fn pcap_big_endian<'a>(
    link: Link,
    packets: impl IntoIterator<Item = (u64, &'a [u8])>,
) -> Vec<u8> {
    let mut file = 0xa1b2_3c4d_u32.to_be_bytes().to_vec();
    file.extend([0, 2, 0, 4]);
    file.extend([0; 8]);
    file.extend(262_144_u32.to_be_bytes());
    file.extend(u32::from(link.number()).to_be_bytes());
    for (at, packet) in packets {
        let frame = link.frame(packet);
        let seconds = u32::try_from(at / 1000).unwrap();
        let nanos = u32::try_from(at % 1000 * 1_000_000).unwrap();
        let length = u32::try_from(frame.len()).unwrap();
        file.extend([seconds, nanos, length, length].map(u32::to_be_bytes).concat());
        file.extend(frame);
    }
    file
}

/// The byte order of a pcapng section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Little,
    Big,
}

impl Order {
    pub(crate) fn u16(self, value: u16) -> [u8; 2] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }

    pub(crate) fn u32(self, value: u32) -> [u8; 4] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }

    pub(crate) fn block(self, kind: u32, body: &[u8]) -> Vec<u8> {
        let padding = body.len().next_multiple_of(4) - body.len();
        let length = self.u32(u32::try_from(12 + body.len() + padding).unwrap());
        [&self.u32(kind)[..], &length, body, &vec![0; padding], &length].concat()
    }

    pub(crate) fn section(self) -> Vec<u8> {
        let magic = self.u32(0x1a2b_3c4d);
        let body = [&magic[..], &self.u16(1), &self.u16(0), &[0xff; 8]].concat();
        self.block(0x0a0d_0d0a, &body)
    }

    /// An interface whose clock has this resolution (option if_tsresol), or none given.
    pub(crate) fn interface(self, link: Link, resolution: Option<u8>) -> Vec<u8> {
        let mut body = [self.u16(link.number()), [0, 0]].concat();
        body.extend(self.u32(0));
        if let Some(resolution) = resolution {
            body.extend([&self.u16(9)[..], &self.u16(1), &[resolution, 0, 0, 0]].concat());
            body.extend([0; 4]);
        }
        self.block(1, &body)
    }

    /// A packet of an interface, at a time in its ticks.
    pub(crate) fn packet(self, interface: u32, ticks: u64, frame: &[u8]) -> Vec<u8> {
        let length = u32::try_from(frame.len()).unwrap();
        let high = u32::try_from(ticks >> 32).unwrap();
        let low = u32::try_from(ticks & 0xffff_ffff).unwrap();
        let mut body: Vec<u8> = [interface, high, low, length, length]
            .iter()
            .flat_map(|value| self.u32(*value))
            .collect();
        body.extend(frame);
        self.block(6, &body)
    }

    pub(crate) fn simple_packet(self, frame: &[u8]) -> Vec<u8> {
        let length = self.u32(u32::try_from(frame.len()).unwrap());
        self.block(3, &[&length[..], frame].concat())
    }
}

/// A pcapng file of one interface in microseconds; packets with their times in milliseconds.
pub(crate) fn pcapng<'a>(
    order: Order,
    link: Link,
    packets: impl IntoIterator<Item = (u64, &'a [u8])>,
) -> Vec<u8> {
    let mut file = order.section();
    file.extend(order.interface(link, None));
    for (at, packet) in packets {
        file.extend(order.packet(0, at * 1000, &link.frame(packet)));
    }
    file
}
