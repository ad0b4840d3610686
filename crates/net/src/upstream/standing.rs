use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{OBJECTION_MEMORY, TRUST_MEMORY, Upstream};

/// Proxies that are remembered; there is one, and another after each change of the configuration.
const REMEMBERED_MAX: usize = 16;

/// What is known of proxies: in memory only.
#[derive(Debug, Default)]
pub(crate) struct Standings(Mutex<HashMap<Address, Entry>>);

type Address = (String, u16);

#[derive(Clone, Copy, Debug)]
struct Entry {
    standing: Standing,
    until: Instant,
}

/// Whether a proxy bears bytes ahead of its replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nobody knows.
    Unknown,
    /// It has answered what was sent so.
    Trusted,
    /// It has not, and it did answer when it was asked step by step.
    Objects,
    /// So it seemed, because it was silent, which may have other reasons.
    Silent,
}

impl Standing {
    /// How long it is remembered.
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
        // Nothing is known of one that is unknown, and nothing kept.
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
