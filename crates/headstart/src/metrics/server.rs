//! The small HTTP server beside a daemon.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderName, HeaderValue,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use hyper::http::uri::Authority;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::status::{POLICY, StatusPage};
use super::{Metrics, limit_hit};
use crate::base::names::NamePattern;
use crate::base::peer_user::tcp_user;
use crate::shares::{Owner, Permit, Shares};

/// Clients at one time: a few Prometheus servers and a health check, not the public. No user of
/// this machine, and no other machine, has more than its share of them.
const CLIENTS: usize = 32;

/// Time that a client may take over a request's head, and wait between requests.
const HEAD_TIME: Duration = Duration::from_secs(10);

/// Pause after a failed accept (too many open files), so that it does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The text format that Prometheus reads.
const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

const MISDIRECTED: &str = "\
not known here by that name: ask by the address, or start the daemon with --metrics-host NAME
";

/// HTML in the encoding of Rust's strings.
const HTML: &str = "text/html; charset=utf-8";

const JSON: &str = "application/json";

/// Header by which browsers keep answers from the pages of others.
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// Site that a listener serves.
#[derive(Clone)]
pub(super) enum Site {
    Metrics,
    Status(StatusPage),
}

/// Serves `site` until dropped.
pub(super) async fn serve(
    listener: TcpListener,
    site: Site,
    metrics: &Metrics,
    names: Arc<[NamePattern]>,
) {
    let shares = Shares::new(CLIENTS);
    // They end with this: what they keep open would go on to ask a process that has handed over.
    let mut clients = JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                while clients.try_join_next().is_some() {}
                let owner = Owner::new(tcp_user(&stream, None), Some(peer.ip()));
                let Some(permit) = shares.take(owner) else {
                    limit_hit("metrics_clients");
                    continue;
                };
                let (site, metrics) = (site.clone(), metrics.clone());
                clients.spawn(serve_client(stream, site, metrics, Arc::clone(&names), permit));
            }
            Err(error) => {
                tracing::warn!(%error, "metrics: cannot accept");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve_client(
    stream: TcpStream,
    site: Site,
    metrics: Metrics,
    names: Arc<[NamePattern]>,
    _permit: Permit,
) {
    let service = service_fn(move |request| {
        let response = respond(&request, &site, &metrics, &names);
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

fn respond(
    request: &Request<Incoming>,
    site: &Site,
    metrics: &Metrics,
    names: &[NamePattern],
) -> Response<Full<Bytes>> {
    let mut hosts = request.headers().get_all(HOST).iter();
    if !hosts.all(|host| host.to_str().is_ok_and(|host| is_ours(host, names))) {
        return text(StatusCode::MISDIRECTED_REQUEST, MISDIRECTED);
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
        let methods = HeaderValue::from_static("GET, HEAD");
        response.headers_mut().insert(ALLOW, methods);
        return response;
    }
    match (site, request.uri().path()) {
        (Site::Metrics, "/metrics") => text(StatusCode::OK, metrics.render()),
        (Site::Metrics, "/healthz") => text(StatusCode::OK, "alive\n"),
        (Site::Metrics, "/readyz") if metrics.is_ready() => text(StatusCode::OK, "ready\n"),
        (Site::Metrics, "/readyz") => {
            text(StatusCode::SERVICE_UNAVAILABLE, "starting, stopping, or without an origin\n")
        }
        (Site::Metrics, _) => {
            text(StatusCode::NOT_FOUND, "here are /metrics, /healthz and /readyz\n")
        }
        (Site::Status(page), "/") => private(HTML, page.html(&metrics.render())),
        (Site::Status(page), "/status.json") => private(JSON, page.json(&metrics.render())),
        (Site::Status(_), _) => text(StatusCode::NOT_FOUND, "here are / and /status.json\n"),
    }
}

/// Returns true for names that nobody else can have lead to this port: a browser that asks for the
/// name of a stranger shows the answer to the stranger's page (DNS rebinding).
fn is_ours(host: &str, names: &[NamePattern]) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let host = authority.host();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    bare.parse::<IpAddr>().is_ok()
        || !name.contains('.')
        || name.ends_with(".localhost")
        || names.iter().any(|known| known.matches(&name))
}

/// Returns an answer that browsers neither keep nor give to other sites' pages.
fn private(kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    let policy = HeaderValue::from_str(&POLICY);
    response.headers_mut().extend(
        [
            (CONTENT_TYPE, kind),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (CACHE_CONTROL, "no-store"),
            (REFERRER_POLICY, "no-referrer"),
            (RESOURCE_POLICY, "same-origin"),
        ]
        .map(|(name, value)| (name, HeaderValue::from_static(value))),
    );
    response.headers_mut().extend(policy.map(|policy| (CONTENT_SECURITY_POLICY, policy)));
    response
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(PROMETHEUS_TEXT);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_strangers_are_not_ours() {
        let names = ["edge.example.com".parse().unwrap(), "*.pods.example".parse().unwrap()];
        for ours in [
            "127.0.0.1",
            "127.0.0.1:9100",
            "[::1]:9100",
            "localhost:9100",
            "app.localhost",
            "edge",
            "Edge.Example.com.:9100",
            "a.pods.example",
        ] {
            assert!(is_ours(ours, &names), "{ours}");
        }
        for strange in ["rebound.example:9100", "localhost.example", "pods.example", "a b", ""] {
            assert!(!is_ours(strange, &names), "{strange}");
        }
    }
}
