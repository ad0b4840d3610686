//! Parsers for bytes that anybody can send: two extensions of a ClientHello before OpenSSL looks at
//! them, and the data in a ticket.
//!
//! The extension that carries cookies is [`OfferedCookie`](headstart_proto::cookie::OfferedCookie).

use headstart_proto::UnixSeconds;
use openssl::sha::{Sha256, sha256};

use crate::limits::NAME_MAX;

/// The number of the extension server_name (RFC 6066 section 3).
pub const SERVER_NAME: u16 = 0;

/// The number of the extension pre_shared_key (RFC 8446 section 4.2.11).
pub const PRE_SHARED_KEY: u16 = 41;

/// The host name in an extension server_name, in small letters; none if it is malformed or no host
/// name.
///
/// OpenSSL judges the same bytes later, and ends the handshake where they are malformed.
#[must_use]
pub fn server_name(extension: &[u8]) -> Option<String> {
    let (list, []) = prefixed16(extension)? else { return None };
    // One name type is defined, and one name of each type is allowed.
    let (&0, name) = list.split_first()? else { return None };
    let (name, []) = prefixed16(name)? else { return None };
    normal_name(std::str::from_utf8(name).ok()?)
}

/// A host name in small letters and without the root's dot; none if it cannot be one.
#[must_use]
pub fn normal_name(name: &str) -> Option<String> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_plain = name.bytes().all(|byte| byte.is_ascii_graphic()) && !name.ends_with('.');
    (is_plain && (1..=NAME_MAX).contains(&name.len())).then(|| name.to_ascii_lowercase())
}

/// The hash of the first binder in an extension pre_shared_key: of one ClientHello and no other,
/// and nobody without the session's key can make another that fits (RFC 8446 section 4.2.11.2).
///
/// Early data belongs to the first key offered, whose binder is the first.
#[must_use]
pub fn binder_hash(extension: &[u8]) -> Option<[u8; 32]> {
    let (_, binders) = prefixed16(extension)?;
    let (binders, []) = prefixed16(binders)? else { return None };
    let (&length, rest) = binders.split_first()?;
    let binder = rest.get(..length.into())?;
    (!binder.is_empty()).then(|| binder_key(binder))
}

/// Returns the key under which a binder is remembered.
#[must_use]
pub fn binder_key(binder: &[u8]) -> [u8; 32] {
    sha256(binder)
}

/// Two bytes of length, so many bytes, and what follows.
fn prefixed16(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(u16::from_be_bytes(*length).into())
}

/// Data that a server writes into its tickets for itself, besides OpenSSL's; encrypted as all of
/// it.
///
/// | at | length | field |
/// |---|---|---|
/// | 0 | 1 | 2, the version of this |
/// | 1 | 16 | the scope of the filter that knows of early data with this ticket |
/// | 17 | 16 | the start of a hash of the host name |
/// | 33 | 8 | Unix time of the full handshake that the session comes from; big-endian |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TicketData {
    /// The filter that was in use when the ticket was made; see
    /// [`ReplayFilter`](crate::ReplayFilter::scope).
    pub scope: [u8; 16],
    /// [`name_hash`](Self::name_hash) of the host that the ticket was made for.
    pub name: [u8; 16],
    /// When both sides last proved who they are, be it many resumptions ago.
    pub since: UnixSeconds,
}

impl TicketData {
    /// Bytes of it.
    pub const LEN: usize = 41;

    const VERSION: u8 = 2;

    /// The bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; Self::LEN] {
        let since = self.since.0.to_be_bytes();
        let bytes = [Self::VERSION].into_iter().chain(self.scope).chain(self.name).chain(since);
        let mut data = [0; Self::LEN];
        data.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
        data
    }

    /// Reads them; none if they are of another version or length.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (&Self::VERSION, rest) = bytes.split_first()? else { return None };
        let (scope, rest) = rest.split_first_chunk()?;
        let (name, since) = rest.split_first_chunk()?;
        let since = UnixSeconds(u64::from_be_bytes(since.try_into().ok()?));
        Some(Self { scope: *scope, name: *name, since })
    }

    /// Stands for a host name, or for none.
    #[must_use]
    pub fn name_hash(name: Option<&str>) -> [u8; 16] {
        let mut hash = Sha256::new();
        hash.update(b"headstart ticket name\0");
        hash.update(name.unwrap_or_default().as_bytes());
        let hash = hash.finish();
        std::array::from_fn(|at| hash[at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMED: &[u8] = b"\x00\x08\x00\x00\x05A.tEs";

    #[test]
    fn names_are_read_in_small_letters() {
        assert_eq!(server_name(NAMED).as_deref(), Some("a.tes"));
        assert_eq!(normal_name("Example.ORG.").as_deref(), Some("example.org"));
    }

    #[test]
    fn names_that_are_none_are_none() {
        for cut in 0..NAMED.len() {
            assert_eq!(server_name(&NAMED[..cut]), None);
        }
        assert_eq!(server_name(b"\x00\x08\x01\x00\x05A.tEs"), None, "another type");
        assert_eq!(server_name(b"\x00\x08\x00\x00\x05A.tEsX"), None, "bytes behind");
        assert_eq!(server_name(b"\x00\x08\x00\x00\x05A\0tEs"), None, "a NUL");
        assert_eq!(server_name(b"\x00\x08\x00\x00\x05\xff.tEs"), None, "no text");
        assert_eq!(normal_name(""), None);
        assert_eq!(normal_name("."), None);
        assert_eq!(normal_name("a.test.."), None, "an empty label");
        assert!(normal_name(&"a".repeat(NAME_MAX)).is_some());
        assert_eq!(normal_name(&"a".repeat(NAME_MAX + 1)), None);
    }

    /// An identity of 3 bytes with its age, and two binders of 4 bytes.
    const OFFERED: &[u8] = b"\x00\x09\x00\x03abc\x00\x00\x00\x07\x00\x0a\x04wxyz\x04stuv";

    #[test]
    fn the_first_binder_counts() {
        assert_eq!(binder_hash(OFFERED), Some(sha256(b"wxyz")));
        let other = b"\x00\x09\x00\x03abc\x00\x00\x00\x07\x00\x0a\x04wxy!\x04stuv";
        assert_ne!(binder_hash(other), binder_hash(OFFERED));
    }

    #[test]
    fn a_list_of_binders_that_is_cut_has_none() {
        for cut in 0..OFFERED.len() {
            assert_eq!(binder_hash(&OFFERED[..cut]), None, "{cut} bytes");
        }
        assert_eq!(binder_hash(b"\x00\x00\x00\x01\x00"), None, "an empty binder");
        assert_eq!(binder_hash(b"\x00\x00\x00\x02\x05a"), None, "a binder longer than its list");
    }

    #[test]
    fn ticket_data_comes_back() {
        let name = TicketData::name_hash(Some("a.test"));
        let data = TicketData { scope: [7; 16], name, since: UnixSeconds(0x0102_0304) };
        let bytes = data.emit();
        assert_eq!(bytes[..17], [2, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7]);
        assert_eq!(bytes[33..], [0, 0, 0, 0, 1, 2, 3, 4]);
        assert_eq!(TicketData::parse(&bytes), Some(data));
        assert_ne!(name, TicketData::name_hash(Some("b.test")));
        assert_ne!(name, TicketData::name_hash(None));
        for cut in 0..bytes.len() {
            assert_eq!(TicketData::parse(&bytes[..cut]), None);
        }
        assert_eq!(TicketData::parse(&[&bytes[..], &[0]].concat()), None);
        assert_eq!(TicketData::parse(&[&[1], &bytes[1..]].concat()), None);
    }
}
