//! The PROXY protocol, version 2: what a balancer says of a client before the client's bytes.

use std::io;
use std::net::SocketAddr;

use ppp::v2::{Addresses, Command, Header, ParseError};

/// Bytes of a header before addresses and values.
const HEAD: usize = 16;

/// Longest header: the values that balancers send beside the addresses take some hundred bytes.
const HEADER_MAX: usize = 4096;

/// Start of a header by which a balancer speaks for itself.
const LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20";

/// Reads the header that a connection begins with; returns its length and the client's address, or
/// `None` if there is more to come.
///
/// The address is absent where the balancer speaks for itself, as in its health checks.
///
/// # Errors
/// `InvalidData` if the bytes begin with anything else, or the header is too long.
pub fn read(bytes: &[u8]) -> io::Result<Option<(usize, Option<SocketAddr>)>> {
    let length = bytes.get(14..16).and_then(|length| length.try_into().ok());
    let length = HEAD + length.map_or(0, |length| usize::from(u16::from_be_bytes(length)));
    if length > HEADER_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the header is too long"));
    }
    let header = match Header::try_from(bytes) {
        Ok(header) => header,
        Err(ParseError::Incomplete(_) | ParseError::Partial(..)) => return Ok(None),
        // Whatever it says of addresses (section 2.2).
        Err(_) if bytes.starts_with(LOCAL) => {
            return Ok((bytes.len() >= length).then_some((length, None)));
        }
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
        // Of no family, with three bytes; of IPv4 over TCP without any.
        for (rest, length) in [(&b"\0\0\x03abc\x16"[..], 19), (b"\x11\0\0\x16", 16)] {
            let sent = [LOCAL, rest].concat();
            assert_eq!(read(&sent).unwrap(), Some((length, None)));
            assert_eq!(read(&sent[..length - 1]).unwrap(), None);
        }
    }

    #[test]
    fn headers_at_the_longest_and_one_over() {
        for (length, is_read) in [(HEADER_MAX, true), (HEADER_MAX + 1, false)] {
            let values = u16::try_from(length - HEAD).unwrap().to_be_bytes();
            let head = [LOCAL, b"\0", &values].concat();
            assert_eq!(read(&head).is_ok(), is_read, "{length}");
        }
    }

    #[test]
    fn anything_else_is_an_error() {
        for bytes in [&b"\x16\x03\x01"[..], b"PROXY TCP4 192.0.2.1 192.0.2.2 1 443\r\n"] {
            assert_eq!(read(bytes).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
    }
}
