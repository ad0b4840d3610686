use std::time::{Duration, Instant};

use crate::context::Context;
use crate::limits::{
    RECENT_TICKETS, SERVERS, SESSION_LIFE_MAX, SESSION_LIFE_UNKNOWN, STORE_BYTES, SWEEP,
    TICKET_BYTES_MAX, TICKETS, TICKETS_PER_SERVER, TICKETS_WANTED,
};
use crate::names::CertificateNames;
use crate::not_kept::NotKept;
use crate::origin::{Filter, Key, Origin, Server, Whose};
use crate::policy::{NotSet, Policies, Policy};
use crate::table::{Owned, Table};
use crate::ticket::{Kept, Stamp, Taken, Ticket, TicketsWanted};
use forgotten::Forgotten;
use pool::{Pool, is_alive};
use recent::Recent;

mod forgotten;
mod listed;
mod pool;
mod recent;
#[cfg(test)]
mod tests;

pub use listed::{Counts, Listed};

/// TLS sessions by origin: server, protocols, settings and context. A ticket is given out once,
/// until its end.
///
/// One connection:
///
/// 1. [`stamp`](Self::stamp), [`take`](Self::take) and [`wanted`](Self::wanted), before its
///    ClientHello.
/// 2. If the handshake never began: [`give_back`](Self::give_back). If the server did a full
///    handshake instead of resuming: [`refused`](Self::refused).
/// 3. [`put`](Self::put) for each ticket that comes.
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
///     client_certificate: false,
///     reusable: false,
/// };
/// assert!(store.put(&origin, ticket, now).is_ok());
/// // The next one spends it.
/// let taken = store.take(&origin, now).expect("a ticket");
/// assert_eq!(taken.session(), b"bytes of the engine");
/// assert!(store.take(&origin, now).is_none());
/// ```
///
/// # What gives way
/// Where there are more servers, tickets or bytes than there may be, first all tickets go that are
/// over. Then the user who has most of what is scarce gives way, counting what is to be added: of
/// its servers that not used for longest, and there the ticket that ends first; where servers are
/// scarce, all tickets of it. So a user who has no more than an even share loses nothing to others.
/// Within one server, the ticket that ends first gives way.
#[derive(Debug)]
pub struct SessionStore {
    limits: StoreLimits,
    pools: Table<Key, Pool>,
    policies: Policies,
    forgotten: Forgotten,
    recent: Recent,
    /// Counts what happens here, to know what was before what.
    events: u64,
    swept: Option<Instant>,
    /// No ticket is over before that.
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

/// Limits of a store; [`Default`] is what the agent uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreLimits {
    /// Origins.
    pub servers: usize,
    /// Tickets of all origins.
    pub tickets: usize,
    /// Tickets of each.
    pub tickets_per_server: usize,
    /// Bytes of all tickets.
    pub bytes: usize,
    /// Tickets that came last and are known again.
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
    /// An empty store that holds so much.
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

    /// This moment, for [`Ticket::opened`] of a connection that begins now.
    #[must_use]
    pub const fn stamp(&self) -> Stamp {
        Stamp(self.events)
    }

    /// Keeps a ticket for later connections of the same origin.
    ///
    /// # Errors
    /// Why it is not kept; it is wiped then.
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

    /// A ticket for a connection of this origin: it has to be offered by that one, or be given
    /// back.
    ///
    /// Of tickets that may be offered once, that which ends first; a session of TLS 1.2 only where
    /// there are none, and as often as it is asked for.
    pub fn take(&mut self, origin: &Origin<'_>, now: Instant) -> Option<Taken> {
        self.sweep(now);
        let taken = self.find(origin, now);
        match taken {
            Some(_) => self.counts.taken += 1,
            None => self.counts.missed += 1,
        }
        taken
    }

    /// Takes back what was not offered: its handshake has never begun, so nobody has seen it.
    ///
    /// It is dropped if it is over by now, was forgotten meanwhile, or the policy is another one.
    pub fn give_back(&mut self, taken: Taken, now: Instant) {
        let Taken { key, mut kept, at, .. } = taken;
        let policy = self.policies.get(&key.context);
        kept.end = kept.end.min(kept.ticket.verified + policy.lifetime);
        let is_good = is_alive(kept.end, now)
            && policy.sharing.allows(key.server())
            && !self.forgotten.is_since(&key.context, at);
        // One that may be offered more than once was not taken away in the first place.
        if is_good && !kept.ticket.reusable && self.keep(key, kept, now).is_ok() {
            self.counts.given_back += 1;
        }
    }

    /// The server has done a full handshake although this was offered: it is spent, and what was
    /// kept of the same origin when it was taken is as good as over (RFC 9149 section 2). Says how
    /// many tickets that is.
    pub fn refused(&mut self, taken: Taken) -> usize {
        let dropped = self.change(&taken.key, |pool| pool.drop_older(taken.at)).unwrap_or_default();
        self.counts.refused += 1;
        self.counts.outdated += dropped as u64;
        dropped
    }

    /// The names of a certificate for which there are tickets of this context, protocols and
    /// settings, and that is for the host of `origin` too: to [`take`](Self::take) one by
    /// [`Server::Certificate`], if the policy is
    /// [`ShareCertificate`](crate::Sharing::ShareCertificate).
    #[must_use]
    pub fn certificate(&self, origin: &Origin<'_>, now: Instant) -> Option<CertificateNames> {
        let Server::Name(host) = origin.server else { return None };
        let key = Key::from_origin(origin).ok()?;
        let beside = |(other, pool)| Key::names_beside(other, &key).map(|names| (names, pool));
        let fits = |(names, pool): &(&CertificateNames, &Pool)| {
            names.covers(host) && pool.alive(now).next().is_some()
        };
        // Where several are good, always the same one, and not what a hash table happens to have
        // first.
        self.pools.iter().filter_map(beside).filter(fits).map(|(names, _)| names).min().cloned()
    }

    /// Returns the number of tickets that a connection of this origin should ask its server for
    /// (RFC 9149), once it has taken one or not.
    #[must_use]
    pub fn wanted(&self, origin: &Origin<'_>, now: Instant) -> TicketsWanted {
        let keeps = self.policies.get(origin.context).sharing.allows(origin.server);
        let Some(key) = Key::from_origin(origin).ok().filter(|_| keeps) else {
            return TicketsWanted { new_session: 0, resumption: 0 };
        };
        let held = self.pools.get(&key).map_or(0, |pool| pool.alive(now).count());
        let missing = TICKETS_WANTED.saturating_sub(u8::try_from(held).unwrap_or(u8::MAX));
        TicketsWanted { new_session: TICKETS_WANTED, resumption: missing.max(1) }
    }

    /// Forgets tickets, and says how many; connections that are open bring none back to the
    /// contexts that `filter` names.
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

    /// Returns true if a context was forgotten since a connection began, for what is kept beside
    /// sessions: that connection is to bring nothing back.
    #[must_use]
    pub fn was_forgotten(&self, context: &Context, opened: Stamp) -> bool {
        self.forgotten.is_since(context, opened)
    }

    /// Forgets a context at its end, with its policy, and says how many tickets that is.
    /// Connections of it that are still open leave nothing behind.
    pub fn end_context(&mut self, context: &Context) -> usize {
        let forgotten = self.forget(&Filter { server: None, whose: Whose::Context(context) });
        self.drop_policy(context);
        forgotten
    }

    /// Sets the policy of a context, or takes its own away: then it has that of its user without a
    /// label, and without that the one for everybody. What it does not allow is dropped at once.
    ///
    /// # Errors
    /// Why it is not set.
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

    /// Sets the policy of all contexts that have none. What it does not allow is dropped at once.
    pub fn set_default_policy(&mut self, policy: Policy) {
        self.policies.set_default(policy);
        self.apply_policies(Whose::Everybody, policy);
    }

    /// The policy that a context has, its own or not.
    #[must_use]
    pub fn policy(&self, context: &Context) -> Policy {
        self.policies.get(context)
    }

    /// The contexts with policies of their own.
    pub fn policies(&self) -> impl Iterator<Item = (&Context, Policy)> {
        self.policies.iter()
    }

    /// Lists the contents of a user, or of all; no secrets.
    pub fn list(&self, uid: Option<u32>, now: Instant) -> impl Iterator<Item = Listed<'_>> {
        let rows = self.pools.iter().filter(move |(key, _)| uid.is_none() || key.user() == uid);
        rows.filter_map(move |(key, pool)| {
            Listed::from_pool(key, pool, self.policies.get(&key.context), now)
        })
    }

    /// Wipes tickets that are over, and says how many. `put` and `take` do it now and then; this is
    /// for times when nobody calls them.
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

    /// Returns counts of contents and events, for metrics.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let Held { tickets, bytes } = self.held;
        Counts { servers: self.pools.len(), tickets, bytes, ..self.counts }
    }

    /// Decides whether a ticket may be kept at all, whatever else is kept.
    fn admit(&self, origin: &Origin<'_>, ticket: &Ticket) -> Result<(), NotKept> {
        let is_offered = |alpn: &Vec<u8>| origin.alpn.contains(alpn);
        if !self.policies.get(origin.context).sharing.allows(origin.server) {
            Err(NotKept::Policy)
        } else if ticket.client_certificate {
            Err(NotKept::ClientCertificate)
        } else if ticket.session.is_empty() || ticket.bytes() > TICKET_BYTES_MAX {
            Err(NotKept::Size)
        } else if !ticket.alpn.as_ref().is_none_or(is_offered) {
            Err(NotKept::Alpn)
        } else if self.forgotten.is_since(origin.context, ticket.opened) {
            Err(NotKept::Forgotten)
        } else {
            Ok(())
        }
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

    /// Returns the resource that is too scarce for one ticket more.
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

    /// Each turn drops a ticket at least.
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

    /// Changes one pool, which goes with its last ticket.
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

    /// Counts the contents of all pools, after several were changed.
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

    /// Drops and shortens what policies do not allow any more, after that of `affected` has become
    /// `policy`.
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
        let is_recent = |swept| now.saturating_duration_since(swept) < SWEEP;
        if !self.swept.is_some_and(is_recent) {
            self.expire(now);
        }
    }

    fn tick(&mut self) -> Stamp {
        self.events += 1;
        self.stamp()
    }
}

/// Resource that may be too scarce.
#[derive(Clone, Copy)]
enum Scarce {
    TicketsOfServer,
    Bytes,
    Tickets,
    Servers,
}

/// The contexts that may have the policy of this one.
const fn heirs(context: &Context) -> Whose<'_> {
    match context {
        Context { uid: Some(user), label: None } => Whose::User(*user),
        _ => Whose::Context(context),
    }
}

/// The ticket without times that have not come yet, and when it is over.
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
