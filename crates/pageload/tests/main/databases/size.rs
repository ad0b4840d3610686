//! Sizes of files.

use std::collections::{BTreeMap, BTreeSet};

use headstart_pageload::db::{
    Connect, Database, HEADER_BYTES, Hop, Http2, Kind, PageEntry, Parts, Prefetch, Redirect,
    Target, read_unverified, write,
};
use headstart_proto::UnixSeconds;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::made::page_entry;
use crate::published::lines;

const REDIRECT_AND_SERVER: Parts = Parts { redirect: true, server: true, ..Parts::NONE };
const HTTP2: Parts = Parts { http2: true, ..Parts::NONE };
const PREFETCH: Parts = Parts { prefetch: true, ..Parts::NONE };

/// Pages that the size is promised for, and the most that their redirects and servers may take.
const PAGES: usize = 10_000;
const BYTES: usize = 1 << 20;

fn https(host: &str, path: &str) -> Target {
    format!("https://{host}{path}").parse().unwrap()
}

/// Pages of the shape of the published ones: 16 hosts a page, of which 7 are of no other page,
/// names of 17 letters, 51 URLs with paths of 32, and for three of four a redirect.
struct Web {
    random: StdRng,
    third_parties: Vec<String>,
}

const ENDS: [&str; 12] =
    ["com", "com", "com", "com", "org", "net", "de", "co.uk", "ru", "co.jp", "fr", "com.br"];
const LABELS: [&str; 14] = [
    "www", "static", "cdn", "img", "images", "assets", "api", "media", "s", "js", "login", "m",
    "news", "data",
];

impl Web {
    fn new(third_parties: usize) -> Self {
        let mut web = Self { random: StdRng::seed_from_u64(1), third_parties: Vec::new() };
        web.third_parties = (0..third_parties).map(|_| web.third_party()).collect();
        web
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.random.random_range(0..of.len())]
    }

    /// Letters as frequent as in English.
    fn word(&mut self, least: usize, most: usize) -> String {
        const LETTERS: &[u8] = b"eeeeeeeeeeeetttttttttaaaaaaaaooooooooiiiiiiinnnnnnnsssssshhhhhh\
            rrrrrrddddllllcccuuummmwwffggyyppbbvk";
        let length = self.random.random_range(least..=most);
        (0..length)
            .map(|_| char::from(LETTERS[self.random.random_range(0..LETTERS.len())]))
            .collect()
    }

    fn third_party(&mut self) -> String {
        let site = format!("{}.{}", self.word(5, 11), self.pick(&ENDS));
        match self.random.random_range(0..3) {
            0 => site,
            1 => format!("{}.{site}", self.pick(&LABELS)),
            _ => format!("{}.{site}", self.word(2, 6)),
        }
    }

    /// Returns a page, those of most visits most often, by Zipf's law.
    fn popular(&mut self) -> String {
        let uniform: f64 = self.random.random();
        let count = self.third_parties.len() as f64;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let rank = count.powf(uniform) as usize - 1;
        self.third_parties[rank].clone()
    }

    fn path(&mut self) -> String {
        let mut path = String::new();
        for _ in 0..self.random.random_range(1..5) {
            path.push('/');
            path += &self.word(3, 8);
        }
        if self.random.random_bool(0.4) {
            path += &format!("-{:x}", self.random.random::<u32>());
        }
        path + self.pick(&[".js", ".js", ".css", ".png", ".jpg", ".svg", ".woff2", ""])
    }

    fn page(&mut self) -> PageEntry {
        let site = format!("{}.{}", self.word(4, 13), self.pick(&ENDS));
        let document =
            if self.random.random_bool(0.75) { format!("www.{site}") } else { site.clone() };
        let mut hosts = BTreeSet::from([document.clone()]);
        for _ in 0..self.random.random_range(1..8) {
            hosts.insert(format!("{}.{site}", self.pick(&LABELS)));
        }
        // Its other names, and hosts with names that nobody could guess.
        for _ in 0..self.random.random_range(0..6) {
            let name = format!("{}{}", site.split('.').next().unwrap(), self.word(2, 4));
            let chosen = [format!("{name}.com"), self.third_party()];
            hosts.insert(chosen[self.random.random_range(0..2)].clone());
        }
        let theirs = self.random.random_range(3..16);
        while hosts.len() < theirs + 7 {
            hosts.insert(self.popular());
        }
        let hosts: Vec<String> = hosts.into_iter().collect();
        let mut page = page_entry(&format!("https://{document}/"));
        page.recordings = self.random.random_range(8..13);
        if self.random.random_bool(0.75) {
            let permanent = self.random.random_bool(0.7);
            let mut hops = vec![Hop { to: https(&document, "/"), permanent }];
            if document != site && self.random.random_bool(0.3) {
                hops.insert(0, Hop { to: https(&site, "/"), permanent: true });
            }
            let from = format!("http://{site}/").parse().unwrap();
            page.redirects = vec![Redirect { from, hops, of_document: true }];
        }
        for host in &hosts {
            let connections =
                if self.random.random_bool(0.8) { 1 } else { self.random.random_range(2..=6) };
            let origin = https(host, "/").origin;
            page.servers.push(Connect { origin: origin.clone(), anonymous: false, connections });
            if self.random.random_bool(0.1) {
                page.servers.push(Connect { origin, anonymous: true, connections: 1 });
            }
        }
        let mut urls = BTreeMap::new();
        for _ in 0..self.random.random_range(10..93) {
            let host = &hosts[self.random.random_range(0..hosts.len())];
            let kind = [Kind::Script, Kind::Style, Kind::Image, Kind::Other]
                [self.random.random_range(0..4)];
            urls.insert(https(host, &self.path()), kind);
        }
        page.prefetch = urls.into_iter().map(|(target, kind)| Prefetch { target, kind }).collect();
        page
    }
}

fn file_bytes(pages: &[PageEntry], parts: Parts) -> usize {
    let hosts = pages.iter().flat_map(|page| &page.servers).map(|of| of.origin.host().to_owned());
    let http2 = hosts.enumerate().filter(|(number, _)| number % 3 > 0);
    let http2 = http2.map(|(_, host)| (host, Http2::Http2)).collect();
    let database = Database::new(UnixSeconds(1), parts, pages.to_vec(), http2).unwrap();
    let file = write(&database, None).unwrap();
    assert_eq!(read_unverified(&file).unwrap(), database);
    file.len() - HEADER_BYTES
}

#[test]
fn ten_thousand_pages_are_small() {
    let mut web = Web::new(20_000);
    let mut pages: BTreeMap<Target, PageEntry> = BTreeMap::new();
    let mut sources = BTreeSet::new();
    while pages.len() < PAGES {
        let page = web.page();
        let is_new = page.redirects.iter().all(|redirect| sources.insert(redirect.from.clone()));
        if is_new {
            pages.insert(page.document.clone(), page);
        }
    }
    let pages: Vec<PageEntry> = pages.into_values().collect();
    let hosts: BTreeSet<&str> =
        pages.iter().flat_map(|page| &page.servers).map(|of| of.origin.host()).collect();
    let servers: usize = pages.iter().map(|page| page.servers.len()).sum();
    let urls: usize = pages.iter().map(|page| page.prefetch.len()).sum();
    println!("{} hosts; a page: {} servers, {} URLs", hosts.len(), servers / PAGES, urls / PAGES);
    let small = file_bytes(&pages, REDIRECT_AND_SERVER);
    println!("redirect + server: {small} bytes");
    println!("HTTP/2 alone: {} bytes", file_bytes(&pages, HTTP2));
    println!("prefetch alone: {} bytes", file_bytes(&pages, PREFETCH));
    println!("all: {} bytes", file_bytes(&pages, Parts::ALL));
    assert!(small <= BYTES, "{small} bytes");
}

/// Some pages of a generated web take as much as the same number of published ones, or more.
#[test]
fn generated_pages_are_not_smaller_than_published_ones() {
    let Some(lines) = lines() else { return };
    // Two of the lists are of one site.
    let published: BTreeMap<Target, PageEntry> = lines
        .iter()
        .filter_map(|line| published(line))
        .map(|page| (page.document.clone(), page))
        .collect();
    let published: Vec<PageEntry> = published.into_values().collect();
    assert!(published.len() > 100, "{}", published.len());
    let mut web = Web::new(1000);
    let generated: Vec<PageEntry> = published.iter().map(|_| web.page()).collect();
    for (name, parts) in
        [("redirect + server", REDIRECT_AND_SERVER), ("HTTP/2", HTTP2), ("prefetch", PREFETCH)]
    {
        let [real, made] =
            [&published, &generated].map(|pages| file_bytes(pages, parts) / published.len());
        println!(
            "{name}: {real} bytes a published page, {made} a generated one, of {}",
            published.len()
        );
        if parts == REDIRECT_AND_SERVER {
            assert!(made >= real, "{made} < {real}");
        }
    }
}

/// A prefetch list; its hosts are the servers.
fn published(line: &str) -> Option<PageEntry> {
    let list: serde_json::Value = serde_json::from_str(line).unwrap();
    if list["set"] != "P" {
        return None;
    }
    let site = list["page"].as_str().unwrap();
    let from = format!("http://{site}/").parse::<Target>().ok()?;
    let mut page = page_entry(&format!("https://www.{site}/"));
    let hop = Hop { to: page.document.clone(), permanent: true };
    page.redirects = vec![Redirect { from, hops: vec![hop], of_document: true }];
    let urls = list["urls"].as_array().unwrap().iter().map(|url| url.as_str().unwrap());
    let targets: BTreeSet<Target> = urls.filter_map(|url| url.parse().ok()).collect();
    let origins: BTreeSet<_> = targets.iter().map(|target| target.origin.clone()).collect();
    page.servers = origins
        .into_iter()
        .map(|origin| Connect { origin, anonymous: false, connections: 1 })
        .collect();
    page.prefetch =
        targets.into_iter().map(|target| Prefetch { target, kind: Kind::Other }).collect();
    Some(page)
}
