use std::sync::mpsc::{self, Sender};
use std::time::Duration;

/// Longer than any machine takes, so that a hang becomes a failure.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);

/// Stops this test's clock until the returned value is dropped: however slow the machine is, no
/// time limit of either end is over before its peer has answered.
#[must_use]
pub(crate) fn stop_clock() -> Sender<()> {
    let (stopped, going_on) = mpsc::channel();
    // While a blocking task runs, a paused clock does not go on by itself.
    tokio::task::spawn_blocking(move || going_on.recv_timeout(TIMEOUT));
    tokio::time::pause();
    stopped
}

/// Runs every other task of this thread until it waits.
pub(crate) async fn run_other_tasks() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}
