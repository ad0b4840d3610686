//! PROXY protocol version 2: how the origin learns the client's address.
//!
//! The specification is `doc/proxy-protocol.txt` of HAProxy, section 2.2. The crate `ppp` lays out
//! the bytes; what is decided here is the family where the two addresses differ in it.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use ppp::v2::{Builder, Command, Protocol, Version};

/// The header that goes before the first byte of a connection from `client`, accepted at `edge`.
///
/// If one address is IPv4 and the other IPv6, the IPv4 one is written as IPv4-mapped IPv6: the
/// header has one family for both.
///
/// # Errors
/// None for addresses of TCP; the signature is that of the crate which writes.
pub fn header(client: SocketAddr, edge: SocketAddr) -> io::Result<Vec<u8>> {
    let addresses = one_family(client, edge);
    Builder::with_addresses(Version::Two | Command::Proxy, Protocol::Stream, addresses).build()
}

fn one_family(client: SocketAddr, edge: SocketAddr) -> (SocketAddr, SocketAddr) {
    let (client, edge) = (canonical(client), canonical(edge));
    if client.is_ipv4() == edge.is_ipv4() { (client, edge) } else { (mapped(client), mapped(edge)) }
}

/// A dual-stack socket shows IPv4 clients as mapped addresses.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn mapped(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    SocketAddr::V6(SocketAddrV6::new(ip, address.port(), 0, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The twelve bytes of section 2.2.
    const SIGNATURE: &[u8] = b"\x0D\x0A\x0D\x0A\x00\x0D\x0A\x51\x55\x49\x54\x0A";

    fn between(client: &str, edge: &str) -> Vec<u8> {
        header(client.parse().unwrap(), edge.parse().unwrap()).unwrap()
    }

    fn expected(rest: &[&[u8]]) -> Vec<u8> {
        [SIGNATURE, &rest.concat()].concat()
    }

    #[test]
    fn ipv4() {
        // \x21: version 2, PROXY; \x11: TCP over IPv4; 12 bytes of addresses.
        assert_eq!(
            between("192.0.2.1:56324", "198.51.100.2:443"),
            expected(&[
                b"\x21\x11\x00\x0c",
                &[192, 0, 2, 1],
                &[198, 51, 100, 2],
                b"\xdc\x04\x01\xbb"
            ])
        );
    }

    #[test]
    fn ipv6() {
        let client = b"\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01";
        let edge = b"\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x02";
        // \x21: TCP over IPv6; 36 bytes of addresses.
        assert_eq!(
            between("[2001:db8::1]:56324", "[2001:db8::2]:443"),
            expected(&[b"\x21\x21\x00\x24", client, edge, b"\xdc\x04\x01\xbb"])
        );
    }

    #[test]
    fn mixed_families_become_ipv6() {
        let mapped = b"\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\x00\x02\x01";
        let six = b"\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x02";
        assert_eq!(
            between("192.0.2.1:1", "[2001:db8::2]:2"),
            expected(&[b"\x21\x21\x00\x24", mapped, six, b"\0\x01\0\x02"])
        );
        assert_eq!(
            between("[2001:db8::2]:2", "192.0.2.1:1"),
            expected(&[b"\x21\x21\x00\x24", six, mapped, b"\0\x02\0\x01"])
        );
    }

    #[test]
    fn a_dual_stack_socket_reports_ipv4() {
        assert_eq!(
            between("[::ffff:192.0.2.1]:1", "[::ffff:192.0.2.9]:2"),
            between("192.0.2.1:1", "192.0.2.9:2")
        );
    }
}
