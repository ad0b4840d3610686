//! Resources that each resource makes the client request, and when.

use super::events::{Instant, nanos};
use crate::page::Page;

/// Triggers of all resources of a page.
#[derive(Debug, Default)]
pub(super) struct Triggers {
    /// Triggers of one resource after the other; those of each sorted by bytes.
    all: Vec<Trigger>,
    /// End of each resource's triggers; they begin where those of the one before end.
    ends: Vec<usize>,
    /// Number of triggers that each resource waits for.
    waits: Vec<u32>,
}

/// A resource that is requested when `bytes` bytes of another have arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trigger {
    pub(super) bytes: u64,
    pub(super) id: u32,
    /// Time that the client needs in between.
    pub(super) then: Instant,
}

impl Triggers {
    pub(super) fn of_page(page: &Page) -> Self {
        let mut by_parent: Vec<Vec<Trigger>> = vec![Vec::new(); page.resources().len()];
        for (id, resource) in (0..).zip(page.resources()) {
            for dependency in &resource.dependencies {
                let parent = &page.resources()[dependency.on];
                // Nothing is there before the first byte.
                let bytes = dependency.part.bytes_of(parent.response_bytes).max(1);
                by_parent[dependency.on].push(Trigger { bytes, id, then: nanos(dependency.then) });
            }
        }
        let mut triggers = Self::default();
        for (resource, mut own) in page.resources().iter().zip(by_parent) {
            own.sort_by_key(|trigger| trigger.bytes);
            triggers.all.extend(own);
            triggers.ends.push(triggers.all.len());
            triggers.waits.push(u32::try_from(resource.dependencies.len()).unwrap_or(u32::MAX));
        }
        triggers
    }

    /// Returns the triggers of one resource, fewest bytes first; for equal bytes, in the order of
    /// the page.
    pub(super) fn by_resource(&self, id: usize) -> &[Trigger] {
        let begin = id.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.all[begin..self.ends[id]]
    }

    /// Returns the initial waits.
    pub(super) fn waits(&self) -> impl Iterator<Item = Wait> {
        self.waits.iter().map(|&parts| Wait { parts, at: 0 })
    }
}

/// Triggers that a resource still waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    pub(super) parts: u32,
    at: Instant,
}

impl Wait {
    /// Handles one part arriving at `at`; if it was the last, returns the time at which all are
    /// there.
    pub(super) fn reached(&mut self, at: Instant) -> Option<Instant> {
        self.parts = self.parts.checked_sub(1)?;
        self.at = self.at.max(at);
        (self.parts == 0).then_some(self.at)
    }
}
