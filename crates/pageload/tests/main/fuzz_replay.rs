//! Replays the committed corpora of `fuzz/`, so that what a fuzzer once reached stays reached.

#[allow(unreachable_pub)]
#[path = "../../../../fuzz/src/pageload.rs"]
mod bodies;

#[path = "../../../../fuzz/src/replay.rs"]
mod replay;

pub(crate) use replay::replay;

#[test]
fn har() {
    replay("har", bodies::har);
}
