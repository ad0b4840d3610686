//! The last connections that have ended, and the round trips of all of them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use headstart_net::{Carrier, FastOpenEvent, OpeningEvent, Report, TimelineEntry};
use headstart_proto::ClientEvent;

/// Connections kept: a page of them. Each holds a timeline of at most 96 events, so all of them
/// take at most 1 MB.
pub(super) const KEPT: usize = 100;

/// Connections of this process, if a status page shows them.
static RECENT: OnceLock<Recent> = OnceLock::new();

/// Round trips of this process's openings.
static TRIPS: Trips = Trips { saved: AtomicU64::new(0), plain: AtomicU64::new(0) };

/// A connection that has ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Record {
    /// Its end, in seconds since 1970.
    pub(super) ended: u64,
    pub(super) opening: &'static str,
    pub(super) result: &'static str,
    pub(super) lasted: Duration,
    /// The other end, if names are shown: nothing else may hold them.
    pub(super) name: Option<String>,
    /// Reason why TurboTLS was not used.
    pub(super) not_used: Option<&'static str>,
    /// Time that TCP took to connect.
    pub(super) rtt: Option<Duration>,
    /// Time from the start of the connection until the first flight could leave.
    pub(super) waited: Option<Duration>,
    /// Events of an agent's opening.
    pub(super) timeline: Vec<TimelineEntry>,
    /// Time that a client took to open a connection to the edge.
    pub(super) established: Option<Duration>,
}

impl Record {
    /// Adds what an agent knows of its opening.
    pub(super) fn take_report(&mut self, report: &Report) {
        self.not_used = report.not_used.map(|reason| reason.name());
        self.rtt = report.rtt;
        self.waited = waited(report);
        self.timeline.clone_from(&report.timeline);
    }
}

/// Returns the time from the first known address until the first flight left, by the carrier that
/// opened the connection.
pub(super) fn waited(report: &Report) -> Option<Duration> {
    let first = |is: fn(&OpeningEvent) -> bool| {
        report.timeline.iter().find(|entry| is(&entry.event)).map(|entry| entry.at)
    };
    let start = first(|event| matches!(event, OpeningEvent::Resolved(_)))?;
    let left = match report.opened_by {
        Carrier::TurboTls => {
            first(|event| matches!(event, OpeningEvent::Transport(ClientEvent::FlightSent { .. })))
        }
        Carrier::Fop | Carrier::FastOpen => {
            first(|event| matches!(event, OpeningEvent::FastOpen(FastOpenEvent::SynSent { .. })))
        }
        Carrier::Spare => first(|event| matches!(event, OpeningEvent::Spare(_))),
        Carrier::Tcp => return report.rtt,
        Carrier::Quic | Carrier::Proxy { .. } => None,
    };
    Some(left?.saturating_sub(start))
}

/// The last [`KEPT`] connections.
#[derive(Debug)]
pub(super) struct Recent {
    names: bool,
    records: Mutex<VecDeque<Arc<Record>>>,
}

impl Recent {
    /// Begins to keep connections of this process; with their names, if `names`.
    pub(super) fn start(names: bool) {
        let _ = RECENT.set(Self::new(names));
    }

    /// Returns the connections of this process, if they are kept.
    pub(super) fn of_process() -> Option<&'static Self> {
        RECENT.get()
    }

    const fn new(names: bool) -> Self {
        Self { names, records: Mutex::new(VecDeque::new()) }
    }

    pub(super) const fn shows_names(&self) -> bool {
        self.names
    }

    pub(super) fn push(&self, record: Record) {
        let mut records = self.lock();
        if records.len() == KEPT {
            records.pop_back();
        }
        records.push_front(Arc::new(record));
    }

    /// Returns them, the last first.
    pub(super) fn records(&self) -> Vec<Arc<Record>> {
        self.lock().iter().map(Arc::clone).collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<Record>>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Round trips that connections waited for, or did not, before their first flight left.
#[derive(Debug)]
struct Trips {
    saved: AtomicU64,
    /// Round trips that the same connections take by plain TCP, or step by step through a proxy.
    plain: AtomicU64,
}

/// Counts the round trips of an opening; returns how many were saved so far, and of how many.
pub(super) fn count_trips(opening: &str) -> (u64, u64) {
    let (saved, plain) = trips_of(opening);
    let saved = TRIPS.saved.fetch_add(saved, Ordering::Relaxed) + saved;
    let plain = TRIPS.plain.fetch_add(plain, Ordering::Relaxed) + plain;
    (saved, plain)
}

/// Returns the round trips that were saved so far, and of how many.
pub(super) fn trips() -> (u64, u64) {
    (TRIPS.saved.load(Ordering::Relaxed), TRIPS.plain.load(Ordering::Relaxed))
}

/// Returns the round trips that an opening saved, and those that the same connection takes without.
fn trips_of(opening: &str) -> (u64, u64) {
    // An edge's openings that no carrier has began over UDP and saved nothing.
    let carrier = opening.parse().unwrap_or(Carrier::Tcp);
    let without = match carrier {
        Carrier::Proxy { .. } => Carrier::Proxy { optimistic: false },
        _ => Carrier::Tcp,
    };
    let saved = without.round_trips() - carrier.round_trips();
    (saved.into(), without.round_trips().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_connection_gives_way() {
        let recent = Recent::new(false);
        for ended in 0..=KEPT as u64 {
            recent.push(Record { ended, ..Record::default() });
        }
        let ends: Vec<_> = recent.records().iter().map(|record| record.ended).collect();
        assert_eq!(ends, (1..=KEPT as u64).rev().collect::<Vec<_>>());
    }

    #[test]
    fn openings_save_what_their_carrier_does_not_wait_for() {
        for (opening, trips) in [
            ("plain", (0, 1)),
            ("turbo", (1, 1)),
            ("fop", (1, 1)),
            ("spare", (1, 1)),
            ("attached", (0, 1)),
            ("unjoined", (0, 1)),
            ("upstream", (0, 3)),
            ("optimistic", (2, 3)),
        ] {
            assert_eq!(trips_of(opening), trips, "{opening}");
        }
    }

    #[test]
    fn a_flight_over_udp_waits_for_nothing_and_one_over_tcp_for_a_round_trip() {
        let ms = Duration::from_millis;
        let flight = ClientEvent::FlightSent { seq: 0, offset: 0, bytes: 517 };
        let timeline = vec![
            TimelineEntry { at: ms(3), event: OpeningEvent::Resolved(1) },
            TimelineEntry { at: ms(4), event: OpeningEvent::Transport(flight) },
        ];
        let rtt = Some(ms(40));
        let turbo = Report { opened_by: Carrier::TurboTls, rtt, timeline, ..Report::default() };
        assert_eq!(waited(&turbo), Some(ms(1)));
        assert_eq!(waited(&Report { opened_by: Carrier::Tcp, ..turbo }), Some(ms(40)));
    }
}
