//! The harness: everything that is not under test.
//!
//! The glue in `client` and `edge` does what the drivers on real sockets do: it moves bytes, tells
//! join frames from ClientHellos on TCP, and carries out handovers. The network is two UDP links of
//! `headstart-emulation` and a TCP that connects after a given time and then loses nothing.

mod app;
mod client;
mod edge;
mod origin;
mod script;
mod tcp;
mod world;

pub(crate) use client::End;
pub(crate) use edge::Host;
pub(crate) use script::{Script, client_hello};
pub(crate) use world::{Outcome, Scenario, run};

use std::fmt;
use std::time::Duration;

use tcp::{Direction, Segment};

/// The round-trip time of every scenario.
pub(crate) const RTT: Duration = Duration::from_millis(100);
/// One-way delay.
pub(crate) const HALF: Duration = Duration::from_millis(50);
/// Grace of a client that knows nothing of the path: a quarter of the RTT, 2 to 25 ms.
pub(crate) const GRACE: Duration = Duration::from_millis(25);

/// A moment, the way out over TCP, and the log.
struct Turn<'a> {
    now: Duration,
    tcp: &'a mut Direction,
    log: &'a mut Log,
}

impl Turn<'_> {
    fn send(&mut self, segment: &Segment) {
        self.tcp.send(self.now, segment);
    }

    fn note(&mut self, who: &'static str, what: impl fmt::Display) {
        self.log.note(self.now, who, what);
    }
}

/// Actions of the machines and their surroundings, in order; kept only if `wanted`.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) wanted: bool,
    pub(crate) lines: Vec<(Duration, &'static str, String)>,
}

impl Log {
    fn note(&mut self, now: Duration, who: &'static str, what: impl fmt::Display) {
        if self.wanted {
            self.lines.push((now, who, what.to_string()));
        }
    }
}
