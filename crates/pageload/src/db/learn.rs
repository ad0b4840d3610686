//! Learns what the loads of one page have in common.

use std::collections::{BTreeMap, HashMap};

use super::database::Http2;
use super::limits::CONNECTIONS;
use super::visit::{Fit, Visit};
use crate::har::Kind;

/// Rules for what is common enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Share of a page's recordings that must have it, in thousandths (BLAST, section 5.4: 90 %).
    pub share: u32,
    /// Minimum number of recordings of a page; pages with fewer are left out.
    pub recordings_min: u32,
    /// Maximum number of recordings of a page that are used, the newest ones.
    pub newest: usize,
}

impl Default for Rules {
    fn default() -> Self {
        // Fewer than three loads cannot tell frequent resources from constant ones.
        Self { share: 900, recordings_min: 3, newest: usize::MAX }
    }
}

impl Rules {
    /// Returns true if `count` of `all` reach the share.
    #[must_use]
    pub(crate) fn are_enough(&self, count: u32, all: u32) -> bool {
        count > 0 && u64::from(count) * 1000 >= u64::from(self.share) * u64::from(all)
    }
}

/// Frequency of each thing in some loads of one page.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub(super) visits: u32,
    redirects: HashMap<(u32, u32), u32>,
    /// Loads with at least one connection to the server, two, and so on.
    servers: HashMap<u32, [u32; CONNECTIONS as usize]>,
    fetched: HashMap<u32, Seen>,
    queries: HashMap<u32, HashMap<u32, u32>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    visits: u32,
    /// Number of loads in which it must not be prefetched, by [`Fit`].
    unfit: [u32; Fit::Unsafe as usize + 1],
    bytes: u32,
    kind: Kind,
}

/// Parts that the loads of a page have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Learned {
    /// Chain of each redirect, by its first URL.
    pub(super) redirects: BTreeMap<u32, u32>,
    pub(super) servers: BTreeMap<u32, u8>,
    pub(super) prefetch: BTreeMap<u32, Wanted>,
    /// Common URLs that must not be prefetched.
    pub(super) unfit: BTreeMap<Unfit, u64>,
}

/// A common URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) bytes: u32,
    pub(super) kind: Kind,
}

/// Reason why a common URL must not be prefetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Unfit {
    Fit(Fit),
    /// The same path is requested with other queries, too.
    Query,
}

impl Counts {
    pub(super) fn from_visits<'v>(visits: impl IntoIterator<Item = &'v Visit>) -> Self {
        let mut counts = Self::default();
        visits.into_iter().for_each(|visit| counts.add(visit));
        counts
    }

    pub(super) fn add(&mut self, visit: &Visit) {
        self.visits += 1;
        for redirect in &visit.redirects {
            *self.redirects.entry(*redirect).or_default() += 1;
        }
        for (server, connections) in &visit.servers {
            let counts = self.servers.entry(*server).or_default();
            counts.iter_mut().take((*connections).into()).for_each(|count| *count += 1);
        }
        for fetched in &visit.fetched {
            let seen = self.fetched.entry(fetched.target).or_default();
            seen.visits += 1;
            seen.unfit[fetched.fit as usize] += 1;
            (seen.bytes, seen.kind) = (fetched.bytes, fetched.kind);
        }
        for (path, queries) in &visit.queries {
            *self.queries.entry(*path).or_default().entry(*queries).or_default() += 1;
        }
    }

    /// Removes a load that was added.
    pub(super) fn remove(&mut self, visit: &Visit) {
        self.visits -= 1;
        for redirect in &visit.redirects {
            take_back(&mut self.redirects, *redirect);
        }
        for (server, connections) in &visit.servers {
            let counts = self.servers.entry(*server).or_default();
            counts.iter_mut().take((*connections).into()).for_each(|count| *count -= 1);
        }
        for fetched in &visit.fetched {
            let seen = self.fetched.entry(fetched.target).or_default();
            seen.visits -= 1;
            seen.unfit[fetched.fit as usize] -= 1;
        }
        for (path, queries) in &visit.queries {
            take_back(self.queries.entry(*path).or_default(), *queries);
        }
    }

    /// Returns what is common; `path` gives the path of a URL with a query.
    pub(super) fn learned(&self, rules: &Rules, path: impl Fn(u32) -> Option<u32>) -> Learned {
        let mut learned = Learned::default();
        if self.visits < rules.recordings_min.max(1) {
            return learned;
        }
        for ((from, chain), count) in &self.redirects {
            let asked = self.fetched.get(from).map_or(0, |seen| seen.visits);
            // Of loads that ask for it, and not in one load by chance; and in most of them, so that
            // there is no other.
            let is_common = rules.are_enough(*count, asked) && asked >= rules.recordings_min;
            if is_common && 2 * u64::from(*count) > u64::from(asked) {
                learned.redirects.insert(*from, *chain);
            }
        }
        for (server, counts) in &self.servers {
            let connections = counts
                .iter()
                .take_while(|count: &&u32| rules.are_enough(**count, self.visits))
                .count();
            if let Some(connections) = u8::try_from(connections).ok().filter(|count| *count > 0) {
                learned.servers.insert(*server, connections);
            }
        }
        for (target, seen) in &self.fetched {
            if !rules.are_enough(seen.visits, self.visits) {
                continue;
            }
            match self.unfit(seen, path(*target)) {
                Some(why) => *learned.unfit.entry(why).or_default() += 1,
                None => {
                    let wanted = Wanted { bytes: seen.bytes, kind: seen.kind };
                    learned.prefetch.insert(*target, wanted);
                }
            }
        }
        learned
    }

    fn unfit(&self, seen: &Seen, path: Option<u32>) -> Option<Unfit> {
        const REASONS: [Fit; 6] =
            [Fit::Unsafe, Fit::Unknown, Fit::Redirect, Fit::Cut, Fit::Mixed, Fit::Status];
        if let Some(fit) = REASONS.into_iter().find(|fit: &Fit| seen.unfit[*fit as usize] > 0) {
            return Some(Unfit::Fit(fit));
        }
        let varies = self.queries.get(&path?).is_some_and(|queries| queries.len() > 1);
        varies.then_some(Unfit::Query)
    }
}

fn take_back<K: Eq + std::hash::Hash>(counts: &mut HashMap<K, u32>, key: K) {
    let Some(count) = counts.get_mut(&key) else { return };
    *count -= 1;
    if *count == 0 {
        counts.remove(&key);
    }
}

/// Protocols of hosts, over the loads of all pages.
#[derive(Clone, Debug, Default)]
pub(super) struct Spoken(HashMap<u32, [u32; 3]>);

impl Spoken {
    pub(super) fn add(&mut self, visit: &Visit) {
        for (host, speaks) in &visit.protocols {
            self.0.entry(*host).or_default()[place(*speaks)] += 1;
        }
    }

    pub(super) fn remove(&mut self, visit: &Visit) {
        for (host, speaks) in &visit.protocols {
            self.0.entry(*host).or_default()[place(*speaks)] -= 1;
        }
    }

    /// Returns the protocol that a host speaks often enough, if that is not HTTP/1.1 alone.
    pub(super) fn speaks(&self, host: u32, rules: &Rules) -> Option<Http2> {
        let [none, http2, http3] = self.0.get(&host).copied()?;
        let all = none + http2 + http3;
        if all < rules.recordings_min {
            return None;
        }
        let http3 = rules.are_enough(http3, all).then_some(Http2::Http3);
        http3.or_else(|| rules.are_enough(all - none, all).then_some(Http2::Http2))
    }

    pub(super) fn hosts(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.keys().copied()
    }
}

fn place(speaks: Option<Http2>) -> usize {
    match speaks {
        None => 0,
        Some(Http2::Http2) => 1,
        Some(Http2::Http3) => 2,
    }
}
