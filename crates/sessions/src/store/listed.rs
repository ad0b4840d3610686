use std::time::{Duration, Instant};

use crate::context::Context;
use crate::origin::{Key, Server};
use crate::policy::Policy;
use crate::store::pool::Pool;

/// Contents of the store for one origin, without secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed<'a> {
    /// Server of the tickets.
    pub server: Server<'a>,
    /// Owner of the tickets.
    pub context: &'a Context,
    /// The application protocols offered.
    pub alpn: Vec<&'a [u8]>,
    /// Number of tickets that can be taken.
    pub tickets: usize,
    /// Memory they take, in bytes.
    pub bytes: usize,
    /// Age of the newest ticket.
    pub newest: Duration,
    /// Time until the last ticket expires.
    pub expires: Duration,
    /// Maximum early data that a ticket allows, in bytes; 0 if the policy allows none.
    pub early_data: u32,
}

impl<'a> Listed<'a> {
    /// Returns `None` if no ticket can be taken any more.
    pub(super) fn from_pool(
        key: &'a Key,
        pool: &Pool,
        policy: Policy,
        now: Instant,
    ) -> Option<Self> {
        let newest = pool.alive(now).map(|kept| kept.ticket.received).max()?;
        let end = pool.alive(now).map(|kept| kept.end).max()?;
        let early_data = pool.alive(now).map(|kept| kept.ticket.early_data_max).max()?;
        Some(Self {
            server: key.server(),
            context: &key.context,
            alpn: key.alpn().collect(),
            tickets: pool.alive(now).count(),
            bytes: pool.alive(now).map(|kept| kept.ticket.bytes()).sum(),
            newest: now.saturating_duration_since(newest),
            expires: end.saturating_duration_since(now),
            early_data: policy.early_data_max(key.server(), early_data),
        })
    }
}

/// Contents of a store, and totals of what happened to tickets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Origins with tickets.
    pub servers: usize,
    /// Tickets, some of which may have expired.
    pub tickets: usize,
    /// Bytes of the tickets.
    pub bytes: usize,
    /// Tickets that were put and kept.
    pub kept: u64,
    /// Times that a ticket was taken.
    pub taken: u64,
    /// Times that no ticket was available.
    pub missed: u64,
    /// Taken tickets that were given back and kept.
    pub given_back: u64,
    /// Taken tickets that their servers did not resume.
    pub refused: u64,
    /// Kept tickets dropped because another of their origin was refused.
    pub outdated: u64,
    /// Tickets not used before they expired.
    pub expired: u64,
    /// Tickets evicted in favour of others.
    pub evicted: u64,
    /// Tickets forgotten on demand, or by a policy.
    pub forgotten: u64,
}
