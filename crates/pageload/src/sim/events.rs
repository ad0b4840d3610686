//! Events to come, ordered by time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Nanoseconds since the load began.
pub(super) type Instant = u64;

/// Maximum length of one step of a load. So no sum over
/// [`RESOURCES_MAX`](crate::page::RESOURCES_MAX) steps, each waited for as long as the last of a
/// series of doubled timeouts, overflows 64 bits.
const STEP_MAX: Duration = Duration::from_secs(600);

/// Converts a duration to nanoseconds, at most [`STEP_MAX`].
pub(super) fn nanos(duration: Duration) -> Instant {
    u64::try_from(duration.min(STEP_MAX).as_nanos()).unwrap_or(u64::MAX)
}

/// Events to come, ordered by time; simultaneous ones in the order in which they were added.
#[derive(Debug)]
pub(super) struct Events<T> {
    heap: BinaryHeap<Reverse<(Instant, u32, T)>>,
    added: u32,
}

impl<T: Ord> Events<T> {
    pub(super) fn new() -> Self {
        Self { heap: BinaryHeap::new(), added: 0 }
    }

    /// Clears the queue without freeing memory.
    pub(super) fn clear(&mut self) {
        self.heap.clear();
        self.added = 0;
    }

    pub(super) fn at(&mut self, time: Instant, what: T) {
        self.heap.push(Reverse((time, self.added, what)));
        self.added += 1;
    }

    pub(super) fn next(&mut self) -> Option<(Instant, T)> {
        self.heap.pop().map(|Reverse((time, _, what))| (time, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simultaneous_events_keep_their_order() {
        let mut events = Events::new();
        events.at(2, 'c');
        events.at(1, 'b');
        events.at(2, 'a');
        events.at(0, 'd');
        let order: Vec<_> = std::iter::from_fn(|| events.next()).collect();
        assert_eq!(order, [(0, 'd'), (1, 'b'), (2, 'c'), (2, 'a')]);
    }
}
