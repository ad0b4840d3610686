//! The common parts of both daemons: signals, limits, metrics, a stop that loses nothing.

use std::ffi::OsString;
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
use sd_notify::NotifyState;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

use crate::base::failure::Failure;
use crate::base::names::NamePattern;
use crate::base::settings::{Invocation, Stop};
use crate::listen::Sockets;
use crate::master;
use crate::metrics::options::MetricsOptions;
use crate::metrics::{
    self, Direction, Listeners, Metrics, Outcome, Reloaded, Role, StatusPage, Table,
};
use crate::supervisor;
use crate::takeover::{Offer, Successor};

/// Half-closed connections may be quiet this long: longer than the 120 s that TCP may pause before
/// it sends a lost segment again (RFC 6298 allows no less than 60 s as the maximum, Linux takes 120
/// s). With 30 s, the end of a response was thrown away on links that lose 20 % each way.
pub(crate) const HALF_CLOSED_IDLE: Duration = Duration::from_secs(150);

/// Interval at which relayed bytes reach the metrics.
const RELAYED_EVERY: Duration = Duration::from_secs(1);

/// Time in which a worker without its master gets a successor.
const SUCCESSOR_TIME: Duration = Duration::from_secs(5);

/// Bytes relayed by this process.
static RELAYED: LazyLock<RelayCounts> = LazyLock::new(RelayCounts::default);

/// Bytes passed on for other edges; their side A is the edge that serves, and not the client.
pub(crate) static FORWARDED: LazyLock<RelayCounts> = LazyLock::new(RelayCounts::default);

/// A daemon that runs with settings `S`, which a reload replaces as a whole.
pub(crate) struct Daemon<S> {
    role: Role,
    metrics: Option<(Metrics, Endpoint)>,
    signals: Signals,
    settings: watch::Sender<Arc<S>>,
    phase: watch::Sender<Phase>,
    permits: ConnectionPermits,
    /// Closed once every listener has dropped its sender.
    listening: (mpsc::Sender<()>, mpsc::Receiver<()>),
}

/// Where metrics and status are read.
enum Endpoint {
    /// Clients wait, or get a response of the process from which this one takes over.
    Opened(Listeners, Vec<NamePattern>),
    Serving(JoinHandle<()>),
}

/// A daemon's phase of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Running,
    /// Told to end.
    Stopping,
    /// Another process listens on the same sockets.
    HandedOver,
}

/// A listener's share of the daemon.
pub(crate) struct Running<S> {
    settings: watch::Receiver<Arc<S>>,
    phase: watch::Receiver<Phase>,
    listening: Option<mpsc::Sender<()>>,
    pub(crate) permits: ConnectionPermits,
}

/// The next step of a listener.
pub(crate) enum Next<S, T> {
    /// Result of its work.
    Done(T),
    /// The settings were replaced by these; its work was dropped.
    Reloaded(Arc<S>),
    /// The listener has to end; its work was dropped.
    Stop,
}

impl<S: Send + Sync + 'static> Daemon<S> {
    /// Makes a daemon for at most `connections` at one time.
    pub(crate) fn new(role: Role, settings: S, connections: NonZeroUsize) -> Result<Self, Failure> {
        Ok(Self {
            role,
            metrics: None,
            signals: Signals::listen()?,
            settings: watch::Sender::new(Arc::new(settings)),
            phase: watch::Sender::new(Phase::Running),
            permits: ConnectionPermits::new(connections.get()),
            listening: mpsc::channel(1),
        })
    }

    /// Counts for the endpoints of metrics and status if one is wanted, and opens them; the status
    /// page shows the `tables` of the settings. Call it before a connection can come: a gauge that
    /// is kept from before then counts nothing ever after.
    pub(crate) fn with_metrics(
        self,
        options: &MetricsOptions,
        sockets: &mut Sockets,
        tables: fn(&S) -> Vec<Table>,
    ) -> Result<Self, Failure> {
        if options.metrics.is_none() && options.status.is_none() {
            return Ok(self);
        }
        let figures = open_endpoint("metrics", options.metrics, sockets)?;
        let status = open_endpoint("status", options.status, sockets)?;
        let metrics = Metrics::install(self.role)?;
        let settings = self.settings.subscribe();
        let status = status.map(|listener| {
            let tables = move || {
                let settings = Arc::clone(&settings.borrow());
                tables(&settings)
            };
            (listener, StatusPage::start(self.role, options.status_names, Arc::new(tables)))
        });
        tokio::spawn(count_relayed(self.role));
        let listeners = Listeners { metrics: figures, status };
        let endpoint = Endpoint::Opened(listeners, options.metrics_host.clone());
        Ok(Self { metrics: Some((metrics, endpoint)), ..self })
    }

    pub(crate) fn running(&self) -> Running<S> {
        let (settings, phase) = (self.settings.subscribe(), self.phase.subscribe());
        let listening = Some(self.listening.0.clone());
        Running { settings, phase, listening, permits: self.permits.clone() }
    }

    /// Runs `listeners` until the operator stops them, or another process takes over by `offer`,
    /// then waits for connections to end: those of a stop for as long as `patience`, others without
    /// limit, since nobody waits for their place. Another stop ends them at once.
    pub(crate) async fn run(
        mut self,
        mut listeners: JoinSet<()>,
        mut offer: Offer,
        patience: Duration,
        reload: impl Fn(&S) -> Result<S, Failure>,
    ) -> Result<ExitCode, Failure> {
        self.serve_metrics();
        self.set_ready(true);
        supervisor::keep_watchdog();
        tracing::info!("ready");
        supervisor::tell_ready("serving");
        let successor = self.wait(&mut offer, &reload).await;
        self.set_ready(false);
        let limit = match successor {
            Some(successor) => {
                tracing::info!("another process takes over; serving what has begun");
                // Not that it stops: the supervisor would limit the time that this takes.
                supervisor::tell(&[NotifyState::Status("serving what has begun")]);
                self.phase.send_replace(Phase::HandedOver);
                self.stop_listening().await;
                listeners.spawn(offer.leave(successor));
                Duration::MAX
            }
            None => {
                let connections = self.permits.taken();
                tracing::info!(connections, "stopping; a second signal ends them at once");
                supervisor::tell(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
                offer.close();
                self.phase.send_replace(Phase::Stopping);
                patience
            }
        };
        match self.end(listeners, limit, patience).await {
            0 => tracing::info!("stopped"),
            left => tracing::warn!(connections = left, "stopped before they ended"),
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Waits until the operator stops this process, or another one is ready to take over.
    async fn wait(
        &mut self,
        offer: &mut Offer,
        reload: impl Fn(&S) -> Result<S, Failure>,
    ) -> Option<Successor> {
        let is_found = offer.is_found();
        let mut successor = std::pin::pin!(offer.successor());
        let mut expected = std::pin::pin!(sleep(Duration::MAX));
        loop {
            tokio::select! {
                signal = self.signals.next() => match signal {
                    Signal::Reload => self.reload(&reload),
                    Signal::Stop => return None,
                    Signal::HandOver => {
                        tracing::info!("the master ends; waiting for a successor");
                        expected.set(sleep(SUCCESSOR_TIME));
                        master::leave();
                    }
                },
                found = &mut successor => return Some(found),
                // One that prepares itself may take its time, and is given up at last.
                () = &mut expected => if is_found() {
                    expected.set(sleep(SUCCESSOR_TIME));
                } else {
                    return None;
                },
            }
        }
    }

    /// Waits until nobody here listens any more.
    async fn stop_listening(&mut self) {
        if let Some((_, Endpoint::Serving(serving))) = self.metrics.take() {
            serving.abort();
            // Until it has closed its listener.
            let _ = serving.await;
        }
        let (own, mut closed) = std::mem::replace(&mut self.listening, mpsc::channel(1));
        drop(own);
        while closed.recv().await.is_some() {}
    }

    /// Waits for listeners and connections to end within `limit`; returns how many have not. A stop
    /// gives those without limit this `patience`, and ends others at once.
    async fn end(
        &mut self,
        mut listeners: JoinSet<()>,
        limit: Duration,
        patience: Duration,
    ) -> u32 {
        let permits = self.permits.clone();
        {
            let ended = async {
                while listeners.join_next().await.is_some() {}
                permits.drained().await;
            };
            let mut ended = std::pin::pin!(ended);
            let mut late = std::pin::pin!(sleep(limit));
            let mut is_limited = limit < Duration::MAX;
            loop {
                tokio::select! {
                    () = &mut ended => break,
                    () = &mut late => break,
                    signal = self.signals.next() => match signal {
                        // Another process reads the configuration now, or none does.
                        Signal::Reload => supervisor::tell(&[NotifyState::Ready]),
                        Signal::HandOver => master::leave(),
                        Signal::Stop if is_limited => break,
                        Signal::Stop => {
                            is_limited = true;
                            late.set(sleep(patience));
                        }
                    },
                }
            }
        }
        // Counted once nothing waits for permits any more: who waits holds those that are free.
        permits.taken()
    }

    fn serve_metrics(&mut self) {
        self.metrics = self.metrics.take().map(|(metrics, endpoint)| {
            let endpoint = match endpoint {
                Endpoint::Opened(listeners, names) => {
                    Endpoint::Serving(metrics.serve(listeners, names))
                }
                Endpoint::Serving(serving) => Endpoint::Serving(serving),
            };
            (metrics, endpoint)
        });
    }

    fn set_ready(&self, ready: bool) {
        self.metrics.as_ref().inspect(|(metrics, _)| metrics.set_ready(ready));
    }

    /// A file with a mistake changes nothing: the daemon goes on as it was.
    fn reload(&self, reload: impl Fn(&S) -> Result<S, Failure>) {
        supervisor::tell_reloading();
        let before = Arc::clone(&self.settings.borrow());
        let reloaded = reload(&before);
        metrics::reloaded(Reloaded::Configuration, reloaded.is_ok());
        let status = match reloaded {
            Ok(fresh) => {
                self.settings.send_replace(Arc::new(fresh));
                tracing::info!("configuration read again");
                "serving".to_owned()
            }
            Err(failure) => {
                let kept = format!("configuration kept: {}", failure.message());
                tracing::error!("{kept}");
                kept
            }
        };
        supervisor::tell_ready(&status);
    }
}

impl<S> Running<S> {
    pub(crate) fn settings(&self) -> Arc<S> {
        Arc::clone(&self.settings.borrow())
    }

    /// Ends when the daemon is told to stop.
    pub(crate) fn stopping(&self) -> impl Future<Output = ()> + Send + use<S> {
        let mut phase = self.phase.clone();
        async move {
            // Stop, on the sender's word or because it has gone.
            let _ = phase.wait_for(|phase| *phase != Phase::Running).await;
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Says that the listener is closed, although its work goes on.
    pub(crate) fn stopped_listening(&mut self) {
        self.listening = None;
    }

    /// Runs `work` unless there is something else to do before.
    pub(crate) async fn next<T>(&mut self, work: impl Future<Output = T>) -> Next<S, T> {
        tokio::select! {
            biased;
            _ = self.phase.wait_for(|phase| *phase != Phase::Running) => Next::Stop,
            Ok(()) = self.settings.changed() => Next::Reloaded(Arc::clone(&self.settings.borrow())),
            done = work => Next::Done(done),
        }
    }

    /// Runs `work` unless the daemon is told to stop before.
    pub(crate) async fn until_stop<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = work => Some(done),
            _ = self.phase.wait_for(|phase| *phase != Phase::Running) => None,
        }
    }
}

/// The options as they are now, for a reload.
pub(crate) fn load<T: FromArgMatches>(invocation: &Invocation) -> Result<T, Failure> {
    invocation.load().map_err(stopped)
}

fn stopped(stop: Stop) -> Failure {
    match stop {
        Stop::Failure(failure) => failure,
        Stop::Answer(_) => Failure::usage("help was asked for, not a daemon"),
    }
}

/// The operator's request to a running daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signal {
    /// SIGHUP: read the configuration again.
    Reload,
    /// SIGTERM or SIGINT: end in order.
    Stop,
    /// SIGUSR2 in a worker: its master ends.
    HandOver,
}

/// The signals of a daemon.
struct Signals {
    hangup: Stream,
    terminate: Stream,
    interrupt: Stream,
    /// Would end the process, and other servers open their logs again.
    user: Stream,
    hand_over: Stream,
}

impl Signals {
    fn listen() -> Result<Self, Failure> {
        Self::open().map_err(|error| Failure::usage(format!("cannot wait for signals: {error}")))
    }

    fn open() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            user: signal(SignalKind::user_defined1())?,
            hand_over: signal(SignalKind::user_defined2())?,
        })
    }

    async fn next(&mut self) -> Signal {
        loop {
            tokio::select! {
                _ = self.hangup.recv() => return Signal::Reload,
                _ = self.terminate.recv() => return Signal::Stop,
                _ = self.interrupt.recv() => return Signal::Stop,
                _ = self.hand_over.recv(), if master::is_bound() => return Signal::HandOver,
                _ = self.user.recv() => {
                    tracing::info!("SIGUSR1 does nothing: the log goes to standard error");
                }
            }
        }
    }
}

/// Tasks of a process at one time: more than it could have files.
const TASKS: u32 = u32::MAX >> 3;

/// Permits for the daemon's connections, which bound them and let a stop wait for them.
#[derive(Clone)]
pub(crate) struct ConnectionPermits {
    connections: Arc<Semaphore>,
    max: u32,
    /// Permits left of [`TASKS`]: a stop must not cut off connections without a permit yet either.
    tasks: Arc<Semaphore>,
}

impl ConnectionPermits {
    fn new(max: usize) -> Self {
        let max = u32::try_from(max).unwrap_or(u32::MAX).min(TASKS);
        Self { connections: semaphore(max), max, tasks: semaphore(TASKS) }
    }

    /// Returns the permits of connections.
    pub(crate) fn connections(&self) -> Arc<Semaphore> {
        Arc::clone(&self.connections)
    }

    /// Returns a permit for the task of a connection that takes its own permit later, so that a
    /// stop waits for it.
    pub(crate) fn task(&self) -> Option<OwnedSemaphorePermit> {
        self.tasks().try_acquire_owned().ok()
    }

    /// Returns the permits of such tasks.
    pub(crate) fn tasks(&self) -> Arc<Semaphore> {
        Arc::clone(&self.tasks)
    }

    /// Waits until every connection has ended.
    async fn drained(&self) {
        let _ = self.tasks.acquire_many(TASKS).await;
        let _ = self.connections.acquire_many(self.max).await;
    }

    /// Returns how many connections run.
    fn taken(&self) -> u32 {
        taken(&self.tasks, TASKS).max(taken(&self.connections, self.max))
    }
}

fn semaphore(permits: u32) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(usize::try_from(permits).unwrap_or(Semaphore::MAX_PERMITS)))
}

fn taken(semaphore: &Semaphore, all: u32) -> u32 {
    all - u32::try_from(semaphore.available_permits()).unwrap_or(all)
}

/// Opens the endpoint for `what` if one is wanted.
fn open_endpoint(
    what: &'static str,
    address: Option<SocketAddr>,
    sockets: &mut Sockets,
) -> Result<Option<TcpListener>, Failure> {
    let Some(address) = address else { return Ok(None) };
    let listener = sockets.tcp(address)?;
    // The port, if any will do.
    let address = listener.local_addr().unwrap_or(address);
    tracing::info!(%address, "{what}");
    if !address.ip().to_canonical().is_loopback() {
        tracing::warn!(%address, "other machines can ask for {what}; let a firewall choose");
    }
    Ok(Some(listener))
}

async fn count_relayed(role: Role) {
    // Side a is the connection that opens: to an edge its client, to an agent the server.
    let (from_a, from_b) = match role {
        Role::Edge => (Direction::ToServer, Direction::ToClient),
        Role::Agent => (Direction::ToClient, Direction::ToServer),
    };
    let mut before = (0, 0);
    loop {
        sleep(RELAYED_EVERY).await;
        let now = (
            RELAYED.a_to_b().wrapping_add(FORWARDED.b_to_a()),
            RELAYED.b_to_a().wrapping_add(FORWARDED.a_to_b()),
        );
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
) -> RelayReason {
    headstart_net::bridge(opening, other, head, limits, &RELAYED, opened).await.reason
}

impl From<&RelayReason> for Outcome {
    fn from(reason: &RelayReason) -> Self {
        match reason {
            RelayReason::Closed => Self::Closed,
            RelayReason::IdleLimit | RelayReason::TotalLimit => Self::TimedOut,
            RelayReason::Error(_, error) if error.kind() == io::ErrorKind::TimedOut => {
                Self::TimedOut
            }
            RelayReason::Reset(_) | RelayReason::Error(..) => Self::Reset,
        }
    }
}

/// Options that take effect at a start only, and their values then.
pub(crate) struct AtStart(Vec<(&'static str, Vec<OsString>)>);

impl AtStart {
    /// # Errors
    /// The options have become unusable since they were read.
    pub(crate) fn new(invocation: &Invocation, names: &[&'static str]) -> Result<Self, Failure> {
        let values = |name: &&'static str| Ok((*name, invocation.values(name).map_err(stopped)?));
        names.iter().map(values).collect::<Result<_, _>>().map(Self)
    }

    /// Warns of options that have changed, which a reload does not apply.
    pub(crate) fn warn_of_changes(&self, invocation: &Invocation) {
        let is_changed = |(name, before): &&(&str, Vec<OsString>)| {
            invocation.values(name).is_ok_and(|now| now != *before)
        };
        let changed: Vec<_> =
            self.0.iter().filter(is_changed).map(|(name, _)| format!("--{name}")).collect();
        if !changed.is_empty() {
            let options = changed.join(", ");
            tracing::warn!(%options, "changed, but a reload does not apply it: restart");
        }
    }
}

/// Returns the number of files that this process may open.
pub(crate) fn files() -> usize {
    let files = getrlimit(Resource::Nofile).current;
    files.and_then(|files| usize::try_from(files).ok()).unwrap_or(usize::MAX)
}

/// Returns `allowed` connections if `wanted` are more, with a warning.
pub(crate) fn within_files(wanted: NonZeroUsize, allowed: usize) -> NonZeroUsize {
    let running = NonZeroUsize::new(allowed).unwrap_or(NonZeroUsize::MIN).min(wanted);
    if running < wanted {
        tracing::warn!(
            connections = running,
            "the limit of open files allows fewer connections than --max-connections: raise it \
            (LimitNOFILE= of systemd, ulimit -Hn)"
        );
    }
    running
}

/// Raises the soft limit of open files to the hard one: a connection takes two
/// or three, and pipes.
pub(crate) fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: NonZeroUsize = NonZeroUsize::MIN;

    #[tokio::test]
    async fn a_listener_hears_of_a_reload_while_it_waits() {
        let daemon = Daemon::new(Role::Edge, 1, ONE).unwrap();
        let mut running = daemon.running();
        let waits = tokio::spawn(async move {
            match running.next(std::future::pending::<()>()).await {
                Next::Reloaded(settings) => *settings,
                Next::Done(()) | Next::Stop => 0,
            }
        });
        tokio::task::yield_now().await;
        daemon.reload(|before| Ok(before + 1));
        assert_eq!(waits.await.unwrap(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_waits_for_connections_with_and_without_a_permit() {
        let permits = ConnectionPermits::new(1);
        let drained =
            async || tokio::time::timeout(Duration::from_secs(1), permits.drained()).await;
        let connection = permits.connections().acquire_owned().await;
        let tasks = [permits.task(), permits.task()];
        assert!(drained().await.is_err());
        assert_eq!(permits.taken(), 2);
        drop(tasks);
        assert!(drained().await.is_err());
        assert_eq!(permits.taken(), 1);
        drop(connection);
        assert!(drained().await.is_ok());
    }
}
