//! Properties of every cookie, and both sides of each of its limits.

#![allow(clippy::unwrap_used)]

use std::net::IpAddr;
use std::time::Duration;

use headstart_proto::UnixSeconds;
use headstart_proto::cookie::{
    COOKIE_LEN, Cookie, CookieError, CookieKey, CookieRing, OFFER_LEN, OfferedCookie,
};
use headstart_proto::limits::COOKIE_LIFE_MAX;
use proptest::prelude::*;

const EXPIRY: UnixSeconds = UnixSeconds(1_790_000_000);

fn key(seed: u8) -> CookieKey {
    CookieKey::new([seed; 16], [seed ^ 0xff; 16])
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn client() -> IpAddr {
    address("192.0.2.1")
}

/// Returns `EXPIRY` plus `seconds`.
fn at(seconds: i64) -> UnixSeconds {
    UnixSeconds(EXPIRY.0.checked_add_signed(seconds).unwrap())
}

#[test]
fn a_cookie_expires_in_at_most_eight_hours() {
    let cookie = key(1).mint([7; 6], EXPIRY, client());
    let longest = i64::try_from(COOKIE_LIFE_MAX.as_secs()).unwrap();
    // More than three cycles of the 16 bits each way.
    for left in -200_000..=200_000 {
        let verdict = key(1).verify(&cookie, at(-left), client());
        let wanted = match left {
            left if (0..=longest).contains(&left) => Ok(EXPIRY),
            // The 16 bits look valid, in another cycle; the tag reveals it.
            left if left.rem_euclid(1 << 16) <= longest => Err(CookieError::Tag),
            _ => Err(CookieError::Expired),
        };
        assert_eq!(verdict, wanted, "{left} s before the expiry");
    }
}

#[test]
fn a_cookie_works_only_for_its_client() {
    for (minted_for, others, strangers) in [
        (
            "192.0.2.1",
            &["192.0.2.1", "::ffff:192.0.2.1"][..],
            &["192.0.2.2", "192.0.3.1", "::192.0.2.1", "64:ff9b::192.0.2.1", "::"][..],
        ),
        ("::ffff:192.0.2.1", &["192.0.2.1"], &["192.0.2.0", "::"]),
        (
            "2001:db8:1:2:3:4:5:6",
            &["2001:db8:1:2::", "2001:db8:1:2:ffff:ffff:ffff:ffff"],
            &["2001:db8:1:3:3:4:5:6", "2001:db9:1:2:3:4:5:6", "192.0.2.1"],
        ),
        ("::1", &["::2", "::192.0.2.1"], &["127.0.0.1", "0:0:0:1::1"]),
    ] {
        let cookie = key(1).mint([7; 6], EXPIRY, address(minted_for));
        for client in others {
            let verdict = key(1).verify(&cookie, at(-1), address(client));
            assert_eq!(verdict, Ok(EXPIRY), "{minted_for} and {client}");
        }
        for client in strangers {
            let verdict = key(1).verify(&cookie, at(-1), address(client));
            assert_eq!(verdict, Err(CookieError::Tag), "{minted_for} and {client}");
        }
    }
}

#[test]
fn every_bit_matters() {
    let cookie = key(1).mint([7; 6], EXPIRY, client());
    for bit in 0..8 * COOKIE_LEN {
        let mut bytes = *cookie.as_bytes();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let verdict = key(1).verify(&Cookie::new(bytes), at(-1), client());
        assert!(verdict.is_err(), "bit {bit}");
    }
}

#[test]
fn a_cookie_needs_both_halves_of_its_key() {
    let cookie = CookieKey::new([1; 16], [2; 16]).mint([7; 6], EXPIRY, client());
    let [same, other_tag, other_mask] = [(1, 2), (9, 2), (1, 9)]
        .map(|(tag, mask)| CookieKey::new([tag; 16], [mask; 16]).verify(&cookie, at(-1), client()));
    assert_eq!(same, Ok(EXPIRY));
    assert_eq!(other_tag, Err(CookieError::Tag));
    assert!(other_mask.is_err());
}

/// Checks that without the key everything after the nonce looks random, even for one client and
/// expiry.
#[test]
fn cookies_of_one_client_have_nothing_in_common() {
    const COOKIES: u32 = 4096;
    let mut ones = [0_u32; 8 * COOKIE_LEN];
    for nonce in 0..COOKIES {
        let [a, b, c, d] = nonce.to_le_bytes();
        let cookie = key(1).mint([a, b, c, d, 0, 0], EXPIRY, client());
        for (bit, ones) in ones.iter_mut().enumerate() {
            *ones += u32::from((cookie.as_bytes()[bit / 8] >> (bit % 8)) & 1);
        }
    }
    // Half of them, within six standard deviations of sqrt(4096)/2.
    let wanted = COOKIES / 2 - 192..=COOKIES / 2 + 192;
    for (bit, ones) in ones.iter().enumerate().skip(8 * 6) {
        assert!(wanted.contains(ones), "bit {bit} is set in {ones} of {COOKIES}");
    }
}

// F-COOKIE-6
#[test]
fn a_ring_mints_with_the_current_key_and_verifies_with_all_three() {
    let ring = CookieRing { previous: Some(key(1)), current: key(2), next: Some(key(3)) };
    let minted = ring.mint([7; 6], EXPIRY, client());
    assert_eq!(minted, key(2).mint([7; 6], EXPIRY, client()));
    for seed in 1..=3 {
        let cookie = key(seed).mint([7; 6], EXPIRY, client());
        assert_eq!(ring.verify(&cookie, at(-1), client()), Ok(EXPIRY), "{seed}");
        assert!(ring.verify(&cookie, at(-1), address("192.0.2.2")).is_err(), "{seed}");
        assert!(ring.verify(&cookie, at(1), client()).is_err(), "{seed}");
    }
    for retired in [0, 4] {
        let cookie = key(retired).mint([7; 6], EXPIRY, client());
        let verdict = ring.verify(&cookie, at(-1), client());
        assert_eq!(verdict, key(2).verify(&cookie, at(-1), client()));
        assert!(verdict.is_err(), "{retired}");
    }
}

#[test]
fn a_ring_works_with_one_key() {
    let ring = CookieRing { previous: None, current: key(2), next: None };
    let cookie = ring.mint([7; 6], EXPIRY, client());
    assert_eq!(ring.verify(&cookie, EXPIRY, client()), Ok(EXPIRY));
    assert_eq!(ring.verify(&cookie, at(1), client()), Err(CookieError::Expired));
}

#[test]
fn a_cookie_has_sixteen_bytes() {
    for len in 0..40 {
        let bytes = vec![5; len];
        let cookie = Cookie::parse(&bytes);
        assert_eq!(cookie.is_some(), len == COOKIE_LEN, "{len}");
        assert!(cookie.is_none_or(|cookie| cookie.as_bytes()[..] == bytes));
    }
}

// F-EXTENSION-4
#[test]
fn an_offer_has_eighteen_bytes_and_a_lifetime_of_at_most_eight_hours() {
    let cookie = Cookie::new([5; 16]);
    for (seconds, read) in [(0, 0), (1, 1), (3600, 3600), (28_800, 28_800), (28_801, 28_800)] {
        let lifetime = Duration::from_secs(seconds);
        let read = Duration::from_secs(read);
        let emitted = OfferedCookie { cookie, lifetime }.emit();
        let parsed = OfferedCookie::parse(&emitted);
        assert_eq!(parsed, Some(OfferedCookie { cookie, lifetime: read }), "{seconds}");
    }
    let mut longest = [5; OFFER_LEN];
    longest[..2].fill(0xff);
    let parsed = OfferedCookie::parse(&longest).unwrap();
    assert_eq!(parsed, OfferedCookie { cookie, lifetime: COOKIE_LIFE_MAX });
    for len in (0..40).filter(|len| *len != OFFER_LEN) {
        assert_eq!(OfferedCookie::parse(&vec![0; len]), None, "{len}");
    }
}

#[test]
fn wall_time_adds_whole_seconds_and_saturates() {
    assert_eq!(UnixSeconds(5) + Duration::from_millis(1999), UnixSeconds(6));
    assert_eq!(UnixSeconds(u64::MAX) + Duration::from_secs(1), UnixSeconds(u64::MAX));
    assert_eq!(UnixSeconds(7).since(UnixSeconds(5)), Duration::from_secs(2));
    assert_eq!(UnixSeconds(5).since(UnixSeconds(7)), Duration::ZERO);
}

fn addresses() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<[u8; 4]>().prop_map(IpAddr::from),
        any::<[u8; 16]>().prop_map(IpAddr::from),
        any::<[u8; 4]>().prop_map(|v4| std::net::Ipv4Addr::from(v4).to_ipv6_mapped().into()),
    ]
}

proptest! {
    #[test]
    fn minted_cookies_verify(
        tag: [u8; 16],
        mask: [u8; 16],
        nonce: [u8; 6],
        expiry: u64,
        left in 0..=28_800_u64,
        client in addresses(),
    ) {
        let key = CookieKey::new(tag, mask);
        let (expiry, now) = (UnixSeconds(expiry), UnixSeconds(expiry.saturating_sub(left)));
        let cookie = key.mint(nonce, expiry, client);
        prop_assert_eq!(&cookie.as_bytes()[..6], &nonce[..]);
        prop_assert_eq!(key.verify(&cookie, now, client), Ok(expiry));
    }

    #[test]
    fn random_bytes_do_not_verify(
        bytes: [u8; 16],
        tag: [u8; 16],
        now: u64,
        client in addresses(),
    ) {
        let key = CookieKey::new(tag, [2; 16]);
        prop_assert!(key.verify(&Cookie::new(bytes), UnixSeconds(now), client).is_err());
    }

    #[test]
    fn offers_survive_a_round_trip(cookie: [u8; 16], seconds in 0..=28_800_u64) {
        let lifetime = Duration::from_secs(seconds);
        let offer = OfferedCookie { cookie: Cookie::new(cookie), lifetime };
        prop_assert_eq!(OfferedCookie::parse(&offer.emit()), Some(offer));
    }
}
