use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// Bounded storage for all users of a machine, which evicts first from the user who has most.
#[derive(Debug)]
pub(crate) struct Table<K, V> {
    rows: HashMap<K, Row<V>>,
    /// Counts uses, to find the least recently used row.
    uses: u64,
}

#[derive(Debug)]
struct Row<V> {
    value: V,
    used: u64,
}

/// A key that names the owner of its row.
pub(crate) trait Owned: Clone + Eq + Hash {
    /// Returns the user; `None` if unknown.
    fn user(&self) -> Option<u32>;
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self { rows: HashMap::new(), uses: 0 }
    }
}

impl<K: Owned, V> Table<K, V> {
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.rows.get(key).map(|row| &row.value)
    }

    /// Returns the value mutably, without counting a use.
    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.rows.get_mut(key).map(|row| &mut row.value)
    }

    /// Returns the value of `key` and counts a use.
    pub(crate) fn use_row(&mut self, key: &K) -> Option<&mut V> {
        self.uses += 1;
        let row = self.rows.get_mut(key)?;
        row.used = self.uses;
        Some(&mut row.value)
    }

    /// Returns the value of `key`, created if missing, and counts a use.
    pub(crate) fn use_or_insert(&mut self, key: K, new: impl FnOnce() -> V) -> &mut V {
        self.uses += 1;
        let row = self.rows.entry(key).or_insert_with(|| Row { value: new(), used: 0 });
        row.used = self.uses;
        &mut row.value
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        self.rows.remove(key).map(|row| row.value)
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        self.rows.retain(|key, row| keep(key, &mut row.value));
    }

    pub(crate) fn clear(&mut self) {
        self.rows.clear();
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.rows.iter().map(|(key, row)| (key, &row.value))
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.rows.values().map(|row| &row.value)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.rows.values_mut().map(|row| &mut row.value)
    }

    /// Returns the row to evict if `user` is to get `adds` more of a scarce resource, of which
    /// `weigh` returns a row's amount: the least recently used row of the user who would then have
    /// most.
    ///
    /// So a user with no more than an even share loses nothing. Returns `None` if that user is
    /// `user`, and has nothing yet.
    pub(crate) fn first_to_go(
        &self,
        user: Option<u32>,
        adds: usize,
        weigh: impl Fn(&V) -> usize,
    ) -> Option<K> {
        // This visits all rows, so it does little for each: there are few users.
        let mut shares = BTreeMap::from([(user, adds)]);
        for (key, row) in &self.rows {
            *shares.entry(key.user()).or_default() += weigh(&row.value);
        }
        let most = shares.values().copied().max().unwrap_or_default();
        shares.retain(|_, share| *share == most);
        let rows = self
            .rows
            .iter()
            .filter(|(key, row)| weigh(&row.value) > 0 && shares.contains_key(&key.user()));
        rows.min_by_key(|(_, row)| row.used).map(|(key, _)| key.clone())
    }

    /// Makes room for one more row of `user` among `rows`, and returns the evicted value.
    pub(crate) fn make_room(&mut self, user: Option<u32>, rows: usize) -> Option<V> {
        if self.len() < rows {
            return None;
        }
        let key = self.first_to_go(user, 1, |_| 1)?;
        self.remove(&key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// User and number of a row.
    type Numbered = (Option<u32>, u32);

    impl Owned for Numbered {
        fn user(&self) -> Option<u32> {
            self.0
        }
    }

    /// Creates rows of users with weights, used in this order.
    fn table(rows: &[(u32, u32, usize)]) -> Table<Numbered, usize> {
        let mut table = Table::default();
        for &(user, number, weight) in rows {
            table.use_or_insert((Some(user), number), || weight);
        }
        table
    }

    fn first_to_go(table: &Table<Numbered, usize>, user: u32, adds: usize) -> Option<Numbered> {
        table.first_to_go(Some(user), adds, |weight| *weight)
    }

    #[test]
    fn the_user_with_most_is_evicted() {
        let table = table(&[(1, 1, 5), (2, 1, 3), (2, 2, 3)]);
        assert_eq!(first_to_go(&table, 3, 1), Some((Some(2), 1)));
        assert_eq!(
            first_to_go(&table, 1, 1),
            Some((Some(1), 1)),
            "the same amount, and used earlier"
        );
        assert_eq!(first_to_go(&table, 1, 2), Some((Some(1), 1)));
    }

    #[test]
    fn the_least_recently_used_row_of_a_user_is_evicted() {
        let mut table = table(&[(1, 1, 1), (1, 2, 1), (1, 3, 1)]);
        assert!(table.use_row(&(Some(1), 1)).is_some());
        assert_eq!(first_to_go(&table, 1, 1), Some((Some(1), 2)));
        table.use_or_insert((Some(1), 2), || 7);
        assert_eq!(first_to_go(&table, 1, 1), Some((Some(1), 3)));
    }

    #[test]
    fn rows_without_the_scarce_resource_stay() {
        let table = table(&[(1, 1, 0), (1, 2, 9)]);
        assert_eq!(first_to_go(&table, 2, 1), Some((Some(1), 2)));
    }

    #[test]
    fn a_user_who_wants_more_than_all_others_have_evicts_nobody() {
        let table = table(&[(1, 1, 5)]);
        assert_eq!(first_to_go(&table, 2, 6), None);
        assert_eq!(first_to_go(&table, 2, 5), Some((Some(1), 1)));
    }

    #[test]
    fn limits_rows() {
        let mut table = table(&[(1, 1, 7), (1, 2, 8)]);
        assert_eq!(table.make_room(Some(2), 3), None);
        assert_eq!(table.make_room(Some(2), 2), Some(7));
        assert_eq!(table.len(), 1);
    }
}
