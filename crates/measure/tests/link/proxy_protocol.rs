//! Origins that get the client's address.

use std::net::Ipv4Addr;

use headstart_emulation::Host;

use crate::arms::{Arms, TURBO, agent};
use crate::curl::{Via, harmed, small, small_by_udp};
use crate::daemon::Daemon;
use crate::net::{Net, ms, until};
use crate::nginx::Nginx;

const RTT: std::time::Duration = ms(60);
const ORIGIN: &str = "127.0.0.1:8444";
const UNTOLD: &str = "127.0.0.1:8443";

/// The address that a rule puts on datagrams, as a NAT with several does.
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 77, 1, 9);

fn announced(net: &Net) -> Nginx {
    Nginx::start(net, net.server(), &[&format!("{ORIGIN} proxy_protocol"), UNTOLD])
}

pub(crate) fn names_the_client() {
    let net = Net::new(RTT);
    let nginx = announced(&net);
    let _edge = Daemon::edge(&net, 0, &["--origin", ORIGIN, "--proxy-protocol"]);
    let arms = Arms::start(&net, &[]);
    for (host, client) in [
        ("www.four.test", net.client().ipv4().unwrap().to_string()),
        ("www.six.test", net.client().ipv6().unwrap().to_string()),
    ] {
        let before = nginx.log().len();
        for fetch in arms.both(host, "/small") {
            assert_eq!(fetch.exit, 0, "{host}");
        }
        // nginx writes a line when all is sent.
        until("both to be logged", || nginx.log().len() >= before + 2);
        let announced = nginx.log().split_off(before);
        assert_eq!(announced, vec![format!("{client} TLSv1.3 /small"); 2]);
    }
    assert!(arms.turbo.saved() >= 1, "no connection used UDP");
}

pub(crate) fn join_from_another_address() {
    let client = Host::new("client").address(Ipv4Addr::new(10, 77, 1, 1)).address(OTHER);
    let client = client.address("fd77::1:1".parse::<std::net::Ipv6Addr>().unwrap()).delay(RTT / 2);
    let net = Net::build(vec![client, Host::new("server")]);
    net.rules("client", "ip", &[&format!("source udp dport 443 snat to {OTHER}")]);
    let nginx = announced(&net);
    {
        let _edge = Daemon::edge(&net, 0, &["--origin", UNTOLD]);
        let agent = agent(&net, TURBO, "auto", &[]);
        small(&net, Via::Socks(TURBO), "www.six.test");
        // Without PROXY any address may join.
        small_by_udp(&net, &agent, Via::Socks(TURBO), "www.four.test");
    }
    let edge = Daemon::edge(&net, 0, &["--origin", ORIGIN, "--proxy-protocol"]);
    let agent = agent(&net, TURBO, "auto", &[]);
    // Over IPv6 nothing is translated; both daemons are warm after it.
    small(&net, Via::Socks(TURBO), "www.six.test");
    // The claimed address is not proven.
    let fetch = harmed(&net, Via::Socks(TURBO), "www.four.test");
    println!("  curl's exit code is {} for a join from another address, with PROXY", fetch.exit);
    assert_eq!(edge.count("headstart_joins_total", &["refused"]), 1);
    agent.reaches("committed refusals", 1, |agent| agent.fell_back("committed_refusal"));
    small(&net, Via::Socks(TURBO), "www.four.test");
    until("it to be logged", || nginx.log().iter().any(|line| line.starts_with("10.")));
    let mut announced = nginx.log().into_iter().filter(|line| line.starts_with("10."));
    assert!(
        announced.all(|line| line == "10.77.1.1 TLSv1.3 /small"),
        "the origin was told {OTHER}"
    );
}
