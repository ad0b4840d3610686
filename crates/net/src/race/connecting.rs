//! A TCP connection that the kernel is opening.

use std::ffi::c_int;
use std::net::{SocketAddr, TcpStream as StdStream};
use std::os::fd::AsFd;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use std::{io, mem};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::sys;

/// Round trip from which a connection offers [`FAR_WINDOW`] from its start. With the kernel's first
/// window of 64 kB a server sends no more than 5 Mbit/s over it, whatever it knows of the path.
pub(super) const FAR: Duration = Duration::from_millis(100);

/// Receive window in bytes of connections that go far, as far as `net.ipv4.tcp_rmem` allows: the
/// largest jump of an edge (docs/careful-resume.md). The kernel holds as much for the application,
/// if that reads nothing. Before Linux 6.10 the first window has 64 kB all the same.
const FAR_WINDOW: c_int = 1 << 20;

/// A TCP connection that the kernel is opening. Dropping it closes it.
pub(crate) struct Connecting {
    /// `None` once it is over.
    stream: Option<TcpStream>,
    resets: bool,
}

impl Connecting {
    /// Begins to connect to `addr`, which may be `far`; TCP_NODELAY is set.
    ///
    /// # Errors
    /// Errors of socket(2), and those of connect(2) that are known at once.
    pub(super) fn to(addr: SocketAddr, far: bool) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        if far {
            // Without it the connection is slower, and no more.
            let _ = offer_window(&socket);
        }
        match socket.connect(&addr.into()) {
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
            done => done?,
        }
        let stream = TcpStream::from_std(StdStream::from(socket))?;
        Ok(Self { stream: Some(stream), resets: false })
    }

    /// Waits for a connection whose SYN has left with data.
    ///
    /// If another is faster, as little as possible of this one's data should still arrive: dropping
    /// it resets it. An orderly close would still send the data, and the server would get them
    /// twice.
    ///
    /// # Errors
    /// Errors of setsockopt(2).
    pub(crate) fn with_data(stream: TcpStream) -> io::Result<Self> {
        // F-CLIENT-5
        stream.set_zero_linger()?;
        Ok(Self { stream: Some(stream), resets: true })
    }

    /// Returns the connection once it is established; must not be polled again then.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<TcpStream>> {
        let Some(stream) = &self.stream else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        loop {
            ready!(stream.poll_write_ready(cx))?;
            if let Some(error) = stream.take_error()? {
                return Poll::Ready(Err(error));
            }
            match stream.peer_addr() {
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::NotConnected => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
            // A spurious wake-up: clear the readiness and wait for the next one.
            let _ = stream.try_io(Interest::WRITABLE, || -> io::Result<()> {
                Err(io::ErrorKind::WouldBlock.into())
            });
        }
        if mem::take(&mut self.resets) {
            SockRef::from(stream).set_linger(None)?;
        }
        Poll::Ready(self.stream.take().ok_or_else(|| io::ErrorKind::NotConnected.into()))
    }

    /// Asks the kernel if the connection is established, or has failed.
    pub(super) fn is_over(&self) -> bool {
        let Some(stream) = &self.stream else { return true };
        let mut asked = [PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::OUT)];
        poll(&mut asked, Some(&Timespec::default())).is_ok_and(|over| over > 0)
    }
}

/// Raises the first receive window of a socket that is not connected, whose buffer goes on growing
/// and shrinking by itself: SO_RCVBUF would fix its size. The kernel makes room for as many bytes
/// as the application says it waits for, and keeps it when that waits for one again.
///
/// Before a repair of 2025 it bounds the window to as many bytes too, and chooses the window scale
/// by that: the window would never exceed 2 MiB. So the bound is removed, which is possible until
/// the socket connects.
fn offer_window(socket: &Socket) -> io::Result<()> {
    let offered = [FAR_WINDOW, 1]
        .into_iter()
        .try_for_each(|bytes| sys::set_number(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, bytes));
    sys::set_number(socket, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, 0).and(offered)
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use headstart_testkit::pair;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Connects, and returns the first window that the server sees, and its scale.
    async fn offered(prepare: impl FnOnce(&Socket)) -> (u32, u8) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
        prepare(&client);
        client.connect(&listener.local_addr().unwrap().into()).unwrap();
        let (server, _) = listener.accept().await.unwrap();
        // `tcpi_snd_wscale` is the lower half of a byte; `tcpi_snd_wnd` is as of Linux 5.4.
        let mut info = [0; 232];
        let (level, name) = (libc::IPPROTO_TCP, libc::TCP_INFO);
        assert_eq!(sys::option(server.as_fd(), level, name, &mut info).unwrap(), info.len());
        (u32::from_ne_bytes(info[228..].try_into().unwrap()), info[6] & 0xf)
    }

    #[tokio::test]
    async fn a_larger_first_window_has_the_scale_of_any() {
        let (usual, scale) = offered(|_| ()).await;
        let bound = |socket: &Socket| {
            let (level, name) = (libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP);
            sys::set_number(socket, level, name, FAR_WINDOW).unwrap();
        };
        let (_, bound_scale) = offered(bound).await;
        assert!(bound_scale < scale, "{bound_scale} is not less than {scale}");
        // As kernels leave it before the repair.
        let far = offered(|socket| {
            bound(socket);
            offer_window(socket).unwrap();
        });
        let (window, far_scale) = far.await;
        assert_eq!(far_scale, scale);
        assert!(window >= usual, "{window} is less than {usual}");
    }

    // F-CLIENT-5
    #[tokio::test]
    async fn a_losing_connection_is_reset() {
        let (client, mut server) = pair().await;
        drop(Connecting::with_data(client).unwrap());
        let error = server.read(&mut [0]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }

    #[tokio::test]
    async fn a_winning_connection_closes_in_order_with_all_its_bytes() {
        let (client, mut server) = pair().await;
        let mut won = Connecting::with_data(client).unwrap();
        let mut client = poll_fn(|cx| won.poll(cx)).await.unwrap();
        assert!(won.is_over());
        client.write_all(b"the last words").await.unwrap();
        drop(client);
        let mut all = Vec::new();
        server.read_to_end(&mut all).await.unwrap();
        assert_eq!(all, b"the last words");
    }
}
