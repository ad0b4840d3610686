//! Replays the committed corpora of `fuzz/`, so that what a fuzzer once reached stays reached.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[allow(unreachable_pub)]
#[path = "../../../fuzz/src/preload.rs"]
mod bodies;
#[allow(dead_code)]
#[path = "../src/link.rs"]
mod link;
#[path = "../src/query.rs"]
mod query;
#[path = "../../../fuzz/src/replay.rs"]
mod replay;
#[allow(unreachable_pub, non_snake_case)]
#[path = "../../../fuzz/src/preload_sessions.rs"]
mod sessions;

#[test]
fn preload() {
    replay::replay("preload", bodies::preload);
}

#[test]
fn preload_sessions() {
    replay::replay("preload_sessions", sessions::preload_sessions);
}
