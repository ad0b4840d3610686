//! Lookups over real sockets.

mod rotation;
mod server;

use super::hosts::HostsFile;
use super::queries::SERVICE_QUERIES;
use super::*;
use hickory_proto::{
    op::ResponseCode,
    rr::{
        RData, RecordType,
        rdata::{
            A,
            svcb::{SvcParamValue, Unknown},
        },
    },
};
use server::{Reply, Zone, advertised, at, hint, ip, mandatory, name, port};

use crate::time::{TIMEOUT, stop_clock};

const EDGE4: &str = "192.0.2.1";
const EDGE6: &str = "2001:db8::1";

/// All events of a lookup; `None` stands for an empty advertisement.
#[derive(Debug, Default, PartialEq)]
struct Outcome {
    addresses: Vec<IpAddr>,
    edge: Option<(String, Vec<SocketAddr>)>,
    failed: Option<DnsError>,
}

async fn outcome(resolver: &Resolver, host: &str) -> Outcome {
    events(resolver.resolve(host, HTTPS_PORT).unwrap()).await
}

async fn events(mut lookup: Lookup) -> Outcome {
    let mut outcome = Outcome::default();
    while let Some(event) = next(&mut lookup).await {
        match event {
            Event::Addresses(new) => outcome.addresses.extend(new),
            Event::Advert(edge) => outcome.edge = edge.map(|edge| (edge.target, edge.addresses)),
            Event::Failed(error) => outcome.failed = Some(error),
        }
    }
    outcome
}

async fn next(lookup: &mut Lookup) -> Option<Event> {
    timeout(TIMEOUT, lookup.next()).await.expect("the lookup hangs")
}

/// Returns the outcome when every answer is cached already, so that none can be too late.
async fn cached_outcome(resolver: &Resolver, host: &str) -> Outcome {
    outcome(resolver, host).await;
    no_query_pending(resolver).await;
    in_no_time(outcome(resolver, host)).await
}

/// Runs a future while the clock stands still.
async fn in_no_time<T>(future: impl Future<Output = T>) -> T {
    let stopped = stop_clock();
    let output = future.await;
    drop(stopped);
    tokio::time::resume();
    output
}

/// The outcome with private IPv4 addresses filtered out, except for `nas.example`.
async fn filtered_outcome(resolver: &Resolver, host: &str) -> Outcome {
    let filter: AddressFilter = Arc::new(|name, address| match address {
        IpAddr::V4(v4) => name == "nas.example" || !v4.is_private(),
        IpAddr::V6(_) => true,
    });
    cached_outcome(resolver, host).await;
    in_no_time(events(resolver.resolve(host, HTTPS_PORT).unwrap().filtered(host, &filter))).await
}

async fn no_query_pending(resolver: &Resolver) {
    eventually(|| resolver.source.service_queries.available_permits() == SERVICE_QUERIES).await;
}

async fn eventually(what: impl Fn() -> bool) {
    let poll = async {
        while !what() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(TIMEOUT, poll).await.expect("the condition never became true");
}

fn host() -> Zone {
    Zone::default().host("www.example.", EDGE4).host("www.example.", EDGE6)
}

fn found(addresses: &[&str], edge: Option<(&str, &[SocketAddr])>) -> Outcome {
    Outcome {
        addresses: addresses.iter().map(|a| ip(a)).collect(),
        edge: edge.map(|(target, at)| (target.to_owned(), at.to_vec())),
        failed: None,
    }
}

fn failed(error: DnsError) -> Outcome {
    Outcome { failed: Some(error), ..Outcome::default() }
}

#[tokio::test]
async fn addresses_and_advertisement() {
    let (zone, resolver) = host().edge("www.example.").serve().await;
    let both = [at(EDGE6, 443), at(EDGE4, 443)];
    let expected = found(&[EDGE6, EDGE4], Some(("www.example", &both)));
    assert_eq!(cached_outcome(&resolver, "WWW.example").await, expected);
    assert_eq!(zone.count("www.example.", RecordType::HTTPS), 1);
}

#[tokio::test]
async fn https_may_arrive_after_the_addresses() {
    let zone = host().edge("www.example.").reply("www.example.", RecordType::HTTPS, Reply::Gated);
    let (zone, resolver) = zone.serve().await;
    let _stopped = stop_clock();
    let mut lookup = resolver.resolve("www.example", 443).unwrap();
    let first = next(&mut lookup).await;
    assert!(matches!(first, Some(Event::Addresses(_))), "{first:?}");
    // Released only after the addresses are here, so they did not wait for it.
    zone.gate.notify_one();
    let mut edges = Vec::new();
    while let Some(event) = next(&mut lookup).await {
        if let Event::Advert(edge) = event {
            edges.push(edge);
        }
    }
    assert!(matches!(edges[..], [.., Some(_)]), "{edges:?}");
}

#[tokio::test]
async fn an_unanswered_https_query_delays_nothing_and_times_out() {
    let zone = host().edge("www.example.").reply("www.example.", RecordType::HTTPS, Reply::Silence);
    let (_zone, resolver) = zone.serve().await;
    let started = Instant::now();
    let mut lookup = resolver.resolve("www.example", 443).unwrap();
    assert!(matches!(next(&mut lookup).await, Some(Event::Addresses(_))));
    loop {
        match next(&mut lookup).await {
            Some(Event::Addresses(_)) => {}
            other => break assert_eq!(other, Some(Event::Advert(None))),
        }
    }
    assert!(started.elapsed() >= ADVERT_DELAY);
}

#[tokio::test]
async fn a_late_https_answer_serves_the_next_connection() {
    let zone = host().edge("www.example.").reply("www.example.", RecordType::HTTPS, Reply::Gated);
    let (zone, resolver) = zone.serve().await;
    assert_eq!(outcome(&resolver, "www.example").await.edge, None);
    zone.gate.notify_one();
    no_query_pending(&resolver).await;
    let edge = in_no_time(outcome(&resolver, "www.example")).await.edge;
    assert_eq!(edge.map(|(target, _)| target).as_deref(), Some("www.example"));
}

#[tokio::test]
async fn a_malformed_https_answer_is_ignored() {
    let zone =
        host().edge("www.example.").reply("www.example.", RecordType::HTTPS, Reply::Truncated);
    let (_zone, resolver) = zone.serve().await;
    let got = outcome(&resolver, "www.example").await;
    assert_eq!((got.addresses.len(), got.edge), (2, None));
}

#[tokio::test]
async fn a_refused_https_query_is_ignored() {
    let zone = host().edge("www.example.").reply(
        "www.example.",
        RecordType::HTTPS,
        Reply::Code(ResponseCode::ServFail),
    );
    let (_zone, resolver) = zone.serve().await;
    let got = outcome(&resolver, "www.example").await;
    assert_eq!((got.addresses.len(), got.edge), (2, None));
}

#[tokio::test]
async fn https_is_queried_for_its_port_only() {
    let (zone, resolver) = host().edge("www.example.").serve().await;
    let mut lookup = resolver.resolve("www.example", 8443).unwrap();
    let mut events = Vec::new();
    while let Some(event) = next(&mut lookup).await {
        events.push(event);
    }
    assert!(events.contains(&Event::Advert(None)));
    assert_eq!(zone.count("www.example.", RecordType::HTTPS), 0);
    assert_eq!(zone.count("www.example.", RecordType::A), 1);
}

#[tokio::test]
async fn the_edge_has_the_port_of_the_record() {
    let zone = Zone::default().host("www.example.", EDGE4).https(
        "www.example.",
        1,
        ".",
        vec![port(8443), advertised()],
    );
    let (_zone, resolver) = zone.serve().await;
    let expected = found(&[EDGE4], Some(("www.example", &[at(EDGE4, 8443)])));
    assert_eq!(cached_outcome(&resolver, "www.example").await, expected);
}

#[tokio::test]
async fn a_target_has_its_own_addresses() {
    let zone = Zone::default()
        .host("www.example.", "192.0.2.9")
        .https("www.example.", 1, "edge.example.", vec![advertised()])
        .host("edge.example.", EDGE4)
        .host("edge.example.", EDGE6);
    let (_zone, resolver) = zone.serve().await;
    let edge = [at(EDGE6, 443), at(EDGE4, 443)];
    let expected = found(&["192.0.2.9"], Some(("edge.example", &edge)));
    assert_eq!(cached_outcome(&resolver, "www.example").await, expected);
}

#[tokio::test]
async fn hints_save_the_query_for_the_target() {
    let zone = Zone::default().host("www.example.", "192.0.2.9").https(
        "www.example.",
        1,
        "edge.example.",
        vec![hint(EDGE4), advertised()],
    );
    let (zone, resolver) = zone.serve().await;
    let expected = found(&["192.0.2.9"], Some(("edge.example", &[at(EDGE4, 443)])));
    assert_eq!(cached_outcome(&resolver, "www.example").await, expected);
    assert_eq!(zone.count("edge.example.", RecordType::A), 0);
}

#[tokio::test]
async fn aliases_are_followed() {
    let zone = Zone::default()
        .host("example.", "192.0.2.9")
        .https("example.", 0, "one.example.", vec![])
        .https("one.example.", 0, "two.example.", vec![])
        .edge("two.example.")
        .host("two.example.", EDGE4);
    let (_zone, resolver) = zone.serve().await;
    let expected = found(&["192.0.2.9"], Some(("two.example", &[at(EDGE4, 443)])));
    assert_eq!(cached_outcome(&resolver, "example").await, expected);
}

#[tokio::test]
async fn a_name_may_have_only_an_alias() {
    let zone = Zone::default()
        .https("plain.example.", 0, "host.example.", vec![])
        .host("host.example.", "192.0.2.9")
        .https("fast.example.", 0, "edge.example.", vec![])
        .edge("edge.example.")
        .host("edge.example.", EDGE4);
    let (_zone, resolver) = zone.serve().await;
    assert_eq!(cached_outcome(&resolver, "plain.example").await, found(&["192.0.2.9"], None));
    let expected = found(&[EDGE4], Some(("edge.example", &[at(EDGE4, 443)])));
    assert_eq!(cached_outcome(&resolver, "fast.example").await, expected);
}

#[tokio::test]
async fn alias_loops_end() {
    let zone = Zone::default()
        .https("a.example.", 0, "b.example.", vec![])
        .https("b.example.", 0, "a.example.", vec![])
        .https("self.example.", 0, "self.example.", vec![])
        .https("gone.example.", 0, ".", vec![])
        .host("self.example.", EDGE4)
        .expiring_at_once();
    let (zone, resolver) = zone.serve().await;
    assert_eq!(outcome(&resolver, "a.example").await, failed(DnsError::NoAddress));
    no_query_pending(&resolver).await;
    assert_eq!(zone.count("b.example.", RecordType::HTTPS), 1);
    assert_eq!(outcome(&resolver, "self.example").await, found(&[EDGE4], None));
    assert_eq!(outcome(&resolver, "gone.example").await, failed(DnsError::NoAddress));
}

#[tokio::test]
async fn aliases_at_the_limit_and_one_over() {
    let mut zone = Zone::default().edge("n0.example.").host("n0.example.", EDGE4);
    for n in 1..=follow::ALIASES_MAX + 1 {
        let (owner, target) = (format!("n{n}.example."), format!("n{}.example.", n - 1));
        zone = zone.https(&owner, 0, &target, vec![]);
    }
    let (_zone, resolver) = zone.serve().await;
    let longest = cached_outcome(&resolver, &format!("n{}.example", follow::ALIASES_MAX)).await;
    assert_eq!(longest, found(&[EDGE4], Some(("n0.example", &[at(EDGE4, 443)]))));
    let over = cached_outcome(&resolver, &format!("n{}.example", follow::ALIASES_MAX + 1)).await;
    assert_eq!(over, failed(DnsError::NoAddress));
}

#[tokio::test]
async fn mandatory_keys_decide_over_the_wire() {
    let zone = Zone::default()
        .host("known.example.", EDGE4)
        .https("known.example.", 1, ".", vec![mandatory(&[3]), port(443), advertised()])
        .host("ours.example.", EDGE4)
        .https("ours.example.", 1, ".", vec![mandatory(&[crate::advert::KEY]), advertised()])
        .host("new.example.", EDGE4)
        .https(
            "new.example.",
            1,
            ".",
            vec![mandatory(&[7]), (7, SvcParamValue::Unknown(Unknown(vec![1]))), advertised()],
        );
    let (_zone, resolver) = zone.serve().await;
    let expected = found(&[EDGE4], Some(("known.example", &[at(EDGE4, 443)])));
    assert_eq!(cached_outcome(&resolver, "known.example").await, expected);
    assert_eq!(outcome(&resolver, "ours.example").await, found(&[EDGE4], None));
    assert_eq!(outcome(&resolver, "new.example").await, found(&[EDGE4], None));
}

#[tokio::test]
async fn cnames_lead_to_addresses_and_to_the_record() {
    let zone = Zone::default()
        .cname("www.example.", "cdn.example.")
        .cname("cdn.example.", "edge.example.")
        .host("edge.example.", EDGE4)
        .edge("edge.example.");
    let (_zone, resolver) = zone.serve().await;
    let expected = found(&[EDGE4], Some(("edge.example", &[at(EDGE4, 443)])));
    assert_eq!(cached_outcome(&resolver, "www.example").await, expected);
}

#[tokio::test]
async fn cname_loops_fail() {
    let zone = Zone::default().cname("a.example.", "b.example.").cname("b.example.", "a.example.");
    let (_zone, resolver) = zone.serve().await;
    assert!(outcome(&resolver, "a.example").await.failed.is_some());
}

#[tokio::test]
async fn records_of_other_names_are_ignored() {
    let evil = Zone::default().host("evil.example.", "192.0.2.66").edge("evil.example.");
    let mut zone =
        Zone::default().host("www.example.", EDGE4).https("www.example.", 2, ".", vec![port(443)]);
    zone.slipped_in = evil.records;
    let (_zone, resolver) = zone.serve().await;
    let expected = found(&[EDGE4], None);
    assert_eq!(cached_outcome(&resolver, "www.example").await, expected);
}

#[tokio::test]
async fn one_family_suffices() {
    let only6 = Zone::default().host("six.example.", EDGE6);
    let (_zone, resolver) = only6.serve().await;
    assert_eq!(outcome(&resolver, "six.example").await, found(&[EDGE6], None));
}

#[tokio::test]
async fn ipv4_does_not_wait_forever_for_ipv6() {
    let zone = host().reply("www.example.", RecordType::AAAA, Reply::Silence);
    let (_zone, resolver) = zone.serve().await;
    let mut lookup = resolver.resolve("www.example", 443).unwrap();
    assert_eq!(next(&mut lookup).await, Some(Event::Addresses(vec![ip(EDGE4)])));
}

#[tokio::test]
async fn a_slow_family_comes_second_and_widens_the_offer() {
    let zone = host().edge("www.example.").reply("www.example.", RecordType::A, Reply::Gated);
    let (zone, resolver) = zone.serve().await;
    resolver.source.services(&name("www.example.")).await.unwrap();
    let _stopped = stop_clock();
    let mut lookup = resolver.resolve("www.example", 443).unwrap();
    assert_eq!(next(&mut lookup).await, Some(Event::Addresses(vec![ip(EDGE6)])));
    let Some(Event::Advert(Some(edge))) = next(&mut lookup).await else { panic!() };
    assert!(edge.covers(ip(EDGE6)) && !edge.covers(ip(EDGE4)));
    zone.gate.notify_one();
    assert_eq!(next(&mut lookup).await, Some(Event::Addresses(vec![ip(EDGE4)])));
    let Some(Event::Advert(Some(edge))) = next(&mut lookup).await else { panic!() };
    assert!(edge.covers(ip(EDGE6)) && edge.covers(ip(EDGE4)));
    assert_eq!(next(&mut lookup).await, None);
}

#[tokio::test]
async fn errors_have_names() {
    let refused = Reply::Code(ResponseCode::Refused);
    let mut zone = Zone::default().edge("empty.example.");
    for (owner, reply) in [("refused.example.", refused), ("broken.example.", Reply::Truncated)] {
        for kind in [RecordType::A, RecordType::AAAA] {
            zone = zone.host(owner, EDGE4).host(owner, EDGE6).reply(owner, kind, reply);
        }
    }
    let (_zone, resolver) = zone.serve().await;
    for (host, error) in [
        ("none.example", DnsError::NoSuchName),
        ("empty.example", DnsError::NoAddress),
        ("refused.example", DnsError::Refused),
        ("broken.example", DnsError::Malformed),
    ] {
        assert_eq!(outcome(&resolver, host).await, failed(error), "{host}");
    }
}

#[tokio::test]
async fn a_silent_server_is_a_timeout() {
    let zone = host().reply("www.example.", RecordType::A, Reply::Silence).reply(
        "www.example.",
        RecordType::AAAA,
        Reply::Silence,
    );
    let (_zone, resolver) = zone.serve_with_timeout(Duration::from_millis(100)).await;
    assert_eq!(outcome(&resolver, "www.example").await, failed(DnsError::Timeout));
}

#[tokio::test]
async fn names_are_absolute() {
    let (zone, resolver) = Zone::default().host("www.", EDGE4).serve().await;
    assert_eq!(outcome(&resolver, "www").await, found(&[EDGE4], None));
    assert_eq!(outcome(&resolver, "nothing").await, failed(DnsError::NoSuchName));
    let queried = zone.queried.lock().unwrap().clone();
    assert!(queried.iter().all(|(name, _)| name.num_labels() == 1), "{queried:?}");
}

#[tokio::test]
async fn answers_are_cached_until_their_ttl_ends() {
    let zone = Zone::default()
        .with("long.example.", 300, RData::A(A(EDGE4.parse().unwrap())))
        .with("short.example.", 1, RData::A(A(EDGE4.parse().unwrap())))
        .edge("long.example.");
    let (zone, resolver) = zone.serve().await;
    for host in ["long.example", "short.example", "none.example"] {
        outcome(&resolver, host).await;
    }
    let short_since = Instant::now();
    loop {
        outcome(&resolver, "short.example").await;
        if zone.count("short.example.", RecordType::A) > 1 {
            break;
        }
        assert!(short_since.elapsed() < TIMEOUT, "the TTL of 1 s never ended");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    no_query_pending(&resolver).await;
    let edge = in_no_time(outcome(&resolver, "long.example")).await.edge;
    assert!(edge.is_some());
    assert_eq!(outcome(&resolver, "none.example").await, failed(DnsError::NoSuchName));
    for owner in ["long.example.", "none.example."] {
        for kind in [RecordType::A, RecordType::AAAA, RecordType::HTTPS] {
            assert_eq!(zone.count(owner, kind), 1, "{owner} {kind}");
        }
    }
}

#[tokio::test]
async fn the_shortest_ttl_bounds_an_offer() {
    let (_zone, resolver) = Zone::default()
        .with("www.example.", 20, RData::A(A(EDGE4.parse().unwrap())))
        .edge("www.example.")
        .serve()
        .await;
    let before = Instant::now();
    cached_outcome(&resolver, "www.example").await;
    let edge = in_no_time(resolver.advert_for("www.example", at(EDGE4, 443))).await.unwrap();
    assert!(edge.valid_until >= before + Duration::from_secs(19));
    assert!(edge.valid_until <= Instant::now() + Duration::from_secs(20));
}

#[tokio::test]
async fn literals_resolve_to_themselves() {
    let (zone, resolver) = Zone::default().serve().await;
    for (text, address) in
        [("192.0.2.7", "192.0.2.7"), ("192.0.2.7.", "192.0.2.7"), ("[::1]", "::1"), ("::1", "::1")]
    {
        assert_eq!(outcome(&resolver, text).await, found(&[address], None));
    }
    assert!(zone.queried.lock().unwrap().is_empty());
}

#[tokio::test]
async fn the_hosts_file_is_final_as_it_is_now_and_advertises_nothing() {
    let (zone, mut resolver) = host().edge("www.example.").serve().await;
    let file = tempfile::NamedTempFile::new().unwrap();
    let hosts = &mut Arc::get_mut(&mut resolver.source).unwrap().hosts;
    *hosts = HostsFile::new(Some(file.path().to_owned()));
    assert_eq!(outcome(&resolver, "localhost").await, found(&["::1", "127.0.0.1"], None));
    std::fs::write(file.path(), "10.1.1.1 www.example\n").unwrap();
    assert_eq!(outcome(&resolver, "www.example").await, found(&["10.1.1.1"], None));
    std::fs::write(file.path(), "10.1.1.10 www.example\n").unwrap();
    assert_eq!(outcome(&resolver, "www.example").await, found(&["10.1.1.10"], None));
    std::fs::write(file.path(), "10.1.1.1 www.example\n").unwrap();
    assert_eq!(resolver.advert_for("www.example", at("10.1.1.1", 443)).await, None);
    assert!(zone.queried.lock().unwrap().is_empty());
}

#[tokio::test]
async fn localhost_is_never_queried() {
    let (zone, resolver) = Zone::default().serve().await;
    assert_eq!(outcome(&resolver, "localhost").await, found(&["::1", "127.0.0.1"], None));
    assert!(zone.queried.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_dropped_lookup_ends_except_its_https_query() {
    let zone = host()
        .edge("www.example.")
        .reply("www.example.", RecordType::A, Reply::Silence)
        .reply("www.example.", RecordType::AAAA, Reply::Silence)
        .reply("www.example.", RecordType::HTTPS, Reply::Gated);
    let (zone, resolver) = zone.serve().await;
    let lookup = resolver.resolve("www.example", 443).unwrap();
    eventually(|| zone.count("www.example.", RecordType::HTTPS) > 0).await;
    drop(lookup);
    // The resolver itself and the HTTPS query are left.
    eventually(|| Arc::strong_count(&resolver.source) == 2).await;
    assert_eq!(resolver.source.service_queries.available_permits(), SERVICE_QUERIES - 1);
    zone.gate.notify_one();
    no_query_pending(&resolver).await;
    let queried = zone.count("www.example.", RecordType::HTTPS);
    resolver.source.services(&name("www.example.")).await.unwrap();
    assert_eq!(zone.count("www.example.", RecordType::HTTPS), queried);
}

#[tokio::test]
async fn a_literal_gets_the_offer_of_a_name_with_its_address() {
    let (_zone, resolver) = host().edge("www.example.").serve().await;
    assert!(cached_outcome(&resolver, "www.example").await.edge.is_some());
    for own in [EDGE4, EDGE6] {
        let edge = in_no_time(resolver.advert_for("www.example", at(own, 443))).await.unwrap();
        assert_eq!(edge.addresses, [at(own, 443)]);
    }
    let other = resolver.advert_for("www.example", at("192.0.2.77", 443)).await;
    assert_eq!(other, None);
    assert_eq!(resolver.advert_for("www.example", at(EDGE4, 8443)).await, None);
    assert_eq!(resolver.advert_for("none.example", at(EDGE4, 443)).await, None);
    assert_eq!(resolver.advert_for("not a name", at(EDGE4, 443)).await, None);
}

#[tokio::test]
async fn names_still_resolve_without_a_free_https_query() {
    let (zone, resolver) = host().edge("www.example.").serve().await;
    let all = u32::try_from(SERVICE_QUERIES).unwrap();
    let held = resolver.source.service_queries.clone().try_acquire_many_owned(all).unwrap();
    let got = outcome(&resolver, "www.example").await;
    assert_eq!((got.addresses.len(), got.edge), (2, None));
    assert_eq!(zone.count("www.example.", RecordType::HTTPS), 0);
    drop(held);
    assert!(cached_outcome(&resolver, "www.example").await.edge.is_some());
}

#[test]
fn host_names_at_the_limits_and_one_over() {
    let label = "x".repeat(63);
    let longest = format!("{label}.{label}.{label}.{}", "x".repeat(61));
    assert_eq!(longest.len(), 253);
    for good in [
        "a",
        "a.",
        "A-b_c.example",
        "_8443._https.example",
        "xn--bcher-kva.example",
        &label,
        &longest,
    ] {
        assert!(host_name(good).is_ok(), "{good}");
    }
    let (label, longest) = (format!("{label}x"), format!("{longest}x"));
    for bad in [
        "",
        ".",
        "..",
        "a..b",
        ".a",
        "a b",
        "a/b",
        "a\\.b",
        "b\u{fc}cher",
        "1.2.3.4",
        "1.2.3",
        "7",
        "0x7f000001",
        "a.0X",
        "::1",
        &label,
        &longest,
    ] {
        assert_eq!(host_name(bad).unwrap_err(), DnsError::InvalidName, "{bad}");
    }
}

#[tokio::test]
async fn names_do_not_lead_to_addresses_that_a_filter_does_not_permit() {
    let inside = vec![hint("10.0.0.9"), advertised()];
    let (_zone, resolver) = host()
        .host("mixed.example.", "10.0.0.1")
        .host("mixed.example.", EDGE4)
        .host("rebound.example.", "10.0.0.1")
        .host("rebound.example.", "::ffff:10.0.0.2")
        .host("nas.example.", "10.0.0.1")
        .https("www.example.", 1, "edge.example.", inside)
        .serve()
        .await;
    let mixed = filtered_outcome(&resolver, "mixed.example").await;
    assert_eq!(mixed, found(&[EDGE4], None));
    let rebound = filtered_outcome(&resolver, "rebound.example").await;
    assert_eq!(rebound, failed(DnsError::NotPermitted));
    assert_eq!(filtered_outcome(&resolver, "NAS.example.").await, found(&["10.0.0.1"], None));
    // The record's hint leads inside, so it names no edge.
    assert_eq!(filtered_outcome(&resolver, "www.example").await, found(&[EDGE6, EDGE4], None));
    assert_eq!(filtered_outcome(&resolver, "10.0.0.1").await, found(&["10.0.0.1"], None));
}
