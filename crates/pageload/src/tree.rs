//! A page's tree, and the parts of a recorded load's time.
//!
//! Round trips and categories are those of BLAST (Wang 2020): [`Tree::min_rtt`] and [`Breakdown`].

mod breakdown;
mod path;
mod queue;

use serde::Serialize;

use crate::page::{Page, Protocol, Resource};

pub use self::breakdown::Breakdown;
pub use self::path::{CriticalPath, Step};
pub use self::queue::head_of_line;

/// Structure of a page's resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    depths: Vec<u32>,
    min_rtts: Vec<u32>,
    opens: Vec<bool>,
    children: Vec<Vec<usize>>,
    roots: Vec<usize>,
}

/// The figures of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Shape {
    /// Number of requests.
    pub resources: usize,
    /// Number of servers.
    pub servers: usize,
    /// Number of connections opened: as recorded, otherwise one for each server.
    pub connections: usize,
    /// Number of resources of the server with the most.
    pub largest_server: usize,
    /// Bytes of all responses.
    pub response_bytes: u64,
    /// Bytes of all requests.
    pub request_bytes: u64,
    /// Number of resources on the longest path from the document, including both ends.
    pub height: u32,
    /// Minimum round trips of the load: see [`Tree::min_rtt`].
    pub min_rtt: u32,
    /// Number of redirects to the document.
    pub redirects: usize,
}

impl Tree {
    /// Builds the tree of a page.
    ///
    /// Connections are opened where the recording says so; without one, by the first resource of
    /// each server.
    pub fn from_page(page: &Page) -> Self {
        let resources = page.resources();
        let opens = opens(page);
        let mut tree = Self {
            depths: Vec::with_capacity(resources.len()),
            min_rtts: Vec::with_capacity(resources.len()),
            children: vec![Vec::new(); resources.len()],
            roots: Vec::new(),
            opens,
        };
        for (id, resource) in resources.iter().enumerate() {
            tree.depths.push(most(&tree.depths, resource) + 1);
            let own = tree.round_trips(page, id, resource);
            tree.min_rtts.push(most(&tree.min_rtts, resource) + own);
            match resource.parent().and_then(|parent| tree.children.get_mut(parent)) {
                Some(children) => children.push(id),
                None => tree.roots.push(id),
            }
        }
        tree
    }

    /// Returns the round trips that one resource takes: 3 over a new HTTPS connection, 2 over a new
    /// HTTP one, 1 otherwise; over a new QUIC connection, which the paper does not have, 2.
    fn round_trips(&self, page: &Page, id: usize, resource: &Resource) -> u32 {
        let server = page.servers().get(resource.server);
        match server.filter(|_| self.opens_connection(id)) {
            None => 1,
            Some(server) if server.protocol == Protocol::Http3 => 2,
            Some(server) => 2 + u32::from(server.tls),
        }
    }

    /// Returns the number of resources from the document to one, including both: 1 for the
    /// document.
    pub fn depth(&self, resource: usize) -> u32 {
        self.depths.get(resource).copied().unwrap_or_default()
    }

    /// Returns the round trips until a resource is loaded if all else takes no time, on the longest
    /// path from the document.
    pub fn min_rtt(&self, resource: usize) -> u32 {
        self.min_rtts.get(resource).copied().unwrap_or_default()
    }

    /// Returns true if a resource opened a connection.
    pub fn opens_connection(&self, resource: usize) -> bool {
        self.opens.get(resource).copied().unwrap_or_default()
    }

    /// Returns the resources that depend on none.
    pub fn roots(&self) -> &[usize] {
        &self.roots
    }

    /// Returns the resources whose parent this is.
    pub fn children(&self, resource: usize) -> &[usize] {
        self.children.get(resource).map_or(&[], Vec::as_slice)
    }

    /// Returns all resources in the order of a printed tree, each with the number of its ancestors.
    pub fn lines(&self) -> Vec<(usize, usize)> {
        let mut left: Vec<(usize, usize)> =
            self.roots.iter().rev().map(|&root| (root, 0)).collect();
        let mut lines = Vec::with_capacity(self.depths.len());
        while let Some((resource, above)) = left.pop() {
            lines.push((resource, above));
            left.extend(self.children(resource).iter().rev().map(|&child| (child, above + 1)));
        }
        lines
    }

    /// Returns the figures of `page`, which this is the tree of.
    pub fn shape(&self, page: &Page) -> Shape {
        let resources = page.resources();
        let mut of_server = vec![0_usize; page.servers().len()];
        for resource in resources {
            if let Some(count) = of_server.get_mut(resource.server) {
                *count += 1;
            }
        }
        let response_bytes = resources.iter().map(|one| one.response_bytes);
        let request_bytes = resources.iter().map(|one| one.request_bytes);
        Shape {
            resources: resources.len(),
            servers: of_server.len(),
            connections: self.opens.iter().filter(|opens| **opens).count(),
            largest_server: of_server.into_iter().max().unwrap_or_default(),
            response_bytes: response_bytes.fold(0, u64::saturating_add),
            request_bytes: request_bytes.fold(0, u64::saturating_add),
            height: self.depths.iter().max().copied().unwrap_or_default(),
            min_rtt: self.min_rtts.iter().max().copied().unwrap_or_default(),
            redirects: page.redirects(),
        }
    }
}

/// Returns, for each resource, true if it opened a connection.
fn opens(page: &Page) -> Vec<bool> {
    let mut seen = vec![false; page.servers().len()];
    let resources = page.resources().iter();
    let opens = resources.map(|resource| match resource.measured {
        Some(timings) => !timings.connect.is_zero() || !timings.tls.is_zero(),
        None => seen.get_mut(resource.server).is_some_and(|seen| !std::mem::replace(seen, true)),
    });
    opens.collect()
}

/// Returns the largest of the `figures` of what a resource depends on, or 0.
fn most(figures: &[u32], resource: &Resource) -> u32 {
    let on = resource.dependencies.iter().map(|dependency| dependency.on);
    on.filter_map(|on| figures.get(on)).max().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::page::{Dependency, Server, Timings};

    fn resource(on: &[usize], server: usize) -> Resource {
        let dependencies = on.iter().map(|&on| Dependency::whole(on)).collect();
        Resource { dependencies, server, response_bytes: 10, ..Resource::default() }
    }

    fn page(resources: Vec<Resource>) -> Page {
        let mut servers = [Protocol::Http2, Protocol::Http1, Protocol::Http3]
            .map(|protocol| Server::https("a.test", protocol));
        servers[1].tls = false;
        Page::new("page".into(), servers.into(), resources).unwrap()
    }

    #[test]
    fn round_trips_add_up_on_the_longest_way() {
        let page = page(vec![
            resource(&[], 0),
            resource(&[0], 0),
            resource(&[0], 1),
            resource(&[1], 2),
            resource(&[2, 3], 0),
        ]);
        let tree = Tree::from_page(&page);
        let min_rtts: Vec<_> = (0..5).map(|id| tree.min_rtt(id)).collect();
        assert_eq!(min_rtts, [3, 4, 5, 6, 7]);
        let depths: Vec<_> = (0..6).map(|id| tree.depth(id)).collect();
        assert_eq!(depths, [1, 2, 2, 3, 4, 0]);
        let shape = tree.shape(&page);
        assert_eq!((shape.height, shape.min_rtt, shape.connections), (4, 7, 3));
        assert_eq!((shape.largest_server, shape.response_bytes), (3, 50));
    }

    #[test]
    fn recordings_say_which_connections_are_new() {
        let mut resources = vec![resource(&[], 0), resource(&[0], 0)];
        resources[0].measured = Some(Timings::default());
        let tls = Duration::from_millis(1);
        resources[1].measured = Some(Timings { tls, ..Timings::default() });
        let tree = Tree::from_page(&page(resources));
        assert_eq!((tree.min_rtt(0), tree.min_rtt(1)), (1, 4), "the first was reused");
    }

    #[test]
    fn a_tree_is_printed_from_the_top() {
        let on = [vec![], vec![0], vec![0], vec![1], vec![], vec![2]];
        let tree = Tree::from_page(&page(on.iter().map(|on| resource(on, 0)).collect()));
        assert_eq!(tree.lines(), [(0, 0), (1, 1), (3, 2), (2, 1), (5, 2), (4, 0)]);
    }

    #[test]
    fn deep_trees_are_no_problem() {
        let count = crate::page::RESOURCES_MAX;
        let resources =
            (0..count).map(|id| resource(&id.checked_sub(1).into_iter().collect::<Vec<_>>(), 0));
        let tree = Tree::from_page(&page(resources.collect()));
        assert_eq!(tree.lines().last(), Some(&(count - 1, count - 1)));
    }
}
