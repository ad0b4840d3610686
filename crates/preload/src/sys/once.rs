//! Values that are made once and stay, without a lock: a lock held while the process forks would be
//! held in the child forever.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

pub(super) struct Published<T>(AtomicPtr<T>);

impl<T: Send + Sync + 'static> Published<T> {
    pub(super) const fn nothing() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    pub(super) fn get(&self) -> Option<&'static T> {
        // SAFETY: it is null, or a box that is never freed.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Returns the value, else what `make` makes: of several threads the first one's.
    pub(super) fn get_or(&self, make: impl FnOnce() -> T) -> &'static T {
        if let Some(found) = self.get() {
            return found;
        }
        let fresh = Box::into_raw(Box::new(make()));
        let before =
            self.0.compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire);
        // SAFETY: a published value is never freed, and no other thread has an unpublished one.
        unsafe {
            match before {
                Ok(_) => &*fresh,
                Err(found) => {
                    drop(Box::from_raw(fresh));
                    &*found
                }
            }
        }
    }
}
