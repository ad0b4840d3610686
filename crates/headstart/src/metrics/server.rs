//! The small HTTP server beside a daemon.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Metrics;

/// Clients at one time: a few Prometheus servers and a health check, not the public.
const CLIENTS: usize = 32;

/// Time that a client may take over a request's head, and wait between requests.
const HEAD_TIME: Duration = Duration::from_secs(10);

/// Pause after a failed accept (too many open files), so that it does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The text format that Prometheus reads.
const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Serves until dropped.
pub(super) async fn serve(listener: TcpListener, metrics: &Metrics) {
    let places = Arc::new(Semaphore::new(CLIENTS));
    while let Ok(place) = places.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(serve_client(stream, metrics.clone(), place));
            }
            Err(error) => {
                tracing::warn!(%error, "metrics: cannot accept");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve_client(stream: TcpStream, metrics: Metrics, _place: OwnedSemaphorePermit) {
    let service = service_fn(move |request| {
        let response = respond(&request, &metrics);
        async move { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "metrics: client");
    }
}

fn respond(request: &Request<Incoming>, metrics: &Metrics) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
        let methods = HeaderValue::from_static("GET, HEAD");
        response.headers_mut().insert(ALLOW, methods);
        return response;
    }
    match request.uri().path() {
        "/metrics" => text(StatusCode::OK, metrics.render()),
        "/healthz" => text(StatusCode::OK, "alive\n"),
        "/readyz" if metrics.is_ready() => text(StatusCode::OK, "ready\n"),
        "/readyz" => text(StatusCode::SERVICE_UNAVAILABLE, "starting or stopping\n"),
        _ => text(StatusCode::NOT_FOUND, "here are /metrics, /healthz and /readyz\n"),
    }
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(PROMETHEUS_TEXT);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
