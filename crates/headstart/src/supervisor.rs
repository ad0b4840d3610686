//! Messages of a daemon to its supervisor, such as systemd: sd_notify(3).

use sd_notify::NotifyState;

use crate::master;

/// Tells the supervisor, if there is one that watches this process. A daemon serves on if that
/// fails.
pub(crate) fn tell(states: &[NotifyState<'_>]) {
    if master::is_left() {
        return;
    }
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "cannot tell the supervisor");
    }
}

/// Tells that the daemon serves; of `status` the first line, as each line is a message.
pub(crate) fn tell_ready(status: &str) {
    let status = status.lines().next().unwrap_or_default();
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Tells that a reload begins, and when: systemd ignores earlier answers.
pub(crate) fn tell_reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(%error, "cannot tell the supervisor"),
    }
}

/// Answers the supervisor's watchdog, if there is one, for as long as tasks run.
pub(crate) fn keep_watchdog() {
    let Some(interval) = sd_notify::watchdog_enabled() else { return };
    tokio::spawn(async move {
        loop {
            // A supervisor that hangs blocks its writers.
            let _ = tokio::task::spawn_blocking(|| tell(&[NotifyState::Watchdog])).await;
            tokio::time::sleep(interval / 2).await;
        }
    });
}
