//! Random loss: how often the ClientHello reaches the edge with its pieces in the slots, and
//! without.

use std::time::Duration;

use headstart_emulation::{Delay, Element, Link, Loss, Outputs, Packet};
use headstart_proto::ClientConfig;
use headstart_proto::wire::{RESPONSE_PAYLOAD_MAX, Request};

use crate::sim::{HALF, Outcome, RTT, Scenario, Script, run};

/// Size with a hybrid key share: [`FLIGHT`] datagrams, four pieces.
const HELLO: usize = 1500;
const FLIGHT: u8 = 2;
const SLOTS: u8 = 5;
const LOSS: f64 = 0.2;
const SESSIONS: u16 = 2000;

/// Has each of the client's slots repeat one byte, which a client may do.
#[derive(Debug)]
struct BareSlots;

impl Element for BareSlots {
    fn handle(&mut self, _now: Duration, packet: Packet, out: &mut Outputs) {
        let request = Request::parse(&packet.bytes).expect("the client's requests are well-formed");
        let is_slot = request.seq >= FLIGHT;
        let byte = request.payload.get(..1).unwrap_or_default();
        let bare = is_slot.then(|| Request { payload: byte, ..request }.emit());
        out.pass(bare.map_or(packet, Packet::udp));
    }
}

/// Runs the sessions over a link that loses the same datagrams for each `client`.
fn sessions(client: impl Fn() -> Link) -> Vec<Outcome> {
    let sessions = (0..SESSIONS).map(u64::from).map(|seed| {
        let script = Script::tls13(HELLO, 2 * RESPONSE_PAYLOAD_MAX + 600, Duration::ZERO);
        run(Scenario {
            offer: Some(ClientConfig { slots: SLOTS, ..ClientConfig::default() }),
            up: client().with(Delay(HALF)).with(Loss::random(LOSS, seed)),
            down: Link::default().with(Delay(HALF)).with(Loss::random(LOSS, !seed)),
            ..Scenario::new(script)
        })
    });
    sessions.collect()
}

fn share(outcomes: &[Outcome], hit: impl Fn(&Outcome) -> bool) -> f64 {
    outcomes.iter().filter(|outcome| hit(outcome)).count() as f64 / f64::from(SESSIONS)
}

/// At 20 % loss both datagrams arrive in 0.8 x 0.8 = 0.64 of all flights. Five slots carry the
/// bytes from 1,109 on for a third time and those before for a second. If the first datagram
/// arrives (0.8), the rest does with 1 - 0.2 ^ 3; if not (0.2), three pieces and one of two copies
/// replace it with 0.8 ^ 3 x (1 - 0.2 ^ 2): 0.89 in all.
#[test]
fn pieces_in_slots_carry_the_hello_through_random_loss() {
    let (with, without) = (sessions(Link::default), sessions(|| Link::default().with(BareSlots)));
    let [whole, bare] =
        [&*with, &*without].map(|outcomes| share(outcomes, |outcome| outcome.hello_over_udp));
    let [fast, slower] = [&*with, &*without]
        .map(|outcomes| share(outcomes, |outcome| outcome.first_request == Some(RTT)));
    println!(
        "ClientHello whole at the edge: {whole} with pieces, {bare} without; one round trip: \
         {fast}, {slower}"
    );
    assert!(whole > 0.86 && bare < 0.68);
    assert!(fast > slower);
    let mut pairs = with.iter().zip(&without);
    assert!(pairs.all(|(with, without)| with.hello_over_udp >= without.hello_over_udp));
}
