//! The terminating edge: it speaks TLS itself, before HTTP servers and others that do not.
//!
//! [`server`] has the certificates and keys, and tells the kernel of them for [`fast_open`].
//! [`http`] and [`raw`] serve connections, [`requests`] each request; [`forward`] says what becomes
//! of heads, [`origin`] asks the origin, [`life`] bounds all of it in time, [`room`] in number and
//! memory; [`exchange`] knows what waits for whom.

mod body;
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
mod requests;
mod room;
mod server;
mod streams;

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::pin::pin;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::thread::available_parallelism;
use std::time::Duration;

use headstart_net::{Handoff, ServerStream, TlsHandle, TlsStream};
use hyper::http::uri::Authority;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::yield_now;

pub(super) use forward::Claims;
pub use fuzzing::HttpEdge;
pub(super) use origin::HttpOrigins;
pub(super) use room::{Room, RoomLimits};
pub(super) use server::TlsServer;

use body::Pending;
use life::{Life, Over};
use raw::Addresses;
use requests::Requests;

use super::settings::ConnectionSettings;
use crate::base::clock::thread_time;
use crate::base::value::{OriginServer, Service};
use crate::edge::options::EarlyDataRequests;
use crate::metrics::Outcome;

/// Settings of connections whose TLS the edge terminates.
pub(super) struct Termination {
    /// Speaks TLS for origins that do not; none if there are none.
    pub(super) tls: Option<Arc<TlsServer>>,
    pub(super) http: HttpOrigins,
    /// Headers that clients may not send to origins.
    pub(super) claims: Arc<Claims>,
    /// Time that a client may take nothing of an answer.
    pub(super) stalled: Duration,
    pub(super) unproven: Unproven,
}

/// Handshakes of clients whose addresses are not proven.
pub(super) struct Unproven {
    /// True if they count as what they cost, false if as one each.
    weighs: bool,
    /// Places for their costly halves, one for each processor.
    places: Semaphore,
}

impl Unproven {
    pub(super) fn new(weighs: bool) -> Self {
        let processors = available_parallelism().map_or(1, NonZeroUsize::get);
        Self { weighs, places: Semaphore::new(processors) }
    }

    /// Waits until one may take a processor, and returns its place. Everything that is ready goes
    /// first: those who come with a burst of spoofed ClientHellos would wait behind all of it.
    async fn take_turn(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        let place = self.places.acquire().await.ok();
        // The runtime looks for events before it goes on with this.
        yield_now().await;
        place
    }
}

/// Serves a client that has come for `origin`, on the address `edge`, until it is through; `stop`
/// ends when it is to finish early.
pub(super) async fn serve(
    stream: ServerStream,
    origin: &OriginServer,
    edge: SocketAddr,
    (settings, termination): (&ConnectionSettings, &Termination),
    stop: impl Future<Output = ()>,
) -> Outcome {
    let peer = stream.peer_addr();
    let (client, server_name) = (stream.proven_addr(), server_name(&stream));
    let started = start(stream, origin, termination).await;
    let Some((tls, early_data)) = started else { return Outcome::Refused };
    let handle = tls.handle();
    let pending = Pending::new(termination.http.room());
    let mut life = Life::new(
        handle.clone(),
        pending.clone(),
        settings.hello_timeout,
        settings.limits,
        termination.stalled,
    );
    let unproven = client.get().is_none().then_some(&termination.unproven);
    if let Err(over) = opened(&life, &handle, unproven).await {
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
        early_data,
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

/// TLS on `stream`, and what may come as early data.
async fn start(
    stream: ServerStream,
    origin: &OriginServer,
    termination: &Termination,
) -> Option<(TlsStream<ServerStream>, EarlyDataRequests)> {
    // There is a server if an origin needs one.
    let server = termination.tls.as_ref()?;
    let peer = stream.peer_addr().ip().to_canonical();
    let first = server.first_seen(origin.service, stream.client_hello()).await;
    match server.accept(origin.service, peer, first) {
        Ok(conn) => {
            let proven = stream.proven_addr();
            Some((TlsStream::accepted(conn, stream, proven), server.early_data()))
        }
        Err(error) => {
            tracing::warn!(%error, "cannot start TLS with a client");
            stream.reset();
            None
        }
    }
}

/// Waits until the client may be answered. Its ClientHello is here, so the first poll is the
/// costly half of the handshake.
async fn opened(
    life: &Life,
    tls: &TlsHandle<ServerStream>,
    unproven: Option<&Unproven>,
) -> Result<(), Over> {
    let mut opened = pin!(life.opened());
    if let Some(unproven) = unproven {
        let _place = unproven.take_turn().await;
        let before = thread_time();
        let first = poll_fn(|cx| Poll::Ready(opened.as_mut().poll(cx))).await;
        if unproven.weighs {
            tls.with_transport(|client| client.report_cost(thread_time().saturating_sub(before)));
        }
        if let Poll::Ready(outcome) = first {
            return outcome;
        }
    }
    opened.await
}

/// Closes the connection: requests that are still being answered must not keep that of a client
/// that is gone.
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

    /// In virtual order, on one thread: what each does is over at once.
    #[tokio::test]
    async fn unproven_clients_take_turns_with_everybody_else() {
        let unproven = Arc::new(Unproven { weighs: true, places: Semaphore::new(1) });
        let order = Arc::new(Mutex::new(Vec::new()));
        let log = |who: char| {
            let order = Arc::clone(&order);
            move || order.lock().unwrap().push(who)
        };
        for _ in 0..100 {
            let (unproven, log) = (Arc::clone(&unproven), log('u'));
            tokio::spawn(async move {
                let _place = unproven.take_turn().await;
                log();
            });
        }
        let log = log('p');
        let proven = tokio::spawn(async move {
            for _ in 0..5 {
                log();
                yield_now().await;
            }
        });
        proven.await.unwrap();
        let order: String = order.lock().unwrap().iter().collect();
        assert!(order.len() < 20 && order.matches('p').count() == 5, "{order}");
    }
}
