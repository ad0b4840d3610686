//! Finds the requests of frames of other sites.

use std::collections::HashSet;

use crate::page::{Resource, Server};

/// Marks resources of frames of other sites than that of the `document`; `is_document` says which
/// are documents.
///
/// None, if some of them came over connections that the page used as well: then the browser keeps
/// nothing apart.
pub(super) fn mark(
    resources: &mut [Resource],
    servers: &[Server],
    document: usize,
    is_document: &[bool],
) {
    let own = resources.get(document).and_then(|resource| site_of(resource, servers));
    for place in document + 1..resources.len() {
        let Some(resource) = resources.get(place) else { break };
        let is_foreign = if is_document.get(place) == Some(&true) {
            site_of(resource, servers) != own
        } else {
            let parent = resource.parent().and_then(|parent| resources.get(parent));
            parent.is_some_and(|parent| parent.in_foreign_frame)
        };
        if let Some(resource) = resources.get_mut(place) {
            resource.in_foreign_frame = is_foreign;
        }
    }
    if is_shared(resources) {
        resources.iter_mut().for_each(|resource| resource.in_foreign_frame = false);
    }
}

fn site_of<'a>(resource: &Resource, servers: &'a [Server]) -> Option<&'a str> {
    servers.get(resource.server).map(|server| site(&server.host))
}

/// Returns true if a connection carried resources both of the page and of foreign frames.
fn is_shared(resources: &[Resource]) -> bool {
    let (framed, own): (Vec<&Resource>, Vec<&Resource>) =
        resources.iter().partition(|resource| resource.in_foreign_frame);
    let framed: HashSet<u32> = framed.iter().filter_map(|resource| resource.connection).collect();
    own.iter().any(|resource| resource.connection.is_some_and(|on| framed.contains(&on)))
}

/// Returns the registrable part of a host, by the public suffix list as browsers use it; the host
/// itself if it is an address or a suffix.
pub(crate) fn site(host: &str) -> &str {
    let is_address = host.contains(':') || host.bytes().all(|of| of.is_ascii_digit() || of == b'.');
    if is_address { host } else { psl::domain_str(host).unwrap_or(host) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::{Dependency, Protocol};

    #[test]
    fn sites_are_what_somebody_registered() {
        let own = ["b.test", "test", "y.de", "y.co.uk", "y.github.io", "10.0.0.1", "[::1]"];
        assert_eq!(own.map(site), own);
        let others = ["a.b.test", "x.y.co.uk", "x.y.github.io"];
        assert_eq!(others.map(site), ["b.test", "y.co.uk", "y.github.io"]);
    }

    /// A page, a script of another site, its frame, what that asks for, and a frame of the page's
    /// own site.
    fn page(connections: [u32; 5]) -> Vec<bool> {
        let servers = ["www.a.test", "b.test", "account.a.test"]
            .map(|host| Server::https(host, Protocol::Http2));
        let tree = [(None, 0), (Some(0), 1), (Some(1), 1), (Some(2), 1), (Some(1), 2)];
        let mut resources: Vec<Resource> = tree
            .into_iter()
            .zip(connections)
            .map(|((on, server), connection): ((Option<usize>, usize), u32)| Resource {
                dependencies: on.map(Dependency::whole).into_iter().collect(),
                server,
                connection: Some(connection),
                ..Resource::default()
            })
            .collect();
        mark(&mut resources, &servers, 0, &[true, false, true, false, true]);
        resources.iter().map(|resource| resource.in_foreign_frame).collect()
    }

    #[test]
    fn requests_of_third_party_frames_are_marked() {
        assert_eq!(page([0, 1, 2, 2, 3]), [false, false, true, true, false]);
        // One connection for both.
        assert_eq!(page([0, 1, 1, 2, 3]), [false; 5]);
    }
}
