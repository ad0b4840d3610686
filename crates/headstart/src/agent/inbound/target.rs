//! Where a client wants to go.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// Longest host name in characters (RFC 1035 section 2.3.4, without the root's length byte).
const NAME_MAX: usize = 253;

/// Where a client wants to go, and how it asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The host.
    pub host: Host,
    /// The port, not 0 unless redirected from it.
    pub port: u16,
    /// Protocol in which the client asked.
    pub via: Via,
    /// The client's name of its context: its SOCKS5 user name. Sessions are not shared between
    /// contexts.
    pub context: Option<String>,
}

impl Target {
    /// The destination of a redirected connection.
    pub(super) fn redirected(destination: SocketAddr) -> Self {
        Self {
            host: Host::Ip(destination.ip().to_canonical()),
            port: destination.port(),
            via: Via::Redirect,
            context: None,
        }
    }
}

/// Protocol in which a client asked for its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Via {
    /// SOCKS version 5 (RFC 1928).
    Socks5,
    /// HTTP CONNECT (RFC 9110 section 9.3.6).
    Connect,
    /// It did not: the packet filter redirected it.
    Redirect,
}

/// A host: a name to be resolved, or an address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// A name.
    Name(HostName),
    /// An address; one that a client wrote as a name counts as an address.
    Ip(IpAddr),
}

impl Host {
    /// Reads a name or address (IPv6 without brackets), either with or without a final dot; `None`
    /// if it is neither.
    pub(in crate::agent) fn parse(text: &str) -> Option<Self> {
        match text.strip_suffix('.').unwrap_or(text).parse::<IpAddr>() {
            Ok(address) => Some(Self::Ip(address.to_canonical())),
            Err(_) => HostName::parse(text).map(Self::Name),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name.as_str()),
            Self::Ip(address) => address.fmt(f),
        }
    }
}

/// A host name in one spelling: lower case, without the final dot of an absolute name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostName(String);

impl HostName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn parse(text: &str) -> Option<Self> {
        let name = text.strip_suffix('.').unwrap_or(text);
        let valid = (1..=NAME_MAX).contains(&name.len())
            && name.split('.').all(valid_label)
            && !ends_in_number(name);
        valid.then(|| Self(name.to_ascii_lowercase()))
    }
}

/// Letters, digits, hyphens and the underscores that occur in names in use; names in other
/// scripts arrive in their ASCII form (RFC 5890).
fn valid_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

/// `127.1` and `0x7f.0.0.1` are addresses to some resolvers, so they are names to nobody (URL
/// Standard, "ends in a number"); else a rule about addresses could be walked around.
fn ends_in_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    let hexadecimal = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    last.bytes().all(|b| b.is_ascii_digit())
        || hexadecimal.is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Option<String> {
        match Host::parse(text)? {
            Host::Name(name) => Some(name.as_str().into()),
            Host::Ip(_) => None,
        }
    }

    #[test]
    fn names_have_one_spelling() {
        assert_eq!(name("WWW.Example.COM."), Some("www.example.com".into()));
        assert_eq!(name("_dmarc.example"), Some("_dmarc.example".into()));
        assert_eq!(name("localhost"), Some("localhost".into()));
    }

    #[test]
    fn addresses_are_addresses_however_written() {
        for text in ["127.0.0.1", "127.0.0.1."] {
            assert_eq!(Host::parse(text), Some(Host::Ip([127, 0, 0, 1].into())), "{text}");
        }
        assert_eq!(Host::parse("::ffff:127.0.0.1"), Some(Host::Ip([127, 0, 0, 1].into())));
        assert_eq!(Host::parse("::1"), Some(Host::Ip("::1".parse().unwrap())));
    }

    #[test]
    fn what_is_neither_is_refused() {
        let long_label = format!("{}.example", "a".repeat(64));
        let long_name = format!("{}a", "a.".repeat(127));
        assert_eq!(long_name.len(), 255);
        for wrong in [
            "",
            ".",
            "a..b",
            "a b",
            "a\0b",
            "a\r\nb",
            "a/b",
            "a@b",
            "[::1]",
            "127.1",
            "127.1.",
            "127.0.0.1..",
            "1",
            "0x7f",
            "0x7f.1",
            "1.2.3.4.5",
            "héé.example",
            &long_label,
            &long_name,
        ] {
            assert_eq!(Host::parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn the_longest_name_is_taken() {
        let longest = format!("{}a", "a.".repeat(126));
        assert_eq!(longest.len(), NAME_MAX);
        assert_eq!(name(&longest), Some(longest.clone()));
        assert_eq!(name(&format!("{longest}b")), None);
    }
}
