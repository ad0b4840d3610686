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

/// Fast Open cookies by host name and context; each is given out once, until its end, and on the
/// network it was got on.
///
/// Never by the server's address: a name's other addresses take the same cookies (Sy et al. 2019).
#[derive(Debug, Default)]
pub struct CookieJar {
    limits: Limits,
    entries: Table<Key, Entry>,
    spent: SeenCookies,
}

/// Limits of a jar; [`Default`] is what the connector uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Pairs of host and context.
    pub hosts: usize,
    /// Cookies for each.
    pub cookies_per_host: usize,
    /// Spent cookies remembered in each of two generations.
    pub spent: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { hosts: HOSTS, cookies_per_host: COOKIES_PER_HOST, spent: SPENT_COOKIES }
    }
}

/// Context, host and network of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Visit<'a> {
    /// The host's name, whatever its case and with or without a final dot.
    pub host: &'a str,
    /// Owner.
    pub context: &'a Context,
    /// The way there.
    pub network: Network,
}

/// Knowledge of earlier visits of the same context to the same host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Visited {
    /// Nothing.
    Never,
    /// There was one on the same network.
    Here {
        /// So long ago was the last one: what it brought is as old.
        ago: Duration,
    },
    /// They were on another network, or the machine was away since: what was got there is not to be
    /// shown here.
    Elsewhere,
}

impl CookieJar {
    /// An empty jar.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty jar that holds so much.
    #[must_use]
    pub fn with_limits(limits: Limits) -> Self {
        Self { limits, spent: SeenCookies::new(limits.spent), ..Self::default() }
    }

    /// A visit begins. What earlier ones brought on another network is dropped.
    ///
    /// It tells nothing to those after it before it [arrives](Self::arrive): several that begin at
    /// once show what is of the same age.
    pub fn visit(&mut self, visit: &Visit<'_>, now: Instant) -> Visited {
        let Ok(key) = Key::from_visit(visit) else { return Visited::Never };
        match self.entry(key, visit.network).last {
            Last::Never => Visited::Never,
            Last::Elsewhere => Visited::Elsewhere,
            Last::Here(at) => Visited::Here { ago: now.saturating_duration_since(at) },
        }
    }

    /// The visit is connected: what is shown from now on may have been got by it.
    pub fn arrive(&mut self, visit: &Visit<'_>, now: Instant) {
        let Ok(key) = Key::from_visit(visit) else { return };
        if let Some(entry) = self.entries.get_mut(&key).filter(|entry| entry.is_at(visit)) {
            entry.last = Last::Here(now);
        }
    }

    /// Keeps a cookie that was got inside TLS on this visit, and that lives for `lifetime` from now
    /// on; for at most [`COOKIE_LIFE_MAX`].
    ///
    /// # Errors
    /// Why it is not kept.
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

    /// The cookie for this visit that ends first, if there is one. It is spent with that: it must
    /// go onto the wire once or never.
    pub fn take(&mut self, visit: &Visit<'_>, now: Instant) -> Option<Cookie> {
        let key = Key::from_visit(visit).ok()?;
        let user = key.user();
        if self.spent.is_full(user, now) || self.entries.get(&key).is_none() {
            return None;
        }
        let entry = self.entry(key, visit.network);
        entry.drop_ended(now);
        let cookie = entry.cookies.pop_front()?.cookie;
        self.spent.spend(cookie, user, now).ok().map(|()| cookie)
    }

    /// Spends a cookie that `user` has from elsewhere, such as the client's own ticket: it must go
    /// onto the wire once or never, and is not kept any more if it was.
    ///
    /// # Errors
    /// Why it must not go onto the wire.
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

    /// Forgets what belongs to `context`, such as when it ends. Which cookies were spent stays
    /// known.
    pub fn forget_context(&mut self, context: &Context) {
        self.entries.retain(|key, _| key.context != *context);
    }

    /// Forgets what belongs to any of these contexts. Which cookies were spent stays known.
    pub fn forget(&mut self, whose: Whose<'_>) {
        self.entries.retain(|key, _| !whose.includes(&key.context));
    }

    /// The machine left the networks that are `left`: what was got there is dropped, and the next
    /// visit of the same host is [`Visited::Elsewhere`], wherever it is.
    pub fn leave(&mut self, left: impl Fn(&Network) -> bool) {
        for entry in self.entries.values_mut() {
            if entry.network.as_ref().is_some_and(&left) {
                entry.network = None;
                entry.cookies.clear();
            }
        }
    }

    /// Forgets everything but which cookies were spent.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// Pairs of host and context that are remembered.
    #[must_use]
    pub fn hosts(&self) -> usize {
        self.entries.len()
    }

    /// Cookies that are kept, of which some may have ended.
    #[must_use]
    pub fn cookies(&self) -> usize {
        self.entries.values().map(|entry| entry.cookies.len()).sum()
    }

    fn holds(&self, cookie: &Cookie) -> bool {
        self.entries.values().flat_map(|entry| &entry.cookies).any(|kept| kept.cookie == *cookie)
    }

    /// The entry of `key`, used now on `network`; made if there is none.
    fn entry(&mut self, key: Key, network: Network) -> &mut Entry {
        if self.entries.get(&key).is_none() {
            self.entries.make_room(key.user(), self.limits.hosts);
        }
        let new = || Entry { network: Some(network), last: Last::Never, cookies: VecDeque::new() };
        let entry = self.entries.use_or_insert(key, new);
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
    /// Network of the last visit; `None` once the machine has left it. Then there are no cookies
    /// either.
    network: Option<Network>,
    last: Last,
    /// Cookies, the first to end in front.
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
        self.cookies.retain(|kept| now + LAST_MOMENT < kept.end);
    }
}
