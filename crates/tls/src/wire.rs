//! Parsers of our own for bytes that anybody can send: two extensions of a ClientHello before
//! OpenSSL reads them, and the data in a ticket.
//!
//! The extension that carries cookies is [`OfferedCookie`](headstart_proto::cookie::OfferedCookie).

use headstart_proto::UnixSeconds;
use openssl::sha::{Sha256, sha256};

use crate::limits::NAME_MAX;

/// Number of the extension server_name (RFC 6066 section 3).
pub const SERVER_NAME: u16 = 0;

/// Number of the extension pre_shared_key (RFC 8446 section 4.2.11).
pub const PRE_SHARED_KEY: u16 = 41;

/// Returns the host name in an extension server_name, in lower case; `None` if it is malformed or
/// not a host name.
///
/// OpenSSL parses the same bytes later, and ends the handshake if they are malformed.
#[must_use]
pub fn server_name(extension: &[u8]) -> Option<String> {
    let (list, []) = prefixed16(extension)? else { return None };
    // One name type is defined, and one name of each type is allowed.
    let (&0, name) = list.split_first()? else { return None };
    let (name, []) = prefixed16(name)? else { return None };
    normal_name(std::str::from_utf8(name).ok()?)
}

/// Returns a host name in lower case and without the root's dot; `None` if it is invalid.
#[must_use]
pub fn normal_name(name: &str) -> Option<String> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_plain = name.bytes().all(|byte| byte.is_ascii_graphic()) && !name.ends_with('.');
    (is_plain && (1..=NAME_MAX).contains(&name.len())).then(|| name.to_ascii_lowercase())
}

/// Returns the hash of the first binder in an extension pre_shared_key. A binder is unique to its
/// ClientHello, and without the session's key nobody can make another that fits (RFC 8446 section
/// 4.2.11.2).
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

/// Returns the hash under which a binder is remembered.
#[must_use]
pub fn binder_key(binder: &[u8]) -> [u8; 32] {
    sha256(binder)
}

/// Splits off two bytes of length and that many bytes; returns these and the rest.
fn prefixed16(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(u16::from_be_bytes(*length).into())
}

/// Data that a server writes into its tickets for itself, besides OpenSSL's; encrypted with the
/// rest.
///
/// | at | length | field |
/// |---|---|---|
/// | 0 | 1 | 2, the version of this format |
/// | 1 | 16 | scope of the replay filter for early data with this ticket |
/// | 17 | 16 | the start of a hash of the host name |
/// | 33 | 8 | Unix time of the full handshake behind the session; big-endian |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TicketData {
    /// Scope of the filter in use when the ticket was made; see
    /// [`ReplayFilter`](crate::ReplayFilter::scope).
    pub scope: [u8; 16],
    /// Hash of the name of the host that the ticket was made for.
    pub name: [u8; 16],
    /// Time at which both sides last proved their identity, possibly many resumptions ago.
    pub since: UnixSeconds,
}

impl TicketData {
    const LEN: usize = 41;

    const VERSION: u8 = 2;

    /// Returns the bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; Self::LEN] {
        let since = self.since.0.to_be_bytes();
        let bytes = [Self::VERSION].into_iter().chain(self.scope).chain(self.name).chain(since);
        let mut data = [0; Self::LEN];
        data.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
        data
    }

    /// Reads the bytes; `None` if the version or length is another.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (&Self::VERSION, rest) = bytes.split_first()? else { return None };
        let (scope, rest) = rest.split_first_chunk()?;
        let (name, since) = rest.split_first_chunk()?;
        let since = UnixSeconds(u64::from_be_bytes(since.try_into().ok()?));
        Some(Self { scope: *scope, name: *name, since })
    }

    /// Returns a hash of a host name, or of its absence.
    pub(crate) fn name_hash(name: Option<&str>) -> [u8; 16] {
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
    fn invalid_names_are_none() {
        for cut in 0..NAMED.len() {
            assert_eq!(server_name(&NAMED[..cut]), None);
        }
        assert_eq!(server_name(b"\x00\x08\x01\x00\x05A.tEs"), None, "another type");
        assert_eq!(server_name(b"\x00\x08\x00\x00\x05A.tEsX"), None, "trailing bytes");
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
    fn a_truncated_list_of_binders_has_none() {
        for cut in 0..OFFERED.len() {
            assert_eq!(binder_hash(&OFFERED[..cut]), None, "{cut} bytes");
        }
        assert_eq!(binder_hash(b"\x00\x00\x00\x01\x00"), None, "an empty binder");
        assert_eq!(binder_hash(b"\x00\x00\x00\x02\x05a"), None, "a binder longer than its list");
    }

    #[test]
    fn ticket_data_survives_a_round_trip() {
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
