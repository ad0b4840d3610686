//! The sockets of an acceptor: opened here, or inherited from another process.

use std::io;
use std::net::{self, SocketAddr};
use std::num::NonZeroU16;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use tokio::net::TcpListener;

use super::worker::Worker;

/// Connections the kernel completes before they are accepted: the value nginx and HAProxy use under
/// load; the kernel caps it at net.core.somaxconn.
const BACKLOG: i32 = 4096;

/// Number of other ports tried when any port will do and UDP lacks the one that TCP got.
const PORTS_TRIED: usize = 16;

/// Where an [`Acceptor`](super::Acceptor) listens.
#[derive(Clone, Copy, Debug)]
pub struct ListenAddress {
    /// Address of TCP. One of IPv6 never takes IPv4; port 0 picks a free port.
    pub tcp: SocketAddr,
    /// Port of the datagrams, where it is not TCP's.
    pub udp_port: Option<NonZeroU16>,
    /// Threads that read datagrams, each with a socket of its own (SO_REUSEPORT); 0 turns UDP off.
    pub udp_workers: usize,
}

/// Sockets that are bound already, by systemd or by an earlier process.
#[derive(Debug, Default)]
pub struct Inherited {
    /// The listener.
    pub tcp: Option<net::TcpListener>,
    /// One socket for each thread that reads datagrams; where there are some, no others are opened.
    pub udp: Vec<net::UdpSocket>,
}

/// The sockets of one [`Acceptor`](super::Acceptor), bound and not read yet.
#[derive(Debug)]
pub struct ListenSockets {
    pub(super) listener: TcpListener,
    pub(super) workers: Vec<Worker>,
}

impl ListenSockets {
    /// Opens sockets at `address`, but for those that are `inherited`.
    ///
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The system's error for binding either socket.
    pub fn open(address: ListenAddress, inherited: Inherited) -> io::Result<Self> {
        let Inherited { tcp, udp } = inherited;
        let mut workers = udp.into_iter().map(Worker::adopt).collect::<io::Result<Vec<_>>>()?;
        let Some(tcp) = tcp else { return listen_on_both(address, workers) };
        tcp.set_nonblocking(true)?;
        let listener = TcpListener::from_std(tcp)?;
        if workers.is_empty() {
            workers = listen_on_udp(&listener, address)?;
        }
        Ok(Self { listener, workers })
    }

    /// Returns the address of TCP.
    ///
    /// # Errors
    /// Errors of getsockname(2).
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Returns copies of the descriptors, for a process that is to inherit the sockets.
    ///
    /// # Errors
    /// Errors of dup(2), such as too many open files.
    pub fn copies(&self) -> io::Result<Vec<OwnedFd>> {
        let udp = self.workers.iter().map(|worker| worker.port.as_fd());
        [self.listener.as_fd()].into_iter().chain(udp).map(|fd| fd.try_clone_to_owned()).collect()
    }
}

/// The TCP listener.
impl AsFd for ListenSockets {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// Turns port 0 into one that is free for TCP and UDP, if there is one; `workers` are there
/// already.
fn listen_on_both(address: ListenAddress, workers: Vec<Worker>) -> io::Result<ListenSockets> {
    if !workers.is_empty() {
        return Ok(ListenSockets { listener: listen_tcp(address.tcp)?, workers });
    }
    let mut tries = if address.tcp.port() == 0 { PORTS_TRIED } else { 1 };
    loop {
        let listener = listen_tcp(address.tcp)?;
        tries -= 1;
        match listen_on_udp(&listener, address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries > 0 => {}
            workers => return Ok(ListenSockets { listener, workers: workers? }),
        }
    }
}

fn listen_on_udp(listener: &TcpListener, address: ListenAddress) -> io::Result<Vec<Worker>> {
    let ListenAddress { udp_port, udp_workers, .. } = address;
    let local = listener.local_addr()?;
    let udp = SocketAddr::new(local.ip(), udp_port.map_or(local.port(), NonZeroU16::get));
    (0..udp_workers).map(|_| Worker::listen(udp, udp_workers > 1)).collect()
}

/// Returns a TCP listener at `address`. An IPv6 address takes IPv6 only, so that `0.0.0.0` and
/// `[::]` can be used side by side whatever net.ipv6.bindv6only is.
///
/// Must be called within a tokio runtime.
///
/// # Errors
/// The system's error, for example if the port is in use.
pub fn listen_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A restart must not wait for connections of the last run in TIME-WAIT.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&SockAddr::from(address))?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}
