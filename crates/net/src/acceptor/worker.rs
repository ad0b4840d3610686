use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::quic::{QuicRelay, QuicServer};
use super::shared::Shared;
use crate::udp::{RecvBuffers, UdpPort};

/// Maximum interval between checks of the core's deadlines, which are seconds long.
const TICK: Duration = Duration::from_millis(250);

/// Messages read in one system call, 64 kB of memory each.
const BATCH: usize = 8;

/// A socket, and the runtime that waits for it.
#[derive(Debug)]
pub(super) struct Worker {
    runtime: DetachableRuntime,
    pub(super) port: Arc<UdpPort>,
}

/// A runtime that may be dropped within another one, for example when a socket cannot be opened.
#[derive(Debug)]
struct DetachableRuntime(Option<Runtime>);

impl Drop for DetachableRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Worker {
    /// Opens a socket at `address`, `shared` with other workers or alone.
    pub(super) fn listen(address: SocketAddr, shared: bool) -> io::Result<Self> {
        Self::new(|| UdpPort::listen(address, shared))
    }

    /// Takes a bound socket.
    pub(super) fn adopt(socket: UdpSocket) -> io::Result<Self> {
        Self::new(|| UdpPort::adopt(socket))
    }

    fn new(open: impl FnOnce() -> io::Result<UdpPort>) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let opened = {
            let _entered = runtime.enter();
            open()
        };
        let runtime = DetachableRuntime(Some(runtime));
        Ok(Self { runtime, port: Arc::new(opened?) })
    }
}

/// Threads that read datagrams. Dropping this stops them and waits, at most for one batch to be
/// handled, so that the port is free again.
#[derive(Debug)]
pub(super) struct Receivers {
    /// True once they may read. The threads notice when it is dropped.
    running: Option<watch::Sender<bool>>,
    threads: Vec<JoinHandle<()>>,
}

impl Receivers {
    /// Has the threads read from now on.
    pub(super) fn start(&self) {
        if let Some(running) = &self.running {
            running.send_replace(true);
        }
    }
}

impl Drop for Receivers {
    fn drop(&mut self) {
        drop(self.running.take());
        for thread in self.threads.drain(..) {
            // A thread that panicked has closed its socket, too.
            let _ = thread.join();
        }
    }
}

/// Makes one thread for each socket, which reads once the receivers are started, and a task that
/// checks the deadlines of sessions, including those that outlive the sockets. The task ends once
/// there can be no more sessions.
///
/// Threads, as in the TurboTLS paper: a datagram that wakes a thread of the shared runtime makes it
/// wake another in its stead, which under a flood costs TCP clients more than the datagram
/// (`bench/README.md`).
pub(super) fn spawn(
    shared: &Arc<Shared>,
    workers: Vec<Worker>,
    quic: Option<QuicServer>,
) -> io::Result<Receivers> {
    if !workers.is_empty() {
        tokio::spawn(check_deadlines(Arc::downgrade(shared)));
    }
    let (running, ended) = watch::channel(false);
    let mut receivers = Receivers { running: Some(running), threads: Vec::new() };
    let quic = quic.map(|quic| quic.shared_by(workers.len()));
    for Worker { runtime, port } in workers {
        let receive = receive(Arc::clone(shared), port, quic);
        let mut ended = ended.clone();
        let thread = thread::Builder::new().name("headstart-udp".into());
        receivers.threads.push(thread.spawn(move || {
            let Some(runtime) = &runtime.0 else { return };
            runtime.block_on(async {
                if ended.wait_for(|running| *running).await.is_err() {
                    return;
                }
                tokio::select! {
                    () = receive => {}
                    _ = ended.changed() => {}
                }
            });
        })?);
    }
    Ok(receivers)
}

async fn receive(shared: Arc<Shared>, port: Arc<UdpPort>, quic: Option<QuicServer>) {
    let mut buffers = RecvBuffers::new(BATCH);
    let relay = quic.map(|server| QuicRelay::new(server, Arc::clone(&port)));
    loop {
        match port.recv(&mut buffers).await {
            Ok(_) => match &relay {
                Some(relay) => {
                    let others = buffers.datagrams().filter(|datagram| !relay.takes(datagram));
                    shared.handle_datagrams(others.collect::<Vec<_>>().into_iter());
                }
                None => shared.handle_datagrams(buffers.datagrams()),
            },
            Err(error) => {
                // Not ICMP from one peer, but out of memory or a lost interface.
                tracing::warn!(%error, "cannot receive datagrams");
                tokio::time::sleep(TICK).await;
            }
        }
    }
}

async fn check_deadlines(shared: Weak<Shared>) {
    while let Some(shared) = shared.upgrade() {
        let latest = tokio::time::Instant::now() + TICK;
        let next = shared.handle_timeout();
        drop(shared);
        tokio::time::sleep_until(next.map_or(latest, |next| next.clamp(latest - TICK / 2, latest)))
            .await;
    }
}
