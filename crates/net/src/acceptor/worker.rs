use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::task::JoinSet;

use super::shared::Shared;
use crate::udp::{RecvBuffers, UdpPort};

/// Deadlines of the core are looked at least this often; they are seconds long.
const TICK: Duration = Duration::from_millis(250);

/// Messages read in one system call, 64 kB of memory each.
const BATCH: usize = 8;

/// One task for each socket. Another keeps the deadlines, which hold for sessions that outlive the
/// sockets too: it ends when nobody can have one any more.
pub(super) fn spawn(shared: &Arc<Shared>) -> JoinSet<()> {
    let mut receivers = JoinSet::new();
    for port in &shared.ports {
        receivers.spawn(receive(Arc::clone(shared), Arc::clone(port)));
    }
    if !shared.ports.is_empty() {
        tokio::spawn(keep_time(Arc::downgrade(shared)));
    }
    receivers
}

async fn receive(shared: Arc<Shared>, port: Arc<UdpPort>) {
    let mut buffers = RecvBuffers::new(BATCH);
    loop {
        match port.recv(&mut buffers).await {
            Ok(_) => shared.handle_datagrams(buffers.datagrams()),
            Err(error) => {
                // Not tied to a peer (that would be ICMP): out of memory, interface gone.
                tracing::warn!(%error, "cannot receive datagrams");
                tokio::time::sleep(TICK).await;
            }
        }
    }
}

async fn keep_time(shared: Weak<Shared>) {
    while let Some(shared) = shared.upgrade() {
        let latest = tokio::time::Instant::now() + TICK;
        let next = shared.handle_timeout();
        drop(shared);
        tokio::time::sleep_until(next.map_or(latest, |next| next.clamp(latest - TICK / 2, latest)))
            .await;
    }
}
