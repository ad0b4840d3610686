use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use headstart_proto::SessionId;
use headstart_proto::hello::ClientHello;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::transport::ClientTransport;

/// Sender to the task that serves a session.
pub(super) type Link = mpsc::UnboundedSender<ToSession>;

/// Event of a session while its task talks to the origin. Their number is not bounded, but the core
/// bounds the bytes of a session.
#[derive(Debug)]
pub(super) enum ToSession {
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
}

/// The acceptor of a session, as the session's task needs it.
pub(super) trait SessionHost: fmt::Debug + Send + Sync {
    /// Accepts bytes of the origin; returns how many.
    fn handle_origin_data(self: Arc<Self>, id: SessionId, bytes: &[u8]) -> usize;
    /// Notes that the origin sends no more.
    fn handle_origin_finished(&self, id: SessionId);
    /// Ends the session, whose origin is gone.
    fn handle_origin_lost(&self, id: SessionId);
}

/// A session that began, on its way to the task that serves it.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) session: Session,
    /// Permit to serve it, unless all were taken.
    pub(super) permit: Option<OwnedSemaphorePermit>,
    pub(super) peer: SocketAddr,
    pub(super) hello: Box<ClientHello>,
}

/// A session that has not joined, as seen by the task that serves it.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) host: Arc<dyn SessionHost>,
    pub(super) id: SessionId,
    pub(super) messages: mpsc::UnboundedReceiver<ToSession>,
    /// Client bytes not read yet.
    pub(super) to_read: Vec<u8>,
    pub(super) finished: bool,
}

impl Drop for Session {
    fn drop(&mut self) {
        // After a join or expiry the core no longer knows the session, and this does nothing.
        if !self.finished {
            self.host.handle_origin_lost(self.id);
        }
    }
}

/// Counts a join by its outcome.
pub(super) fn count_join(outcome: &'static str) {
    metrics::counter!("headstart_joins_total", "outcome" => outcome).increment(1);
}
