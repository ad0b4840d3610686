//! The common parts of all servers.

use std::future::Future;
use std::io;
use std::net::SocketAddr;

use headstart_net::listen_tcp;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::content::Answer;
use crate::limits::{HALF_RTT_MAX, HALF_RTT_WRITE, LIFE};
use crate::sys;

/// Connections with data in their SYN that may wait for the handshake to end.
const FAST_OPEN_QUEUE: i32 = 4096;

/// Returns the answer to early data, record by record.
pub(crate) fn half_rtt(answer: &mut Answer) -> impl Iterator<Item = Vec<u8>> {
    let pieces = (0..HALF_RTT_MAX / HALF_RTT_WRITE).map(|_| answer.next(HALF_RTT_WRITE));
    pieces.take_while(|piece| !piece.is_empty())
}

/// Listens at `address`, with a queue for data in SYNs if `fast_open`.
pub(crate) fn listen(address: SocketAddr, fast_open: bool) -> io::Result<TcpListener> {
    let listener = listen_tcp(address)?;
    if fast_open {
        sys::fast_open_queue(&listener, FAST_OPEN_QUEUE)?;
    }
    Ok(listener)
}

/// Tasks that are aborted when this is dropped.
pub(crate) struct Tasks(pub(crate) Vec<JoinHandle<()>>);

impl Tasks {
    pub(crate) async fn run(mut self) {
        for task in &mut self.0 {
            let _ = task.await;
        }
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

/// Reason why a connection ended early.
pub(crate) type Broken = Box<dyn std::error::Error + Send + Sync>;

/// A client notices a broken connection itself; this only reports it.
pub(crate) async fn end(connection: impl Future<Output = Result<(), Broken>>) {
    match tokio::time::timeout(LIFE, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "connection"),
        Err(_) => tracing::debug!("connection out of time"),
    }
}
