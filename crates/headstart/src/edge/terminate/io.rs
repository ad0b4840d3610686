//! The client's stream as the HTTP library sees it.

use std::io::{self, IoSlice};
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

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
                None => this.pending.client().set_in_head(this.pending.is_empty()),
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
