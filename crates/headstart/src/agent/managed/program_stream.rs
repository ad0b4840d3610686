use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::base::peer_user::{tcp_user, unix_user};

/// The connection of a program on this machine.
#[derive(Debug)]
pub(super) enum ProgramStream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl ProgramStream {
    /// Returns the user of the program; to be asked as soon as the connection is accepted.
    pub(super) fn user(&self) -> Option<u32> {
        match self {
            Self::Unix(unix) => unix_user(unix),
            Self::Tcp(tcp) => tcp_user(tcp, None),
        }
    }

    /// Returns the process that connected; unknown on a port, and across namespaces of processes.
    pub(super) fn process(&self) -> Option<i32> {
        match self {
            Self::Unix(unix) => unix.peer_cred().ok()?.pid().filter(|process| *process > 0),
            Self::Tcp(_) => None,
        }
    }

    /// Returns the addresses of the program and of the agent.
    ///
    /// # Errors
    /// The program is gone, or this is a Unix socket.
    pub(super) fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        match self {
            Self::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
            Self::Tcp(tcp) => Ok((tcp.peer_addr()?, tcp.local_addr()?)),
        }
    }

    /// Waits for the first byte, which stays in the socket, or the end.
    pub(super) async fn begun(&self) -> io::Result<()> {
        let mut first = [MaybeUninit::uninit()];
        let peeked = match self {
            Self::Unix(unix) => {
                unix.async_io(Interest::READABLE, || SockRef::from(unix).peek(&mut first)).await
            }
            Self::Tcp(tcp) => tcp.peek(&mut [0]).await,
        };
        peeked.map(drop)
    }

    /// Ends the connection so that the program can tell it from an end in order: by a reset where
    /// there are such, else both directions at once.
    pub(super) fn cut(self) {
        if let Self::Tcp(tcp) = self {
            // After an error here, an ordinary close is all that remains.
            let _ = tcp.set_zero_linger();
        }
    }

    /// Drops what has come, as far as it is a request of ordinary size. The kernel is asked itself:
    /// of a connection that has just come the runtime knows nothing yet.
    pub(super) fn discard_now(&self) {
        let mut bytes = [MaybeUninit::uninit(); 4096];
        let _ = match self {
            Self::Unix(unix) => SockRef::from(unix).recv(&mut bytes),
            Self::Tcp(tcp) => SockRef::from(tcp).recv(&mut bytes),
        };
    }

    /// Writes what fits at once, for an answer that nobody waits for; likewise.
    pub(super) fn send_now(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(unix) => SockRef::from(unix).send(bytes),
            Self::Tcp(tcp) => SockRef::from(tcp).send(bytes),
        }
    }
}

impl AsyncRead for ProgramStream {
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

impl AsyncWrite for ProgramStream {
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

impl From<(UnixStream, tokio::net::unix::SocketAddr)> for ProgramStream {
    fn from((unix, _): (UnixStream, tokio::net::unix::SocketAddr)) -> Self {
        Self::Unix(unix)
    }
}

impl From<(TcpStream, SocketAddr)> for ProgramStream {
    fn from((tcp, _): (TcpStream, SocketAddr)) -> Self {
        let _ = tcp.set_nodelay(true);
        Self::Tcp(tcp)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn a_connection_can_be_answered_as_soon_as_it_has_come() {
        let (mut program, unix) = UnixStream::pair().unwrap();
        let local = ProgramStream::Unix(unix);
        assert_eq!(local.send_now(b"full").unwrap(), 4);
        drop(local);
        let mut received = String::new();
        program.read_to_string(&mut received).await.unwrap();
        assert_eq!(received, "full");
    }
}
