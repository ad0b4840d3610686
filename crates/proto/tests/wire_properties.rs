//! Properties of all frames: each parses back to what was emitted, and no corruption makes a parser
//! panic.

#![allow(clippy::unwrap_used)]

use std::ops::RangeInclusive;

use headstart_proto::hello::{self, ClientHello};
use headstart_proto::join::{ACCEPTANCE_LEN, Answer, JOIN_MAX, Join, acceptance};
use headstart_proto::limits::{
    AMPLIFICATION, CLIENT_BYTES, DATAGRAM_MAX, REQUEST_MIN, SEQUENCES, SERVER_BYTES,
};
use headstart_proto::wire::{
    FORWARD_LEN, Forward, REQUEST_HEADER, REQUEST_PAYLOAD_MAX, RESPONSE_HEADER,
    RESPONSE_PAYLOAD_MAX, Request, Response,
};
use headstart_proto::{JoinKey, RouteTag, SessionId, WireError};
use proptest::collection::vec;
use proptest::prelude::*;

/// Generates a payload and an offset at which it ends within a stream of `limit` bytes.
fn piece(lengths: RangeInclusive<usize>, limit: usize) -> impl Strategy<Value = (Vec<u8>, u32)> {
    vec(any::<u8>(), lengths).prop_flat_map(move |payload| {
        let last = u32::try_from(limit - payload.len()).unwrap();
        (Just(payload), 0..=last)
    })
}

fn requests() -> impl Strategy<Value = (SessionId, u8, u32, Vec<u8>)> {
    let piece = piece(1..=REQUEST_PAYLOAD_MAX, CLIENT_BYTES);
    (any::<[u8; 12]>(), 0..SEQUENCES, piece)
        .prop_map(|(id, seq, (payload, offset))| (SessionId(id), seq, offset, payload))
}

fn joins() -> impl Strategy<Value = Join> {
    let offset = 0..1_u32 << 24;
    (any::<[u8; 16]>(), any::<[u8; 4]>(), offset.clone(), offset).prop_map(
        |(key, tag, client_offset, server_offset)| Join {
            key: JoinKey::new(key),
            tag: RouteTag(tag),
            client_offset,
            server_offset,
        },
    )
}

/// Generates the names of a ClientHello, which its join repeats.
fn hellos() -> impl Strategy<Value = ClientHello> {
    let name = "([a-z0-9_-]{1,63}\\.){0,3}[a-z]{1,60}";
    (prop::option::of(name), vec(vec(any::<u8>(), 1..=255), 0..4))
        .prop_map(|(server_name, alpn)| ClientHello { server_name, alpn, ..ClientHello::default() })
}

proptest! {
    #[test]
    fn requests_round_trip((id, seq, offset, payload) in requests()) {
        let request = Request { id, seq, offset, payload: &payload };
        let bytes = request.emit();
        prop_assert!((REQUEST_MIN..=DATAGRAM_MAX).contains(&bytes.len()));
        prop_assert_eq!(Request::parse(&bytes), Ok(request));
    }

    #[test]
    fn responses_round_trip(
        id: [u8; 12],
        seq in 0..SEQUENCES,
        tag in any::<[u8; 4]>().prop_filter("not zero", |tag| *tag != [0; 4]),
        ack in 0..1_u32 << 24,
        (payload, offset) in piece(0..=RESPONSE_PAYLOAD_MAX, SERVER_BYTES),
    ) {
        let (id, tag) = (SessionId(id), RouteTag(tag));
        let response = Response { id, seq, tag, ack, offset, payload: &payload };
        let bytes = response.emit();
        prop_assert!(bytes.len() <= DATAGRAM_MAX);
        prop_assert_eq!(Response::parse(&bytes), Ok(response));
    }

    #[test]
    fn joins_round_trip(join in joins(), own in hellos()) {
        let bytes = join.emit(&own);
        prop_assert!(bytes.len() <= JOIN_MAX);
        let hello = hello::read(&bytes).unwrap().complete().unwrap();
        prop_assert_eq!((hello.end, &hello.server_name), (bytes.len(), &own.server_name));
        // A join leaves out protocols for which it has no room.
        prop_assert!(hello.alpn == own.alpn || hello.alpn.is_empty());
        prop_assert_eq!(Join::read(&hello), Some(join));
    }

    #[test]
    fn a_corrupted_join_is_an_error_or_the_same_join(
        join in joins(),
        own in hellos(),
        at: prop::sample::Index,
        flipped in 1..=255_u8,
    ) {
        let mut bytes = join.emit(&own);
        let at = at.index(bytes.len());
        bytes[at] ^= flipped;
        let read = hello::read(&bytes).ok().and_then(hello::Progress::complete);
        let read = read.as_ref().and_then(Join::read);
        prop_assert!(read.is_none_or(|read| read == join));
    }

    #[test]
    fn forwarded_addresses_round_trip(v4: bool, address: [u8; 16], port: u16) {
        let [a, b, c, d, ..] = address;
        let address: std::net::IpAddr =
            if v4 { [a, b, c, d].into() } else { std::net::IpAddr::from(address).to_canonical() };
        let forward = Forward { client: (address, port).into() };
        let bytes = forward.emit();
        prop_assert_eq!(Forward::parse(bytes.first_chunk().unwrap()), Ok(forward));
        prop_assert_eq!(bytes.len(), FORWARD_LEN);
    }

    #[test]
    fn answers_round_trip(key: [u8; 16], server_offset in 0..1_u32 << 24) {
        let key = JoinKey::new(key);
        let answer = acceptance(&key, server_offset);
        prop_assert_eq!(Answer::read(&key, &answer), Answer::Accepted(server_offset));
        prop_assert_eq!(answer.len(), ACCEPTANCE_LEN);
    }

    #[test]
    fn only_corrupted_padding_leaves_a_request_the_same(
        (id, seq, offset, payload) in requests(),
        at: prop::sample::Index,
        flipped in 1..=255_u8,
    ) {
        let request = Request { id, seq, offset, payload: &payload };
        let mut bytes = request.emit();
        let at = at.index(bytes.len());
        bytes[at] ^= flipped;
        let is_padding = at >= REQUEST_HEADER + payload.len();
        prop_assert_eq!(Request::parse(&bytes) == Ok(request), is_padding);
    }
}

fn request() -> Vec<u8> {
    let id = SessionId([7; 12]);
    let payload = &[22; REQUEST_PAYLOAD_MAX];
    let request = Request { id, seq: 3, offset: 5, payload };
    request.emit()
}

fn forward() -> Vec<u8> {
    Forward { client: "192.0.2.1:1".parse().unwrap() }.emit()
}

fn response() -> Vec<u8> {
    let response = Response {
        id: SessionId([7; 12]),
        seq: 3,
        tag: RouteTag([1, 2, 3, 4]),
        ack: 1500,
        offset: 5,
        payload: &[22; 100],
    };
    response.emit()
}

#[test]
fn a_truncated_request_is_invalid() {
    let bytes = request();
    assert_eq!(bytes.len(), DATAGRAM_MAX);
    for length in 0..bytes.len() {
        let expected = if length == 0 { WireError::NotOurs } else { WireError::Length(length) };
        assert_eq!(Request::parse(&bytes[..length]), Err(expected));
    }
}

#[test]
fn a_truncated_response_has_less_payload_or_is_invalid() {
    let bytes = response();
    for length in 0..bytes.len() {
        match Response::parse(&bytes[..length]) {
            Ok(shorter) => assert_eq!(shorter.payload.len(), length - RESPONSE_HEADER),
            Err(WireError::NotOurs) => assert_eq!(length, 0),
            Err(error) => {
                assert!(length < RESPONSE_HEADER);
                assert_eq!(error, WireError::Length(length));
            }
        }
    }
}

#[test]
fn wrong_bytes_never_make_a_parser_panic() {
    // All headers, and some of the payload.
    for at in 0..60 {
        for wrong in 0..=255 {
            let mut bytes = request();
            bytes[at] = wrong;
            let _ = Request::parse(&bytes);
            let mut bytes = response();
            bytes[at] = wrong;
            let _ = Response::parse(&bytes);
            let _ = Forward::parse(bytes.first_chunk().unwrap());
        }
    }
}

fn is_ours<T>(result: Result<T, WireError>) -> bool {
    !matches!(result, Err(WireError::NotOurs))
}

/// The bytes are neither TLS record types (RFC 8446 section 5.1) nor those of RFC 9443.
#[test]
fn each_frame_has_one_valid_first_byte() {
    for first in 0..=255_u8 {
        let mut bytes = request();
        bytes[0] = first;
        assert_eq!(is_ours(Request::parse(&bytes)), first == 8);
        assert_eq!(is_ours(Response::parse(&bytes)), first == 9);
        let mut bytes = forward();
        bytes[0] = first;
        assert_eq!(is_ours(Forward::parse(bytes.first_chunk().unwrap())), first == 10);
    }
}

/// The amplification limit: the smallest request allows the largest response; no smaller one would.
const _: () = assert!(REQUEST_MIN * AMPLIFICATION >= DATAGRAM_MAX);
const _: () = assert!((REQUEST_MIN - 1) * AMPLIFICATION < DATAGRAM_MAX);
