use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::agent::context;

/// The connection of a program on this machine.
#[derive(Debug)]
pub(super) enum Local {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Local {
    /// Whose program it is; to be asked as soon as the connection is accepted.
    pub(super) fn user(&self) -> Option<u32> {
        match self {
            Self::Unix(unix) => context::unix_user(unix),
            Self::Tcp(tcp) => context::tcp_user(tcp, None),
        }
    }

    /// Which process it was that connected; unknown on a port, and across namespaces of processes.
    pub(super) fn process(&self) -> Option<i32> {
        match self {
            Self::Unix(unix) => unix.peer_cred().ok()?.pid().filter(|process| *process > 0),
            Self::Tcp(_) => None,
        }
    }

    /// Ends the connection so that the program can tell it from an end in order: by a reset where there are
    /// such, else both directions at once.
    pub(super) fn cut(self) {
        if let Self::Tcp(tcp) = self {
            // An error here leaves an ordinary close, which is all that remains to be done.
            let _ = tcp.set_zero_linger();
        }
    }

    /// Writes what fits at once, for an answer that nobody waits for.
    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(unix) => unix.try_write(bytes),
            Self::Tcp(tcp) => tcp.try_write(bytes),
        }
    }
}

impl AsyncRead for Local {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(unix) => Pin::new(unix).poll_read(cx, buf),
            Self::Tcp(tcp) => Pin::new(tcp).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Local {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Unix(unix) => Pin::new(unix).poll_write(cx, bytes),
            Self::Tcp(tcp) => Pin::new(tcp).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(unix) => Pin::new(unix).poll_flush(cx),
            Self::Tcp(tcp) => Pin::new(tcp).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(unix) => Pin::new(unix).poll_shutdown(cx),
            Self::Tcp(tcp) => Pin::new(tcp).poll_shutdown(cx),
        }
    }
}

impl From<(UnixStream, tokio::net::unix::SocketAddr)> for Local {
    fn from((unix, _): (UnixStream, tokio::net::unix::SocketAddr)) -> Self {
        Self::Unix(unix)
    }
}

impl From<(TcpStream, SocketAddr)> for Local {
    fn from((tcp, _): (TcpStream, SocketAddr)) -> Self {
        let _ = tcp.set_nodelay(true);
        Self::Tcp(tcp)
    }
}
