use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

/// The most recent tickets, as keyed hashes, so that none is kept twice.
///
/// Has two generations of `limit` each: when one is full, the previous one is forgotten.
#[derive(Debug)]
pub(super) struct Recent {
    current: HashSet<u64>,
    previous: HashSet<u64>,
    limit: usize,
    hasher: RandomState,
}

impl Recent {
    /// Remembers at least the last `limit` tickets.
    pub(super) fn new(limit: usize) -> Self {
        let hasher = RandomState::new();
        Self { current: HashSet::new(), previous: HashSet::new(), limit, hasher }
    }

    /// Returns the hash of a session.
    pub(super) fn mark(&self, session: &[u8]) -> u64 {
        self.hasher.hash_one(session)
    }

    /// Returns true if a session is remembered.
    pub(super) fn contains(&self, mark: u64) -> bool {
        self.current.contains(&mark) || self.previous.contains(&mark)
    }

    pub(super) fn note(&mut self, mark: u64) {
        if self.current.len() >= self.limit {
            self.previous = std::mem::take(&mut self.current);
        }
        self.current.insert(mark);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_least_the_last_ones_up_to_the_limit_are_known() {
        let mut recent = Recent::new(2);
        for mark in 0..4 {
            assert!(!recent.contains(mark));
            recent.note(mark);
        }
        assert!((0..4).all(|mark| recent.contains(mark)));
        recent.note(4);
        assert!(!recent.contains(0) && !recent.contains(1));
        assert!((2..5).all(|mark| recent.contains(mark)));
    }

    #[test]
    fn marks_differ_by_session_and_store() {
        let (one, other) = (Recent::new(2), Recent::new(2));
        assert_eq!(one.mark(b"session"), one.mark(b"session"));
        assert_ne!(one.mark(b"session"), one.mark(b"another"));
        assert_ne!(one.mark(b"session"), other.mark(b"session"));
    }
}
