//! Load on a contender: clients that are at work until a turn is over.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use headstart_emulation::{Node, Scheduling};
use headstart_openers::Trial;
use rustix::process::nice;
use tokio::task::JoinSet;

/// The place where a load runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'n> {
    pub(super) node: &'n Node,
    /// The only CPU for its threads, and for programs that are started there.
    pub(super) cpu: Option<usize>,
    /// Nice value of its own threads (nice(2)): others on their CPU go first.
    pub(super) nice: i32,
}

impl Place<'_> {
    pub(super) fn scheduling(self) -> Scheduling {
        Scheduling { cpu: self.cpu, realtime: false }
    }

    /// Starts `work` on a thread and runtime of its own.
    pub(super) fn spawn<T: Send + 'static>(
        self,
        work: impl Future<Output = io::Result<T>> + Send + 'static,
    ) -> io::Result<Running<T>> {
        let (scheduling, behind) = (self.scheduling(), self.nice);
        self.node.spawn_thread(move || {
            scheduling.enter();
            nice(behind)?;
            tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
        })
    }
}

/// A thread on a node.
pub(super) type Running<T> = JoinHandle<io::Result<io::Result<T>>>;

/// Waits for a thread.
pub(super) fn ended<T>(thread: Running<T>) -> io::Result<T> {
    thread.join().map_err(|_| io::Error::other("a thread of the load panicked"))??
}

#[derive(Debug)]
pub(super) struct Work {
    shared: Arc<Shared>,
    thread: Running<()>,
}

/// State that clients share with the measurement.
#[derive(Debug, Default)]
pub(super) struct Shared {
    over: AtomicBool,
    progress: Mutex<(Counts, Vec<Trial>)>,
}

/// Work done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) done: u64,
    pub(super) failed: u64,
    /// Exchanges on a resumed session, among those done.
    pub(super) resumed: u64,
    pub(super) bytes: u64,
}

impl Counts {
    pub(super) const fn since(self, before: Self) -> Self {
        Self {
            done: self.done - before.done,
            failed: self.failed - before.failed,
            resumed: self.resumed - before.resumed,
            bytes: self.bytes - before.bytes,
        }
    }
}

impl Shared {
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    pub(super) fn add_bytes(&self, bytes: usize) {
        self.with(|(counts, _)| counts.bytes += bytes as u64);
    }

    pub(super) fn add(&self, trial: Trial) {
        self.with(|(counts, trials)| {
            counts.done += u64::from(trial.ok);
            counts.failed += u64::from(!trial.ok);
            counts.resumed += u64::from(trial.ok && trial.resumed);
            counts.bytes += trial.bytes;
            trials.push(trial);
        });
    }

    fn with<T>(&self, work: impl FnOnce(&mut (Counts, Vec<Trial>)) -> T) -> T {
        work(&mut self.progress.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Work {
    /// Starts `count` clients, which work until they are told that it is over. The first one that
    /// breaks off ends the work with its error.
    pub(super) fn start<T>(
        place: Place<'_>,
        count: u16,
        client: impl Fn(Arc<Shared>) -> T + Send + 'static,
    ) -> io::Result<Self>
    where
        T: Future<Output = io::Result<()>> + Send + 'static,
    {
        let shared = Arc::<Shared>::default();
        let all = Arc::clone(&shared);
        let thread = place.spawn(async move {
            let mut clients: JoinSet<_> = (0..count).map(|_| client(Arc::clone(&all))).collect();
            while let Some(ended) = clients.join_next().await {
                ended??;
            }
            Ok(())
        })?;
        Ok(Self { shared, thread })
    }

    /// Starts `count` clients, which make one exchange after the other. One that takes longer than
    /// `limit` has failed.
    pub(super) fn exchanges<T>(
        place: Place<'_>,
        count: u16,
        limit: Duration,
        exchange: impl Fn() -> T + Clone + Send + Sync + 'static,
    ) -> io::Result<Self>
    where
        T: Future<Output = io::Result<Served>> + Send + 'static,
    {
        Self::start(place, count, move |shared| {
            let exchange = exchange.clone();
            async move {
                while !shared.is_over() {
                    shared.add(timed(limit, exchange()).await);
                }
                Ok(())
            }
        })
    }

    pub(super) fn counts(&self) -> Counts {
        self.shared.with(|(counts, _)| *counts)
    }

    /// Ends the clients, and returns what came of each exchange, in order.
    pub(super) fn end(self) -> io::Result<Vec<Trial>> {
        self.shared.over.store(true, Ordering::Relaxed);
        ended(self.thread)?;
        Ok(self.shared.with(|(_, trials)| std::mem::take(trials)))
    }
}

/// Result of an exchange.
#[derive(Clone, Copy, Debug)]
pub(super) struct Served {
    /// Time at which the first byte of the answer was there.
    pub(super) first: Instant,
    pub(super) resumed: bool,
    pub(super) bytes: usize,
}

/// Makes an exchange; one that takes longer than `limit` has failed.
pub(super) async fn timed(
    limit: Duration,
    exchange: impl Future<Output = io::Result<Served>>,
) -> Trial {
    let begun = Instant::now();
    let served = tokio::time::timeout(limit, exchange).await;
    match served.unwrap_or_else(|late| Err(late.into())) {
        Ok(Served { first, resumed, bytes }) => Trial {
            ok: true,
            resumed,
            bytes: bytes as u64,
            ms_to_first_response_byte: Some((first - begun).as_secs_f64() * 1e3),
            ms_to_last_response_byte: Some(begun.elapsed().as_secs_f64() * 1e3),
            ..Trial::default()
        },
        Err(error) => Trial { error: error.to_string(), ..Trial::default() },
    }
}
