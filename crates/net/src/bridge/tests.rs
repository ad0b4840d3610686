use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use headstart_testkit::{expect_reset, pair};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::task::JoinHandle;
use tokio::time::advance;

use super::*;
use crate::time::{TIMEOUT, run_other_tasks, stop_clock};

const SHORT: Duration = Duration::from_millis(40);
const IDLE: Duration = Duration::from_secs(1);
const NEVER: usize = usize::MAX;

/// A TCP connection whose opening lasts until this many bytes went through it.
struct Slow {
    tcp: TcpStream,
    opening: usize,
}

impl Slow {
    fn take(&mut self, count: usize) {
        if self.opening != NEVER {
            self.opening = self.opening.saturating_sub(count);
        }
    }
}

impl AsyncRead for Slow {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.tcp).poll_read(cx, buf))?;
        this.take(buf.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Slow {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let count = ready!(Pin::new(&mut this.tcp).poll_write(cx, bytes))?;
        this.take(count);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().tcp).poll_shutdown(cx)
    }
}

impl Handoff for Slow {
    fn is_transparent(&self) -> bool {
        self.opening == 0
    }

    fn into_tcp(self) -> Option<TcpStream> {
        self.is_transparent().then_some(self.tcp)
    }

    fn reset(self) {
        let _ = self.tcp.set_zero_linger();
    }
}

/// Both peers of a running bridge: `a` behind the opening connection, `b` behind the other.
struct Running {
    a: TcpStream,
    b: TcpStream,
    counts: Arc<RelayCounts>,
    opened: Arc<AtomicUsize>,
    bridge: JoinHandle<RelayEnd>,
}

impl Running {
    /// Starts a bridge whose opening lasts for `opening` bytes.
    async fn start(opening: usize, head: &'static [u8], limits: RelayLimits) -> Self {
        let ((a, tcp), (b, other)) = (pair().await, pair().await);
        for stream in [&b, &other] {
            // Small, so that a slow reader soon has an effect; the source stays well ahead.
            SockRef::from(stream).set_send_buffer_size(64 * 1024).unwrap();
            SockRef::from(stream).set_recv_buffer_size(64 * 1024).unwrap();
        }
        let (counts, opened) = (Arc::<RelayCounts>::default(), Arc::<AtomicUsize>::default());
        let (shared, calls) = (counts.clone(), opened.clone());
        let bridge = tokio::spawn(async move {
            bridge(Slow { tcp, opening }, other, head, limits, &shared, |_| {
                calls.fetch_add(1, Ordering::Relaxed);
            })
            .await
        });
        Self { a, b, counts, opened, bridge }
    }

    /// Waits for the end of the bridge, and checks its counts and that `opened` was called once.
    async fn end(self) -> RelayEnd {
        let end = tokio::time::timeout(TIMEOUT, self.bridge).await.expect("it ends").unwrap();
        assert_eq!(self.opened.load(Ordering::Relaxed), 1);
        let counted = (self.counts.a_to_b(), self.counts.b_to_a());
        assert_eq!((end.bytes_a_to_b, end.bytes_b_to_a), counted);
        end
    }

    /// Sends a byte each way, and waits until it has arrived.
    async fn ping(&mut self) {
        self.b.write_all(b"?").await.unwrap();
        self.a.read_exact(&mut [0; 1]).await.unwrap();
        self.a.write_all(b"!").await.unwrap();
        self.b.read_exact(&mut [0; 1]).await.unwrap();
    }
}

async fn read_all(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    tokio::time::timeout(TIMEOUT, stream.read_to_end(&mut bytes)).await.unwrap().unwrap();
    bytes
}

/// Returns bytes in which no two stretches are alike.
fn numbered(length: usize) -> Vec<u8> {
    (0u32..).flat_map(u32::to_be_bytes).take(length).collect()
}

fn idle() -> RelayLimits {
    RelayLimits { idle: Some(IDLE), ..RelayLimits::default() }
}

#[tokio::test]
async fn a_slow_reader_of_a_fast_source_gets_everything() {
    /// Numbers that the source writes at a time.
    const PIECE: u32 = 250_000;
    let _stopped = stop_clock();
    // Enough for the reader to be behind when the opening ends.
    let mut running = Running::start(500_000, b"", idle()).await;
    let mut source = running.a;
    let enough = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&enough);
    // The source has more bytes for as long as the reader is slow.
    let sender = tokio::spawn(async move {
        let mut end = 0;
        while !stop.load(Ordering::Relaxed) {
            let piece: Vec<u8> = (end..end + PIECE).flat_map(u32::to_be_bytes).collect();
            source.write_all(&piece).await.unwrap();
            end += PIECE;
        }
        source.shutdown().await.unwrap();
        (source, 4 * end as usize)
    });
    // Slow for longer than the idle limit, and until the opening is over.
    let mut received = Vec::new();
    let mut pauses = 0;
    while pauses < 6 || running.opened.load(Ordering::Relaxed) == 0 {
        advance(IDLE / 2).await;
        pauses += 1;
        // No more than makes room for the next bytes.
        let moved = running.counts.a_to_b();
        while running.counts.a_to_b() == moved {
            let mut piece = vec![0; 32 * 1024];
            running.b.read_exact(&mut piece).await.unwrap();
            received.extend(piece);
            run_other_tasks().await;
        }
    }
    enough.store(true, Ordering::Relaxed);
    // Splicing has taken over, although bytes were waiting at every moment.
    assert_eq!(running.opened.load(Ordering::Relaxed), 1);
    received.extend(read_all(&mut running.b).await);
    running.b.shutdown().await.unwrap();
    let (source, sent) = sender.await.unwrap();
    assert!(received == numbered(sent));
    running.a = source;
    let end = running.end().await;
    assert!(matches!(end.reason, RelayReason::Closed), "{end:?}");
    assert_eq!((end.bytes_a_to_b, end.bytes_b_to_a), (sent as u64, 0));
}

#[tokio::test]
async fn bytes_held_at_the_handover_go_first() {
    // The opening ends amid a stream whose reader has not begun: buffer and sockets are full.
    let (up, down) = (numbered(3_000_000), numbered(2_000_001));
    for opening in [1, flow::BUFFER, 100_000, 1_000_000] {
        let mut running = Running::start(opening, b"head", RelayLimits::default()).await;
        let (mut read_a, mut write_a) = running.a.split();
        let (mut read_b, mut write_b) = running.b.split();
        let (mut at_a, mut at_b) = (Vec::new(), Vec::new());
        let exchange = async {
            tokio::join!(
                async {
                    write_a.write_all(&down).await.unwrap();
                    write_a.shutdown().await.unwrap();
                },
                async {
                    write_b.write_all(&up).await.unwrap();
                    write_b.shutdown().await.unwrap();
                },
                async {
                    tokio::time::sleep(SHORT).await;
                    read_a.read_to_end(&mut at_a).await.unwrap();
                },
                async {
                    tokio::time::sleep(SHORT).await;
                    read_b.read_to_end(&mut at_b).await.unwrap();
                },
            )
        };
        tokio::time::timeout(TIMEOUT, exchange).await.unwrap();
        assert!(at_a == [b"head", up.as_slice()].concat() && at_b == down, "{opening}");
        let end = running.end().await;
        assert!(matches!(end.reason, RelayReason::Closed), "{end:?}");
        assert_eq!((end.bytes_a_to_b, end.bytes_b_to_a), (2_000_001, 3_000_004));
    }
}

#[tokio::test]
async fn a_head_larger_than_the_buffer_goes_first() {
    static HEAD: [u8; 3 * flow::BUFFER + 1] = [7; 3 * flow::BUFFER + 1];
    let mut running = Running::start(10, &HEAD, RelayLimits::default()).await;
    running.b.write_all(b"rest").await.unwrap();
    running.b.shutdown().await.unwrap();
    assert!(read_all(&mut running.a).await == [&HEAD[..], b"rest"].concat());
    running.a.shutdown().await.unwrap();
    assert_eq!(running.end().await.bytes_b_to_a, HEAD.len() as u64 + 4);
}

#[tokio::test]
async fn a_connection_that_ends_while_it_opens_is_counted() {
    let mut running = Running::start(NEVER, b"head", RelayLimits::default()).await;
    running.b.shutdown().await.unwrap();
    assert_eq!(read_all(&mut running.a).await, b"head");
    running.a.write_all(b"answer").await.unwrap();
    running.a.shutdown().await.unwrap();
    assert_eq!(read_all(&mut running.b).await, b"answer");
    let end = running.end().await;
    assert!(matches!(end.reason, RelayReason::Closed), "{end:?}");
    assert_eq!((end.bytes_a_to_b, end.bytes_b_to_a), (6, 4));
}

#[tokio::test]
async fn a_half_close_outlasts_the_opening() {
    for (opening, head) in [(12, &b"x"[..]), (NEVER, b""), (1, b"x")] {
        let mut running = Running::start(opening, head, RelayLimits::default()).await;
        running.b.shutdown().await.unwrap();
        assert_eq!(read_all(&mut running.a).await, head);
        for _ in 0..3 {
            running.a.write_all(b"answer").await.unwrap();
            let mut answer = [0; 6];
            running.b.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"answer");
        }
        running.a.shutdown().await.unwrap();
        assert_eq!(read_all(&mut running.b).await, b"");
        let end = running.end().await;
        assert!(matches!(end.reason, RelayReason::Closed), "{end:?}");
    }
}

#[tokio::test]
async fn bytes_extend_the_idle_limit_while_opening() {
    let _stopped = stop_clock();
    let mut running = Running::start(NEVER, b"", idle()).await;
    for _ in 0..10 {
        advance(IDLE / 2).await;
        running.ping().await;
    }
    advance(2 * IDLE).await;
    expect_reset(&mut running.a).await;
    expect_reset(&mut running.b).await;
    assert!(matches!(running.end().await.reason, RelayReason::IdleLimit));
}

#[tokio::test]
async fn the_total_limit_counts_from_the_start() {
    for opening in [NEVER, 20] {
        let total = Some(IDLE);
        let limits = RelayLimits { total, ..RelayLimits::default() };
        let mut running = Running::start(opening, b"", limits).await;
        while running.b.write_all(b"?").await.is_ok()
            && running.a.read_exact(&mut [0; 1]).await.is_ok()
        {}
        let end = running.end().await;
        assert!(matches!(end.reason, RelayReason::TotalLimit), "{end:?}");
    }
}

#[tokio::test]
async fn the_total_limit_includes_the_opening() {
    let ((_a, tcp), (_b, other)) = (pair().await, pair().await);
    let total = 2 * TIMEOUT;
    let limits = RelayLimits { total: Some(total), ..RelayLimits::default() };
    // The head ends the opening immediately, so only the relay can notice the elapsed time.
    let mut start = Start::new(Slow { tcp, opening: 1 }, other, b"x", limits);
    start.clock = LimitClock::since(limits, tokio::time::Instant::now() - total);
    let counts = RelayCounts::default();
    let end = tokio::time::timeout(TIMEOUT, start.run(&counts, |_| {})).await.unwrap();
    assert!(matches!(end.reason, RelayReason::TotalLimit), "{end:?}");
    assert_eq!((end.bytes_b_to_a, counts.b_to_a()), (1, 1));
}

#[tokio::test]
async fn a_half_closed_opening_has_its_own_idle_limit() {
    let half_closed_idle = Some(SHORT);
    let limits = RelayLimits { idle: Some(TIMEOUT * 10), half_closed_idle, total: None };
    let mut running = Running::start(NEVER, b"", limits).await;
    running.b.shutdown().await.unwrap();
    expect_reset(&mut running.b).await;
    assert!(matches!(running.end().await.reason, RelayReason::IdleLimit));
}

#[tokio::test]
async fn an_error_of_one_side_resets_the_other() {
    let mut running = Running::start(NEVER, b"", RelayLimits::default()).await;
    running.ping().await;
    running.a.set_zero_linger().unwrap();
    running.a = pair().await.0;
    expect_reset(&mut running.b).await;
    assert!(matches!(running.end().await.reason, RelayReason::Reset(Side::A)));

    let mut running = Running::start(NEVER, b"", RelayLimits::default()).await;
    running.ping().await;
    running.b.set_zero_linger().unwrap();
    running.b = pair().await.0;
    expect_reset(&mut running.a).await;
    assert!(matches!(running.end().await.reason, RelayReason::Reset(Side::B)));
}

#[tokio::test]
async fn dropping_the_future_while_it_opens_resets_both() {
    let mut running = Running::start(NEVER, b"", RelayLimits::default()).await;
    running.ping().await;
    running.bridge.abort();
    expect_reset(&mut running.a).await;
    expect_reset(&mut running.b).await;
}

#[tokio::test]
async fn a_bridge_takes_little_memory() {
    let ((_a, tcp), (_b, other)) = (pair().await, pair().await);
    let counts = RelayCounts::default();
    let slow = Slow { tcp, opening: 0 };
    let size = size_of_val(&bridge(slow, other, b"", idle(), &counts, |_| {}));
    assert!(size <= 2048, "{size} bytes");
}
