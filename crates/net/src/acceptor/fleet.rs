//! The other edges of a site: joins that came to the wrong one are passed on to the one that answered.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;

use headstart_proto::Carrier;
use headstart_proto::wire::{FORWARD_LEN, Forward, JOIN_ANSWER_LEN, JoinAnswer, Status};
use headstart_proto::{EdgeNumber, Routes};
use headstart_tls::keyring::KeyRing;
use headstart_tls::{LinkContext, SharedRing};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::arrival::{First, count_join};
use super::shared::Shared;
use super::way::Way;
use crate::bridge::bridge;
use crate::relay::{RelayCounts, RelayLimits};
use crate::tls_stream::TlsStream;

/// How long another edge may take for a connection, its handshake and its answer together.
///
/// Edges behind one address are milliseconds apart. The client waits so long at most before this edge decides alone.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// How long a forwarded join may take here, with the little that is written to the link before its stream has it.
const TAKING: Duration = Duration::from_secs(2);

/// How long an edge that did not answer is not asked again: each join would wait for [`PATIENCE`].
const PAUSE: Duration = Duration::from_secs(5);

/// Joins at one time that wait for another edge. Anybody can write a tag on a join; those beyond are decided here.
const ASKING: usize = 256;

/// Links of other edges at one time of which the join was not read yet; more wait in the kernel's queue.
const ARRIVING: usize = 1024;

/// How long a failed accept is waited for, such as for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The fleet that an edge belongs to, as all its acceptors share it.
pub struct Fleet {
    own: EdgeNumber,
    ring: Arc<SharedRing>,
    link: LinkContext,
    limits: RelayLimits,
    counts: &'static RelayCounts,
    edges: RwLock<BTreeMap<EdgeNumber, SocketAddr>>,
    /// Until when an edge is left alone.
    paused: Mutex<HashMap<EdgeNumber, Instant>>,
    asking: Semaphore,
    arriving: Arc<Semaphore>,
    /// Whose sessions others may ask for.
    acceptors: Mutex<Vec<Weak<Shared>>>,
}

impl Fleet {
    /// The fleet with these `edges`, of which this is the one called `own`. Tags are masked with `ring`, which all have;
    /// what is forwarded is bounded by `limits` and counted in `counts`.
    #[must_use]
    pub fn new(
        own: EdgeNumber,
        edges: BTreeMap<EdgeNumber, SocketAddr>,
        link: LinkContext,
        ring: Arc<SharedRing>,
        limits: RelayLimits,
        counts: &'static RelayCounts,
    ) -> Self {
        Self {
            own,
            ring,
            link,
            limits,
            counts,
            edges: RwLock::new(edges),
            paused: Mutex::default(),
            asking: Semaphore::new(ASKING),
            arriving: Arc::new(Semaphore::new(ARRIVING)),
            acceptors: Mutex::default(),
        }
    }

    /// Replaces the list of edges.
    pub fn set_edges(&self, edges: BTreeMap<EdgeNumber, SocketAddr>) {
        *self.edges.write().unwrap_or_else(PoisonError::into_inner) = edges;
    }

    /// Takes joins that other edges forward to `listener`, until it is dropped.
    pub async fn serve(self: Arc<Self>, listener: TcpListener) {
        loop {
            let Ok(room) = Arc::clone(&self.arriving).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((tcp, _)) => {
                    let fleet = Arc::clone(&self);
                    tokio::spawn(async move {
                        let taken = timeout(TAKING, fleet.take(tcp)).await;
                        drop(room);
                        if let Err(error) = taken.unwrap_or_else(|late| Err(late.into())) {
                            tracing::debug!(%error, "a forwarded join came to nothing");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept forwarded joins");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Reads a forwarded join, and hands the stream to its session.
    async fn take(&self, tcp: TcpStream) -> io::Result<()> {
        let _ = tcp.set_nodelay(true);
        let conn = self.link.accept().map_err(io::Error::other)?;
        let mut link = TlsStream::new(conn, tcp);
        let mut frame = [0; FORWARD_LEN];
        link.read_exact(&mut frame).await?;
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        let Forward { client, join } = Forward::parse(&frame).map_err(invalid)?;
        let owner = self.acceptors().into_iter().find(|shared| shared.has(&join));
        let Some(shared) = owner else {
            let refused = JoinAnswer { status: Status::Refused, server_offset: 0 };
            link.write_all(&refused.emit()).await?;
            return link.shutdown().await;
        };
        let way = Way::Link(Box::new(link), client);
        First::new(shared, client, way, Carrier::Tcp).join_forwarded(&join).await
    }

    /// What acceptors with sessions are there.
    fn acceptors(&self) -> Vec<Arc<Shared>> {
        let mut acceptors = self.acceptors.lock().unwrap_or_else(PoisonError::into_inner);
        acceptors.retain(|shared| shared.strong_count() > 0);
        acceptors.iter().filter_map(Weak::upgrade).collect()
    }

    /// From now on others may ask for the sessions of `shared`.
    pub(super) fn enter(&self, shared: &Arc<Shared>) {
        let mut acceptors = self.acceptors.lock().unwrap_or_else(PoisonError::into_inner);
        acceptors.push(Arc::downgrade(shared));
    }

    /// The keys of this moment if they are others than `before`, and what the core is to be told.
    pub(super) fn routes(&self, before: &Weak<KeyRing>) -> Option<(Weak<KeyRing>, Routes)> {
        let ring = self.ring.current();
        // As long as it is known its place is not used again, although the keys are wiped.
        if before.as_ptr() == Arc::as_ptr(&ring) {
            return None;
        }
        let routes = Routes { own: self.own, ring: ring.routes() };
        Some((Arc::downgrade(&ring), routes))
    }

    /// Asks the edge called `owner` for the session of a join, behind which the client has sent `head`.
    ///
    /// # Errors
    /// Why this edge has to decide alone: the owner is not known, does not answer, or does not have the session.
    pub(super) async fn forward(
        &self,
        owner: EdgeNumber,
        forward: &Forward,
        head: &[u8],
    ) -> Result<Forwarded, NotForwarded> {
        let address = self.address(owner).ok_or(NotForwarded::Unknown)?;
        if self.is_paused(owner) {
            return Err(NotForwarded::Paused);
        }
        let _asking = self.asking.try_acquire().map_err(|_| NotForwarded::TooMany)?;
        let asked = timeout(PATIENCE, self.ask(address, forward, head)).await;
        match asked.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok((link, answer)) if answer.status == Status::Joined => {
                Ok(Forwarded { link, answer, limits: self.limits, counts: self.counts })
            }
            Ok(_) => Err(NotForwarded::Refused),
            Err(error) => {
                tracing::warn!(edge = %owner, %address, %error, "cannot forward a join");
                self.pause(owner);
                Err(NotForwarded::Away)
            }
        }
    }

    fn address(&self, edge: EdgeNumber) -> Option<SocketAddr> {
        let edges = self.edges.read().unwrap_or_else(PoisonError::into_inner);
        edges.get(&edge).copied()
    }

    async fn ask(
        &self,
        address: SocketAddr,
        forward: &Forward,
        head: &[u8],
    ) -> io::Result<(TlsStream<TcpStream>, JoinAnswer)> {
        let tcp = TcpStream::connect(address).await?;
        tcp.set_nodelay(true)?;
        let conn = self.link.connect().map_err(io::Error::other)?;
        let mut link = TlsStream::new(conn, tcp);
        link.write_all(&[&forward.emit()[..], head].concat()).await?;
        link.flush().await?;
        let mut answer = [0; JOIN_ANSWER_LEN];
        link.read_exact(&mut answer).await?;
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        Ok((link, JoinAnswer::parse(&answer).map_err(invalid)?))
    }

    fn is_paused(&self, edge: EdgeNumber) -> bool {
        let paused = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        paused.get(&edge).is_some_and(|until| Instant::now() < *until)
    }

    fn pause(&self, edge: EdgeNumber) {
        let mut paused = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        paused.insert(edge, Instant::now() + PAUSE);
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet").field("own", &self.own).finish_non_exhaustive()
    }
}

/// Why a join is decided where it came, and not by the edge that answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotForwarded {
    /// No edge has that number.
    Unknown,
    /// It did not answer just now.
    Paused,
    /// Too many others wait.
    TooMany,
    /// It does not answer, or is none of the fleet.
    Away,
    /// It does not have the session.
    Refused,
}

impl NotForwarded {
    /// A word for metrics.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Paused => "paused",
            Self::TooMany => "too_many",
            Self::Away => "away",
            Self::Refused => "refused",
        }
    }
}

/// A stream that another edge serves.
pub(super) struct Forwarded {
    link: TlsStream<TcpStream>,
    answer: JoinAnswer,
    limits: RelayLimits,
    counts: &'static RelayCounts,
}

impl Forwarded {
    /// Passes bytes between the client and the other edge until both are done.
    pub(super) async fn run(self, mut client: TcpStream) {
        count_join("forwarded");
        if client.write_all(&self.answer.emit()).await.is_err() {
            // Dropped without an end, the link tells the owner that the client is gone.
            return;
        }
        bridge(self.link, client, &[], self.limits, self.counts, |_| {}).await;
    }
}
