//! One direction of a TLS connection, read record by record by a parser that is not ours.

use tls_parser::{
    TlsExtension, TlsMessage, TlsMessageHandshake, TlsRecordType,
    parse_tls_client_hello_extensions, parse_tls_message_handshake,
    parse_tls_server_hello_extensions,
};

/// Length of a record's header (RFC 8446 section 5.1).
const HEADER: usize = 5;

/// Length of the longest body: that of TLS 1.2 (RFC 5246 section 6.2.3).
const BODY_MAX: u16 = (1 << 14) + 2048;

/// Length of a handshake message's header (RFC 8446 section 4).
const MESSAGE_HEADER: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

/// A Hello, as far as boxes read it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// Server name of a ClientHello, if it shows one.
    pub(crate) name: Option<String>,
}

/// Records that one end of a connection has sent so far.
#[derive(Debug)]
pub(super) struct Records {
    side: Side,
    /// A header that is not whole yet.
    header: Vec<u8>,
    /// Bytes of the current record to come, and its type.
    rest: usize,
    kind: TlsRecordType,
    /// Its first handshake message so far; `None` once it is read.
    first: Option<Vec<u8>>,
    hello: Option<Hello>,
}

impl Records {
    pub(super) fn new(side: Side) -> Self {
        let (header, kind) = (Vec::new(), TlsRecordType::Handshake);
        Self { side, header, rest: 0, kind, first: Some(Vec::new()), hello: None }
    }

    /// The Hello that they begin with, once it is read.
    pub(super) fn hello(&self) -> Option<&Hello> {
        self.hello.as_ref()
    }

    /// Takes the next bytes; false if they are not TLS.
    pub(super) fn take(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let (wanted, in_header) = match self.rest {
                0 => (HEADER - self.header.len(), true),
                rest => (rest, false),
            };
            let (piece, behind) = bytes.split_at(wanted.min(bytes.len()));
            bytes = behind;
            let is_tls = if in_header { self.in_header(piece) } else { self.in_body(piece) };
            if !is_tls {
                return false;
            }
        }
        true
    }

    fn in_header(&mut self, piece: &[u8]) -> bool {
        self.header.extend_from_slice(piece);
        let begins = [self.header.first(), self.header.get(1)];
        let is_known = |kind: u8| (20..=23).contains(&kind);
        if begins[0].is_some_and(|kind| !is_known(*kind)) || begins[1].is_some_and(|v| *v != 3) {
            return false;
        }
        let &[kind, _, _, high, low] = self.header.as_slice() else { return true };
        let length = u16::from_be_bytes([high, low]);
        self.header.clear();
        self.rest = length.into();
        self.kind = TlsRecordType(kind);
        (1..=BODY_MAX).contains(&length) && self.may_come()
    }

    /// Returns true if this record may come at this place: the first message is a whole Hello, but
    /// a server may refuse.
    fn may_come(&mut self) -> bool {
        match (&self.first, self.side, self.kind) {
            (None, ..) | (_, _, TlsRecordType::Handshake) => true,
            (Some(first), Side::Server, TlsRecordType::Alert) if first.is_empty() => {
                self.first = None;
                true
            }
            _ => false,
        }
    }

    fn in_body(&mut self, piece: &[u8]) -> bool {
        self.rest -= piece.len();
        let Some(first) = &mut self.first else { return true };
        first.extend_from_slice(piece);
        let Some(&[_, high, middle, low]) = first.first_chunk::<MESSAGE_HEADER>() else {
            return true;
        };
        let length = MESSAGE_HEADER
            + usize::from(high) * 65_536
            + usize::from(u16::from_be_bytes([middle, low]));
        let Some(message) = first.get(..length) else { return true };
        self.hello = self.side.read_hello(message);
        self.first = None;
        self.hello.is_some()
    }
}

impl Side {
    /// Reads the Hello with which this side begins; `None` if it is something else.
    fn read_hello(self, message: &[u8]) -> Option<Hello> {
        let (_, TlsMessage::Handshake(hello)) = parse_tls_message_handshake(message).ok()? else {
            return None;
        };
        let (rest, read) = match (self, hello) {
            (Side::Client, TlsMessageHandshake::ClientHello(hello)) => {
                parse_tls_client_hello_extensions(hello.ext.unwrap_or_default()).ok()?
            }
            (Side::Server, TlsMessageHandshake::ServerHello(hello)) => {
                parse_tls_server_hello_extensions(hello.ext.unwrap_or_default()).ok()?
            }
            _ => return None,
        };
        rest.is_empty().then(|| Hello { name: read.iter().find_map(name_shown) })
    }
}

fn name_shown(extension: &TlsExtension<'_>) -> Option<String> {
    let TlsExtension::SNI(shown) = extension else { return None };
    shown.first().map(|(_, name)| String::from_utf8_lossy(name).to_ascii_lowercase())
}

/// Records for tests.
#[cfg(test)]
pub(crate) mod made {
    pub(crate) use headstart_testkit::hello::record;
    use headstart_testkit::hello::{CraftedHello, extension, message, vector16};

    pub(crate) fn client_hello(name: &str) -> Vec<u8> {
        CraftedHello::default().name(name).stream()
    }

    pub(crate) fn server_hello() -> Vec<u8> {
        let head = [&[3, 3], &[7; 32][..], &[0, 0x13, 1, 0]].concat();
        record(22, &message(2, &[head, vector16(&extension(43, &[3, 4]))].concat()))
    }
}

#[cfg(test)]
mod tests {
    use super::made::{client_hello, record, server_hello};
    use super::*;

    fn takes(side: Side, bytes: &[u8]) -> bool {
        Records::new(side).take(bytes)
    }

    #[test]
    fn each_side_begins_with_its_hello() {
        let (client, server) = (client_hello("www.example.com"), server_hello());
        assert!(takes(Side::Client, &client) && takes(Side::Server, &server));
        assert!(!takes(Side::Client, &server) && !takes(Side::Server, &client));
        let refusal = record(21, &[2, 40]);
        assert!(takes(Side::Server, &refusal) && !takes(Side::Client, &refusal));
        assert!(!takes(Side::Client, &record(22, &[1, 0, 0, 2, 3, 3])), "no ClientHello");
    }

    #[test]
    fn the_name_is_read_in_lower_case() {
        for (side, hello, name) in [
            (Side::Client, client_hello("WWW.example.com"), Some("www.example.com")),
            (Side::Server, server_hello(), None),
        ] {
            let mut records = Records::new(side);
            assert!(records.take(&hello[..hello.len() - 1]) && records.hello().is_none());
            assert!(records.take(&hello[hello.len() - 1..]));
            assert_eq!(records.hello(), Some(&Hello { name: name.map(str::to_owned) }));
        }
    }

    #[test]
    fn a_hello_may_come_in_several_records() {
        let hello = client_hello("www.example.com");
        let pieces = hello[HEADER..].chunks(40).map(|piece| record(22, piece));
        assert!(takes(Side::Client, &pieces.collect::<Vec<_>>().concat()));
        let [head, tail] = [&hello[HEADER..HEADER + 40], &hello[HEADER + 40..]];
        let between = [record(22, head), record(23, b"data"), record(22, tail)].concat();
        assert!(!takes(Side::Client, &between));
    }

    #[test]
    fn records_have_known_types_and_lengths() {
        let hello = client_hello("www.example.com");
        for kind in 0..=255 {
            let is_tls = takes(Side::Client, &[hello.clone(), record(kind, b"body")].concat());
            assert_eq!(is_tls, (20..=23).contains(&kind), "type {kind}");
        }
        let longest = usize::from(BODY_MAX);
        for (length, expected) in [(0, false), (1, true), (longest, true), (longest + 1, false)] {
            let stream = [hello.clone(), record(23, &vec![0; length])].concat();
            assert_eq!(takes(Side::Client, &stream), expected, "{length} bytes");
        }
    }
}
