//! A transport that ends when the other side sends more than was asked for.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that may come before something is asked again.
///
/// The longest answer that is asked for is that of INFO, with some 8 kB; the client would collect any
/// number of bytes of an answer that has no end.
const UNASKED_MAX: usize = 64 * 1024;

/// What is read of `inner` counts until something is written to it.
pub(super) struct Guard<S> {
    inner: S,
    read: usize,
}

impl<S> Guard<S> {
    pub(super) const fn new(inner: S) -> Self {
        Self { inner, read: 0 }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guard<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(cx, buf))?;
        this.read += buf.filled().len() - before;
        if this.read > UNASKED_MAX {
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "too long an answer",
            )));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guard<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.read = 0;
        Pin::new(&mut this.inner).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn an_answer_without_end_ends() {
        let (near, mut far) = duplex(4 * UNASKED_MAX);
        let mut near = Guard::new(near);
        let mut room = vec![0; UNASKED_MAX];
        far.write_all(&vec![7; UNASKED_MAX]).await.unwrap();
        near.read_exact(&mut room).await.unwrap();
        near.write_all(b"?").await.unwrap();
        far.write_all(&vec![7; UNASKED_MAX + 1]).await.unwrap();
        near.read_exact(&mut room).await.unwrap();
        let error = near.read(&mut room).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
