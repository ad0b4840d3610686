//! Follows what the HTTP library sends on its own over HTTP/2.
//!
//! It tells its caller of few of the limits by which it refuses: what it sends shows all. And a
//! client that ends its upload when it has the response is told that this is an error, which some
//! take for an error of the response.

use std::collections::{BTreeSet, VecDeque};

use h2::Reason;

use super::frames::{DATA, Frame, Framing, GOAWAY, HEADERS, RST_STREAM, STREAMS};
use crate::metrics;

/// Bytes of a payload that are looked at: those of a GOAWAY before its words, and the longest ones.
const LOOKED_AT: usize = 8 + "header_list_way_too_large".len();

/// Streams that are known, at most: twice what the library has at one time.
const STREAMS_MAX: usize = 2 * STREAMS as usize;

/// Follows the frames that the library sends.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    framing: Framing,
    /// Streams on which more than the head of the response comes.
    begun: BTreeSet<u32>,
    /// The streams whose response was complete last, in this order.
    ended: VecDeque<u32>,
}

impl Refusals {
    /// Follows bytes that leave.
    pub(super) fn wrote(&mut self, mut bytes: &[u8]) {
        while let Some(frame) = self.framing.next(&mut bytes, LOOKED_AT) {
            if let Some(limit) = self.limit(&frame) {
                metrics::limit_hit(limit);
            }
        }
    }

    /// Returns `bytes` that are to leave, changed where they reset a stream behind its whole
    /// response for an error of its request: such a reset only ends the upload (RFC 9113 section
    /// 8.1).
    pub(super) fn mended(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let (mut framing, mut rest, mut mended) = (self.framing.clone(), bytes, None);
        let mut ended = Vec::new();
        while let Some(frame) = framing.next(&mut rest, LOOKED_AT) {
            let is_error =
                frame.kind == RST_STREAM && code(&frame.payload) == Reason::PROTOCOL_ERROR;
            if is_end(&frame) {
                ended.push(frame.stream);
            } else if is_error
                && (self.ended.contains(&frame.stream) || ended.contains(&frame.stream))
            {
                // The last byte is all that tells it from NO_ERROR.
                let last = bytes.len() - rest.len() - 1;
                mended.get_or_insert_with(|| bytes.to_vec())[last] = 0;
            }
        }
        mended
    }

    /// Returns the limit that `frame` says was reached.
    fn limit(&mut self, frame: &Frame) -> Option<&'static str> {
        let is_end = is_end(frame);
        if is_end {
            self.ended.truncate(STREAMS_MAX - 1);
            self.ended.push_front(frame.stream);
        }
        match frame.kind {
            DATA if is_end => {
                self.begun.remove(&frame.stream);
                None
            }
            // Trailers come last, and may have one line, too.
            HEADERS if is_end => {
                let is_head = !self.begun.remove(&frame.stream);
                (is_head && is_one_line(frame)).then_some("request_head")
            }
            HEADERS => {
                self.begun.insert(frame.stream);
                // A client may have reset some.
                if self.begun.len() > STREAMS_MAX {
                    self.begun.pop_first();
                }
                None
            }
            RST_STREAM => {
                self.begun.remove(&frame.stream);
                (code(&frame.payload) == Reason::REFUSED_STREAM).then_some("concurrent_streams")
            }
            GOAWAY => left_for(frame.payload.get(4..)?),
            _ => None,
        }
    }
}

/// Returns true if a frame ends its stream.
fn is_end(frame: &Frame) -> bool {
    const END_STREAM: u8 = 1;
    [DATA, HEADERS].contains(&frame.kind) && frame.flags & END_STREAM > 0
}

/// Returns the limit for which the library ends a connection, by the payload of its GOAWAY behind
/// the number of a stream.
fn left_for(payload: &[u8]) -> Option<&'static str> {
    match (code(payload), payload.get(4..)?) {
        // The one use of it: a head goes on and on.
        (Reason::COMPRESSION_ERROR, _) => Some("request_head"),
        (Reason::ENHANCE_YOUR_CALM, b"header_list_way_too_large" | b"too_many_continuations") => {
            Some("request_head")
        }
        (Reason::ENHANCE_YOUR_CALM, b"too_many_resets") => Some("stream_resets"),
        (Reason::ENHANCE_YOUR_CALM, b"too_many_data_frames") => Some("control_frames"),
        (Reason::ENHANCE_YOUR_CALM, b"too_many_internal_resets") => Some("stream_errors"),
        (Reason::ENHANCE_YOUR_CALM, _) => Some("http2_excess"),
        _ => None,
    }
}

/// Returns the reason at the begin of `payload`.
fn code(payload: &[u8]) -> Reason {
    payload.first_chunk().map_or(Reason::NO_ERROR, |code| u32::from_be_bytes(*code).into())
}

/// Returns true if a block of headers has one line alone. Only the library's own response to a head
/// that is too large has: a status, while all others have a date as well.
fn is_one_line(frame: &Frame) -> bool {
    let mut block = &frame.payload[..];
    if block.len() < frame.length {
        return false;
    }
    // Changes of the table's size come first (RFC 7541 section 6.3).
    while let Some((first @ 0x20..0x40, rest)) = block.split_first() {
        block = behind_integer(first & 0x1f == 0x1f, rest);
    }
    match block {
        // The number of a line that was sent before (section 6.1).
        [first @ 0x80..=0xff, rest @ ..] => behind_integer(*first == 0xff, rest).is_empty(),
        // The number of `:status`, to be remembered or not, and digits (section 6.2).
        [0x48 | 0x18 | 0x08, length, digits @ ..] => digits.len() == usize::from(length & 0x7f),
        _ => false,
    }
}

/// Returns what comes behind an integer, of which `more` bytes may be left (RFC 7541 section 5.1).
fn behind_integer(more: bool, rest: &[u8]) -> &[u8] {
    let is_last = |byte: &u8| byte & 0x80 == 0;
    let length =
        if more { rest.iter().position(is_last).map_or(rest.len(), |at| at + 1) } else { 0 };
    &rest[length..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Frame {
        Frame { kind, flags, stream: 1, length: payload.len(), payload: payload.to_vec() }
    }

    #[test]
    fn a_head_of_one_line_that_ends_its_stream_is_a_refusal() {
        let limit = |payload: &[u8]| Refusals::default().limit(&frame(HEADERS, 5, payload));
        for line in [&b"\x48\x83abc"[..], b"\x08\x03431", b"\xbe", b"\xff\x80\x01"] {
            assert_eq!(limit(line), Some("request_head"), "{line:x?}");
            assert_eq!(limit(&[&[0x3f, 0xe1, 0x1f], line].concat()), Some("request_head"));
            assert_eq!(limit(&[line, b"\xbf"].concat()), None, "it has a date, too");
        }
        assert_eq!(limit(b""), None);
        assert_eq!(Refusals::default().limit(&frame(HEADERS, 4, b"\xbe")), None);
    }

    #[test]
    fn trailers_of_one_line_are_no_refusal() {
        let mut refusals = Refusals::default();
        for number in 0..1000 {
            let on = |frame| Frame { stream: number, ..frame };
            assert_eq!(refusals.limit(&on(frame(HEADERS, 4, b"\x88\xbe"))), None);
            assert_eq!(refusals.limit(&on(frame(DATA, 0, b"body"))), None);
            if number % 2 == 0 {
                assert_eq!(refusals.limit(&on(frame(HEADERS, 5, b"\xbe"))), None);
            }
        }
        assert!(refusals.begun.len() <= STREAMS_MAX, "clients reset some");
    }

    #[test]
    fn a_reset_behind_a_whole_response_tells_no_error() {
        let end = [0, 0, 1, DATA, 1, 0, 0, 0, 9, b'x'];
        let reset = |stream| [0, 0, 4, RST_STREAM, 0, 0, 0, 0, stream, 0, 0, 0, 1];
        let no_error = [0, 0, 4, RST_STREAM, 0, 0, 0, 0, 9, 0, 0, 0, 0];
        let mut refusals = Refusals::default();
        assert_eq!(refusals.mended(&reset(9)), None, "there is no response");
        let both = refusals.mended(&[&end[..], &reset(7), &reset(9)].concat());
        assert_eq!(both, Some([&end[..], &reset(7), &no_error].concat()));
        refusals.wrote(&end);
        for cut in 1..reset(9).len() {
            let mut refusals = Refusals::default();
            refusals.wrote(&[&end[..], &reset(9)[..cut]].concat());
            assert_eq!(refusals.mended(&reset(9)[cut..]).as_deref(), Some(&no_error[cut..]));
        }
    }

    /// A long upload may be older than all responses that are remembered.
    #[test]
    fn a_response_is_remembered_by_its_end_and_not_by_the_age_of_its_stream() {
        let end = |stream: u8| [0, 0, 0, DATA, 1, 0, 0, 1, stream];
        let mut refusals = Refusals::default();
        for _ in 0..STREAMS_MAX {
            refusals.wrote(&end(9));
        }
        refusals.wrote(&end(7));
        let reset = [0, 0, 4, RST_STREAM, 0, 0, 0, 1, 7, 0, 0, 0, 1];
        assert_eq!(refusals.mended(&reset).unwrap()[12], 0);
        assert_eq!(refusals.ended.len(), STREAMS_MAX);
    }

    #[test]
    fn frames_are_found_however_they_are_cut() {
        let mut sent = vec![0, 0, 4, 3, 0, 0, 0, 0, 9, 0, 0, 0, 7];
        sent.extend([0, 1, 0, 0, 0, 0, 0, 0, 9]);
        sent.extend([1; 256]);
        sent.extend([0, 0, 0, 4, 1, 0, 0, 0, 0]);
        for size in 1..sent.len() {
            let (mut framing, mut found) = (Framing::default(), Vec::new());
            for mut piece in sent.chunks(size) {
                while let Some(frame) = framing.next(&mut piece, 4) {
                    found.push((frame.kind, frame.flags, frame.stream, frame.length));
                    assert_eq!(frame.payload.len(), frame.length.min(4));
                }
            }
            assert_eq!(found, [(3, 0, 9, 4), (0, 0, 9, 256), (4, 1, 0, 0)]);
        }
    }
}
