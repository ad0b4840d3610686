//! Databases in the formats of servers and browsers.
//!
//! Only what those can say: each export counts what it leaves out.

mod extension;

pub use extension::{EXTENSION_MAGIC, Extension, Leads, Preconnect};

use std::collections::BTreeSet;

use serde::Serialize;

use super::database::{Connect, Database, PageEntry, Prefetch};
use super::target::{Origin, Target};
use crate::har::Kind;

/// Maximum bytes of all `Link` fields of a page: many servers and proxies accept 8 kB of header,
/// which has other fields, too.
pub const LINK_BYTES: usize = 4096;

/// Speculation rules (<https://wicg.github.io/nav-speculation/speculation-rules.html>) for the
/// pages of one origin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SpeculationRules {
    /// Documents that may be prefetched or prerendered before the user navigates.
    pub prefetch: Vec<PrefetchRule>,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PrefetchRule {
    /// Always `list`: the URLs are given here, not taken from the page.
    pub source: &'static str,
    /// Time at which to load: `moderate` means when the user points at a link.
    pub eagerness: &'static str,
    /// Documents.
    pub urls: Vec<String>,
}

/// Values of `Link` fields of one page (RFC 8288), for its response or for 103 Early Hints (RFC
/// 8297).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Links {
    /// Values of single fields, connections first.
    pub links: Vec<String>,
    /// Number of entries left out: of an unknown kind, http on an https page, or beyond
    /// [`LINK_BYTES`].
    pub left_out: usize,
}

impl SpeculationRules {
    /// Collects all known documents of an origin, without the redirects to them: pages of one
    /// origin link to each other.
    #[must_use]
    pub fn for_origin(database: &Database, origin: &Origin) -> Self {
        let pages = database.pages().iter().map(|page| &page.document);
        let urls: Vec<String> =
            pages.filter(|document| document.origin == *origin).map(on_its_origin).collect();
        let rule = PrefetchRule { source: "list", eagerness: "moderate", urls };
        Self { prefetch: if rule.urls.is_empty() { vec![] } else { vec![rule] } }
    }
}

impl Links {
    /// Makes the fields for a page.
    #[must_use]
    pub fn for_page(page: &PageEntry) -> Self {
        let mut links = Self::default();
        let mut bytes = 0;
        page.servers.iter().for_each(|server| {
            links.add(preconnect(page, server), &mut bytes);
        });
        page.prefetch.iter().for_each(|prefetch| {
            links.add(preload(page, prefetch), &mut bytes);
        });
        links
    }

    /// Returns the resources that preload fields can name, without spending room on connections,
    /// which servers can leave to others.
    #[must_use]
    pub fn preloaded(page: &PageEntry) -> Vec<&Prefetch> {
        let (mut links, mut bytes) = (Self::default(), 0);
        page.prefetch
            .iter()
            .filter(|of: &&Prefetch| links.add(preload(page, of), &mut bytes))
            .collect()
    }

    /// Adds a field after those that have `bytes`, and returns true if it fits.
    fn add(&mut self, hint: Hint, bytes: &mut usize) -> bool {
        match hint {
            Hint::Needless => false,
            Hint::Link(link) if *bytes + link.len() <= LINK_BYTES => {
                *bytes += link.len();
                self.links.push(link);
                true
            }
            Hint::Link(_) | Hint::Never => {
                self.left_out += 1;
                false
            }
        }
    }
}

enum Hint {
    Link(String),
    /// The server is connected to anyway.
    Needless,
    Never,
}

fn preconnect(page: &PageEntry, server: &Connect) -> Hint {
    let Connect { origin, anonymous, .. } = server;
    // The receiver of the hint is connected to the page's own server.
    if *origin == page.document.origin && !anonymous {
        return Hint::Needless;
    }
    if is_mixed(page, origin) {
        return Hint::Never;
    }
    let crossorigin = if *anonymous { "; crossorigin" } else { "" };
    Hint::Link(format!("<{origin}>; rel=preconnect{crossorigin}"))
}

fn preload(page: &PageEntry, prefetch: &Prefetch) -> Hint {
    let Prefetch { target, kind } = prefetch;
    let used_as = used_as(*kind);
    // Documents cannot be preloaded; the others would be asked for twice if `as` or `crossorigin`
    // is not right.
    let can_be_said = matches!(kind, Kind::Style | Kind::Script | Kind::Image | Kind::Font);
    if is_mixed(page, &target.origin) || !can_be_said {
        return Hint::Never;
    }
    // Fonts are always asked for without credentials (CSS Fonts, section 4.8.2).
    let crossorigin = if *kind == Kind::Font { "; crossorigin" } else { "" };
    let is_own = target.origin == page.document.origin;
    let url = if is_own { on_its_origin(target) } else { target.to_string() };
    Hint::Link(format!("<{url}>; rel=preload; as={used_as}{crossorigin}"))
}

/// Returns true if an entry would load mixed content into an https page (Mixed Content, section
/// 5.3), whoever signed it.
fn is_mixed(page: &PageEntry, origin: &Origin) -> bool {
    page.document.origin.tls && !origin.tls
}

/// Returns a URL as documents of its origin may write it: a path that begins with two slashes would
/// be read as a host (RFC 3986 section 4.2).
fn on_its_origin(target: &Target) -> String {
    if target.path().starts_with("//") { target.to_string() } else { target.path().to_owned() }
}

/// Returns the destination of a request (Fetch, section 2.2.5).
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

/// Returns the origins of all pages.
#[must_use]
pub fn origins(database: &Database) -> BTreeSet<Origin> {
    database.pages().iter().map(|page| page.document.origin.clone()).collect()
}
