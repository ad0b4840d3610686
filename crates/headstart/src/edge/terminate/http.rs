//! HTTP on one connection: HTTP/1.1 or HTTP/2, as TLS has agreed on.

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use headstart_net::{ServerStream, TlsHandle, TlsStream};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::Service;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};

use super::body::ResponseBody;
use super::forward::HEAD_MAX;
use super::frames::STREAMS;
use super::io::ClientIo;
use super::life::{Event, Life, Over};
use super::requests::{Requests, Tunnel};
use super::server::H2;
use super::streams::Streams;
use crate::metrics;

/// Bytes of a request's head at most, HTTP/2, which counts 32 bytes more for each header (RFC 9113
/// section 6.5.2): whatever fits [`HEAD_MAX`], and some more that is counted before
/// it is refused.
const HEAD_LIST_MAX: u32 = 48 * 1024;

/// Bytes that a connection may have read ahead of the origin, HTTP/1.1; a head has to fit.
const READ_AHEAD: usize = 64 * 1024;

/// Streams that may be reset before the service sees them, HTTP/2: what the library allows.
const RESETS_UNSEEN: usize = 20;

/// Time that a client has for the rest of a response that its origin broke off.
const CUT_SHORT: Duration = Duration::from_secs(30);

/// Bytes of one response that wait for the client, HTTP/2. With all streams 8 MiB for a connection
/// at worst, of a client that requests much and reads nothing.
const SEND_AHEAD: usize = 64 * 1024;

/// Bytes of all uploads of a connection, HTTP/2, that wait for the origin: what hyper allows for
/// one stream.
const RECEIVE_AHEAD: u32 = 1024 * 1024;

/// Time that a client may go on sending after its last response, so that it can read all of it.
const LINGER: Duration = Duration::from_secs(2);

/// Serves `tls`, whose handshake may not be done, until both sides are through.
pub(super) async fn serve(
    tls: TlsStream<ServerStream>,
    requests: Arc<Requests>,
    life: &mut Life,
    stop: impl Future<Output = ()>,
) -> Over {
    let stop = pin!(stop);
    let service = HttpService(Arc::clone(&requests));
    let is_http2 = requests.tls.facts().alpn.as_deref() == Some(H2);
    let io = TokioIo::new(ClientIo::new(tls, &requests.pending, is_http2));
    let over = if is_http2 {
        run(pin!(h2(io, service)), life, stop).await
    } else {
        run(pin!(h1(io, service)), life, stop).await
    };
    let over = match requests.take_tunnel() {
        Some(tunnel) if over == Over::Closed => pass(tunnel, life).await,
        _ => over,
    };
    match over {
        Over::Closed => finish_within(LINGER, &requests.tls).await,
        // A response of HTTP/1.0 ends with its connection.
        Over::CutShort if requests.is_old() => return Over::Broken,
        Over::CutShort => finish_within(CUT_SHORT, &requests.tls).await,
        _ => {}
    }
    life.report();
    over
}

/// Ends the connection so that the client gets all that it was sent.
async fn finish_within(time: Duration, tls: &TlsHandle<ServerStream>) {
    let finish = async {
        // hyper has done it, but not where a client wanted another protocol and was not given it.
        if tls.shutdown().await.is_ok() {
            tls.drain().await;
        }
    };
    let _ = tokio::time::timeout(time, finish).await;
}

type Io<T> = TokioIo<ClientIo<T>>;

/// Serves a client of HTTP/1.1 on `io`.
pub(super) fn h1<T>(
    io: Io<T>,
    service: HttpService,
) -> http1::UpgradeableConnection<Io<T>, HttpService>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    http1::Builder::new()
        // `Life` has a limit of its own, for both versions.
        .header_read_timeout(None)
        .max_header_size(HEAD_MAX)
        .max_buf_size(READ_AHEAD)
        // Pieces of responses are to be dropped when they leave, and not before.
        .writev(true)
        .serve_connection(io, service)
        .with_upgrades()
}

/// Serves a client of HTTP/2 on `io`.
pub(super) fn h2<T>(
    io: Io<T>,
    service: HttpService,
) -> http2::Connection<Io<T>, HttpService, Streams>
where
    T: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let streams = Streams::new(service.0.pending.client());
    http2::Builder::new(streams)
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEAD_LIST_MAX)
        .max_pending_accept_reset_streams(RESETS_UNSEEN)
        .max_send_buf_size(SEND_AHEAD)
        .initial_connection_window_size(RECEIVE_AHEAD)
        .serve_connection(io, service)
}

/// Service that hyper calls with each request.
#[derive(Clone, Debug)]
pub(super) struct HttpService(pub(super) Arc<Requests>);

impl Service<Request<Incoming>> for HttpService {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<ResponseBody>, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let requests = Arc::clone(&self.0);
        Box::pin(async move { Ok(requests.respond(request).await) })
    }
}

/// A connection that hyper serves.
trait Serving: Future<Output = hyper::Result<()>> {
    /// Takes no more requests, and tells the client so.
    fn finish(self: Pin<&mut Self>);
}

type Client = Io<TlsStream<ServerStream>>;

impl Serving for http1::UpgradeableConnection<Client, HttpService> {
    fn finish(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

impl Serving for http2::Connection<Client, HttpService, Streams> {
    fn finish(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

/// Runs the connection to its end, or to that of its time.
async fn run<C: Serving>(
    mut connection: Pin<&mut C>,
    life: &mut Life,
    mut stop: Pin<&mut impl Future<Output = ()>>,
) -> Over {
    let mut leaving = false;
    loop {
        let event = tokio::select! {
            biased;
            ended = connection.as_mut() => {
                return ended.map_or_else(|error| broken(&error), |()| Over::Closed);
            }
            () = stop.as_mut(), if !leaving => Event::Unused,
            event = life.next() => event,
        };
        match event {
            Event::Over(over) => return over,
            Event::Unused if leaving => {}
            Event::Unused => {
                leaving = true;
                connection.as_mut().finish();
            }
        }
    }
}

fn broken(error: &hyper::Error) -> Over {
    tracing::debug!(%error, "HTTP with a client");
    if error.is_parse_too_large() {
        metrics::limit_hit("request_head");
    }
    let h2 = error.source().and_then(|error| error.downcast_ref::<h2::Error>());
    let is_excess = h2
        .and_then(h2::Error::reason)
        .is_some_and(|reason| reason == h2::Reason::ENHANCE_YOUR_CALM);
    let is_refused = h2.is_some_and(|error| error.is_go_away() && error.is_library());
    match () {
        // The client was told the reason, and a reset could take that back (RFC 9113 section
        // 5.4.1).
        () if error.is_parse() || is_refused && !is_excess => Over::Closed,
        // The origin broke off a response of HTTP/1.1: its framing shows that, also behind an
        // orderly end of TLS.
        () if error.is_user() => Over::CutShort,
        () => Over::Broken,
    }
}

/// Passes bytes between the two sides of an upgraded connection.
async fn pass(tunnel: Tunnel, life: &mut Life) -> Over {
    let Tunnel { client, origin, mut in_flight } = tunnel;
    let (client, origin) = match tokio::try_join!(client, origin) {
        Ok(both) => both,
        Err(error) => return broken(&error),
    };
    // Whatever its outcome, the request was not broken off.
    in_flight.end();
    life.enter_tunnel();
    let (mut client, mut origin) = (TokioIo::new(client), TokioIo::new(origin));
    let mut copied = pin!(tokio::io::copy_bidirectional(&mut client, &mut origin));
    loop {
        tokio::select! {
            ended = copied.as_mut() => return ended.map_or(Over::Broken, |_| Over::Closed),
            event = life.next() => if let Event::Over(over) = event {
                return over;
            },
        }
    }
}
