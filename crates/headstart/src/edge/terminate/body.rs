//! Bodies on their way, both ways, and what is known of them meanwhile.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{Either, Empty, Full};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use tokio::sync::OwnedSemaphorePermit;

/// Requests that a client may break off in [`BROKEN_OFF_TIME`]. Each may cost a connection to the
/// origin, which has to be closed then: HTTP/2 can ask and break off without end in two small
/// frames each (CVE-2023-44487). A page that somebody leaves breaks off at most as many as there
/// are streams, 128; nobody leaves four pages so fast.
const BROKEN_OFF_MAX: u32 = 512;

const BROKEN_OFF_TIME: Duration = Duration::from_secs(10);

/// Error of a body: the side that sends it broke off.
type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// Requests of one connection that are not answered to the end.
#[derive(Clone, Debug, Default)]
pub(super) struct Pending(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
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
    /// One more; whether it is one too many.
    fn note(&mut self, now: Instant) -> bool {
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= BROKEN_OFF_TIME) {
            *self = Self { since: Some(now), count: 0 };
        }
        self.count += 1;
        self.count > BROKEN_OFF_MAX
    }
}

impl Pending {
    /// One more, until what is returned is dropped.
    pub(super) fn begin(&self) -> InFlight {
        self.0.now.fetch_add(1, Ordering::Relaxed);
        self.0.begun.fetch_add(1, Ordering::Relaxed);
        InFlight { pending: self.clone(), ended: false, place: None }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.now.load(Ordering::Relaxed) == 0
    }

    /// Returns how many there have been.
    pub(super) fn begun(&self) -> u64 {
        self.0.begun.load(Ordering::Relaxed)
    }

    /// Returns true if more were broken off, and faster, than anybody has a reason for.
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

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct InFlight {
    pending: Pending,
    ended: bool,
    /// Its place among those that origins are busy with.
    place: Option<OwnedSemaphorePermit>,
}

impl InFlight {
    /// The same with a place, if there is one.
    pub(super) fn with_place(mut self, place: Option<OwnedSemaphorePermit>) -> Self {
        self.place = place;
        self
    }

    /// Its place, for whoever goes on with the origin when it is answered.
    pub(super) fn take_place(&mut self) -> Option<OwnedSemaphorePermit> {
        self.place.take()
    }

    /// It is answered to the end.
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

/// The body of an answer: the origin's, or words of our own.
#[derive(Debug)]
pub(super) struct Answer {
    body: Either<Incoming, Full<Bytes>>,
    in_flight: InFlight,
}

impl Answer {
    pub(super) fn of_origin(body: Incoming, in_flight: InFlight) -> Self {
        Self { body: Either::Left(body), in_flight }
    }

    /// An answer of our own; the body says the status and `words`, unless the request was for the
    /// head alone.
    pub(super) fn words(
        status: StatusCode,
        words: &str,
        is_head: bool,
        in_flight: InFlight,
    ) -> Response<Self> {
        let text = format!("{}: {words}\n", status.as_str());
        let length = HeaderValue::from(text.len());
        let text = if is_head { Bytes::new() } else { text.into() };
        let body = Self { body: Either::Right(Full::new(text)), in_flight };
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let kind = HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        response.headers_mut().insert(CONTENT_LENGTH, length);
        response
    }
}

impl Drop for Answer {
    /// Whoever knows that nothing follows does not ask for it.
    fn drop(&mut self) {
        if self.body.is_end_stream() {
            self.in_flight.end();
        }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_none() {
            self.in_flight.end();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Progress of an upload.
#[derive(Debug, Default)]
pub(super) struct Progress {
    bytes: AtomicU64,
    ended: AtomicBool,
    starved: AtomicBool,
}

impl Progress {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns true if the client has sent all of it.
    pub(super) fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Returns true if the origin would take more than the client has sent.
    pub(super) fn is_starved(&self) -> bool {
        self.starved.load(Ordering::Relaxed)
    }
}

/// The body of a request on its way to the origin, without trailers: an origin may take those for
/// headers, and what they claim is not looked at.
#[derive(Debug)]
pub(super) struct Upload {
    body: Either<Incoming, Empty<Bytes>>,
    progress: Arc<Progress>,
}

impl Upload {
    pub(super) fn new(body: Incoming) -> Self {
        Self { body: Either::Left(body), progress: Arc::default() }.looked_at()
    }

    /// Progress of a request that has no upload, asked again.
    pub(super) fn none() -> Self {
        Self { body: Either::Right(Empty::new()), progress: Arc::default() }.looked_at()
    }

    pub(super) fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    fn looked_at(self) -> Self {
        self.look();
        self
    }

    fn look(&self) {
        if self.body.is_end_stream() {
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
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        self.progress.starved.store(polled.is_pending(), Ordering::Relaxed);
        let frame = ready!(polled);
        match &frame {
            Some(Ok(frame)) if frame.is_trailers() => {
                self.end();
                return Poll::Ready(None);
            }
            Some(Ok(frame)) => {
                let count = frame.data_ref().map_or(0, Bytes::len);
                self.progress.bytes.fetch_add(count as u64, Ordering::Relaxed);
                self.look();
            }
            // A client that disconnected sends no more, either.
            Some(Err(_)) | None => self.end(),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    /// Counts those that were broken off.
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
        let pending = Pending::default();
        (0..=BROKEN_OFF_MAX).for_each(|_| drop(pending.begin()));
        assert!(pending.is_abused());
    }

    #[tokio::test]
    async fn an_answer_of_our_own_says_its_status() {
        let pending = Pending::default();
        let answer = Answer::words(StatusCode::BAD_GATEWAY, "no answer", false, pending.begin());
        assert!(!pending.is_empty());
        assert_eq!(answer.headers()[CONTENT_LENGTH], "15");
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, "502: no answer\n");
        assert!(pending.is_empty(), "it is answered to the end");
        assert_eq!((pending.begun(), count(&pending)), (1, 0));
    }

    #[test]
    fn an_answer_to_head_has_a_head_alone() {
        let pending = Pending::default();
        let answer = Answer::words(StatusCode::BAD_GATEWAY, "no answer", true, pending.begin());
        assert_eq!(answer.headers()[CONTENT_LENGTH], "15");
        assert!(answer.body().is_end_stream());
        drop(answer);
        assert_eq!(count(&pending), 0);
    }

    #[test]
    fn what_is_dropped_before_its_end_is_broken_off() {
        let pending = Pending::default();
        drop(pending.begin());
        drop(Answer::words(StatusCode::OK, "half", false, pending.begin()));
        pending.begin().end();
        assert_eq!((pending.begun(), count(&pending)), (3, 2));
        assert!(pending.is_empty());
    }

    #[test]
    fn an_empty_upload_has_ended() {
        assert!(Upload::none().progress().is_ended());
    }
}
