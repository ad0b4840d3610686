//! Databases in the formats of servers and browsers.
//!
//! Only what those can say: each export counts what it leaves out.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::database::{Connect, Database, Http2, PageEntry, Prefetch};
use super::target::{Origin, Target};
use crate::har::Kind;

/// Bytes of all `Link` fields of a page: many servers and proxies take 8 kB of header, and there is more in one.
pub const LINK_BYTES: usize = 4096;

/// Redirects of one set of rules: what browsers guarantee for static rule sets of an extension.
pub const RULES: usize = 30_000;

/// Speculation rules (<https://wicg.github.io/nav-speculation/speculation-rules.html>) for the pages of one origin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SpeculationRules {
    /// Documents that may be asked for before the user goes there.
    pub prefetch: Vec<PrefetchRule>,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PrefetchRule {
    /// `list`: the URLs stand here, not in the page.
    pub source: &'static str,
    /// When: `moderate` is when the user points at a link.
    pub eagerness: &'static str,
    /// Documents.
    pub urls: Vec<String>,
}

/// Values of `Link` fields of one page (RFC 8288), for its response or for 103 Early Hints (RFC 8297).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Links {
    /// Each the value of one field, connections first.
    pub links: Vec<String>,
    /// Entries that are left out: of an unknown kind, of http on an https page, or beyond [`LINK_BYTES`].
    pub left_out: usize,
}

/// What a browser extension needs: redirects as rules of declarativeNetRequest, and lists by page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Extension {
    /// Of this format.
    pub version: u32,
    /// When the database was made, in seconds since 1970.
    pub created: u64,
    /// Which databases it had.
    pub databases: Vec<&'static str>,
    /// For `chrome.declarativeNetRequest`, as they are.
    pub rules: Vec<Rule>,
    /// Redirects that are left out: no rule can say their URLs, or beyond [`RULES`].
    pub rules_left_out: usize,
    /// By the URL of the document.
    pub pages: BTreeMap<String, PageLists>,
    /// Hosts that speak it on port 443.
    pub http2: Vec<String>,
    /// Ditto.
    pub http3: Vec<String>,
}

/// What is known of a page, without http on a page of https.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PageLists {
    /// Connections to open.
    pub preconnect: Vec<Preconnect>,
    /// What to ask for.
    pub prefetch: Vec<Asset>,
}

/// Connections to open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Preconnect {
    /// Where.
    pub origin: String,
    /// Whether for requests without credentials.
    pub anonymous: bool,
    /// How many.
    pub connections: u8,
}

/// What to ask for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Asset {
    /// What.
    pub url: String,
    /// What it is used as: the value of `as`, or empty.
    #[serde(rename = "as")]
    pub used_as: &'static str,
}

/// A rule of declarativeNetRequest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rule {
    /// From 1 on.
    pub id: usize,
    /// All the same.
    pub priority: u32,
    /// What to do.
    pub action: Action,
    /// With which requests.
    pub condition: Condition,
}

/// What a rule does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Action {
    /// `redirect`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Where to.
    pub redirect: RedirectTo,
}

/// Where a rule leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RedirectTo {
    /// The URL.
    pub url: String,
}

/// Which requests a rule is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// The whole URL, between anchors.
    pub url_filter: String,
    /// Paths are.
    pub is_url_filter_case_sensitive: bool,
    /// Others may change something.
    pub request_methods: [&'static str; 1],
    /// Documents, or parts of a page.
    pub resource_types: Vec<&'static str>,
}

impl SpeculationRules {
    /// Of all known documents of an origin, without the redirects to them: pages of one origin link to each other.
    #[must_use]
    pub fn of(database: &Database, origin: &Origin) -> Self {
        let pages = database.pages().iter().map(|page| &page.document);
        let urls: Vec<String> =
            pages.filter(|document| document.origin == *origin).map(on_its_origin).collect();
        let rule = PrefetchRule { source: "list", eagerness: "moderate", urls };
        Self { prefetch: if rule.urls.is_empty() { vec![] } else { vec![rule] } }
    }
}

impl Links {
    /// Of what is known of a page.
    #[must_use]
    pub fn of(page: &PageEntry) -> Self {
        let mut links = Self::default();
        let mut bytes = 0;
        let preconnect = page.servers.iter().map(|server| preconnect(page, server));
        let preload = page.prefetch.iter().map(|prefetch| preload(page, prefetch));
        for link in preconnect.chain(preload) {
            match link {
                Said::Needless => {}
                Said::Link(link) if bytes + link.len() <= LINK_BYTES => {
                    bytes += link.len();
                    links.links.push(link);
                }
                Said::Link(_) | Said::Never => links.left_out += 1,
            }
        }
        links
    }
}

enum Said {
    Link(String),
    /// It is there anyway.
    Needless,
    Never,
}

fn preconnect(page: &PageEntry, server: &Connect) -> Said {
    let Connect { origin, anonymous, .. } = server;
    // Whoever gets the hint is connected to the page's own server.
    if *origin == page.document.origin && !anonymous {
        return Said::Needless;
    }
    if is_mixed(page, origin) {
        return Said::Never;
    }
    let crossorigin = if *anonymous { "; crossorigin" } else { "" };
    Said::Link(format!("<{origin}>; rel=preconnect{crossorigin}"))
}

fn preload(page: &PageEntry, prefetch: &Prefetch) -> Said {
    let Prefetch { target, kind } = prefetch;
    let used_as = used_as(*kind);
    // Documents cannot be preloaded; the others would be asked for twice if `as` or `crossorigin` is not right.
    let can_be_said = matches!(kind, Kind::Style | Kind::Script | Kind::Image | Kind::Font);
    if is_mixed(page, &target.origin) || !can_be_said {
        return Said::Never;
    }
    // Fonts are always asked for without credentials (CSS Fonts, section 4.8.2).
    let crossorigin = if *kind == Kind::Font { "; crossorigin" } else { "" };
    let is_own = target.origin == page.document.origin;
    let url = if is_own { on_its_origin(target) } else { target.to_string() };
    Said::Link(format!("<{url}>; rel=preload; as={used_as}{crossorigin}"))
}

/// What a page of https does not load (Mixed Content, section 5.3), whoever signed that it does.
fn is_mixed(page: &PageEntry, origin: &Origin) -> bool {
    page.document.origin.tls && !origin.tls
}

/// As documents of its origin may say it: a path with two slashes at its beginning would be taken for a host (RFC 3986 section 4.2).
fn on_its_origin(target: &Target) -> String {
    if target.path().starts_with("//") { target.to_string() } else { target.path().to_owned() }
}

/// Destinations of requests (Fetch, section 2.2.5).
fn used_as(kind: Kind) -> &'static str {
    match kind {
        Kind::Document => "document",
        Kind::Style => "style",
        Kind::Script => "script",
        Kind::Image => "image",
        Kind::Font => "font",
        Kind::Data => "fetch",
        Kind::Media | Kind::Other => "",
    }
}

impl Extension {
    /// Of a whole database; without `temporary`, of redirects only those that are permanent at each step.
    #[must_use]
    pub fn of(database: &Database, temporary: bool) -> Self {
        let (rules, rules_left_out) = rules(database, temporary);
        let speaking = |wanted: Http2| {
            let hosts = database.http2().iter().filter(move |(_, speaks)| **speaks >= wanted);
            hosts.map(|(host, _)| host.clone()).collect()
        };
        let lists = database.pages().iter().map(|page| (page.document.to_string(), lists(page)));
        Self {
            version: 1,
            created: database.created().0,
            databases: database.parts().names().collect(),
            rules,
            rules_left_out,
            pages: lists.filter(|(_, lists)| *lists != PageLists::default()).collect(),
            http2: speaking(Http2::Http2),
            http3: speaking(Http2::Http3),
        }
    }
}

fn rules(database: &Database, temporary: bool) -> (Vec<Rule>, usize) {
    let redirects = database.pages().iter().flat_map(|page| &page.redirects);
    let mut rules = Vec::new();
    let mut left_out = 0;
    for redirect in redirects.filter(|redirect| temporary || redirect.is_permanent()) {
        match rule(rules.len() + 1, &redirect.from, redirect.to(), redirect.of_document) {
            Some(rule) if rules.len() < RULES => rules.push(rule),
            _ => left_out += 1,
        }
    }
    (rules, left_out)
}

/// None where the URL has characters that mean something else in a filter, or that browsers write otherwise there.
fn rule(id: usize, from: &Target, to: &Target, of_document: bool) -> Option<Rule> {
    let url = from.to_string();
    if url.contains(['*', '^', '|']) {
        return None;
    }
    let types: &[&str] = match of_document {
        true => &["main_frame"],
        false => &[
            "sub_frame",
            "stylesheet",
            "script",
            "image",
            "font",
            "xmlhttprequest",
            "media",
            "other",
        ],
    };
    Some(Rule {
        id,
        priority: 1,
        action: Action { kind: "redirect", redirect: RedirectTo { url: to.to_string() } },
        condition: Condition {
            url_filter: format!("|{url}|"),
            is_url_filter_case_sensitive: true,
            request_methods: ["get"],
            resource_types: types.to_vec(),
        },
    })
}

fn lists(page: &PageEntry) -> PageLists {
    let preconnect = |server: &Connect| Preconnect {
        origin: server.origin.to_string(),
        anonymous: server.anonymous,
        connections: server.connections,
    };
    let asset = |of: &Prefetch| Asset { url: of.target.to_string(), used_as: used_as(of.kind) };
    PageLists {
        preconnect: page
            .servers
            .iter()
            .filter(|server| !is_mixed(page, &server.origin))
            .map(preconnect)
            .collect(),
        prefetch: page
            .prefetch
            .iter()
            .filter(|of| !is_mixed(page, &of.target.origin))
            .map(asset)
            .collect(),
    }
}

/// Origins of all pages.
#[must_use]
pub fn origins(database: &Database) -> BTreeSet<Origin> {
    database.pages().iter().map(|page| page.document.origin.clone()).collect()
}
