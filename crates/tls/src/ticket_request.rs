//! Requests for tickets (RFC 9149), which OpenSSL does not know: an extension of our own at both
//! ends.

/// The number of the extension ticket_request (RFC 9149 section 4).
pub(crate) const EXTENSION_TYPE: u16 = 58;

/// Bytes of a server's answer: how many tickets it expects to send.
pub(crate) const HINT_LEN: usize = 1;

/// Number of tickets that a client asks for, of each connection (RFC 9149 section 2).
///
/// Servers that know the extension send so many or fewer, in TLS 1.3; all others what they like. An
/// observer of the ClientHello can read both numbers, except with Encrypted ClientHello.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TicketRequest {
    /// If there is a full handshake.
    pub new_session: u8,
    /// If a session is resumed.
    pub resumption: u8,
}

impl TicketRequest {
    /// Bytes of the extension.
    pub(crate) const LEN: usize = 2;

    pub(crate) const fn emit(self) -> [u8; Self::LEN] {
        [self.new_session, self.resumption]
    }

    /// Parses the extension; `None` if it has another length.
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
    fn a_request_comes_back() {
        let request = TicketRequest { new_session: 4, resumption: 1 };
        assert_eq!(request.emit(), [4, 1]);
        assert_eq!(TicketRequest::parse(&request.emit()), Some(request));
        assert_eq!((request.count(false), request.count(true)), (4, 1));
    }

    #[test]
    fn another_length_is_no_request() {
        for bytes in [&b""[..], b"\x01", b"\x01\x02\x03"] {
            assert_eq!(TicketRequest::parse(bytes), None);
        }
    }
}
