//! Frames of HTTP/2 (RFC 9113 section 4), written and read without a library.

use std::collections::BTreeMap;

/// Beginning of a client's connection, with empty SETTINGS.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;

const METHODS: [&str; 8] = ["GET", "POST", "PUT", "HEAD", "OPTIONS", "CONNECT", "PATCH", "TRACE"];
const NAMES: [&str; 32] = [
    ":method",
    ":path",
    ":authority",
    ":scheme",
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "cookie",
    "via",
    "forwarded",
    "x-forwarded-for",
    "x_forwarded_for",
    "x-real-ip",
    "early-data",
    "keep-alive",
    "proxy-connection",
    "http2-settings",
    "content_length",
    "transfer.encoding",
    "x-original-url",
    "proxy",
    "range",
    "accept",
    "x",
    "Host",
    "x y",
    "x\r\ny",
];
const VALUES: [&str; 32] = [
    "",
    "/",
    "a.test",
    "b.test",
    "A.test.:443",
    "https",
    "0",
    "3",
    "5",
    "3, 3",
    "3,4",
    "+3",
    " 3",
    "chunked",
    "gzip, chunked",
    "trailers",
    "close, content-length",
    "content-length",
    "100-continue",
    "h2c",
    "websocket",
    "1.1 x",
    "for=1.2.3.4",
    "1.2.3.4",
    "*",
    "/a b",
    "/\r\nx: y",
    "a\r\nb: c",
    "a\0b",
    "http://b.test/",
    "u@a.test",
    "/%0d%0a?x#y",
];

/// Makes a client's connection of any bytes: each of them begins a frame, and others say what is in
/// it, so that most frames are well-formed.
pub(super) fn made(bytes: &[u8]) -> Vec<u8> {
    let mut from = Bytes(bytes);
    let mut to = PREFACE.to_vec();
    while !from.0.is_empty() && to.len() < 16 * 1024 {
        let (kind, how) = (from.next(), from.next());
        let stream = u32::from(how % 8) * 2 + 1;
        let end = if how & 8 == 0 { END_STREAM } else { 0 };
        match kind % 8 {
            0..=2 => headers(&mut from, &mut to, stream, end, how),
            3 | 4 => data(&mut from, &mut to, stream, end, how),
            5 => frame(&mut to, RST_STREAM, 0, stream, &[0, 0, 0, how >> 4]),
            6 if how & 8 == 0 => frame(&mut to, SETTINGS, 0, 0, from.take(6)),
            6 => frame(&mut to, WINDOW_UPDATE, 0, stream, &[0, 0, 1, from.next()]),
            _ => {
                let (kind, flags, length) = (from.next(), from.next(), from.next());
                let payload = from.take(length.into());
                frame(&mut to, kind, flags, u32::from(how), payload);
            }
        }
    }
    to
}

fn headers(from: &mut Bytes<'_>, to: &mut Vec<u8>, stream: u32, end: u8, how: u8) {
    let first = from.next();
    let mut block = Vec::new();
    // Trailers have no such fields, and neither has what is malformed.
    if first & 8 == 0 {
        let method = METHODS[usize::from(first % 8)];
        for (name, value) in
            [(":method", method), (":scheme", "https"), (":authority", "a.test"), (":path", "/")]
        {
            literal(&mut block, name.as_bytes(), value.as_bytes());
        }
    }
    for _ in 0..first >> 4 {
        let (name, value) = (from.word(&NAMES), from.word(&VALUES));
        literal(&mut block, name, value);
    }
    let cut = if how & 16 == 0 { block.len() } else { block.len() / 2 };
    let flags = if cut == block.len() { END_HEADERS } else { 0 };
    frame(to, HEADERS, end | flags, stream, &block[..cut]);
    if cut < block.len() {
        frame(to, CONTINUATION, END_HEADERS, stream, &block[cut..]);
    }
}

fn data(from: &mut Bytes<'_>, to: &mut Vec<u8>, stream: u32, end: u8, how: u8) {
    let length = from.next();
    let body = from.take(length.into());
    let padding = how >> 5;
    if how & 16 == 0 {
        return frame(to, DATA, end, stream, body);
    }
    let padded = [&[padding], body, &vec![0; padding.into()][..]].concat();
    frame(to, DATA, end | PADDED, stream, &padded);
}

/// A field as it is, not to be indexed (RFC 7541 section 6.2.2).
fn literal(block: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    block.push(0);
    for text in [name, value] {
        // The words are shorter than a length of two bytes.
        block.push(u8::try_from(text.len()).unwrap());
        block.extend_from_slice(text);
    }
}

fn frame(to: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    to.extend_from_slice(&length[1..]);
    to.extend_from_slice(&[kind, flags]);
    to.extend_from_slice(&stream.to_be_bytes());
    to.extend_from_slice(payload);
}

/// Bytes that are read one after the other; zeros follow the last.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn next(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or_default()
    }

    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// Returns one of the words, or any other up to 63 bytes.
    fn word(&mut self, words: &[&'static str]) -> &'a [u8]
    where
        'static: 'a,
    {
        let first = usize::from(self.next());
        match words.get(first) {
            Some(word) => word.as_bytes(),
            None => self.take(first % 64),
        }
    }
}

/// Streams that a client has opened.
pub(super) struct Streams {
    pub(super) all: BTreeMap<u32, Sent>,
}

/// Body of a request as it was sent.
#[derive(Debug, Default)]
pub(super) struct Sent {
    pub(super) data: Vec<u8>,
    pub(super) has_ended: bool,
}

impl Streams {
    /// Reads what a client has sent, as far as there are frames.
    pub(super) fn read(sent: &[u8]) -> Self {
        let mut all = BTreeMap::<u32, Sent>::new();
        let mut rest = sent.get(24..).unwrap_or_default();
        while let Some((&[a, b, c, kind, flags, d, e, f, g], behind)) = rest.split_first_chunk() {
            let length = usize::try_from(u32::from_be_bytes([0, a, b, c])).unwrap();
            let Some((payload, behind)) = behind.split_at_checked(length) else { break };
            rest = behind;
            let stream = u32::from_be_bytes([d & 0x7f, e, f, g]);
            let end = flags & END_STREAM != 0;
            match kind {
                HEADERS => all.entry(stream).or_default().has_ended |= end,
                DATA => {
                    let Some(sent) = all.get_mut(&stream).filter(|sent| !sent.has_ended) else {
                        continue;
                    };
                    sent.data.extend_from_slice(unpadded(payload, flags));
                    sent.has_ended = end;
                }
                _ => {}
            }
        }
        Self { all }
    }
}

fn unpadded(payload: &[u8], flags: u8) -> &[u8] {
    if flags & PADDED == 0 {
        return payload;
    }
    let Some((&padding, data)) = payload.split_first() else { return &[] };
    data.get(..data.len().saturating_sub(padding.into())).unwrap_or_default()
}
