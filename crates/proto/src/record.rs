//! Boundaries of TLS records, at which the streams on TCP begin (RFC 8446 section 5.1).

use crate::hello::RECORD_HEADER;

/// Length of the longest record: that of TLS 1.2 (RFC 5246 section 6.2.3), header included.
pub(crate) const LONGEST: u32 = 5 + (1 << 14) + 2048;

/// Returns the start of the record of `stream` that holds the byte at `offset`, or that begins
/// there; `offset` itself if that is behind what is no record.
pub(crate) fn start(stream: &[u8], offset: usize) -> usize {
    let mut start = 0;
    while start < offset {
        let header = stream.get(start..).and_then(<[u8]>::first_chunk::<RECORD_HEADER>);
        let Some(&[kind, major, _, high, low]) = header else { break };
        let end = start + RECORD_HEADER + usize::from(u16::from_be_bytes([high, low]));
        if !(20..=24).contains(&kind) || major != 3 || end - start > LONGEST as usize {
            return offset;
        }
        if end > offset {
            break;
        }
        start = end;
    }
    start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_begins_with_the_record_that_holds_the_offset() {
        let stream = b"\x16\x03\x03\0\x02ab\x14\x03\x03\0\x01c\x17\x03\x03\0\x09de";
        let starts = [(0, 0), (1, 0), (6, 0), (7, 7), (12, 7), (13, 13), (16, 13), (20, 13)];
        for (offset, expected) in starts {
            assert_eq!(start(stream, offset), expected, "offset {offset}");
        }
        assert_eq!(start(&stream[..15], 15), 13, "a header that is cut off");
    }

    #[test]
    fn bytes_without_records_begin_at_the_requested_offset() {
        assert_eq!(start(b"HTTP/1.1 400 Bad Request", 9), 9);
        assert_eq!(start(b"\x16\x03\x03\0\x01aHTTP/1.1", 8), 8);
        assert_eq!(start(b"\x16\x03\x03\xff\xff", 5), 5);
        assert_eq!(start(b"", 0), 0);
    }

    #[test]
    fn a_record_may_begin_far_in_the_stream() {
        let mut stream = [0; 40_000];
        for at in [0, 16_389, 32_778] {
            stream[at..at + 5].copy_from_slice(b"\x17\x03\x03\x40\0");
        }
        assert_eq!((start(&stream, 16_390), start(&stream, 33_000)), (16_389, 32_778));
    }
}
