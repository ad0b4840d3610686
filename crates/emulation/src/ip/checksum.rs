//! The Internet checksum (RFC 1071) and its update in place (RFC 1624).

use super::{replace, u16_at};

/// A sum of 16-bit words, not yet folded.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum(u64);

impl Sum {
    /// Adds bytes, from an even place on; a last odd byte is followed by a zero.
    pub(super) fn add(self, bytes: &[u8]) -> Sum {
        let words = bytes.chunks(2).map(|pair| match pair {
            [high, low] => u64::from(u16::from_be_bytes([*high, *low])),
            [high] => u64::from(*high) << 8,
            _ => 0,
        });
        Sum(self.0 + words.sum::<u64>())
    }

    /// Adds what `bytes` would take away (RFC 1624 equation 3).
    fn add_complement(self, bytes: &[u8]) -> Sum {
        let complement: Vec<u8> = bytes.iter().map(|byte| !byte).collect();
        self.add(&complement)
    }

    /// The checksum: the folded sum's complement.
    pub(super) fn finish(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !u16::try_from(sum).unwrap_or(u16::MAX)
    }
}

/// Brings the checksum at a place up to date after `old` became `new`; both have the same, even
/// length.
pub(super) fn update(bytes: &mut [u8], at: usize, old: &[u8], new: &[u8]) {
    if let Some(checksum) = u16_at(bytes, at) {
        let sum = Sum::default().add(&(!checksum).to_be_bytes()).add_complement(old).add(new);
        replace(bytes, at, &sum.finish().to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 1071 section 3.
    #[test]
    fn example_of_the_rfc() {
        let sum = Sum::default().add(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(sum.finish(), !0xddf2);
    }

    /// RFC 1624 section 4: the case that the older equation gets wrong.
    #[test]
    fn example_of_the_update() {
        let mut bytes = [0xdd, 0x2f];
        update(&mut bytes, 0, &[0x55, 0x55], &[0x32, 0x85]);
        assert_eq!(bytes, [0x00, 0x00]);
    }

    #[test]
    fn an_odd_byte_is_the_high_one() {
        assert_eq!(Sum::default().add(&[1]).finish(), !0x0100);
    }
}
