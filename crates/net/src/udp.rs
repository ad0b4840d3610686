//! Datagram sockets: batches, the local address of each datagram, no fragmentation, no ECN.
//!
//! The system calls are quinn-udp's: recvmmsg with GRO, sendmsg with the source address chosen. It
//! sets don't-fragment (IP_PMTUDISC_PROBE, IPV6_DONTFRAG) and marks datagrams Not-ECT unless told
//! otherwise.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io::{self, IoSliceMut};
use std::net::{self, IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::{error, fmt};

use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{Interest, Ready};
use tokio::net::UdpSocket;

#[cfg(test)]
mod tests;

/// Receive buffer requested for a listening port, in bytes, granted up to net.core.rmem_max.
///
/// At 1232 bytes of payload (about 2.3 kB as the kernel counts) some 900 datagrams: a burst of 100
/// first flights of 9 datagrams while the worker is busy.
pub const LISTEN_BUFFER: usize = 2 << 20;

/// Bytes of one receive buffer: the most that GRO joins, and the longest datagram.
const MESSAGE: usize = 1 << 16;

/// Buffers of [`with_thread_buffers`]: a server flight is at most 16 datagrams, joined or not.
const THREAD_MESSAGES: usize = 4;

/// A UDP socket, listening or connected to one peer.
pub struct UdpPort {
    socket: Arc<UdpSocket>,
    state: UdpSocketState,
    local: SocketAddr,
    /// For a connected port, waits for ICMP errors, which epoll does not report as readable.
    fault: Option<Mutex<Fault>>,
}

type Fault = Pin<Box<dyn Future<Output = io::Result<Ready>> + Send>>;

/// One datagram to send.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// Destination; on a connected port the peer.
    pub to: SocketAddr,
    /// Local source address; `None` leaves the choice to the kernel.
    pub from: Option<IpAddr>,
    /// The payload.
    pub bytes: &'a [u8],
}

/// One datagram received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received<'a> {
    /// Sender.
    pub from: SocketAddr,
    /// Local address it was sent to, from which an answer must leave.
    pub to: IpAddr,
    /// The payload; may be empty.
    pub bytes: &'a [u8],
}

/// Reason why a receive failed.
#[derive(Debug)]
pub enum RecvError {
    /// The peer of a connected port, or a router before it, reported by ICMP that datagrams do not
    /// arrive.
    Unreachable(io::Error),
    /// The socket failed.
    Socket(io::Error),
}

impl AsFd for UdpPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl UdpPort {
    /// Opens a port connected to `peer`: only the peer's datagrams arrive, and ICMP errors are
    /// reported.
    ///
    /// # Errors
    /// Errors of socket(2), bind(2) and connect(2); `AddrNotAvailable` if `local` has another
    /// family than `peer`.
    pub fn connect(peer: SocketAddr, local: Option<IpAddr>) -> io::Result<Self> {
        let any = if peer.is_ipv4() {
            Ipv4Addr::UNSPECIFIED.into()
        } else {
            Ipv6Addr::UNSPECIFIED.into()
        };
        let local = local.unwrap_or(any);
        if local.is_ipv4() != peer.is_ipv4() {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        let socket = open(peer)?;
        socket.bind(&SocketAddr::new(local, 0).into())?;
        socket.connect(&peer.into())?;
        let mut port = Self::new(socket)?;
        port.fault = Some(Mutex::new(fault(&port.socket)));
        Ok(port)
    }

    /// Opens a port that accepts datagrams from any peer at `addr`.
    ///
    /// `shared` lets several ports have the same address (SO_REUSEPORT); the kernel distributes
    /// peers over them. An IPv6 address never accepts IPv4 datagrams (IPV6_V6ONLY): listen twice
    /// for both.
    ///
    /// # Errors
    /// Errors of socket(2) and bind(2).
    pub fn listen(addr: SocketAddr, shared: bool) -> io::Result<Self> {
        let socket = open(addr)?;
        socket.set_reuse_port(shared)?;
        if let Err(error) = socket.set_recv_buffer_size(LISTEN_BUFFER) {
            tracing::debug!(%error, "keeping the default receive buffer of {addr}");
        }
        socket.bind(&addr.into())?;
        Self::new(socket)
    }

    /// Takes a socket that is bound already.
    ///
    /// # Errors
    /// Errors of fcntl(2) and setsockopt(2).
    pub fn adopt(socket: net::UdpSocket) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Self::new(socket.into())
    }

    fn new(socket: Socket) -> io::Result<Self> {
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        let socket = Arc::new(UdpSocket::from_std(socket.into())?);
        let local = socket.local_addr()?;
        if state.may_fragment() {
            tracing::warn!(
                "datagrams from {local} may be fragmented: the system has no don't-fragment option"
            );
        }
        Ok(Self { socket, state, local, fault: None })
    }

    /// Returns the address the socket is bound to.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Receives one batch into `buffers`, replacing their contents; returns how many datagrams it
    /// has.
    ///
    /// One call is one system call for at most as many messages as there are buffers: handle a
    /// batch, then yield to other tasks after a few batches (tokio does so after 128 polls). For
    /// one task at a time.
    ///
    /// # Errors
    /// [`RecvError`]. A connected port stays usable after `Unreachable`.
    pub fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut RecvBuffers,
    ) -> Poll<Result<usize, RecvError>> {
        buffers.clear();
        while let Poll::Ready(ready) = self.socket.poll_recv_ready(cx) {
            ready.map_err(RecvError::Socket)?;
            match self.socket.try_io(Interest::READABLE, || buffers.fill(self)) {
                Ok(()) => return Poll::Ready(Ok(buffers.datagrams().count())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
        self.poll_fault(cx).map(|error| Err(error.into()))
    }

    /// Waits for an ICMP error.
    fn poll_fault(&self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let Some(waiting) = &self.fault else {
            return Poll::Pending;
        };
        let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let ready = ready!(waiting.as_mut().poll(cx));
            *waiting = fault(&self.socket);
            // After taking the error, the second call finds none, which makes tokio wait for the
            // next one.
            let taken =
                ready.and_then(|_| self.socket.try_io(Interest::ERROR, || self.take_error()));
            match taken {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(error) | Err(error) => return Poll::Ready(error),
            }
        }
    }

    fn take_error(&self) -> io::Result<io::Error> {
        self.socket.take_error()?.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    /// Receives one batch; see [`Self::poll_recv`].
    ///
    /// # Errors
    /// See [`Self::poll_recv`].
    pub async fn recv(&self, buffers: &mut RecvBuffers) -> Result<usize, RecvError> {
        poll_fn(|cx| self.poll_recv(cx, buffers)).await
    }

    /// Sends one datagram now.
    ///
    /// # Errors
    /// `WouldBlock` if the socket is full; `EMSGSIZE` if the datagram is larger than the interface
    /// allows. On a connected port also a pending ICMP error, in which case nothing was sent.
    pub fn try_send(&self, datagram: &Datagram<'_>) -> io::Result<()> {
        self.try_transmit(&transmit(datagram))
    }

    /// Sends one datagram, waiting while the socket is full.
    ///
    /// # Errors
    /// See [`Self::try_send`], except `WouldBlock`.
    pub async fn send(&self, datagram: &Datagram<'_>) -> io::Result<()> {
        let transmit = transmit(datagram);
        match self.try_transmit(&transmit) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.socket
                    .async_io(Interest::WRITABLE, || {
                        self.state.try_send(self.sock_ref(), &transmit)
                    })
                    .await
            }
            result => result,
        }
    }

    fn sock_ref(&self) -> UdpSockRef<'_> {
        UdpSockRef::from(&*self.socket)
    }

    /// Sends without asking tokio first: until the event loop has run, it does not know that a new
    /// socket is writable.
    fn try_transmit(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        // To quinn-udp, EINVAL means that the system lacks an option; a peer that claims port 0
        // must not cause that.
        if transmit.destination.port() == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        match self.state.try_send(self.sock_ref(), transmit) {
            // Retries through tokio, which waits while the socket is full.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self
                .socket
                .try_io(Interest::WRITABLE, || self.state.try_send(self.sock_ref(), transmit)),
            result => result,
        }
    }
}

impl fmt::Debug for UdpPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdpPort").field("socket", &self.socket).finish_non_exhaustive()
    }
}

/// Returns true for an ICMP message about a connected port's peer.
pub(crate) fn is_unreachable(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
    matches!(error.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable)
        // Protocol unreachable: ICMP type 3, code 2.
        || error.raw_os_error() == Some(rustix::io::Errno::NOPROTOOPT.raw_os_error())
}

/// Buffers for one batch of datagrams, owned by the receiver: 64 kB a message.
pub struct RecvBuffers {
    bytes: Box<[u8]>,
    metas: [RecvMeta; BATCH_SIZE],
    filled: usize,
    local: IpAddr,
}

impl RecvBuffers {
    /// Creates buffers for `messages` messages, 1 to 32. A message is a datagram, or several of one
    /// peer and equal length that the kernel has joined (GRO).
    pub fn new(messages: usize) -> Self {
        Self {
            bytes: vec![0; MESSAGE * messages.clamp(1, BATCH_SIZE)].into_boxed_slice(),
            metas: [RecvMeta::default(); BATCH_SIZE],
            filled: 0,
            local: Ipv4Addr::UNSPECIFIED.into(),
        }
    }

    /// Yields the datagrams of the last batch, in the order of arrival.
    pub fn datagrams(&self) -> impl Iterator<Item = Received<'_>> {
        let messages = self.metas.iter().zip(self.bytes.chunks(MESSAGE)).take(self.filled);
        messages.flat_map(|(meta, bytes)| {
            let bytes = bytes.get(..meta.len).unwrap_or_default();
            let empty = bytes.is_empty().then_some(bytes);
            let (from, to) = (meta.addr, meta.dst_ip.unwrap_or(self.local));
            let segments = bytes.chunks(meta.stride.max(1)).chain(empty);
            segments.map(move |bytes| Received { from, to, bytes })
        })
    }

    fn clear(&mut self) {
        self.filled = 0;
    }

    fn fill(&mut self, port: &UdpPort) -> io::Result<()> {
        let messages = self.bytes.len() / MESSAGE;
        let mut chunks = self.bytes.chunks_mut(MESSAGE);
        let mut slices: [_; BATCH_SIZE] =
            std::array::from_fn(|_| IoSliceMut::new(chunks.next().unwrap_or_default()));
        let slices = slices.get_mut(..messages).unwrap_or_default();
        self.local = port.local.ip();
        self.filled = port.state.recv(port.sock_ref(), slices, &mut self.metas)?;
        Ok(())
    }
}

impl fmt::Debug for RecvBuffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvBuffers").field("filled", &self.filled).finish_non_exhaustive()
    }
}

/// Lends this thread's buffers to ports that rarely receive and handle datagrams immediately: a
/// connecting client then needs no 64 kB of its own. Within `use_buffers` they are not lent again
/// (a nested call gets fresh ones).
pub(crate) fn with_thread_buffers<R>(use_buffers: impl FnOnce(&mut RecvBuffers) -> R) -> R {
    thread_local! {
        static BUFFERS: RefCell<RecvBuffers> = RefCell::new(RecvBuffers::new(THREAD_MESSAGES));
    }
    BUFFERS.with(|buffers| match buffers.try_borrow_mut() {
        Ok(mut buffers) => use_buffers(&mut buffers),
        Err(_) => use_buffers(&mut RecvBuffers::new(1)),
    })
}

impl RecvError {
    /// Returns the system's error.
    pub fn io(&self) -> &io::Error {
        let (Self::Unreachable(error) | Self::Socket(error)) = self;
        error
    }
}

impl From<io::Error> for RecvError {
    fn from(error: io::Error) -> Self {
        if is_unreachable(&error) { Self::Unreachable(error) } else { Self::Socket(error) }
    }
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(error) => write!(f, "datagrams do not reach the peer: {error}"),
            Self::Socket(error) => write!(f, "receiving datagrams: {error}"),
        }
    }
}

impl error::Error for RecvError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        Some(self.io())
    }
}

/// Becomes ready when an error is pending on the socket.
fn fault(socket: &Arc<UdpSocket>) -> Fault {
    let socket = socket.clone();
    Box::pin(async move { socket.ready(Interest::ERROR).await })
}

fn transmit<'a>(datagram: &Datagram<'a>) -> Transmit<'a> {
    Transmit {
        destination: datagram.to,
        // W-SIZE-2
        ecn: None,
        contents: datagram.bytes,
        // Segments of one call (GSO) leave with wrong checksums where this machine translates
        // addresses (SNAT) and the interface computes none: Linux 6.18, veth.
        segment_size: None,
        src_ip: datagram.from,
    }
}

fn open(family_of: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(family_of), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    if family_of.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    Ok(socket)
}
