use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::bridge::Handoff;
use crate::opener::Opener;
use crate::report::Report;
use crate::wakers::Wakers;

/// A connection to a server, on which TLS is to be spoken: a byte stream like any other.
///
/// It opens while it is used. Bytes written before TCP is connected are kept, at most 16 KiB.
#[derive(Debug)]
pub struct ClientStream {
    state: State,
    /// Bytes for the reader that did not fit its last buffer.
    to_read: Vec<u8>,
    wakers: Wakers,
}

#[derive(Debug)]
enum State {
    Opening(Box<dyn Opener>),
    Open(TcpStream, Box<Report>),
    Failed(Failure),
}

/// An error, reported in full once and then by its kind.
#[derive(Debug)]
struct Failure {
    kind: io::ErrorKind,
    first: Option<io::Error>,
    report: Option<Box<Report>>,
}

impl ClientStream {
    pub(super) fn new(opening: Box<dyn Opener>) -> Self {
        let state = State::Opening(opening);
        Self { state, to_read: Vec::new(), wakers: Wakers::default() }
    }

    /// Returns the report on the opening so far.
    #[must_use]
    pub fn report(&self) -> Option<&Report> {
        match &self.state {
            State::Opening(opening) => Some(opening.report()),
            State::Open(_, report) => Some(report),
            State::Failed(failure) => failure.report.as_deref(),
        }
    }

    /// Queries DNS, and for an address sends the SYN, now instead of at the first use of the
    /// stream.
    ///
    /// Errors appear at the first use.
    pub fn start(&mut self) {
        self.drive();
    }

    /// Waits until TCP is connected.
    ///
    /// # Errors
    /// The reason why it cannot be.
    pub async fn connected(&mut self) -> io::Result<()> {
        std::future::poll_fn(|cx| {
            self.wakers.reader(cx.waker());
            self.poll_state()?;
            match &self.state {
                State::Opening(opening) if !opening.is_connected() => Poll::Pending,
                _ => Poll::Ready(Ok(())),
            }
        })
        .await
    }

    /// Drives the opening for the registered tasks; returns the error if there is no connection.
    fn poll_state(&mut self) -> io::Result<()> {
        self.drive();
        match &mut self.state {
            State::Failed(failure) => {
                Err(failure.first.take().unwrap_or_else(|| failure.kind.into()))
            }
            State::Opening(_) | State::Open(..) => Ok(()),
        }
    }

    /// Does everything that can be done now, and leaves the opening once TCP alone carries the
    /// stream.
    fn drive(&mut self) {
        let State::Opening(opening) = &mut self.state else { return };
        let waker = self.wakers.waker();
        let driven = opening.poll_drive(&mut Context::from_waker(&waker));
        let (over, changed) = match &driven {
            Ok(progress) => (opening.is_transparent(), *progress),
            Err(_) => (true, true),
        };
        if over {
            self.leave_opening(driven.err());
        }
        if over || changed {
            // Progress made by one task has to reach the other.
            waker.wake();
        }
    }

    fn leave_opening(&mut self, error: Option<io::Error>) {
        let kind = error.as_ref().map_or(io::ErrorKind::NotConnected, io::Error::kind);
        let failed = State::Failed(Failure { kind, first: error, report: None });
        let State::Opening(opening) = std::mem::replace(&mut self.state, failed) else { return };
        match &mut self.state {
            State::Failed(failure) if failure.first.is_some() => {
                failure.report = Some(Box::new(opening.into_report()));
            }
            state => {
                if let Some((tcp, report)) = opening.into_tcp() {
                    *state = State::Open(tcp, Box::new(report));
                }
            }
        }
    }

    fn copy_buffered(&mut self, buf: &mut ReadBuf<'_>) {
        let count = self.to_read.len().min(buf.remaining());
        buf.put_slice(self.to_read.get(..count).unwrap_or_default());
        self.to_read.drain(..count);
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.wakers.reader(cx.waker());
        if this.to_read.is_empty() {
            this.poll_state()?;
            if let State::Opening(opening) = &mut this.state
                && let Some(bytes) = opening.poll_bytes()
            {
                this.to_read = bytes;
            }
        }
        if !this.to_read.is_empty() {
            this.copy_buffered(buf);
            return Poll::Ready(Ok(()));
        }
        match &mut this.state {
            State::Opening(opening) if opening.is_read_finished() => Poll::Ready(Ok(())),
            State::Opening(_) => Poll::Pending,
            State::Open(tcp, _) => Pin::new(tcp).poll_read(cx, buf),
            State::Failed(failure) => Poll::Ready(Err(failure.kind.into())),
        }
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.wakers.writer(cx.waker());
        // The second time, driving may have made room.
        for _ in 0..2 {
            let taken = match &mut this.state {
                State::Opening(opening) => opening.write(bytes),
                State::Open(..) | State::Failed(_) => 0,
            };
            this.poll_state()?;
            if taken > 0 {
                return Poll::Ready(Ok(taken));
            }
        }
        match &mut this.state {
            State::Opening(_) if bytes.is_empty() => Poll::Ready(Ok(0)),
            State::Opening(_) => Poll::Pending,
            State::Open(tcp, _) => Pin::new(tcp).poll_write(cx, bytes),
            State::Failed(failure) => Poll::Ready(Err(failure.kind.into())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Bytes under way need no flush: a task that awaits their answer drives the opening.
        let this = self.get_mut();
        this.wakers.writer(cx.waker());
        Poll::Ready(this.poll_state())
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.wakers.writer(cx.waker());
        if let State::Opening(opening) = &mut this.state {
            opening.finish();
        }
        this.poll_state()?;
        match &mut this.state {
            State::Opening(opening) if opening.is_flushed() => Poll::Ready(Ok(())),
            State::Opening(_) => Poll::Pending,
            State::Open(tcp, _) => Pin::new(tcp).poll_shutdown(cx),
            State::Failed(failure) => Poll::Ready(Err(failure.kind.into())),
        }
    }
}

impl Handoff for ClientStream {
    fn is_transparent(&self) -> bool {
        matches!(self.state, State::Open(..)) && self.to_read.is_empty()
    }

    fn into_tcp(self) -> Option<TcpStream> {
        match self.state {
            State::Open(tcp, _) => Some(tcp),
            State::Opening(_) | State::Failed(_) => None,
        }
    }

    fn reset(self) {
        match self.state {
            State::Opening(opening) => opening.reset(),
            State::Open(tcp, _) => {
                let _ = tcp.set_zero_linger();
            }
            State::Failed(_) => {}
        }
    }
}
