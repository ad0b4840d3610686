//! Origins that are down, far away, or close before they have answered.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use headstart_emulation::Host;

use crate::arms::{self, Arms};
use crate::curl::Via;
use crate::daemon::Daemon;
use crate::figures::{SAVED_MIN, judged};
use crate::net::{Net, at, ms, until};
use crate::nginx::{self, Nginx};
use crate::origin;

const RTT: Duration = ms(50);

/// A fatal alert, handshake_failure, in a TLS record (RFC 8446 section 6).
const ALERT: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 40];

pub(crate) fn down() {
    let net = Net::new(RTT);
    nginx::certificate(&net);
    let edge = Daemon::edge(&net, 0, &["--origin", "127.0.0.1:8443"]);
    let arms = Arms::start(&net, &[]);
    same_failure(&arms);
    until("both to be counted", || {
        edge.count("headstart_connections_total", &["unreachable"]) >= 2
    });
}

type Script = fn(TcpStream);

pub(crate) fn closes_early() {
    let scripts: [(&str, Script); 4] = [
        ("end in order", |mut tcp| drop(tcp.read(&mut [0; 4096]))),
        ("end without reading", drop),
        ("reset", |mut tcp| {
            let _ = tcp.read(&mut [0; 4096]);
            origin::reset(tcp);
        }),
        ("alert", |mut tcp| {
            let _ = tcp.read(&mut [0; 4096]);
            let _ = tcp.write_all(&ALERT);
        }),
    ];
    for (what, script) in scripts {
        let net = Net::new(RTT);
        nginx::certificate(&net);
        let _served = origin::serve(net.server(), "127.0.0.1:8443".parse().unwrap(), script);
        let _edge = Daemon::edge(&net, 0, &["--origin", "127.0.0.1:8443"]);
        println!("  {what}:");
        same_failure(&Arms::start(&net, &[]));
    }
}

/// curl says the same as over plain TLS.
fn same_failure(arms: &Arms<'_>) {
    let [plain, turbo] = arms.both("www.four.test", "/small").map(|fetch| fetch.exit);
    println!("  curl's exit code is {plain} plain, {turbo} with TurboTLS");
    assert!(plain != 0 && plain == turbo, "plain {plain}, TurboTLS {turbo}");
}

/// The origin's distance is paid, and the client's only once.
pub(crate) fn far_away() {
    let hosts = [("near", ms(13)), ("far", ms(300))];
    let net = Net::with(RTT, hosts.map(|(name, rtt)| Host::new(name).delay(rtt / 2)).into());
    let [near, far] = ["near", "far"].map(|name| at(net.node(name).ipv4().unwrap(), 8443));
    let _origins = [
        Nginx::start(&net, net.node("near"), &[&near]),
        Nginx::start(&net, net.node("far"), &[&far]),
    ];
    let origins =
        [format!("--origin=near.four.test={near}"), format!("--origin=far.four.test={far}")];
    let _edge = Daemon::edge(&net, 0, &origins.each_ref().map(String::as_str));
    let arms = Arms::start(&net, &[]);
    for (host, count) in [("near.four.test", 7), ("far.four.test", 3)] {
        judged(
            || {
                let times = arms.openings(count, host, Via::Socks, &[]);
                arms::print(host, RTT, &times);
                times
            },
            |times| {
                let saved = arms::saved(RTT, times);
                if saved < SAVED_MIN {
                    Err(format!("{saved:.3} RTT saved with {host}"))
                } else {
                    Ok(())
                }
            },
        );
    }
}
