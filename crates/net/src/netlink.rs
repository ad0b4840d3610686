//! Queries to the kernel over netlink(7): the route to an address, and the owner of a socket of
//! this machine. No privilege is needed; where netlink is forbidden, the result is an error.
//!
//! All numbers are in the machine's byte order except ports and addresses.

mod changes;
mod owner;
mod route;
#[cfg(test)]
mod tests;

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto,
    socket_with,
};

pub(crate) use changes::{Change, Changes};
pub use owner::{is_anyone, tcp_listener, tcp_owner};
pub(crate) use route::network_to;

/// Bytes of `struct nlmsghdr`.
const HEADER: usize = 16;

/// Bytes of `struct rtattr`, before the attribute's value.
const ATTRIBUTE_HEADER: usize = 4;

/// Message type of an error, or of success with the number 0.
const NLMSG_ERROR: u16 = 2;

/// Flag of a request.
const NLM_F_REQUEST: u16 = 1;

/// Bytes read at a time: an answer about one route or socket has a few hundred, and the kernel
/// sends more than a page only for lists.
const RECEIVE: usize = 8192;

/// `AF_INET` and `AF_INET6` as they stand in messages.
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// One message of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Message<'a> {
    kind: u16,
    body: &'a [u8],
}

impl<'a> Message<'a> {
    /// Returns the body, if this is an answer of `kind`.
    fn answer(self, kind: u16) -> io::Result<&'a [u8]> {
        match self.kind {
            NLMSG_ERROR => Err(refusal(self.body)),
            found if found == kind => Ok(self.body),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Decodes the kernel's error; its numbers are negative.
fn refusal(body: &[u8]) -> io::Error {
    let number = body.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes));
    match number.and_then(i32::checked_neg) {
        Some(number @ 1..) => io::Error::from_raw_os_error(number),
        _ => io::ErrorKind::InvalidData.into(),
    }
}

/// Sends one query on a socket of its own, and returns the datagram with the answer.
///
/// The kernel answers within the call (it has no queue for queries), so there is no wait.
fn ask(protocol: Option<Protocol>, kind: u16, question: &[u8]) -> io::Result<Vec<u8>> {
    let socket = open(protocol)?;
    let length = u32::try_from(HEADER + question.len()).map_err(io::Error::other)?;
    let mut message = Vec::with_capacity(HEADER + question.len());
    message.extend(length.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    // Sequence number and port are 0: there is only one query, and the kernel knows its sender.
    message.extend([0; 8]);
    message.extend(question);
    sendto(&socket, &message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    receive(&socket)
}

fn open(protocol: Option<Protocol>) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?)
}

/// Receives one datagram, if there is one. Rejects one that is too long: its content would be cut
/// off.
fn receive(socket: &OwnedFd) -> io::Result<Vec<u8>> {
    let mut datagram = vec![0; RECEIVE];
    let (length, whole) = recv(socket, datagram.as_mut_slice(), RecvFlags::TRUNC)?;
    if whole > length {
        return Err(Errno::NOBUFS.into());
    }
    datagram.truncate(length);
    Ok(datagram)
}

/// Yields the messages of a datagram; ends at the first whose length is wrong.
fn messages(datagram: &[u8]) -> impl Iterator<Item = Message<'_>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let length = usize::try_from(number32(rest, 0)?).ok()?;
        let message = Message { kind: number16(rest, 4)?, body: rest.get(HEADER..length)? };
        rest = rest.get(aligned(length)..).unwrap_or_default();
        Some(message)
    })
}

/// Yields the attributes of a message, with their numbers; ends at the first whose length is wrong.
fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let length = usize::from(number16(rest, 0)?);
        let attribute = (number16(rest, 2)?, rest.get(ATTRIBUTE_HEADER..length)?);
        rest = rest.get(aligned(length)..).unwrap_or_default();
        Some(attribute)
    })
}

/// Rounds up: messages and attributes start at multiples of four bytes.
const fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}

fn number16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn number32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Parses an address from `bytes`; their number tells the family.
fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(IpAddr::from(*bytes.first_chunk::<4>()?)),
        16 => Some(IpAddr::from(*bytes.first_chunk::<16>()?)),
        _ => None,
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

const fn family(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => AF_INET,
        IpAddr::V6(_) => AF_INET6,
    }
}
