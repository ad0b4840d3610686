//! Requests that databases make the client send before the page comes to them.

use std::collections::HashSet;

use super::Delivery;
use super::client::Run;
use crate::page::{Known, Resource};

impl Run<'_> {
    /// Returns true if a resource is requested before anything names it.
    pub(super) fn is_known_at_start(&self, resource: &Resource) -> bool {
        self.settings.delivery == Delivery::Start
            && self.techniques.prefetch_database
            && resource.in_prefetch_database
    }

    /// Requests what is known at the start, in addition to what the page needs.
    pub(super) fn begin_others(&mut self, needed: usize) {
        let all = self.page.resources().len();
        (needed..all).filter_map(|id| u32::try_from(id).ok()).for_each(|id| self.need(id));
        // After the needed resources, which have their connections by now.
        if !self.techniques.server_database {
            return;
        }
        let used: HashSet<usize> =
            self.page.resources().iter().map(|resource| self.server_of(resource)).collect();
        for (server, connections) in self.known_servers() {
            let apart = self.apart.get(&server).copied();
            let own = Some(server).filter(|server| apart.is_none() || used.contains(server));
            let places: Vec<usize> = own.into_iter().chain(apart).collect();
            // Databases count those of the page and of its frames together.
            let each = connections.div_ceil(places.len());
            for place in places {
                while self.servers[place].connections.len() < each {
                    self.open(place);
                }
            }
        }
    }

    /// Handles what the head of the document's response says about the page.
    pub(super) fn head(&mut self) {
        if self.settings.delivery != Delivery::Document {
            return;
        }
        let resources = self.page.resources();
        let named: Vec<u32> = if self.techniques.prefetch_database {
            let known = (0..).zip(resources).filter(|(_, resource)| resource.in_links);
            known.map(|(id, _)| id).collect()
        } else if self.techniques.early_hints {
            // A server without a database knows what its document names.
            let document = self.triggers.by_resource(self.page.redirects());
            document.iter().map(|trigger| trigger.id).collect()
        } else {
            Vec::new()
        };
        for id in named {
            if !self.page.resources()[id as usize].in_foreign_frame {
                self.fetch(id);
            }
        }
        if self.techniques.server_database {
            for (server, connections) in self.known_servers() {
                if connections > 0 && self.servers[server].connections.is_empty() {
                    self.open(server);
                }
            }
        }
    }

    /// Returns the servers known to be needed, in the order in which the page names them, then
    /// those in vain; with the number of connections known to be needed.
    fn known_servers(&self) -> Vec<(usize, usize)> {
        let used = self.used_servers().into_iter();
        let Some(known) = self.page.known() else {
            return used.map(|server| (server, 1)).collect();
        };
        let most = self.settings.pools.connections.max(1);
        let Known { servers, other_servers, .. } = known;
        let others = self.page.servers().len().saturating_sub(other_servers.len());
        let all = used.filter(|&server| server < others).chain(others..self.page.servers().len());
        all.map(|server| {
            let connections: usize = servers.get(server).map_or(0, |of| of.connections.into());
            (server, connections.min(most))
        })
        .collect()
    }

    /// Returns the servers in the order in which the page names them.
    fn used_servers(&self) -> Vec<usize> {
        let mut seen = vec![false; self.servers.len()];
        let all = self.page.resources().iter().map(|resource| resource.server);
        all.filter(|&server| !std::mem::replace(&mut seen[server], true)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Handshake, Link, Settings, Technique, Techniques, load};
    use super::*;
    use crate::page::{Dependency, KnownServer, Page, Protocol, Server};
    use crate::sim::Load;

    const RTT: Duration = Duration::from_millis(100);
    const PREFETCH: Technique = Technique::PrefetchDatabase;

    fn server(host: &str) -> Server {
        Server::https(host, Protocol::Http2)
    }

    /// A resource of a server, asked for by another resource; known, and named by `Link` fields if
    /// wanted.
    fn resource(on: Option<usize>, server: usize, in_links: bool) -> Resource {
        Resource {
            dependencies: on.map(Dependency::whole).into_iter().collect(),
            server,
            response_bytes: 1_000,
            in_prefetch_database: in_links,
            in_links,
            ..Resource::default()
        }
    }

    fn framed(resource: Resource) -> Resource {
        Resource { in_foreign_frame: true, ..resource }
    }

    fn page(resources: Vec<Resource>) -> Page {
        Page::new("page".into(), vec![server("a.test"), server("b.test")], resources).unwrap()
    }

    fn loaded(page: &Page, technique: Technique, delivery: Delivery) -> Load {
        with_all(page, &[technique], delivery)
    }

    fn with_all(page: &Page, techniques: &[Technique], delivery: Delivery) -> Load {
        let settings = Settings {
            link: Link { rtt: RTT, ..Link::default() },
            tls: Handshake {
                full: Duration::ZERO,
                resumed: Duration::ZERO,
                ..Handshake::default()
            },
            techniques: Techniques::from_list(techniques),
            delivery,
            ..Settings::default()
        };
        load(page, &settings, 0)
    }

    /// When each resource is there, in round trips.
    fn ends(page: &Page, technique: Technique, delivery: Delivery) -> Vec<f64> {
        ends_with_all(page, &[technique], delivery)
    }

    fn ends_with_all(page: &Page, techniques: &[Technique], delivery: Delivery) -> Vec<f64> {
        let load = with_all(page, techniques, delivery);
        let ends = load.resources.iter().map(|times| times.last.as_secs_f64());
        ends.map(|seconds| (seconds / RTT.as_secs_f64()).round()).collect()
    }

    #[test]
    fn listed_resources_arrive_with_the_document_or_one_round_trip_later() {
        let chain =
            [resource(None, 0, false), resource(Some(0), 0, true), resource(Some(1), 0, true)];
        let page = page(chain.into());
        assert_eq!(ends(&page, PREFETCH, Delivery::Start), [3.0, 3.0, 3.0]);
        assert_eq!(ends(&page, PREFETCH, Delivery::Document), [3.0, 4.0, 4.0]);
    }

    #[test]
    fn early_hints_come_before_a_document_that_takes_its_time() {
        let slow = Resource { server_time: 4 * RTT, ..resource(None, 0, false) };
        let (script, data) = (resource(Some(0), 0, true), resource(Some(0), 0, false));
        let behind = [resource(Some(1), 0, true), resource(Some(2), 0, false)];
        let page = page([slow, script].into_iter().chain(behind).chain([data]).collect());
        let hints = Technique::EarlyHints;
        let document = Delivery::Document;
        assert_eq!(ends(&page, PREFETCH, document), [7.0, 8.0, 8.0, 9.0, 8.0]);
        // Resources named by the document itself; its scripts run once it has arrived.
        assert_eq!(ends(&page, hints, document), [7.0, 4.0, 8.0, 9.0, 4.0]);
        let both = ends_with_all(&page, &[hints, PREFETCH], document);
        assert_eq!(both, [7.0, 4.0, 4.0, 8.0, 8.0]);
        // In a changed browser they run at once.
        assert_eq!(ends(&page, hints, Delivery::Start), [7.0, 4.0, 5.0, 6.0, 4.0]);
    }

    #[test]
    fn resources_that_no_field_can_name_are_not_requested_early() {
        let data = Resource { in_links: false, ..resource(Some(0), 0, true) };
        let page = page(vec![resource(None, 0, false), resource(Some(0), 0, false), data]);
        assert_eq!(ends(&page, PREFETCH, Delivery::Start), [3.0, 4.0, 3.0]);
        assert_eq!(ends(&page, PREFETCH, Delivery::Document), [3.0, 4.0, 4.0]);
    }

    #[test]
    fn a_script_that_is_there_does_not_run_before_the_page_comes_to_it() {
        let slow = Resource { server_time: 2 * RTT, ..resource(Some(0), 0, false) };
        let chain = [slow, resource(Some(1), 0, true), resource(Some(2), 0, false)];
        let page = page([resource(None, 0, false)].into_iter().chain(chain).collect());
        // In a changed browser it does, and asks for what comes behind.
        assert_eq!(ends(&page, PREFETCH, Delivery::Start), [3.0, 6.0, 3.0, 4.0]);
        assert_eq!(ends(&page, PREFETCH, Delivery::Document), [3.0, 6.0, 4.0, 7.0]);
    }

    #[test]
    fn frames_of_other_sites_ask_again() {
        // A frame, and a script in it.
        let frame = framed(resource(Some(0), 1, false));
        let page = page(vec![resource(None, 0, false), frame, framed(resource(Some(1), 1, true))]);
        let none = ends(&page, Technique::Resumption, Delivery::Document);
        assert_eq!(none, [3.0, 6.0, 7.0]);
        assert_eq!(ends(&page, PREFETCH, Delivery::Document), none);
        let slow = Resource { server_time: 2 * RTT, ..page.resources()[0].clone() };
        let slow = self::page([&[slow], &page.resources()[1..]].concat());
        assert_eq!(ends(&slow, Technique::EarlyHints, Delivery::Document), [5.0, 8.0, 9.0]);
        // Requested again, over a connection of the page.
        let connections = [Technique::Resumption, PREFETCH]
            .map(|technique| loaded(&page, technique, Delivery::Document).connections);
        assert_eq!(connections, [2, 3]);
        // The frame's own connection is there when the frame is asked for.
        assert_eq!(ends(&page, PREFETCH, Delivery::Start), [3.0, 4.0, 3.0]);
    }

    #[test]
    fn servers_are_known_with_the_documents_head() {
        let database = Technique::ServerDatabase;
        let mut resources = vec![
            resource(None, 0, false),
            resource(Some(0), 0, false),
            resource(Some(1), 1, false),
        ];
        let of_page = page(resources.clone());
        assert_eq!(ends(&of_page, Technique::Resumption, Delivery::Start), [3.0, 4.0, 7.0]);
        assert_eq!(ends(&of_page, database, Delivery::Document), [3.0, 4.0, 6.0]);
        assert_eq!(ends(&of_page, database, Delivery::Start), [3.0, 4.0, 5.0]);
        // A connection of the page is useless to a frame of another site.
        resources[2].in_foreign_frame = true;
        let of_frame = page(resources);
        assert_eq!(ends(&of_frame, database, Delivery::Document), [3.0, 4.0, 7.0]);
        assert_eq!(ends(&of_frame, database, Delivery::Start), [3.0, 4.0, 5.0]);
    }

    #[test]
    fn one_connection_is_opened_to_a_server_that_is_known() {
        let http1 = Server { protocol: Protocol::Http1, ..server("b.test") };
        let page = Page::new(
            "page".into(),
            vec![server("a.test"), http1],
            vec![resource(None, 0, false), resource(Some(0), 1, false)],
        );
        let known = [0, 3].map(|connections| KnownServer { connections, http2: false });
        let page = page.unwrap().with_known(Known { servers: known.into(), ..Known::default() });
        assert_eq!(
            [Delivery::Document, Delivery::Start].map(|delivery| loaded(
                &page,
                Technique::ServerDatabase,
                delivery
            )
            .connections),
            [2, 4]
        );
    }

    #[test]
    fn unneeded_listed_resources_cost_only_bandwidth() {
        let [named, unnamed] = [true, false].map(|in_links| {
            let other = Resource { in_links, ..resource(None, 1, true) };
            let known = Known {
                servers: vec![KnownServer::default(); 2],
                other_resources: vec![other],
                ..Known::default()
            };
            let page = page(vec![resource(None, 0, false), resource(Some(0), 0, false)]);
            loaded(&page.with_known(known), PREFETCH, Delivery::Document)
        });
        assert_eq!((named.connections, unnamed.connections), (2, 1));
        assert_eq!(named.resources, unnamed.resources);
    }
}
