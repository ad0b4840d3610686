//! What is asked and answered: HTTP/1.1 with content that can be checked at any offset.

use crate::trial::Marks;

/// Bytes that may be asked for at most: a minute at 100 Mbit/s is 750 MB.
pub const BYTES_MAX: u64 = 1 << 30;

/// Bytes of a request or of a response's head at most; nginx answers in 300.
const HEAD_MAX: usize = 8 * 1024;

/// Fields of a head at most.
const FIELDS_MAX: usize = 32;

/// Writes what stands at `offset` of every response into `room`, for origins of other making.
pub fn fill(offset: u64, room: &mut [u8]) {
    for (byte, at) in room.iter_mut().zip(offset..) {
        *byte = byte_at(at);
    }
}

/// The top byte of a multiplicative hash (Knuth, vol. 3, 6.4), so that no packet's content is like another's.
const fn byte_at(offset: u64) -> u8 {
    offset.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0]
}

/// The request for `bytes` bytes.
pub(crate) fn request(name: &str, bytes: u64) -> Vec<u8> {
    format!("GET /bytes/{bytes} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n").into_bytes()
}

/// Reads a request as far as it is here: none if more is to come, else how many bytes are asked for.
///
/// # Errors
/// Status line of the refusal.
pub(crate) fn asked(text: &[u8]) -> Result<Option<u64>, &'static str> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(text) {
        Err(_) => return Err("400 Bad Request"),
        Ok(httparse::Status::Partial) if text.len() > HEAD_MAX => return Err("400 Bad Request"),
        Ok(httparse::Status::Partial) => return Ok(None),
        Ok(httparse::Status::Complete(_)) => {}
    }
    let number = request.path.and_then(|path| path.strip_prefix("/bytes/"));
    let number = number.and_then(|number| number.parse().ok());
    number.filter(|number| *number <= BYTES_MAX).map(Some).ok_or("404 Not Found")
}

/// The bytes of a response in order.
#[derive(Debug)]
pub(crate) struct Answer {
    head: Vec<u8>,
    sent: u64,
    bytes: u64,
}

impl Answer {
    /// The answer to what [`asked`] said.
    pub(crate) fn new(asked: Result<u64, &'static str>) -> Self {
        let (status, bytes) = asked.map_or_else(|refusal| (refusal, 0), |bytes| ("200 OK", bytes));
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/octet-stream\r\n\
             Content-Length: {bytes}\r\nConnection: close\r\n\r\n"
        );
        Self { head: head.into_bytes(), sent: 0, bytes }
    }

    /// The next bytes, at most `most`; empty at the end.
    pub(crate) fn next(&mut self, most: usize) -> Vec<u8> {
        let mut piece: Vec<u8> = self.head.drain(..self.head.len().min(most)).collect();
        let left = usize::try_from(self.bytes - self.sent).unwrap_or(usize::MAX);
        let (from, more) = (piece.len(), left.min(most - piece.len()));
        piece.resize(from + more, 0);
        fill(self.sent, piece.get_mut(from..).unwrap_or_default());
        self.sent += u64::try_from(more).unwrap_or(0);
        piece
    }
}

/// A response as it comes in.
#[derive(Debug)]
pub(crate) struct Response {
    head: Option<Vec<u8>>,
    expected: u64,
}

impl Response {
    /// To a request for `expected` bytes.
    pub(crate) const fn new(expected: u64) -> Self {
        Self { head: Some(Vec::new()), expected }
    }

    /// Takes bytes of it and notes the moment; whether that was all.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn take(&mut self, bytes: &[u8], marks: &mut Marks) -> Result<bool, String> {
        marks.response();
        match &mut self.head {
            None => self.check(bytes, marks)?,
            Some(head) => {
                head.extend_from_slice(bytes);
                let Some(length) = head_length(head, self.expected)? else { return Ok(false) };
                let content = head.split_off(length);
                self.head = None;
                self.check(&content, marks)?;
            }
        }
        let whole = marks.bytes == self.expected;
        if whole {
            marks.last();
        }
        Ok(whole)
    }

    fn check(&self, content: &[u8], marks: &mut Marks) -> Result<(), String> {
        let right =
            content.iter().zip(marks.bytes..).take_while(|(byte, at)| **byte == byte_at(*at));
        let right = right.count();
        marks.bytes += u64::try_from(right).unwrap_or(0);
        if right < content.len() {
            return Err(format!("wrong content at byte {}", marks.bytes));
        }
        match marks.bytes > self.expected {
            true => Err(format!("more than the {} bytes asked for", self.expected)),
            false => Ok(()),
        }
    }
}

/// Bytes of the head, once all are here.
fn head_length(text: &[u8], expected: u64) -> Result<Option<usize>, String> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut response = httparse::Response::new(&mut fields);
    let length = match response.parse(text) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if text.len() <= HEAD_MAX => return Ok(None),
        Ok(httparse::Status::Partial) => return Err("a response without an end of its head".into()),
        Err(error) => return Err(format!("not a response of HTTP/1.1: {error}")),
    };
    if response.code != Some(200) {
        return Err(format!("status {}", response.code.unwrap_or_default()));
    }
    let field =
        response.headers.iter().find(|field| field.name.eq_ignore_ascii_case("content-length"));
    let value =
        field.and_then(|field| str::from_utf8(field.value).ok()?.trim().parse::<u64>().ok());
    match value {
        Some(value) if value == expected => Ok(Some(length)),
        Some(value) => Err(format!("{value} bytes instead of {expected}")),
        None => Err("a response without a length".into()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// The outcome of reading the answer in pieces of `most` bytes, changed by `change`.
    fn exchange(
        bytes: u64,
        most: usize,
        change: impl Fn(&mut Vec<u8>),
    ) -> (Result<bool, String>, u64) {
        let mut answer = Answer::new(Ok(bytes));
        let mut all = Vec::new();
        loop {
            let piece = answer.next(most);
            assert!(piece.len() <= most);
            if piece.is_empty() {
                break;
            }
            all.extend(piece);
        }
        change(&mut all);
        let (mut response, mut marks) = (Response::new(bytes), Marks::new(Instant::now()));
        let mut outcome = Ok(false);
        for piece in all.chunks(most) {
            outcome = response.take(piece, &mut marks);
            if outcome.is_err() {
                break;
            }
        }
        (outcome, marks.bytes)
    }

    #[test]
    fn what_is_sent_is_what_is_expected_in_pieces_of_any_size() {
        for bytes in [0, 1, 100, 5000] {
            for most in [1, 7, 100, 100_000] {
                assert_eq!(exchange(bytes, most, |_| {}), (Ok(true), bytes), "{bytes} by {most}");
            }
        }
    }

    #[test]
    fn every_wrong_or_missing_byte_is_seen() {
        let (outcome, right) = exchange(1000, 64, |all| {
            let last = all.len() - 1;
            all[last] ^= 1;
        });
        assert_eq!((outcome, right), (Err("wrong content at byte 999".into()), 999));
        let (outcome, right) = exchange(1000, 64, |all| all.truncate(all.len() - 1));
        assert_eq!((outcome, right), (Ok(false), 999));
        let (outcome, _) = exchange(1000, 100_000, |all| all.push(byte_at(1000)));
        assert_eq!(outcome, Err("more than the 1000 bytes asked for".into()));
    }

    #[test]
    fn other_answers_are_refused() {
        let read = |text: &str| head_length(text.as_bytes(), 5);
        assert_eq!(read("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"), Ok(Some(38)));
        assert_eq!(read("HTTP/1.1 200 OK\r\nContent-"), Ok(None));
        assert_eq!(
            read("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n"),
            Err("6 bytes instead of 5".into())
        );
        assert_eq!(read("HTTP/1.1 404 Not Found\r\n\r\n"), Err("status 404".into()));
        assert!(read("HTTP/1.1 200 OK\r\n\r\n").is_err());
        assert!(read("\x16\x03\x03").is_err());
        let endless = format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(HEAD_MAX));
        assert!(read(&endless).is_err());
    }

    #[test]
    fn requests_are_read_when_whole() {
        let whole = request("name.test", 12);
        assert_eq!(asked(&whole), Ok(Some(12)));
        assert_eq!(asked(&whole[..whole.len() - 1]), Ok(None));
        assert!(asked(b"\x16\x03\x01").is_err());
        assert_eq!(asked(b"GET /else HTTP/1.1\r\n\r\n"), Err("404 Not Found"));
        assert_eq!(asked(&request("name.test", BYTES_MAX)), Ok(Some(BYTES_MAX)));
        assert_eq!(asked(&request("name.test", BYTES_MAX + 1)), Err("404 Not Found"));
    }
}
