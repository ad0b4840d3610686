//! TLS as a byte stream: [`headstart_tls::Conn`] over any stream of tokio, on either side.
//!
//! ```text
//! handle_bytes / handle_end   <- transport          what comes in, the end once and never bytes after it
//! poll_bytes                  -> transport          after every other call, until it gives nothing
//! handshake                                         before each read and write until it says Done
//! read, write                                       from EarlyData (server) or Done on
//! ```
//!
//! What is relied on of the engine, beyond its signatures:
//! * When `handshake` says `EarlyData` at a server, its flight is there for `poll_bytes` already, and `write` gives
//!   what is sent before the client's Finished.
//! * `handshake` says `EarlyData` as long as `read` may give early data, and goes on once that has ended.
//! * `read` after `handle_end` gives `End` only behind a close_notify; a stream that was cut off is an error.
//! * After an error `poll_bytes` has the alert.

#[cfg(test)]
mod tests;

mod engine;

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use headstart_tls::{Conn, Facts, NewSession};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::acceptor::ServerStream;
use crate::bridge::Handoff;
use crate::wakers::Wakers;
use engine::{Engine, Stage};

/// A stream on which TLS is spoken: what is read and written here is plain text.
///
/// The handshake goes on with whatever is polled: a read, a write, or [`TlsHandle::done`]. A server's stream
/// gives early data as soon as it is there, and takes what answers it ([`TlsHandle::opened`]); whether the
/// client has finished the handshake, and so proven that nothing was replayed, [`TlsHandle::is_done`] says.
///
/// Written bytes leave as soon as the transport takes them; [`poll_flush`](AsyncWrite::poll_flush) waits for that, as
/// for any buffered stream. A shutdown waits for the handshake and sends close_notify before the end of the
/// transport. A transport that ends without close_notify is an error (`UnexpectedEof`), since
/// anybody could have cut it; one that is dropped shows the peer the same.
pub struct TlsStream<S> {
    shared: Arc<Shared<S>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream<S> {
    /// TLS of `conn`, of which nothing was said yet, over `transport`.
    #[must_use]
    pub fn new(conn: Conn, transport: S) -> Self {
        Self::from_engine(Engine::new(conn, transport, None))
    }

    fn from_engine(engine: Engine<S>) -> Self {
        let (wakers, done) = (Wakers::default(), AtomicBool::new(false));
        Self { shared: Arc::new(Shared { engine: Mutex::new(engine), wakers, done }) }
    }

    /// For whoever wants to know how the stream is, after it was given away.
    #[must_use]
    pub fn handle(&self) -> TlsHandle<S> {
        TlsHandle { shared: Arc::clone(&self.shared) }
    }

    /// Client: sends `bytes` with the ClientHello, as far as the session allows; how many were taken.
    ///
    /// Once [`TlsHandle::done`] is, [`Facts::early_data`] says whether the server took them; else they must
    /// be written again.
    ///
    /// # Errors
    /// Those of the transport, and misuse of the session.
    pub async fn write_early(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let shared = &self.shared;
        poll_fn(|cx| {
            shared.wakers.writer(cx.waker());
            shared.poll(|engine, cx| engine.poll_write_early(cx, bytes))
        })
        .await
    }
}

impl TlsStream<ServerStream> {
    /// TLS of a server's `conn` with a client that may not have proven its address yet.
    ///
    /// With TurboTLS its TCP may come from elsewhere than its datagrams, for which `conn` was made: Fast Open
    /// cookies are for the address of TCP.
    #[must_use]
    pub fn accepted(conn: Conn, client: ServerStream) -> Self {
        let proven = client.proven_addr();
        Self::from_engine(Engine::new(conn, client, Some(proven)))
    }
}

/// How a [`TlsStream`] is that others read and write.
///
/// The transport lives until the stream and all handles are dropped, or one of them closes it.
pub struct TlsHandle<S> {
    shared: Arc<Shared<S>>,
}

/// Bytes of a [`TlsStream`] so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Plain text that was read from it.
    pub read: u64,
    /// Plain text that was written to it.
    pub written: u64,
    /// Everything on the transport, both ways.
    pub transport: u64,
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsHandle<S> {
    /// Waits until the peer may be written to: a server has taken early data, or the handshake is done.
    ///
    /// # Errors
    /// The handshake failed, or the transport did.
    pub async fn opened(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_other(cx, Engine::poll_opened)).await
    }

    /// Waits until the handshake is done, and brings it on.
    ///
    /// # Errors
    /// As [`opened`](Self::opened).
    pub async fn done(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_other(cx, Engine::poll_open)).await
    }

    /// Whether the handshake is done: both sides have proven that they take part in it now.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.shared.done.load(Ordering::Acquire)
    }

    /// What is public of the connection; complete once the handshake is done.
    #[must_use]
    pub fn facts(&self) -> Facts {
        self.shared.lock().conn().facts()
    }

    /// Client: a session to resume later; servers send some after the handshake, and they come with reads.
    #[must_use]
    pub fn take_session(&self) -> Option<NewSession> {
        self.shared.lock().conn_mut().poll_session()
    }

    /// The bytes so far.
    #[must_use]
    pub fn moved(&self) -> Moved {
        self.shared.lock().moved()
    }

    /// Looks at the transport, unless it was closed.
    pub fn with_transport<T>(&self, look: impl FnOnce(&S) -> T) -> Option<T> {
        self.shared.lock().transport().map(look)
    }

    /// As a shutdown of the stream, whoever holds that; once more does nothing.
    ///
    /// # Errors
    /// As for the stream.
    pub async fn shutdown(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_other(cx, Engine::poll_shutdown)).await
    }

    /// Reads and drops what the peer still sends until it ends: a connection that is closed before resets, and
    /// the peer may lose what it has not read yet. To be called after a shutdown.
    pub async fn drain(&self) {
        poll_fn(|cx| self.poll_other(cx, Engine::poll_drain)).await;
    }

    /// Drops the transport, whoever holds the stream. Without a shutdown before, the peer sees that it was cut.
    pub fn close(&self) {
        drop(self.shared.take_transport());
    }

    fn poll_other<T>(
        &self,
        cx: &mut Context<'_>,
        work: impl FnOnce(&mut Engine<S>, &mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.shared.wakers.other(cx.waker());
        self.shared.poll(work)
    }
}

impl<S: Handoff> TlsHandle<S> {
    /// Ends the transport so that the peer sees a reset.
    pub fn reset(&self) {
        if let Some(transport) = self.shared.take_transport() {
            transport.reset();
        }
    }
}

impl<S> Clone for TlsHandle<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

/// What a stream and its handles share.
struct Shared<S> {
    engine: Mutex<Engine<S>>,
    /// All that wait, since the handshake goes on with whichever of them polls.
    wakers: Wakers,
    /// As the engine's stage, to be looked at without its lock.
    done: AtomicBool,
}

impl<S> Shared<S> {
    /// A panic elsewhere while the lock was held is a connection that fails, not a process.
    fn lock(&self) -> MutexGuard<'_, Engine<S>> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Shared<S> {
    /// Does `work`, for which the caller has noted itself in the wakers.
    ///
    /// The transport only ever sees the common waker: it keeps one for each direction, and reader, writer and
    /// others would push each other out. So each of its events wakes them all; and where one of them gets
    /// what another waits for (early data, the end of the handshake), it wakes the others too.
    fn poll<T>(&self, work: impl FnOnce(&mut Engine<S>, &mut Context<'_>) -> Poll<T>) -> Poll<T> {
        let waker = self.wakers.waker();
        let mut engine = self.lock();
        let polled = work(&mut engine, &mut Context::from_waker(&waker));
        let changed = engine.take_changed();
        if engine.stage() == Stage::Open {
            self.done.store(true, Ordering::Release);
        }
        drop(engine);
        if changed {
            waker.wake();
        }
        polled
    }

    fn take_transport(&self) -> Option<S> {
        let transport = self.lock().take_transport();
        // Whoever reads or writes finds it gone.
        self.wakers.waker().wake();
        transport
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for TlsStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.shared.wakers.reader(cx.waker());
        self.shared.poll(|engine, cx| engine.poll_read(cx, buf))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TlsStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.shared.wakers.writer(cx.waker());
        self.shared.poll(|engine, cx| engine.poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.wakers.writer(cx.waker());
        self.shared.poll(Engine::poll_flush)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.wakers.writer(cx.waker());
        self.shared.poll(Engine::poll_shutdown)
    }
}

/// So that [`bridge`](crate::bridge()) passes the plain text on. It never becomes transparent: the kernel
/// would have to do the cryptography.
impl<S: Handoff> Handoff for TlsStream<S> {
    fn is_transparent(&self) -> bool {
        false
    }

    fn into_tcp(self) -> Option<TcpStream> {
        None
    }

    fn reset(self) {
        self.handle().reset();
    }
}

impl<S> fmt::Debug for TlsStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsStream").finish_non_exhaustive()
    }
}

impl<S> fmt::Debug for TlsHandle<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsHandle").finish_non_exhaustive()
    }
}
