//! A bounded memory of the last seconds.

use alloc::collections::{BTreeMap, VecDeque};

use crate::limits::{HELLO_MEMORY, RECENT_ENTRIES};
use crate::time::Instant;

/// A map that forgets entries [`HELLO_MEMORY`] after they were written, or when they are the oldest
/// of more than [`RECENT_ENTRIES`].
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, Hash))]
pub(super) struct Recent<K, V> {
    entries: BTreeMap<K, (Instant, V)>,
    /// Entries in order of time; one written again or forgotten leaves a stale one here.
    order: VecDeque<(Instant, K)>,
    /// Time at which the last entry would have expired that was forgotten early.
    complete_from: Instant,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), order: VecDeque::new(), complete_from: Instant::ZERO }
    }
}

impl<K: Copy + Ord, V> Recent<K, V> {
    pub(super) fn insert(&mut self, now: Instant, key: K, value: V) {
        self.expire(now);
        if self.order.len() >= RECENT_ENTRIES
            && let Some(written) = self.drop_oldest()
        {
            self.complete_from = written + HELLO_MEMORY;
        }
        self.order.push_back((now, key));
        self.entries.insert(key, (now, value));
    }

    pub(super) fn get(&self, now: Instant, key: &K) -> Option<&V> {
        let (written, value) = self.entries.get(key)?;
        (now < *written + HELLO_MEMORY).then_some(value)
    }

    /// Returns true unless an entry that is still due was forgotten early.
    pub(super) fn is_complete(&self, now: Instant) -> bool {
        self.complete_from <= now
    }

    pub(super) fn forget(&mut self, key: &K) {
        self.entries.remove(key);
    }

    pub(super) fn expire(&mut self, now: Instant) {
        while self.order.front().is_some_and(|(written, _)| *written + HELLO_MEMORY <= now) {
            self.drop_oldest();
        }
    }

    /// Returns when the entry that was dropped was written; `None` if it had been rewritten or
    /// forgotten before.
    fn drop_oldest(&mut self) -> Option<Instant> {
        let (written, key) = self.order.pop_front()?;
        self.entries.get(&key).filter(|(last, _)| *last == written)?;
        self.entries.remove(&key);
        Some(written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    #[test]
    fn entries_expire() {
        let mut recent = Recent::default();
        recent.insert(Instant::ZERO, 1, 'a');
        let end = Instant::ZERO + HELLO_MEMORY;
        assert_eq!(recent.get(end - Duration::from_nanos(1), &1), Some(&'a'));
        assert_eq!(recent.get(end, &1), None);
        recent.expire(end - Duration::from_nanos(1));
        assert_eq!(recent.entries.len(), 1);
        recent.expire(end);
        assert_eq!(
            (recent.entries.len(), recent.order.len()),
            (0, 0),
            "they do not stay in memory"
        );
    }

    #[test]
    fn rewriting_an_entry_renews_it() {
        let mut recent = Recent::default();
        recent.insert(Instant::ZERO, 1, 'a');
        let later = Instant::ZERO + Duration::from_secs(6);
        recent.insert(later, 1, 'b');
        recent.expire(Instant::ZERO + HELLO_MEMORY);
        assert_eq!(recent.get(Instant::ZERO + HELLO_MEMORY, &1), Some(&'b'));
    }

    fn at(number: usize) -> Instant {
        Instant::ZERO + Duration::from_micros(number as u64)
    }

    #[test]
    fn one_over_the_limit_evicts_the_oldest() {
        let mut recent = Recent::default();
        (0..RECENT_ENTRIES).for_each(|n| recent.insert(at(n), n, ()));
        assert!(recent.get(at(RECENT_ENTRIES), &0).is_some());
        assert!(recent.is_complete(at(RECENT_ENTRIES)));
        recent.insert(at(RECENT_ENTRIES), RECENT_ENTRIES, ());
        assert!(recent.get(at(RECENT_ENTRIES), &0).is_none());
        let due = at(0) + HELLO_MEMORY;
        assert!(!recent.is_complete(at(RECENT_ENTRIES)) && recent.is_complete(due));
        assert_eq!(recent.entries.len(), RECENT_ENTRIES);
        assert_eq!(recent.order.len(), RECENT_ENTRIES);
    }
}
