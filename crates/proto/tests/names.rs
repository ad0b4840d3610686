//! Names of reasons, which counters and scripts know, and messages, which people read.

use std::collections::BTreeSet;

use headstart_proto::cookie::{Cookie, CookieError, CookieKey};
use headstart_proto::fastopen::NotFast;
use headstart_proto::{Discard, HelloError, JoinKey, Misfit, PlainReason, ResetReason, WireError};

const PLAIN: [PlainReason; 12] = [
    PlainReason::NotOffered,
    PlainReason::NotTls,
    PlainReason::Hello,
    PlainReason::TcpFirst,
    PlainReason::NoServerBytes,
    PlainReason::Held,
    PlainReason::Silence,
    PlainReason::NotAwaited,
    PlainReason::Unreachable,
    PlainReason::OtherAddress,
    PlainReason::ServerFirst,
    PlainReason::TcpLate,
];

const RESETS: [ResetReason; 5] = [
    ResetReason::CommittedRefusal,
    ResetReason::Refused,
    ResetReason::JoinLost,
    ResetReason::Protocol,
    ResetReason::EarlyDataTooOld,
];

const NOT_FAST: [NotFast; 5] =
    [NotFast::OfferLate, NotFast::NotTls, NotFast::Hello, NotFast::HelloLate, NotFast::TooLarge];

const LIMITS: [Discard; 5] = [
    Discard::AddressLimit,
    Discard::NetworkLimit,
    Discard::SessionLimit,
    Discard::Paused,
    Discard::WorkLimit,
];

const FAULTS: [Discard; 7] = [
    Discard::Wire(WireError::NotOurs),
    Discard::Address,
    Discard::Repeated,
    Discard::Ended,
    Discard::Misfit(Misfit::Conflict),
    Discard::Hello(HelloError::NotTls),
    Discard::HelloRuns,
];

const WIRE: [WireError; 6] = [
    WireError::NotOurs,
    WireError::Version(9),
    WireError::Length(9),
    WireError::Sequence(99),
    WireError::Tag,
    WireError::Offset(99),
];

const HELLO: [HelloError; 4] =
    [HelloError::NotTls, HelloError::NotHello, HelloError::Malformed, HelloError::TooLarge];

const COOKIE: [CookieError; 2] = [CookieError::Expired, CookieError::Tag];

fn assert_names(names: impl IntoIterator<Item = &'static str>) {
    let mut seen = BTreeSet::new();
    for name in names {
        let mut letters = name.bytes().filter(|byte| *byte != b'_');
        assert!(name.len() > 1 && letters.all(|byte| byte.is_ascii_lowercase()), "{name:?}");
        assert!(seen.insert(name), "{name} stands for two reasons");
    }
}

fn assert_messages(messages: impl IntoIterator<Item = impl ToString>) {
    let mut seen = BTreeSet::new();
    for message in messages.into_iter().map(|message| message.to_string()) {
        assert!(message.contains(' '), "{message:?} is no sentence");
        assert!(seen.insert(message.clone()), "{message:?} stands for two reasons");
    }
}

#[test]
fn each_reason_has_a_name_of_its_own() {
    assert_names(PLAIN.map(PlainReason::name));
    assert_names(RESETS.map(ResetReason::name));
    assert_names(NOT_FAST.map(NotFast::name));
    assert_names(LIMITS.into_iter().chain(FAULTS).map(Discard::name));
}

#[test]
fn each_error_has_a_message_of_its_own() {
    assert_messages(PLAIN);
    assert_messages(NOT_FAST);
    assert_messages(WIRE);
    assert_messages(HELLO);
    assert_messages(COOKIE);
}

#[test]
fn limits_on_unproven_addresses_are_told_from_faults() {
    assert!(LIMITS.into_iter().all(Discard::is_limit));
    assert!(!FAULTS.into_iter().any(Discard::is_limit));
}

#[test]
fn no_secret_is_shown_for_debugging() {
    assert_eq!(format!("{:?}", CookieKey::new([0x41; 16], [0x42; 16])), "CookieKey(..)");
    assert_eq!(format!("{:?}", Cookie::new([0x41; 16])), "Cookie(..)");
    assert_eq!(format!("{:?}", JoinKey::new([0x41; 16])), "JoinKey(..)");
    let session = format!("{:?}", JoinKey::new([0x41; 16]).session_id());
    assert_eq!(session.len(), 24, "{session} is public");
}
