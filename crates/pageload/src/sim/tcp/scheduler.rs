//! The browser's scheduler: it holds delayable requests back, as Chromium's
//! `services/network/resource_scheduler` does.

use super::client::Run;
use crate::page::Urgency;

/// Maximum delayable requests in flight (`kDefaultMaxNumDelayableRequestsPerClient`).
const DELAYABLE_MAX: usize = 10;

/// Maximum of these to one server (`kMaxNumDelayableRequestsPerHostPerClient`).
const DELAYABLE_PER_SERVER_MAX: usize = 6;

impl Run<'_> {
    /// Sends a request on, or holds it back.
    pub(super) fn schedule(&mut self, id: u32) {
        let is_delayable = self.is_delayable(id);
        if is_delayable && !self.has_room(id) {
            self.held.push_back(id);
            return;
        }
        if is_delayable {
            self.delayable.push(id);
        }
        let server = self.server_of(&self.page.resources()[id as usize]);
        self.servers[server].queue.push_back(id);
        self.dispatch(server);
    }

    /// Handles a response being there: others may start.
    pub(super) fn finish(&mut self, id: u32) {
        self.delayable.retain(|other| *other != id);
        for id in std::mem::take(&mut self.held) {
            self.schedule(id);
        }
    }

    fn has_room(&self, id: u32) -> bool {
        let resources = self.page.resources();
        let server = resources[id as usize].server;
        let servers = self.delayable.iter().map(|other| resources[*other as usize].server);
        let to_server = servers.filter(|other| *other == server).count();
        self.delayable.len() < DELAYABLE_MAX && to_server < DELAYABLE_PER_SERVER_MAX
    }

    /// Returns true if a request may be held back. None is to a server known to speak HTTP/2, which
    /// has priorities of its own; a connection opened ahead does not make it known, a request does.
    fn is_delayable(&self, id: u32) -> bool {
        let resource = &self.page.resources()[id as usize];
        let server = &self.servers[self.server_of(resource)];
        let is_low = match self.page.urgency(resource) {
            Urgency::Urgent => false,
            Urgency::UrgentAsPreload => self.is_needed(id),
            Urgency::Delayable => true,
        };
        is_low && !(server.http2 && server.is_asked)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::super::{Link, Settings, load};
    use super::*;
    use crate::page::{Dependency, Page, Protocol, Resource, Server};

    /// Returns how many of twelve resources of as many servers arrive with the last of them, in
    /// round trips; and in how many round trips one script of another server does.
    fn last_and_script(urgency: Urgency) -> (usize, f64) {
        let servers = (0..14).map(|id| Server::https(format!("{id}.test"), Protocol::Http2));
        let resources = (0..14).map(|server: usize| Resource {
            dependencies: (server > 0).then_some(Dependency::whole(0)).into_iter().collect(),
            server,
            response_bytes: 1_000,
            url: format!("https://{server}.test/"),
            ..Resource::default()
        });
        let page = Page::new("page".into(), servers.collect(), resources.collect());
        let urgencies: BTreeMap<String, Urgency> =
            (1..13).map(|server| (format!("https://{server}.test/"), urgency)).collect();
        let page = page.unwrap().with_urgencies(urgencies);
        let rtt = Duration::from_millis(100);
        let link = Link { rtt, ..Link::default() };
        let load = load(&page, &Settings { link, ..Settings::default() }, 0);
        let ends: Vec<f64> = load
            .resources
            .iter()
            .map(|times| (times.last.as_secs_f64() / rtt.as_secs_f64()).round())
            .collect();
        let last = ends[1..13].iter().copied().fold(0.0, f64::max);
        (ends[1..13].iter().filter(|end| **end >= last).count(), ends[13])
    }

    #[test]
    fn at_most_ten_delayable_requests_are_in_flight() {
        // The document takes three round trips, each other server three more.
        assert_eq!(last_and_script(Urgency::Urgent), (12, 6.0));
        assert_eq!(last_and_script(Urgency::Delayable), (2, 6.0));
        assert_eq!(last_and_script(Urgency::UrgentAsPreload), (2, 6.0));
    }
}
