//! Original destination of a transparently redirected connection.

use std::io;
use std::net::SocketAddr;

use rustix::io::Errno;
use rustix::net::sockopt::{ip_original_dst, ipv6_original_dst};
use tokio::net::TcpStream;

#[cfg(test)]
mod tests;

/// Returns the address that the client connected to, before a REDIRECT or DNAT rule of this machine
/// changed it (SO_ORIGINAL_DST); `None` if no rule did.
///
/// # Errors
/// Errors of getsockname(2) and getsockopt(2), except those that mean "not translated".
pub fn original_destination(stream: &TcpStream) -> io::Result<Option<SocketAddr>> {
    let local = canonical(stream.local_addr()?);
    let original = if local.is_ipv4() {
        ip_original_dst(stream).map(SocketAddr::V4)
    } else {
        ipv6_original_dst(stream).map(SocketAddr::V6)
    };
    match original {
        // An IPv6 address may come with other flow or scope numbers than the socket's.
        Ok(original) if (original.ip(), original.port()) == (local.ip(), local.port()) => Ok(None),
        Ok(original) => Ok(Some(original)),
        // No entry in the connection tracking table, or no such table in this kernel.
        Err(Errno::NOENT | Errno::NOPROTOOPT | Errno::OPNOTSUPP) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Converts the address of an IPv4 connection to an IPv6 socket: the translation table has it as
/// IPv4.
fn canonical(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}
