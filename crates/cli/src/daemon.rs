//! What both daemons do the same way: signals, limits, metrics, a stop that loses nothing.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use headstart_net::{Handoff, Pumped, RelayCounts, RelayLimits, RelayReason};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::net::TcpStream;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::failure::Failure;
use crate::listen;
use crate::metrics::{self, Direction, Metrics, Outcome, Role};

/// How often relayed bytes reach the metrics.
const RELAYED_EVERY: Duration = Duration::from_secs(1);

/// Pause after a failed accept, such as for want of file descriptors: it passes.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Waits a little where accepting cannot work for a while. A client that is gone already is no reason.
pub(crate) async fn after_failed_accept(error: &io::Error) {
    if error.kind() == io::ErrorKind::ConnectionAborted {
        return;
    }
    tracing::warn!(%error, "cannot accept");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

/// Bytes relayed by this process.
static RELAYED: LazyLock<RelayCounts> = LazyLock::new(RelayCounts::default);

/// What the operator asks of a running daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// SIGHUP: read the configuration again.
    Reload,
    /// SIGTERM or SIGINT: end in order.
    Stop,
}

/// The signals of a daemon.
pub(crate) struct Signals {
    hangup: Stream,
    terminate: Stream,
    interrupt: Stream,
}

impl Signals {
    pub(crate) fn listen() -> Result<Self, Failure> {
        let open = |kind| {
            signal(kind).map_err(|error| Failure::usage(format!("cannot wait for signals: {error}")))
        };
        Ok(Self {
            hangup: open(SignalKind::hangup())?,
            terminate: open(SignalKind::terminate())?,
            interrupt: open(SignalKind::interrupt())?,
        })
    }

    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.hangup.recv() => Signal::Reload,
            _ = self.terminate.recv() => Signal::Stop,
            _ = self.interrupt.recv() => Signal::Stop,
        }
    }
}

/// The connections that run, at most so many at one time.
#[derive(Clone)]
pub(crate) struct Places {
    free: Arc<Semaphore>,
    all: u32,
}

impl Places {
    pub(crate) fn new(all: usize) -> Self {
        let all = u32::try_from(all).unwrap_or(u32::MAX);
        let free = usize::try_from(all).unwrap_or(Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(free.min(Semaphore::MAX_PERMITS))), all }
    }

    /// A place for a connection, once there is one.
    pub(crate) async fn take(&self) -> Option<OwnedSemaphorePermit> {
        if self.free.available_permits() == 0 {
            metrics::limit_hit("max_connections");
        }
        Arc::clone(&self.free).acquire_owned().await.ok()
    }

    /// Waits until every connection has ended, but not longer than `limit`; how many have not.
    pub(crate) async fn empty(&self, limit: Duration) -> u32 {
        let _ = tokio::time::timeout(limit, self.free.acquire_many(self.all)).await;
        self.all - u32::try_from(self.free.available_permits()).unwrap_or(self.all)
    }
}

/// Starts the metrics endpoint if one is wanted.
pub(crate) fn start_metrics(
    role: Role,
    address: Option<SocketAddr>,
) -> Result<Option<Metrics>, Failure> {
    let Some(address) = address else { return Ok(None) };
    let listener = listen::tcp(address)?;
    let metrics = Metrics::install(role)?;
    metrics.serve(listener);
    tokio::spawn(count_relayed());
    tracing::info!(%address, "metrics");
    Ok(Some(metrics))
}

async fn count_relayed() {
    let (mut up, mut down) = (0, 0);
    loop {
        tokio::time::sleep(RELAYED_EVERY).await;
        let now = (RELAYED.b_to_a(), RELAYED.a_to_b());
        metrics::relayed(Direction::ToServer, now.0.wrapping_sub(up));
        metrics::relayed(Direction::ToClient, now.1.wrapping_sub(down));
        (up, down) = now;
    }
}

/// Joins a connection that opens with an ordinary one, counted for the metrics; `head` was read
/// from `other` before. `opened` is called when the opening is over, however it went.
pub(crate) async fn bridge<H: Handoff>(
    mut opening: H,
    mut other: TcpStream,
    head: &[u8],
    limits: RelayLimits,
    opened: impl FnOnce(&H),
) -> Outcome {
    let pumped = headstart_net::pump(&mut opening, &mut other, head, limits.idle).await;
    opened(&opening);
    match pumped {
        Ok(Pumped::Open) => {}
        Ok(Pumped::Ended) => return Outcome::Closed,
        Err(error) => {
            let _ = other.set_zero_linger();
            opening.reset();
            return if error.kind() == io::ErrorKind::TimedOut { Outcome::TimedOut } else { Outcome::Reset };
        }
    }
    let Some(tcp) = opening.into_tcp() else { return Outcome::Reset };
    match headstart_net::relay(tcp, other, limits, &RELAYED).await.reason {
        RelayReason::Closed => Outcome::Closed,
        RelayReason::Reset(_) | RelayReason::Error(..) => Outcome::Reset,
        RelayReason::IdleLimit | RelayReason::TotalLimit => Outcome::TimedOut,
    }
}

/// Raises the soft limit of open files to the hard one: a connection takes two, and pipes.
pub(crate) fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}

/// Runs `work` unless it is told to stop before.
pub(crate) async fn until<T>(stop: &mut tokio::sync::watch::Receiver<bool>, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        done = work => Some(done),
        _ = stop.wait_for(|stop| *stop) => None,
    }
}
