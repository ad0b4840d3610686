//! Addresses of clients, as proven by TCP.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

/// The client's address as proven by TCP, once there is one.
///
/// Shared with the stream, for callers that have given the stream away: before the join, an origin
/// must not be told the address of the client's datagrams, because anyone can forge it.
#[derive(Clone, Debug, Default)]
pub struct ProvenAddr(Arc<OnceLock<(SocketAddr, ProvenBy)>>);

/// First bytes of the TCP connection that proves an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProvenBy {
    /// A join: the client has gone on over TCP.
    Join,
    /// The stream from its start: what came over UDP has saved the client nothing.
    Start,
}

impl ProvenAddr {
    /// Returns the client's address on TCP; with TurboTLS, `None` before the join.
    #[must_use]
    pub fn get(&self) -> Option<SocketAddr> {
        self.0.get().map(|(address, _)| *address)
    }

    /// Returns what TCP began with.
    #[must_use]
    pub fn by(&self) -> Option<ProvenBy> {
        self.0.get().map(|(_, by)| *by)
    }

    pub(crate) fn set(&self, address: SocketAddr, by: ProvenBy) {
        // At most one TCP connection carries a stream, so the first address is the only one.
        let _ = self.0.set((address, by));
    }
}
