//! Fuzz targets.
//!
//! Here and not in the targets, so that an ordinary test can replay the committed corpora
//! (`crates/proto/tests/fuzz_replay.rs` includes this file).

mod cookie;
mod edge;
mod operations;

use headstart_proto::hello::{self, Progress};
use headstart_proto::join::{ACCEPTANCE_LEN, Answer, JOIN_MAX, Join, acceptance};
use headstart_proto::limits::{CLIENT_BYTES, DATAGRAM_MAX, REQUEST_MIN};
use headstart_proto::wire::{FORWARD_LEN, Forward, REQUEST_PAYLOAD_MAX, Request, Response};
use headstart_proto::{JoinKey, RouteTag};

pub use cookie::cookie;
pub use operations::operations;

/// Any datagram, read as a request and as a response: what was read is written and read the same.
pub fn datagrams(bytes: &[u8]) {
    if let Ok(request) = Request::parse(bytes) {
        let emitted = request.emit();
        assert!((REQUEST_MIN..=DATAGRAM_MAX).contains(&emitted.len()));
        assert!(request.payload.len() <= REQUEST_PAYLOAD_MAX);
        assert_eq!(Request::parse(&emitted), Ok(request));
    }
    if let Ok(response) = Response::parse(bytes) {
        assert_eq!(response.emit(), bytes);
    }
}

/// Any first bytes of TCP, read as a join, as its answer, and as what one edge says to another.
///
/// No fuzzer finds a join: its random is a hash. So bytes that are a ClientHello are the names that
/// a join shows; the first bytes are its fields.
pub fn frames(bytes: &[u8]) {
    if let Some(frame) = bytes.first_chunk::<FORWARD_LEN>()
        && let Ok(forward) = Forward::parse(frame)
    {
        let emitted = forward.emit();
        assert_eq!(emitted.first_chunk().map(Forward::parse), Some(Ok(forward)));
    }
    let key = JoinKey::new([7; 16]);
    if let Answer::Accepted(offset) = Answer::read(&key, bytes) {
        assert_eq!(bytes.get(..ACCEPTANCE_LEN), Some(acceptance(&key, offset).as_slice()));
    }
    let Ok(Progress::Complete(shown)) = hello::read(bytes) else { return };
    if let Some(join) = Join::read(&shown) {
        assert!(shown.early_data && shown.psk_identities.len() == 1, "{join:?}");
    }
    let numbers = bytes.iter().map(|byte| u32::from(*byte) << 16);
    let mut numbers = numbers.chain([0, 0]);
    let mut next = || numbers.next().unwrap_or_default();
    let (client_offset, server_offset) = (next(), next());
    let join = Join { key, tag: RouteTag::default(), client_offset, server_offset };
    let emitted = join.emit(&shown);
    assert!(emitted.len() <= JOIN_MAX);
    let Ok(Progress::Complete(read)) = hello::read(&emitted) else { panic!("{join:?} is TLS") };
    assert_eq!((read.end, &read.server_name), (emitted.len(), &shown.server_name));
    assert_eq!(Join::read(&read), Some(join));
}

/// Any client stream: read in pieces it says the same as read whole, and nothing too early.
pub fn hello(bytes: &[u8]) {
    let whole = hello::read(bytes);
    if let Ok(Progress::Complete(hello)) = &whole {
        assert!(hello.end <= bytes.len() && hello.end <= CLIENT_BYTES);
        let exact = bytes.get(..hello.end).unwrap_or_default();
        assert_eq!(hello::read(exact), whole);
    }
    // All prefixes of a long stream would take the square of its length.
    let step = bytes.len() / 64 + 1;
    for prefix in (0..bytes.len()).step_by(step).filter_map(|end| bytes.get(..end)) {
        match hello::read(prefix) {
            Ok(Progress::Incomplete) => {}
            Ok(Progress::Complete(hello)) => {
                assert_eq!(whole, Ok(Progress::Complete(hello)));
            }
            Err(error) => assert_eq!(whole, Err(error)),
        }
    }
}
