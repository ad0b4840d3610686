use std::sync::Arc;

use headstart_proto::SessionId;
use tokio::sync::mpsc;

use super::shared::Shared;
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

/// A session that has not joined, as seen by the task that serves it.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) shared: Arc<Shared>,
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
            self.shared.handle_origin_lost(self.id);
        }
    }
}
