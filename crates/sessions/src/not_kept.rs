use std::fmt;

/// Reason why a cookie or a ticket was not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NotKept {
    /// The context shares nothing.
    Context,
    /// The host name is empty or too long.
    Host,
    /// It expires too soon to be used.
    Lifetime,
    /// The machine has moved to another network.
    Network,
    /// It is already in the store, or was spent.
    Known,
    /// The context's policy forbids it.
    Policy,
    /// Its context was forgotten after the connection began.
    Forgotten,
    /// It is empty or too long.
    Size,
    /// Its application protocol was not offered, or the offer is too long.
    Alpn,
    /// There is no room, except by evicting users who have less.
    Full,
}

impl fmt::Display for NotKept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Context => "nothing is shared in this context",
            Self::Host => "the host name is empty or too long",
            Self::Lifetime => "it ends too soon",
            Self::Network => "it is from another network",
            Self::Known => "it is not new",
            Self::Policy => "the policy of its context is to keep nothing",
            Self::Forgotten => "its context was forgotten meanwhile",
            Self::Size => "it is empty or too long",
            Self::Alpn => "its application protocol does not fit",
            Self::Full => "its user has no room left",
        })
    }
}

impl std::error::Error for NotKept {}
