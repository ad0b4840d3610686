//! `headstart lab calibrate` as a process.

use std::process::Output;

use headstart_testkit::has_net;

use crate::{alone, headstart};

fn calibrate(arguments: &[&str]) -> Output {
    headstart(&[&["lab", "calibrate"], arguments].concat())
}

#[test]
fn measured_round_trips_are_at_least_those_requested() {
    if !has_net() {
        return;
    }
    let _machine = alone();
    let output = calibrate(&["--rtt", "2ms,20ms", "--samples", "100", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    // How exact it is depends on what else the machine does; whether the verdict fits does not.
    let missed = report["bar"]["applies"] == true && report["bar"]["met"] == false;
    assert_eq!(output.status.code(), Some(i32::from(missed)), "{report}");
    assert_eq!(report["forwarder"]["timestamps"], true);
    let links = report["links"].as_array().unwrap();
    assert_eq!(links.iter().map(|link| &link["rtt_ms"]).collect::<Vec<_>>(), [2.0, 20.0]);
    for link in links {
        for (probe, count) in [("udp_echo", 100), ("tcp_connect", 20)] {
            assert_eq!(link[probe]["n"], count, "{report}");
            let errors = ["p50", "p99", "max"].map(|at| link[probe]["error_us"][at].as_f64());
            assert!(errors[0].is_some_and(|error| error >= 0.0) && errors.is_sorted(), "{report}");
        }
        assert_eq!(link["lost"], 0);
    }
}

#[test]
fn a_wrong_list_is_refused_with_an_example() {
    for list in ["fast", "5ms,", "6s"] {
        let output = calibrate(&["--rtt", list]);
        assert_eq!(output.status.code(), Some(2));
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(
            message.contains("--rtt") && (message.contains("100ms") || message.contains("5s")),
            "{message}"
        );
    }
}
