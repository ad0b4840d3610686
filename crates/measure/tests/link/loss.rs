//! Random loss each way: connections complete, and half of them no later than plain TLS does.

use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use headstart_emulation::Loss;
use openssl::ssl::SslConnector;

use crate::arms::agent;
use crate::client;
use crate::daemon::Daemon;
use crate::figures::{judged, median, millis, percentile};
use crate::net::{Net, ms};
use crate::nginx::{self, Nginx};

const RTT: Duration = ms(20);

/// Connections of an arm whose turn is each one.
const COUNT: usize = 300;

/// In flight at one time, all arms together: the edge takes 16 unjoined sessions of one address.
const IN_FLIGHT: usize = 16;

/// Two key shares, as today's browsers send: a ClientHello of two datagrams.
const GROUPS: &str = "*X25519MLKEM768 / *X25519";

/// The port of each agent, how it opens, and one in how many turns is its own: `auto` avoids UDP
/// after silences, `turbo` does not.
const ARMS: [(u16, &str, usize); 3] = [(1081, "plain", 1), (1082, "turbo", 1), (1083, "auto", 3)];

/// Ratio that two medians of the same thing may have, of 100 and of 300 connections: times under
/// loss come in steps of TCP's retransmission timeouts.
const NOISE: f64 = 1.5;

/// Longest retransmission timeout of both ends, ms (Linux 6.15; others are left as they are).
///
/// Where an acknowledgement is lost too, Linux takes the time until its repetition for a round
/// trip: at 20 % loss one connection in some hundreds ends up at the limit, 120 s by default, and a
/// run would wait for it.
const RTO_MAX: (&str, &str) = ("/proc/sys/net/ipv4/tcp_rto_max_ms", "5000");

/// Time for everything that waits on TCP, so that no connection fails but by what it is to show.
const ENOUGH: &str = "15m";

/// Replays a run's losses as far as the processes' timing lets it.
fn seed() -> u64 {
    std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1)
}

pub(crate) fn five_percent() {
    with_loss(0.05);
}

pub(crate) fn twenty_percent() {
    with_loss(0.20);
}

fn with_loss(share: f64) {
    println!("  {:.0} % each way, RTT {} ms, SEED={}", share * 100.0, RTT.as_millis(), seed());
    // A median that is not above plain's is a close call only if the machine made it one.
    judged(|| measure(share), |medians| judge(*medians));
}

/// `auto` may have given UDP up after some silences in a row; then it is plain, but for the noise.
fn judge([plain, turbo, auto]: [Duration; 3]) -> Result<(), String> {
    for (arm, median, bar) in [("turbo", turbo, plain), ("auto", auto, plain.mul_f64(NOISE))] {
        if median > bar {
            return Err(format!("the median of {arm} is {median:?}, that of plain {plain:?}"));
        }
    }
    Ok(())
}

fn measure(share: f64) -> [Duration; 3] {
    let net = Net::new(RTT);
    let _nginx = Nginx::behind(&net);
    let edge = Daemon::edge(&net, 0, &["--origin", "127.0.0.1:8443", "--hello-timeout", ENOUGH]);
    let agents =
        ARMS.map(|(port, opening, _)| agent(&net, port, opening, &["--connect-timeout", ENOUGH]));
    for node in [net.client(), net.server()] {
        node.run(bound_back_off).unwrap();
    }
    let [up, down] =
        [seed(), seed() + 1].map(|seed| Some(Box::new(Loss::random(share, seed)) as _));
    net.set_link(RTT, up, down);
    let times = open_all(&net);
    for ((agent, (_, opening, every)), times) in agents.iter().zip(ARMS).zip(&times) {
        println!(
            "  {opening:<5}  median {:7.1} ms  p99 {:8.1} ms  fell back or did without {:5.1} %",
            millis(median(times)),
            millis(percentile(times, 99)),
            100.0 - 100.0 * agent.saved() as f64 / (COUNT / every) as f64,
        );
        for reason in [
            "silence",
            "path_busy",
            "path_memory",
            "tcp_late",
            "refused",
            "join_lost",
            "committed_refusal",
        ] {
            print!("  {reason} {}", agent.fell_back(reason));
        }
        println!();
    }
    print!("  datagrams at the edge:");
    let outcomes =
        ["accepted", "repeated", "ended", "hello_runs", "address_limit", "misfit", "paused"];
    for outcome in outcomes {
        let label = format!("outcome=\"{outcome}\"");
        print!(
            " {outcome} {}",
            edge.count("headstart_udp_datagrams_total", &[&label, "to_server"])
        );
    }
    println!();
    let refusals = ["committed_refusal", "refused", "join_lost"];
    let refused =
        |agent: &Daemon<'_>| refusals.map(|reason| agent.fell_back(reason)).iter().sum::<u64>();
    let refused: u64 = agents.iter().map(refused).sum();
    let cut_off = edge.count("headstart_connections_total", &["result=\"refused\""]);
    let lost: usize =
        ARMS.iter().zip(&times).map(|((_, _, every), got)| COUNT / every - got.len()).sum();
    assert_eq!(lost, 0, "failed; joins refused {refused}, cut off by the edge {cut_off}");
    times.each_ref().map(|times| median(times))
}

fn bound_back_off() {
    let (path, value) = RTO_MAX;
    if std::path::Path::new(path).exists() {
        std::fs::write(path, value).unwrap();
    } else {
        println!("  this kernel has no {path}: TCP may back off to 120 s");
    }
}

/// Opens all connections, arms alternating: times of those that got the right answer.
fn open_all(net: &Net) -> [Vec<Duration>; 3] {
    let tls = client::tls(net, GROUPS);
    let turns =
        (0..COUNT).flat_map(|turn| (0..ARMS.len()).filter(move |arm| turn % ARMS[*arm].2 == 0));
    let (turns, times) = (Mutex::new(turns), Mutex::new([vec![], vec![], vec![]]));
    client::on(net.client(), || {
        thread::scope(|scope| {
            (0..IN_FLIGHT).for_each(|_| {
                scope.spawn(|| {
                    loop {
                        let Some(arm) = turns.lock().unwrap().next() else { return };
                        if let Some(took) = open(&tls, arm) {
                            times.lock().unwrap()[arm].push(took);
                        }
                    }
                });
            });
        });
    });
    times.into_inner().unwrap()
}

/// Returns the time that one connection took; `None` if its answer was wrong, or there was none.
fn open(tls: &SslConnector, arm: usize) -> Option<Duration> {
    let (port, opening, _) = ARMS[arm];
    match client::fetch(tls, port, "www.four.test", "/small") {
        Ok((took, body)) if body == nginx::content(nginx::SMALL) => return Some(took),
        Ok((_, body)) => println!("  {opening}: {} bytes, or others", body.len()),
        Err(error) => println!("  {opening}: {error}"),
    }
    None
}
