//! Reasons why a name has no address.

use std::{fmt, io};

/// Reason why a name has no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DnsError {
    /// Not a host name: empty, too long, or with other characters than letters, digits, `-`, `_`.
    InvalidName,
    /// The name does not exist (NXDOMAIN).
    NoSuchName,
    /// The name exists and has no address.
    NoAddress,
    /// No name server answered in time.
    Timeout,
    /// The name servers answered with an error code, such as REFUSED or SERVFAIL.
    Refused,
    /// The answer could not be read.
    Malformed,
    /// No name server is known or can be reached.
    Unavailable,
    /// The name has addresses, and none that an [`AddressFilter`](super::AddressFilter) permits.
    NotPermitted,
}

impl fmt::Display for DnsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InvalidName => "not a host name",
            Self::NoSuchName => "no such name",
            Self::NoAddress => "the name has no address",
            Self::Timeout => "no answer from the name servers",
            Self::Refused => "the name servers refused to answer",
            Self::Malformed => "the answer could not be read",
            Self::Unavailable => "no name server can be reached",
            Self::NotPermitted => "the name leads only to addresses that names must not lead to",
        })
    }
}

impl std::error::Error for DnsError {}

impl From<DnsError> for io::Error {
    fn from(error: DnsError) -> Self {
        let kind = match error {
            DnsError::InvalidName => io::ErrorKind::InvalidInput,
            DnsError::NoSuchName | DnsError::NoAddress => io::ErrorKind::NotFound,
            DnsError::Timeout => io::ErrorKind::TimedOut,
            DnsError::Refused | DnsError::Malformed => io::ErrorKind::InvalidData,
            DnsError::Unavailable => io::ErrorKind::NetworkUnreachable,
            DnsError::NotPermitted => io::ErrorKind::PermissionDenied,
        };
        Self::new(kind, error)
    }
}
