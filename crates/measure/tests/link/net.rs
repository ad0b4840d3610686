//! A client and a server with the link between, and files that live as long.

use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use headstart_emulation::{Capture, Delay, Element, Host, Lab, Link, Node};
use tempfile::TempDir;

pub(crate) use headstart_testkit::until;

/// Bounds a wait that fails; nothing is measured by it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Where edges listen.
pub(crate) const HTTPS: u16 = 443;

/// The namespaces of one check.
pub(crate) struct Net {
    lab: Lab,
    dir: TempDir,
}

impl Net {
    /// The client is `rtt` away from the server.
    pub(crate) fn new(rtt: Duration) -> Self {
        Self::with(rtt, vec![])
    }

    /// The same, with further nodes.
    pub(crate) fn with(rtt: Duration, others: Vec<Host>) -> Self {
        let hosts = vec![Host::new("client").delay(rtt / 2), Host::new("server")];
        Self::build(hosts.into_iter().chain(others).collect())
    }

    /// These nodes; a client and a server are among them.
    pub(crate) fn build(hosts: Vec<Host>) -> Self {
        let lab = Lab::build(hosts).unwrap();
        Self { lab, dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn node(&self, name: &str) -> &Node {
        self.lab.node(name).unwrap()
    }

    pub(crate) fn client(&self) -> &Node {
        self.node("client")
    }

    pub(crate) fn server(&self) -> &Node {
        self.node("server")
    }

    /// Where an edge listens, in IPv4.
    pub(crate) fn edge4(&self) -> SocketAddr {
        (self.server().ipv4().unwrap(), HTTPS).into()
    }

    /// Where an edge listens, in IPv6.
    pub(crate) fn edge6(&self) -> SocketAddr {
        (self.server().ipv6().expect("this kernel has no IPv6"), HTTPS).into()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Another link to the server, `up` and `down` behind the delay of `rtt`.
    pub(crate) fn set_link(
        &self,
        rtt: Duration,
        up: Option<Box<dyn Element>>,
        down: Option<Box<dyn Element>>,
    ) {
        let [up, down] = [up, down].map(|more: Option<Box<dyn Element>>| {
            let delay: Box<dyn Element> = Box::new(Delay(rtt / 2));
            Link::new([delay].into_iter().chain(more).collect())
        });
        assert!(self.lab.set_links("client", up, down));
    }

    /// Another path to the server, in the words of labs.
    pub(crate) fn set_path(&self, text: &str) {
        assert!(self.lab.set_path("client", text.parse().unwrap()));
    }

    /// Packets that the client's link has dropped.
    pub(crate) fn dropped(&self) -> u64 {
        let client = self.lab.counters().ports[0];
        client.outbound.dropped + client.inbound.dropped
    }

    /// Writes what passes the client's interface to a file.
    pub(crate) fn capture(&self, file: &Path) -> Capture {
        self.lab.capture("client", file, 100_000_000).unwrap()
    }

    /// Adds nft rules to a node: a table named check with the chains output (NAT), source (NAT) and
    /// input (filter), each rule after the name of its chain.
    pub(crate) fn rules(&self, node: &str, family: &str, rules: &[&str]) {
        let mut script = format!("add table {family} check\n");
        for (name, what) in [
            ("output", "nat hook output priority -100"),
            ("source", "nat hook postrouting priority 100"),
            ("input", "filter hook input priority 0"),
            ("leaving", "filter hook output priority 0"),
        ] {
            script += &format!("add chain {family} check {name} {{ type {what} ; }}\n");
        }
        for rule in rules {
            script += &format!("add rule {family} check {rule}\n");
        }
        let file = self.file("rules.nft");
        std::fs::write(&file, script).unwrap();
        run(self.node(node).command("nft").arg("-f").arg(file));
    }

    /// Takes the rules of [`rules`](Self::rules) away.
    pub(crate) fn no_rules(&self, node: &str, family: &str) {
        run(self.node(node).command("nft").args(["delete", "table", family, "check"]));
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.dir.disable_cleanup(true);
            eprintln!("whole logs are kept in {}", self.dir.path().display());
        }
    }
}

/// Runs a command to its end; it must succeed.
pub(crate) fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {message}", output.status);
    output
}

/// The body of an HTTP answer from `address`, as seen on `node`.
pub(crate) fn http_get(node: &Node, address: SocketAddr, path: &str) -> Option<String> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: check\r\nConnection: close\r\n\r\n");
    let answer = node
        .run(|| -> std::io::Result<String> {
            let mut tcp = std::net::TcpStream::connect(address)?;
            std::io::Write::write_all(&mut tcp, request.as_bytes())?;
            let mut answer = String::new();
            tcp.read_to_string(&mut answer)?;
            Ok(answer)
        })
        .unwrap()
        .ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.1 200").then(|| body.to_owned())
}

/// The address with a port, for command lines.
pub(crate) fn at(ip: impl Into<IpAddr>, port: u16) -> String {
    SocketAddr::new(ip.into(), port).to_string()
}

/// A duration in milliseconds.
pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
