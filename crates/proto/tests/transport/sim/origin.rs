//! One connection at the origin: a TLS server as far as a transport can tell.

use std::time::Duration;

use super::{End, Script};

#[derive(Debug, Default)]
pub(super) struct Origin {
    script: Script,
    pub(super) received: Vec<u8>,
    input_finished: bool,
    next_emission: usize,
    due: Option<Duration>,
    pending: Vec<u8>,
    written: usize,
    end_told: bool,
    pub(super) closed: bool,
}

impl Origin {
    pub(super) fn new(script: Script) -> Self {
        Self { script, ..Self::default() }
    }

    pub(super) fn got_hello(&self) -> bool {
        self.script.hello > 0 && self.received.len() >= self.script.hello
    }

    pub(super) fn receive(&mut self, now: Duration, bytes: &[u8]) {
        self.received.extend_from_slice(bytes);
        self.think(now);
    }

    pub(super) fn finish_input(&mut self) {
        self.input_finished = true;
    }

    /// Returns the time at which it writes next, if nothing more arrives.
    pub(super) fn next_due(&self) -> Option<Duration> {
        self.due.filter(|_| !self.closed && !self.end_told)
    }

    pub(super) fn think(&mut self, now: Duration) {
        while let Some(emission) = self.script.emissions.get(self.next_emission)
            && emission.after_client <= self.received.len()
        {
            let due = *self.due.get_or_insert(now + emission.think);
            if due > now {
                return;
            }
            self.pending.extend_from_slice(&emission.bytes);
            self.next_emission += 1;
            self.due = None;
        }
    }

    /// Returns the bytes it writes now, without taking them.
    pub(super) fn peek(&self) -> &[u8] {
        let limit = self
            .script
            .origin_ends
            .map_or(usize::MAX, |(bytes, _)| bytes.saturating_sub(self.written));
        let count = limit.min(self.script.origin_chunk).min(self.pending.len());
        if self.closed { &[] } else { &self.pending[..count] }
    }

    pub(super) fn take(&mut self, count: usize) {
        self.pending.drain(..count);
        self.written += count;
    }

    /// Returns once the end of its stream, after the bytes taken.
    pub(super) fn ends(&mut self) -> Option<End> {
        let scripted = self
            .script
            .origin_ends
            .filter(|(bytes, _)| self.got_hello() && self.written >= *bytes)
            .map(|(_, end)| end);
        let quiet = self.pending.is_empty() && self.due.is_none();
        let spoken = (quiet && self.input_finished).then_some(End::Finished);
        let end = scripted.or(spoken).filter(|_| !self.end_told && !self.closed)?;
        self.end_told = true;
        Some(end)
    }
}
