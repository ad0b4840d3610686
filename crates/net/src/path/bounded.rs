//! A map of bounded size that evicts the least recently used entry.

use std::{collections::HashMap, hash::Hash};

/// A user of this machine; users that the kernel does not identify count as one.
pub(crate) type User = Option<u32>;

/// At most `capacity` entries; inserting one more evicts the least recently used entry of the user
/// with the most entries.
///
/// Eviction takes two passes over all entries: some ten microseconds for a thousand entries, and
/// only for a new key.
#[derive(Debug)]
pub(crate) struct Bounded<K, V> {
    entries: HashMap<K, Entry<V>>,
    capacity: usize,
    clock: u64,
    owner: fn(&K) -> User,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    used: u64,
}

impl<K: Hash + Eq + Clone, V> Bounded<K, V> {
    /// Creates a map whose entries belong to no user.
    pub(crate) fn new(capacity: usize) -> Self {
        Self::shared(capacity, |_| None)
    }

    /// Creates a map that users share: a user with many entries displaces its own first.
    pub(super) fn shared(capacity: usize, owner: fn(&K) -> User) -> Self {
        Self { entries: HashMap::new(), capacity, clock: 0, owner }
    }

    pub(crate) fn get(&mut self, key: &K) -> Option<&mut V> {
        self.clock += 1;
        let entry = self.entries.get_mut(key)?;
        entry.used = self.clock;
        Some(&mut entry.value)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
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

    pub(crate) fn remove(&mut self, key: &K) {
        self.entries.remove(key);
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&K, &V) -> bool) {
        self.entries.retain(|key, entry| keep(key, &entry.value));
    }

    fn make_room(&mut self, key: &K) {
        if self.entries.len() < self.capacity || self.entries.contains_key(key) {
            return;
        }
        let mut owned: HashMap<User, usize> = HashMap::from([((self.owner)(key), 1)]);
        for known in self.entries.keys() {
            *owned.entry((self.owner)(known)).or_default() += 1;
        }
        let most = owned.values().copied().max().unwrap_or_default();
        let entries = self.entries.iter();
        let oldest = entries
            .filter(|(known, _)| owned.get(&(self.owner)(known)) == Some(&most))
            .min_by_key(|(_, entry)| entry.used);
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
    fn the_least_recently_used_entry_is_evicted() {
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

    /// Returns the numbers of a user's entries, and uses them.
    fn kept(map: &mut Bounded<(User, u8), ()>, user: User) -> Vec<u8> {
        (1..=9).filter(|number| map.get(&(user, *number)).is_some()).collect()
    }

    #[test]
    fn the_user_with_most_entries_loses_its_least_recently_used() {
        let mut map = Bounded::shared(4, |(user, _): &(User, u8)| *user);
        let (many, few) = (Some(666), Some(1000));
        map.insert((few, 1), ());
        for number in 1..=9 {
            map.insert((many, number), ());
        }
        assert_eq!((kept(&mut map, many), kept(&mut map, few)), (vec![7, 8, 9], vec![1]));
        // A new user gets an entry in a full map, and so does a user with no more entries than
        // others: the least recently used entry goes.
        map.insert((None, 1), ());
        map.insert((few, 2), ());
        assert_eq!((kept(&mut map, few), kept(&mut map, None)), (vec![1, 2], vec![1]));
        assert_eq!(kept(&mut map, many), [9]);
        // The user with the most entries, counting the new one, loses one.
        map.insert((few, 3), ());
        assert_eq!(kept(&mut map, few), [2, 3]);
        assert_eq!((kept(&mut map, None), kept(&mut map, many)), (vec![1], vec![9]));
    }

    proptest! {
        #[test]
        fn never_above_its_capacity(
            keys in prop::collection::vec(0u8..20, 0..100),
            cap in 1usize..8,
        ) {
            let mut map = Bounded::new(cap);
            for key in keys {
                *map.get_or_default(key) = key;
                prop_assert!(map.entries.len() <= cap);
                prop_assert_eq!(map.get(&key), Some(&mut key.clone()));
            }
        }
    }
}
