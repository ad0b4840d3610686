//! Plays the transcripts: a client and an edge have to do exactly what is written.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use crate::blocks::{self, Block};
use crate::{client, server};

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
    ends.client.nothing(file);
    ends.edge.nothing(file);
    assert!(ends.client.client.is_transparent(), "{file}");
}

struct Ends {
    client: client::Player,
    edge: server::Player,
}

impl Ends {
    fn new(block: &Block) -> Self {
        assert_eq!(block.text("step"), "config");
        block.expect_names(&["step", "key", "tag", "slots", "early_data"]);
        let (client, mut edge) = (client::Player::new(block), server::Player::new(block));
        edge.peer = SocketAddr::from(([192, 0, 2, 1], 4000));
        Self { client, edge }
    }

    fn step(&mut self, block: &Block, at: &str) {
        block.expect_names(&["step", "bytes?"]);
        let (client, edge) = (&mut self.client, &mut self.edge);
        edge.now = client.now;
        match block.text("step") {
            "nothing" | "client tcp" => {
                client.step(block, at);
                edge.step(block, at);
            }
            "client sends" => {
                client.step(block, at);
                let (from, bytes) = (edge.peer, block.bytes("bytes"));
                let result = edge.edge.server.handle_datagram(edge.now, from, None, &bytes);
                assert_eq!(result, Ok(()), "{at}");
                edge.edge.drain_events();
            }
            "edge sends" => {
                edge.step(block, at);
                client.client.handle_datagram(client.now, &block.bytes("bytes"));
            }
            "edge tcp" => {
                edge.step(block, at);
                client.client.handle_tcp_data(client.now, &block.bytes("bytes"));
            }
            "edge drops" | "edge restarts" | "origin gets" | "origin writes" => {
                edge.step(block, at);
            }
            _ => client.step(block, at),
        }
    }
}
