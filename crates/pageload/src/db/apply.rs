//! A page as it is for a client that has a database.

use std::collections::HashSet;

use super::database::Database;
use super::target::Target;
use crate::page::{Page, Resource};

impl Database {
    /// The page without the redirects to it that are known, and with what is prefetched marked.
    ///
    /// So that simulators can say what this database, with its misses, would save.
    #[must_use]
    pub fn apply(&self, page: &Page) -> Page {
        let resources = page.resources();
        let target = |place: usize| resources.get(place)?.url.parse::<Target>().ok();
        let document = target(page.redirects());
        let leads = target(0).and_then(|first| Some(self.redirect(&first)?.to().clone()));
        let entry = document.as_ref().and_then(|document| self.page(document));
        let known: HashSet<&Target> =
            entry.iter().flat_map(|entry| &entry.prefetch).map(|of| &of.target).collect();
        let marked = resources.iter().enumerate().map(|(place, resource)| Resource {
            in_prefetch_database: target(place).is_some_and(|target| known.contains(&target)),
            ..resource.clone()
        });
        let with = Page::new(page.name().to_owned(), page.servers().to_vec(), marked.collect());
        // It is as good a page as before: only marks are others.
        let Ok(with) = with else { return page.clone() };
        let with = with
            .with_redirects(page.redirects())
            .with_recorded(page.recorded().clone())
            .with_ignored(page.ignored().clone());
        let is_known = page.redirects() > 0 && leads.is_some() && leads == document;
        if is_known {
            with.without_redirects(|resource| resource.in_prefetch_database)
        } else {
            with
        }
    }
}
