use std::time::{Duration, Instant};

use crate::context::Context;
use crate::limits::{
    RECENT_TICKETS, SERVERS, SESSION_LIFE_MAX, SESSION_LIFE_UNKNOWN, STORE_BYTES, SWEEP,
    TICKET_BYTES_MAX, TICKETS, TICKETS_PER_SERVER, TICKETS_WANTED,
};
use crate::not_kept::NotKept;
use crate::origin::{Filter, Key, Origin, Whose};
use crate::policy::{NotSet, Policies, Policy};
use crate::table::{Owned, Table};
use crate::ticket::{Kept, Stamp, Taken, Ticket, TicketsWanted};
use forgotten::Forgotten;
use pool::{Pool, is_alive};
use recent::Recent;

mod across_names;
mod forgotten;
mod listed;
mod pool;
mod recent;
#[cfg(test)]
mod tests;

pub use listed::{Counts, Listed};

/// TLS sessions by origin: server, protocols, settings and context. Gives each ticket out once,
/// before its end.
///
/// One connection:
///
/// 1. [`stamp`](Self::stamp), [`take`](Self::take) or
///    [`take_across_names`](Self::take_across_names), and [`wanted`](Self::wanted), before its
///    ClientHello.
/// 2. If the handshake never began, [`give_back`](Self::give_back). If the server did a full
///    handshake instead of resuming, [`refused`](Self::refused).
/// 3. [`put`](Self::put), or [`put_across_names`](Self::put_across_names), for each ticket that
///    arrives.
///
/// ```
/// use std::time::{Duration, Instant};
/// use headstart_sessions::{Context, Origin, Server, SessionStore, Ticket};
///
/// let (mut store, now) = (SessionStore::default(), Instant::now());
/// let origin = Origin {
///     server: Server::Name("www.example.com"),
///     alpn: &[b"h2".to_vec()],
///     settings: &[7; 32],
///     context: &Context::user(1000),
/// };
/// // One connection, with a full handshake, brings a ticket.
/// let opened = store.stamp();
/// assert!(store.take(&origin, now).is_none());
/// let ticket = Ticket {
///     session: b"bytes of the engine".to_vec().into(),
///     alpn: Some(b"h2".to_vec()),
///     early_data_max: 16_384,
///     lifetime: Duration::from_secs(3600),
///     received: now,
///     verified: now,
///     opened,
///     reusable: false,
/// };
/// assert!(store.put(&origin, ticket, now).is_ok());
/// // The next one spends it.
/// let taken = store.take(&origin, now).expect("a ticket");
/// assert_eq!(taken.session(), b"bytes of the engine");
/// assert!(store.take(&origin, now).is_none());
/// ```
///
/// # Eviction
/// Beyond the maximum of servers, tickets or bytes, the store first drops all expired tickets. Then
/// it evicts from the user who has most of the scarce resource, counting the addition: from that
/// user's least recently used server, the ticket that expires first; if servers are scarce, all its
/// tickets. So a user with no more than an even share loses nothing to others. Within one server,
/// the ticket that expires first is evicted.
#[derive(Debug)]
pub struct SessionStore {
    limits: StoreLimits,
    pools: Table<Key, Pool>,
    policies: Policies,
    forgotten: Forgotten,
    recent: Recent,
    /// Counts the events in the store, to order them.
    events: u64,
    swept: Option<Instant>,
    /// Earliest end of any ticket.
    first_end: Option<Instant>,
    held: Held,
    counts: Counts,
}

/// Contents of all pools together.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    tickets: usize,
    bytes: usize,
}

/// Capacity of a store; the agent uses [`Default`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreLimits {
    /// Origins.
    pub servers: usize,
    /// Tickets of all origins.
    pub tickets: usize,
    /// Tickets per origin.
    pub tickets_per_server: usize,
    /// Bytes over all tickets.
    pub bytes: usize,
    /// Recent tickets that are recognized.
    pub recent: usize,
}

impl Default for StoreLimits {
    fn default() -> Self {
        Self {
            servers: SERVERS,
            tickets: TICKETS,
            tickets_per_server: TICKETS_PER_SERVER,
            bytes: STORE_BYTES,
            recent: RECENT_TICKETS,
        }
    }
}

impl Default for SessionStore {
    fn default() -> Self {
        Self::new(StoreLimits::default())
    }
}

impl SessionStore {
    /// Creates an empty store with these limits.
    #[must_use]
    pub fn new(limits: StoreLimits) -> Self {
        Self {
            limits,
            pools: Table::default(),
            policies: Policies::default(),
            forgotten: Forgotten::default(),
            recent: Recent::new(limits.recent),
            events: 0,
            swept: None,
            first_end: None,
            held: Held::default(),
            counts: Counts::default(),
        }
    }

    /// Returns the current moment, for [`Ticket::opened`] of a connection that begins now.
    #[must_use]
    pub const fn stamp(&self) -> Stamp {
        Stamp(self.events)
    }

    /// Keeps a ticket for later connections of the same origin.
    ///
    /// # Errors
    /// The reason why the ticket is not kept; it is wiped then.
    pub fn put(
        &mut self,
        origin: &Origin<'_>,
        ticket: Ticket,
        now: Instant,
    ) -> Result<(), NotKept> {
        self.sweep(now);
        let key = Key::from_origin(origin)?;
        self.admit(origin, &ticket)?;
        let (ticket, end) = dated(ticket, self.policies.get(origin.context), now);
        if !is_alive(end, now) {
            return Err(NotKept::Lifetime);
        }
        let mark = (!ticket.reusable).then(|| self.recent.mark(&ticket.session));
        if mark.is_some_and(|mark| self.recent.contains(mark)) {
            return Err(NotKept::Known);
        }
        let put = self.tick();
        self.keep(key, Kept { ticket, end, put }, now)?;
        if let Some(mark) = mark {
            self.recent.note(mark);
        }
        self.counts.kept += 1;
        Ok(())
    }

    /// Takes a ticket for a connection of this origin, which has to offer it or give it back.
    ///
    /// Returns the single-use ticket that expires first; if there is none, a session of TLS 1.2,
    /// which can be taken any number of times.
    pub fn take(&mut self, origin: &Origin<'_>, now: Instant) -> Option<Taken> {
        self.sweep(now);
        let taken = self.find(origin, now);
        match taken {
            Some(_) => self.counts.taken += 1,
            None => self.counts.missed += 1,
        }
        taken
    }

    /// Takes back a ticket that was not offered: its handshake never began, so nobody has seen it.
    ///
    /// Drops it if it has expired, was forgotten meanwhile, or the policy no longer allows it.
    pub fn give_back(&mut self, taken: Taken, now: Instant) {
        let Taken { key, mut kept, at, .. } = taken;
        let policy = self.policies.get(&key.context);
        kept.end = kept.end.min(kept.ticket.verified + policy.lifetime);
        let is_good = is_alive(kept.end, now)
            && policy.sharing.allows(key.server())
            && !self.forgotten.was_forgotten_since(&key.context, at);
        // A reusable session was never removed.
        if is_good && !kept.ticket.reusable && self.keep(key, kept, now).is_ok() {
            self.counts.given_back += 1;
        }
    }

    /// Reports that the server did a full handshake although this ticket was offered: it is spent,
    /// and the tickets of the same origin kept at that time probably no longer work (RFC 9149
    /// section 2). Drops those and returns their number.
    pub fn refused(&mut self, taken: Taken) -> usize {
        let dropped = self.change(&taken.key, |pool| pool.drop_older(taken.at)).unwrap_or_default();
        self.counts.refused += 1;
        self.counts.outdated += dropped as u64;
        dropped
    }

    /// Returns the number of tickets that a connection of this origin should ask its server for
    /// (RFC 9149), after `take`.
    #[must_use]
    pub fn wanted(&self, origin: &Origin<'_>, now: Instant) -> TicketsWanted {
        let keeps = self.policies.get(origin.context).sharing.allows(origin.server);
        let Some(key) = Key::from_origin(origin).ok().filter(|_| keeps) else {
            return TicketsWanted { new_session: 0, resumption: 0 };
        };
        let held = self.alive(&key, now) + self.alive_across_names(origin, now);
        let missing = TICKETS_WANTED.saturating_sub(u8::try_from(held).unwrap_or(u8::MAX));
        TicketsWanted { new_session: TICKETS_WANTED, resumption: missing.max(1) }
    }

    /// Forgets tickets and returns their number. Connections open at the time bring none back to
    /// the contexts of `filter`.
    pub fn forget(&mut self, filter: &Filter<'_>) -> usize {
        let at = self.tick();
        self.forgotten.note(filter.whose, at);
        let mut count = 0;
        self.pools.retain(|key, pool| {
            let forgets = key.is_of(filter);
            count += if forgets { pool.len() } else { 0 };
            !forgets
        });
        self.recount();
        self.counts.forgotten += count as u64;
        count
    }

    /// Returns true if a context was forgotten after a connection began. For data kept beside
    /// sessions, which that connection must not bring back.
    #[must_use]
    pub fn was_forgotten(&self, context: &Context, opened: Stamp) -> bool {
        self.forgotten.was_forgotten_since(context, opened)
    }

    /// Forgets a context that ends, with its policy, and returns the number of tickets. Its open
    /// connections leave nothing behind.
    pub fn end_context(&mut self, context: &Context) -> usize {
        let forgotten = self.forget(&Filter { server: None, whose: Whose::Context(context) });
        self.drop_policy(context);
        forgotten
    }

    /// Sets or removes a context's own policy. Without one the context has that of its user without
    /// a label, or else the default. Drops what the policy does not allow.
    ///
    /// # Errors
    /// The reason why it is not set.
    pub fn set_policy(&mut self, context: &Context, policy: Option<Policy>) -> Result<(), NotSet> {
        match policy {
            Some(policy) => {
                self.policies.set(context, policy)?;
                self.apply_policies(heirs(context), self.policies.get(context));
            }
            None => self.drop_policy(context),
        }
        Ok(())
    }

    /// Returns the policy of a context, its own or inherited.
    #[must_use]
    pub fn policy(&self, context: &Context) -> Policy {
        self.policies.get(context)
    }

    /// Returns the contexts with policies of their own.
    pub fn policies(&self) -> impl Iterator<Item = (&Context, Policy)> {
        self.policies.iter()
    }

    /// Lists the tickets of a user, or of all users, without secrets.
    pub fn list(&self, uid: Option<u32>, now: Instant) -> impl Iterator<Item = Listed<'_>> {
        let rows = self.pools.iter().filter(move |(key, _)| uid.is_none() || key.user() == uid);
        rows.filter_map(move |(key, pool)| {
            Listed::from_pool(key, pool, self.policies.get(&key.context), now)
        })
    }

    /// Wipes expired tickets and returns their number. `put` and `take` do so from time to time;
    /// this is for times when nobody calls them.
    pub fn expire(&mut self, now: Instant) -> usize {
        self.swept = Some(now);
        if self.first_end.is_none_or(|end| is_alive(end, now)) {
            return 0;
        }
        let mut count = 0;
        self.pools.retain(|_, pool| {
            count += pool.drop_ended(now);
            !pool.is_empty()
        });
        self.recount();
        self.counts.expired += count as u64;
        count
    }

    /// Returns contents and totals, for metrics.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let Held { tickets, bytes } = self.held;
        Counts { servers: self.pools.len(), tickets, bytes, ..self.counts }
    }

    /// Checks that a ticket may be kept at all, whatever else is kept.
    fn admit(&self, origin: &Origin<'_>, ticket: &Ticket) -> Result<(), NotKept> {
        if !self.policies.get(origin.context).sharing.allows(origin.server) {
            Err(NotKept::Policy)
        } else if ticket.session.is_empty() || ticket.bytes() > TICKET_BYTES_MAX {
            Err(NotKept::Size)
        } else if ticket.alpn.as_ref().is_some_and(|alpn| !origin.alpn.contains(alpn)) {
            Err(NotKept::Alpn)
        } else if self.forgotten.was_forgotten_since(origin.context, ticket.opened) {
            Err(NotKept::Forgotten)
        } else {
            Ok(())
        }
    }

    /// Returns the number of tickets that have not expired.
    fn alive(&self, key: &Key, now: Instant) -> usize {
        self.pools.get(key).map_or(0, |pool| pool.alive(now).count())
    }

    fn find(&mut self, origin: &Origin<'_>, now: Instant) -> Option<Taken> {
        let key = Key::from_origin(origin).ok()?;
        self.pools.use_row(&key)?;
        let (ended, kept) = self.change(&key, |pool| (pool.drop_ended(now), pool.take()))?;
        self.counts.expired += ended as u64;
        let kept = kept?;
        let policy = self.policies.get(&key.context);
        let early_data_max = policy.early_data_max(key.server(), kept.ticket.early_data_max);
        Some(Taken { key, kept, early_data_max, at: self.stamp() })
    }

    fn keep(&mut self, key: Key, kept: Kept, now: Instant) -> Result<(), NotKept> {
        let bytes = kept.ticket.bytes();
        if self.scarce(&key, bytes).is_some() {
            self.expire(now);
            self.make_room(&key, bytes)?;
        }
        self.first_end = Some(self.first_end.map_or(kept.end, |end| end.min(kept.end)));
        self.pools.use_or_insert(key.clone(), Pool::default);
        self.change(&key, |pool| pool.put(kept));
        Ok(())
    }

    /// Returns the resource that is too scarce for one more ticket.
    fn scarce(&self, key: &Key, bytes: usize) -> Option<Scarce> {
        let own = self.pools.get(key);
        if own.map_or(0, Pool::len) >= self.limits.tickets_per_server {
            Some(Scarce::TicketsOfServer)
        } else if self.held.bytes + bytes > self.limits.bytes {
            Some(Scarce::Bytes)
        } else if self.held.tickets >= self.limits.tickets {
            Some(Scarce::Tickets)
        } else if own.is_none() && self.pools.len() >= self.limits.servers {
            Some(Scarce::Servers)
        } else {
            None
        }
    }

    /// Evicts until there is room. Each iteration drops at least one ticket.
    fn make_room(&mut self, key: &Key, bytes: usize) -> Result<(), NotKept> {
        while let Some(scarce) = self.scarce(key, bytes) {
            let user = key.user();
            let first = match scarce {
                Scarce::TicketsOfServer => self.pools.get(key).map(|_| key.clone()),
                Scarce::Bytes => self.pools.first_to_go(user, bytes, Pool::bytes),
                Scarce::Tickets => self.pools.first_to_go(user, 1, Pool::len),
                Scarce::Servers => {
                    let dropped = self.pools.make_room(user, self.limits.servers);
                    let dropped = dropped.ok_or(NotKept::Full)?;
                    self.held.tickets -= dropped.len();
                    self.held.bytes -= dropped.bytes();
                    self.counts.evicted += dropped.len() as u64;
                    continue;
                }
            };
            self.change(&first.ok_or(NotKept::Full)?, Pool::drop_first);
            self.counts.evicted += 1;
        }
        Ok(())
    }

    /// Changes one pool, and removes it if that leaves it empty.
    fn change<T>(&mut self, key: &Key, act: impl FnOnce(&mut Pool) -> T) -> Option<T> {
        let pool = self.pools.get_mut(key)?;
        self.held.tickets -= pool.len();
        self.held.bytes -= pool.bytes();
        let done = act(pool);
        self.held.tickets += pool.len();
        self.held.bytes += pool.bytes();
        if pool.is_empty() {
            self.pools.remove(key);
        }
        Some(done)
    }

    /// Counts the contents of all pools again after several have changed.
    fn recount(&mut self) {
        self.held = Held::default();
        for pool in self.pools.values() {
            self.held.tickets += pool.len();
            self.held.bytes += pool.bytes();
        }
        self.first_end = self.pools.values().filter_map(Pool::first_end).min();
    }

    fn drop_policy(&mut self, context: &Context) {
        self.policies.remove(context);
        self.apply_policies(heirs(context), self.policies.get(context));
    }

    /// Drops and shortens what policies no longer allow, after `affected` got `policy`.
    fn apply_policies(&mut self, affected: Whose<'_>, policy: Policy) {
        if !policy.sharing.keeps() {
            let at = self.tick();
            self.forgotten.note(affected, at);
        }
        let mut count = 0;
        self.pools.retain(|key, pool| {
            let policy = self.policies.get(&key.context);
            let keeps = policy.sharing.allows(key.server());
            if keeps {
                pool.shorten(policy.lifetime);
            } else {
                count += pool.len();
            }
            keeps
        });
        self.recount();
        self.counts.forgotten += count as u64;
    }

    fn sweep(&mut self, now: Instant) {
        if self.swept.is_none_or(|swept| now.saturating_duration_since(swept) >= SWEEP) {
            self.expire(now);
        }
    }

    fn tick(&mut self) -> Stamp {
        self.events += 1;
        self.stamp()
    }
}

/// A resource that may be scarce.
#[derive(Clone, Copy)]
enum Scarce {
    TicketsOfServer,
    Bytes,
    Tickets,
    Servers,
}

/// Returns the contexts that may inherit the policy of this one.
const fn heirs(context: &Context) -> Whose<'_> {
    match context {
        Context { uid: Some(user), label: None } => Whose::User(*user),
        _ => Whose::Context(context),
    }
}

/// Returns the ticket without times in the future, and its end.
fn dated(ticket: Ticket, policy: Policy, now: Instant) -> (Ticket, Instant) {
    let received = ticket.received.min(now);
    let verified = ticket.verified.min(received);
    let lifetime = match ticket.lifetime {
        Duration::ZERO if ticket.reusable => SESSION_LIFE_UNKNOWN,
        lifetime => lifetime.min(SESSION_LIFE_MAX),
    };
    let end = (received + lifetime).min(verified + policy.lifetime);
    (Ticket { received, verified, ..ticket }, end)
}
