//! Bodies of requests and responses on their way, and their progress.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use hyper::http::uri::Authority;
use hyper::{Response, StatusCode};

use super::capacity::{Capacity, Permit};
use super::exchange::{BodyError, Client, Exchange, Piece};
use crate::base::failure::causes;
use crate::base::log_throttle::LogThrottle;
use crate::metrics;

/// Requests that a client may break off in [`BROKEN_OFF_TIME`]. Each may cost a connection to the
/// origin, which has to be closed then: HTTP/2 can ask and break off without end in two small
/// frames each (CVE-2023-44487). A page that somebody leaves breaks off at most as many as there
/// are streams, 128; nobody leaves four pages so fast.
const BROKEN_OFF_MAX: u32 = 512;

const BROKEN_OFF_TIME: Duration = Duration::from_secs(10);

/// Responses that origins break off.
static CUT_SHORT: LogThrottle = LogThrottle::new();

/// Requests of one connection whose responses are not complete.
#[derive(Clone, Debug)]
pub(super) struct Pending(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    client: Arc<Client>,
    now: AtomicUsize,
    begun: AtomicU64,
    abused: AtomicBool,
    broken_off: Mutex<BrokenOff>,
}

/// Count of requests broken off since a while ago.
#[derive(Debug, Default)]
struct BrokenOff {
    since: Option<Instant>,
    count: u32,
}

impl BrokenOff {
    /// Counts one more; returns true if it is one too many.
    fn note(&mut self, now: Instant) -> bool {
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= BROKEN_OFF_TIME) {
            *self = Self { since: Some(now), count: 0 };
        }
        self.count += 1;
        self.count > BROKEN_OFF_MAX
    }
}

impl Pending {
    pub(super) fn new(capacity: &Arc<Capacity>) -> Self {
        Self(Arc::new(Counts {
            client: Client::new(capacity),
            now: AtomicUsize::new(0),
            begun: AtomicU64::new(0),
            abused: AtomicBool::new(false),
            broken_off: Mutex::default(),
        }))
    }

    /// Begins one more, which is pending until what is returned is dropped.
    pub(super) fn begin(&self, exchange: &Arc<Exchange>) -> InFlight {
        self.0.now.fetch_add(1, Ordering::Relaxed);
        self.0.begun.fetch_add(1, Ordering::Relaxed);
        let exchange = Arc::clone(exchange);
        InFlight { pending: self.clone(), exchange, ended: false, permit: None }
    }

    /// Returns the connection that they came on.
    pub(super) fn client(&self) -> &Arc<Client> {
        &self.0.client
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.now.load(Ordering::Relaxed) == 0
    }

    /// Returns the number of requests so far.
    pub(super) fn begun(&self) -> u64 {
        self.0.begun.load(Ordering::Relaxed)
    }

    /// Returns true if the client has broken off more than [`BROKEN_OFF_MAX`] at once.
    pub(super) fn is_abused(&self) -> bool {
        self.0.abused.load(Ordering::Relaxed)
    }

    fn broken_off(&self, now: Instant) {
        let mut counted = self.0.broken_off.lock().unwrap_or_else(PoisonError::into_inner);
        if counted.note(now) {
            self.0.abused.store(true, Ordering::Relaxed);
        }
    }
}

/// A request whose response is not complete.
#[derive(Debug)]
pub(super) struct InFlight {
    pending: Pending,
    exchange: Arc<Exchange>,
    ended: bool,
    /// Permit to be at an origin, until the response begins.
    permit: Option<Permit>,
}

impl InFlight {
    /// Attaches a permit.
    pub(super) fn with_permit(mut self, permit: Option<Permit>) -> Self {
        self.permit = permit;
        self
    }

    /// Takes the permit, for the exchange or tunnel that goes on with the origin.
    pub(super) fn take_permit(&mut self) -> Option<Permit> {
        self.permit.take()
    }

    pub(super) fn exchange(&self) -> &Arc<Exchange> {
        &self.exchange
    }

    /// Notes that the response is complete.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.pending.0.now.fetch_sub(1, Ordering::Relaxed);
        if !self.ended {
            self.pending.broken_off(Instant::now());
        }
    }
}

/// The body of a response: the origin's, or a text of the edge's own.
#[derive(Debug)]
pub(super) struct ResponseBody {
    /// Text of the edge's own, none for a response of the origin.
    text: Option<Full<Piece>>,
    /// The origin, if it responded, and the upload that it had meanwhile.
    origin: Option<(Authority, Arc<Progress>)>,
    in_flight: InFlight,
}

impl ResponseBody {
    pub(super) fn from_origin(
        body: Incoming,
        origin: Authority,
        upload: Arc<Progress>,
        mut in_flight: InFlight,
    ) -> Self {
        let permit = in_flight.take_permit();
        in_flight.exchange.begin(body, permit);
        Self { text: None, origin: Some((origin, upload)), in_flight }
    }

    /// Returns a response of the edge's own; the body is the status and `message`, unless the
    /// request was HEAD.
    pub(super) fn text(
        status: StatusCode,
        message: &str,
        is_head: bool,
        mut in_flight: InFlight,
    ) -> Response<Self> {
        // No origin is busy with it.
        drop(in_flight.take_permit());
        let text = format!("{}: {message}\n", status.as_str());
        let length = HeaderValue::from(text.len());
        let text = if is_head { Bytes::new() } else { text.into() };
        let text = Some(Full::new(in_flight.exchange.piece(text)));
        let mut response = Response::new(Self { text, origin: None, in_flight });
        *response.status_mut() = status;
        let kind = HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        response.headers_mut().insert(CONTENT_LENGTH, length);
        response
    }
}

impl Drop for ResponseBody {
    /// A caller that knows that nothing follows does not poll for it.
    fn drop(&mut self) {
        if self.is_end_stream() {
            self.in_flight.end();
        }
    }
}

impl Body for ResponseBody {
    type Data = Piece;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece>, BodyError>>> {
        let frame = ready!(match &mut self.text {
            Some(text) => Pin::new(text).poll_frame(cx).map_err(|never| match never {}),
            None => self.in_flight.exchange.poll_frame(cx),
        });
        match (&frame, &self.origin) {
            (None, _) => self.in_flight.end(),
            // The connection to the origin ended with the upload.
            (Some(Err(_)), Some((_, upload))) if upload.is_failed() => {
                metrics::limit_hit("malformed_body");
            }
            (Some(Err(error)), Some((origin, _))) => log_cut_short(origin, error),
            _ => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        let text = self.text.as_ref().map(Body::is_end_stream);
        text.unwrap_or_else(|| self.in_flight.exchange.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let text = self.text.as_ref().map(Body::size_hint);
        text.unwrap_or_else(|| self.in_flight.exchange.size_hint())
    }
}

/// Logs that the `origin` broke off a response whose head the client has.
fn log_cut_short(origin: &Authority, error: &BodyError) {
    if let Some(left_out) = CUT_SHORT.line(Instant::now()) {
        let error = causes(error.as_ref());
        tracing::warn!(%origin, error, left_out, "the origin broke off a response");
    }
}

/// Progress of an upload.
#[derive(Debug, Default)]
pub(super) struct Progress {
    bytes: AtomicU64,
    ended: AtomicBool,
    starved: AtomicBool,
    failed: AtomicBool,
}

impl Progress {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns true if the client has sent all of it.
    pub(super) fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Returns true if the client broke it off, or sent a malformed body.
    pub(super) fn is_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Returns true if the origin would take more than the client has sent.
    pub(super) fn is_starved(&self) -> bool {
        self.starved.load(Ordering::Relaxed)
    }
}

/// The body of a request on its way to the origin, without trailers: an origin may take those for
/// headers, and nothing removes claims from them.
#[derive(Debug)]
pub(super) struct Upload {
    /// The body, until it has gone or failed.
    body: Option<Incoming>,
    progress: Arc<Progress>,
    exchange: Arc<Exchange>,
}

impl Upload {
    pub(super) fn new(body: Incoming, exchange: &Arc<Exchange>) -> Self {
        Self::with(Some(body), exchange)
    }

    /// Returns the empty upload of a request that is retried.
    pub(super) fn none(exchange: &Arc<Exchange>) -> Self {
        Self::with(None, exchange)
    }

    fn with(body: Option<Incoming>, exchange: &Arc<Exchange>) -> Self {
        exchange.set_uploading(true, None);
        let upload = Self { body, progress: Arc::default(), exchange: Arc::clone(exchange) };
        upload.check_end();
        upload
    }

    pub(super) fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    pub(super) fn exchange(&self) -> Arc<Exchange> {
        Arc::clone(&self.exchange)
    }

    fn check_end(&self) {
        if self.is_end_stream() {
            self.end();
        }
    }

    fn end(&self) {
        self.progress.ended.store(true, Ordering::Relaxed);
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let polled = Pin::new(body).poll_frame(cx);
        self.progress.starved.store(polled.is_pending(), Ordering::Relaxed);
        match ready!(polled) {
            Some(Ok(frame)) if !frame.is_trailers() => {
                let count = frame.data_ref().map_or(0, Bytes::len);
                self.progress.bytes.fetch_add(count as u64, Ordering::Relaxed);
                self.exchange.client().count(count);
                self.check_end();
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => {
                self.progress.failed.store(true, Ordering::Relaxed);
                // A client that disconnected sends no more, either.
                self.end();
                self.body = None;
                Poll::Ready(Some(Err(error.into())))
            }
            _ => {
                self.end();
                self.body = None;
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or(SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let unread = self.body.take().filter(|body| !body.is_end_stream());
        self.exchange.set_uploading(false, unread);
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;
    use crate::edge::terminate::capacity::CapacityLimits;

    fn pending() -> Pending {
        let limits = CapacityLimits { requests: 1, requests_per_address: 1, memory: usize::MAX };
        Pending::new(&Arc::new(Capacity::new(limits)))
    }

    fn begin(pending: &Pending) -> InFlight {
        pending.begin(&pending.client().exchange())
    }

    /// Returns the number of requests broken off.
    fn count(pending: &Pending) -> u32 {
        pending.0.broken_off.lock().unwrap().count
    }

    #[test]
    fn breaking_off_is_an_abuse_at_a_rate() {
        let (start, mut slow, mut fast) =
            (Instant::now(), BrokenOff::default(), BrokenOff::default());
        for number in 0..4 * BROKEN_OFF_MAX {
            let time = BROKEN_OFF_TIME * number / BROKEN_OFF_MAX;
            assert!(!slow.note(start + time), "{number}");
        }
        assert!((0..BROKEN_OFF_MAX).all(|_| !fast.note(start)));
        assert!(fast.note(start), "one too many");
        assert!(!fast.note(start + BROKEN_OFF_TIME), "a while later");
        let pending = pending();
        (0..=BROKEN_OFF_MAX).for_each(|_| drop(begin(&pending)));
        assert!(pending.is_abused());
    }

    #[tokio::test]
    async fn a_response_of_the_edge_says_its_status() {
        let pending = pending();
        let response =
            ResponseBody::text(StatusCode::BAD_GATEWAY, "no reply", false, begin(&pending));
        assert!(!pending.is_empty());
        assert_eq!(response.headers()[CONTENT_LENGTH], "14");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, "502: no reply\n");
        assert!(pending.is_empty(), "the response is complete");
        assert_eq!((pending.begun(), count(&pending)), (1, 0));
    }

    #[test]
    fn a_response_to_head_has_no_body() {
        let pending = pending();
        let response =
            ResponseBody::text(StatusCode::BAD_GATEWAY, "no reply", true, begin(&pending));
        assert_eq!(response.headers()[CONTENT_LENGTH], "14");
        assert!(response.body().is_end_stream());
        drop(response);
        assert_eq!(count(&pending), 0);
    }

    #[test]
    fn what_is_dropped_before_its_end_is_broken_off() {
        let pending = pending();
        drop(begin(&pending));
        drop(ResponseBody::text(StatusCode::OK, "half", false, begin(&pending)));
        begin(&pending).end();
        assert_eq!((pending.begun(), count(&pending)), (3, 2));
        assert!(pending.is_empty());
    }

    #[test]
    fn an_empty_upload_has_ended() {
        assert!(Upload::none(&pending().client().exchange()).progress().is_ended());
    }
}
