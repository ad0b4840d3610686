//! Plays the scripts for an edge alone: what comes to it, and exactly what it does.

use std::collections::BTreeSet;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use headstart_proto::join::{Join, REFUSAL, acceptance};
use headstart_proto::{Instant, OriginEnd, RouteTag, ServerConfig};

use crate::blocks::{Block, scripts};
use crate::edge::Edge;
use crate::streams::whole;

const REASONS: [&str; 12] = [
    "address_limit",
    "ended",
    "foreign_address",
    "hello_runs",
    "malformed",
    "misfit",
    "network_limit",
    "not_hello",
    "paused",
    "repeated",
    "session_limit",
    "work_limit",
];

#[test]
fn edges_drop_what_the_scripts_say() {
    let mut reasons = play("drops.txt");
    reasons.append(&mut play("limits.txt"));
    reasons.remove("taken");
    assert_eq!(reasons, REASONS.map(str::to_owned).into());
}

#[test]
fn edges_treat_tcp_streams_as_the_scripts_say() {
    play("join_table.txt");
}

/// Plays all scripts of a file; returns all that became of datagrams in them.
fn play(file: &str) -> BTreeSet<String> {
    let mut results = BTreeSet::new();
    for script in scripts(file) {
        let (config, steps) = script.split_first().expect("a configuration");
        let name = config.text("note");
        assert!(!steps.is_empty(), "{file}: {name} has no step");
        let names = ["step", "early_data", "same_address", "tag", "origin_streams?", "work?"];
        config.expect_names(&names);
        let mut player = Player::new(config);
        for (number, step) in steps.iter().enumerate() {
            player.step(step, &format!("{file}: {name}, step {}: {step:?}", number + 1));
        }
        player.nothing(&format!("{file}: {name}, at its end"));
        results.append(&mut player.results);
    }
    results
}

pub(crate) struct Player {
    pub(crate) now: Instant,
    config: ServerConfig,
    pub(crate) edge: Edge,
    /// Number of bytes seen of each origin stream.
    seen: Vec<usize>,
    /// Number of origin streams seen to be closed.
    closed: usize,
    /// Client of the last TCP stream.
    pub(crate) peer: SocketAddr,
    /// End of that stream that a step has named.
    tcp_end: OriginEnd,
    /// What became of datagrams.
    results: BTreeSet<String>,
}

impl Player {
    pub(crate) fn new(block: &Block) -> Self {
        let mut config = ServerConfig {
            early_data: block.flag("early_data"),
            same_address: block.flag("same_address"),
            tag: RouteTag(block.array("tag")),
            ..ServerConfig::default()
        };
        if block.get("origin_streams").is_some() {
            config.origin_streams = block.number("origin_streams");
        }
        if block.get("work").is_some() {
            config.unproven_work = Duration::from_micros(block.number("work"));
        }
        Self {
            now: Instant::ZERO,
            config,
            edge: Edge::new(config),
            seen: Vec::new(),
            closed: 0,
            peer: SocketAddr::from(([0; 4], 0)),
            tcp_end: OriginEnd::Open,
            results: BTreeSet::new(),
        }
    }

    pub(crate) fn step(&mut self, block: &Block, at: &str) {
        let step = block.text("step");
        block.expect_names(match step {
            "datagram" => &["step", "from", "bytes", "result", "times?", "addresses?"],
            "join" | "plain" => &["step", "from", "bytes", "then"],
            "edge sends" | "edge drops" => &["step", "to?", "bytes"],
            "origin gets" | "origin writes" | "edge tcp" | "client tcp" => &["step", "bytes"],
            "wait" => &["step", "ms"],
            "pause" => &["step", "pause"],
            "tcp ends" => &["step", "how"],
            _ => &["step"],
        });
        match step {
            "datagram" => self.datagrams(block, at),
            "edge sends" | "edge drops" => {
                let sent = self.edge.server.poll_transmit();
                let sent = sent.map(|sent| (sent.to, sent.bytes));
                let to = block.get("to").map_or(self.peer, |to| to.parse().unwrap());
                assert_eq!(sent, Some((to, block.bytes("bytes"))), "{at}");
            }
            "wait" => self.wait(Duration::from_millis(block.number("ms"))),
            "edge restarts" => {
                self.edge.restart(self.config);
                self.origin_gets();
                self.closed = self.closed_origins();
            }
            "pause" => self.edge.server.pause(block.flag("pause")),
            "session ends" => {
                self.closed += 1;
                assert_eq!(self.closed_origins(), self.closed, "{at}");
            }
            "join" => self.join(block, at),
            "plain" => self.plain(block, at),
            "client tcp" => self.edge.handle_tcp(self.now, self.peer, &block.bytes("bytes")),
            "edge tcp" => {
                assert_eq!(self.edge.to_tcp, block.bytes("bytes"), "{at}");
                self.edge.to_tcp.clear();
            }
            "tcp ends" => {
                self.tcp_end = match block.text("how") {
                    "finished" => OriginEnd::Finished,
                    "reset" => OriginEnd::Reset,
                    _ => panic!("unknown end {at}"),
                };
                assert_eq!(self.edge.tcp_end, self.tcp_end, "{at}");
            }
            "nothing" => self.nothing(at),
            _ => self.origin(block, at),
        }
        self.edge.drain_events();
    }

    fn origin(&mut self, block: &Block, at: &str) {
        let newest = self.edge.live();
        match block.text("step") {
            "origin gets" => assert_eq!(self.origin_gets(), block.bytes("bytes"), "{at}"),
            "origin writes" => {
                self.edge.origin_writes(newest.expect("an origin"), &block.bytes("bytes"));
            }
            "origin ends" => self.edge.origin_finishes(newest.expect("an origin")),
            "origin breaks" => self.edge.origin_breaks(self.now, newest.expect("an origin")),
            _ => panic!("unknown step {at}"),
        }
    }

    fn datagrams(&mut self, block: &Block, at: &str) {
        let times = if block.get("times").is_some() { block.number("times") } else { 1 };
        let mut from: SocketAddr = block.number("from");
        let mut bytes = block.bytes("bytes");
        for _ in 0..times {
            let result = self.edge.server.handle_datagram(self.now, from, None, &bytes);
            self.edge.drain_events();
            let result = result.map_or_else(|reason| reason.name(), |()| "taken");
            assert_eq!(result, block.text("result"), "{from}, {at}");
            self.results.insert(result.to_owned());
            if let Some(last_of_id) = bytes.get_mut(13) {
                *last_of_id = last_of_id.wrapping_add(1);
            }
            if block.flag("addresses") {
                from.set_ip(next_address(from.ip()));
            }
        }
    }

    fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(timeout) = self.edge.server.poll_timeout().filter(|time| *time <= end) {
            self.edge.server.handle_timeout(timeout);
            self.edge.drain_events();
        }
        self.now = end;
    }

    fn join(&mut self, block: &Block, at: &str) {
        let bytes = self.connect(block);
        let join = Join::read(&whole(&bytes)).expect("a join");
        self.edge.handle_tcp(self.now, self.peer, &bytes);
        let answer = match block.text("then").split_once(' ') {
            Some(("accepted", offset)) => acceptance(&join.key, offset.parse().unwrap()),
            None if block.text("then") == "refused" => {
                self.tcp_end = OriginEnd::Finished;
                REFUSAL.to_vec()
            }
            _ => panic!("unknown answer {at}"),
        };
        let behind = self.edge.to_tcp.strip_prefix(answer.as_slice());
        let behind = behind.unwrap_or_else(|| panic!("another answer, {at}")).to_vec();
        self.edge.to_tcp = behind;
    }

    fn plain(&mut self, block: &Block, at: &str) {
        let bytes = self.connect(block);
        let origins = self.edge.origins.len();
        self.edge.handle_tcp(self.now, self.peer, &bytes);
        let then = if self.edge.origins.len() > origins { "new" } else { "attached" };
        assert_eq!(then, block.text("then"), "{at}");
    }

    /// Begins another TCP stream to the same edge, whose sessions and origin streams go on; returns
    /// its first bytes.
    fn connect(&mut self, block: &Block) -> Vec<u8> {
        let mut edge = Edge::new(self.config);
        mem::swap(&mut edge.server, &mut self.edge.server);
        mem::swap(&mut edge.origins, &mut self.edge.origins);
        self.edge = edge;
        self.tcp_end = OriginEnd::Open;
        self.peer = block.number("from");
        block.bytes("bytes")
    }

    pub(crate) fn nothing(&mut self, at: &str) {
        let sent = self.edge.server.poll_transmit();
        assert_eq!(sent, None, "{at}");
        assert_eq!(self.edge.to_tcp, b"", "{at}");
        assert_eq!(self.edge.tcp_end, self.tcp_end, "{at}");
        assert_eq!(self.origin_gets(), b"", "{at}");
        assert_eq!(self.closed_origins(), self.closed, "{at}");
    }

    /// Takes what the origins were given since the last call.
    fn origin_gets(&mut self) -> Vec<u8> {
        self.seen.resize(self.edge.origins.len(), 0);
        let mut bytes = Vec::new();
        for (origin, seen) in self.edge.origins.iter().zip(&mut self.seen) {
            bytes.extend_from_slice(&origin.got[*seen..]);
            *seen = origin.got.len();
        }
        bytes
    }

    fn closed_origins(&self) -> usize {
        self.edge.origins.iter().filter(|origin| origin.closed).count()
    }
}

fn next_address(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) => IpAddr::V4((u32::from(address) + 1).into()),
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) + 1).into()),
    }
}
