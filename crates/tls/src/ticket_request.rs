//! Ticket requests (RFC 9149), which OpenSSL does not support: a custom extension at both ends.

/// The number of the extension ticket_request (RFC 9149 section 4).
pub(crate) const EXTENSION_TYPE: u16 = 58;

/// Length of a server's answer: the number of tickets it expects to send.
pub(crate) const HINT_LEN: usize = 1;

/// Number of tickets a client asks for on a connection (RFC 9149 section 2).
///
/// Servers that know the extension send that many or fewer, in TLS 1.3; others send any number. An
/// observer of the ClientHello can read both numbers, unless it is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TicketRequest {
    /// Number after a full handshake.
    pub new_session: u8,
    /// Number after a resumption.
    pub resumption: u8,
}

impl TicketRequest {
    /// Length of the extension in bytes.
    pub(crate) const LEN: usize = 2;

    pub(crate) const fn emit(self) -> [u8; Self::LEN] {
        [self.new_session, self.resumption]
    }

    /// Returns `None` if the length is wrong.
    pub(crate) fn parse(extension: &[u8]) -> Option<Self> {
        match extension {
            &[new_session, resumption] => Some(Self { new_session, resumption }),
            _ => None,
        }
    }

    pub(crate) const fn count(self, resumed: bool) -> u8 {
        if resumed { self.resumption } else { self.new_session }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_survives_a_round_trip() {
        let request = TicketRequest { new_session: 4, resumption: 1 };
        assert_eq!(request.emit(), [4, 1]);
        assert_eq!(TicketRequest::parse(&request.emit()), Some(request));
        assert_eq!((request.count(false), request.count(true)), (4, 1));
    }

    #[test]
    fn another_length_is_invalid() {
        for bytes in [&b""[..], b"\x01", b"\x01\x02\x03"] {
            assert_eq!(TicketRequest::parse(bytes), None);
        }
    }
}
