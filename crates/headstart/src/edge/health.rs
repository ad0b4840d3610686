//! Health of origins: the edge connects to each, as it does for clients.

use std::collections::HashMap;
use std::time::Duration;

use tokio::task::JoinSet;

use super::settings::ConnectionSettings;
use crate::base::value::HostPort;
use crate::daemon::Running;
use crate::metrics;

/// Looks at all origins each time `every` has passed. Logs changes alone, and origins that are down
/// at the start.
pub(super) async fn watch<S>(
    mut running: Running<S>,
    connections: impl Fn(&S) -> &ConnectionSettings,
    every: Duration,
) {
    running.stopped_listening();
    let mut before = HashMap::new();
    loop {
        let settings = running.settings();
        let Some(now) = running.until_stop(look(connections(&settings))).await else { return };
        for (origin, error) in &now {
            let was_down = before.get(origin).is_some_and(Option::is_some);
            match error {
                Some(error) if !was_down => {
                    tracing::warn!(%origin, error, "cannot connect to the origin");
                }
                None if was_down => tracing::info!(%origin, "the origin is back"),
                _ => {}
            }
        }
        let down = now.values().filter(|error| error.is_some()).count();
        metrics::set_origins_down(down == now.len());
        before = now;
        if running.until_stop(tokio::time::sleep(every)).await.is_none() {
            return;
        }
    }
}

/// Returns why each origin cannot be connected to, or none if it can.
async fn look(settings: &ConnectionSettings) -> HashMap<HostPort, Option<String>> {
    let mut attempts = JoinSet::new();
    for origin in settings.origins.values() {
        let (dial, origin) = (settings.dial.clone(), origin.address.clone());
        attempts.spawn(async move {
            let error = dial.try_connect(&origin).await.err();
            (origin, error.map(|error| error.to_string()))
        });
    }
    attempts.join_all().await.into_iter().collect()
}
