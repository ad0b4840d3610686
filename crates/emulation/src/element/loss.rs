use std::time::Duration;

use super::{Element, Kind, Only, Outputs, Parse};
use crate::{Packet, Pick, Protocol};

/// Drops the picked packets.
#[derive(Debug)]
pub struct Loss(pub Pick);

impl Loss {
    /// Drops each packet with this probability.
    pub fn random(probability: f64, seed: u64) -> Loss {
        Loss(Pick::random(probability, seed))
    }

    /// Drops the packets with these numbers; the first packet is number 1.
    pub fn exact(numbers: impl IntoIterator<Item = u64>) -> Loss {
        Loss(Pick::exact(numbers))
    }

    /// Drops this share of the packets, in runs of `mean_length` packets on average; see
    /// [`Pick::bursts`].
    pub fn bursts(share: f64, mean_length: f64, seed: u64) -> Loss {
        Loss(Pick::bursts(share, mean_length, seed))
    }

    /// Drops all UDP and nothing else, as networks do that block it.
    pub fn all_udp() -> Only {
        Loss(Pick::every()).only(Protocol::Udp)
    }
}

impl Element for Loss {
    fn handle(&mut self, now: Duration, packet: Packet, out: &mut Outputs) {
        if !self.0.next_is_picked(now) {
            out.pass(packet);
        }
    }
}

pub(super) const KIND: Kind = Kind {
    name: "loss",
    form: "[udp|tcp] loss PERCENT [seed NUMBER] | [udp|tcp] loss packets NUMBER,NUMBER...",
    parse: Parse::OneWay(|words| Ok(Box::new(Loss(words.pick()?)))),
};

pub(super) const DROP_KIND: Kind = Kind {
    name: "drop",
    form: "drop udp | drop tcp",
    parse: Parse::OneWay(|words| Ok(Box::new(Loss(Pick::every()).only(words.protocol()?)))),
};
