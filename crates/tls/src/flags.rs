//! TLS flags (draft-ietf-tls-tlsflags), which OpenSSL does not support: a custom extension of
//! NewSessionTicket.

/// The number of the extension tls_flags.
pub(crate) const EXTENSION_TYPE: u16 = 62;

/// Number of resumption_across_names (draft-ietf-tls-cross-sni-resumption section 3): every server
/// for a name of this certificate takes the ticket.
const ACROSS_NAMES: usize = 8;

/// Content of an extension with resumption_across_names alone: the length, then a bit for each
/// flag, the least significant one first.
pub(crate) const ONLY_ACROSS_NAMES: [u8; 3] = [2, 0, 1 << (ACROSS_NAMES % 8)];

/// Returns true if the extension sets resumption_across_names. A malformed one sets nothing.
pub(crate) fn across_names(extension: &[u8]) -> bool {
    match extension.split_first() {
        Some((&length, flags)) if flags.len() == usize::from(length) => {
            flags.get(ACROSS_NAMES / 8).is_some_and(|byte| byte >> (ACROSS_NAMES % 8) & 1 == 1)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_flag_among_others() {
        assert!(across_names(&ONLY_ACROSS_NAMES));
        assert!(across_names(&[3, 0xff, 0x11, 0x80]));
        for other in [&[2, 0xff, 0xfe][..], &[1, 1], &[0], &[]] {
            assert!(!across_names(other), "{other:?}");
        }
    }

    #[test]
    fn malformed_flags_set_nothing() {
        for malformed in [&[3, 0, 1][..], &[1, 0, 1], &[0, 1]] {
            assert!(!across_names(malformed), "{malformed:?}");
        }
    }
}
