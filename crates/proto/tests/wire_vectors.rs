//! The vectors of `docs/vectors`: reads every file, and checks every block both ways.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "wire_vectors/blocks.rs"]
mod blocks;
#[path = "wire_vectors/client.rs"]
mod client;
#[allow(unreachable_pub, dead_code)] // the fuzz targets use all of it
#[path = "../../../fuzz/src/edge.rs"]
mod edge;
#[path = "wire_vectors/server.rs"]
mod server;
#[path = "wire_vectors/streams.rs"]
mod streams;
#[path = "wire_vectors/transcript.rs"]
mod transcript;

use std::collections::BTreeSet;

use blocks::{Block, files, read};
use headstart_proto::wire::{FORWARD_LEN, Forward, Request, Response};
use headstart_proto::{
    EdgeNumber, JoinKey, RouteKey, RouteRing, RouteTag, Routes, SessionId, WireError,
};

/// A frame of any kind in its typed form.
#[derive(Debug, PartialEq)]
enum Frame<'a> {
    Request(Request<'a>),
    Response(Response<'a>),
    Forward(Forward),
}

impl<'a> Frame<'a> {
    fn parse(kind: &str, bytes: &'a [u8]) -> Result<Self, WireError> {
        match kind {
            "request" => Request::parse(bytes).map(Self::Request),
            "response" => Response::parse(bytes).map(Self::Response),
            "forward" => {
                let bytes: &[u8; FORWARD_LEN] = bytes.try_into().expect("20 bytes");
                Forward::parse(bytes).map(Self::Forward)
            }
            other => panic!("unknown frame {other}"),
        }
    }

    fn emit(&self) -> Vec<u8> {
        match self {
            Self::Request(request) => request.emit(),
            Self::Response(response) => response.emit(),
            Self::Forward(forward) => forward.emit(),
        }
    }

    /// Builds the frame that the fields of a block describe.
    fn from_block(block: &Block, payload: &'a [u8]) -> Self {
        match block.text("frame") {
            "request" => {
                block.expect_names(&["frame", "id", "seq", "offset", "payload", "bytes"]);
                Self::Request(Request {
                    id: SessionId(block.array("id")),
                    seq: block.number("seq"),
                    offset: block.number("offset"),
                    payload,
                })
            }
            "response" => {
                let names = ["frame", "id", "seq", "tag", "ack", "offset", "payload", "bytes"];
                block.expect_names(&names);
                Self::Response(Response {
                    id: SessionId(block.array("id")),
                    seq: block.number("seq"),
                    tag: RouteTag(block.array("tag")),
                    ack: block.number("ack"),
                    offset: block.number("offset"),
                    payload,
                })
            }
            "forward" => {
                block.expect_names(&["frame", "client", "bytes"]);
                Self::Forward(Forward { client: block.number("client") })
            }
            other => panic!("unknown frame {other}"),
        }
    }
}

#[test]
fn every_file_is_checked_by_a_test() {
    let frames = ["errors.txt", "frames.txt", "ids.txt", "lenient.txt", "route_tags.txt"];
    let streams = ["answers.txt", "hellos.txt", "joins.txt", "joins_read.txt"];
    let scripts =
        ["client_ignores.txt", "client_states.txt", "drops.txt", "join_table.txt", "limits.txt"];
    let cookies = ["cookie_checks.txt", "cookies.txt", "fop_extension.txt", "siphash.txt"];
    // crates/net checks advertisements (src/advert.rs) and their records (src/dns/service.rs),
    // crates/tls/tests/keys/vectors.rs keys, cookie_vectors.rs cookies, and
    // crates/pageload/tests/main/databases databases. crates/headstart/src/agent/managed/proof.rs,
    // crates/client and bindings/python check proofs.
    let others = [
        "adverts.txt",
        "extension_database.txt",
        "https_records.txt",
        "keys.txt",
        "page_databases.txt",
        "port_proofs.txt",
    ];
    let checked = frames.into_iter().chain(streams).chain(scripts).chain(cookies).chain(others);
    let mut checked: BTreeSet<String> = checked.map(str::to_owned).collect();
    checked.extend(transcript::files());
    assert_eq!(files(), checked);
}

#[test]
fn frames_are_read_and_written() {
    let blocks = read("frames.txt");
    let kinds: BTreeSet<&str> = blocks.iter().map(|block| block.text("frame")).collect();
    assert_eq!(kinds.len(), 3);
    for block in &blocks {
        let (bytes, payload) = (block.bytes("bytes"), block.payload());
        let frame = Frame::from_block(block, &payload);
        assert_eq!(frame.emit(), bytes, "{block:?}");
        let parsed = Frame::parse(block.text("frame"), &bytes);
        assert_eq!(parsed, Ok(frame), "{block:?}");
    }
}

#[test]
fn ignored_fields_change_nothing() {
    for block in &read("lenient.txt") {
        let (bytes, payload) = (block.bytes("bytes"), block.payload());
        let frame = Frame::from_block(block, &payload);
        assert_ne!(frame.emit(), bytes, "{block:?}");
        let parsed = Frame::parse(block.text("frame"), &bytes);
        assert_eq!(parsed, Ok(frame), "{block:?}");
    }
}

#[test]
fn errors_match_the_named_ones() {
    let mut seen = BTreeSet::new();
    for block in &read("errors.txt") {
        block.expect_names(&["frame", "error", "bytes"]);
        let bytes = block.bytes("bytes");
        let error = Frame::parse(block.text("frame"), &bytes).expect_err("no frame");
        let named = format!("{error:?}");
        assert_eq!(named, block.text("error"), "{block:?}");
        seen.insert(named.split('(').next().unwrap_or_default().to_owned());
    }
    let all = ["Length", "NotOurs", "Offset", "Sequence", "Tag", "Version"];
    assert_eq!(seen, all.map(str::to_owned).into());
}

#[test]
fn session_ids_come_from_join_keys() {
    for block in &read("ids.txt") {
        let id = JoinKey::new(block.array("key")).session_id();
        assert_eq!(id, SessionId(block.array("id")));
    }
}

#[test]
fn route_tags_name_the_edge() {
    for block in &read("route_tags.txt") {
        let current = RouteKey::new(block.number("epoch"), block.array("key"));
        let other = RouteKey::new(block.number::<u8>("epoch").wrapping_add(1), [0; 16]);
        let own = EdgeNumber::new(block.number("number")).unwrap();
        let ring = RouteRing { previous: None, current, next: other };
        let (routes, id) = (Routes { own, ring }, SessionId(block.array("id")));
        let tag = RouteTag(block.array("tag"));
        assert_eq!(routes.tag(block.number("start"), &id), tag, "{block:?}");
        // Others cannot learn the owner of a tag that had to be replaced; the edge still knows its
        // own.
        if tag != RouteTag([0xff; 4]) {
            assert_eq!(routes.owner(tag, &id), Some(own), "{block:?}");
        }
    }
}
