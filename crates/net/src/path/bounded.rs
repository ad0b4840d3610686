//! A map of bounded size that forgets what was not used for longest.

use std::{collections::HashMap, hash::Hash};

/// At most `capacity` entries; inserting one more drops the least recently used.
///
/// Finding that one takes a walk over all: with a thousand entries some microseconds, and only
/// for a key that is new.
#[derive(Debug)]
pub(super) struct Bounded<K, V> {
    entries: HashMap<K, Entry<V>>,
    capacity: usize,
    clock: u64,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    used: u64,
}

impl<K: Hash + Eq + Clone, V> Bounded<K, V> {
    pub(super) fn new(capacity: usize) -> Self {
        Self { entries: HashMap::new(), capacity, clock: 0 }
    }

    pub(super) fn get(&mut self, key: &K) -> Option<&mut V> {
        self.clock += 1;
        let entry = self.entries.get_mut(key)?;
        entry.used = self.clock;
        Some(&mut entry.value)
    }

    pub(super) fn insert(&mut self, key: K, value: V) {
        self.make_room(&key);
        self.clock += 1;
        self.entries.insert(key, Entry { value, used: self.clock });
    }

    pub(super) fn get_or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        self.make_room(&key);
        self.clock += 1;
        let used = self.clock;
        let entry = self.entries.entry(key).or_insert_with(|| Entry { value: V::default(), used });
        entry.used = used;
        &mut entry.value
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&K) -> bool) {
        self.entries.retain(|key, _| keep(key));
    }

    fn make_room(&mut self, key: &K) {
        if self.entries.len() < self.capacity || self.entries.contains_key(key) {
            return;
        }
        let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used);
        if let Some(key) = oldest.map(|(key, _)| key.clone()) {
            self.entries.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn least_recently_used_gives_way() {
        let mut map = Bounded::new(2);
        map.insert(1, 'a');
        map.insert(2, 'b');
        map.get(&1);
        map.insert(3, 'c');
        assert_eq!(map.get(&2), None);
        assert_eq!(map.get(&1), Some(&mut 'a'));
        assert_eq!(map.get(&3), Some(&mut 'c'));
    }

    #[test]
    fn known_keys_displace_nothing() {
        let mut map = Bounded::new(2);
        map.insert(1, 'a');
        map.insert(2, 'b');
        map.insert(2, 'c');
        *map.get_or_default(1) = 'd';
        assert_eq!((map.get(&1).copied(), map.get(&2).copied()), (Some('d'), Some('c')));
    }

    proptest! {
        #[test]
        fn never_above_its_capacity(keys in prop::collection::vec(0u8..20, 0..100), cap in 1usize..8) {
            let mut map = Bounded::new(cap);
            for key in keys {
                *map.get_or_default(key) = key;
                prop_assert!(map.entries.len() <= cap);
                prop_assert_eq!(map.get(&key), Some(&mut key.clone()));
            }
        }
    }
}
