//! `headstart edge` and `headstart agent` as processes on a node.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use headstart_emulation::Node;
use rustix::process::{Pid, Signal, kill_process};

use crate::net::{Net, http_get, until};

/// Lines of a log shown when a check fails.
const LOG_TAIL: usize = 40;

/// A running daemon; killed when dropped, and its log shown if that is by a failure.
pub(crate) struct Daemon<'n> {
    node: &'n Node,
    child: Child,
    log: PathBuf,
    metrics: SocketAddr,
}

impl<'n> Daemon<'n> {
    /// Starts an edge on the server, at port 443 of all its addresses, and waits until it is ready.
    pub(crate) fn edge(net: &'n Net, number: u16, arguments: &[&str]) -> Self {
        Self::edge_on(net, net.server(), number, arguments)
    }

    /// Starts an edge on a node in the same way.
    pub(crate) fn edge_on(net: &'n Net, node: &'n Node, number: u16, arguments: &[&str]) -> Self {
        let command = node.command(crate::programs::headstart());
        Self::start(net, node, command, "edge", 9200 + number, edge_arguments(node, arguments))
    }

    /// Starts an edge on the server, which is in a control group from its start.
    pub(crate) fn edge_within(net: &'n Net, number: u16, arguments: &[&str], group: &Path) -> Self {
        let node = net.server();
        let mut command = node.command("sh");
        command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(group.join("cgroup.procs"));
        command.arg(crate::programs::headstart());
        Self::start(net, node, command, "edge", 9200 + number, edge_arguments(node, arguments))
    }

    /// Starts an agent on the client, at `port` of its loopback addresses.
    pub(crate) fn agent(net: &'n Net, port: u16, arguments: &[&str]) -> Self {
        let listen = [format!("--listen=127.0.0.1:{port}"), format!("--listen=[::1]:{port}")];
        let arguments = arguments.iter().map(|&text| text.to_owned());
        let command = net.client().command(crate::programs::headstart());
        let arguments = listen.into_iter().chain(arguments).collect();
        Self::start(net, net.client(), command, "agent", port + 8000, arguments)
    }

    fn start(
        net: &'n Net,
        node: &'n Node,
        mut command: Command,
        role: &str,
        metrics: u16,
        arguments: Vec<String>,
    ) -> Self {
        let log = net.file(&format!("{role}-{metrics}.log"));
        let metrics = SocketAddr::from((Ipv4Addr::LOCALHOST, metrics));
        command.arg(role).args(arguments).args(["--metrics", &metrics.to_string()]);
        command.args(["--log", "debug"]).stdin(Stdio::null()).stdout(Stdio::null());
        let daemon = Self::spawn(node, command, log, metrics);
        until(role, || http_get(node, metrics, "/readyz").is_some());
        daemon
    }

    fn spawn(node: &'n Node, mut command: Command, log: PathBuf, metrics: SocketAddr) -> Self {
        let file = File::options().create(true).append(true).open(&log).unwrap();
        command.stderr(file);
        let child = node.spawn(command).unwrap();
        Self { node, child, log, metrics }
    }

    /// The sum of all counters and gauges called `name` whose labels contain all of `labels`.
    pub(crate) fn count(&self, name: &str, labels: &[&str]) -> u64 {
        let text = http_get(self.node, self.metrics, "/metrics").expect("no metrics");
        let lines = text.lines().filter(|line| line.split(['{', ' ']).next() == Some(name));
        let lines = lines.filter(|line| labels.iter().all(|label| line.contains(label)));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    }

    /// Connections that were opened so and have ended.
    pub(crate) fn opened(&self, opening: &str) -> u64 {
        self.count("headstart_connections_total", &[&format!("opening=\"{opening}\"")])
    }

    /// Connections that went back to plain TLS, or never tried more, for this reason.
    pub(crate) fn fell_back(&self, reason: &str) -> u64 {
        self.count("headstart_fallbacks_total", &[&format!("reason=\"{reason}\"")])
    }

    /// First flights that came over UDP.
    pub(crate) fn saved(&self) -> u64 {
        self.count("headstart_round_trips_saved_total", &[])
    }

    /// Waits until a count is reached: daemons count a connection when it has ended.
    pub(crate) fn reaches(&self, what: &str, wanted: u64, count: impl Fn(&Self) -> u64) {
        let mut seen = 0;
        until(&format!("{what} to be {wanted}"), || {
            seen = count(self);
            seen >= wanted
        });
        assert_eq!(seen, wanted, "{what}");
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
    }

    /// Waits for its end.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        until("the daemon's end", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// Ends it at once, as a crash does.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<_> = log.lines().collect();
            let tail = lines.get(lines.len().saturating_sub(LOG_TAIL)..).unwrap_or_default();
            eprintln!("--- {}\n{}", self.log.display(), tail.join("\n"));
        }
    }
}

/// Lets an edge listen at port 443 of all addresses of its node.
fn edge_arguments(node: &Node, more: &[&str]) -> Vec<String> {
    let listen = node.addresses().iter();
    let listen = listen.flat_map(|ip| ["--listen".to_owned(), crate::net::at(*ip, 443)]);
    listen.chain(more.iter().map(|&text| text.to_owned())).collect()
}
