//! Counts kept while recordings are read.

use serde::Serialize;

/// Numbers of connections by the version of TLS negotiated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Versions {
    /// TLS 1.3.
    pub tls13: u64,
    /// TLS 1.2.
    pub tls12: u64,
    /// TLS 1.1, 1.0, or SSL 3.0.
    pub older: u64,
    /// Unknown from the recording.
    pub unknown: u64,
}

/// Sizes of tickets, as they are counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TicketCount {
    pub(crate) offered: Sizes,
    pub(crate) in_clear: Sizes,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sizes {
    pub(super) count: u64,
    pub(super) bytes: u64,
    pub(super) largest: u64,
}
