use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::content::{BYTES_MAX, Recorded, WAIT_MAX, resource_path};
use crate::error::PeerError;

/// Connections of one pool at most: more than any browser has (6), or has for a proxy (32).
pub const CONNECTIONS_MAX: usize = 64;

/// Bytes of a request at most, which are made at once: what servers take of an upload by default is
/// 1 to 10 MB.
pub const REQUEST_MAX: u64 = 16 << 20;

/// A page to load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PagePlan {
    /// Hosts whose connections share sessions and cookies.
    pub hosts: Vec<PageHost>,
    /// Pools of connections, by the place of their host in `hosts`.
    pub pools: Vec<usize>,
    /// Connections of one pool at a time.
    pub connections: usize,
    /// Resources to load, each after all that it depends on.
    pub resources: Vec<PageResource>,
}

/// An origin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageHost {
    /// The name that its certificate has.
    pub name: String,
    /// Addresses; each connection goes to any of them. Those of TurboTLS go to the first.
    pub addresses: Vec<SocketAddr>,
}

/// A request and its response.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageResource {
    /// Place in [`PagePlan::pools`].
    pub pool: usize,
    /// Bytes of the request with its head; a request is never shorter than its own.
    pub request_bytes: u64,
    /// Bytes of the response with its head; a response is never shorter than its own.
    pub response_bytes: u64,
    /// Time that the server thinks, in microseconds.
    pub wait_us: u64,
    /// True if it is answered by a redirect.
    pub redirect: bool,
    /// Resources that have to be there before it is asked for.
    pub dependencies: Vec<PageDependency>,
}

/// A part of another response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageDependency {
    /// Place in [`PagePlan::resources`], before that of the one that depends on it.
    pub on: usize,
    /// Bytes of it that have to be there, with head; all that there are, if it has fewer.
    pub bytes: u64,
    /// Time that the client needs then, in microseconds.
    pub then_us: u64,
}

impl PagePlan {
    pub(super) fn check(&self) -> Result<(), PeerError> {
        self.wrong().map_or(Ok(()), |what| Err(PeerError::new(format!("no page to load: {what}"))))
    }

    fn wrong(&self) -> Option<String> {
        if self.resources.is_empty() {
            return Some("it has no resource".into());
        }
        if !(1..=CONNECTIONS_MAX).contains(&self.connections) {
            return Some(format!("{} connections, not 1 to {CONNECTIONS_MAX}", self.connections));
        }
        if let Some(host) = self.hosts.iter().find(|host| host.addresses.is_empty()) {
            return Some(format!("{} has no address", host.name));
        }
        if self.pools.iter().any(|host| *host >= self.hosts.len()) {
            return Some("connections to a host that is not there".into());
        }
        let mut all = self.resources.iter().enumerate();
        all.find_map(|(id, one)| {
            one.wrong(id, self.pools.len()).map(|what| format!("resource {id}: {what}"))
        })
    }
}

impl PageResource {
    fn wrong(&self, id: usize, pools: usize) -> Option<&'static str> {
        match () {
            () if self.pool >= pools => Some("its pool is not there"),
            () if self.dependencies.iter().any(|one| one.on >= id) => {
                Some("it depends on a later one")
            }
            () if self.request_bytes > REQUEST_MAX => Some("its request is too large"),
            () if self.response_bytes > BYTES_MAX => Some("its response is too large"),
            () if Duration::from_micros(self.wait_us) > WAIT_MAX => {
                Some("its server thinks too long")
            }
            () => None,
        }
    }

    pub(super) const fn recorded(&self) -> Recorded {
        let wait = Duration::from_micros(self.wait_us);
        Recorded { bytes: self.response_bytes, wait, redirect: self.redirect }
    }

    /// Returns its request to `host`, padded with content to the recorded length.
    pub(super) fn request(&self, host: &str) -> Vec<u8> {
        let line = format!("GET {} HTTP/1.1\r\nHost: {host}\r\n", resource_path(self.recorded()));
        let head = line.len() + "Content-Length: 0123456789\r\n\r\n".len();
        let content = self.request_bytes.checked_sub(u64::try_from(head).unwrap_or(u64::MAX));
        match content.filter(|content| *content > 0) {
            None => format!("{line}\r\n").into_bytes(),
            Some(content) => {
                let mut request =
                    format!("{line}Content-Length: {content:010}\r\n\r\n").into_bytes();
                let length = usize::try_from(self.request_bytes).unwrap_or(request.len());
                request.resize(length, 0);
                request
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::{Requests, Target};

    fn page(count: usize) -> PagePlan {
        let host =
            PageHost { name: "h1.page.test".into(), addresses: vec![([127, 0, 0, 1], 443).into()] };
        let resources = (0..count)
            .map(|id: usize| PageResource {
                response_bytes: 500,
                dependencies: (0..id.min(1))
                    .map(|on| PageDependency { on, bytes: 1, then_us: 0 })
                    .collect(),
                ..PageResource::default()
            })
            .collect();
        PagePlan { hosts: vec![host], pools: vec![0], connections: 6, resources }
    }

    #[test]
    fn a_request_is_as_long_as_recorded_and_says_how_it_is_answered() {
        for request_bytes in [0, 100, 101, 563, 5000] {
            let resource =
                PageResource { request_bytes, redirect: true, ..PageResource::default() };
            let request = resource.request("h1.page.test");
            let shortest = resource.request("h1.page.test").len() as u64;
            assert!(request.len() as u64 == request_bytes || shortest >= request_bytes);
            let mut requests = Requests::default();
            requests.take(&request);
            assert_eq!(requests.poll(), Some(Ok(Target::Resource(resource.recorded()))));
            assert_eq!(requests.poll(), None);
        }
        let long = PageResource { request_bytes: 563, ..PageResource::default() };
        assert_eq!(long.request("h1.page.test").len(), 563);
    }

    /// Says what is wrong with a page that was changed so.
    fn wrong(change: fn(&mut PagePlan)) -> String {
        let mut page = page(3);
        change(&mut page);
        page.check().unwrap_err().to_string()
    }

    #[test]
    fn unloadable_resources_are_reported() {
        page(3).check().unwrap();
        assert!(wrong(|page| page.resources.clear()).contains("no resource"));
        assert!(wrong(|page| page.connections = 0).contains("0 connections"));
        assert!(wrong(|page| page.hosts[0].addresses.clear()).contains("no address"));
        assert!(wrong(|page| page.pools[0] = 1).contains("not there"));
        assert!(wrong(|page| page.resources[1].pool = 1).contains("resource 1"));
        assert!(wrong(|page| page.resources[1].dependencies[0].on = 1).contains("later"));
        assert!(wrong(|page| page.resources[2].wait_us = u64::MAX).contains("too long"));
        assert!(wrong(|page| page.resources[2].response_bytes = u64::MAX).contains("too large"));
    }
}
