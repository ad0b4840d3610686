use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Sessions kept by a client: two come with each connection, and one is taken; 1 kB each.
const KEPT_MAX: usize = 4096;

/// Sessions of earlier connections, or their tickets, each good for one more.
pub(crate) struct Kept<T>(Mutex<VecDeque<T>>);

impl<T> Kept<T> {
    pub(crate) fn put(&self, session: T) {
        let mut kept = self.lock();
        if kept.len() == KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back(session);
    }

    /// The newest: the others may be past their time.
    pub(crate) fn take(&self) -> Option<T> {
        self.lock().pop_back()
    }

    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    /// No call can leave the list half changed.
    fn lock(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> fmt::Debug for Kept<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} sessions", self.lock().len())
    }
}
