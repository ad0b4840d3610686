use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts the connections of each user, so that none takes them all.
#[derive(Debug)]
pub(super) struct Users {
    each: usize,
    taken: Mutex<HashMap<Option<u32>, usize>>,
}

/// The place of one connection; free again when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    users: Arc<Users>,
    user: Option<u32>,
}

impl Users {
    /// At most `each` connections for a user, and for all together whom nobody knows.
    pub(super) fn new(each: usize) -> Arc<Self> {
        Arc::new(Self { each, taken: Mutex::default() })
    }

    /// A place for a connection of `user`, if it has not all of its own.
    pub(super) fn place(self: &Arc<Self>, user: Option<u32>) -> Option<Place> {
        let mut all = self.lock();
        let taken = all.entry(user).or_default();
        if *taken >= self.each {
            return None;
        }
        *taken += 1;
        Some(Place { users: Arc::clone(self), user })
    }

    /// Counting cannot be left half done.
    fn lock(&self) -> MutexGuard<'_, HashMap<Option<u32>, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut all = self.users.lock();
        if let Some(taken) = all.get_mut(&self.user) {
            *taken -= 1;
            if *taken == 0 {
                all.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_its_own_places() {
        let users = Users::new(2);
        let places = [users.place(Some(1)), users.place(Some(1))];
        assert!(places.iter().all(Option::is_some));
        assert!(users.place(Some(1)).is_none(), "one over");
        let _other = users.place(Some(2)).unwrap();
        let _unknown = [users.place(None).unwrap(), users.place(None).unwrap()];
        assert!(users.place(None).is_none(), "all who are unknown are one");
        drop(places);
        assert!(users.place(Some(1)).is_some());
        assert!(!users.lock().contains_key(&Some(1)), "nothing is left of who is gone");
    }
}
