//! Bytes both ways between a program and its connection, until both are through.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use headstart_net::{Handoff, LimitClock, RelayLimits, TimeLimit};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf, copy_bidirectional_with_sizes};
use tokio::time::interval;

use super::limits::PIECE;
use super::program_stream::ProgramStream;
use crate::base::forward::forward_writes;
use crate::metrics::{self, Direction, Outcome};

/// Interval at which bytes of a tunnel reach the metrics.
const REPORT_EVERY: Duration = Duration::from_secs(15);

/// Passes `head`, which the program sent behind its request, and then bytes both ways.
///
/// An end is passed on. A connection that breaks, or is idle for too long, ends so that neither
/// side takes that for an end in order; what the server said before goes to the program first.
pub(super) async fn pass<H: Handoff>(
    remote: H,
    local: ProgramStream,
    head: Bytes,
    limits: RelayLimits,
) -> Outcome {
    let moved = Arc::<Moved>::default();
    let mut local = Counted { local, moved: Arc::clone(&moved) };
    let mut remote = Delivering { remote, moved: Arc::clone(&moved) };
    let over = {
        let passing = async {
            if !head.is_empty() {
                remote.write_all(&head).await?;
                remote.flush().await?;
                moved.add_up(head.len());
            }
            // Not held while the connection lives.
            drop(head);
            copy_bidirectional_with_sizes(&mut remote, &mut local, PIECE, PIECE).await
        };
        tokio::select! {
            // The clock sees what has moved only after that.
            biased;
            passed = passing => passed.map(|_| ()),
            _ = moved.limit(limits) => Err(io::ErrorKind::TimedOut.into()),
        }
    };
    moved.report();
    match over {
        Ok(()) => Outcome::Closed,
        Err(error) => {
            tracing::debug!(%error, "connection broken");
            remote.remote.reset();
            local.local.cut();
            match error.kind() {
                io::ErrorKind::TimedOut => Outcome::TimedOut,
                _ => Outcome::Reset,
            }
        }
    }
}

/// Bytes moved so far.
#[derive(Default)]
struct Moved {
    up: AtomicU64,
    down: AtomicU64,
    /// Bytes that the metrics have counted already.
    reported: [AtomicU64; 2],
    half_closed: AtomicBool,
    /// Error that ended the server's stream, if it did not end in order.
    broken: Mutex<Option<io::Error>>,
}

impl Moved {
    fn add_up(&self, count: usize) {
        self.up.fetch_add(count as u64, Ordering::Relaxed);
    }

    fn add_down(&self, count: usize) {
        self.down.fetch_add(count as u64, Ordering::Relaxed);
    }

    fn broke(&self, error: io::Error) {
        self.half_closed.store(true, Ordering::Relaxed);
        *self.broken.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    fn take_broken(&self) -> Option<io::Error> {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn sum(&self) -> u64 {
        self.up.load(Ordering::Relaxed).wrapping_add(self.down.load(Ordering::Relaxed))
    }

    /// Waits until a limit is reached, and tells the metrics meanwhile.
    async fn limit(&self, limits: RelayLimits) -> TimeLimit {
        let (mut clock, mut report) = (LimitClock::new(limits), interval(REPORT_EVERY));
        poll_fn(|cx| {
            while report.poll_tick(cx).is_ready() {
                self.report();
            }
            clock.poll(cx, self.sum(), self.half_closed.load(Ordering::Relaxed))
        })
        .await
    }

    fn report(&self) {
        let all = [(&self.up, Direction::ToServer), (&self.down, Direction::ToClient)];
        for ((count, direction), reported) in all.into_iter().zip(&self.reported) {
            let now = count.load(Ordering::Relaxed);
            let before = reported.swap(now, Ordering::Relaxed);
            if now != before {
                metrics::relayed(direction, now.wrapping_sub(before));
            }
        }
    }
}

/// The server's side. If it breaks, that looks like an end as long as there are bytes to be
/// delivered: a copying loop would drop them for an error.
struct Delivering<H> {
    remote: H,
    moved: Arc<Moved>,
}

impl<H: Handoff> AsyncRead for Delivering<H> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match Pin::new(&mut this.remote).poll_read(cx, buf) {
            Poll::Ready(Err(error)) if error.kind() != io::ErrorKind::Interrupted => {
                this.moved.broke(error);
                Poll::Ready(Ok(()))
            }
            polled => polled,
        }
    }
}

impl<H: Handoff> AsyncWrite for Delivering<H> {
    forward_writes!(remote);
}

/// The program's side, where everything that moves is counted.
struct Counted {
    local: ProgramStream,
    moved: Arc<Moved>,
}

impl AsyncRead for Counted {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let read = Pin::new(&mut this.local).poll_read(cx, buf);
        if matches!(read, Poll::Ready(Ok(()))) {
            match buf.filled().len() - before {
                0 => this.moved.half_closed.store(true, Ordering::Relaxed),
                count => this.moved.add_up(count),
            }
        }
        read
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.local).poll_write(cx, bytes);
        if let Poll::Ready(Ok(count)) = written {
            this.moved.add_down(count);
        }
        written
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().local).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // Everything is delivered, and the stream has not ended.
        if let Some(error) = this.moved.take_broken() {
            return Poll::Ready(Err(error));
        }
        this.moved.half_closed.store(true, Ordering::Relaxed);
        Pin::new(&mut this.local).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, DuplexStream, duplex};
    use tokio::net::{TcpStream, UnixStream};
    use tokio::time::Instant;

    use super::*;

    /// A connection that never becomes transparent, and says how it ended.
    struct Remote {
        stream: DuplexStream,
        /// True if the stream ends without a close.
        breaks: bool,
    }

    impl AsyncRead for Remote {
        fn poll_read(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let this = self.get_mut();
            let before = buf.filled().len();
            match Pin::new(&mut this.stream).poll_read(cx, buf) {
                Poll::Ready(Ok(())) if this.breaks && buf.filled().len() == before => {
                    Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()))
                }
                polled => polled,
            }
        }
    }

    impl AsyncWrite for Remote {
        forward_writes!(stream);
    }

    impl Handoff for Remote {
        fn is_transparent(&self) -> bool {
            false
        }

        fn into_tcp(self) -> Option<TcpStream> {
            None
        }

        fn reset(self) {}
    }

    fn pair() -> (UnixStream, ProgramStream, DuplexStream, Remote) {
        let (program, local) = UnixStream::pair().unwrap();
        let (server, stream) = duplex(1 << 16);
        (program, ProgramStream::Unix(local), server, Remote { stream, breaks: false })
    }

    /// The program is slow, so a good part of it waits here when the server breaks off.
    #[tokio::test]
    async fn what_came_before_a_break_is_delivered() {
        const BYTES: usize = 4 << 20;
        let (mut program, local, mut server, remote) = pair();
        let remote = Remote { breaks: true, ..remote };
        let passing = tokio::spawn(pass(remote, local, Bytes::new(), RelayLimits::default()));
        let saying = tokio::spawn(async move { server.write_all(&vec![7; BYTES]).await });
        let mut received = Vec::new();
        let mut buffer = vec![0; 1000];
        while let Ok(count @ 1..) = program.read(&mut buffer).await {
            received.extend_from_slice(&buffer[..count]);
            tokio::task::yield_now().await;
        }
        assert_eq!(received.len(), BYTES);
        saying.await.unwrap().unwrap();
        assert_eq!(passing.await.unwrap(), Outcome::Reset);
        assert!(program.write_all(b"x").await.is_err(), "both directions are closed");
    }

    #[tokio::test]
    async fn each_direction_ends_by_itself() {
        let (mut program, local, mut server, remote) = pair();
        let passing = tokio::spawn(async move {
            pass(remote, local, Bytes::from_static(b"ahead "), RelayLimits::default()).await
        });
        program.write_all(b"up").await.unwrap();
        program.shutdown().await.unwrap();
        let mut received = String::new();
        server.read_to_string(&mut received).await.unwrap();
        assert_eq!(received, "ahead up");
        server.write_all(b"down").await.unwrap();
        server.shutdown().await.unwrap();
        received.clear();
        program.read_to_string(&mut received).await.unwrap();
        assert_eq!(received, "down");
        assert_eq!(passing.await.unwrap(), Outcome::Closed);
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_move_is_ended() {
        let limits = RelayLimits {
            idle: Some(Duration::from_secs(80)),
            half_closed_idle: Some(Duration::from_secs(8)),
            total: None,
        };
        let (mut program, local, _server, remote) = pair();
        let began = Instant::now();
        assert_eq!(pass(remote, local, Bytes::new(), limits).await, Outcome::TimedOut);
        assert!(began.elapsed() >= Duration::from_secs(80));
        assert_eq!(program.read(&mut [0; 1]).await.unwrap(), 0);
        assert!(program.write_all(b"x").await.is_err(), "both directions are closed");

        let (mut program, local, _server, remote) = pair();
        program.shutdown().await.unwrap();
        let began = Instant::now();
        assert_eq!(pass(remote, local, Bytes::new(), limits).await, Outcome::TimedOut);
        assert!(began.elapsed() < Duration::from_secs(80));
    }
}
