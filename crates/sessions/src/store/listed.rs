use std::time::{Duration, Instant};

use crate::context::Context;
use crate::origin::{Key, Server};
use crate::policy::Policy;
use crate::store::pool::Pool;

/// Contents of one origin, without any secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed<'a> {
    /// Whom it is for.
    pub server: Server<'a>,
    /// Owner.
    pub context: &'a Context,
    /// The application protocols that were offered.
    pub alpn: Vec<&'a [u8]>,
    /// Number of tickets that can be taken.
    pub tickets: usize,
    /// Bytes of memory that they take.
    pub bytes: usize,
    /// Age of the newest of them.
    pub newest: Duration,
    /// In how long the last of them is over.
    pub expires: Duration,
    /// Early data that one of them allows at most, in bytes; 0 if the policy allows none.
    pub early_data: u32,
}

impl<'a> Listed<'a> {
    /// Lists a pool; `None` if nothing of it can be taken any more.
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

/// Contents of a store, and what happened to tickets so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Origins that have tickets.
    pub servers: usize,
    /// Tickets, of which some may be over.
    pub tickets: usize,
    /// Bytes of them.
    pub bytes: usize,
    /// Tickets that were put and kept.
    pub kept: u64,
    /// Times that a ticket was taken.
    pub taken: u64,
    /// Times that there was none to take.
    pub missed: u64,
    /// Taken ones that were given back and kept.
    pub given_back: u64,
    /// Taken ones that their servers did not resume.
    pub refused: u64,
    /// Kept ones that went because another of their origin was refused.
    pub outdated: u64,
    /// Tickets that were not used in their time.
    pub expired: u64,
    /// Tickets that gave way to others.
    pub evicted: u64,
    /// Tickets that were forgotten on demand, or with a policy.
    pub forgotten: u64,
}
