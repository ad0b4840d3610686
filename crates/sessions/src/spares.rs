//! The hosts for which a client should hold spare connections, learnt from its own openings.
//!
//! A spare is held by a rule: after an opening, for the next one to the same host; in place of one
//! that was in vain; when the interval between the last two openings has passed again; or because
//! openings to this host follow those to another. Each rule is judged, for each host, by the spares
//! that it would have held so far and the openings that they would have served: those of all hours,
//! and more so those of the present hour. So a rule that does not pay costs nothing to judge.
//!
//! Each context has a balance besides: a spare used earns one, a spare in vain costs one. It bounds
//! the spares in vain, however wrong the rules are.

mod arm;
mod host;
mod pool;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use crate::context::Context;
use crate::host::normal;
use crate::limits::{
    FOLLOW, RECENT_OPENINGS, SPARE_BALANCE, SPARE_BALANCE_MAX, SPARE_CONTEXTS, SPARE_HOSTS,
    SPARE_REFILL,
};
use crate::origin::Whose;
use crate::table::{Owned, Table};
use host::Host;
pub use pool::{SparePool, TakenSpare};

/// A time, and the hour in which it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Time since some start.
    pub at: Duration,
    /// Time since midnight.
    pub of_day: Duration,
}

impl Moment {
    const HOUR: u64 = 3600;

    fn hour(self) -> usize {
        self.hour_of(self.at)
    }

    /// Returns the hour of the day in which `at` lies.
    fn hour_of(self, at: Duration) -> usize {
        let day = 24 * Self::HOUR;
        let ago = self.at.saturating_sub(at).as_secs() % day;
        let ahead = at.saturating_sub(self.at).as_secs() % day;
        let of_day = (self.of_day.as_secs() + ahead + day - ago) % day;
        usize::try_from(of_day / Self::HOUR).unwrap_or_default()
    }
}

/// A host, for one context.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SpareKey {
    context: Context,
    host: Box<str>,
    port: u16,
}

impl SpareKey {
    /// Creates a key; `None` if connections of that context share nothing, or for no host name.
    #[must_use]
    pub fn new(context: &Context, host: &str, port: u16) -> Option<Self> {
        let host = normal(host).filter(|_| context.is_shared())?;
        Some(Self { context: context.clone(), host, port })
    }

    /// Returns the owner of the connections.
    #[must_use]
    pub const fn context(&self) -> &Context {
        &self.context
    }
}

impl Owned for SpareKey {
    fn user(&self) -> Option<u32> {
        self.context.uid
    }
}

impl Owned for Context {
    fn user(&self) -> Option<u32> {
        self.uid
    }
}

/// Spares to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wish {
    /// Owner and host.
    key: SpareKey,
    /// Address of the last connection.
    address: SocketAddr,
    /// Spares to hold for this host in all.
    count: usize,
    /// Time at which to open them.
    from: Duration,
    /// Time at which to close them.
    until: Duration,
}

/// Reason why a spare was not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vain {
    /// It was held for as long as it should be.
    Expired,
    /// The server closed it at this age.
    Closed(Duration),
    /// It could not be connected.
    Failed,
    /// The client no longer wanted it.
    Dropped,
}

/// Learns which hosts are likely to be connected to soon. Knows no socket and no clock.
#[derive(Debug, Default)]
struct SparePolicy {
    hosts: Table<SpareKey, Host>,
    balances: Table<Context, Balance>,
    /// The last openings, the newest first.
    recent: VecDeque<(SpareKey, Duration)>,
}

/// Spares that a context may still have in vain.
#[derive(Clone, Copy, Debug)]
struct Balance {
    left: u8,
    open: u8,
    since: Duration,
}

impl SparePolicy {
    /// Learns from an opening without TurboTLS or Fast Open to `address`, which took `rtt` to
    /// connect. Returns the spares to hold now.
    fn on_opening(
        &mut self,
        key: &SpareKey,
        address: SocketAddr,
        rtt: Duration,
        now: Moment,
    ) -> Vec<Wish> {
        self.learn_followed(key, now);
        if self.hosts.get(key).is_none() {
            self.hosts.make_room(key.user(), SPARE_HOSTS);
        }
        let host = self.hosts.use_or_insert(key.clone(), Host::new);
        host.on_opening(address, rtt, now);
        let mut wishes = host.wishes(key, now);
        let Some(host) = self.hosts.get(key) else { return wishes };
        let followers = host.likely_followers(now);
        wishes.extend(
            followers
                .filter_map(|(key, count)| self.hosts.get(key)?.wish_now(key, count, FOLLOW, now)),
        );
        wishes
    }

    /// Learns that `key` followed other hosts of its context.
    fn learn_followed(&mut self, key: &SpareKey, now: Moment) {
        self.recent.retain(|(_, at)| *at + FOLLOW >= now.at);
        for (leader, _) in &self.recent {
            if leader != key
                && leader.context == key.context
                && let Some(host) = self.hosts.get_mut(leader)
            {
                host.on_followed(key, now);
            }
        }
        self.recent.retain(|(recent, _)| recent != key);
        self.recent.truncate(RECENT_OPENINGS - 1);
        self.recent.push_front((key.clone(), now.at));
    }

    /// Returns true if a spare may be opened; one of the next three calls then says how it ended.
    fn may_open(&mut self, key: &SpareKey, now: Moment) -> bool {
        let balance = self.balance(key);
        if balance.left == 0 && balance.since + SPARE_REFILL <= now.at {
            balance.left = 1;
        }
        let may = balance.open < balance.left;
        balance.open += u8::from(may);
        may
    }

    /// Learns that a spare was used.
    fn on_used(&mut self, key: &SpareKey) {
        let balance = self.balance(key);
        balance.open = balance.open.saturating_sub(1);
        balance.left = balance.left.saturating_add(1).min(SPARE_BALANCE_MAX);
    }

    /// Learns that a spare was in vain. Returns the one to hold in its place, if any.
    fn on_vain(&mut self, key: &SpareKey, why: Vain, now: Moment) -> Option<Wish> {
        let balance = self.balance(key);
        balance.open = balance.open.saturating_sub(1);
        balance.left = balance.left.saturating_sub(1);
        balance.since = now.at;
        let host = self.hosts.get_mut(key)?;
        let again = host.on_vain(why, now);
        again.then(|| host.wish_now(key, 1, Duration::MAX, now)).flatten()
    }

    /// Forgets what is known of these contexts.
    fn forget(&mut self, whose: Whose<'_>) {
        self.hosts.retain(|key, _| !whose.includes(&key.context));
        self.recent.retain(|(key, _)| !whose.includes(&key.context));
    }

    /// Forgets the addresses of all hosts, until their next openings.
    fn forget_addresses(&mut self) {
        self.hosts.values_mut().for_each(|host| host.address = None);
    }

    fn balance(&mut self, key: &SpareKey) -> &mut Balance {
        if self.balances.get(&key.context).is_none() {
            self.balances.make_room(key.user(), SPARE_CONTEXTS);
        }
        let new = || Balance { left: SPARE_BALANCE, open: 0, since: Duration::ZERO };
        self.balances.use_or_insert(key.context.clone(), new)
    }
}
