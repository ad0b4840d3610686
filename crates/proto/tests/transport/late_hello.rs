//! A ClientHello that the application writes some time after the SYN left: never later than plain
//! TLS, and a round trip sooner as far as the delay leaves any of it.

use std::time::Duration;

use headstart_emulation::{Delay, Link, Loss};
use headstart_proto::{ClientEvent, GraceEstimator, PlainReason};

use crate::sim::{HALF, Outcome, RTT, Scenario, Script, run};

/// Delays behind the SYN, in percent of a round trip.
const DELAYS: [u32; 6] = [0, 10, 20, 50, 80, 120];

type Path = (GraceEstimator, bool);

/// A path whose datagrams have come with the SYN-ACK so far.
fn known() -> Path {
    let mut grace = GraceEstimator::default();
    grace.sample(Duration::ZERO);
    (grace, true)
}

fn scenario(delay: u32, path: Path) -> Scenario {
    let script = Script::tls13(300, 3000, Duration::ZERO);
    let starts_at = RTT * delay / 100;
    Scenario { path: Some(path), ..Scenario::new(Script { starts_at, ..script }) }
}

/// Returns the time from the SYN to the first byte of the request, in percent of a round trip.
fn request(outcome: &Outcome) -> u128 {
    let at = outcome.first_request.expect("a request");
    at.as_nanos() * 100 / RTT.as_nanos()
}

fn requests(scenario: impl Fn(u32) -> Scenario) -> [u128; DELAYS.len()] {
    DELAYS.map(|delay| request(&run(scenario(delay))))
}

#[test]
fn never_later_than_plain_tls_and_sooner_by_what_is_left() {
    let plain = requests(|delay| scenario(delay, known()).plain());
    assert_eq!(plain, [200, 200, 200, 200, 200, 220]);
    let on_known_path = requests(|delay| scenario(delay, known()));
    assert_eq!(on_known_path, [100, 110, 120, 150, 180, 220]);
    let on_new_path = requests(|delay| scenario(delay, Path::default()));
    assert_eq!(on_new_path, [100, 110, 120, 200, 200, 220]);
}

/// The answers of flights that are not waited for show that the path carries datagrams.
#[test]
fn a_new_path_is_known_after_one_connection() {
    let (mut grace, _) = Path::default();
    let first = run(scenario(80, (grace, false)));
    let late = first.when(|event| *event == ClientEvent::LateDatagram).expect("a late datagram");
    grace.sample(late - RTT - RTT * 80 / 100);
    assert_eq!(request(&run(scenario(80, (grace, true)))), 180);
}

#[test]
fn a_late_hello_on_a_new_path_that_blocks_datagrams_costs_nothing() {
    for delay in [50, 80] {
        let up = Link::default().with(Delay(HALF)).with(Loss::all_udp());
        let outcome = run(Scenario { up, ..scenario(delay, Path::default()) });
        assert_eq!(request(&outcome), 200);
        let plain = ClientEvent::Plain(PlainReason::NotAwaited);
        assert_eq!(outcome.when(|event| *event == plain), Some(RTT));
    }
}

/// The one case in which a known path costs anything: it waits until the answer was due.
#[test]
fn a_lost_flight_costs_at_most_a_round_trip() {
    for delay in DELAYS {
        let up = Link::default().with(Delay(HALF)).with(Loss::all_udp());
        let took = request(&run(Scenario { up, ..scenario(delay, known()) }));
        assert!(took <= 220 + u128::from(delay), "{delay}: {took}");
    }
}
