//! Replays the committed corpora of `fuzz/`, so that inputs a fuzzer once found stay covered.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::cast_possible_truncation)]

#[allow(unreachable_pub)]
#[path = "../../../fuzz/src/lib.rs"]
mod bodies;

#[path = "../../../fuzz/src/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn cookie() {
    replay("cookie", bodies::cookie);
}

#[test]
fn datagrams() {
    replay("datagrams", bodies::datagrams);
}

#[test]
fn frames() {
    replay("frames", bodies::frames);
}

#[test]
fn hello() {
    replay("hello", bodies::hello);
}

#[test]
fn operations() {
    replay("operations", bodies::operations);
}
