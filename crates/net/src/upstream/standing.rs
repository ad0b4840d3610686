use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{OBJECTION_MEMORY, TRUST_MEMORY, Upstream};

/// Proxies remembered: the current one, and those of earlier configurations.
const REMEMBERED_MAX: usize = 16;

/// Observations of proxies by this process; in memory only.
#[derive(Debug, Default)]
pub(crate) struct Standings(Mutex<HashMap<Address, Entry>>);

type Address = (String, u16);

#[derive(Clone, Copy, Debug)]
struct Entry {
    standing: Standing,
    until: Instant,
}

/// Support of a proxy for bytes ahead of its replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Not known.
    Unknown,
    /// The proxy has answered such bytes.
    Trusted,
    /// The proxy answered only when addressed step by step.
    Objects,
    /// The proxy was silent, which may be an objection or have other reasons.
    Silent,
}

impl Standing {
    /// Returns how long this is remembered.
    pub(super) const fn memory(self) -> Duration {
        match self {
            Self::Unknown => Duration::ZERO,
            Self::Trusted | Self::Silent => TRUST_MEMORY,
            Self::Objects => OBJECTION_MEMORY,
        }
    }
}

impl Standings {
    pub(super) fn standing(&self, upstream: &Upstream, now: Instant) -> Standing {
        let known = self.known();
        let entry = known.get(&address(upstream)).filter(|entry| now < entry.until);
        entry.map_or(Standing::Unknown, |entry| entry.standing)
    }

    pub(super) fn learn(&self, upstream: &Upstream, standing: Standing, now: Instant) {
        let (address, until) = (address(upstream), now + standing.memory());
        let mut known = self.known();
        // An unknown standing needs no entry.
        known.remove(&address);
        known.retain(|_, entry| now < entry.until);
        if now < until && known.len() < REMEMBERED_MAX {
            known.insert(address, Entry { standing, until });
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Address, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn address(upstream: &Upstream) -> Address {
    (upstream.host.to_ascii_lowercase(), upstream.port)
}
