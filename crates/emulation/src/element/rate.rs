use std::time::Duration;

use super::{Element, Kind, Outputs, Parse};
use crate::Packet;

const BITS_PER_BYTE: u128 = 8;
const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// Lets packets out one after the other at a rate, with a queue in front that drops what does not
/// fit (drop-tail).
///
/// Counted are the bytes of IP packets, without link headers.
#[derive(Debug)]
pub struct Rate {
    bits_per_second: u64,
    queue: u64,
    /// Time at which all that was taken so far has left.
    busy_until: Duration,
}

impl Rate {
    /// A rate in bits per second, at least 1, and a queue in bytes.
    ///
    /// The queue holds what waits, what is left of the packet under way included. An idle link
    /// takes a packet of any length.
    pub fn new(bits_per_second: u64, queue: u64) -> Rate {
        Rate { bits_per_second: bits_per_second.max(1), queue, busy_until: Duration::ZERO }
    }

    /// Returns the time that this many bytes take, rounded up.
    fn time_for(&self, bytes: usize) -> Duration {
        let bits = bytes as u128 * BITS_PER_BYTE;
        let nanos = (bits * NANOS_PER_SECOND).div_ceil(self.bits_per_second.into());
        u64::try_from(nanos).map_or(Duration::MAX, Duration::from_nanos)
    }

    /// Returns the number of bytes that leave in this time, rounded down.
    fn bytes_in(&self, time: Duration) -> u128 {
        let bits = time.as_nanos().saturating_mul(self.bits_per_second.into()) / NANOS_PER_SECOND;
        bits / BITS_PER_BYTE
    }
}

impl Element for Rate {
    fn handle(&mut self, now: Duration, packet: Packet, out: &mut Outputs) {
        let wait = self.busy_until.saturating_sub(now);
        let fits = self.bytes_in(wait) + packet.bytes.len() as u128 <= self.queue.into();
        if wait.is_zero() || fits {
            let leaves = wait.saturating_add(self.time_for(packet.bytes.len()));
            self.busy_until = now.saturating_add(leaves);
            out.pass_after(leaves, packet);
        }
    }
}

pub(super) const KIND: Kind = Kind {
    name: "rate",
    form: "[udp|tcp] rate BITS queue BYTES",
    parse: Parse::OneWay(|words| {
        let rate = words.rate()?;
        words.expect("queue")?;
        Ok(Box::new(Rate::new(rate, words.size()?)))
    }),
};
