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
pub(super) enum Side {
    Client,
    Server,
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
}

impl Records {
    pub(super) fn new(side: Side) -> Self {
        let (header, kind) = (Vec::new(), TlsRecordType::Handshake);
        Self { side, header, rest: 0, kind, first: Some(Vec::new()) }
    }

    /// Takes the next bytes; false if they are not TLS, or if a ClientHello shows none of `names`
    /// where there are any.
    pub(super) fn take(&mut self, mut bytes: &[u8], names: &[String]) -> bool {
        while !bytes.is_empty() {
            let (wanted, in_header) = match self.rest {
                0 => (HEADER - self.header.len(), true),
                rest => (rest, false),
            };
            let (piece, behind) = bytes.split_at(wanted.min(bytes.len()));
            bytes = behind;
            let is_tls = if in_header { self.in_header(piece) } else { self.in_body(piece, names) };
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

    fn in_body(&mut self, piece: &[u8], names: &[String]) -> bool {
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
        let is_tls = self.side.is_hello(message, names);
        self.first = None;
        is_tls
    }
}

impl Side {
    /// Returns true if this is the Hello with which this side begins.
    fn is_hello(self, message: &[u8], names: &[String]) -> bool {
        let Ok((_, TlsMessage::Handshake(hello))) = parse_tls_message_handshake(message) else {
            return false;
        };
        match (self, hello) {
            (Side::Client, TlsMessageHandshake::ClientHello(hello)) => {
                let extensions = hello.ext.unwrap_or_default();
                let Ok((rest, read)) = parse_tls_client_hello_extensions(extensions) else {
                    return false;
                };
                rest.is_empty() && (names.is_empty() || read.iter().any(|one| shows(one, names)))
            }
            (Side::Server, TlsMessageHandshake::ServerHello(hello)) => {
                let extensions = hello.ext.unwrap_or_default();
                parse_tls_server_hello_extensions(extensions).is_ok_and(|(rest, _)| rest.is_empty())
            }
            _ => false,
        }
    }
}

fn shows(extension: &TlsExtension<'_>, names: &[String]) -> bool {
    let TlsExtension::SNI(shown) = extension else { return false };
    shown.iter().any(|(_, shown)| names.iter().any(|name| name.as_bytes() == *shown))
}

/// Records for tests.
#[cfg(test)]
pub(super) mod made {
    pub(crate) fn record(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u16::try_from(body.len()).unwrap().to_be_bytes();
        [&[kind, 3, 3], &length[..], body].concat()
    }

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let [_, length @ ..] = u32::try_from(body.len()).unwrap().to_be_bytes();
        record(22, &[&[kind], &length[..], body].concat())
    }

    fn vector16(body: &[u8]) -> Vec<u8> {
        [&u16::try_from(body.len()).unwrap().to_be_bytes()[..], body].concat()
    }

    pub(crate) fn client_hello(name: &str) -> Vec<u8> {
        let entry = [&[0], &vector16(name.as_bytes())[..]].concat();
        let server_name = [&[0, 0], &vector16(&vector16(&entry))[..]].concat();
        let head = [&[3, 3], &[7; 32][..], &[0, 0, 2, 0x13, 1, 1, 0]].concat();
        message(1, &[head, vector16(&server_name)].concat())
    }

    pub(crate) fn server_hello() -> Vec<u8> {
        let head = [&[3, 3], &[7; 32][..], &[0, 0x13, 1, 0]].concat();
        message(2, &[head, vector16(&[0, 43, 0, 2, 3, 4])].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::made::{client_hello, record, server_hello};
    use super::*;

    fn takes(side: Side, bytes: &[u8]) -> bool {
        Records::new(side).take(bytes, &[])
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
