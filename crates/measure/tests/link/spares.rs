//! Spare connections where UDP is dropped: the agent opens a round trip sooner than without.

use std::time::Duration;

use crate::arms::{PLAIN, agent};
use crate::curl::{self, LOCAL, Via};
use crate::daemon::Daemon;
use crate::figures::{judged, median, round_trips};
use crate::net::{Net, ms};
use crate::nginx::Nginx;

const RTT: Duration = ms(100);
const HOST: &str = "www.four.test";
const SPARES: u16 = 1083;
/// Connections by which an agent learns: that UDP is dropped, and that they follow each other.
const LEARNING: usize = 6;
const MEASURED: usize = 7;

/// Returns the time from the agent's accept to the first application byte.
fn opening(net: &Net, port: u16) -> Duration {
    let fetch = curl::finish(&mut curl::measured(net, Via::Socks(port), HOST, &[]));
    assert_eq!(fetch.exit, 0, "curl by {port}");
    assert!(fetch.body == crate::nginx::content(crate::nginx::SMALL), "other bytes");
    fetch.opening
}

pub(crate) fn save_a_round_trip_without_udp() {
    let net = Net::new(RTT);
    let _nginx = Nginx::behind(&net);
    let _edge = Daemon::edge(&net, 0, &["--origin", "127.0.0.1:8443"]);
    let _local = Nginx::start(&net, net.client(), &[LOCAL]);
    net.set_path("delay 50ms, drop udp");
    let without = agent(&net, PLAIN, "auto", &[]);
    let with = agent(&net, SPARES, "auto", &["--spares", "auto"]);
    for _ in 0..LEARNING {
        opening(&net, PLAIN);
        opening(&net, SPARES);
    }
    judged(
        || {
            let mut times = [vec![], vec![]];
            for _ in 0..MEASURED {
                times[0].push(opening(&net, PLAIN));
                times[1].push(opening(&net, SPARES));
            }
            times.map(|times| round_trips(median(&times), RTT))
        },
        |[plain, spare]| {
            println!("  plain {plain:.3} RTT, by spares {spare:.3} RTT");
            let saves = plain - spare > 0.8;
            saves.then_some(()).ok_or_else(|| format!("{plain:.3} RTT, by spares {spare:.3}"))
        },
    );
    assert!(with.opened("spare") > 0 && without.opened("spare") == 0);
}
