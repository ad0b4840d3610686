use std::fmt;

/// Reason why a cookie or a ticket was not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NotKept {
    /// Nothing is shared in this context.
    Context,
    /// There is no host of this name, or it is longer than one may be.
    Host,
    /// It ends too soon to be used.
    Lifetime,
    /// The machine is on another network by now.
    Network,
    /// It is here already, or was spent.
    Known,
    /// The context's policy says so.
    Policy,
    /// It is of a client that could show a certificate: nobody else may be taken for that.
    ClientCertificate,
    /// Its context or host was forgotten since the connection began.
    Forgotten,
    /// It is empty, or longer than a ticket may be.
    Size,
    /// Its application protocol was not offered, or too many were.
    Alpn,
    /// There is no room that could be made without taking it from users who have less.
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
            Self::ClientCertificate => "it stands for a client certificate",
            Self::Forgotten => "its context was forgotten meanwhile",
            Self::Size => "it is empty or too long",
            Self::Alpn => "its application protocol does not fit",
            Self::Full => "its user has no room left",
        })
    }
}

impl std::error::Error for NotKept {}
