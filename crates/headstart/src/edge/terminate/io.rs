//! The client's stream as the HTTP library sees it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frames::Frames;
use crate::base::forward::forward_writes;

/// Bytes that become one record of TLS.
const RECORD: usize = 16 * 1024;

/// Joins small pieces, such as a head and the body behind it, into one record: so the library may
/// keep the pieces apart until they leave, and their owners see when they do.
#[derive(Debug)]
pub(super) struct ClientIo<T> {
    tls: T,
    joined: Vec<u8>,
    /// Counts what the client sends, over HTTP/2.
    frames: Option<Frames>,
}

impl<T> ClientIo<T> {
    pub(super) fn new(tls: T, frames: Option<Frames>) -> Self {
        Self { tls, joined: Vec::new(), frames }
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
        if let Some(frames) = &mut this.frames {
            frames.read(&buf.filled()[before..])?;
        }
        polled
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for ClientIo<T> {
    forward_writes!(tls);

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let mut pieces = pieces.iter().filter(|piece| !piece.is_empty()).peekable();
        let Some(first) = pieces.next() else { return Pin::new(&mut this.tls).poll_write(cx, &[]) };
        if first.len() >= RECORD || pieces.peek().is_none() {
            return Pin::new(&mut this.tls).poll_write(cx, first);
        }
        this.joined.clear();
        this.joined.extend_from_slice(first);
        for piece in pieces {
            let room = RECORD - this.joined.len();
            this.joined.extend_from_slice(&piece[..piece.len().min(room)]);
        }
        let polled = Pin::new(&mut this.tls).poll_write(cx, &this.joined);
        // A connection that rests keeps no such memory.
        if polled.is_ready() && this.joined.len() < RECORD {
            this.joined = Vec::new();
        }
        polled
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}
