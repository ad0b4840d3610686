//! Certificates and waiting, as the tests of several crates need them: a dev-dependency alone.
//!
//! It depends on none of the crates, so that the unit tests of each may use it.
#![allow(clippy::unwrap_used)] // a test may panic, its helper functions too

mod certificates;

use std::thread;
use std::time::{Duration, Instant};

pub use certificates::{Authority, DAY, Issued, ML_DSA_44, P256, self_signed};

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
