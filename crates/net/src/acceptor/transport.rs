use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::bridge::Handoff;
use crate::tls_stream::TlsStream;

/// Time that another edge may take for a connection, its handshake and its answer together.
///
/// Edges behind one address are milliseconds apart. The client waits at most this long before this
/// edge decides alone.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// Carrier of a client's stream: its own TCP connection, or a link from the edge where it arrived.
#[derive(Debug)]
pub(super) enum ClientTransport {
    /// Holds the client's address: the peer's, or what a balancer says.
    Tcp(TcpStream, SocketAddr),
    /// A connection of another process or acceptor of this edge, which relays such a link to here
    /// or has it from a balancer; holds the client's address.
    Relayed(TcpStream, SocketAddr),
    /// Holds the client's address, for which the other edge vouches.
    Link(Box<TlsStream<TcpStream>>, SocketAddr),
}

impl ClientTransport {
    /// Returns the client's address.
    pub(super) const fn client(&self) -> SocketAddr {
        match self {
            Self::Tcp(_, client) | Self::Relayed(_, client) | Self::Link(_, client) => *client,
        }
    }

    /// Writes what the transport accepts now, and leaves the rest. A link accepts everything,
    /// because the other edge is waiting for it.
    ///
    /// # Errors
    /// The other edge does not accept the bytes.
    pub(super) async fn write_at_once(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        let written = match self {
            Self::Tcp(tcp, _) | Self::Relayed(tcp, _) => tcp.try_write(bytes).unwrap_or(0),
            Self::Link(link, _) => {
                let all = async {
                    link.write_all(bytes).await?;
                    link.flush().await
                };
                timeout(ANSWER_TIMEOUT, all).await??;
                bytes.len()
            }
        };
        bytes.drain(..written);
        Ok(())
    }

    /// Makes the peer see a reset when this is dropped, as far as the transport can signal one.
    pub(super) fn reset(self) {
        match self {
            Self::Tcp(tcp, _) | Self::Relayed(tcp, _) => tcp.reset(),
            Self::Link(link, _) => link.reset(),
        }
    }

    /// Returns the connection, unless it is encrypted.
    pub(super) fn as_tcp(&mut self) -> Option<Pin<&mut TcpStream>> {
        match self {
            Self::Tcp(tcp, _) | Self::Relayed(tcp, _) => Some(Pin::new(tcp)),
            Self::Link(..) => None,
        }
    }

    /// Returns the connection if it is the client's own, or a balancer's, and no link of this edge.
    pub(super) const fn own_tcp(&self) -> Option<&TcpStream> {
        match self {
            Self::Tcp(tcp, _) => Some(tcp),
            Self::Relayed(..) | Self::Link(..) => None,
        }
    }

    pub(super) fn into_tcp(self) -> Option<TcpStream> {
        match self {
            Self::Tcp(tcp, _) | Self::Relayed(tcp, _) => Some(tcp),
            Self::Link(..) => None,
        }
    }

    pub(super) const fn is_tcp(&self) -> bool {
        matches!(self, Self::Tcp(..) | Self::Relayed(..))
    }
}

impl AsyncRead for ClientTransport {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp, _) | Self::Relayed(tcp, _) => Pin::new(tcp).poll_read(cx, buf),
            Self::Link(link, _) => Pin::new(link).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for ClientTransport {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(tcp, _) | Self::Relayed(tcp, _) => Pin::new(tcp).poll_write(cx, bytes),
            Self::Link(link, _) => Pin::new(link).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp, _) | Self::Relayed(tcp, _) => Pin::new(tcp).poll_flush(cx),
            Self::Link(link, _) => Pin::new(link).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp, _) | Self::Relayed(tcp, _) => Pin::new(tcp).poll_shutdown(cx),
            Self::Link(link, _) => Pin::new(link).poll_shutdown(cx),
        }
    }
}
