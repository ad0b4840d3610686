//! A page as a tree of resources: what is asked for, of whom, how large it is, and what had to come before.

use std::fmt;
use std::time::Duration;

/// Resources of a page at most: ten times the largest of the data sets.
pub const RESOURCES_MAX: usize = 50_000;

/// A recorded page.
///
/// Its resources stand in an order in which each comes after all that it depends on: there are no cycles.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    name: String,
    servers: Vec<Server>,
    resources: Vec<Resource>,
    redirects: usize,
}

/// One place that resources come from, with connections of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    /// As in the URL.
    pub host: String,
    /// Of TCP or UDP.
    pub port: u16,
    /// Whether it speaks TLS.
    pub tls: bool,
    /// Browsers keep connections for requests without credentials apart (Fetch, section 2.6).
    pub anonymous: bool,
    /// What it spoke when the page was recorded.
    pub protocol: Protocol,
    /// Whether it answers pipelined requests (RFC 9112 section 9.3.2).
    pub pipelining: bool,
}

/// The version of HTTP that a server speaks at best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Or older.
    Http1,
    /// RFC 9113.
    Http2,
    /// RFC 9114.
    Http3,
}

/// One request and its response.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// What it was asked for by. The page's own document has none.
    pub dependencies: Vec<Dependency>,
    /// Place in [`Page::servers`].
    pub server: usize,
    /// With header; 0 if not known.
    pub request_bytes: u64,
    /// With header.
    pub response_bytes: u64,
    /// From the last byte of the request to the first of the response, without the network.
    pub server_time: Duration,
    /// Whether a prefetch database knows it (BLAST, section 5.4).
    pub in_prefetch_database: bool,
    /// Its URL, cut or empty where recordings do not say.
    pub url: String,
    /// Number of the connection that it came over, where recorded: requests of one took their turns in this order.
    pub connection: Option<u32>,
}

/// What has to be there before a resource is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// Place in [`Page::resources`], before that of the one that depends on it.
    pub on: usize,
    /// How much of it.
    pub part: Part,
    /// What the client needs then, to parse or to run a script.
    pub then: Duration,
}

/// How much of a response has to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// This many bytes, or all if it has fewer; 0 is the first that come.
    Bytes(u64),
    /// All of it.
    Whole,
}

impl Part {
    /// Bytes of a response of `response_bytes` that have to be there.
    #[must_use]
    pub fn bytes_of(self, response_bytes: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.min(response_bytes),
            Self::Whole => response_bytes,
        }
    }
}

impl Page {
    /// A page of `resources` from `servers`.
    ///
    /// # Errors
    /// No resource or more than [`RESOURCES_MAX`]; one of a server that is not there; one that depends on itself or a later one.
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
        for (id, resource) in resources.iter().enumerate() {
            if resource.server >= servers.len() {
                return Err(PageError::Server { resource: id });
            }
            if resource.dependencies.iter().any(|dependency| dependency.on >= id) {
                return Err(PageError::Order { resource: id });
            }
        }
        Ok(Self { name, servers, resources, redirects: 0 })
    }

    /// The same, with its first `count` resources known as redirects to the document.
    #[must_use]
    pub fn with_redirects(self, count: usize) -> Self {
        Self { redirects: count.min(self.resources.len() - 1), ..self }
    }

    /// What it is called: its URL or site.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where resources come from.
    #[must_use]
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// What is loaded, each after all that it depends on.
    #[must_use]
    pub fn resources(&self) -> &[Resource] {
        &self.resources
    }

    /// How many of its first resources are redirects to the document.
    #[must_use]
    pub fn redirects(&self) -> usize {
        self.redirects
    }

    /// The page as it is for a client that knows where the redirects lead.
    ///
    /// What depended on them alone is asked for at the start.
    #[must_use]
    pub fn without_redirects(&self) -> Self {
        let mut resources = self.resources[self.redirects..].to_vec();
        for resource in &mut resources {
            resource.dependencies.retain(|dependency| dependency.on >= self.redirects);
            for dependency in &mut resource.dependencies {
                dependency.on -= self.redirects;
            }
        }
        Self { name: self.name.clone(), servers: self.servers.clone(), resources, redirects: 0 }
    }
}

/// Why resources are no page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageError {
    /// There is none.
    Empty,
    /// There are more than [`RESOURCES_MAX`]: this many.
    Resources(usize),
    /// One is of a server that is not there.
    Server {
        /// Its place.
        resource: usize,
    },
    /// One depends on itself or on a later one.
    Order {
        /// Its place.
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
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn server() -> Server {
        Server {
            host: "a.test".into(),
            port: 443,
            tls: true,
            anonymous: false,
            protocol: Protocol::Http1,
            pipelining: false,
        }
    }

    fn resource(on: &[usize]) -> Resource {
        let dependency = |&on| Dependency { on, part: Part::Whole, then: Duration::ZERO };
        Resource {
            dependencies: on.iter().map(dependency).collect(),
            server: 0,
            request_bytes: 0,
            response_bytes: 1,
            server_time: Duration::ZERO,
            in_prefetch_database: false,
            url: String::new(),
            connection: None,
        }
    }

    fn page(resources: Vec<Resource>) -> Result<Page, PageError> {
        Page::new("page".into(), vec![server()], resources)
    }

    #[test]
    fn what_is_no_page_is_refused() {
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
    }

    #[test]
    fn what_depended_on_redirects_comes_first_without_them() {
        let whole = page(vec![resource(&[]), resource(&[0]), resource(&[0, 1])]).unwrap();
        assert_eq!(whole.without_redirects(), whole);
        let rest = whole.clone().with_redirects(1).without_redirects();
        assert_eq!(rest.resources(), [resource(&[]), resource(&[0])]);
        let rest = whole.with_redirects(100).without_redirects();
        assert_eq!(rest.resources(), [resource(&[])]);
    }

    #[test]
    fn parts_are_no_larger_than_the_whole() {
        assert_eq!(Part::Bytes(5).bytes_of(3), 3);
        assert_eq!(Part::Bytes(0).bytes_of(3), 0);
        assert_eq!(Part::Whole.bytes_of(3), 3);
    }
}
