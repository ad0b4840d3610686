//! Fuzz targets.
//!
//! Here and not in the targets, so that an ordinary test can replay the committed corpora
//! (`crates/proto/tests/fuzz_replay.rs` includes this file).

mod cookie;
mod edge;
mod operations;

use headstart_proto::hello::{self, Progress};
use headstart_proto::limits::{CLIENT_BYTES, DATAGRAM_MAX, REQUEST_MIN};
use headstart_proto::wire::{
    JOIN_ANSWER_LEN, JOIN_LEN, Join, JoinAnswer, REQUEST_PAYLOAD_MAX, Request, Response,
};

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
        let emitted = response.emit();
        assert_eq!(emitted.len(), bytes.len());
        assert_eq!(emitted.get(2..), bytes.get(2..), "all but the flags");
        assert_eq!(Response::parse(&emitted), Ok(response));
    }
}

/// Any first bytes of TCP, read as a join and as its answer.
pub fn frames(bytes: &[u8]) {
    if let Some(frame) = bytes.first_chunk::<JOIN_LEN>()
        && let Ok(join) = Join::parse(frame)
    {
        let emitted = join.emit();
        assert_eq!(emitted.get(2..), frame.get(2..), "all but the flags");
        let again = emitted.first_chunk().map(Join::parse);
        assert_eq!(again, Some(Ok(join)));
    }
    if let Some(frame) = bytes.first_chunk::<JOIN_ANSWER_LEN>()
        && let Ok(answer) = JoinAnswer::parse(frame)
    {
        assert_eq!(answer.emit(), *frame);
    }
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
