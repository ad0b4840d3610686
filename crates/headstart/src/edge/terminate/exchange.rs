//! A client's connection and its exchanges, each a request with its response: how many bytes of the
//! responses wait for the client, and since when.
//!
//! Bytes of a response count as held from when they come from the origin until the client's
//! connection has taken them, wherever the HTTP library keeps them meanwhile ([`Piece`]). So the
//! edge notices a client that reads nothing, whatever else it sends.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::sync::{Notify, Semaphore};

use super::capacity::{Buffered, Capacity, Evictable, Permit, Share};
use crate::metrics;

/// Error of a body: the side that sends it broke off.
pub(super) type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// Memory that an exchange counts for beside the bytes of its response: heads of ordinary size, and
/// the state of this program and its libraries.
const BASE: usize = 8 * 1024;

/// Bytes of a response that are read ahead of a client, beside the piece that it is to take next.
/// Responses that fit leave their origin at once.
const READ_AHEAD: usize = 64 * 1024;

/// Bytes of all responses of a connection beyond which nothing is read ahead.
const CONNECTION_AHEAD: usize = 4 * 1024 * 1024;

/// Smaller pieces are copied: they would keep the whole buffer that they were read into.
const COPIED: usize = 4 * 1024;

/// Memory that each piece of a response counts for beside its bytes: its entries in the queues of
/// this program and of its libraries, which a client can have filled with pieces of one byte.
const PIECE: usize = 256;

/// Bytes that a client has to take for its response to count as moving: one byte now and then is
/// not enough.
const MOVING: u64 = 1024;

/// Minimum age of a response where memory is short: those that move count by their size.
const YOUNGEST: Duration = Duration::from_secs(1);

/// A client's connection.
#[derive(Debug)]
pub(super) struct Client {
    capacity: Arc<Capacity>,
    share: Share,
    /// Address, once it is proven and a request has come.
    address: OnceLock<IpAddr>,
    /// Memory that waits for the client.
    held: AtomicUsize,
    /// Bytes of bodies that have moved, both ways.
    moved: AtomicU64,
    /// Bodies of requests that are being read.
    uploads: AtomicUsize,
    /// Time at which an incomplete head of a request, or what comes before it, began.
    head_since: Mutex<Option<Instant>>,
    /// Heads of responses that wait for their bodies, so that both leave together.
    heads_kept: AtomicUsize,
    /// Woken when there is none.
    heads_released: Mutex<Option<Waker>>,
    exchanges: Mutex<Exchanges>,
    evicted: AtomicBool,
    eviction: Notify,
}

#[derive(Debug, Default)]
struct Exchanges {
    all: Vec<Listed>,
    prune_at: usize,
}

/// An exchange, and its flow, which stays while a library still holds pieces of the response.
#[derive(Clone, Debug)]
struct Listed {
    flow: Weak<Flow>,
    exchange: Weak<Exchange>,
}

impl Client {
    pub(super) fn new(capacity: &Arc<Capacity>) -> Arc<Self> {
        let client = Arc::new(Self {
            capacity: Arc::clone(capacity),
            share: capacity.connection_share(),
            address: OnceLock::new(),
            held: AtomicUsize::new(0),
            moved: AtomicU64::new(0),
            uploads: AtomicUsize::new(0),
            head_since: Mutex::default(),
            heads_kept: AtomicUsize::new(0),
            heads_released: Mutex::default(),
            exchanges: Mutex::default(),
            evicted: AtomicBool::new(false),
            eviction: Notify::new(),
        });
        let connection: Weak<Self> = Arc::downgrade(&client);
        capacity.register(connection);
        client
    }

    /// Begins an exchange.
    pub(super) fn exchange(self: &Arc<Self>) -> Arc<Exchange> {
        self.hold(BASE);
        let flow = Arc::new(Flow {
            client: Arc::clone(self),
            held: AtomicUsize::new(0),
            taken: AtomicU64::new(0),
            marked: AtomicU64::new(0),
            since: AtomicU64::new(now()),
            is_stream: AtomicBool::new(false),
            cancel: Notify::new(),
            emptied: Mutex::default(),
        });
        let exchange = Arc::new(Exchange {
            flow: Arc::clone(&flow),
            source: Mutex::default(),
            is_head_kept: AtomicBool::new(false),
            is_uploading: AtomicBool::new(false),
            upload_left: Notify::new(),
            unread: Mutex::default(),
        });
        let mut exchanges = lock(&self.exchanges);
        if exchanges.all.len() >= exchanges.prune_at {
            exchanges.all.retain(|listed| listed.flow.strong_count() > 0);
            exchanges.prune_at = 2 * exchanges.all.len() + 8;
        }
        let listed = Listed { flow: Arc::downgrade(&flow), exchange: Arc::downgrade(&exchange) };
        exchanges.all.push(listed);
        exchange
    }

    /// Returns the permits that its requests share.
    pub(super) fn share(&self) -> &Share {
        &self.share
    }

    /// Notes its address, which is proven.
    pub(super) fn set_address(&self, address: IpAddr) {
        let _ = self.address.set(address);
    }

    /// Returns the bytes of bodies that have moved so far, both ways.
    pub(super) fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    /// Counts bytes of a body.
    pub(super) fn count(&self, bytes: usize) {
        self.moved.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Returns true while the body of a request is being read, which may go on after its response.
    pub(super) fn is_uploading(&self) -> bool {
        self.uploads.load(Ordering::Relaxed) > 0
    }

    /// Notes whether the client has begun the head of a request and not completed it.
    pub(super) fn set_in_head(&self, is_in_head: bool) {
        let mut since = lock(&self.head_since);
        *since = is_in_head.then(|| since.unwrap_or_else(Instant::now));
    }

    /// Returns for how long the head of a request has been incomplete.
    pub(super) fn head_age(&self) -> Duration {
        lock(&self.head_since).map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Waits until no head of a response is to leave together with its body.
    pub(super) fn poll_heads_released(&self, cx: &Context<'_>) -> Poll<()> {
        if self.heads_kept.load(Ordering::Relaxed) > 0 {
            *lock(&self.heads_released) = Some(cx.waker().clone());
        }
        // The body may have come meanwhile.
        if self.heads_kept.load(Ordering::Relaxed) == 0 { Poll::Ready(()) } else { Poll::Pending }
    }

    fn hold(&self, bytes: usize) {
        self.held.fetch_add(bytes, Ordering::Relaxed);
        self.capacity.hold(bytes);
    }

    fn release(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
        self.capacity.release(bytes);
    }

    /// Cancels the responses of which the client has taken next to nothing for `limit`; returns how
    /// many, and false if the whole connection has to end for that.
    pub(super) fn cancel_stalled(&self, limit: Duration) -> (usize, bool) {
        let stalled: Vec<_> =
            self.flows().into_iter().filter(|flow| flow.stalled() >= limit).collect();
        let count = stalled.len();
        (count, stalled.iter().all(|flow| flow.cancel()))
    }

    fn flows(&self) -> Vec<Arc<Flow>> {
        lock(&self.exchanges).all.iter().filter_map(|listed| listed.flow.upgrade()).collect()
    }

    fn exchanges(&self) -> Vec<Arc<Exchange>> {
        lock(&self.exchanges).all.iter().filter_map(|listed| listed.exchange.upgrade()).collect()
    }

    /// Waits until the connection is evicted.
    pub(super) async fn eviction(&self) {
        self.eviction.notified().await;
    }
}

impl Evictable for Client {
    fn address(&self) -> Option<IpAddr> {
        self.address.get().copied()
    }

    fn buffered(&self) -> Buffered {
        let mut buffered = Buffered { bytes: self.held.load(Ordering::Relaxed), weight: 0 };
        for flow in self.flows() {
            let bytes = BASE + flow.held.load(Ordering::Relaxed);
            let age = (flow.stalled() + YOUNGEST).as_millis();
            let age = u64::try_from(age).unwrap_or(u64::MAX);
            buffered.weight = buffered.weight.saturating_add((bytes as u64).saturating_mul(age));
        }
        buffered
    }

    fn shed_stalled(&self, limit: Duration, address: Option<&Arc<Semaphore>>) {
        for exchange in self.exchanges() {
            if exchange.flow.stalled() >= limit && exchange.has_permit(address) {
                metrics::limit_hit("stalled_answers");
                if !exchange.flow.cancel() {
                    self.evict();
                }
            }
        }
    }

    fn evict(&self) {
        self.evicted.store(true, Ordering::Relaxed);
        self.eviction.notify_one();
    }

    fn is_evicted(&self) -> bool {
        self.evicted.load(Ordering::Relaxed)
    }
}

/// A response on its way to the client.
///
/// Pieces are dropped while the HTTP library holds the lock of their connection, which dropping a
/// body of a request takes as well. So whatever a piece keeps must own no body.
#[derive(Debug)]
struct Flow {
    client: Arc<Client>,
    /// Memory that waits for the client.
    held: AtomicUsize,
    /// Bytes of the response that the client has taken.
    taken: AtomicU64,
    /// Value of `taken` when the response last counted as moving.
    marked: AtomicU64,
    /// Time of that, in milliseconds.
    since: AtomicU64,
    /// True as long as a task of its own runs it, which can be cancelled alone.
    is_stream: AtomicBool,
    cancel: Notify,
    /// Woken when the client has taken everything.
    emptied: Mutex<Option<Waker>>,
}

impl Flow {
    /// Cancels this exchange alone, if that is possible; otherwise returns false, and its
    /// connection has to end.
    fn cancel(&self) -> bool {
        self.cancel.notify_one();
        self.is_stream.load(Ordering::Relaxed)
    }

    /// Returns the time for which bytes have waited for the client without any moving.
    fn stalled(&self) -> Duration {
        if self.held.load(Ordering::Relaxed) == 0 {
            return Duration::ZERO;
        }
        Duration::from_millis(now().saturating_sub(self.since.load(Ordering::Relaxed)))
    }

    fn piece(self: &Arc<Self>, bytes: Bytes) -> Piece {
        Piece { held: memory(&bytes), bytes, flow: Arc::clone(self) }
    }

    fn hold(&self, bytes: Bytes) -> Bytes {
        let bytes = if bytes.len() < COPIED { Bytes::copy_from_slice(&bytes) } else { bytes };
        // First, or it would seem to have waited since then.
        if self.held.load(Ordering::Relaxed) == 0 {
            self.mark();
        }
        self.held.fetch_add(memory(&bytes), Ordering::Relaxed);
        self.client.hold(memory(&bytes));
        bytes
    }

    fn mark(&self) {
        self.marked.store(self.taken.load(Ordering::Relaxed), Ordering::Relaxed);
        self.since.store(now(), Ordering::Relaxed);
    }

    fn take(&self, bytes: usize) {
        self.client.count(bytes);
        let taken = self.taken.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        if taken - self.marked.load(Ordering::Relaxed) >= MOVING {
            self.mark();
        }
    }

    fn release(&self, bytes: usize) {
        self.client.release(bytes);
        if self.held.fetch_sub(bytes, Ordering::Relaxed) == bytes {
            let emptied = lock(&self.emptied).take();
            emptied.into_iter().for_each(Waker::wake);
        }
    }

    /// Returns true if the client has taken everything; otherwise wakes the caller's task once it
    /// has.
    fn is_empty(&self, cx: &Context<'_>) -> bool {
        if self.held.load(Ordering::Relaxed) > 0 {
            *lock(&self.emptied) = Some(cx.waker().clone());
        }
        // What was held may have gone meanwhile.
        self.held.load(Ordering::Relaxed) == 0
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.client.release(BASE);
    }
}

/// Returns the memory that a piece of a response counts for.
fn memory(bytes: &Bytes) -> usize {
    bytes.len() + PIECE
}

/// One request and its response.
#[derive(Debug)]
pub(super) struct Exchange {
    flow: Arc<Flow>,
    source: Mutex<Source>,
    /// True until the body, as far as it is here, has followed the head of the response.
    is_head_kept: AtomicBool,
    /// True as long as somebody else reads the request's body.
    is_uploading: AtomicBool,
    upload_left: Notify,
    /// Rest of the request's body, which its origin did not want.
    unread: Mutex<Option<Incoming>>,
}

/// The origin's side of a response.
#[derive(Debug, Default)]
struct Source {
    body: Option<Incoming>,
    /// Kept until the response is complete here.
    permit: Option<Permit>,
    /// Counted as held, like the pieces that they become.
    ahead: VecDeque<Frame<Bytes>>,
    /// Memory that the pieces in `ahead` count for.
    held: usize,
    error: Option<BodyError>,
    /// The bytes before the error have had their turn to leave.
    error_waited: bool,
    /// The reader found nothing, and will be woken.
    reader_waits: bool,
}

impl Exchange {
    pub(super) fn client(&self) -> &Arc<Client> {
        &self.flow.client
    }

    /// Marks a task of its own for the exchange, until what is returned is dropped.
    pub(super) fn stream(self: &Arc<Self>) -> Stream {
        self.flow.is_stream.store(true, Ordering::Relaxed);
        Stream(Arc::clone(self))
    }

    fn has_permit(&self, address: Option<&Arc<Semaphore>>) -> bool {
        let source = lock(&self.source);
        source
            .permit
            .as_ref()
            .is_some_and(|permit| address.is_none_or(|address| permit.is_for(address)))
    }

    /// Waits until the response is complete here, or as much of it as is read ahead.
    pub(super) async fn settled(&self) {
        poll_fn(|cx| {
            self.read_ahead(cx);
            let source = lock(&self.source);
            match source.body.is_none() || source.held >= READ_AHEAD {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }

    /// Keeps the head of the response back, which comes next, until [`Self::release_head`].
    ///
    /// A client that sees the head of a refusal may end its upload at once. In HTTP/2 that is an
    /// error, for which the library drops what comes behind the head.
    pub(super) fn keep_head(&self) {
        if !self.is_head_kept.swap(true, Ordering::Relaxed) {
            self.client().heads_kept.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Lets the head of the response leave, with its body behind it.
    pub(super) fn release_head(&self) {
        if self.is_head_kept.swap(false, Ordering::Relaxed)
            && self.client().heads_kept.fetch_sub(1, Ordering::Relaxed) == 1
        {
            let waiting = lock(&self.client().heads_released).take();
            waiting.into_iter().for_each(Waker::wake);
        }
    }

    /// Begins to pass on a response of the origin.
    pub(super) fn begin(&self, body: Incoming, permit: Option<Permit>) {
        let mut source = lock(&self.source);
        if !body.is_end_stream() {
            (source.body, source.permit) = (Some(body), permit);
        }
    }

    /// Returns bytes of a response, which count as held until they are dropped.
    pub(super) fn piece(&self, bytes: Bytes) -> Piece {
        self.flow.piece(self.flow.hold(bytes))
    }

    /// Returns the next frame of the response. An error comes only when the client has taken what
    /// the origin had sent before it.
    pub(super) fn poll_frame(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece>, BodyError>>> {
        let mut source = lock(&self.source);
        if let Some(frame) = source.ahead.pop_front() {
            source.held -= frame.data_ref().map_or(0, memory);
            return Poll::Ready(Some(Ok(frame.map_data(|bytes| self.flow.piece(bytes)))));
        }
        let polled = self.read(&mut source, cx);
        source.reader_waits = polled.is_pending();
        match polled {
            Poll::Ready(None) if source.error.is_some() => {
                if !std::mem::replace(&mut source.error_waited, true) {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                if !self.flow.is_empty(cx) {
                    return Poll::Pending;
                }
                Poll::Ready(source.error.take().map(Err))
            }
            polled => polled
                .map(|frame| frame.map(|frame| Ok(frame.map_data(|bytes| self.flow.piece(bytes))))),
        }
    }

    /// Reads a frame from the origin; none behind the last one, or an error.
    fn read(&self, source: &mut Source, cx: &mut Context<'_>) -> Poll<Option<Frame<Bytes>>> {
        let Some(body) = &mut source.body else { return Poll::Ready(None) };
        let frame = match ready!(Pin::new(&mut *body).poll_frame(cx)) {
            Some(Ok(frame)) => Some(frame.map_data(|bytes| self.flow.hold(bytes))),
            Some(Err(error)) => {
                source.error = Some(error.into());
                None
            }
            None => None,
        };
        if frame.is_none() || body.is_end_stream() {
            source.body = None;
            source.permit = None;
        }
        Poll::Ready(frame)
    }

    /// Reads on from the origin while the client does not, up to the limits.
    pub(super) fn read_ahead(&self, cx: &mut Context<'_>) {
        let mut source = lock(&self.source);
        while !source.reader_waits
            && source.held < READ_AHEAD
            && self.client().held.load(Ordering::Relaxed) < CONNECTION_AHEAD
            && let Poll::Ready(Some(frame)) = self.read(&mut source, cx)
        {
            source.held += frame.data_ref().map_or(0, memory);
            source.ahead.push_back(frame);
        }
    }

    pub(super) fn is_end_stream(&self) -> bool {
        let source = lock(&self.source);
        source.ahead.is_empty() && source.error.is_none() && source.body.is_none()
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        let source = lock(&self.source);
        let rest = source.body.as_ref().map_or(SizeHint::with_exact(0), Body::size_hint);
        let ahead: usize = source.ahead.iter().filter_map(Frame::data_ref).map(Bytes::len).sum();
        rest.exact().map_or_else(SizeHint::default, |rest| {
            SizeHint::with_exact(rest.saturating_add(ahead as u64))
        })
    }

    /// Notes whether the request's body is being read elsewhere; `unread` is the rest of one that
    /// no longer is.
    pub(super) fn set_uploading(&self, is_uploading: bool, unread: Option<Incoming>) {
        let uploads = &self.client().uploads;
        match (self.is_uploading.swap(is_uploading, Ordering::AcqRel), is_uploading) {
            (false, true) => uploads.fetch_add(1, Ordering::Relaxed),
            (true, false) => uploads.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
        // Not dropped with the lock held.
        let before = std::mem::replace(&mut *lock(&self.unread), unread);
        drop(before);
        self.upload_left.notify_one();
    }

    /// Reads and drops the rest of the request's body.
    ///
    /// A client may take the end of its stream while it sends for a failure, and lose the response
    /// that came before (curl 7.88 does).
    pub(super) async fn drain(&self) {
        while self.is_uploading.load(Ordering::Acquire) {
            self.upload_left.notified().await;
        }
        let unread = lock(&self.unread).take();
        let Some(mut body) = unread else { return };
        while let Some(Ok(_)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {}
    }

    /// Waits until the exchange is to end before its response does.
    pub(super) async fn cancelled(&self) {
        self.flow.cancel.notified().await;
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let source = self.source.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.flow.release(source.held);
    }
}

/// Task that runs one exchange.
#[derive(Debug)]
pub(super) struct Stream(Arc<Exchange>);

impl Drop for Stream {
    fn drop(&mut self) {
        self.0.flow.is_stream.store(false, Ordering::Relaxed);
        self.0.release_head();
    }
}

/// Bytes of a response on their way to the client.
#[derive(Debug)]
pub(super) struct Piece {
    bytes: Bytes,
    /// Memory that it counts for.
    held: usize,
    flow: Arc<Flow>,
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        self.flow.take(count);
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.flow.release(self.held);
    }
}

/// Milliseconds since some time before.
fn now() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(START.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// Locks a mutex, poisoned or not: a panic under the lock leaves nothing half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::terminate::capacity::CapacityLimits;

    fn client() -> Arc<Client> {
        let limits = CapacityLimits { requests: 1, requests_per_address: 1, memory: usize::MAX };
        Client::new(&Arc::new(Capacity::new(limits)))
    }

    #[test]
    fn responses_that_move_and_requests_weigh_by_their_size() {
        let (large, small, none) = (client(), client(), client());
        let exchanges = [&large, &small, &none].map(Client::exchange);
        let _pieces = [(0, 60_000), (1, 1000)]
            .map(|(number, size)| exchanges[number].piece(vec![0_u8; size].into()));
        let [large, small, none] = [large, small, none].map(|client| client.buffered().weight);
        assert!(large >= 60_000 * 1000 && large > small && small > none, "{large} {small} {none}");
        assert_eq!(none, BASE as u64 * 1000);
    }

    #[test]
    fn a_piece_of_one_byte_counts_for_what_it_costs() {
        let client = client();
        let exchange = client.exchange();
        let pieces = [(); 1000].map(|()| exchange.piece(Bytes::from_static(b"x")));
        assert_eq!(client.buffered().bytes, BASE + 1000 * (1 + PIECE));
        drop(exchange);
        assert_eq!(client.flows().len(), 1, "its response still waits");
        drop(pieces);
        assert_eq!((client.buffered().bytes, client.flows().len()), (0, 0));
    }
}
