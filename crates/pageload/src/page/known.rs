//! A database's knowledge about a page, as far as loads depend on it.

use super::{Page, Resource, Server};

/// Knowledge of a database about a page, with its useless entries ([`crate::db::Database::apply`]).
///
/// Which of its resources are in the prefetch database stands at these:
/// [`Resource::in_prefetch_database`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Known {
    /// True if the targets of the redirects to the document are known.
    pub redirects: bool,
    /// Knowledge of each of [`Page::servers`], then of [`Self::other_servers`].
    pub servers: Vec<KnownServer>,
    /// Servers that the database names for the page, and that this load does not need.
    pub other_servers: Vec<Server>,
    /// Resources of the prefetch database that this load does not need. Their servers are places in
    /// [`Page::servers`] followed by [`Self::other_servers`].
    pub other_resources: Vec<Resource>,
}

/// A database's knowledge about a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnownServer {
    /// Number of connections to open ahead of time; none if the server database lacks it.
    pub connections: u8,
    /// True if the HTTP/2 database has its host.
    pub http2: bool,
}

impl Page {
    /// Returns the page with a database's knowledge about it.
    #[must_use]
    pub(crate) fn with_known(self, known: Known) -> Self {
        Self { known: Some(known), ..self }
    }

    /// Returns the database's knowledge. If none was applied, everything that the recording shows
    /// counts as known, except [`Resource::in_prefetch_database`].
    pub fn known(&self) -> Option<&Known> {
        self.known.as_ref()
    }

    /// Returns true if a database knows the targets of its redirects.
    pub(crate) fn knows_redirects(&self) -> bool {
        self.redirects > 0 && self.known().is_none_or(|known| known.redirects)
    }

    /// Returns true if the HTTP/2 database has the host of a server.
    pub(crate) fn knows_http2(&self, server: usize) -> bool {
        self.known().is_none_or(|known| known.servers.get(server).is_some_and(|of| of.http2))
    }

    /// Returns the page with the servers and `resources` that it does not need, after all others;
    /// `None` if there are none.
    pub(crate) fn with_others(&self, resources: Vec<Resource>) -> Option<Self> {
        let servers = self.known().map_or(&[][..], |known| known.other_servers.as_slice());
        if servers.is_empty() && resources.is_empty() {
            return None;
        }
        let mut page = self.clone();
        page.servers.extend_from_slice(servers);
        page.resources.extend(resources);
        Some(page)
    }
}
