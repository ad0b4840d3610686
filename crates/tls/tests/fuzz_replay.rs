//! Replays the committed corpora of `fuzz/`, so that what a fuzzer once reached stays reached.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[allow(unreachable_pub)]
#[path = "../../../fuzz/src/tls.rs"]
mod bodies;

#[path = "../../../fuzz/src/replay.rs"]
mod replay;

use replay::replay;

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
