//! Edges found by DNS: used where advertised, never waited for, and no datagram to anybody else.

use std::fs::{self, File};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use headstart_emulation::Host;
use headstart_testkit::Running;
use hickory_proto::rr::RecordType;

use crate::arms::{self, Arms};
use crate::client;
use crate::curl::{self, Via, small, small_by_udp};
use crate::daemon::Daemon;
use crate::dns::{self, Https, NameServer};
use crate::figures::{judged, median};
use crate::net::{Net, PATIENCE, ms, until};
use crate::nginx::{self, Nginx};

const RTT: Duration = ms(50);
const AGENT: u16 = 1080;
const VIA: Via = Via::Socks(AGENT);

const CONNECTIONS: &str = "headstart_connections_total";

/// Noise of a median on a busy machine, in round trips.
const NOISE: f64 = 0.06;

/// Lets names lead into the emulated network, whose addresses are private.
const ALLOW: &str = "--allow-inside=10.0.0.0/8,fd00::/8";

fn agent<'n>(net: &'n Net, names: &NameServer) -> Daemon<'n> {
    Daemon::agent(net, AGENT, &["--resolver", &names.address.to_string(), ALLOW])
}

pub(crate) fn advertised() {
    let net = Net::new(RTT);
    let _nginx = Nginx::behind(&net);
    let _edge = Daemon::edge(&net, 0, &["--origin", "127.0.0.1:8443"]);
    let ip = net.server().ipv4().unwrap();
    let names = NameServer::start(net.client(), &[("www.adv.test", ip, Https::Advert)]);
    let agent = agent(&net, &names);
    for _ in 0..3 {
        small_by_udp(&net, &agent, VIA, "www.adv.test");
    }
    assert_eq!(names.queries("www.adv.test", RecordType::HTTPS), 1, "answers are kept");
}

/// A client that resolves names itself asks for an address; the ClientHello has the name.
pub(crate) fn advertised_for_an_address() {
    let net = Net::new(RTT);
    let _nginx = Nginx::behind(&net);
    let _edge = Daemon::edge(&net, 0, &["--origin", "127.0.0.1:8443"]);
    let ip = net.server().ipv4().unwrap();
    let names = NameServer::start(net.client(), &[("www.adv.test", ip, Https::Advert)]);
    let configured = format!("--edge=*.four.test={}", net.edge4());
    let resolver = names.address.to_string();
    let agent = Daemon::agent(&net, AGENT, &["--resolver", &resolver, ALLOW, &configured]);
    let tls = client::tls(&net, "X25519");
    for host in ["www.adv.test", "www.four.test"] {
        judged(
            || {
                let before = [agent.count(CONNECTIONS, &[]), agent.opened("turbo")];
                for _ in 0..3 {
                    let fetched = client::on(net.client(), || {
                        let tunnel = client::socks(AGENT, &ip.to_string(), 443)?;
                        client::fetch_by(&tls, tunnel, host, "/small")
                    });
                    assert!(fetched.unwrap().1 == nginx::content(nginx::SMALL), "other bytes");
                }
                until("the connections to end", || agent.count(CONNECTIONS, &[]) == before[0] + 3);
                agent.opened("turbo") - before[1]
            },
            |turbo| match turbo {
                3 => Ok(()),
                _ => Err(format!("{turbo} of 3 connections to {host} by its address")),
            },
        );
    }
}

pub(crate) fn time_to_live() {
    let net = Net::new(RTT);
    let _nginx = Nginx::behind(&net);
    let _edge = Daemon::edge(&net, 0, &["--origin", "127.0.0.1:8443"]);
    let life = Duration::from_secs(3);
    let address = net.server().ipv4().unwrap();
    let host = dns::Host { address, https: Https::Advert, ttl: 3 };
    let names = NameServer::with(net.client(), vec![("www.adv.test", host)]);
    let agent = agent(&net, &names);
    let begun = Instant::now();
    small(&net, VIA, "www.adv.test");
    let known = Instant::now();
    small(&net, VIA, "www.adv.test");
    let kinds = [RecordType::A, RecordType::HTTPS];
    if begun.elapsed() < life {
        assert_eq!(
            kinds.map(|kind| names.queries("www.adv.test", kind)),
            [1, 1],
            "asked again in its time"
        );
    }
    let before = kinds.map(|kind| names.queries("www.adv.test", kind));
    let last = if before == [1, 1] { known } else { Instant::now() };
    thread::sleep((last + life + ms(100)).saturating_duration_since(Instant::now()));
    small_by_udp(&net, &agent, VIA, "www.adv.test");
    let after = kinds.map(|kind| names.queries("www.adv.test", kind));
    assert!(after[0] > before[0] && after[1] > before[1], "not asked after its time");
}

pub(crate) fn late_or_missing() {
    let net = Net::new(RTT);
    let _nginx = Nginx::behind(&net);
    let _edge = Daemon::edge(&net, 0, &["--origin", "127.0.0.1:8443"]);
    let ip = net.server().ipv4().unwrap();
    let hosts = [
        ("late.adv.test", Https::Late(ms(600))),
        ("silent.adv.test", Https::Silence),
        ("none.adv.test", Https::None),
    ];
    let hosts = hosts.map(|(name, https)| (name, dns::Host { address: ip, https, ttl: 0 }));
    let names = NameServer::with(net.client(), hosts.into());
    let arms = Arms::start(&net, &["--resolver", &names.address.to_string(), ALLOW]);
    for host in ["late.adv.test", "silent.adv.test", "none.adv.test"] {
        judged(
            || {
                let times = arms.openings(7, host, Via::Socks, &[]);
                arms::print(host, RTT, &times);
                times
            },
            |[plain, turbo]| {
                let (bar, found) = (median(plain) + RTT.mul_f64(NOISE), median(turbo));
                if found > bar {
                    Err(format!("{host} took {found:?}, more than {bar:?}"))
                } else {
                    Ok(())
                }
            },
        );
    }
    assert_eq!(arms.turbo.saved(), 0, "an answer after TCP connected was used");
    for reason in ["advert_late", "not_advertised"] {
        // All eight or more, if each answer that is not late comes before TCP is connected.
        assert!(arms.turbo.fell_back(reason) >= 4, "{reason}: {}", arms.turbo.fell_back(reason));
    }
}

/// Packets to and from UDP port 443 on the client's interface, one line each.
struct Capture {
    _tcpdump: Running,
    lines: std::path::PathBuf,
}

impl Capture {
    fn start(net: &Net) -> Self {
        let (lines, text) = (net.file("capture"), net.file("capture.log"));
        let mut tcpdump = net.client().command("tcpdump");
        // -Z root: the user it would become has no rights here, or does not exist in the namespace.
        tcpdump.args([
            "-i",
            "any",
            "-n",
            "-l",
            "--immediate-mode",
            "-Z",
            "root",
            "udp",
            "port",
            "443",
        ]);
        tcpdump.stdin(Stdio::null()).stdout(File::create(&lines).unwrap());
        tcpdump.stderr(File::create(&text).unwrap());
        let tcpdump = net.client().spawn(tcpdump).unwrap();
        let capture = Self { _tcpdump: Running(tcpdump), lines };
        until("tcpdump", || {
            fs::read_to_string(&text).is_ok_and(|text| text.contains("listening on"))
        });
        capture
    }

    fn with(&self, ip: Ipv4Addr) -> Vec<String> {
        let lines = fs::read_to_string(&self.lines).unwrap();
        lines
            .lines()
            .filter(|line| line.contains(&format!(" {ip}.443")))
            .map(str::to_owned)
            .collect()
    }
}

pub(crate) fn no_datagram_unasked() {
    let (quiet, asking) = (Ipv4Addr::new(10, 77, 2, 1), Ipv4Addr::new(10, 77, 2, 9));
    let server = Host::new("server").address(quiet).address(asking);
    let server = server.address("fd77::2:1".parse::<Ipv6Addr>().unwrap());
    let net = Net::build(vec![Host::new("client").delay(RTT / 2), server]);
    let other = format!("{quiet}:8443");
    let _nginx = Nginx::start(&net, net.server(), &["127.0.0.1:8443", &other]);
    let _edge = Daemon::edge(&net, 0, &["--origin", "127.0.0.1:8443"]);
    let hosts = [
        ("none.adv.test", quiet, Https::None),
        ("silent.adv.test", quiet, Https::Silence),
        ("www.adv.test", asking, Https::Advert),
    ];
    let names = NameServer::start(net.client(), &hosts);
    let agent = agent(&net, &names);
    let capture = Capture::start(&net);
    small(&net, VIA, "none.adv.test");
    small(&net, VIA, "silent.adv.test");
    // An address, and a port for which nobody can advertise.
    for host in [quiet.to_string(), "none.adv.test:8443".to_owned()] {
        let fetch = curl::finish(curl::command(&net, VIA, &host, "/small").arg("--insecure"));
        assert_eq!(fetch.exit, 0, "{host}");
    }
    agent.reaches("plain connections", 4, |agent| agent.opened("plain"));
    // The same capture sees datagrams where there are any, and those before would stand before
    // them.
    small(&net, VIA, "www.adv.test");
    let begun = Instant::now();
    while capture.with(asking).is_empty() && begun.elapsed() < PATIENCE {
        thread::sleep(ms(5));
    }
    println!("  datagrams with the host that advertises: {}", capture.with(asking).len());
    assert!(!capture.with(asking).is_empty(), "the capture sees nothing");
    assert!(capture.with(quiet).is_empty(), "{:?}", capture.with(quiet));
}
