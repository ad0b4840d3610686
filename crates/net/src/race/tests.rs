use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, TcpListener as StdListener};

use headstart_testkit::{BlackHole, black_hole, closed};
use socket2::SockRef;

use super::*;

/// Longer than any test may take: a test that waits for it would hang.
const NEVER: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_millis(30);

fn listener() -> (StdListener, SocketAddr) {
    let listener = StdListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

/// Counts sockets of this process that wait for a SYN-ACK from this address (state 02 in
/// /proc/net/tcp). The port may have been another test's before, and the kernel lists a socket
/// twice if others come and go while the table is read.
fn waiting_for(addr: SocketAddr) -> usize {
    let port = format!("0100007F:{:04X} 02", addr.port());
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let lines = table.lines().filter(|line| line.contains(&port));
    let inodes = lines.filter_map(|line| line.split_whitespace().nth(9));
    let waiting: BTreeSet<String> = inodes.map(|inode| format!("socket:[{inode}]")).collect();
    let own = fs::read_dir("/proc/self/fd").unwrap();
    let own = own.filter_map(|entry| {
        entry.ok()?.path().read_link().ok()?.into_os_string().into_string().ok()
    });
    own.filter(|socket| waiting.contains(socket)).count()
}

fn addresses(list: &[&str]) -> Vec<SocketAddr> {
    list.iter().map(|text| text.parse().unwrap()).collect()
}

/// Returns the order in which a race would try its addresses.
fn order(race: &mut Race) -> Vec<SocketAddr> {
    std::iter::from_fn(|| race.queue.pop()).collect()
}

#[test]
fn families_alternate_from_the_first_given() {
    let given = ["[::1]:1", "[::1]:2", "[::1]:3", "1.1.1.1:1", "1.1.1.1:2"];
    let mut race = Race::new(addresses(&given), ATTEMPT_DELAY);
    assert_eq!(race.first(), Some("[::1]:1".parse().unwrap()));
    let expected = ["[::1]:1", "1.1.1.1:1", "[::1]:2", "1.1.1.1:2", "[::1]:3"];
    assert_eq!(order(&mut race), addresses(&expected));

    let mut race = Race::new(addresses(&["1.1.1.1:1", "[::1]:1"]), ATTEMPT_DELAY);
    assert_eq!(order(&mut race), addresses(&["1.1.1.1:1", "[::1]:1"]));
}

#[test]
fn addresses_added_later_take_their_familys_turn() {
    let mut race = Race::new(addresses(&["1.1.1.1:1", "1.1.1.1:2"]), ATTEMPT_DELAY);
    race.queue.pop();
    race.add(addresses(&["[::1]:1", "1.1.1.1:1"]));
    assert_eq!(order(&mut race), addresses(&["[::1]:1", "1.1.1.1:2"]));
}

#[test]
fn addresses_are_limited() {
    let many = (1..=100).map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let mut race = Race::new(many, ATTEMPT_DELAY);
    assert_eq!(order(&mut race).len(), MAX_ADDRESSES);
}

#[tokio::test]
async fn a_refusal_starts_the_next_at_once() {
    let (_listener, good) = listener();
    let refused = closed();
    let mut race = Race::new([refused, good], NEVER);
    assert_eq!(race.first(), Some(refused));
    let won = race.winner().await.unwrap();
    assert_eq!((won.addr, race.attempts().len()), (good, 2));
    assert!(won.stream.nodelay().unwrap());
    assert_eq!(race.first(), Some(good), "not the first that has not failed");
    let [first, second] = race.attempts() else { panic!("two attempts: {race:?}") };
    let AttemptOutcome::Failed(error) = &first.outcome else { panic!("no failure: {first:?}") };
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    assert!(
        matches!(second.outcome, AttemptOutcome::Connected)
            && second.started >= first.ended.unwrap()
    );
}

#[tokio::test]
async fn silence_starts_the_next_after_the_delay_and_the_loser_is_closed() {
    let hole = black_hole();
    let (_listener, good) = listener();
    let mut race = Race::new([hole.address, good], SHORT);
    let waiting = poll_fn(|cx| Poll::Ready(race.poll_winner(cx).is_pending())).await;
    assert!(waiting && waiting_for(hole.address) == 1);
    let won = race.winner().await.unwrap();
    assert_eq!(won.addr, good);
    let [first, second] = race.attempts() else { panic!("two attempts: {race:?}") };
    assert!(matches!(first.outcome, AttemptOutcome::Lost));
    assert!(second.started >= first.started + SHORT);
    assert_eq!(waiting_for(hole.address), 0);
}

#[tokio::test]
async fn each_delay_starts_one_more_attempt() {
    let (_listener, good) = listener();
    let (hole_a, hole_b) = (black_hole(), black_hole());
    let mut race = Race::new([hole_a.address, hole_b.address, good], SHORT);
    race.winner().await.unwrap();
    assert_eq!(race.attempts().len(), 3);
}

#[tokio::test]
async fn the_race_reports_the_error_of_the_first_failure() {
    let (one, two) = (closed(), closed());
    let error = Race::new([one, two], NEVER).winner().await.unwrap_err();
    assert_eq!((error.cause, error.attempts.len()), (RaceFailure::AllFailed, 2));
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    let text = io::Error::from(error).to_string();
    assert!(text.contains(&one.to_string()) && text.contains(&two.to_string()), "{text}");
}

#[tokio::test]
async fn no_address_is_an_error_unless_more_are_expected() {
    let error = Race::new([], NEVER).winner().await.unwrap_err();
    assert_eq!(
        (error.cause, error.kind()),
        (RaceFailure::NoAddress, io::ErrorKind::AddrNotAvailable)
    );

    let (_listener, good) = listener();
    let mut race = Race::new([], NEVER);
    race.expect_more(true);
    assert!(poll_fn(|cx| Poll::Ready(race.poll_winner(cx).is_pending())).await);
    race.add([good]);
    assert_eq!(race.winner().await.unwrap().addr, good);
}

#[tokio::test]
async fn an_address_added_while_running_is_tried() {
    let hole = black_hole();
    let (_listener, good) = listener();
    let mut race = Race::new([hole.address], SHORT);
    assert!(poll_fn(|cx| Poll::Ready(race.poll_winner(cx).is_pending())).await);
    race.add([good]);
    assert_eq!(race.winner().await.unwrap().addr, good);
}

#[tokio::test]
async fn the_limit_ends_the_race() {
    let hole = black_hole();
    let mut race = Race::new([hole.address], NEVER).with_limit(SHORT);
    let error = race.winner().await.unwrap_err();
    assert_eq!((error.cause, error.kind()), (RaceFailure::OutOfTime, io::ErrorKind::TimedOut));
    assert!(matches!(error.attempts[0].outcome, AttemptOutcome::OutOfTime));
    assert_eq!(waiting_for(hole.address), 0);
}

#[tokio::test]
async fn an_address_that_failed_is_no_longer_the_first() {
    let (refused, hole) = (closed(), black_hole());
    let mut race = Race::new([refused, hole.address], NEVER);
    assert_eq!(race.first(), Some(refused));
    let failed = poll_fn(|cx| {
        let _ = race.poll_winner(cx);
        if race.attempts().len() == 2 { Poll::Ready(()) } else { Poll::Pending }
    });
    failed.await;
    assert_eq!(race.first(), Some(hole.address));
}

/// Returns an attempt that is about to fail.
async fn reset() -> Connecting {
    let (listener, addr) = listener();
    let client = TcpStream::connect(addr).await.unwrap();
    let (server, _) = listener.accept().unwrap();
    SockRef::from(&server).set_linger(Some(Duration::ZERO)).unwrap();
    drop(server);
    client.readable().await.unwrap();
    Connecting::with_data(client).unwrap()
}

#[tokio::test]
async fn a_far_address_is_offered_a_larger_window() {
    let (_listener, addr) = listener();
    let mut buffers = Vec::new();
    for rtt in [None, Some(FAR - Duration::from_millis(1)), Some(FAR)] {
        let mut race = Race::new([addr], NEVER);
        race.expect_rtt(rtt);
        let won = race.winner().await.unwrap();
        buffers.push(SockRef::from(&won.stream).recv_buffer_size().unwrap());
    }
    assert_eq!(buffers[0], buffers[1]);
    assert!(buffers[2] > buffers[0], "{buffers:?}");
}

/// Returns an attempt whose SYN, or whose answer, was lost.
fn lost(hole: &BlackHole) -> Connecting {
    Connecting::to(hole.address, false).unwrap()
}

#[tokio::test]
async fn a_paused_race_starts_nothing_and_does_not_fail() {
    let (_listener, good) = listener();
    let mut race = Race::new([good], NEVER);
    race.hold(true);
    assert!(poll_fn(|cx| Poll::Ready(race.poll_winner(cx).is_pending())).await);
    assert!(race.attempts().is_empty() && race.first() == Some(good));
    race.hold(false);
    assert_eq!(race.winner().await.unwrap().addr, good);

    let mut race = Race::new([], NEVER).with_limit(SHORT);
    race.hold(true);
    let error = race.winner().await.unwrap_err();
    assert_eq!(error.cause, RaceFailure::OutOfTime, "the limit did not hold");
}

#[tokio::test]
async fn an_attempt_started_elsewhere_takes_its_addresss_turn() {
    let (_listener, good) = listener();
    let hole = black_hole();
    let mut race = Race::new([good, hole.address], NEVER);
    race.hold(true);
    assert_eq!(race.start(good, Connecting::to(good, false).unwrap()), 0);
    race.hold(false);
    let won = race.winner().await.unwrap();
    assert_eq!((won.addr, won.number, race.attempts().len()), (good, 0, 1));
    assert_eq!(waiting_for(hole.address), 0, "its turn comes after the delay");
}

#[tokio::test]
async fn a_failed_attempt_started_elsewhere_is_repeated_normally() {
    let (_listener, good) = listener();
    let hole = black_hole();
    let mut race = Race::new([good, hole.address], NEVER);
    let number = race.start(good, reset().await);
    let won = race.winner().await.unwrap();
    assert_eq!((won.addr, won.number, race.attempts().len()), (good, 1, 2));
    assert!(matches!(race.attempts()[number].outcome, AttemptOutcome::Failed(_)));

    // Only once: the normal attempt fails for good.
    let refused = closed();
    let mut race = Race::new([refused], NEVER);
    race.start(refused, reset().await);
    let error = race.winner().await.unwrap_err();
    assert_eq!((error.cause, error.attempts.len()), (RaceFailure::AllFailed, 2));
}

#[tokio::test]
async fn two_attempts_at_one_address_can_run_and_the_loser_is_closed() {
    let (_listener, good) = listener();
    let hole = black_hole();
    let mut race = Race::new([good], NEVER);
    let silent = race.start(good, lost(&hole));
    assert!(poll_fn(|cx| Poll::Ready(race.poll_winner(cx).is_pending())).await);
    race.try_beside(good);
    let won = race.winner().await.unwrap();
    assert_eq!((won.addr, won.number), (good, 1));
    assert!(matches!(race.attempts()[silent].outcome, AttemptOutcome::Lost));
    assert_eq!(waiting_for(hole.address), 0, "closed before the winner is handed over");
}

#[tokio::test]
async fn a_second_attempt_at_an_address_replaces_the_repetition() {
    let hole = black_hole();
    let mut race = Race::new([hole.address], NEVER).with_limit(SHORT);
    race.start(hole.address, reset().await);
    race.try_beside(hole.address);
    let error = race.winner().await.unwrap_err();
    assert_eq!((error.cause, error.attempts.len()), (RaceFailure::OutOfTime, 2));
}

#[tokio::test]
async fn an_address_can_be_deferred() {
    let (_listener, good) = listener();
    let (hole, other) = (black_hole(), black_hole());
    let mut race = Race::new([hole.address, other.address, good], NEVER);
    race.defer(hole.address);
    assert_eq!(race.first(), Some(other.address));
    race.defer(other.address);
    race.defer("192.0.2.1:1".parse().unwrap());
    assert_eq!(race.first(), Some(good));
    race.winner().await.unwrap();
    assert_eq!(race.attempts().len(), 1);

    // One of the other family comes before others of its own.
    let [six, another] = ["[::1]:9", "[::1]:10"].map(|text| text.parse().unwrap());
    let mut race = Race::new([six, good, another], NEVER);
    assert_eq!(race.first(), Some(six));
    race.defer(six);
    assert_eq!(race.first(), Some(good));
}

#[tokio::test]
async fn a_lost_syn_is_repeated_on_a_second_connection() {
    let (hole, (_listener, good)) = (black_hole(), listener());
    let mut race = Race::new([], NEVER);
    race.start(good, lost(&hole));
    race.second_syn(Some(SHORT));
    let won = race.winner().await.unwrap();
    assert_eq!((won.addr, won.number, race.second_attempt()), (good, 1, Some(1)));
    let [first, second] = race.attempts() else { panic!("two attempts: {race:?}") };
    assert!(second.started >= first.started + 2 * SHORT);
    assert!(matches!(first.outcome, AttemptOutcome::Lost));
}

/// The kernel sends a SYN again after a second.
#[tokio::test]
async fn a_syn_sent_again_does_not_lengthen_the_round_trip() {
    let hole = black_hole();
    let mut race = Race::new([hole.address], NEVER);
    assert!(poll_fn(|cx| Poll::Ready(race.poll_winner(cx).is_pending())).await);
    assert_eq!(waiting_for(hole.address), 1);
    // The first SYN is lost; then there is room in the queue.
    hole.listener.accept().unwrap();
    let won = race.winner().await.unwrap();
    let took = won.connected - race.attempts()[won.number].started;
    assert!(took >= Duration::from_millis(900), "the first SYN was answered");
    assert!(won.repeated && won.rtt + Duration::from_millis(900) < took, "{won:?}, {took:?}");
}

#[tokio::test(start_paused = true)]
async fn there_is_no_third_syn() {
    let hole = black_hole();
    let mut race = Race::new([hole.address], SHORT).with_limit(5 * SHORT);
    race.second_syn(Some(Duration::ZERO));
    let error = race.winner().await.unwrap_err();
    let tried: Vec<_> = error.attempts.iter().map(|attempt| attempt.addr).collect();
    assert_eq!(tried, [hole.address; 2]);
    assert_eq!(waiting_for(hole.address), 0);
}

#[tokio::test]
async fn a_syn_that_is_answered_has_no_second() {
    let (_listener, good) = listener();
    let mut race = Race::new([good], NEVER);
    race.second_syn(None);
    assert_eq!(race.winner().await.unwrap().number, 0);
    assert_eq!((race.attempts().len(), race.second_attempt()), (1, None));
}

#[tokio::test]
async fn an_answer_that_came_while_this_process_stood_still_has_no_second() {
    let (_listener, good) = listener();
    let mut race = Race::new([good], NEVER);
    race.second_syn(Some(Duration::ZERO));
    poll_fn(|cx| {
        assert!(race.poll_winner(cx).is_pending(), "the runtime knows nothing of it yet");
        std::thread::sleep(2 * SHORT);
        assert!(race.poll_winner(cx).is_pending(), "nor now");
        Poll::Ready(())
    })
    .await;
    assert_eq!(race.winner().await.unwrap().number, 0);
    assert_eq!((race.attempts().len(), race.second_attempt()), (1, None));
}

#[tokio::test]
async fn a_round_trip_that_is_seen_shortens_the_wait() {
    let (hole, (_listener, good)) = (black_hole(), listener());
    let mut race = Race::new([], NEVER).with_limit(NEVER);
    race.start(good, lost(&hole));
    race.second_syn(None);
    race.learn_rtt(Duration::ZERO);
    let (_, due) = race.second_due().unwrap();
    assert_eq!(due, race.attempts()[0].started + Duration::from_millis(10));
    assert_eq!(race.winner().await.unwrap().number, 1);
}

#[tokio::test(start_paused = true)]
async fn other_addresses_come_no_later_for_a_second_syn() {
    let hole = black_hole();
    let (_listener, good) = listener();
    let mut race = Race::new([hole.address, good], 3 * SHORT);
    race.second_syn(Some(SHORT));
    let won = race.winner().await.unwrap();
    let tried: Vec<_> = race.attempts().iter().map(|attempt| attempt.addr).collect();
    assert_eq!((tried, won.number), (vec![hole.address, hole.address, good], 2));
    let [first, second, third] = race.attempts() else { panic!("three attempts: {race:?}") };
    assert!(third.started < second.started + 3 * SHORT, "{:?}", third.started - first.started);
}

#[tokio::test]
async fn an_address_that_is_tried_beside_has_had_its_second_syn() {
    let (hole, (_listener, good)) = (black_hole(), listener());
    let mut race = Race::new([], NEVER);
    race.start(good, lost(&hole));
    race.second_syn(Some(Duration::ZERO));
    race.start(good, lost(&hole));
    assert_eq!(race.second_due(), None);
    race.without_second_syn();
    race.try_beside(good);
    assert_eq!(race.winner().await.unwrap().number, 2);
    assert_eq!(race.second_attempt(), None);
}
