//! Host names.

use hickory_proto::rr::Name;

/// `text` as an absolute name, if it can be the name of a host.
///
/// A name whose last label is a number is none: it would be taken for an IPv4 address elsewhere.
pub(crate) fn host_name(text: &str) -> Option<Name> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let last = text.strip_suffix('.').unwrap_or(text).rsplit('.').next().unwrap_or_default();
    let number = last.bytes().all(|b| b.is_ascii_digit());
    if number || !text.bytes().all(plain) {
        return None;
    }
    let mut name = Name::from_ascii(text).ok()?;
    name.set_fqdn(true);
    Some(name.to_lowercase())
}
