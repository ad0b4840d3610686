//! Datagrams that come after the fallback to plain TLS.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use headstart_proto::limits::LAG_MAX;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::Inner;
use crate::path::{Outcome, PathKey};
use crate::udp::{RecvBuffers, UdpPort};

/// Sockets that wait for late datagrams at the same time; beyond them, late datagrams go unnoticed.
static LATE_SOCKETS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(64)));

/// Keeps listening for a datagram after the fallback, to improve the next grace. The datagram was
/// due at `expected`.
pub(super) fn await_late(
    shared: Arc<Inner>,
    socket: UdpPort,
    key: PathKey,
    awaited: bool,
    rtt: Duration,
    expected: Instant,
) {
    let Ok(permit) = Arc::clone(&LATE_SOCKETS).try_acquire_owned() else { return };
    tokio::spawn(async move {
        let _permit = permit;
        let mut buffers = RecvBuffers::new(1);
        let until = expected + LAG_MAX;
        if let Ok(Ok(_)) = tokio::time::timeout_at(until, socket.recv(&mut buffers)).await {
            let outcome = Outcome::Late { awaited, rtt, lag: expected.elapsed() };
            shared.paths.record(key, outcome, Instant::now().into_std());
        }
    });
}
