use std::collections::VecDeque;
use std::time::{Duration, Instant};

use headstart_proto::cookie::Cookie;
use headstart_proto::limits::COOKIE_LIFE_MAX;

use crate::context::Context;
use crate::host::normal;
use crate::limits::{COOKIES_PER_HOST, HOSTS, LAST_MOMENT, SPENT_COOKIES};
use crate::network::Network;
use crate::not_kept::NotKept;
use crate::origin::Whose;
use crate::seen::{SeenCookies, Unspendable};
use crate::table::{Owned, Table};

#[cfg(test)]
mod tests;

/// Fast Open cookies by host name and context. Hands out each once, before it expires, and on the
/// network where it was received.
///
/// The server's address does not matter: a name's other addresses accept the same cookies (Sy et
/// al. 2019).
#[derive(Debug, Default)]
pub struct CookieJar {
    limits: Limits,
    entries: Table<Key, Entry>,
    spent: SeenCookies,
}

/// Capacity of a jar; the connector uses [`Default`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Pairs of host and context.
    pub hosts: usize,
    /// Cookies per pair.
    pub cookies_per_host: usize,
    /// Spent cookies remembered in each of two generations.
    pub spent: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { hosts: HOSTS, cookies_per_host: COOKIES_PER_HOST, spent: SPENT_COOKIES }
    }
}

/// Owner, host and network of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Visit<'a> {
    /// The host's name, in any case, with or without a final dot.
    pub host: &'a str,
    /// Owner of the connection.
    pub context: &'a Context,
    /// Network path to the host.
    pub network: Network,
}

/// Earlier visits of the same context to the same host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Visited {
    /// There was none.
    Never,
    /// The last one was on the same network.
    Here {
        /// Time since the last visit, and so the age of the cookies that it received.
        ago: Duration,
    },
    /// They were on another network, or the machine has been elsewhere since: send nothing here
    /// that was received there.
    Elsewhere,
}

impl CookieJar {
    /// Creates an empty jar.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty jar with these limits.
    #[must_use]
    pub fn with_limits(limits: Limits) -> Self {
        Self { limits, spent: SeenCookies::new(limits.spent), ..Self::default() }
    }

    /// Begins a visit. Drops the cookies of earlier ones on another network.
    ///
    /// A visit affects later ones only once it [arrives](Self::arrive): several that begin at once
    /// send data of the same age.
    pub fn visit(&mut self, visit: &Visit<'_>, now: Instant) -> Visited {
        let Ok(key) = Key::from_visit(visit) else { return Visited::Never };
        match self.entry(key, visit.network).last {
            Last::Never => Visited::Never,
            Last::Elsewhere => Visited::Elsewhere,
            Last::Here(at) => Visited::Here { ago: now.saturating_duration_since(at) },
        }
    }

    /// Reports that the visit is connected: later visits may send data received by it.
    pub fn arrive(&mut self, visit: &Visit<'_>, now: Instant) {
        let Ok(key) = Key::from_visit(visit) else { return };
        if let Some(entry) = self.entries.get_mut(&key).filter(|entry| entry.is_at(visit)) {
            entry.last = Last::Here(now);
        }
    }

    /// Keeps a cookie received inside TLS on this visit, for `lifetime` from now, at most
    /// [`COOKIE_LIFE_MAX`].
    ///
    /// # Errors
    /// The reason why it is not kept.
    pub fn put(
        &mut self,
        visit: &Visit<'_>,
        cookie: Cookie,
        lifetime: Duration,
        now: Instant,
    ) -> Result<(), NotKept> {
        let key = Key::from_visit(visit)?;
        let lifetime = lifetime.min(COOKIE_LIFE_MAX);
        if lifetime <= LAST_MOMENT {
            return Err(NotKept::Lifetime);
        }
        if self.entries.get(&key).is_some_and(|entry| !entry.is_at(visit)) {
            return Err(NotKept::Network);
        }
        self.entries.values_mut().for_each(|entry| entry.drop_ended(now));
        if self.spent.contains(&cookie) || self.holds(&cookie) {
            return Err(NotKept::Known);
        }
        let most = self.limits.cookies_per_host;
        let entry = self.entry(key, visit.network);
        entry.last = Last::Here(now);
        entry.put(Kept { cookie, end: now + lifetime });
        while entry.cookies.len() > most {
            entry.cookies.pop_front();
        }
        Ok(())
    }

    /// Takes the cookie for this visit that expires first, and so spends it: send it at most once.
    pub fn take(&mut self, visit: &Visit<'_>, now: Instant) -> Option<Cookie> {
        let key = Key::from_visit(visit).ok()?;
        let user = key.user();
        if self.spent.is_full(user, now) || self.entries.get(&key).is_none() {
            return None;
        }
        let entry = self.entry(key, visit.network);
        entry.drop_ended(now);
        let cookie = entry.cookies.pop_front()?.cookie;
        // F-CLIENT-2
        self.spent.spend(cookie, user, now).ok().map(|()| cookie)
    }

    /// Spends a cookie that `user` has from elsewhere, such as the client's own ticket: send it at
    /// most once. Drops it from the jar.
    ///
    /// # Errors
    /// The reason why it must not be sent.
    pub fn spend(
        &mut self,
        cookie: Cookie,
        user: Option<u32>,
        now: Instant,
    ) -> Result<(), Unspendable> {
        self.spent.spend(cookie, user, now)?;
        for entry in self.entries.values_mut() {
            entry.cookies.retain(|kept| kept.cookie != cookie);
        }
        Ok(())
    }

    /// Forgets the data of `context`, such as when it ends. Spent cookies stay known.
    pub fn forget_context(&mut self, context: &Context) {
        self.entries.retain(|key, _| key.context != *context);
    }

    /// Forgets the data of any of these contexts. Spent cookies stay known.
    pub fn forget(&mut self, whose: Whose<'_>) {
        self.entries.retain(|key, _| !whose.includes(&key.context));
    }

    /// Reports that the machine left the networks for which `left` returns true. Drops the cookies
    /// received there; the next visit of the same host is [`Visited::Elsewhere`], wherever it is.
    pub fn leave(&mut self, left: impl Fn(&Network) -> bool) {
        for entry in self.entries.values_mut() {
            // F-CLIENT-4
            if entry.network.as_ref().is_some_and(&left) {
                entry.network = None;
                entry.cookies.clear();
            }
        }
    }

    /// Forgets everything except which cookies were spent.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// Returns the number of pairs of host and context.
    #[must_use]
    pub fn hosts(&self) -> usize {
        self.entries.len()
    }

    /// Returns the number of cookies, some of which may have expired.
    #[must_use]
    pub fn cookies(&self) -> usize {
        self.entries.values().map(|entry| entry.cookies.len()).sum()
    }

    fn holds(&self, cookie: &Cookie) -> bool {
        self.entries.values().flat_map(|entry| &entry.cookies).any(|kept| kept.cookie == *cookie)
    }

    /// Returns the entry of `key`, created if missing, and marks it as used on `network`.
    fn entry(&mut self, key: Key, network: Network) -> &mut Entry {
        if self.entries.get(&key).is_none() {
            self.entries.make_room(key.user(), self.limits.hosts);
        }
        let entry = self.entries.use_or_insert(key, || Entry {
            network: Some(network),
            last: Last::Never,
            cookies: VecDeque::new(),
        });
        if entry.network != Some(network) {
            entry.network = Some(network);
            entry.last = Last::Elsewhere;
            entry.cookies.clear();
        }
        entry
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    host: Box<str>,
    context: Context,
}

impl Key {
    fn from_visit(visit: &Visit<'_>) -> Result<Self, NotKept> {
        if !visit.context.is_shared() {
            return Err(NotKept::Context);
        }
        // F-CLIENT-1
        let host = normal(visit.host).ok_or(NotKept::Host)?;
        Ok(Self { host, context: visit.context.clone() })
    }
}

impl Owned for Key {
    fn user(&self) -> Option<u32> {
        self.context.uid
    }
}

#[derive(Debug)]
struct Entry {
    /// Network of the last visit; `None`, with no cookies, once the machine has left it.
    network: Option<Network>,
    last: Last,
    /// Cookies, the one that expires first in front.
    cookies: VecDeque<Kept>,
}

/// The last visit that arrived.
#[derive(Clone, Copy, Debug)]
enum Last {
    Never,
    /// On another network.
    Elsewhere,
    /// On this one, at that time.
    Here(Instant),
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    cookie: Cookie,
    end: Instant,
}

impl Entry {
    fn is_at(&self, visit: &Visit<'_>) -> bool {
        self.network == Some(visit.network)
    }

    fn put(&mut self, new: Kept) {
        let at = self.cookies.partition_point(|kept| kept.end <= new.end);
        self.cookies.insert(at, new);
    }

    fn drop_ended(&mut self, now: Instant) {
        // F-CLIENT-3
        self.cookies.retain(|kept| now + LAST_MOMENT < kept.end);
    }
}
