//! The PROXY protocol, version 2: what a balancer says of a client before the client's bytes.

use std::io;
use std::net::SocketAddr;

use ppp::v2::{Addresses, Command, Header, ParseError};

/// Reads the header that a connection begins with; returns its length and the client's address, or
/// `None` if there is more to come.
///
/// The address is absent where the balancer speaks for itself, as in its health checks.
///
/// # Errors
/// `InvalidData` if the bytes begin with anything else.
pub(super) fn read(bytes: &[u8]) -> io::Result<Option<(usize, Option<SocketAddr>)>> {
    let header = match Header::try_from(bytes) {
        Ok(header) => header,
        Err(ParseError::Incomplete(_) | ParseError::Partial(..)) => return Ok(None),
        Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
    };
    let client = match header.addresses {
        _ if header.command == Command::Local => None,
        Addresses::IPv4(ends) => Some((ends.source_address, ends.source_port).into()),
        Addresses::IPv6(ends) => {
            Some(SocketAddr::new(ends.source_address.to_canonical(), ends.source_port))
        }
        Addresses::Unspecified | Addresses::Unix(_) => None,
    };
    Ok(Some((header.len(), client)))
}

#[cfg(test)]
mod tests {
    use ppp::v2::{Builder, Protocol, Version};

    use super::*;

    fn header(command: Command, client: &str, more: &[u8]) -> Vec<u8> {
        let client: SocketAddr = client.parse().unwrap();
        let balancer = SocketAddr::new(client.ip(), 443);
        let addresses = (client, balancer);
        let builder = Builder::with_addresses(Version::Two | command, Protocol::Stream, addresses);
        builder.write_payload(more).unwrap().build().unwrap()
    }

    #[test]
    fn the_client_is_the_source() {
        for (told, client) in [
            ("192.0.2.1:56324", "192.0.2.1:56324"),
            ("[2001:db8::1]:56324", "[2001:db8::1]:56324"),
            ("[::ffff:192.0.2.1]:1", "192.0.2.1:1"),
        ] {
            // A value of 3 bytes and type PP2_TYPE_NOOP.
            let header = header(Command::Proxy, told, b"\x04\0\x03abc");
            let sent = [&header[..], b"\x16\x03\x01"].concat();
            let client = client.parse().unwrap();
            assert_eq!(read(&sent).unwrap(), Some((header.len(), Some(client))));
            for end in 0..header.len() {
                assert_eq!(read(&sent[..end]).unwrap(), None, "{told}: {end}");
            }
        }
    }

    #[test]
    fn a_balancer_speaks_for_itself() {
        let header = header(Command::Local, "192.0.2.1:1", b"");
        assert_eq!(read(&header).unwrap(), Some((header.len(), None)));
    }

    #[test]
    fn anything_else_is_an_error() {
        for bytes in [&b"\x16\x03\x01"[..], b"PROXY TCP4 192.0.2.1 192.0.2.2 1 443\r\n"] {
            assert_eq!(read(bytes).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
    }
}
