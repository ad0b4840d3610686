//! The format of the vector files, which their headers describe.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::fs;
use std::path::Path;
use std::str::FromStr;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/vectors");

/// Lines of "name = value".
#[derive(Debug)]
pub(crate) struct Block(BTreeMap<String, String>);

impl Block {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }

    /// Returns what the block has to say apart from its note, so that no line goes unread.
    pub(crate) fn names(&self) -> BTreeSet<&str> {
        self.0.keys().map(String::as_str).filter(|name| *name != "note").collect()
    }

    /// Reads `yes` or `no`; `no` if there is no such line.
    pub(crate) fn flag(&self, name: &str) -> bool {
        match self.get(name) {
            Some("yes") => true,
            Some("no") | None => false,
            Some(_) => panic!("neither yes nor no: {name} in {self:?}"),
        }
    }

    pub(crate) fn number<N: FromStr<Err: Debug>>(&self, name: &str) -> N {
        self.text(name).parse().unwrap()
    }

    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        self.text(name).split_whitespace().flat_map(token).collect()
    }

    pub(crate) fn array<const N: usize>(&self, name: &str) -> [u8; N] {
        self.bytes(name).try_into().unwrap()
    }

    /// Returns the payload; empty in frames without one.
    pub(crate) fn payload(&self) -> Vec<u8> {
        if self.0.contains_key("payload") { self.bytes("payload") } else { Vec::new() }
    }

    /// Fails if a line other than these is there; those with `?` may be missing.
    pub(crate) fn expect_names(&self, expected: &[&str]) {
        let known = expected.iter().map(|name| name.trim_end_matches('?'));
        let (known, names) = (known.collect::<BTreeSet<_>>(), self.names());
        assert!(names.is_subset(&known), "unknown lines in {self:?}");
        for name in expected.iter().filter(|name| !name.ends_with('?')) {
            assert!(names.contains(name), "no {name} in {self:?}");
        }
    }
}

/// Reads `aa`, or `aa*9` for nine of them.
fn token(token: &str) -> Vec<u8> {
    let (byte, count) = token.split_once('*').unwrap_or((token, "1"));
    assert_eq!(byte.len(), 2, "{token}");
    vec![u8::from_str_radix(byte, 16).unwrap(); count.parse().unwrap()]
}

pub(crate) fn files() -> BTreeSet<String> {
    let entries = fs::read_dir(Path::new(FOLDER)).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Reads a file of scripts, each of which begins with its configuration.
pub(crate) fn scripts(file: &str) -> Vec<Vec<Block>> {
    let mut scripts = Vec::new();
    for block in read(file) {
        if block.text("step") == "config" {
            scripts.push(Vec::new());
        }
        scripts.last_mut().expect("a configuration first").push(block);
    }
    scripts
}

/// Reads the blocks of a file, which must hold at least one.
pub(crate) fn read(file: &str) -> Vec<Block> {
    let text = fs::read_to_string(Path::new(FOLDER).join(file)).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let text = lines.collect::<Vec<_>>().join("\n").replace("\n ", " ");
    let blocks: Vec<Block> = text
        .split("\n\n")
        .filter(|block| !block.trim().is_empty())
        .map(|block| Block(block.trim().lines().map(pair).collect()))
        .collect();
    assert!(!blocks.is_empty(), "{file} is empty");
    blocks
}

fn pair(line: &str) -> (String, String) {
    let (name, value) = line.split_once('=').unwrap_or_else(|| panic!("{line}"));
    (name.trim().to_owned(), value.trim().to_owned())
}
