//! Plays the transcripts: a client and an edge have to do exactly what is written.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use headstart_proto::{
    Client, ClientConfig, Instant, JoinKey, OriginEnd, RouteTag, ServerConfig, Wait,
};

use crate::blocks::{self, Block};
use crate::edge::Edge;

const WAIT: Option<Wait> = Some(Wait::within(Duration::from_millis(25)));

pub(crate) fn files() -> BTreeSet<String> {
    let mut files = blocks::files();
    files.retain(|file| file.starts_with("exchange"));
    files
}

#[test]
fn both_ends_do_what_the_transcripts_say() {
    assert_eq!(files().len(), 8);
    for file in files() {
        play(&file);
    }
}

fn play(file: &str) {
    let blocks = blocks::read(file);
    let (config, steps) = blocks.split_first().expect("a configuration");
    assert!(steps.len() >= 10, "{file} is too short for an exchange");
    let mut ends = Ends::new(config);
    for (number, step) in steps.iter().enumerate() {
        ends.step(step, &format!("{file}, step {}: {step:?}", number + 1));
    }
    ends.nothing(file);
    assert!(ends.client.is_transparent(), "{file}");
}

struct Ends {
    now: Instant,
    client: Client,
    config: ServerConfig,
    edge: Edge,
    /// Number of bytes seen of all origin streams.
    origin_seen: usize,
}

impl Ends {
    fn new(block: &Block) -> Self {
        assert_eq!(block.text("step"), "config");
        block.expect_names(&["step", "key", "tag", "slots", "early_data"]);
        let early_data = block.flag("early_data");
        let client = ClientConfig { slots: block.number("slots"), early_data, hold: false };
        let config = ServerConfig {
            early_data,
            tag: RouteTag(block.array("tag")),
            ..ServerConfig::default()
        };
        let mut ends = Self {
            now: Instant::ZERO,
            client: Client::new(JoinKey::new(block.array("key")), client),
            config,
            edge: Edge::new(config),
            origin_seen: 0,
        };
        ends.client.offer_udp(client);
        ends
    }

    fn step(&mut self, block: &Block, at: &str) {
        block.expect_names(&["step", "bytes?"]);
        match block.text("step") {
            "tcp connects" => self.client.handle_tcp_connected(self.now, true, WAIT),
            "grace ends" => self.grace_ends(),
            "edge restarts" => {
                self.edge.restart(self.config);
                self.origin_seen = self.origin_bytes().len();
            }
            "nothing" => self.nothing(at),
            step => self.carry(step, &block.bytes("bytes"), at),
        }
        self.edge.drain_events();
    }

    fn grace_ends(&mut self) {
        self.now = self.client.poll_timeout().expect("a grace");
        self.client.handle_timeout(self.now);
    }

    fn carry(&mut self, step: &str, bytes: &[u8], at: &str) {
        match step {
            "app writes" => self.client.handle_app_data(self.now, bytes),
            "origin writes" => {
                let origin = self.edge.live().expect("an origin");
                self.edge.origin_writes(origin, bytes);
            }
            "client sends" => {
                assert_eq!(self.client.poll_datagram().as_deref(), Some(bytes), "{at}");
                let result = self.edge.server.handle_datagram(self.now, peer(), None, bytes);
                assert_eq!(result, Ok(()), "{at}");
            }
            "client drops" => {
                assert_eq!(self.client.poll_datagram().as_deref(), Some(bytes), "{at}");
            }
            "edge sends" => {
                assert_eq!(self.transmit().as_deref(), Some(bytes), "{at}");
                self.client.handle_datagram(self.now, bytes);
            }
            "edge drops" => assert_eq!(self.transmit().as_deref(), Some(bytes), "{at}"),
            "client tcp" => {
                assert_eq!(self.client.poll_tcp().as_deref(), Some(bytes), "{at}");
                self.edge.handle_tcp(self.now, peer(), bytes);
            }
            "edge tcp" => {
                assert_eq!(self.edge.to_tcp, bytes, "{at}");
                self.edge.to_tcp.clear();
                self.client.handle_tcp_data(self.now, bytes);
            }
            "app gets" => assert_eq!(self.client.poll_app().as_deref(), Some(bytes), "{at}"),
            "origin gets" => {
                assert_eq!(self.origin_bytes().get(self.origin_seen..), Some(bytes), "{at}");
                self.origin_seen += bytes.len();
            }
            _ => panic!("unknown step {at}"),
        }
    }

    fn nothing(&mut self, at: &str) {
        assert_eq!(self.client.poll_datagram(), None, "{at}");
        assert_eq!(self.client.poll_tcp(), None, "{at}");
        assert_eq!(self.client.poll_app(), None, "{at}");
        assert!(!self.client.is_reset(), "{at}");
        assert_eq!(self.transmit(), None, "{at}");
        assert_eq!(self.edge.to_tcp, b"", "{at}");
        assert_eq!(self.edge.tcp_end, OriginEnd::Open, "{at}");
        assert_eq!(self.origin_bytes().len(), self.origin_seen, "{at}");
    }

    fn transmit(&mut self) -> Option<Vec<u8>> {
        let transmit = self.edge.server.poll_transmit()?;
        assert_eq!(transmit.to, peer());
        Some(transmit.bytes)
    }

    fn origin_bytes(&self) -> Vec<u8> {
        let origins = self.edge.origins.iter();
        origins.flat_map(|origin| origin.got.clone()).collect()
    }
}

fn peer() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 4000))
}
