//! Knowledge about the path to an edge: how late its datagrams come, whether they come at all, how
//! many are in flight, and whether the path supports data in the SYN.
//!
//! Pure: the time is an argument. In memory only: observations of a network's treatment of UDP end
//! with the process. Every table is bounded; a full table evicts the least recently used entry, and
//! that path is then simply new again. Where users share a table, the user with the most entries
//! loses one.

mod bounded;
mod connects;
mod standing;
mod syn;
mod window;

pub(crate) use connects::SecondAdvice;
pub use standing::{PathReason, SILENCES_TO_BLOCK};
pub(crate) use syn::SynAdvice;

pub(crate) use bounded::Bounded;
use connects::Connects;
use standing::{GAINLESS_TO_BLOCK, Standing};
use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use syn::SynTables;
use window::{Grant, Window};

use headstart_proto::GraceEstimator;

use crate::advert::SLOTS_MAX;

/// Paths remembered; about 300 bytes each, 300 kB.
const PATHS: usize = 1024;

/// Names whose flights are remembered; at most 300 bytes each, 300 kB.
const NAMES: usize = 1024;

/// Edges remembered for a committed refusal; about 100 bytes each, 100 kB.
const REFUSALS: usize = 1024;

/// Longest name that is remembered, in bytes: a host name has no more (RFC 1035).
const NAME_MAX: usize = 253;

/// Time during which an edge that refused a committed join is not tried again.
///
/// The application saw a reset, the one harm TurboTLS can do: at most once a day.
const RESET_LIFE: Duration = Duration::from_secs(24 * 3600);

/// A path through one network to one edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PathKey {
    /// Local address, which stands for the network.
    pub(crate) local: IpAddr,
    /// UDP and TCP address of the edge.
    pub(crate) edge: SocketAddr,
}

/// Result of an opening over TurboTLS, as far as the path is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A datagram came in time.
    Opened {
        /// Time that TCP took to connect.
        rtt: Duration,
        /// Time of the first datagram after TCP connected; zero if before.
        lag: Duration,
    },
    /// No datagram came within the grace: the connection fell back to TCP.
    Silent,
    /// After [`Silent`](Self::Silent) for the same connection, or without a wait, a datagram still
    /// came.
    Late {
        /// True after [`Silent`](Self::Silent).
        awaited: bool,
        /// Time that TCP took to connect.
        rtt: Duration,
        /// Time of the first datagram after TCP connected.
        lag: Duration,
    },
    /// ICMP reported that the edge's UDP port cannot be reached.
    Unreachable,
    /// The edge refused a join without harm: nothing had been delivered.
    Refused,
    /// The edge refused a join to which the application was committed: it saw a reset.
    Reset,
}

/// Advice on opening over TurboTLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advice {
    /// Use it.
    Turbo {
        /// Computes the wait for the first datagram once TCP is connected.
        grace: GraceEstimator,
        /// True if the last opening had an answer in time: the path carries datagrams.
        proven: bool,
        /// True if this is the one attempt after a back-off: report its outcome soon.
        probe: bool,
    },
    /// Do not use it.
    Plain {
        /// Reason.
        reason: PathReason,
        /// Time to ask again.
        until: Instant,
    },
}

/// Knowledge about all paths; shared by all connections.
#[derive(Debug, Default)]
pub(crate) struct PathMemory {
    tables: Mutex<Tables>,
}

#[derive(Debug)]
struct Tables {
    paths: Bounded<PathKey, Path>,
    resets: Bounded<SocketAddr, Instant>,
    flights: Bounded<Box<str>, u8>,
    syn: SynTables,
    connects: Connects,
}

#[derive(Clone, Copy, Debug, Default)]
struct Path {
    grace: GraceEstimator,
    standing: Standing,
    /// Openings that gained nothing, less those that gained.
    gainless: u8,
    window: Window,
}

impl Default for Tables {
    fn default() -> Self {
        Self {
            paths: Bounded::new(PATHS),
            resets: Bounded::new(REFUSALS),
            flights: Bounded::new(NAMES),
            syn: SynTables::default(),
            connects: Connects::default(),
        }
    }
}

impl PathMemory {
    /// Advises whether to use TurboTLS on `key` now.
    ///
    /// After a back-off, only the first caller is advised to probe; the others do without until it
    /// reports, or for [`PROBE_LIFE`](standing::PROBE_LIFE).
    pub(crate) fn advise(&self, key: PathKey, now: Instant) -> Advice {
        let mut tables = self.lock();
        if let Some(until) = tables.resets.get(&key.edge).copied().filter(|until| now < *until) {
            return Advice::Plain { reason: PathReason::Reset, until };
        }
        let Some(path) = tables.paths.get(&key) else {
            let grace = GraceEstimator::default();
            return Advice::Turbo { grace, proven: false, probe: false };
        };
        match path.standing.ask(now) {
            Ok(probe) => {
                // While the first flight is on its way, there is an entry for its slots alone.
                let answered = path.grace != GraceEstimator::default();
                let proven = answered && path.standing == Standing::Good;
                Advice::Turbo { grace: path.grace, proven, probe }
            }
            Err((reason, until)) => Advice::Plain { reason, until },
        }
    }

    /// Learns from an opening on `key`.
    pub(crate) fn record(&self, key: PathKey, outcome: Outcome, now: Instant) {
        let mut tables = self.lock();
        if outcome == Outcome::Reset {
            tables.resets.insert(key.edge, now + RESET_LIFE);
            return;
        }
        let path = tables.paths.get_or_default(key);
        match outcome {
            Outcome::Opened { rtt, lag } => {
                path.window.join(now);
                path.opened(rtt, lag, now);
            }
            Outcome::Late { awaited, rtt, lag } => path.late(awaited, rtt, lag, now),
            Outcome::Silent => path.standing.silent(now),
            Outcome::Unreachable => path.standing.block(PathReason::Unreachable, now),
            Outcome::Refused => path.standing.block(PathReason::Refused, now),
            Outcome::Reset => {}
        }
    }

    /// Forgets everything about the network of `local`, for example after leaving it.
    ///
    /// Refusals by an edge stay: they do not depend on the network.
    pub(crate) fn forget_network(&self, local: IpAddr) {
        let mut tables = self.lock();
        tables.paths.retain(|key, _| key.local != local);
        tables.syn.forget_network(local);
        tables.connects.forget_network(local);
    }

    /// Returns how many server datagrams the last flight from `name` took, if known.
    pub(crate) fn slots_for(&self, name: &str) -> Option<u8> {
        self.lock().flights.get(&flight_key(name)?).copied()
    }

    /// Records that a complete first flight from `name` took `datagrams`, counted up to
    /// [`SLOTS_MAX`]; zero is ignored.
    pub(crate) fn record_flight(&self, name: &str, datagrams: usize) {
        self.record_slots(name, datagrams, |_, new| new);
    }

    /// Records that a first flight from `name` took `datagrams` or more: its end was not seen.
    pub(crate) fn record_long_flight(&self, name: &str, datagrams: usize) {
        self.record_slots(name, datagrams, u8::max);
    }

    fn record_slots(&self, name: &str, datagrams: usize, choose: impl FnOnce(u8, u8) -> u8) {
        let new = u8::try_from(datagrams).unwrap_or(SLOTS_MAX).min(SLOTS_MAX);
        if let Some(key) = flight_key(name).filter(|_| new > 0) {
            let flights = &mut self.lock().flights;
            let slots = choose(flights.get(&key).copied().unwrap_or(0), new);
            flights.insert(key, slots);
        }
    }

    /// Reserves as many of `slots` slots of `slot_bytes` as fit the path's [`Window`].
    ///
    /// Returns `None` if not even one fits. They are in flight until the reservation is dropped.
    pub(crate) fn reserve_slots(
        self: &Arc<Self>,
        key: PathKey,
        slots: usize,
        slot_bytes: usize,
        now: Instant,
    ) -> Option<SlotReservation> {
        let grant = self.lock().paths.get_or_default(key).window.grant(slots, slot_bytes, now)?;
        Some(SlotReservation { memory: self.clone(), key, grant })
    }

    /// Returns true if many openings are in flight on `key`.
    pub(crate) fn is_crowded(&self, key: PathKey) -> bool {
        self.with_window(key, |window| window.is_crowded()).unwrap_or(false)
    }

    /// Uses the window of `key`, unless the path is forgotten.
    fn with_window<T>(&self, key: PathKey, work: impl FnOnce(&mut Window) -> T) -> Option<T> {
        self.lock().paths.get(&key).map(|path| work(&mut path.window))
    }

    /// Locks the tables, poisoned or not: they hold no invariant across a panic.
    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Path {
    /// Takes note of an answer in time; one that took a round trip more than TCP's gained nothing,
    /// as in a rack. Where most gain nothing, the path is left.
    fn opened(&mut self, rtt: Duration, lag: Duration, now: Instant) {
        self.grace.sample(lag);
        self.gainless = match self.gainless {
            less if lag <= rtt => less.saturating_sub(1),
            more => GAINLESS_TO_BLOCK.min(more + 1),
        };
        if self.gainless < GAINLESS_TO_BLOCK {
            self.standing.good();
        } else {
            self.standing.block(PathReason::Gainless, now);
        }
    }

    /// Corrects the grace by a lag that some grace could have covered; a longer one stays a
    /// failure.
    fn late(&mut self, awaited: bool, rtt: Duration, lag: Duration, now: Instant) {
        self.grace.sample(lag);
        if lag <= GraceEstimator::largest(rtt) {
            self.standing.good();
        } else if awaited {
            self.standing.late(now);
        } else {
            self.standing.failed(PathReason::Late, SILENCES_TO_BLOCK, now);
        }
    }
}

fn flight_key(name: &str) -> Option<Box<str>> {
    let name = name.strip_suffix('.').unwrap_or(name);
    (name.len() <= NAME_MAX).then(|| name.to_ascii_lowercase().into_boxed_str())
}

/// Slots that may be in flight; dropping it returns them.
#[derive(Debug)]
pub(crate) struct SlotReservation {
    memory: Arc<PathMemory>,
    key: PathKey,
    grant: Grant,
}

impl SlotReservation {
    /// Returns the number of slots granted, at least one.
    pub(crate) fn slots(&self) -> usize {
        self.grant.slots
    }

    /// Returns true if the opening is one of many.
    pub(crate) fn is_one_of_many(&self) -> bool {
        let many = self.memory.with_window(self.key, |window| window.is_one_of_many(&self.grant));
        many.unwrap_or(self.grant.crowded)
    }

    /// Returns true if another opening was answered after the flight of this one left.
    pub(crate) fn is_path_answered(&self) -> bool {
        let answered =
            self.memory.with_window(self.key, |window| window.is_answered_since(&self.grant));
        answered.unwrap_or(false)
    }

    /// Takes note that the flight and the slots leave.
    pub(crate) const fn leave(&mut self, now: Instant) {
        self.grant.leave(now);
    }

    /// Takes note of the first answer.
    pub(crate) fn answer(&self, now: Instant) {
        self.memory.with_window(self.key, |window| window.answer(&self.grant, now));
    }

    /// Takes note that no answer came. Returns true if there may have been too many openings at
    /// once, so that it says nothing about the path.
    pub(crate) fn shrink(&self, now: Instant) -> bool {
        let shrunk = self.memory.with_window(self.key, |window| window.shrink(&self.grant, now));
        shrunk.unwrap_or(false)
    }
}

impl Drop for SlotReservation {
    fn drop(&mut self) {
        self.memory.with_window(self.key, |window| window.release(&self.grant));
    }
}

#[cfg(test)]
mod tests;
