//! Packet captures, packet by packet: pcap and pcapng (draft-ietf-opsawg-pcapng).

use std::io::{self, Read};
use std::time::Duration;

use pcap_parser::traits::{PcapNGPacketBlock, PcapReaderIterator};
use pcap_parser::{Block, LegacyPcapReader, PcapBlockOwned, PcapError, PcapHeader, PcapNGReader};

use super::error::ReadError;
use super::limits::{CAPTURE_BLOCK, INTERFACES};
use super::packet::Link;

/// First bytes of a pcapng file, in both byte orders.
pub(crate) const PCAPNG_MAGIC: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// First bytes of a pcap file: micro- or nanoseconds, in both byte orders, and a variant of old
/// kernels.
pub(crate) const PCAP_MAGICS: [[u8; 4]; 5] = [
    [0xd4, 0xc3, 0xb2, 0xa1],
    [0xa1, 0xb2, 0xc3, 0xd4],
    [0x4d, 0x3c, 0xb2, 0xa1],
    [0xa1, 0xb2, 0x3c, 0x4d],
    [0x34, 0xcd, 0xb2, 0xa1],
];

/// The type of a Packet Block, obsolete since 2004, as read in both byte orders: recognised as a
/// packet but not read.
const PACKET_BLOCK: [u32; 2] = [2, 2 << 24];

/// Initial bytes of the buffer: the largest packet that tcpdump captures has 256 KiB. It grows up
/// to [`CAPTURE_BLOCK`].
const BUFFER: usize = 512 << 10;

/// A captured frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    /// Time since 1970.
    pub(crate) at: Duration,
    pub(crate) link: Link,
    /// Captured bytes of the frame.
    pub(crate) bytes: &'a [u8],
}

/// Position at which a capture ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// After a whole packet.
    Whole,
    /// Within a packet, as if the capturing program was killed.
    Within,
}

/// Passes the frames of a pcap file to `each`.
pub(crate) fn pcap(input: impl Read, each: impl FnMut(Frame<'_>)) -> Result<End, ReadError> {
    let mut input = Filled::new(input);
    let read = match LegacyPcapReader::new(BUFFER, &mut input) {
        Ok(reader) => walk(reader, each),
        Err(error) => begun(&error, input.is_at_end),
    };
    input.outcome(read)
}

/// Passes the frames of a pcapng file to `each`.
pub(crate) fn pcapng(input: impl Read, each: impl FnMut(Frame<'_>)) -> Result<End, ReadError> {
    let mut input = Filled::new(input);
    let read = match PcapNGReader::new(BUFFER, &mut input) {
        Ok(reader) => walk(reader, each),
        Err(error) => begun(&error, input.is_at_end),
    };
    input.outcome(read)
}

/// Returns the end of a file whose first header could not be read.
fn begun(error: &PcapError<&[u8]>, is_at_end: bool) -> Result<End, ReadError> {
    match error {
        PcapError::Incomplete(_) if !is_at_end => Err(ReadError::TooLarge { at: 0 }),
        PcapError::Incomplete(_) | PcapError::Eof | PcapError::UnexpectedEof => Ok(End::Within),
        _ => Err(ReadError::Malformed { at: 0 }),
    }
}

fn walk(
    mut reader: impl PcapReaderIterator,
    mut each: impl FnMut(Frame<'_>),
) -> Result<End, ReadError> {
    let mut section = Section::default();
    let mut buffer = BUFFER;
    loop {
        let at = reader.consumed() as u64;
        match step(&mut reader, &mut section, &mut each)? {
            Step::Block(length) => reader.consume(length),
            Step::End => return Ok(End::Whole),
            Step::More => refill(&mut reader, &section, at)?,
            // The block is whole, and so its inner lengths are wrong.
            Step::Short | Step::TooLarge if section.is_whole(reader.data()) => {
                return Err(ReadError::Malformed { at });
            }
            Step::Short => return Ok(End::Within),
            Step::TooLarge if buffer < CAPTURE_BLOCK => {
                buffer *= 2;
                reader.grow(buffer);
            }
            Step::TooLarge => return Err(ReadError::TooLarge { at }),
            Step::Malformed => return Err(ReadError::Malformed { at }),
        }
    }
}

/// Result of reading the next block.
enum Step {
    /// It was shown; its length in bytes.
    Block(usize),
    End,
    More,
    /// The file ends within it.
    Short,
    TooLarge,
    Malformed,
}

fn step(
    reader: &mut impl PcapReaderIterator,
    section: &mut Section,
    each: &mut impl FnMut(Frame<'_>),
) -> Result<Step, ReadError> {
    Ok(match reader.next() {
        Ok((length, block)) => {
            section.block(&block, each)?;
            Step::Block(length)
        }
        Err(PcapError::Eof) => Step::End,
        Err(PcapError::Incomplete(_)) => Step::More,
        Err(PcapError::UnexpectedEof) => Step::Short,
        Err(PcapError::BufferTooSmall) => Step::TooLarge,
        Err(_) => Step::Malformed,
    })
}

/// Reads more input; if a block is whole in memory, more bytes do not correct its inner lengths.
fn refill(
    reader: &mut impl PcapReaderIterator,
    section: &Section,
    at: u64,
) -> Result<(), ReadError> {
    let before = reader.data().len();
    let was_whole = section.is_whole(reader.data());
    let is_refilled = reader.refill().is_ok();
    let is_stuck = reader.data().len() == before && !reader.reader_exhausted();
    if was_whole || !is_refilled || is_stuck {
        return Err(ReadError::Malformed { at });
    }
    Ok(())
}

/// Properties that the last header declares for the packets that follow.
#[derive(Debug, Default)]
struct Section {
    /// Byte order of a pcapng file; `None` for a pcap file.
    big_endian: Option<bool>,
    interfaces: Vec<Interface>,
    last: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Interface {
    link: Link,
    clock: Clock,
}

impl Section {
    fn block(
        &mut self,
        block: &PcapBlockOwned<'_>,
        each: &mut impl FnMut(Frame<'_>),
    ) -> Result<(), ReadError> {
        match block {
            PcapBlockOwned::LegacyHeader(header) => {
                self.interfaces = vec![Interface::from_header(header)]
            }
            PcapBlockOwned::Legacy(packet) => {
                let ticks = [packet.ts_sec, packet.ts_usec];
                if let Some(interface) = self.interfaces.first() {
                    let at = interface.clock.split(ticks);
                    each(Frame { at, link: interface.link, bytes: packet.data });
                }
            }
            PcapBlockOwned::NG(block) => return self.ng_block(block, each),
        }
        Ok(())
    }

    fn ng_block(
        &mut self,
        block: &Block<'_>,
        each: &mut impl FnMut(Frame<'_>),
    ) -> Result<(), ReadError> {
        match block {
            Block::SectionHeader(header) => {
                self.big_endian = Some(header.big_endian());
                self.interfaces.clear();
            }
            Block::InterfaceDescription(_) if self.interfaces.len() >= INTERFACES => {
                return Err(ReadError::Interfaces);
            }
            Block::InterfaceDescription(interface) => self.interfaces.push(Interface {
                link: Link::from_linktype(interface.linktype.0),
                clock: Clock::from_resolution(interface.if_tsresol, interface.if_tsoffset),
            }),
            Block::EnhancedPacket(packet) => {
                let at = (packet.ts_high, packet.ts_low);
                self.packet(packet.if_id, Some(at), packet.packet_data(), each);
            }
            Block::SimplePacket(packet) => self.packet(0, None, packet.packet_data(), each),
            Block::Unknown(block) if PACKET_BLOCK.contains(&block.block_type) => self.unread(each),
            _ => {}
        }
        Ok(())
    }

    fn packet(
        &mut self,
        interface: u32,
        at: Option<(u32, u32)>,
        bytes: &[u8],
        each: &mut impl FnMut(Frame<'_>),
    ) {
        let described =
            usize::try_from(interface).ok().and_then(|index| self.interfaces.get(index));
        let Some(interface) = described else { return self.unread(each) };
        // A simple packet has no time: the last packet's is the best guess.
        let at = at.map_or(self.last, |(high, low)| interface.clock.at(high, low));
        each(Frame { at, link: interface.link, bytes });
        self.last = at;
    }

    /// Passes on a packet of unknown link type.
    fn unread(&self, each: &mut impl FnMut(Frame<'_>)) {
        each(Frame { at: self.last, link: Link::Unknown, bytes: &[] });
    }

    /// Returns true if the bytes begin with a whole pcapng block, by its outer length.
    fn is_whole(&self, bytes: &[u8]) -> bool {
        let Some(big_endian) = self.big_endian else { return false };
        let length = bytes.get(4..8).and_then(|length| <[u8; 4]>::try_from(length).ok());
        let length = length.map(|length| match big_endian {
            true => u32::from_be_bytes(length),
            false => u32::from_le_bytes(length),
        });
        length
            .and_then(|length| usize::try_from(length).ok())
            .is_some_and(|most| most <= bytes.len())
    }
}

impl Interface {
    fn from_header(header: &PcapHeader) -> Self {
        let is_nanoseconds = matches!(header.magic_number, 0xa1b2_3c4d | 0x4d3c_b2a1);
        let exponent = if is_nanoseconds { 9 } else { 6 };
        Self {
            link: Link::from_linktype(header.network.0),
            clock: Clock::from_resolution(exponent, 0),
        }
    }
}

/// Unit of packet times.
#[derive(Clone, Copy, Debug)]
struct Clock {
    /// Ticks in a second.
    ticks: u64,
    /// Seconds to add.
    offset: i64,
}

impl Clock {
    /// Reads the option if_tsresol: a power of ten, or of two with the highest bit. Those that no
    /// clock has count as microseconds, the default.
    fn from_resolution(resolution: u8, offset: i64) -> Self {
        let exponent = u32::from(resolution & 0x7f);
        let base: u64 = if resolution & 0x80 == 0 { 10 } else { 2 };
        Self { ticks: base.checked_pow(exponent).unwrap_or(1_000_000), offset }
    }

    fn at(self, high: u32, low: u32) -> Duration {
        let ticks = u64::from(high) << 32 | u64::from(low);
        let seconds = (ticks / self.ticks).checked_add_signed(self.offset).unwrap_or_default();
        Duration::new(seconds, self.nanos(ticks % self.ticks))
    }

    /// Converts seconds and ticks, which pcap keeps apart.
    fn split(self, [seconds, ticks]: [u32; 2]) -> Duration {
        Duration::new(seconds.into(), self.nanos(u64::from(ticks) % self.ticks))
    }

    /// Converts ticks that make less than a second.
    fn nanos(self, ticks: u64) -> u32 {
        let nanos = u128::from(ticks) * 1_000_000_000 / u128::from(self.ticks);
        u32::try_from(nanos).unwrap_or_default()
    }
}

/// A reader that fills every buffer to the end of the input, and remembers what went wrong.
///
/// The library wants the first header in one read, which pipes do not give, and says of errors only
/// that there was one.
struct Filled<R> {
    input: R,
    is_at_end: bool,
    error: Option<io::Error>,
}

impl<R> Filled<R> {
    fn new(input: R) -> Self {
        Self { input, is_at_end: false, error: None }
    }

    fn outcome(self, read: Result<End, ReadError>) -> Result<End, ReadError> {
        self.error.map_or(read, |error| Err(error.into()))
    }
}

impl<R: Read> Read for Filled<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut count = 0;
        while let Some(rest) = buffer.get_mut(count..).filter(|rest| !rest.is_empty()) {
            match self.input.read(rest) {
                Ok(0) => {
                    self.is_at_end = true;
                    break;
                }
                Ok(more) => count += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.error = Some(error);
                    return Err(io::Error::other("see Filled::error"));
                }
            }
        }
        Ok(count)
    }
}
