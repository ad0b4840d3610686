//! The application: a TLS client as far as a transport can tell.

use std::time::Duration;

use super::{End, Script};

#[derive(Debug, Default)]
pub(super) struct App {
    script: Script,
    pub(super) received: Vec<u8>,
    pub(super) end: Option<End>,
    next_write: usize,
    pending: Vec<u8>,
    finish_told: bool,
    pub(super) first_response: Option<Duration>,
}

impl App {
    pub(super) fn new(script: Script) -> Self {
        Self { script, ..Self::default() }
    }

    /// Writes the next bytes into a transport with `room`.
    pub(super) fn write(&mut self, now: Duration, room: usize) -> Option<Vec<u8>> {
        if self.end == Some(End::Reset) || now < self.script.starts_at {
            return None;
        }
        while let Some(write) = self.script.writes.get(self.next_write)
            && write.after_server <= self.received.len()
            && self.may_write()
        {
            self.pending.extend_from_slice(&write.bytes);
            self.next_write += 1;
        }
        let count = room.min(self.script.app_chunk).min(self.pending.len());
        Some(self.pending.drain(..count).collect()).filter(|bytes: &Vec<u8>| !bytes.is_empty())
    }

    /// Returns true once, when the application writes nothing more.
    pub(super) fn finishes(&mut self) -> bool {
        let said_all = self.next_write == self.script.writes.len();
        let heard_all = self.received.len() >= self.script.server_len();
        let done = !self.may_write() || (said_all && heard_all) || self.end.is_some();
        let now = done && self.pending.is_empty() && !self.finish_told;
        self.finish_told |= now;
        now
    }

    pub(super) fn receive(&mut self, now: Duration, bytes: &[u8]) {
        assert_eq!(self.end, None, "bytes after the end");
        self.received.extend_from_slice(bytes);
        if self.received.len() > self.script.response_at {
            self.first_response.get_or_insert(now);
        }
    }

    fn may_write(&self) -> bool {
        self.script.app_closes_after.is_none_or(|limit| self.next_write < limit)
    }
}
