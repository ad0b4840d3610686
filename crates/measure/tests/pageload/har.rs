//! Recordings of one page, as browsers save them.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

/// A recording that begins at this moment.
pub(crate) fn file(title: &str, started: &str, on_load: u32, entries: &[Value]) -> Vec<u8> {
    let page = json!({
        "id": "p", "title": title, "startedDateTime": started, "pageTimings": { "onLoad": on_load },
    });
    json!({ "log": { "version": "1.2", "pages": [page], "entries": entries } })
        .to_string()
        .into_bytes()
}

/// Returns the entry of a request at `second`, whose response has `bytes` bytes and three times as
/// many once unpacked.
pub(crate) fn entry(
    url: &str,
    second: &str,
    initiator: &Value,
    bytes: u32,
    timings: &Value,
) -> Value {
    json!({
        "pageref": "p", "_initiator": initiator, "_connectionId": "1",
        "serverIPAddress": "192.0.2.1",
        "startedDateTime": format!("2026-11-21T10:00:{second}Z"),
        "request": { "method": "GET", "url": url, "headersSize": 300, "bodySize": 0 },
        "response": {
            "status": 200, "httpVersion": "h2", "_transferSize": bytes,
            "content": { "size": 3 * bytes, "mimeType": "text/javascript" },
        },
        "timings": timings,
    })
}

pub(crate) fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}
