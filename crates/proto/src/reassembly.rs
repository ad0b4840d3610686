use alloc::vec::Vec;
use core::ops::Range;

use crate::error::Misfit;

/// Bytes of one stream that arrive in pieces, each placed by its offset.
///
/// The first byte written at an offset wins. A piece that disagrees with stored bytes is refused
/// whole, so that a forged datagram cannot mix with a genuine one. The capacity bounds the memory.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, Hash))]
pub(crate) struct Reassembly {
    capacity: usize,
    bytes: Vec<u8>,
    /// Filled ranges: sorted, disjoint, not touching.
    filled: Vec<Range<usize>>,
}

impl Reassembly {
    /// Creates an empty stream of at most `capacity` bytes.
    pub(crate) const fn new(capacity: usize) -> Self {
        Self { capacity, bytes: Vec::new(), filled: Vec::new() }
    }

    /// Stores `piece` at `offset`.
    ///
    /// # Errors
    /// [`Misfit::TooFar`] beyond the capacity, [`Misfit::Conflict`] if bytes differ; stores nothing
    /// then.
    pub(crate) fn insert(&mut self, offset: usize, piece: &[u8]) -> Result<(), Misfit> {
        let range = self.range_of(offset, piece)?;
        if range.is_empty() {
            return Ok(());
        }
        // W-STREAM-2
        if self.conflicts(&range, piece) {
            return Err(Misfit::Conflict);
        }
        self.write(&range, piece);
        self.mark(range);
        Ok(())
    }

    /// Returns the bytes from the start of the stream to the first gap.
    pub(crate) fn prefix(&self) -> &[u8] {
        let end = self.filled.first().filter(|range| range.start == 0).map_or(0, |range| range.end);
        self.bytes.get(..end).unwrap_or_default()
    }

    /// Returns the bytes of memory held for the stream.
    #[cfg(test)]
    pub(crate) fn allocated(&self) -> usize {
        self.bytes.capacity()
    }

    /// Returns true if `stream` contains everything stored, at the same offsets.
    pub(crate) fn is_part_of(&self, stream: &[u8]) -> bool {
        self.filled.iter().all(|range| {
            stream
                .get(range.clone())
                .is_some_and(|bytes| self.bytes.get(range.clone()) == Some(bytes))
        })
    }

    fn range_of(&self, offset: usize, piece: &[u8]) -> Result<Range<usize>, Misfit> {
        let end = offset.checked_add(piece.len()).ok_or(Misfit::TooFar)?;
        if end > self.capacity { Err(Misfit::TooFar) } else { Ok(offset..end) }
    }

    fn conflicts(&self, range: &Range<usize>, piece: &[u8]) -> bool {
        self.filled.iter().any(|filled| {
            let common = filled.start.max(range.start)..filled.end.min(range.end);
            let new =
                common.start.saturating_sub(range.start)..common.end.saturating_sub(range.start);
            !common.is_empty() && self.bytes.get(common) != piece.get(new)
        })
    }

    fn write(&mut self, range: &Range<usize>, piece: &[u8]) {
        if self.bytes.len() < range.end {
            // Exact, or the vector may grow to twice the capacity.
            self.bytes.reserve_exact(range.end - self.bytes.len());
            self.bytes.resize(range.end, 0);
        }
        if let Some(place) = self.bytes.get_mut(range.clone()) {
            place.copy_from_slice(piece);
        }
    }

    fn mark(&mut self, mut range: Range<usize>) {
        self.filled.retain(|filled| {
            let apart = filled.end < range.start || range.end < filled.start;
            if !apart {
                range = range.start.min(filled.start)..range.end.max(filled.end);
            }
            apart
        });
        let place = self.filled.partition_point(|filled| filled.start < range.start);
        self.filled.insert(place, range);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_in_any_order_make_the_stream() {
        let mut stream = Reassembly::new(9);
        stream.insert(6, b"ghi").unwrap();
        assert_eq!(stream.prefix(), b"");
        stream.insert(0, b"abc").unwrap();
        assert_eq!(stream.prefix(), b"abc");
        stream.insert(2, b"cdefg").unwrap();
        assert_eq!(stream.prefix(), b"abcdefghi");
    }

    // W-STREAM-2
    #[test]
    fn a_piece_that_disagrees_is_refused_whole() {
        let mut stream = Reassembly::new(9);
        stream.insert(3, b"def").unwrap();
        assert_eq!(stream.insert(0, b"abcX"), Err(Misfit::Conflict));
        assert_eq!(stream.insert(5, b"Xgh"), Err(Misfit::Conflict));
        assert_eq!(stream.prefix(), b"");
        stream.insert(0, b"abcd").unwrap();
        assert_eq!(stream.prefix(), b"abcdef");
    }

    #[test]
    fn stored_bytes_are_part_of_their_own_stream_only() {
        let mut stream = Reassembly::new(9);
        assert!(stream.is_part_of(b""));
        stream.insert(3, b"def").unwrap();
        assert!(stream.is_part_of(b"abcdef") && stream.is_part_of(b"xyzdefghi"));
        assert!(!stream.is_part_of(b"abcde") && !stream.is_part_of(b"abcdex"));
    }

    #[test]
    fn capacity_is_inclusive() {
        let mut stream = Reassembly::new(4);
        assert_eq!(stream.insert(1, b"abcd"), Err(Misfit::TooFar));
        assert_eq!(stream.insert(usize::MAX, b"a"), Err(Misfit::TooFar));
        assert_eq!(stream.insert(0, b"abcd"), Ok(()));
        assert_eq!(stream.insert(4, b""), Ok(()));
        assert_eq!(stream.prefix(), b"abcd");
    }
}
