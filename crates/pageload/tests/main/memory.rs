//! Memory that large and hostile files take, each in a process of its own: the peak is then its
//! own, too.

mod databases;
mod har;

use std::process::Command;

/// Set in the process of one of these tests.
const ALONE: &str = "HEADSTART_TEST_ALONE";

/// Returns true in a process that runs the test `name` alone. In any other, runs it so and fails as
/// it fails.
fn is_alone(name: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let (text, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{text}");
    assert!(output.status.success() && text.contains(" 1 passed"), "{text}{errors}");
    false
}

/// Returns the most memory that this process has had, in bytes (Linux).
fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes << 10)
}
