//! The thread that carries packets between the nodes of a lab, through their links.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use hdrhistogram::Histogram;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use socket2::Socket;

use crate::switch::Switch;
use crate::{LinkCounts, Packet, sys};

/// How long before a deadline the thread stops sleeping and starts to look at the clock.
///
/// A sleep wakes 20-90 us late in the middle and about 160 us late at the 99th percentile (measured, idle machine).
const SPIN: Duration = Duration::from_micros(200);

/// Frames read from one socket in a row, so that a flood at one port does not hold up what is due at others.
const READ_BUDGET: usize = 64;

/// Room for the largest frame; with offloads off none is larger than 1,514 bytes.
const MAX_FRAME: usize = 65_536 + ETHERNET_HEADER;

const ETHERNET_HEADER: usize = 14;

/// Lowest real-time priority above 0: enough to go before every ordinary thread.
const PRIORITY: i32 = 1;

/// Lateness above this counts as this; it only bounds the histogram.
const MAX_LATENESS: Duration = Duration::from_secs(10);

/// A kernel time stamp further off than this is a step of the wall clock, not a wait in the socket.
const MAX_STAMP_AGE: Duration = Duration::from_secs(1);

/// What the forwarder did so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// By node, in the order they were given.
    pub ports: Vec<PortCounters>,
    /// Packets for addresses that no node has, multicast included.
    pub unroutable: u64,
    /// How late packets left, measured against the moment they were due.
    pub lateness: Lateness,
}

/// Packets of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// From the node into the network.
    pub outbound: LinkCounts,
    /// From the network to the node.
    pub inbound: LinkCounts,
    /// Frames of the node that the kernel dropped because the forwarder was too slow: a figure above 0 spoils a run.
    pub missed: u64,
    /// Packets to the node that the kernel would not take: a figure above 0 spoils a run.
    pub refused: u64,
}

/// The forwarder's own delay: time from when a packet was due to when it was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// Packets measured.
    pub count: u64,
    /// Median.
    pub p50: Duration,
    /// 99th percentile.
    pub p99: Duration,
    /// Largest.
    pub max: Duration,
}

/// The far end of one node's interface.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) socket: Socket,
    /// The node's hardware address.
    pub(crate) node: [u8; 6],
    /// This end's hardware address.
    pub(crate) own: [u8; 6],
}

/// A running forwarder; it stops when dropped.
#[derive(Debug)]
pub(crate) struct Forwarder {
    shared: Arc<Mutex<Shared>>,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread and its owner both touch; never locked while waiting.
#[derive(Debug)]
struct Shared {
    switch: Switch,
    wires: Vec<Arc<Wire>>,
    counters: Vec<WireCounters>,
    lateness: Histogram<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct WireCounters {
    missed: u64,
    refused: u64,
}

impl Forwarder {
    /// Starts forwarding; wire N is port N of the switch.
    pub(crate) fn start(switch: Switch, wires: Vec<Wire>) -> io::Result<Forwarder> {
        let lateness = Histogram::new_with_max(nanos(MAX_LATENESS), 3).map_err(io::Error::other)?;
        let counters = vec![WireCounters::default(); wires.len()];
        let wires: Vec<_> = wires.into_iter().map(Arc::new).collect();
        let shared =
            Arc::new(Mutex::new(Shared { switch, wires: wires.clone(), counters, lateness }));
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let mut turn = Turn {
            shared: Arc::clone(&shared),
            clock: Clock { epoch: Instant::now() },
            frame: vec![0; MAX_FRAME].into(),
        };
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new()
            .name("lab forwarder".into())
            .spawn(move || turn.run(&wires, &stopped))?;
        Ok(Forwarder { shared, stop, thread: Some(thread) })
    }

    /// Changes the switch while packets flow.
    pub(crate) fn with_switch<T>(&self, change: impl FnOnce(&mut Switch) -> T) -> T {
        change(&mut lock(&self.shared).switch)
    }

    pub(crate) fn counters(&self) -> Counters {
        lock(&self.shared).counters()
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        let stop = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        // A thread that cannot be told to stop must not be waited for.
        if let (Ok(_), Some(thread)) = (stop, self.thread.take()) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn counters(&mut self) -> Counters {
        self.count_missed();
        let counters = self.counters.iter();
        let ports = self.switch.ports_mut().iter().zip(counters).map(|(port, wire)| PortCounters {
            outbound: port.outbound.counts(),
            inbound: port.inbound.counts(),
            missed: wire.missed,
            refused: wire.refused,
        });
        let ports = ports.collect();
        let quantile = |share| Duration::from_nanos(self.lateness.value_at_quantile(share));
        let lateness = Lateness {
            count: self.lateness.len(),
            p50: quantile(0.5),
            p99: quantile(0.99),
            max: Duration::from_nanos(self.lateness.max()),
        };
        Counters { ports, unroutable: self.switch.unroutable(), lateness }
    }

    /// The kernel's figure starts again at each reading.
    fn count_missed(&mut self) {
        for (wire, counters) in self.wires.iter().zip(&mut self.counters) {
            counters.missed += sys::take_missed(&wire.socket).map_or(0, u64::from);
        }
    }
}

/// The forwarder thread's own state.
struct Turn {
    shared: Arc<Mutex<Shared>>,
    clock: Clock,
    frame: Box<[u8]>,
}

impl Turn {
    fn run(&mut self, wires: &[Arc<Wire>], stop: &OwnedFd) {
        // Both only make waits more exact; without them the lateness figures say how much was lost.
        let _ = sys::set_realtime_priority(PRIORITY);
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut fds = vec![PollFd::new(stop, PollFlags::IN)];
        fds.extend(wires.iter().map(|wire| PollFd::new(&wire.socket, PollFlags::IN)));
        loop {
            let due = lock(&self.shared).switch.next_due();
            if self.wait(&mut fds, due).is_err() || !fds[0].revents().is_empty() {
                return;
            }
            for (port, wire) in
                wires.iter().enumerate().filter(|(port, _)| !fds[port + 1].revents().is_empty())
            {
                self.read(port, wire);
            }
            self.send_due(wires);
        }
    }

    /// Waits until a packet came, `due` came, or it is time to ask again.
    fn wait(&self, fds: &mut [PollFd<'_>], due: Option<Duration>) -> Result<(), Errno> {
        let Some(due) = due else {
            return ready(fds, None).map(drop);
        };
        let left = due.saturating_sub(self.clock.now());
        if left > SPIN {
            return ready(fds, Some(left - SPIN)).map(drop);
        }
        while !ready(fds, Some(Duration::ZERO))? && self.clock.now() < due {}
        Ok(())
    }

    fn read(&mut self, port: usize, wire: &Wire) {
        for _ in 0..READ_BUDGET {
            let Ok((length, stamp)) = sys::receive(&wire.socket, &mut self.frame) else {
                return;
            };
            let ip = self.frame.get(ETHERNET_HEADER..length).unwrap_or_default();
            if let Some(packet) = Packet::from_ip(ip.to_vec()) {
                let at = self.clock.at(stamp);
                lock(&self.shared).switch.handle(at, port, packet);
            }
        }
    }

    fn send_due(&mut self, wires: &[Arc<Wire>]) {
        loop {
            let mut shared = lock(&self.shared);
            let now = self.clock.now();
            let Some(departure) = shared.switch.poll(now) else {
                return;
            };
            shared.lateness.saturating_record(nanos(now.saturating_sub(departure.due)));
            let sent = wires
                .get(departure.port)
                .is_some_and(|wire| wire.send(&departure.packet, &mut self.frame));
            if let Some(counters) = shared.counters.get_mut(departure.port).filter(|_| !sent) {
                counters.refused += 1;
            }
        }
    }
}

impl Wire {
    /// Sends the packet to the node, using `frame` as room; false if the kernel would not take it.
    fn send(&self, packet: &Packet, frame: &mut [u8]) -> bool {
        let Some(ether_type) = packet.ether_type() else {
            return false;
        };
        let length = ETHERNET_HEADER + packet.bytes.len();
        let Some(frame) = frame.get_mut(..length) else {
            return false;
        };
        let (header, payload) = frame.split_at_mut(ETHERNET_HEADER);
        let fields = self.node.iter().chain(&self.own).chain(&ether_type);
        header.iter_mut().zip(fields).for_each(|(to, from)| *to = *from);
        payload.copy_from_slice(&packet.bytes);
        self.socket.send(frame).is_ok()
    }
}

/// Time since the forwarder started.
struct Clock {
    epoch: Instant,
}

impl Clock {
    fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// When the kernel received a frame, which may be well before this thread got to it.
    fn at(&self, stamp: Option<Duration>) -> Duration {
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let age =
            stamp.and_then(|stamp| wall.checked_sub(stamp)).filter(|age| *age <= MAX_STAMP_AGE);
        self.now().saturating_sub(age.unwrap_or_default())
    }
}

/// Waits for something to read, at most `timeout`.
fn ready(fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> Result<bool, Errno> {
    // A wait longer than the type can say is as good as for ever.
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    match poll(fds, timeout.as_ref()) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error),
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// No step under the lock leaves a half-made state behind, so a poisoned lock is as good as any.
fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
