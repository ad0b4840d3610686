//! A private Tor network that does not stand; one that does is the experiment `tor` of `headstart
//! lab run`. Needs HEADSTART_TEST_NET=1 and the package tor.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::Duration;

use headstart_emulation::{Host, Lab, LabError, TorNetwork};
use headstart_testkit::has_net;

/// The log of a relay so far; empty before it has begun.
fn log(place: &Path, relay: &str) -> String {
    std::fs::read_to_string(place.join(relay).join("log")).unwrap_or_default()
}

#[test]
fn a_network_that_does_not_bootstrap_says_so() {
    if !has_net() {
        return;
    }
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let mut hosts = vec![Host::new("client")];
    hosts.extend(TorNetwork::hosts(Duration::ZERO));
    let lab = Lab::build(hosts).unwrap();
    let unknown = TorNetwork::start(&lab, "nobody", &[], work).unwrap_err();
    assert!(matches!(unknown, LabError::Topology(_)), "{unknown}");
    let place = work.join("late");
    let late = TorNetwork::start_while(&lab, "client", &[], &place, Duration::ZERO, &|| true);
    let late = late.unwrap_err();
    // Until the last relay has begun; before the first vote there is nothing.
    let place = work.join("ended");
    let ended = TorNetwork::start_while(&lab, "client", &[], &place, TorNetwork::PATIENCE, &|| {
        log(&place, "tor-authority-1").is_empty() || log(&place, "tor-exit-1").is_empty()
    });
    let ended = ended.unwrap_err();
    // What an authority says, since it is them who have none.
    let LabError::Tor { output, .. } = &ended else { panic!("{ended}") };
    let authority = log(&place, "tor-authority-1");
    assert!(!output.is_empty() && output.lines().all(|line| authority.contains(line)), "{output}");
    for (error, why) in [
        (&late, "not bootstrapped: tor-gencert has made no keys"),
        (&ended, "not bootstrapped: given up: no consensus has all relays; Tor said last:"),
    ] {
        assert!(matches!(error, LabError::Tor { .. }) && error.hint().is_some(), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
}
