//! Reads the public part of a ClientHello: enough to route it, to find its end, and to explain it.
//!
//! Strict about lengths, since two readers that disagree on them are a hole; tolerant of GREASE
//! (RFC 8701) and extensions it does not know. The bytes come straight off the network.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use crate::cookie::{COOKIE_LEN, Cookie};
use crate::error::HelloError;
use crate::limits::{CLIENT_BYTES, TICKET_MIN};

pub(crate) const RECORD_HEADER: usize = 5;
const RECORD_HANDSHAKE: u8 = 22;
/// RFC 8446 section 5.1: a plaintext record carries at most 2^14 bytes.
const RECORD_MAX: usize = 1 << 14;
pub(crate) const HANDSHAKE_HEADER: usize = 4;
const CLIENT_HELLO: u8 = 1;
/// RFC 8446 section 4.1.2: legacy_session_id<0..32>.
const SESSION_ID_MAX: usize = 32;
/// RFC 8446 section 4.2.11: PskBinderEntry<32..255>.
const BINDER_MIN: usize = 32;
/// RFC 1035 section 2.3.4.
const HOST_NAME_MAX: usize = 253;
const LABEL_MAX: usize = 63;

/// Extension numbers (IANA TLS ExtensionType Values).
pub(crate) mod extension {
    pub(crate) const SERVER_NAME: u16 = 0;
    pub(crate) const SUPPORTED_GROUPS: u16 = 10;
    pub(crate) const SIGNATURE_ALGORITHMS: u16 = 13;
    pub(crate) const ALPN: u16 = 16;
    pub(crate) const PRE_SHARED_KEY: u16 = 41;
    pub(crate) const EARLY_DATA: u16 = 42;
    pub(crate) const SUPPORTED_VERSIONS: u16 = 43;
    pub(crate) const PSK_KEY_EXCHANGE_MODES: u16 = 45;
    pub(crate) const KEY_SHARE: u16 = 51;
    /// RFC 9849.
    pub(crate) const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;
}

/// Contents so far of a stream that should begin with a ClientHello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A valid beginning; more bytes are needed.
    Incomplete,
    /// A whole ClientHello.
    Complete(ClientHello),
}

impl Progress {
    /// Returns the ClientHello if it is whole.
    #[must_use]
    pub fn complete(self) -> Option<ClientHello> {
        match self {
            Self::Complete(hello) => Some(hello),
            Self::Incomplete => None,
        }
    }
}

/// The public part of a ClientHello (RFC 8446 section 4.1.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub struct ClientHello {
    /// Length in the stream in bytes, record headers included.
    pub end: usize,
    /// The client's random.
    pub random: [u8; 32],
    /// Host name of server_name (RFC 6066 section 3), lower case, without a trailing dot; the outer
    /// one under ECH. `None` for an address literal, which is not a host name.
    pub server_name: Option<String>,
    /// Protocol names of ALPN (RFC 7301), in the client's order.
    pub alpn: Vec<Vec<u8>>,
    /// Identities of pre_shared_key: in TLS 1.3, tickets.
    pub psk_identities: Vec<Vec<u8>>,
    /// Binder of the first identity, which early data belongs to (RFC 8446 section 4.2.11.2):
    /// unique to this ClientHello.
    pub binder: Option<Vec<u8>>,
    /// True if early data follows.
    pub early_data: bool,
    /// True if it has encrypted_client_hello, real or GREASE (indistinguishable).
    pub ech: bool,
    /// True if supported_versions includes TLS 1.3.
    pub tls13: bool,
}

/// Reads the start of a client stream.
///
/// Ignores everything after the ClientHello. `bytes` may end anywhere.
///
/// # Errors
/// [`HelloError`] as soon as the bytes cannot become a ClientHello.
pub fn read(bytes: &[u8]) -> Result<Progress, HelloError> {
    let mut message = Vec::new();
    let mut rest = bytes;
    loop {
        let Some(record) = next_record(rest)? else {
            return incomplete(bytes, &message);
        };
        let whole = record.fragment.len() == record.length;
        message.extend_from_slice(record.fragment);
        rest = rest.get(RECORD_HEADER + record.fragment.len()..).unwrap_or_default();
        match message_length(&message)? {
            Some(length) if message.len() > length => return Err(HelloError::Malformed),
            Some(length) if message.len() == length && whole => {
                let end = bytes.len() - rest.len();
                return client_hello(&message, end).map(Progress::Complete);
            }
            // The next record, which may not be here.
            _ => {}
        }
    }
}

/// The part of one record that has arrived.
struct Record<'a> {
    /// Length given in the header.
    length: usize,
    fragment: &'a [u8],
}

fn next_record(bytes: &[u8]) -> Result<Option<Record<'_>>, HelloError> {
    match bytes {
        [first, ..] if *first != RECORD_HANDSHAKE => return Err(HelloError::NotTls),
        // legacy_record_version: 3, and any minor version (RFC 8446 appendix D).
        [_, major, ..] if *major != 3 => return Err(HelloError::NotTls),
        _ => {}
    }
    let Some((&[_, _, _, high, low], fragment)) = bytes.split_first_chunk::<RECORD_HEADER>() else {
        return Ok(None);
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length == 0 || length > RECORD_MAX {
        return Err(HelloError::Malformed);
    }
    Ok(Some(Record { length, fragment: fragment.get(..length).unwrap_or(fragment) }))
}

/// Returns the length of the first handshake message, header included, once it is known.
fn message_length(message: &[u8]) -> Result<Option<usize>, HelloError> {
    if message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
        return Err(HelloError::NotHello);
    }
    let Some(&[_, high, middle, low]) = message.first_chunk::<HANDSHAKE_HEADER>() else {
        return Ok(None);
    };
    let length = HANDSHAKE_HEADER
        + usize::from(high) * 0x1_0000
        + usize::from(u16::from_be_bytes([middle, low]));
    if RECORD_HEADER + length > CLIENT_BYTES { Err(HelloError::TooLarge) } else { Ok(Some(length)) }
}

fn incomplete(bytes: &[u8], message: &[u8]) -> Result<Progress, HelloError> {
    message_length(message)?;
    if bytes.len() >= CLIENT_BYTES { Err(HelloError::TooLarge) } else { Ok(Progress::Incomplete) }
}

fn client_hello(message: &[u8], end: usize) -> Result<ClientHello, HelloError> {
    // W-HELLO-1
    if end > CLIENT_BYTES {
        return Err(HelloError::TooLarge);
    }
    let mut fields = Fields(message);
    fields.take(HANDSHAKE_HEADER + 2)?; // legacy_version
    let random = fields.array()?;
    let session_id = fields.vector8()?;
    let cipher_suites = fields.vector16()?;
    let compression_methods = fields.vector8()?;
    ensure(session_id.len() <= SESSION_ID_MAX && !compression_methods.is_empty())?;
    ensure(!cipher_suites.is_empty() && cipher_suites.len().is_multiple_of(2))?;
    let mut hello = ClientHello { end, random, ..ClientHello::default() };
    if fields.0.is_empty() {
        // W-HELLO-3
        return Ok(hello); // TLS 1.2 without extensions
    }
    let extensions = fields.vector16()?;
    fields.finish()?;
    hello.read_extensions(extensions)?;
    Ok(hello)
}

impl ClientHello {
    /// Returns the ticket of the session that the client wants to resume: its first identity, which
    /// is also the one for early data (RFC 8446 section 4.2.10).
    ///
    /// `None` without TLS 1.3: TLS 1.2 servers sent tickets in clear. `None` with
    /// encrypted_client_hello: the visible part may be noise (RFC 9849, GREASE PSK).
    #[must_use]
    pub fn ticket(&self) -> Option<&[u8]> {
        // F-TICKET-3
        let visible = self.tls13 && !self.ech;
        self.psk_identities.first().filter(|_| visible).map(Vec::as_slice)
    }

    /// Returns the Fast Open cookie at the start of the ticket, if the server puts cookies there.
    ///
    /// Other servers' tickets begin with the bytes of a key name: no server accepts those as a
    /// cookie.
    #[must_use]
    pub fn ticket_cookie(&self) -> Option<Cookie> {
        let ticket = self.ticket().filter(|ticket| ticket.len() >= TICKET_MIN)?;
        ticket.first_chunk::<COOKIE_LEN>().copied().map(Cookie::new)
    }

    /// Reads each extension at most once, pre_shared_key last (RFC 8446 sections 4.2, 4.2.11): two
    /// readers that pick different copies would disagree.
    fn read_extensions(&mut self, extensions: &[u8]) -> Result<(), HelloError> {
        let mut fields = Fields(extensions);
        let mut seen = BTreeSet::new();
        while !fields.0.is_empty() {
            let number = fields.u16()?;
            let body = fields.vector16()?;
            // W-HELLO-2
            ensure(!seen.contains(&extension::PRE_SHARED_KEY) && seen.insert(number))?;
            self.read_extension(number, body)?;
        }
        Ok(())
    }

    fn read_extension(&mut self, number: u16, body: &[u8]) -> Result<(), HelloError> {
        match number {
            extension::SERVER_NAME => self.server_name = server_name(body)?,
            extension::ALPN => self.alpn = alpn(body)?,
            extension::PRE_SHARED_KEY => {
                (self.psk_identities, self.binder) = offered_psks(body)?;
            }
            extension::EARLY_DATA => {
                Fields(body).finish()?;
                self.early_data = true;
            }
            extension::ENCRYPTED_CLIENT_HELLO => self.ech = true,
            extension::SUPPORTED_VERSIONS => self.tls13 = offers_tls13(body)?,
            _ => {}
        }
        Ok(())
    }
}

fn server_name(body: &[u8]) -> Result<Option<String>, HelloError> {
    let mut fields = Fields(body);
    let mut names = Fields(fields.non_empty16()?);
    fields.finish()?;
    let mut host = None;
    while !names.0.is_empty() {
        let kind = names.u8()?;
        let name = names.vector16()?;
        if kind == 0 {
            ensure(host.is_none())?; // RFC 6066: not more than one of a kind
            host = Some(host_name(name)?);
        }
    }
    Ok(host.flatten())
}

/// Reads a host name. Host names are ASCII (A-labels); anything else cannot be routed and may
/// attack logs.
///
/// RFC 1123 forbids underscores, but they are in use. RFC 6066 forbids address literals, but
/// clients send them; servers that ignore them serve their default host, so they count as no name.
fn host_name(name: &[u8]) -> Result<Option<String>, HelloError> {
    let text = core::str::from_utf8(name).map_err(|_| HelloError::Malformed)?;
    if address_literal(text).is_some() {
        return Ok(None);
    }
    let text = text.strip_suffix('.').unwrap_or(text);
    ensure(text.len() <= HOST_NAME_MAX && text.split('.').all(is_label))?;
    Ok(Some(text.to_ascii_lowercase()))
}

/// Reads a host that is an address and no name: with or without the brackets of a URL, and a final
/// dot, which browsers and curl drop as that of a name.
#[must_use]
pub fn address_literal(host: &str) -> Option<IpAddr> {
    let host = host.strip_suffix('.').unwrap_or(host);
    let inner = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    inner.unwrap_or(host).parse().ok()
}

fn is_label(text: &str) -> bool {
    (1..=LABEL_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

fn alpn(body: &[u8]) -> Result<Vec<Vec<u8>>, HelloError> {
    let mut fields = Fields(body);
    let mut names = Fields(fields.non_empty16()?);
    fields.finish()?;
    let mut list = Vec::new();
    while !names.0.is_empty() {
        let name = names.vector8()?;
        ensure(!name.is_empty())?;
        list.push(name.to_vec());
    }
    Ok(list)
}

/// Identities, and the binder of the first.
type OfferedPsks = (Vec<Vec<u8>>, Option<Vec<u8>>);

/// Reads identities and binders, one binder per identity (RFC 8446 section 4.2.11).
fn offered_psks(body: &[u8]) -> Result<OfferedPsks, HelloError> {
    let mut fields = Fields(body);
    let mut identities = Fields(fields.non_empty16()?);
    let mut binders = Fields(fields.vector16()?);
    fields.finish()?;
    let (mut list, mut first) = (Vec::new(), None);
    while !identities.0.is_empty() {
        list.push(identities.non_empty16()?.to_vec());
        identities.take(4)?; // obfuscated_ticket_age
        let binder = binders.vector8()?;
        ensure(binder.len() >= BINDER_MIN)?;
        first.get_or_insert_with(|| binder.to_vec());
    }
    binders.finish()?;
    Ok((list, first))
}

fn offers_tls13(body: &[u8]) -> Result<bool, HelloError> {
    let mut fields = Fields(body);
    let versions = fields.vector8()?;
    fields.finish()?;
    ensure(!versions.is_empty() && versions.len().is_multiple_of(2))?;
    Ok(versions.chunks_exact(2).any(|version| version == [3, 4]))
}

fn ensure(condition: bool) -> Result<(), HelloError> {
    condition.then_some(()).ok_or(HelloError::Malformed)
}

/// Takes fields off the front of a TLS structure, with bounds checks.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], HelloError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(HelloError::Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], HelloError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(HelloError::Malformed)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u8(&mut self) -> Result<u8, HelloError> {
        let (value, rest) = self.0.split_first().ok_or(HelloError::Malformed)?;
        self.0 = rest;
        Ok(*value)
    }

    fn u16(&mut self) -> Result<u16, HelloError> {
        Ok(u16::from_be_bytes([self.u8()?, self.u8()?]))
    }

    fn vector8(&mut self) -> Result<&'a [u8], HelloError> {
        let length = self.u8()?;
        self.take(usize::from(length))
    }

    fn vector16(&mut self) -> Result<&'a [u8], HelloError> {
        let length = self.u16()?;
        self.take(usize::from(length))
    }

    fn non_empty16(&mut self) -> Result<&'a [u8], HelloError> {
        let body = self.vector16()?;
        ensure(!body.is_empty())?;
        Ok(body)
    }

    /// Fails if anything is left over.
    fn finish(self) -> Result<(), HelloError> {
        ensure(self.0.is_empty())
    }
}
