//! What both daemons do the same way: signals, limits, metrics, a stop that loses nothing.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use clap::FromArgMatches;
use headstart_net::{Handoff, RelayCounts, RelayLimits, RelayReason};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::net::TcpStream;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use crate::failure::Failure;
use crate::listen;
use crate::metrics::{self, Direction, Metrics, Outcome, Role};
use crate::settings::{Invocation, Stop};

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

/// A daemon that runs with settings `S`, which a reload replaces as a whole.
pub(crate) struct Daemon<S> {
    role: Role,
    signals: Signals,
    settings: watch::Sender<Arc<S>>,
    stop: watch::Sender<bool>,
    places: Places,
}

/// What each listener of a daemon has of it.
pub(crate) struct Running<S> {
    settings: watch::Receiver<Arc<S>>,
    stop: watch::Receiver<bool>,
    pub(crate) places: Places,
}

impl<S: Send + Sync + 'static> Daemon<S> {
    /// A daemon with room for `connections` at one time.
    pub(crate) fn new(role: Role, settings: S, connections: NonZeroUsize) -> Result<Self, Failure> {
        raise_file_limit();
        Ok(Self {
            role,
            signals: Signals::listen()?,
            settings: watch::Sender::new(Arc::new(settings)),
            stop: watch::Sender::new(false),
            places: Places::new(connections.get()),
        })
    }

    pub(crate) fn running(&self) -> Running<S> {
        let (settings, stop) = (self.settings.subscribe(), self.stop.subscribe());
        Running { settings, stop, places: self.places.clone() }
    }

    /// Runs `listeners` until the operator stops them, then waits for connections to end.
    pub(crate) async fn run(
        mut self,
        mut listeners: JoinSet<()>,
        metrics: Option<SocketAddr>,
        patience: Duration,
        reload: impl Fn(&S) -> Result<S, Failure>,
    ) -> Result<ExitCode, Failure> {
        let metrics = start_metrics(self.role, metrics)?;
        metrics.as_ref().inspect(|metrics| metrics.set_ready(true));
        while self.signals.next().await == Signal::Reload {
            self.reload(&reload);
        }
        tracing::info!("stopping");
        metrics.as_ref().inspect(|metrics| metrics.set_ready(false));
        self.stop.send_replace(true);
        while listeners.join_next().await.is_some() {}
        let left = self.places.empty(patience).await;
        if left > 0 {
            tracing::warn!(connections = left, "stopped before they ended");
        }
        Ok(ExitCode::SUCCESS)
    }

    /// A file with a mistake changes nothing: the daemon goes on as it was.
    fn reload(&self, reload: impl Fn(&S) -> Result<S, Failure>) {
        let before = Arc::clone(&self.settings.borrow());
        match reload(&before) {
            Ok(fresh) => {
                self.settings.send_replace(Arc::new(fresh));
                tracing::info!("configuration read again");
            }
            Err(failure) => tracing::error!("configuration kept: {}", failure.message()),
        }
    }
}

impl<S> Running<S> {
    pub(crate) fn settings(&self) -> Arc<S> {
        Arc::clone(&self.settings.borrow())
    }

    /// The settings, if they were replaced since this was last called.
    pub(crate) fn fresh_settings(&mut self) -> Option<Arc<S>> {
        let fresh = self.settings.has_changed().unwrap_or(false);
        fresh.then(|| Arc::clone(&self.settings.borrow_and_update()))
    }

    /// Runs `work` unless the daemon is told to stop before.
    pub(crate) async fn until_stop<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = work => Some(done),
            _ = self.stop.wait_for(|stop| *stop) => None,
        }
    }
}

/// The options as they are now, for a reload.
pub(crate) fn load<T: FromArgMatches>(invocation: &Invocation) -> Result<T, Failure> {
    invocation.load().map_err(|stop| match stop {
        Stop::Failure(failure) => failure,
        Stop::Answer(_) => Failure::usage("help was asked for, not a daemon"),
    })
}

/// What the operator asks of a running daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signal {
    /// SIGHUP: read the configuration again.
    Reload,
    /// SIGTERM or SIGINT: end in order.
    Stop,
}

/// The signals of a daemon.
struct Signals {
    hangup: Stream,
    terminate: Stream,
    interrupt: Stream,
}

impl Signals {
    fn listen() -> Result<Self, Failure> {
        let open = |kind| {
            signal(kind)
                .map_err(|error| Failure::usage(format!("cannot wait for signals: {error}")))
        };
        Ok(Self {
            hangup: open(SignalKind::hangup())?,
            terminate: open(SignalKind::terminate())?,
            interrupt: open(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> Signal {
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
    fn new(all: usize) -> Self {
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
    async fn empty(&self, limit: Duration) -> u32 {
        let _ = tokio::time::timeout(limit, self.free.acquire_many(self.all)).await;
        self.all - u32::try_from(self.free.available_permits()).unwrap_or(self.all)
    }
}

/// Starts the metrics endpoint if one is wanted.
fn start_metrics(role: Role, address: Option<SocketAddr>) -> Result<Option<Metrics>, Failure> {
    let Some(address) = address else { return Ok(None) };
    let listener = listen::tcp(address)?;
    let metrics = Metrics::install(role)?;
    metrics.serve(listener);
    tokio::spawn(count_relayed(role));
    tracing::info!(%address, "metrics");
    Ok(Some(metrics))
}

async fn count_relayed(role: Role) {
    // Side a is the connection that opens: to an edge its client, to an agent the server.
    let (from_a, from_b) = match role {
        Role::Edge => (Direction::ToServer, Direction::ToClient),
        Role::Agent => (Direction::ToClient, Direction::ToServer),
    };
    let mut before = (0, 0);
    loop {
        tokio::time::sleep(RELAYED_EVERY).await;
        let now = (RELAYED.a_to_b(), RELAYED.b_to_a());
        metrics::relayed(from_a, now.0.wrapping_sub(before.0));
        metrics::relayed(from_b, now.1.wrapping_sub(before.1));
        before = now;
    }
}

/// Joins a connection that opens with an ordinary one, counted for the metrics; `head` was read
/// from `other` before. `opened` is called when the opening is over, however it went.
pub(crate) async fn bridge<H: Handoff>(
    opening: H,
    other: TcpStream,
    head: &[u8],
    limits: RelayLimits,
    opened: impl FnOnce(&H),
) -> Outcome {
    let bridge = headstart_net::bridge(opening, other, head, limits, &RELAYED, opened);
    match bridge.await.reason {
        RelayReason::Closed => Outcome::Closed,
        RelayReason::IdleLimit | RelayReason::TotalLimit => Outcome::TimedOut,
        RelayReason::Error(_, error) if error.kind() == io::ErrorKind::TimedOut => {
            Outcome::TimedOut
        }
        RelayReason::Reset(_) | RelayReason::Error(..) => Outcome::Reset,
    }
}

/// Raises the soft limit of open files to the hard one: a connection takes two, and pipes.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}
