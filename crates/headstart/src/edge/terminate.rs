//! The terminating edge: it speaks TLS itself, before HTTP servers and others that do not.
//!
//! [`server`] has the certificates and keys, and tells the kernel of them for [`fast_open`].
//! [`http`] and [`raw`] serve connections, [`requests`] each request; [`forward`] rewrites heads,
//! [`origin`] sends requests to origins, [`life`] limits connections in time, [`capacity`] requests
//! in number and memory; [`exchange`] counts the bytes that wait for each client.

mod body;
mod capacity;
mod certificates;
mod exchange;
mod fast_open;
pub(super) mod files;
mod forward;
mod frames;
mod fuzzing;
mod http;
mod io;
mod life;
mod origin;
mod raw;
mod refusals;
mod requests;
mod server;
mod streams;

use std::future::{Future, poll_fn};
use std::mem;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use headstart_net::{Handoff, ServerStream, TlsHandle, TlsStream};
use hyper::http::uri::Authority;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::yield_now;

pub(super) use capacity::{Capacity, CapacityLimits};
pub(super) use certificates::{Examined, authorities, examine};
pub(super) use forward::Claims;
pub use fuzzing::HttpEdge;
pub(super) use life::ClientTimeouts;
pub(super) use origin::HttpOrigins;
pub(super) use server::TlsServer;

use body::Pending;
use life::{Life, Over};
use raw::Addresses;
use requests::Requests;

use super::settings::ConnectionSettings;
use crate::base::clock::thread_time;
use crate::base::value::{OriginServer, Service};
use crate::metrics::Outcome;

/// Settings of connections whose TLS the edge terminates.
pub(super) struct Termination {
    /// Speaks TLS for origins that do not; none if there are none.
    pub(super) tls: Option<Arc<TlsServer>>,
    pub(super) http: HttpOrigins,
    /// Headers that clients may not send to origins.
    pub(super) claims: Arc<Claims>,
    pub(super) client: ClientTimeouts,
    pub(super) unproven: Unproven,
}

/// Handshakes of clients whose addresses are not proven.
pub(super) struct Unproven {
    /// True if they count as what they cost, false if as one each.
    weighs: bool,
    /// Permits for their costly halves, one for each processor.
    permits: Arc<Semaphore>,
}

impl Unproven {
    pub(super) const fn new(weighs: bool, permits: Arc<Semaphore>) -> Self {
        Self { weighs, permits }
    }

    pub(super) const fn permits(&self) -> &Arc<Semaphore> {
        &self.permits
    }

    /// Waits until the client of `stream` may take a processor, and returns its permit; `None` if
    /// it needs none, as it has joined.
    ///
    /// # Errors
    /// Its session has ended.
    async fn take_turn(
        &self,
        stream: &mut ServerStream,
    ) -> Result<Option<SemaphorePermit<'_>>, Over> {
        tokio::select! {
            biased;
            joined = stream.joined() => joined.map(|()| None).map_err(|_| Over::Broken),
            permit = self.permit() => Ok(permit),
        }
    }

    /// Waits for a permit, and for what is ready: clients that come during a burst of spoofed
    /// ClientHellos would otherwise wait behind all of it.
    async fn permit(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        let permit = self.permits.acquire().await.ok();
        // First the runtime looks for events; then the tasks that wait for them have their turn.
        yield_now().await;
        step_back().await;
        permit
    }
}

/// Serves a client that has come for `origin`, on the address `edge`, until it is through; `stop`
/// ends when it is to finish early.
pub(super) async fn serve(
    mut stream: ServerStream,
    origin: &OriginServer,
    edge: SocketAddr,
    (settings, termination): (&ConnectionSettings, &Termination),
    stop: impl Future<Output = ()>,
) -> Outcome {
    // There is a server if an origin needs one.
    let Some(server) = termination.tls.as_ref() else { return Outcome::Refused };
    let peer = stream.peer_addr();
    let (client, server_name) = (stream.proven_addr(), server_name(&stream));
    let first = server.first_seen(origin.service, stream.client_hello()).await;
    let permit = match termination.unproven.take_turn(&mut stream).await {
        Ok(permit) => permit,
        Err(over) => return over.outcome(),
    };
    let tls = match server.accept(origin.service, peer.ip().to_canonical(), first) {
        Ok(conn) => TlsStream::accepted(conn, stream, client.clone()),
        Err(error) => {
            tracing::warn!(%error, "cannot start TLS with a client");
            stream.reset();
            return Outcome::Refused;
        }
    };
    let handle = tls.handle();
    let pending = Pending::new(termination.http.capacity());
    let mut life = Life::new(
        handle.clone(),
        pending.clone(),
        settings.hello_timeout,
        settings.limits,
        termination.client,
    );
    let opened = match permit {
        Some(permit) => open_with(permit, &life, &handle, termination.unproven.weighs).await,
        None => life.opened().await,
    };
    if let Err(over) = opened {
        return end(&handle, over);
    }
    if origin.service != Service::Http {
        let addresses = Addresses { client: peer, edge };
        let over = raw::serve(tls, &origin.address, addresses, settings, &life).await;
        return end(&handle, over);
    }
    let Ok(address) = origin.address.to_string().parse::<Authority>() else {
        return end(&handle, Over::Unreachable);
    };
    let requests = Arc::new(Requests {
        origin: origin.clone(),
        address,
        origins: Arc::clone(&settings.origins),
        http: termination.http.clone(),
        tls: handle.clone(),
        client,
        server_name,
        client_certificate: handle
            .facts()
            .peer_certificate
            .and_then(|der| forward::client_certificate(&der)),
        early_data: server.early_data(),
        claims: Arc::clone(&termination.claims),
        pending,
        tunnel: Mutex::new(None),
        old: AtomicBool::new(false),
    });
    let over = http::serve(tls, requests, &mut life, stop).await;
    end(&handle, over)
}

fn server_name(stream: &ServerStream) -> Option<String> {
    stream.client_hello().and_then(|hello| hello.server_name.clone())
}

/// Waits until the edge may respond to the client. Its ClientHello is here, so the first poll is
/// the costly half of the handshake: it needs the `permit`, and is reported if it `weighs`.
async fn open_with(
    permit: SemaphorePermit<'_>,
    life: &Life,
    tls: &TlsHandle<ServerStream>,
    weighs: bool,
) -> Result<(), Over> {
    let mut opened = pin!(life.opened());
    let before = thread_time();
    let first = poll_fn(|cx| Poll::Ready(opened.as_mut().poll(cx))).await;
    drop(permit);
    if weighs {
        tls.with_transport(|client| client.report_cost(thread_time().saturating_sub(before)));
    }
    match first {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => opened.await,
    }
}

/// Lets every task go first that is ready, once. Tasks that step back keep their order, while
/// [`yield_now`] turns it round.
async fn step_back() {
    let mut again = true;
    poll_fn(|cx| {
        if mem::take(&mut again) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    })
    .await;
}

/// Closes the connection: unfinished responses must not keep that of a client that is gone.
fn end(handle: &TlsHandle<ServerStream>, over: Over) -> Outcome {
    match over {
        // The client's refusal is on its way, and a reset would overtake it.
        Over::Closed | Over::Refused | Over::CutShort => handle.close(),
        _ => handle.reset(),
    }
    over.outcome()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order is the runtime's, and one thread has only one.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn unproven_clients_take_turns_with_everybody_else() {
        let unproven = Arc::new(Unproven::new(true, Arc::new(Semaphore::new(1))));
        let order = Arc::new(Mutex::new(String::new()));
        let all = {
            let order = Arc::clone(&order);
            tokio::spawn(async move {
                for _ in 0..200 {
                    let (unproven, order) = (Arc::clone(&unproven), Arc::clone(&order));
                    tokio::spawn(async move {
                        let _permit = unproven.permit().await;
                        order.lock().unwrap().push('u');
                    });
                }
                let order = Arc::clone(&order);
                let proven = tokio::spawn(async move {
                    for _ in 0..5 {
                        order.lock().unwrap().push('p');
                        step_back().await;
                    }
                });
                proven.await.unwrap();
            })
        };
        all.await.unwrap();
        let order = order.lock().unwrap();
        let last = order.rfind('p').unwrap();
        assert!(last < 20, "{last}: {order}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn tasks_that_step_back_keep_their_order() {
        let order = Arc::new(Mutex::new(Vec::new()));
        let all = {
            let order = Arc::clone(&order);
            tokio::spawn(async move {
                let tasks = (0..20).map(|number| {
                    let order = Arc::clone(&order);
                    tokio::spawn(async move {
                        step_back().await;
                        order.lock().unwrap().push(number);
                    })
                });
                for task in tasks.collect::<Vec<_>>() {
                    task.await.unwrap();
                }
            })
        };
        all.await.unwrap();
        let order = order.lock().unwrap();
        // The runtime itself lets the one that was spawned last go first.
        assert!(order[1..].is_sorted(), "{order:?}");
    }
}
