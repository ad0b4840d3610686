//! Ways to come to a site, beside the arm.

use serde::{Deserialize, Serialize};

/// Way in which a site is visited; as it is, for the first time by Chromium as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Visit {
    /// True for a second visit.
    pub(crate) again: bool,
    /// True for a Chromium without a post-quantum key share.
    pub(crate) classical: bool,
    /// True for a Chromium that speaks HTTP/1.1 alone.
    pub(crate) http1: bool,
}

impl Visit {
    /// Returns what it is called behind an arm; nothing for a first visit by Chromium as it is.
    pub(crate) fn label(self) -> String {
        let parts =
            [(self.again, " again"), (self.classical, ", X25519"), (self.http1, ", HTTP/1.1")];
        parts.into_iter().filter_map(|(is_so, label)| is_so.then_some(label)).collect()
    }
}
