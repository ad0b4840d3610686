//! TCP segments, captured at the client's interface.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use headstart_emulation::{Element, Outputs, Packet};

/// TCP flags.
pub(crate) const SYN: u8 = 2;
pub(crate) const ACK: u8 = 16;

/// Direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Out,
    In,
}

/// A captured segment.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) direction: Direction,
    pub(crate) flags: u8,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    /// Kinds and contents; the padding, which is end of list and no-operations, is left out.
    pub(crate) options: Vec<(u8, Vec<u8>)>,
    pub(crate) data: Vec<u8>,
}

impl Segment {
    /// Parses a whole segment; `None` for a fragment, a packet with extension headers, and any
    /// other protocol.
    fn read(direction: Direction, packet: &[u8]) -> Option<Self> {
        let (start, end) = match packet.first()? >> 4 {
            4 if packet[9] == 6 && packet[6] & 0x3f == 0 && packet[7] == 0 => (
                usize::from(packet[0] & 15) * 4,
                usize::from(u16::from_be_bytes([packet[2], packet[3]])),
            ),
            6 if packet[6] == 6 => {
                (40, 40 + usize::from(u16::from_be_bytes([packet[4], packet[5]])))
            }
            _ => return None,
        };
        let tcp = &packet[start..end];
        let header_len = usize::from(tcp[12] >> 4) * 4;
        Some(Self {
            direction,
            flags: tcp[13],
            seq: u32::from_be_bytes(*tcp[4..].first_chunk().unwrap()),
            ack: u32::from_be_bytes(*tcp[8..].first_chunk().unwrap()),
            options: options(&tcp[20..header_len]),
            data: tcp[header_len..].to_vec(),
        })
    }

    pub(crate) fn is_syn(&self) -> bool {
        self.flags & (SYN | ACK) == SYN
    }

    pub(crate) fn is_syn_ack(&self) -> bool {
        self.flags & (SYN | ACK) == SYN | ACK
    }

    /// Returns the contents of its Fast Open options: of kind 34, and of the experimental kind 254
    /// with Fast Open's magic number (RFC 7413 appendix A.1), which is in the content.
    pub(crate) fn fast_open(&self) -> Vec<&[u8]> {
        self.options
            .iter()
            .filter(|(kind, content)| match kind {
                34 => true,
                254 => content.starts_with(&[0xf9, 0x89]),
                _ => false,
            })
            .map(|(_, content)| &content[..])
            .collect()
    }
}

fn options(bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let (mut found, mut at) = (Vec::new(), 0);
    while at < bytes.len() && bytes[at] != 0 {
        if bytes[at] == 1 {
            at += 1;
            continue;
        }
        let length = usize::from(bytes[at + 1]);
        found.push((bytes[at], bytes[at + 2..at + length].to_vec()));
        at += length;
    }
    found
}

/// The segments captured so far, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Capture(Arc<Mutex<Vec<Segment>>>);

impl Capture {
    pub(crate) fn all(&self) -> Vec<Segment> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn clear(&self) {
        self.0.lock().unwrap().clear();
    }

    pub(crate) fn syns(&self) -> Vec<Segment> {
        self.all().into_iter().filter(|s| s.direction == Direction::Out && s.is_syn()).collect()
    }

    pub(crate) fn syn_acks(&self) -> Vec<Segment> {
        self.all().into_iter().filter(|s| s.direction == Direction::In && s.is_syn_ack()).collect()
    }

    /// Returns the contents of all Fast Open options sent in either direction, with repetitions; a
    /// request for a cookie is an empty one.
    pub(crate) fn cookies(&self) -> Vec<Vec<u8>> {
        self.all().iter().flat_map(Segment::fast_open).map(<[u8]>::to_vec).collect()
    }

    /// Returns an element that records packets before anything else happens to them.
    pub(crate) fn tap(&self, direction: Direction) -> Tap {
        Tap { direction, capture: self.clone() }
    }
}

#[derive(Debug)]
pub(crate) struct Tap {
    direction: Direction,
    capture: Capture,
}

impl Element for Tap {
    fn handle(&mut self, _now: Duration, packet: Packet, out: &mut Outputs) {
        self.capture.0.lock().unwrap().extend(Segment::read(self.direction, &packet.bytes));
        out.pass(packet);
    }
}
