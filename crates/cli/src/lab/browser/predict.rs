//! What `plan` says of the recordings, for each arm.

use std::collections::HashSet;

use headstart_pageload::db::Database;
use headstart_pageload::page::{Dependency, Page, Part, Resource};
use headstart_pageload::sim::tcp::{self, Handshake, Link, Revisit, Settings, Techniques};
use std::time::Duration;
use url::Url;

use super::experiment::{BrowserLink, CellSpec};
use crate::pageload::simulated;

/// Seed of the simulator. Without loss it draws nothing that matters.
const SEED: u64 = 1;

/// Bytes of Chromium's ClientHello, which has a post-quantum share, and of one with a session (version 156).
const CLIENT_HELLO: u64 = 1_960;
const RESUMED_HELLO: u64 = 2_200;

/// The same without that share, and without Encrypted ClientHello.
const CLASSICAL_HELLO: u64 = 510;
const CLASSICAL_RESUMED: u64 = 750;

/// Predictions over one link, from recordings that were made there without anything.
#[derive(Debug)]
pub(super) struct Predictor<'p> {
    /// None where the simulator does not know such a path.
    link: Option<Link>,
    database: &'p Database,
    links: &'p [(String, Vec<String>)],
}

impl<'p> Predictor<'p> {
    pub(super) fn new(
        link: &BrowserLink,
        database: &'p Database,
        links: &'p [(String, Vec<String>)],
    ) -> Self {
        Self { link: simulated::network(&link.path, link.rtt), database, links }
    }

    /// The mean page load time of recorded loads with what an arm does, in ms.
    pub(super) fn page_load_ms(&self, pages: &[&Page], cell: &CellSpec) -> Option<f64> {
        self.mean(pages, techniques(cell), cell, Page::clone)
    }

    /// The same, but what a prefetch database knows is asked for when the document's head is there, as far as `Link` fields
    /// say it: `plan` has it asked for at the start. None of arms that have no such database.
    pub(super) fn hinted_ms(&self, pages: &[&Page], cell: &CellSpec) -> Option<f64> {
        if !cell.arm.has_hints() {
            return None;
        }
        let techniques = Techniques { prefetch_database: false, ..techniques(cell) };
        self.mean(pages, techniques, cell, |page| hinted(page, self.links))
    }

    fn mean(
        &self,
        pages: &[&Page],
        techniques: Techniques,
        cell: &CellSpec,
        change: impl Fn(&Page) -> Page,
    ) -> Option<f64> {
        let settings = Settings {
            link: self.link?,
            techniques,
            revisit: if cell.again { Revisit::again() } else { Revisit::default() },
            tls: Handshake {
                client_hello: if cell.classical { CLASSICAL_HELLO } else { CLIENT_HELLO },
                resumed_hello: if cell.classical { CLASSICAL_RESUMED } else { RESUMED_HELLO },
                ..Handshake::default()
            },
            ..Settings::default()
        };
        let load = |page: &&Page| {
            let (page, _) = self.database.apply(&change(page));
            tcp::load(&page, &settings, SEED).page_load_time().as_secs_f64() * 1e3
        };
        let all: Vec<f64> = pages.iter().map(load).collect();
        (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
    }
}

fn techniques(cell: &CellSpec) -> Techniques {
    Techniques::of(&cell.arm.techniques(cell.again, cell.classical))
}

/// The page with what its document's `Link` fields name asked for when the document's first bytes come.
fn hinted(page: &Page, links: &[(String, Vec<String>)]) -> Page {
    let document = page.redirects();
    let url = page.resources().get(document).map(|resource| resource.url.as_str());
    let own = links.iter().find(|(of, _)| Some(of.as_str()) == url);
    let named: HashSet<String> = own
        .into_iter()
        .flat_map(|(of, links)| links.iter().filter_map(|link| preloaded(of, link)))
        .collect();
    let change = |(at, resource): (usize, &Resource)| {
        let is_named = at > document && named.contains(&resource.url);
        let first = Dependency { on: document, part: Part::Bytes(0), then: Duration::ZERO };
        let dependencies = if is_named { vec![first] } else { resource.dependencies.clone() };
        Resource { dependencies, ..resource.clone() }
    };
    let resources = page.resources().iter().enumerate().map(change).collect();
    let changed = Page::new(page.name().to_owned(), page.servers().to_vec(), resources);
    changed.map_or_else(|_| page.clone(), |changed| changed.with_redirects(page.redirects()))
}

/// The whole URL that a `Link` field has preloaded.
fn preloaded(document: &str, link: &str) -> Option<String> {
    let (target, parameters) = link.strip_prefix('<')?.split_once('>')?;
    let is_preload = parameters.contains("rel=preload");
    let url = Url::parse(document).ok()?.join(target).ok()?;
    is_preload.then(|| url.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::browser::arm::Arm;
    use headstart_pageload::page::{Protocol, Server};

    fn cell(arm: Arm) -> CellSpec {
        CellSpec::first("p", 0, arm)
    }

    /// A document, a script that it names, and another that this one asks for.
    fn chain() -> Page {
        let server = Server {
            host: "a.test".into(),
            port: 443,
            tls: true,
            anonymous: false,
            protocol: Protocol::Http2,
            pipelining: false,
            address: None,
        };
        let resource = |id: usize| Resource {
            url: format!("https://a.test/{id}"),
            dependencies: id
                .checked_sub(1)
                .map(|on| Dependency { on, part: Part::Whole, then: Duration::ZERO })
                .into_iter()
                .collect(),
            response_bytes: 1_000,
            ..Resource::default()
        };
        Page::new("p".into(), vec![server], (0..4).map(resource).collect()).unwrap()
    }

    #[test]
    fn what_links_name_does_not_wait_for_what_asked_for_it() {
        let links = vec![(
            "https://a.test/0".to_owned(),
            vec![
                "</3>; rel=preload; as=script".to_owned(),
                "<https://a.test/2>; rel=preconnect".to_owned(),
            ],
        )];
        let page = hinted(&chain(), &links);
        let on: Vec<_> = page.resources().iter().map(Resource::parent).collect();
        assert_eq!(on, [None, Some(0), Some(1), Some(0)]);
        let database = Database::new(
            headstart_proto::UnixSeconds(0),
            headstart_pageload::db::Parts::NONE,
            Vec::new(),
            std::collections::BTreeMap::new(),
        )
        .unwrap();
        let text = "name = 'x'\nrtt = '100ms'\npath = 'delay 50ms'";
        let link: BrowserLink = toml::from_str(text).unwrap();
        let predictor = Predictor::new(&link, &database, &links);
        let pages = [&chain()];
        let ms = |arm| predictor.page_load_ms(&pages, &cell(arm)).unwrap();
        // One after the other: TCP, TLS, and four requests; TurboTLS spares the first.
        let (plain, turbo) = (ms(Arm::Plain), ms(Arm::TurboTls));
        assert!((plain - turbo - 100.0).abs() < 5.0, "{plain} {turbo}");
        let hinted = predictor.hinted_ms(&pages, &cell(Arm::PrefetchDb)).unwrap();
        assert!((plain - hinted - 100.0).abs() < 5.0, "{plain} {hinted}");
        assert_eq!(predictor.hinted_ms(&pages, &cell(Arm::Plain)), None);
        let other = BrowserLink { path: "preset wifi".into(), ..link };
        let predictor = Predictor::new(&other, &database, &links);
        assert_eq!(predictor.page_load_ms(&pages, &cell(Arm::Plain)), None);
    }
}
