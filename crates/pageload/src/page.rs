//! A page as a tree of resources: what is requested, from which server, its size, and what it
//! depends on.

mod known;

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

pub use self::known::{Known, KnownServer};

/// Maximum resources of a page: ten times the largest of the data sets.
pub const RESOURCES_MAX: usize = 50_000;

/// Maximum dependencies of all resources of a page. A resource of a tree has one; where a group
/// waits for a group there is one for each pair, so that this limit and not [`RESOURCES_MAX`]
/// bounds the memory (24 MB).
pub const DEPENDENCIES_MAX: usize = 1_000_000;

/// Maximum bytes of all requests and responses of a page: five hundred times the mean of BLAST. A
/// load is simulated in pieces of some kilobytes; this bounds their number.
pub const BYTES_MAX: u64 = 1 << 30;

/// A recorded page.
///
/// Its resources stand in an order in which each comes after all that it depends on: there are no
/// cycles.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    name: String,
    servers: Vec<Server>,
    resources: Vec<Resource>,
    redirects: usize,
    recorded: Recorded,
    ignored: Ignored,
    known: Option<Known>,
    urgencies: BTreeMap<String, Urgency>,
}

/// A recording's facts about the whole load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Start of the load.
    pub at: Option<SystemTime>,
    /// Time until the document was parsed (`DOMContentLoaded`).
    pub content_loaded: Option<Duration>,
    /// Time until the browser's load event.
    pub on_load: Option<Duration>,
    /// Time until the largest contentful paint.
    pub largest_paint: Option<Duration>,
    /// Time until 95 % of the resources are loaded.
    pub page_load_time: Option<Duration>,
}

/// Entries of a recording that are not resources of its page, counted by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ignored(BTreeMap<Reason, usize>);

impl Ignored {
    /// Counts one entry.
    pub fn add(&mut self, reason: Reason) {
        *self.0.entry(reason).or_default() += 1;
    }

    /// Adds the counts of another page.
    pub fn merge(&mut self, other: &Self) {
        for (reason, count) in other.iter() {
            *self.0.entry(reason).or_default() += count;
        }
    }

    /// Returns the counts by reason; only those that occur.
    pub fn iter(&self) -> impl Iterator<Item = (Reason, usize)> + '_ {
        self.0.iter().map(|(&reason, &count)| (reason, count))
    }

    /// Returns the total count.
    pub fn total(&self) -> usize {
        self.0.values().sum()
    }
}

/// Reason why an entry of a recording is not a resource of its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The browser's cache answered.
    Cached,
    /// The browser aborted it, or it failed.
    Aborted,
    /// The browser or an extension blocked it.
    Blocked,
    /// A service worker answered.
    ServiceWorker,
    /// The URL contains the data, or has no server: `data:`, `blob:`, `file:` and the like.
    NotFetched,
    /// A WebSocket.
    WebSocket,
    /// Pushed by the server.
    Pushed,
    /// It was requested too late to belong to the load.
    Late,
    /// Its times are missing or impossible.
    Times,
    /// Its URL is invalid.
    Url,
    /// A required field is missing.
    Malformed,
    /// It was needed, but never requested.
    NeverSent,
    /// It belongs to none of the recording's pages.
    NoPage,
    /// The page already has [`RESOURCES_MAX`] resources.
    TooMany,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 14] = [
        Self::Cached,
        Self::Aborted,
        Self::Blocked,
        Self::ServiceWorker,
        Self::NotFetched,
        Self::WebSocket,
        Self::Pushed,
        Self::Late,
        Self::Times,
        Self::Url,
        Self::Malformed,
        Self::NeverSent,
        Self::NoPage,
        Self::TooMany,
    ];
}

impl fmt::Display for Reason {
    /// Describes the entries ignored for this reason: "3 blocked by the browser or an extension".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cached => "from the browser's cache",
            Self::Aborted => "aborted or failed",
            Self::Blocked => "blocked by the browser or an extension",
            Self::ServiceWorker => "answered by a service worker",
            Self::NotFetched => "data:, blob: and other URLs of no server",
            Self::WebSocket => "WebSockets",
            Self::Pushed => "pushed by the server",
            Self::Late => "asked for after the page was loaded and the network quiet for 2 s",
            Self::Times => "without times, or with such as cannot be",
            Self::Url => "with a URL that is none",
            Self::Malformed => "without a request or a URL",
            Self::NeverSent => "never sent",
            Self::NoPage => "of no page of the file",
            Self::TooMany => "beyond the limit on resources of a page",
        })
    }
}

/// A source of resources, with connections of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    /// Host name, as in the URL.
    pub host: String,
    /// TCP or UDP port.
    pub port: u16,
    /// True if it speaks TLS.
    pub tls: bool,
    /// True for requests without credentials: browsers keep their connections apart (Fetch, section
    /// 2.6).
    pub anonymous: bool,
    /// Protocol when the page was recorded.
    pub protocol: Protocol,
    /// True if it answers pipelined requests (RFC 9112 section 9.3.2).
    pub pipelining: bool,
    /// Address, where recorded.
    pub address: Option<IpAddr>,
}

/// The highest version of HTTP that a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// HTTP/1.1 or older.
    Http1,
    /// RFC 9113.
    Http2,
    /// RFC 9114.
    Http3,
}

impl Protocol {
    /// Returns the name that people know it by.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http1 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
            Self::Http3 => "HTTP/3",
        }
    }
}

/// One request and its response.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resource {
    /// Resources that have to be there before it is requested, the likeliest parent first. The
    /// page's own document has none.
    pub dependencies: Vec<Dependency>,
    /// Source of the parent.
    pub confidence: Confidence,
    /// Index in [`Page::servers`].
    pub server: usize,
    /// Bytes of the request with header; 0 if unknown.
    pub request_bytes: u64,
    /// Bytes of the response with header.
    pub response_bytes: u64,
    /// Time from the last byte of the request to the first of the response, without the network.
    pub server_time: Duration,
    /// True if the response is a redirect.
    pub redirect: bool,
    /// True if a prefetch database contains it (BLAST, section 5.4).
    pub in_prefetch_database: bool,
    /// True if the prefetch database contains it, and `Link` fields of the document can name it
    /// ([`crate::db::export::Links`]).
    pub in_links: bool,
    /// True if a frame of another site requests it: browsers keep the connections and the cache of
    /// such frames apart.
    pub in_foreign_frame: bool,
    /// URL, cut or empty where recordings do not have it.
    pub url: String,
    /// Number of its connection, where recorded: requests on one connection took turns in this
    /// order.
    pub connection: Option<u32>,
    /// Times of its load, where recorded.
    pub measured: Option<Timings>,
}

impl Resource {
    /// Returns the resource that is its parent in the page's tree.
    pub fn parent(&self) -> Option<usize> {
        self.dependencies.first().map(|dependency| dependency.on)
    }
}

/// Urgency of a request to the browser, which holds back those that are not urgent while many of
/// them are in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Urgency {
    /// Styles, fonts, data, scripts that the parser waits for, and all that nothing was recorded
    /// of.
    #[default]
    Urgent,
    /// Scripts that nothing waits for: urgent only as a preload.
    UrgentAsPreload,
    /// Pictures and media.
    Delayable,
}

/// Source of a resource's parent (BLAST, appendix C.2: three passes over the candidates).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Confidence {
    /// The recording names it.
    #[default]
    Recorded,
    /// Only one response came shortly before.
    Only,
    /// It came shortly before, and is a parent already.
    Chosen,
    /// It was the last of several that came shortly before.
    Last,
}

/// Times of one recorded load of a resource. Parts that did not occur are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// Time of the request, since the load began.
    pub started: Duration,
    /// Time until it had a connection, or one was begun for it.
    pub queued: Duration,
    /// Time of the DNS lookup.
    pub dns: Duration,
    /// Time of the TCP handshake.
    pub connect: Duration,
    /// Time of the TLS handshake.
    pub tls: Duration,
    /// Time to send the request.
    pub send: Duration,
    /// Time until the first byte of the response.
    pub wait: Duration,
    /// Time from the first byte to the last.
    pub receive: Duration,
}

impl Timings {
    /// Returns the time at which the last byte arrived, since the load began.
    pub fn end(&self) -> Duration {
        let parts =
            [self.queued, self.dns, self.connect, self.tls, self.send, self.wait, self.receive];
        parts.into_iter().fold(self.started, Duration::saturating_add)
    }
}

/// A resource that has to be there before another is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// Index in [`Page::resources`], lower than that of the resource that depends on it.
    pub on: usize,
    /// Part that has to be there.
    pub part: Part,
    /// Time that the client then needs, to parse or to run a script.
    pub then: Duration,
}

impl Dependency {
    /// Returns a dependency on all of a resource, followed at once.
    pub const fn whole(on: usize) -> Self {
        Self { on, part: Part::Whole, then: Duration::ZERO }
    }
}

/// Part of a response that has to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// This many bytes, or all if it has fewer; 0 means the first ones that arrive.
    Bytes(u64),
    /// The whole response.
    Whole,
}

impl Part {
    /// Returns how many bytes of a response of `response_bytes` have to be there.
    pub fn bytes_of(self, response_bytes: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.min(response_bytes),
            Self::Whole => response_bytes,
        }
    }
}

impl Server {
    /// Returns an HTTPS server at the default port, without pipelining and with an unknown address.
    pub fn https(host: impl Into<String>, protocol: Protocol) -> Self {
        Self {
            host: host.into(),
            port: 443,
            tls: true,
            anonymous: false,
            protocol,
            pipelining: false,
            address: None,
        }
    }
}

impl Page {
    /// Makes a page of `resources` from `servers`.
    ///
    /// # Errors
    /// No resource or more than [`RESOURCES_MAX`], [`DEPENDENCIES_MAX`] or [`BYTES_MAX`]; one of a
    /// server that is not there; one that depends on itself or a later one.
    pub fn new(
        name: String,
        servers: Vec<Server>,
        resources: Vec<Resource>,
    ) -> Result<Self, PageError> {
        if resources.is_empty() {
            return Err(PageError::Empty);
        }
        if resources.len() > RESOURCES_MAX {
            return Err(PageError::Resources(resources.len()));
        }
        let dependencies = resources.iter().map(|resource| resource.dependencies.len()).sum();
        if dependencies > DEPENDENCIES_MAX {
            return Err(PageError::Dependencies(dependencies));
        }
        let bytes = resources
            .iter()
            .flat_map(|resource| [resource.response_bytes, resource.request_bytes])
            .fold(0, u64::saturating_add);
        if bytes > BYTES_MAX {
            return Err(PageError::Bytes(bytes));
        }
        for (id, resource) in resources.iter().enumerate() {
            if resource.server >= servers.len() {
                return Err(PageError::Server { resource: id });
            }
            if resource.dependencies.iter().any(|dependency| dependency.on >= id) {
                return Err(PageError::Order { resource: id });
            }
        }
        let (recorded, ignored, known, urgencies) = Default::default();
        Ok(Self { name, servers, resources, redirects: 0, recorded, ignored, known, urgencies })
    }

    /// Returns the page with its first `count` resources marked as redirects to the document.
    #[must_use]
    pub fn with_redirects(self, count: usize) -> Self {
        Self { redirects: count.min(self.resources.len() - 1), ..self }
    }

    /// Returns the page with its recording's facts about the whole load.
    #[must_use]
    pub fn with_recorded(self, recorded: Recorded) -> Self {
        Self { recorded, ..self }
    }

    /// Returns the page with counts of the recording's entries that are not in it.
    #[must_use]
    pub fn with_ignored(self, ignored: Ignored) -> Self {
        Self { ignored, ..self }
    }

    /// Returns the page with urgencies of its requests, by URL.
    #[must_use]
    pub(crate) fn with_urgencies(self, urgencies: BTreeMap<String, Urgency>) -> Self {
        Self { urgencies, ..self }
    }

    /// Returns the page with the urgencies that another form of it has.
    #[must_use]
    pub fn with_urgencies_of(self, other: &Self) -> Self {
        self.with_urgencies(other.urgencies.clone())
    }

    /// Returns the page with its resources changed, and still each after all that it depends on.
    #[must_use]
    pub(crate) fn map_resources(&self, mut change: impl FnMut(usize, &mut Resource)) -> Self {
        let mut page = self.clone();
        page.resources.iter_mut().enumerate().for_each(|(id, resource)| change(id, resource));
        page
    }

    /// Returns the page with requests of one connection taking turns, as recorded: each connection
    /// becomes a server of its own. Resources without one stay as they are.
    pub fn by_connection(&self) -> Self {
        let mut page = self.clone();
        let mut last: BTreeMap<u32, usize> = BTreeMap::new();
        let mut servers = BTreeMap::new();
        for (id, resource) in page.resources.iter_mut().enumerate() {
            let Some(connection) = resource.connection else { continue };
            resource.server = *servers.entry((connection, resource.server)).or_insert_with(|| {
                page.servers.push(page.servers[resource.server].clone());
                page.servers.len() - 1
            });
            if let Some(on) = last.insert(connection, id) {
                let then = Duration::ZERO;
                resource.dependencies.push(Dependency { on, part: Part::Whole, then });
            }
        }
        page
    }

    /// Returns the name: a URL or site.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the servers.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// Returns the resources, each after all that it depends on.
    pub fn resources(&self) -> &[Resource] {
        &self.resources
    }

    /// Returns the number of resources at the start that are redirects to the document.
    pub fn redirects(&self) -> usize {
        self.redirects
    }

    /// Returns the recording's facts about the whole load.
    pub fn recorded(&self) -> &Recorded {
        &self.recorded
    }

    /// Returns the page's own document: the first resource after the redirects.
    pub fn document(&self) -> &Resource {
        &self.resources[self.redirects]
    }

    /// Returns the urgency of the request for a resource; urgent if nothing is known.
    pub(crate) fn urgency(&self, resource: &Resource) -> Urgency {
        self.urgencies.get(&resource.url).copied().unwrap_or_default()
    }

    /// Returns counts of the recording's entries that are not in it.
    pub fn ignored(&self) -> &Ignored {
        &self.ignored
    }

    /// Returns the page as it is for a client that knows where the redirects lead.
    ///
    /// The document is asked for at the start. What redirects alone asked for, such as a revocation
    /// check of the server that redirected, is not needed: nor is what that asked for. What is
    /// `known` is asked for at the start even so.
    #[must_use]
    pub fn without_redirects(&self, known: impl Fn(&Resource) -> bool) -> Self {
        let mut places = vec![None; self.redirects];
        let mut resources = Vec::new();
        for resource in &self.resources[self.redirects..] {
            let mut kept = resource.clone();
            kept.dependencies.retain_mut(|dependency| {
                let place = places[dependency.on];
                dependency.on = place.unwrap_or_default();
                place.is_some()
            });
            let is_document = places.len() == self.redirects;
            let asked_for = !kept.dependencies.is_empty() || resource.dependencies.is_empty();
            let needed = is_document || asked_for || known(resource);
            places.push(needed.then_some(resources.len()));
            if needed {
                resources.push(kept);
            }
        }
        Self {
            name: self.name.clone(),
            servers: self.servers.clone(),
            resources,
            redirects: 0,
            recorded: self.recorded.clone(),
            ignored: self.ignored.clone(),
            known: self.known.clone(),
            urgencies: self.urgencies.clone(),
        }
    }
}

/// Reason why resources do not form a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageError {
    /// There are no resources.
    Empty,
    /// There are more than [`RESOURCES_MAX`]: this many.
    Resources(usize),
    /// They depend on more than [`DEPENDENCIES_MAX`]: this many.
    Dependencies(usize),
    /// They are larger than [`BYTES_MAX`]: this many bytes.
    Bytes(u64),
    /// A resource refers to a server that does not exist.
    Server {
        /// Index of the resource.
        resource: usize,
    },
    /// A resource depends on itself or on a later one.
    Order {
        /// Index of the resource.
        resource: usize,
    },
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "a page without resources"),
            Self::Resources(count) => {
                write!(f, "{count} resources, of {RESOURCES_MAX} at most")
            }
            Self::Dependencies(count) => {
                write!(f, "{count} dependencies, of {DEPENDENCIES_MAX} at most")
            }
            Self::Bytes(bytes) => {
                write!(f, "{bytes} bytes, of {BYTES_MAX} at most")
            }
            Self::Server { resource } => write!(f, "resource {resource} is of no server"),
            Self::Order { resource } => {
                write!(f, "resource {resource} depends on one that does not come before it")
            }
        }
    }
}

impl std::error::Error for PageError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> Server {
        Server::https("a.test", Protocol::Http1)
    }

    fn resource(on: &[usize]) -> Resource {
        Resource {
            dependencies: on.iter().map(|&on| Dependency::whole(on)).collect(),
            response_bytes: 1,
            ..Resource::default()
        }
    }

    fn page(resources: Vec<Resource>) -> Result<Page, PageError> {
        Page::new("page".into(), vec![server()], resources)
    }

    #[test]
    fn malformed_pages_are_refused() {
        assert_eq!(page(vec![]), Err(PageError::Empty));
        assert_eq!(page(vec![resource(&[0])]), Err(PageError::Order { resource: 0 }));
        assert_eq!(
            page(vec![resource(&[]), resource(&[1])]),
            Err(PageError::Order { resource: 1 })
        );
        let elsewhere = Resource { server: 1, ..resource(&[]) };
        assert_eq!(page(vec![elsewhere]), Err(PageError::Server { resource: 0 }));
        let many = vec![resource(&[]); RESOURCES_MAX + 1];
        assert_eq!(page(many), Err(PageError::Resources(RESOURCES_MAX + 1)));
        assert!(page(vec![resource(&[]); RESOURCES_MAX]).is_ok());
        assert!(page(huge(BYTES_MAX - 1)).is_ok());
        assert_eq!(page(huge(u64::MAX)), Err(PageError::Bytes(u64::MAX)));
        assert!(page(huge(BYTES_MAX)).is_err());
        assert!(page(wide(DEPENDENCIES_MAX)).is_ok());
        let more = DEPENDENCIES_MAX + 1;
        assert_eq!(page(wide(more)), Err(PageError::Dependencies(more)));
    }

    fn huge(response_bytes: u64) -> Vec<Resource> {
        vec![resource(&[]), Resource { response_bytes, ..resource(&[]) }]
    }

    fn wide(dependencies: usize) -> Vec<Resource> {
        vec![resource(&[]), resource(&vec![0; dependencies])]
    }

    #[test]
    fn ignored_resources_are_counted_by_reason() {
        let mut ignored = Ignored::default();
        for reason in [Reason::Pushed, Reason::Cached, Reason::Pushed] {
            ignored.add(reason);
        }
        assert_eq!(ignored.total(), 3);
        let page = page(vec![resource(&[])]).unwrap().with_ignored(ignored);
        let ignored: Vec<_> = page.ignored().iter().collect();
        assert_eq!(ignored, [(Reason::Cached, 1), (Reason::Pushed, 2)]);
    }

    #[test]
    fn resources_requested_only_by_redirects_go_with_them() {
        // A redirect, the document, a check of the redirecting server, one of that check's, one of
        // both, and one of nobody.
        let resources = [&[][..], &[0], &[0], &[2], &[1, 2], &[]].map(resource).to_vec();
        let whole = page(resources).unwrap();
        assert_eq!(whole.without_redirects(|_| false), whole);
        let redirected = whole.clone().with_redirects(1);
        let rest = redirected.without_redirects(|_| false);
        assert_eq!(rest.resources(), [resource(&[]), resource(&[0]), resource(&[])]);
        let rest = redirected.without_redirects(|_| true);
        let kept = [&[][..], &[], &[1], &[0, 1], &[]].map(resource);
        assert_eq!(rest.resources(), kept);
        let rest = whole.with_redirects(100).without_redirects(|_| false);
        assert_eq!(rest.resources(), [resource(&[])]);
    }

    #[test]
    fn requests_of_one_connection_take_turns() {
        let mut resources = vec![resource(&[]), resource(&[]), resource(&[0]), resource(&[1])];
        for (resource, connection) in resources.iter_mut().zip([Some(7), Some(8), None, Some(7)]) {
            resource.connection = connection;
        }
        let turns = page(resources).unwrap().by_connection();
        let servers: Vec<_> = turns.resources().iter().map(|one| one.server).collect();
        assert_eq!((servers, turns.servers().len()), (vec![1, 2, 0, 1], 3));
        let waits: Vec<_> = turns.resources()[3].dependencies.iter().map(|one| one.on).collect();
        assert_eq!(waits, [1, 0]);
    }

    #[test]
    fn parts_are_no_larger_than_the_whole() {
        assert_eq!(Part::Bytes(5).bytes_of(3), 3);
        assert_eq!(Part::Bytes(0).bytes_of(3), 0);
        assert_eq!(Part::Whole.bytes_of(3), 3);
    }
}
