//! The page loads recorded for the CS244 reproduction of TCP Fast Open (Kattouw and Meyers 2013).
//!
//! Requests are in groups. One is ready when all requests of a group before have their first
//! 4,000 response bytes, or all of another group are complete; requests of one connection take
//! turns.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::Read;
use std::time::Duration;

use serde::Deserialize;

use crate::page::{
    DEPENDENCIES_MAX, Dependency, Page, PageError, Part, Protocol, RESOURCES_MAX, Resource, Server,
};

/// Response bytes after which the resources that a response names are requested.
const HEAD: u64 = 4000;

/// Maximum size of a file in bytes: a hundred for each resource, and some for JSON.
const FILE_MAX: u64 = 64 * 1024 * 1024;

/// Reads a page from the JSON form.
///
/// # Errors
/// No such object, or its requests are no page.
pub fn read_json(from: impl Read) -> Result<Page, Cs244Error> {
    let file: File = serde_json::from_reader(from.take(FILE_MAX)).map_err(Cs244Error::Json)?;
    page(file.name, file.head_bytes, &file.requests)
}

/// Reason why a recording could not be read.
#[derive(Debug)]
pub enum Cs244Error {
    /// The file is not JSON, or not such an object.
    Json(serde_json::Error),
    /// A request waits for an empty group: the request's place, from 0.
    Group(usize),
    /// The requests do not form a page.
    Page(PageError),
}

impl fmt::Display for Cs244Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(error) => write!(f, "not a recording of CS244: {error}"),
            Self::Group(request) => {
                write!(f, "request {request} waits for a group that is not there")
            }
            Self::Page(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Cs244Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Json(error) => Some(error),
            Self::Page(error) => Some(error),
            Self::Group(_) => None,
        }
    }
}

#[derive(Deserialize)]
struct File {
    name: String,
    #[serde(default = "head")]
    head_bytes: u64,
    requests: Vec<Request>,
}

fn head() -> u64 {
    HEAD
}

#[derive(Deserialize)]
struct Request {
    url_path: String,
    host: String,
    group: u32,
    connection: u32,
    after_head_of_group: Option<u32>,
    after_completion_of_group: Option<u32>,
    request_bytes: u64,
    response_bytes: u64,
}

impl Request {
    /// Groups that the request waits for, each once.
    fn awaited(&self) -> impl Iterator<Item = u32> + use<> {
        let whole = self.after_completion_of_group;
        let head = self.after_head_of_group.filter(|_| self.after_head_of_group != whole);
        head.into_iter().chain(whole)
    }
}

fn page(name: String, head_bytes: u64, requests: &[Request]) -> Result<Page, Cs244Error> {
    if requests.len() > RESOURCES_MAX {
        return Err(Cs244Error::Page(PageError::Resources(requests.len())));
    }
    let groups = Groups::from_requests(requests);
    let dependencies = requests.iter().map(|request| groups.count_waits(request)).sum();
    if dependencies > DEPENDENCIES_MAX {
        return Err(Cs244Error::Page(PageError::Dependencies(dependencies)));
    }
    // Dependencies come first, which group numbers do not guarantee.
    let order = groups.order(requests)?;
    let mut places = vec![0; requests.len()];
    for (place, &request) in order.iter().enumerate() {
        places[request] = place;
    }
    let mut servers: Vec<Server> = Vec::new();
    let mut hosts: BTreeMap<&str, usize> = BTreeMap::new();
    let resources = order.iter().map(|&id| {
        let request = &requests[id];
        let server = *hosts.entry(&request.host).or_insert_with(|| {
            servers.push(plain(&request.host));
            servers.len() - 1
        });
        let mut dependencies: Vec<_> = groups
            .waits(request)
            .map(|(on, part)| Dependency {
                on: places[on],
                part: part.unwrap_or(Part::Bytes(head_bytes)),
                then: Duration::ZERO,
            })
            .collect();
        dependencies.sort_by_key(|dependency| dependency.on);
        Resource {
            dependencies,
            server,
            request_bytes: request.request_bytes,
            response_bytes: request.response_bytes,
            url: format!("http://{}{}", request.host, request.url_path),
            connection: Some(request.connection),
            ..Resource::default()
        }
    });
    let resources = resources.collect();
    Page::new(name, servers, resources).map_err(Cs244Error::Page)
}

/// Places of the requests of each group.
struct Groups(BTreeMap<u32, Vec<usize>>);

impl Groups {
    fn from_requests(requests: &[Request]) -> Self {
        let mut groups: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (id, request) in requests.iter().enumerate() {
            groups.entry(request.group).or_default().push(id);
        }
        Self(groups)
    }

    fn members(&self, group: u32) -> &[usize] {
        self.0.get(&group).map_or(&[], Vec::as_slice)
    }

    fn count_waits(&self, request: &Request) -> usize {
        request.awaited().map(|group| self.members(group).len()).sum()
    }

    /// Returns the requests that a request waits for; without a part, for their heads.
    fn waits(&self, request: &Request) -> impl Iterator<Item = (usize, Option<Part>)> + '_ {
        let whole = request.after_completion_of_group;
        request.awaited().flat_map(move |group| {
            let part = (whole == Some(group)).then_some(Part::Whole);
            self.members(group).iter().map(move |&id| (id, part))
        })
    }

    /// Returns the places of the requests in an order in which each follows all that it waits for;
    /// otherwise as recorded.
    fn order(&self, requests: &[Request]) -> Result<Vec<usize>, Cs244Error> {
        let mut left: BTreeMap<u32, usize> =
            self.0.iter().map(|(&group, members)| (group, members.len())).collect();
        let mut waiting: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        let mut waits = vec![0; requests.len()];
        for (id, request) in requests.iter().enumerate() {
            for group in request.awaited() {
                if self.members(group).is_empty() {
                    return Err(Cs244Error::Group(id));
                }
                waiting.entry(group).or_default().push(id);
                waits[id] += 1;
            }
        }
        let free = waits.iter().enumerate().filter(|(_, waits)| **waits == 0);
        let mut free: BTreeSet<usize> = free.map(|(id, _)| id).collect();
        let mut order = Vec::with_capacity(requests.len());
        while let Some(id) = free.pop_first() {
            order.push(id);
            let group = requests[id].group;
            let is_last = left.get_mut(&group).is_some_and(|left| {
                *left -= 1;
                *left == 0
            });
            let released = if is_last { waiting.remove(&group) } else { None };
            for other in released.into_iter().flatten() {
                waits[other] -= 1;
                if waits[other] == 0 {
                    free.insert(other);
                }
            }
        }
        match waits.iter().position(|&waits| waits > 0) {
            Some(resource) => Err(Cs244Error::Page(PageError::Order { resource })),
            None => Ok(order),
        }
    }
}

/// Returns a server as all were in 2013: without TLS, over HTTP/1.1.
fn plain(host: &str) -> Server {
    Server { port: 80, tls: false, ..Server::https(host, Protocol::Http1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Group, connection, group awaited by its head, group awaited whole, response bytes.
    type Row = (u32, u32, Option<u32>, Option<u32>, u64);

    fn recording(rows: impl IntoIterator<Item = Row>) -> Result<Page, Cs244Error> {
        let requests =
            rows.into_iter().map(|(group, connection, head, whole, response_bytes)| Request {
                url_path: "/".into(),
                host: format!("connection-{connection}"),
                group,
                connection,
                after_head_of_group: head,
                after_completion_of_group: whole,
                request_bytes: 77,
                response_bytes,
            });
        page("page".into(), HEAD, &requests.collect::<Vec<_>>())
    }

    /// Requests in pairs: the second of each waits for the first group.
    fn pairs(count: u32) -> Result<Page, Cs244Error> {
        recording((0..count).map(|id| (id % 2, 0, (id % 2 == 1).then_some(0), None, 1)))
    }

    #[test]
    fn a_request_waits_for_the_groups_it_names() {
        let rows = [(0, 0, None, None, 9000), (1, 1, Some(0), None, 10), (2, 0, None, Some(1), 20)];
        let page = recording(rows).unwrap();
        let head = Dependency { part: Part::Bytes(HEAD), ..Dependency::whole(0) };
        let waits: Vec<_> = page.resources().iter().map(|one| one.dependencies.clone()).collect();
        assert_eq!(waits, [vec![], vec![head], vec![Dependency::whole(1)]]);
        assert_eq!(page.servers().len(), 2);
    }

    #[test]
    fn resources_stand_behind_those_they_wait_for() {
        let page = recording([(1, 1, Some(0), None, 10), (0, 0, None, None, 9000)]).unwrap();
        let sizes: Vec<_> = page.resources().iter().map(|one| one.response_bytes).collect();
        assert_eq!(sizes, [9000, 10]);
    }

    #[test]
    fn a_recording_that_is_no_page_is_refused() {
        let error = recording([(0, 0, Some(4), None, 9000)]).unwrap_err();
        assert!(matches!(error, Cs244Error::Group(0)), "{error}");
        let circle = recording([(0, 0, Some(1), None, 1), (1, 1, Some(0), None, 1)]).unwrap_err();
        assert!(matches!(circle, Cs244Error::Page(PageError::Order { .. })), "{circle}");
        let most = pairs(1_100).unwrap();
        let waits: usize = most.resources().iter().map(|one| one.dependencies.len()).sum();
        assert_eq!(waits, 550 * 550);
        let error = pairs(2_200).unwrap_err();
        assert!(matches!(error, Cs244Error::Page(PageError::Dependencies(1_210_000))), "{error}");
        assert!(read_json(&b"{}"[..]).is_err());
    }

    #[test]
    fn the_published_pages_are_read() {
        let Some(folder) = std::env::var_os("HEADSTART_DATA") else {
            eprintln!("skipped: HEADSTART_DATA names no folder of data sets");
            return;
        };
        // Requests, connections and response bytes as published.
        for (name, published) in [("wikipedia", (56, 16, 818_538)), ("amazon", (72, 21, 677_007))] {
            let file = std::path::Path::new(&folder).join(format!("cs244/{name}.json"));
            let page = read_json(std::fs::File::open(file).unwrap()).unwrap();
            let resources = page.resources();
            let connections: BTreeSet<_> = resources.iter().map(|one| one.connection).collect();
            let bytes = resources.iter().map(|one| one.response_bytes).sum::<u64>();
            assert_eq!((resources.len(), connections.len(), bytes), published, "{name}");
        }
    }
}
