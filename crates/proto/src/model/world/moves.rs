//! What may happen next in a state, and when something is due.

use std::time::Duration;
use std::vec::Vec;

use super::{Origin, World};
use crate::Instant;
use crate::limits::SESSION_LIFE;
use crate::model::network::{Bug, Network};

/// What may go wrong without a timer: `SESSION_LIFE` less `JOIN_MARGIN`, `SESSION_LIFE` and
/// `HELLO_MEMORY`, `EARLY_DATA_LIFE`, and when a session of the first moment is forgotten.
const MARKS: [u64; 5] = [8, 10, 18, 20, 130];

/// What happens next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::model) enum Action {
    /// A request reaches an edge, and may do so again.
    Up {
        datagram: usize,
        edge: u8,
        doubled: bool,
    },
    /// A copy of a request reaches an edge from another address.
    Replay {
        datagram: usize,
        edge: u8,
    },
    /// An answer reaches the client, and may do so again.
    Down {
        datagram: usize,
        doubled: bool,
    },
    ForgeUp {
        edge: u8,
    },
    ForgeDown,
    Unreachable,
    Connect {
        edge: u8,
        same_server: bool,
        same_source: bool,
        waits: bool,
    },
    TcpUp {
        forwards: bool,
        split: bool,
    },
    TcpDown,
    TcpBreaks,
    ClientTimer {
        early: bool,
    },
    EdgeTimer {
        edge: u8,
    },
    /// Time passes until something is due; what is due already may fire later.
    TimePasses,
    OriginWrites {
        origin: usize,
    },
    OriginLost {
        origin: usize,
    },
    Restart {
        edge: u8,
    },
}

impl World {
    pub(in crate::model) fn actions(&self, model: &Network, actions: &mut Vec<Action>) {
        let (left, edges) = (&self.left, 0..model.edges);
        if self.broken != 0 {
            return;
        }
        for (datagram, sent) in self.up.iter().enumerate() {
            for edge in edges.clone() {
                if sent.copies > 0 {
                    actions.push(Action::Up { datagram, edge, doubled: false });
                    if left.doubled > 0 {
                        actions.push(Action::Up { datagram, edge, doubled: true });
                    }
                }
                if left.replayed > 0 {
                    actions.push(Action::Replay { datagram, edge });
                }
            }
        }
        let open = self.end.is_none();
        for (datagram, _) in self.down.iter().enumerate().filter(|(_, it)| open && it.copies > 0) {
            actions.push(Action::Down { datagram, doubled: false });
            if left.doubled > 0 {
                actions.push(Action::Down { datagram, doubled: true });
            }
        }
        if left.forged_up > 0 {
            actions.extend(edges.clone().map(|edge| Action::ForgeUp { edge }));
        }
        if left.forged_down > 0 {
            actions.push(Action::ForgeDown);
        }
        if left.unreachable > 0 {
            actions.push(Action::Unreachable);
        }
        self.tcp_actions(model, actions);
        self.timer_actions(model, actions);
        for (number, origin) in self.origins.iter().enumerate().filter(|(_, it)| !it.closed) {
            if may_write(model, origin) {
                actions.push(Action::OriginWrites { origin: number });
            }
            if left.origin_lost > 0 && !origin.is_finished() {
                actions.push(Action::OriginLost { origin: number });
            }
        }
        if left.restarts > 0 {
            actions.extend(edges.map(|edge| Action::Restart { edge }));
        }
    }

    fn tcp_actions(&self, model: &Network, actions: &mut Vec<Action>) {
        let (left, both) = (&self.left, [true, false]);
        if self.tcp.connected.is_none() {
            for edge in 0..model.edges {
                for same_server in both.into_iter().filter(|same| *same || left.other_server > 0) {
                    for same_source in both.into_iter().filter(|it| *it || left.other_source > 0) {
                        for waits in both.into_iter().filter(|it| *it || left.not_awaited > 0) {
                            let way = Action::Connect { edge, same_server, same_source, waits };
                            actions.push(way);
                        }
                    }
                }
            }
            return;
        }
        if !self.tcp.up.is_empty() {
            actions.push(Action::TcpUp { forwards: true, split: false });
            if left.split > 0 {
                actions.push(Action::TcpUp { forwards: true, split: true });
            }
            if left.forward_fails > 0 {
                actions.push(Action::TcpUp { forwards: false, split: false });
            }
        }
        if !self.tcp.down.is_empty() {
            actions.push(Action::TcpDown);
        }
        if left.tcp_breaks > 0 && !self.tcp.broken && self.end.is_none() {
            actions.push(Action::TcpBreaks);
        }
    }

    fn timer_actions(&self, model: &Network, actions: &mut Vec<Action>) {
        if let Some(due) = self.client_timer(model) {
            let early = due > self.now;
            if !early || self.left.early > 0 {
                actions.push(Action::ClientTimer { early });
            }
        }
        for edge in 0..model.edges {
            if self.edge_timer(model, edge).is_some_and(|due| due <= self.now) {
                actions.push(Action::EdgeTimer { edge });
            }
        }
        if self.next_moment(model).is_some() {
            actions.push(Action::TimePasses);
        }
    }

    pub(super) fn client_timer(&self, model: &Network) -> Option<Instant> {
        self.client.poll_timeout().filter(|_| model.bug != Some(Bug::ClientWithoutTimer))
    }

    pub(super) fn edge_timer(&self, model: &Network, edge: u8) -> Option<Instant> {
        let due = self.edges[usize::from(edge)].server.poll_timeout()?;
        match model.bug {
            Some(Bug::EdgeWithoutTimer) => None,
            Some(Bug::EndsEarly) => Some(due - SESSION_LIFE / 2),
            _ => Some(due),
        }
    }

    /// Returns the next moment at which anything is due, or a memory or promise ends.
    pub(super) fn next_moment(&self, model: &Network) -> Option<Instant> {
        let edges = (0..model.edges).filter_map(|edge| self.edge_timer(model, edge));
        let marks = MARKS.map(|mark| Instant::ZERO + Duration::from_secs(mark));
        let moments = self.client_timer(model).into_iter().chain(edges).chain(marks);
        let next = moments.filter(|moment| *moment > self.now).min()?;
        Some(next).filter(|next| next.since_epoch() <= model.horizon)
    }
}

/// Returns true if the origin has heard what its next write answers.
pub(super) fn may_write(model: &Network, origin: &Origin) -> bool {
    match origin.writes {
        0 | 1 => origin.received >= model.hello,
        2 => origin.received == model.streams.client.len(),
        _ => false,
    }
}
