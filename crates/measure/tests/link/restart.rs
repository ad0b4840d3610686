//! An edge that is not there any more when TCP gets to it, or whose TCP part the network refuses.

use std::thread;
use std::time::Instant;

use headstart_emulation::{Delay, Element, Protocol};

use crate::arms::{Arms, TURBO, agent};
use crate::curl::{Via, get, small, small_by_udp};
use crate::daemon::Daemon;
use crate::net::{Net, ms, until};
use crate::nginx::Nginx;

const RTT: std::time::Duration = ms(60);
const HOST: &str = "www.four.test";
const ORIGIN: [&str; 2] = ["--origin", "127.0.0.1:8443"];

fn answered(edge: &Daemon<'_>) -> u64 {
    edge.count("headstart_udp_datagrams_total", &["to_client", "\"sent\""])
}

pub(crate) fn tcp_refused() {
    let net = Net::new(RTT);
    let _nginx = Nginx::behind(&net);
    let edge = Daemon::edge(&net, 0, &ORIGIN);
    net.rules("server", "ip", &["input tcp dport 443 reject with tcp reset"]);
    for more in [&[][..], &["--late-answer"]] {
        let arms = Arms::start(&net, more);
        let [plain, turbo] = arms.both(HOST, "/small").map(|fetch| fetch.exit);
        println!("  {more:?}: curl's exit code is {plain} plain, {turbo} with TurboTLS");
        assert!(plain != 0 && plain == turbo, "plain {plain}, TurboTLS {turbo}");
        assert_eq!(arms.turbo.saved(), 0, "server bytes reached an application without TCP");
    }
    until("the edge to answer over UDP", || answered(&edge) > 0);
    net.no_rules("server", "ip");
    let arms = Arms::start(&net, &[]);
    small_by_udp(&net, &arms.turbo, Via::Socks(TURBO), HOST);
}

pub(crate) fn before_tcp() {
    let net = Net::new(RTT);
    let _nginx = Nginx::behind(&net);
    let mut edge = Daemon::edge(&net, 0, &ORIGIN);
    let agent = agent(&net, TURBO, "auto", &[]);
    // Time for a new edge to start, before the SYN arrives; clients wait for 8 s.
    net.set_link(RTT, Some(Box::new(Delay(ms(5000)).only(Protocol::Tcp))), None);
    let mut next = None;
    let fetch = thread::scope(|scope| {
        let fetch = scope.spawn(|| get(&net, Via::Socks(TURBO), HOST, "/small"));
        // An acknowledgement and the server's flight; where the machine is busy, both in one.
        let started = Instant::now();
        until("the edge to answer over UDP", || match answered(&edge) {
            0 => false,
            1 => started.elapsed() > ms(2000),
            _ => true,
        });
        edge.kill();
        next = Some(Daemon::edge(&net, 1, &ORIGIN));
        fetch.join().unwrap()
    });
    println!("  curl's exit code is {} in the committed case", fetch.exit);
    assert_ne!(fetch.exit, 0, "the session was lost, and yet there is an answer");
    agent.reaches("committed refusals", 1, |agent| agent.fell_back("committed_refusal"));
    agent.reaches("committed connections", 1, |agent: &Daemon<'_>| {
        agent.count("headstart_connections_total", &["committed"])
    });
    net.set_link(RTT, None, None);
    small(&net, Via::Socks(TURBO), HOST);
    agent.reaches("connections spared", 1, |agent| agent.fell_back("path_memory"));
    assert_eq!(answered(&next.unwrap()), 0, "the new edge was asked over UDP");
}
