use core::fmt;

use sha2::{Digest, Sha256};
use zeroize::Zeroize;

/// Length of a session id, in bytes.
pub(crate) const SESSION_ID_LEN: usize = 12;
/// Length of a join key, in bytes.
pub(crate) const JOIN_KEY_LEN: usize = 16;
/// Length of a route tag, in bytes.
pub(crate) const ROUTE_TAG_LEN: usize = 4;

/// The secret of one session: 16 random bytes that appear only in the join.
///
/// The client that presents it on TCP owns the session, so an observer of the datagrams cannot join
/// first.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub struct JoinKey([u8; JOIN_KEY_LEN]);

impl JoinKey {
    /// Creates a key from `bytes`, which must come from a cryptographic random generator.
    #[must_use]
    pub const fn new(bytes: [u8; JOIN_KEY_LEN]) -> Self {
        Self(bytes)
    }

    /// Returns the public name of the session: the first 12 bytes of SHA-256 of the key.
    #[must_use]
    pub fn session_id(&self) -> SessionId {
        // W-ID-2
        SessionId(first(&Sha256::digest(self.0)))
    }

    pub(crate) const fn as_bytes(&self) -> &[u8; JOIN_KEY_LEN] {
        &self.0
    }
}

impl Drop for JoinKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for JoinKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JoinKey(..)")
    }
}

/// Names a session in every datagram, 12 bytes as in the paper.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub [u8; SESSION_ID_LEN]);

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Identifies the start of the edge that answered; opaque to clients, zero if nothing answered.
///
/// In a fleet it tells the other edges which edge answered, see [`Routes`](crate::Routes).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RouteTag(pub [u8; ROUTE_TAG_LEN]);

/// Identifies a ClientHello for [`limits::HELLO_MEMORY`](crate::limits::HELLO_MEMORY): half of
/// SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct HelloHash([u8; 16]);

impl HelloHash {
    pub(crate) fn from_bytes(hello: &[u8]) -> Self {
        Self(first(&Sha256::digest(hello)))
    }
}

/// Returns the first `N` of the 32 bytes of a digest.
fn first<const N: usize>(digest: &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.iter_mut().zip(digest).for_each(|(to, from)| *to = *from);
    bytes
}
