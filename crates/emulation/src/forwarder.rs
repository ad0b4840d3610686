//! The thread that carries packets between the nodes of a lab, through their links.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use hdrhistogram::Histogram;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use socket2::Socket;

use crate::capture::{Direction, Tap};
use crate::record::{Disturbance, Record};
use crate::schedule::{Exactness, Scheduling};
use crate::switch::Switch;
use crate::{LinkCounts, Packet, sys};

/// Time before a deadline at which the thread stops sleeping and starts to watch the clock.
///
/// A sleep wakes 20-90 us late in the middle and about 160 us late at the 99th percentile
/// (measured, idle machine).
const SPIN: Duration = Duration::from_micros(200);

/// Frames read from one socket in a row, so that a flood at one port does not hold up what is due
/// at others.
const READ_BUDGET: usize = 64;

/// Room for the largest frame; with offloads off none is larger than 1,514 bytes.
const MAX_FRAME: usize = 65_536 + ETHERNET_HEADER;

const ETHERNET_HEADER: usize = 14;

/// Lateness above this counts as this; it only bounds the histogram.
const MAX_LATENESS: Duration = Duration::from_secs(10);

/// A kernel time stamp further off than this is a step of the wall clock or a pause of the machine,
/// not a wait in the socket.
const MAX_STAMP_AGE: Duration = Duration::from_secs(1);

/// Counters of the forwarder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Counters of each node, in the order in which nodes were given.
    pub ports: Vec<PortCounters>,
    /// Packets for addresses that no node has, multicast included.
    pub unroutable: u64,
    /// Lateness of packets, measured against the moment they were due.
    pub lateness: Lateness,
}

/// Packets of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// From the node into the network.
    pub outbound: LinkCounts,
    /// From the network to the node.
    pub inbound: LinkCounts,
    /// Frames of the node that the kernel dropped because the forwarder was too slow: a figure
    /// above 0 spoils a run.
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
    clock: Clock,
    granted: Scheduling,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// State shared by the thread and its owner; never locked while waiting.
#[derive(Debug)]
struct Shared {
    switch: Switch,
    ports: Vec<WirePort>,
    lateness: Histogram<u64>,
    record: Record,
    /// Frames without a usable time stamp of the kernel.
    unstamped: u64,
}

/// One wire and what happened on it.
#[derive(Debug)]
struct WirePort {
    wire: Arc<Wire>,
    missed: u64,
    refused: u64,
    /// Time at which the kernel was last asked for what it dropped.
    polled: Duration,
    tap: Option<Tap>,
}

impl Forwarder {
    /// Starts forwarding; wire N is port N of the switch. Packets later than `late` are put on
    /// record.
    pub(crate) fn start(
        switch: Switch,
        wires: Vec<Wire>,
        pinned: bool,
        late: Duration,
    ) -> io::Result<Forwarder> {
        let wires: Vec<_> = wires.into_iter().map(Arc::new).collect();
        let shared = Arc::new(Mutex::new(Shared::new(switch, &wires, late)?));
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let clock = Clock::start();
        let mut turn =
            Turn { shared: Arc::clone(&shared), clock, frame: vec![0; MAX_FRAME].into() };
        let stopped = Arc::clone(&stop);
        let (started, granted) = mpsc::sync_channel(1);
        let thread = thread::Builder::new().name("lab forwarder".into()).spawn(move || {
            // Only makes waits more exact; without it the lateness figures say how much was lost.
            let _ = started.send(Scheduling::enter_as_forwarder(pinned));
            turn.run(&wires, &stopped);
        })?;
        let granted = granted.recv().map_err(io::Error::other)?;
        Ok(Forwarder { shared, clock, granted, stop, thread: Some(thread) })
    }

    /// Returns how exact the forwarder has been so far.
    pub(crate) fn exactness(&self) -> Exactness {
        Exactness {
            realtime: self.granted.realtime,
            pinned: self.granted.cpu.is_some(),
            timestamps: lock(&self.shared).unstamped == 0,
        }
    }

    /// Returns what the forwarder did wrong between two moments.
    pub(crate) fn disturbance(&self, from: Instant, to: Instant) -> Disturbance {
        let mut shared = lock(&self.shared);
        shared.count_missed(self.clock.now());
        shared.record.between(self.clock.since_epoch(from), self.clock.since_epoch(to))
    }

    /// Shows the packets of a port to a tap from now on, instead of an earlier one; false if there
    /// is no such port.
    pub(crate) fn tap(&self, port: usize, tap: impl FnOnce(SystemTime) -> Tap) -> bool {
        let mut shared = lock(&self.shared);
        let port = shared.ports.get_mut(port);
        port.map(|port| port.tap = Some(tap(self.clock.wall))).is_some()
    }

    /// Changes the switch while packets flow.
    pub(crate) fn with_switch<T>(&self, change: impl FnOnce(&mut Switch) -> T) -> T {
        change(&mut lock(&self.shared).switch)
    }

    pub(crate) fn counters(&self) -> Counters {
        lock(&self.shared).counters(self.clock.now())
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        let stop = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        // A thread that cannot be told to stop must not be joined.
        if let (Ok(_), Some(thread)) = (stop, self.thread.take()) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn new(switch: Switch, wires: &[Arc<Wire>], late: Duration) -> io::Result<Shared> {
        let lateness = Histogram::new_with_max(nanos(MAX_LATENESS), 3).map_err(io::Error::other)?;
        let ports = wires.iter().map(|wire| WirePort {
            wire: Arc::clone(wire),
            missed: 0,
            refused: 0,
            polled: Duration::ZERO,
            tap: None,
        });
        let ports = ports.collect();
        Ok(Shared { switch, ports, lateness, record: Record::new(late), unstamped: 0 })
    }

    fn counters(&mut self, now: Duration) -> Counters {
        self.count_missed(now);
        let links = self.switch.ports_mut().iter();
        let ports = links.zip(&self.ports).map(|(links, port)| PortCounters {
            outbound: links.outbound.counts(),
            inbound: links.inbound.counts(),
            missed: port.missed,
            refused: port.refused,
        });
        let ports = ports.collect();
        let lateness = Lateness {
            count: self.lateness.len(),
            p50: Duration::from_nanos(self.lateness.value_at_quantile(0.5)),
            p99: Duration::from_nanos(self.lateness.value_at_quantile(0.99)),
            max: Duration::from_nanos(self.lateness.max()),
        };
        Counters { ports, unroutable: self.switch.unroutable(), lateness }
    }

    fn count_missed(&mut self, now: Duration) {
        for port in &mut self.ports {
            port.count_missed(now, &mut self.record);
        }
    }

    /// Takes a packet from a node, which came at `stamp` and is read at `now`.
    fn handle(&mut self, now: Duration, stamp: Option<Duration>, number: usize, packet: Packet) {
        if stamp.is_none() {
            self.unstamped += 1;
            // The wait is unknown: assume the longest that would have been believed.
            self.record.sent(now.saturating_sub(MAX_STAMP_AGE), now);
        }
        let at = stamp.unwrap_or(now);
        if let Some(port) = self.ports.get_mut(number) {
            port.show(at, Direction::FromNode, &packet);
        }
        self.switch.handle(at, number, packet);
    }

    /// Sends the next packet that is due, using `frame` as room; false if there is none.
    fn send_next(&mut self, now: Duration, frame: &mut [u8]) -> bool {
        let Some(departure) = self.switch.poll(now) else {
            return false;
        };
        self.lateness.saturating_record(nanos(now.saturating_sub(departure.due)));
        self.record.sent(departure.due, now);
        if let Some(port) = self.ports.get_mut(departure.port) {
            if port.wire.send(&departure.packet, frame) {
                port.show(now, Direction::ToNode, &departure.packet);
            } else {
                port.refused += 1;
                self.record.refused(now);
            }
        }
        true
    }
}

impl WirePort {
    /// The kernel's figure starts again at each reading.
    fn count_missed(&mut self, now: Duration, record: &mut Record) {
        let missed = sys::take_missed(&self.wire.socket).map_or(0, u64::from);
        self.missed += missed;
        record.missed(std::mem::replace(&mut self.polled, now), now, missed);
    }

    fn show(&mut self, at: Duration, direction: Direction, packet: &Packet) {
        if let Some(tap) = &mut self.tap
            && tap.show(at, direction, &packet.bytes).is_break()
        {
            self.tap = None;
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
        // The same as for real-time priority.
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
            self.send_due();
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
                let now = self.clock.now();
                let stamp = stamp.and_then(|stamp| self.clock.at(stamp));
                lock(&self.shared).handle(now, stamp, port, packet);
            }
        }
        // This much arrives at once before frames are lost.
        let now = self.clock.now();
        let mut shared = lock(&self.shared);
        let Shared { ports, record, .. } = &mut *shared;
        if let Some(port) = ports.get_mut(port) {
            port.count_missed(now, record);
        }
    }

    fn send_due(&mut self) {
        loop {
            let mut shared = lock(&self.shared);
            if !shared.send_next(self.clock.now(), &mut self.frame) {
                return;
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
#[derive(Clone, Copy, Debug)]
struct Clock {
    epoch: Instant,
    /// The wall clock at the epoch.
    wall: SystemTime,
}

impl Clock {
    fn start() -> Clock {
        Clock { epoch: Instant::now(), wall: SystemTime::now() }
    }

    fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    fn since_epoch(&self, moment: Instant) -> Duration {
        moment.saturating_duration_since(self.epoch)
    }

    /// Returns the time at which the kernel received a frame, which may be well before this thread
    /// got to it; `None` if the wall clock, by which the kernel stamps, cannot be right.
    fn at(&self, stamp: Duration) -> Option<Duration> {
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
        let age = wall.checked_sub(stamp).filter(|age| *age <= MAX_STAMP_AGE)?;
        Some(self.now().saturating_sub(age))
    }
}

/// Waits for something to read, at most `timeout`.
fn ready(fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> Result<bool, Errno> {
    // A wait longer than the type can hold counts as infinite.
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
