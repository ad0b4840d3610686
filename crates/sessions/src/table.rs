use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// A small table for all users of a machine: the user with most entries gives way first.
#[derive(Debug)]
pub(crate) struct Table<K, V> {
    rows: HashMap<K, Row<V>>,
    /// Counts uses, to know what was not used for longest.
    uses: u64,
}

#[derive(Debug)]
struct Row<V> {
    value: V,
    used: u64,
}

/// A key that says whose its row is.
pub(crate) trait Owned: Clone + Eq + Hash {
    /// The user; none if nobody knows.
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

    /// The same, without counting as a use.
    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.rows.get_mut(key).map(|row| &mut row.value)
    }

    /// The value of `key`, which counts as used with this.
    pub(crate) fn use_row(&mut self, key: &K) -> Option<&mut V> {
        self.uses += 1;
        let row = self.rows.get_mut(key)?;
        row.used = self.uses;
        Some(&mut row.value)
    }

    /// The same, made if there is none.
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

    /// The row that has to give way if `user` is to have `adds` more of what is scarce, of which
    /// `weigh` says how much a row takes: of the user who would then have most, the row not used
    /// for longest.
    ///
    /// So nobody loses anything who has no more than an even share. None if that user is `user`,
    /// and has nothing yet.
    pub(crate) fn first_to_go(
        &self,
        user: Option<u32>,
        adds: usize,
        weigh: impl Fn(&V) -> usize,
    ) -> Option<K> {
        // All rows are looked through, so what is done with each is little: there are few users.
        let mut shares = BTreeMap::from([(user, adds)]);
        for (key, row) in &self.rows {
            *shares.entry(key.user()).or_default() += weigh(&row.value);
        }
        let most = shares.values().copied().max().unwrap_or_default();
        shares.retain(|_, share| *share == most);
        let has_most = |key: &K| shares.contains_key(&key.user());
        let rows = self.rows.iter().filter(|(key, row)| weigh(&row.value) > 0 && has_most(key));
        rows.min_by_key(|(_, row)| row.used).map(|(key, _)| key.clone())
    }

    /// Makes room for one row more of `user` among `rows`, and says what had to give way.
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

    /// A row's user and number.
    type Numbered = (Option<u32>, u32);

    impl Owned for Numbered {
        fn user(&self) -> Option<u32> {
            self.0
        }
    }

    /// Rows of users, used in this order, with weights.
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
    fn who_has_most_gives_way() {
        let table = table(&[(1, 1, 5), (2, 1, 3), (2, 2, 3)]);
        assert_eq!(first_to_go(&table, 3, 1), Some((Some(2), 1)));
        assert_eq!(first_to_go(&table, 1, 1), Some((Some(1), 1)), "as much, and used before");
        assert_eq!(first_to_go(&table, 1, 2), Some((Some(1), 1)));
    }

    #[test]
    fn of_one_user_what_was_not_used_for_longest() {
        let mut table = table(&[(1, 1, 1), (1, 2, 1), (1, 3, 1)]);
        assert!(table.use_row(&(Some(1), 1)).is_some());
        assert_eq!(first_to_go(&table, 1, 1), Some((Some(1), 2)));
        table.use_or_insert((Some(1), 2), || 7);
        assert_eq!(first_to_go(&table, 1, 1), Some((Some(1), 3)));
    }

    #[test]
    fn rows_without_any_of_what_is_scarce_stay() {
        let table = table(&[(1, 1, 0), (1, 2, 9)]);
        assert_eq!(first_to_go(&table, 2, 1), Some((Some(1), 2)));
    }

    #[test]
    fn who_alone_wants_more_than_all_others_have_displaces_nobody() {
        let table = table(&[(1, 1, 5)]);
        assert_eq!(first_to_go(&table, 2, 6), None);
        assert_eq!(first_to_go(&table, 2, 5), Some((Some(1), 1)));
    }

    #[test]
    fn rows_at_the_limit_and_one_over() {
        let mut table = table(&[(1, 1, 7), (1, 2, 8)]);
        assert_eq!(table.make_room(Some(2), 3), None);
        assert_eq!(table.make_room(Some(2), 2), Some(7));
        assert_eq!(table.len(), 1);
    }
}
