//! The variant of TurboTLS that ends its handshake over UDP: both ends export a key from it, and a
//! handshake of its own with this key begins on TCP, with the request as early data. Nothing else
//! is on TCP, from its first byte to its last, and where there is no key that handshake is a full
//! one.

mod client;
mod server;

use headstart_proto::SessionId;
use openssl::error::ErrorStack;
use openssl::ssl::SslRef;
use zeroize::Zeroizing;

pub(crate) use client::{Opened, PskClient, Ready};
pub(crate) use server::Keyring;

/// Label of the exporter; those without registration begin so (RFC 5705 section 4).
const LABEL: &str = "EXPERIMENTAL headstart psk";

/// Length of a key's name, in bytes.
const IDENTITY_LEN: usize = 16;

/// Length of a key, in bytes: that of the ciphers' hash.
const SECRET_LEN: usize = 32;

/// The name under which a key is offered: a part of what is exported, so that an observer of the
/// datagrams cannot name the key on TCP, and have the server drop it.
type Name = [u8; IDENTITY_LEN];

type Secret = Zeroizing<[u8; SECRET_LEN]>;

/// A key that both ends of a handshake over UDP have.
struct Key {
    name: Name,
    secret: Secret,
}

impl Key {
    /// Exports the key of the session `id`, once the server's Finished is written or verified.
    fn export(ssl: &SslRef, id: SessionId) -> Result<Self, ErrorStack> {
        let mut exported = Zeroizing::new([0; IDENTITY_LEN + SECRET_LEN]);
        ssl.export_keying_material(&mut *exported, LABEL, Some(&id.0))?;
        let (mut name, mut secret) = (Name::default(), Secret::default());
        let (first, rest) = exported.split_at(IDENTITY_LEN);
        name.copy_from_slice(first);
        secret.copy_from_slice(rest);
        Ok(Self { name, secret })
    }
}
