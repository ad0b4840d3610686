use crate::limits::LABEL_MAX;

/// Owner of a connection: a user of this machine, and a label by which that user separates traffic.
///
/// Two contexts share nothing that a server could recognize. The user always counts: a label comes
/// from the caller, and can only subdivide that user's data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Context {
    /// The user, from the kernel; if it is unknown, the connection shares nothing with any other.
    pub uid: Option<u32>,
    /// The user's own label, such as a SOCKS5 user name; no label is a context of its own too.
    pub label: Option<String>,
}

impl Context {
    /// The context of a connection with an unknown user.
    pub const UNKNOWN: Self = Self { uid: None, label: None };

    /// Returns the context of a user without a label.
    #[must_use]
    pub const fn user(uid: u32) -> Self {
        Self { uid: Some(uid), label: None }
    }

    /// Returns true if two connections of this context may share anything.
    ///
    /// They may not if the user is unknown, or the label longer than [`LABEL_MAX`].
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
    fn an_unknown_user_shares_nothing_with_any_label() {
        assert!(!Context::UNKNOWN.is_shared());
        assert!(!Context { uid: None, label: Some("alice".into()) }.is_shared());
        assert!(Context::user(0).is_shared());
    }

    fn labelled(label: &str) -> Context {
        Context { label: Some(label.into()), ..Context::user(1) }
    }

    #[test]
    fn limits_the_length_of_labels() {
        assert!(labelled(&"x".repeat(LABEL_MAX)).is_shared());
        assert!(!labelled(&"x".repeat(LABEL_MAX + 1)).is_shared());
    }

    #[test]
    fn a_label_makes_another_context() {
        assert_ne!(Context::user(1), Context::user(2));
        assert_ne!(Context::user(1), labelled(""));
        assert_ne!(labelled("a"), labelled("b"));
    }
}
