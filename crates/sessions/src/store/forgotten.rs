use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use crate::context::Context;
use crate::limits::FORGOTTEN;
use crate::origin::Whose;
use crate::ticket::Stamp;

/// Times at which contexts were last forgotten: the store keeps no ticket from a connection that
/// was open then.
///
/// Contexts are stored as keyed hashes, so that no label outlives its context here. If two hashes
/// collide, or the table is full, contexts count as forgotten that were not: tickets of their open
/// connections are lost, which costs a full handshake.
#[derive(Debug, Default)]
pub(super) struct Forgotten {
    everybody: Stamp,
    by_hash: HashMap<u64, Stamp>,
    hasher: RandomState,
}

impl Forgotten {
    /// Notes that these contexts were forgotten at `at`; all, if there is no room for them.
    pub(super) fn note(&mut self, whose: Whose<'_>, at: Stamp) {
        let hash = match whose {
            Whose::Everybody => None,
            Whose::User(user) => Some(self.hash_user(user)),
            Whose::Context(context) => Some(self.hash_context(context)),
        };
        match hash {
            Some(hash) if self.by_hash.len() < FORGOTTEN || self.by_hash.contains_key(&hash) => {
                self.by_hash.insert(hash, at);
            }
            _ => {
                self.by_hash.clear();
                self.everybody = at;
            }
        }
    }

    /// Returns true if `context` was forgotten after `stamp`.
    pub(super) fn was_forgotten_since(&self, context: &Context, stamp: Stamp) -> bool {
        let user = context.uid.map(|user| self.hash_user(user));
        let hashes = user.into_iter().chain([self.hash_context(context)]);
        let mut times = hashes.filter_map(|hash| self.by_hash.get(&hash)).chain([&self.everybody]);
        times.any(|at| *at > stamp)
    }

    fn hash_user(&self, user: u32) -> u64 {
        self.hasher.hash_one((0u8, user))
    }

    fn hash_context(&self, context: &Context) -> u64 {
        self.hasher.hash_one((1u8, context))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labelled(label: usize) -> Context {
        Context { label: Some(label.to_string()), ..Context::user(1) }
    }

    #[test]
    fn forgetting_a_user_forgets_all_its_contexts() {
        let mut forgotten = Forgotten::default();
        forgotten.note(Whose::User(1), Stamp(5));
        assert!(forgotten.was_forgotten_since(&labelled(0), Stamp(4)));
        assert!(!forgotten.was_forgotten_since(&labelled(0), Stamp(5)));
        assert!(!forgotten.was_forgotten_since(&Context::user(2), Stamp(4)));
        forgotten.note(Whose::Everybody, Stamp(7));
        assert!(forgotten.was_forgotten_since(&Context::user(2), Stamp(6)));
    }

    #[test]
    fn beyond_the_limit_all_contexts_are_forgotten() {
        let mut forgotten = Forgotten::default();
        for label in 0..FORGOTTEN {
            forgotten.note(Whose::Context(&labelled(label)), Stamp(5));
        }
        let again = labelled(FORGOTTEN - 1);
        forgotten.note(Whose::Context(&again), Stamp(6));
        assert!(forgotten.was_forgotten_since(&again, Stamp(5)));
        assert!(forgotten.was_forgotten_since(&labelled(0), Stamp(4)));
        assert!(!forgotten.was_forgotten_since(&Context::user(2), Stamp(0)));
        forgotten.note(Whose::Context(&labelled(FORGOTTEN)), Stamp(7));
        for context in [labelled(0), again, labelled(FORGOTTEN), Context::user(2)] {
            assert!(forgotten.was_forgotten_since(&context, Stamp(6)), "one more, so all are");
        }
        assert!(!forgotten.was_forgotten_since(&labelled(0), Stamp(7)));
    }
}
