//! A client and a server with a link between; on the server a site and an edge, on the client an
//! agent and Chromium.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use headstart_emulation::{
    Delay, Element, Host, INTERFACE, Lab, Link, Node, Outputs, Packet, TcpSegment, own_bpf_mount,
};
use headstart_openers::site::Site;
use headstart_pageload::har::Recording;
use headstart_testkit::Running;
use serde_json::Value;

use crate::place::{Place, until};
use crate::programs::{LAB, headstart};
use crate::sites::read;

/// The site that is loaded, the quickest.
pub(crate) const SITE: &str = "app";

/// Where the site is, by TLS and without.
pub(crate) const TLS: &str = "127.0.0.1:8443";
pub(crate) const CLEAR: &str = "127.0.0.1:8080";

pub(crate) const AGENT: u16 = 1080;
const HTTPS: u16 = 443;

const ROUND_TRIP: Duration = Duration::from_millis(40);

/// Where file systems of BPF are mounted by convention, and a folder in it.
const BPF_MOUNT: &str = "/sys/fs/bpf";
pub(crate) const MAPS: &str = "/sys/fs/bpf/headstart-record";

pub(crate) struct World {
    lab: Lab,
    place: Place,
    seen: Seen,
    /// The control group whose sockets may send cookies.
    group: Option<Group>,
}

impl World {
    pub(crate) fn new() -> Self {
        let lab = Lab::build(vec![Host::new("client"), Host::new("server")]).unwrap();
        let seen = Seen::default();
        let [out, back] = [(); 2].map(|()| Link::default().with(Delay(ROUND_TRIP / 2)));
        assert!(lab.set_links("client", out.with(seen.clone()), back));
        Self { lab, place: Place::new(), seen, group: None }
    }

    /// Makes a world with the programs of Fast Open attached at both ends, for this thread and the
    /// processes that it starts.
    pub(crate) fn with_fast_open() -> Self {
        own_bpf_mount(BPF_MOUNT).unwrap();
        let world = Self::new();
        for (name, value) in [("client", "1"), ("server", "3")] {
            world
                .node(name)
                .run(|| fs::write("/proc/sys/net/ipv4/tcp_fastopen", value))
                .unwrap()
                .unwrap();
        }
        let group = Group::new();
        let mut client = world.node("client").command(headstart());
        client.args(["fastopen", "attach", "client", "--dir", MAPS, "--cgroup"]);
        run(client.arg(&group.0));
        let mut server = world.node("server").command(headstart());
        server.args(["fastopen", "attach", "server", "--dir", MAPS, "--interface", INTERFACE]);
        run(server.args(["--port", &HTTPS.to_string()]));
        Self { group: Some(group), ..world }
    }

    fn node(&self, name: &str) -> &Node {
        self.lab.node(name).unwrap()
    }

    pub(crate) fn server(&self) -> Ipv4Addr {
        self.node("server").ipv4().unwrap()
    }

    fn file(&self, name: &str) -> String {
        self.place.path("certificates").join(name).display().to_string()
    }

    /// Serves the site on the server.
    pub(crate) fn site(&self) -> Running {
        let mut command = self.node("server").command(LAB);
        command.args(["lab", "site", SITE, "--listen", TLS, "--without-tls", CLEAR, "--json"]);
        command.args(["--think", "0ms", "--certificates", &self.file("")]).stdout(Stdio::piped());
        let mut child = Running(self.node("server").spawn(command).unwrap());
        let mut line = String::new();
        let out = child.0.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        assert!(line.contains(SITE), "{line}");
        child
    }

    /// The options that give an edge the certificates of all hosts of the site.
    pub(crate) fn certificates(&self) -> Vec<String> {
        let site = Site::built_in(SITE).unwrap();
        let options = site.hosts().iter().flat_map(|host| {
            let name = &host.name;
            let [chain, key] = ["pem", "key"].map(|end| self.file(&format!("{name}.{end}")));
            ["--cert".into(), chain, "--key".into(), key]
        });
        options.collect()
    }

    pub(crate) fn edge(&self, arguments: &[&str]) -> Daemon<'_> {
        let listen = SocketAddr::from((self.server(), HTTPS)).to_string();
        self.daemon("server", "edge", &[&["--listen", &listen], arguments].concat())
    }

    /// Starts an agent that knows the edge and its other `offers`.
    pub(crate) fn agent(&self, offers: &str, arguments: &[&str]) -> Daemon<'_> {
        let listen = format!("127.0.0.1:{AGENT}");
        let edge = format!("*.test={}:{HTTPS}{offers}", self.server());
        self.daemon(
            "client",
            "agent",
            &[&["--listen", &listen, "--edge", &edge], arguments].concat(),
        )
    }

    fn daemon(&self, node: &str, role: &str, arguments: &[&str]) -> Daemon<'_> {
        let (node, log) = (self.node(node), self.place.path(&format!("{role}.log")));
        let metrics = SocketAddr::from((Ipv4Addr::LOCALHOST, 9100));
        let mut command = node.command(headstart());
        command.arg(role).args(arguments).args([
            "--metrics",
            &metrics.to_string(),
            "--log",
            "debug",
        ]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log).unwrap());
        let child = Running(node.spawn(command).unwrap());
        let daemon = Daemon { node, child, log, metrics };
        until(role, || daemon.get("/readyz").is_some());
        daemon
    }

    /// Adds an agent to the group whose sockets may send cookies.
    pub(crate) fn may_open_fast(&self, agent: &Daemon<'_>) {
        let group = self.group.as_ref().expect("programs are attached");
        fs::write(group.0.join("cgroup.procs"), agent.child.0.id().to_string()).unwrap();
    }

    /// Returns the command of the recorder on the client, for the site.
    pub(crate) fn recorder(&self, arguments: &[&str]) -> Command {
        let (url, authority) = (Site::built_in(SITE).unwrap().url(), self.file("authority.pem"));
        let arguments = [&[url.as_str(), "--trust", &authority, "--json"], arguments].concat();
        self.place.arm(self.node("client").command(LAB), &arguments)
    }

    /// Runs the recorder; returns its recording.
    pub(crate) fn records(&self, mut recorder: Command) -> Recording {
        let report = self.place.outcome(recorder.output().unwrap());
        assert_eq!(report.code, Some(0), "{report:?}");
        let report: Value = serde_json::from_str(&report.out).unwrap();
        read(Path::new(report["recordings"][0]["file"].as_str().unwrap()))
    }

    /// Redirects connections of a group to a local port.
    pub(crate) fn redirects(&self, group: u32, port: u16) {
        let rules = format!(
            "add table ip headstart\n\
             add chain ip headstart output {{ type nat hook output priority -100 ; }}\n\
             add rule ip headstart output meta skgid {group} tcp dport 443 redirect to :{port}\n"
        );
        let file = self.place.path("rules.nft");
        fs::write(&file, rules).unwrap();
        run(self.node("client").command("nft").arg("-f").arg(file));
    }

    /// Returns the SYNs with cookies since the last call.
    pub(crate) fn syns(&self) -> Vec<Syn> {
        std::mem::take(&mut self.seen.0.lock().unwrap())
    }

    /// Returns the counters of the server's program.
    pub(crate) fn fast_open_counts(&self) -> Value {
        let mut status = self.node("server").command(headstart());
        status.args(["fastopen", "status", "server", "--json", "--dir", MAPS]);
        let report: Value = serde_json::from_slice(&run(&mut status)).unwrap();
        report["server"]["counts"].clone()
    }
}

/// Runs a command to its end; it must succeed.
fn run(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// An edge or an agent.
pub(crate) struct Daemon<'w> {
    node: &'w Node,
    child: Running,
    log: PathBuf,
    metrics: SocketAddr,
}

impl Daemon<'_> {
    /// Returns the sum of the metrics `name` whose labels contain all of `labels`.
    pub(crate) fn count(&self, name: &str, labels: &[&str]) -> u64 {
        let text = self.get("/metrics").expect("no metrics");
        let lines = text.lines().filter(|line| line.split(['{', ' ']).next() == Some(name));
        let lines = lines.filter(|line| labels.iter().all(|label| line.contains(label)));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    }

    /// Waits until all connections have ended, which is when they are counted.
    pub(crate) fn until_idle(&self) {
        until("the end of all connections", || {
            self.count("headstart_connections_active", &[]) == 0
        });
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    fn get(&self, path: &str) -> Option<String> {
        let response = self
            .node
            .run(|| -> std::io::Result<String> {
                let mut tcp = TcpStream::connect(self.metrics)?;
                write!(tcp, "GET {path} HTTP/1.1\r\nHost: check\r\nConnection: close\r\n\r\n")?;
                let mut response = String::new();
                tcp.read_to_string(&mut response)?;
                Ok(response)
            })
            .unwrap()
            .ok()?;
        let (head, body) = response.split_once("\r\n\r\n")?;
        head.starts_with("HTTP/1.1 200").then(|| body.to_owned())
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!(
                "--- {}\n{}",
                self.log.display(),
                lines[lines.len().saturating_sub(40)..].join("\n")
            );
        }
    }
}

/// A control group of its own; its processes have ended when it is dropped.
struct Group(PathBuf);

impl Group {
    fn new() -> Self {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let cgroup2 = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"));
        let root = cgroup2.and_then(|line| line.split(' ').nth(1)).expect("cgroup2 is mounted");
        let group = Path::new(root).join(format!("headstart-record-{}", std::process::id()));
        fs::create_dir(&group).unwrap();
        Self(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// A SYN with a cookie.
#[derive(Debug)]
pub(crate) struct Syn {
    pub(crate) cookie: Vec<u8>,
    pub(crate) data: Vec<u8>,
}

/// SYNs that the client sent.
#[derive(Clone, Debug, Default)]
struct Seen(Arc<Mutex<Vec<Syn>>>);

impl Element for Seen {
    fn handle(&mut self, _now: Duration, packet: Packet, out: &mut Outputs) {
        if let Some(segment) =
            TcpSegment::read(&packet.bytes).filter(|segment| segment.syn && !segment.ack)
            && let Some(cookie) = segment.fast_open().first().filter(|cookie| !cookie.is_empty())
        {
            let (cookie, data) = (cookie.to_vec(), segment.payload.to_vec());
            self.0.lock().unwrap().push(Syn { cookie, data });
        }
        out.pass(packet);
    }
}
