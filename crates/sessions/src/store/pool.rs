use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::limits::LAST_MOMENT;
use crate::ticket::{Kept, Stamp};

/// The tickets of one origin; the one that expires first is in front.
#[derive(Debug, Default)]
pub(super) struct Pool(VecDeque<Kept>);

impl Pool {
    /// Adds a ticket; of the reusable ones, keeps only the newest.
    pub(super) fn put(&mut self, new: Kept) {
        if new.ticket.reusable {
            self.0.retain(|kept| !kept.ticket.reusable);
        }
        let at = self.0.partition_point(|kept| kept.end <= new.end);
        self.0.insert(at, new);
    }

    /// Takes the ticket that expires first. Without a single-use ticket, copies a reusable one.
    pub(super) fn take(&mut self) -> Option<Kept> {
        match self.0.iter().position(|kept| !kept.ticket.reusable) {
            Some(at) => self.0.remove(at),
            None => {
                let kept = self.0.front()?;
                Some(Kept { ticket: kept.ticket.copy(), ..*kept })
            }
        }
    }

    /// Drops the ticket that expires first.
    pub(super) fn drop_first(&mut self) {
        self.0.pop_front();
    }

    /// Drops expired tickets and returns their number.
    pub(super) fn drop_ended(&mut self, now: Instant) -> usize {
        let before = self.len();
        self.0.retain(|kept| is_alive(kept.end, now));
        before - self.len()
    }

    /// Drops tickets put up to `stamp` and returns their number.
    pub(super) fn drop_older(&mut self, stamp: Stamp) -> usize {
        let before = self.len();
        self.0.retain(|kept| kept.put > stamp);
        before - self.len()
    }

    /// Limits each ticket's end to `lifetime` after its server was verified.
    pub(super) fn shorten(&mut self, lifetime: Duration) {
        for kept in &mut self.0 {
            kept.end = kept.end.min(kept.ticket.verified + lifetime);
        }
        self.0.make_contiguous().sort_by_key(|kept| kept.end);
    }

    /// Returns the tickets that have not expired.
    pub(super) fn alive(&self, now: Instant) -> impl Iterator<Item = &Kept> {
        self.0.iter().filter(move |kept| is_alive(kept.end, now))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the end of the ticket that expires first.
    pub(super) fn first_end(&self) -> Option<Instant> {
        self.0.front().map(|kept| kept.end)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map(|kept| kept.ticket.bytes()).sum()
    }
}

/// Returns true if a ticket can still reach its server in time.
pub(super) fn is_alive(end: Instant, now: Instant) -> bool {
    now + LAST_MOMENT < end
}
