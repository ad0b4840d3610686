//! Host names.

use hickory_proto::rr::Name;

/// Parses `text` as an absolute name; `None` if it cannot be the name of a host.
///
/// Rejects a name whose last label is a number: other programs would read it as an IPv4 address.
pub(crate) fn host_name(text: &str) -> Option<Name> {
    let last = text.strip_suffix('.').unwrap_or(text).rsplit('.').next().unwrap_or_default();
    let number = last.bytes().all(|b| b.is_ascii_digit());
    if number || !text.bytes().all(is_host_byte) {
        return None;
    }
    let mut name = Name::from_ascii(text).ok()?;
    name.set_fqdn(true);
    Some(name.to_lowercase())
}

const fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

/// Lower-cases a name and removes its final dot: names are compared that way (RFC 4343).
pub(crate) fn normalized(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}
