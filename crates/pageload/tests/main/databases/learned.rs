//! Learning from recordings.

use headstart_pageload::db::{
    Built, Fact, Facts, Http2, Kind, LeftOut, Methods, Parts, RecordingError, Recordings, Rules,
    TargetError, write,
};
use headstart_pageload::page::{Page, Protocol};
use headstart_proto::UnixSeconds;
use serde_json::{Value, json};

use super::pages::{
    Asked, DAY, asked, daily, day, page, page_behind, page_of, rules, target, with_redirect_to,
};

const DOCUMENT: &str = "https://www.a.test/";

fn build(recordings: &Recordings, rules: &Rules) -> Built {
    recordings.build(rules, Parts::ALL, UnixSeconds(100 * DAY)).unwrap()
}

fn prefetched(built: &Built) -> Vec<String> {
    let page = built.database.page(&target(DOCUMENT)).unwrap();
    page.prefetch.iter().map(|of| of.target.to_string()).collect()
}

#[test]
fn resources_of_nine_in_ten_loads_are_prefetched() {
    let [a, b, c] = ["https://a.test/a.css", "https://b.test/b", "https://c.test/c"];
    let recordings = daily(
        &(0..10)
            .map(|number| {
                let mut urls = vec![DOCUMENT, a];
                urls.extend((number != 3).then_some(b));
                urls.extend((number != 3 && number != 4).then_some(c));
                page_of(&urls)
            })
            .collect::<Vec<_>>(),
    );
    let built = build(&recordings, &Rules::default());
    assert_eq!(prefetched(&built), [a, b]);
    let page = built.database.page(&target(DOCUMENT)).unwrap();
    assert_eq!((page.recordings, page.age_days), (10, Some(91)));
    assert_eq!(page.prefetch[0].kind, Kind::Style);
    assert_eq!(
        prefetched(&build(&recordings, &Rules { share: 800, ..Rules::default() })),
        [a, b, c]
    );
    assert_eq!(prefetched(&build(&recordings, &Rules { share: 901, ..Rules::default() })), [a]);
    let newest = Rules { newest: 5, ..Rules::default() };
    assert_eq!(prefetched(&build(&recordings, &newest)), [a, b, c]);
    assert_eq!(built.left_out, [].into());
}

#[test]
fn pages_with_few_recordings_are_left_out() {
    let recordings = daily(&[page_of(&[DOCUMENT]), page_of(&[DOCUMENT])]);
    let built = build(&recordings, &Rules::default());
    assert!(built.database.pages().is_empty());
    assert_eq!(built.left_out, [(LeftOut::FewRecordings, 1)].into());
    assert_eq!(build(&recordings, &rules(2)).database.pages().len(), 1);
}

#[test]
fn only_what_is_safe_is_prefetched() {
    let [post, unknown, varies, constant, moved, mixed] = [
        "https://a.test/post",
        "https://a.test/unknown",
        "https://a.test/varies?1",
        "https://a.test/constant?v=1",
        "https://a.test/missing",
        "http://a.test/mixed",
    ];
    let mut facts = Facts::new();
    let get = Fact { is_get: true, status: 200, kind: Kind::Other };
    for url in [DOCUMENT, varies, "https://a.test/varies?2", constant, mixed] {
        facts.add(url, get);
    }
    facts.add(moved, Fact { status: 404, ..get });
    facts.add(post, Fact { is_get: false, ..get });
    facts.add(post, get);
    let mut recordings = Recordings::new();
    for number in 0..10 {
        let mut urls = vec![DOCUMENT, post, unknown, varies, constant, moved, mixed];
        // One of ten loads asks for another query as well.
        urls.extend((number == 5).then_some("https://a.test/varies?2"));
        recordings.add(&page_of(&urls), day(number), &facts).unwrap();
    }
    let built = build(&recordings, &Rules::default());
    assert_eq!(prefetched(&built), [constant]);
    let expected = [
        (LeftOut::Unsafe, 1),
        (LeftOut::UnknownMethod, 1),
        (LeftOut::VaryingQuery, 1),
        (LeftOut::Mixed, 1),
        (LeftOut::Status, 1),
    ];
    assert_eq!(built.left_out, expected.into());
}

#[test]
fn queries_of_published_loads_are_cut_and_so_left_out() {
    let mut recordings = Recordings::new();
    for number in 0..3 {
        let page = page_of(&[DOCUMENT, "https://a.test/q?cut", "https://a.test/whole"]);
        recordings.add(&page, day(number), &Facts::published()).unwrap();
    }
    let built = build(&recordings, &Rules::default());
    assert_eq!(prefetched(&built), ["https://a.test/whole"]);
    assert_eq!(built.left_out, [(LeftOut::CutQuery, 1)].into());
}

#[test]
fn as_many_connections_as_nine_of_ten_loads_need() {
    let recordings = daily(
        &(0..10)
            .map(|number: u64| {
                let connections = match number {
                    0 => vec![0],
                    1 => vec![0, 1, 2, 7],
                    _ => vec![0, 1, 2],
                };
                let mut requests = vec![Asked { connection: Some(9), ..asked(DOCUMENT) }];
                requests.push(Asked { anonymous: true, ..asked("https://cdn.a.test/font.woff2") });
                requests.extend(connections.into_iter().map(|connection: u32| Asked {
                    connection: Some(connection),
                    protocol: Protocol::Http1,
                    ..asked(&format!("https://cdn.a.test/{connection}"))
                }));
                page(&requests)
            })
            .collect::<Vec<_>>(),
    );
    let built = build(&recordings, &Rules::default());
    let page = built.database.page(&target(DOCUMENT)).unwrap();
    let servers: Vec<_> = page
        .servers
        .iter()
        .map(|of| (of.origin.to_string(), of.anonymous, of.connections))
        .collect();
    let expected = [
        ("https://cdn.a.test", false, 3),
        ("https://cdn.a.test", true, 1),
        ("https://www.a.test", false, 1),
    ];
    assert_eq!(
        servers,
        expected.map(|(origin, anonymous, count)| (origin.to_owned(), anonymous, count))
    );
}

#[test]
fn redirects_are_kept_step_by_step() {
    let [first, second] = ["http://a.test/", "https://a.test/"];
    let mut facts = Facts::all_get();
    for (url, status) in [(first, 301), (second, 302)] {
        facts.add(url, Fact { is_get: true, status, kind: Kind::Document });
    }
    let part = "https://a.test/old.js";
    let mut recordings = Recordings::new();
    for number in 0..3 {
        let mut requests: Vec<Asked> = [first, second, DOCUMENT].map(asked).into();
        requests.push(Asked { parent: Some(2), redirect: true, ..asked(part) });
        requests.push(Asked { parent: Some(3), ..asked("https://a.test/new.js") });
        recordings.add(&page_behind(2, &requests), day(number), &facts).unwrap();
    }
    let built = build(&recordings, &Rules::default());
    let redirect = built.database.redirect(&target(first)).unwrap();
    let hops: Vec<_> =
        redirect.hops.iter().map(|hop| (hop.to.to_string(), hop.permanent)).collect();
    assert_eq!(hops, [(second.to_owned(), true), (DOCUMENT.to_owned(), false)]);
    assert!(redirect.of_document && !redirect.is_permanent());
    let of_part = built.database.redirect(&target(part)).unwrap();
    assert_eq!(of_part.to().to_string(), "https://a.test/new.js");
    assert!(!of_part.of_document);
    // With the redirect known, nobody connects to where it was; and neither it nor the page is
    // prefetched.
    let page = built.database.page(&target(DOCUMENT)).unwrap();
    let servers: Vec<_> = page.servers.iter().map(|of| of.origin.to_string()).collect();
    assert_eq!(servers, ["https://a.test", "https://www.a.test"]);
    assert_eq!(prefetched(&built), ["https://a.test/new.js"]);
}

/// One of 24 loads that differ: in where they lead, in sizes and connections.
fn varied_load(number: u32) -> Page {
    let to = if number.is_multiple_of(2) { "https://www.a.test/" } else { "https://other.test/" };
    let mut requests: Vec<Asked> = ["http://a.test/", to].map(asked).into();
    requests.push(Asked { bytes: number.into(), ..asked("https://a.test/x") });
    requests.extend((0..=number % 3).map(|connection| Asked {
        connection: Some(connection),
        ..asked(&format!("https://cdn.a.test/{connection}"))
    }));
    page_behind(1, &requests)
}

/// Recordings are read on all cores, and come in any order.
#[test]
fn the_same_recordings_make_the_same_file_in_any_order() {
    let forth: Vec<u32> = (0..24).collect();
    let back: Vec<u32> = forth.iter().rev().copied().collect();
    let mixed: Vec<u32> = forth.iter().map(|number| number * 7 % 24).collect();
    let [forth, back, mixed] = [forth, back, mixed].map(|order| {
        let mut recordings = Recordings::new();
        for number in order {
            let mut facts = Facts::all_get();
            let kind = [Kind::Style, Kind::Script, Kind::Image][number as usize % 3];
            facts.add("https://a.test/x", Fact { is_get: true, status: 200, kind });
            // Half of them without a date, the others three of a day.
            let at = (number > 11).then(|| day(u64::from(number) / 3)).flatten();
            recordings.add(&varied_load(number), at, &facts).unwrap();
        }
        let built = build(&recordings, &Rules { share: 500, newest: 5, ..rules(1) });
        (write(&built.database, None).unwrap(), built.left_out)
    });
    assert!(forth == back && forth == mixed);
}

#[test]
fn a_recording_that_is_given_twice_counts_once() {
    let page = page_of(&[DOCUMENT, "https://a.test/x"]);
    let other = page_of(&[DOCUMENT, "https://a.test/x", "https://a.test/y"]);
    let mut recordings = Recordings::new();
    for (page, at) in [(&page, day(1)), (&page, day(1)), (&other, day(1)), (&page, day(2))] {
        recordings.add(page, at, &Facts::all_get()).unwrap();
    }
    let built = build(&recordings, &Rules::default());
    assert_eq!((recordings.count(), built.database.pages()[0].recordings), (3, 3));
    assert_eq!(built.left_out, [(LeftOut::Twice, 1)].into());
    // Without a date nobody knows.
    for _ in 0..2 {
        recordings.add(&page, None, &Facts::all_get()).unwrap();
    }
    assert_eq!(recordings.count(), 5);
}

#[test]
fn a_redirect_is_learned_if_most_loads_go_that_way() {
    let [one, two] = ["https://a.test/one", "https://a.test/two"];
    let half = Rules { share: 100, ..rules(1) };
    for (loads, learned) in [(&[one, two][..], None), (&[one, two, two], Some(two))] {
        let loads: Vec<_> = loads.iter().map(|to| with_redirect_to(to)).collect();
        let built = build(&daily(&loads), &half);
        let redirect = built.database.redirect(&target("https://a.test/old"));
        assert_eq!(redirect.map(|of| of.to().to_string()).as_deref(), learned);
    }
}

#[test]
fn requests_with_authorization_belong_to_one_user() {
    let [mine, ours] = ["https://a.test/mine", "https://a.test/ours"];
    let mut entries: Vec<Value> = [(mine, "AUTHORIZATION"), (mine, "accept"), (ours, "accept")]
        .map(|(url, name)| {
            let headers = json!([{ "name": name, "value": "x" }]);
            json!({ "request": { "method": "get", "url": url, "headers": headers } })
        })
        .into();
    let without = json!({ "method": "GET", "url": "https://a.test/x", "headers": null });
    entries.push(json!({ "request": without }));
    let har = json!({ "log": { "entries": entries } }).to_string();
    let methods = Methods::read(har.as_bytes()).unwrap();
    let page = page_of(&[DOCUMENT, mine, ours, "https://a.test/x"]);
    let fact = headstart_pageload::har::Facts {
        kind: Kind::Other,
        priority: None,
        blocks_rendering: false,
        status: 200,
    };
    let facts = Facts::of_resources(&page, &[fact; 4], &methods);
    let mut recordings = Recordings::new();
    (0..3).for_each(|number| recordings.add(&page, day(number), &facts).unwrap());
    let built = build(&recordings, &Rules::default());
    assert_eq!(prefetched(&built), [ours, "https://a.test/x"]);
    assert_eq!(built.left_out, [(LeftOut::Unsafe, 1)].into());
}

#[test]
fn redirects_that_change_or_contradict_are_left_out() {
    let other = "https://b.test/";
    let documents = [DOCUMENT, DOCUMENT, DOCUMENT, other, other, other];
    let loads = documents.map(|to| page_behind(1, &["https://a.test/", to].map(asked)));
    let built = build(&daily(&loads), &Rules::default());
    assert_eq!(built.left_out, [(LeftOut::Disagreement, 2)].into());
    assert!(built.database.redirect(&target("https://a.test/")).is_none());
    let circle = ["https://a.test/1", "https://a.test/2", "https://a.test/1"].map(asked);
    let loads = [0, 1, 0, 1, 0, 1].map(|first: usize| page_behind(1, &circle[first..first + 2]));
    let built = build(&daily(&loads), &Rules::default());
    assert_eq!(built.left_out, [(LeftOut::Circle, 2)].into());
}

#[test]
fn hosts_that_speak_http2_are_learned_over_all_pages() {
    // Ten loads of two documents; in the first, cdn.test speaks HTTP/1.1.
    let loads: Vec<_> = (0..10)
        .map(|number: usize| {
            let protocol = if number == 0 { Protocol::Http1 } else { Protocol::Http2 };
            page(&[
                asked([DOCUMENT, "https://b.test/"][number % 2]),
                Asked { protocol, ..asked("https://cdn.test/x") },
                Asked { protocol: Protocol::Http3, ..asked("https://quic.test/x") },
                Asked { protocol: Protocol::Http1, ..asked("https://old.test/x") },
                asked("https://cdn.test:8443/x"),
            ])
        })
        .collect();
    let built = build(&daily(&loads), &Rules::default());
    assert_eq!(built.database.speaks("cdn.test"), Some(Http2::Http2));
    assert_eq!(built.database.speaks("quic.test"), Some(Http2::Http3));
    assert_eq!(built.database.speaks("old.test"), None);
}

#[test]
fn private_pages_and_urls_are_left_out() {
    let mut recordings = Recordings::new();
    let intranet = page_of(&["https://wiki.internal/"]);
    let refused = recordings.add(&intranet, None, &Facts::all_get());
    assert_eq!(refused, Err(RecordingError::Document(TargetError::Private)));
    for _ in 0..3 {
        let page = page_of(&[DOCUMENT, "http://192.168.0.1/logo.png", "https://me@a.test/x"]);
        recordings.add(&page, None, &Facts::all_get()).unwrap();
    }
    let built = build(&recordings, &Rules::default());
    let page = &built.database.pages()[0];
    assert_eq!((page.prefetch.len(), page.age_days), (0, None));
    let names: Vec<_> = page.servers.iter().map(|of| of.origin.host().to_owned()).collect();
    assert_eq!(names, ["a.test", "www.a.test"]);
    let expected =
        [(LeftOut::Url(TargetError::Credentials), 3), (LeftOut::Url(TargetError::Private), 3)];
    assert_eq!(built.left_out, expected.into());
}

#[test]
fn only_the_databases_that_are_wanted_are_made() {
    let recordings = daily(&vec![page_of(&[DOCUMENT, "https://a.test/x"]); 3]);
    let parts = Parts { server: true, ..Parts::NONE };
    let built = recordings.build(&Rules::default(), parts, UnixSeconds(0)).unwrap();
    let page = &built.database.pages()[0];
    assert_eq!((page.servers.len(), page.prefetch.len()), (2, 0));
    assert!(built.database.http2().is_empty());
}
