//! `headstart demo` as a process.

use headstart_testkit::has_net;

use crate::{alone, headstart};

/// Between the ratio that TurboTLS should reach, one round trip instead of two, and no saving.
const RATIO: f64 = 0.75;

#[test]
fn the_request_leaves_sooner_with_turbotls() {
    if !has_net() {
        return;
    }
    let _machine = alone();
    let output = headstart(&["demo", "--rtt", "20ms", "-n", "5", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["rtt_ms"], 20.0);
    for (moment, ratio) in [("ms_to_first_request_byte", RATIO), ("ms_to_first_response_byte", 1.0)]
    {
        let [plain, turbo] = [(0, "plain"), (1, "turbo")].map(|(arm, name): (usize, &str)| {
            let arm = &report["arms"][arm];
            assert_eq!(
                (arm["name"].as_str(), arm["n"].as_u64()),
                (Some(name), Some(5)),
                "{report}"
            );
            for quantile in ["p50", "p90", "p99"] {
                assert!(arm[moment][quantile].as_f64().is_some_and(|ms| ms >= 20.0), "{report}");
            }
            arm[moment]["p50"].as_f64().unwrap()
        });
        assert!(turbo < ratio * plain, "{moment}: {report}");
    }
}
