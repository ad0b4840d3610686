use crate::limits::LABEL_MAX;

/// Owner of a connection: a user of this machine, and the part that this user keeps apart.
///
/// Nothing that a server could recognize is shared between two contexts. The user comes first,
/// always: a label is the caller's own word, and can only divide what is the user's anyway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Context {
    /// The user, as the kernel says; where it cannot, nothing is shared with any other connection.
    pub uid: Option<u32>,
    /// The user's name for it, such as a SOCKS5 user name; a context of its own without one, too.
    pub label: Option<String>,
}

impl Context {
    /// Context of a connection whose owner nobody knows.
    pub const UNKNOWN: Self = Self { uid: None, label: None };

    /// The context of a user who makes no difference.
    #[must_use]
    pub const fn user(uid: u32) -> Self {
        Self { uid: Some(uid), label: None }
    }

    /// Returns true if two connections of this context may share anything.
    ///
    /// Not if the user is unknown, or the label longer than [`LABEL_MAX`].
    #[must_use]
    pub fn is_shared(&self) -> bool {
        let label = self.label.as_ref().map_or(0, String::len);
        self.uid.is_some() && label <= LABEL_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_user_shares_nothing_whatever_it_calls_itself() {
        assert!(!Context::UNKNOWN.is_shared());
        assert!(!Context { uid: None, label: Some("alice".into()) }.is_shared());
        assert!(Context::user(0).is_shared());
    }

    #[test]
    fn labels_at_the_limit_and_one_over() {
        let label = |length| Context { label: Some("x".repeat(length)), ..Context::user(1) };
        assert!(label(LABEL_MAX).is_shared());
        assert!(!label(LABEL_MAX + 1).is_shared());
    }

    #[test]
    fn a_label_makes_another_context() {
        let labelled = |label: &str| Context { label: Some(label.into()), ..Context::user(1) };
        assert_ne!(Context::user(1), Context::user(2));
        assert_ne!(Context::user(1), labelled(""));
        assert_ne!(labelled("a"), labelled("b"));
    }
}
