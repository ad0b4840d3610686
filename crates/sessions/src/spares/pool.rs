use std::net::SocketAddr;
use std::time::Duration;

use super::{Moment, SpareKey, SparePolicy, Vain, Wish};
use crate::origin::Whose;
use crate::table::Owned;

/// Wishes and spares for each one that may be open, so that wishes for later do not grow.
const ENTRIES_PER_SPARE: usize = 4;

/// Share of one user, as one part in this many, however many labels the user has.
const USER_SHARE: usize = 2;

/// The spare connections of a client, of type `S`, and those that it will open.
///
/// Feed it openings with [`on_opening`](Self::on_opening), connect what
/// [`poll_open`](Self::poll_open) asks for and report with [`put`](Self::put) or
/// [`fail`](Self::fail), and call [`expire`](Self::expire) at [`timeout`](Self::timeout). After
/// [`take`](Self::take), report how the spare has ended, by [`on_used`](Self::on_used) or
/// [`on_vain`](Self::on_vain).
#[derive(Debug)]
pub struct SparePool<S> {
    policy: SparePolicy,
    entries: Vec<Entry<S>>,
    limit: usize,
    ids: u64,
}

#[derive(Debug)]
struct Entry<S> {
    id: u64,
    key: SpareKey,
    address: SocketAddr,
    from: Duration,
    until: Duration,
    state: State<S>,
}

#[derive(Debug)]
enum State<S> {
    Planned,
    Connecting,
    Open(S, Duration),
}

impl<S> Entry<S> {
    const fn is_planned(&self) -> bool {
        matches!(self.state, State::Planned)
    }

    const fn is_open(&self) -> bool {
        matches!(self.state, State::Open(..))
    }
}

/// A spare taken out of a pool.
#[derive(Debug)]
pub struct TakenSpare<S> {
    /// The connection.
    pub connection: S,
    /// Owner and host.
    pub key: SpareKey,
    /// Its remote address.
    pub address: SocketAddr,
    /// Time at which it was connected.
    pub since: Duration,
}

impl<S> SparePool<S> {
    /// Creates a pool of at most `limit` spares; with none it learns nothing.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { policy: SparePolicy::default(), entries: Vec::new(), limit, ids: 0 }
    }

    /// Returns true if the pool may hold spares.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.limit > 0
    }

    /// Returns the number of open spares.
    #[must_use]
    pub fn held(&self) -> usize {
        self.entries.iter().filter(|entry| entry.is_open()).count()
    }

    /// Learns from an opening by TCP to `address`, which took `rtt` to connect, or would have.
    pub fn on_opening(&mut self, key: &SpareKey, address: SocketAddr, rtt: Duration, now: Moment) {
        if !self.is_on() {
            return;
        }
        self.entries.retain(|entry| !(entry.is_planned() && entry.key == *key));
        for wish in self.policy.on_opening(key, address, rtt, now) {
            self.add(&wish);
        }
    }

    /// Plans what is missing for a wish.
    fn add(&mut self, wish: &Wish) {
        let has = |entry: &&Entry<S>| entry.key == wish.key && entry.until > wish.from;
        let missing = wish.count.saturating_sub(self.entries.iter().filter(has).count());
        let room = self.room(self.limit * ENTRIES_PER_SPARE, &wish.key, |_| true);
        for _ in 0..missing.min(room) {
            self.ids += 1;
            let Wish { key, address, from, until, .. } = wish.clone();
            self.entries.push(Entry {
                id: self.ids,
                key,
                address,
                from,
                until,
                state: State::Planned,
            });
        }
    }

    /// Returns the number and address of the next spare to connect now.
    pub fn poll_open(&mut self, now: Moment) -> Option<(u64, SocketAddr)> {
        loop {
            let due = |entry: &Entry<S>| entry.is_planned() && entry.from <= now.at;
            let at = self.entries.iter().position(due)?;
            let entry = self.entries.get(at)?;
            let room = self.room(self.limit, &entry.key, |entry| !entry.is_planned());
            if entry.until > now.at && room > 0 && self.policy.may_open(&entry.key, now) {
                let entry = self.entries.get_mut(at)?;
                entry.state = State::Connecting;
                return Some((entry.id, entry.address));
            }
            self.entries.remove(at);
        }
    }

    /// Returns how many more entries there may be of those that count, for the user of `key`, if
    /// there may be `limit` for all users.
    fn room(&self, limit: usize, key: &SpareKey, counts: impl Fn(&Entry<S>) -> bool) -> usize {
        let counted = self.entries.iter().filter(|entry| counts(entry));
        let own = counted.clone().filter(|entry| entry.key.user() == key.user()).count();
        let left = limit.saturating_sub(counted.count());
        left.min(limit.div_ceil(USER_SHARE).saturating_sub(own))
    }

    /// Returns true if this spare is still to be connected.
    pub fn is_wanted(&self, id: u64) -> bool {
        self.entries.iter().any(|entry| entry.id == id)
    }

    /// Takes a spare that is connected. Gives it back if it is no longer wanted.
    pub fn put(&mut self, id: u64, connection: S, now: Moment) -> Option<S> {
        match self.entries.iter_mut().find(|entry| entry.id == id) {
            Some(entry) => entry.state = State::Open(connection, now.at),
            None => return Some(connection),
        }
        None
    }

    /// Takes note that a spare could not be connected. Returns 0 if it was no longer wanted.
    pub fn fail(&mut self, id: u64, now: Moment) -> usize {
        self.drop_where(now, |entry| (entry.id == id).then_some(Vain::Failed))
    }

    /// Returns true if a spare for `key` is open, at an address that `has` knows.
    pub fn has(&self, key: &SpareKey, has: impl Fn(SocketAddr) -> bool) -> bool {
        let mut entries = self.entries.iter();
        entries.any(|entry| entry.is_open() && entry.key == *key && has(entry.address))
    }

    /// Takes the spare for `key` that would be closed first, among those whose address is known to
    /// `has`. The others stay: an answer of DNS may still name their addresses.
    pub fn take(
        &mut self,
        key: &SpareKey,
        now: Moment,
        has: impl Fn(SocketAddr) -> bool,
    ) -> Option<TakenSpare<S>> {
        let usable = |entry: &Entry<S>| {
            entry.is_open() && entry.key == *key && entry.until > now.at && has(entry.address)
        };
        let usable = self.entries.iter().enumerate().filter(|(_, entry)| usable(entry));
        let (at, _) = usable.min_by_key(|(_, entry)| entry.until)?;
        let Entry { key, address, state, .. } = self.entries.swap_remove(at);
        let State::Open(connection, since) = state else { return None };
        Some(TakenSpare { connection, key, address, since })
    }

    /// Learns that a spare that was taken has opened a connection.
    pub fn on_used(&mut self, key: &SpareKey) {
        self.policy.on_used(key);
    }

    /// Learns that a spare is in vain.
    pub fn on_vain(&mut self, key: &SpareKey, why: Vain, now: Moment) {
        if let Some(wish) = self.policy.on_vain(key, why, now).filter(|_| self.is_on()) {
            self.add(&wish);
        }
    }

    /// Closes the spares whose time is over. Returns how many.
    pub fn expire(&mut self, now: Moment) -> usize {
        self.drop_where(now, |entry| (entry.until <= now.at).then_some(Vain::Expired))
    }

    /// Drops open spares for a reason each, given their age. Returns how many.
    pub fn drop_if(
        &mut self,
        now: Moment,
        mut why: impl FnMut(&S, Duration) -> Option<Vain>,
    ) -> usize {
        self.drop_where(now, |entry| match &entry.state {
            State::Open(connection, since) => why(connection, now.at.saturating_sub(*since)),
            State::Planned | State::Connecting => None,
        })
    }

    /// Closes the open spares of networks that the machine has `left`, and all that are planned or
    /// being connected: their addresses may be those of other hosts elsewhere. Returns how many.
    pub fn leave(&mut self, now: Moment, left: impl Fn(&S) -> bool) -> usize {
        self.policy.forget_addresses();
        self.drop_where(now, |entry| match &entry.state {
            State::Open(connection, _) => left(connection).then_some(Vain::Dropped),
            State::Planned | State::Connecting => Some(Vain::Dropped),
        })
    }

    /// Closes all spares, and holds at most `limit` from now on. Returns how many. A host gets
    /// spares again after its next opening: its address may no longer be allowed.
    pub fn reset(&mut self, limit: usize, now: Moment) -> usize {
        self.limit = limit;
        self.policy.forget_addresses();
        self.drop_where(now, |_| Some(Vain::Dropped))
    }

    /// Closes the spares of these contexts, and forgets their openings. Returns how many.
    pub fn forget(&mut self, whose: Whose<'_>, now: Moment) -> usize {
        self.policy.forget(whose);
        self.drop_where(now, |entry| whose.includes(entry.key.context()).then_some(Vain::Dropped))
    }

    /// Returns the time at which something is to be opened or closed.
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        let times = self.entries.iter();
        times.map(|entry| if entry.is_planned() { entry.from } else { entry.until }).min()
    }

    /// Drops entries for a reason each. Returns how many were open, or about to be.
    fn drop_where(&mut self, now: Moment, mut why: impl FnMut(&Entry<S>) -> Option<Vain>) -> usize {
        let mut vain = Vec::new();
        self.entries.retain(|entry| {
            let Some(why) = why(entry) else { return true };
            if !entry.is_planned() {
                vain.push((entry.key.clone(), why));
            }
            false
        });
        vain.iter().for_each(|(key, why)| self.on_vain(key, *why, now));
        vain.len()
    }
}
