//! Tasks of the streams of HTTP/2.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::rt::Executor;

use super::exchange::{Client, Exchange};

/// Time in which an unwanted upload is still read, after its response.
const UNWANTED_UPLOAD: Duration = Duration::from_secs(2);

tokio::task_local! {
    /// The exchange of a stream of HTTP/2, in its task.
    static EXCHANGE: Arc<Exchange>;
}

/// Returns the exchange of the request that the calling task is about to serve.
pub(super) fn exchange(client: &Arc<Client>) -> Arc<Exchange> {
    EXCHANGE.try_with(Arc::clone).unwrap_or_else(|_| client.exchange())
}

/// Runs each stream of HTTP/2 in a task of its own: it can be cancelled there, and reads its
/// response from the origin also while the client takes nothing.
#[derive(Clone, Debug)]
pub(super) struct Streams(Arc<Client>);

impl Streams {
    pub(super) fn new(client: &Arc<Client>) -> Self {
        Self(Arc::clone(client))
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        let exchange = self.0.exchange();
        tokio::spawn(EXCHANGE.scope(Arc::clone(&exchange), run_stream(exchange, stream)));
    }
}

async fn run_stream(exchange: Arc<Exchange>, stream: impl Future<Output = ()>) {
    {
        let _task = exchange.stream();
        let mut stream = pin!(stream);
        let served = poll_fn(|cx| {
            let polled = stream.as_mut().poll(cx);
            exchange.release_head();
            if polled.is_pending() {
                exchange.read_ahead(cx);
            }
            polled
        });
        tokio::select! {
            biased;
            () = exchange.cancelled() => return,
            () = served => {}
        }
    }
    let _ = tokio::time::timeout(UNWANTED_UPLOAD, exchange.drain()).await;
}
