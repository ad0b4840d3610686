use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::{
    BYTE_ORDER, ENHANCED_PACKET, EPB_FLAGS, IF_TSRESOL, INTERFACE_DESCRIPTION, LINKTYPE_RAW,
    NANOSECONDS, SECTION_HEADER,
};

/// Largest file read; it is in memory twice then. Captures of a run end at a quarter of a gigabyte.
const FILE_MAX: u64 = 512 << 20;

/// Length of a block's head, kind and length, and of the length behind it.
const HEAD: usize = 8;
const TAIL: usize = 4;

/// A packet of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedPacket {
    /// When it passed the node's interface, since 1970.
    pub at: Duration,
    /// True if the node sent the packet, false if it received it.
    pub from_node: bool,
    /// The whole IP packet.
    pub bytes: Vec<u8>,
}

/// Reads a file that a [`Capture`](super::Capture) wrote, in the order of the file.
///
/// # Errors
/// It cannot be read, is larger than 512 MB, is cut off, or is not such a file: other programs
/// write other link types and time stamps.
pub fn read_capture(path: impl AsRef<Path>) -> io::Result<Vec<CapturedPacket>> {
    if fs::metadata(&path)?.len() > FILE_MAX {
        return Err(malformed("the file is too large"));
    }
    parse(&fs::read(path)?)
}

fn parse(mut rest: &[u8]) -> io::Result<Vec<CapturedPacket>> {
    let mut packets = Vec::new();
    let mut begun = false;
    while !rest.is_empty() {
        let (kind, body, after) = block(rest).ok_or_else(|| malformed("a block is cut off"))?;
        match kind {
            SECTION_HEADER if body.get(..4) == Some(&BYTE_ORDER) => begun = true,
            _ if !begun => return Err(malformed("it does not begin as a capture of the lab does")),
            INTERFACE_DESCRIPTION if !is_ours(body) => {
                return Err(malformed("it has another link type or other time stamps"));
            }
            ENHANCED_PACKET => {
                packets.push(packet(body).ok_or_else(|| malformed("a packet is cut off"))?);
            }
            _ => {}
        }
        rest = after;
    }
    Ok(packets)
}

/// The first block: kind, body, and what follows.
fn block(bytes: &[u8]) -> Option<(u32, &[u8], &[u8])> {
    let length = usize::try_from(word(bytes, 4)?).ok()?;
    let end = length.checked_sub(TAIL).filter(|end| *end >= HEAD)?;
    Some((word(bytes, 0)?, bytes.get(HEAD..end)?, bytes.get(length..)?))
}

/// Returns true if packets have no link header, and times are in nanoseconds.
fn is_ours(description: &[u8]) -> bool {
    let resolution = description.get(8..).and_then(|options| option(options, IF_TSRESOL));
    description.get(..2) == Some(&LINKTYPE_RAW.to_le_bytes()) && resolution == Some(&NANOSECONDS)
}

fn packet(body: &[u8]) -> Option<CapturedPacket> {
    let nanos = u64::from(word(body, 4)?) << 32 | u64::from(word(body, 8)?);
    let length = usize::try_from(word(body, 12)?).ok()?;
    let bytes = body.get(20..)?.get(..length)?.to_vec();
    let flags = option(body.get(20 + length.next_multiple_of(4)..)?, EPB_FLAGS)?;
    let from_node = word(flags, 0)? & 3 == 2;
    Some(CapturedPacket { at: Duration::from_nanos(nanos), from_node, bytes })
}

/// The value of the first option of this code.
fn option(mut options: &[u8], code: u16) -> Option<&[u8]> {
    loop {
        let (&found, rest) = options.split_first_chunk::<2>()?;
        let (&length, rest) = rest.split_first_chunk::<2>()?;
        let length = usize::from(u16::from_le_bytes(length));
        if u16::from_le_bytes(found) == code {
            return rest.get(..length);
        }
        options = rest.get(length.next_multiple_of(4)..)?;
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn malformed(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::super::{Direction, PcapNg, Seen, block as written_block};
    use super::*;

    fn seen(length: usize) -> Seen {
        let from_node = length.is_multiple_of(2);
        Seen {
            at: Duration::new(1_800_000_000, u32::try_from(length).unwrap()),
            direction: if from_node { Direction::FromNode } else { Direction::ToNode },
            bytes: vec![0x45; length],
        }
    }

    fn file(lengths: &[usize]) -> Vec<u8> {
        let mut file = PcapNg::start(Vec::new(), "client", u64::MAX).unwrap();
        for length in lengths {
            assert!(file.write(&seen(*length)).unwrap().is_continue());
        }
        file.file
    }

    #[test]
    fn what_was_written_is_read() {
        let lengths = [0, 1, 2, 3, 4, 1500];
        let expected = lengths.map(|length| {
            let Seen { at, direction, bytes } = seen(length);
            CapturedPacket { at, from_node: direction == Direction::FromNode, bytes }
        });
        assert_eq!(parse(&file(&lengths)).unwrap(), expected);
        assert_eq!(parse(&file(&[])).unwrap(), []);
    }

    #[test]
    fn blocks_of_other_kinds_are_passed_over() {
        let mut bytes = file(&[4]);
        bytes.extend(written_block(0xbad, &[1, 2, 3, 4]));
        assert_eq!(parse(&bytes).unwrap().len(), 1);
    }

    #[test]
    fn a_file_that_is_cut_off_is_refused_at_every_place() {
        let whole = file(&[5]);
        let first = file(&[]).len();
        for end in 1..whole.len() {
            // Between two blocks nothing shows that there was more.
            let read = parse(&whole[..end]);
            assert_eq!(read.is_ok(), end == first || end == 28, "{end}: {read:?}");
        }
    }

    #[test]
    fn files_of_others_are_refused() {
        let ours = file(&[5]);
        let changed = |at: usize, byte: u8| {
            let mut bytes = ours.clone();
            bytes[at] = byte;
            parse(&bytes).unwrap_err().to_string()
        };
        assert!(changed(8, 0x1a).contains("does not begin"), "another byte order");
        assert!(changed(36, 1).contains("another link type"), "Ethernet");
        assert!(parse(b"GET / HTTP/1.1\r\n\r\n").is_err());
        assert!(parse(&[0xff; 64]).is_err());
        assert!(read_capture("/nonexistent").is_err());
    }
}
