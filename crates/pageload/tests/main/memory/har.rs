//! A HAR file that is larger than the memory it may take.

use std::io::Read;

use headstart_pageload::har;
use serde_json::json;

use super::{is_alone, peak};
use crate::support::Repeated;

/// Entries of the file, each with so much content.
const ENTRIES: usize = 400;
const CONTENT: usize = 1 << 20;

/// Memory that the reader may take: buffers, and what it keeps of the entries.
const MEMORY: u64 = 32 << 20;

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
    let more = Repeated::new(&entry, ENTRIES - 1);
    let before = peak();
    let har = har::read((&first[..]).chain(more).chain(&b"]}}"[..])).unwrap();
    assert_eq!(har.recordings[0].page.resources().len(), ENTRIES);
    let (Some(before), Some(after)) = (before, peak()) else {
        println!("skipped: the system does not say how much memory a process has");
        return;
    };
    let used = after - before;
    let bytes = (entry.len() * ENTRIES) as u64;
    assert!(bytes > 20 * MEMORY, "{bytes}");
    assert!(used < MEMORY, "{} MiB for {} MiB", used >> 20, bytes >> 20);
}
