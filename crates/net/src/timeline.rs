use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use headstart_proto::limits::SESSIONS;
use headstart_proto::wire::{Request, Response};
use headstart_proto::{Discard, SessionId};

use crate::report::TIMELINE_MAX;

/// Sessions with a timeline at one time: those that run, and as many that may never run.
const KEPT: usize = 2 * SESSIONS;

/// Dropped datagrams in one timeline: anybody who sees a session can repeat its datagrams, and they
/// leave room for the join.
const DROPS_MAX: usize = TIMELINE_MAX / 2;

/// Event of a connection at an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdgeEvent {
    /// A datagram with `bytes` of the client stream from `offset` on was taken.
    DatagramReceived {
        /// Sequence number.
        seq: u8,
        /// Offset of the payload in the client stream.
        offset: u32,
        /// Length of the payload.
        bytes: usize,
    },
    /// A datagram of a known session was dropped.
    DatagramDropped(Discard),
    /// A datagram was queued.
    DatagramSent {
        /// The sequence number that it answers.
        seq: u8,
        /// Client bytes that the edge has, counted from the start.
        ack: u32,
        /// Offset of the payload in the server stream.
        offset: u32,
        /// Length of the payload; 0 in a pure acknowledgement.
        bytes: usize,
    },
    /// The ClientHello is complete: the session runs.
    SessionStarted,
    /// TCP is connected.
    TcpConnected,
    /// TCP began with a join.
    JoinReceived {
        /// The TCP stream starts at this offset of the client stream.
        client_offset: u32,
        /// Offset from which the client asked to continue.
        server_offset: u32,
    },
    /// The join was accepted.
    JoinAnswered {
        /// Offset from which the edge continues; 0 also for a stream that begins anew.
        server_offset: u32,
    },
    /// The join was refused.
    JoinRefused,
    /// TCP began with the ClientHello of a session, and took it over without a join.
    Attached,
    /// The join went to the edge of the fleet that has its session.
    Forwarded,
    /// The join went to the process or listener of this edge that has its session.
    PassedOn,
    /// No join came in time.
    SessionExpired,
    /// Careful Resume entered another phase; the first is that of a jump.
    CarefulResume {
        /// Phase before.
        from: &'static str,
        /// Phase now.
        to: &'static str,
        /// Congestion window, in segments.
        window: u32,
    },
    /// TCP alone carries the stream.
    HandedOver,
}

/// Entries of an edge's timeline.
pub(crate) type Entries = Vec<(Instant, EdgeEvent)>;

/// Events of one connection at an edge, shared by all that deal with it; without any unless
/// [`AcceptorConfig::timelines`](super::AcceptorConfig::timelines) is set.
#[derive(Clone, Debug, Default)]
pub struct EdgeTimeline(Option<Arc<Mutex<Entries>>>);

impl EdgeTimeline {
    pub(crate) fn new(on: bool) -> Self {
        Self(on.then(Arc::default))
    }

    /// Returns the events so far, in order of time; the first 96 at most.
    #[must_use]
    pub fn entries(&self) -> Vec<(Instant, EdgeEvent)> {
        let mut entries = self.lock().map(|entries| entries.clone()).unwrap_or_default();
        // Those of TCP and those of datagrams come from two threads.
        entries.sort_by_key(|(at, _)| *at);
        entries
    }

    pub(crate) fn note(&self, event: EdgeEvent) {
        let Some(mut entries) = self.lock() else { return };
        let is_drop = matches!(event, EdgeEvent::DatagramDropped(_));
        if entries.len() < if is_drop { DROPS_MAX } else { TIMELINE_MAX } {
            entries.push((Instant::now(), event));
        }
    }

    /// Takes the events of a TCP connection, which go on in the session that it joined.
    pub(crate) fn take(&self) -> Entries {
        self.lock().map(|mut entries| std::mem::take(&mut *entries)).unwrap_or_default()
    }

    pub(crate) fn add(&self, more: Entries) {
        if let Some(mut entries) = self.lock() {
            let room = TIMELINE_MAX.saturating_sub(entries.len());
            entries.extend(more.into_iter().take(room));
        }
    }

    fn lock(&self) -> Option<MutexGuard<'_, Entries>> {
        self.0.as_ref().map(|entries| entries.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The timelines of the sessions of one acceptor, if they are kept.
#[derive(Debug)]
pub(crate) struct Timelines {
    on: bool,
    sessions: HashMap<SessionId, EdgeTimeline>,
}

impl Timelines {
    pub(crate) fn new(on: bool) -> Self {
        Self { on, sessions: HashMap::new() }
    }

    /// Notes a datagram of a client, and what the core made of it.
    pub(crate) fn received(&mut self, datagram: &[u8], outcome: Result<(), Discard>) {
        if !self.on {
            return;
        }
        let Ok(Request { id, seq, offset, payload }) = Request::parse(datagram) else { return };
        match (outcome, self.sessions.get(&id)) {
            (Err(discard), Some(timeline)) => timeline.note(EdgeEvent::DatagramDropped(discard)),
            (Err(_), None) => {}
            (Ok(()), _) => {
                let bytes = payload.len();
                self.begun(id).note(EdgeEvent::DatagramReceived { seq, offset, bytes });
            }
        }
    }

    /// Notes a datagram to a client.
    pub(crate) fn sent(&self, datagram: &[u8]) {
        if !self.on {
            return;
        }
        let Ok(Response { id, seq, ack, offset, payload, .. }) = Response::parse(datagram) else {
            return;
        };
        if let Some(timeline) = self.sessions.get(&id) {
            let bytes = payload.len();
            timeline.note(EdgeEvent::DatagramSent { seq, ack, offset, bytes });
        }
    }

    /// Notes that a session runs; returns its timeline for the task that serves it.
    pub(crate) fn started(&mut self, id: SessionId) -> EdgeTimeline {
        if !self.on {
            return EdgeTimeline::default();
        }
        let timeline = self.begun(id).clone();
        timeline.note(EdgeEvent::SessionStarted);
        timeline
    }

    /// Notes that nobody joined a session.
    pub(crate) fn expired(&mut self, id: &SessionId) {
        if let Some(timeline) = self.sessions.remove(id) {
            timeline.note(EdgeEvent::SessionExpired);
        }
    }

    /// Forgets a session that has ended in the core; whoever serves it keeps its timeline.
    pub(crate) fn ended(&mut self, id: &SessionId) {
        self.sessions.remove(id);
    }

    fn begun(&mut self, id: SessionId) -> &EdgeTimeline {
        if self.sessions.len() >= KEPT && !self.sessions.contains_key(&id) {
            // The core does not report the end of sessions that never ran, and no task has theirs.
            let is_served = |timeline: &EdgeTimeline| {
                timeline.0.as_ref().is_some_and(|entries| Arc::strong_count(entries) > 1)
            };
            self.sessions.retain(|_, timeline| is_served(timeline));
        }
        self.sessions.entry(id).or_insert_with(|| EdgeTimeline::new(true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOIN: EdgeEvent = EdgeEvent::JoinReceived { client_offset: 0, server_offset: 9 };

    fn id(number: usize) -> SessionId {
        let mut id = [0; 12];
        id[..8].copy_from_slice(&number.to_be_bytes());
        SessionId(id)
    }

    fn events(timeline: &EdgeTimeline) -> Vec<EdgeEvent> {
        timeline.entries().into_iter().map(|(_, event)| event).collect()
    }

    #[test]
    fn a_join_finds_room_behind_dropped_datagrams_and_nothing_beyond_the_bound() {
        let timeline = EdgeTimeline::new(true);
        for _ in 0..2 * TIMELINE_MAX {
            timeline.note(EdgeEvent::DatagramDropped(Discard::Repeated));
        }
        timeline.add(vec![(Instant::now(), JOIN); 2 * TIMELINE_MAX]);
        let events = events(&timeline);
        assert_eq!(events.len(), TIMELINE_MAX);
        assert_eq!(events.iter().filter(|event| **event == JOIN).count(), DROPS_MAX);
    }

    #[test]
    fn events_of_tcp_stand_where_they_happened() {
        let [session, tcp] = [true; 2].map(EdgeTimeline::new);
        tcp.note(EdgeEvent::TcpConnected);
        session.note(EdgeEvent::SessionStarted);
        session.add(tcp.take());
        assert_eq!(events(&session), [EdgeEvent::TcpConnected, EdgeEvent::SessionStarted]);
        assert_eq!(events(&tcp), []);
    }

    #[test]
    fn sessions_that_never_run_give_way_and_those_that_run_do_not() {
        let mut timelines = Timelines::new(true);
        let served = timelines.started(id(0));
        for number in 1..3 * KEPT {
            timelines.begun(id(number));
            assert!(timelines.sessions.len() <= KEPT);
        }
        timelines.expired(&id(0));
        assert_eq!(events(&served), [EdgeEvent::SessionStarted, EdgeEvent::SessionExpired]);
    }

    #[test]
    fn nothing_is_kept_unless_wanted() {
        let mut timelines = Timelines::new(false);
        assert!(timelines.started(id(0)).0.is_none());
        assert!(timelines.sessions.is_empty());
    }
}
