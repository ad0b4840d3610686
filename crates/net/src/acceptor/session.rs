use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use headstart_proto::SessionId;
use tokio::sync::mpsc;

use super::event::{SessionEvent, Tcp};
use super::shared::Shared;

/// A session without a TCP connection yet, as seen by the task that serves it.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) shared: Arc<Shared>,
    pub(super) id: SessionId,
    events: mpsc::UnboundedReceiver<SessionEvent>,
    /// Client bytes not read yet.
    pub(super) to_read: Vec<u8>,
    pub(super) finished: bool,
}

impl Session {
    pub(super) const fn new(
        shared: Arc<Shared>,
        id: SessionId,
        events: mpsc::UnboundedReceiver<SessionEvent>,
        to_read: Vec<u8>,
    ) -> Self {
        Self { shared, id, events, to_read, finished: false }
    }

    /// Handles the session's events; ready once a TCP connection has joined the session.
    pub(super) fn poll_joined(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Tcp>> {
        loop {
            match ready!(self.events.poll_recv(cx)) {
                Some(SessionEvent::ClientBytes(bytes)) => self.to_read.extend_from_slice(&bytes),
                Some(SessionEvent::Joined(mut tcp)) => {
                    self.to_read.append(&mut tcp.to_read);
                    tcp.to_read = std::mem::take(&mut self.to_read);
                    return Poll::Ready(Ok(*tcp));
                }
                Some(SessionEvent::Expired) | None => {
                    return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                }
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // After a join or expiry the core no longer knows the session, and this does nothing.
        if !self.finished {
            self.shared.handle_origin_lost(self.id);
        }
    }
}
