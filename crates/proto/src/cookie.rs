//! Cookies of TCP Fast Open Privacy (Sy et al. 2019): minted inside TLS, spent once in a SYN.
//!
//! | at | length | field |
//! |---|---|---|
//! | 0 | 6 | nonce, random |
//! | 6 | 2 | low 16 bits of the expiry, masked; little-endian |
//! | 8 | 8 | tag over nonce, expiry and client address; little-endian |
//!
//! A SYN's options have room for sixteen bytes beside timestamps. `docs/fop.md` specifies the
//! format, with vectors in `docs/vectors`; the server's BPF program checks the same cookies.
//!
//! ```
//! use core::time::Duration;
//! use headstart_proto::UnixSeconds;
//! use headstart_proto::cookie::{CookieError, CookieKey};
//!
//! let key = CookieKey::new([1; 16], [2; 16]);
//! let (now, client) = (UnixSeconds(1_790_000_000), [192, 0, 2, 1].into());
//! let cookie = key.mint([3; 6], now + Duration::from_secs(60), client);
//! assert_eq!(key.verify(&cookie, now, client), Ok(UnixSeconds(1_790_000_060)));
//!
//! let elsewhere = [192, 0, 2, 2].into();
//! assert_eq!(key.verify(&cookie, now, elsewhere), Err(CookieError::Tag));
//! ```

use core::fmt;
use core::net::IpAddr;
use core::time::Duration;

use siphasher::sip::SipHasher24;
use subtle::ConstantTimeEq;
use zeroize::Zeroize;

use crate::limits::COOKIE_LIFE_MAX;
use crate::time::UnixSeconds;

/// Length of a cookie in bytes: the most that option 34 has room for beside the usual options of a
/// SYN.
pub const COOKIE_LEN: usize = 16;

/// Length of a cookie's random part in bytes.
///
/// After about 2^24 cookies of one key two share a nonce, and so the mask of their expiries. They
/// are identical only if client and second match too; the server then refuses one of them.
pub const NONCE_LEN: usize = 6;

/// Length in bytes of an [`OfferedCookie`]: the content of TLS extension [`EXTENSION_TYPE`] in a
/// NewSessionTicket.
pub const OFFER_LEN: usize = 2 + COOKIE_LEN;

/// The TLS extension that requests and delivers cookies, from the range for private use (RFC 8446
/// section 11).
pub const EXTENSION_TYPE: u16 = 65480;

/// One permit to send data in one SYN from one client address.
///
/// Without the keys, a cookie is 16 random bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cookie([u8; COOKIE_LEN]);

impl Cookie {
    /// Creates a cookie from bytes of any origin; only [`verify`](CookieKey::verify) tells if it is
    /// valid.
    #[must_use]
    pub const fn new(bytes: [u8; COOKIE_LEN]) -> Self {
        Self(bytes)
    }

    /// Reads a cookie from an option or extension; `None` if the length is wrong.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// Returns the bytes that go into the SYN.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; COOKIE_LEN] {
        &self.0
    }

    /// Returns nonce, masked expiry and tag.
    const fn parts(&self) -> ([u8; NONCE_LEN], u16, u64) {
        let [n0, n1, n2, n3, n4, n5, e0, e1, tag @ ..] = self.0;
        let nonce = [n0, n1, n2, n3, n4, n5];
        (nonce, u16::from_le_bytes([e0, e1]), u64::from_le_bytes(tag))
    }
}

/// Shows nothing: anyone who reads a cookie in a log could spend it.
impl fmt::Debug for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cookie(..)")
    }
}

/// The two secrets behind the cookies of one key epoch; wiped when dropped.
#[derive(Clone)]
pub struct CookieKey {
    tag: [u8; 16],
    mask: [u8; 16],
}

impl CookieKey {
    /// Creates a key from two independent secrets: one for the tag, one for the mask over the
    /// expiry.
    #[must_use]
    pub const fn new(tag: [u8; 16], mask: [u8; 16]) -> Self {
        Self { tag, mask }
    }

    /// Returns the secrets of tag and mask, for the verifier in the server's BPF program.
    #[must_use]
    pub const fn secrets(&self) -> (&[u8; 16], &[u8; 16]) {
        (&self.tag, &self.mask)
    }

    /// Mints a cookie that `client` may spend up to and including the second `expiry`.
    ///
    /// `nonce` must come from a cryptographic random generator. The tag covers neither the client's
    /// port nor the server's address; of an IPv6 address it covers the first 64 bits.
    ///
    /// A cookie whose `expiry` is more than [`COOKIE_LIFE_MAX`] ahead counts as expired until it no
    /// longer is.
    #[must_use]
    pub fn mint(&self, nonce: [u8; NONCE_LEN], expiry: UnixSeconds, client: IpAddr) -> Cookie {
        let masked = low16(expiry.0) ^ self.expiry_mask(nonce);
        let tag = self.tag(nonce, expiry, client).to_le_bytes();
        let mut bytes = [0; COOKIE_LEN];
        write(&mut bytes, nonce_and(nonce, masked).into_iter().chain(tag));
        Cookie(bytes)
    }

    /// Returns the expiry of a cookie that this key minted for `client` and that is valid at `now`.
    ///
    /// Does not detect a cookie spent before. Compares the tag in constant time.
    ///
    /// # Errors
    /// [`CookieError::Expired`] if the expiry is past or more than [`COOKIE_LIFE_MAX`] ahead, as
    /// for most random bytes; otherwise [`CookieError::Tag`] if the tag does not match.
    pub fn verify(
        &self,
        cookie: &Cookie,
        now: UnixSeconds,
        client: IpAddr,
    ) -> Result<UnixSeconds, CookieError> {
        let (nonce, masked, tag) = cookie.parts();
        let left = (masked ^ self.expiry_mask(nonce)).wrapping_sub(low16(now.0));
        let left = Duration::from_secs(left.into());
        // F-COOKIE-4
        if left > COOKIE_LIFE_MAX {
            return Err(CookieError::Expired);
        }
        let expiry = now + left;
        // F-COOKIE-5
        if self.tag(nonce, expiry, client).ct_eq(&tag).into() {
            Ok(expiry)
        } else {
            Err(CookieError::Tag)
        }
    }

    /// Mask that hides the expiry, which would reveal when, and from which server, a client got the
    /// cookie.
    fn expiry_mask(&self, nonce: [u8; NONCE_LEN]) -> u16 {
        low16(SipHasher24::new_with_key(&self.mask).hash(&nonce_and(nonce, 0)))
    }

    /// Tag over 32 bytes: nonce 6, low 16 bits of the expiry 2, its higher bits 8, address 16.
    ///
    /// The cookie does not carry the higher bits. Without them in the tag it would be valid again
    /// after 18.2 h.
    fn tag(&self, nonce: [u8; NONCE_LEN], expiry: UnixSeconds, client: IpAddr) -> u64 {
        // F-COOKIE-2
        let higher = (expiry.0 >> 16).to_le_bytes();
        let start = nonce_and(nonce, low16(expiry.0));
        let mut message = [0; 32];
        write(&mut message, start.into_iter().chain(higher).chain(address(client)));
        SipHasher24::new_with_key(&self.tag).hash(&message)
    }
}

impl Drop for CookieKey {
    fn drop(&mut self) {
        self.tag.zeroize();
        self.mask.zeroize();
    }
}

impl fmt::Debug for CookieKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CookieKey(..)")
    }
}

/// The keys of one moment: the current one mints cookies, and any of them verifies.
///
/// Includes the next key because servers do not all rotate at the same instant.
#[derive(Clone, Debug)]
pub struct CookieRing {
    /// The previous key; `None` in a new ring.
    pub previous: Option<CookieKey>,
    /// The key that mints cookies.
    pub current: CookieKey,
    /// The next key.
    pub next: Option<CookieKey>,
}

impl CookieRing {
    /// Mints a cookie with the current key; see [`CookieKey::mint`].
    #[must_use]
    pub fn mint(&self, nonce: [u8; NONCE_LEN], expiry: UnixSeconds, client: IpAddr) -> Cookie {
        self.current.mint(nonce, expiry, client)
    }

    /// Returns the expiry of a cookie that any of the keys minted; see [`CookieKey::verify`].
    ///
    /// # Errors
    /// The error from the current key, if no key accepts the cookie.
    pub fn verify(
        &self,
        cookie: &Cookie,
        now: UnixSeconds,
        client: IpAddr,
    ) -> Result<UnixSeconds, CookieError> {
        let verdict = self.current.verify(cookie, now, client);
        // F-COOKIE-6
        let others = self.previous.iter().chain(&self.next);
        verdict.or_else(|error| {
            let mut verdicts = others.filter_map(|key| key.verify(cookie, now, client).ok());
            verdicts.next().ok_or(error)
        })
    }
}

/// Reason to reject a cookie. An ordinary handshake still works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CookieError {
    /// The cookie is past its expiry, or would live too long.
    Expired,
    /// This key did not mint the cookie for this client.
    Tag,
}

impl fmt::Display for CookieError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "the cookie has expired",
            Self::Tag => "the cookie is of another key or client",
        })
    }
}

impl core::error::Error for CookieError {}

/// A cookie as a server hands it out in TLS extension [`EXTENSION_TYPE`] of a NewSessionTicket.
///
/// | at | length | field |
/// |---|---|---|
/// | 0 | 2 | lifetime in seconds, big-endian as all numbers of TLS |
/// | 2 | 16 | cookie |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfferedCookie {
    /// The cookie, for one SYN to a server of the same name.
    pub cookie: Cookie,
    /// Time from now during which it can be spent; whole seconds, at most [`COOKIE_LIFE_MAX`].
    pub lifetime: Duration,
}

impl OfferedCookie {
    /// Reads the content of the extension; `None` if the length is wrong.
    ///
    /// Caps the lifetime at [`COOKIE_LIFE_MAX`]: a server cannot choose how long it recognises a
    /// client.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        // F-EXTENSION-4
        let [s0, s1, cookie @ ..] = *<&[u8; OFFER_LEN]>::try_from(bytes).ok()?;
        let lifetime = Duration::from_secs(u16::from_be_bytes([s0, s1]).into());
        // F-EXTENSION-2
        Some(Self { cookie: Cookie(cookie), lifetime: lifetime.min(COOKIE_LIFE_MAX) })
    }

    /// Returns the content of the extension. Caps the lifetime at [`COOKIE_LIFE_MAX`] and drops
    /// fractions of seconds.
    #[must_use]
    pub fn emit(&self) -> [u8; OFFER_LEN] {
        let lifetime = low16(self.lifetime.min(COOKIE_LIFE_MAX).as_secs()).to_be_bytes();
        let mut bytes = [0; OFFER_LEN];
        write(&mut bytes, lifetime.into_iter().chain(self.cookie.0));
        bytes
    }
}

/// Returns the form of an address in a tag: an IPv4 address mapped into IPv6 (whether or not it
/// came mapped), or the /64 of an IPv6 address, within which hosts change theirs (RFC 8981).
fn address(client: IpAddr) -> [u8; 16] {
    // F-COOKIE-3
    match client.to_canonical() {
        IpAddr::V4(client) => client.to_ipv6_mapped().octets(),
        IpAddr::V6(client) => {
            let [a, b, c, d, ..] = client.segments();
            core::net::Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).octets()
        }
    }
}

/// First eight bytes of a cookie and of a tag's message; the whole of a mask's.
const fn nonce_and(nonce: [u8; NONCE_LEN], last: u16) -> [u8; 8] {
    let [n0, n1, n2, n3, n4, n5] = nonce;
    let [l0, l1] = last.to_le_bytes();
    [n0, n1, n2, n3, n4, n5, l0, l1]
}

const fn low16(number: u64) -> u16 {
    let [a, b, ..] = number.to_le_bytes();
    u16::from_le_bytes([a, b])
}

/// Fills `to`; both must have the same length.
fn write(to: &mut [u8], from: impl Iterator<Item = u8>) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = from);
}
