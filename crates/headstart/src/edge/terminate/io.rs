//! The client's stream as the HTTP library sees it.

use std::io::{self, IoSlice};
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::body::Pending;
use super::frames::Frames;
use super::refusals::Refusals;
use crate::base::forward::forward_ends;

/// Bytes that become one record of TLS.
const RECORD: usize = 16 * 1024;

/// Joins small pieces, such as a head and the body behind it, into one record: so the library may
/// keep the pieces apart until they leave, and their owners see when they do.
#[derive(Debug)]
pub(super) struct ClientIo<T> {
    tls: T,
    joined: Vec<u8>,
    pending: Pending,
    /// Counts what the client sends, over HTTP/2.
    frames: Option<Frames>,
    /// Counts what the library refuses, over HTTP/2.
    refusals: Option<Refusals>,
}

impl<T> ClientIo<T> {
    /// Wraps the stream of a client whose requests are `pending`.
    pub(super) fn new(tls: T, pending: &Pending, is_http2: bool) -> Self {
        let frames = is_http2.then(|| Frames::new(Arc::clone(pending.client())));
        let refusals = is_http2.then(Refusals::default);
        Self { tls, joined: Vec::new(), pending: pending.clone(), frames, refusals }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for ClientIo<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let polled = Pin::new(&mut this.tls).poll_read(cx, buf);
        match &buf.filled()[before..] {
            [] => {}
            bytes => match &mut this.frames {
                Some(frames) => frames.read(bytes)?,
                None => {
                    let client = this.pending.client();
                    client.set_in_head(this.pending.is_empty() && !client.is_uploading());
                }
            },
        }
        polled
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for ClientIo<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.pending.client().poll_heads_released(cx));
        let mended = this.refusals.as_ref().and_then(|refusals| refusals.mended(bytes));
        let bytes = mended.as_deref().unwrap_or(bytes);
        let polled = Pin::new(&mut this.tls).poll_write(cx, bytes);
        if let (Some(refusals), Poll::Ready(Ok(count))) = (&mut this.refusals, &polled) {
            refusals.wrote(&bytes[..*count]);
        }
        polled
    }

    forward_ends!(tls);

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut pieces = pieces.iter().filter(|piece| !piece.is_empty()).peekable();
        let Some(first) = pieces.next() else { return self.poll_write(cx, &[]) };
        if first.len() >= RECORD || pieces.peek().is_none() {
            return self.poll_write(cx, first);
        }
        let mut joined = mem::take(&mut self.joined);
        joined.clear();
        joined.extend_from_slice(first);
        for piece in pieces {
            let free = RECORD - joined.len();
            joined.extend_from_slice(&piece[..piece.len().min(free)]);
        }
        let polled = self.as_mut().poll_write(cx, &joined);
        // A connection that rests keeps no such memory.
        if polled.is_pending() || joined.len() >= RECORD {
            self.joined = joined;
        }
        polled
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::edge::terminate::capacity::{Capacity, CapacityLimits};

    #[tokio::test]
    async fn the_head_of_a_refusal_leaves_with_its_body() {
        let limits = CapacityLimits { requests: 1, requests_per_address: 1, memory: usize::MAX };
        let pending = Pending::new(&Arc::new(Capacity::new(limits)));
        let exchanges = [(); 2].map(|()| pending.client().exchange());
        let (mut client, edge) = tokio::io::duplex(64);
        let mut io = ClientIo::new(edge, &pending, true);
        exchanges.iter().for_each(|exchange| exchange.keep_head());
        let writing = tokio::spawn(async move { io.write_all(b"head and body").await });
        for (number, exchange) in exchanges.iter().enumerate() {
            // All other tasks go first, as there is one thread.
            tokio::task::yield_now().await;
            assert!(!writing.is_finished(), "{number}");
            exchange.release_head();
        }
        writing.await.unwrap().unwrap();
        let mut received = String::new();
        client.read_to_string(&mut received).await.unwrap();
        assert_eq!(received, "head and body");
    }

    #[tokio::test]
    async fn a_task_that_ends_keeps_no_head() {
        let limits = CapacityLimits { requests: 1, requests_per_address: 1, memory: usize::MAX };
        let pending = Pending::new(&Arc::new(Capacity::new(limits)));
        let exchange = pending.client().exchange();
        let task = exchange.stream();
        exchange.keep_head();
        drop(task);
        let (_client, edge) = tokio::io::duplex(64);
        ClientIo::new(edge, &pending, true).write_all(b"x").await.unwrap();
    }
}
