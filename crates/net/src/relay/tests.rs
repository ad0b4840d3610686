use std::io;
use std::sync::Arc;
use std::time::Duration;

use headstart_testkit::{expect_reset, pair};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::advance;

use super::pipe::PIPE_CAPACITY;
use super::*;
use crate::time::{TIMEOUT, stop_clock};

const SHORT: Duration = Duration::from_millis(40);

async fn relay(a: TcpStream, b: TcpStream, limits: RelayLimits, counts: &RelayCounts) -> RelayEnd {
    Relay::new(a, b, Directions::default(), LimitClock::new(limits)).run(counts).await
}

/// Both peers of a running relay.
struct Running {
    a: TcpStream,
    b: TcpStream,
    counts: Arc<RelayCounts>,
    relay: JoinHandle<RelayEnd>,
}

impl Running {
    async fn start(limits: RelayLimits) -> Self {
        Self::start_with(limits, |_| {}).await
    }

    async fn start_with(limits: RelayLimits, prepare: impl Fn(&TcpStream)) -> Self {
        let ((a, relay_a), (b, relay_b)) = (pair().await, pair().await);
        for stream in [&a, &relay_a, &b, &relay_b] {
            prepare(stream);
        }
        let counts = Arc::new(RelayCounts::default());
        let shared = counts.clone();
        let relay = tokio::spawn(async move { relay(relay_a, relay_b, limits, &shared).await });
        Self { a, b, counts, relay }
    }

    async fn end(self) -> RelayEnd {
        tokio::time::timeout(TIMEOUT, self.relay).await.expect("the relay ends").unwrap()
    }
}

fn reset(stream: TcpStream) {
    stream.set_zero_linger().unwrap();
}

/// Numbers that look random and are the same each run (xorshift64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> =
            (0..length.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).collect();
        bytes.truncate(length);
        bytes
    }
}

/// Sends the bytes in pieces of 1 byte to 256 kB, then ends the direction.
async fn send_pieces(
    stream: &mut (impl AsyncWriteExt + Unpin),
    bytes: &[u8],
    mut numbers: Numbers,
) {
    let mut rest = bytes;
    while !rest.is_empty() {
        let largest = 1 << (numbers.next() % 19);
        let length = usize::try_from(numbers.next() % largest + 1).unwrap().min(rest.len());
        stream.write_all(&rest[..length]).await.unwrap();
        rest = &rest[length..];
        if numbers.next().is_multiple_of(8) {
            tokio::task::yield_now().await;
        }
    }
    stream.shutdown().await.unwrap();
}

#[tokio::test]
async fn bytes_are_exact_both_ways_at_once() {
    for seed in [1, 2, 3] {
        let mut numbers = Numbers(seed << 40 | 0x9e37_79b9);
        let (up, down) = (numbers.bytes(5_000_001), numbers.bytes(3_000_003));
        let mut running = Running::start_with(RelayLimits::default(), |stream| {
            // Small enough, in the last run, that a receiver accepts a piece only in part.
            SockRef::from(stream).set_send_buffer_size(1_000_000 >> (2 * seed)).unwrap();
        })
        .await;
        let (mut read_a, mut write_a) = running.a.split();
        let (mut read_b, mut write_b) = running.b.split();
        let (mut at_a, mut at_b) = (Vec::new(), Vec::new());
        let ((), (), got_a, got_b) = tokio::join!(
            send_pieces(&mut write_a, &up, Numbers(seed)),
            send_pieces(&mut write_b, &down, Numbers(seed + 7)),
            read_a.read_to_end(&mut at_a),
            read_b.read_to_end(&mut at_b),
        );
        got_a.unwrap();
        got_b.unwrap();
        assert!(at_b == up && at_a == down, "seed {seed}");
        assert_eq!(
            (running.counts.a_to_b(), running.counts.b_to_a()),
            (up.len() as u64, down.len() as u64)
        );
        let end = running.end().await;
        assert!(matches!(end.reason, RelayReason::Closed), "{end:?}");
        assert_eq!((end.bytes_a_to_b, end.bytes_b_to_a), (up.len() as u64, down.len() as u64));
    }
}

#[tokio::test]
async fn the_end_of_one_direction_leaves_the_other_open() {
    for swap in [false, true] {
        let mut running = Running::start(RelayLimits::default()).await;
        if swap {
            std::mem::swap(&mut running.a, &mut running.b);
        }
        running.a.write_all(b"question").await.unwrap();
        running.a.shutdown().await.unwrap();
        let mut question = Vec::new();
        running.b.read_to_end(&mut question).await.unwrap();
        assert_eq!(question, b"question");
        for _ in 0..3 {
            running.b.write_all(b"answer").await.unwrap();
            let mut answer = [0; 6];
            running.a.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"answer");
        }
        running.b.shutdown().await.unwrap();
        assert_eq!(running.a.read(&mut [0; 1]).await.unwrap(), 0);
        assert!(matches!(running.end().await.reason, RelayReason::Closed));
    }
}

#[tokio::test]
async fn a_reset_is_passed_on_as_a_reset() {
    let Running { a, mut b, relay, .. } = Running::start(RelayLimits::default()).await;
    reset(a);
    expect_reset(&mut b).await;
    assert!(matches!(relay.await.unwrap().reason, RelayReason::Reset(Side::A)));

    let Running { mut a, b, relay, .. } = Running::start(RelayLimits::default()).await;
    reset(b);
    expect_reset(&mut a).await;
    assert!(matches!(relay.await.unwrap().reason, RelayReason::Reset(Side::B)));
}

#[tokio::test]
async fn bytes_before_a_reset_are_delivered() {
    let Running { mut a, mut b, relay, .. } = Running::start(RelayLimits::default()).await;
    a.write_all(b"last words").await.unwrap();
    reset(a);
    let mut words = [0; 10];
    b.read_exact(&mut words).await.unwrap();
    assert_eq!(&words, b"last words");
    expect_reset(&mut b).await;
    assert!(matches!(relay.await.unwrap().reason, RelayReason::Reset(Side::A)));
}

#[tokio::test]
async fn a_reset_of_a_side_that_has_ended_is_passed_on() {
    for swap in [false, true] {
        let Running { mut a, mut b, relay, .. } = Running::start(RelayLimits::default()).await;
        if swap {
            std::mem::swap(&mut a, &mut b);
        }
        a.shutdown().await.unwrap();
        assert_eq!(b.read(&mut [0; 1]).await.unwrap(), 0);
        reset(a);
        let end = tokio::time::timeout(TIMEOUT, relay).await.unwrap().unwrap();
        let side = if swap { Side::B } else { Side::A };
        assert!(matches!(end.reason, RelayReason::Reset(at) if at == side), "{end:?}");
        // `b` has read its end already; the reset after it shows as EPIPE (tcp_reset in
        // CLOSE_WAIT).
        b.ready(Interest::ERROR).await.unwrap();
        let error = b.take_error().unwrap().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}

#[tokio::test]
async fn a_reset_shows_while_the_other_side_is_slow() {
    let Running { mut a, mut b, relay, .. } = Running::start(RelayLimits::default()).await;
    write_until_stalled(&mut a).await;
    reset(a);
    let end = tokio::time::timeout(TIMEOUT, relay).await.unwrap().unwrap();
    assert!(matches!(end.reason, RelayReason::Reset(Side::A)), "{end:?}");
    expect_reset(&mut b).await;
}

#[tokio::test]
async fn the_idle_limit_resets_both() {
    let limits = RelayLimits { idle: Some(SHORT), ..RelayLimits::default() };
    let Running { mut a, mut b, relay, .. } = Running::start(limits).await;
    expect_reset(&mut a).await;
    expect_reset(&mut b).await;
    assert!(matches!(relay.await.unwrap().reason, RelayReason::IdleLimit));
}

#[tokio::test]
async fn bytes_extend_the_idle_limit() {
    let _stopped = stop_clock();
    let limits = RelayLimits { idle: Some(SHORT), ..RelayLimits::default() };
    let mut running = Running::start(limits).await;
    for _ in 0..10 {
        advance(SHORT / 2).await;
        running.b.write_all(b".").await.unwrap();
        running.a.read_exact(&mut [0; 1]).await.unwrap();
    }
    advance(2 * SHORT).await;
    let end = running.end().await;
    assert!(matches!(end.reason, RelayReason::IdleLimit), "{end:?}");
}

#[tokio::test]
async fn a_half_closed_relay_has_its_own_idle_limit() {
    let limits =
        RelayLimits { idle: Some(TIMEOUT * 10), half_closed_idle: Some(SHORT), total: None };
    let mut running = Running::start(limits).await;
    running.a.shutdown().await.unwrap();
    expect_reset(&mut running.a).await;
    assert!(matches!(running.end().await.reason, RelayReason::IdleLimit));
}

#[tokio::test]
async fn the_total_limit_holds_for_a_busy_relay() {
    let limits = RelayLimits { idle: Some(TIMEOUT), half_closed_idle: None, total: Some(SHORT) };
    let mut running = Running::start(limits).await;
    while running.a.write_all(b".").await.is_ok() && running.b.read_exact(&mut [0; 1]).await.is_ok()
    {
    }
    assert!(matches!(running.end().await.reason, RelayReason::TotalLimit));
}

#[tokio::test]
async fn a_slow_reader_stops_the_sender() {
    // The kernel doubles the requested size, and counts its own overhead; 8 x is beyond both.
    let socket_buffer = 64 * 1024;
    let running = Running::start_with(RelayLimits::default(), |stream| {
        SockRef::from(stream).set_send_buffer_size(socket_buffer).unwrap();
        SockRef::from(stream).set_recv_buffer_size(socket_buffer).unwrap();
    });
    let Running { mut a, mut b, counts, relay } = running.await;
    let sent = write_until_stalled(&mut a).await;
    assert!(sent <= PIPE_CAPACITY + 4 * 8 * socket_buffer, "{sent} bytes in flight");
    a.shutdown().await.unwrap();
    let mut received = Vec::new();
    b.read_to_end(&mut received).await.unwrap();
    assert_eq!(received.len(), sent);
    drop(b);
    assert!(matches!(relay.await.unwrap().reason, RelayReason::Closed));
    assert_eq!(counts.a_to_b(), sent as u64);
}

/// Writes until nothing is accepted for a while; returns how much was accepted.
async fn write_until_stalled(stream: &mut TcpStream) -> usize {
    let piece = vec![7; 100_000];
    let mut sent = 0;
    while let Ok(taken) =
        tokio::time::timeout(Duration::from_millis(300), stream.write(&piece)).await
    {
        sent += taken.unwrap();
    }
    sent
}

#[tokio::test]
async fn peers_that_close_at_once_end_in_order() {
    let Running { a, b, relay, .. } = Running::start(RelayLimits::default()).await;
    drop((a, b));
    let end = tokio::time::timeout(TIMEOUT, relay).await.unwrap().unwrap();
    assert!(matches!(end.reason, RelayReason::Closed), "{end:?}");
    assert_eq!((end.bytes_a_to_b, end.bytes_b_to_a), (0, 0));
}

#[tokio::test]
async fn dropping_the_future_resets_both() {
    let Running { mut a, mut b, relay, .. } = Running::start(RelayLimits::default()).await;
    a.write_all(b"x").await.unwrap();
    b.read_exact(&mut [0; 1]).await.unwrap();
    relay.abort();
    expect_reset(&mut a).await;
    expect_reset(&mut b).await;
}

#[tokio::test]
async fn a_pipe_with_bytes_in_it_is_not_reused() {
    let ((mut a, relay_a), (mut b, relay_b)) = (pair().await, pair().await);
    a.write_all(b"secret of another connection").await.unwrap();
    relay_a.readable().await.unwrap();
    let mut pipe = pipe::Pipe::take().unwrap();
    assert_eq!(pipe.fill(&relay_a).unwrap(), 28);
    drop(pipe);
    b.write_all(b"own").await.unwrap();
    relay_b.readable().await.unwrap();
    let mut next = pipe::Pipe::take().unwrap();
    assert_eq!(next.fill(&relay_b).unwrap(), 3);
    assert_eq!(next.drain(&relay_a).unwrap(), 3);
    let mut own = [0; 3];
    a.read_exact(&mut own).await.unwrap();
    assert_eq!(&own, b"own");
}

#[test]
fn pipes_are_limited_and_come_back() {
    static QUOTA: pipe::Quota = pipe::Quota::new(3);
    for _ in 0..5 {
        let pipes: Vec<_> = (0..3).map(|_| pipe::Pipe::take_within(&QUOTA)).collect();
        assert!(pipes.iter().all(Option::is_some));
        assert!(pipe::Pipe::take_within(&QUOTA).is_none(), "one over the limit");
    }
}

#[tokio::test]
async fn a_relay_takes_little_memory() {
    let (a, b) = (pair().await.0, pair().await.0);
    let counts = RelayCounts::default();
    let size = size_of_val(&relay(a, b, RelayLimits::default(), &counts));
    assert!(size <= 1024, "{size} bytes");
}
