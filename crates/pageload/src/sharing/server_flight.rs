//! Reads what a server's first flight says about resumption, as it arrives and without keeping
//! certificates.

use super::fields::Fields;
use super::limits::{SERVER_BYTES, SERVER_HELLO_MAX};

/// Content types of records (RFC 8446 section 5.1).
mod record {
    pub(super) const CHANGE_CIPHER_SPEC: u8 = 20;
    pub(super) const ALERT: u8 = 21;
    pub(super) const HANDSHAKE: u8 = 22;
    pub(super) const APPLICATION_DATA: u8 = 23;
    /// Maximum length of an encrypted fragment: 256 bytes more than 2^14; in TLS 1.2, 2048.
    pub(super) const MAX: u16 = (1 << 14) + 2048;
}

/// Types of handshake messages (RFC 8446 section 4, RFC 5246 section 7.4).
mod message {
    pub(super) const HELLO_REQUEST: u8 = 0;
    pub(super) const SERVER_HELLO: u8 = 2;
    pub(super) const NEW_SESSION_TICKET: u8 = 4;
    pub(super) const CERTIFICATE_REQUEST: u8 = 13;
}

mod extension {
    pub(super) const PRE_SHARED_KEY: u16 = 41;
    pub(super) const SUPPORTED_VERSIONS: u16 = 43;
}

/// The random value that makes a ServerHello a HelloRetryRequest (RFC 8446 section 4.1.3).
const HELLO_RETRY_REQUEST: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91,
    0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

/// The level of an alert after which a handshake may go on (RFC 5246 section 7.2): some servers say
/// so of a name that they do not know, before their ServerHello.
const WARNING: u8 = 1;

/// Bytes before the ticket in NewSessionTicket of TLS 1.2: lifetime and length (RFC 5077 section
/// 3.3).
const BEFORE_TICKET: usize = 4 + 2;

/// Negotiated version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Tls13,
    Tls12,
    Older,
}

impl Version {
    fn from_number(number: u16) -> Self {
        match number {
            // 7fxx: drafts of TLS 1.3, in captures of 2016 to 2018.
            0x0304 | 0x7f00..=0x7fff => Self::Tls13,
            0x0303 => Self::Tls12,
            _ => Self::Older,
        }
    }
}

/// State of the flight so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Version of the ServerHello that is not a HelloRetryRequest.
    pub(crate) version: Option<Version>,
    /// True if the handshake is abbreviated; `None` before that is certain.
    pub(crate) resumed: Option<bool>,
    /// Bytes of a ticket issued in clear, as in TLS 1.2.
    pub(crate) ticket: Option<usize>,
    /// True if a client certificate was requested, seen in TLS 1.2 only.
    pub(crate) certificate_request: bool,
    pub(crate) retried: bool,
    /// Server random of the same ServerHello.
    pub(crate) random: [u8; 32],
}

/// Returns true if a server's stream begins with a ServerHello of TLS 1.3 that resumes a session;
/// `None` if it does not begin with one of TLS 1.3, or is cut off.
pub fn resumes(stream: &[u8]) -> Option<bool> {
    let mut flight = ServerFlight::default();
    flight.push(stream);
    flight.answer.resumed.filter(|_| flight.answer.version == Some(Version::Tls13))
}

/// Progress of reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    #[default]
    Reading,
    /// Nothing more can be learned.
    Done,
    /// The stream is not a server's TLS flight.
    NotTls,
}

/// Reads one server's stream.
#[derive(Debug, Default)]
pub(crate) struct ServerFlight {
    pub(crate) answer: Answer,
    pub(crate) state: State,
    read: usize,
    header: Gathered<5>,
    /// Bytes of the record still to come, and their content type.
    left: usize,
    kind: u8,
    alert: Gathered<2>,
    message: Message,
}

impl ServerFlight {
    /// Reads more of the stream.
    pub(crate) fn push(&mut self, mut bytes: &[u8]) {
        self.read = self.read.saturating_add(bytes.len());
        while !bytes.is_empty() && self.state == State::Reading {
            if self.left == 0 {
                bytes = self.header.gather(bytes);
                self.on_header();
            } else {
                let (fragment, rest) = bytes.split_at(self.left.min(bytes.len()));
                self.left -= fragment.len();
                bytes = rest;
                match self.kind {
                    record::HANDSHAKE => self.on_fragment(fragment),
                    record::ALERT => self.on_alert(fragment),
                    _ => {}
                }
            }
        }
        if self.read > SERVER_BYTES && self.state == State::Reading {
            self.state = State::Done;
        }
    }

    /// Returns the number of bytes kept.
    pub(crate) fn kept(&self) -> usize {
        self.message.body.len()
    }

    fn on_header(&mut self) {
        let Some([kind, major, _, high, low]) = self.header.take() else { return };
        let length = u16::from_be_bytes([high, low]);
        if major != 3 || length > record::MAX {
            self.state = State::NotTls;
            return;
        }
        (self.kind, self.left) = (kind, usize::from(length));
        match kind {
            record::HANDSHAKE | record::ALERT => {}
            // After a HelloRetryRequest it means nothing (RFC 8446 appendix D.4).
            record::CHANGE_CIPHER_SPEC if self.answer.version.is_none() => {}
            record::CHANGE_CIPHER_SPEC => {
                // Without a certificate before it, the handshake is abbreviated (RFC 5246 section
                // 7.3).
                self.answer.resumed.get_or_insert(true);
                self.state = State::Done;
            }
            record::APPLICATION_DATA => self.state = State::Done,
            _ => self.state = State::NotTls,
        }
    }

    fn on_alert(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.state == State::Reading {
            bytes = self.alert.gather(bytes);
            if self.alert.take().is_some_and(|[level, _]| level != WARNING) {
                self.state = State::Done;
            }
        }
    }

    fn on_fragment(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.state == State::Reading {
            let was_in_header = self.message.is_in_header();
            bytes = self.message.gather(bytes);
            if was_in_header && !self.message.is_in_header() {
                self.on_message_header();
            }
            if self.message.is_whole() {
                let message = std::mem::take(&mut self.message);
                self.on_message(&message);
            }
        }
    }

    /// Handles the header of a message, which is enough for most.
    fn on_message_header(&mut self) {
        let (kind, length) = (self.message.kind, self.message.length);
        if self.answer.version.is_none() {
            let is_hello = kind == message::SERVER_HELLO && length <= SERVER_HELLO_MAX;
            if !is_hello && kind != message::HELLO_REQUEST {
                self.state = State::NotTls;
            }
            self.message.keep = is_hello;
            return;
        }
        match kind {
            message::NEW_SESSION_TICKET => {
                // It comes before ChangeCipherSpec; without a certificate before it, this is an
                // abbreviated handshake.
                self.answer.resumed.get_or_insert(true);
                self.answer.ticket = length.checked_sub(BEFORE_TICKET).filter(|ticket| *ticket > 0);
            }
            message::HELLO_REQUEST => {}
            // A certificate, a key exchange, the end of the hello: all part of a full handshake.
            _ => {
                self.answer.resumed.get_or_insert(false);
                self.answer.certificate_request |= kind == message::CERTIFICATE_REQUEST;
            }
        }
    }

    fn on_message(&mut self, message: &Message) {
        if !message.keep {
            return;
        }
        let Some(hello) = ServerHello::read(&message.body) else {
            self.state = State::NotTls;
            return;
        };
        if hello.is_retry {
            self.answer.retried = true;
            return;
        }
        self.answer.version = Some(hello.version);
        self.answer.random = hello.random;
        if hello.version == Version::Tls13 {
            self.answer.resumed = Some(hello.psk);
            self.state = State::Done;
        }
    }
}

/// A handshake message being received.
#[derive(Debug, Default)]
struct Message {
    header: Gathered<4>,
    header_done: bool,
    kind: u8,
    length: usize,
    seen: usize,
    /// True if the body is kept.
    keep: bool,
    body: Vec<u8>,
}

impl Message {
    fn is_in_header(&self) -> bool {
        !self.header_done
    }

    fn is_whole(&self) -> bool {
        self.header_done && self.seen == self.length
    }

    /// Consumes its own bytes from the front, first the header, then the body; returns the rest.
    fn gather<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        if self.is_in_header() {
            let rest = self.header.gather(bytes);
            if let Some([kind, high, middle, low]) = self.header.take() {
                let length = u32::from_be_bytes([0, high, middle, low]);
                self.header_done = true;
                self.kind = kind;
                self.length = usize::try_from(length).unwrap_or(usize::MAX);
            }
            return rest;
        }
        let (own, rest) = bytes.split_at(bytes.len().min(self.length - self.seen));
        self.seen += own.len();
        if self.keep {
            self.body.extend_from_slice(own);
        }
        rest
    }
}

/// A few bytes that may arrive in several pieces.
#[derive(Debug)]
struct Gathered<const N: usize> {
    bytes: [u8; N],
    count: usize,
}

impl<const N: usize> Default for Gathered<N> {
    fn default() -> Self {
        Self { bytes: [0; N], count: 0 }
    }
}

impl<const N: usize> Gathered<N> {
    /// Consumes the missing bytes from the front; returns the rest.
    fn gather<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let free = self.bytes.get_mut(self.count..).unwrap_or_default();
        let (own, rest) = bytes.split_at(free.len().min(bytes.len()));
        free.iter_mut().zip(own).for_each(|(to, from)| *to = *from);
        self.count += own.len();
        rest
    }

    /// Returns the bytes once all are there, and empties itself.
    fn take(&mut self) -> Option<[u8; N]> {
        (self.count == N).then(|| {
            self.count = 0;
            self.bytes
        })
    }
}

/// The relevant part of a ServerHello (RFC 8446 section 4.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ServerHello {
    version: Version,
    psk: bool,
    is_retry: bool,
    random: [u8; 32],
}

impl ServerHello {
    fn read(body: &[u8]) -> Option<Self> {
        let mut fields = Fields(body);
        let legacy_version = fields.u16()?;
        let random: [u8; 32] = fields.take(32)?.try_into().ok()?;
        fields.vector8()?; // session id
        fields.u16()?; // cipher suite
        fields.u8()?; // compression method
        let version = Version::from_number(legacy_version);
        let is_retry = random == HELLO_RETRY_REQUEST;
        let mut hello = Self { version, psk: false, is_retry, random };
        if !fields.0.is_empty() {
            hello.read_extensions(fields.vector16()?)?;
        }
        Some(hello)
    }

    fn read_extensions(&mut self, extensions: &[u8]) -> Option<()> {
        let mut fields = Fields(extensions);
        while !fields.0.is_empty() {
            let (number, body) = fields.extension()?;
            match number {
                extension::SUPPORTED_VERSIONS => {
                    self.version = Version::from_number(Fields(body).u16()?)
                }
                extension::PRE_SHARED_KEY => self.psk = true,
                _ => {}
            }
        }
        Some(())
    }
}
