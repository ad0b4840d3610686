//! Applies a database to a page: the page as a client with that database sees it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::UNIX_EPOCH;

use serde::Serialize;

use super::database::{Connect, Database, PageEntry, Prefetch};
use super::export::Links;
use super::figures::Tally;
use super::limits::ENTRIES_PER_PAGE;
use super::target::{Origin, Target};
use crate::page::{BYTES_MAX, Known, KnownServer, Page, Protocol, Resource, Server};

/// Maximum assumed size of a needlessly requested URL in bytes: however large a page's own
/// resources are, all URLs of a database together stay within the limits of a page.
const OTHER_BYTES: u64 = BYTES_MAX / ENTRIES_PER_PAGE as u64;

/// Seconds of a day, in which ages of recordings are counted.
const DAY_SECONDS: u64 = 24 * 60 * 60;

/// Coverage of a load's needs by a database, and the database's useless entries. For one page, or
/// summed over several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Coverage {
    /// Pages.
    pub pages: Tally,
    /// Redirects to documents; one that leads elsewhere counts as wrong.
    pub redirects: Tally,
    /// Servers, except those of redirects to documents.
    pub servers: Tally,
    /// Hosts that speak HTTP/2 on port 443.
    pub http2: Tally,
    /// URLs, except documents and redirects to them.
    pub prefetch: Tally,
    /// Bytes of these URLs. A database has no sizes: URLs in vain are assumed to have the mean size
    /// of the page's other resources.
    pub prefetch_bytes: Tally,
}

impl Coverage {
    /// Adds the counts of another page.
    pub fn merge(&mut self, other: &Self) {
        let Self { pages, redirects, servers, http2, prefetch, prefetch_bytes } = self;
        let all = [
            (pages, other.pages),
            (redirects, other.redirects),
            (servers, other.servers),
            (http2, other.http2),
            (prefetch, other.prefetch),
            (prefetch_bytes, other.prefetch_bytes),
        ];
        all.into_iter().for_each(|(tally, other)| tally.merge(other));
    }
}

impl Database {
    /// Returns the page with what this database knows of it, for simulators, and the coverage.
    #[must_use]
    pub fn apply(&self, page: &Page) -> (Page, Coverage) {
        let lookup = Lookup::from_page(self, page);
        let (resources, prefetched) = lookup.resources();
        // The page is still valid: only its marks differ.
        let with = Page::new(page.name().to_owned(), page.servers().to_vec(), resources);
        let Ok(with) = with else { return (page.clone(), Coverage::default()) };
        let mut coverage = Coverage {
            pages: one(lookup.entry.is_some()),
            redirects: lookup.redirects(),
            http2: lookup.http2(),
            ..Coverage::default()
        };
        let known = lookup.known(&prefetched, &mut coverage);
        let with = with
            .with_redirects(page.redirects())
            .with_recorded(page.recorded().clone())
            .with_ignored(page.ignored().clone())
            .with_known(known);
        (with, coverage)
    }

    /// Returns true if the database may have been learned from this very load: it has the page, and
    /// a recording of it no older than the load, as far as dates are known.
    #[must_use]
    pub fn may_be_learned_from(&self, page: &Page) -> bool {
        let document = page.document().url.parse();
        let Some(entry) = document.ok().and_then(|document| self.page(&document)) else {
            return false;
        };
        let at = page.recorded().at.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        entry.age_days.zip(at).is_none_or(|(days, at)| {
            at.as_secs() <= self.created().0.saturating_sub(u64::from(days) * DAY_SECONDS)
        })
    }
}

/// Looks up the parts of one page in a database.
struct Lookup<'a> {
    database: &'a Database,
    page: &'a Page,
    entry: Option<&'a PageEntry>,
    /// Targets of its prefetch database that `Link` fields can name.
    links: HashSet<&'a Target>,
    /// Target of each resource, if a database could contain it.
    targets: Vec<Option<Target>>,
    /// Origin of each server, if a database could contain it.
    origins: Vec<Option<Origin>>,
    /// Servers that the page needs when the redirects are known.
    needed: BTreeSet<usize>,
}

impl<'a> Lookup<'a> {
    fn from_page(database: &'a Database, page: &'a Page) -> Self {
        let targets: Vec<Option<Target>> =
            page.resources().iter().map(|of| of.url.parse().ok()).collect();
        let document = targets.get(page.redirects()).and_then(Option::as_ref);
        let entry = document.and_then(|document| database.page(document));
        let preloaded: Vec<&Prefetch> = entry.map(Links::preloaded).unwrap_or_default();
        let links = preloaded.into_iter().map(|of| &of.target).collect();
        let origins = page
            .servers()
            .iter()
            .map(|of: &Server| Origin::new(of.tls, of.host.as_str().into(), of.port).ok())
            .collect();
        let behind = page.resources().iter().skip(page.redirects());
        let needed = behind.map(|resource| resource.server).collect();
        Self { database, page, entry, links, targets, origins, needed }
    }

    fn target(&self, place: usize) -> Option<&Target> {
        self.targets.get(place)?.as_ref()
    }

    /// Returns the end of the page's redirects, if the database leads to the recorded document.
    fn knows_redirects(&self) -> bool {
        let document = self.target(self.page.redirects());
        let leads = self.target(0).and_then(|first| Some(self.database.redirect(first)?.to()));
        leads.is_some() && leads == document
    }

    fn redirects(&self) -> Tally {
        let count = self.page.redirects() as u64;
        let has = self.target(0).is_some_and(|first| self.database.redirect(first).is_some());
        match self.knows_redirects() {
            true => Tally { used: count, ..Tally::default() },
            false => Tally { missed: count, wrong: has.into(), used: 0 },
        }
    }

    /// Returns the resources, marked where the prefetch database has them, and the targets found in
    /// it.
    fn resources(&self) -> (Vec<Resource>, HashSet<&'a Target>) {
        let entries = self.entry.into_iter().flat_map(|entry| &entry.prefetch);
        let wanted: HashMap<&Target, &'a Target> =
            entries.map(|of| (&of.target, &of.target)).collect();
        let mut found = HashSet::new();
        let resources = self
            .page
            .resources()
            .iter()
            .enumerate()
            .map(|(place, resource): (usize, &Resource)| {
                let known = self.target(place).and_then(|target| wanted.get(target));
                found.extend(known.copied());
                Resource {
                    in_prefetch_database: known.is_some(),
                    in_links: known.is_some_and(|known| self.links.contains(known)),
                    ..resource.clone()
                }
            })
            .collect();
        (resources, found)
    }

    fn http2(&self) -> Tally {
        let mut speaks: HashMap<&str, bool> = HashMap::new();
        for &place in &self.needed {
            let Some(server) = self.page.servers().get(place) else { continue };
            if server.tls && server.port == 443 {
                *speaks.entry(&server.host).or_default() |= server.protocol != Protocol::Http1;
            }
        }
        let mut tally = Tally::default();
        for (host, speaks) in speaks {
            let expected = self.database.speaks(host).is_some();
            tally.add(expected.into(), speaks.into());
        }
        tally
    }

    fn known(&self, prefetched: &HashSet<&Target>, coverage: &mut Coverage) -> Known {
        let mut known = Known { redirects: self.knows_redirects(), ..Known::default() };
        let mut entries: HashMap<(&Origin, bool), &Connect> = HashMap::new();
        for server in self.entry.into_iter().flat_map(|entry| &entry.servers) {
            entries.insert((&server.origin, server.anonymous), server);
        }
        for (place, server) in self.page.servers().iter().enumerate() {
            let origin = self.origins.get(place).and_then(Option::as_ref);
            let entry = origin.and_then(|origin| entries.get(&(origin, server.anonymous)));
            let is_needed = self.needed.contains(&place);
            let connections = entry.filter(|_| is_needed).map_or(0, |entry| entry.connections);
            known.servers.push(KnownServer { connections, http2: self.speaks_http2(server) });
            if is_needed {
                coverage.servers.merge(one(entry.is_some()));
            }
        }
        for &place in &self.needed {
            let server = self.page.servers().get(place);
            if let (Some(Some(origin)), Some(server)) = (self.origins.get(place), server) {
                entries.remove(&(origin, server.anonymous));
            }
        }
        let mut others: Vec<&Connect> = entries.into_values().collect();
        others.sort();
        for other in others {
            coverage.servers.add(1, 0);
            self.other_server(&other.origin, other.anonymous, other.connections, &mut known);
        }
        self.other_resources(prefetched, &mut known, coverage);
        known
    }

    fn speaks_http2(&self, server: &Server) -> bool {
        server.tls && server.port == 443 && self.database.speaks(&server.host).is_some()
    }

    /// Returns the place of a server that the load does not need.
    fn other_server(
        &self,
        origin: &Origin,
        anonymous: bool,
        connections: u8,
        known: &mut Known,
    ) -> usize {
        let mut server = Server {
            host: origin.host().to_owned(),
            port: origin.port,
            tls: origin.tls,
            anonymous,
            protocol: Protocol::Http1,
            pipelining: false,
            address: None,
        };
        let http2 = self.speaks_http2(&server);
        if http2 {
            server.protocol = Protocol::Http2;
        }
        known.other_servers.push(server);
        known.servers.push(KnownServer { connections, http2 });
        known.servers.len() - 1
    }

    fn other_resources(
        &self,
        prefetched: &HashSet<&Target>,
        known: &mut Known,
        coverage: &mut Coverage,
    ) {
        let mut seen = HashSet::new();
        let (mut count, mut sum) = (0u64, 0u64);
        let behind = self.page.resources().iter().enumerate().skip(self.page.redirects() + 1);
        for (place, resource) in behind {
            let target = self.target(place);
            if target.is_some_and(|target| !seen.insert(target)) {
                continue;
            }
            let expected = u64::from(target.is_some_and(|target| prefetched.contains(target)));
            coverage.prefetch.add(expected, 1);
            coverage
                .prefetch_bytes
                .add(expected * resource.response_bytes, resource.response_bytes);
            (count, sum) = (count + 1, sum + resource.response_bytes);
        }
        let response_bytes = sum.checked_div(count).unwrap_or_default().min(OTHER_BYTES);
        for other in self.entry.into_iter().flat_map(|entry| &entry.prefetch) {
            if prefetched.contains(&other.target) {
                continue;
            }
            coverage.prefetch.add(1, 0);
            coverage.prefetch_bytes.add(response_bytes, 0);
            let server = self.server_of(&other.target.origin, known);
            known.other_resources.push(Resource {
                server,
                response_bytes,
                in_prefetch_database: true,
                in_links: self.links.contains(&other.target),
                url: other.target.to_string(),
                ..Resource::default()
            });
        }
    }

    /// Returns the first server of an origin, with or without credentials; otherwise adds one, to
    /// which no connection is opened ahead.
    fn server_of(&self, origin: &Origin, known: &mut Known) -> usize {
        let place =
            self.page.servers().iter().chain(&known.other_servers).position(|server: &Server| {
                (server.tls, server.host.as_str(), server.port)
                    == (origin.tls, origin.host(), origin.port)
            });
        place.unwrap_or_else(|| self.other_server(origin, false, 0, known))
    }
}

fn one(is_there: bool) -> Tally {
    Tally { used: is_there.into(), missed: (!is_there).into(), wrong: 0 }
}
