//! Notifications of removed addresses and interfaces (rtnetlink(7)).

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::bind;
use rustix::net::netlink::SocketAddrNetlink;
use tokio::io::unix::AsyncFd;

use crate::sys::readable;

use super::{Message, address, attributes, messages, number32, open, receive};

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_DELADDR: u16 = 21;

/// Groups that report interfaces and the addresses of both families. Routes are checked when they
/// are used: notifications about them would keep waking a router's daemon.
const GROUPS: u32 = 0x1 | 0x10 | 0x100;

/// Bytes of `struct ifaddrmsg` and of `struct ifinfomsg`.
const ADDRESS: usize = 8;
const LINK: usize = 16;

const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;

/// Flag of an interface that is up and connected.
const IFF_RUNNING: u32 = 0x40;

/// Something removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A local address.
    Address(IpAddr),
    /// An interface, or its connection.
    Interface(u32),
    /// Unknown: notifications were lost.
    Anything,
}

/// Listens for changes from its start on.
#[derive(Debug)]
pub(crate) struct Changes {
    socket: AsyncFd<OwnedFd>,
}

impl Changes {
    /// Starts to listen. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The kernel does not allow listening.
    pub(crate) fn listen() -> io::Result<Self> {
        let socket = open(None)?;
        bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
        Ok(Self { socket: readable(socket)? })
    }

    /// Waits for notifications; may return an empty list if none matters.
    ///
    /// # Errors
    /// There will be no more notifications.
    pub(crate) async fn next(&mut self) -> io::Result<Vec<Change>> {
        loop {
            let mut ready = self.socket.readable().await?;
            match ready.try_io(|socket| receive(socket.get_ref())) {
                Ok(Ok(datagram)) => return Ok(messages(&datagram).filter_map(removed).collect()),
                // The queue was too short for all of them.
                Ok(Err(error)) if is_overrun(&error) => return Ok(vec![Change::Anything]),
                Ok(Err(error)) => return Err(error),
                Err(_would_block) => {}
            }
        }
    }
}

fn is_overrun(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error())
}

pub(super) fn removed(message: Message<'_>) -> Option<Change> {
    match message.kind {
        RTM_DELADDR => removed_address(message.body).map(Change::Address),
        RTM_DELLINK => number32(message.body, 4).map(Change::Interface),
        RTM_NEWLINK => {
            let flags = number32(message.body.get(..LINK)?, 8)?;
            let works = flags & IFF_RUNNING != 0;
            number32(message.body, 4).filter(|_| !works).map(Change::Interface)
        }
        _ => None,
    }
}

/// Returns the removed address. If the two differ, as at the ends of a tunnel, IFA_ADDRESS is the
/// other end's.
fn removed_address(body: &[u8]) -> Option<IpAddr> {
    let rest = body.get(ADDRESS..)?;
    find_address(rest, IFA_LOCAL).or_else(|| find_address(rest, IFA_ADDRESS))
}

fn find_address(bytes: &[u8], wanted: u16) -> Option<IpAddr> {
    let (_, value) = attributes(bytes).find(|(number, _)| *number == wanted)?;
    address(value)
}
