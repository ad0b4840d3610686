//! Replays the committed corpora of `fuzz/`, so that what a fuzzer once reached stays reached.

#[allow(unreachable_pub)]
#[path = "../../../../fuzz/src/headstart.rs"]
mod bodies;

#[path = "../../../../fuzz/src/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn managed() {
    replay("managed", bodies::managed);
}

#[test]
fn options() {
    replay("options", bodies::options);
}

#[test]
fn proxies() {
    replay("proxies", bodies::proxies);
}

#[test]
fn proxy_protocol() {
    replay("proxy_protocol", bodies::proxy_protocol);
}

#[test]
fn requests() {
    replay("requests", bodies::requests);
}
