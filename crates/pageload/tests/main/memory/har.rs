//! A HAR file that is larger than the memory it may take.

use std::io::{self, Read};

use headstart_pageload::har;
use serde_json::json;

use super::{is_alone, peak};

/// Entries of the file, each with so much content.
const ENTRIES: usize = 400;
const CONTENT: usize = 1 << 20;

/// Memory that the reader may take: buffers, and what it keeps of the entries.
const MEMORY: u64 = 32 << 20;

/// A file that is made while it is read.
struct Large {
    entry: Vec<u8>,
    given: usize,
    left: usize,
    bytes: u64,
}

impl Read for Large {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.given == self.entry.len() && self.left > 0 {
            (self.given, self.left) = (0, self.left - 1);
        }
        let count = (&self.entry[self.given..]).read(buffer)?;
        self.given += count;
        self.bytes += count as u64;
        Ok(count)
    }
}

#[test]
fn a_file_larger_than_its_memory() {
    if !is_alone("memory::har::a_file_larger_than_its_memory") {
        return;
    }
    let content = "x".repeat(CONTENT);
    let entry = json!({
        "startedDateTime": "2026-11-21T10:00:00.000Z",
        "_initiator": {
            "type": "script",
            "stack": { "callFrames": [{ "url": "https://a.test/1", "functionName": content }] },
        },
        "request": {
            "method": "GET",
            "url": format!("https://a.test/{}", &content[..100_000]),
            "headers": [],
        },
        "response": {
            "status": 200, "content": { "size": CONTENT, "text": content }, "headers": [],
        },
        "timings": { "send": 0, "wait": 10, "receive": 10 },
    });
    let first = format!("{{\"log\": {{\"entries\": [{entry}").into_bytes();
    let entry = format!(",{entry}").into_bytes();
    let mut large = Large { given: entry.len(), entry, left: ENTRIES - 1, bytes: 0 };
    let before = peak();
    let har = har::read((&first[..]).chain(&mut large).chain(&b"]}}"[..])).unwrap();
    assert_eq!(har.recordings[0].page.resources().len(), ENTRIES);
    let (Some(before), Some(after)) = (before, peak()) else {
        println!("skipped: the system does not say how much memory a process has");
        return;
    };
    let used = after - before;
    assert!(large.bytes > 20 * MEMORY, "{}", large.bytes);
    assert!(used < MEMORY, "{} MiB for {} MiB", used >> 20, large.bytes >> 20);
}
