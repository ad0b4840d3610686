//! Several origins behind one edge, by the name that the client asks for.

use headstart_emulation::Host;

use crate::arms::{Arms, agent};
use crate::curl::{Via, get};
use crate::daemon::Daemon;
use crate::net::{Net, at, ms};
use crate::nginx::Nginx;

pub(crate) fn origins_by_name() {
    let net = Net::with(ms(60), vec![Host::new("one"), Host::new("two")]);
    let [one, two] = ["one", "two"].map(|name| at(net.node(name).ipv4().unwrap(), 8443));
    let _origins = [
        Nginx::start(&net, net.node("one"), &[&one]),
        Nginx::start(&net, net.node("two"), &[&two]),
    ];
    let origins = [format!("--origin=www.four.test={one}"), format!("--origin=*.four.test={two}")];
    let edge = Daemon::edge(&net, 0, &origins.each_ref().map(String::as_str));
    let arms = Arms::start(&net, &[]);
    for (host, origin) in [("www.four.test", "one"), ("shop.four.test", "two")] {
        for fetch in arms.both(host, "/who") {
            assert_eq!((fetch.exit, fetch.body.as_slice()), (0, origin.as_bytes()), "{host}");
        }
    }
    assert!(arms.turbo.saved() >= 1, "no connection used UDP");
    unknown(&net, &edge);
}

fn unknown(net: &Net, edge: &Daemon<'_>) {
    let name = format!("--edge=*.adv.test={}", net.edge4());
    for (port, opening) in [(1083, "plain"), (1084, "turbo")] {
        let before = edge.count("headstart_limits_hit_total", &["unknown_name"]);
        let _agent = agent(net, port, opening, &[&name]);
        let fetch = get(net, Via::Socks(port), "www.adv.test", "/who");
        // 35: curl's word for a handshake that was cut off.
        assert_eq!((fetch.exit, fetch.body.len()), (35, 0), "{opening}");
        assert!(edge.count("headstart_limits_hit_total", &["unknown_name"]) > before, "{opening}");
    }
}
