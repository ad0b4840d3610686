//! The join and its answer: the first bytes on TCP of a session that began over UDP
//! (docs/draft-headstart-turbotls.md#join-and-answer).
//!
//! They are shaped as a TLS 1.3 resumption with early data, so that a network that lets only TLS
//! through sees TLS: a ClientHello whose one PSK identity is the join, then a ServerHello that
//! accepts it. What should look random in them is derived from the join key.

use alloc::vec::Vec;

use sha2::{Digest, Sha256};

use crate::hello::{ClientHello, HANDSHAKE_HEADER, RECORD_HEADER, extension};
use crate::id::{JOIN_KEY_LEN, JoinKey, ROUTE_TAG_LEN, RouteTag};

/// Length of the longest join, in bytes.
pub const JOIN_MAX: usize = 512;
/// Length of an answer that accepts, in bytes.
pub const ACCEPTANCE_LEN: usize = 133;
/// The answer that refuses: a fatal alert, handshake_failure (RFC 8446 section 6.2).
pub const REFUSAL: [u8; 7] = [21, 3, 3, 0, 2, 2, 40];

/// Length of OpenSSL's tickets, to which an identity is padded where there is room.
const TICKET_LEN: usize = 208;
/// Length of server_name and ALPN together that leaves room for an identity in [`JOIN_MAX`]; ALPN
/// is left out otherwise.
const NAMES_MAX: usize = 270;
/// Length of the route tag and both offsets.
const FIELDS_LEN: usize = ROUTE_TAG_LEN + 2 * OFFSET_LEN;
const OFFSET_LEN: usize = 3;
/// Length of what pre_shared_key has beside the identity: its header, lengths, age, one binder.
const PSK_OVERHEAD: usize = 4 + 2 + 2 + 4 + 2 + 1 + DIGEST_LEN;
const DIGEST_LEN: usize = 32;

const CLIENT_HELLO: u8 = 1;
const SERVER_HELLO: u8 = 2;
const LEGACY_VERSION: [u8; 2] = [3, 3];
const X25519: [u8; 2] = [0, 29];
/// Bytes before the random of an answer that accepts: headers and legacy_version.
const ACCEPTANCE_HEADER: [u8; 11] = [22, 3, 3, 0, 128, SERVER_HELLO, 0, 0, 124, 3, 3];

/// First bytes on TCP of a client whose session continues there; the client stream follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Join {
    /// Proves ownership of the session.
    pub key: JoinKey,
    /// Tag of the responses; zero if there was none.
    pub tag: RouteTag,
    /// Offset from which the client stream continues.
    pub client_offset: u32,
    /// Offset from which the server stream should continue.
    pub server_offset: u32,
}

impl Join {
    /// Reads the join that a ClientHello carries; `None` if it is an ordinary one.
    #[must_use]
    pub fn read(hello: &ClientHello) -> Option<Self> {
        let [identity] = hello.psk_identities.as_slice() else { return None };
        let (key, rest) = identity.split_first_chunk::<JOIN_KEY_LEN>()?;
        let key = JoinKey::new(*key);
        let fields = mask(&key, Use::Fields, *rest.first_chunk()?);
        // W-JOIN-3
        if !hello.early_data || hello.random != join_random(&key, &fields) {
            return None;
        }
        let [tag @ .., c1, c2, c3, s1, s2, s3]: [u8; FIELDS_LEN] = fields;
        let (client_offset, server_offset) = (u24([c1, c2, c3]), u24([s1, s2, s3]));
        Some(Self { key, tag: RouteTag(tag), client_offset, server_offset })
    }

    /// Returns the record, at most [`JOIN_MAX`] bytes. It shows the names that `hello` shows, the
    /// connection's own ClientHello.
    #[must_use]
    pub fn emit(&self, hello: &ClientHello) -> Vec<u8> {
        let fields = self.fields();
        let mut body = LEGACY_VERSION.to_vec();
        body.extend(join_random(&self.key, &fields));
        body.extend(vector8(&derive(&self.key, Use::SessionId)));
        body.extend(vector16(&[0x13, 1, 0x13, 2, 0x13, 3]));
        body.extend(vector8(&[0]));

        let mut extensions = server_name(hello.server_name.as_deref());
        let alpn = alpn(&hello.alpn);
        if extensions.len() + alpn.len() <= NAMES_MAX {
            extensions.extend(alpn);
        }
        extensions.extend(extension(extension::SUPPORTED_GROUPS, &vector16(&X25519)));
        let signatures = vector16(&[4, 3, 8, 4, 4, 1]);
        extensions.extend(extension(extension::SIGNATURE_ALGORITHMS, &signatures));
        extensions.extend(extension(extension::SUPPORTED_VERSIONS, &vector8(&[3, 4])));
        extensions.extend(extension(extension::PSK_KEY_EXCHANGE_MODES, &vector8(&[1])));
        let share = key_share(&derive(&self.key, Use::ClientShare));
        extensions.extend(extension(extension::KEY_SHARE, &vector16(&share)));
        extensions.extend(extension(extension::EARLY_DATA, &[]));

        let headers = RECORD_HEADER + HANDSHAKE_HEADER + 2;
        let others = headers + body.len() + extensions.len() + PSK_OVERHEAD;
        let identity = self.identity(fields, JOIN_MAX.saturating_sub(others).min(TICKET_LEN));
        extensions.extend(pre_shared_key(&self.key, &identity));
        body.extend(vector16(&extensions));
        // W-JOIN-1
        record([3, 1], CLIENT_HELLO, &body)
    }

    fn fields(&self) -> [u8; FIELDS_LEN] {
        let [t1, t2, t3, t4] = self.tag.0;
        let [_, c1, c2, c3] = self.client_offset.to_be_bytes();
        let [_, s1, s2, s3] = self.server_offset.to_be_bytes();
        [t1, t2, t3, t4, c1, c2, c3, s1, s2, s3]
    }

    /// Returns the key and the fields, padded to `length`.
    fn identity(&self, fields: [u8; FIELDS_LEN], length: usize) -> Vec<u8> {
        let mut identity = self.key.as_bytes().to_vec();
        identity.extend(mask(&self.key, Use::Fields, fields));
        let blocks = (0..u8::MAX).flat_map(|block| derive(&self.key, Use::Padding(block)));
        identity.extend(blocks.take(length.saturating_sub(identity.len())));
        identity
    }
}

/// Returns the answer that accepts a join with this key; the server stream follows, from
/// `server_offset`.
#[must_use]
pub fn acceptance(key: &JoinKey, server_offset: u32) -> Vec<u8> {
    let [_, offset @ ..] = server_offset.to_be_bytes();
    let mut body = LEGACY_VERSION.to_vec();
    body.extend(mask(key, Use::Offset, offset));
    body.extend(derive(key, Use::Acceptance(offset)).into_iter().skip(OFFSET_LEN));
    body.extend(vector8(&derive(key, Use::SessionId)));
    body.extend([0x13, 1, 0]);
    let share = key_share(&derive(key, Use::ServerShare));
    let extensions = [
        extension(extension::SUPPORTED_VERSIONS, &[3, 4]),
        extension(extension::KEY_SHARE, &share),
        extension(extension::PRE_SHARED_KEY, &[0, 0]),
    ];
    body.extend(vector16(&extensions.concat()));
    // W-ANSWER-1
    record(LEGACY_VERSION, SERVER_HELLO, &body)
}

/// Meaning of the first bytes from a server after a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// More bytes are needed.
    Incomplete,
    /// The server stream follows after [`ACCEPTANCE_LEN`] bytes, from this offset.
    Accepted(u32),
    /// The session does not continue here, or the server is no edge.
    Refused,
}

impl Answer {
    /// Reads the first bytes from a server, however many there are.
    #[must_use]
    pub fn read(key: &JoinKey, bytes: &[u8]) -> Self {
        if bytes.iter().zip(ACCEPTANCE_HEADER).any(|(byte, expected)| *byte != expected) {
            return Self::Refused;
        }
        let Some(answer) = bytes.get(..ACCEPTANCE_LEN) else { return Self::Incomplete };
        let masked = answer.get(ACCEPTANCE_HEADER.len()..).and_then(<[u8]>::first_chunk);
        let offset = masked.map(|masked| u24(mask(key, Use::Offset, *masked)));
        // W-ANSWER-4
        let offset = offset.filter(|offset| acceptance(key, *offset) == answer);
        offset.map_or(Self::Refused, Self::Accepted)
    }
}

/// Use of bytes that are derived from a join key (W-JOIN-2).
#[derive(Clone, Copy)]
enum Use {
    Fields,
    SessionId,
    ClientShare,
    TicketAge,
    Binder,
    Padding(u8),
    ServerShare,
    Offset,
    Acceptance([u8; OFFSET_LEN]),
}

impl Use {
    /// Returns its number, and what else is hashed.
    fn input(self) -> (u8, Vec<u8>) {
        match self {
            Self::Fields => (1, Vec::new()),
            Self::SessionId => (2, Vec::new()),
            Self::ClientShare => (3, Vec::new()),
            Self::TicketAge => (4, Vec::new()),
            Self::Binder => (5, Vec::new()),
            Self::Padding(block) => (6, Vec::from([block])),
            Self::ServerShare => (7, Vec::new()),
            Self::Offset => (8, Vec::new()),
            Self::Acceptance(offset) => (9, offset.to_vec()),
        }
    }
}

/// The random of a join: its reader knows that the identity is a join, with these fields.
fn join_random(key: &JoinKey, fields: &[u8; FIELDS_LEN]) -> [u8; DIGEST_LEN] {
    digest(key, 0, fields)
}

fn derive(key: &JoinKey, purpose: Use) -> [u8; DIGEST_LEN] {
    let (number, more) = purpose.input();
    digest(key, number, &more)
}

fn digest(key: &JoinKey, number: u8, more: &[u8]) -> [u8; DIGEST_LEN] {
    let hash = Sha256::new().chain_update(key.as_bytes()).chain_update(b"headstart");
    hash.chain_update([number]).chain_update(more).finalize().into()
}

/// Masks bytes, or takes the mask off.
fn mask<const N: usize>(key: &JoinKey, purpose: Use, mut bytes: [u8; N]) -> [u8; N] {
    let mask = derive(key, purpose);
    bytes.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
    bytes
}

fn server_name(name: Option<&str>) -> Vec<u8> {
    let Some(name) = name else { return Vec::new() };
    let entry = [&[0], vector16(name.as_bytes()).as_slice()].concat();
    extension(extension::SERVER_NAME, &vector16(&entry))
}

fn alpn(names: &[Vec<u8>]) -> Vec<u8> {
    let list: Vec<u8> = names.iter().flat_map(|name| vector8(name)).collect();
    if list.is_empty() { list } else { extension(extension::ALPN, &vector16(&list)) }
}

fn key_share(share: &[u8; DIGEST_LEN]) -> Vec<u8> {
    [X25519.as_slice(), &vector16(share)].concat()
}

fn pre_shared_key(key: &JoinKey, identity: &[u8]) -> Vec<u8> {
    let age: [u8; 4] = mask(key, Use::TicketAge, [0; 4]);
    let identities = vector16(&[vector16(identity).as_slice(), &age].concat());
    let binders = vector16(&vector8(&derive(key, Use::Binder)));
    extension(extension::PRE_SHARED_KEY, &[identities, binders].concat())
}

fn record(version: [u8; 2], kind: u8, body: &[u8]) -> Vec<u8> {
    let message = [&[kind, 0], vector16(body).as_slice()].concat();
    [&[22], version.as_slice(), &vector16(&message)].concat()
}

fn extension(number: u16, body: &[u8]) -> Vec<u8> {
    [number.to_be_bytes().as_slice(), &vector16(body)].concat()
}

/// Puts the length before at most 255 bytes.
fn vector8(bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(bytes.len()).unwrap_or(u8::MAX);
    [&[length], bytes].concat()
}

/// Puts the length before at most 65,535 bytes.
fn vector16(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    [length.to_be_bytes().as_slice(), bytes].concat()
}

const fn u24([high, middle, low]: [u8; OFFSET_LEN]) -> u32 {
    u32::from_be_bytes([0, high, middle, low])
}

#[cfg(test)]
mod tests {
    use alloc::string::String;
    use alloc::vec;

    use super::*;
    use crate::hello;

    fn key(seed: u8) -> JoinKey {
        JoinKey::new([seed; JOIN_KEY_LEN])
    }

    fn join() -> Join {
        Join {
            key: key(7),
            tag: RouteTag([1, 2, 3, 4]),
            client_offset: 517,
            server_offset: 0x01_0203,
        }
    }

    fn of_name(length: usize, alpn: Vec<Vec<u8>>) -> ClientHello {
        let label = "a".repeat(61);
        let name = [label.as_str(); 5].join(".");
        let server_name = name.get(..length).filter(|name| !name.is_empty()).map(String::from);
        ClientHello { server_name, alpn, ..ClientHello::default() }
    }

    fn parsed(bytes: &[u8]) -> ClientHello {
        hello::read(bytes).unwrap().complete().unwrap()
    }

    #[test]
    fn a_join_is_a_client_hello_that_shows_the_same_names() {
        let h2 = || vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        for (name, alpn) in [(0, vec![]), (11, h2()), (61, vec![]), (243, h2()), (253, vec![])] {
            let shown = of_name(name, alpn);
            let bytes = join().emit(&shown);
            let hello = parsed(&bytes);
            assert!(bytes.len() <= JOIN_MAX, "{} bytes", bytes.len());
            assert_eq!(hello.end, bytes.len());
            assert_eq!((&hello.server_name, &hello.alpn), (&shown.server_name, &shown.alpn));
            assert!(hello.tls13 && hello.early_data);
            assert_eq!(Join::read(&hello), Some(join()));
        }
    }

    #[test]
    fn a_usual_join_has_a_usual_ticket_and_an_answer_of_133_bytes() {
        let hello = parsed(&join().emit(&of_name(20, vec![b"http/1.1".to_vec()])));
        assert_eq!(hello.psk_identities[0].len(), TICKET_LEN);
        assert_eq!(acceptance(&key(7), 5).len(), ACCEPTANCE_LEN);
    }

    #[test]
    fn a_long_list_of_protocols_is_left_out() {
        let long = || vec![vec![b'x'; 255]];
        for shown in [of_name(11, long()), of_name(253, vec![b"h2".to_vec(); 4])] {
            let bytes = join().emit(&shown);
            assert!(bytes.len() <= JOIN_MAX, "{} bytes", bytes.len());
            assert_eq!(parsed(&bytes).alpn, Vec::<Vec<u8>>::new());
        }
    }

    /// Any other byte in the random, the key or the fields makes it an ordinary ClientHello.
    #[test]
    fn a_changed_join_is_none() {
        let hello = parsed(&join().emit(&of_name(11, vec![])));
        for at in 0..JOIN_KEY_LEN + FIELDS_LEN {
            let mut changed = hello.clone();
            changed.psk_identities[0][at] ^= 1;
            assert_eq!(Join::read(&changed), None, "byte {at} of the identity");
        }
        for at in 0..DIGEST_LEN {
            let mut changed = hello.clone();
            changed.random[at] ^= 0x80;
            assert_eq!(Join::read(&changed), None, "byte {at} of the random");
        }
        let two = vec![hello.psk_identities[0].clone(); 2];
        let short = vec![hello.psk_identities[0][..JOIN_KEY_LEN + FIELDS_LEN - 1].to_vec()];
        for psk_identities in [two, short, vec![]] {
            assert_eq!(Join::read(&ClientHello { psk_identities, ..hello.clone() }), None);
        }
        assert_eq!(Join::read(&ClientHello { early_data: false, ..hello }), None);
    }

    #[test]
    fn answers_are_read_however_they_are_cut() {
        for offset in [0, 517, 0xff_ffff] {
            let mut answer = acceptance(&key(7), offset);
            for cut in 0..ACCEPTANCE_LEN {
                assert_eq!(Answer::read(&key(7), &answer[..cut]), Answer::Incomplete, "{cut}");
            }
            answer.extend_from_slice(b"server stream");
            assert_eq!(Answer::read(&key(7), &answer), Answer::Accepted(offset));
            assert_eq!(Answer::read(&key(8), &answer), Answer::Refused);
            for at in 0..ACCEPTANCE_LEN {
                let mut changed = answer.clone();
                changed[at] ^= 1;
                assert_eq!(Answer::read(&key(7), &changed), Answer::Refused, "byte {at}");
            }
        }
        for cut in 1..=REFUSAL.len() {
            assert_eq!(Answer::read(&key(7), &REFUSAL[..cut]), Answer::Refused);
        }
    }

    #[test]
    fn keys_share_nothing_that_could_be_recognised() {
        let bytes = |seed| {
            let join = Join { key: key(seed), ..join() };
            [join.emit(&of_name(11, vec![])), acceptance(&key(seed), 5)].concat()
        };
        let (one, other) = (bytes(1), bytes(2));
        let same = one.iter().zip(&other).filter(|(a, b)| a == b).count();
        // Headers and names; of what is random, one byte in 256.
        assert!(same < 210, "{same} of {} bytes are the same", one.len());
    }
}
