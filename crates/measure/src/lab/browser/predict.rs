//! Predictions of `plan` from the recordings, for each arm.

use headstart_pageload::db::Database;
use headstart_pageload::har::{Facts, Recording};
use headstart_pageload::page::{Page, Protocol, Resource, Server};
use headstart_pageload::sim::browser::in_browser;
use headstart_pageload::sim::tcp::{
    self, Delivery, Handshake, Link, Overhead, Revisit, Settings, Techniques,
};

use super::arm::Arm;
use super::experiment::{BrowserLink, CellSpec};
use super::visit::Visit;
use crate::simulated;

/// Seed of the simulator. Without loss it draws nothing that matters.
const SEED: u64 = 1;

/// Bytes of Chromium's ClientHello, which has a post-quantum share, and of one with a session
/// (version 156).
const CLIENT_HELLO: u64 = 1_960;
const RESUMED_HELLO: u64 = 2_200;

/// The same without that share, and without Encrypted ClientHello.
const CLASSICAL_HELLO: u64 = 510;
const CLASSICAL_RESUMED: u64 = 750;

/// Site whose loads told [`Overhead::MEASURED`].
pub(super) const TRAINING: &str = "shop";

/// Predictions over one link, from recordings that were made there without anything.
#[derive(Debug)]
pub(super) struct Predictor<'p> {
    /// Link for the simulator; `None` where it knows no such path.
    link: Option<Link>,
    /// True if recordings are through a proxy that says at once that it has connected.
    proxied: bool,
    database: &'p Database,
}

impl<'p> Predictor<'p> {
    pub(super) fn new(link: &BrowserLink, database: &'p Database) -> Self {
        let proxied = link.tor.is_some();
        Self { link: simulated::network(&link.path, link.rtt), proxied, database }
    }

    /// The mean page load time of recorded loads with what an arm does, in ms. Databases speak as
    /// they do here: with the head of the document's answer or Early Hints, by `Link` fields and
    /// the extension.
    pub(super) fn page_load_ms(&self, loads: &[&Recording], cell: &CellSpec) -> Option<f64> {
        self.mean(loads, cell, Delivery::Document)
    }

    /// The same with databases that speak at the start, to a browser that was changed for it. None
    /// of arms to which that makes no difference.
    pub(super) fn at_start_ms(&self, loads: &[&Recording], cell: &CellSpec) -> Option<f64> {
        let Techniques { server_database, prefetch_database, .. } = self.techniques(cell);
        let speaks = server_database || prefetch_database;
        speaks.then(|| self.mean(loads, cell, Delivery::Start)).flatten()
    }

    /// Predicts from the recorded time, less the share that the simulator says is saved: what is
    /// left of a browser's own work that it does not know of is in the recording.
    fn mean(&self, loads: &[&Recording], cell: &CellSpec, delivery: Delivery) -> Option<f64> {
        let link = self.link?;
        let own = self.settings(cell, link, delivery);
        let plain = CellSpec::first(cell.variant.clone(), cell.site, Arm::Plain);
        let plain = self.settings(&plain, link, delivery);
        let pages = self.pages(loads, &plain);
        let all: Vec<f64> = pages
            .iter()
            .map(|page: &Page| {
                let recorded = page.recorded().page_load_time.map(|time| time.as_secs_f64() * 1e3);
                let visited = if cell.visit.http1 { over_http1(page) } else { page.clone() };
                let own = self.simulated_ms(&visited, &own);
                recorded.map_or(own, |ms| ms * own / self.simulated_ms(page, &plain))
            })
            .collect();
        (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
    }

    /// Returns the loads as their browser loads them; through a proxy, of whose share in their
    /// times nothing is known, as they are.
    fn pages(&self, loads: &[&Recording], plain: &Settings) -> Vec<Page> {
        if self.proxied {
            return loads.iter().map(|load| self.without_round_trip(&load.page)).collect();
        }
        let loads: Vec<(Page, &[Facts])> =
            loads.iter().map(|load| (load.page.clone(), load.facts.as_slice())).collect();
        in_browser(&loads, plain)
    }

    fn simulated_ms(&self, page: &Page, settings: &Settings) -> f64 {
        let known = self.database.apply(page).0.with_urgencies_of(page);
        tcp::load(&known, settings, SEED).page_load_time().as_secs_f64() * 1e3
    }

    /// Behind such a proxy connecting tells no round trip, so that what servers seem to think has
    /// one in it.
    fn without_round_trip(&self, page: &Page) -> Page {
        let Some(link) = self.link else { return page.clone() };
        let resources = page
            .resources()
            .iter()
            .map(|resource: &Resource| Resource {
                server_time: resource.server_time.saturating_sub(link.rtt),
                ..resource.clone()
            })
            .collect();
        changed(page, page.servers().to_vec(), resources)
    }

    fn settings(&self, cell: &CellSpec, link: Link, delivery: Delivery) -> Settings {
        let Visit { again, classical, .. } = cell.visit;
        Settings {
            link,
            techniques: self.techniques(cell),
            delivery,
            revisit: if again { Revisit::again() } else { Revisit::default() },
            tls: Handshake {
                client_hello: if classical { CLASSICAL_HELLO } else { CLIENT_HELLO },
                resumed_hello: if classical { CLASSICAL_RESUMED } else { RESUMED_HELLO },
                ..Handshake::default()
            },
            overhead: Overhead::MEASURED,
            ..Settings::default()
        }
    }

    fn techniques(&self, cell: &CellSpec) -> Techniques {
        Techniques::from_list(&cell.arm.techniques(cell.visit, self.proxied))
    }
}

/// The page from servers that speak HTTP/1.1, which were recorded with HTTP/2.
fn over_http1(page: &Page) -> Page {
    let servers = page.servers().iter().cloned();
    let servers = servers.map(|server: Server| Server { protocol: Protocol::Http1, ..server });
    changed(page, servers.collect(), page.resources().to_vec())
}

fn changed(page: &Page, servers: Vec<Server>, resources: Vec<Resource>) -> Page {
    let changed = Page::new(page.name().to_owned(), servers, resources);
    changed.map_or_else(
        |_| page.clone(),
        |changed| {
            let changed = changed.with_redirects(page.redirects()).with_urgencies_of(page);
            changed.with_recorded(page.recorded().clone())
        },
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use headstart_pageload::db::{PageEntry, Parts, Prefetch};
    use headstart_pageload::har::{Kind, Parents};
    use headstart_pageload::page::{Dependency, Part, Protocol, Recorded, Server};
    use headstart_proto::UnixSeconds;
    use std::collections::BTreeMap;

    fn cell(arm: Arm) -> CellSpec {
        CellSpec::first("p", 0, arm)
    }

    /// A document, and three resources each of which the one before asks for.
    fn chain() -> Recording {
        recording(chain_page())
    }

    fn recording(page: Page) -> Recording {
        Recording { page, facts: vec![], parents: Parents::default(), round_trips: vec![] }
    }

    fn chain_page() -> Page {
        let server = Server::https("a.test", Protocol::Http2);
        Page::new(
            "p".into(),
            vec![server],
            (0..4)
                .map(|id: usize| Resource {
                    url: format!("https://a.test/{id}"),
                    dependencies: id
                        .checked_sub(1)
                        .map(|on| Dependency { on, part: Part::Whole, then: Duration::ZERO })
                        .into_iter()
                        .collect(),
                    response_bytes: 1_000,
                    ..Resource::default()
                })
                .collect(),
        )
        .unwrap()
    }

    /// A database whose second-to-last entry is fetch data, which `Link` fields cannot express.
    fn database() -> Database {
        let prefetch = [(1, Kind::Script), (2, Kind::Data), (3, Kind::Image)];
        let prefetch = prefetch.map(|(id, kind)| {
            let target = format!("https://a.test/{id}").parse().unwrap();
            Prefetch { target, kind }
        });
        let page = PageEntry {
            document: "https://a.test/0".parse().unwrap(),
            recordings: 3,
            age_days: None,
            redirects: Vec::new(),
            servers: Vec::new(),
            prefetch: prefetch.into(),
        };
        let parts = Parts { prefetch: true, ..Parts::NONE };
        Database::new(UnixSeconds(0), parts, vec![page], BTreeMap::new()).unwrap()
    }

    #[test]
    fn databases_speak_with_the_documents_head() {
        let database = database();
        let text = "name = 'x'\nrtt = '100ms'\npath = 'delay 50ms'";
        let link: BrowserLink = toml::from_str(text).unwrap();
        let predictor = Predictor::new(&link, &database);
        let pages = [&chain()];
        // In sequence: TCP, TLS and four requests; TurboTLS saves the first round trip, and its
        // agent takes 10 ms.
        let [plain, turbo, preloaded] = [Arm::Plain, Arm::TurboTls, Arm::PrefetchDb]
            .map(|arm| predictor.page_load_ms(&pages, &cell(arm)).unwrap());
        assert!((plain - turbo - 90.0).abs() < 5.0, "{plain} {turbo}");
        // The data wait for the document and then, with the script, for nothing else: a round trip
        // for what is preloaded.
        assert!((plain - preloaded - 100.0).abs() < 5.0, "{plain} {preloaded}");
        // Everything with the document, for a modified browser.
        let at_start = predictor.at_start_ms(&pages, &cell(Arm::PrefetchDb)).unwrap();
        assert!((plain - at_start - 300.0).abs() < 5.0, "{plain} {at_start}");
        assert_eq!(predictor.at_start_ms(&pages, &cell(Arm::RedirectDb)), None);
        // Recorded loads take longer than simulated ones, with any arm.
        let longer = Some(Duration::from_secs_f64(2.0 * plain / 1e3));
        let slow =
            chain_page().with_recorded(Recorded { page_load_time: longer, ..Recorded::default() });
        let slow = recording(slow);
        for (arm, simulated) in [(Arm::Plain, plain), (Arm::TurboTls, turbo)] {
            let predicted = predictor.page_load_ms(&[&slow], &cell(arm)).unwrap();
            assert!((predicted - 2.0 * simulated).abs() < 0.1, "{arm}: {predicted}");
        }
        let other = BrowserLink { path: "preset wifi".into(), ..link };
        let predictor = Predictor::new(&other, &database);
        assert_eq!(predictor.page_load_ms(&pages, &cell(Arm::Plain)), None);
    }
}
