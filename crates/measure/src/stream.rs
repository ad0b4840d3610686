//! One direction of a connection, put together from captured packets.

use std::collections::BTreeMap;

use headstart_proto::limits::CLIENT_BYTES;

/// The beginning of one direction, in pieces by offset.
#[derive(Debug, Default)]
pub(crate) struct Stream(BTreeMap<usize, Vec<u8>>);

impl Stream {
    /// Keeps the longer of two pieces that begin at one offset; none beyond [`CLIENT_BYTES`].
    pub(crate) fn keep(&mut self, offset: u32, bytes: &[u8]) {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        if bytes.is_empty() || offset >= CLIENT_BYTES {
            return;
        }
        let piece = self.0.entry(offset).or_default();
        if piece.len() < bytes.len() {
            *piece = bytes.to_vec();
        }
    }

    /// Number of pieces that begin at different offsets.
    pub(crate) fn pieces(&self) -> usize {
        self.0.len()
    }

    /// Returns the runs without holes, and where each begins.
    pub(crate) fn runs(&self) -> Vec<(usize, Vec<u8>)> {
        let mut runs: Vec<(usize, Vec<u8>)> = Vec::new();
        for (offset, piece) in &self.0 {
            match runs.last_mut() {
                Some((start, run)) if *offset <= *start + run.len() => {
                    let known = *start + run.len() - *offset;
                    run.extend_from_slice(piece.get(known..).unwrap_or_default());
                }
                _ => runs.push((*offset, piece.clone())),
            }
        }
        runs
    }

    /// The first run, if it is the stream's beginning.
    pub(crate) fn beginning(&self) -> Vec<u8> {
        let first = self.runs().into_iter().next();
        first.filter(|(start, _)| *start == 0).map(|(_, run)| run).unwrap_or_default()
    }
}
