//! Bodies on their way, both ways, and what is known of them meanwhile.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body_util::{Either, Empty, Full};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};

/// What goes wrong with a body: the side that sends it broke off.
type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// Requests of one connection that are not answered to the end.
#[derive(Clone, Debug, Default)]
pub(super) struct Pending(Arc<AtomicUsize>);

impl Pending {
    /// One more, until what is returned is dropped.
    pub(super) fn begin(&self) -> InFlight {
        self.0.fetch_add(1, Ordering::Relaxed);
        InFlight(self.clone())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct InFlight(Pending);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The body of an answer: the origin's, or words of our own.
#[derive(Debug)]
pub(super) struct Answer {
    body: Either<Incoming, Full<Bytes>>,
    _in_flight: InFlight,
}

impl Answer {
    pub(super) fn of_origin(body: Incoming, in_flight: InFlight) -> Self {
        Self { body: Either::Left(body), _in_flight: in_flight }
    }

    /// An answer of our own; the body says the status and `words`.
    pub(super) fn words(status: StatusCode, words: &str, in_flight: InFlight) -> Response<Self> {
        let text = Bytes::from(format!("{}: {words}\n", status.as_str()));
        let body = Self { body: Either::Right(Full::new(text)), _in_flight: in_flight };
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let kind = HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        response
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// How far an upload has come.
#[derive(Debug, Default)]
pub(super) struct Progress {
    bytes: AtomicU64,
    ended: AtomicBool,
}

impl Progress {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether the client has sent all of it.
    pub(super) fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}

/// The body of a request on its way to the origin.
#[derive(Debug)]
pub(super) struct Upload {
    body: Either<Incoming, Empty<Bytes>>,
    progress: Arc<Progress>,
}

impl Upload {
    pub(super) fn new(body: Incoming) -> Self {
        Self { body: Either::Left(body), progress: Arc::default() }.looked_at()
    }

    /// Of a request that has none, asked again.
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
            self.progress.ended.store(true, Ordering::Relaxed);
        }
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                let count = frame.data_ref().map_or(0, Bytes::len);
                self.progress.bytes.fetch_add(count as u64, Ordering::Relaxed);
                self.look();
            }
            // Whoever broke off sends no more, either.
            Some(Err(_)) | None => self.progress.ended.store(true, Ordering::Relaxed),
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

    #[tokio::test]
    async fn an_answer_of_our_own_says_its_status() {
        let pending = Pending::default();
        let answer = Answer::words(StatusCode::BAD_GATEWAY, "no answer", pending.begin());
        assert!(!pending.is_empty());
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, "502: no answer\n");
        assert!(pending.is_empty(), "it is answered to the end");
    }

    #[test]
    fn an_empty_upload_has_ended() {
        assert!(Upload::none().progress().is_ended());
    }
}
