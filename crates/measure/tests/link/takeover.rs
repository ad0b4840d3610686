//! An edge that another process takes over from while a client opens a connection.

use std::thread;

use headstart_emulation::{Delay, Element, Protocol};

use crate::arms::{TURBO, agent};
use crate::curl::{Via, small};
use crate::daemon::Daemon;
use crate::net::{Net, ms, until};
use crate::nginx::Nginx;

const RTT: std::time::Duration = ms(60);
const HOST: &str = "www.four.test";

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
