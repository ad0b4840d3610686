use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use pcap_parser::pcapng::EnhancedPacketBlock;
use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapNGSlice};

use super::EPB_FLAGS;

/// Largest file read; it is in memory twice then. Captures of a run end at a quarter of a gigabyte.
const FILE_MAX: u64 = 512 << 20;

/// A packet of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedPacket {
    /// Time at which it passed the node's interface, since 1970.
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
    read_packets(File::open(path)?)
}

/// Reads the content of such a file.
///
/// # Errors
/// Errors as for [`read_capture`].
pub fn read_packets(input: impl Read) -> io::Result<Vec<CapturedPacket>> {
    let mut bytes = Vec::new();
    input.take(FILE_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_MAX {
        return Err(malformed("the file is too large"));
    }
    parse(&bytes)
}

fn parse(bytes: &[u8]) -> io::Result<Vec<CapturedPacket>> {
    let blocks = PcapNGSlice::from_slice(bytes)
        .map_err(|_| malformed("it does not begin as a capture of the lab does"))?;
    let mut packets = Vec::new();
    for block in blocks {
        match block.map_err(|_| malformed("a block is cut off"))? {
            PcapBlockOwned::NG(Block::SectionHeader(header)) if header.big_endian() => {
                return Err(malformed("it does not begin as a capture of the lab does"));
            }
            PcapBlockOwned::NG(Block::InterfaceDescription(interface))
                if (interface.linktype, interface.if_tsresol) != (Linktype::RAW, 9) =>
            {
                return Err(malformed("it has another link type or other time stamps"));
            }
            PcapBlockOwned::NG(Block::EnhancedPacket(block)) => {
                packets.push(packet(&block).ok_or_else(|| malformed("a packet has no direction"))?);
            }
            _ => {}
        }
    }
    Ok(packets)
}

fn packet(block: &EnhancedPacketBlock<'_>) -> Option<CapturedPacket> {
    let flags = block.options.iter().find(|option| option.code.0 == EPB_FLAGS)?;
    Some(CapturedPacket {
        at: Duration::from_nanos(u64::from(block.ts_high) << 32 | u64::from(block.ts_low)),
        from_node: flags.as_u32_le().ok()? & 3 == 2,
        bytes: block.packet_data().to_vec(),
    })
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
    fn written_captures_are_read_back() {
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
        for (at, byte, why) in [
            (8, 0x1a, "does not begin"),  // another byte order
            (36, 1, "another link type"), // Ethernet
        ] {
            let mut bytes = file(&[5]);
            bytes[at] = byte;
            let error = parse(&bytes).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        assert!(parse(b"GET / HTTP/1.1\r\n\r\n").is_err());
        assert!(parse(&[0xff; 64]).is_err());
        assert!(read_capture("/nonexistent").is_err());
    }
}
