//! Cookies from anybody, and what becomes of minted ones on the way.

use std::net::IpAddr;
use std::time::Duration;

use headstart_proto::UnixSeconds;
use headstart_proto::cookie::{Cookie, CookieKey, CookieRing, OfferedCookie};
use headstart_proto::limits::COOKIE_LIFE_MAX;

/// Parses the first bytes: a moment, a client and a cookie to mint. The rest is an offered cookie.
struct Case<'a> {
    now: UnixSeconds,
    client: IpAddr,
    nonce: [u8; 6],
    life: Duration,
    rest: &'a [u8],
}

impl<'a> Case<'a> {
    /// kind 1 (even: IPv4, odd: IPv6) | now 8 | address 16 | nonce 6 | life 4 | rest
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let (&[kind], bytes) = bytes.split_first_chunk()?;
        let (now, bytes) = bytes.split_first_chunk()?;
        let (address, bytes) = bytes.split_first_chunk::<16>()?;
        let (nonce, bytes) = bytes.split_first_chunk()?;
        let (life, rest) = bytes.split_first_chunk()?;
        let client = match address {
            [a, b, c, d, ..] if kind % 2 == 0 => IpAddr::from([*a, *b, *c, *d]),
            address => IpAddr::from(*address),
        };
        Some(Self {
            // An expiry behind the end of the clock would be moved to it.
            now: UnixSeconds(u64::from_le_bytes(*now).min(u64::MAX - u64::from(u32::MAX))),
            client,
            nonce: *nonce,
            life: Duration::from_secs(u32::from_le_bytes(*life).into()),
            rest,
        })
    }
}

/// Any bytes as a cookie and as an extension: read as written, and taken only if they were minted.
/// A minted cookie is taken exactly while it lives, and not after any change of it.
pub fn cookie(bytes: &[u8]) {
    if let Some(offer) = OfferedCookie::parse(bytes) {
        assert!(offer.lifetime <= COOKIE_LIFE_MAX);
        assert_eq!(offer.emit().get(2..), bytes.get(2..), "all but the lifetime");
        assert_eq!(OfferedCookie::parse(&offer.emit()), Some(offer));
    }
    let Some(case) = Case::read(bytes) else { return };
    let ring = ring();
    let offered = Cookie::parse(case.rest);
    assert_eq!(offered.is_some(), case.rest.len() == 16);
    if let Some(offered) = offered {
        take(&ring, &offered, &case);
    }
    minted(&ring, &case);
}

fn ring() -> CookieRing {
    let [previous, current, next] =
        [1, 2, 3].map(|seed: u8| CookieKey::new([seed; 16], [seed ^ 0xff; 16]));
    CookieRing { previous: Some(previous), current, next: Some(next) }
}

/// Whatever is taken is what one of the keys mints for the same client, and lives.
fn take(ring: &CookieRing, cookie: &Cookie, case: &Case<'_>) {
    let Ok(expiry) = ring.verify(cookie, case.now, case.client) else { return };
    assert!(expiry >= case.now && expiry.since(case.now) <= COOKIE_LIFE_MAX);
    let Some(nonce) = cookie.as_bytes().first_chunk() else { return };
    let mut keys = ring.previous.iter().chain([&ring.current]).chain(&ring.next);
    assert!(keys.any(|key| key.mint(*nonce, expiry, case.client) == *cookie));
}

fn minted(ring: &CookieRing, case: &Case<'_>) {
    let expiry = case.now + case.life;
    let cookie = ring.mint(case.nonce, expiry, case.client);
    let verdict = ring.verify(&cookie, case.now, case.client);
    let lives = expiry.since(case.now) <= COOKIE_LIFE_MAX;
    assert_eq!(verdict.ok(), lives.then_some(expiry));
    let changed = changed(&cookie, case.rest);
    if changed != cookie {
        assert!(ring.verify(&changed, case.now, case.client).is_err());
    }
}

/// The cookie with the bytes of `change` over it, as far as they go.
fn changed(cookie: &Cookie, change: &[u8]) -> Cookie {
    let mut bytes = *cookie.as_bytes();
    bytes.iter_mut().zip(change).for_each(|(byte, change)| *byte ^= change);
    Cookie::new(bytes)
}
