//! Networks that block or delay UDP, and servers that are no edge: plain TLS, and the reason told.

use headstart_emulation::{Delay, Loss};
use headstart_net::SILENCES_TO_BLOCK;

use crate::curl::{Via, small, small_by_udp};
use crate::daemon::Daemon;
use crate::net::{Net, ms, until};
use crate::nginx::Nginx;

/// Round trip of which a client's own time is a small part, on slow machines too.
const RTT: std::time::Duration = ms(100);
const VIA: Via = Via::Socks(1080);
const HOST: &str = "www.four.test";

fn agent(net: &Net) -> Daemon<'_> {
    Daemon::agent(net, 1080, &[&format!("--edge=*.four.test={}", net.edge4())])
}

pub(crate) fn blocked_one_way() {
    let net = Net::new(RTT);
    let _nginx = Nginx::behind(&net);
    let _edge = Daemon::edge(&net, 0, &["--origin", "127.0.0.1:8443"]);
    for to_server in [true, false] {
        let [up, down] = [to_server, !to_server]
            .map(|is_blocked| is_blocked.then(|| Box::new(Loss::all_udp()) as _));
        net.set_link(RTT, up, down);
        let agent = agent(&net);
        for silences in 1..=u64::from(SILENCES_TO_BLOCK) {
            small(&net, VIA, HOST);
            agent.reaches("silences", silences, |agent| agent.fell_back("silence"));
            agent.reaches("plain connections", silences, |agent| agent.opened("plain"));
        }
        // So many in a row are enough: no further connection pays.
        small(&net, VIA, HOST);
        agent.reaches("connections spared", 1, |agent| agent.fell_back("path_memory"));
        assert_eq!(agent.saved(), 0);
    }
}

pub(crate) fn late() {
    let net = Net::new(RTT);
    let _nginx = Nginx::behind(&net);
    let edge = Daemon::edge(&net, 0, &["--origin", "127.0.0.1:8443"]);
    let agent = agent(&net);
    // Later than any grace, and late for the edge too: TCP has brought the ClientHello by then.
    net.set_link(RTT, Some(Box::new(Delay::udp(ms(3000)))), None);
    small(&net, VIA, HOST);
    agent.reaches("silences", 1, |agent| agent.fell_back("silence"));
    let runs = &["direction=\"to_server\"", "outcome=\"hello_runs\""];
    until("the late flight to be dropped", || {
        edge.count("headstart_udp_datagrams_total", runs) > 0
    });
    assert_eq!(agent.saved(), 0);
}

pub(crate) fn lag_is_learnt() {
    let net = Net::new(RTT);
    let _nginx = Nginx::behind(&net);
    let _edge = Daemon::edge(&net, 0, &["--origin", "127.0.0.1:8443"]);
    let agent = agent(&net);
    // Behind the first grace (RTT/4 = 25 ms), within the largest (RTT/2 = 50 ms).
    net.set_link(RTT, None, Some(Box::new(Delay::udp(ms(33)))));
    small(&net, VIA, HOST);
    agent.reaches("silences", 1, |agent| agent.fell_back("silence"));
    // The late datagram is a sample: from then on the grace covers the lag.
    for _ in 0..3 {
        small_by_udp(&net, &agent, VIA, HOST);
    }
}

/// Attempts at a connection by UDP within the second in which it passes.
const TRIES: usize = 5;

/// UDP passes for a second, and then no more: nothing fails, and the path is soon spared.
pub(crate) fn die() {
    let net = Net::new(RTT);
    let _nginx = Nginx::behind(&net);
    let _edge = Daemon::edge(&net, 0, &["--origin", "127.0.0.1:8443"]);
    let opened = (0..TRIES).find_map(|_| {
        net.set_path("delay 50ms, udp-dies after 1s");
        let agent = agent(&net);
        small(&net, VIA, HOST);
        (agent.saved() > 0).then_some(agent)
    });
    let agent = opened.expect("no connection by UDP");
    until("the path to be spared", || {
        small(&net, VIA, HOST);
        agent.fell_back("path_memory") > 0
    });
    let silences = agent.fell_back("silence");
    assert!(silences >= SILENCES_TO_BLOCK.into(), "{silences}");
    let dropped = net.dropped();
    for _ in 0..3 {
        small(&net, VIA, HOST);
    }
    assert_eq!(net.dropped(), dropped, "datagrams on a path that is spared");
    assert_eq!(agent.fell_back("committed_refusal"), 0);
}

pub(crate) fn no_edge_icmp() {
    let net = Net::new(RTT);
    let _nginx = Nginx::start(&net, net.server(), &[&net.edge4().to_string()]);
    let agent = agent(&net);
    small(&net, VIA, HOST);
    agent.reaches("unreachable", 1, |agent| agent.fell_back("unreachable"));
    small(&net, VIA, HOST);
    agent.reaches("connections spared", 1, |agent| agent.fell_back("path_memory"));
    assert_eq!((agent.saved(), agent.opened("turbo")), (0, 0));
}

pub(crate) fn no_edge_silent() {
    let net = Net::new(RTT);
    let _nginx = Nginx::start(&net, net.server(), &[&net.edge4().to_string()]);
    net.rules("server", "ip", &["input udp dport 443 drop"]);
    let agent = agent(&net);
    small(&net, VIA, HOST);
    agent.reaches("silences", 1, |agent| agent.fell_back("silence"));
    assert_eq!((agent.saved(), agent.opened("turbo")), (0, 0));
}
