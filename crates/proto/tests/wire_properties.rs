//! Properties of every frame and of every corruption of one.

#![allow(clippy::unwrap_used)]

use headstart_proto::limits::{
    AMPLIFICATION, CLIENT_BYTES, DATAGRAM_MAX, REQUEST_MIN, SEQUENCES, SERVER_BYTES,
};
use headstart_proto::wire::{
    FORWARD_LEN, Forward, JOIN_ANSWER_LEN, JOIN_LEN, Join, JoinAnswer, REQUEST_HEADER,
    REQUEST_PAYLOAD_MAX, RESPONSE_HEADER, RESPONSE_PAYLOAD_MAX, Request, Response, Status,
};
use headstart_proto::{JoinKey, RouteTag, SessionId, WireError};
use proptest::collection::vec;
use proptest::prelude::*;

/// Generates a payload and an offset at which it fits into `limit` bytes.
fn piece(longest: usize, limit: usize) -> impl Strategy<Value = (Vec<u8>, u32)> {
    vec(any::<u8>(), 0..=longest).prop_flat_map(move |payload| {
        let last = u32::try_from(limit - payload.len()).unwrap();
        (Just(payload), 0..=last)
    })
}

fn requests() -> impl Strategy<Value = (SessionId, u8, u32, Vec<u8>)> {
    let piece = piece(REQUEST_PAYLOAD_MAX, CLIENT_BYTES);
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

fn statuses() -> impl Strategy<Value = Status> {
    prop::sample::select(vec![Status::Joined, Status::Fresh, Status::Refused])
}

proptest! {
    #[test]
    fn requests_survive((id, seq, offset, payload) in requests()) {
        let request = Request { id, seq, offset, payload: &payload };
        let bytes = request.emit();
        prop_assert!((REQUEST_MIN..=DATAGRAM_MAX).contains(&bytes.len()));
        prop_assert_eq!(Request::parse(&bytes), Ok(request));
    }

    #[test]
    fn responses_survive(
        id: [u8; 12],
        seq in 0..SEQUENCES,
        tag: [u8; 4],
        ack in 0..1_u32 << 24,
        (payload, offset) in piece(RESPONSE_PAYLOAD_MAX, SERVER_BYTES),
    ) {
        let (id, tag) = (SessionId(id), RouteTag(tag));
        let response = Response { id, seq, tag, ack, offset, payload: &payload };
        let bytes = response.emit();
        prop_assert!(bytes.len() <= DATAGRAM_MAX);
        prop_assert_eq!(Response::parse(&bytes), Ok(response));
    }

    #[test]
    fn joins_survive(join in joins()) {
        let bytes = join.emit();
        prop_assert_eq!(Join::parse(bytes.first_chunk().unwrap()), Ok(join));
        prop_assert_eq!(bytes.len(), JOIN_LEN);
    }

    #[test]
    fn forwarded_joins_survive(join in joins(), v4: bool, address: [u8; 16], port: u16) {
        let [a, b, c, d, ..] = address;
        let address: std::net::IpAddr =
            if v4 { [a, b, c, d].into() } else { std::net::IpAddr::from(address).to_canonical() };
        let forward = Forward { client: (address, port).into(), join };
        let bytes = forward.emit();
        prop_assert_eq!(Forward::parse(bytes.first_chunk().unwrap()), Ok(forward));
        prop_assert_eq!(bytes.len(), FORWARD_LEN);
    }

    #[test]
    fn answers_survive(status in statuses(), server_offset in 0..1_u32 << 24) {
        let answer = JoinAnswer { status, server_offset };
        prop_assert_eq!(JoinAnswer::parse(&answer.emit()), Ok(answer));
    }

    #[test]
    fn a_corrupted_request_is_an_error_or_another_request(
        (id, seq, offset, payload) in requests(),
        at: prop::sample::Index,
        wrong in 1..=255_u8,
    ) {
        let request = Request { id, seq, offset, payload: &payload };
        let mut bytes = request.emit();
        let at = at.index(bytes.len());
        bytes[at] ^= wrong;
        let ignored = at >= REQUEST_HEADER + payload.len() || at == 1 && wrong < 16;
        prop_assert_eq!(Request::parse(&bytes) == Ok(request), ignored);
    }
}

fn request() -> Vec<u8> {
    let id = SessionId([7; 12]);
    let payload = &[22; REQUEST_PAYLOAD_MAX];
    let request = Request { id, seq: 3, offset: 5, payload };
    request.emit()
}

fn forward() -> Forward {
    let join = Join {
        key: JoinKey::new([7; 16]),
        tag: RouteTag([1, 2, 3, 4]),
        client_offset: 1,
        server_offset: 2,
    };
    Forward { client: "192.0.2.1:1".parse().unwrap(), join }
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
fn a_response_without_a_whole_header_is_invalid() {
    let bytes = response();
    for length in 0..bytes.len() {
        match Response::parse(&bytes[..length]) {
            Ok(cut) => assert_eq!(cut.payload.len(), length - RESPONSE_HEADER),
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
    for at in 0..JOIN_LEN.max(60) {
        for wrong in 0..=255 {
            let mut bytes = request();
            bytes[at] = wrong;
            let _ = Request::parse(&bytes);
            let mut bytes = response();
            bytes[at] = wrong;
            let _ = Response::parse(&bytes);
            let _ = Join::parse(bytes.first_chunk().unwrap());
            let _ = JoinAnswer::parse(bytes.first_chunk().unwrap());
            let _ = Forward::parse(bytes.first_chunk().unwrap());
        }
    }
}

fn ours<T>(result: Result<T, WireError>) -> bool {
    !matches!(result, Err(WireError::NotOurs))
}

#[test]
fn each_frame_has_one_valid_first_byte() {
    for first in 0..=255_u8 {
        let mut bytes = request();
        bytes[0] = first;
        assert_eq!(ours(Request::parse(&bytes)), first == 8);
        assert_eq!(ours(Response::parse(&bytes)), first == 9);
        let join: &[u8; JOIN_LEN] = bytes.first_chunk().unwrap();
        assert_eq!(ours(Join::parse(join)), first == 10);
        let answer: &[u8; JOIN_ANSWER_LEN] = bytes.first_chunk().unwrap();
        assert_eq!(ours(JoinAnswer::parse(answer)), first == 11);
        let mut bytes = forward().emit();
        bytes[0] = first;
        assert_eq!(ours(Forward::parse(bytes.first_chunk().unwrap())), first == 12);
    }
}

/// The first bytes are neither TLS record types (RFC 8446 section 5.1) nor those of RFC 9443.
#[test]
fn first_bytes_are_unassigned() {
    let firsts = [request()[0], response()[0]];
    assert!(firsts.iter().all(|first| (4..=15).contains(first)));
}

/// The amplification limit: the smallest request allows the largest response; no smaller one would.
const _: () = assert!(REQUEST_MIN * AMPLIFICATION >= DATAGRAM_MAX);
const _: () = assert!((REQUEST_MIN - 1) * AMPLIFICATION < DATAGRAM_MAX);
