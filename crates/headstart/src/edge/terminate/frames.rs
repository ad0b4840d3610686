//! Frames of HTTP/2: counts those that ask for nothing (RFC 9113 section 10.5).

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::exchange::Client;
use crate::metrics;

/// Length of a frame's head (RFC 9113 section 4.1).
const HEAD: usize = 9;

/// Requests at one time on a connection: what nginx allows (`http2_max_concurrent_streams`).
pub(super) const STREAMS: u32 = 128;

/// Kinds of frames (RFC 9113 section 6).
pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;

/// Flag of the frame that ends a head.
const END_HEADERS: u8 = 4;

/// Control frames that a client may send in [`WINDOW`] beside those that go with its bodies and
/// requests: a browser sends a PING now and then, and a WINDOW_UPDATE for some kilobytes that it
/// took. Each costs this edge time, and PING and SETTINGS an acknowledgement.
const CONTROL_MAX: u32 = 1000;

/// Streams that it may reset meanwhile: twice the requests that it may break off, for many of them
/// never reach the service.
const RESETS_MAX: u32 = 1024;

const WINDOW: Duration = Duration::from_secs(10);

/// Bytes of bodies for which a client may send one more control frame, and it may send as many for
/// each request: both streams and connection have windows, which some clients move by each piece
/// that they read.
const BYTES_A_FRAME: u64 = 512;

const FRAMES_A_REQUEST: u32 = 8;

/// Finds the frames in what one side sends.
#[derive(Clone, Debug, Default)]
pub(super) struct Framing {
    /// Bytes to come of what is not kept: the preface, or the rest of a payload.
    skip: usize,
    kept: Vec<u8>,
}

/// A frame's head, and the begin of its payload.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    /// Length of the whole payload.
    pub(super) length: usize,
    pub(super) payload: Vec<u8>,
}

impl Framing {
    /// Takes bytes from the front of `bytes` until a frame has begun; keeps at most `payload_max`
    /// bytes of its payload.
    pub(super) fn next(&mut self, bytes: &mut &[u8], payload_max: usize) -> Option<Frame> {
        let skipped = self.skip.min(bytes.len());
        self.skip -= skipped;
        *bytes = &bytes[skipped..];
        self.keep(bytes, HEAD);
        let &[high, middle, low, kind, flags, a, b, c, d] = self.kept.first_chunk::<HEAD>()?;
        let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        let kept = length.min(payload_max);
        self.keep(bytes, HEAD + kept);
        if self.kept.len() < HEAD + kept {
            return None;
        }
        self.skip = length - kept;
        let stream = u32::from_be_bytes([a, b, c, d]);
        let payload = self.kept.split_off(HEAD);
        self.kept.clear();
        Some(Frame { kind, flags, stream, length, payload })
    }

    /// Keeps bytes until there are `length`.
    fn keep(&mut self, bytes: &mut &[u8], length: usize) {
        let missing = length.saturating_sub(self.kept.len()).min(bytes.len());
        let (more, rest) = bytes.split_at(missing);
        self.kept.extend_from_slice(more);
        *bytes = rest;
    }
}

/// Follows the frames that a client sends.
#[derive(Debug)]
pub(super) struct Frames {
    client: Arc<Client>,
    framing: Framing,
    /// True within a head of several frames.
    in_head: bool,
    /// True if the last frame is of a body.
    is_data: bool,
    since: Instant,
    moved: u64,
    control: u32,
    requests: u32,
    resets: u32,
}

/// The client has sent too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Excess {
    Control,
    Resets,
}

impl Frames {
    pub(super) fn new(client: Arc<Client>) -> Self {
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();
        Self {
            client,
            framing: Framing { skip: preface, ..Framing::default() },
            in_head: false,
            is_data: false,
            since: Instant::now(),
            moved: 0,
            control: 0,
            requests: 0,
            resets: 0,
        }
    }

    /// Follows bytes that were read.
    ///
    /// # Errors
    /// Too many frames ask for nothing: the connection is to end.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while let Some(frame) = self.framing.next(&mut bytes, 0) {
            if !self.in_head {
                // Whatever was incomplete is complete.
                self.client.set_in_head(false);
            }
            self.in_head = match frame.kind {
                HEADERS | CONTINUATION => frame.flags & END_HEADERS == 0,
                _ => self.in_head,
            };
            self.is_data = frame.kind == DATA;
            if let Err(excess) = self.count(&frame) {
                metrics::limit_hit(match excess {
                    Excess::Control => "control_frames",
                    Excess::Resets => "stream_resets",
                });
                return Err(io::Error::other("too many frames that ask for nothing"));
            }
        }
        let is_cut = self.framing.skip > 0 && !self.is_data || !self.framing.kept.is_empty();
        self.client.set_in_head(self.in_head || is_cut);
        Ok(())
    }

    fn count(&mut self, frame: &Frame) -> Result<(), Excess> {
        match frame.kind {
            HEADERS => self.requests = self.requests.saturating_add(1),
            RST_STREAM => self.resets += 1,
            DATA if frame.length > 0 => {}
            // Whatever is left, CONTINUATION, unknown kinds and empty DATA too.
            _ => self.control += 1,
        }
        if self.resets <= RESETS_MAX && self.control <= CONTROL_MAX {
            return Ok(());
        }
        if self.since.elapsed() >= WINDOW {
            self.restart();
            return Ok(());
        }
        if self.resets > RESETS_MAX {
            return Err(Excess::Resets);
        }
        let bytes = self.client.moved().wrapping_sub(self.moved);
        let earned = u64::from(self.requests.saturating_mul(FRAMES_A_REQUEST));
        let allowed = u64::from(CONTROL_MAX) + earned + bytes / BYTES_A_FRAME;
        if u64::from(self.control) > allowed { Err(Excess::Control) } else { Ok(()) }
    }

    fn restart(&mut self) {
        (self.since, self.moved) = (Instant::now(), self.client.moved());
        (self.control, self.requests, self.resets) = (0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::terminate::capacity::{Capacity, CapacityLimits};

    const PING: u8 = 6;

    /// Follows `count` empty frames of a kind.
    fn follow(frames: &mut Frames, kind: u8, count: u32) -> io::Result<()> {
        (0..count).try_for_each(|_| frames.read(&[0, 0, 0, kind, 0, 0, 0, 0, 1]))
    }

    fn frames() -> Frames {
        let limits = CapacityLimits { requests: 1, requests_per_address: 1, memory: usize::MAX };
        let mut frames = Frames::new(Client::new(&Arc::new(Capacity::new(limits))));
        frames.read(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        frames
    }

    #[test]
    fn resets_and_control_frames_are_an_abuse_at_a_rate() {
        for (kind, most) in [(RST_STREAM, RESETS_MAX), (PING, CONTROL_MAX), (DATA, CONTROL_MAX)] {
            let mut fast = frames();
            follow(&mut fast, kind, most).unwrap();
            assert!(follow(&mut fast, kind, 1).is_err(), "{kind}: one too many");
            let mut slow = frames();
            for _ in 0..3 {
                follow(&mut slow, kind, most).unwrap();
                slow.since = slow.since.checked_sub(WINDOW).unwrap();
            }
        }
    }

    #[test]
    fn requests_earn_control_frames_and_no_resets() {
        let mut busy = frames();
        follow(&mut busy, HEADERS, 100).unwrap();
        follow(&mut busy, PING, CONTROL_MAX + 100 * FRAMES_A_REQUEST).unwrap();
        assert!(follow(&mut busy, PING, 1).is_err());
        let mut storm = frames();
        follow(&mut storm, HEADERS, 10_000).unwrap();
        follow(&mut storm, RST_STREAM, RESETS_MAX).unwrap();
        assert!(follow(&mut storm, RST_STREAM, 1).is_err());
    }
}
