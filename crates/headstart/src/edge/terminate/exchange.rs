//! A client's connection and its exchanges, each a request with its answer: what of the answers
//! waits for the client, and since when.
//!
//! Bytes of an answer count as held from when they come from the origin until the client's
//! connection has taken them, wherever the HTTP library keeps them meanwhile ([`Piece`]). So a
//! client that reads nothing is known for that, whatever else it sends.

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

use super::room::{Guest, Place, Room, Share, Waiting};
use crate::metrics;

/// Error of a body: the side that sends it broke off.
pub(super) type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// Memory that an exchange counts for beside the bytes of its answer: heads of ordinary size, and
/// the state of this program and its libraries.
const BASE: usize = 8 * 1024;

/// Bytes of an answer that are read ahead of a client, beside the piece that it is to take next.
/// Answers that fit leave their origin at once.
const READ_AHEAD: usize = 64 * 1024;

/// Bytes of all answers of a connection beyond which nothing is read ahead.
const CONNECTION_AHEAD: usize = 4 * 1024 * 1024;

/// Smaller pieces are copied: they would keep the whole buffer that they were read into.
const COPIED: usize = 4 * 1024;

/// Memory that each piece of an answer counts for beside its bytes: its places in the queues of
/// this program and of its libraries, which a client can have filled with pieces of one byte.
const PIECE: usize = 256;

/// Bytes that a client has to take for its answer to count as moving: one byte now and then is no
/// way to read.
const MOVING: u64 = 1024;

/// Age that each answer has at least where memory is short: those that move count by their size.
const YOUNGEST: Duration = Duration::from_secs(1);

/// A client's connection.
#[derive(Debug)]
pub(super) struct Client {
    room: Arc<Room>,
    share: Share,
    /// Its address, once it is proven and a request has come.
    address: OnceLock<IpAddr>,
    /// Memory that waits for it.
    held: AtomicUsize,
    /// Bytes of bodies that have moved, both ways.
    moved: AtomicU64,
    exchanges: Mutex<Exchanges>,
    dismissed: AtomicBool,
    leave: Notify,
}

#[derive(Debug, Default)]
struct Exchanges {
    all: Vec<Listed>,
    tidy_at: usize,
}

/// An exchange, and what is left of it when it is over but its answer waits in a library.
#[derive(Clone, Debug)]
struct Listed {
    flow: Weak<Flow>,
    exchange: Weak<Exchange>,
}

impl Client {
    pub(super) fn new(room: &Arc<Room>) -> Arc<Self> {
        let client = Arc::new(Self {
            room: Arc::clone(room),
            share: room.connection_share(),
            address: OnceLock::new(),
            held: AtomicUsize::new(0),
            moved: AtomicU64::new(0),
            exchanges: Mutex::default(),
            dismissed: AtomicBool::new(false),
            leave: Notify::new(),
        });
        let guest: Weak<Self> = Arc::downgrade(&client);
        room.enter(guest);
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
            is_uploading: AtomicBool::new(false),
            upload_left: Notify::new(),
            unread: Mutex::default(),
        });
        let mut exchanges = lock(&self.exchanges);
        if exchanges.all.len() >= exchanges.tidy_at {
            exchanges.all.retain(|listed| listed.flow.strong_count() > 0);
            exchanges.tidy_at = 2 * exchanges.all.len() + 8;
        }
        let listed = Listed { flow: Arc::downgrade(&flow), exchange: Arc::downgrade(&exchange) };
        exchanges.all.push(listed);
        exchange
    }

    /// Returns its share of the places at origins.
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

    fn hold(&self, bytes: usize) {
        self.held.fetch_add(bytes, Ordering::Relaxed);
        self.room.hold(bytes);
    }

    fn release(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
        self.room.release(bytes);
    }

    /// Cancels the answers of which the client has taken next to nothing for `limit`; false if the
    /// whole connection has to end for that.
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

    /// Waits until the connection has to end for others.
    pub(super) async fn dismissal(&self) {
        self.leave.notified().await;
    }
}

impl Guest for Client {
    fn address(&self) -> Option<IpAddr> {
        self.address.get().copied()
    }

    fn waiting(&self) -> Waiting {
        let mut waiting = Waiting { bytes: self.held.load(Ordering::Relaxed), weight: 0 };
        for flow in self.flows() {
            let bytes = BASE + flow.held.load(Ordering::Relaxed);
            let age = (flow.stalled() + YOUNGEST).as_millis();
            let age = u64::try_from(age).unwrap_or(u64::MAX);
            waiting.weight = waiting.weight.saturating_add((bytes as u64).saturating_mul(age));
        }
        waiting
    }

    fn shed_stalled(&self, limit: Duration, address: Option<&Arc<Semaphore>>) {
        for exchange in self.exchanges() {
            if exchange.flow.stalled() >= limit && exchange.has_place(address) {
                metrics::limit_hit("stalled_answers");
                if !exchange.flow.cancel() {
                    self.dismiss();
                }
            }
        }
    }

    fn dismiss(&self) {
        self.dismissed.store(true, Ordering::Relaxed);
        self.leave.notify_one();
    }

    fn is_dismissed(&self) -> bool {
        self.dismissed.load(Ordering::Relaxed)
    }
}

/// An answer's way to the client.
///
/// Pieces are dropped while the HTTP library holds the lock of their connection, which dropping a
/// body of a request takes as well. So whatever a piece keeps must own no body.
#[derive(Debug)]
struct Flow {
    client: Arc<Client>,
    /// Memory that waits for the client.
    held: AtomicUsize,
    /// Bytes of the answer that it has taken.
    taken: AtomicU64,
    /// The same when the answer last counted as moving.
    marked: AtomicU64,
    /// When that was, in milliseconds.
    since: AtomicU64,
    /// True as long as a task of its own runs it, which can be cancelled alone.
    is_stream: AtomicBool,
    cancel: Notify,
    /// Woken when all has been taken.
    emptied: Mutex<Option<Waker>>,
}

impl Flow {
    /// Ends this exchange alone, if it can be; false if its connection has to end.
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

    /// Returns true if all has been taken; wakes the caller's task when that comes, otherwise.
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

/// Returns the memory that a piece of an answer counts for.
fn memory(bytes: &Bytes) -> usize {
    bytes.len() + PIECE
}

/// One request and its answer.
#[derive(Debug)]
pub(super) struct Exchange {
    flow: Arc<Flow>,
    source: Mutex<Source>,
    /// True as long as somebody else reads the request's body.
    is_uploading: AtomicBool,
    upload_left: Notify,
    /// Rest of the request's body, which its origin did not want.
    unread: Mutex<Option<Incoming>>,
}

/// The origin's side of an answer.
#[derive(Debug, Default)]
struct Source {
    body: Option<Incoming>,
    /// Kept until the answer is complete here.
    place: Option<Place>,
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

    fn has_place(&self, address: Option<&Arc<Semaphore>>) -> bool {
        let source = lock(&self.source);
        source
            .place
            .as_ref()
            .is_some_and(|place| address.is_none_or(|address| place.is_for(address)))
    }

    /// Waits until the answer is complete here, or as much of it as is read ahead.
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

    /// Begins to pass on an answer of the origin.
    pub(super) fn begin(&self, body: Incoming, place: Option<Place>) {
        let mut source = lock(&self.source);
        if !body.is_end_stream() {
            (source.body, source.place) = (Some(body), place);
        }
    }

    /// Returns bytes of an answer, which count as held until they are dropped.
    pub(super) fn piece(&self, bytes: Bytes) -> Piece {
        self.flow.piece(self.flow.hold(bytes))
    }

    /// Returns the next frame of the answer. An error comes only when the client has taken what the
    /// origin had sent before it.
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
            source.place = None;
        }
        Poll::Ready(frame)
    }

    /// Reads on from the origin while the client does not, as far as there is room.
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
        self.is_uploading.store(is_uploading, Ordering::Release);
        // Not dropped with the lock held.
        let before = std::mem::replace(&mut *lock(&self.unread), unread);
        drop(before);
        self.upload_left.notify_one();
    }

    /// Reads and drops the rest of the request's body.
    ///
    /// A client may take the end of its stream while it sends for a failure, and lose the answer
    /// that came before (curl 7.88 does).
    pub(super) async fn drain(&self) {
        while self.is_uploading.load(Ordering::Acquire) {
            self.upload_left.notified().await;
        }
        let unread = lock(&self.unread).take();
        let Some(mut body) = unread else { return };
        while let Some(Ok(_)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {}
    }

    /// Waits until the exchange is to end before its answer does.
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
    }
}

/// Bytes of an answer on their way to the client.
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

/// Nothing is half done when one of the steps with the lock held panics.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::terminate::room::RoomLimits;

    fn client() -> Arc<Client> {
        let limits = RoomLimits { places: 1, address_places: 1, memory: usize::MAX };
        Client::new(&Arc::new(Room::new(limits)))
    }

    #[test]
    fn answers_that_move_and_requests_weigh_by_their_size() {
        let (large, small, none) = (client(), client(), client());
        let exchanges = [&large, &small, &none].map(Client::exchange);
        let _pieces = [(0, 60_000), (1, 1000)]
            .map(|(number, size)| exchanges[number].piece(vec![0_u8; size].into()));
        let [large, small, none] = [large, small, none].map(|client| client.waiting().weight);
        assert!(large >= 60_000 * 1000 && large > small && small > none, "{large} {small} {none}");
        assert_eq!(none, BASE as u64 * 1000);
    }

    #[test]
    fn a_piece_of_one_byte_counts_for_what_it_costs() {
        let client = client();
        let exchange = client.exchange();
        let pieces = [(); 1000].map(|()| exchange.piece(Bytes::from_static(b"x")));
        assert_eq!(client.waiting().bytes, BASE + 1000 * (1 + PIECE));
        drop(exchange);
        assert_eq!(client.flows().len(), 1, "its answer still waits");
        drop(pieces);
        assert_eq!((client.waiting().bytes, client.flows().len()), (0, 0));
    }
}
