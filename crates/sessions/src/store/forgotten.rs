use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use crate::context::Context;
use crate::limits::FORGOTTEN;
use crate::origin::Whose;
use crate::ticket::Stamp;

/// Times at which contexts were last forgotten: connections open at that time bring nothing back.
///
/// Contexts are stored as keyed hashes, so that no label outlives its context here. If two collide,
/// or there are too many, more counts as forgotten than was: that costs a handshake.
#[derive(Debug, Default)]
pub(super) struct Forgotten {
    everybody: Stamp,
    some: HashMap<u64, Stamp>,
    hasher: RandomState,
}

impl Forgotten {
    pub(super) fn note(&mut self, whose: Whose<'_>, at: Stamp) {
        let hash = match whose {
            Whose::Everybody => None,
            Whose::User(user) => Some(self.user(user)),
            Whose::Context(context) => Some(self.context(context)),
        };
        match hash {
            Some(hash) if self.some.len() < FORGOTTEN || self.some.contains_key(&hash) => {
                self.some.insert(hash, at);
            }
            _ => {
                self.some.clear();
                self.everybody = at;
            }
        }
    }

    /// Returns true if `context` was forgotten after `stamp`.
    pub(super) fn is_since(&self, context: &Context, stamp: Stamp) -> bool {
        let hashes = [context.uid.map(|user| self.user(user)), Some(self.context(context))];
        let some = hashes.into_iter().flatten().filter_map(|hash| self.some.get(&hash));
        some.chain([&self.everybody]).any(|at| *at > stamp)
    }

    fn user(&self, user: u32) -> u64 {
        self.hasher.hash_one((0u8, user))
    }

    fn context(&self, context: &Context) -> u64 {
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
        assert!(forgotten.is_since(&labelled(0), Stamp(4)));
        assert!(!forgotten.is_since(&labelled(0), Stamp(5)));
        assert!(!forgotten.is_since(&Context::user(2), Stamp(4)));
        forgotten.note(Whose::Everybody, Stamp(7));
        assert!(forgotten.is_since(&Context::user(2), Stamp(6)));
    }

    #[test]
    fn beyond_the_limit_all_contexts_are_forgotten() {
        let mut forgotten = Forgotten::default();
        for label in 0..FORGOTTEN {
            forgotten.note(Whose::Context(&labelled(label)), Stamp(5));
        }
        let again = labelled(FORGOTTEN - 1);
        forgotten.note(Whose::Context(&again), Stamp(6));
        assert!(forgotten.is_since(&again, Stamp(5)) && forgotten.is_since(&labelled(0), Stamp(4)));
        assert!(!forgotten.is_since(&Context::user(2), Stamp(0)));
        forgotten.note(Whose::Context(&labelled(FORGOTTEN)), Stamp(7));
        for context in [labelled(0), again, labelled(FORGOTTEN), Context::user(2)] {
            assert!(forgotten.is_since(&context, Stamp(6)), "one more, and all count as forgotten");
        }
        assert!(!forgotten.is_since(&labelled(0), Stamp(7)));
    }
}
