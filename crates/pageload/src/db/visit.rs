//! One recorded page load, reduced to the facts that databases are built from.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;

use headstart_proto::UnixSeconds;
use sha2::{Digest, Sha256};

use super::database::Http2;
use super::limits::{CONNECTIONS, HOPS};
use super::methods::Methods;
use super::target::{Origin, Target, TargetError};
use crate::har::{self, Kind};
use crate::page::{Page, Protocol, Resource, Server};

/// Facts about requests beyond those in a [`Page`], by URL.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    by_target: HashMap<Target, Fact>,
    /// Fact about all other URLs.
    fallback: Option<Fact>,
    queries_are_cut: bool,
}

/// A recording's facts about a request and its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fact {
    /// True if the method is GET: other methods may change state on the server, or do not come from
    /// the page's tree.
    pub is_get: bool,
    /// Status of the response; 0 if unknown.
    pub status: u16,
    /// Kind of the resource.
    pub kind: Kind,
}

/// Interned names: each distinct name has a number, so that visits store numbers only.
#[derive(Debug)]
pub(super) struct Names<T> {
    numbers: HashMap<T, u32>,
    names: Vec<T>,
}

/// Names that occur in any of the recordings.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) targets: Names<Target>,
    /// Servers, each with true if its connections are anonymous (without credentials).
    pub(super) servers: Names<(Origin, bool)>,
    pub(super) hosts: Names<String>,
    pub(super) chains: Names<Chain>,
    /// Sets of URLs that share a path and occur together in one load.
    pub(super) queries: Names<Vec<u32>>,
}

/// Targets of a series of redirects, each with true if the redirect to it is permanent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Chain {
    pub(super) hops: Vec<(u32, bool)>,
    pub(super) of_document: bool,
}

/// One page load, with numbers from [`Known`] for names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Visit {
    pub(super) at: Option<UnixSeconds>,
    /// Digest of the recording.
    digest: [u8; 16],
    /// First URL of each series of redirects, with its chain.
    pub(super) redirects: Vec<(u32, u32)>,
    /// Servers, each with its number of connections.
    pub(super) servers: Vec<(u32, u8)>,
    /// Hosts that speak TLS on port 443, each with its protocol.
    pub(super) protocols: Vec<(u32, Option<Http2>)>,
    /// All URLs, without duplicates.
    pub(super) fetched: Vec<Fetched>,
    /// Paths requested with a query, each with the set of its URLs.
    pub(super) queries: Vec<(u32, u32)>,
}

impl Visit {
    /// Returns the key by which a page's loads are ordered.
    pub(super) fn order(&self) -> (Option<UnixSeconds>, [u8; 16]) {
        (self.at, self.digest)
    }
}

/// A URL that a load fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fetched {
    pub(super) target: u32,
    pub(super) bytes: u32,
    pub(super) kind: Kind,
    pub(super) fit: Fit,
}

/// Reason for or against prefetching a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fit {
    /// The URL may be prefetched.
    Good,
    /// The URL is the page itself, or redirects.
    Redirect,
    /// The response is an error.
    Status,
    /// The URL is http on an https page.
    Mixed,
    /// The query was not recorded completely.
    Cut,
    /// The method was not recorded.
    Unknown,
    /// The method is not GET.
    Unsafe,
}

impl Facts {
    /// Returns an empty set of facts: no URL counts as safe to prefetch, and no redirect as
    /// permanent.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns facts for recordings that consist of GET requests, or are assumed to.
    #[must_use]
    pub fn all_get() -> Self {
        let fallback = Some(Fact { is_get: true, status: 0, kind: Kind::Other });
        Self { fallback, ..Self::default() }
    }

    /// Returns facts for the published page loads ([`crate::blast`]): GET requests, and URLs cut at
    /// their first `=`.
    #[must_use]
    pub fn published() -> Self {
        Self { queries_are_cut: true, ..Self::all_get() }
    }

    /// Returns the facts that a HAR file states about a page's resources, in the same order.
    #[must_use]
    pub fn of_resources(page: &Page, facts: &[har::Facts], methods: &Methods) -> Self {
        let mut known = Self::new();
        for (resource, fact) in page.resources().iter().zip(facts) {
            let Ok(target) = resource.url.parse::<Target>() else { continue };
            let is_get = !methods.unsafe_targets.contains(&target);
            known.put(target, Fact { is_get, status: fact.status, kind: fact.kind });
        }
        known
    }

    /// Adds a fact about a request for `url`. It replaces an earlier one, but a URL that was once
    /// requested by another method than GET stays unsafe.
    pub fn add(&mut self, url: &str, fact: Fact) {
        if let Ok(target) = url.parse() {
            self.put(target, fact);
        }
    }

    fn put(&mut self, target: Target, fact: Fact) {
        let known = self.by_target.entry(target).or_insert(fact);
        *known = Fact { is_get: known.is_get && fact.is_get, ..fact };
    }

    fn get(&self, target: &Target) -> Option<Fact> {
        self.by_target.get(target).copied().or(self.fallback)
    }

    fn is_permanent(&self, target: &Target) -> bool {
        self.get(target).is_some_and(|fact| matches!(fact.status, 301 | 308))
    }
}

impl<T: Clone + Eq + Hash> Names<T> {
    pub(super) fn number(&mut self, name: &T) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        // The limits on recordings keep the count far below `u32::MAX`.
        let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.names.push(name.clone());
        self.numbers.insert(name.clone(), number);
        number
    }

    pub(super) fn find(&self, name: &T) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    pub(super) fn name(&self, number: u32) -> Option<&T> {
        self.names.get(usize::try_from(number).ok()?)
    }

    pub(super) fn len(&self) -> usize {
        self.names.len()
    }
}

impl<T> Default for Names<T> {
    fn default() -> Self {
        Self { numbers: HashMap::new(), names: Vec::new() }
    }
}

/// Reduces a page to a [`Visit`].
#[derive(Debug)]
pub(super) struct Reduction<'a> {
    page: &'a Page,
    facts: &'a Facts,
    targets: Vec<Result<Target, TargetError>>,
    /// Origin of each server, if it is known and public.
    origins: Vec<Option<Origin>>,
    /// Indices of the redirects that lead to the document, in order.
    leading: Vec<usize>,
}

impl<'a> Reduction<'a> {
    pub(super) fn from_page(page: &'a Page, facts: &'a Facts) -> Self {
        let targets: Vec<Result<Target, TargetError>> =
            page.resources().iter().map(|resource| resource.url.parse()).collect();
        let origins = origins(page, &targets);
        Self { page, facts, targets, origins, leading: leading(page) }
    }

    /// Returns the page's own URL, after all redirects.
    pub(super) fn document(&self) -> Result<&Target, TargetError> {
        let document = self.targets.get(self.page.redirects());
        document.map_or(Err(TargetError::Malformed), |target| target.as_ref().map_err(|why| *why))
    }

    /// Returns the number of the load's URLs that databases leave out, by reason.
    pub(super) fn unreadable(&self) -> BTreeMap<TargetError, u64> {
        let mut reasons = BTreeMap::new();
        for why in self.targets.iter().filter_map(|target| target.as_ref().err()) {
            *reasons.entry(*why).or_default() += 1;
        }
        reasons
    }

    pub(super) fn visit(&self, at: Option<UnixSeconds>, known: &mut Known) -> Visit {
        let fetched = self.fetched(known);
        Visit {
            at,
            digest: self.digest(),
            redirects: self.redirects(known),
            servers: self.servers(known),
            protocols: self.protocols(known),
            queries: self.queries(known),
            fetched,
        }
    }

    /// Returns a digest of everything in the recording that a database is built from.
    fn digest(&self) -> [u8; 16] {
        let mut hash = Sha256::new();
        for (index, resource) in self.page.resources().iter().enumerate() {
            let Resource { url, response_bytes, connection, redirect, server, .. } = resource;
            let server = self.page.servers().get(*server);
            let fact = self.target(index).and_then(|target| self.facts.get(target));
            let parent = resource.parent();
            let learned = (url, response_bytes, connection, redirect, server, fact, parent);
            hash.update(format!("{learned:?}\n"));
        }
        let mut digest = [0; 16];
        digest.copy_from_slice(&hash.finalize()[..16]);
        digest
    }

    fn target(&self, index: usize) -> Option<&Target> {
        self.targets.get(index)?.as_ref().ok()
    }

    fn redirects(&self, known: &mut Known) -> Vec<(u32, u32)> {
        let document = self.page.redirects();
        let mut path = self.leading.clone();
        path.push(document);
        let mut redirects: Vec<(u32, u32)> = self.chain(&path, true, known).into_iter().collect();
        for path in self.later_paths() {
            redirects.extend(self.chain(&path, false, known));
        }
        let mut seen = HashSet::new();
        redirects.retain(|(from, _)| seen.insert(*from));
        redirects
    }

    /// Returns each series of redirects to a part of the page other than the document, as indices
    /// from its first URL to its target.
    fn later_paths(&self) -> Vec<Vec<usize>> {
        let resources = self.page.resources();
        let mut next: HashMap<usize, usize> = HashMap::new();
        for (index, resource) in resources.iter().enumerate() {
            if let Some(parent) = resource.parent().filter(|&parent| self.is_later_redirect(parent))
            {
                next.entry(parent).or_insert(index);
            }
        }
        (0..resources.len())
            .filter(|&index: &usize| {
                let mut parent = resources.get(index).and_then(Resource::parent).into_iter();
                self.is_later_redirect(index) && !parent.any(|on| self.is_later_redirect(on))
            })
            .map(|first| {
                std::iter::successors(Some(first), |index| next.get(index).copied())
                    .take(HOPS + 2)
                    .collect()
            })
            .collect()
    }

    /// Returns true for a redirect that does not lead to the document.
    fn is_later_redirect(&self, index: usize) -> bool {
        let resource = self.page.resources().get(index);
        resource.is_some_and(|resource| resource.redirect) && !self.leading.contains(&index)
    }

    fn chain(&self, path: &[usize], of_document: bool, known: &mut Known) -> Option<(u32, u32)> {
        let targets: Vec<&Target> =
            path.iter().map(|&index| self.target(index)).collect::<Option<_>>()?;
        let (from, rest) = targets.split_first()?;
        // In parts of the page, a query is more often a message to the server than the name of a
        // resource.
        let has_stable_name = of_document || targets.iter().all(|target| target.query().is_none());
        let is_downgrade = from.origin.tls && !targets.last()?.origin.tls;
        if rest.is_empty()
            || rest.len() > HOPS
            || !has_stable_name
            || is_downgrade
            || rest.last() == Some(from)
        {
            return None;
        }
        let permanent = targets.iter().map(|target| self.facts.is_permanent(target));
        let hops = rest.iter().map(|target| known.targets.number(target)).zip(permanent).collect();
        let chain = known.chains.number(&Chain { hops, of_document });
        Some((known.targets.number(from), chain))
    }

    /// Returns the servers, except those of redirects to the document: a client that knows these
    /// redirects skips their servers.
    fn servers(&self, known: &mut Known) -> Vec<(u32, u8)> {
        let mut requests: BTreeMap<usize, Vec<Option<u32>>> = BTreeMap::new();
        for (index, resource) in self.page.resources().iter().enumerate() {
            if !self.leading.contains(&index) {
                requests.entry(resource.server).or_default().push(resource.connection);
            }
        }
        let mut servers: BTreeMap<u32, u8> = BTreeMap::new();
        for (index, connections) in requests {
            let Some(server) = self.page.servers().get(index) else { continue };
            let Some(origin) = self.origins.get(index).cloned().flatten() else { continue };
            let count = connections_of(&connections, server.protocol);
            let number = known.servers.number(&(origin, server.anonymous));
            let sum = servers.entry(number).or_default();
            *sum = sum.saturating_add(count).min(CONNECTIONS);
        }
        servers.into_iter().collect()
    }

    fn protocols(&self, known: &mut Known) -> Vec<(u32, Option<Http2>)> {
        let used: HashSet<usize> =
            self.page.resources().iter().map(|resource| resource.server).collect();
        let mut protocols: BTreeMap<u32, Option<Http2>> = BTreeMap::new();
        for (index, server) in self.page.servers().iter().enumerate() {
            let origin = self.origins.get(index).and_then(Option::as_ref);
            let origin = origin.filter(|origin| origin.tls && origin.has_default_port());
            let Some(origin) = origin.filter(|_| used.contains(&index)) else { continue };
            let protocol = match server.protocol {
                Protocol::Http1 => None,
                Protocol::Http2 => Some(Http2::Http2),
                Protocol::Http3 => Some(Http2::Http3),
            };
            let best = protocols.entry(known.hosts.number(&origin.host().to_owned())).or_default();
            *best = (*best).max(protocol);
        }
        protocols.into_iter().collect()
    }

    fn fetched(&self, known: &mut Known) -> Vec<Fetched> {
        let mut fetched: BTreeMap<u32, Fetched> = BTreeMap::new();
        for (index, resource) in self.page.resources().iter().enumerate() {
            let Some(target) = self.target(index) else { continue };
            let number = known.targets.number(target);
            let fact = self.facts.get(target);
            let kind = fact.map_or(Kind::Other, |fact| fact.kind);
            let new = Fetched {
                target: number,
                bytes: u32::try_from(resource.response_bytes).unwrap_or(u32::MAX),
                kind: if kind == Kind::Other { kind_of(target.path()) } else { kind },
                fit: self.fit(index, resource, target, fact),
            };
            let known = fetched.entry(number).or_insert(new);
            known.fit = known.fit.max(new.fit);
        }
        fetched.into_values().collect()
    }

    fn fit(&self, index: usize, resource: &Resource, target: &Target, fact: Option<Fact>) -> Fit {
        let is_mixed =
            self.document().is_ok_and(|document| document.origin.tls && !target.origin.tls);
        match fact {
            _ if index <= self.page.redirects() || resource.redirect => Fit::Redirect,
            None => Fit::Unknown,
            Some(fact) if !fact.is_get => Fit::Unsafe,
            Some(fact) if !matches!(fact.status, 0 | 200 | 203 | 304) => Fit::Status,
            _ if is_mixed => Fit::Mixed,
            _ if self.facts.queries_are_cut && target.query().is_some() => Fit::Cut,
            _ => Fit::Good,
        }
    }

    fn queries(&self, known: &mut Known) -> Vec<(u32, u32)> {
        let mut by_path: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for target in self.targets.iter().flatten().filter(|target| target.query().is_some()) {
            let path = known.targets.number(&target.without_query());
            by_path.entry(path).or_default().push(known.targets.number(target));
        }
        let by_path = by_path.into_iter().map(|(path, mut queries)| {
            queries.sort_unstable();
            queries.dedup();
            (path, known.queries.number(&queries))
        });
        by_path.collect()
    }
}

/// Returns the origin of each server: as recorded, or from the first URL requested of it.
fn origins(page: &Page, targets: &[Result<Target, TargetError>]) -> Vec<Option<Origin>> {
    let recorded =
        |server: &Server| Origin::new(server.tls, server.host.as_str().into(), server.port).ok();
    let mut origins: Vec<Option<Origin>> = page.servers().iter().map(recorded).collect();
    for (resource, target) in page.resources().iter().zip(targets) {
        let is_nameless =
            page.servers().get(resource.server).is_some_and(|server| server.host.is_empty());
        if let (true, Ok(target), Some(origin @ None)) =
            (is_nameless, target, origins.get_mut(resource.server))
        {
            *origin = Some(target.origin.clone());
        }
    }
    origins
}

/// Returns the indices of the redirects that lead to the page's document, in order.
fn leading(page: &Page) -> Vec<usize> {
    let mut leading: Vec<usize> =
        std::iter::successors(Some(page.redirects()), |&index: &usize| {
            page.resources().get(index).and_then(Resource::parent)
        })
        .skip(1)
        .collect();
    leading.reverse();
    leading
}

/// Guesses the kind from the extension of a path, for recordings that do not state it.
fn kind_of(path: &str) -> Kind {
    let path = path.split('?').next().unwrap_or("");
    let extension = path.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
    match extension.as_deref() {
        Some("css") => Kind::Style,
        Some("js" | "mjs" | "wasm") => Kind::Script,
        Some("png" | "jpg" | "jpeg" | "gif" | "webp" | "avif" | "svg" | "ico") => Kind::Image,
        Some("woff" | "woff2" | "ttf" | "otf") => Kind::Font,
        Some("html" | "htm") => Kind::Document,
        Some("json") => Kind::Data,
        Some("mp4" | "webm" | "mp3" | "ogg" | "m4a") => Kind::Media,
        _ => Kind::Other,
    }
}

/// Returns the number of connections, as recorded. If unknown, assumes one for HTTP/2 and HTTP/3,
/// and one per request for HTTP/1.1, up to the limit of browsers.
fn connections_of(requests: &[Option<u32>], protocol: Protocol) -> u8 {
    let recorded: Option<HashSet<u32>> = requests.iter().copied().collect();
    let count = match (recorded, protocol) {
        (Some(connections), _) => connections.len(),
        (None, Protocol::Http1) => requests.len(),
        (None, _) => 1,
    };
    u8::try_from(count).unwrap_or(CONNECTIONS).clamp(1, CONNECTIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_guessed_from_the_extension_of_a_path() {
        assert_eq!(kind_of("/a.b/c.css?v=1.js"), Kind::Style);
        assert_eq!(kind_of("/a/B.WOFF2"), Kind::Font);
        assert_eq!(kind_of("/"), Kind::Other);
    }

    #[test]
    fn connections_are_counted_or_guessed() {
        let requests = [Some(1), Some(2), Some(1)];
        assert_eq!(connections_of(&requests, Protocol::Http1), 2);
        assert_eq!(connections_of(&[None; 9], Protocol::Http2), 1);
        assert_eq!(connections_of(&[None; 2], Protocol::Http1), 2);
        assert_eq!(connections_of(&[None; 9], Protocol::Http1), CONNECTIONS);
        assert_eq!(connections_of(&[Some(1), None], Protocol::Http1), 2);
    }
}
