//! Recorded ClientHellos of real clients, whole and cut at every position.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use headstart_proto::hello::{ClientHello, Progress, read};

struct Recorded {
    name: String,
    flight: Vec<u8>,
    facts: Facts,
}

#[derive(Debug, PartialEq)]
struct Facts {
    end: usize,
    server_name: Option<String>,
    alpn: Vec<String>,
    psks: usize,
    early_data: bool,
    ech: bool,
    tls13: bool,
}

impl Facts {
    fn from_hello(hello: &ClientHello) -> Self {
        Self {
            end: hello.end,
            server_name: hello.server_name.clone(),
            alpn: hello
                .alpn
                .iter()
                .map(|name: &Vec<u8>| String::from_utf8(name.clone()).unwrap())
                .collect(),
            psks: hello.psk_identities.len(),
            early_data: hello.early_data,
            ech: hello.ech,
            tls13: hello.tls13,
        }
    }
}

#[test]
fn the_reader_finds_the_facts_of_every_recording() {
    let recordings = recordings();
    let names: BTreeSet<_> = recordings.iter().map(|one| one.name.clone()).collect();
    assert_eq!(names, files());
    assert!(names.len() >= 14);
    for recorded in &recordings {
        let Ok(Progress::Complete(hello)) = read(&recorded.flight) else {
            panic!("{} is not complete", recorded.name);
        };
        assert_eq!(Facts::from_hello(&hello), recorded.facts, "{}", recorded.name);
    }
}

#[test]
fn a_hello_is_complete_only_with_its_last_byte() {
    for recorded in recordings() {
        for length in 0..=recorded.flight.len() {
            let progress = read(&recorded.flight[..length]);
            let complete = matches!(progress, Ok(Progress::Complete(_)));
            assert_eq!(
                complete,
                length >= recorded.facts.end,
                "{} at {length}: {progress:?}",
                recorded.name
            );
            assert!(progress.is_ok(), "{} at {length}", recorded.name);
        }
    }
}

#[test]
fn records_of_any_size_carry_the_same_hello() {
    for recorded in recordings() {
        let message = message(&recorded.flight[..recorded.facts.end]);
        for size in [1, 2, 3, 4, 5, 7, 64, 255, message.len() - 1, message.len()] {
            let stream: Vec<u8> = message.chunks(size).flat_map(record).collect();
            let Ok(Progress::Complete(hello)) = read(&stream) else {
                panic!("{} in records of {size}", recorded.name);
            };
            let facts = Facts::from_hello(&hello);
            assert_eq!(facts.end, stream.len());
            let end = recorded.facts.end;
            assert_eq!(Facts { end, ..facts }, recorded.facts, "{}", recorded.name);
        }
    }
}

#[test]
fn one_byte_records_are_never_complete_early() {
    // Only the small ones: reading every prefix takes time quadratic in their length.
    for recorded in recordings().iter().filter(|one| one.facts.end < 500) {
        let message = message(&recorded.flight[..recorded.facts.end]);
        let stream: Vec<u8> = message.chunks(1).flat_map(record).collect();
        for length in 0..stream.len() {
            assert_eq!(read(&stream[..length]), Ok(Progress::Incomplete));
        }
    }
}

#[test]
fn a_wrong_byte_never_makes_the_reader_panic_or_overrun() {
    for recorded in recordings() {
        let mut flight = recorded.flight.clone();
        for at in 0..recorded.facts.end {
            for wrong in [0x01, 0x80, 0xff] {
                flight[at] ^= wrong;
                if let Ok(Progress::Complete(hello)) = read(&flight) {
                    assert!(hello.end <= flight.len());
                }
                flight[at] ^= wrong;
            }
        }
    }
}

/// Checks the ticket that `openssl s_client -sess_in` offered.
#[test]
fn the_identity_is_the_ticket() {
    let resumed = recordings();
    let resumed = resumed.iter().find(|one| one.name == "openssl30_resumed");
    let Ok(Progress::Complete(hello)) = read(&resumed.unwrap().flight) else {
        panic!("not complete");
    };
    let ticket = &hello.psk_identities[0];
    assert_eq!(ticket.len(), 32); // stateful: a session id
    let flight = &resumed.unwrap().flight;
    assert!(flight.windows(ticket.len()).any(|part| part == ticket));
}

/// Returns the handshake message inside the records.
fn message(mut stream: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    while let [_, _, _, high, low, rest @ ..] = stream {
        let (fragment, behind) = rest.split_at(usize::from(u16::from_be_bytes([*high, *low])));
        message.extend_from_slice(fragment);
        stream = behind;
    }
    message
}

fn record(fragment: &[u8]) -> Vec<u8> {
    let length = u16::try_from(fragment.len()).unwrap().to_be_bytes();
    [&[22, 3, 1], &length[..], fragment].concat()
}

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hellos"))
}

fn files() -> BTreeSet<String> {
    let paths = fs::read_dir(folder()).unwrap();
    let paths = paths.map(|entry| entry.unwrap().path());
    let hex = paths.filter(|path| path.extension().is_some_and(|ending| ending == "hex"));
    hex.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

fn recordings() -> Vec<Recorded> {
    let facts = fs::read_to_string(folder().join("facts.txt")).unwrap();
    let lines = facts.lines().filter(|line| !line.starts_with('#'));
    lines.map(recorded).collect()
}

fn yes(word: &str) -> bool {
    match word {
        "yes" => true,
        "no" => false,
        other => panic!("{other}: yes or no"),
    }
}

fn some(word: &str) -> Option<String> {
    Some(word.to_owned()).filter(|word| word != "-")
}

fn recorded(line: &str) -> Recorded {
    let columns: Vec<&str> = line.split_whitespace().collect();
    let [name, bytes, end, server_name, alpn, psks, early, ech, tls13] = columns[..] else {
        panic!("nine columns in {line:?}");
    };
    let flight = hex(&fs::read_to_string(folder().join(name).with_extension("hex")).unwrap());
    assert_eq!(flight.len(), bytes.parse::<usize>().unwrap(), "{name}");
    Recorded {
        name: name.to_owned(),
        flight,
        facts: Facts {
            end: end.parse().unwrap(),
            server_name: some(server_name),
            alpn: some(alpn)
                .map_or_else(Vec::new, |names| names.split(',').map(str::to_owned).collect()),
            psks: psks.parse().unwrap(),
            early_data: yes(early),
            ech: yes(ech),
            tls13: yes(tls13),
        },
    }
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pairs = digits.chunks_exact(2);
    assert!(pairs.remainder().is_empty());
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}
