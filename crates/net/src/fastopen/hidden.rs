//! A listener that no client can address: the server's program steers SYNs with valid cookies to
//! it.

use std::io;
use std::net::{self, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use tokio::net::{TcpListener, TcpStream};

use super::unavailable::{SERVER_BIT, Unavailable, check_syn_cookies, check_sysctl};
use crate::sys;

/// Connections opened by their SYN and not acknowledged yet, at one time; beyond this number, the
/// data of a SYN are ignored and come again.
///
/// Also the backlog, so that the SYN queue never overflows into SYN cookies, which a steered
/// connection does not survive. The kernel caps it at net.core.somaxconn, 4096 by default.
pub const PENDING: i32 = 4096;

/// A listener on loopback, on a port chosen by the system, that accepts data in SYNs without asking
/// for a cookie: the program that steers SYNs to it has checked them.
///
/// Its connections have the addresses that the client used. The program steers to it the SYNs for
/// listeners named by [`ServerMaps::set_public`](super::ServerMaps::set_public), once
/// [`set_hidden`](super::ServerMaps::set_hidden) has named it.
#[derive(Debug)]
pub struct HiddenListener {
    pub(super) listener: TcpListener,
    local: SocketAddr,
}

impl HiddenListener {
    /// Listens for connections of the family of the public address, for an
    /// [`Acceptor`](crate::Acceptor) of the same family.
    ///
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`Unavailable::TurnedOff`] or [`Unavailable::SynCookies`] because of the settings of this
    /// network namespace, and errors of the system for listening.
    pub fn bind(public: SocketAddr) -> Result<Self, Unavailable> {
        Self::with_pending(public, PENDING)
    }

    /// Does the same with another value than [`PENDING`].
    ///
    /// # Errors
    /// See [`bind`](Self::bind).
    pub fn with_pending(public: SocketAddr, pending: i32) -> Result<Self, Unavailable> {
        check_sysctl(SERVER_BIT)?;
        check_syn_cookies()?;
        listen(public, pending).map_err(Unavailable::system("opening the hidden listener"))
    }

    /// Takes the listener of another process, with the connections that wait there.
    ///
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn adopt(listener: net::TcpListener) -> Result<Self, Unavailable> {
        check_sysctl(SERVER_BIT)?;
        check_syn_cookies()?;
        let adopted = || {
            listener.set_nonblocking(true)?;
            let (local, listener) = (listener.local_addr()?, TcpListener::from_std(listener)?);
            Ok(Self { listener, local })
        };
        adopted().map_err(Unavailable::system("taking the hidden listener"))
    }

    /// Returns the address on which it listens.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Returns the next connection; an [`Acceptor`](crate::Acceptor) that was given the listener
    /// calls this.
    ///
    /// # Errors
    /// Errors of accept(2).
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.listener.accept().await
    }

    /// Returns true if its connection was steered to it. A local program can connect to the port
    /// too; such a connection has the listener's own address, and its cookie was not checked.
    #[must_use]
    pub fn was_steered(&self, tcp: &TcpStream) -> bool {
        tcp.local_addr().is_ok_and(|local| local != self.local)
    }
}

impl AsFd for HiddenListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

fn listen(public: SocketAddr, pending: i32) -> io::Result<HiddenListener> {
    let loopback: SocketAddr = if public.is_ipv4() {
        (Ipv4Addr::LOCALHOST, 0).into()
    } else {
        (Ipv6Addr::LOCALHOST, 0).into()
    };
    let socket = Socket::new(Domain::for_address(loopback), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    // Its connections have the public port and this option; without it, lingering ones would keep a
    // restarted server from that port.
    socket.set_reuse_address(true)?;
    socket.bind(&SockAddr::from(loopback))?;
    sys::set_number(&socket, libc::IPPROTO_TCP, libc::TCP_FASTOPEN, pending)?;
    sys::set_number(&socket, libc::IPPROTO_TCP, libc::TCP_FASTOPEN_NO_COOKIE, 1)?;
    socket.listen(PENDING)?;
    let listener = TcpListener::from_std(socket.into())?;
    let local = listener.local_addr()?;
    Ok(HiddenListener { listener, local })
}
