use std::io;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::Inner;
use super::opening::Opening;
use super::report::Report;
use crate::bridge::Handoff;
use crate::path::{LAG_MAX, Outcome, PathKey};
use crate::udp::{RecvBuffers, UdpPort};

/// Sockets that wait for late datagrams at the same time; without a permit nothing is learnt.
static LATE_SOCKETS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(64)));

/// A connection to a server, on which TLS is to be spoken: a byte stream like any other.
///
/// It is opened while it is used. What is written before TCP is connected is kept, at most 16 KiB.
#[derive(Debug)]
pub struct ClientStream {
    state: State,
    /// Bytes for the reader that did not fit its last buffer.
    to_read: Vec<u8>,
    /// Reader and writer may be two tasks: what one sets in motion, the other has to hear of.
    reader: Option<Waker>,
    writer: Option<Waker>,
}

#[derive(Debug)]
enum State {
    Opening(Box<Opening>),
    Open(TcpStream, Box<Report>),
    /// Only while one state becomes another.
    Between,
}

impl ClientStream {
    pub(super) fn new(opening: Opening) -> Self {
        Self {
            state: State::Opening(Box::new(opening)),
            to_read: Vec::new(),
            reader: None,
            writer: None,
        }
    }

    /// How the opening went so far.
    ///
    /// `None` only if the stream failed.
    #[must_use]
    pub fn report(&self) -> Option<&Report> {
        match &self.state {
            State::Opening(opening) => Some(&opening.report),
            State::Open(_, report) => Some(report),
            State::Between => None,
        }
    }

    /// Sends the SYN and asks DNS now, instead of at the first use of the stream.
    pub fn start(&mut self) {
        // An error is met again at the first use.
        let _ = self.poll_state(&mut Context::from_waker(Waker::noop()));
    }

    /// Waits until TCP is connected.
    ///
    /// # Errors
    /// Why it cannot be.
    pub async fn connected(&mut self) -> io::Result<()> {
        std::future::poll_fn(|cx| {
            self.poll_state(cx)?;
            match &self.state {
                State::Opening(opening) if !opening.is_connected() => Poll::Pending,
                _ => Poll::Ready(Ok(())),
            }
        })
        .await
    }

    /// Drives the opening, and leaves it as soon as TCP alone carries the stream.
    fn poll_state(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let State::Opening(opening) = &mut self.state else { return Ok(()) };
        if opening.poll_drive(cx)? {
            let waiting = [self.reader.take(), self.writer.take()];
            waiting.into_iter().flatten().for_each(Waker::wake);
        }
        if opening.is_transparent()
            && let State::Opening(opening) = std::mem::replace(&mut self.state, State::Between)
            && let Some((tcp, report)) = opening.into_tcp()
        {
            self.state = State::Open(tcp, Box::new(report));
        }
        Ok(())
    }

    fn give(&mut self, buf: &mut ReadBuf<'_>) {
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
        this.reader = Some(cx.waker().clone());
        if this.to_read.is_empty() {
            this.poll_state(cx)?;
            if let State::Opening(opening) = &mut this.state
                && let Some(bytes) = opening.read()
            {
                this.to_read = bytes;
            }
        }
        if !this.to_read.is_empty() {
            this.give(buf);
            return Poll::Ready(Ok(()));
        }
        // Taking the last bytes may have made it transparent.
        this.poll_state(cx)?;
        match &mut this.state {
            State::Opening(opening) if opening.is_read_finished() => Poll::Ready(Ok(())),
            State::Opening(_) => Poll::Pending,
            State::Open(tcp, _) => Pin::new(tcp).poll_read(cx, buf),
            State::Between => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
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
        this.writer = Some(cx.waker().clone());
        let mut taken = 0;
        if let State::Opening(opening) = &mut this.state {
            taken = opening.write(bytes);
        }
        this.poll_state(cx)?;
        if taken > 0 {
            return Poll::Ready(Ok(taken));
        }
        match &mut this.state {
            State::Opening(opening) => match opening.write(bytes) {
                0 if !bytes.is_empty() => Poll::Pending,
                taken => Poll::Ready(Ok(taken)),
            },
            State::Open(tcp, _) => Pin::new(tcp).poll_write(cx, bytes),
            State::Between => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Bytes on their way need no flush: whoever waits for their answer drives the opening.
        Poll::Ready(self.get_mut().poll_state(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.writer = Some(cx.waker().clone());
        if let State::Opening(opening) = &mut this.state {
            opening.finish();
        }
        this.poll_state(cx)?;
        match &mut this.state {
            State::Opening(opening) if opening.is_flushed() => Poll::Ready(Ok(())),
            State::Opening(_) => Poll::Pending,
            State::Open(tcp, _) => Pin::new(tcp).poll_shutdown(cx),
            State::Between => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
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
            State::Opening(_) | State::Between => None,
        }
    }

    fn reset(self) {
        if let State::Open(tcp, _) = self.state {
            let _ = tcp.set_zero_linger();
        }
    }
}

/// Listens on for a datagram after the fallback, so that the next grace is better.
pub(super) fn await_late(
    shared: Arc<Inner>,
    socket: UdpPort,
    key: PathKey,
    rtt: Duration,
    connected: Instant,
) {
    let Ok(permit) = Arc::clone(&LATE_SOCKETS).try_acquire_owned() else { return };
    tokio::spawn(async move {
        let _permit = permit;
        let mut buffers = RecvBuffers::new(1);
        let until = connected + LAG_MAX;
        if let Ok(Ok(_)) = tokio::time::timeout_at(until, socket.recv(&mut buffers)).await {
            let outcome = Outcome::Late { rtt, lag: connected.elapsed() };
            shared.paths.record(key, outcome, Instant::now().into_std());
        }
    });
}
