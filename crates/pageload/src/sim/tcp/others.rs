//! Requests that databases cause in vain.

use std::collections::HashSet;

use super::{Delivery, Techniques};
use crate::page::{Page, Resource};

/// Returns the page with the requests that databases cause in vain; `None` if there are none.
pub(super) fn others(page: &Page, delivery: Delivery, techniques: Techniques) -> Option<Page> {
    let Techniques { server_database, prefetch_database, .. } = techniques;
    let known = page.known().into_iter().flat_map(|known| &known.other_resources);
    let resources = match delivery {
        _ if !prefetch_database => Vec::new(),
        Delivery::Start => known.cloned().collect(),
        Delivery::Document => {
            let in_vain = known.filter(|resource| resource.in_links).cloned();
            in_vain.chain(needed_in_frames(page)).collect()
        }
    };
    (server_database || prefetch_database).then(|| page.with_others(resources)).flatten()
}

/// Returns the resources that are preloaded for the page, but needed only by frames of other sites,
/// which request them again.
fn needed_in_frames(page: &Page) -> Vec<Resource> {
    let named = page.resources().iter().filter(|resource| resource.in_links);
    let mut seen: HashSet<&str> = named
        .clone()
        .filter(|resource| !resource.in_foreign_frame)
        .map(|resource| resource.url.as_str())
        .collect();
    let again = named.filter(|resource| resource.in_foreign_frame && seen.insert(&resource.url));
    again
        .map(|resource: &Resource| Resource {
            dependencies: Vec::new(),
            in_foreign_frame: false,
            ..resource.clone()
        })
        .collect()
}
