use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use headstart_proto::hello::ClientHello;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::session::{Session, Tcp, ToSession};
use crate::bridge::Handoff;

/// How a connection was opened, seen from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Opening {
    /// TLS, or whatever it is, over TCP alone.
    Plain,
    /// The first flights went over UDP.
    TurboTls,
}

/// A client's connection: a byte stream like any other, on which TLS may be spoken.
///
/// Until the client has joined on TCP, what is written goes out over UDP as far as the client asked
/// for it; beyond [`SERVER_BYTES`](headstart_proto::limits::SERVER_BYTES) writes wait.
#[derive(Debug)]
pub struct ServerStream {
    peer: SocketAddr,
    opening: Opening,
    hello: Option<ClientHello>,
    carrier: Carrier,
    /// Reader and writer may be two tasks: what one is told, the other has to hear of.
    waiting: [Option<Waker>; 2],
}

/// Places in [`ServerStream::waiting`].
const READER: usize = 0;
const WRITER: usize = 1;

#[derive(Debug)]
enum Carrier {
    Session(Session),
    Tcp(Tcp),
}

impl ServerStream {
    pub(super) const fn session(
        session: Session,
        peer: SocketAddr,
        hello: Option<ClientHello>,
    ) -> Self {
        Self {
            peer,
            opening: Opening::TurboTls,
            hello,
            carrier: Carrier::Session(session),
            waiting: [None, None],
        }
    }

    pub(super) const fn tcp(tcp: Tcp, peer: SocketAddr, hello: Option<ClientHello>) -> Self {
        Self {
            peer,
            opening: Opening::Plain,
            hello,
            carrier: Carrier::Tcp(tcp),
            waiting: [None, None],
        }
    }

    /// The client's address. With TurboTLS that of its datagrams, proven once it has joined.
    #[must_use]
    pub const fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// How the connection was opened.
    #[must_use]
    pub const fn opening(&self) -> Opening {
        self.opening
    }

    /// What is public of the ClientHello, whose bytes are still to be read; none if it is not TLS.
    #[must_use]
    pub const fn client_hello(&self) -> Option<&ClientHello> {
        self.hello.as_ref()
    }

    /// Whether the client's address is proven and TCP carries the stream.
    #[must_use]
    pub const fn is_joined(&self) -> bool {
        matches!(self.carrier, Carrier::Tcp(_))
    }

    /// Takes what the session was told; ready once TCP carries the stream.
    fn poll_joined(&mut self, cx: &mut Context<'_>, who: usize) -> Poll<io::Result<()>> {
        let Carrier::Session(session) = &mut self.carrier else { return Poll::Ready(Ok(())) };
        if let Some(place) = self.waiting.get_mut(who) {
            *place = Some(cx.waker().clone());
        }
        loop {
            let message = ready!(session.messages.poll_recv(cx));
            self.waiting.iter().flatten().for_each(Waker::wake_by_ref);
            match message {
                Some(ToSession::ClientBytes(bytes)) => session.to_read.extend_from_slice(&bytes),
                Some(ToSession::Joined(mut tcp)) => {
                    session.to_read.append(&mut tcp.to_read);
                    tcp.to_read = std::mem::take(&mut session.to_read);
                    self.carrier = Carrier::Tcp(*tcp);
                    return Poll::Ready(Ok(()));
                }
                Some(ToSession::Expired) | None => {
                    return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                }
            }
        }
    }
}

impl Tcp {
    fn poll_write_owed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.to_write.is_empty() {
            let written = ready!(Pin::new(&mut self.tcp).poll_write(cx, &self.to_write))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.to_write.drain(..written);
        }
        if self.finish {
            ready!(Pin::new(&mut self.tcp).poll_shutdown(cx))?;
            self.finish = false;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_skip(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut scratch = [0; 2048];
        while self.skip > 0 {
            let room = self.skip.min(scratch.len());
            let mut known = ReadBuf::new(scratch.get_mut(..room).unwrap_or_default());
            ready!(Pin::new(&mut self.tcp).poll_read(cx, &mut known))?;
            if known.filled().is_empty() {
                self.skip = 0; // the client ended before it repeated what is known
            }
            self.skip = self.skip.saturating_sub(known.filled().len());
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for ServerStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let joined = this.poll_joined(cx, READER);
        let to_read = match &mut this.carrier {
            Carrier::Session(session) => &mut session.to_read,
            Carrier::Tcp(tcp) => &mut tcp.to_read,
        };
        if !to_read.is_empty() {
            let count = to_read.len().min(buf.remaining());
            buf.put_slice(to_read.get(..count).unwrap_or_default());
            to_read.drain(..count);
            return Poll::Ready(Ok(()));
        }
        ready!(joined)?;
        match &mut this.carrier {
            Carrier::Session(_) => Poll::Pending,
            Carrier::Tcp(tcp) => {
                if let Poll::Ready(Err(error)) = tcp.poll_write_owed(cx) {
                    return Poll::Ready(Err(error));
                }
                ready!(tcp.poll_skip(cx))?;
                Pin::new(&mut tcp.tcp).poll_read(cx, buf)
            }
        }
    }
}

impl AsyncWrite for ServerStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if let Poll::Ready(Err(error)) = this.poll_joined(cx, WRITER) {
            return Poll::Ready(Err(error));
        }
        match &mut this.carrier {
            Carrier::Session(session) => {
                match session.shared.handle_origin_data(session.id, bytes) {
                    // Full, or being joined: either way a message comes, and wakes this task.
                    0 if !bytes.is_empty() => Poll::Pending,
                    taken => Poll::Ready(Ok(taken)),
                }
            }
            Carrier::Tcp(tcp) => {
                ready!(tcp.poll_write_owed(cx))?;
                Pin::new(&mut tcp.tcp).poll_write(cx, bytes)
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().carrier {
            Carrier::Session(_) => Poll::Ready(Ok(())),
            Carrier::Tcp(tcp) => tcp.poll_write_owed(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Poll::Ready(Err(error)) = this.poll_joined(cx, WRITER) {
            return Poll::Ready(Err(error));
        }
        match &mut this.carrier {
            Carrier::Session(session) => {
                session.shared.handle_origin_finished(session.id);
                session.finished = true;
                Poll::Ready(Ok(()))
            }
            Carrier::Tcp(tcp) => {
                ready!(tcp.poll_write_owed(cx))?;
                Pin::new(&mut tcp.tcp).poll_shutdown(cx)
            }
        }
    }
}

impl Handoff for ServerStream {
    fn is_transparent(&self) -> bool {
        match &self.carrier {
            Carrier::Session(_) => false,
            Carrier::Tcp(tcp) => {
                tcp.to_write.is_empty() && tcp.to_read.is_empty() && tcp.skip == 0 && !tcp.finish
            }
        }
    }

    fn into_tcp(self) -> Option<TcpStream> {
        match self.carrier {
            Carrier::Tcp(tcp) => Some(tcp.tcp),
            Carrier::Session(_) => None,
        }
    }

    fn reset(self) {
        // Dropping a session says the same to the core.
        if let Carrier::Tcp(tcp) = self.carrier {
            let _ = tcp.tcp.set_zero_linger();
        }
    }
}
