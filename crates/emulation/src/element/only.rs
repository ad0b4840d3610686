use std::time::Duration;

use super::{Element, Outputs};
use crate::{Packet, Protocol};

/// An element that sees one protocol; other packets pass at once.
#[derive(Debug)]
pub struct Only {
    protocol: Protocol,
    inner: Box<dyn Element>,
}

impl Only {
    /// Narrows `inner` to `protocol`.
    pub fn new(protocol: Protocol, inner: Box<dyn Element>) -> Only {
        Only { protocol, inner }
    }
}

impl Element for Only {
    fn handle(&mut self, now: Duration, packet: Packet, out: &mut Outputs) {
        if packet.protocol == self.protocol {
            self.inner.handle(now, packet, out);
        } else {
            out.pass(packet);
        }
    }

    fn nominal_delay(&self) -> Option<Duration> {
        self.inner.nominal_delay().filter(Duration::is_zero)
    }
}
