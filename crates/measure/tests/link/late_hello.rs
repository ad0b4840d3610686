//! A client that sends its ClientHello late: TurboTLS is never slower than plain TLS, and saves the
//! rest of the round trip after the delay.

use std::thread;
use std::time::Duration;

use openssl::ssl::SslConnector;

use crate::arms::agent;
use crate::client;
use crate::daemon::Daemon;
use crate::figures::{judged, median, millis};
use crate::net::{Net, ms};
use crate::nginx::{self, Nginx};

const RTT: Duration = ms(50);

/// Delays between the SYN and the ClientHello in ms; TCP connects before the longest ends.
const DELAYS: [u64; 6] = [0, 5, 10, 25, 40, 60];

const ROUNDS: usize = 7;

/// Maximum ratio of TurboTLS's time to plain TLS's.
const BAR: f64 = 1.02;

/// Margin for scheduling noise between the medians of two arms.
const NOISE: Duration = Duration::from_micros(1500);

/// Ports of the agents: one without TurboTLS, one that knows the path, and one that is new in each
/// round.
const PORTS: [u16; 3] = [1081, 1082, 1083];
const HOST: &str = "www.four.test";

pub(crate) fn never_slower() {
    let net = Net::new(RTT);
    let _nginx = Nginx::behind(&net);
    let _edge = Daemon::edge(&net, 0, &["--origin", "127.0.0.1:8443"]);
    let tls = client::tls(&net, "X25519");
    let [plain, known, _] = PORTS;
    let _plain = agent(&net, plain, "plain", &[]);
    let _known = agent(&net, known, "auto", &[]);
    for port in [plain, known] {
        open(&net, &tls, port, Duration::ZERO);
    }
    println!("  from the agent's accept to the end of the handshake, medians, ms");
    for delay in DELAYS.map(ms) {
        judged(|| measure(&net, &tls, delay), |times| judge(delay, *times));
    }
}

/// Opens connections through all agents in turn; returns the medians.
fn measure(net: &Net, tls: &SslConnector, delay: Duration) -> [Duration; 3] {
    let mut times = [vec![], vec![], vec![]];
    for _ in 0..ROUNDS {
        let _new = agent(net, PORTS[2], "auto", &[]);
        for (port, times) in PORTS.into_iter().zip(&mut times) {
            times.push(open(net, tls, port, delay));
        }
    }
    let medians = times.each_ref().map(|times| median(times));
    let [plain, known, new] = medians.map(millis);
    println!("  delay {:2.0}: plain {plain:6.2}  known {known:6.2}  new {new:6.2}", millis(delay));
    medians
}

fn open(net: &Net, tls: &SslConnector, port: u16, delay: Duration) -> Duration {
    let opened = client::on(net.client(), || {
        let tunnel = client::socks(port, HOST, 443)?;
        thread::sleep(delay);
        client::fetch_by(tls, tunnel, HOST, "/small")
    });
    let (took, body) = opened.unwrap();
    assert!(body == nginx::content(nginx::SMALL), "other bytes");
    took
}

fn judge(delay: Duration, [plain, known, new]: [Duration; 3]) -> Result<(), String> {
    let bar = plain.mul_f64(BAR) + NOISE;
    for (path, took) in [("known", known), ("new", new)] {
        if took > bar {
            return Err(format!("{took:?} on a {path} path, plain {plain:?}, delay {delay:?}"));
        }
    }
    // Only half of the possible saving is required: the client's own time counts, too.
    let left = RTT.saturating_sub(delay);
    if known + left / 2 > bar {
        return Err(format!(
            "{known:?}, plain {plain:?}: too little saved at a delay of {delay:?}"
        ));
    }
    Ok(())
}
