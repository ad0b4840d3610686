//! Finds the owners of sockets on this machine (sock_diag(7)): of a connection's other end, and of
//! what listens at an address.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::net::netlink::SOCK_DIAG;

use super::{address, ask, family, messages, number32, octets};

const SOCK_DIAG_BY_FAMILY: u16 = 20;

const IPPROTO_TCP: u8 = 6;

/// States of the kernel in which a process can hold the socket of a connection: TCP_ESTABLISHED,
/// TCP_FIN_WAIT1 and TCP_FIN_WAIT2 after its own shutdown(2), and TCP_CLOSE_WAIT after the peer's.
const HELD: [u8; 4] = [1, 4, 5, 8];

/// TCP_LISTEN of the kernel.
const LISTEN: u8 = 10;

/// Bytes of `struct inet_diag_msg`.
const ANSWER: usize = 72;

/// Initial value of kernel.overflowuid.
const OVERFLOW_UID: u32 = 65534;

/// Returns the user who owns the socket connected from `client` to `server`, if that socket is on
/// this machine and in this network namespace.
///
/// Also returns `None` once the process has closed the socket, since the kernel then no longer
/// knows its owner, and if this process cannot tell its user from others. Call this while the
/// connection is in use, and check afterwards that it still is: another connection can reuse its
/// addresses.
///
/// # Errors
/// The kernel cannot be queried.
pub fn tcp_owner(client: SocketAddr, server: SocketAddr) -> io::Result<Option<u32>> {
    let (client, server) = (canonical(client), canonical(server));
    if client.is_ipv4() != server.is_ipv4() {
        return Ok(None);
    }
    Ok(find(client, server)?
        .and_then(|answer| parse(messages(&answer).next()?.body, client, server)))
}

/// Returns the user whose socket of this machine and network namespace takes connections to `at`;
/// 65534 stands for any that does not exist in this user namespace.
///
/// # Errors
/// The kernel cannot be queried.
pub fn tcp_listener(at: SocketAddr) -> io::Result<Option<u32>> {
    let at = canonical(at);
    let nobody = match at.ip() {
        IpAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        IpAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    Ok(find(at, nobody)?.and_then(|answer| parse_listener(messages(&answer).next()?.body, at)))
}

/// Asks for the socket at `local` that packets of `remote` go to; returns the datagram with the
/// answer, `None` if there is none.
fn find(local: SocketAddr, remote: SocketAddr) -> io::Result<Option<Vec<u8>>> {
    let answer = ask(Some(SOCK_DIAG), SOCK_DIAG_BY_FAMILY, &question(local, remote))?;
    let message = messages(&answer).next().ok_or(io::ErrorKind::InvalidData)?;
    match message.answer(SOCK_DIAG_BY_FAMILY) {
        Ok(_) => Ok(Some(answer)),
        Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Converts an IPv4 connection of an IPv6 socket to IPv4.
fn canonical(at: SocketAddr) -> SocketAddr {
    match at.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, at.port()),
        // With its scope, if it has one.
        IpAddr::V6(_) => at,
    }
}

/// Builds a `struct inet_diag_req_v2`.
fn question(client: SocketAddr, server: SocketAddr) -> Vec<u8> {
    let interface = match client {
        SocketAddr::V6(v6) => v6.scope_id(),
        SocketAddr::V4(_) => 0,
    };
    let mut question = vec![family(client.ip()), IPPROTO_TCP, 0, 0];
    question.extend(u32::MAX.to_ne_bytes()); // in any state
    question.extend(client.port().to_be_bytes());
    question.extend(server.port().to_be_bytes());
    question.extend(padded16(client.ip()));
    question.extend(padded16(server.ip()));
    question.extend(interface.to_ne_bytes());
    question.extend([0xff; 8]); // any cookie of the socket
    question
}

/// Returns an address padded with zeros to sixteen bytes.
fn padded16(address: IpAddr) -> Vec<u8> {
    let mut bytes = octets(address);
    bytes.resize(16, 0);
    bytes
}

/// Parses a `struct inet_diag_msg`. The kernel's answer may be about another socket: if there is
/// none between these addresses, it returns a listening one of the port.
pub(super) fn parse(body: &[u8], client: SocketAddr, server: SocketAddr) -> Option<u32> {
    let body = body.get(..ANSWER)?;
    let [family, state, ..] = *body else { return None };
    let length = if family == super::AF_INET { 4 } else { 16 };
    let asked_for = endpoint(body, 4, 8, length)? == (client.ip(), client.port())
        && endpoint(body, 6, 24, length)? == (server.ip(), server.port());
    // The process of a socket without an inode has closed it, so its user of 0 means nothing.
    let (uid, inode) = (number32(body, 64)?, number32(body, 68)?);
    let known = HELD.contains(&state) && inode != 0 && !is_anyone(uid);
    (asked_for && known).then_some(uid)
}

/// Returns true if the kernel does not know the user: it shows those that do not exist in this user
/// namespace as one (user_namespaces(7)), so not even this user's own number tells them apart.
#[must_use]
pub fn is_anyone(uid: u32) -> bool {
    static OVERFLOW: OnceLock<Option<u32>> = OnceLock::new();
    let overflow = OVERFLOW.get_or_init(|| {
        let text = fs::read_to_string("/proc/sys/kernel/overflowuid").ok()?;
        text.trim().parse().ok()
    });
    uid == OVERFLOW_UID || Some(uid) == *overflow
}

/// Parses a `struct inet_diag_msg` of a listening socket, which may be bound to all addresses.
pub(super) fn parse_listener(body: &[u8], at: SocketAddr) -> Option<u32> {
    let body = body.get(..ANSWER)?;
    let port = u16::from_be_bytes(*body.get(4..)?.first_chunk()?);
    let (uid, inode) = (number32(body, 64)?, number32(body, 68)?);
    let listens = body.get(1) == Some(&LISTEN) && port == at.port() && inode != 0;
    listens.then_some(uid)
}

/// Reads an address of `length` bytes and its port at these offsets.
fn endpoint(body: &[u8], port: usize, ip: usize, length: usize) -> Option<(IpAddr, u16)> {
    let port = u16::from_be_bytes(*body.get(port..)?.first_chunk()?);
    let ip = address(body.get(ip..ip + length)?)?;
    Some((ip.to_canonical(), port))
}
