//! The Internet checksum (RFC 1071) of packets that are changed in place.

use etherparse::checksum::Sum16BitWords;

use super::{Headers, ICMP, Upper, Version, replace, u16_at};

/// Brings the checksum at a place up to date after `old` became `new` (RFC 1624 equation 3); both
/// have the same, even length.
pub(super) fn update(bytes: &mut [u8], at: usize, old: &[u8], new: &[u8]) {
    if let Some(checksum) = u16_at(bytes, at) {
        let without: Vec<u8> = old.iter().map(|byte| !byte).collect();
        let sum = Sum16BitWords::new().add_2bytes((!checksum).to_be_bytes());
        let sum = sum.add_slice(&without).add_slice(new);
        replace(bytes, at, &sum.ones_complement().to_ne_bytes());
    }
}

/// Computes the checksum of an ICMP message.
pub(super) fn refresh_icmp(bytes: &mut [u8], headers: &Headers) {
    let at = headers.upper.at + 2;
    replace(bytes, at, &[0, 0]);
    let sum = transport_sum(bytes, headers);
    replace(bytes, at, &sum.ones_complement().to_ne_bytes());
}

/// Sums the pseudo-header (RFC 9293 section 3.1, RFC 8200 section 8.1; none in ICMP for IPv4) and
/// the transport's bytes.
fn transport_sum(bytes: &[u8], headers: &Headers) -> Sum16BitWords {
    let Upper { protocol, at, .. } = headers.upper;
    let body = bytes.get(at..headers.end.min(bytes.len())).unwrap_or_default();
    let sum = Sum16BitWords::new().add_slice(body);
    if protocol == ICMP {
        return sum;
    }
    let addresses = match headers.version {
        Version::V4 => 12..20,
        Version::V6 => 8..40,
    };
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    sum.add_slice(bytes.get(addresses).unwrap_or_default())
        .add_slice(&length.to_be_bytes())
        .add_2bytes([0, protocol])
}

/// Returns true if a receiver would accept the packet.
#[cfg(test)]
pub(crate) fn has_right_checksums(packet: &crate::Packet) -> bool {
    let bytes = &packet.bytes;
    let headers = Headers::read(bytes).expect("a whole packet");
    let ip_is_right = match headers.version {
        Version::V4 => {
            Sum16BitWords::new().add_slice(&bytes[..headers.upper.at]).ones_complement() == 0
        }
        Version::V6 => true,
    };
    ip_is_right && transport_sum(bytes, &headers).ones_complement() == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 1624 section 4: the case that the older equation gets wrong.
    #[test]
    fn example_of_the_update() {
        let mut bytes = [0xdd, 0x2f];
        update(&mut bytes, 0, &[0x55, 0x55], &[0x32, 0x85]);
        assert_eq!(bytes, [0x00, 0x00]);
    }
}
