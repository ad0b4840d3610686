use std::time::Duration;

use super::{Element, Jitter, Kind, Outputs, Parse};
use crate::{Packet, Protocol};

/// Lets every packet out a fixed time later; order is kept.
#[derive(Debug)]
pub struct Delay(pub Duration);

impl Delay {
    /// A delay in milliseconds.
    pub fn millis(millis: u64) -> Delay {
        Delay(Duration::from_millis(millis))
    }

    /// A delay of UDP only: datagrams arrive late, TCP does not.
    pub fn udp(delay: Duration) -> super::Only {
        Delay(delay).only(Protocol::Udp)
    }
}

impl Element for Delay {
    fn handle(&mut self, _now: Duration, packet: Packet, out: &mut Outputs) {
        out.pass_after(self.0, packet);
    }

    fn nominal_delay(&self) -> Option<Duration> {
        Some(self.0)
    }
}

pub(super) const KIND: Kind = Kind {
    name: "delay",
    form: "[udp|tcp] delay TIME [jitter TIME [reordering] [seed NUMBER]]",
    parse: Parse::OneWay(|words| {
        let delay = words.time()?;
        if !words.take_word("jitter") {
            return Ok(Box::new(Delay(delay)));
        }
        let spread = words.time()?;
        let keeps_order = !words.take_word("reordering");
        let jitter = Jitter::new(delay, spread, words.seed()?);
        Ok(Box::new(if keeps_order { jitter } else { jitter.reordering() }))
    }),
};
