//! An edge that another process takes over from, while clients open connections.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use headstart_emulation::{Delay, Element, Protocol};

use crate::arms::{TURBO, agent};
use crate::client;
use crate::curl::{Via, small};
use crate::daemon::Daemon;
use crate::net::{Net, ms, until};
use crate::nginx::{BIG, Nginx, SMALL, content};

const RTT: std::time::Duration = ms(60);
const HOST: &str = "www.four.test";

/// Edges after the first one.
const TAKEOVERS: u16 = 5;

/// Connections at one time.
const CLIENTS: usize = 6;

fn edge<'n>(net: &'n Net, number: u16) -> Daemon<'n> {
    let path = net.file("takeover").display().to_string();
    Daemon::edge(net, number, &["--origin", "127.0.0.1:8443", "--takeover", &path])
}

/// The answer comes from one process, and TCP to the next.
pub(crate) fn before_tcp() {
    let net = Net::new(RTT);
    let _nginx = Nginx::behind(&net);
    let mut first = edge(&net, 0);
    let agent = agent(&net, TURBO, "turbo", &[]);
    net.set_link(RTT, Some(Box::new(Delay(ms(5000)).only(Protocol::Tcp))), None);
    let second = thread::scope(|scope| {
        let fetch = scope.spawn(|| small(&net, Via::Socks(TURBO), HOST));
        let answers = ["to_client", "\"sent\""];
        until("the edge to answer over UDP", || {
            first.count("headstart_udp_datagrams_total", &answers) > 0
        });
        let second = edge(&net, 1);
        assert!(!fetch.is_finished(), "TCP was there before the second edge");
        fetch.join().unwrap();
        second
    });
    agent.reaches("connections that saved a round trip", 1, Daemon::saved);
    assert_eq!(second.count("headstart_joins_total", &["passed"]), 1);
    assert!(first.ended().success());
}

/// Clients notice nothing, and a download that began with the first edge goes on.
pub(crate) fn under_load() {
    let net = Net::new(RTT);
    let _nginx = Nginx::behind(&net);
    let mut edges = vec![edge(&net, 0)];
    let agent = agent(&net, TURBO, "auto", &[]);
    let tls = client::tls(&net, "X25519");
    let (over, opened) = (AtomicBool::new(false), AtomicU32::new(0));
    let fetch = |path: &str, size| {
        let (_, body) = client::fetch(&tls, TURBO, HOST, path).unwrap();
        assert!(body == content(size), "{path}: {} bytes, or others", body.len());
        opened.fetch_add(1, Ordering::Relaxed);
    };
    client::on(net.client(), || fetch("/small", SMALL));
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                client::on(net.client(), || {
                    while !over.load(Ordering::Relaxed) {
                        fetch("/small", SMALL);
                    }
                });
            });
        }
        for number in 1..=TAKEOVERS {
            let download = scope.spawn(|| client::on(net.client(), || fetch("/big", BIG)));
            edges.push(edge(&net, number));
            download.join().unwrap();
        }
        over.store(true, Ordering::Relaxed);
    });
    let (opened, saved) = (opened.into_inner(), agent.saved());
    println!("  {TAKEOVERS} takeovers, {opened} connections, {saved} in one round trip");
    for reason in ["committed_refusal", "refused", "join_lost", "silence"] {
        println!("  {reason} {}", agent.fell_back(reason));
    }
    assert_eq!(agent.fell_back("committed_refusal"), 0);
}
