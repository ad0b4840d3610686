//! A private Tor network that does not stand; one that does is the experiment `tor` of `headstart lab run`.
//! Needs HEADSTART_TEST_NET=1 and the package tor.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use headstart_lab::{Host, Lab, LabError, TorNetwork};

#[test]
fn a_network_that_does_not_bootstrap_says_so() {
    if std::env::var_os("HEADSTART_TEST_NET").is_none_or(|value| value != "1") {
        eprintln!("skipped: set HEADSTART_TEST_NET=1");
        return;
    }
    let work = std::env::temp_dir().join(format!("headstart-tor-{}", std::process::id()));
    let mut hosts = vec![Host::new("client")];
    hosts.extend(TorNetwork::hosts(Duration::ZERO));
    let lab = Lab::build(hosts).unwrap();
    let unknown = TorNetwork::start(&lab, "nobody", &[], &work).unwrap_err();
    assert!(matches!(unknown, LabError::Topology(_)), "{unknown}");
    let start = |place: &str, patience, wanted: &(dyn Fn() -> bool + Sync)| {
        TorNetwork::start_while(&lab, "client", &[], &work.join(place), patience, wanted)
    };
    let late = start("late", Duration::ZERO, &|| true).unwrap_err();
    // When the last relay has begun; before the first vote there is nothing.
    let exit = work.join("ended/tor-exit-1/log");
    let ended = start("ended", TorNetwork::PATIENCE, &|| !exit.exists()).unwrap_err();
    std::fs::remove_dir_all(&work).unwrap();
    for (error, why) in [
        (&late, "not bootstrapped: tor-gencert has made no keys"),
        (&ended, "not bootstrapped: given up: no consensus has all relays; Tor said last:"),
    ] {
        assert!(matches!(error, LabError::Tor { .. }) && error.hint().is_some(), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
}
