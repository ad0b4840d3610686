//! Fast Open where it does not work: what `headstart get` pays for it beside plain TLS, and that
//! every request gets there once.

use std::time::Duration;

use headstart_emulation::{DropSynData, Element, StripFastOpen};
use serde_json::Value;

use crate::fast_open::{RTT, TRIES, World};
use crate::figures::{judged, median};
use crate::net::{Net, ms};

/// Time that a SYN with data is waited for at least (`SYN_SILENCE` of headstart-proto).
const SILENCE: Duration = ms(300);

/// Noise of a median on a busy machine, in round trips.
const NOISE: f64 = 0.25;

/// The reason of a connection whose ClientHello was not there in time.
const LATE: &str = "client_hello_late";

/// Fetches of each kind. Each with Fast Open has a path memory of its own.
const COUNT: usize = 5;

/// Until the request could leave.
fn opening(report: &Value) -> Duration {
    Duration::from_secs_f64(report["ms_to_first_request_byte"].as_f64().unwrap() / 1000.0)
}

/// Returns the name of the reason why Fast Open was not used.
fn reason(report: &Value) -> &str {
    let all = report["not_used"].as_array().unwrap();
    let fop = all.iter().find(|unused| unused["opening"] == "fop");
    fop.and_then(|unused| unused["reason"].as_str()).unwrap_or("none")
}

fn has_event(report: &Value, words: &str) -> bool {
    let mut events = report["timeline"].as_array().unwrap().iter();
    events.any(|event| event["event"].as_str().unwrap().contains(words))
}

/// Returns the output of `get` for a connection whose SYN left with data, or should have: not for
/// one whose SYN was gone before the ClientHello was there, as happens on a busy machine.
fn in_time(get: impl Fn() -> Value) -> Value {
    let all = std::iter::repeat_with(get).take(TRIES);
    all.into_iter().find(|text| reason(text) != LATE).expect("the ClientHello is always late")
}

/// The times of plain TLS, and of Fast Open that comes to nothing for `expected`.
fn measure(world: &World<'_>, expected: &str) -> [Vec<Duration>; 2] {
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..COUNT {
        let plain = world.get(&["--opening", "plain"], "");
        world.requests(1);
        let fop = in_time(|| {
            let report = world.get(&["--opening", "fop"], "");
            // One for the ticket, and one on the connection that is measured.
            world.requests(2);
            report
        });
        assert_eq!((fop["opening"].as_str(), reason(&fop)), (Some("plain"), expected), "{fop:#}");
        times[0].push(opening(&plain));
        times[1].push(opening(&fop));
    }
    times
}

/// Fast Open costs at most `grace` more than plain TLS.
fn costs_at_most(grace: Duration, [plain, fop]: &[Vec<Duration>; 2]) -> Result<(), String> {
    let (plain, fop) = (median(plain), median(fop));
    println!("  plain TLS {plain:.1?}, Fast Open in vain {fop:.1?}");
    let bar = plain + grace + RTT.mul_f64(NOISE);
    if fop > bar { Err(format!("{fop:?}, more than {bar:?}")) } else { Ok(()) }
}

fn fails_for_at_most(name: &str, fault: impl Element + 'static, expected: &str, grace: Duration) {
    let net = Net::new(RTT);
    let world = World::new(&net, name);
    world.fault(Box::new(fault));
    judged(|| measure(&world, expected), |times| costs_at_most(grace, times));
}

/// SYNs with data are swallowed: after the silence a plain one leaves.
pub(crate) fn syn_data_dropped() {
    fails_for_at_most("dropped", DropSynData, "syn_lost", SILENCE);
}

/// The option is taken out: an ordinary handshake, and the ClientHello again behind it.
pub(crate) fn option_stripped() {
    fails_for_at_most("stripped", StripFastOpen, "syn_data_refused", Duration::ZERO);
}

/// It works: a round trip less than plain TLS, said by the kernel.
pub(crate) fn opens_a_round_trip_sooner() {
    let net = Net::new(RTT);
    let world = World::new(&net, "sooner");
    judged(
        || {
            let mut times = [Vec::new(), Vec::new()];
            for _ in 0..COUNT {
                times[0].push(opening(&world.get(&["--opening", "plain"], "")));
                let fop = in_time(|| world.get(&["--opening", "fop"], ""));
                assert_eq!(
                    (fop["opening"].as_str(), reason(&fop)),
                    (Some("fop"), "none"),
                    "{fop:#}"
                );
                assert_eq!(fop["resumed"], true);
                assert!(has_event(&fop, "the data in the SYN were taken"), "{fop:#}");
                times[1].push(opening(&fop));
            }
            times
        },
        |[plain, fop]| {
            let (plain, fop) = (median(plain), median(fop));
            println!("  plain TLS {plain:.1?}, Fast Open {fop:.1?}");
            let bar = plain.saturating_sub(RTT.mul_f64(1.0 - NOISE));
            if fop > bar { Err(format!("{fop:?}, more than {bar:?}")) } else { Ok(()) }
        },
    );
}

/// A ClientHello with a post-quantum key share does not fit a SYN: it goes over UDP, and that is
/// said.
pub(crate) fn post_quantum_goes_over_udp() {
    let net = Net::new(RTT);
    let world = World::new(&net, "quantum");
    let [offered, not_offered] = [",fop=1", ""].map(|options| {
        let mut all = std::iter::repeat_with(|| world.get(&[], options)).take(TRIES);
        // On a busy machine an answer may be later than is waited for.
        all.find(|report| report["opening"] == "turbo").expect("it never goes over UDP")
    });
    assert_eq!(offered["tls"]["group"], "X25519MLKEM768");
    assert_eq!(reason(&offered), "client_hello_too_large");
    assert_eq!(reason(&not_offered), "none", "not offered");
}
