use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

/// The tickets that came last, by keyed hashes, so that none is kept twice.
///
/// Two generations of a number each: when one is full, the one before is forgotten.
#[derive(Debug)]
pub(super) struct Recent {
    current: HashSet<u64>,
    previous: HashSet<u64>,
    limit: usize,
    hasher: RandomState,
}

impl Recent {
    /// Knows at least the last `limit` tickets.
    pub(super) fn new(limit: usize) -> Self {
        let hasher = RandomState::new();
        Self { current: HashSet::new(), previous: HashSet::new(), limit, hasher }
    }

    /// Returns the mark of a session.
    pub(super) fn mark(&self, session: &[u8]) -> u64 {
        self.hasher.hash_one(session)
    }

    /// Returns true if a session has come before, as far as that is remembered.
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
    fn the_last_ones_are_known_at_the_limit_and_one_over() {
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
    fn sessions_have_marks_of_their_own_in_each_store() {
        let (one, other) = (Recent::new(2), Recent::new(2));
        assert_eq!(one.mark(b"session"), one.mark(b"session"));
        assert_ne!(one.mark(b"session"), one.mark(b"another"));
        assert_ne!(one.mark(b"session"), other.mark(b"session"));
    }
}
