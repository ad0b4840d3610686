//! Requests to HTTP origins, over connections that are kept for the next ones.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use hyper::http::request;
use hyper::http::uri::Authority;
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;

use super::body::{Progress, Upload};
use super::capacity::Capacity;
use crate::base::failure::causes;
use crate::base::log_throttle::LogThrottle;
use crate::base::value::HostPort;
use crate::edge::dial::Dial;
use crate::metrics;

/// Time that a connection waits for another request. Shorter than most servers keep theirs (5 s in
/// Apache and Node.js): what the origin closes while a request is on its way fails, unless it may
/// be asked twice.
const IDLE: Duration = Duration::from_secs(4);

/// Idle connections for each origin: more help only if as many requests come at once, again and
/// again, and each takes a file descriptor on both sides.
const IDLE_MAX: usize = 256;

/// Bytes of a response that are read ahead of the client, for each request; a head has to fit. The
/// library's default is 400 KiB: with all streams of one connection 50 MiB, for a client that reads
/// nothing.
const READ_AHEAD: usize = 64 * 1024;

/// Bytes that a client has to send each time that an origin may take to begin a response: with one
/// now and then, its request would hold a permit for ever.
const MOVING: u64 = 1024;

/// Origins that do not respond: clients decide how many requests come.
static FAILED: LogThrottle = LogThrottle::new();

/// The origins that speak HTTP.
#[derive(Clone, Debug)]
pub(in crate::edge) struct HttpOrigins {
    client: Client<Dialer, Upload>,
    /// Time that an origin may take to begin a response.
    response_timeout: Duration,
    /// A client of HTTP/2 has many requests on its one connection, and each takes another one to
    /// the origin.
    capacity: Arc<Capacity>,
}

impl HttpOrigins {
    pub(in crate::edge) fn new(
        dial: Arc<Dial>,
        response_timeout: Duration,
        capacity: Arc<Capacity>,
    ) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(IDLE_MAX)
            .http1_max_buf_size(READ_AHEAD)
            // The client's own field passes.
            .set_host(false)
            .build(Dialer(dial));
        Self { client, response_timeout, capacity }
    }

    /// Returns the edge's capacity.
    pub(in crate::edge) fn capacity(&self) -> &Arc<Capacity> {
        &self.capacity
    }

    /// Sends a request to the origin, and returns the head of the response.
    ///
    /// An idempotent request without a body (RFC 9110 section 9.2.2) is retried once if the
    /// connection breaks before a response: the origin may have closed it while the request was on
    /// its way.
    ///
    /// # Errors
    /// The reason why there is no response.
    pub(super) async fn send(
        &self,
        head: request::Parts,
        upload: Upload,
    ) -> Result<Response<Incoming>, OriginError> {
        let repeatable = head.method.is_idempotent() && upload.progress().is_ended();
        let exchange = upload.exchange();
        let again = repeatable.then(|| copy(&head));
        match (self.send_once(Request::from_parts(head, upload)).await, again) {
            (Err(OriginError::Broken(_)), Some(head)) => {
                self.send_once(Request::from_parts(head, Upload::none(&exchange))).await
            }
            (response, _) => response,
        }
    }

    async fn send_once(&self, request: Request<Upload>) -> Result<Response<Incoming>, OriginError> {
        let progress = request.body().progress();
        let mut response = pin!(self.client.request(request));
        let mut sent = progress.bytes();
        loop {
            match tokio::time::timeout(self.response_timeout, response.as_mut()).await {
                Ok(Err(_)) if progress.is_failed() => return Err(OriginError::MalformedBody),
                Ok(response) => return response.map_err(|error| OriginError::from_error(&error)),
                // While the client sends, the origin may be silent.
                Err(_) if moved(&progress, sent) => sent = progress.bytes(),
                Err(_) if progress.is_starved() && !progress.is_ended() => {
                    return Err(OriginError::RequestTimeout);
                }
                // Also an origin that accepts no more of the request, or cannot be reached yet.
                Err(_) => return Err(OriginError::ResponseTimeout),
            }
        }
    }
}

/// Returns true if an upload is on its way, or has come to its end, since it was at `sent` bytes.
fn moved(progress: &Progress, sent: u64) -> bool {
    let moved = progress.bytes() - sent;
    moved >= MOVING || moved > 0 && progress.is_ended()
}

/// Copies a head without the extensions that other parts of the program have attached.
fn copy(head: &request::Parts) -> request::Parts {
    let mut copy = Request::new(()).into_parts().0;
    copy.method = head.method.clone();
    copy.uri = head.uri.clone();
    copy.version = head.version;
    copy.headers = head.headers.clone();
    copy
}

/// Reason why there is no response of an origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OriginError {
    /// It cannot be connected to.
    Unreachable,
    /// It could not be connected to in time.
    ConnectTimeout,
    /// It did not begin a response in time.
    ResponseTimeout,
    /// The client did not send its request in time.
    RequestTimeout,
    /// The client broke off its request, or the body is malformed.
    MalformedBody,
    /// It broke off, or what it sent is not HTTP, for this cause.
    Broken(String),
}

impl OriginError {
    fn from_error(error: &legacy::Error) -> Self {
        match error.is_connect() {
            true if timed_out(error) => Self::ConnectTimeout,
            true => Self::Unreachable,
            false => Self::Broken(causes(error)),
        }
    }

    /// Returns the status for the client, in the words of RFC 9110 sections 15.5 and 15.6.
    pub(super) const fn status(&self) -> StatusCode {
        match self {
            Self::Unreachable | Self::Broken(_) => StatusCode::BAD_GATEWAY,
            Self::ConnectTimeout | Self::ResponseTimeout => StatusCode::GATEWAY_TIMEOUT,
            Self::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::MalformedBody => StatusCode::BAD_REQUEST,
        }
    }

    /// Returns a message for the client. It names no origin, which clients have no need to know.
    pub(super) const fn message(&self) -> &'static str {
        match self {
            Self::Unreachable | Self::ConnectTimeout => {
                "the server behind this one cannot be reached"
            }
            Self::ResponseTimeout => "the server behind this one takes too long",
            Self::RequestTimeout => "the request did not come in time",
            Self::MalformedBody => "the body of the request is malformed",
            Self::Broken(_) => "the server behind this one broke off",
        }
    }

    /// Returns the label for metrics.
    const fn label(&self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::ConnectTimeout => "connect_timeout",
            Self::ResponseTimeout => "late",
            Self::RequestTimeout => "request_body_time",
            Self::MalformedBody => "malformed_body",
            Self::Broken(_) => "broken",
        }
    }
}

impl OriginError {
    /// Counts it, and logs it with the `origin`: what a client did wrong does not count against
    /// that.
    pub(super) fn report(&self, origin: &Authority) {
        let reason = self.label();
        let error = match self {
            Self::RequestTimeout | Self::MalformedBody => return metrics::limit_hit(reason),
            // The dialer has logged why.
            Self::Unreachable | Self::ConnectTimeout => return metrics::origin_failed(reason),
            Self::ResponseTimeout => "no response in time (--origin-response-timeout)",
            Self::Broken(cause) => cause,
        };
        metrics::origin_failed(reason);
        if let Some(left_out) = FAILED.line_about(reason, Instant::now()) {
            tracing::warn!(%origin, reason, error, left_out, "no response of the origin");
        }
    }
}

/// Returns true if a time limit caused `error`.
fn timed_out(error: &(dyn std::error::Error + 'static)) -> bool {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes
        .filter_map(|error| error.downcast_ref::<io::Error>())
        .any(|error| error.kind() == io::ErrorKind::TimedOut)
}

/// Connects for the client library, which names an origin by its authority.
#[derive(Clone, Debug)]
struct Dialer(Arc<Dial>);

impl tower_service::Service<Uri> for Dialer {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<TcpStream>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let dial = Arc::clone(&self.0);
        Box::pin(async move {
            let origin = address(&uri).ok_or(io::ErrorKind::InvalidInput)?;
            dial.connect(&origin).await.map(TokioIo::new)
        })
    }
}

fn address(uri: &Uri) -> Option<HostPort> {
    uri.authority()?.as_str().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    #[test]
    fn an_origin_is_found_in_its_authority() {
        for text in ["localhost:8080", "[::1]:80", "192.0.2.1:1"] {
            let uri: Uri = format!("http://{text}/").parse().unwrap();
            assert_eq!(address(&uri).unwrap().to_string(), text);
        }
    }

    /// An error of ours as a library wraps it.
    #[derive(Debug)]
    struct Wrapped(io::Error);

    impl fmt::Display for Wrapped {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("wrapped")
        }
    }

    impl std::error::Error for Wrapped {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn a_time_limit_is_found_below_other_errors() {
        assert!(timed_out(&Wrapped(io::ErrorKind::TimedOut.into())));
        assert!(!timed_out(&Wrapped(io::ErrorKind::ConnectionRefused.into())));
    }

    #[test]
    fn an_origin_error_is_502_or_504() {
        let errors = [
            OriginError::Unreachable,
            OriginError::ConnectTimeout,
            OriginError::ResponseTimeout,
            OriginError::Broken(String::new()),
        ];
        assert_eq!(errors.map(|error| error.status().as_u16()), [502, 504, 504, 502]);
    }
}
