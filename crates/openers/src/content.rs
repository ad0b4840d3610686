//! Requests and answers: HTTP/1.1 with content that can be checked at any offset.

use std::time::Duration;

use crate::limits::{LIFE, WRITE};
use crate::trial::Marks;

/// Bytes that may be asked for at most: a minute at 100 Mbit/s is 750 MB.
pub const BYTES_MAX: u64 = 1 << 30;

/// Bytes of a request or of a response's head at most; nginx answers in 300.
const HEAD_MAX: usize = 8 * 1024;

/// Fields of a head at most.
const FIELDS_MAX: usize = 32;

/// Time that a server may think: as long as it serves a connection.
pub const WAIT_MAX: Duration = LIFE;

/// Bytes of a page's resource that are written at a time, as one record of TLS: a client reads
/// whole records, and other resources wait for the first bytes of this one. Cloudflare's nginx has
/// records of 4,229 bytes until a response is long.
const PAGE_WRITE: usize = 4 * 1024;

/// The last part of a path whose answer is a redirect.
const REDIRECT: &str = "redirect";

/// Writes what stands at `offset` of every response into `buffer`, for other origins.
pub fn fill(offset: u64, buffer: &mut [u8]) {
    for (byte, at) in buffer.iter_mut().zip(offset..) {
        *byte = byte_at(at);
    }
}

/// The top byte of a multiplicative hash (Knuth, vol. 3, 6.4), so that no packet's content is like
/// another's.
const fn byte_at(offset: u64) -> u8 {
    offset.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0]
}

pub(crate) fn request(name: &str, bytes: u64) -> Vec<u8> {
    format!("GET /bytes/{bytes} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n").into_bytes()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// This many bytes of content, and the end of the connection.
    Bytes(u64),
    /// A resource of a page.
    Resource(Recorded),
}

/// Answer to a request for a resource, as it was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Recorded {
    /// Bytes of the response with its head, which is there even where that is longer.
    pub(crate) bytes: u64,
    /// Time that the server thinks.
    pub(crate) wait: Duration,
    pub(crate) redirect: bool,
}

/// Requests of one connection, as they come in.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    text: Vec<u8>,
    /// A request whose head is here, and how much of its content is not.
    begun: Option<(Target, u64)>,
}

impl Requests {
    /// Takes bytes of the client. Ask for what is whole then: content is dropped there.
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        self.text.extend_from_slice(bytes);
    }

    /// The next request that is whole, or the status line of its refusal; none if more is to come.
    pub(crate) fn poll(&mut self) -> Option<Result<Target, &'static str>> {
        if self.begun.is_none() {
            match request_head(&self.text) {
                Err(refusal) => return Some(Err(refusal)),
                Ok(None) => return None,
                Ok(Some((target, head, content))) => {
                    self.text.drain(..head);
                    self.begun = Some((target, content));
                }
            }
        }
        let (target, left) = self.begun.take()?;
        let here = usize::try_from(left).unwrap_or(usize::MAX).min(self.text.len());
        self.text.drain(..here);
        let left = left - u64::try_from(here).unwrap_or(left);
        if left > 0 {
            self.begun = Some((target, left));
            return None;
        }
        Some(Ok(target))
    }
}

/// Reads the head of a request as far as it is here: none if more is to come, else what is asked
/// for, the bytes of the head and those of the content behind it.
///
/// # Errors
/// Status line of the refusal.
fn request_head(text: &[u8]) -> Result<Option<(Target, usize, u64)>, &'static str> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    let length = match request.parse(text) {
        Err(_) => return Err("400 Bad Request"),
        Ok(httparse::Status::Partial) if text.len() > HEAD_MAX => return Err("400 Bad Request"),
        Ok(httparse::Status::Partial) => return Ok(None),
        Ok(httparse::Status::Complete(length)) => length,
    };
    let target = request.path.and_then(parse).ok_or("404 Not Found")?;
    let content = match content_length(request.headers) {
        None => 0,
        Some(value) => value.filter(|value| *value <= BYTES_MAX).ok_or("400 Bad Request")?,
    };
    Ok(Some((target, length, content)))
}

/// The value of the field, if it is there and if it is a number.
fn content_length(fields: &[httparse::Header<'_>]) -> Option<Option<u64>> {
    let field = fields.iter().find(|field| field.name.eq_ignore_ascii_case("content-length"))?;
    Some(str::from_utf8(field.value).ok().and_then(|value| value.trim().parse().ok()))
}

/// Parses a path: `/bytes/N`, or a resource by [`resource_path`].
fn parse(path: &str) -> Option<Target> {
    if let Some(number) = path.strip_prefix("/bytes/") {
        return byte_count(number).map(Target::Bytes);
    }
    let words: Vec<_> = path.strip_prefix("/page/")?.split('/').collect();
    let (number, wait, redirect) = match words[..] {
        [number, wait] => (number, wait, false),
        [number, wait, REDIRECT] => (number, wait, true),
        _ => return None,
    };
    let wait = Duration::from_micros(wait.parse().ok()?);
    let bytes = byte_count(number)?;
    (wait <= WAIT_MAX).then_some(Target::Resource(Recorded { bytes, wait, redirect }))
}

fn byte_count(number: &str) -> Option<u64> {
    number.parse().ok().filter(|number| *number <= BYTES_MAX)
}

/// The path by which a resource is asked for, in which stands how it is answered: origins need not
/// know the page.
pub(crate) fn resource_path(resource: Recorded) -> String {
    let Recorded { bytes, wait, redirect } = resource;
    let redirect = if redirect { format!("/{REDIRECT}") } else { String::new() };
    format!("/page/{bytes}/{}{redirect}", wait.as_micros())
}

/// The bytes of a response in order.
#[derive(Debug)]
pub(crate) struct Answer {
    head: Vec<u8>,
    sent: u64,
    bytes: u64,
    wait: Duration,
    /// True if nothing follows it on the connection.
    pub(crate) is_last: bool,
}

impl Answer {
    /// The answer to what [`Requests::poll`] said.
    pub(crate) fn new(target: Result<Target, &'static str>) -> Self {
        match target {
            Ok(Target::Resource(resource)) => Self::recorded(resource),
            Ok(Target::Bytes(bytes)) => Self::last("200 OK", bytes),
            Err(refusal) => Self::last(refusal, 0),
        }
    }

    fn last(status: &str, bytes: u64) -> Self {
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/octet-stream\r\n\
             Content-Length: {bytes}\r\nConnection: close\r\n\r\n"
        );
        let (sent, wait) = Default::default();
        Self { head: head.into_bytes(), sent, bytes, wait, is_last: true }
    }

    /// The length has leading zeros (RFC 9110 section 8.6 allows them), so that a head is as long
    /// whatever follows it.
    fn recorded(resource: Recorded) -> Self {
        let begin = match resource.redirect {
            false => "HTTP/1.1 200 OK\r\nContent-Length: ",
            true => "HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: ",
        };
        let length = begin.len() + "0123456789\r\n\r\n".len();
        let bytes = resource.bytes.saturating_sub(u64::try_from(length).unwrap_or(0));
        let head = format!("{begin}{bytes:010}\r\n\r\n").into_bytes();
        Self { head, sent: 0, bytes, wait: resource.wait, is_last: false }
    }

    /// Waits as long as the server thinks; the clock of the runtime has milliseconds.
    pub(crate) async fn think(&self) {
        if !self.wait.is_zero() {
            tokio::time::sleep(self.wait).await;
        }
    }

    /// Bytes that are written at a time.
    pub(crate) const fn piece(&self) -> usize {
        if self.is_last { WRITE } else { PAGE_WRITE }
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

/// The response to a resource of a page, as it comes in.
#[derive(Debug)]
pub(crate) struct Incoming {
    resource: Recorded,
    head: Option<Vec<u8>>,
    /// Bytes of the head and the content, so far.
    received: u64,
    /// Bytes of the content, so far and at the end.
    content: u64,
    length: u64,
}

impl Incoming {
    pub(crate) const fn new(resource: Recorded) -> Self {
        Self { resource, head: Some(Vec::new()), received: 0, content: 0, length: 0 }
    }

    /// Bytes that are here, with the head.
    pub(crate) const fn received(&self) -> u64 {
        self.received
    }

    /// Takes bytes of it; whether that was all.
    ///
    /// # Errors
    /// Head or content differ from what was asked for, or are too long.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<bool, String> {
        self.received += u64::try_from(bytes.len()).unwrap_or(0);
        let Some(head) = &mut self.head else { return self.check(bytes) };
        head.extend_from_slice(bytes);
        let status = if self.resource.redirect { 302 } else { 200 };
        let Some((length, content)) = response_head(head, status)? else { return Ok(false) };
        let own = u64::try_from(length).unwrap_or(0);
        let whole = own + content;
        if whole != self.resource.bytes.max(own) {
            return Err(format!("{whole} bytes instead of {}", self.resource.bytes));
        }
        self.length = content;
        let first = head.split_off(length);
        self.head = None;
        self.check(&first)
    }

    fn check(&mut self, content: &[u8]) -> Result<bool, String> {
        check(content, &mut self.content, self.length)?;
        Ok(self.content == self.length)
    }
}

/// Counts content behind the `received` bytes of it, of which there are to be `expected`.
///
/// # Errors
/// The content differs, or is too long.
fn check(content: &[u8], received: &mut u64, expected: u64) -> Result<(), String> {
    let right = content.iter().zip(*received..).take_while(|(byte, at)| **byte == byte_at(*at));
    let right = right.count();
    *received += u64::try_from(right).unwrap_or(0);
    match () {
        () if right < content.len() => Err(format!("wrong content at byte {received}")),
        () if *received > expected => Err(format!("more than the {expected} bytes asked for")),
        () => Ok(()),
    }
}

/// A response as it comes in.
#[derive(Debug)]
pub(crate) struct Response {
    head: Option<Vec<u8>>,
    expected: u64,
}

impl Response {
    /// Expects the response to a request for `expected` bytes.
    pub(crate) const fn new(expected: u64) -> Self {
        Self { head: Some(Vec::new()), expected }
    }

    /// Takes bytes of it and notes the moment; whether that was all.
    ///
    /// # Errors
    /// Head or content differ from what was asked for, or are too long.
    pub(crate) fn take(&mut self, bytes: &[u8], marks: &mut Marks) -> Result<bool, String> {
        marks.response();
        match &mut self.head {
            None => check(bytes, &mut marks.bytes, self.expected)?,
            Some(head) => {
                head.extend_from_slice(bytes);
                let Some(length) = head_length(head, self.expected)? else { return Ok(false) };
                let content = head.split_off(length);
                self.head = None;
                check(&content, &mut marks.bytes, self.expected)?;
            }
        }
        let whole = marks.bytes == self.expected;
        if whole {
            marks.last();
        }
        Ok(whole)
    }
}

/// Bytes of the head, once all are here.
fn head_length(text: &[u8], expected: u64) -> Result<Option<usize>, String> {
    match response_head(text, 200)? {
        None => Ok(None),
        Some((length, content)) if content == expected => Ok(Some(length)),
        Some((_, content)) => Err(format!("{content} bytes instead of {expected}")),
    }
}

/// Bytes of the head, once all are here, and of the content.
fn response_head(text: &[u8], status: u16) -> Result<Option<(usize, u64)>, String> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut response = httparse::Response::new(&mut fields);
    let length = match response.parse(text) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if text.len() <= HEAD_MAX => return Ok(None),
        Ok(httparse::Status::Partial) => return Err("a response without an end of its head".into()),
        Err(error) => return Err(format!("not a response of HTTP/1.1: {error}")),
    };
    if response.code != Some(status) {
        return Err(format!("status {}", response.code.unwrap_or_default()));
    }
    let content = content_length(response.headers).flatten();
    content.map(|content| Some((length, content))).ok_or("a response without a length".into())
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
        let mut answer = Answer::new(Ok(Target::Bytes(bytes)));
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
    fn content_is_the_same_in_pieces_of_any_size() {
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
        for (text, read) in [
            ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", Ok(Some(38))),
            ("HTTP/1.1 200 OK\r\nContent-", Ok(None)),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n",
                Err("6 bytes instead of 5".to_owned()),
            ),
            ("HTTP/1.1 404 Not Found\r\n\r\n", Err("status 404".to_owned())),
        ] {
            assert_eq!(head_length(text.as_bytes(), 5), read);
        }
        let endless = format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(HEAD_MAX));
        for text in ["HTTP/1.1 200 OK\r\n\r\n", "\x16\x03\x03", &endless] {
            assert!(head_length(text.as_bytes(), 5).is_err());
        }
    }

    fn one(text: &[u8]) -> Option<Result<Target, &'static str>> {
        let mut requests = Requests::default();
        requests.take(text);
        requests.poll()
    }

    #[test]
    fn requests_are_read_when_whole() {
        let whole = request("name.test", 12);
        assert_eq!(one(&whole), Some(Ok(Target::Bytes(12))));
        assert_eq!(one(&whole[..whole.len() - 1]), None);
        assert!(one(b"\x16\x03\x01").unwrap().is_err());
        assert_eq!(one(b"GET /else HTTP/1.1\r\n\r\n"), Some(Err("404 Not Found")));
        assert_eq!(one(&request("name.test", BYTES_MAX)), Some(Ok(Target::Bytes(BYTES_MAX))));
        assert_eq!(one(&request("name.test", BYTES_MAX + 1)), Some(Err("404 Not Found")));
    }

    #[test]
    fn requests_follow_each_other_with_their_content() {
        let wait = Duration::from_micros(1500);
        let one = Recorded { bytes: 5, wait, redirect: false };
        let other = Recorded { bytes: 600, wait, redirect: true };
        let all = [(one, 3), (other, 0)].map(|(resource, content)| {
            let path = resource_path(resource);
            let head = format!("GET {path} HTTP/1.1\r\nContent-Length: {content}\r\n\r\n");
            [head.into_bytes(), vec![0; content]].concat()
        });
        let all = all.concat();
        for most in [1, 7, 1000] {
            let (mut requests, mut seen) = (Requests::default(), Vec::new());
            for piece in all.chunks(most) {
                requests.take(piece);
                seen.extend(std::iter::from_fn(|| requests.poll()));
            }
            assert_eq!(seen, [one, other].map(|one| Ok(Target::Resource(one))), "by {most}");
        }
        for path in ["/page/5", "/page/5/-1", "/page/5/300000001", "/page/5/0/else", "/page/x/0"] {
            assert_eq!(parse(path), None, "{path}");
        }
    }

    #[test]
    fn a_resource_has_as_many_bytes_as_were_recorded() {
        for (bytes, redirect) in [(0, false), (47, false), (48, false), (4000, false), (900, true)]
        {
            let resource = Recorded { bytes, redirect, wait: Duration::ZERO };
            let mut answer = Answer::new(Ok(Target::Resource(resource)));
            let mut incoming = Incoming::new(resource);
            let mut whole = false;
            loop {
                let piece = answer.next(100);
                if piece.is_empty() {
                    break;
                }
                assert!(!whole, "{bytes}: more behind its end");
                whole = incoming.take(&piece).unwrap();
            }
            assert!(whole && incoming.received() == bytes.max(47), "{bytes}: {incoming:?}");
            assert!(!answer.is_last);
        }
    }

    #[test]
    fn another_answer_than_the_recorded_one_is_seen() {
        let resource = Recorded { bytes: 100, redirect: false, wait: Duration::ZERO };
        let others =
            [resource, Recorded { bytes: 99, ..resource }, Recorded { redirect: true, ..resource }];
        let [right, shorter, redirect] =
            others.map(|other| Answer::new(Ok(Target::Resource(other))).next(1000));
        assert_eq!(Incoming::new(resource).take(&right), Ok(true));
        assert_eq!(Incoming::new(resource).take(&right[..99]), Ok(false));
        assert_eq!(Incoming::new(resource).take(&redirect), Err("status 302".into()));
        let longer = [&right[..], b"x"].concat();
        let mut wrong = right;
        wrong[99] ^= 1;
        for bytes in [longer, shorter, wrong] {
            assert!(Incoming::new(resource).take(&bytes).is_err());
        }
    }
}
