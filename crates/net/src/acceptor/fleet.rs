//! The other edges of a site: forwards joins that came to the wrong edge to the one that answered.

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;

use headstart_proto::hello::{self, Progress};
use headstart_proto::join::{Answer, Join, REFUSAL};
use headstart_proto::wire::{FORWARD_LEN, Forward};
use headstart_proto::{EdgeNumber, JoinKey, Routes};
use headstart_tls::keyring::KeyRing;
use headstart_tls::{LinkContext, SharedRing};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::generations::{Generations, StrayJoin, count_join};
use super::transport::{ANSWER_TIMEOUT, ClientTransport};
use crate::bridge::bridge;
use crate::closing::close_after_drain;
use crate::relay::{RelayCounts, RelayLimits};
use crate::tls_stream::TlsStream;

/// Time that a forwarded join may take here, including the few bytes written to the link before its
/// stream takes over.
const INCOMING_TIMEOUT: Duration = Duration::from_secs(2);

/// Pause after an edge did not answer: otherwise each join would wait for [`ANSWER_TIMEOUT`].
const PAUSE: Duration = Duration::from_secs(5);

/// Joins at one time that wait for another edge. Anyone can write a tag on a join; this edge
/// decides any beyond the limit itself.
const FORWARDING_MAX: usize = 256;

/// Links of other edges at one time whose join was not read yet; more wait in the kernel's queue.
const INCOMING_MAX: usize = 1024;

/// Pause after a failed accept, for example for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// An acceptor whose sessions other edges may ask for.
pub(super) trait JoinHandler: Send + Sync {
    /// Returns true if the session of a join runs here.
    fn has_session(&self, join: &Join) -> bool;
    /// Handles a join that another edge forwards, and hands `link` to its session; `read` has come
    /// behind the join.
    fn handle_forwarded(
        self: Arc<Self>,
        link: ClientTransport,
        join: Join,
        read: Vec<u8>,
    ) -> Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;
}

/// The fleet that an edge belongs to; all its acceptors share it.
pub struct Fleet {
    own: EdgeNumber,
    ring: Arc<SharedRing>,
    link: LinkContext,
    limits: RelayLimits,
    counts: &'static RelayCounts,
    edges: RwLock<BTreeMap<EdgeNumber, SocketAddr>>,
    /// End of each edge's pause.
    paused: Mutex<HashMap<EdgeNumber, Instant>>,
    forwarding: Semaphore,
    incoming: Arc<Semaphore>,
    /// Acceptors whose sessions other edges may ask for.
    acceptors: Mutex<Vec<Weak<dyn JoinHandler>>>,
}

impl Fleet {
    /// Creates the fleet with these `edges`, of which this is `own`. All edges have `ring`, which
    /// masks their tags. `limits` bounds forwarded streams and `counts` counts them.
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
            forwarding: Semaphore::new(FORWARDING_MAX),
            incoming: Arc::new(Semaphore::new(INCOMING_MAX)),
            acceptors: Mutex::default(),
        }
    }

    /// Replaces the list of edges.
    pub fn set_edges(&self, edges: BTreeMap<EdgeNumber, SocketAddr>) {
        *self.edges.write().unwrap_or_else(PoisonError::into_inner) = edges;
    }

    /// Accepts the joins that other edges forward to `listener`, until the future is dropped; those
    /// for sessions of another process of this edge find it by `generations`, and each stream that
    /// is relayed there holds a permit of `tasks` until it ends.
    pub async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        generations: Arc<Generations>,
        tasks: Arc<Semaphore>,
    ) {
        loop {
            let Ok(permit) = Arc::clone(&self.incoming).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((tcp, _)) => {
                    let (fleet, generations) = (Arc::clone(&self), Arc::clone(&generations));
                    let tasks = Arc::clone(&tasks);
                    tokio::spawn(async move {
                        let handled = fleet.handle_link(tcp, &generations, tasks);
                        let handled = timeout(INCOMING_TIMEOUT, handled).await;
                        drop(permit);
                        if let Err(error) = handled.unwrap_or_else(|late| Err(late.into())) {
                            tracing::debug!(%error, "a forwarded join failed");
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
    async fn handle_link(
        &self,
        tcp: TcpStream,
        generations: &Generations,
        tasks: Arc<Semaphore>,
    ) -> io::Result<()> {
        let _ = tcp.set_nodelay(true);
        let conn = self.link.accept().map_err(io::Error::other)?;
        let mut link = TlsStream::new(conn, tcp);
        let mut frame = [0; FORWARD_LEN];
        link.read_exact(&mut frame).await?;
        let Forward { client } = Forward::parse(&frame).map_err(invalid_data)?;
        let (join, end, mut read) = read_join(&mut link).await?;
        let owner = self.acceptors().into_iter().find(|acceptor| acceptor.has_session(&join));
        let Some(acceptor) = owner else {
            let passed = pass_relayed(generations, client, read).await;
            // Without an answer the other edge would forward none for a while.
            let Some(other) = passed.unwrap_or_else(|error| {
                tracing::debug!(%error, "cannot pass a join on");
                None
            }) else {
                link.write_all(&REFUSAL).await?;
                return close_after_drain(link).await;
            };
            let (limits, counts) = (self.limits, self.counts);
            // For as long as the stream lasts.
            tokio::spawn(async move {
                let _task = tasks.try_acquire_owned().ok();
                bridge(link, other, &[], limits, counts, |_| {}).await;
            });
            return Ok(());
        };
        let transport = ClientTransport::Link(Box::new(link), client);
        acceptor.handle_forwarded(transport, join, read.split_off(end)).await
    }

    /// Returns the acceptors that have sessions.
    fn acceptors(&self) -> Vec<Arc<dyn JoinHandler>> {
        let mut acceptors = self.acceptors.lock().unwrap_or_else(PoisonError::into_inner);
        acceptors.retain(|acceptor| acceptor.strong_count() > 0);
        acceptors.iter().filter_map(Weak::upgrade).collect()
    }

    /// Lets other edges ask for the sessions of `acceptor` from now on.
    pub(super) fn enter(&self, acceptor: Weak<dyn JoinHandler>) {
        let mut acceptors = self.acceptors.lock().unwrap_or_else(PoisonError::into_inner);
        acceptors.push(acceptor);
    }

    /// Returns the current keys if they are not those of `before`, and the routes for the core.
    pub(super) fn routes(&self, before: &Weak<KeyRing>) -> Option<(Weak<KeyRing>, Routes)> {
        let ring = self.ring.current();
        // The weak reference keeps the address from being reused, although the keys are wiped.
        if before.as_ptr() == Arc::as_ptr(&ring) {
            return None;
        }
        let routes = Routes { own: self.own, ring: ring.routes() };
        Some((Arc::downgrade(&ring), routes))
    }

    /// Asks the edge `owner` for the session of the join that `head` begins with: all that the
    /// client has sent. `key` is the join's.
    ///
    /// # Errors
    /// A word for metrics on why this edge has to decide alone: the owner is not known, does not
    /// answer, or does not have the session, or too many other joins wait.
    pub(super) async fn forward(
        &self,
        owner: EdgeNumber,
        forward: Forward,
        key: &JoinKey,
        head: &[u8],
    ) -> Result<Forwarded, &'static str> {
        let address = self.address(owner).ok_or("unknown")?;
        if self.is_paused(owner) {
            return Err("paused");
        }
        let _permit = self.forwarding.try_acquire().map_err(|_| "too_many")?;
        let answered = timeout(ANSWER_TIMEOUT, self.request(address, forward, key, head)).await;
        match answered.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok((link, Some(answer))) => {
                Ok(Forwarded { link, answer, limits: self.limits, counts: self.counts })
            }
            Ok((_, None)) => Err("refused"),
            Err(error) => {
                tracing::warn!(edge = %owner, %address, %error, "cannot forward a join");
                self.pause(owner);
                Err("away")
            }
        }
    }

    fn address(&self, edge: EdgeNumber) -> Option<SocketAddr> {
        let edges = self.edges.read().unwrap_or_else(PoisonError::into_inner);
        edges.get(&edge).copied()
    }

    /// Returns the answer with what follows it, if it accepts the join.
    async fn request(
        &self,
        address: SocketAddr,
        forward: Forward,
        key: &JoinKey,
        head: &[u8],
    ) -> io::Result<(TlsStream<TcpStream>, Option<Vec<u8>>)> {
        let tcp = TcpStream::connect(address).await?;
        tcp.set_nodelay(true)?;
        let conn = self.link.connect().map_err(io::Error::other)?;
        let mut link = TlsStream::new(conn, tcp);
        link.write_all(&[&forward.emit()[..], head].concat()).await?;
        link.flush().await?;
        let mut answer = Vec::new();
        loop {
            match Answer::read(key, &answer) {
                Answer::Accepted(_) => return Ok((link, Some(answer))),
                Answer::Refused => return Ok((link, None)),
                Answer::Incomplete if link.read_buf(&mut answer).await? > 0 => {}
                Answer::Incomplete => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
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

/// Passes a join that came over a link to the process of this edge that may have its session, with
/// a connection of its own, as TLS has state that cannot be passed; returns this end of it, or
/// `None` if there is no such process.
async fn pass_relayed(
    generations: &Generations,
    client: SocketAddr,
    read: Vec<u8>,
) -> io::Result<Option<TcpStream>> {
    if !generations.has_way(None) {
        return Ok(None);
    }
    let (here, there) = loopback_pair().await?;
    let stray = StrayJoin::new(there.into_std()?, Some(client), read);
    let passed = generations.pass(stray, None).is_ok();
    if passed {
        count_join("passed");
    }
    Ok(passed.then_some(here))
}

/// Returns both ends of a connection within this machine.
async fn loopback_pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let here = TcpStream::connect(listener.local_addr()?).await?;
    let own = here.local_addr()?;
    loop {
        // Anybody on this machine may have connected.
        let (there, peer) = listener.accept().await?;
        if peer == own {
            here.set_nodelay(true)?;
            there.set_nodelay(true)?;
            return Ok((here, there));
        }
    }
}

/// Reads a join; returns it with its length, and all that was read.
async fn read_join(link: &mut TlsStream<TcpStream>) -> io::Result<(Join, usize, Vec<u8>)> {
    let mut read = Vec::new();
    loop {
        match hello::read(&read).map_err(invalid_data)? {
            Progress::Complete(hello) => {
                let join = Join::read(&hello).ok_or(io::ErrorKind::InvalidData)?;
                return Ok((join, hello.end, read));
            }
            Progress::Incomplete if link.read_buf(&mut read).await? > 0 => {}
            Progress::Incomplete => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

fn invalid_data(error: impl Into<Box<dyn Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet").field("own", &self.own).finish_non_exhaustive()
    }
}

/// A stream that another edge serves.
pub(super) struct Forwarded {
    link: TlsStream<TcpStream>,
    /// The answer to the join, and what has come behind it.
    answer: Vec<u8>,
    limits: RelayLimits,
    counts: &'static RelayCounts,
}

impl Forwarded {
    /// Passes bytes between the client and the other edge until both are done.
    pub(super) async fn run(self, mut client: TcpStream) {
        if client.write_all(&self.answer).await.is_err() {
            // Dropping the link without a close tells the owner that the client has gone.
            return;
        }
        bridge(self.link, client, &[], self.limits, self.counts, |_| {}).await;
    }
}
