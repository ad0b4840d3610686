//! Summary of pages, as it stands in JSON; text and pictures are made of it.

use std::collections::BTreeMap;
use std::time::Duration;

use headstart_pageload::har::{Agreement, Kind, Parents, Priority};
use headstart_pageload::page::{Confidence, Ignored, Page, Part, Reason, Timings};
use headstart_pageload::printable;
use headstart_pageload::statistics::Quantiles;
use headstart_pageload::tree::{self, Breakdown, CriticalPath, Shape, Tree};
use serde::Serialize;

use crate::recordings::{HarFacts, Recording};

/// Resources of a page that are kept one by one: more are no picture. Their figures count all the
/// same.
pub(super) const RESOURCES: usize = 5000;

/// Pages whose resources are kept, the first ones: each has a section of its own in a report,
/// further ones a line.
pub(super) const DETAILED: usize = 50;

#[derive(Debug, Serialize)]
pub(super) struct All {
    pub(super) pages: Vec<PageSummary>,
    /// Entries that are of no page, by reason.
    pub(super) ignored: BTreeMap<&'static str, usize>,
    pub(super) unreadable: Vec<Unreadable>,
    /// Over all pages.
    pub(super) distributions: Vec<Distribution>,
    pub(super) agreement: Agreement,
}

#[derive(Debug, Serialize)]
pub(in crate::pageload) struct Unreadable {
    pub(in crate::pageload) file: String,
    pub(in crate::pageload) error: String,
}

#[derive(Debug, Serialize)]
pub(super) struct PageSummary {
    pub(super) file: String,
    pub(super) name: String,
    pub(super) shape: Shape,
    /// Until 95 % of the resources were there, and all of them; where recorded.
    pub(super) page_load_ms: Option<f64>,
    pub(super) full_load_ms: Option<f64>,
    pub(super) content_loaded_ms: Option<f64>,
    pub(super) on_load_ms: Option<f64>,
    pub(super) largest_paint_ms: Option<f64>,
    /// Where the time until 95 % went.
    pub(super) critical_path_ms: Option<Breakdown>,
    /// Sums over all resources.
    pub(super) all_resources_ms: Option<Breakdown>,
    /// Part of the time in queues that was behind others on the same connection.
    pub(super) head_of_line_ms: f64,
    pub(super) parents: Option<Parents>,
    pub(super) ignored: BTreeMap<&'static str, usize>,
    pub(super) distributions: Vec<Distribution>,
    pub(super) servers: Vec<ServerSummary>,
    /// As a tree is printed; of the first [`DETAILED`] pages.
    pub(super) resources: Option<Vec<ResourceSummary>>,
}

/// Distribution of a quantity.
#[derive(Debug, Serialize)]
pub(super) struct Distribution {
    pub(super) of: &'static str,
    pub(super) unit: &'static str,
    #[serde(flatten)]
    pub(super) quantiles: Quantiles,
}

#[derive(Debug, Serialize)]
pub(super) struct ServerSummary {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) tls: bool,
    pub(super) anonymous: bool,
    pub(super) protocol: &'static str,
    pub(super) address: Option<std::net::IpAddr>,
    pub(super) resources: usize,
    pub(super) connections: usize,
    pub(super) response_bytes: u64,
    /// Time that is not counted as the server's own.
    pub(super) round_trip_ms: Option<f64>,
}

#[derive(Debug, Serialize)]
pub(super) struct ResourceSummary {
    pub(super) id: usize,
    pub(super) url: String,
    pub(super) parent: Option<usize>,
    pub(super) parent_is: &'static str,
    /// Bytes of the parent that were there.
    pub(super) parent_bytes: Option<u64>,
    /// The client's own time since then.
    pub(super) client_ms: Option<f64>,
    /// Number of resources above it in the tree.
    pub(super) above: usize,
    pub(super) server: usize,
    pub(super) connection: Option<u32>,
    pub(super) opens_connection: bool,
    pub(super) min_rtt: u32,
    pub(super) is_on_critical_path: bool,
    pub(super) redirect: bool,
    pub(super) status: Option<u16>,
    pub(super) kind: Option<Kind>,
    pub(super) priority: Option<Priority>,
    /// True if the page waits for it before it shows what follows.
    pub(super) blocks_rendering: bool,
    pub(super) request_bytes: u64,
    pub(super) response_bytes: u64,
    pub(super) server_time_ms: f64,
    pub(super) head_of_line_ms: f64,
    pub(super) times_ms: Option<Times>,
}

/// From the start of the load; each part begins where the one before ends.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Times {
    pub(super) started: f64,
    pub(super) queued: f64,
    pub(super) dns: f64,
    pub(super) connect: f64,
    pub(super) tls: f64,
    pub(super) send: f64,
    pub(super) wait: f64,
    pub(super) receive: f64,
}

impl Times {
    fn from_timings(timings: &Timings) -> Self {
        Self {
            started: ms(timings.started),
            queued: ms(timings.queued),
            dns: ms(timings.dns),
            connect: ms(timings.connect),
            tls: ms(timings.tls),
            send: ms(timings.send),
            wait: ms(timings.wait),
            receive: ms(timings.receive),
        }
    }

    /// Returns the parts with their names, in order.
    pub(super) fn parts(&self) -> [(&'static str, f64); 7] {
        [
            ("queue", self.queued),
            ("dns", self.dns),
            ("tcp", self.connect),
            ("tls", self.tls),
            ("send", self.send),
            ("wait", self.wait),
            ("transfer", self.receive),
        ]
    }

    pub(super) fn end(&self) -> f64 {
        self.started + self.parts().into_iter().map(|(_, time)| time).sum::<f64>()
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    /// In a line of text.
    pub(super) letter: char,
    /// Class of its line in a picture.
    pub(super) class: &'static str,
    pub(super) name: &'static str,
    pub(super) at: f64,
}

impl PageSummary {
    /// Returns the events that were recorded.
    pub(super) fn events(&self) -> Vec<Event> {
        let all = [
            ('D', "dcl", "DOMContentLoaded", self.content_loaded_ms),
            ('P', "lcp", "LCP", self.largest_paint_ms),
            ('L', "event", "load event", self.on_load_ms),
        ];
        all.into_iter()
            .filter_map(|(letter, class, name, at)| Some(Event { letter, class, name, at: at? }))
            .collect()
    }

    /// Returns the time of the last resource or event; zero without times.
    pub(super) fn end(&self) -> f64 {
        let resources = self.resources.iter().flatten();
        let end = resources.filter_map(|one| Some(one.times_ms?.end())).fold(0.0, f64::max);
        if end > 0.0 { self.events().iter().map(|event| event.at).fold(end, f64::max) } else { 0.0 }
    }
}

impl ResourceSummary {
    pub(super) fn priority_letters(&self) -> &'static str {
        match self.priority {
            None => "",
            Some(Priority::VeryLow) => "VL",
            Some(Priority::Low) => "L",
            Some(Priority::Medium) => "M",
            Some(Priority::High) => "H",
            Some(Priority::VeryHigh) => "VH",
        }
    }

    /// Returns the URL without its scheme.
    pub(super) fn short_url(&self) -> &str {
        let url = self.url.split_once("://").map_or(self.url.as_str(), |(_, rest)| rest);
        if url.is_empty() { "(no URL)" } else { url }
    }
}

impl All {
    pub(super) fn new(
        pages: Vec<PageSummary>,
        ignored: Ignored,
        unreadable: Vec<Unreadable>,
    ) -> Self {
        let mut agreement = Agreement::default();
        for parents in pages.iter().filter_map(|page| page.parents.as_ref()) {
            agreement.add(&parents.agreement);
        }
        let distributions = over_pages(&pages);
        Self { ignored: counted(&ignored), unreadable, distributions, agreement, pages }
    }
}

impl PageSummary {
    /// Summarises a page, and its resources apart.
    pub(super) fn from_recording(recording: Recording) -> (Self, Vec<ResourceSummary>) {
        let Recording { file, page, har } = recording;
        let tree = Tree::from_page(&page);
        let path = CriticalPath::of_page_load_time(&page);
        let waited = tree::head_of_line(&page);
        let measured = page.resources().iter().filter_map(|one| one.measured);
        let full = measured.map(|timings| timings.end()).max();
        let resources = resources(&page, &tree, &waited, path.as_ref(), har.as_ref());
        let summary = Self {
            file,
            name: printable(page.name()),
            shape: tree.shape(&page),
            page_load_ms: page.recorded().page_load_time.map(ms),
            full_load_ms: full.map(ms),
            content_loaded_ms: page.recorded().content_loaded.map(ms),
            on_load_ms: page.recorded().on_load.map(ms),
            largest_paint_ms: page.recorded().largest_paint.map(ms),
            critical_path_ms: path.as_ref().map(|path| path.breakdown),
            all_resources_ms: full.map(|_| Breakdown::of_all(&page)),
            head_of_line_ms: waited.iter().copied().map(ms).sum(),
            parents: har.as_ref().map(|har| har.parents),
            ignored: counted(page.ignored()),
            distributions: of_resources(&page, &tree, &waited),
            servers: servers(&page, &tree, har.as_ref()),
            resources: None,
        };
        (summary, resources)
    }
}

pub(in crate::pageload) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

pub(in crate::pageload) fn counted(ignored: &Ignored) -> BTreeMap<&'static str, usize> {
    ignored.iter().map(|(reason, count)| (key(reason), count)).collect()
}

fn key(reason: Reason) -> &'static str {
    match reason {
        Reason::Cached => "cached",
        Reason::Aborted => "aborted",
        Reason::Blocked => "blocked",
        Reason::ServiceWorker => "service_worker",
        Reason::NotFetched => "not_fetched",
        Reason::WebSocket => "websocket",
        Reason::Pushed => "pushed",
        Reason::Late => "late",
        Reason::Times => "times",
        Reason::Url => "url",
        Reason::Malformed => "malformed",
        Reason::NeverSent => "never_sent",
        Reason::NoPage => "no_page",
        Reason::TooMany => "too_many",
        _ => "other",
    }
}

/// Returns a reason in words.
pub(in crate::pageload) fn reason(key: &str) -> String {
    let of_key = Reason::ALL.into_iter().find(|reason| self::key(*reason) == key);
    of_key.map_or_else(|| "for other reasons".into(), |reason| reason.to_string())
}

fn distribution(
    of: &'static str,
    unit: &'static str,
    values: impl IntoIterator<Item = f64>,
) -> Option<Distribution> {
    Some(Distribution { of, unit, quantiles: Quantiles::from_values(values)? })
}

fn of_resources(page: &Page, tree: &Tree, waited: &[Duration]) -> Vec<Distribution> {
    let resources = page.resources();
    let times = resources.iter().filter_map(|one| one.measured);
    let times: Vec<Breakdown> = times.map(|timings| Breakdown::from_timings(&timings)).collect();
    // Without measured times there are no times of servers, nor waits.
    let measured = if times.is_empty() { 0 } else { resources.len() };
    let all = [
        distribution("response", "bytes", resources.iter().map(|one| one.response_bytes as f64)),
        distribution(
            "minRTT",
            "round trips",
            (0..resources.len()).map(|id| f64::from(tree.min_rtt(id))),
        ),
        distribution("load time", "ms", times.iter().map(|one| ms(one.total()))),
        distribution("queue", "ms", times.iter().map(|one| ms(one.queue))),
        distribution("of it behind others", "ms", waited.iter().take(measured).copied().map(ms)),
        distribution("TLS", "ms", times.iter().map(|one| ms(one.tls))),
        distribution("server wait", "ms", times.iter().map(|one| ms(one.server_wait))),
        distribution(
            "of it the server's",
            "ms",
            resources.iter().take(measured).map(|one| ms(one.server_time)),
        ),
        distribution("transfer", "ms", times.iter().map(|one| ms(one.transfer))),
        distribution("other", "ms", times.iter().map(|one| ms(one.other))),
    ];
    all.into_iter().flatten().collect()
}

fn over_pages(pages: &[PageSummary]) -> Vec<Distribution> {
    let shapes = pages.iter().map(|page| page.shape);
    let paths = pages.iter().filter_map(|page| page.critical_path_ms);
    let all = [
        distribution("page load time", "ms", pages.iter().filter_map(|page| page.page_load_ms)),
        distribution("queue on the critical path", "ms", paths.clone().map(|one| ms(one.queue))),
        distribution("TLS on the critical path", "ms", paths.clone().map(|one| ms(one.tls))),
        distribution(
            "server wait on the critical path",
            "ms",
            paths.clone().map(|one| ms(one.server_wait)),
        ),
        distribution(
            "transfer on the critical path",
            "ms",
            paths.clone().map(|one| ms(one.transfer)),
        ),
        distribution("other on the critical path", "ms", paths.clone().map(|one| ms(one.other))),
        distribution("resources", "", shapes.clone().map(|shape| shape.resources as f64)),
        distribution("servers", "", shapes.clone().map(|shape| shape.servers as f64)),
        distribution(
            "largest server",
            "resources",
            shapes.clone().map(|shape| shape.largest_server as f64),
        ),
        distribution("responses", "bytes", shapes.clone().map(|shape| shape.response_bytes as f64)),
        distribution("tree height", "", shapes.clone().map(|shape| f64::from(shape.height))),
        distribution("minRTT", "round trips", shapes.clone().map(|shape| f64::from(shape.min_rtt))),
    ];
    all.into_iter().flatten().collect()
}

fn servers(page: &Page, tree: &Tree, har: Option<&HarFacts>) -> Vec<ServerSummary> {
    let mut servers: Vec<ServerSummary> = Vec::new();
    for (place, server) in page.servers().iter().enumerate() {
        servers.push(ServerSummary {
            host: printable(&server.host),
            port: server.port,
            tls: server.tls,
            anonymous: server.anonymous,
            protocol: server.protocol.name(),
            address: server.address,
            resources: 0,
            connections: 0,
            response_bytes: 0,
            round_trip_ms: har.and_then(|har| har.round_trips_ms.get(place).copied()),
        });
    }
    for (id, resource) in page.resources().iter().enumerate() {
        if let Some(server) = servers.get_mut(resource.server) {
            server.resources += 1;
            server.connections += usize::from(tree.opens_connection(id));
            server.response_bytes = server.response_bytes.saturating_add(resource.response_bytes);
        }
    }
    servers
}

fn resources(
    page: &Page,
    tree: &Tree,
    waited: &[Duration],
    path: Option<&CriticalPath>,
    har: Option<&HarFacts>,
) -> Vec<ResourceSummary> {
    let mut is_critical = vec![false; page.resources().len()];
    for step in path.iter().flat_map(|path| &path.steps) {
        if let Some(is_critical) = is_critical.get_mut(step.resource) {
            *is_critical = true;
        }
    }
    tree.lines()
        .into_iter()
        .take(RESOURCES)
        .filter_map(|(id, above): (usize, usize)| {
            let resource = page.resources().get(id)?;
            let facts = har.and_then(|har| har.facts.get(id));
            let waits = resource.dependencies.first();
            let parent = waits.and_then(|waits| page.resources().get(waits.on));
            Some(ResourceSummary {
                id,
                url: printable(&resource.url),
                parent: resource.parent(),
                parent_is: match resource.confidence {
                    _ if parent.is_none() => "none",
                    Confidence::Recorded => "recorded",
                    Confidence::Only => "only",
                    Confidence::Chosen => "chosen",
                    Confidence::Last => "last",
                },
                parent_bytes: waits.zip(parent).map(|(waits, parent)| match waits.part {
                    Part::Whole => parent.response_bytes,
                    part => part.bytes_of(parent.response_bytes),
                }),
                client_ms: waits.map(|waits| ms(waits.then)),
                above,
                server: resource.server,
                connection: resource.connection,
                opens_connection: tree.opens_connection(id),
                min_rtt: tree.min_rtt(id),
                is_on_critical_path: is_critical.get(id).copied().unwrap_or_default(),
                redirect: resource.redirect,
                status: facts.map(|facts| facts.status),
                kind: facts.map(|facts| facts.kind),
                priority: facts.and_then(|facts| facts.priority),
                blocks_rendering: facts.is_some_and(|facts| facts.blocks_rendering)
                    && !resource.in_foreign_frame,
                request_bytes: resource.request_bytes,
                response_bytes: resource.response_bytes,
                server_time_ms: ms(resource.server_time),
                head_of_line_ms: waited.get(id).copied().map(ms).unwrap_or_default(),
                times_ms: resource.measured.as_ref().map(Times::from_timings),
            })
        })
        .collect()
}
