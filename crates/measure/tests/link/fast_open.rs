//! Fast Open with private cookies, all parts together: an unmodified OpenSSL client, the agent, the
//! edge that speaks TLS, and the programs in the kernels of both, with every packet of the client
//! looked at.
//!
//! Needs root: the kernel takes programs from nobody else.

use std::collections::HashSet;
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use headstart_emulation::{Element, INTERFACE, Outputs, Packet, TcpSegment};
use rustix::process::Signal;

use crate::daemon::Daemon;
use crate::library::library;
use crate::net::{HTTPS, Net, PATIENCE, ms, run, until};
use crate::programs::headstart;
use crate::{nginx, origin};

const AGENT: u16 = 1083;
pub(crate) const NAME: &str = "www.four.test";
pub(crate) const RTT: Duration = ms(40);

/// Conventional mount point of BPF file systems.
pub(crate) const BPF_MOUNT: &str = "/sys/fs/bpf";

/// Long enough to tell whose bytes they are, shorter than any secret or random value.
const WINDOW: usize = 16;

/// Random bytes that two openings may have in common by chance.
const CHANCE: usize = 3;

/// Connections until one opens fast: on a busy machine a client can take longer for its ClientHello
/// than a SYN waits.
pub(crate) const TRIES: usize = 30;

/// An unmodified client resumes: its ClientHello leaves with the SYN, under the cookie in its
/// ticket, which is good once.
pub(crate) fn cookie_in_a_ticket() {
    let net = Net::new(RTT);
    let world = World::new(&net, "ticket");
    let first = world.visit(&["-sess_out", &world.session("1")]);
    assert!(first.output.contains("New, TLSv1.3"), "{}", first.output);
    assert_eq!(first.cookies(), 0, "there was none yet");

    let second = world.resumes_fast("1", "2");
    let third = world.resumes_fast("2", "3");
    let (one, other) = (second.opening(), third.opening());
    assert_ne!(one.cookie, other.cookie);
    for (own, others) in [(&one, &third), (&other, &second)] {
        assert!(!first.shows(&own.cookie) && !others.shows(&own.cookie), "shown elsewhere");
    }
    // What two openings have in common, a client without any ticket sends too; but how long they
    // are.
    let fresh = world.visit_directly();
    let flights = [fresh, one.data, other.data].map(without_lengths);
    let [fresh, one, other] = flights.each_ref();
    let inner = windows(fresh, WINDOW - CHANCE);
    // Random bytes beside what every client sends are the same at times, but not so many.
    let is_fresh = |window: &&&[u8]| {
        inner.contains(&window[CHANCE..]) || inner.contains(&window[..WINDOW - CHANCE])
    };
    let (one, other) = (windows(one, WINDOW), windows(other, WINDOW));
    let linkable: Vec<_> = one.intersection(&other).filter(|window| !is_fresh(window)).collect();
    assert!(linkable.is_empty(), "{linkable:02x?}");

    let again = world.visit(&["-sess_in", &world.session("2")]);
    assert!(again.output.contains("Reused, TLSv1.3"), "{}", again.output);
    assert_eq!(again.cookies(), 0, "a ticket that is used again opens nothing");
    let counts = world.counts();
    let steered = counts["steered"].as_u64().unwrap();
    assert!(steered >= 2, "{counts}");
    world.edge.as_ref().unwrap().reaches("steered SYNs", steered, |edge| {
        edge.count("headstart_fastopen_syns_total", &["outcome=\"steered\""])
    });
    for outcome in ["replayed", "expired", "forged", "early", "no_listener", "stripped", "faults"] {
        assert_eq!(counts[outcome], 0, "{counts}");
    }
}

/// A session that one program has left is another one's, and with it the cookie in its ticket: a
/// fresh process of curl opens with its ClientHello in the SYN.
pub(crate) fn cookie_of_another_program() {
    let net = Net::new(RTT);
    let world = World::new(&net, "program");
    let (port, url) = (AGENT.to_string(), format!("https://{NAME}/"));
    let python = ["/usr/bin/python3", "-c", PYTHON, &port, NAME];
    let curl = ["curl", "-sS", "--no-alpn", "--max-time", "50", &url];
    let visit = world.visit_by("work", &python);
    assert_eq!(visit.cookies(), 0, "there was none yet");
    assert_eq!(world.visit_by("other", &curl).cookies(), 0, "it is another context's");
    for _ in 0..TRIES {
        let visit = world.visit_by("work", &curl);
        if visit.is_fast {
            visit.opening();
            return;
        }
        assert!(visit.cookies() == 0 || visit.is_lost, "a cookie was spent in vain");
    }
    panic!("no connection opened fast: {}", world.agent().log());
}

/// A request through the agent's port, by what Python's library has for TLS.
const PYTHON: &str = r#"
import socket, ssl, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as tcp:
    name = sys.argv[2].encode()
    tcp.sendall(b"CONNECT %b:443 HTTP/1.1\r\nHost: %b:443\r\n\r\n" % (name, name))
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        answer += tcp.recv(1)
    assert b" 200 " in answer, answer
    with ssl.create_default_context().wrap_socket(tcp, server_hostname=sys.argv[2]) as tls:
        tls.sendall(b"GET / HTTP/1.1\r\nHost: %b\r\nConnection: close\r\n\r\n" % name)
        page = b""
        while more := tls.recv(4096):
            page += more
sys.stdout.write(page.decode())
"#;

/// Tickets of TLS 1.2 travel in clear: they hold no cookie, and none leaves.
pub(crate) fn none_with_tls_1_2() {
    let net = Net::new(RTT);
    let world = World::new(&net, "tls12");
    let session = world.session("1");
    let first = world.visit(&["-tls1_2", "-sess_out", &session]);
    assert!(first.output.contains("New, TLSv1.2"), "{}", first.output);
    for _ in 0..2 {
        let next = world.visit(&["-tls1_2", "-sess_in", &session]);
        assert!(next.output.contains("Reused, TLSv1.2"), "{}", next.output);
        assert_eq!(next.cookies(), 0);
    }
    assert_eq!(world.agent().opened("fop"), 0);
}

/// A stopped edge that waits for its connections to end has given the program up: another one may
/// serve the port.
pub(crate) fn edge_that_stops() {
    let net = Net::new(RTT);
    let world = World::new(&net, "stop");
    assert!(world.keys() > 0);
    let mut client = world.asks_for_half();
    let edge = world.edge.as_ref().unwrap();
    edge.signal(Signal::TERM);
    until("the keys to be gone", || world.keys() == 0);
    let stat = fs::read_to_string(format!("/proc/{}/stat", edge.pid())).unwrap();
    assert!(!stat.contains(") Z "), "the edge ended before: {stat}");
    client.kill().unwrap();
    client.wait().unwrap();
}

/// The next edge has the hidden listener of the one before, which must not wipe its keys for its
/// own while it waits for its connections to end.
pub(crate) fn edge_that_hands_over() {
    let net = Net::new(RTT);
    let world = World::new(&net, "hand-over");
    let mut client = world.asks_for_half();
    let _next = world.start_edge(1);
    let maps = || {
        let files = fs::read_dir(format!("/proc/{}/fd", world.edge.as_ref().unwrap().pid()));
        let files = files.unwrap().filter_map(|file| fs::read_link(file.unwrap().path()).ok());
        files.filter(|file| file.to_string_lossy().contains("bpf-map")).count()
    };
    until("the one before to give the program up", || maps() == 0);
    assert!(world.keys() > 0);
    client.kill().unwrap();
    client.wait().unwrap();
}

/// A network with everything that is needed, and what is attached to it.
pub(crate) struct World<'n> {
    net: &'n Net,
    edge: Option<Daemon<'n>>,
    agent: Option<Daemon<'n>>,
    /// Receives one message for each response of the origin.
    requests: Option<mpsc::Receiver<()>>,
    group: PathBuf,
    maps: PathBuf,
    seen: Seen,
}

impl<'n> World<'n> {
    pub(crate) fn new(net: &'n Net, name: &str) -> Self {
        let maps = Path::new(BPF_MOUNT).join(format!("headstart-{name}"));
        let seen = Seen::default();
        net.set_link(RTT, Some(seen.tap()), Some(seen.tap()));
        for (node, value) in [(net.client(), "1"), (net.server(), "3")] {
            node.run(|| fs::write("/proc/sys/net/ipv4/tcp_fastopen", value)).unwrap().unwrap();
        }
        let group = group(name);
        let (edge, agent, requests) = (None, None, None);
        let mut world = Self { net, edge, agent, requests, group, maps, seen };
        world.attach();
        world.start();
        world
    }

    fn attach(&self) {
        let mut client = self.net.client().command(headstart());
        client.args(["fastopen", "attach", "client", "--cgroup"]).arg(&self.group);
        run(client.arg("--dir").arg(&self.maps));
        let mut server = self.net.server().command(headstart());
        server.args(["fastopen", "attach", "server", "--interface", INTERFACE]);
        run(server.args(["--port", &HTTPS.to_string(), "--dir"]).arg(&self.maps));
    }

    fn start(&mut self) {
        let net = self.net;
        nginx::certificate(net);
        fs::set_permissions(net.file("key.pem"), Permissions::from_mode(0o600)).unwrap();
        let listen = "127.0.0.1:8080".parse().unwrap();
        self.requests = Some(origin::serve(net.server(), listen, answer));
        self.edge = Some(self.start_edge(0));
        let to = format!("--edge={NAME}={},fop=1", net.edge4());
        let socket = format!("--socket={}", self.socket().display());
        let agent = Daemon::agent(net, AGENT, &[&to, &socket]);
        fs::write(self.group.join("cgroup.procs"), agent.pid().to_string()).unwrap();
        self.agent = Some(agent);
    }

    /// Starts an edge, which takes over from the one before, if there is one.
    fn start_edge(&self, number: u16) -> Daemon<'n> {
        let files = ["cert.pem", "key.pem", "takeover"].map(|name| self.net.file(name));
        let [cert, key, path] = files.each_ref().map(|file| file.to_str().unwrap());
        let tls = ["--origin", "http://127.0.0.1:8080", "--cert", cert, "--key", key];
        let maps = self.maps.to_str().unwrap();
        let fast = ["--fast-open", "--fast-open-maps", maps, "--takeover", path];
        Daemon::edge(self.net, number, &[&tls[..], &fast].concat())
    }

    /// Starts a client of the edge, and waits until it has a part of an answer that never ends.
    fn asks_for_half(&self) -> Child {
        let (text, request) = (self.net.file("said"), self.net.file("request-half"));
        fs::write(&request, format!("GET {HALF} HTTP/1.1\r\nHost: {NAME}\r\n\r\n")).unwrap();
        let mut client = self.net.client().command("openssl");
        client.args(["s_client", "-ign_eof", "-servername", NAME, "-connect"]);
        client.arg(self.net.edge4().to_string()).stdin(fs::File::open(&request).unwrap());
        let client = client.stdout(fs::File::create(&text).unwrap()).spawn().unwrap();
        until("half an answer", || {
            String::from_utf8_lossy(&fs::read(&text).unwrap()).contains("HTTP/1.1 200")
        });
        client
    }

    fn agent(&self) -> &Daemon<'n> {
        self.agent.as_ref().unwrap()
    }

    /// The agent's, for programs with the library of `headstart run`.
    fn socket(&self) -> PathBuf {
        self.net.file("agent.sock")
    }

    /// Returns the counters of the server's program.
    fn counts(&self) -> serde_json::Value {
        self.status()["counts"].clone()
    }

    /// Returns the status of the server's program.
    fn status(&self) -> serde_json::Value {
        let mut status = self.net.server().command(headstart());
        status.args(["fastopen", "status", "server", "--json", "--dir"]).arg(&self.maps);
        let report: serde_json::Value = serde_json::from_slice(&run(&mut status).stdout).unwrap();
        report["server"].clone()
    }

    /// Does something to packets of the client on their way.
    pub(crate) fn fault(&self, fault: Box<dyn Element>) {
        self.net.set_link(RTT, Some(fault), None);
    }

    /// Returns the output of `headstart get --json`; `options` are those of the edge.
    pub(crate) fn get(&self, flags: &[&str], options: &str) -> serde_json::Value {
        let mut get = self.net.client().command("sh");
        // Only what is in the group can send cookies.
        get.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(self.group.join("cgroup.procs"));
        get.arg(headstart()).args(["get", "--json", "--edge"]);
        get.arg(format!("{NAME}={}{options}", self.net.edge4()));
        get.arg("--cacert").arg(self.net.file("cert.pem"));
        get.args(flags).arg(format!("https://{NAME}/"));
        serde_json::from_slice(&run(&mut get).stdout).unwrap()
    }

    /// Waits for this many requests at the origin, and no more than these.
    pub(crate) fn requests(&self, count: usize) {
        let requests = self.requests.as_ref().unwrap();
        for number in 0..count {
            let next = requests.recv_timeout(PATIENCE);
            assert!(next.is_ok(), "{number} requests of {count}");
        }
        // One that is sent twice would be there by now, a round trip later.
        assert!(requests.recv_timeout(RTT * 2).is_err(), "more than {count} requests");
    }

    /// The file of a session.
    fn session(&self, number: &str) -> String {
        self.net.file(&format!("session-{number}")).display().to_string()
    }

    /// One request by `openssl s_client` through the agent, and the packets of its connection.
    fn visit(&self, flags: &[&str]) -> Visit {
        let (to, proxy) = (format!("{NAME}:{HTTPS}"), format!("127.0.0.1:{AGENT}"));
        self.watched(|| self.s_client(&[&["-connect", &to, "-proxy", &proxy], flags].concat()))
    }

    /// Returns the output of a client that makes one connection through the agent, and its packets.
    fn watched(&self, client: impl FnOnce() -> String) -> Visit {
        self.seen.take();
        let ((all, fast), lost) = (self.opened(), self.lost());
        let output = client();
        self.agent().reaches("ended connections", all + 1, |agent| {
            agent.count("headstart_connections_total", &[])
        });
        let (is_fast, is_lost) = (self.opened().1 > fast, self.lost() > lost);
        Visit { output, packets: self.seen.take(), is_fast, is_lost }
    }

    /// The first bytes of a client that knows nothing and has no agent.
    fn visit_directly(&self) -> Vec<u8> {
        self.seen.take();
        let output = self.s_client(&["-connect", &self.net.edge4().to_string()]);
        let packets = self.seen.take();
        Visit { output, packets, is_fast: false, is_lost: false }.first_flight()
    }

    fn s_client(&self, flags: &[&str]) -> String {
        let request = self.net.file("request");
        let text = format!("GET / HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n\r\n");
        fs::write(&request, text).unwrap();
        let mut client = self.net.client().command("timeout");
        client.args(["50", "openssl", "s_client", "-ign_eof", "-servername", NAME]);
        client.arg("-CAfile").arg(self.net.file("cert.pem")).arg("-verify_return_error");
        client.args(flags).stdin(Stdio::from(fs::File::open(&request).unwrap()));
        let output = client.output().unwrap();
        let message =
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success() && message.contains("HTTP/1.1 200"), "{message}");
        message
    }

    /// Watches a program that visits the server through the agent, which says yes.
    fn visit_by(&self, context: &str, command: &[&str]) -> Visit {
        let visit = self.watched(|| self.program(context, command));
        assert!(visit.output.ends_with("yes"), "{}", visit.output);
        visit
    }

    /// Returns the number of keys in the edge's program.
    fn keys(&self) -> u64 {
        self.status()["keys"].as_u64().unwrap()
    }

    /// Returns the output of a program that `headstart run` leads through the agent.
    fn program(&self, context: &str, command: &[&str]) -> String {
        let mut run_it = self.net.client().command(headstart());
        run_it.args(["run", "--context", context, "--proxy", &format!("127.0.0.1:{AGENT}")]);
        run_it.arg("--socket").arg(self.socket()).arg("--preload").arg(library());
        run_it.arg("--").args(command);
        // Of what is around this test no proxy counts, and no roots.
        run_it.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        run_it.env("SSL_CERT_FILE", self.net.file("cert.pem")).env("HEADSTART_PATIENCE_MS", "9000");
        String::from_utf8(run(&mut run_it).stdout).unwrap()
    }

    /// Returns the number of connections that the agent has opened, and how many of them fast.
    fn opened(&self) -> (u64, u64) {
        (self.agent().count("headstart_connections_total", &[]), self.agent().opened("fop"))
    }

    fn lost(&self) -> u64 {
        self.agent().count("headstart_syn_data_total", &["outcome=\"lost\""])
    }

    /// A visit with the session `from` that opens fast; its own session goes to `to`.
    fn resumes_fast(&self, from: &str, to: &str) -> Visit {
        let [mut from, to] = [from, to].map(|number| self.session(number));
        for _ in 0..TRIES {
            let visit = self.visit(&["-sess_in", &from, "-sess_out", &to]);
            assert!(visit.output.contains("Reused, TLSv1.3"), "{}", visit.output);
            if visit.is_fast {
                return visit;
            }
            assert!(visit.cookies() == 0 || visit.is_lost, "a cookie was spent in vain");
            from.clone_from(&to);
        }
        panic!("no connection opened fast: {}", self.agent().log());
    }
}

/// Programs first, then what they use.
impl Drop for World<'_> {
    fn drop(&mut self) {
        self.agent = None;
        self.edge = None;
        for node in [self.net.client(), self.net.server()] {
            let mut command = node.command(headstart());
            let _ = command.args(["fastopen", "detach", "--dir"]).arg(&self.maps).output();
        }
        let _ = fs::remove_dir(&self.group);
    }
}

/// A new control group, with nothing in it.
pub(crate) fn group(name: &str) -> PathBuf {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let cgroup2 = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"));
    let root = cgroup2.and_then(|line| line.split(' ').nth(1)).expect("cgroup2 is mounted");
    let group = Path::new(root).join(format!("headstart-link-{}-{name}", std::process::id()));
    fs::create_dir(&group).unwrap();
    group
}

/// Path that the origin answers by half.
const HALF: &str = "/half";

/// An origin that speaks HTTP in clear.
fn answer(mut tcp: TcpStream) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if tcp.read(&mut byte).unwrap_or(0) == 0 {
            return;
        }
        request.extend(byte);
    }
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\n";
    if !request.starts_with(format!("GET {HALF} ").as_bytes()) {
        let _ = tcp.write_all(&[&head[..], b"yes"].concat());
    } else if tcp.write_all(&[&head[..], b"y"].concat()).is_ok() {
        let _ = tcp.read(&mut [0]);
    }
}

/// One connection.
struct Visit {
    output: String,
    packets: Vec<Vec<u8>>,
    is_fast: bool,
    /// True if the answer to a SYN with data came later than is waited for.
    is_lost: bool,
}

/// A SYN with data.
struct FastSyn {
    cookie: Vec<u8>,
    data: Vec<u8>,
}

impl Visit {
    fn segments(&self) -> impl Iterator<Item = TcpSegment<'_>> {
        self.packets.iter().filter_map(|packet| TcpSegment::read(packet))
    }

    /// Fast Open options on the wire, either way.
    fn cookies(&self) -> usize {
        self.segments().map(|segment| segment.fast_open().len()).sum()
    }

    /// The SYN that opened it: the only one, with the only cookie, and a whole ClientHello.
    fn opening(&self) -> FastSyn {
        let mut syns = self.segments().filter(|segment| segment.syn && !segment.ack);
        let syn = syns.next().expect("there is a SYN");
        assert!(syns.next().is_none(), "two SYNs");
        assert_eq!(self.cookies(), 1, "options, both ways");
        let [cookie] = syn.fast_open()[..] else { panic!("no cookie in the SYN") };
        assert_eq!(cookie.len(), 16);
        let data = syn.payload;
        assert_eq!(data.first(), Some(&22), "a record of the handshake");
        let length = usize::from(u16::from_be_bytes([data[3], data[4]]));
        assert_eq!(data.len(), 5 + length, "the whole ClientHello");
        let answer = self.segments().find(|segment| segment.syn && segment.ack).unwrap();
        assert_eq!(answer.source.port(), HTTPS);
        FastSyn { cookie: cookie.to_vec(), data: data.to_vec() }
    }

    /// The ClientHello, in the first bytes of the connection; the last packets of the one before
    /// may be seen, too.
    fn first_flight(&self) -> Vec<u8> {
        let syn = self.segments().find(|segment| segment.syn && !segment.ack);
        let client = syn.expect("there is a SYN").source;
        let first =
            self.segments().find(|segment| segment.source == client && !segment.payload.is_empty());
        first.expect("the client sent something").payload.to_vec()
    }

    /// Returns true if these bytes were on the wire in any packet.
    fn shows(&self, bytes: &[u8]) -> bool {
        let mut windows = self.packets.iter().flat_map(|packet| packet.windows(bytes.len()));
        windows.any(|window| window == bytes)
    }
}

/// A ClientHello in a record, with zeros for the lengths of record, message and extensions (RFC
/// 8446 section 4.1.2).
fn without_lengths(mut hello: Vec<u8>) -> Vec<u8> {
    const SESSION_ID: usize = 5 + 4 + 2 + 32;
    let suites = SESSION_ID + 1 + usize::from(hello[SESSION_ID]);
    let length = usize::from(u16::from_be_bytes([hello[suites], hello[suites + 1]]));
    let compression = suites + 2 + length;
    let extensions = compression + 1 + usize::from(hello[compression]);
    for field in [3..5, 6..9, extensions..extensions + 2] {
        hello[field].fill(0);
    }
    hello
}

fn windows(bytes: &[u8], size: usize) -> HashSet<&[u8]> {
    bytes.windows(size).collect()
}

/// Packets of the client and to it, in order.
#[derive(Clone, Debug, Default)]
struct Seen(Arc<Mutex<Vec<Vec<u8>>>>);

impl Seen {
    fn tap(&self) -> Box<dyn Element> {
        Box::new(Tap(self.clone()))
    }

    /// Takes the packets since the last time.
    fn take(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

#[derive(Debug)]
struct Tap(Seen);

impl Element for Tap {
    fn handle(&mut self, _now: Duration, packet: Packet, out: &mut Outputs) {
        self.0.0.lock().unwrap().push(packet.bytes.clone());
        out.pass(packet);
    }
}
