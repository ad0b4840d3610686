//! Hostile database files.

use headstart_pageload::db::{FileError, limits, read_unverified};

use super::{is_alone, peak};
use crate::databases::made::unsigned;

/// A file that says its body has so many bytes.
fn file(compressed: &[u8], body: usize) -> Vec<u8> {
    unsigned(compressed, body, 0x0b)
}

fn number(bytes: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        bytes.push(u8::try_from(number & 0x7f).unwrap() | 0x80);
        number >>= 7;
    }
    bytes.push(u8::try_from(number).unwrap());
}

/// Columns of which the first four are given, and the others are empty.
fn columns(first: [Vec<u8>; 4]) -> Vec<u8> {
    let mut body = Vec::new();
    first.iter().for_each(|column| number(&mut body, column.len()));
    body.resize(body.len() + 31 - first.len(), 0);
    body.extend(first.concat());
    body
}

#[test]
fn hostile_files_take_little() {
    if !is_alone("memory::databases::hostile_files_take_little") {
        return;
    }
    let Some(before) = peak() else {
        println!("skipped: the system does not say how much memory a process has");
        return;
    };
    // 2 GB of zeros, in a few kB: no more is decompressed than the header says.
    let bomb = {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        let zeros = vec![0; 1 << 20];
        for _ in 0..2048 {
            std::io::Write::write_all(&mut encoder, &zeros).unwrap();
        }
        encoder.finish().unwrap()
    };
    let made = peak().unwrap();
    assert_eq!(read_unverified(&file(&bomb, 1000)), Err(FileError::Compression));
    // A large body that is not there.
    let nothing = zstd::bulk::compress(b"", 1).unwrap();
    assert_eq!(read_unverified(&file(&nothing, limits::BODY_BYTES)), Err(FileError::Compression));
    // A million hosts, none of which is there; and so many of which each repeats a name of 250
    // bytes.
    let mut counts = Vec::new();
    [0, 0, limits::HOSTS].iter().for_each(|count| number(&mut counts, *count));
    let none = columns([counts.clone(), vec![], vec![], vec![]]);
    assert!(read_unverified(&file(&zstd::bulk::compress(&none, 1).unwrap(), none.len())).is_err());
    let name = format!("test.{}", ["a"; 122].join("."));
    let (mut shared, mut lengths) = (vec![0], vec![]);
    number(&mut lengths, name.len());
    for _ in 1..limits::HOSTS {
        number(&mut shared, name.len());
    }
    lengths.resize(lengths.len() + limits::HOSTS - 1, 0);
    let many = columns([counts, shared, lengths, name.into_bytes()]);
    let many = file(&zstd::bulk::compress(&many, 1).unwrap(), many.len());
    assert!(many.len() < 2000, "{}", many.len());
    assert!(read_unverified(&many).is_err());
    let used = peak().unwrap() - made.max(before);
    println!("{} MiB", used >> 20);
    // The bodies, and the names up to what they may have together.
    let most = 2 * limits::BODY_BYTES + limits::TEXT_BYTES + (64 << 20);
    assert!(used < most as u64, "{} MiB", used >> 20);
}
