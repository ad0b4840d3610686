use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use headstart_proto::SessionId;
use headstart_proto::hello::ClientHello;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::transport::ClientTransport;
use crate::careful::Watch;
use crate::proven_addr::ProvenBy;
use crate::timeline::{EdgeTimeline, Entries};

/// Sender to the task that serves a session.
pub(super) type SessionSender = mpsc::UnboundedSender<SessionEvent>;

/// Event of a session while its task talks to the origin. Their number is not bounded, but the core
/// bounds the bytes of a session.
#[derive(Debug)]
pub(super) enum SessionEvent {
    /// Early data.
    ClientBytes(Vec<u8>),
    /// TCP takes over. Everything the session owed was written, except `to_write`.
    Joined(Box<Tcp>),
    /// The session was not joined in time.
    Expired,
}

/// A TCP connection in the state in which a stream takes it over.
#[derive(Debug)]
pub(super) struct Tcp {
    pub(super) transport: ClientTransport,
    /// Bytes to write before all others.
    pub(super) to_write: Vec<u8>,
    /// Client bytes to be read before those of TCP.
    pub(super) to_read: Vec<u8>,
    /// Bytes at the start of TCP that are already known.
    pub(super) skip: usize,
    /// True if the server finished its stream before TCP was there: shut down behind `to_write`.
    pub(super) finish: bool,
    /// What it began with.
    pub(super) by: ProvenBy,
    /// Its timeline so far, for that of the session.
    pub(super) entries: Entries,
    /// Its watch, with Careful Resume.
    pub(super) watch: Option<Watch>,
}

/// A session whose ClientHello came over UDP, before a task serves it.
#[derive(Debug)]
pub(super) struct NewSession {
    pub(super) id: SessionId,
    pub(super) peer: SocketAddr,
    pub(super) hello: Box<ClientHello>,
    /// Client bytes so far.
    pub(super) bytes: Vec<u8>,
    pub(super) events: mpsc::UnboundedReceiver<SessionEvent>,
    pub(super) permit: Option<OwnedSemaphorePermit>,
    pub(super) timeline: EdgeTimeline,
}

impl Tcp {
    /// Returns true if the connection carries the stream and nothing else.
    pub(super) const fn is_transparent(&self) -> bool {
        let is_settled = self.to_write.is_empty() && self.to_read.is_empty();
        is_settled && self.skip == 0 && !self.finish && self.transport.is_tcp()
    }

    /// Writes what the session owes the client, and its end.
    pub(super) fn poll_write_owed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.to_write.is_empty() {
            let written = ready!(Pin::new(&mut self.transport).poll_write(cx, &self.to_write))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.to_write.drain(..written);
        }
        if self.finish {
            ready!(Pin::new(&mut self.transport).poll_shutdown(cx))?;
            self.finish = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Reads and drops the bytes that are already known.
    pub(super) fn poll_skip(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut scratch = [0; 2048];
        while self.skip > 0 {
            let room = self.skip.min(scratch.len());
            let mut known = ReadBuf::new(scratch.get_mut(..room).unwrap_or_default());
            ready!(Pin::new(&mut self.transport).poll_read(cx, &mut known))?;
            if known.filled().is_empty() {
                self.skip = 0; // the client ended before it repeated what is known
            }
            self.skip = self.skip.saturating_sub(known.filled().len());
        }
        Poll::Ready(Ok(()))
    }
}
