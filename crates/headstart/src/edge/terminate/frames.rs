//! Counts the frames of HTTP/2 that ask for nothing (RFC 9113 section 10.5).

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::exchange::Client;
use crate::metrics;

/// Length of a frame's head (RFC 9113 section 4.1).
const HEAD: usize = 9;

/// Control frames that a client may send in [`WINDOW`] beside those that go with its bodies and
/// requests: a browser sends a PING now and then, and a WINDOW_UPDATE for some kilobytes that it
/// took. Each costs this edge time, and PING and SETTINGS an answer.
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

/// Follows the frames that a client sends.
#[derive(Debug)]
pub(super) struct Frames {
    client: Arc<Client>,
    /// Bytes to come of what is no head: the preface, or a frame's payload.
    skip: usize,
    head: [u8; HEAD],
    /// Bytes of the head that are there.
    known: usize,
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
        Self {
            client,
            skip: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len(),
            head: [0; HEAD],
            known: 0,
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
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            let length = (HEAD - self.known).min(bytes.len());
            let (head, rest) = bytes.split_at(length);
            self.head[self.known..self.known + length].copy_from_slice(head);
            (self.known, bytes) = (self.known + length, rest);
            if self.known == HEAD {
                self.known = 0;
                let [high, middle, low, kind, ..] = self.head;
                self.skip = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
                if let Err(excess) = self.count(kind) {
                    metrics::limit_hit(match excess {
                        Excess::Control => "control_frames",
                        Excess::Resets => "stream_resets",
                    });
                    return Err(io::Error::other("too many frames that ask for nothing"));
                }
            }
        }
        Ok(())
    }

    fn count(&mut self, kind: u8) -> Result<(), Excess> {
        const DATA: u8 = 0;
        const HEADERS: u8 = 1;
        const RST_STREAM: u8 = 3;
        match kind {
            HEADERS => self.requests = self.requests.saturating_add(1),
            RST_STREAM => self.resets += 1,
            DATA if self.skip > 0 => {}
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
