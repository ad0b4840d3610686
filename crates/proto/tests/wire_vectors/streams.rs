//! What begins a TCP stream: ClientHellos, joins and their answers.

use headstart_proto::hello::{self, ClientHello, Progress};
use headstart_proto::join::{ACCEPTANCE_LEN, Answer, JOIN_MAX, Join, REFUSAL, acceptance};
use headstart_proto::{HelloError, JoinKey, RouteTag};

use crate::blocks::{Block, read};

#[test]
fn joins_are_read_and_written() {
    for block in &read("joins.txt") {
        block.expect_names(&[
            "name?",
            "alpn?",
            "key",
            "tag",
            "client_offset",
            "server_offset",
            "bytes",
        ]);
        let (join, bytes) = (fields(block), block.bytes("bytes"));
        assert!(bytes.len() <= JOIN_MAX, "{block:?}");
        assert_eq!(join.emit(&shown(block)), bytes, "{block:?}");
        let hello = whole(&bytes);
        assert_eq!(hello.end, bytes.len(), "{block:?}");
        assert_eq!(Join::read(&hello), Some(join), "{block:?}");
        assert_eq!(hello.server_name.as_deref(), block.get("name"), "{block:?}");
    }
}

#[test]
fn joins_are_told_from_ordinary_client_hellos() {
    let (mut joins, mut ordinary) = (0, 0);
    for block in &read("joins_read.txt") {
        let read = Join::read(&whole(&block.bytes("bytes")));
        if block.get("join").is_some() {
            block.expect_names(&["join", "bytes"]);
            assert_eq!(block.text("join"), "none");
            assert_eq!(read, None, "{block:?}");
            ordinary += 1;
        } else {
            block.expect_names(&["key", "tag", "client_offset", "server_offset", "bytes"]);
            assert_eq!(read, Some(fields(block)), "{block:?}");
            joins += 1;
        }
    }
    assert!(joins > 0 && ordinary > 0, "{joins} joins, {ordinary} that are none");
}

#[test]
fn answers_say_what_the_vectors_say() {
    for block in &read("answers.txt") {
        block.expect_names(&["key", "bytes", "answer"]);
        let (key, bytes) = (JoinKey::new(block.array("key")), block.bytes("bytes"));
        let answer = answer(block.text("answer"));
        assert_eq!(Answer::read(&key, &bytes), answer, "{block:?}");
        if let Answer::Accepted(offset) = answer {
            assert_eq!(acceptance(&key, offset), bytes[..ACCEPTANCE_LEN], "{block:?}");
        }
    }
    // An edge refuses with the bytes of the vectors, too.
    assert!(read("answers.txt").iter().any(|block| block.bytes("bytes") == REFUSAL));
}

#[test]
fn client_hellos_end_where_the_vectors_say() {
    for block in &read("hellos.txt") {
        block.expect_names(&["bytes", "hello", "name?", "alpn?"]);
        let result = match hello::read(&block.bytes("bytes")) {
            Ok(Progress::Incomplete) => "incomplete".to_owned(),
            Ok(Progress::Complete(hello)) => {
                let names = ClientHello { end: hello.end, ..shown(block) };
                assert_eq!(hello.server_name, names.server_name, "{block:?}");
                assert_eq!(hello.alpn, names.alpn, "{block:?}");
                format!("complete {}", hello.end)
            }
            Err(error) => error_name(error).to_owned(),
        };
        assert_eq!(result, block.text("hello"), "{block:?}");
    }
}

/// A stream is read again whenever more of it has come: what was decided stays so.
#[test]
fn more_bytes_never_make_a_client_hello_incomplete_again() {
    for block in &read("hellos.txt") {
        let bytes = block.bytes("bytes");
        let mut decided = false;
        // Every cut of the large ones would take long.
        let cuts = (0..=bytes.len()).filter(|cut| *cut < 600 || bytes.len() - cut < 20);
        for result in cuts.map(|cut| hello::read(&bytes[..cut])) {
            let incomplete = result == Ok(Progress::Incomplete);
            assert!(!(decided && incomplete), "{block:?}");
            decided = !incomplete;
        }
    }
}

/// Names of errors in the vectors.
const fn error_name(error: HelloError) -> &'static str {
    match error {
        HelloError::NotTls => "NotTls",
        HelloError::NotHello => "NotHello",
        HelloError::TooLarge => "TooLarge",
        HelloError::Malformed => "Malformed",
    }
}

fn answer(text: &str) -> Answer {
    match text.split_once(' ') {
        Some(("accepted", offset)) => Answer::Accepted(offset.parse().unwrap()),
        None if text == "refused" => Answer::Refused,
        None if text == "incomplete" => Answer::Incomplete,
        _ => panic!("unknown answer {text}"),
    }
}

fn fields(block: &Block) -> Join {
    Join {
        key: JoinKey::new(block.array("key")),
        tag: RouteTag(block.array("tag")),
        client_offset: block.number("client_offset"),
        server_offset: block.number("server_offset"),
    }
}

/// The names that a ClientHello shows; all else is left out.
fn shown(block: &Block) -> ClientHello {
    let protocols = block.get("alpn").unwrap_or_default().split_whitespace();
    ClientHello {
        server_name: block.get("name").map(str::to_owned),
        alpn: protocols.map(|name| name.as_bytes().to_vec()).collect(),
        ..ClientHello::default()
    }
}

pub(crate) fn whole(bytes: &[u8]) -> ClientHello {
    hello::read(bytes).unwrap().complete().unwrap()
}
