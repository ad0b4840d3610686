use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use headstart_proto::hello::{self, ClientHello, Progress};
use headstart_proto::wire::{JOIN_LEN, JOIN_TYPE, Join};
use headstart_proto::{Attachment, Handover, JoinOutcome, OriginEnd};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::session::{Link, Session, Tcp, ToSession};
use super::shared::Shared;
use super::stream::ServerStream;
use crate::connector::OpenedBy;

/// First read of a connection: holds the ClientHello of today's browsers.
const FIRST_READ: usize = 2048;

/// A connection of which nothing was read yet, or a session whose ClientHello came over UDP.
#[derive(Debug)]
pub struct Arrival {
    peer: SocketAddr,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// With its share of the connections that may be in their first bytes.
    Tcp(Arc<Shared>, OwnedSemaphorePermit, TcpStream, OpenedBy),
    Session(Session, Option<OwnedSemaphorePermit>),
}

impl Arrival {
    pub(super) const fn tcp(
        shared: Arc<Shared>,
        room: OwnedSemaphorePermit,
        tcp: TcpStream,
        peer: SocketAddr,
        opened_by: OpenedBy,
    ) -> Self {
        Self { peer, kind: Kind::Tcp(shared, room, tcp, opened_by) }
    }

    pub(super) const fn session(
        session: Session,
        place: Option<OwnedSemaphorePermit>,
        peer: SocketAddr,
    ) -> Self {
        Self { peer, kind: Kind::Session(session, place) }
    }

    /// The client's address; not proven if [`is_unproven`](Self::is_unproven).
    #[must_use]
    pub const fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// Whether anybody could have sent this: it came over UDP.
    #[must_use]
    pub const fn is_unproven(&self) -> bool {
        matches!(self.kind, Kind::Session(..))
    }

    /// Reads as far as needed to know what the connection is, and waits for a place to serve it.
    ///
    /// `None`: it was the TCP part of a session, whose stream has it now.
    ///
    /// # Errors
    /// `TimedOut` if the client says nothing or its session ended already, `InvalidData` if its join
    /// is malformed or refused, and whatever TCP reports.
    pub async fn establish(self) -> io::Result<Option<ServerStream>> {
        match self.kind {
            Kind::Session(session, place) => {
                let place = match place {
                    Some(place) => place,
                    None => session.shared.place().await?,
                };
                let hello = complete(&session.to_read);
                let stream = ServerStream::session(session, self.peer, hello).if_alive()?;
                Ok(Some(stream.with_place(place)))
            }
            Kind::Tcp(shared, room, tcp, opened_by) => {
                let first = First {
                    shared: Arc::clone(&shared),
                    peer: self.peer,
                    tcp,
                    opened_by,
                    read: Vec::new(),
                };
                let established = tokio::time::timeout(shared.hello_timeout, first.establish());
                let Some(stream) = established.await?? else { return Ok(None) };
                // Those that wait leave their room to others: joins have to be read.
                drop(room);
                Ok(Some(stream.with_place(shared.place().await?)))
            }
        }
    }
}

/// A TCP connection whose first bytes are being read.
struct First {
    shared: Arc<Shared>,
    peer: SocketAddr,
    tcp: TcpStream,
    opened_by: OpenedBy,
    read: Vec<u8>,
}

impl First {
    async fn establish(mut self) -> io::Result<Option<ServerStream>> {
        self.read.reserve(FIRST_READ);
        if self.read_more().await? && self.read.first() == Some(&JOIN_TYPE) {
            return self.join().await;
        }
        self.plain(Vec::new()).await
    }

    async fn join(mut self) -> io::Result<Option<ServerStream>> {
        let frame = loop {
            if let Some((frame, _)) = self.read.split_first_chunk::<JOIN_LEN>() {
                break *frame;
            }
            if !self.read_more().await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        };
        self.read.drain(..JOIN_LEN);
        let join = Join::parse(&frame)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let (outcome, link) = self.shared.handle_join(self.peer, &join);
        match outcome {
            JoinOutcome::Joined(answer, handover) => {
                count_join("joined");
                self.hand_over(answer.emit().to_vec(), handover, link).await?;
                Ok(None)
            }
            JoinOutcome::Fresh(answer) => {
                count_join("fresh");
                // At once: the client waits for it, whatever becomes of the origin.
                let mut to_write = answer.emit().to_vec();
                let written = self.tcp.try_write(&to_write).unwrap_or(0);
                to_write.drain(..written);
                self.plain(to_write).await
            }
            JoinOutcome::Refused(answer) => {
                count_join("refused");
                self.tcp.write_all(&answer.emit()).await?;
                Err(io::Error::new(io::ErrorKind::InvalidData, "the join was refused"))
            }
        }
    }

    /// The stream starts here; `to_write` goes out before it.
    async fn plain(mut self, to_write: Vec<u8>) -> io::Result<Option<ServerStream>> {
        let hello = loop {
            match hello::read(&self.read) {
                Ok(Progress::Complete(hello)) => break Some(hello),
                // Not TLS, or cut off: for the origin to judge.
                Err(_) => break None,
                Ok(Progress::Incomplete) => {
                    if !self.read_more().await? {
                        break None;
                    }
                }
            }
        };
        if self.read.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(hello) = hello.as_ref().and_then(|hello| self.read.get(..hello.end)) {
            let (attachment, link) = self.shared.handle_plain(self.peer, hello);
            if let Attachment::Attached(handover) = attachment {
                count_join("attached");
                self.hand_over(to_write, handover, link).await?;
                return Ok(None);
            }
        }
        let tcp = Tcp { tcp: self.tcp, to_write, to_read: self.read, skip: 0, finish: false };
        Ok(Some(ServerStream::tcp(tcp, self.peer, self.opened_by, hello)))
    }

    /// Gives the connection to the session's task, or ends it as the origin ended; `to_write` goes out first.
    async fn hand_over(
        mut self,
        mut to_write: Vec<u8>,
        handover: Handover,
        link: Option<Link>,
    ) -> io::Result<()> {
        to_write.extend_from_slice(&handover.server_bytes);
        let written = self.tcp.try_write(&to_write).unwrap_or(0);
        to_write.drain(..written);
        let known = handover.skip.min(self.read.len());
        let mut to_read = handover.client_bytes;
        to_read.extend(self.read.drain(..).skip(known));
        let finish = handover.end == OriginEnd::Finished;
        let skip = handover.skip - known;
        let tcp = Tcp { tcp: self.tcp, to_write, to_read, skip, finish };
        let orphan = match link {
            Some(link) => match link.send(ToSession::Joined(Box::new(tcp))) {
                Ok(()) => return Ok(()),
                Err(mpsc::error::SendError(ToSession::Joined(tcp))) => *tcp,
                Err(_) => return Ok(()),
            },
            None => tcp,
        };
        end_orphan(orphan, handover.end).await
    }

    /// Whether there was more.
    async fn read_more(&mut self) -> io::Result<bool> {
        Ok(self.tcp.read_buf(&mut self.read).await? > 0)
    }
}

/// The origin is gone; what it said is still owed to the client.
async fn end_orphan(mut orphan: Tcp, end: OriginEnd) -> io::Result<()> {
    orphan.tcp.write_all(&orphan.to_write).await?;
    if end == OriginEnd::Finished {
        orphan.tcp.shutdown().await
    } else {
        orphan.tcp.set_zero_linger()
    }
}

fn complete(bytes: &[u8]) -> Option<ClientHello> {
    match hello::read(bytes) {
        Ok(Progress::Complete(hello)) => Some(hello),
        _ => None,
    }
}

fn count_join(outcome: &'static str) {
    metrics::counter!("headstart_joins_total", "outcome" => outcome).increment(1);
}
