//! Datagrams that come after the fallback to plain TLS.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use headstart_proto::limits::LAG_MAX;
use headstart_proto::{Client, ClientEvent};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use crate::clock::Clock;
use crate::path::{Outcome, PathKey, PathMemory};
use crate::udp::{RecvBuffers, UdpPort};

/// Sockets that wait for late datagrams at the same time; beyond them, late datagrams go unnoticed.
static LATE_SOCKETS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(64)));

/// The answer to a session that fell back without one.
pub(super) struct LateAnswer {
    /// The session: only it knows an answer from other datagrams.
    pub(super) client: Client,
    pub(super) clock: Clock,
    pub(super) socket: UdpPort,
    pub(super) key: PathKey,
    /// True if the client went plain only after a wait.
    pub(super) awaited: bool,
    pub(super) rtt: Duration,
    /// Time when the answer was due.
    pub(super) due: Instant,
}

impl LateAnswer {
    /// Goes on listening in a task of its own, to improve the next grace.
    pub(super) fn await_in_background(self, paths: Arc<PathMemory>) {
        let Ok(permit) = Arc::clone(&LATE_SOCKETS).try_acquire_owned() else { return };
        tokio::spawn(async move {
            self.learn(&paths).await;
            drop(permit);
        });
    }

    /// Waits for the answer as long as its lag is a sample, and records it.
    pub(super) async fn learn(mut self, paths: &PathMemory) {
        if let Ok(true) = timeout_at(self.due + LAG_MAX, self.arrives()).await {
            let Self { key, awaited, rtt, due, .. } = self;
            let outcome = Outcome::Late { awaited, rtt, lag: due.elapsed() };
            paths.record(key, outcome, Instant::now().into_std());
        }
    }

    /// Waits for the answer; returns false if the socket fails.
    pub(super) async fn arrives(&mut self) -> bool {
        let mut buffers = RecvBuffers::new(1);
        while self.socket.recv(&mut buffers).await.is_ok() {
            for datagram in buffers.datagrams() {
                self.client.handle_datagram(self.clock.now(), datagram.bytes);
            }
            while let Some(event) = self.client.poll_event() {
                if event == ClientEvent::LateDatagram {
                    return true;
                }
            }
        }
        false
    }
}
