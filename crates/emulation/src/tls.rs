//! TLS as a box reads it: one direction of a TCP connection, from its segments.

use std::collections::BTreeMap;

use crate::ip::{SYN, Segment};

mod records;

#[cfg(test)]
pub(crate) use records::made;
pub(crate) use records::{Hello, Side};

use records::Records;

/// Segments that a connection may bring ahead of missing ones; what comes then is passed unread.
const AHEAD_MAX: usize = 64;

/// Stream of one end so far.
#[derive(Debug)]
pub(crate) struct Stream {
    /// The sequence number of the next byte to read, once it is known.
    due: Option<u32>,
    /// Bytes behind a gap, by their sequence numbers.
    ahead: BTreeMap<u32, Vec<u8>>,
    records: Records,
}

impl Stream {
    pub(crate) fn new(side: Side) -> Self {
        Self { due: None, ahead: BTreeMap::new(), records: Records::new(side) }
    }

    /// The Hello that it begins with, once it is read.
    pub(crate) fn hello(&self) -> Option<&Hello> {
        self.records.hello()
    }

    /// Takes a segment; false if what it completes is not TLS.
    pub(crate) fn take(&mut self, segment: &Segment, payload: &[u8]) -> bool {
        let is_syn = segment.flags & SYN != 0;
        let from = segment.seq.wrapping_add(u32::from(is_syn));
        let mut due = *self.due.get_or_insert(from);
        // Sequence numbers are compared modulo 2^32 (RFC 9293 section 3.4).
        let is_due = |due: u32, from: u32| due.wrapping_sub(from) < 1 << 31;
        if !payload.is_empty() && (is_due(due, from) || self.ahead.len() < AHEAD_MAX) {
            let known = self.ahead.entry(from).or_default();
            if known.len() < payload.len() {
                *known = payload.to_vec();
            }
        }
        let mut is_tls = true;
        while let Some((&from, _)) = self.ahead.iter().find(|(from, _)| is_due(due, **from)) {
            let bytes = self.ahead.remove(&from).unwrap_or_default();
            let known = usize::try_from(due.wrapping_sub(from)).unwrap_or(usize::MAX);
            let new = bytes.get(known..).unwrap_or_default();
            due = due.wrapping_add(u32::try_from(new.len()).unwrap_or_default());
            is_tls &= self.records.take(new);
        }
        self.due = Some(due);
        is_tls
    }
}
