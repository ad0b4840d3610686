use std::collections::HashSet;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use headstart_net::Context;
use headstart_sessions::{Counts, SessionStore, Sharing};

use super::limits::FOP_NAMES;

/// What the agent keeps of all connections that it spoke TLS on, for as long as it runs; reloads change nothing.
#[derive(Default)]
pub(in crate::agent) struct Known {
    store: Mutex<SessionStore>,
    /// Names whose servers take Fast Open cookies: only these are asked for some.
    takes_cookies: Mutex<HashSet<String>>,
}

impl Known {
    /// The sessions.
    pub(super) fn store(&self) -> MutexGuard<'_, SessionStore> {
        lock(&self.store)
    }

    /// Whose Fast Open cookies a connection that passes unchanged may spend: where the policy is that each is
    /// a context of its own, nobody's.
    pub(in crate::agent) fn context_of_cookies(&self, context: &Context) -> Context {
        match self.store().policy(context).sharing {
            Sharing::Isolate => Context::UNKNOWN,
            Sharing::Share | Sharing::ShareCertificate | Sharing::Off => context.clone(),
        }
    }

    pub(super) fn takes_cookies(&self, name: &str) -> bool {
        lock(&self.takes_cookies).contains(name)
    }

    /// Notes whether the servers of `name` take cookies. Where there are too many names, all begin anew.
    pub(super) fn note_cookies(&self, name: &str, takes: bool) {
        let mut names = lock(&self.takes_cookies);
        if !takes {
            names.remove(name);
        } else if !names.contains(name) {
            if names.len() >= FOP_NAMES {
                names.clear();
            }
            names.insert(name.to_owned());
        }
    }

    /// Wipes what is over, and says what there is.
    pub(in crate::agent) fn tidy(&self) -> Counts {
        let mut store = self.store();
        store.expire(Instant::now());
        store.counts()
    }
}

impl fmt::Debug for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Known").field("counts", &self.store().counts()).finish_non_exhaustive()
    }
}

/// What a panicking thread left in them is as good: the store finishes each of its changes.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_at_the_limit_and_one_over() {
        let known = Known::default();
        for number in 0..FOP_NAMES {
            known.note_cookies(&number.to_string(), true);
        }
        assert!(known.takes_cookies("0"));
        known.note_cookies("one more", true);
        assert!(known.takes_cookies("one more") && !known.takes_cookies("0"));
        known.note_cookies("one more", false);
        assert!(!known.takes_cookies("one more"));
    }
}
