//! Addresses of clients, as proven by TCP.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

/// The client's address as proven by TCP, once there is one.
///
/// Shared with the stream, for callers that have given the stream away: before the join, an origin
/// must not be told the address of the client's datagrams, because anyone can forge it.
#[derive(Clone, Debug, Default)]
pub struct ProvenAddr(Arc<OnceLock<SocketAddr>>);

impl ProvenAddr {
    /// Returns the client's address on TCP; with TurboTLS, `None` before the join.
    #[must_use]
    pub fn get(&self) -> Option<SocketAddr> {
        self.0.get().copied()
    }

    pub(crate) fn set(&self, address: SocketAddr) {
        // At most one TCP connection carries a stream, so the first address is the only one.
        let _ = self.0.set(address);
    }
}
