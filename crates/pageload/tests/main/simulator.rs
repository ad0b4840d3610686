//! Invariants of every load by the profile `tcp`.

use std::time::Duration;

use headstart_pageload::page::{Dependency, Page, Part, Protocol, Resource, Server};
use headstart_pageload::sim::blast;
use headstart_pageload::sim::tcp::{
    Handshake, Link, Pools, Revisit, Settings, Technique, Techniques, Timers, load, load_with,
};
use proptest::prelude::*;
use proptest::sample::Index;

const RTT: Duration = Duration::from_millis(100);

fn server(protocol: Protocol, tls: bool) -> Server {
    Server { tls, pipelining: true, ..Server::https("", protocol) }
}

/// Its request fits a SYN as early data.
fn one_resource(bytes: u64) -> Page {
    let resource = Resource { request_bytes: 200, response_bytes: bytes, ..Resource::default() };
    Page::new("one".into(), vec![server(Protocol::Http2, true)], vec![resource]).unwrap()
}

fn quiet() -> Settings {
    Settings {
        link: Link { rtt: RTT, ..Link::default() },
        tls: Handshake { full: Duration::ZERO, resumed: Duration::ZERO, ..Handshake::default() },
        ..Settings::default()
    }
}

/// Servers by what they speak, and whether that is over TLS.
const ALL: &[(Protocol, bool)] = &[
    (Protocol::Http1, false),
    (Protocol::Http1, true),
    (Protocol::Http2, true),
    (Protocol::Http3, true),
];

type Drawn = ((Index, Index, u64, u64), (u64, u64, bool));

/// Pages of up to 40 resources from up to 6 servers, of up to `bytes` each.
fn pages(bytes: u64, servers: &'static [(Protocol, bool)]) -> impl Strategy<Value = Page> {
    let servers = prop::collection::vec(prop::sample::select(servers), 1..6);
    let one = (any::<Index>(), any::<Index>(), 0..=bytes, 0..=bytes);
    let more = (0..500u64, 0..500u64, any::<bool>());
    let resources = prop::collection::vec((one, more), 1..40);
    (servers, resources, 0..3usize).prop_map(|(servers, resources, redirects)| {
        let servers: Vec<_> =
            servers.into_iter().map(|(protocol, tls)| server(protocol, tls)).collect();
        let resource =
            |(id, ((on, from, size, part), (then, server_time, known))): (usize, Drawn)| {
                let parent = (id > 0).then(|| on.index(id));
                Resource {
                    dependencies: parent
                        .map(|on| Dependency {
                            on,
                            part: if part % 5 == 0 { Part::Whole } else { Part::Bytes(part) },
                            then: Duration::from_millis(then),
                        })
                        .into_iter()
                        .collect(),
                    server: from.index(servers.len()),
                    response_bytes: size,
                    server_time: Duration::from_millis(server_time),
                    in_prefetch_database: known,
                    ..Resource::default()
                }
            };
        let resources = resources.into_iter().enumerate().map(resource).collect();
        Page::new("page".into(), servers, resources).unwrap().with_redirects(redirects)
    })
}

fn techniques() -> impl Strategy<Value = Techniques> {
    prop::sample::subsequence(Technique::ALL.to_vec(), 0..=Technique::ALL.len())
        .prop_map(|list| Techniques::from_list(&list))
}

fn lossy() -> impl Strategy<Value = Link> {
    let rate = prop::option::of(1_000..10_000_000u64);
    (0..400u64, rate.clone(), rate, 0..500_000u64, 0.0..0.3).prop_map(
        |(rtt, down, up, queue, loss)| Link {
            rtt: Duration::from_millis(rtt),
            down,
            up,
            queue,
            loss,
        },
    )
}

/// Returns true if each redirect leads to the next, the last to the document, and none to anything
/// else.
fn redirects_are_a_chain(page: &Page) -> bool {
    let last = page.redirects();
    (1..).zip(&page.resources()[1..]).all(|(id, resource)| {
        let mut on = resource.dependencies.iter().map(|dependency| dependency.on);
        if id <= last { on.eq([id - 1]) } else { on.all(|on| on >= last) }
    })
}

fn doubled(settings: &Settings) -> Settings {
    let Settings { link, dns, tls, timers, .. } = settings;
    Settings {
        link: Link { rtt: 2 * link.rtt, ..*link },
        dns: 2 * *dns,
        tls: Handshake { full: 2 * tls.full, resumed: 2 * tls.resumed, ..*tls },
        timers: Timers {
            syn: 2 * timers.syn,
            fallback: 2 * timers.fallback,
            probe: 2 * timers.probe,
            idle: 2 * timers.idle,
        },
        ..settings.clone()
    }
}

fn doubled_page(page: &Page) -> Page {
    let resources = page
        .resources()
        .iter()
        .map(|resource: &Resource| {
            let mut resource = resource.clone();
            resource.server_time *= 2;
            for dependency in &mut resource.dependencies {
                dependency.then *= 2;
            }
            resource
        })
        .collect();
    Page::new(page.name().into(), page.servers().to_vec(), resources)
        .unwrap()
        .with_redirects(page.redirects())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn the_same_seed_gives_the_same(
        page in pages(200_000, ALL),
        techniques in techniques(),
        link in lossy(),
        share in 0.0..1.0,
        seed: u64,
    ) {
        let revisit = Revisit {
            cookies: share,
            moved: 0.3,
            sessions: share,
            shared_sessions: 0.9,
            addresses: share,
            connections: share / 2.0,
        };
        let dns = Duration::from_millis(20);
        let settings =
            Settings { link, techniques, revisit, hit_rate: 0.6, dns, ..Settings::default() };
        let once = load(&page, &settings, seed);
        prop_assert_eq!(&once, &load(&page, &settings, seed));
        for times in &once.resources {
            prop_assert!(times.created <= times.sent && times.sent <= times.first, "{:?}", times);
            prop_assert!(times.first <= times.last, "{:?}", times);
        }
    }

    #[test]
    fn twice_the_delays_are_twice_the_time(
        page in pages(200_000, ALL),
        techniques in techniques(),
        share in 0.0..1.0,
        seed: u64,
    ) {
        let revisit = Revisit { cookies: share, sessions: share, ..Revisit::default() };
        let settings = Settings { techniques, revisit, dns: RTT, ..Settings::default() };
        let once = load(&page, &settings, seed);
        let twice = load(&doubled_page(&page), &doubled(&settings), seed);
        prop_assert_eq!(twice.full_load_time(), 2 * once.full_load_time());
        prop_assert_eq!(twice.page_load_time(), 2 * once.page_load_time());
    }

    /// Where neither windows nor connections nor bandwidth are scarce. Where they are, what comes
    /// sooner can take another's place; and a pool of HTTP/1.1 that was asked sooner, and so one
    /// after the other, has fewer connections for what comes then.
    #[test]
    fn no_technique_slows_a_page(
        page in pages(300, &[(Protocol::Http2, true)]),
        share in 0.0..1.0,
        seed: u64,
    ) {
        let revisit = Revisit { cookies: share, sessions: share, ..Revisit::again() };
        let plain = Settings { revisit, dns: RTT, ..quiet() };
        let before = load(&page, &plain, seed).full_load_time();
        for technique in Technique::ALL {
            // Without its redirects a page lacks what only they asked for, and what that opened
            // connections to.
            if technique == Technique::RedirectDatabase && !redirects_are_a_chain(&page) {
                continue;
            }
            let techniques = Techniques::from_list(&[technique]);
            let settings = Settings { techniques, ..plain.clone() };
            let after = load(&page, &settings, seed).full_load_time();
            prop_assert!(after <= before, "{technique}: {before:?} without, {after:?} with");
        }
    }

    #[test]
    fn the_published_rules_are_deterministic(
        page in pages(200_000, ALL),
        rate in 0..1_000_000u32,
        rtt in 0..2_000u64,
        depth in 0..8usize,
        seed: u64,
    ) {
        let rtt = Duration::from_millis(rtt);
        let features = blast::Features::from_list(&blast::Feature::ALL[..depth.min(6)]);
        let settings = blast::Settings { rtt, rate, depth, features, ..blast::Settings::default() };
        let plan = blast::Plan::new(&page, &settings);
        let mut simulator = blast::Simulator::new();
        let once = simulator.load(&plan, &settings, seed);
        simulator.load(&plan, &settings, seed.wrapping_add(1));
        prop_assert_eq!(&once, &simulator.load(&plan, &settings, seed));
        let again = blast::Simulator::new().load(&plan, &settings, seed);
        prop_assert_eq!(once, again);
    }
}

/// A spare connection saves TCP's round trip at each host but the first.
#[test]
fn spares_wait_at_the_hosts_that_follow() {
    let page = Page::new(
        "two".into(),
        vec![server(Protocol::Http2, true), server(Protocol::Http2, true)],
        vec![
            Resource { response_bytes: 1_000, ..Resource::default() },
            Resource {
                server: 1,
                response_bytes: 1_000,
                dependencies: vec![Dependency::whole(0)],
                ..Resource::default()
            },
        ],
    );
    let page = page.unwrap();
    let trips = |list: &[Technique]| {
        let settings = Settings { techniques: Techniques::from_list(list), ..quiet() };
        let loaded = load(&page, &settings, 0);
        (loaded.resources[0].last, loaded.resources[1].last - loaded.resources[0].last)
    };
    assert_eq!(trips(&[]), (3 * RTT, 3 * RTT));
    assert_eq!(trips(&[Technique::Spares]), (3 * RTT, 2 * RTT));
}

/// The ledger of the project: round trips to the first response byte.
#[test]
fn openings_cost_what_the_ledger_says() {
    use Technique::{
        FastOpen, FastOpenPrivacy, Http3, OptimisticData, Resumption, TurboTls, ZeroRtt,
    };
    let ledger: [(&[Technique], Revisit, u32); 15] = [
        (&[], Revisit::default(), 3),
        (&[], Revisit::again(), 3),
        (&[Resumption], Revisit::again(), 3),
        (&[ZeroRtt], Revisit::again(), 2),
        (&[ZeroRtt], Revisit::default(), 3),
        (&[FastOpen], Revisit::again(), 2),
        (&[FastOpen], Revisit { moved: 1.0, ..Revisit::again() }, 3),
        (&[FastOpenPrivacy], Revisit { moved: 1.0, ..Revisit::again() }, 2),
        (&[FastOpenPrivacy, ZeroRtt], Revisit::again(), 1),
        (&[TurboTls], Revisit::default(), 2),
        (&[TurboTls, ZeroRtt], Revisit::again(), 1),
        (&[Http3], Revisit::default(), 2),
        (&[Http3, ZeroRtt], Revisit::again(), 1),
        (&[OptimisticData], Revisit::default(), 2),
        (&[], Revisit { connections: 1.0, ..Revisit::default() }, 1),
    ];
    for (list, revisit, round_trips) in ledger {
        let settings = Settings { techniques: Techniques::from_list(list), revisit, ..quiet() };
        let loaded = load(&one_resource(1_000), &settings, 0);
        assert_eq!(loaded.resources[0].last, round_trips * RTT, "{list:?}, {revisit:?}");
    }
}

#[test]
fn only_who_takes_part_gains() {
    let techniques = Techniques::from_list(&[Technique::TurboTls]);
    let settings = Settings { techniques, ..quiet() };
    let page = one_resource(1_000);
    assert_eq!(load_with(&page, &settings, |_| true, 0).page_load_time(), 2 * RTT);
    assert_eq!(load_with(&page, &settings, |_| false, 0).page_load_time(), 3 * RTT);
}

#[test]
fn early_data_that_fits_into_no_syn_comes_behind_it() {
    let techniques = Techniques::from_list(&[Technique::FastOpenPrivacy, Technique::ZeroRtt]);
    let settings = Settings { techniques, revisit: Revisit::again(), ..quiet() };
    for (request_bytes, round_trips) in [(200, 1), (400, 2)] {
        let resource = Resource { request_bytes, response_bytes: 1_000, ..Resource::default() };
        let servers = vec![server(Protocol::Http2, true)];
        let page = Page::new("one".into(), servers, vec![resource]).unwrap();
        assert_eq!(load(&page, &settings, 0).page_load_time(), round_trips * RTT);
    }
}

/// The server answers with five datagrams and, when the client has joined TCP, with a window of ten
/// segments.
#[test]
fn early_data_by_datagrams_is_answered_by_them_at_first() {
    let techniques = Techniques::from_list(&[Technique::TurboTls, Technique::ZeroRtt]);
    let settings = Settings { techniques, revisit: Revisit::again(), ..quiet() };
    for (bytes, round_trips) in [(5_900, 1), (6_000, 2), (20_000, 2), (21_000, 3)] {
        let load = load(&one_resource(bytes), &settings, 0);
        let (first, last) = (load.resources[0].first, load.page_load_time());
        assert_eq!((first, last), (RTT, round_trips * RTT), "{bytes}");
    }
}

#[test]
fn a_client_hello_that_fits_into_no_syn_gains_nothing_by_fast_open() {
    let tls = Handshake { client_hello: 1_800, ..quiet().tls };
    let revisit = Revisit::again();
    for (technique, round_trips) in [(Technique::FastOpenPrivacy, 3), (Technique::TurboTls, 2)] {
        let techniques = Techniques::from_list(&[technique]);
        let settings = Settings { techniques, revisit, tls, ..quiet() };
        assert_eq!(load(&one_resource(1), &settings, 0).page_load_time(), round_trips * RTT);
    }
}

#[test]
fn large_responses_take_slow_start_and_their_share_of_the_link() {
    // 10, 20, 40 and 30 segments.
    let unlimited = load(&one_resource(100 * 1_448), &quiet(), 0).page_load_time();
    assert_eq!(unlimited, 6 * RTT);
    let link = Link { rtt: RTT, down: Some(100_000), ..Link::default() };
    let limited = load(&one_resource(1_000_000), &Settings { link, ..quiet() }, 0).page_load_time();
    let least = Duration::from_secs(10);
    assert!(limited > least && limited < least.mul_f64(1.2), "{limited:?}");
}

#[test]
fn two_connections_share_the_link() {
    let servers = vec![server(Protocol::Http2, true); 2];
    let resources =
        [0, 1].map(|server| Resource { server, response_bytes: 500_000, ..Resource::default() });
    let page = Page::new("two".into(), servers, resources.into()).unwrap();
    let link = Link { rtt: RTT, down: Some(100_000), ..Link::default() };
    let loaded = load(&page, &Settings { link, ..quiet() }, 0);
    let [first, second] = [0, 1].map(|id| loaded.resources[id].last.as_secs_f64());
    assert!(first.max(second) > 10.0, "{first} {second}");
    assert!((first / second - 1.0).abs() < 0.25, "{first} {second}");
}

#[test]
fn loss_costs_time() {
    let losses = [0.0, 0.01, 0.1].map(|loss| {
        let link = Link { rtt: RTT, loss, ..Link::default() };
        let settings = Settings { link, ..quiet() };
        (0..50)
            .map(|seed| load(&one_resource(100_000), &settings, seed).page_load_time())
            .sum::<Duration>()
            / 50
    });
    assert!(losses.is_sorted() && losses[0] < losses[2], "{losses:?}");
}

#[test]
fn databases_help_as_often_as_they_know_the_page() {
    let servers = vec![server(Protocol::Http2, true)];
    let known = Resource { response_bytes: 1, in_prefetch_database: true, ..Resource::default() };
    let child = Resource { dependencies: vec![Dependency::whole(0)], ..known.clone() };
    let page = Page::new("known".into(), servers, vec![known, child]).unwrap();
    let techniques = Techniques::from_list(&[Technique::PrefetchDatabase]);
    let settings = Settings { techniques, hit_rate: 0.6, ..quiet() };
    let hits = (0..1_000).filter(|&seed| load(&page, &settings, seed).full_load_time() == 3 * RTT);
    let hits = hits.count();
    assert!((550..650).contains(&hits), "{hits}");
}

#[test]
fn odd_networks_and_pages_end() {
    let long: Vec<Resource> = (0..5_000)
        .map(|id: usize| {
            let before = id.checked_sub(1).map(|before| before - before % 50);
            Resource {
                dependencies: before
                    .map(|on| Dependency { part: Part::Bytes(0), ..Dependency::whole(on) })
                    .into_iter()
                    .collect(),
                server: id % 7,
                response_bytes: (id as u64 * 7_919) % 40_000,
                ..Resource::default()
            }
        })
        .collect();
    let [h1, h2] = [Protocol::Http1, Protocol::Http2].map(|protocol| {
        Page::new("long".into(), vec![server(protocol, true); 7], long.clone()).unwrap()
    });
    let pages = [one_resource(0), h1, h2];
    let links = [
        Link { rtt: Duration::ZERO, ..Link::default() },
        Link { rtt: Duration::ZERO, down: Some(0), up: Some(0), queue: 0, loss: 0.0 },
        Link { rtt: RTT, down: Some(0), up: Some(0), queue: 10_000, loss: 0.1 },
        Link { rtt: Duration::MAX, down: Some(1), up: None, queue: u64::MAX, loss: f64::NAN },
        Link { rtt: Duration::ZERO, loss: 1.0, ..Link::default() },
    ];
    for page in &pages {
        for link in links {
            let pools = Pools { connections: 0, depth: 0 };
            let settings = Settings { link, pools, hit_rate: f64::NAN, ..quiet() };
            let loaded = load(page, &settings, 0);
            assert!(loaded.resources.iter().all(|times| times.created <= times.last));
            let rules = blast::Settings {
                rtt: link.rtt,
                rate: u32::try_from(link.down.unwrap_or(0).min(1_000)).unwrap(),
                connections: 0,
                depth: 0,
                ..blast::Settings::default()
            };
            let plan = blast::Plan::new(page, &rules);
            let loaded = blast::Simulator::new().load(&plan, &rules, 0);
            assert!(loaded.resources.iter().all(|times| times.created <= times.last));
        }
    }
}
