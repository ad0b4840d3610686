//! Certificates, ClientHellos, sockets, programs and waiting, as the tests of several crates need
//! them: a dev-dependency alone.
//!
//! It depends on none of the crates, so that the unit tests of each may use it.
#![allow(clippy::unwrap_used)] // a test may panic, its helper functions too

mod certificates;
pub mod hello;
mod sockets;

use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

pub use certificates::{Authority, DAY, Issued, ML_DSA_44, P256, self_signed};
pub use sockets::{BlackHole, black_hole, closed, expect_reset, pair};

/// Longer than any machine takes, so that a hang becomes a failure. Edges refuse early data for the
/// first 20 s.
const PATIENCE: Duration = Duration::from_secs(180);

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// Waits until `done`.
///
/// # Panics
/// It does not come about in three minutes; the message names `what`.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "waited {PATIENCE:?} for: {what}");
        thread::sleep(LOOK);
    }
}

/// A program that is killed when dropped.
#[derive(Debug)]
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns true if tests in network namespaces and as other users are to run; says so if not.
pub fn has_net() -> bool {
    let is_on = std::env::var_os("HEADSTART_TEST_NET").is_some_and(|value| value == "1");
    if !is_on {
        eprintln!("skipped: HEADSTART_TEST_NET=1 runs it, as root");
    }
    is_on
}
