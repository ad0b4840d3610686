//! The spare connections of a connector: connects, watches and closes what
//! [`SparePool`] decides.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use headstart_sessions::{Moment, Network, SpareKey, SparePool, TakenSpare, Vain, Whose};
use socket2::SockRef;
use tokio::io::ReadBuf;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

use crate::clock::BootClock;
use crate::netlink::{self, Change};
use crate::race::{ATTEMPT_DELAY, Race, RaceError, RaceWinner};
use crate::tcp_info::TcpInfo;

/// Time that a spare may take to connect.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Time that the machine may have slept while a spare was held: routers have forgotten it then.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// The spare connections that all connections of a connector share.
pub(super) struct Spares {
    shared: Mutex<Shared>,
    start: Instant,
    boot: BootClock,
}

struct Shared {
    pool: SparePool<Spare>,
    /// The task that keeps the spares.
    keeper: Option<Waker>,
}

/// An idle connection.
#[derive(Debug)]
pub(super) struct Spare {
    pub(super) stream: TcpStream,
    /// Time that it took to connect.
    pub(super) rtt: Duration,
    network: Option<Network>,
    connected: std::time::Instant,
}

impl Spares {
    pub(super) fn new(limit: usize) -> Self {
        let shared = Shared { pool: SparePool::new(limit), keeper: None };
        Self { shared: Mutex::new(shared), start: Instant::now(), boot: BootClock::start() }
    }

    /// Closes all spares, and holds at most `limit` from now on.
    pub(super) fn reset(&self, limit: usize) {
        self.change(|pool, now| count_vain(pool.reset(limit, now)));
    }

    pub(super) fn is_on(&self) -> bool {
        self.lock().pool.is_on()
    }

    /// Learns from an opening that went plain, and plans spares.
    pub(super) fn on_opening(&self, key: &SpareKey, address: SocketAddr, rtt: Duration) {
        self.change(|pool, now| pool.on_opening(key, address, rtt, now));
    }

    /// Returns true if a spare for `key` is held at one of the addresses that `has` knows.
    pub(super) fn has(&self, key: &SpareKey, has: impl Fn(SocketAddr) -> bool) -> bool {
        self.lock().pool.has(key, has)
    }

    /// Lends a spare that is alive as far as the kernel knows.
    pub(super) fn lend(
        self: &Arc<Self>,
        key: &SpareKey,
        has: impl Fn(SocketAddr) -> bool,
    ) -> Option<Loan> {
        self.change(|pool, now| {
            loop {
                let taken = pool.take(key, now, &has)?;
                let Spare { stream, connected, .. } = &taken.connection;
                let acked = bytes_acked(stream).ok();
                let slept = self.boot.now().saturating_duration_since(*connected);
                let awake = now.at.saturating_sub(taken.since);
                if let (true, Some(acked)) = (is_idle(stream), acked)
                    && slept <= awake + SLEEP_MAX
                {
                    return Some(Loan { taken: Some(taken), acked, spares: Arc::clone(self) });
                }
                pool.on_vain(key, Vain::Closed(awake), now);
                count_vain(1);
            }
        })
    }

    fn on_used(&self, key: &SpareKey) {
        self.change(|pool, _| pool.on_used(key));
        count(1, "used");
    }

    fn on_vain(&self, taken: &TakenSpare<Spare>, why: impl FnOnce(Duration) -> Vain) {
        self.change(|pool, now| {
            pool.on_vain(&taken.key, why(now.at.saturating_sub(taken.since)), now);
        });
        count_vain(1);
    }

    pub(super) fn forget(&self, whose: Whose<'_>) {
        self.change(|pool, now| count_vain(pool.forget(whose, now)));
    }

    /// Closes the spares that came from a network that the machine leaves.
    pub(super) fn leave(&self, change: Change) {
        let left = |spare: &Spare| match (change, spare.network) {
            (Change::Address(address), Some(network)) => network.local == address,
            (Change::Interface(interface), Some(network)) => network.interface == interface,
            (Change::Anything, _) | (_, None) => true,
        };
        self.change(|pool, now| count_vain(pool.leave(now, left)));
    }

    /// Keeps the spares for as long as it is awaited; closes them when it is dropped.
    pub(super) async fn keep(&self) -> Infallible {
        let _close = CloseOnDrop(self);
        let mut connecting = Vec::new();
        let mut timer = Box::pin(tokio::time::sleep(Duration::ZERO));
        poll_fn(|cx| {
            while self.poll_keep(cx, &mut connecting, timer.as_mut()) {}
            Poll::Pending
        })
        .await
    }

    /// Does what is due. Returns true if more may be.
    fn poll_keep(
        &self,
        cx: &mut Context<'_>,
        connecting: &mut Vec<(u64, Race)>,
        mut timer: Pin<&mut Sleep>,
    ) -> bool {
        let now = self.now();
        let mut over = Vec::new();
        connecting.retain_mut(|(id, race)| {
            if !self.lock().pool.is_wanted(*id) {
                return false;
            }
            let Poll::Ready(outcome) = race.poll_winner(cx) else { return true };
            over.push((*id, outcome));
            false
        });
        let mut shared = self.lock();
        shared.keeper = Some(cx.waker().clone());
        let pool = &mut shared.pool;
        over.into_iter().for_each(|(id, outcome)| self.on_connected(pool, id, outcome, now));
        count_vain(pool.expire(now));
        count_vain(pool.drop_if(now, |spare, age| {
            (!poll_idle(&spare.stream, cx)).then_some(Vain::Closed(age))
        }));
        let before = connecting.len();
        while let Some((id, address)) = pool.poll_open(now) {
            connecting.push((id, Race::new([address], ATTEMPT_DELAY).with_limit(CONNECT_MAX)));
        }
        metrics::gauge!("headstart_spares_held")
            .set(u32::try_from(pool.held()).unwrap_or(u32::MAX));
        let Some(next) = pool.timeout() else { return connecting.len() > before };
        drop(shared);
        let deadline = self.start + next;
        if timer.deadline() != deadline {
            timer.as_mut().reset(deadline);
        }
        timer.poll(cx).is_ready() || connecting.len() > before
    }

    fn on_connected(
        &self,
        pool: &mut SparePool<Spare>,
        id: u64,
        outcome: Result<RaceWinner, RaceError>,
        now: Moment,
    ) {
        match outcome {
            Ok(won) => {
                let spare = Spare {
                    network: netlink::network_to(won.addr.ip()).ok(),
                    rtt: won.rtt,
                    stream: won.stream,
                    connected: self.boot.now(),
                };
                pool.put(id, spare, now);
            }
            Err(error) => {
                tracing::debug!(%error, "no spare");
                count_vain(pool.fail(id, now));
            }
        }
    }

    /// Changes the pool, and has the keeper do what follows.
    fn change<T>(&self, work: impl FnOnce(&mut SparePool<Spare>, Moment) -> T) -> T {
        let now = self.now();
        let mut shared = self.lock();
        let result = work(&mut shared.pool, now);
        if let Some(keeper) = shared.keeper.take() {
            keeper.wake();
        }
        result
    }

    fn now(&self) -> Moment {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Moment { at: self.start.elapsed(), of_day: since_epoch }
    }

    /// Locks the pool, poisoned or not: no invariant spans two calls.
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Spares {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spares").finish_non_exhaustive()
    }
}

/// A spare that was taken, until it has shown whether it is alive. One that is dropped counts as
/// used if the server has acknowledged a byte.
#[derive(Debug)]
pub(super) struct Loan {
    taken: Option<TakenSpare<Spare>>,
    /// Bytes acknowledged before.
    acked: u64,
    spares: Arc<Spares>,
}

impl Loan {
    pub(super) fn spare(&mut self) -> Option<&mut Spare> {
        self.taken.as_mut().map(|taken| &mut taken.connection)
    }

    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.taken.as_ref().map(|taken| taken.address)
    }

    /// Returns true if the server has any byte; also if the kernel does not say.
    pub(super) fn is_acked(&self) -> bool {
        let acked = self.taken.as_ref().map(|taken| bytes_acked(&taken.connection.stream));
        acked.is_none_or(|acked| acked.map_or(true, |acked| acked > self.acked))
    }

    /// Ends the loan of a spare that is alive.
    pub(super) fn keep(mut self) -> Option<TakenSpare<Spare>> {
        let taken = self.taken.take()?;
        self.spares.on_used(&taken.key);
        Some(taken)
    }

    /// Ends the loan of a spare that is dead. Bytes on their way should not arrive beside those of
    /// another connection: it is reset.
    pub(super) fn discard(mut self) {
        let Some(taken) = self.taken.take() else { return };
        let _ = taken.connection.stream.set_zero_linger();
        self.spares.on_vain(&taken, Vain::Closed);
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        match &self.taken {
            Some(taken) if self.is_acked() => self.spares.on_used(&taken.key),
            Some(taken) => self.spares.on_vain(taken, |_| Vain::Dropped),
            None => {}
        }
    }
}

struct CloseOnDrop<'a>(&'a Spares);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.reset(0);
        metrics::gauge!("headstart_spares_held").set(0);
    }
}

/// Returns true if the server has neither sent nor closed anything; else the task of `cx` learns of
/// it.
fn poll_idle(stream: &TcpStream, cx: &mut Context<'_>) -> bool {
    let mut byte = [0];
    stream.poll_peek(cx, &mut ReadBuf::new(&mut byte)).is_pending()
}

/// Returns true if the server has neither sent nor closed anything, as far as the kernel knows.
fn is_idle(stream: &TcpStream) -> bool {
    let peeked = SockRef::from(stream).peek(&mut [MaybeUninit::uninit()]);
    peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

/// Returns the number of bytes that the server's kernel has acknowledged.
fn bytes_acked(stream: &TcpStream) -> io::Result<u64> {
    Ok(TcpInfo::read(stream)?.bytes_acked())
}

fn count_vain(spares: usize) {
    count(spares, "in_vain");
}

fn count(spares: usize, outcome: &'static str) {
    let spares = u64::try_from(spares).unwrap_or(u64::MAX);
    metrics::counter!("headstart_spares_total", "outcome" => outcome).increment(spares);
}
