//! Arms of a comparison: the same connection by an agent that opens plainly, and by one that does
//! not.

use std::time::Duration;

use crate::curl::{self, Fetch, Via};
use crate::daemon::Daemon;
use crate::figures::{median, millis, round_trips};
use crate::net::Net;
use crate::nginx::Nginx;

/// Ports of the two agents.
pub(crate) const PLAIN: u16 = 1081;
pub(crate) const TURBO: u16 = 1082;

/// Two agents beside each other, for the same edge.
pub(crate) struct Arms<'n> {
    net: &'n Net,
    pub(crate) plain: Daemon<'n>,
    pub(crate) turbo: Daemon<'n>,
    _local: Nginx,
}

impl<'n> Arms<'n> {
    /// Connections to `*.four.test` and `*.six.test` go to the edge of the server. The opening is
    /// TurboTLS whatever is remembered of the path, so that each connection says the same thing.
    pub(crate) fn start(net: &'n Net, more: &[&str]) -> Self {
        let local = Nginx::start(net, net.client(), &[curl::LOCAL]);
        let [plain, turbo] =
            [(PLAIN, "plain"), (TURBO, "turbo")].map(|(port, how)| agent(net, port, how, more));
        Self { net, plain, turbo, _local: local }
    }

    /// The same request by both.
    pub(crate) fn both(&self, host: &str, path: &str) -> [Fetch; 2] {
        [PLAIN, TURBO].map(|port| curl::get(self.net, Via::Socks(port), host, path))
    }

    /// Times from the agent's accept to the first application byte, arms alternating: plain,
    /// TurboTLS. `via` says how curl gets to the agent of this port.
    pub(crate) fn openings(
        &self,
        count: usize,
        host: &str,
        via: impl Fn(u16) -> Via,
        more: &[&str],
    ) -> [Vec<Duration>; 2] {
        let mut times = [vec![], vec![]];
        for round in 0..=count {
            for (port, times) in [PLAIN, TURBO].into_iter().zip(&mut times) {
                let fetch = curl::finish(&mut curl::measured(self.net, via(port), host, more));
                assert_eq!(fetch.exit, 0, "curl by {:?} for {host}", via(port));
                assert!(
                    fetch.body == crate::nginx::content(crate::nginx::SMALL),
                    "{host}: other bytes"
                );
                // The first of each arm finds the daemons cold.
                times.extend((round > 0).then_some(fetch.opening));
            }
        }
        times
    }
}

/// An agent on the client that knows the server's edge.
pub(crate) fn agent<'n>(net: &'n Net, port: u16, opening: &str, more: &[&str]) -> Daemon<'n> {
    let four = format!("--edge=*.four.test={}", net.edge4());
    let six = format!("--edge=*.six.test={}", net.edge6());
    let arguments = [&[four.as_str(), &six, "--opening", opening], more].concat();
    Daemon::agent(net, port, &arguments)
}

/// One line of a table.
pub(crate) fn print(what: &str, rtt: Duration, [plain, turbo]: &[Vec<Duration>; 2]) {
    let [plain, turbo] = [median(plain), median(turbo)];
    println!(
        "  {:>4.0} ms  {what:<20} plain {:7.2} ms = {:.3} RTT   turbo {:7.2} ms = {:.3} RTT",
        millis(rtt),
        millis(plain),
        round_trips(plain, rtt),
        millis(turbo),
        round_trips(turbo, rtt),
    );
}

/// Round trips that TurboTLS saved in the median.
pub(crate) fn saved(rtt: Duration, [plain, turbo]: &[Vec<Duration>; 2]) -> f64 {
    round_trips(median(plain), rtt) - round_trips(median(turbo), rtt)
}
