//! A reload and a stop while a download runs.

use std::fs;
use std::thread;

use headstart_emulation::Host;
use rustix::process::Signal;

use crate::arms::TURBO;
use crate::curl::{self, Fetch, Via, get};
use crate::daemon::Daemon;
use crate::net::{Net, at, ms, until};
use crate::nginx::{BIG, Nginx, content};

const RTT: std::time::Duration = ms(60);
const VIA: Via = Via::Socks(TURBO);
const HOST: &str = "www.four.test";

/// Daemons that read their files, and an origin on another node besides.
struct Site<'n> {
    net: &'n Net,
    edge: Daemon<'n>,
    agent: Daemon<'n>,
    _origins: [Nginx; 2],
}

impl<'n> Site<'n> {
    fn start(net: &'n Net) -> Self {
        let other = at(net.node("other").ipv4().unwrap(), 8443);
        let origins = [Nginx::behind(net), Nginx::start(net, net.node("other"), &[&other])];
        let (edge, agent) = (net.file("edge.toml"), net.file("agent.toml"));
        fs::write(&edge, "[edge]\norigin = \"127.0.0.1:8443\"\nshutdown-timeout = \"1m\"\n")
            .unwrap();
        fs::write(&agent, agent_file(net, "*.four.test")).unwrap();
        let edge = Daemon::edge(net, 0, &["--config", edge.to_str().unwrap()]);
        let agent = Daemon::agent(net, TURBO, &["--config", agent.to_str().unwrap()]);
        Self { net, edge, agent, _origins: origins }
    }

    /// Downloads for about ten seconds, and does `work` once bytes have arrived.
    fn while_downloading(&self, work: impl FnOnce()) -> Fetch {
        let file = self.net.file("download");
        let mut command = curl::command(self.net, VIA, HOST, "/big");
        command.args(["--limit-rate", "400k", "--output"]).arg(&file);
        thread::scope(|scope| {
            let download = scope.spawn(move || curl::finish(&mut command));
            until("the download to begin", || fs::metadata(&file).is_ok_and(|file| file.len() > 0));
            work();
            assert!(!download.is_finished(), "the download was over before anything happened");
            let mut fetch = download.join().unwrap();
            fetch.body = fs::read(&file).unwrap();
            fetch
        })
    }
}

fn agent_file(net: &Net, name: &str) -> String {
    format!("[agent]\nedge = [\"{name}={}\"]\nshutdown-timeout = \"1m\"\n", net.edge4())
}

fn is_whole(fetch: &Fetch) {
    assert_eq!(fetch.exit, 0, "the download was cut off at {} bytes", fetch.body.len());
    assert!(fetch.body == content(BIG), "the download has other bytes");
}

pub(crate) fn reload_keeps_a_download() {
    let net = Net::with(RTT, vec![Host::new("other")]);
    let site = Site::start(&net);
    assert_eq!(get(&net, VIA, HOST, "/who").body, b"server");
    let fetch = site.while_downloading(|| {
        let other = at(net.node("other").ipv4().unwrap(), 8443);
        fs::write(net.file("edge.toml"), format!("[edge]\norigin = \"{other}\"\n")).unwrap();
        fs::write(net.file("agent.toml"), agent_file(&net, "*.adv.test")).unwrap();
        for daemon in [&site.edge, &site.agent] {
            daemon.signal(Signal::HUP);
            until("the reload", || daemon.log().contains("configuration read again"));
        }
        assert_eq!(get(&net, VIA, "www.adv.test", "/who").body, b"other");
        // A file with a mistake changes nothing.
        fs::write(net.file("edge.toml"), "[edge]\norigin = 5\n").unwrap();
        site.edge.signal(Signal::HUP);
        until("the refusal", || site.edge.log().contains("configuration kept"));
        assert_eq!(get(&net, VIA, "www.adv.test", "/who").body, b"other");
    });
    is_whole(&fetch);
    assert!(site.agent.saved() >= 1, "no connection used UDP");
}

pub(crate) fn stop_drains_a_download() {
    let net = Net::with(RTT, vec![Host::new("other")]);
    let mut site = Site::start(&net);
    let fetch = site.while_downloading(|| {
        site.edge.signal(Signal::TERM);
        site.agent.signal(Signal::TERM);
        until("new connections to be refused", || get(&net, VIA, HOST, "/who").exit != 0);
    });
    is_whole(&fetch);
    for daemon in [&mut site.edge, &mut site.agent] {
        let status = daemon.ended();
        assert!(status.success(), "{status}");
    }
}
