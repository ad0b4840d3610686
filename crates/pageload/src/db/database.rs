//! Contents of a database, and questions to it.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use headstart_proto::UnixSeconds;

use super::limits::{CONNECTIONS, ENTRIES_PER_PAGE, HOPS, HOSTS, PAGES};
use super::target::{Origin, Target, check_host};
use crate::har::Kind;

/// The databases of many pages: redirect, server, HTTP/2 and prefetch, or some of them.
///
/// It is the same for all its users, and nothing that one of them does changes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Database {
    created: UnixSeconds,
    parts: Parts,
    pages: Vec<PageEntry>,
    http2: BTreeMap<String, Http2>,
    redirects: HashMap<Target, (usize, usize)>,
}

/// Selection of databases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Redirects: where URLs lead.
    pub redirect: bool,
    /// The servers that a page connects to.
    pub server: bool,
    /// The hosts that speak HTTP/2.
    pub http2: bool,
    /// The resources that a page loads.
    pub prefetch: bool,
}

/// Entry of one page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageEntry {
    /// URL of the document, after all redirects.
    pub document: Target,
    /// Number of recordings that the entry was learned from.
    pub recordings: u32,
    /// Age of the newest recording in days when the database was made; `None` without a date.
    pub age_days: Option<u32>,
    /// Redirects that its loads go through, by their first URL.
    pub redirects: Vec<Redirect>,
    /// Servers that its loads connect to.
    pub servers: Vec<Connect>,
    /// Resources that its loads request.
    pub prefetch: Vec<Prefetch>,
}

/// A URL that leads to another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// Requested URL.
    pub from: Target,
    /// Targets, step by step; the last one is no redirect.
    pub hops: Vec<Hop>,
    /// True if it leads to the page's document, not to a part of it.
    pub of_document: bool,
}

/// One step of a redirect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Target of the step.
    pub to: Target,
    /// True if clients may remember the step: status 301 or 308 (RFC 9110 section 15.4).
    pub permanent: bool,
}

/// A server to connect to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Connect {
    /// Origin of the server.
    pub origin: Origin,
    /// True if the connections are for requests without credentials (Fetch, section 2.6).
    pub anonymous: bool,
    /// Number of connections, from one to [`CONNECTIONS`].
    pub connections: u8,
}

/// A URL to request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Prefetch {
    /// The resource.
    pub target: Target,
    /// Use of the resource.
    pub kind: Kind,
}

/// Protocols of a host on port 443.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Http2 {
    /// HTTP/2.
    Http2,
    /// HTTP/3, which implies HTTP/2.
    Http3,
}

impl Parts {
    /// All four databases.
    pub const ALL: Self = Self { redirect: true, server: true, http2: true, prefetch: true };
    /// No database.
    pub const NONE: Self = Self { redirect: false, server: false, http2: false, prefetch: false };

    /// Returns the names of the selected databases, in the order of the file.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        [
            ("redirect", self.redirect),
            ("server", self.server),
            ("http2", self.http2),
            ("prefetch", self.prefetch),
        ]
        .into_iter()
        .filter_map(|(name, is_there)| is_there.then_some(name))
    }
}

impl Redirect {
    /// Returns the final target.
    #[must_use]
    pub fn to(&self) -> &Target {
        self.hops.last().map_or(&self.from, |hop| &hop.to)
    }

    /// Returns true if all its steps are permanent.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        self.hops.iter().all(|hop| hop.permanent)
    }
}

impl Database {
    /// Builds a database of entries in any order; drops those of none of the `parts`.
    ///
    /// # Errors
    /// Too many of anything; two entries for one page, URL or server; redirects that go in circles,
    /// or lead from https to http.
    pub fn new(
        created: UnixSeconds,
        parts: Parts,
        mut pages: Vec<PageEntry>,
        http2: BTreeMap<String, Http2>,
    ) -> Result<Self, DatabaseError> {
        within("pages", pages.len(), PAGES)?;
        within("hosts", http2.len(), HOSTS)?;
        let http2 = if parts.http2 { http2 } else { BTreeMap::new() };
        if http2.keys().any(|host| check_host(host).is_err()) {
            return Err(DatabaseError::Host);
        }
        pages.sort_by(|left, right| left.document.cmp(&right.document));
        if pages.windows(2).any(|pair| pair[0].document == pair[1].document) {
            return Err(DatabaseError::Twice("page"));
        }
        for page in &mut pages {
            page.keep(parts);
            page.order()?;
        }
        let redirects = index(&pages)?;
        Ok(Self { created, parts, pages, http2, redirects })
    }

    /// Returns the time at which the database was made. A file with a later date replaces an older
    /// one.
    #[must_use]
    pub fn created(&self) -> UnixSeconds {
        self.created
    }

    /// Returns the databases that it contains.
    #[must_use]
    pub fn parts(&self) -> Parts {
        self.parts
    }

    /// Returns all pages, ordered by document.
    #[must_use]
    pub fn pages(&self) -> &[PageEntry] {
        &self.pages
    }

    /// Returns all hosts that speak HTTP/2.
    #[must_use]
    pub fn http2(&self) -> &BTreeMap<String, Http2> {
        &self.http2
    }

    /// Returns the entry of the page with this URL, after all redirects.
    #[must_use]
    pub fn page(&self, document: &Target) -> Option<&PageEntry> {
        let place = self.pages.binary_search_by(|page| page.document.cmp(document)).ok()?;
        self.pages.get(place)
    }

    /// Returns the known redirect that begins at a URL.
    #[must_use]
    pub fn redirect(&self, from: &Target) -> Option<&Redirect> {
        let &(page, redirect) = self.redirects.get(from)?;
        self.pages.get(page)?.redirects.get(redirect)
    }

    /// Returns the protocol of a host on port 443 besides HTTP/1.1, as far as known.
    #[must_use]
    pub fn speaks(&self, host: &str) -> Option<Http2> {
        self.http2.get(host).copied()
    }
}

impl PageEntry {
    fn keep(&mut self, parts: Parts) {
        if !parts.redirect {
            self.redirects.clear();
        }
        if !parts.server {
            self.servers.clear();
        }
        if !parts.prefetch {
            self.prefetch.clear();
        }
    }

    /// Sorts entries, so that equal contents make equal files.
    fn order(&mut self) -> Result<(), DatabaseError> {
        let lengths = [self.redirects.len(), self.servers.len(), self.prefetch.len()];
        for length in lengths {
            within("entries of a page", length, ENTRIES_PER_PAGE)?;
        }
        self.redirects.sort_by(|left, right| left.from.cmp(&right.from));
        self.redirects.iter().try_for_each(Redirect::check)?;
        self.servers.sort();
        if self.servers.windows(2).any(|pair: &[Connect]| {
            (&pair[0].origin, pair[0].anonymous) == (&pair[1].origin, pair[1].anonymous)
        }) {
            return Err(DatabaseError::Twice("server"));
        }
        if self.servers.iter().any(|server| !(1..=CONNECTIONS).contains(&server.connections)) {
            return Err(DatabaseError::Connections);
        }
        self.prefetch.sort();
        match self.prefetch.windows(2).any(|pair| pair[0].target == pair[1].target) {
            true => Err(DatabaseError::Twice("URL")),
            false => Ok(()),
        }
    }
}

impl Redirect {
    fn check(&self) -> Result<(), DatabaseError> {
        if self.hops.is_empty() {
            return Err(DatabaseError::Circle);
        }
        within("redirects of a chain", self.hops.len(), HOPS)?;
        // Otherwise the file's author could take the protection of TLS from users.
        match self.from.origin.tls && !self.to().origin.tls {
            true => Err(DatabaseError::Downgrade),
            false => Ok(()),
        }
    }
}

/// Returns the place of each redirect, or an error if following them does not always end.
fn index(pages: &[PageEntry]) -> Result<HashMap<Target, (usize, usize)>, DatabaseError> {
    let mut places = HashMap::new();
    for (page, entry) in pages.iter().enumerate() {
        for (redirect, of) in entry.redirects.iter().enumerate() {
            if places.insert(of.from.clone(), (page, redirect)).is_some() {
                return Err(DatabaseError::Twice("redirect"));
            }
        }
    }
    let redirects = pages.iter().flat_map(|page| &page.redirects);
    let leads: HashMap<&Target, &Target> = redirects.map(|of| (&of.from, of.to())).collect();
    match circles(&leads).is_empty() {
        true => Ok(places),
        false => Err(DatabaseError::Circle),
    }
}

/// Returns the sources from which following redirects never ends.
pub(super) fn circles<'t>(leads: &HashMap<&'t Target, &'t Target>) -> Vec<&'t Target> {
    let mut ends: HashMap<&Target, bool> = HashMap::new();
    let mut endless = Vec::new();
    for &start in leads.keys() {
        let mut way = Vec::new();
        let mut at = start;
        // A chain met again before its end is a loop.
        let does_end = loop {
            match (ends.get(at), leads.get(at)) {
                (Some(&known), _) => break known,
                (None, None) => break true,
                (None, Some(&next)) => {
                    ends.insert(at, false);
                    way.push(at);
                    at = next;
                }
            }
        };
        if does_end {
            ends.extend(way.into_iter().map(|target| (target, true)));
        }
        if !does_end {
            endless.push(start);
        }
    }
    endless
}

fn within(what: &'static str, count: usize, limit: usize) -> Result<(), DatabaseError> {
    if count > limit { Err(DatabaseError::TooMany { what, count, limit }) } else { Ok(()) }
}

/// Reason why entries are no database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseError {
    /// A limit is exceeded.
    TooMany {
        /// Kind of entries.
        what: &'static str,
        /// Number of entries.
        count: usize,
        /// Limit.
        limit: usize,
    },
    /// Two entries are for the same page, URL or server.
    Twice(&'static str),
    /// Redirects form a circle, or one has no target.
    Circle,
    /// A redirect leads from https to http.
    Downgrade,
    /// A number of connections is zero or too large.
    Connections,
    /// A host has no name.
    Host,
}

impl fmt::Display for DatabaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany { what, count, limit } => write!(f, "{count} {what}, of {limit} at most"),
            Self::Twice(what) => write!(f, "two entries for one {what}"),
            Self::Circle => f.write_str("redirects go in circles"),
            Self::Downgrade => f.write_str("a redirect leads from https to http"),
            Self::Connections => {
                write!(f, "a server with other than 1 to {CONNECTIONS} connections")
            }
            Self::Host => f.write_str("a host that is no name"),
        }
    }
}

impl std::error::Error for DatabaseError {}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn target(text: &str) -> Target {
        text.parse().unwrap()
    }

    fn page(document: &str) -> PageEntry {
        PageEntry {
            document: target(document),
            recordings: 3,
            age_days: None,
            redirects: vec![],
            servers: vec![],
            prefetch: vec![],
        }
    }

    fn redirect(from: &str, to: &str) -> Redirect {
        let hops = vec![Hop { to: target(to), permanent: true }];
        Redirect { from: target(from), hops, of_document: true }
    }

    fn database(pages: Vec<PageEntry>) -> Result<Database, DatabaseError> {
        Database::new(UnixSeconds(1), Parts::ALL, pages, BTreeMap::new())
    }

    #[test]
    fn a_page_and_its_redirect_are_found() {
        let redirects = vec![redirect("http://a.test/", "https://a.test/")];
        let of = PageEntry { redirects, ..page("https://a.test/") };
        let database = database(vec![page("https://b.test/"), of]).unwrap();
        assert!(database.page(&target("https://a.test/")).is_some());
        assert!(database.page(&target("https://a.test/other")).is_none());
        let found = database.redirect(&target("http://a.test/")).unwrap();
        assert_eq!(found.to(), &target("https://a.test/"));
        assert!(database.redirect(&target("https://a.test/")).is_none());
    }

    #[test]
    fn contradictory_databases_are_refused() {
        let twice = database(vec![page("https://a.test/"), page("https://a.test/")]);
        assert_eq!(twice, Err(DatabaseError::Twice("page")));
        let there = redirect("https://a.test/1", "https://a.test/2");
        let back = redirect("https://a.test/2", "https://a.test/1");
        assert_eq!(with(vec![there.clone(), there.clone()]), Err(DatabaseError::Twice("redirect")));
        assert_eq!(with(vec![there.clone(), back]), Err(DatabaseError::Circle));
        assert!(with(vec![there]).is_ok());
        let itself = redirect("https://a.test/1", "https://a.test/1");
        assert_eq!(with(vec![itself]), Err(DatabaseError::Circle));
        let down = redirect("https://a.test/", "http://a.test/");
        assert_eq!(with(vec![down]), Err(DatabaseError::Downgrade));
        let long = Redirect {
            hops: vec![Hop { to: target("https://a.test/z"), permanent: false }; HOPS],
            ..redirect("https://a.test/1", "https://a.test/2")
        };
        assert!(with(vec![long.clone()]).is_ok());
        let longer = Redirect { hops: vec![long.hops[0].clone(); HOPS + 1], ..long };
        assert!(matches!(with(vec![longer]), Err(DatabaseError::TooMany { .. })));
    }

    fn with(redirects: Vec<Redirect>) -> Result<Database, DatabaseError> {
        database(vec![PageEntry { redirects, ..page("https://a.test/") }])
    }

    #[test]
    fn numbers_of_connections_have_bounds() {
        let origin = target("https://a.test/").origin;
        for (connections, error) in [
            (0, Some(DatabaseError::Connections)),
            (1, None),
            (CONNECTIONS, None),
            (CONNECTIONS + 1, Some(DatabaseError::Connections)),
        ] {
            let servers = vec![Connect { origin: origin.clone(), anonymous: false, connections }];
            let read = database(vec![PageEntry { servers, ..page("https://a.test/") }]);
            assert_eq!(read.err(), error, "{connections}");
        }
    }

    #[test]
    fn all_ways_into_a_circle_are_endless() {
        let [a, b, c, d, e] =
            ["a", "b", "c", "d", "e"].map(|host| target(&format!("https://{host}.test/")));
        let leads = HashMap::from([(&a, &b), (&b, &c), (&c, &b), (&d, &e)]);
        let mut endless = circles(&leads);
        endless.sort();
        assert_eq!(endless, [&a, &b, &c]);
    }
}
