//! Learning from recordings.

use headstart_pageload::db::{
    Built, Fact, Facts, Http2, Kind, LeftOut, Methods, Parts, RecordingError, Recordings, Rules,
    TargetError, write,
};
use headstart_pageload::page::Protocol;
use headstart_proto::UnixSeconds;

use super::pages::{Asked, DAY, asked, daily, day, page, page_behind, page_of, rules, target};

const DOCUMENT: &str = "https://www.a.test/";

fn build(recordings: &Recordings, rules: &Rules) -> Built {
    recordings.build(rules, Parts::ALL, UnixSeconds(100 * DAY)).unwrap()
}

fn prefetched(built: &Built) -> Vec<String> {
    let page = built.database.page(&target(DOCUMENT)).unwrap();
    page.prefetch.iter().map(|of| of.target.to_string()).collect()
}

#[test]
fn what_nine_of_ten_loads_ask_for_is_prefetched() {
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
                let count = if number == 0 { 1 } else { 3 };
                let over = |connection| Asked {
                    connection: Some(connection),
                    protocol: Protocol::Http1,
                    ..asked(&format!("https://cdn.a.test/{connection}"))
                };
                let mut requests = vec![Asked { connection: Some(9), ..asked(DOCUMENT) }];
                requests.extend((0..count).map(over));
                requests.push(Asked { anonymous: true, ..asked("https://cdn.a.test/font.woff2") });
                requests.extend((number == 1).then(|| over(7)));
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
    let moved = |status| Fact { is_get: true, status, kind: Kind::Document };
    facts.add(first, moved(301));
    facts.add(second, moved(302));
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

/// Recordings are read on all cores, and come in any order.
#[test]
fn the_same_recordings_make_the_same_file_in_any_order() {
    let load = |number: u64| {
        let to =
            if number.is_multiple_of(2) { "https://www.a.test/" } else { "https://other.test/" };
        let mut requests: Vec<Asked> = ["http://a.test/", to].map(asked).into();
        requests.push(Asked { bytes: number, ..asked("https://a.test/x") });
        requests.extend((0..=u32::try_from(number % 3).unwrap()).map(|connection| Asked {
            connection: Some(connection),
            ..asked(&format!("https://cdn.a.test/{connection}"))
        }));
        page_behind(1, &requests)
    };
    // Half of them without a date, the others three of a day.
    let loads: Vec<_> =
        (0..24).map(|number| ((number > 11).then_some(number / 3), load(number))).collect();
    let kinds = [Kind::Style, Kind::Script, Kind::Image];
    let made = |order: &[usize]| {
        let mut recordings = Recordings::new();
        for &number in order {
            let (at, page) = &loads[number];
            let mut facts = Facts::all_get();
            let kind = kinds[number % 3];
            facts.add("https://a.test/x", Fact { is_get: true, status: 200, kind });
            recordings.add(page, at.and_then(day), &facts).unwrap();
        }
        let rules = Rules { share: 500, newest: 5, ..rules(1) };
        let built = build(&recordings, &rules);
        (write(&built.database, None).unwrap(), built.left_out)
    };
    let forth: Vec<usize> = (0..24).collect();
    let back: Vec<usize> = forth.iter().rev().copied().collect();
    let mixed: Vec<usize> = forth.iter().map(|number| number * 7 % 24).collect();
    assert!(made(&forth) == made(&back) && made(&forth) == made(&mixed));
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
    let to = |part: &str| {
        let old = Asked { redirect: true, ..asked("https://a.test/old") };
        page(&[asked(DOCUMENT), old, Asked { parent: Some(1), ..asked(part) }])
    };
    let [one, two] = ["https://a.test/one", "https://a.test/two"];
    let half = Rules { share: 100, ..rules(1) };
    let learned = |pages: &[&str]| {
        let pages: Vec<_> = pages.iter().map(|part| to(part)).collect();
        let built = build(&daily(&pages), &half);
        built.database.redirect(&target("https://a.test/old")).map(|of| of.to().to_string())
    };
    assert_eq!(learned(&[one, two]), None);
    assert_eq!(learned(&[one, two, two]).as_deref(), Some(two));
}

#[test]
fn what_was_asked_for_with_authorization_is_of_one_user() {
    let entry = |url: &str, header: &str| {
        format!(
            r#"{{"request": {{"method": "get", "url": "{url}", "headers": [{{"name": "{header}", "value": "x"}}]}}}}"#
        )
    };
    let [mine, ours] = ["https://a.test/mine", "https://a.test/ours"];
    let har = format!(
        r#"{{"log": {{"entries": [{}, {}, {}, {{"request": {{"method": "GET", "url": "https://a.test/x", "headers": null}}}}]}}}}"#,
        entry(mine, "AUTHORIZATION"),
        entry(mine, "accept"),
        entry(ours, "accept"),
    );
    let methods = Methods::read(har.as_bytes()).unwrap();
    let page = page_of(&[DOCUMENT, mine, ours, "https://a.test/x"]);
    let fact = headstart_pageload::har::Facts { kind: Kind::Other, priority: None, status: 200 };
    let facts = Facts::of_resources(&page, &[fact; 4], &methods);
    let mut recordings = Recordings::new();
    (0..3).for_each(|number| recordings.add(&page, day(number), &facts).unwrap());
    let built = build(&recordings, &Rules::default());
    assert_eq!(prefetched(&built), [ours, "https://a.test/x"]);
    assert_eq!(built.left_out, [(LeftOut::Unsafe, 1)].into());
}

#[test]
fn redirects_that_change_or_contradict_are_left_out() {
    let to = |document: &str| page_behind(1, &["https://a.test/", document].map(asked));
    let mut loads = vec![to(DOCUMENT), to(DOCUMENT), to(DOCUMENT)];
    loads.extend([to("https://b.test/"), to("https://b.test/"), to("https://b.test/")]);
    let built = build(&daily(&loads), &Rules::default());
    assert_eq!(built.left_out, [(LeftOut::Disagreement, 2)].into());
    assert!(built.database.redirect(&target("https://a.test/")).is_none());
    let circle = |from: &str, to: &str| page_behind(1, &[from, to].map(asked));
    let [here, there] = ["https://a.test/1", "https://a.test/2"];
    let loads: Vec<_> = [(here, there), (there, here)]
        .repeat(3)
        .into_iter()
        .map(|(from, to)| circle(from, to))
        .collect();
    let built = build(&daily(&loads), &Rules::default());
    assert_eq!(built.left_out, [(LeftOut::Circle, 2)].into());
}

#[test]
fn hosts_that_speak_http2_are_learned_over_all_pages() {
    let load = |number: u64, document: &str| {
        let protocol = if number == 0 { Protocol::Http1 } else { Protocol::Http2 };
        let cdn = Asked { protocol, ..asked("https://cdn.test/x") };
        let quic = Asked { protocol: Protocol::Http3, ..asked("https://quic.test/x") };
        let old = Asked { protocol: Protocol::Http1, ..asked("https://old.test/x") };
        page(&[asked(document), cdn, quic, old, asked("https://cdn.test:8443/x")])
    };
    let loads: Vec<_> =
        (0..5).flat_map(|n| [load(n, DOCUMENT), load(n + 1, "https://b.test/")]).collect();
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
