//! docs/vectors/page_databases.txt, byte by byte.

use std::collections::BTreeMap;
use std::path::Path;

use headstart_pageload::db::{
    Database, HEADER_BYTES, PublicKey, SecretKey, read, read_unverified, write,
};

use super::made::example;

type Block = BTreeMap<String, String>;

fn blocks() -> Vec<Block> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/vectors/page_databases.txt");
    let text = std::fs::read_to_string(path).unwrap().replace("\n    ", " ");
    text.split("\n\n").map(block).filter(|block| !block.is_empty()).collect()
}

fn block(text: &str) -> Block {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let lines = lines.filter_map(|line| line.split_once(" = "));
    lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    hex.split_whitespace().map(|text: &str| u8::from_str_radix(text, 16).unwrap()).collect()
}

fn hex(bytes: &[u8]) -> String {
    let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.chunks(32).map(|line| line.join(" ")).collect::<Vec<_>>().join("\n    ")
}

fn body(file: &[u8]) -> Vec<u8> {
    zstd::bulk::decompress(&file[HEADER_BYTES..], 1 << 20).unwrap()
}

fn named(name: &str) -> Database {
    match name {
        "nothing" => {
            let created = headstart_proto::UnixSeconds(1);
            let parts = headstart_pageload::db::Parts::NONE;
            Database::new(created, parts, vec![], BTreeMap::new()).unwrap()
        }
        _ => example(),
    }
}

#[test]
fn files_are_as_written_down() {
    let blocks = blocks();
    assert_eq!(blocks.len(), 3);
    for block in blocks {
        let file = bytes(&block["file"]);
        let expected = named(&block["content"]);
        let secret = block.get("secret").map(|secret| bytes(secret).try_into().unwrap());
        match secret.as_ref().map(SecretKey::from_bytes) {
            Some(key) => {
                let public = bytes(&block["public"]).try_into().unwrap();
                assert_eq!(key.public(), PublicKey::from_bytes(&public).unwrap());
                assert_eq!(read(&file, &[key.public()]), Ok(expected.clone()));
            }
            None => assert_eq!(read_unverified(&file), Ok(expected.clone())),
        }
        assert_eq!(body(&file), bytes(&block["body"]), "{}", block["note"]);
        // Other versions of zstd may compress to other bytes, but not these columns to others.
        assert_eq!(body(&write(&expected, None).unwrap()), bytes(&block["body"]));
    }
}

/// Writes the vectors as they would be:
/// `cargo test -p headstart-pageload vectors -- --ignored --nocapture`.
#[test]
#[ignore = "prints the file, for a new version of the format"]
fn print() {
    let key = SecretKey::from_bytes(&[7; 32]);
    let all = [
        ("no page, not signed", "nothing", false),
        ("all databases, not signed", "example", false),
        ("all databases, signed", "example", true),
    ];
    for (note, content, is_signed) in all {
        let file = write(&named(content), is_signed.then_some(&key)).unwrap();
        println!("note = {note}\ncontent = {content}");
        if is_signed {
            println!("secret = {}\npublic = {}", hex(&[7; 32]), hex(&key.public().to_bytes()));
        }
        println!("body = {}\nfile = {}\n", hex(&body(&file)), hex(&file));
    }
}
