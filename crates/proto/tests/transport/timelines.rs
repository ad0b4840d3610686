//! One snapshot per path: what happens when, and how many round trips it costs.
//!
//! `UPDATE_TIMELINES=1` rewrites the files. The tests also assert the totals, against the ledger in
//! docs, so that a rewritten file cannot hide a lost round trip.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use headstart_emulation::{Delay, Link, Loss};
use headstart_proto::wire::{REQUEST_PAYLOAD_MAX, RESPONSE_PAYLOAD_MAX};
use headstart_proto::{ClientConfig, GraceEstimator, ServerConfig};

use crate::sim::{End, HALF, Host, Outcome, RTT, Scenario, Script, run};

/// ClientHello of one datagram, server flight of three.
fn tls13(think: u64) -> Script {
    Script::tls13(300, 2 * RESPONSE_PAYLOAD_MAX + 600, Duration::from_millis(think))
}

/// ClientHello of three datagrams, as post-quantum key shares may make it.
fn large_hello() -> Script {
    Script::tls13(2 * REQUEST_PAYLOAD_MAX + 700, 2 * RESPONSE_PAYLOAD_MAX + 600, Duration::ZERO)
}

/// Returns [`Scenario::new`] with few slots, which keeps the files short.
fn turbo(script: Script) -> Scenario {
    Scenario { offer: Some(client(false)), splice: false, log: true, ..Scenario::new(script) }
}

fn client(early_data: bool) -> ClientConfig {
    ClientConfig { slots: 5, early_data, hold: false }
}

fn edge(early_data: bool, same_address: bool) -> Host {
    Host::Edge(ServerConfig { early_data, same_address, ..ServerConfig::default() })
}

/// Returns one direction, to which a test may add faults.
fn way() -> Link {
    Link::default().with(Delay(HALF))
}

fn lossy(numbers: &[u64]) -> Link {
    way().with(Loss::exact(numbers.iter().copied()))
}

/// Compares the run with its file, and its totals with the allowed cost: milliseconds, at a round
/// trip of 100 ms, until the first request byte leaves and until the first response byte arrives.
fn expect(
    name: &str,
    scenario: Scenario,
    request: impl Into<Option<u64>>,
    response: impl Into<Option<u64>>,
) -> Outcome {
    let (script, host) = (scenario.script.clone(), scenario.tcp_host);
    let outcome = run(scenario);
    let [request, response] = [request.into(), response.into()]
        .map(|millis: Option<u64>| millis.map(Duration::from_millis));
    assert_eq!(outcome.first_request, request, "{name}: first request byte");
    assert_eq!(outcome.first_response, response, "{name}: first response byte");
    if response.is_some() {
        assert_eq!(outcome.app, (script.server_stream(), Some(End::Finished)), "{name}");
        assert!(outcome.origin() == script.client_stream(), "{name}");
    }
    assert_eq!(outcome.unproven, 0, "{name}");
    assert!(host.is_some() || outcome.hellos <= 1 || name == "restart-uncommitted", "{name}");
    compare(name, &text(name, &outcome));
    outcome
}

fn rtts(at: Duration) -> f64 {
    at.as_secs_f64() / RTT.as_secs_f64()
}

fn total(at: Option<Duration>) -> String {
    at.map_or("never".into(), |at| format!("{:.2} RTT", rtts(at)))
}

fn text(name: &str, outcome: &Outcome) -> String {
    let mut text = format!("{name}: round trip 100 ms, grace 25 ms\n\n");
    for (at, who, what) in &outcome.log.lines {
        let millis = at.as_secs_f64() * 1000.0;
        writeln!(text, "{millis:8.1} ms {:6.2} RTT  {who:<6}  {what}", rtts(*at))
            .expect("text takes all");
    }
    writeln!(text, "\nfirst request byte leaves:   {}", total(outcome.first_request))
        .expect("text takes all");
    writeln!(text, "first response byte arrives: {}", total(outcome.first_response))
        .expect("text takes all");
    text
}

fn compare(name: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/timelines")
        .join(format!("{name}.txt"));
    if std::env::var_os("UPDATE_TIMELINES").is_some() {
        return std::fs::write(path, text).expect("the timeline is written");
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(stored == text, "{name} differs from {}:\n{text}", path.display());
}

// W-SEND-1
#[test]
fn plain() {
    let scenario = Scenario { log: true, splice: false, ..turbo(tls13(0)).plain() };
    expect("plain", scenario, 200, 300);
}

#[test]
fn turbotls() {
    expect("turbotls", turbo(tls13(0)), 100, 200);
    expect("turbotls-large-hello", turbo(large_hello()), 100, 200);
}

#[test]
fn flight_longer_than_the_slots() {
    let script = Script::tls13(300, 8 * RESPONSE_PAYLOAD_MAX, Duration::ZERO);
    expect("long-flight", turbo(script), 200, 300);
}

fn early_data() -> Script {
    Script::early_data(500, 400, 2000, Duration::ZERO)
}

#[test]
fn early_data_over_udp_takes_no_round_trip() {
    let scenario =
        Scenario { offer: Some(client(true)), host: edge(true, false), ..turbo(early_data()) };
    expect("early-data", scenario, 0, 100);
}

// W-SEND-3
#[test]
fn early_data_waits_for_tcp_if_the_edge_does_not_accept_it_over_udp() {
    expect("early-data-not-over-udp", turbo(early_data()), 100, 200);
}

#[test]
fn early_data_that_needs_a_proven_address_waits_for_the_join() {
    let scenario =
        Scenario { offer: Some(client(true)), host: edge(true, true), ..turbo(early_data()) };
    expect("early-data-proven-address", scenario, 0, 200);
}

#[test]
fn blocked_early_data_joins_from_the_start() {
    let scenario = Scenario {
        offer: Some(client(true)),
        host: edge(true, false),
        up: way().with(Loss::all_udp()),
        ..turbo(early_data())
    };
    // The datagrams leave immediately, and are lost.
    expect("early-data-udp-blocked", scenario, 0, 225);
}

#[test]
fn a_lost_fragment_that_slots_replace_costs_nothing() {
    // Five slots reach back to byte 1,169: into the first fragment.
    for lost in 2..=3 {
        let scenario = Scenario { up: lossy(&[lost]), ..turbo(large_hello()) };
        expect(&format!("fragment-{lost}-lost"), scenario, 100, 200);
    }
    let scenario = Scenario { up: lossy(&[1]), ..turbo(tls13(0)) };
    expect("hello-lost", scenario, 100, 200);
}

#[test]
fn a_lost_fragment_that_no_slot_replaces_costs_plain_and_grace() {
    for (name, lost) in
        [("fragment-1-lost", &[1][..]), ("fragment-3-and-its-pieces-lost", &[3, 4, 5])]
    {
        let scenario = Scenario { up: lossy(lost), ..turbo(large_hello()) };
        expect(name, scenario, 225, 325);
    }
}

#[test]
fn a_lost_response_costs_plain_and_grace_and_a_lost_acknowledgement_nothing() {
    for lost in 1..=4 {
        let scenario = Scenario { down: lossy(&[lost]), ..turbo(tls13(0)) };
        let late = if lost == 1 { 0 } else { 125 };
        expect(&format!("response-{lost}-lost"), scenario, 100 + late, 200 + late);
    }
}

#[test]
fn udp_blocked() {
    let scenario = Scenario { up: way().with(Loss::all_udp()), ..turbo(tls13(0)) };
    expect("udp-blocked", scenario, 225, 325);
}

#[test]
fn udp_late() {
    let scenario = Scenario { down: way().with(Delay::millis(60)), ..turbo(tls13(0)) };
    expect("udp-late", scenario, 225, 325);
}

#[test]
fn udp_blocked_on_the_way_back_attaches_the_plain_stream() {
    let scenario = Scenario { down: way().with(Loss::all_udp()), ..turbo(tls13(0)) };
    let outcome = expect("plain-attached", scenario, 225, 325);
    assert_eq!((outcome.hellos, outcome.origins.len()), (1, 1));
}

fn late_hello(proven: bool) -> Scenario {
    let script = Script { starts_at: Duration::from_millis(80), ..tls13(0) };
    Scenario { path: Some((GraceEstimator::default(), proven)), ..turbo(script) }
}

#[test]
fn a_late_hello_saves_what_is_left_of_the_round_trip() {
    expect("late-hello", late_hello(true), 180, 280);
}

#[test]
fn a_late_hello_on_a_new_path_costs_nothing() {
    expect("late-hello-on-a-new-path", late_hello(false), 200, 300);
}

#[test]
fn server_without_support() {
    let scenario = Scenario { host: Host::TlsServer, ..turbo(tls13(0)) };
    expect("server-without-support", scenario, 225, 325);
}

#[test]
fn a_slow_origin_costs_one_round_trip_and_its_own_time() {
    expect("origin-13-ms", turbo(tls13(13)), 113, 213);
    // The client sends the join after the grace; the flight comes over TCP, no later than over UDP.
    expect("origin-300-ms", turbo(tls13(300)), 400, 500);
}

#[test]
fn hold_saves_nothing() {
    let held = ClientConfig { hold: true, ..client(false) };
    let scenario = Scenario { offer: Some(held), ..turbo(tls13(0)) };
    expect("hold", scenario, 200, 300);
}

#[test]
fn hello_retry_and_tls12_save_one_round_trip_of_three() {
    expect("hello-retry-request", turbo(Script::hello_retry(300, 3000)), 200, 300);
    expect("tls12", turbo(Script::tls12(300, 3000)), 200, 300);
}

#[test]
fn an_edge_restarted_under_a_committed_client_resets_the_application() {
    let scenario = Scenario {
        restart_at: Some(RTT),
        connect: Some(Duration::from_millis(160)),
        ..turbo(tls13(0))
    };
    let outcome = expect("restart-committed", scenario, 160, None);
    assert_eq!(outcome.app.1, Some(End::Reset));
}

#[test]
fn an_edge_restarted_under_an_uncommitted_client_starts_anew() {
    let scenario = Scenario {
        restart_at: Some(RTT),
        connect: Some(Duration::from_millis(160)),
        down: lossy(&[2]),
        ..turbo(tls13(0))
    };
    expect("restart-uncommitted", scenario, 285, 385);
}

#[test]
fn a_join_may_come_from_another_address() {
    let [accepted, refused] = [false, true].map(|same_address| Scenario {
        host: edge(false, same_address),
        tcp_source: "198.51.100.7".parse().unwrap(),
        ..turbo(tls13(0))
    });
    expect("joined-from-elsewhere", accepted, 100, 200);
    let outcome = expect("joined-from-elsewhere-refused", refused, 100, None);
    assert_eq!(outcome.app.1, Some(End::Reset));
}

// W-STATE-2
#[test]
fn tcp_to_another_address_is_plain() {
    let scenario =
        Scenario { tcp_host: Some(edge(false, false)), same_address: false, ..turbo(tls13(0)) };
    expect("tcp-to-another-address", scenario, 200, 300);
}

#[test]
fn the_application_sees_that_tcp_is_refused() {
    let scenario = Scenario { connect: None, ..turbo(tls13(0)) };
    let outcome = expect("tcp-refused", scenario, None, None);
    assert_eq!(outcome.app, (Vec::new(), Some(End::Reset)));
}

#[test]
fn unreachable_is_plain_without_grace() {
    let scenario =
        Scenario { up: way().with(Loss::all_udp()), unreachable_at: Some(HALF), ..turbo(tls13(0)) };
    expect("unreachable", scenario, 200, 300);
}

#[test]
fn tcp_that_connects_too_late_for_a_join_is_plain() {
    let scenario = Scenario { connect: Some(Duration::from_secs(15)), ..turbo(tls13(0)) };
    let (script, outcome) = (scenario.script.clone(), run(scenario));
    assert_eq!(outcome.first_request, Some(Duration::from_millis(15_100)));
    assert_eq!(outcome.app, (script.server_stream(), Some(End::Finished)));
    compare("tcp-after-15-s", &text("tcp-after-15-s", &outcome));
}

/// The flight answers the part that arrived; the join continues where the edge stopped.
#[test]
fn early_data_with_a_lost_fragment_continues_over_tcp() {
    let scenario = Scenario {
        offer: Some(client(true)),
        host: edge(true, false),
        up: lossy(&[2]),
        ..turbo(Script::early_data(500, 1400, 2000, Duration::ZERO))
    };
    expect("early-data-fragment-lost", scenario, 0, 200);
}

/// The origin may have acted on the early data, so it must not get it again.
#[test]
fn early_data_too_old() {
    let scenario = Scenario {
        offer: Some(client(true)),
        host: edge(true, false),
        connect: Some(Duration::from_secs(75)),
        ..turbo(early_data())
    };
    let outcome = expect("early-data-tcp-after-75-s", scenario, 0, None);
    assert_eq!(outcome.app, (Vec::new(), Some(End::Reset)));
}

// W-SEND-2
#[test]
fn other_protocols_are_plain() {
    expect("not-tls", turbo(Script::not_tls()), 100, 200);
}
