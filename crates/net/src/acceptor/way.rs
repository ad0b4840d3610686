use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::fleet::PATIENCE;
use crate::bridge::Handoff;
use crate::tls_stream::TlsStream;

/// What carries a client's stream: its own TCP connection, or that of another edge that it came to.
#[derive(Debug)]
pub(super) enum Way {
    Tcp(TcpStream),
    /// With the client's address, for which the other edge vouches.
    Link(Box<TlsStream<TcpStream>>, SocketAddr),
}

impl Way {
    /// The client's address; none of a connection that is gone already.
    pub(super) fn client(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(tcp) => tcp.peer_addr().ok(),
            Self::Link(_, client) => Some(*client),
        }
    }

    /// Writes what is taken at once, and leaves the rest. A link takes all, since the other edge waits for it.
    ///
    /// # Errors
    /// The other edge does not take it.
    pub(super) async fn write_at_once(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        let written = match self {
            Self::Tcp(tcp) => tcp.try_write(bytes).unwrap_or(0),
            Self::Link(link, _) => {
                let all = async {
                    link.write_all(bytes).await?;
                    link.flush().await
                };
                timeout(PATIENCE, all).await??;
                bytes.len()
            }
        };
        bytes.drain(..written);
        Ok(())
    }

    /// Lets the peer see a reset when this is dropped, as far as that is known to go.
    pub(super) fn reset(self) {
        match self {
            Self::Tcp(tcp) => tcp.reset(),
            Self::Link(link, _) => link.reset(),
        }
    }

    /// The client's own connection, if it is that.
    pub(super) fn as_tcp(&mut self) -> Option<Pin<&mut TcpStream>> {
        match self {
            Self::Tcp(tcp) => Some(Pin::new(tcp)),
            Self::Link(..) => None,
        }
    }

    pub(super) fn into_tcp(self) -> Option<TcpStream> {
        match self {
            Self::Tcp(tcp) => Some(tcp),
            Self::Link(..) => None,
        }
    }

    pub(super) const fn is_tcp(&self) -> bool {
        matches!(self, Self::Tcp(_))
    }
}

impl AsyncRead for Way {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Self::Link(link, _) => Pin::new(link).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Way {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Self::Link(link, _) => Pin::new(link).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_flush(cx),
            Self::Link(link, _) => Pin::new(link).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Self::Link(link, _) => Pin::new(link).poll_shutdown(cx),
        }
    }
}
