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
    // Before the first vote there is nothing.
    let late = TorNetwork::start_within(&lab, "client", &[], &work, Duration::ZERO).unwrap_err();
    std::fs::remove_dir_all(&work).unwrap();
    assert!(matches!(late, LabError::Tor { .. }) && late.hint().is_some(), "{late}");
    let said = late.to_string();
    assert!(
        said.contains("not bootstrapped: no consensus has all relays; Tor said last:"),
        "{said}"
    );
}
