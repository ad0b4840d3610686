//! Replays the committed corpora of `fuzz/`, so that what a fuzzer once reached stays reached.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[allow(unreachable_pub)]
#[path = "../../../fuzz/src/tls.rs"]
mod bodies;

use std::fs;
use std::panic;
use std::path::Path;

fn replay(target: &str, body: fn(&[u8])) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let files = fs::read_dir(root.join(target)).expect("a corpus");
    let mut count = 0;
    for file in files {
        let path = file.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        let result = panic::catch_unwind(|| body(&bytes));
        assert!(result.is_ok(), "{}", path.display());
        count += 1;
    }
    assert!(count >= 10, "{target}: a corpus of {count} files is none");
}

#[test]
fn key_files() {
    replay("key_files", bodies::key_files);
}

#[test]
fn tls_extensions() {
    replay("tls_extensions", bodies::tls_extensions);
}

#[test]
fn tls_sessions() {
    replay("tls_sessions", bodies::tls_sessions);
}

#[test]
fn tls_tickets() {
    replay("tls_tickets", bodies::tls_tickets);
}
