//! The page loads published with BLAST (Wang 2020), one JSON object a line.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

use crate::page::{Dependency, Ignored, Page, PageError, Part, Protocol, Reason, Resource, Server};

/// Value in the file for a request of unknown size.
const UNKNOWN: u64 = 400;

/// One line of the file.
#[derive(Clone, Debug)]
pub enum Record {
    /// A logged resource tree.
    Logged(Logged),
    /// A tree that was inferred, for its structure alone: its times are of an older simulator.
    Inferred(Page),
    /// A prefetch list, or a load with too few resources to be a tree.
    Other,
}

/// A logged resource tree, with the results of the published simulator for it.
#[derive(Clone, Debug)]
pub struct Logged {
    /// The page; the targets of its redirects are known.
    pub page: Page,
    /// Number of the site.
    pub site: u32,
    /// Results of the published simulator, by the name of the setting.
    pub reference: BTreeMap<String, Reference>,
}

/// Result of the published simulator for one load.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(from = "(f64, f64)")]
pub struct Reference {
    /// Time until 95 % of the resources are loaded, in seconds.
    pub page_load_time: f64,
    /// Mean time of a resource, in seconds.
    pub resource_time: f64,
}

impl From<(f64, f64)> for Reference {
    fn from((page_load_time, resource_time): (f64, f64)) -> Self {
        Self { page_load_time, resource_time }
    }
}

/// Reads one line.
///
/// # Errors
/// The line is not such an object, or its resources do not form a page.
pub fn read(line: &str) -> Result<Record, BlastError> {
    let load: Load = serde_json::from_str(line).map_err(BlastError::Json)?;
    match load.set.as_str() {
        "A" => {
            let page = load.page()?.with_redirects(load.redirect_skip.unwrap_or(0));
            let reference = load.ref_sim.unwrap_or_default();
            Ok(Record::Logged(Logged { page, site: load.site, reference }))
        }
        // A load with fewer resources is no tree.
        "B" if load.res.len() >= 2 => Ok(Record::Inferred(load.page()?)),
        _ => Ok(Record::Other),
    }
}

/// Reason why a line could not be read.
#[derive(Debug)]
pub enum BlastError {
    /// The line is not JSON, or not such an object.
    Json(serde_json::Error),
    /// A value in a resource is missing or of another kind.
    Column(&'static str),
    /// The resources do not form a page.
    Page(PageError),
}

impl fmt::Display for BlastError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(error) => write!(f, "not a page load of BLAST: {error}"),
            Self::Column(name) => write!(f, "a resource without a usable `{name}`"),
            Self::Page(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BlastError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Json(error) => Some(error),
            Self::Column(_) => None,
            Self::Page(error) => Some(error),
        }
    }
}

#[derive(Deserialize)]
struct Load {
    set: String,
    site: u32,
    page: String,
    #[serde(default)]
    servers: Vec<LoggedServer>,
    #[serde(default)]
    cols: Vec<String>,
    #[serde(default)]
    res: Vec<Vec<serde_json::Value>>,
    redirect_skip: Option<usize>,
    ref_sim: Option<BTreeMap<String, Reference>>,
}

#[derive(Deserialize)]
struct LoggedServer {
    host: Option<String>,
    port: Option<u16>,
    anon: Option<u8>,
    tls: u8,
    h2: Option<u8>,
    pipe_ok: Option<u8>,
}

impl Load {
    fn page(&self) -> Result<Page, BlastError> {
        let servers = self.servers.iter().map(LoggedServer::server).collect();
        let columns = Columns(&self.cols);
        // Resources that were never dispatched are left out, so the others are renumbered.
        let mut indices: Vec<Option<usize>> = Vec::new();
        let mut resources = Vec::new();
        for row in &self.res {
            let index = columns.resource(row, &indices)?.map(|resource| {
                resources.push(resource);
                resources.len() - 1
            });
            indices.push(index);
        }
        let mut ignored = Ignored::default();
        indices.iter().filter(|index| index.is_none()).for_each(|_| ignored.add(Reason::NeverSent));
        let page = Page::new(self.page.clone(), servers, resources).map_err(BlastError::Page)?;
        Ok(page.with_ignored(ignored))
    }
}

impl LoggedServer {
    fn server(&self) -> Server {
        let protocol = if self.h2 == Some(1) { Protocol::Http2 } else { Protocol::Http1 };
        Server {
            port: self.port.unwrap_or(if self.tls == 0 { 80 } else { 443 }),
            tls: self.tls != 0,
            anonymous: self.anon == Some(1),
            pipelining: self.pipe_ok == Some(1),
            // Half of the files have no name.
            ..Server::https(self.host.clone().unwrap_or_default(), protocol)
        }
    }
}

/// Names of the columns of a row.
struct Columns<'a>(&'a [String]);

impl Columns<'_> {
    /// Reads a resource; `None` for one that was never dispatched.
    fn resource(
        &self,
        row: &[serde_json::Value],
        indices: &[Option<usize>],
    ) -> Result<Option<Resource>, BlastError> {
        let Some(server) = self.number(row, "server")? else { return Ok(None) };
        let parent = self.value(row, "parent").and_then(serde_json::Value::as_i64);
        let parent = parent.ok_or(BlastError::Column("parent"))?;
        let bytes = self.number(row, "parent_off")?.unwrap_or(0);
        let parent = usize::try_from(parent).ok().and_then(|parent| *indices.get(parent)?);
        Ok(Some(Resource {
            dependencies: parent
                .map(|parent| Dependency { part: Part::Bytes(bytes), ..Dependency::whole(parent) })
                .into_iter()
                .collect(),
            server: usize::try_from(server).map_err(|_| BlastError::Column("server"))?,
            request_bytes: self.number(row, "req_bytes")?.filter(|&it| it != UNKNOWN).unwrap_or(0),
            response_bytes: self.number(row, "size")?.ok_or(BlastError::Column("size"))?,
            in_prefetch_database: self.number(row, "pf")? == Some(1),
            // The recording names no other use of the resource.
            in_links: self.number(row, "pf")? == Some(1),
            url: self.value(row, "url").and_then(|url| url.as_str()).unwrap_or("").into(),
            ..Resource::default()
        }))
    }

    fn value<'r>(&self, row: &'r [serde_json::Value], name: &str) -> Option<&'r serde_json::Value> {
        row.get(self.0.iter().position(|column| column == name)?)
    }

    /// Reads a number; `None` where there is no such column, or null.
    fn number(
        &self,
        row: &[serde_json::Value],
        name: &'static str,
    ) -> Result<Option<u64>, BlastError> {
        match self.value(row, name) {
            None | Some(serde_json::Value::Null) => Ok(None),
            Some(value) => value.as_u64().map(Some).ok_or(BlastError::Column(name)),
        }
    }
}
