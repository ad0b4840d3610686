//! The processes of one edge, when one takes over from another: joins reach the process that has
//! their session.

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use headstart_proto::hello::{self, Progress};
use headstart_proto::host;
use headstart_proto::join::{Join, REFUSAL};
use tokio::sync::{Semaphore, mpsc};

use crate::closing::close_after_drain;

/// Joins that may wait at one time for an acceptor, or for another process.
const STRAYS_MAX: usize = 1024;

/// Refused joins that are read on at one time, so that a flood of them costs few files; others are
/// closed at once.
static REFUSED: Semaphore = Semaphore::const_new(STRAYS_MAX);

/// The same by host.
static REFUSED_HOSTS: LazyLock<Arc<ByHost>> = LazyLock::new(Arc::default);

/// Joins of one IPv4 address or IPv6 /64 that may wait at one time for another process, or be read
/// on: anybody can make up joins, and only that process can tell.
const HOST_STRAYS_MAX: usize = STRAYS_MAX / 16;

/// A TCP connection that begins with a join for a session of another process of this edge.
#[derive(Debug)]
pub struct StrayJoin {
    /// The connection, not blocking.
    pub tcp: TcpStream,
    /// Address of the client where the connection is not its own: another process relays it, or a
    /// balancer.
    pub client: Option<SocketAddr>,
    /// All that was read from it.
    pub read: Vec<u8>,
    permit: Option<HostPermit>,
}

/// Joins that wait for another process, by their clients' hosts.
type ByHost = Mutex<HashMap<IpAddr, usize>>;

/// Counts a join that waits, until it is dropped.
#[derive(Debug)]
struct HostPermit {
    host: IpAddr,
    by_host: Arc<ByHost>,
}

/// Direction in which a join is passed on; it never turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the process from which this one took over.
    Back,
    /// To the process that took over from this one.
    Onward,
}

/// An acceptor, as far as joins of other processes are concerned.
pub(super) trait SessionHolder: Send + Sync + std::fmt::Debug {
    /// Returns true if another process may have the session of a join.
    fn is_stray(&self, join: &Join) -> bool;
}

/// The way of a join to an acceptor of this process, and the direction from there.
pub(super) type Stray = (StrayJoin, Direction);

/// This process among those of its edge.
#[derive(Debug, Default)]
pub struct Generations(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    back: Option<mpsc::Sender<StrayJoin>>,
    onward: Option<mpsc::Sender<StrayJoin>>,
    waiting: Arc<ByHost>,
    acceptors: Vec<(Weak<dyn SessionHolder>, mpsc::Sender<Stray>)>,
}

impl Generations {
    /// Returns the joins that are to be passed in a direction from now on, to be sent to the
    /// process there. Once the receiver is dropped they are decided here.
    #[must_use]
    pub fn link(&self, direction: Direction) -> mpsc::Receiver<StrayJoin> {
        let (sender, receiver) = mpsc::channel(STRAYS_MAX);
        let mut state = self.lock();
        match direction {
            Direction::Back => state.back = Some(sender),
            Direction::Onward => state.onward = Some(sender),
        }
        receiver
    }

    /// Takes a join that came in a direction from another process: gives it to its session, passes
    /// it on, or refuses it.
    ///
    /// # Errors
    /// It is no join, or its connection has closed.
    pub fn take(&self, stray: StrayJoin, direction: Direction) -> io::Result<()> {
        let join = read_join(&stray.read).ok_or(io::ErrorKind::InvalidData)?;
        let given = match self.owner(&join) {
            Some(owner) => give(&owner, stray, direction),
            None => Err(stray),
        };
        let Err(stray) = given else { return Ok(()) };
        let Err(stray) = self.pass(stray, Some(direction)) else { return Ok(()) };
        stray.refuse()
    }

    /// Returns the way to the acceptor of this process that has the session of a join.
    pub(super) fn owner(&self, join: &Join) -> Option<mpsc::Sender<Stray>> {
        let mut state = self.lock();
        state.acceptors.retain(|(acceptor, _)| acceptor.strong_count() > 0);
        let is_owner = |acceptor: &Weak<dyn SessionHolder>| {
            acceptor.upgrade().is_some_and(|acceptor| !acceptor.is_stray(join))
        };
        let owner = state.acceptors.iter().find(|(acceptor, _)| is_owner(acceptor));
        owner.map(|(_, strays)| strays.clone())
    }

    /// Passes a join in the direction in which it came, or else to whoever there is; returns it if
    /// nobody takes it.
    pub(super) fn pass(
        &self,
        mut stray: StrayJoin,
        direction: Option<Direction>,
    ) -> Result<(), StrayJoin> {
        let state = self.lock();
        let Some(way) = state.way(direction) else { return Err(stray) };
        let Ok(client) = stray.peer() else { return Err(stray) };
        stray.permit = HostPermit::take(&state.waiting, client.ip());
        if stray.permit.is_none() {
            metrics::counter!("headstart_limits_hit_total", "limit" => "stray_joins").increment(1);
            return Err(stray);
        }
        way.try_send(stray).map_err(mpsc::error::TrySendError::into_inner)
    }

    /// Returns true if there is a process to pass a join to.
    pub(super) fn has_way(&self, direction: Option<Direction>) -> bool {
        self.lock().way(direction).is_some()
    }

    /// Has joins for sessions of `acceptor` given to the returned receiver.
    pub(super) fn enter(&self, acceptor: Weak<dyn SessionHolder>) -> mpsc::Receiver<Stray> {
        let (sender, receiver) = mpsc::channel(STRAYS_MAX);
        self.lock().acceptors.push((acceptor, sender));
        receiver
    }

    /// Locks the state, poisoned or not: a panic under the lock leaves nothing half done.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns the way in a direction, or to whoever there is.
    fn way(&self, direction: Option<Direction>) -> Option<&mpsc::Sender<StrayJoin>> {
        let back = self.back.as_ref().filter(|way| !way.is_closed());
        let onward = self.onward.as_ref().filter(|way| !way.is_closed());
        match direction {
            Some(Direction::Back) => back,
            Some(Direction::Onward) => onward,
            None => onward.or(back),
        }
    }
}

impl StrayJoin {
    /// Makes a join of a connection, not blocking, and of all that was read from it; `client` is
    /// set where the connection is not the client's own.
    #[must_use]
    pub const fn new(tcp: TcpStream, client: Option<SocketAddr>, read: Vec<u8>) -> Self {
        Self { tcp, client, read, permit: None }
    }

    /// Refuses a join that nobody takes, and lets the client read that.
    ///
    /// # Errors
    /// The connection has closed.
    pub fn refuse(self) -> io::Result<()> {
        // What does not fit was not wanted: there is nobody to serve the connection.
        (&self.tcp).write(&REFUSAL).map(drop)?;
        let host =
            self.peer().ok().and_then(|client| HostPermit::take(&REFUSED_HOSTS, client.ip()));
        if let (Ok(permit), Some(host)) = (REFUSED.try_acquire(), host) {
            let tcp = tokio::net::TcpStream::from_std(self.tcp)?;
            tokio::spawn(async move {
                let _permits = (permit, host);
                close_after_drain(tcp).await
            });
        }
        Ok(())
    }

    /// Returns the client's address.
    ///
    /// # Errors
    /// The connection has closed.
    pub(super) fn peer(&self) -> io::Result<SocketAddr> {
        self.client.map_or_else(|| self.tcp.peer_addr(), Ok)
    }
}

impl HostPermit {
    /// Counts a join of `client`; `None` if too many of its host wait.
    fn take(by_host: &Arc<ByHost>, client: IpAddr) -> Option<Self> {
        let host = host(client);
        let mut waiting = by_host.lock().unwrap_or_else(PoisonError::into_inner);
        let count = waiting.entry(host).or_default();
        if *count >= HOST_STRAYS_MAX {
            return None;
        }
        *count += 1;
        Some(Self { host, by_host: Arc::clone(by_host) })
    }
}

impl Drop for HostPermit {
    fn drop(&mut self) {
        let mut waiting = self.by_host.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = waiting.get_mut(&self.host) {
            *count -= 1;
            if *count == 0 {
                waiting.remove(&self.host);
            }
        }
    }
}

/// Gives a join to the acceptor that has its session; returns it if too many wait there.
pub(super) fn give(
    owner: &mpsc::Sender<Stray>,
    stray: StrayJoin,
    direction: Direction,
) -> Result<(), StrayJoin> {
    owner.try_send((stray, direction)).map_err(|error| error.into_inner().0)
}

fn read_join(read: &[u8]) -> Option<Join> {
    match hello::read(read) {
        Ok(Progress::Complete(hello)) => Join::read(&hello),
        _ => None,
    }
}

/// Counts what became of a join.
pub(super) fn count_join(outcome: &'static str) {
    metrics::counter!("headstart_joins_total", "outcome" => outcome).increment(1);
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn made_up_joins_of_one_host_leave_room_for_others() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let generations = Generations::default();
        let mut waiting = generations.link(Direction::Back);
        let pass = |client: &str| {
            let client = client.parse().unwrap();
            let stray = StrayJoin::new(tcp.try_clone().unwrap(), Some(client), Vec::new());
            generations.pass(stray, None).is_ok()
        };
        let hosts = |port: usize| format!("[2001:db8::{port:x}]:{port}");
        let passed = (1..=STRAYS_MAX).filter(|port| pass(&hosts(*port))).count();
        assert_eq!(passed, HOST_STRAYS_MAX);
        assert!(pass("[2001:db8:0:1::1]:1") && pass("192.0.2.1:1"), "others");
        waiting.try_recv().unwrap();
        assert!(pass(&hosts(1)), "one is passed on");
        drop(waiting);
        assert!(generations.lock().waiting.lock().unwrap().is_empty());
    }
}
