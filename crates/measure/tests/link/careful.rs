//! Careful Resume with agent, edge and the program in the kernel: what leaves the server before
//! anything is acknowledged.
//!
//! Needs root: the kernel takes programs from nobody else.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use headstart_emulation::{Element, Outputs, Packet, TcpSegment};

use crate::daemon::Daemon;
use crate::fast_open::{BPF_MOUNT, group};
use crate::net::{Net, ms, run, until};
use crate::programs::headstart;
use crate::{curl, nginx, origin};

const NAME: &str = "www.four.test";
const AGENT: u16 = 1083;
const RTT: Duration = ms(300);

/// Bytes of an answer: many more than an initial window of 14 kB.
const ANSWER: usize = 600_000;

/// More than an initial window carries, with all that TLS adds.
const MORE_THAN_INITIAL: u64 = 40_000;

/// Connections until one shows what is expected: on a busy machine a join may come before the whole
/// flight.
const TRIES: usize = 20;

/// A second connection begins with half of what the first one got through in a round trip, and so
/// does the one behind it: the path bears it.
pub(crate) fn begins_with_the_window_of_before() {
    let net = Net::new(RTT);
    let program = Program::attach(&net, "jump");
    let world = World::start(&net, Some(&program));
    let first = world.visit();
    assert!(first < MORE_THAN_INITIAL, "{first} bytes in the first flight");
    assert_eq!(world.jumps("jumped"), 0);
    let near = world.flight.offered();
    let jumped = world.until_jumped();
    // The agent knows by now how far it is. Linux before 6.10 keeps the window at 64 kB.
    let far = world.flight.offered();
    assert_eq!(far.scale, near.scale, "the window of either can become as large");
    assert!(far.window > near.window.max(1 << 19), "{far:?} after {near:?}");
    assert!(jumped > MORE_THAN_INITIAL, "{jumped} bytes in the first flight after a jump");
    world.edge.reaches("the end of a jump", 1, |edge| {
        edge.count("headstart_careful_ends_total", &["result=\"validated\""])
    });
    assert_eq!(world.edge.count("headstart_careful_paths", &[]), 1);
}

/// A path that loses what it bore before is forgotten, and the connection still ends well.
pub(crate) fn retreats_where_the_path_bears_less() {
    let net = Net::new(RTT);
    let program = Program::attach(&net, "retreat");
    let world = World::start(&net, Some(&program));
    world.visit();
    world.flight.lose();
    world.until_jumped();
    world.edge.reaches("a retreat", 1, |edge| {
        edge.count("headstart_careful_ends_total", &["result=\"retreated\""])
    });
    until("a qlog file with a jump and a retreat", || {
        world.timelines().iter().any(|timeline| {
            ["unvalidated", "safe_retreat"].iter().all(|to| {
                let event = format!("\"to\":\"{to}\"");
                timeline
                    .lines()
                    .any(|line| line.contains("\"tcp:careful_resume\"") && line.contains(&event))
            })
        })
    });
}

/// Without the program the edge says so, once, and serves.
pub(crate) fn serves_without_the_program() {
    let net = Net::new(RTT);
    let world = World::start(&net, None);
    for _ in 0..2 {
        let flight = world.visit();
        assert!(flight < MORE_THAN_INITIAL, "{flight} bytes in the first flight");
    }
    assert_eq!(world.jumps(""), 0);
    assert_eq!(world.edge.log().matches("no window can be set").count(), 1);
}

/// The attached program, in a cgroup without other processes.
struct Program<'n> {
    net: &'n Net,
    group: PathBuf,
    pins: PathBuf,
}

impl<'n> Program<'n> {
    fn attach(net: &'n Net, name: &str) -> Self {
        let pins = Path::new(BPF_MOUNT).join(format!("headstart-careful-{name}"));
        let program = Self { net, group: group(&format!("careful-{name}")), pins };
        let mut attach = program.command("attach");
        run(attach.arg("--cgroup").arg(&program.group));
        let status: serde_json::Value =
            serde_json::from_slice(&run(program.command("status").arg("--json")).stdout).unwrap();
        assert_eq!(status["owner"], 0, "{status}");
        program
    }

    fn command(&self, action: &str) -> std::process::Command {
        let mut command = self.net.server().command(headstart());
        command.args(["careful-resume", action, "--dir"]).arg(&self.pins);
        command
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        let _ = self.command("detach").output();
        let _ = fs::remove_dir(&self.group);
    }
}

/// An origin behind an edge, and an agent.
struct World<'n> {
    net: &'n Net,
    edge: Daemon<'n>,
    _agent: Daemon<'n>,
    flight: Flight,
}

impl<'n> World<'n> {
    fn start(net: &'n Net, program: Option<&Program<'_>>) -> Self {
        let flight = Flight::default();
        let [up, down] = flight.both();
        net.set_link(Duration::ZERO, Some(up), Some(down));
        nginx::certificate(net);
        fs::set_permissions(net.file("key.pem"), Permissions::from_mode(0o600)).unwrap();
        origin::serve(net.server(), "127.0.0.1:8080".parse().unwrap(), answer);
        let files = ["cert.pem", "key.pem"].map(|name| net.file(name));
        let [cert, key] = files.each_ref().map(|file| file.to_str().unwrap());
        let tls = ["--origin", "http://127.0.0.1:8080", "--cert", cert, "--key", key];
        let timelines = net.file("qlog");
        let careful = ["--careful-resume", "--qlog", timelines.to_str().unwrap()];
        let careful = [&tls[..], &careful].concat();
        let edge = match program {
            Some(program) => Daemon::edge_within(net, 0, &careful, &program.group),
            None => Daemon::edge(net, 0, &careful),
        };
        let agent = Daemon::agent(net, AGENT, &[&format!("--edge={NAME}={}", net.edge4())]);
        Self { net, edge, _agent: agent, flight }
    }

    /// Downloads the answer over a connection of its own; returns the bytes of the first flight.
    fn visit(&self) -> u64 {
        self.flight.begin();
        let fetch = curl::get(self.net, curl::Via::Socks(AGENT), NAME, "/");
        assert_eq!((fetch.exit, fetch.body.len()), (0, ANSWER));
        self.flight.bytes()
    }

    fn jumps(&self, outcome: &str) -> u64 {
        let label = format!("outcome=\"{outcome}\"");
        let labels = if outcome.is_empty() { vec![] } else { vec![label.as_str()] };
        self.edge.count("headstart_careful_jumps_total", &labels)
    }

    /// The edge's qlog files.
    fn timelines(&self) -> Vec<String> {
        let files = fs::read_dir(self.net.file("qlog")).into_iter().flatten();
        files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap_or_default()).collect()
    }

    fn until_jumped(&self) -> u64 {
        for _ in 0..TRIES {
            let (before, flight) = (self.jumps("jumped"), self.visit());
            if self.jumps("jumped") > before {
                return flight;
            }
        }
        panic!("no connection jumped: {}", self.edge.log());
    }
}

fn answer(mut tcp: TcpStream) {
    let mut request = [0; 4096];
    while tcp.read(&mut request).is_ok_and(|count| count > 0) {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {ANSWER}\r\n\r\n");
        let answer = [head.into_bytes(), vec![b'x'; ANSWER]].concat();
        if tcp.write_all(&answer).is_err() {
            return;
        }
    }
}

/// The bytes that leave the server over TCP before an acknowledgement of any comes back.
#[derive(Clone, Debug, Default)]
struct Flight(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    /// Client of the connection, since its SYN.
    client: Option<SocketAddr>,
    bytes: u64,
    packets: u64,
    /// Receive window of the client, from its SYN on.
    offered: Offered,
    /// Sequence number of the server's first data.
    first: Option<u32>,
    is_over: bool,
    /// True if one packet in three is lost, of those behind the initial window.
    loses: bool,
}

/// Receive window that a client offers when it opens a connection.
#[derive(Clone, Copy, Debug, Default)]
struct Offered {
    scale: u8,
    /// Bytes, by the acknowledgement of the SYN-ACK: a SYN's own have 16 bits. 0 before.
    window: u64,
}

/// One direction of the client's link: its delay, and what passes the end at the server.
#[derive(Debug)]
struct Direction {
    flight: Flight,
    is_up: bool,
}

impl Element for Direction {
    fn handle(&mut self, _now: Duration, packet: Packet, out: &mut Outputs) {
        let mut seen = self.flight.0.lock().unwrap();
        let is_lost = TcpSegment::read(&packet.bytes).is_some_and(|segment| {
            if self.is_up {
                seen.handle_up(&segment, &packet.bytes);
                return false;
            }
            seen.handle_down(&segment)
        });
        if !is_lost {
            out.pass_after(RTT / 2, packet);
        }
    }
}

impl Seen {
    /// An acknowledgement behind the first data ends the flight. It is half a round trip away from
    /// the server, and so is what that sends meanwhile.
    fn handle_up(&mut self, segment: &TcpSegment<'_>, packet: &[u8]) {
        if segment.syn {
            (self.client, self.first) = (Some(segment.source), None);
            self.offered = Offered { scale: scale(segment.options), window: 0 };
        }
        let tcp = &packet[usize::from(packet[0] & 0xf) * 4..];
        let acknowledged = u32::from_be_bytes(tcp[8..12].try_into().unwrap());
        if !segment.syn && self.client == Some(segment.source) && self.offered.window == 0 {
            let window = u16::from_be_bytes(tcp[14..16].try_into().unwrap());
            self.offered.window = u64::from(window) << self.offered.scale;
        }
        let first = self.first.filter(|_| self.client == Some(segment.source));
        self.is_over |=
            first.is_some_and(|first| acknowledged.wrapping_sub(first).cast_signed() > 0);
    }

    /// Returns true for a packet to be lost.
    fn handle_down(&mut self, segment: &TcpSegment<'_>) -> bool {
        if segment.payload.is_empty() || self.client != Some(segment.destination) || self.is_over {
            return false;
        }
        self.first.get_or_insert(segment.seq);
        self.bytes += segment.payload.len() as u64;
        self.packets += 1;
        self.loses && self.bytes > MORE_THAN_INITIAL / 2 && self.packets.is_multiple_of(3)
    }
}

impl Flight {
    fn both(&self) -> [Box<dyn Element>; 2] {
        [true, false].map(|is_up| -> Box<dyn Element> {
            Box::new(Direction { flight: self.clone(), is_up })
        })
    }

    fn begin(&self) {
        let mut seen = self.0.lock().unwrap();
        *seen = Seen { loses: seen.loses, ..Seen::default() };
    }

    fn lose(&self) {
        self.0.lock().unwrap().loses = true;
    }

    fn offered(&self) -> Offered {
        self.0.lock().unwrap().offered
    }

    fn bytes(&self) -> u64 {
        self.0.lock().unwrap().bytes
    }
}

/// Reads the window scale of a SYN's options (RFC 7323); 0 if there is none.
fn scale(mut options: &[u8]) -> u8 {
    while let [kind, rest @ ..] = options {
        options = match (kind, rest) {
            (1, _) => rest,
            (3, [3, scale, ..]) => return *scale,
            (_, [length, ..]) if *length > 1 => {
                options.get(usize::from(*length)..).unwrap_or_default()
            }
            _ => return 0,
        };
    }
    0
}
