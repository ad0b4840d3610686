//! Databases of generated pages.

use std::collections::BTreeMap;

use headstart_pageload::db::{
    Connect, Database, HEADER_BYTES, Hop, Http2, Kind, Origin, PageEntry, Parts, Prefetch,
    Redirect, Target,
};
use headstart_proto::UnixSeconds;
use proptest::prelude::*;
use sha2::{Digest, Sha256};

pub(crate) fn page_entry(document: &str) -> PageEntry {
    PageEntry {
        document: document.parse().unwrap(),
        recordings: 12,
        age_days: Some(0),
        redirects: vec![],
        servers: vec![],
        prefetch: vec![],
    }
}

fn hop(url: &str, permanent: bool) -> Hop {
    Hop { to: url.parse().unwrap(), permanent }
}

fn connect(url: &str, anonymous: bool, connections: u8) -> Connect {
    Connect { origin: url.parse::<Target>().unwrap().origin, anonymous, connections }
}

fn prefetch(url: &str, kind: Kind) -> Prefetch {
    Prefetch { target: url.parse().unwrap(), kind }
}

/// All databases, with each kind of entry.
pub(crate) fn example() -> Database {
    let home = PageEntry {
        redirects: vec![
            Redirect {
                from: "http://example.com/".parse().unwrap(),
                hops: vec![
                    hop("https://example.com/", true),
                    hop("https://www.example.com/", false),
                ],
                of_document: true,
            },
            Redirect {
                from: "https://www.example.com/old.js".parse().unwrap(),
                hops: vec![hop("https://static.example.com/new.js", true)],
                of_document: false,
            },
        ],
        servers: vec![
            connect("https://www.example.com/", false, 1),
            connect("https://static.example.com/", false, 6),
            connect("https://fonts.example.net/", true, 1),
            connect("http://tracker.example.org:8080/", false, 2),
        ],
        prefetch: vec![
            prefetch("https://static.example.com/a/main.css", Kind::Style),
            prefetch("https://static.example.com/a/main.js?v=1", Kind::Script),
            prefetch("https://fonts.example.net/f.woff2", Kind::Font),
            prefetch("https://www.example.com/data", Kind::Other),
        ],
        ..page_entry("https://www.example.com/")
    };
    let news = PageEntry {
        servers: vec![connect("https://fonts.example.net/", true, 1)],
        age_days: None,
        ..page_entry("https://news.example.org/today")
    };
    let http2 = [
        ("www.example.com", Http2::Http2),
        ("fonts.example.net", Http2::Http3),
        ("other.example", Http2::Http2),
    ];
    let http2 = http2.map(|(host, speaks)| (host.to_owned(), speaks)).into();
    Database::new(UnixSeconds(1_790_000_000), Parts::ALL, vec![home, news], http2).unwrap()
}

fn origin() -> impl Strategy<Value = Origin> {
    let port = prop_oneof![4 => Just(None), 1 => (1u16..).prop_map(Some)];
    ("[a-c]{1,2}(\\.[a-c]{1,2}){0,2}\\.(test|example)", any::<bool>(), port).prop_map(
        |(host, tls, port)| {
            let port = port.unwrap_or(if tls { 443 } else { 80 });
            Origin::new(tls, host.into(), port).unwrap()
        },
    )
}

fn any_target() -> impl Strategy<Value = Target> {
    (origin(), "/[a-d/]{0,6}(\\?[a-d=&]{0,4})?")
        .prop_map(|(origin, path)| Target::new(origin, path.into()).unwrap())
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::Other),
        Just(Kind::Document),
        Just(Kind::Style),
        Just(Kind::Script),
        Just(Kind::Data),
        Just(Kind::Image),
        Just(Kind::Font),
        Just(Kind::Media),
    ]
}

fn page() -> impl Strategy<Value = PageEntry> {
    let redirects = prop::collection::vec(
        (any_target(), prop::collection::vec((any_target(), any::<bool>()), 1..4), any::<bool>()),
        0..3,
    );
    let servers = prop::collection::btree_map((origin(), any::<bool>()), 1u8..=6, 0..5);
    let prefetch = prop::collection::btree_map(any_target(), kind(), 0..5);
    (any_target(), any::<u32>(), any::<Option<u32>>(), redirects, servers, prefetch).prop_map(
        |(document, recordings, age_days, redirects, servers, prefetch)| PageEntry {
            document,
            recordings,
            age_days,
            redirects: redirects
                .into_iter()
                .map(|(from, hops, of_document)| Redirect {
                    from,
                    hops: hops.into_iter().map(|(to, permanent)| Hop { to, permanent }).collect(),
                    of_document,
                })
                .collect(),
            servers: servers
                .into_iter()
                .map(|((origin, anonymous), connections)| Connect {
                    origin,
                    anonymous,
                    connections,
                })
                .collect(),
            prefetch: prefetch
                .into_iter()
                .map(|(target, kind)| Prefetch { target, kind })
                .collect(),
        },
    )
}

/// A file of this compressed body, said to have `body` bytes, with a right checksum and without a
/// signature.
pub(crate) fn unsigned(compressed: &[u8], body: usize, parts: u8) -> Vec<u8> {
    let mut file = b"\x89HSDB\r\n\x1a\x01".to_vec();
    file.extend([parts, 0, 0]);
    file.extend(1u64.to_be_bytes());
    file.extend(u32::try_from(body).unwrap().to_be_bytes());
    file.extend(u32::try_from(compressed.len()).unwrap().to_be_bytes());
    file.extend(Sha256::new().chain_update(&file).chain_update(compressed).finalize());
    file.resize(HEADER_BYTES, 0);
    file.extend(compressed);
    file
}

/// Any database: of what contradicts itself, the redirects are left out.
pub(crate) fn database() -> impl Strategy<Value = Database> {
    let pages = prop::collection::vec(page(), 0..6);
    let speaks = prop_oneof![Just(Http2::Http2), Just(Http2::Http3)];
    let http2 =
        prop::collection::btree_map(origin().prop_map(|of| of.host().to_owned()), speaks, 0..5);
    (any::<u64>(), any::<[bool; 4]>(), pages, http2).prop_map(|(created, parts, pages, http2)| {
        let [redirect, server, of_http2, prefetch] = parts;
        let parts = Parts { redirect, server, http2: of_http2, prefetch };
        let by_document: BTreeMap<Target, PageEntry> =
            pages.into_iter().map(|page| (page.document.clone(), page)).collect();
        let mut pages: Vec<PageEntry> = by_document.into_values().collect();
        let created = UnixSeconds(created);
        Database::new(created, parts, pages.clone(), http2.clone()).unwrap_or_else(|_| {
            pages.iter_mut().for_each(|page| page.redirects.clear());
            Database::new(created, parts, pages, http2).unwrap()
        })
    })
}
