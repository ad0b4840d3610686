//! Effects of middleboxes on TCP Fast Open (RFC 7413).

use std::ops::Range;
use std::time::Duration;

use super::{Element, Kind, Outputs, Parse};
use crate::Packet;
use crate::ip::{Headers, SYN};

/// TCP option kinds: end of list, no operation (RFC 9293 section 3.1), Fast Open (RFC 7413 section
/// 4.1.1).
const END: u8 = 0;
const NOP: u8 = 1;
const FAST_OPEN: u8 = 34;

/// Experimental option, which is Fast Open's if it begins with its magic number (RFC 6994, RFC 7413
/// appendix A.1). Linux asks for a cookie with it where kind 34 has brought none.
const EXPERIMENT: u8 = 254;
const MAGIC: [u8; 2] = [0xf9, 0x89];

/// Overwrites Fast Open options in TCP segments, of kind 34 and of the experimental kind 254, with
/// no-operations.
#[derive(Debug)]
pub struct StripFastOpen;

impl Element for StripFastOpen {
    fn handle(&mut self, _now: Duration, mut packet: Packet, out: &mut Outputs) {
        strip(&mut packet.bytes);
        out.pass(packet);
    }
}

fn strip(bytes: &mut [u8]) -> Option<()> {
    let headers = Headers::read(bytes)?;
    let range = headers.segment(bytes)?.options;
    let old = bytes.get(range.clone())?;
    let mut new = old.to_vec();
    for option in fast_open_options(old) {
        new.get_mut(option)?.fill(NOP);
    }
    if new != old {
        headers.patch(bytes, range.start, &new);
    }
    Some(())
}

/// Returns the positions of the Fast Open options, of both kinds, in a list of TCP options. Like
/// the kernel, it stops at the first malformed one.
pub(crate) fn fast_open_options(options: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(kind) = options.get(at).filter(|kind| **kind != END) {
        let length = match (kind, options.get(at + 1)) {
            (&NOP, _) => 1,
            (_, Some(length)) if *length >= 2 => usize::from(*length),
            _ => break,
        };
        let Some(option) = options.get(at..at + length) else {
            break;
        };
        let is_experiment = *kind == EXPERIMENT && option.get(2..4) == Some(&MAGIC);
        if *kind == FAST_OPEN || is_experiment {
            found.push(at..at + length);
        }
        at += length;
    }
    found
}

/// Drops SYNs and SYN-ACKs that carry data.
#[derive(Debug)]
pub struct DropSynData;

impl Element for DropSynData {
    fn handle(&mut self, _now: Duration, packet: Packet, out: &mut Outputs) {
        let is_syn_data = Headers::read(&packet.bytes)
            .and_then(|headers| headers.segment(&packet.bytes))
            .is_some_and(|segment| segment.flags & SYN != 0 && !segment.payload.is_empty());
        if !is_syn_data {
            out.pass(packet);
        }
    }
}

pub(super) const STRIP_KIND: Kind = Kind {
    name: "strip-fast-open",
    form: "strip-fast-open",
    parse: Parse::OneWay(|_| Ok(Box::new(StripFastOpen))),
};

pub(super) const DROP_KIND: Kind = Kind {
    name: "drop-syn-data",
    form: "drop-syn-data",
    parse: Parse::OneWay(|_| Ok(Box::new(DropSynData))),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Link;
    use crate::ip::{ACK, TcpFields, has_right_checksums, tcp};

    fn segment(flags: u8, options: &[u8], payload: &[u8]) -> Packet {
        let fields = TcpFields { seq: 1, ack: 2, flags, options, payload, ..TcpFields::default() };
        tcp("10.77.1.1:5000".parse().unwrap(), "10.77.2.1:443".parse().unwrap(), fields).unwrap()
    }

    fn passed(element: impl Element + 'static, packet: Packet) -> Option<Packet> {
        let mut link = Link::default().with(element);
        link.send(Duration::ZERO, packet);
        link.poll(Duration::ZERO)
    }

    /// Returns the options `given` after stripping; checks that nothing else of the packet changed.
    fn stripped(given: &[u8]) -> Vec<u8> {
        let packet = passed(StripFastOpen, segment(SYN, given, b"data")).unwrap();
        assert!(has_right_checksums(&packet));
        assert_eq!(packet, segment(SYN, &packet.bytes[40..40 + given.len()], b"data"));
        packet.bytes[40..40 + given.len()].to_vec()
    }

    #[test]
    fn both_kinds_of_fast_open_options_are_stripped_and_no_others() {
        let cookie = [&[2, 4, 5, 180, NOP, FAST_OPEN, 10][..], &[9; 8], &[4, 2, 3, 3, 7]].concat();
        let kept = [&[2, 4, 5, 180, NOP][..], &[NOP; 10], &[4, 2, 3, 3, 7]].concat();
        assert_eq!(stripped(&cookie), kept);
        assert_eq!(stripped(&[FAST_OPEN, 2, END, FAST_OPEN]), [NOP, NOP, END, FAST_OPEN]);
        assert_eq!(stripped(&[EXPERIMENT, 4, 0xf9, 0x89]), [NOP; 4]);
        let other_experiment = [EXPERIMENT, 4, 0xf9, 0x88];
        assert_eq!(stripped(&other_experiment), other_experiment);
    }

    #[test]
    fn malformed_options_are_left_alone() {
        for malformed in [
            [FAST_OPEN, 1, 0, 0],
            [FAST_OPEN, 0, 0, 0],
            [NOP, NOP, NOP, FAST_OPEN],
            [3, 9, FAST_OPEN, 2],
        ] {
            assert_eq!(stripped(&malformed), malformed);
        }
    }

    #[test]
    fn only_syn_with_data_is_dropped() {
        for (flags, payload, passes) in
            [(SYN, &b""[..], true), (SYN, b"x", false), (SYN | ACK, b"x", false), (ACK, b"x", true)]
        {
            let packet = segment(flags, &[], payload);
            assert_eq!(passed(DropSynData, packet.clone()), passes.then_some(packet));
        }
        assert!(passed(DropSynData, Packet::udp([1])).is_some());
    }
}
