//! A program that visits an origin by one [`Way`], on one thread: again and again, one after the
//! other, or for bytes without end.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::Failure;
use super::tcp::on_thread;
use super::ways::{Plain, Way};

const SHORT: &[u8] = b"GET / HTTP/1.1\r\nHost: peer.test\r\n\r\n";
const LONG: &[u8] = b"GET /bulk HTTP/1.1\r\nHost: peer.test\r\n\r\n";

/// Time that one visit may take, or a stream among others wait for its next bytes: a hang takes
/// longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Bytes read at a time: four records, if the way gives so many at once.
const PIECE: usize = 64 * 1024;

/// The origin's short answer.
pub(crate) struct Answer {
    pub(crate) resumed: bool,
    /// Version and cipher.
    pub(crate) agreed: String,
    /// From before the connection to the first byte of the answer.
    pub(crate) first_byte: Duration,
}

impl Answer {
    /// Reads a whole answer, of which this is what came behind its head.
    fn read(body: &[u8], first_byte: Duration) -> Option<Self> {
        let mut words = std::str::from_utf8(body).ok()?.split_whitespace();
        let resumed = match words.next()? {
            "r" => true,
            "." => false,
            _ => return None,
        };
        let agreed = format!("{} {}", words.next()?, words.next()?);
        Some(Self { resumed, agreed, first_byte })
    }
}

/// A connection with one short answer on it; then the program has ended its side.
async fn visit(way: &Way, resumes: bool) -> Result<(Answer, Box<dyn Plain>), Failure> {
    let begun = Instant::now();
    let mut stream = way.open(resumes).await?;
    stream.write_all(SHORT).await?;
    let mut answer = Vec::with_capacity(1024);
    let mut first_byte = None;
    loop {
        if stream.read_buf(&mut answer).await? == 0 {
            return Err("the connection ends before its answer".into());
        }
        let first_byte = *first_byte.get_or_insert_with(|| begun.elapsed());
        if let Some(body) = whole(&answer)? {
            stream.shutdown().await?;
            let answer = Answer::read(body, first_byte).ok_or("another origin")?;
            return Ok((answer, stream));
        }
    }
}

/// Returns the bytes behind the head, once all of them are there: they end with their line.
fn whole(answer: &[u8]) -> Result<Option<&[u8]>, Failure> {
    const END: &[u8] = b"\r\n\r\n";
    let Some(head) = answer.windows(END.len()).position(|four| four == END) else {
        return Ok(None);
    };
    if !answer.starts_with(b"HTTP/1.1 200 ") {
        return Err(format!("the origin says {}", String::from_utf8_lossy(answer)).into());
    }
    let body = answer.get(head + END.len()..).unwrap_or_default();
    Ok(body.ends_with(b"\n").then_some(body))
}

/// A connection from its beginning to its end at the origin.
async fn whole_visit(way: &Way, resumes: bool) -> Result<Answer, Failure> {
    let (answer, mut stream) = visit(way, resumes).await?;
    let mut room = [0; 64];
    while stream.read(&mut room).await? > 0 {}
    Ok(answer)
}

const PANICKED: &str = "the client panicked";

/// One visit.
pub(crate) fn once(way: &Arc<Way>, resumes: bool) -> Result<Answer, Failure> {
    let way = Arc::clone(way);
    let work = async move { timeout(PATIENCE, whole_visit(&way, resumes)).await? };
    on_thread(work).join().map_err(|_| PANICKED)??
}

/// Visits one after the other for `time`, each when the one before is over at the origin, too;
/// behind a first one that brings what the others resume.
pub(crate) fn one_by_one(
    way: &Arc<Way>,
    resumes: bool,
    time: Duration,
) -> Result<Vec<Answer>, Failure> {
    let way = Arc::clone(way);
    let work = async move {
        timeout(PATIENCE, whole_visit(&way, resumes)).await??;
        let begun = Instant::now();
        let mut answers = Vec::new();
        while begun.elapsed() < time {
            answers.push(timeout(PATIENCE, whole_visit(&way, resumes)).await??);
        }
        Ok::<_, Failure>(answers)
    };
    on_thread(work).join().map_err(|_| PANICKED)??
}

/// Task that is done at the same time, over and over, until it is stopped.
#[derive(Clone, Copy)]
pub(crate) enum Task {
    Visits { resumes: bool },
    Bulk,
}

/// Clients at work.
pub(crate) struct Work {
    counts: Arc<Counts>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<(), Failure>>,
}

/// Counts of work so far.
#[derive(Default)]
struct Counts {
    done: AtomicU64,
    resumed: AtomicU64,
    /// First error.
    failure: Mutex<Option<String>>,
}

impl Work {
    /// Starts so many clients.
    pub(crate) fn start(way: &Arc<Way>, task: Task, clients: usize) -> Self {
        let (counts, stop) = (Arc::<Counts>::default(), Arc::<AtomicBool>::default());
        let (way, counted, stopped) = (Arc::clone(way), Arc::clone(&counts), Arc::clone(&stop));
        let work = async move {
            let mut all = tokio::task::JoinSet::new();
            for _ in 0..clients {
                let (way, counts) = (Arc::clone(&way), Arc::clone(&counted));
                let stop = Arc::clone(&stopped);
                all.spawn(async move {
                    let ended = match task {
                        Task::Visits { resumes } => visits(&way, resumes, &counts, &stop).await,
                        Task::Bulk => drain(&way, &counts, &stop).await,
                    };
                    counts.note(ended);
                });
            }
            while let Some(ended) = all.join_next().await {
                counted.note(ended.map_err(Into::into));
            }
        };
        Self { counts, stop, thread: on_thread(work) }
    }

    /// Visits, or bytes; and of visits those that were resumed.
    pub(crate) fn done(&self) -> (u64, u64) {
        let Counts { done, resumed, .. } = &*self.counts;
        (done.load(Ordering::Relaxed), resumed.load(Ordering::Relaxed))
    }

    /// Has them end.
    ///
    /// # Errors
    /// What went wrong first.
    pub(crate) fn end(self) -> Result<(), Failure> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| PANICKED)??;
        let failure = self.counts.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        failure.map_or(Ok(()), |failure| Err(failure.into()))
    }
}

impl Counts {
    fn note(&self, ended: Result<(), Failure>) {
        if let Err(failure) = ended {
            let mut first = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert_with(|| failure.to_string());
        }
    }
}

async fn visits(
    way: &Way,
    resumes: bool,
    counts: &Counts,
    stop: &AtomicBool,
) -> Result<(), Failure> {
    while !stop.load(Ordering::Relaxed) {
        let (answer, _) = timeout(PATIENCE, visit(way, resumes)).await??;
        counts.done.fetch_add(1, Ordering::Relaxed);
        counts.resumed.fetch_add(answer.resumed.into(), Ordering::Relaxed);
    }
    Ok(())
}

/// Reads the long answer; its head counts with it.
async fn drain(way: &Way, counts: &Counts, stop: &AtomicBool) -> Result<(), Failure> {
    let mut stream = way.open(true).await?;
    stream.write_all(LONG).await?;
    let mut room = vec![0; PIECE];
    while !stop.load(Ordering::Relaxed) {
        let read = timeout(PATIENCE, stream.read(&mut room)).await??;
        if read == 0 {
            return Err("the answer ends".into());
        }
        counts.done.fetch_add(read as u64, Ordering::Relaxed);
    }
    Ok(())
}
