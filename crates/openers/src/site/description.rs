//! Contents of a site, read from its description.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use serde::Deserialize;

use crate::error::PeerError;

/// Languages of pages with `{lang}` in their path; the first serves clients that want another.
pub const LANGUAGES: [&str; 3] = ["en", "de", "fr"];

/// Descriptions that are part of the program.
const TEXTS: [&str; 3] = [
    include_str!("../../../../lab/sites/news.toml"),
    include_str!("../../../../lab/sites/shop.toml"),
    include_str!("../../../../lab/sites/app.toml"),
];

/// Maximum number of resources of a site: memory holds all bodies at once.
const RESOURCES_MAX: usize = 10_000;

/// Maximum total size of all bodies in all languages, in bytes.
const BYTES_MAX: usize = 256 << 20;

/// Maximum number of hosts: the lab gives each an address of one network with 254.
const HOSTS_MAX: usize = 200;

/// A web site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    name: String,
    title: String,
    about: String,
    hosts: Vec<SiteHost>,
    resources: Vec<SiteResource>,
}

/// A host of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteHost {
    /// Host name.
    pub name: String,
    /// Time until it answers a request.
    pub think: Duration,
}

/// A resource of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteResource {
    /// Name in the description, also of classes and fonts in bodies.
    pub id: String,
    /// Index of the resource that requests it; `None` for the page itself.
    pub from: Option<usize>,
    /// Index in [`Site::hosts`].
    pub host: usize,
    /// Path on its host; `{lang}` stands for a language.
    pub path: String,
    /// Kind; a redirect has the kind of its target.
    pub kind: SiteKind,
    /// Size of its body in bytes.
    pub bytes: usize,
    /// Time until its host answers a request for it.
    pub think: Duration,
    /// Set if it redirects to the one resource that it requests.
    pub redirect: Option<Redirect>,
    /// Time that clients may cache it.
    pub caching: Caching,
}

/// Purpose of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SiteKind {
    /// Style sheets.
    Style,
    /// Scripts.
    Script,
    /// Fonts.
    Font,
    /// Pictures.
    Image,
    /// Documents: the page itself, and frames.
    Document,
    /// Data that scripts fetch.
    Data,
}

/// A redirect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// Its status: 301, 302, 303, 307 or 308.
    pub status: u16,
    /// True if the client's Accept-Language selects the language of the target; otherwise its own
    /// path does.
    pub by_language: bool,
}

/// Caching of a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Caching {
    /// Kept for a year, without revalidation.
    #[default]
    Long,
    /// Revalidated before each use.
    Check,
    /// Not at all.
    Never,
}

/// Figures of a site that follow from its description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteShape {
    /// Number of resources, including redirects.
    pub resources: usize,
    /// Number of hosts with resources.
    pub hosts: usize,
    /// Number of resources of the host that has most.
    pub largest_host: usize,
    /// Total size of all bodies in bytes.
    pub bytes: usize,
    /// Median size of a body in bytes.
    pub median_bytes: usize,
    /// Number of resources on the longest path from the first, both ends included.
    pub height: usize,
    /// Number of redirects before the page's document.
    pub redirects: usize,
}

impl Site {
    /// Returns the names of the built-in sites.
    pub fn names() -> Vec<String> {
        built_in().into_iter().map(|site| site.name).collect()
    }

    /// Returns the built-in site of this name.
    pub fn built_in(name: &str) -> Option<Self> {
        built_in().into_iter().find(|site| site.name == name)
    }

    /// Reads a description.
    ///
    /// # Errors
    /// The description's first mistake.
    pub fn parse(text: &str) -> Result<Self, PeerError> {
        let site: SiteText = toml::from_str(text)
            .map_err(|error| PeerError::new(format!("not a description of a site: {error}")))?;
        site.build()
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the title of its documents.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Returns its purpose.
    pub fn about(&self) -> &str {
        &self.about
    }

    /// Returns the hosts of its resources.
    pub fn hosts(&self) -> &[SiteHost] {
        &self.hosts
    }

    /// Returns its resources, each after the one that requests it.
    pub fn resources(&self) -> &[SiteResource] {
        &self.resources
    }

    /// Returns the URL where a load begins.
    pub fn url(&self) -> String {
        self.url_of(0)
    }

    /// Returns the URL of a resource; without a port, as all hosts use that of HTTPS.
    pub fn url_of(&self, resource: usize) -> String {
        let Some(resource) = self.resources.get(resource) else { return String::new() };
        let host = self.hosts.get(resource.host).map_or("", |host| host.name.as_str());
        format!("https://{host}{}", resource.path)
    }

    /// Returns the resources that a resource requests: style sheets first, as pages do.
    pub fn children(&self, resource: usize) -> Vec<usize> {
        let mut children: Vec<usize> = (0..self.resources.len())
            .filter(|child: &usize| self.resources[*child].from == Some(resource))
            .collect();
        children.sort_by_key(|&child| (self.resources[child].kind, child));
        children
    }

    /// Returns the number of resources from the first to `resource`, both included.
    pub fn depth(&self, resource: usize) -> usize {
        std::iter::successors(Some(resource), |at: &usize| {
            self.resources.get(*at).and_then(|one| one.from)
        })
        .count()
    }

    /// Returns its figures.
    pub fn shape(&self) -> SiteShape {
        let mut of_host = vec![0; self.hosts.len()];
        let mut sizes: Vec<usize> = Vec::new();
        for resource in &self.resources {
            of_host[resource.host] += 1;
            sizes.push(resource.bytes);
        }
        sizes.sort_unstable();
        let height = (0..self.resources.len()).map(|at| self.depth(at)).max();
        SiteShape {
            resources: self.resources.len(),
            hosts: of_host.iter().filter(|count| **count > 0).count(),
            largest_host: of_host.into_iter().max().unwrap_or_default(),
            bytes: sizes.iter().sum(),
            median_bytes: sizes.get(sizes.len() / 2).copied().unwrap_or_default(),
            height: height.unwrap_or_default(),
            redirects: self.resources.iter().take_while(|one| one.redirect.is_some()).count(),
        }
    }

    /// Returns the document that contains a resource: a frame, or the page.
    pub(super) fn document_of(&self, resource: usize) -> Option<usize> {
        let mut at = self.resources.get(resource)?.from;
        while let Some(place) = at {
            let one = self.resources.get(place)?;
            if one.kind == SiteKind::Document && one.redirect.is_none() {
                return Some(place);
            }
            at = one.from;
        }
        None
    }
}

fn built_in() -> Vec<Site> {
    // A test reads all of them.
    TEXTS.iter().filter_map(|text| Site::parse(text).ok()).collect()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SiteText {
    name: String,
    title: String,
    about: String,
    hosts: BTreeMap<String, HostText>,
    resources: BTreeMap<String, ResourceText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostText {
    name: String,
    think: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ResourceText {
    from: Option<String>,
    host: String,
    path: String,
    #[serde(default)]
    bytes: Bytes,
    count: Option<usize>,
    think: Option<String>,
    redirect: Option<u16>,
    #[serde(default)]
    by_language: bool,
    #[serde(default)]
    cache: Caching,
}

/// Size of one body, or of the first and the last of several.
#[derive(Clone, Copy, Deserialize)]
#[serde(untagged)]
enum Bytes {
    One(usize),
    Spread([usize; 2]),
}

impl Default for Bytes {
    fn default() -> Self {
        Self::One(0)
    }
}

impl Bytes {
    /// Returns the size of body `number`: sizes grow by equal ratios from the first to the last, as
    /// those of real resources do (Wang 2020, section 3.1).
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    // sizes are far below 2^53 and never negative
    fn nth(self, number: usize, count: usize) -> usize {
        match self {
            Self::One(bytes) => bytes,
            Self::Spread([first, last]) => {
                let (first, last) = (first.max(1) as f64, last.max(1) as f64);
                let share = number as f64 / (count - 1).max(1) as f64;
                (first * (last / first).powf(share)).round() as usize
            }
        }
    }
}

impl SiteText {
    fn build(self) -> Result<Site, PeerError> {
        let mut names: Vec<&String> = self.hosts.keys().collect();
        names.sort();
        if names.len() > HOSTS_MAX {
            return Err(PeerError::new(format!(
                "{} hosts, but at most {HOSTS_MAX} are allowed",
                names.len()
            )));
        }
        let mut hosts = Vec::new();
        for host in self.hosts.values() {
            if !is_host_name(&host.name) {
                let what = format!("{:?} is not a host name in lower case", host.name);
                return Err(PeerError::new(what));
            }
            hosts.push(SiteHost { name: host.name.clone(), think: think(host.think.as_ref())? });
        }
        let mut resources: Vec<SiteResource> = Vec::new();
        for id in self.order()? {
            let Some(text) = self.resources.get(id) else { continue };
            let host = names.iter().position(|name| **name == text.host);
            let host = host.ok_or_else(|| wrong(id, "is on an unknown host"))?;
            let from = text.from.as_ref();
            let from = from.and_then(|from| resources.iter().position(|one| one.id == *from));
            let count = text.count.unwrap_or(1);
            if count > RESOURCES_MAX - resources.len() {
                return Err(wrong(id, &format!("exceeds the limit of {RESOURCES_MAX} resources")));
            }
            for number in 0..count {
                let bytes = text.bytes.nth(number, count);
                let numbered = if count > 1 { format!("{id}-{}", number + 1) } else { id.clone() };
                resources.push(SiteResource {
                    id: numbered,
                    from,
                    host,
                    path: text.path.replace("{n}", &(number + 1).to_string()),
                    kind: kind(&text.path),
                    bytes,
                    think: match &text.think {
                        Some(own) => think(Some(own))?,
                        None => hosts[host].think,
                    },
                    redirect: text
                        .redirect
                        .map(|status| Redirect { status, by_language: text.by_language }),
                    caching: text.cache,
                });
            }
        }
        let Self { name, title, about, .. } = self;
        let mut site = Site { name, title, about, hosts, resources };
        site.set_kinds_of_redirects();
        site.check()?;
        Ok(site)
    }

    /// Returns the names of all resources, each after the one that requests it.
    fn order(&self) -> Result<Vec<&String>, PeerError> {
        let mut order: Vec<&String> = Vec::new();
        let mut done: HashSet<&str> = HashSet::new();
        loop {
            let next: Vec<&String> = self
                .resources
                .iter()
                .filter(|(id, text): &(&String, &ResourceText)| {
                    let ready = text.from.as_ref().is_none_or(|from| done.contains(from.as_str()));
                    ready && !done.contains(id.as_str())
                })
                .map(|(id, _)| id)
                .collect();
            if next.is_empty() {
                break;
            }
            done.extend(next.iter().map(|id| id.as_str()));
            order.extend(next);
        }
        match self.resources.keys().find(|id| !done.contains(id.as_str())) {
            None => Ok(order),
            Some(id) => Err(PeerError::new(format!(
                "resource {id} is requested by an unknown resource, or by itself"
            ))),
        }
    }
}

/// Checks that a host name can be a file name and part of a browser's argument (RFC 1123 section
/// 2.1: letters, digits, hyphens).
fn is_host_name(name: &str) -> bool {
    name.len() <= 253
        && name.split('.').all(|label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|byte: u8| {
                    byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'
                })
        })
}

/// Checks that a path needs no escaping in bodies and that browsers request it unchanged: no dot
/// segments, only unreserved characters (RFC 3986 sections 2.3 and 5.2.4).
fn is_path(path: &str) -> bool {
    let mut segments = path.split('/');
    path.starts_with('/')
        && path
            .replace("{lang}", "")
            .bytes()
            .all(|byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte))
        && segments.all(|segment| !matches!(segment, "." | ".."))
}

/// Checks that a name can be a class, a font, a tag, and part of a script's comment.
fn is_id(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

fn think(text: Option<&String>) -> Result<Duration, PeerError> {
    let Some(text) = text else { return Ok(Duration::ZERO) };
    humantime::parse_duration(text)
        .map_err(|error| PeerError::new(format!("think = {text:?}: {error}")))
}

/// Returns the kind by the end of a path.
fn kind(path: &str) -> SiteKind {
    match path.rsplit_once('.').map(|(_, end)| end) {
        Some("css") => SiteKind::Style,
        Some("js") => SiteKind::Script,
        Some("ttf") => SiteKind::Font,
        Some("png" | "svg") => SiteKind::Image,
        Some("json") => SiteKind::Data,
        _ => SiteKind::Document,
    }
}

impl Site {
    fn set_kinds_of_redirects(&mut self) {
        for at in (0..self.resources.len()).rev() {
            if self.resources[at].redirect.is_some()
                && let [to] = self.children(at)[..]
            {
                self.resources[at].kind = self.resources[to].kind;
            }
        }
    }

    fn check(&self) -> Result<(), PeerError> {
        if self.title.contains(|c: char| c.is_control() || matches!(c, '<' | '&')) {
            return Err(PeerError::new("the title is not a line of plain text"));
        }
        let mut urls = HashSet::new();
        let mut bytes = 0_usize;
        for (at, resource) in self.resources.iter().enumerate() {
            let (id, children) = (&resource.id, self.children(at));
            if resource.from.is_none() && at > 0 {
                return Err(wrong(id, "is requested by no other, but is not the first"));
            }
            if !is_id(id) {
                return Err(wrong(
                    id,
                    "has a name with other characters than letters, digits, - and _",
                ));
            }
            if !is_path(&resource.path) {
                return Err(wrong(id, &format!("has an invalid path: {:?}", resource.path)));
            }
            if !urls.insert(self.url_of(at)) {
                return Err(wrong(id, &format!("has the same path as another: {}", resource.path)));
            }
            match resource.redirect {
                Some(Redirect { status, .. }) if !matches!(status, 301 | 302 | 303 | 307 | 308) => {
                    return Err(wrong(id, &format!("redirects with status {status}")));
                }
                Some(_) if children.len() != 1 => {
                    return Err(wrong(id, "has to redirect to exactly one other"));
                }
                Some(_) => {}
                None => self.check_children(at, &children)?,
            }
            let bodies = if resource.path.contains("{lang}") { LANGUAGES.len() } else { 1 };
            bytes = bytes.saturating_add(resource.bytes.saturating_mul(bodies));
            if bytes > BYTES_MAX {
                return Err(wrong(id, &format!("brings all bodies above {BYTES_MAX} bytes")));
            }
        }
        match self.resources.first() {
            None => Err(PeerError::new("the site has no resources".to_owned())),
            Some(first) if first.kind != SiteKind::Document => {
                Err(wrong(&first.id, "is the first, but not a document"))
            }
            Some(_) => Ok(()),
        }
    }

    /// Checks that a browser would request the children of a resource.
    fn check_children(&self, at: usize, children: &[usize]) -> Result<(), PeerError> {
        use SiteKind::{Data, Document, Font, Image, Script, Style};
        let refused = children.iter().find(|child| match self.resources[at].kind {
            Document => self.resources[**child].kind == Font,
            Style => !matches!(self.resources[**child].kind, Style | Font | Image),
            Script => false,
            Data => !self.is_read(at),
            Image | Font => true,
        });
        match refused {
            None => Ok(()),
            Some(child) => Err(PeerError::new(format!(
                "resource {} cannot request {}",
                self.resources[at].id, self.resources[*child].id
            ))),
        }
    }

    /// Returns true if a script reads the data and requests the resources in them. No script reads
    /// data that documents fetch.
    fn is_read(&self, data: usize) -> bool {
        let askers = std::iter::successors(Some(data), |at| self.resources.get(*at)?.from);
        let asker = askers.skip(1).find(|at| self.resources[*at].redirect.is_none());
        asker.is_some_and(|asker| self.resources[asker].kind != SiteKind::Document)
    }
}

fn wrong(id: &str, what: &str) -> PeerError {
    PeerError::new(format!("resource {id} {what}"))
}

#[cfg(test)]
mod tests;
