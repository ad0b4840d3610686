//! Packets of a node written to a file, in the format pcapng (draft-ietf-opsawg-pcapng).

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

mod reader;

pub use reader::{CapturedPacket, read_capture, read_packets};

/// Packets that wait for the disk: 25 MB of full-size ones, 80 ms of all that the forwarder can
/// carry.
const MAX_WAITING: usize = 16_384;

/// Interval at which the writer looks for packets.
///
/// Looking costs nothing to the forwarder, which would have to wake up a writer that waits.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Direction in which a packet crossed the node's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    FromNode,
    ToNode,
}

/// A running capture of a node's packets; it ends, and the file is whole, with this value or with
/// the lab.
///
/// The forwarder never waits for the disk: it hands packets to a thread, and drops and counts those
/// for which that has no room.
#[derive(Debug)]
pub struct Capture {
    stop: Arc<AtomicBool>,
    writer: Option<JoinHandle<io::Result<Captured>>>,
}

/// Contents of a [`Capture`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    /// Packets in the file.
    pub packets: u64,
    /// Packets that are not, as the disk was too slow.
    pub dropped: u64,
    /// The file reached its limit and ends there.
    pub full: bool,
}

impl Capture {
    /// Creates the file, which gets at most `limit` bytes, and the tap that feeds it.
    pub(crate) fn start(
        node: &str,
        path: &Path,
        limit: u64,
    ) -> io::Result<(Capture, impl FnOnce(SystemTime) -> Tap + use<>)> {
        let file = BufWriter::new(File::create(path)?);
        let (packets, waiting) = sync_channel(MAX_WAITING);
        let stop = Arc::new(AtomicBool::new(false));
        let dropped = Arc::new(AtomicU64::new(0));
        let writer = Writer {
            file: PcapNg::start(file, node, limit)?,
            waiting,
            stop: Arc::clone(&stop),
            dropped: Arc::clone(&dropped),
        };
        let writer =
            thread::Builder::new().name("lab capture".into()).spawn(move || writer.run())?;
        Ok((Capture { stop, writer: Some(writer) }, |epoch: SystemTime| {
            let epoch = epoch.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            Tap { packets, dropped, epoch }
        }))
    }

    /// Ends the capture, and waits until the file is written.
    pub fn finish(mut self) -> io::Result<Captured> {
        self.end().unwrap_or_else(|| Ok(Captured::default()))
    }

    fn end(&mut self) -> Option<io::Result<Captured>> {
        self.stop.store(true, Ordering::Release);
        let written = self.writer.take()?.join();
        Some(written.unwrap_or_else(|_| Err(io::Error::other("the capturing thread ended"))))
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// The forwarder's end of a capture.
#[derive(Debug)]
pub(crate) struct Tap {
    packets: SyncSender<Seen>,
    dropped: Arc<AtomicU64>,
    /// The forwarder's epoch, since 1970.
    epoch: Duration,
}

#[derive(Debug)]
struct Seen {
    /// Since 1970.
    at: Duration,
    direction: Direction,
    bytes: Vec<u8>,
}

impl Tap {
    /// Shows a packet seen at `at`, without waiting; breaks when nobody looks any more.
    pub(crate) fn show(
        &mut self,
        at: Duration,
        direction: Direction,
        bytes: &[u8],
    ) -> ControlFlow<()> {
        let seen = Seen { at: self.epoch + at, direction, bytes: bytes.to_vec() };
        match self.packets.try_send(seen) {
            Ok(()) => ControlFlow::Continue(()),
            Err(TrySendError::Full(_)) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                ControlFlow::Continue(())
            }
            Err(TrySendError::Disconnected(_)) => ControlFlow::Break(()),
        }
    }
}

/// The thread that writes.
struct Writer {
    file: PcapNg<BufWriter<File>>,
    waiting: Receiver<Seen>,
    stop: Arc<AtomicBool>,
    dropped: Arc<AtomicU64>,
}

impl Writer {
    fn run(mut self) -> io::Result<Captured> {
        loop {
            // Before the last look, so that nothing that waits now is lost.
            let stopped = self.stop.load(Ordering::Acquire);
            let goes_on = self.write_waiting()?;
            if stopped || goes_on.is_break() {
                let dropped = self.dropped.load(Ordering::Relaxed);
                self.file.file.flush()?;
                return Ok(Captured { dropped, ..self.file.written });
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Writes what waits; breaks if no more can come or the file is full.
    fn write_waiting(&mut self) -> io::Result<ControlFlow<()>> {
        loop {
            match self.waiting.try_recv() {
                Ok(seen) if self.file.write(&seen)?.is_break() => {
                    return Ok(ControlFlow::Break(()));
                }
                Ok(_) => {}
                Err(TryRecvError::Empty) => {
                    // Captured packets can be read while the capture continues.
                    self.file.file.flush()?;
                    return Ok(ControlFlow::Continue(()));
                }
                Err(TryRecvError::Disconnected) => return Ok(ControlFlow::Break(())),
            }
        }
    }
}

/// Whole IP packets without a link header.
const LINKTYPE_RAW: u16 = 101;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;

const IF_NAME: u16 = 2;
const IF_TSRESOL: u16 = 9;
const EPB_FLAGS: u16 = 2;

/// The mark by which readers know the byte order, as little-endian machines write it.
const BYTE_ORDER: [u8; 4] = 0x1a2b_3c4d_u32.to_le_bytes();

/// Time stamps count nanoseconds: 10 to the minus 9.
const NANOSECONDS: [u8; 1] = [9];

/// A file of one section with one interface.
struct PcapNg<W> {
    file: W,
    left: u64,
    written: Captured,
}

impl<W: Write> PcapNg<W> {
    fn start(file: W, interface: &str, limit: u64) -> io::Result<PcapNg<W>> {
        let mut file = PcapNg { file, left: limit, written: Captured::default() };
        // The byte order, version 1.0, and a section of unknown length.
        let header = [&BYTE_ORDER[..], &[1, 0, 0, 0], &[0xff; 8]].concat();
        let mut description = LINKTYPE_RAW.to_le_bytes().to_vec();
        // Reserved; no limit to a packet's length.
        description.extend([0; 6]);
        option(&mut description, IF_NAME, interface.as_bytes());
        option(&mut description, IF_TSRESOL, &NANOSECONDS);
        end_of_options(&mut description);
        let start = [block(SECTION_HEADER, &header), block(INTERFACE_DESCRIPTION, &description)];
        match file.put(&start.concat())? {
            ControlFlow::Continue(()) => Ok(file),
            ControlFlow::Break(()) => {
                Err(io::Error::new(io::ErrorKind::InvalidInput, "no room for any packet"))
            }
        }
    }

    /// Writes one packet, or notes that the file is full and breaks.
    fn write(&mut self, seen: &Seen) -> io::Result<ControlFlow<()>> {
        let written = self.put(&packet(seen))?;
        match written {
            ControlFlow::Continue(()) => self.written.packets += 1,
            ControlFlow::Break(()) => self.written.full = true,
        }
        Ok(written)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<ControlFlow<()>> {
        match self.left.checked_sub(bytes.len() as u64) {
            None => Ok(ControlFlow::Break(())),
            Some(left) => {
                self.left = left;
                self.file.write_all(bytes).map(ControlFlow::Continue)
            }
        }
    }
}

fn packet(seen: &Seen) -> Vec<u8> {
    let nanos = u64::try_from(seen.at.as_nanos()).unwrap_or(u64::MAX);
    // No IP packet is longer than this can say.
    let length = u32::try_from(seen.bytes.len()).unwrap_or(u32::MAX);
    // As the node sees it: bits 0 and 1 are 1 for inbound, 2 for outbound.
    let flags: u32 = match seen.direction {
        Direction::ToNode => 1,
        Direction::FromNode => 2,
    };
    let (high, low) = ((nanos >> 32) as u32, (nanos & 0xffff_ffff) as u32);
    // Interface 0; captured and original length.
    let mut body: Vec<_> =
        [0, high, low, length, length].into_iter().flat_map(u32::to_le_bytes).collect();
    padded(&mut body, &seen.bytes);
    option(&mut body, EPB_FLAGS, &flags.to_le_bytes());
    end_of_options(&mut body);
    block(ENHANCED_PACKET, &body)
}

/// A block: its length stands before and behind the body, for readers in both directions.
fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 12).unwrap_or(u32::MAX).to_le_bytes();
    [&kind.to_le_bytes()[..], &length, body, &length].concat()
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = value.get(..value.len().min(usize::from(u16::MAX))).unwrap_or_default();
    let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
    body.extend(code.to_le_bytes().into_iter().chain(length.to_le_bytes()));
    padded(body, value);
}

fn end_of_options(body: &mut Vec<u8>) {
    body.extend([0; 4]);
}

/// Values and packets fill up to a multiple of four bytes.
fn padded(body: &mut Vec<u8>, bytes: &[u8]) {
    body.extend_from_slice(bytes);
    body.resize(body.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(length: usize) -> Seen {
        let at = Duration::new(0x1_0000_0000 / 1_000_000_000, 7);
        Seen { at, direction: Direction::ToNode, bytes: vec![0x45; length] }
    }

    fn word(bytes: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(*bytes[at..].first_chunk().unwrap())
    }

    #[test]
    fn blocks_have_their_length_at_both_ends() {
        let mut file = PcapNg::start(Vec::new(), "client", u64::MAX).unwrap();
        for length in [0, 1, 2, 3, 4, 1500] {
            assert!(file.write(&seen(length)).unwrap().is_continue());
        }
        let mut rest = &file.file[..];
        let mut kinds = Vec::new();
        while !rest.is_empty() {
            let length = word(rest, 4) as usize;
            assert_eq!((word(rest, length - 4) as usize, length % 4), (length, 0));
            kinds.push(word(rest, 0));
            rest = &rest[length..];
        }
        assert_eq!(kinds, [SECTION_HEADER, 1, 6, 6, 6, 6, 6, 6]);
    }

    #[test]
    fn a_packet_has_its_time_length_and_direction() {
        let block = packet(&seen(5));
        let nanos = u64::from(word(&block, 12)) << 32 | u64::from(word(&block, 16));
        assert_eq!(nanos, 4_000_000_007);
        assert_eq!((word(&block, 20), word(&block, 24)), (5, 5));
        assert_eq!(block[28..36], [0x45, 0x45, 0x45, 0x45, 0x45, 0, 0, 0]);
        assert_eq!(block[36..48], [2, 0, 4, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_file_ends_before_its_limit_with_a_whole_packet() {
        let start = PcapNg::start(Vec::new(), "client", u64::MAX).unwrap().file.len();
        let one = packet(&seen(100)).len();
        let limit = start + 2 * one;
        for (limit, packets) in [(limit - 1, 1_u8), (limit, 2), (limit + one - 1, 2)] {
            let mut file = PcapNg::start(Vec::new(), "client", limit as u64).unwrap();
            for _ in 0..packets {
                assert!(file.write(&seen(100)).unwrap().is_continue());
            }
            assert!(file.write(&seen(100)).unwrap().is_break());
            let packets = u64::from(packets);
            assert_eq!(file.written, Captured { packets, dropped: 0, full: true });
            assert_eq!(file.file.len() as u64, start as u64 + packets * one as u64);
        }
    }
}
