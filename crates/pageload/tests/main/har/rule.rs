//! The rule for parents, asked of published trees: each is loaded in simulated time and written as
//! a HAR file. One with initiators gives the tree again; without them the rule has to find a share
//! of the parents.

use headstart_pageload::har::{self, Agreement};
use headstart_pageload::page::{Page, Resource};
use headstart_pageload::sim::Times;
use headstart_pageload::sim::blast::{Plan, Settings, Simulator};
use headstart_pageload::tree::Tree;
use serde_json::{Value, json};

use crate::published::logged;

/// Pages of a few resources say little.
const RESOURCES_LEAST: usize = 20;

#[test]
fn trees_that_are_known() {
    let Some(all) = logged() else { return };
    let mut sum = Agreement::default();
    let mut pages = 0;
    for logged in all {
        if logged.page.resources().len() < RESOURCES_LEAST {
            continue;
        }
        let read = har::read(recorded(&logged.page).to_string().as_bytes()).unwrap();
        let recording = &read.recordings[0];
        assert_eq!(read.entries, logged.page.resources().len());
        assert_eq!(recording.page.ignored().total(), 0, "{:?}", recording.page.ignored());
        let (known, again) = (Tree::from_page(&logged.page), Tree::from_page(&recording.page));
        let [again, known] = [(again, &recording.page), (known, &logged.page)]
            .map(|(tree, page)| tree.shape(page).height);
        assert_eq!(again, known, "page {pages}");
        sum.add(&recording.parents.agreement);
        pages += 1;
    }
    println!("{pages} pages: {sum:?}, {:.3}", sum.total().share().unwrap());
    assert!(pages >= 40, "{pages}");
    // When this was written the rule agreed in 57 %: where only one came before in 87 %, where one
    // was a parent already in 29 %, and of the last in 20 %, as most of what comes at a time comes
    // evenly.
    let of_only = sum.only.share().unwrap();
    assert!(of_only > 0.8 && of_only > sum.total().share().unwrap(), "{of_only}");
}

/// One load, at the published simulator's usual setting.
fn recorded(page: &Page) -> Value {
    let settings = Settings::default();
    let load = Simulator::new().load(&Plan::new(page, &settings), &settings, 1);
    let urls: Vec<String> = (0..)
        .zip(page.resources())
        .map(|(id, resource): (usize, &Resource)| format!("https://s{}.test/{id}", resource.server))
        .collect();
    let entries: Vec<Value> = page
        .resources()
        .iter()
        .zip(&load.resources)
        .zip(&urls)
        .map(|((resource, times), url)| entry(resource, times, url, &urls))
        .collect();
    json!({ "log": { "entries": entries } })
}

/// One resource of `urls`.
fn entry(resource: &Resource, times: &Times, url: &str, urls: &[String]) -> Value {
    let created = u64::try_from(times.created.as_millis()).unwrap();
    let parts = [(times.created, times.sent), (times.sent, times.first), (times.first, times.last)];
    let [blocked, wait, receive] =
        parts.map(|(from, to)| to.saturating_sub(from).as_secs_f64() * 1e3);
    let bytes = resource.response_bytes;
    json!({
        // Whole milliseconds, as in recordings.
        "startedDateTime": at(created),
        "_initiator": { "type": "parser", "url": resource.parent().map(|parent| &urls[parent]) },
        "request": { "method": "GET", "url": url, "headersSize": 400, "bodySize": 0 },
        "response": {
            "status": 200, "httpVersion": "h2", "_transferSize": bytes.max(1),
            "content": { "mimeType": mime_type(&resource.url), "size": bytes },
        },
        "timings": { "blocked": blocked, "send": 0, "wait": wait, "receive": receive },
    })
}

fn at(ms: u64) -> String {
    format!("2026-11-21T10:{:02}:{:02}.{:03}Z", ms / 60_000, ms / 1000 % 60, ms % 1000)
}

/// Returns the type by the end of the path, as far as that tells it.
fn mime_type(url: &str) -> &'static str {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    match path.rsplit('.').next() {
        Some("jpg" | "jpeg" | "png" | "gif" | "webp" | "ico" | "svg") => "image/*",
        Some("woff" | "woff2" | "ttf") => "font/*",
        Some("mp4" | "webm" | "ts" | "m4s") => "video/*",
        _ => "x-unknown",
    }
}
