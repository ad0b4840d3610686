//! The columns of a file, as docs/databases.md numbers them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use headstart_proto::UnixSeconds;

use super::columns::{ColumnError, Reader, TEXT_COLUMNS, Texts, Writer};
use super::database::{
    Connect, Database, DatabaseError, Hop, Http2, PageEntry, Parts, Prefetch, Redirect,
};
use super::limits::{ENTRIES_PER_PAGE, HOPS, HOSTS, PAGES};
use super::target::{Origin, Target, TargetError, compare_hosts};
use crate::har::Kind;

const COUNTS: usize = 0;
const HOST_NAMES: usize = 1;
const HTTP2: usize = HOST_NAMES + TEXT_COLUMNS;
const PAGE_OWN_HOSTS: usize = 5;
const PAGE_ORIGINS: usize = 6;
const PAGE_HOSTS: usize = 7;
const PAGE_PATHS: usize = 8;
const PAGE_RECORDINGS: usize = PAGE_PATHS + TEXT_COLUMNS;
const PAGE_AGES: usize = 12;
const REDIRECT_COUNTS: usize = 13;
const REDIRECT_HOPS: usize = 14;
const REDIRECT_ORIGINS: usize = 15;
const REDIRECT_HOSTS: usize = 16;
const REDIRECT_PATHS: usize = 17;
const SERVER_COUNTS: usize = REDIRECT_PATHS + TEXT_COLUMNS;
const SERVER_HOSTS: usize = 21;
const SERVER_ORIGINS: usize = 22;
const SERVER_CONNECTIONS: usize = 23;
const PREFETCH_COUNTS: usize = 24;
const PREFETCH_HOSTS: usize = 25;
const PREFETCH_ORIGINS: usize = 26;
const PREFETCH_KINDS: usize = 27;
const PREFETCH_PATHS: usize = 28;
const COLUMNS: usize = PREFETCH_PATHS + TEXT_COLUMNS;

/// Size of the groups that hosts of many pages are sorted into, those of most pages first:
/// references are differences, so that small numbers are frequent. Found by trial with 10,000
/// pages; readers do not depend on it.
const GROUPS: [usize; 3] = [48, 512, 4096];

/// Returns the columns of a database, as they are compressed in a file.
#[must_use]
pub fn write(database: &Database) -> Vec<u8> {
    let hosts = Hosts::from_database(database);
    let mut writer = Writer::new(COLUMNS);
    writer.count(COUNTS, database.pages().len());
    writer.count(COUNTS, hosts.shared.len());
    writer.count(COUNTS, hosts.shared.len() + hosts.own.iter().map(Vec::len).sum::<usize>());
    let mut names = Texts::new(HOST_NAMES);
    for host in hosts.shared.iter().chain(hosts.own.iter().flatten()) {
        writer.text(&mut names, &turned(host));
        if database.parts().http2 {
            writer.number(HTTP2, http2_number(database.speaks(host)));
        }
    }
    let mut output = Output { writer, hosts: &hosts, paths: Paths::new(), page: 0 };
    for (place, page) in database.pages().iter().enumerate() {
        output.page = place;
        output.page(page, database.parts());
    }
    output.writer.finish()
}

/// Reads a database from its columns.
///
/// # Errors
/// They are damaged, or say what no database may.
pub fn read(body: &[u8], created: UnixSeconds, parts: Parts) -> Result<Database, LayoutError> {
    let mut reader = Reader::new(body, COLUMNS)?;
    let pages = bounded(reader.count(COUNTS)?, PAGES)?;
    let shared = reader.count(COUNTS)?;
    let count = bounded(reader.count(COUNTS)?, HOSTS)?;
    let mut names = Texts::new(HOST_NAMES);
    let mut hosts: Vec<Arc<str>> = Vec::new();
    let mut http2 = BTreeMap::new();
    for _ in 0..count {
        let host = turned(reader.text(&mut names)?);
        if parts.http2 {
            let speaks = http2_of(reader.number(HTTP2)?)?;
            speaks.map(|speaks| http2.insert(host.clone(), speaks));
        }
        hosts.push(host.into());
    }
    let names: HashSet<&str> = hosts.iter().map(AsRef::as_ref).collect();
    if names.len() < hosts.len() {
        return Err(DatabaseError::Twice("host").into());
    }
    let (shared, own) = hosts.split_at_checked(shared).ok_or(LayoutError::Host)?;
    let mut input = Input { reader, shared, rest: own, own: &[], paths: Paths::new() };
    let pages = (0..pages).map(|_| input.page(parts)).collect::<Result<_, _>>()?;
    if !input.rest.is_empty() {
        return Err(LayoutError::Host);
    }
    input.reader.finish()?;
    Ok(Database::new(created, parts, pages, http2)?)
}

/// Hosts by number: those that no page or several pages refer to, then each page's own.
struct Hosts<'a> {
    shared: Vec<&'a str>,
    own: Vec<Vec<&'a str>>,
    places: HashMap<&'a str, usize>,
}

impl<'a> Hosts<'a> {
    fn from_database(database: &'a Database) -> Self {
        let mut pages: HashMap<&str, usize> =
            database.http2().keys().map(|host| (&**host, 0)).collect();
        let by_page: Vec<BTreeSet<&str>> = database.pages().iter().map(spoken_of).collect();
        for host in by_page.iter().flatten() {
            *pages.entry(host).or_default() += 1;
        }
        let own: Vec<Vec<&str>> = by_page
            .iter()
            .map(|hosts| {
                in_order(
                    hosts
                        .iter()
                        .filter(|host: &&&str| pages.get(**host) == Some(&1))
                        .copied()
                        .collect(),
                )
            })
            .collect();
        let shared = pages.iter().filter(|(_, pages)| **pages != 1);
        let shared = grouped(shared.map(|(host, pages)| (*host, *pages)).collect());
        let of_pages = own.iter().flat_map(|hosts| hosts.iter().enumerate());
        let places =
            shared.iter().enumerate().chain(of_pages).map(|(place, host)| (*host, place)).collect();
        Self { shared, own, places }
    }

    /// Returns a host's number as page `page` refers to it: its own hosts come first.
    fn reference(&self, page: usize, host: &str) -> usize {
        let place = self.places.get(host).copied().unwrap_or(0);
        let own = self.own.get(page).map_or(&[][..], Vec::as_slice);
        if own.get(place) == Some(&host) { place } else { own.len() + place }
    }
}

fn in_order(mut hosts: Vec<&str>) -> Vec<&str> {
    hosts.sort_by(|left, right| compare_hosts(left, right));
    hosts
}

fn grouped(mut hosts: Vec<(&str, usize)>) -> Vec<&str> {
    hosts.sort_by(|left, right| right.1.cmp(&left.1).then_with(|| compare_hosts(left.0, right.0)));
    let mut rest = hosts.into_iter().map(|(host, _)| host).peekable();
    let mut groups: Vec<Vec<&str>> =
        GROUPS.iter().map(|&size| rest.by_ref().take(size).collect()).collect();
    groups.push(rest.collect());
    groups.into_iter().flat_map(in_order).collect()
}

fn spoken_of(page: &PageEntry) -> BTreeSet<&str> {
    let redirects = page.redirects.iter().flat_map(|redirect| {
        [&redirect.from].into_iter().chain(redirect.hops.iter().map(|hop| &hop.to))
    });
    let prefetch = page.prefetch.iter().map(|prefetch| &prefetch.target);
    let targets = [&page.document].into_iter().chain(redirects).chain(prefetch);
    let servers = page.servers.iter().map(|server| server.origin.host());
    targets.map(|target| target.origin.host()).chain(servers).collect()
}

/// Writes paths; each shares its beginning only with paths of the same kind.
struct Paths {
    pages: Texts,
    redirects: Texts,
    prefetch: Texts,
}

impl Paths {
    const fn new() -> Self {
        Self {
            pages: Texts::new(PAGE_PATHS),
            redirects: Texts::new(REDIRECT_PATHS),
            prefetch: Texts::new(PREFETCH_PATHS),
        }
    }
}

struct Output<'a> {
    writer: Writer,
    hosts: &'a Hosts<'a>,
    paths: Paths,
    page: usize,
}

impl Output<'_> {
    fn page(&mut self, page: &PageEntry, parts: Parts) {
        self.writer.count(PAGE_OWN_HOSTS, self.hosts.own.get(self.page).map_or(0, Vec::len));
        self.writer.number(PAGE_ORIGINS, origin_number(&page.document.origin));
        self.writer.count(PAGE_HOSTS, self.reference(&page.document.origin));
        self.writer.text(&mut self.paths.pages, page.document.path());
        self.writer.number(PAGE_RECORDINGS, page.recordings);
        self.writer.number(PAGE_AGES, page.age_days.map_or(0, |days| u64::from(days) + 1));
        if parts.redirect {
            self.writer.count(REDIRECT_COUNTS, page.redirects.len());
            page.redirects.iter().for_each(|redirect| self.redirect(redirect));
        }
        if parts.server {
            self.writer.count(SERVER_COUNTS, page.servers.len());
            self.servers(&page.servers);
        }
        if parts.prefetch {
            self.writer.count(PREFETCH_COUNTS, page.prefetch.len());
            self.prefetch(&page.prefetch);
        }
    }

    fn redirect(&mut self, redirect: &Redirect) {
        let hops = redirect.hops.len() << 1 | usize::from(redirect.of_document);
        self.writer.count(REDIRECT_HOPS, hops);
        self.step(&redirect.from, false);
        redirect.hops.iter().for_each(|hop| self.step(&hop.to, hop.permanent));
    }

    fn step(&mut self, target: &Target, permanent: bool) {
        let origin = origin_number(&target.origin) << 1 | u64::from(permanent);
        self.writer.number(REDIRECT_ORIGINS, origin);
        self.writer.count(REDIRECT_HOSTS, self.reference(&target.origin));
        self.writer.text(&mut self.paths.redirects, target.path());
    }

    fn servers(&mut self, servers: &[Connect]) {
        let mut servers: Vec<(usize, &Connect)> =
            servers.iter().map(|server| (self.reference(&server.origin), server)).collect();
        servers.sort();
        let mut last = 0;
        for (host, server) in servers {
            self.writer.count(SERVER_HOSTS, host - last);
            self.writer.number(SERVER_ORIGINS, origin_number(&server.origin));
            let connections = (server.connections - 1) << 1 | u8::from(server.anonymous);
            self.writer.number(SERVER_CONNECTIONS, connections);
            last = host;
        }
    }

    fn prefetch(&mut self, prefetch: &[Prefetch]) {
        let mut prefetch: Vec<(usize, &Prefetch)> =
            prefetch.iter().map(|of| (self.reference(&of.target.origin), of)).collect();
        prefetch.sort();
        let mut last = 0;
        for (host, of) in prefetch {
            self.writer.count(PREFETCH_HOSTS, host - last);
            self.writer.number(PREFETCH_ORIGINS, origin_number(&of.target.origin));
            self.writer.number(PREFETCH_KINDS, kind_number(of.kind));
            self.writer.text(&mut self.paths.prefetch, of.target.path());
            last = host;
        }
    }

    fn reference(&self, origin: &Origin) -> usize {
        self.hosts.reference(self.page, origin.host())
    }
}

struct Input<'a, 'h> {
    reader: Reader<'a>,
    shared: &'h [Arc<str>],
    /// Own hosts of the pages that follow.
    rest: &'h [Arc<str>],
    /// Own hosts of this page.
    own: &'h [Arc<str>],
    paths: Paths,
}

impl Input<'_, '_> {
    fn page(&mut self, parts: Parts) -> Result<PageEntry, LayoutError> {
        let own = self.reader.count(PAGE_OWN_HOSTS)?;
        (self.own, self.rest) = self.rest.split_at_checked(own).ok_or(LayoutError::Host)?;
        let number = self.reader.number(PAGE_ORIGINS)?;
        let host = self.reader.count(PAGE_HOSTS)?;
        let origin = self.origin(number, host)?;
        let document = Target::new(origin, self.reader.text(&mut self.paths.pages)?.into())?;
        let recordings = self.reader.number(PAGE_RECORDINGS)?;
        let recordings = u32::try_from(recordings).map_err(|_| LayoutError::Number)?;
        let age = self.reader.number(PAGE_AGES)?.checked_sub(1);
        let age_days = age.map(u32::try_from).transpose().map_err(|_| LayoutError::Number)?;
        let mut page = PageEntry {
            document,
            recordings,
            age_days,
            redirects: Vec::new(),
            servers: Vec::new(),
            prefetch: Vec::new(),
        };
        if parts.redirect {
            let count = bounded(self.reader.count(REDIRECT_COUNTS)?, ENTRIES_PER_PAGE)?;
            page.redirects = (0..count).map(|_| self.redirect()).collect::<Result<_, _>>()?;
        }
        if parts.server {
            let count = bounded(self.reader.count(SERVER_COUNTS)?, ENTRIES_PER_PAGE)?;
            page.servers = self.servers(count)?;
        }
        if parts.prefetch {
            let count = bounded(self.reader.count(PREFETCH_COUNTS)?, ENTRIES_PER_PAGE)?;
            page.prefetch = self.prefetch(count)?;
        }
        Ok(page)
    }

    fn redirect(&mut self) -> Result<Redirect, LayoutError> {
        let number = self.reader.count(REDIRECT_HOPS)?;
        let hops = bounded(number >> 1, HOPS)?;
        let from = self.step()?;
        if from.permanent {
            return Err(LayoutError::Number);
        }
        let hops = (0..hops).map(|_| self.step()).collect::<Result<_, _>>()?;
        Ok(Redirect { from: from.to, hops, of_document: number & 1 == 1 })
    }

    fn step(&mut self) -> Result<Hop, LayoutError> {
        let number = self.reader.number(REDIRECT_ORIGINS)?;
        let host = self.reader.count(REDIRECT_HOSTS)?;
        let origin = self.origin(number >> 1, host)?;
        let to = Target::new(origin, self.reader.text(&mut self.paths.redirects)?.into())?;
        Ok(Hop { to, permanent: number & 1 == 1 })
    }

    fn servers(&mut self, count: usize) -> Result<Vec<Connect>, LayoutError> {
        let mut host = 0usize;
        let mut servers = Vec::new();
        for _ in 0..count {
            host = host.saturating_add(self.reader.count(SERVER_HOSTS)?);
            let number = self.reader.number(SERVER_ORIGINS)?;
            let origin = self.origin(number, host)?;
            let number = self.reader.number(SERVER_CONNECTIONS)?;
            let connections = (number >> 1).checked_add(1).map(u8::try_from);
            let connections = connections.and_then(Result::ok).ok_or(LayoutError::Number)?;
            servers.push(Connect { origin, anonymous: number & 1 == 1, connections });
        }
        Ok(servers)
    }

    fn prefetch(&mut self, count: usize) -> Result<Vec<Prefetch>, LayoutError> {
        let mut host = 0usize;
        let mut prefetch = Vec::new();
        for _ in 0..count {
            host = host.saturating_add(self.reader.count(PREFETCH_HOSTS)?);
            let number = self.reader.number(PREFETCH_ORIGINS)?;
            let origin = self.origin(number, host)?;
            let kind = kind_of(self.reader.number(PREFETCH_KINDS)?)?;
            let path = self.reader.text(&mut self.paths.prefetch)?.into();
            prefetch.push(Prefetch { target: Target::new(origin, path)?, kind });
        }
        Ok(prefetch)
    }

    fn origin(&self, number: u64, reference: usize) -> Result<Origin, LayoutError> {
        let host = match reference.checked_sub(self.own.len()) {
            None => self.own.get(reference),
            Some(shared) => self.shared.get(shared),
        };
        let host = Arc::clone(host.ok_or(LayoutError::Host)?);
        let (tls, port) = match number {
            0 => (true, 443),
            1 => (false, 80),
            _ => {
                let port = u16::try_from((number - 2) >> 1).map_err(|_| LayoutError::Number)?;
                (number & 1 == 0, port)
            }
        };
        let origin = Origin::new(tls, host, port)?;
        // Numbers must be in their shortest form.
        let is_shortest = number < 2 || !origin.has_default_port();
        if is_shortest { Ok(origin) } else { Err(LayoutError::Number) }
    }
}

/// Returns the number of an origin's scheme and port: 0 for https and 1 for http at their default
/// ports; other ports from 2 on, odd numbers for http.
fn origin_number(origin: &Origin) -> u64 {
    let scheme = u64::from(!origin.tls);
    if origin.has_default_port() { scheme } else { 2 + (u64::from(origin.port) << 1 | scheme) }
}

fn http2_number(speaks: Option<Http2>) -> u8 {
    match speaks {
        None => 0,
        Some(Http2::Http2) => 1,
        Some(Http2::Http3) => 2,
    }
}

fn http2_of(number: u64) -> Result<Option<Http2>, LayoutError> {
    match number {
        0 => Ok(None),
        1 => Ok(Some(Http2::Http2)),
        2 => Ok(Some(Http2::Http3)),
        _ => Err(LayoutError::Number),
    }
}

/// Kinds, by their numbers in files.
const KINDS: [Kind; 8] = [
    Kind::Other,
    Kind::Document,
    Kind::Style,
    Kind::Script,
    Kind::Data,
    Kind::Image,
    Kind::Font,
    Kind::Media,
];

fn kind_number(kind: Kind) -> u8 {
    // All kinds are in the list.
    let place = KINDS.iter().position(|of| *of == kind).unwrap_or(0);
    u8::try_from(place).unwrap_or(0)
}

fn kind_of(number: u64) -> Result<Kind, LayoutError> {
    let place = usize::try_from(number).ok();
    place.and_then(|place| KINDS.get(place).copied()).ok_or(LayoutError::Number)
}

/// Reverses the labels: `www.example.com` becomes `com.example.www`.
fn turned(host: &str) -> String {
    let labels: Vec<&str> = host.rsplit('.').collect();
    labels.join(".")
}

fn bounded(count: usize, limit: usize) -> Result<usize, LayoutError> {
    if count > limit { Err(LayoutError::TooMany { count, limit }) } else { Ok(count) }
}

/// Reason why columns cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// Its columns are damaged.
    Columns(ColumnError),
    /// A number has no meaning.
    Number,
    /// A host does not exist, or nothing refers to it.
    Host,
    /// A limit is exceeded.
    TooMany {
        /// Number found.
        count: usize,
        /// Limit.
        limit: usize,
    },
    /// A URL is invalid.
    Target(TargetError),
    /// The entries contradict each other.
    Database(DatabaseError),
}

impl From<ColumnError> for LayoutError {
    fn from(error: ColumnError) -> Self {
        Self::Columns(error)
    }
}

impl From<TargetError> for LayoutError {
    fn from(error: TargetError) -> Self {
        Self::Target(error)
    }
}

impl From<DatabaseError> for LayoutError {
    fn from(error: DatabaseError) -> Self {
        Self::Database(error)
    }
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Columns(error) => error.fmt(f),
            Self::Number => f.write_str("a number that says nothing"),
            Self::Host => f.write_str("a host that is not there, or of which nothing speaks"),
            Self::TooMany { count, limit } => write!(f, "{count} entries, of {limit} at most"),
            Self::Target(error) => write!(f, "a URL that is none: {error}"),
            Self::Database(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for LayoutError {}
