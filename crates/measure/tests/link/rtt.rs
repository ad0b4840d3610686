//! The promise, measured: a round trip less before the first application byte, by every way into
//! the agent, and next to nothing lost where UDP does not pass.

use std::net::SocketAddr;
use std::time::Duration;

use headstart_emulation::Loss;
use headstart_proto::limits::GRACE_MAX_FIRST;

use crate::arms::{self, Arms, PLAIN, TURBO};
use crate::curl::{Via, small, small_by_udp};
use crate::daemon::Daemon;
use crate::figures::{SAVED_MIN, fastest, judged, median, round_trips};
use crate::net::{Net, ms, until};
use crate::nginx::Nginx;

/// Less than this, and plain TLS is not what it claims to be.
const PLAIN_MIN: f64 = 1.9;

/// Noise of a median on a busy machine, in round trips.
const NOISE: f64 = 0.06;

/// Addresses nobody has, in IPv4 and IPv6, from which connections are redirected to an agent.
const REDIRECTED: [(u16, [&str; 2]); 2] =
    [(PLAIN, ["10.99.0.1", "fd99::1"]), (TURBO, ["10.99.0.2", "fd99::2"])];

#[derive(Clone, Copy, Debug)]
enum Way {
    Socks,
    Connect,
    Redirect,
}

/// One cell of the table.
#[derive(Clone, Copy, Debug)]
struct Cell {
    rtt: Duration,
    six: bool,
    way: Way,
}

impl Cell {
    const fn host(self) -> &'static str {
        if self.six { "www.six.test" } else { "www.four.test" }
    }

    fn via(self, port: u16) -> Via {
        match self.way {
            Way::Socks => Via::Socks(port),
            Way::Connect => Via::Connect(port),
            Way::Redirect => {
                let (_, addresses) = REDIRECTED.iter().find(|(agent, _)| *agent == port).unwrap();
                let ip = addresses[usize::from(self.six)].parse().unwrap();
                Via::Redirect(SocketAddr::new(ip, 443))
            }
        }
    }

    fn measure(self, arms: &Arms<'_>, count: usize) -> [Vec<Duration>; 2] {
        let times = arms.openings(count, self.host(), |port| self.via(port), &[]);
        let family = if self.six { "IPv6" } else { "IPv4" };
        arms::print(&format!("{family} {:?}", self.way), self.rtt, &times);
        times
    }

    fn judge(self, [plain, turbo]: &[Vec<Duration>; 2]) -> Result<(), String> {
        // The programs' own time is not short beside a few milliseconds: where others have the
        // processors, the fastest have least of it.
        let is_short = self.rtt < ms(50);
        let typical = if is_short { fastest } else { median };
        let [plain, turbo] = [plain, turbo].map(|times| round_trips(typical(times), self.rtt));
        if plain < PLAIN_MIN {
            return Err(format!(
                "plain TLS took {plain:.3} RTT in {self:?}: not what it claims to be"
            ));
        }
        let bar = if is_short { 0.0 } else { SAVED_MIN };
        let saved = plain - turbo;
        if saved < bar {
            return Err(format!("TurboTLS saved {saved:.3} RTT in {self:?}, less than {bar:.2}"));
        }
        Ok(())
    }

    /// Checks that TurboTLS is at most a grace behind plain TLS where no datagram passes.
    fn costs_a_grace(self, arms: &Arms<'_>, count: usize) {
        judged(
            || self.measure(arms, count),
            |[plain, turbo]: &[Vec<Duration>; 2]| {
                let bar = median(plain) + GRACE_MAX_FIRST + self.rtt.mul_f64(NOISE);
                let found = median(turbo);
                if found > bar {
                    Err(format!("without UDP: {found:?}, more than {bar:?}"))
                } else {
                    Ok(())
                }
            },
        );
    }
}

pub(crate) fn one_round_trip_saved() {
    let net = Net::new(ms(5));
    let _nginx = Nginx::behind(&net);
    let _edge = Daemon::edge(&net, 0, &["--origin", "127.0.0.1:8443"]);
    let arms = Arms::start(&net, &[]);
    redirect(&net);
    println!("  from the agent's accept to the first application byte, medians");
    for (rtt, count) in [(ms(5), 9), (ms(50), 9), (ms(150), 7)] {
        net.set_link(rtt, None, None);
        for six in [false, true] {
            for way in [Way::Socks, Way::Connect, Way::Redirect] {
                let cell = Cell { rtt, six, way };
                judged(|| cell.measure(&arms, count), |times| cell.judge(times));
            }
        }
    }
    assert_eq!(arms.plain.saved(), 0, "first flights over UDP of the plain agent");
    println!("  silences without loss: {}", arms.turbo.fell_back("silence"));
}

fn redirect(net: &Net) {
    for (number, family) in ["ip", "ip6"].into_iter().enumerate() {
        let rules = REDIRECTED.map(|(port, addresses)| {
            format!("output {family} daddr {} tcp dport 443 redirect to :{port}", addresses[number])
        });
        net.rules("client", family, &rules.each_ref().map(String::as_str));
    }
}

pub(crate) fn udp_blocked_costs_a_grace() {
    let net = Net::new(ms(50));
    let _nginx = Nginx::behind(&net);
    let _edge = Daemon::edge(&net, 0, &["--origin", "127.0.0.1:8443"]);
    let arms = Arms::start(&net, &[]);
    for (rtt, six, count) in [(ms(50), false, 7), (ms(50), true, 7), (ms(150), false, 5)] {
        net.set_link(rtt, Some(Box::new(Loss::all_udp())), Some(Box::new(Loss::all_udp())));
        Cell { rtt, six, way: Way::Socks }.costs_a_grace(&arms, count);
    }
    // A client that takes its time for the ClientHello is told another reason.
    assert!(arms.turbo.fell_back("silence") >= 11, "silences: {}", arms.turbo.fell_back("silence"));
    assert_eq!(arms.turbo.opened("turbo"), 0);
}

/// UDP passes for a second, and then no more.
pub(crate) fn udp_dying_costs_a_grace() {
    let cell = Cell { rtt: ms(50), six: false, way: Way::Socks };
    let net = Net::new(cell.rtt);
    let _nginx = Nginx::behind(&net);
    let _edge = Daemon::edge(&net, 0, &["--origin", "127.0.0.1:8443"]);
    let arms = Arms::start(&net, &[]);
    net.set_path("delay 25ms, udp-dies after 1s");
    small_by_udp(&net, &arms.turbo, cell.via(TURBO), cell.host());
    until("UDP to die", || {
        small(&net, cell.via(TURBO), cell.host());
        arms.turbo.fell_back("silence") > 0
    });
    cell.costs_a_grace(&arms, 7);
}

pub(crate) fn tls_1_2_saves_one_too() {
    let net = Net::new(ms(50));
    let nginx = Nginx::behind(&net);
    let _edge = Daemon::edge(&net, 0, &["--origin", "127.0.0.1:8443"]);
    let arms = Arms::start(&net, &[]);
    judged(
        || {
            let times = arms.openings(7, "www.four.test", Via::Socks, &["--tls-max", "1.2"]);
            arms::print("TLS 1.2", ms(50), &times);
            times
        },
        |times| {
            let saved = arms::saved(ms(50), times);
            if saved < SAVED_MIN { Err(format!("TLS 1.2 saved {saved:.3} RTT")) } else { Ok(()) }
        },
    );
    let log = nginx.log();
    assert!(!log.is_empty() && log.iter().all(|line| line.contains("TLSv1.2")), "{log:?}");
}
