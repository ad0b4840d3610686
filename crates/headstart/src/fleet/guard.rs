//! A transport that ends when the other side sends more than was asked for.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::base::forward::forward_ends;

/// Bytes that may come beyond what was asked with, before an answer is whole.
///
/// The longest answer that is asked for is that of INFO, with some 8 kB, and those to questions
/// about early data are shorter than the questions. The client would collect any number of bytes of
/// an answer that has no end.
const UNASKED_MAX: usize = 64 * 1024;

/// Bytes read of a transport less bytes written to it, since the last answer.
#[derive(Clone, Debug, Default)]
pub(super) struct Surplus(Arc<AtomicUsize>);

impl Surplus {
    /// An answer was whole: nothing of it is collected any more.
    pub(super) fn answered(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Adds bytes read, and returns true if there are too many.
    fn add(&self, read: usize) -> bool {
        self.0.fetch_add(read, Ordering::Relaxed).saturating_add(read) > UNASKED_MAX
    }

    fn subtract(&self, written: usize) {
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |before: usize| {
            Some(before.saturating_sub(written))
        });
    }
}

/// Counts what is read of `inner` and written to it.
pub(super) struct Guard<S> {
    inner: S,
    surplus: Surplus,
}

impl<S> Guard<S> {
    pub(super) fn new(inner: S) -> Self {
        Self { inner, surplus: Surplus::default() }
    }

    pub(super) fn surplus(&self) -> Surplus {
        self.surplus.clone()
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
        if this.surplus.add(buf.filled().len() - before) {
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
        let written = ready!(Pin::new(&mut this.inner).poll_write(cx, bytes))?;
        this.surplus.subtract(written);
        Poll::Ready(Ok(written))
    }

    forward_ends!(inner);
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    fn pair() -> (Guard<DuplexStream>, DuplexStream) {
        let (near, far) = duplex(4 * UNASKED_MAX);
        (Guard::new(near), far)
    }

    #[tokio::test]
    async fn answers_have_room() {
        let (mut near, mut far) = pair();
        let surplus = near.surplus();
        let mut buffer = vec![0; UNASKED_MAX];
        for _ in 0..3 {
            far.write_all(&buffer).await.unwrap();
            near.read_exact(&mut buffer).await.unwrap();
            surplus.answered();
        }
    }

    /// However often something else is asked meanwhile.
    #[tokio::test]
    async fn an_answer_without_end_ends() {
        const QUESTION: usize = 100;
        let (mut near, mut far) = pair();
        let mut buffer = vec![0; 1024];
        let mut read = 0;
        let error = loop {
            near.write_all(&[7; QUESTION]).await.unwrap();
            far.read_exact(&mut [0; QUESTION]).await.unwrap();
            far.write_all(&buffer).await.unwrap();
            match near.read_exact(&mut buffer).await {
                Ok(count) => read += count,
                Err(error) => break error,
            }
            assert!(read < 2 * UNASKED_MAX);
        };
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(read > UNASKED_MAX - buffer.len());
    }
}
