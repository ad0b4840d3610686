use std::time::Duration;

use super::{Element, Kind, Outputs, Parse};
use crate::{Packet, Pick};

/// Holds the picked packets back by a fixed time, so that those behind them overtake; the others
/// pass at once.
#[derive(Debug)]
pub struct Reorder {
    picked: Pick,
    hold: Duration,
}

impl Reorder {
    /// Holds the picked packets back.
    pub fn new(picked: Pick, hold: Duration) -> Reorder {
        Reorder { picked, hold }
    }

    /// Holds each packet back with this probability.
    pub fn random(probability: f64, seed: u64, hold: Duration) -> Reorder {
        Reorder::new(Pick::random(probability, seed), hold)
    }

    /// Holds the packets with these numbers back; the first packet is number 1.
    pub fn exact(numbers: impl IntoIterator<Item = u64>, hold: Duration) -> Reorder {
        Reorder::new(Pick::exact(numbers), hold)
    }
}

impl Element for Reorder {
    fn handle(&mut self, now: Duration, packet: Packet, out: &mut Outputs) {
        let held = if self.picked.next_is_picked(now) { self.hold } else { Duration::ZERO };
        out.pass_after(held, packet);
    }
}

pub(super) const KIND: Kind = Kind {
    name: "reorder",
    form: "[udp|tcp] reorder PERCENT [seed NUMBER] by TIME | [udp|tcp] reorder packets \
        NUMBER,NUMBER... by TIME",
    parse: Parse::OneWay(|words| {
        let picked = words.pick()?;
        words.expect("by")?;
        Ok(Box::new(Reorder::new(picked, words.time()?)))
    }),
};
