//! A client and an edge over a link that the bytes of the fuzzer control.
//!
//! The first bytes configure both ends, each later one is an operation, with operands behind it.
//! Whatever the link does, each stream arrives as a prefix of what was sent; and if nothing more
//! was wrong than loss, order, duplication and delay, it arrives whole.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use headstart_proto::limits::{AMPLIFICATION, CLIENT_BYTES, DATAGRAM_MAX, SESSION_LIFE};
use headstart_proto::{
    Client, ClientConfig, ClientEvent, Instant, JoinKey, OriginEnd, ResetReason, RouteTag,
    ServerConfig, Wait,
};

use super::edge::Edge;

/// Operations of one run at most, so that a run is short.
const OPERATIONS: usize = 400;

/// Time that a datagram may be under way.
const DATAGRAM_LIFE: Duration = Duration::from_secs(5);

/// Runs `bytes`; panics where a promise is broken.
pub fn operations(bytes: &[u8]) {
    let mut script = Script(bytes);
    let mut link = Link::new(&mut script);
    for _ in 0..OPERATIONS {
        let Some(operation) = script.next() else {
            break;
        };
        link.run(operation, &mut script);
        link.check();
    }
    link.settle();
}

struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// Zero when the bytes are used up.
    fn operand(&mut self) -> usize {
        usize::from(self.next().unwrap_or_default())
    }
}

/// Faults beyond loss, order, duplication and delay; they excuse what is lost with them.
#[derive(Clone, Copy, Default)]
struct Faults {
    /// Datagrams were forged: contents may be wrong, bounds may not.
    forged: bool,
    /// The edge lost its memory.
    restarted: bool,
    /// So much time has passed that the edge may have forgotten.
    late: bool,
    /// An origin broke off.
    origin_lost: bool,
}

struct Link {
    now: Instant,
    client: Client,
    edge: Edge,
    edge_config: ServerConfig,
    faults: Faults,
    /// Datagrams under way.
    up: Path,
    down: Path,
    /// TCP bytes under way.
    tcp_up: Vec<u8>,
    tcp_connected: bool,
    same_address: bool,
    client_stream: Vec<u8>,
    client_written: usize,
    client_finished: bool,
    server_bytes: usize,
    /// Written so far, for each origin stream.
    server_written: Vec<usize>,
    got: Vec<u8>,
    told_tcp_end: bool,
    plain: bool,
    budget: Budget,
}

/// Budget of the edge over UDP: never more than it was sent.
#[derive(Default)]
struct Budget {
    datagrams: usize,
    bytes: usize,
}

impl Link {
    fn new(script: &mut Script<'_>) -> Self {
        let flags = script.operand();
        let config = ClientConfig {
            slots: (script.operand() % 20) as u8,
            early_data: flags & 1 != 0,
            hold: flags & 2 != 0,
        };
        let edge_config = ServerConfig {
            early_data: flags & 1 != 0,
            same_address: flags & 4 != 0,
            tag: RouteTag([1, 2, 3, 4]),
            ..ServerConfig::default()
        };
        let hello = hello(script.operand() * 12);
        let behind = (0..script.operand() * 40).map(|at| at as u8);
        let mut client = Client::new(JoinKey::new([7; 16]), config);
        if flags & 8 == 0 {
            client.offer_udp(config);
        }
        Self {
            now: Instant::ZERO,
            client,
            edge: Edge::new(edge_config),
            edge_config,
            faults: Faults::default(),
            up: Path::default(),
            down: Path::default(),
            tcp_up: Vec::new(),
            tcp_connected: false,
            same_address: true,
            client_stream: hello.into_iter().chain(behind).collect(),
            client_written: 0,
            client_finished: false,
            server_bytes: script.operand() * 100,
            server_written: Vec::new(),
            got: Vec::new(),
            told_tcp_end: false,
            plain: false,
            budget: Budget::default(),
        }
    }

    fn run(&mut self, operation: u8, script: &mut Script<'_>) {
        match operation % 20 {
            0 | 1 => self.app_writes(script.operand() * 8 + 1),
            2 | 3 => self.up_arrives(script.operand(), false),
            4 => self.up_arrives(script.operand(), true),
            5 => drop(self.up.take(script.operand())),
            6 | 7 => self.down_arrives(script.operand(), false),
            8 => self.down_arrives(script.operand(), true),
            9 => drop(self.down.take(script.operand())),
            10 => self.tcp_connects(script.operand()),
            11 => self.tcp_up_arrives(script.operand() * 16 + 1),
            12 => self.tcp_down_arrives(script.operand() * 16 + 1),
            13 => self.origin_writes(script.operand() * 32 + 1),
            14 => self.wait(Duration::from_millis(script.operand() as u64)),
            15 => self.wait(Duration::from_millis(script.operand() as u64 * 50)),
            16 => self.client.handle_unreachable(self.now),
            17 => self.finish(script.operand()),
            18 => self.go_wrong(script.operand()),
            _ => self.forge(script),
        }
        self.drain();
    }

    fn app_writes(&mut self, most: usize) {
        let rest = &self.client_stream[self.client_written..];
        let count = rest.len().min(most).min(self.client.app_room());
        if count > 0 && !self.client_finished {
            self.client.handle_app_data(self.now, &rest[..count]);
            self.client_written += count;
        }
    }

    fn up_arrives(&mut self, index: usize, again: bool) {
        let Some(datagram) = self.up.pick(index, again) else {
            return;
        };
        self.give_edge(&datagram, client_address());
    }

    fn give_edge(&mut self, datagram: &[u8], from: SocketAddr) {
        self.budget.datagrams += 1;
        self.budget.bytes += datagram.len() * AMPLIFICATION;
        // A discarded datagram is an ordinary thing.
        let _ = self.edge.server.handle_datagram(self.now, from, None, datagram);
    }

    fn down_arrives(&mut self, index: usize, again: bool) {
        if let Some(datagram) = self.down.pick(index, again) {
            self.client.handle_datagram(self.now, &datagram);
        }
    }

    fn tcp_connects(&mut self, operand: usize) {
        if self.tcp_connected {
            return;
        }
        self.tcp_connected = true;
        self.same_address = operand & 1 == 0;
        let grace = Duration::from_millis(operand as u64 / 8);
        let same = operand & 2 == 0;
        let wait = Some(Wait::within(grace)).filter(|_| !grace.is_zero());
        self.client.handle_tcp_connected(self.now, same, wait);
    }

    fn tcp_up_arrives(&mut self, most: usize) {
        let count = self.tcp_up.len().min(most);
        let bytes: Vec<u8> = self.tcp_up.drain(..count).collect();
        let mut from = client_address();
        if !self.same_address {
            from.set_ip(IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)));
        }
        if !bytes.is_empty() {
            self.edge.handle_tcp(self.now, from, &bytes);
        }
    }

    fn tcp_down_arrives(&mut self, most: usize) {
        let count = self.edge.to_tcp.len().min(most);
        let bytes: Vec<u8> = self.edge.to_tcp.drain(..count).collect();
        if !self.client.is_reset() && !bytes.is_empty() {
            self.client.handle_tcp_data(self.now, &bytes);
        }
        let ended = self.edge.tcp_end == OriginEnd::Finished && self.edge.to_tcp.is_empty();
        if ended && !self.told_tcp_end && !self.client.is_reset() {
            self.told_tcp_end = true;
            self.client.handle_tcp_finished();
        }
    }

    fn origin_writes(&mut self, most: usize) {
        let Some(index) = self.edge.live() else {
            return;
        };
        self.server_written.resize(self.edge.origins.len(), 0);
        let from = self.server_written[index];
        let to = self.server_bytes.min(from + most);
        let bytes: Vec<u8> = (from..to).map(|at| server_byte(index, at)).collect();
        if !bytes.is_empty() {
            self.edge.origin_writes(index, &bytes);
            self.server_written[index] = to;
        }
    }

    fn wait(&mut self, wait: Duration) {
        let end = self.now + wait;
        while let Some(next) = self.next_timeout().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            self.client.handle_timeout(self.now);
            self.edge.server.handle_timeout(self.now);
            self.drain();
            assert!(self.next_timeout().is_none_or(|after| after > self.now));
        }
        self.now = end;
        self.up.age(end);
        self.down.age(end);
        let unjoined = SESSION_LIFE.saturating_sub(Duration::from_secs(1));
        self.faults.late |= self.now.since_epoch() >= unjoined;
    }

    fn next_timeout(&self) -> Option<Instant> {
        let both = [self.client.poll_timeout(), self.edge.server.poll_timeout()];
        both.into_iter().flatten().min()
    }

    fn finish(&mut self, who: usize) {
        if who & 1 == 0 {
            self.client_stream.truncate(self.client_written);
            self.client_finished = true;
            self.client.handle_app_finished(self.now);
        } else if let Some(index) = self.edge.live() {
            self.server_written.resize(self.edge.origins.len(), 0);
            self.server_bytes = self.server_written[index];
            self.edge.origin_finishes(index);
        }
    }

    fn go_wrong(&mut self, how: usize) {
        if how & 1 == 0 && !self.edge.has_tcp_begun() {
            self.faults.restarted = true;
            // What is under way does not outlive the restart: a copy of the flight that starts the
            // session again would mix two server streams
            // (docs/draft-headstart-turbotls.md#restarts).
            self.up.0.clear();
            self.down.0.clear();
            self.edge.restart(self.edge_config);
        } else if let Some(index) = self.edge.live() {
            self.faults.origin_lost = true;
            self.edge.origin_breaks(self.now, index);
        }
    }

    /// A datagram under way is seen and a changed copy sent, or one is made up.
    fn forge(&mut self, script: &mut Script<'_>) {
        self.faults.forged = true;
        let (what, index, at, wrong) =
            (script.operand(), script.operand(), script.operand(), script.operand());
        let path = if what & 1 == 0 { &mut self.up } else { &mut self.down };
        let mut datagram = path.pick(index, true).unwrap_or_else(|| vec![8; 411 + at]);
        let at = (at * if what & 2 == 0 { 1 } else { 5 }) % datagram.len();
        datagram[at] ^= wrong as u8;
        if what & 1 == 0 {
            let mut from = client_address();
            from.set_port(from.port() + u16::from(what & 4 != 0));
            self.give_edge(&datagram, from);
        } else {
            self.client.handle_datagram(self.now, &datagram);
        }
    }

    /// Takes everything that both ends want done.
    fn drain(&mut self) {
        self.edge.drain_events();
        while let Some(transmit) = self.edge.server.poll_transmit() {
            assert!(transmit.bytes.len() <= DATAGRAM_MAX);
            self.budget.datagrams =
                self.budget.datagrams.checked_sub(1).expect("an answer too many");
            self.budget.bytes =
                self.budget.bytes.checked_sub(transmit.bytes.len()).expect("a byte too many");
            self.down.0.push((self.now, transmit.bytes));
        }
        while let Some(datagram) = self.client.poll_datagram() {
            self.up.0.push((self.now, datagram));
        }
        if let Some(bytes) = self.client.poll_tcp() {
            assert!(self.tcp_connected, "written before TCP is connected");
            self.tcp_up.extend_from_slice(&bytes);
        }
        if let Some(bytes) = self.client.poll_app() {
            assert!(self.tcp_connected, "delivered before TCP is connected");
            self.got.extend_from_slice(&bytes);
        }
        while let Some(event) = self.client.poll_event() {
            match event {
                ClientEvent::Reset(reason) => self.check_reset(reason),
                ClientEvent::Plain(_) => self.plain = true,
                _ => {}
            }
        }
    }

    /// Only who has delivered bytes is reset, and only if the edge no longer knows the session.
    fn check_reset(&self, reason: ResetReason) {
        assert!(self.client.is_reset());
        if !self.faults.forged && !self.faults.late {
            let elsewhere = self.edge_config.same_address && !self.same_address;
            assert!(self.faults.restarted || elsewhere, "reset for no reason");
            assert_eq!(reason, ResetReason::CommittedRefusal);
            assert!(!self.got.is_empty());
        }
    }

    fn check(&self) {
        assert!(self.client.app_room() <= CLIENT_BYTES.max(64 * 1024));
        assert!(self.edge.server.unproven() <= 1 || self.faults.forged);
        if self.faults.forged {
            return;
        }
        for origin in &self.edge.origins {
            assert!(self.client_stream.starts_with(&origin.got), "client bytes");
        }
        assert!(self.is_one_origins(), "server bytes");
        if !self.may_run_again() {
            assert!(self.edge.origins.len() <= 1, "the ClientHello ran twice");
        }
    }

    /// Returns true if the application's bytes come from one origin stream, in order.
    fn is_one_origins(&self) -> bool {
        (0..=self.edge.origins.len()).any(|index| {
            let expected = (0..self.got.len()).map(|at| server_byte(index, at));
            self.got.iter().copied().eq(expected)
        })
    }

    fn may_run_again(&self) -> bool {
        // A plain stream takes over only what runs for its own address: the other is unproven.
        let bound = self.edge_config.same_address || self.plain;
        let other_address = bound && !self.same_address;
        let Faults { forged, restarted, late, origin_lost } = self.faults;
        forged || restarted || late || origin_lost || other_address
    }

    /// From here on nothing is lost any more: everything arrives.
    fn settle(&mut self) {
        self.tcp_connects(255 & !3);
        for _ in 0..64 {
            self.app_writes(usize::MAX);
            self.drain();
            while !self.up.0.is_empty() {
                self.up_arrives(0, false);
                self.drain();
            }
            self.origin_writes(usize::MAX >> 1);
            self.drain();
            while !self.down.0.is_empty() {
                self.down_arrives(0, false);
            }
            self.wait(Duration::from_millis(40));
            self.drain();
            self.tcp_up_arrives(usize::MAX);
            self.end_upstream();
            self.origin_writes(usize::MAX >> 1);
            self.tcp_down_arrives(usize::MAX);
            self.drain();
            self.check();
        }
        if !self.may_run_again() && self.client_written > 0 {
            self.check_whole();
        }
    }

    fn end_upstream(&mut self) {
        if self.client.wants_tcp_finish() && self.tcp_up.is_empty() {
            self.edge.handle_tcp_finished();
        }
    }

    fn check_whole(&self) {
        assert!(!self.client.is_reset(), "reset for no reason");
        let Some(origin) = self.edge.origins.first() else {
            // Only half a ClientHello was ever written.
            assert!(self.client_finished);
            return;
        };
        assert_eq!(origin.got.len(), self.client_stream.len(), "client bytes");
        assert_eq!(origin.finished, self.client_finished, "end of the client stream");
        let written = self.server_written.first().copied().unwrap_or_default();
        assert_eq!(self.got.len(), written, "server bytes");
        let ended = self.edge.tcp_end == OriginEnd::Finished;
        assert_eq!(self.client.is_app_finished(), ended, "end of the server stream");
        assert!(self.client.is_transparent());
    }
}

/// Datagrams under way one way, with the time of sending.
#[derive(Default)]
struct Path(Vec<(Instant, Vec<u8>)>);

impl Path {
    /// Takes one, or makes a copy of it.
    fn pick(&mut self, index: usize, again: bool) -> Option<Vec<u8>> {
        if again {
            let index = index.checked_rem(self.0.len())?;
            self.0.get(index).map(|(_, datagram)| datagram.clone())
        } else {
            self.take(index)
        }
    }

    fn take(&mut self, index: usize) -> Option<Vec<u8>> {
        let index = index.checked_rem(self.0.len())?;
        Some(self.0.remove(index).1)
    }

    /// No datagram outlives what both ends remember: a network that brings one after 20 s could
    /// start another ClientHello.
    fn age(&mut self, now: Instant) {
        self.0.retain(|(sent, _)| now.since(*sent) < DATAGRAM_LIFE);
    }
}

fn client_address() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 4000))
}

/// Returns a byte of a server: no two origins have the same, so that a mixture shows.
fn server_byte(origin: usize, at: usize) -> u8 {
    (at ^ (at >> 8) ^ (origin * 0x55 + 0x16)) as u8
}

/// A ClientHello of 60 bytes and `padding`.
fn hello(padding: usize) -> Vec<u8> {
    let mut extensions = vec![0, 43, 0, 3, 2, 3, 4, 0, 21];
    extensions.extend_from_slice(&(padding as u16).to_be_bytes());
    extensions.resize(extensions.len() + padding, 0);
    let mut body = vec![3, 3];
    body.resize(34, 9);
    body.extend_from_slice(&[0, 0, 2, 0x13, 1, 1, 0]);
    body.extend_from_slice(&(extensions.len() as u16).to_be_bytes());
    body.extend_from_slice(&extensions);
    let mut stream = vec![22, 3, 1];
    stream.extend_from_slice(&(body.len() as u16 + 4).to_be_bytes());
    stream.extend_from_slice(&[1, 0]);
    stream.extend_from_slice(&(body.len() as u16).to_be_bytes());
    stream.extend_from_slice(&body);
    stream
}
