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
use std::pin::pin;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use headstart_net::{Handoff, ServerStream, TlsHandle, TlsStream};
use hyper::http::uri::Authority;

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
    /// True if handshakes of unproven clients count as what they cost, false if as one each.
    pub(super) weighs_handshakes: bool,
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
    let weigh = termination.weighs_handshakes && client.get().is_none();
    if let Err(over) = opened(&life, weigh.then_some(&handle)).await {
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
/// costly half of the handshake: the client to `weigh` is told of it.
async fn opened(life: &Life, weigh: Option<&TlsHandle<ServerStream>>) -> Result<(), Over> {
    let mut opened = pin!(life.opened());
    if let Some(tls) = weigh {
        let before = thread_time();
        let first = poll_fn(|cx| Poll::Ready(opened.as_mut().poll(cx))).await;
        tls.with_transport(|client| client.report_cost(thread_time().saturating_sub(before)));
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
