//! Reads what a client's first flight says about resumption.

use headstart_proto::hello::ClientHello;

use super::fields::Fields;

const SESSION_TICKET: u16 = 35;
/// RFC 8446 section 5.1.
const RECORD_HEADER: usize = 5;
/// Kind and length of the message, and legacy_version.
const BEFORE_RANDOM: usize = 4 + 2;

/// A client's offer to resume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offer {
    /// Host name; the outer one with ECH.
    pub(crate) name: Option<String>,
    /// Bytes of the first ticket (or other key) of TLS 1.3; none if it may be GREASE.
    pub(crate) psk: Option<usize>,
    /// Bytes of the ticket of TLS 1.2.
    pub(crate) ticket: Option<usize>,
    /// True for a meaningful session id of TLS 1.2: with TLS 1.3 it may be there for middleboxes
    /// only.
    pub(crate) session_id: bool,
    pub(crate) early_data: bool,
    pub(crate) ech: bool,
    /// Client random, which only a copy of this ClientHello repeats.
    pub(crate) random: [u8; 32],
}

impl Offer {
    /// Reads a ClientHello, and the stream that begins with it.
    pub(crate) fn from_hello(hello: ClientHello, stream: &[u8]) -> Self {
        let legacy = stream.get(..hello.end).and_then(Legacy::read).unwrap_or_default();
        Self {
            psk: hello.ticket().map(<[u8]>::len),
            ticket: legacy.ticket.filter(|length| *length > 0),
            session_id: legacy.session_id && !hello.tls13,
            early_data: hello.early_data,
            ech: hello.ech,
            random: legacy.random,
            name: hello.server_name,
        }
    }

    /// Returns true if the client offers to resume, as far as can be seen.
    pub(crate) fn resumption(&self) -> bool {
        self.psk.is_some() || self.ticket.is_some() || self.session_id
    }
}

/// Fields of TLS 1.2 by which it resumes (RFC 5246 section 7.4.1.2, RFC 5077).
#[derive(Clone, Copy, Debug, Default)]
struct Legacy {
    random: [u8; 32],
    session_id: bool,
    /// Bytes of the extension; an empty one only requests a ticket.
    ticket: Option<usize>,
}

impl Legacy {
    /// Reads whole records that hold one ClientHello and nothing else, whose lengths were checked.
    fn read(records: &[u8]) -> Option<Self> {
        let message = message(records);
        let mut fields = Fields(&message);
        fields.take(BEFORE_RANDOM)?;
        let random = fields.take(32)?.try_into().ok()?;
        let session_id = !fields.vector8()?.is_empty();
        fields.vector16()?; // cipher_suites
        fields.vector8()?; // compression_methods
        let mut extensions = Fields(fields.vector16().unwrap_or_default());
        let mut all = std::iter::from_fn(|| extensions.extension());
        let ticket = all.find(|(number, _)| *number == SESSION_TICKET);
        Some(Self { random, session_id, ticket: ticket.map(|(_, body)| body.len()) })
    }
}

/// Returns the fragments of the records, joined.
fn message(records: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(records.len());
    let mut fields = Fields(records);
    while fields.take(RECORD_HEADER - 2).is_some() {
        match fields.vector16() {
            Some(fragment) => message.extend_from_slice(fragment),
            None => break,
        }
    }
    message
}
