//! Checks cookies against the vectors of `docs/vectors`, as the tests of the server's BPF program
//! do.

#![allow(clippy::unwrap_used)]

#[allow(dead_code)] // the frames' vectors use all of it
#[path = "wire_vectors/blocks.rs"]
mod blocks;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use blocks::{Block, read};
use headstart_proto::UnixSeconds;
use headstart_proto::cookie::{Cookie, CookieError, CookieKey, OfferedCookie};
use siphasher::sip::SipHasher24;

fn key(block: &Block) -> CookieKey {
    CookieKey::new(block.array("tag_key"), block.array("mask_key"))
}

fn seconds(block: &Block, name: &str) -> UnixSeconds {
    UnixSeconds(block.number(name))
}

#[test]
fn the_hash_is_siphash_2_4() {
    for block in &read("siphash.txt") {
        let hash = SipHasher24::new_with_key(&block.array("key")).hash(&block.bytes("message"));
        assert_eq!(hash.to_le_bytes(), block.array::<8>("hash"), "{block:?}");
    }
}

#[test]
fn cookies_are_minted_byte_for_byte() {
    for block in &read("cookies.txt") {
        let expiry = seconds(block, "expiry");
        let client: IpAddr = block.number("client");
        let cookie = key(block).mint(block.array("nonce"), expiry, client);
        assert_eq!(*cookie.as_bytes(), block.array::<16>("cookie"), "{block:?}");
        assert_eq!(key(block).verify(&cookie, expiry, client), Ok(expiry), "{block:?}");
        assert_eq!(tag(block), cookie.as_bytes()[8..], "{block:?}");
    }
}

/// Computes the tag from the message, which the file gives as an intermediate step.
fn tag(block: &Block) -> [u8; 8] {
    let hash = SipHasher24::new_with_key(&block.array("tag_key"));
    hash.hash(&block.array::<32>("message")).to_le_bytes()
}

#[test]
fn cookies_are_checked_with_the_named_result() {
    let mut seen = BTreeSet::new();
    for block in &read("cookie_checks.txt") {
        let cookie = Cookie::new(block.array("cookie"));
        let verdict = key(block).verify(&cookie, seconds(block, "now"), block.number("client"));
        let (word, wanted) = match block.text("result") {
            "Expired" => ("Expired", Err(CookieError::Expired)),
            "Tag" => ("Tag", Err(CookieError::Tag)),
            expiry => ("Ok", Ok(UnixSeconds(expiry.parse().unwrap()))),
        };
        assert_eq!(verdict, wanted, "{block:?}");
        seen.insert(word);
    }
    assert_eq!(seen, ["Expired", "Ok", "Tag"].into());
}

#[test]
fn extensions_are_read_and_written() {
    for block in &read("fop_extension.txt") {
        let lifetime = Duration::from_secs(block.number("lifetime"));
        let offer = OfferedCookie { cookie: Cookie::new(block.array("cookie")), lifetime };
        assert_eq!(OfferedCookie::parse(&block.bytes("bytes")), Some(offer), "{block:?}");
        assert_eq!(offer.emit(), block.array::<18>("emitted"), "{block:?}");
    }
}
