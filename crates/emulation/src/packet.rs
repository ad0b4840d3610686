/// Transport protocol of a packet, as far as elements tell packets apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// A UDP datagram.
    Udp,
    /// A TCP segment.
    Tcp,
    /// Anything else, such as ICMP.
    Other,
}

/// One packet on a link.
///
/// On a real link `bytes` is a whole IP packet. In virtual time it is whatever the test wants back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Transport protocol.
    pub protocol: Protocol,
    /// Its contents; elements that only delay or drop never read them.
    pub bytes: Vec<u8>,
}

impl Packet {
    /// A packet that counts as UDP.
    pub fn udp(bytes: impl Into<Vec<u8>>) -> Packet {
        Packet { protocol: Protocol::Udp, bytes: bytes.into() }
    }

    /// A packet that counts as TCP.
    pub fn tcp(bytes: impl Into<Vec<u8>>) -> Packet {
        Packet { protocol: Protocol::Tcp, bytes: bytes.into() }
    }
}
