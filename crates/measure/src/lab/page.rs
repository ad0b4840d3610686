//! The page of a stage: read from its file, and put on the addresses of a cell.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use headstart_openers::{
    PageDependency, PageHost, PageLoad, PagePlan, PageResource, REQUEST_MAX, WAIT_MAX,
};
use headstart_pageload::page::{self, Dependency, Page};
use headstart_pageload::sim::tcp::Pools;
use serde::Serialize;

use super::trial::Key;
use crate::recordings;
use crate::value::Connections;
use headstart::base::failure::Failure;

/// The name that the certificate of all origins of a page is for.
pub(super) const NAMES: &str = "*.page.test";

/// Addresses of all hosts of a page at most, for one arm: each has a socket of its own, and a
/// route.
const ADDRESSES_MAX: usize = 1_000;

/// The folder with recorded pages that are no part of the program.
const DATA: &str = "HEADSTART_DATA";

/// A page to load, without addresses.
#[derive(Debug)]
pub(crate) struct StagePage {
    plan: PagePlan,
    /// Addresses of each host.
    addresses: usize,
}

impl StagePage {
    /// Reads a page of a recording, whatever wrote it; counted from 1.
    pub(crate) fn read(
        file: &str,
        number: usize,
        connections: Connections,
        addresses: usize,
    ) -> Result<Self, Failure> {
        Self::new(&recorded(file, number)?, connections, addresses)
            .map_err(|what| Failure::usage(format!("{file}: {what}")))
    }

    fn new(page: &Page, connections: Connections, addresses: usize) -> Result<Self, String> {
        let (page, connections) = match connections {
            Connections::Pool(number) => (page.clone(), number),
            // Each is a separate server, and the requests to one server wait for each other.
            Connections::Recorded => (page.by_connection(), Pools::default().connections),
        };
        let mut hosts = BTreeMap::new();
        let pools = page.servers().iter().map(|server: &page::Server| {
            let next = hosts.len();
            *hosts.entry(server.host.clone()).or_insert(next)
        });
        let pools = pools.collect();
        let resources = page.resources().iter().enumerate();
        let resources = resources
            .map(|(id, one)| resource(&page, one).map_err(|what| format!("resource {id} {what}")));
        let resources = resources.collect::<Result<Vec<_>, _>>()?;
        let hosts: Vec<_> = (0..hosts.len())
            .map(|number: usize| PageHost {
                name: NAMES.replace('*', &format!("h{}", number + 1)),
                addresses: Vec::new(),
            })
            .collect();
        if hosts.len() * addresses > ADDRESSES_MAX {
            return Err(format!(
                "{} hosts with {addresses} addresses each are more than {ADDRESSES_MAX}",
                hosts.len()
            ));
        }
        Ok(Self { plan: PagePlan { hosts, pools, connections, resources }, addresses })
    }

    /// Returns the number of addresses that the servers of a cell must have.
    pub(crate) fn addresses(&self) -> usize {
        self.plan.hosts.len() * self.addresses
    }

    /// Returns the plan of a client whose servers are at these addresses.
    pub(crate) fn plan(&self, addresses: &[SocketAddr]) -> PagePlan {
        let mut plan = self.plan.clone();
        for (host, own) in plan.hosts.iter_mut().zip(addresses.chunks(self.addresses)) {
            host.addresses = own.to_vec();
        }
        plan
    }
}

fn resource(page: &Page, one: &page::Resource) -> Result<PageResource, String> {
    if one.request_bytes > REQUEST_MAX {
        return Err(format!("has a request of more than {REQUEST_MAX} bytes"));
    }
    if one.server_time > WAIT_MAX {
        return Err(format!("has a server that thinks longer than {WAIT_MAX:?}"));
    }
    Ok(PageResource {
        pool: one.server,
        request_bytes: one.request_bytes,
        response_bytes: one.response_bytes,
        wait_us: micros(one.server_time),
        redirect: one.redirect,
        dependencies: one
            .dependencies
            .iter()
            .map(|dependency: &Dependency| {
                let on =
                    page.resources().get(dependency.on).map_or(0, |parent| parent.response_bytes);
                let bytes = dependency.part.bytes_of(on);
                PageDependency { on: dependency.on, bytes, then_us: micros(dependency.then) }
            })
            .collect(),
    })
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The page of a recording, counted from 1; its file is here or in the folder of data.
pub(crate) fn recorded(file: &str, number: usize) -> Result<Page, Failure> {
    recordings::read_page(&find(file)?, number)
}

/// The file of this name, here or in the folder of data.
fn find(file: &str) -> Result<PathBuf, Failure> {
    let here = PathBuf::from(file);
    if here.exists() {
        return Ok(here);
    }
    let folder = std::env::var_os(DATA);
    let there = folder.as_ref().map(|folder| Path::new(folder).join(file));
    match there.filter(|there| there.exists()) {
        Some(there) => Ok(there),
        None => {
            let also = folder.map(|folder| format!(" or in {}", Path::new(&folder).display()));
            let failure = Failure::usage(format!(
                "there is no recorded page {file} here{}",
                also.unwrap_or_default()
            ));
            Err(failure.hint(format!(
                "recorded pages are data and no part of the program: name their folder with {DATA}"
            )))
        }
    }
}

/// A line of loads.jsonl: one load of a page, with the times of all resources.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct LoadLine {
    pub(crate) link: String,
    pub(crate) variant: String,
    pub(crate) suite: String,
    pub(crate) arm: String,
    pub(crate) trial: u32,
    /// True if the forwarder sent a packet too late meanwhile.
    pub(crate) flagged: bool,
    #[serde(flatten)]
    pub(crate) load: PageLoad,
}

impl LoadLine {
    pub(crate) fn new(key: Key, trial: u32, flagged: bool, load: PageLoad) -> Self {
        let Key { link, variant, suite, arm, .. } = key;
        Self { link, variant, suite, arm, trial, flagged, load }
    }
}

#[cfg(test)]
mod tests {
    use headstart_pageload::page::{Part, Protocol, Resource, Server};

    use super::*;

    fn page() -> Page {
        let servers = [("b", false), ("a", false), ("b", true)];
        let servers = servers
            .map(|(host, anonymous)| Server { anonymous, ..Server::https(host, Protocol::Http1) });
        let then = Duration::from_millis(3);
        let resources = [
            (7, 900, vec![]),
            (8, 100, vec![(0, Part::Bytes(4000))]),
            (7, 50, vec![(0, Part::Bytes(0)), (1, Part::Whole)]),
        ];
        let resources = resources.into_iter().enumerate();
        let resources = resources.map(|(server, (connection, response_bytes, dependencies))| {
            let on = dependencies.into_iter();
            Resource {
                server,
                connection: Some(connection),
                response_bytes,
                dependencies: on.map(|(on, part)| Dependency { on, part, then }).collect(),
                ..Resource::default()
            }
        });
        Page::new("p".into(), servers.to_vec(), resources.collect()).unwrap()
    }

    #[test]
    fn servers_of_one_host_share_its_addresses() {
        let page = StagePage::new(&page(), Connections::Pool(6), 2).unwrap();
        assert_eq!((page.plan.hosts.len(), page.addresses()), (2, 4));
        let addresses: Vec<SocketAddr> =
            (1..=4).map(|last| ([10, 0, 0, last], 443).into()).collect();
        let plan = page.plan(&addresses);
        assert_eq!((plan.pools, plan.connections), (vec![0, 1, 0], 6));
        assert_eq!(plan.hosts[0].name, "h1.page.test");
        assert_eq!(plan.hosts[1].addresses, addresses[2..]);
        let parts = [1, 2].map(|id: usize| {
            let all = plan.resources[id].dependencies.iter();
            all.map(|one| (one.on, one.bytes, one.then_us)).collect::<Vec<_>>()
        });
        assert_eq!(parts, [vec![(0, 900, 3000)], vec![(0, 0, 3000), (1, 100, 3000)]]);
    }

    #[test]
    fn recorded_connections_are_pools_of_their_own() {
        let page = StagePage::new(&page(), Connections::Recorded, 1).unwrap();
        let pools: Vec<_> = page.plan.resources.iter().map(|one| one.pool).collect();
        assert!(pools[0] != pools[1], "{pools:?}");
        assert_eq!(page.plan.hosts.len(), 2);
    }

    #[test]
    fn a_missing_page_is_reported_with_the_search_path() {
        let failure = StagePage::read("no/such.har", 1, Connections::default(), 1).unwrap_err();
        assert!(failure.advice().is_some_and(|hint| hint.contains(DATA)), "{failure:?}");
    }
}
