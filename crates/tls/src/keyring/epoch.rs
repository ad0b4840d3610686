use std::fmt;

use headstart_proto::cookie::CookieKey;
use headstart_proto::{RouteKey, UnixSeconds};
use openssl::error::ErrorStack;
use openssl::md::Md;
use openssl::pkey::Id;
use openssl::pkey_ctx::PkeyCtx;
use rand::TryRng;
use rand::rngs::SysRng;
use zeroize::Zeroizing;

use super::KeyRingError;

/// Length of an epoch's secret and of each derived key, in bytes.
pub(super) const SECRET_LEN: usize = 32;

/// Salt of all derivations, which separates them from other users of HKDF.
const SALT: &[u8] = b"headstart key ring 1";

/// Secret bytes, wiped when dropped.
pub(super) type Secret = Zeroizing<[u8; SECRET_LEN]>;

/// Use of a key; keys of different purposes reveal nothing about each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Encrypts tickets.
    TicketCipher,
    /// Authenticates tickets.
    TicketMac,
    /// Names the epoch in tickets that carry no cookie. This one is public.
    TicketName,
    /// Authenticates Fast Open cookies.
    FopTag,
    /// Hides the expiry of Fast Open cookies.
    FopMask,
    /// Hides the number of an edge in route tags.
    RouteMask,
}

impl Purpose {
    /// All of them, in the order of the variants.
    pub const ALL: [Self; 6] = [
        Self::TicketCipher,
        Self::TicketMac,
        Self::TicketName,
        Self::FopTag,
        Self::FopMask,
        Self::RouteMask,
    ];

    /// Returns the `info` of HKDF, which is the name in `docs/fop.md`.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::TicketCipher => "ticket cipher",
            Self::TicketMac => "ticket mac",
            Self::TicketName => "ticket name",
            Self::FopTag => "fop tag",
            Self::FopMask => "fop mask",
            Self::RouteMask => "route mask",
        }
    }
}

/// One secret and its keys, all wiped when dropped.
#[derive(Clone)]
pub struct Epoch {
    /// Number shown in tickets; the next epoch has the next one, 0 after 255.
    pub id: u8,
    /// Time at which it became current, or will.
    pub from: UnixSeconds,
    secret: Secret,
    /// Keys in the order of [`Purpose::ALL`]. Derived once, so that a handshake derives nothing
    /// that could fail.
    keys: [Secret; Purpose::ALL.len()],
}

impl Epoch {
    pub(super) fn generate(id: u8, from: UnixSeconds) -> Result<Self, KeyRingError> {
        Self::new(id, from, random_secret()?)
    }

    pub(super) fn new(id: u8, from: UnixSeconds, secret: Secret) -> Result<Self, KeyRingError> {
        let mut keys: [Secret; Purpose::ALL.len()] = Default::default();
        for (key, purpose) in keys.iter_mut().zip(Purpose::ALL) {
            // F-KEYS-1
            expand(&secret, SALT, purpose.label(), key).map_err(|_| KeyRingError::Derive)?;
        }
        Ok(Self { id, from, secret, keys })
    }

    /// Returns the key for `purpose`: HKDF-SHA-256 of the secret, with the purpose as `info` (RFC
    /// 5869).
    #[must_use]
    pub fn derive(&self, purpose: Purpose) -> Zeroizing<[u8; SECRET_LEN]> {
        let [cipher, mac, name, fop_tag, fop_mask, route_mask] = &self.keys;
        let key = match purpose {
            Purpose::TicketCipher => cipher,
            Purpose::TicketMac => mac,
            Purpose::TicketName => name,
            Purpose::FopTag => fop_tag,
            Purpose::FopMask => fop_mask,
            Purpose::RouteMask => route_mask,
        };
        key.clone()
    }

    /// Returns the first 16 bytes of tickets that carry no cookie.
    ///
    /// They are public and the same in all tickets of the epoch, so they also serve to compare
    /// rings.
    #[must_use]
    pub fn ticket_name(&self) -> [u8; 16] {
        half(&self.derive(Purpose::TicketName))
    }

    pub(super) fn route_key(&self) -> RouteKey {
        RouteKey::new(self.id, half(&self.derive(Purpose::RouteMask)))
    }

    pub(super) fn cookie_key(&self) -> CookieKey {
        let (tag, mask) = (self.derive(Purpose::FopTag), self.derive(Purpose::FopMask));
        CookieKey::new(half(&tag), half(&mask))
    }

    pub(super) const fn secret(&self) -> &Secret {
        &self.secret
    }
}

/// Shows no secret.
impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Epoch");
        shown.field("id", &self.id).field("from", &self.from).finish_non_exhaustive()
    }
}

pub(super) fn random_secret() -> Result<Secret, KeyRingError> {
    let mut secret = Secret::default();
    SysRng.try_fill_bytes(&mut secret[..]).map_err(|_| KeyRingError::Random)?;
    Ok(secret)
}

pub(super) fn random_id() -> Result<u8, KeyRingError> {
    let mut id = [0];
    SysRng.try_fill_bytes(&mut id).map_err(|_| KeyRingError::Random)?;
    let [id] = id;
    Ok(id)
}

/// Runs HKDF-SHA-256 (RFC 5869).
pub(super) fn expand(
    secret: &Secret,
    salt: &[u8],
    info: &str,
    key: &mut Secret,
) -> Result<(), ErrorStack> {
    let mut hkdf = PkeyCtx::new_id(Id::HKDF)?;
    hkdf.derive_init()?;
    hkdf.set_hkdf_md(Md::sha256())?;
    hkdf.set_hkdf_salt(salt)?;
    hkdf.set_hkdf_key(&secret[..])?;
    hkdf.add_hkdf_info(info.as_bytes())?;
    hkdf.derive(Some(&mut key[..]))?;
    Ok(())
}

/// Returns the first 16 bytes: the length that SipHash and OpenSSL's key name need.
fn half(key: &[u8; SECRET_LEN]) -> [u8; 16] {
    std::array::from_fn(|at| key[at])
}
