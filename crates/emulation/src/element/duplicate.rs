use std::time::Duration;

use super::{Element, Kind, Outputs, Parse};
use crate::{Packet, Pick};

/// Lets the picked packets out twice, the copy right behind the original.
#[derive(Debug)]
pub struct Duplicate(pub Pick);

impl Duplicate {
    /// Doubles each packet with this probability.
    pub fn random(probability: f64, seed: u64) -> Duplicate {
        Duplicate(Pick::random(probability, seed))
    }

    /// Doubles the packets with these numbers; the first packet is number 1.
    pub fn exact(numbers: impl IntoIterator<Item = u64>) -> Duplicate {
        Duplicate(Pick::exact(numbers))
    }
}

impl Element for Duplicate {
    fn handle(&mut self, now: Duration, packet: Packet, out: &mut Outputs) {
        if self.0.next_is_picked(now) {
            out.pass(packet.clone());
        }
        out.pass(packet);
    }
}

pub(super) const KIND: Kind = Kind {
    name: "duplicate",
    form: "[udp|tcp] duplicate PERCENT [seed NUMBER] | [udp|tcp] duplicate packets \
        NUMBER,NUMBER...",
    parse: Parse::OneWay(|words| Ok(Box::new(Duplicate(words.pick()?)))),
};
