use std::collections::BTreeMap;

use super::limits::{BYTES_AHEAD, PIECE};

/// The beginning of one direction of a TCP connection, put in order.
///
/// Of bytes that come twice the first count. Memory is at most [`BYTES_AHEAD`], with [`PIECE`] for
/// each segment beside its bytes: what does not fit while others before it are missing is dropped,
/// and the stream ends there unless it comes again.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// Sequence number of the next byte; `None` until known.
    next: Option<u32>,
    /// Bytes delivered so far.
    delivered: u64,
    /// Bytes that arrived out of order, by their offset in the stream.
    ahead: BTreeMap<u64, Vec<u8>>,
    kept: usize,
}

impl Stream {
    /// Sets where the stream begins; the first call counts.
    pub(crate) fn begin(&mut self, seq: u32) {
        self.next.get_or_insert(seq);
    }

    pub(crate) fn is_begun(&self) -> bool {
        self.next.is_some()
    }

    /// Returns the bytes of memory in use.
    pub(crate) fn kept(&self) -> usize {
        self.kept
    }

    /// Takes a segment; delivers the bytes that are now in order.
    pub(crate) fn push(&mut self, seq: u32, bytes: &[u8], mut deliver: impl FnMut(&[u8])) {
        let Some(next) = self.next else { return };
        let distance = seq.wrapping_sub(next).cast_signed();
        match u64::try_from(distance) {
            Ok(distance) if distance > 0 => self.keep(self.delivered + distance, bytes),
            _ => self.advance(bytes, distance.unsigned_abs(), &mut deliver),
        }
        while let Some((place, bytes)) = self.next_kept() {
            let known = u32::try_from(self.delivered - place).unwrap_or(u32::MAX);
            self.advance(&bytes, known, &mut deliver);
        }
    }

    fn keep(&mut self, place: u64, bytes: &[u8]) {
        let is_longer = self.ahead.get(&place).is_none_or(|kept| kept.len() < bytes.len());
        if bytes.is_empty() || !is_longer || self.kept + PIECE + bytes.len() > BYTES_AHEAD {
            return;
        }
        let replaced = self.ahead.insert(place, bytes.to_vec());
        self.kept = self.kept + PIECE + bytes.len() - replaced.map_or(0, |old| PIECE + old.len());
    }

    fn next_kept(&mut self) -> Option<(u64, Vec<u8>)> {
        let entry = self.ahead.first_entry().filter(|entry| *entry.key() <= self.delivered)?;
        let (place, bytes) = entry.remove_entry();
        self.kept -= PIECE + bytes.len();
        Some((place, bytes))
    }

    /// Delivers the bytes after the first `known`.
    fn advance(&mut self, bytes: &[u8], known: u32, deliver: &mut impl FnMut(&[u8])) {
        let new = usize::try_from(known).ok().and_then(|known| bytes.get(known..));
        let Some(new) = new.filter(|new| !new.is_empty()) else { return };
        deliver(new);
        self.delivered += new.len() as u64;
        // A packet is shorter than 2^32 bytes.
        let count = u32::try_from(new.len()).unwrap_or(u32::MAX);
        self.next = self.next.map(|next| next.wrapping_add(count));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn delivered(begin: u32, segments: &[(u32, &[u8])]) -> Vec<u8> {
        let mut stream = Stream::default();
        stream.begin(begin);
        let mut all = Vec::new();
        for (seq, bytes) in segments {
            stream.push(*seq, bytes, |bytes| all.extend_from_slice(bytes));
            assert_eq!(stream.delivered, all.len() as u64);
        }
        all
    }

    #[test]
    fn segments_are_put_in_order() {
        assert_eq!(delivered(10, &[(10, b"ab"), (12, b"cd")]), b"abcd");
        assert_eq!(delivered(10, &[(12, b"cd"), (10, b"ab")]), b"abcd");
        assert_eq!(delivered(10, &[(14, b"e"), (12, b"cd"), (10, b"ab")]), b"abcde");
        assert_eq!(delivered(10, &[(12, b"cd")]), b"");
    }

    #[test]
    fn retransmitted_bytes_count_once() {
        assert_eq!(delivered(10, &[(10, b"ab"), (10, b"xyz")]), b"abz");
        assert_eq!(delivered(10, &[(10, b"ab"), (9, b"-x")]), b"ab");
        assert_eq!(delivered(10, &[(12, b"cd"), (12, b"cdef"), (10, b"ab")]), b"abcdef");
        assert_eq!(delivered(10, &[(12, b"cdef"), (13, b"?"), (10, b"ab")]), b"abcdef");
    }

    #[test]
    fn sequence_numbers_begin_anew_after_the_last() {
        let last = u32::MAX;
        assert_eq!(delivered(last, &[(1, b"cd"), (last, b"ab")]), b"abcd");
        assert_eq!(delivered(last - 1, &[(last - 1, b"abcd"), (2, b"e")]), b"abcde");
    }

    #[test]
    fn before_its_beginning_is_known_nothing_is_kept() {
        let mut stream = Stream::default();
        stream.push(5, b"abc", |_| panic!("delivered"));
        assert!(!stream.is_begun());
        assert_eq!(stream.kept(), 0);
    }

    #[test]
    fn buffered_bytes_are_bounded() {
        let mut stream = Stream::default();
        stream.begin(0);
        let segment = vec![7; 1000];
        for at in 0..1000 {
            stream.push(1 + 1000 * at, &segment, |_| panic!("delivered"));
            assert!(stream.kept() <= BYTES_AHEAD);
        }
        assert!(stream.kept() > BYTES_AHEAD - PIECE - 1000);
        let mut count = 0;
        stream.push(0, b"x", |bytes| count += bytes.len());
        assert_eq!(count, 1 + BYTES_AHEAD / (PIECE + 1000) * 1000);
        assert_eq!(stream.kept(), 0);
    }

    #[test]
    fn small_segments_are_not_kept_for_nothing() {
        let mut stream = Stream::default();
        stream.begin(0);
        // Every other byte is missing: each of the others is a piece of its own.
        for at in 0..100_000 {
            stream.push(1 + 2 * at, b"x", |_| panic!("delivered"));
        }
        assert_eq!(stream.ahead.len(), BYTES_AHEAD / (PIECE + 1));
        assert!(stream.kept() <= BYTES_AHEAD);
    }

    proptest! {
        #[test]
        fn whatever_comes_is_a_prefix_and_kept_is_what_is_kept(
            begin: u32,
            cuts in prop::collection::vec((0usize..200, 1usize..60), 1..60),
        ) {
            let whole: Vec<u8> = (0..=255).collect();
            let mut stream = Stream::default();
            stream.begin(begin);
            let mut all = Vec::new();
            for (at, length) in cuts {
                let bytes = &whole[at..(at + length).min(whole.len())];
                let seq = begin.wrapping_add(u32::try_from(at).unwrap());
                stream.push(seq, bytes, |bytes| all.extend_from_slice(bytes));
                prop_assert!(whole.starts_with(&all));
                let kept: usize = stream.ahead.values().map(|bytes| PIECE + bytes.len()).sum();
                prop_assert_eq!(stream.kept(), kept);
            }
        }
    }
}
