//! What is public of a ClientHello: enough to route it, to know where it ends, and to explain it.
//!
//! Strict about lengths, since two readers that disagree on them are a hole; tolerant of GREASE
//! (RFC 8701) and extensions it does not know. The bytes come straight off the network.

use alloc::string::String;
use alloc::vec::Vec;

use crate::error::HelloError;
use crate::limits::CLIENT_BYTES;

const RECORD_HEADER: usize = 5;
const RECORD_HANDSHAKE: u8 = 22;
/// RFC 8446 section 5.1: a plaintext record carries at most 2^14 bytes.
const RECORD_MAX: usize = 1 << 14;
const HANDSHAKE_HEADER: usize = 4;
const CLIENT_HELLO: u8 = 1;

/// Extension numbers (IANA TLS ExtensionType Values).
mod extension {
    pub(super) const SERVER_NAME: u16 = 0;
    pub(super) const ALPN: u16 = 16;
    pub(super) const PRE_SHARED_KEY: u16 = 41;
    pub(super) const EARLY_DATA: u16 = 42;
    pub(super) const SUPPORTED_VERSIONS: u16 = 43;
    /// RFC 9849.
    pub(super) const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;
}

/// What a stream that should begin with a ClientHello holds so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A correct beginning; more bytes are needed.
    Incomplete,
    /// The whole ClientHello is there.
    Complete(ClientHello),
}

/// The public part of a ClientHello (RFC 8446 section 4.1.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientHello {
    /// Bytes of the stream that it occupies, record headers included.
    pub end: usize,
    /// The host name of server_name (RFC 6066 section 3), lower case; the outer one under ECH.
    pub server_name: Option<String>,
    /// Protocol names of ALPN (RFC 7301), in the client's order.
    pub alpn: Vec<Vec<u8>>,
    /// Identities of pre_shared_key: tickets, in TLS 1.3.
    pub psk_identities: Vec<Vec<u8>>,
    /// Whether early data follows.
    pub early_data: bool,
    /// Whether encrypted_client_hello is there, real or GREASE (not to be told apart).
    pub ech: bool,
    /// Whether TLS 1.3 is among supported_versions.
    pub tls13: bool,
}

/// Reads the start of a client stream.
///
/// Looks at nothing behind the ClientHello. `bytes` may end anywhere.
///
/// # Errors
/// [`HelloError`] as soon as it is certain that no ClientHello will come of it.
pub fn read(bytes: &[u8]) -> Result<Progress, HelloError> {
    let mut message = Vec::new();
    let mut rest = bytes;
    loop {
        let Some(record) = next_record(rest)? else {
            return incomplete(bytes, &message);
        };
        let whole = record.fragment.len() == record.length;
        message.extend_from_slice(record.fragment);
        rest = rest
            .get(RECORD_HEADER + record.fragment.len()..)
            .unwrap_or_default();
        match message_length(&message)? {
            Some(length) if message.len() > length => return Err(HelloError::Malformed),
            Some(length) if message.len() == length && whole => {
                let end = bytes.len() - rest.len();
                return client_hello(&message, end).map(Progress::Complete);
            }
            _ if !whole => return incomplete(bytes, &message),
            _ => {}
        }
    }
}

/// As much of one record as has arrived.
struct Record<'a> {
    /// As the header says.
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
    Ok(Some(Record {
        length,
        fragment: fragment.get(..length).unwrap_or(fragment),
    }))
}

/// Length of the first handshake message, header included, as soon as it can be told.
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
    if length > CLIENT_BYTES {
        Err(HelloError::TooLarge)
    } else {
        Ok(Some(length))
    }
}

fn incomplete(bytes: &[u8], message: &[u8]) -> Result<Progress, HelloError> {
    message_length(message)?;
    if bytes.len() >= CLIENT_BYTES {
        Err(HelloError::TooLarge)
    } else {
        Ok(Progress::Incomplete)
    }
}

fn client_hello(message: &[u8], end: usize) -> Result<ClientHello, HelloError> {
    if end > CLIENT_BYTES {
        return Err(HelloError::TooLarge);
    }
    let mut fields = Fields(message);
    fields.take(HANDSHAKE_HEADER + 2 + 32)?; // legacy_version, random
    fields.vector8()?; // legacy_session_id
    fields.vector16()?; // cipher_suites
    fields.vector8()?; // legacy_compression_methods
    let mut hello = ClientHello {
        end,
        ..ClientHello::default()
    };
    if fields.0.is_empty() {
        return Ok(hello); // TLS 1.2 without extensions
    }
    let mut extensions = Fields(fields.vector16()?);
    fields.finish()?;
    while !extensions.0.is_empty() {
        let number = extensions.u16()?;
        let body = extensions.vector16()?;
        hello.read_extension(number, body)?;
    }
    Ok(hello)
}

impl ClientHello {
    fn read_extension(&mut self, number: u16, body: &[u8]) -> Result<(), HelloError> {
        match number {
            extension::SERVER_NAME => self.server_name = server_name(body)?,
            extension::ALPN => self.alpn = alpn(body)?,
            extension::PRE_SHARED_KEY => self.psk_identities = psk_identities(body)?,
            extension::EARLY_DATA => self.early_data = true,
            extension::ENCRYPTED_CLIENT_HELLO => self.ech = true,
            extension::SUPPORTED_VERSIONS => self.tls13 = offers_tls13(body)?,
            _ => {}
        }
        Ok(())
    }
}

fn server_name(body: &[u8]) -> Result<Option<String>, HelloError> {
    let mut fields = Fields(body);
    let mut names = Fields(fields.vector16()?);
    fields.finish()?;
    let mut found = None;
    while !names.0.is_empty() {
        let kind = names.u8()?;
        let name = names.vector16()?;
        if kind == 0 && found.is_none() {
            found = Some(host_name(name)?);
        }
    }
    Ok(found)
}

/// Host names are ASCII (A-labels); anything else cannot be routed and may be an attack on logs.
fn host_name(name: &[u8]) -> Result<String, HelloError> {
    let fits = (1..=253).contains(&name.len());
    let text = core::str::from_utf8(name).ok().filter(|_| fits);
    let clean = text.filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic()));
    clean
        .map(str::to_ascii_lowercase)
        .ok_or(HelloError::Malformed)
}

fn alpn(body: &[u8]) -> Result<Vec<Vec<u8>>, HelloError> {
    let mut fields = Fields(body);
    let mut names = Fields(fields.vector16()?);
    fields.finish()?;
    let mut list = Vec::new();
    while !names.0.is_empty() {
        list.push(names.vector8()?.to_vec());
    }
    Ok(list)
}

fn psk_identities(body: &[u8]) -> Result<Vec<Vec<u8>>, HelloError> {
    let mut fields = Fields(body);
    let mut identities = Fields(fields.vector16()?);
    fields.vector16()?; // binders
    fields.finish()?;
    let mut list = Vec::new();
    while !identities.0.is_empty() {
        list.push(identities.vector16()?.to_vec());
        identities.take(4)?; // obfuscated_ticket_age
    }
    Ok(list)
}

fn offers_tls13(body: &[u8]) -> Result<bool, HelloError> {
    let mut fields = Fields(body);
    let versions = fields.vector8()?;
    fields.finish()?;
    Ok(versions.chunks_exact(2).any(|version| version == [3, 4]))
}

/// Takes fields off the front of a TLS structure, checked.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], HelloError> {
        let (taken, rest) = self
            .0
            .split_at_checked(count)
            .ok_or(HelloError::Malformed)?;
        self.0 = rest;
        Ok(taken)
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

    /// Nothing may be left over.
    fn finish(self) -> Result<(), HelloError> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(HelloError::Malformed)
        }
    }
}
