use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use headstart_proto::Carrier;
use headstart_proto::hello::ClientHello;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;

use super::event::Tcp;
use super::session::Session;
use crate::bridge::Handoff;
use crate::careful::CarefulWatch;
use crate::proven_addr::ProvenAddr;
use crate::timeline::{EdgeEvent, EdgeTimeline};
use crate::wakers::Wakers;

/// A client's connection: a byte stream like any other, on which TLS may be spoken.
///
/// Until the client has joined on TCP, written bytes go out over UDP as far as the client provided
/// slots; beyond [`SERVER_BYTES`](headstart_proto::limits::SERVER_BYTES) writes wait.
#[derive(Debug)]
pub struct ServerStream {
    peer: SocketAddr,
    opened_by: Carrier,
    hello: Option<ClientHello>,
    medium: Medium,
    proven: ProvenAddr,
    watch: CarefulWatch,
    permit: Option<OwnedSemaphorePermit>,
    wakers: Wakers,
    timeline: EdgeTimeline,
    /// Reason why it failed while it opened: reported to it once, repeated on every call.
    failed: Option<io::ErrorKind>,
}

#[derive(Debug)]
enum Medium {
    Session(Session),
    Tcp(Tcp),
}

impl ServerStream {
    pub(super) fn session(
        session: Session,
        peer: SocketAddr,
        hello: ClientHello,
        timeline: EdgeTimeline,
    ) -> Self {
        Self {
            peer,
            opened_by: Carrier::TurboTls,
            hello: Some(hello),
            watch: CarefulWatch::expecting(session.shared.careful.is_some()),
            medium: Medium::Session(session),
            proven: ProvenAddr::default(),
            permit: None,
            wakers: Wakers::default(),
            timeline,
            failed: None,
        }
    }

    pub(super) fn tcp(
        mut tcp: Tcp,
        opened_by: Carrier,
        hello: Option<ClientHello>,
        timeline: EdgeTimeline,
    ) -> Self {
        let (peer, proven) = (tcp.transport.client(), ProvenAddr::default());
        proven.set(peer, tcp.by);
        let watch = CarefulWatch::expecting(tcp.watch.is_some());
        watch.set(tcp.watch.take(), &timeline);
        Self {
            peer,
            opened_by,
            hello,
            medium: Medium::Tcp(tcp),
            proven,
            watch,
            permit: None,
            wakers: Wakers::default(),
            timeline,
            failed: None,
        }
    }

    pub(super) fn with_permit(self, permit: OwnedSemaphorePermit) -> Self {
        Self { permit: Some(permit), ..self }
    }

    /// Takes the stream's permit ([`AcceptorConfig::permits`](super::AcceptorConfig::permits)) for
    /// work that outlives the stream: the permit is free again when the stream or the returned
    /// value is dropped.
    pub const fn take_permit(&mut self) -> Option<OwnedSemaphorePermit> {
        self.permit.take()
    }

    /// Fails if the session ended before a task served it; keeps its other events.
    pub(super) fn if_alive(mut self) -> io::Result<Self> {
        match self.poll_joined() {
            Poll::Ready(Err(error)) => Err(error),
            Poll::Ready(Ok(_)) | Poll::Pending => Ok(self),
        }
    }

    /// Returns the client's address. With TurboTLS it is that of its datagrams, proven once it has
    /// joined.
    #[must_use]
    pub const fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// Returns the client's address on TCP, known once it has joined; it may differ from
    /// [`peer_addr`](Self::peer_addr) unless
    /// [`ServerConfig::same_address`](crate::ServerConfig::same_address) is set.
    #[must_use]
    pub fn proven_addr(&self) -> ProvenAddr {
        self.proven.clone()
    }

    /// Returns the watch over the connection, to be held until it ends, wherever it is given. Its
    /// TCP connection is not closed before.
    #[must_use]
    pub fn careful_watch(&self) -> CarefulWatch {
        self.watch.clone()
    }

    /// Returns how the connection was opened.
    #[must_use]
    pub const fn opened_by(&self) -> Carrier {
        self.opened_by
    }

    /// Returns the public part of the ClientHello, whose bytes are still to be read; `None` if it
    /// is not TLS.
    #[must_use]
    pub const fn client_hello(&self) -> Option<&ClientHello> {
        self.hello.as_ref()
    }

    /// Waits until the client has joined, which proves its address.
    ///
    /// # Errors
    /// The session has ended without that.
    pub async fn joined(&mut self) -> io::Result<()> {
        poll_fn(|cx| {
            self.wakers.reader(cx.waker());
            self.poll_joined().map_ok(|_| ())
        })
        .await
    }

    /// Reports the processor time that the client's handshake took until it was answered: sessions
    /// that have not joined may cost
    /// [`ServerConfig::unproven_work`](crate::ServerConfig::unproven_work).
    pub fn report_cost(&self, cost: Duration) {
        if let Medium::Session(session) = &self.medium {
            session.shared.handle_cost(session.id, cost);
        }
    }

    /// Returns the connection, once it carries the stream and nothing else.
    fn transparent(&mut self) -> Option<Pin<&mut TcpStream>> {
        match &mut self.medium {
            Medium::Tcp(tcp) if tcp.is_transparent() => tcp.transport.as_tcp(),
            _ => None,
        }
    }

    /// Handles the session's events; ready with the connection once TCP carries the stream.
    fn poll_joined(&mut self) -> Poll<io::Result<&mut Tcp>> {
        if let Some(kind) = self.failed {
            return Poll::Ready(Err(kind.into()));
        }
        if let Medium::Session(session) = &mut self.medium {
            // Reader and writer both wait for it, and may be two tasks.
            let waker = self.wakers.waker();
            let joined = ready!(session.poll_joined(&mut Context::from_waker(&waker)));
            let mut tcp = joined.inspect_err(|error| self.failed = Some(error.kind()))?;
            self.timeline.add(std::mem::take(&mut tcp.entries));
            self.proven.set(tcp.transport.client(), tcp.by);
            self.watch.set(tcp.watch.take(), &self.timeline);
            self.medium = Medium::Tcp(tcp);
        }
        match &mut self.medium {
            Medium::Tcp(tcp) => Poll::Ready(Ok(tcp)),
            Medium::Session(_) => Poll::Pending,
        }
    }

    /// Does what [`poll_joined`](Self::poll_joined) does, and also writes what the session owes the
    /// client.
    fn poll_settled(&mut self) -> Poll<io::Result<&mut Tcp>> {
        let waker = self.wakers.waker();
        let tcp = ready!(self.poll_joined())?;
        let written = ready!(tcp.poll_write_owed(&mut Context::from_waker(&waker)));
        written.inspect_err(|error| self.failed = Some(error.kind()))?;
        self.poll_joined()
    }

    /// Copies buffered bytes to the reader; returns true if there were any.
    fn copy_buffered(&mut self, buf: &mut ReadBuf<'_>) -> bool {
        let to_read = match &mut self.medium {
            Medium::Session(session) => &mut session.to_read,
            Medium::Tcp(tcp) => &mut tcp.to_read,
        };
        let count = to_read.len().min(buf.remaining());
        buf.put_slice(to_read.get(..count).unwrap_or_default());
        to_read.drain(..count);
        if to_read.is_empty() {
            // Not only cleared: this frees the memory, up to 16 KiB for each session.
            *to_read = Vec::new();
        }
        count > 0
    }
}

impl AsyncRead for ServerStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Some(tcp) = this.transparent() {
            return tcp.poll_read(cx, buf);
        }
        this.wakers.reader(cx.waker());
        let joined = this.poll_joined().map_ok(|_| ());
        if this.copy_buffered(buf) {
            return Poll::Ready(Ok(()));
        }
        ready!(joined)?;
        // A pure reader need not wait for the owed bytes to be written.
        if let Poll::Ready(Err(error)) = this.poll_settled() {
            return Poll::Ready(Err(error));
        }
        let tcp = ready!(this.poll_joined())?;
        ready!(tcp.poll_skip(cx)).inspect_err(|error| this.failed = Some(error.kind()))?;
        let tcp = ready!(this.poll_joined())?;
        Pin::new(&mut tcp.transport).poll_read(cx, buf)
    }
}

impl AsyncWrite for ServerStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if let Some(tcp) = this.transparent() {
            return tcp.poll_write(cx, bytes);
        }
        this.wakers.writer(cx.waker());
        if let Poll::Ready(tcp) = this.poll_settled() {
            return Pin::new(&mut tcp?.transport).poll_write(cx, bytes);
        }
        let Medium::Session(session) = &mut this.medium else { return Poll::Pending };
        match session.shared.handle_origin_data(session.id, bytes) {
            // Full, or being joined: either way an event comes, and wakes this task.
            0 if !bytes.is_empty() => Poll::Pending,
            taken => Poll::Ready(Ok(taken)),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match &this.medium {
            Medium::Session(_) => Poll::Ready(Ok(())),
            Medium::Tcp(_) => {
                this.wakers.writer(cx.waker());
                let tcp = ready!(this.poll_settled())?;
                // A link to another edge holds bytes back; TCP does not.
                Pin::new(&mut tcp.transport).poll_flush(cx)
            }
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.wakers.writer(cx.waker());
        if let Poll::Ready(tcp) = this.poll_settled() {
            return Pin::new(&mut tcp?.transport).poll_shutdown(cx);
        }
        let Medium::Session(session) = &mut this.medium else { return Poll::Pending };
        session.shared.handle_origin_finished(session.id);
        session.finished = true;
        Poll::Ready(Ok(()))
    }
}

impl Handoff for ServerStream {
    fn is_transparent(&self) -> bool {
        match &self.medium {
            Medium::Session(_) => false,
            Medium::Tcp(tcp) => tcp.is_transparent(),
        }
    }

    fn into_tcp(self) -> Option<TcpStream> {
        match self.medium {
            Medium::Tcp(tcp) => {
                self.timeline.note(EdgeEvent::HandedOver);
                tcp.transport.into_tcp()
            }
            Medium::Session(_) => None,
        }
    }

    fn reset(self) {
        // Dropping a session says the same to the core.
        if let Medium::Tcp(tcp) = self.medium {
            tcp.transport.reset();
        }
    }
}
