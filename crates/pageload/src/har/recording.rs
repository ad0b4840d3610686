//! Makes a page of exchanges.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, UNIX_EPOCH};

use super::entry::Milestones;
use super::exchange::{Exchange, Origin};
use super::frames;
use super::limits::{LONGEST, QUIET, URL_MAX};
use super::parents::{self, Waits, part};
use super::value::cut;
use super::{Facts, Kind, Recording};
use crate::page::{
    Dependency, Ignored, Page, PageError, Protocol, Reason, Recorded, Resource, Server, Timings,
};
use crate::printable;

/// A file's facts about a page.
#[derive(Clone, Debug, Default)]
pub(super) struct PageFacts {
    pub(super) title: String,
    /// Start, since 1970.
    pub(super) started: Option<Duration>,
    pub(super) milestones: Milestones,
}

/// Makes a page of `exchanges`; counts those that are not resources in `ignored`, too.
///
/// # Errors
/// There is no resource: what was ignored instead.
pub(super) fn recording(
    facts: &PageFacts,
    mut exchanges: Vec<Exchange>,
    mut ignored: Ignored,
) -> Result<Recording, (PageError, Ignored)> {
    exchanges.sort_by_key(Exchange::started);
    drop_far(facts, &mut exchanges, &mut ignored);
    let Milestones { content_loaded, on_load, largest_paint } = facts.milestones;
    let loaded = event(facts, &exchanges, on_load);
    let [content_loaded, largest_paint] =
        [content_loaded, largest_paint].map(|at| event(facts, &exchanges, at));
    set_late(&mut exchanges, loaded);
    for reason in exchanges.iter().filter_map(|exchange| exchange.ignored) {
        ignored.add(reason);
    }
    let Some(first) = exchanges.iter().find(|exchange| exchange.ignored.is_none()) else {
        return Err((PageError::Empty, ignored));
    };
    let name = if facts.title.is_empty() { &first.url } else { &facts.title };
    let (name, begin) = (cut(printable(name), URL_MAX), first.started());
    let (waits, parents) = parents::find(&exchanges);
    let (order, redirects) = order(&exchanges, &waits);
    let mut build = Build::new(&exchanges, &order);
    let mut resources: Vec<Resource> =
        order.iter().map(|&place| build.resource(place, &waits[place], begin)).collect();
    let recorded = Recorded {
        at: Some(UNIX_EPOCH + begin),
        content_loaded: content_loaded.map(|at| at.saturating_sub(begin)),
        on_load: loaded.map(|at| at.saturating_sub(begin)),
        largest_paint: largest_paint.map(|at| at.saturating_sub(begin)),
        page_load_time: page_load_time(&resources),
    };
    let facts = order.iter().map(|&place| Facts::from_exchange(&exchanges[place])).collect();
    let Build { servers, round_trips, .. } = build;
    let is_document: Vec<bool> = order.iter().map(|&place| exchanges[place].is_document).collect();
    frames::mark(&mut resources, &servers, redirects, &is_document);
    match Page::new(name, servers, resources) {
        Ok(page) => {
            let page = page.with_redirects(redirects).with_recorded(recorded).with_ignored(ignored);
            Ok(Recording { page, facts, parents, round_trips })
        }
        Err(error) => Err((error, ignored)),
    }
}

fn is_near(exchange: &Exchange, at: Duration) -> bool {
    exchange.started().abs_diff(at) <= LONGEST
}

/// Drops exchanges that began more than [`LONGEST`] before or after the page's beginning, or else
/// before most of its requests: their time cannot be right.
fn drop_far(facts: &PageFacts, exchanges: &mut Vec<Exchange>, ignored: &mut Ignored) {
    let middle = exchanges.get(exchanges.len().saturating_sub(1) / 2).map(Exchange::started);
    let begun = facts.started.filter(|at| exchanges.iter().any(|exchange| is_near(exchange, *at)));
    let Some(at) = begun.or(middle) else { return };
    exchanges.retain(|exchange| {
        let is_near = is_near(exchange, at);
        if !is_near {
            ignored.add(exchange.ignored.unwrap_or(Reason::Times));
        }
        is_near
    });
}

/// Returns the time of an event of the page since 1970; `None` if it is [`LONGEST`] before or after
/// the first request, and so by another clock.
fn event(facts: &PageFacts, exchanges: &[Exchange], after: Option<Duration>) -> Option<Duration> {
    let first = exchanges.first()?.started();
    let at = facts.started.unwrap_or(first).checked_add(after?)?;
    (at.abs_diff(first) <= LONGEST).then_some(at)
}

/// Sets aside requests made after the page was loaded: after its load event, and after [`QUIET`].
fn set_late(exchanges: &mut [Exchange], loaded: Option<Duration>) {
    let Some(mut quiet_since) = loaded else { return };
    let mut is_late = false;
    for exchange in exchanges {
        is_late |= exchange.started() > quiet_since + QUIET;
        if is_late && exchange.ignored.is_none() {
            exchange.ignored = Some(Reason::Late);
        }
        quiet_since = quiet_since.max(exchange.end());
    }
}

/// Returns the places of the resources (redirects to the document, then by their starts) and the
/// number of redirects.
fn order(exchanges: &[Exchange], waits: &[Waits]) -> (Vec<usize>, usize) {
    let kept: Vec<usize> =
        (0..exchanges.len()).filter(|&place| exchanges[place].ignored.is_none()).collect();
    let mut chain: Vec<usize> = kept.first().copied().into_iter().collect();
    for &place in kept.iter().skip(1) {
        let last = chain.last().filter(|&&last| exchanges[last].is_redirect());
        if waits[place].is_redirected && last.is_some_and(|last| waits[place].on == [*last]) {
            chain.push(place);
        }
    }
    let redirects = chain.len().saturating_sub(1);
    let first: HashSet<usize> = chain.iter().copied().collect();
    chain.extend(kept.into_iter().filter(|place| !first.contains(place)));
    (chain, redirects)
}

/// Returns the time until 95 % of the resources are loaded: the definition of BLAST, section 3.3.
fn page_load_time(resources: &[Resource]) -> Option<Duration> {
    let mut ends: Vec<Duration> =
        resources.iter().filter_map(|one| one.measured.map(|timings| timings.end())).collect();
    ends.sort_unstable();
    ends.get(ends.len() * 95 / 100).copied()
}

/// Determines servers and connections.
struct Build<'a> {
    exchanges: &'a [Exchange],
    /// Place of each exchange in the page.
    ids: HashMap<usize, usize>,
    document: Option<&'a Origin>,
    /// Connections that carried requests which always have credentials.
    credentialed: HashSet<(&'a Origin, &'a str)>,
    places: HashMap<(&'a Origin, bool), usize>,
    servers: Vec<Server>,
    round_trips: Vec<Duration>,
    connections: HashMap<(usize, &'a str), u32>,
}

impl<'a> Build<'a> {
    fn new(exchanges: &'a [Exchange], order: &[usize]) -> Self {
        let ids = order.iter().enumerate().map(|(id, &place)| (place, id)).collect();
        let kept: Vec<&Exchange> = order.iter().filter_map(|&place| exchanges.get(place)).collect();
        // After the redirects, which come first.
        let document = kept.iter().find(|one| !one.is_redirect()).map(|one| &one.origin);
        let credentialed = kept.iter().filter(|one| !may_be_anonymous(one));
        let credentialed = credentialed
            .filter_map(|one| Some((&one.origin, one.connection.as_deref()?)))
            .collect();
        let (places, servers) = (HashMap::new(), Vec::new());
        let (round_trips, connections) = (Vec::new(), HashMap::new());
        let mut build = Self {
            exchanges,
            ids,
            document,
            credentialed,
            places,
            servers,
            round_trips,
            connections,
        };
        for exchange in &kept {
            build.add_server(exchange);
        }
        let exchanges = kept.into_iter().map(|one| (build.server(one), one));
        build.round_trips = round_trips_of(&build.servers, exchanges);
        build
    }

    /// Fonts of other origins are asked for without credentials (CSS Fonts 4, section 4.9), and so
    /// over connections of their own. So are data, if scripts do not say otherwise (Fetch, section
    /// 5.4): their connection shows whether it carried anything else. Of other requests a recording
    /// does not say.
    fn key(&self, exchange: &'a Exchange) -> (&'a Origin, bool) {
        let is_other = self.document.is_some_and(|document| *document != exchange.origin);
        let connection = exchange.connection.as_deref();
        let is_apart =
            connection.is_some_and(|name| !self.credentialed.contains(&(&exchange.origin, name)));
        let is_font = exchange.kind == Kind::Font;
        let is_anonymous = is_font || (may_be_anonymous(exchange) && is_apart);
        (&exchange.origin, is_other && is_anonymous)
    }

    fn server(&self, exchange: &'a Exchange) -> usize {
        self.places.get(&self.key(exchange)).copied().unwrap_or_default()
    }

    fn add_server(&mut self, exchange: &'a Exchange) {
        let key = self.key(exchange);
        let next = self.servers.len();
        let place = *self.places.entry(key).or_insert(next);
        if place == next {
            self.servers.push(Server {
                host: exchange.origin.host.clone(),
                port: exchange.origin.port,
                tls: exchange.origin.tls,
                anonymous: key.1,
                protocol: exchange.protocol,
                pipelining: false,
                address: None,
            });
        }
        if let Some(server) = self.servers.get_mut(place) {
            server.address = server.address.or(exchange.address);
            server.protocol = better(server.protocol, exchange.protocol);
        }
    }

    fn resource(&mut self, place: usize, waits: &Waits, begin: Duration) -> Resource {
        let exchange = &self.exchanges[place];
        let server = self.server(exchange);
        let round_trip = self.round_trips.get(server).copied().unwrap_or_default();
        let next = u32::try_from(self.connections.len()).unwrap_or(u32::MAX);
        let name = exchange.connection.as_deref();
        let connection = name.map(|name| *self.connections.entry((server, name)).or_insert(next));
        Resource {
            dependencies: self.dependencies(exchange, waits),
            confidence: waits.confidence,
            server,
            request_bytes: exchange.request_bytes,
            response_bytes: exchange.response_bytes,
            server_time: exchange.timings.wait.saturating_sub(round_trip),
            redirect: exchange.is_redirect(),
            in_prefetch_database: false,
            in_links: false,
            in_foreign_frame: false,
            url: exchange.url.clone(),
            connection,
            measured: Some(Timings {
                started: exchange.started().saturating_sub(begin),
                ..exchange.timings
            }),
        }
    }

    /// Returns the dependencies. The last to arrive decided when the resource was requested: the
    /// time since then was the client's. The others only had to be there.
    fn dependencies(&self, exchange: &Exchange, waits: &Waits) -> Vec<Dependency> {
        let known = waits.on.iter().filter_map(|place| {
            let on = *self.ids.get(place)?;
            Some((on, self.exchanges.get(*place)?))
        });
        known
            .enumerate()
            .map(|(number, (on, other)): (usize, (usize, &Exchange))| {
                let (part, then) = part(other, exchange.started());
                let then = if number == 0 { then } else { Duration::ZERO };
                Dependency { on, part, then }
            })
            .collect()
    }
}

/// Returns true if a request may have no credentials, judging by its kind.
fn may_be_anonymous(exchange: &Exchange) -> bool {
    matches!(exchange.kind, Kind::Font | Kind::Data) || exchange.is_preflight()
}

fn better(one: Protocol, other: Protocol) -> Protocol {
    use Protocol::{Http1, Http2, Http3};
    match (one, other) {
        (Http3, _) | (_, Http3) => Http3,
        (Http2, _) | (_, Http2) => Http2,
        _ => Http1,
    }
}

/// Keeps the shorter of a known time and `time`.
fn shorten(known: &mut Option<Duration>, time: Duration) {
    *known = Some(known.map_or(time, |known| known.min(time)));
}

/// Returns for each server the shortest time that TCP took to connect, or QUIC with its TLS; else
/// that of its address; but never more than the shortest time that it took to answer, which is all
/// there is where no connection was opened.
fn round_trips_of<'a>(
    servers: &[Server],
    exchanges: impl Iterator<Item = (usize, &'a Exchange)>,
) -> Vec<Duration> {
    let mut connect = vec![None; servers.len()];
    let mut answer = vec![None; servers.len()];
    let mut by_address = HashMap::new();
    for (server, exchange) in exchanges.filter(|(_, exchange)| !exchange.is_hinted) {
        let Timings { connect: tcp, tls, wait, .. } = exchange.timings;
        let opened = match exchange.protocol {
            // Chromium gives the same time as that of TLS and of connecting.
            Protocol::Http3 => tcp.max(tls),
            _ => tcp,
        };
        if let (Some(known), false) = (connect.get_mut(server), opened.is_zero()) {
            shorten(known, opened);
            if let Some(address) = exchange.address {
                shorten(by_address.entry(address).or_default(), opened);
            }
        }
        if let Some(known) = answer.get_mut(server) {
            shorten(known, wait);
        }
    }
    servers
        .iter()
        .enumerate()
        .map(|(place, server): (usize, &Server)| {
            let connect = connect
                .get(place)
                .copied()
                .flatten()
                .or_else(|| server.address.and_then(|address| *by_address.get(&address)?));
            let answer = answer.get(place).copied().flatten();
            connect.into_iter().chain(answer).min().unwrap_or_default()
        })
        .collect()
}
