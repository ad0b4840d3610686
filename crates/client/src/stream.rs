//! A connection as a program sees it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::facts::Facts;

/// A stream of plain bytes in both directions, and the facts of its connection.
///
/// Each direction ends by itself. Anyone may have caused an end that the protocol above does not
/// announce (by lengths or chunks): docs/managed.md, "How it ends".
#[derive(Debug)]
pub struct Stream {
    pub(crate) io: Io,
    /// Bytes read behind the head of the answer.
    pub(crate) behind: Bytes,
    pub(crate) facts: Option<Facts>,
}

/// The connection to the agent.
#[derive(Debug)]
pub(crate) enum Io {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    /// Returns the public facts of the connection; none if the agent does not speak TLS on it.
    #[must_use]
    pub fn facts(&self) -> Option<&Facts> {
        self.facts.as_ref()
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        let Some(facts) = &self.facts else { return Connected::new() };
        let connected = Connected::new().extra(facts.clone());
        if facts.alpn.as_deref() == Some("h2") { connected.negotiated_h2() } else { connected }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.behind.is_empty() {
            return Pin::new(&mut this.io).poll_read(cx, buf);
        }
        let count = this.behind.len().min(buf.remaining());
        buf.put_slice(&this.behind[..count]);
        this.behind.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}

impl AsyncRead for Io {
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

impl AsyncWrite for Io {
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

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Unix(unix) => Pin::new(unix).poll_write_vectored(cx, bytes),
            Self::Tcp(tcp) => Pin::new(tcp).poll_write_vectored(cx, bytes),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Unix(unix) => unix.is_write_vectored(),
            Self::Tcp(tcp) => tcp.is_write_vectored(),
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
