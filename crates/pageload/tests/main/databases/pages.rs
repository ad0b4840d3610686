//! Pages to learn from, in a few words.

use headstart_pageload::db::{Facts, Recordings, Rules, Target};
use headstart_pageload::page::{Dependency, Page, Protocol, Resource, Server};
use headstart_proto::UnixSeconds;

pub(crate) const DAY: u64 = 86_400;

/// One resource.
#[derive(Clone)]
pub(crate) struct Asked {
    pub(crate) url: String,
    pub(crate) bytes: u64,
    pub(crate) connection: Option<u32>,
    pub(crate) anonymous: bool,
    pub(crate) protocol: Protocol,
    pub(crate) parent: Option<usize>,
    pub(crate) redirect: bool,
}

/// A request for a document, unless changed.
pub(crate) fn asked(url: &str) -> Asked {
    Asked {
        url: url.into(),
        bytes: 100,
        connection: None,
        anonymous: false,
        protocol: Protocol::Http2,
        parent: Some(0),
        redirect: false,
    }
}

/// A page whose first `redirects` requests lead to its document.
pub(crate) fn page_behind(redirects: usize, requests: &[Asked]) -> Page {
    let mut servers: Vec<Server> = Vec::new();
    let mut resources = Vec::new();
    for (place, asked) in requests.iter().enumerate() {
        let url = url::Url::parse(&asked.url).unwrap();
        let server = Server {
            port: url.port_or_known_default().unwrap(),
            tls: url.scheme() == "https",
            anonymous: asked.anonymous,
            ..Server::https(url.host_str().unwrap(), asked.protocol)
        };
        let number = servers.iter().position(|other| *other == server).unwrap_or_else(|| {
            servers.push(server);
            servers.len() - 1
        });
        let parent = if place <= redirects { place.checked_sub(1) } else { asked.parent };
        resources.push(Resource {
            dependencies: parent.map(Dependency::whole).into_iter().collect(),
            server: number,
            response_bytes: asked.bytes,
            redirect: asked.redirect || place < redirects,
            url: asked.url.clone(),
            connection: asked.connection,
            ..Resource::default()
        });
    }
    Page::new("page".into(), servers, resources).unwrap().with_redirects(redirects)
}

pub(crate) fn page(requests: &[Asked]) -> Page {
    page_behind(0, requests)
}

/// A page of `https://www.a.test/` with one part that leads elsewhere.
pub(crate) fn with_redirect_to(part: &str) -> Page {
    let from = Asked { redirect: true, ..asked("https://a.test/old") };
    page(&[asked("https://www.a.test/"), from, Asked { parent: Some(1), ..asked(part) }])
}

/// A page of plain URLs, the document first.
pub(crate) fn page_of(urls: &[&str]) -> Page {
    page(&urls.iter().map(|url| asked(url)).collect::<Vec<_>>())
}

pub(crate) fn day(number: u64) -> Option<UnixSeconds> {
    Some(UnixSeconds(number * DAY))
}

/// Recordings of GET requests, a day apart.
pub(crate) fn daily(pages: &[Page]) -> Recordings {
    let mut recordings = Recordings::new();
    for (number, page) in pages.iter().enumerate() {
        recordings.add(page, day(number as u64), &Facts::all_get()).unwrap();
    }
    recordings
}

pub(crate) fn rules(recordings_min: u32) -> Rules {
    Rules { recordings_min, ..Rules::default() }
}

pub(crate) fn target(url: &str) -> Target {
    url.parse().unwrap()
}
