//! TLS as a byte stream: [`headstart_tls::Conn`] over any stream of tokio, on either side.
//!
//! ```text
//! handle_bytes / handle_end  <- transport   input; the end only once, and no bytes after it
//! poll_bytes                 -> transport   after every other call, until it returns nothing
//! handshake                                 before each read and write until it returns Done
//! read, write                               from EarlyData (server) or Done on
//! ```
//!
//! The engine is relied on, beyond its signatures, for the following:
//! * When `handshake` returns `EarlyData` at a server, its flight is already available from
//!   `poll_bytes`, and `write` sends data before the client's Finished.
//! * `handshake` returns `EarlyData` as long as `read` may return early data, and continues once
//!   that has ended.
//! * `read` after `handle_end` returns `End` only behind a close_notify; a truncated stream is an
//!   error.
//! * After an error `poll_bytes` returns the alert.

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

use crate::bridge::Handoff;
use crate::proven_addr::ProvenAddr;
use crate::wakers::Wakers;
use engine::{Engine, Stage};

/// A stream on which TLS is spoken: reads and writes carry plain text.
///
/// Any poll drives the handshake: a read, a write, or [`TlsHandle::done`]. A server's stream
/// returns early data as soon as it is there, and accepts the answer to it ([`TlsHandle::opened`]).
/// [`TlsHandle::is_done`] tells whether the client has finished the handshake, and so proven that
/// nothing was replayed.
///
/// Written bytes leave as soon as the transport accepts them;
/// [`poll_flush`](AsyncWrite::poll_flush) waits for that, as for any buffered stream. A shutdown
/// waits for the handshake and sends close_notify before the end of the transport. A transport that
/// ends without close_notify is an error (`UnexpectedEof`), since anyone could have cut it;
/// dropping the stream looks the same to the peer.
pub struct TlsStream<S> {
    shared: Arc<Shared<S>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream<S> {
    /// Starts TLS over `transport` with `conn`, which must be new.
    #[must_use]
    pub fn new(conn: Conn, transport: S) -> Self {
        Self::from_engine(Engine::new(conn, transport, None))
    }

    fn from_engine(engine: Engine<S>) -> Self {
        let (wakers, done) = (Wakers::default(), AtomicBool::new(false));
        Self { shared: Arc::new(Shared { engine: Mutex::new(engine), wakers, done }) }
    }

    /// Returns a handle for observing the stream after it was given away.
    #[must_use]
    pub fn handle(&self) -> TlsHandle<S> {
        TlsHandle { shared: Arc::clone(&self.shared) }
    }

    /// Client: sends `bytes` with the ClientHello, as far as the session allows; returns how many
    /// were taken.
    ///
    /// After [`TlsHandle::done`], [`Facts::early_data`] tells whether the server accepted them;
    /// otherwise they must be written again.
    ///
    /// # Errors
    /// Errors of the transport, and misuse of the session.
    pub async fn write_early(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let shared = &self.shared;
        poll_fn(|cx| {
            shared.wakers.writer(cx.waker());
            shared.poll(|engine, cx| engine.poll_write_early(cx, bytes))
        })
        .await
    }

    /// Starts TLS with a server's `conn` and a client whose address becomes known as `proven`.
    ///
    /// With TurboTLS the client's TCP connection may have another address than its datagrams, for
    /// which `conn` was made: Fast Open cookies are for the address of TCP.
    #[must_use]
    pub fn accepted(conn: Conn, client: S, proven: ProvenAddr) -> Self {
        Self::from_engine(Engine::new(conn, client, Some(proven)))
    }
}

/// Observes and controls a [`TlsStream`] that other tasks read and write.
///
/// The transport lives until the stream and all handles are dropped, or one of them closes it.
pub struct TlsHandle<S> {
    shared: Arc<Shared<S>>,
}

/// Byte counts of a [`TlsStream`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByteCounts {
    /// Plain text read from it.
    pub read: u64,
    /// Plain text written to it.
    pub written: u64,
    /// All bytes on the transport, in both directions.
    pub transport: u64,
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsHandle<S> {
    /// Waits until the peer may be written to: a server has early data, or the handshake is done.
    ///
    /// # Errors
    /// The handshake failed, or the transport did.
    pub async fn opened(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_other(cx, Engine::poll_opened)).await
    }

    /// Waits until the handshake is done, and drives it.
    ///
    /// # Errors
    /// See [`opened`](Self::opened).
    pub async fn done(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_other(cx, Engine::poll_open)).await
    }

    /// Returns true once the handshake is done: both sides have proven that they take part in it
    /// now.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.shared.done.load(Ordering::Acquire)
    }

    /// Returns the public facts of the connection; complete once the handshake is done.
    #[must_use]
    pub fn facts(&self) -> Facts {
        self.shared.lock().conn().facts()
    }

    /// Client: takes a session to resume later. Servers send some after the handshake; reads
    /// receive them.
    #[must_use]
    pub fn take_session(&self) -> Option<NewSession> {
        self.shared.lock().conn_mut().poll_session()
    }

    /// Returns the byte counts so far.
    #[must_use]
    pub fn byte_counts(&self) -> ByteCounts {
        self.shared.lock().byte_counts()
    }

    /// Calls `look` with the transport, unless it was closed.
    pub fn with_transport<T>(&self, look: impl FnOnce(&S) -> T) -> Option<T> {
        self.shared.lock().transport().map(look)
    }

    /// Shuts the stream down, like the stream's own shutdown; does nothing when repeated.
    ///
    /// # Errors
    /// See the stream.
    pub async fn shutdown(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_other(cx, Engine::poll_shutdown)).await
    }

    /// Reads and drops what the peer still sends until its end: a connection closed earlier is
    /// reset, and the peer may lose bytes that it has not read yet. Call it after a shutdown.
    pub async fn drain(&self) {
        poll_fn(|cx| self.poll_other(cx, Engine::poll_drain)).await;
    }

    /// Drops the transport, even if another task holds the stream. Without a shutdown before, the
    /// peer sees a truncated stream.
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
    /// Closes the transport with a reset, which the peer sees.
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

/// State shared by a stream and its handles.
struct Shared<S> {
    engine: Mutex<Engine<S>>,
    /// All waiting tasks, since any of them may drive the handshake.
    wakers: Wakers,
    /// Mirrors the engine's stage, readable without its lock.
    done: AtomicBool,
}

impl<S> Shared<S> {
    /// Locks the engine. A panic elsewhere with the lock held fails this connection, not the
    /// process.
    fn lock(&self) -> MutexGuard<'_, Engine<S>> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Shared<S> {
    /// Does `work`, for which the caller has registered itself with the wakers.
    ///
    /// The transport only ever sees the common waker: it keeps one for each direction, so reader,
    /// writer and others would displace each other. Each of its events therefore wakes them all;
    /// and when one of them gets what another waits for (early data, the end of the handshake), it
    /// wakes the others too.
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
        // Readers and writers find it gone.
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

/// Lets [`bridge`](crate::bridge()) pass the plain text on. It never becomes transparent: the
/// kernel would have to do the cryptography.
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
