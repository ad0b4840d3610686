//! `headstart-lab interop` tells implementations that pass from those that do not.

use std::process::Command;

use serde_json::Value;

use crate::programs::{LAB, headstart};

pub(crate) fn a_client_that_goes_plain_fails() {
    let product = headstart();
    let plain = format!(
        "plain={} agent --listen $LISTEN --edge $NAME=$EDGE --opening plain",
        product.display()
    );
    let mut command = Command::new(LAB);
    command.args(["interop", "--json", "--case", "opening", "--server", "headstart"]);
    for implementation in [&*plain, "none=sh -c 'exit 127'", "gone=false"] {
        command.args(["--implementation", implementation]);
    }
    let output = command.output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    let matrix: Value = serde_json::from_slice(&output.stdout).unwrap();
    let cells = matrix["cells"].as_array().unwrap();
    let expected = [
        ("headstart", "passed", ""),
        ("plain", "failed", "no ClientHello went over UDP"),
        ("none", "unsupported", "none does not have it"),
        ("gone", "failed", "gone ended"),
    ];
    assert_eq!(cells.len(), expected.len(), "{matrix}");
    for (cell, (client, result, reason)) in cells.iter().zip(expected) {
        assert_eq!((&cell["client"], &cell["result"]), (&client.into(), &result.into()), "{cell}");
        assert!(cell["reason"].as_str().unwrap_or_default().contains(reason), "{cell}");
    }
}
