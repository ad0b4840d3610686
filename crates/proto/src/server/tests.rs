//! The server alone: every limit at and one over the limit, and everything an attacker may try.

mod fleets;
mod operations;

extern crate std;

use super::*;
use crate::error::{HelloError, Misfit, WireError};
use crate::id::JoinKey;
use crate::limits::*;
use crate::wire::{REQUEST_PAYLOAD_MAX, Response};
use alloc::vec;
use core::net::Ipv4Addr;
use core::ops::Range;
use core::time::Duration;

use headstart_testkit::hello::CraftedHello;

impl Server {
    /// Returns the number of sessions, and the bytes of memory held for their streams.
    pub(crate) fn holds(&self) -> (usize, usize) {
        (self.sessions.len(), self.sessions.values().map(Session::allocated).sum())
    }
}

fn at(millis: u64) -> Instant {
    Instant::from_epoch(Duration::from_millis(millis))
}

fn key(number: u64) -> JoinKey {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    JoinKey::new(bytes)
}

/// Returns an address in a network of its own for each `host`.
fn peer(host: u64) -> SocketAddr {
    let [high, low] = u16::try_from(host).expect("a test has few hosts").to_be_bytes();
    SocketAddr::from((Ipv4Addr::new(10, high, low, 1), 4000))
}

/// Returns an address in one network for each `host`.
fn neighbour(host: u64) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, u8::try_from(host).unwrap()], 9))
}

/// Builds a distinct ClientHello for each number, at least 56 bytes long.
fn hello(number: u64, size: usize) -> Vec<u8> {
    let mut hello = CraftedHello::sized(size);
    hello.random[24..].copy_from_slice(&number.to_be_bytes());
    hello.stream()
}

/// Builds a request; without a payload it repeats the first byte of every ClientHello.
fn request(number: u64, seq: u8, offset: usize, payload: &[u8]) -> Vec<u8> {
    let payload = if payload.is_empty() { &[22] } else { payload };
    Request { id: key(number).session_id(), seq, offset: u32::try_from(offset).unwrap(), payload }
        .emit()
}

fn join(number: u64, client_offset: u32, server_offset: u32) -> Join {
    Join { key: key(number), tag: RouteTag::default(), client_offset, server_offset }
}

fn server() -> Server {
    Server::new(ServerConfig::default())
}

impl Server {
    fn datagram(&mut self, from: SocketAddr, datagram: &[u8]) -> Result<(), Discard> {
        self.handle_datagram(at(0), from, None, datagram)
    }

    /// Sends a whole ClientHello for session `number` from `from`.
    fn begin(&mut self, number: u64, from: SocketAddr) -> Result<(), Discard> {
        self.datagram(from, &request(number, 0, 0, &hello(number, 100)))
    }

    /// Does the same as [`begin`](Self::begin) `number` milliseconds after the start, so that the
    /// lowest is the oldest.
    fn begin_in_turn(&mut self, number: u64, from: SocketAddr) -> Result<(), Discard> {
        let bytes = request(number, 0, 0, &hello(number, 100));
        self.handle_datagram(at(number), from, None, &bytes)
    }

    /// Sends a part of the ClientHello for session `number` at a time in milliseconds.
    fn part(
        &mut self,
        millis: u64,
        number: u64,
        from: SocketAddr,
        part: Range<usize>,
    ) -> Result<(), Discard> {
        let seq = u8::from(part.start > 0);
        let bytes = request(number, seq, part.start, &hello(number, 100)[part]);
        self.handle_datagram(at(millis), from, None, &bytes)
    }

    fn transmitted(&mut self) -> Vec<Vec<u8>> {
        core::iter::from_fn(|| self.poll_transmit().map(|transmit| transmit.bytes)).collect()
    }

    fn happened(&mut self) -> Vec<ServerEvent> {
        core::iter::from_fn(|| self.poll_event()).collect()
    }

    fn is_empty(&self) -> bool {
        self.sessions.is_empty()
            && self.gathering.is_empty()
            && self.running.is_empty()
            && self.spared.is_empty()
            && self.admission.is_empty()
    }
}

fn id(number: u64) -> SessionId {
    key(number).session_id()
}

#[test]
fn a_whole_hello_starts_one_origin_stream_and_is_acknowledged() {
    let mut server = server();
    assert_eq!(server.begin(1, peer(1)), Ok(()));
    let bytes = hello(1, 100);
    let read = hello::read(&bytes).unwrap().complete().unwrap();
    assert_eq!(read.end, 100);
    let started = ServerEvent::Started { id: id(1), peer: peer(1), hello: Box::new(read), bytes };
    assert_eq!(server.happened(), [started]);
    let sent = server.transmitted();
    let response = Response::parse(&sent[0]).unwrap();
    assert_eq!((sent.len(), response.ack, response.payload), (1, 100, &b""[..]));
    assert_eq!(server.begin(1, peer(1)), Err(Discard::Repeated));
    assert_eq!(server.datagram(peer(1), &request(1, 1, 0, &hello(1, 100))), Ok(()));
    assert_eq!((server.happened().len(), server.transmitted().len()), (0, 0));
}

#[test]
fn a_paused_server_starts_nothing_and_keeps_running_sessions() {
    let mut server = server();
    let (running, half) = (hello(1, 100), hello(2, 100));
    assert_eq!(server.begin(1, peer(1)), Ok(()));
    assert_eq!(server.datagram(peer(2), &request(2, 0, 0, &half[..50])), Ok(()));
    server.pause(true);
    assert_eq!(server.transmitted().len(), 1);
    assert_eq!(server.begin(3, peer(3)), Err(Discard::Paused));
    assert_eq!(server.datagram(peer(2), &request(2, 1, 50, &half[50..])), Err(Discard::Paused));
    assert_eq!((server.happened().len(), server.transmitted().len()), (1, 0), "silence");
    assert_eq!(server.datagram(peer(1), &request(1, 1, 0, &running)), Ok(()));
    assert_eq!(server.handle_origin_data(id(1), b"flight"), 6);
    assert_eq!(server.transmitted().len(), 1);
    server.pause(false);
    assert_eq!(server.datagram(peer(2), &request(2, 2, 0, b"")), Ok(()));
    assert_eq!(server.happened().len(), 1, "the incomplete session starts");
}

#[test]
fn limits_sessions_per_address() {
    let mut server = server();
    let limit = u64::try_from(SESSIONS_PER_ADDRESS).unwrap();
    for number in 0..limit {
        assert_eq!(server.begin(number, peer(1)), Ok(()));
    }
    let port = SocketAddr::new(peer(1).ip(), 5);
    assert_eq!(server.begin(limit, port), Err(Discard::AddressLimit));
    assert!(matches!(server.handle_join(at(1), port, &join(0, 0, 0)), JoinOutcome::Joined(..)));
    assert_eq!(server.begin(limit, port), Ok(()), "a joined session no longer counts");
}

#[test]
fn limits_sessions_per_network() {
    let mut server = server();
    let limit = u64::try_from(SESSIONS_PER_NETWORK).unwrap();
    for number in 0..limit {
        assert_eq!(server.begin(number, neighbour(number)), Ok(()));
    }
    assert_eq!(server.begin(limit, neighbour(limit)), Err(Discard::NetworkLimit));
    assert_eq!(server.begin(limit, peer(1)), Ok(()));
}

#[test]
fn limits_all_sessions_and_evicts_no_running_one() {
    let mut server = server();
    let total = SESSIONS as u64;
    for number in 0..total {
        assert_eq!(server.begin(number, peer(number)), Ok(()));
    }
    assert_eq!(server.begin(total, peer(9999)), Err(Discard::SessionLimit));
    assert_eq!(server.unproven(), SESSIONS);
    server.happened();
    server.handle_timeout(at(9_999));
    assert_eq!(server.unproven(), SESSIONS, "a running session is kept for its life");
    server.handle_timeout(at(10_000));
    assert_eq!(
        server.happened().len(),
        SESSIONS / 2,
        "then waiting sessions may hold half of the slots"
    );
    server.handle_timeout(at(120_000));
    assert_eq!(server.happened().len(), SESSIONS / 2);
    assert!(server.is_empty());
}

#[test]
fn unfinished_hellos_evict_only_unfinished_hellos() {
    let mut server = server();
    server.begin(5000, peer(5000)).unwrap();
    for number in 0..SESSIONS_GATHERING as u64 {
        assert_eq!(server.part(number, number, peer(number), 0..50), Ok(()));
    }
    assert_eq!(server.unproven(), 1 + SESSIONS_GATHERING);
    assert_eq!(server.part(400, 999, peer(999), 0..50), Ok(()));
    assert_eq!(server.unproven(), 1 + SESSIONS_GATHERING, "the oldest gave way");
    assert!(!server.sessions.contains_key(&id(0)));
    assert!(server.sessions.contains_key(&id(1)) && server.sessions.contains_key(&id(5000)));
    // If running sessions fill the total, a new session evicts fragments until none is left.
    let mut server = Server::new(ServerConfig { origin_streams: 8, ..ServerConfig::default() });
    server.begin(1, peer(1)).unwrap();
    server.part(0, 2, peer(2), 0..50).unwrap();
    server.begin(3, peer(3)).unwrap();
    assert_eq!(server.part(0, 4, peer(4), 0..50), Err(Discard::SessionLimit));
    assert!(server.sessions.contains_key(&id(1)) && server.sessions.contains_key(&id(3)));
}

#[test]
fn unproven_sessions_get_their_share_of_origin_streams() {
    for (streams, share) in [(0, 0), (3, 0), (4, 1), (39, 9), (40, 10), (1 << 20, SESSIONS)] {
        let mut server =
            Server::new(ServerConfig { origin_streams: streams, ..ServerConfig::default() });
        let admitted = (0..=SESSIONS as u64).filter(|n| server.begin(*n, peer(*n)).is_ok());
        assert_eq!(admitted.count(), share, "{streams} streams");
    }
}

/// One second's share of handshakes is 10 of those that nobody has measured.
fn with_little_time() -> Server {
    let unproven_work = HANDSHAKE_COST * 10;
    Server::new(ServerConfig { unproven_work, ..ServerConfig::default() })
}

#[test]
fn handshakes_of_unproven_sessions_have_their_time() {
    let mut server = with_little_time();
    let refused = Err(Discard::WorkLimit);
    for number in 0..20 {
        assert_eq!(server.begin(number, peer(number)), Ok(()));
    }
    assert_eq!((server.begin(20, peer(20)), server.happened().len()), (refused, 20));
    assert_eq!(server.unproven(), 20, "nothing is kept of it");
    // There is time for one again.
    assert_eq!(server.begin_in_turn(99, peer(99)), refused);
    assert_eq!(server.begin_in_turn(100, peer(100)), Ok(()));
    assert_eq!(server.begin_in_turn(101, peer(101)), refused);
    assert_eq!(server.happened().len(), 1);
}

#[test]
fn a_new_configuration_holds_at_once_and_keeps_the_tag() {
    let mut server = server();
    server.begin(1, peer(1)).unwrap();
    let before = tag_sent(&mut server);
    let unproven_work = HANDSHAKE_COST * 2;
    let other = ServerConfig { unproven_work, tag: RouteTag([9; 4]), ..ServerConfig::default() };
    server.configure(other);
    server.begin(2, peer(2)).unwrap();
    assert_eq!(tag_sent(&mut server), before);
    assert!((3..10).any(|number| server.begin(number, peer(number)) == Err(Discard::WorkLimit)));
}

#[test]
fn a_session_that_gathers_waits_for_time() {
    let mut server = with_little_time();
    assert_eq!(server.part(0, 20, peer(20), 0..50), Ok(()));
    for number in 0..20 {
        assert_eq!(server.begin(number, peer(number)), Ok(()));
    }
    let refused = Err(Discard::WorkLimit);
    assert_eq!(server.part(0, 20, peer(20), 50..hello(20, 100).len()), refused);
    let again = |seq| request(20, seq, 0, b"");
    assert_eq!(server.handle_datagram(at(99), peer(20), None, &again(2)), refused);
    assert_eq!(server.handle_datagram(at(100), peer(20), None, &again(3)), Ok(()));
    assert_eq!(server.happened().len(), 21);
}

#[test]
fn sessions_that_join_or_are_attached_leave_their_time_to_others() {
    let mut server = with_little_time();
    for number in 0..1_000 {
        let from = peer(number);
        assert_eq!(server.begin(number, from), Ok(()), "{number}");
        if number % 2 == 0 {
            let joined = server.handle_join(at(0), from, &join(number, 0, 0));
            assert!(matches!(joined, JoinOutcome::Joined(..)), "{joined:?}");
        } else {
            let attached = server.handle_plain(at(0), from, &hello(number, 100));
            assert!(matches!(attached, Attachment::Attached(_)), "{attached:?}");
        }
    }
    // One that ends without a proof has cost what it has cost.
    for number in 1_000..1_020 {
        assert_eq!(server.begin(number, peer(number)), Ok(()));
        server.handle_origin_lost(at(0), id(number));
    }
    assert_eq!(server.begin(1_020, peer(1_020)), Err(Discard::WorkLimit));
}

#[test]
fn measured_handshakes_count_as_what_they_cost() {
    let mut server = with_little_time();
    assert_eq!(server.begin(0, peer(0)), Ok(()));
    server.handle_cost(id(0), HANDSHAKE_COST * 21);
    assert_eq!(server.begin(1, peer(1)), Err(Discard::WorkLimit));
    // Of somebody who is gone, or was never here.
    server.handle_cost(id(7), HANDSHAKE_COST * 1_000);
    assert!(matches!(server.handle_join(at(0), peer(0), &join(0, 0, 0)), JoinOutcome::Joined(..)));
    assert_eq!(server.begin(1, peer(1)), Ok(()));
}

#[test]
fn fragments_expire() {
    let mut server = server();
    let bytes = hello(1, 100);
    let first = request(1, 0, 0, &bytes[..50]);
    server.datagram(peer(1), &first).unwrap();
    let end = Instant::ZERO + GATHERING_LIFE;
    assert_eq!(server.poll_timeout(), Some(end));
    server.handle_timeout(end - Duration::from_nanos(1));
    assert_eq!(server.unproven(), 1);
    server.handle_timeout(end);
    assert!(server.is_empty() && server.happened().is_empty(), "nothing had started");
    assert_eq!(server.poll_timeout(), None);
}

#[test]
fn a_running_session_expires_counted_from_its_first_answer() {
    let mut server = server();
    let bytes = hello(1, 100);
    server.datagram(peer(1), &request(1, 0, 0, &bytes[..50])).unwrap();
    let second = request(1, 1, 50, &bytes[50..]);
    server.handle_datagram(at(1999), peer(1), None, &second).unwrap();
    assert_eq!(server.poll_timeout(), Some(at(1999) + SESSION_LIFE));
    server.happened();
    server.handle_timeout(at(1999) + SESSION_LIFE);
    assert_eq!(server.happened(), [], "no other session needs its slot");
    assert_eq!(server.poll_timeout(), Some(at(1999) + SESSION_LIFE_SPARE));
    server.handle_timeout(at(1999) + SESSION_LIFE_SPARE);
    assert_eq!(server.happened(), [ServerEvent::Expired { id: id(1) }]);
    let late = server.handle_datagram(at(122_000), peer(1), None, &second);
    assert_eq!(late, Err(Discard::Ended));
}

#[test]
fn a_session_is_spared_until_another_needs_its_slot() {
    let mut server = server();
    let share = u64::try_from(SESSIONS_PER_ADDRESS).unwrap();
    (0..share).for_each(|number| server.begin_in_turn(number, peer(1)).unwrap());
    assert_eq!(
        server.begin_in_turn(share, peer(1)),
        Err(Discard::AddressLimit),
        "no session has outlived its time"
    );
    server.handle_timeout(at(share) + SESSION_LIFE);
    server.happened();
    let junk = request(99, 0, 0, b"GET / HTTP/1.1");
    assert!(matches!(server.datagram(peer(1), &junk), Err(Discard::Hello(_))));
    (100..100 + share).for_each(|number| server.part(10_100, number, peer(1), 0..50).unwrap());
    let one_more = server.part(10_100, 199, peer(1), 0..50);
    assert_eq!(one_more, Err(Discard::AddressLimit), "sessions not spared count");
    assert_eq!((server.happened(), server.spared.len()), (vec![], SESSIONS_PER_ADDRESS));
    server.part(10_100, 100, peer(1), 50..100).unwrap();
    assert!(server.happened().contains(&ServerEvent::Expired { id: id(0) }), "the oldest");
    assert_eq!(server.spared.len(), SESSIONS_PER_ADDRESS - 1);
    assert_eq!(server.handle_join(at(10_101), peer(1), &join(0, 0, 1)), JoinOutcome::Refused);
    let kept = server.handle_join(at(10_101), peer(1), &join(1, 0, 0));
    assert!(matches!(kept, JoinOutcome::Joined(..)), "{kept:?}");
}

#[test]
fn a_session_of_another_host_gives_way_only_to_the_network_limit() {
    let mut server = server();
    let per_network = u64::try_from(SESSIONS_PER_NETWORK).unwrap();
    server.begin(900, peer(1)).unwrap();
    (0..per_network).for_each(|number| server.begin_in_turn(number, neighbour(number)).unwrap());
    server.handle_timeout(at(per_network) + SESSION_LIFE);
    server.happened();
    server.part(10_100, 901, neighbour(200), 0..100).unwrap();
    assert_eq!(server.unproven() as u64, per_network + 1, "one for one");
    assert!(server.happened().contains(&ServerEvent::Expired { id: id(0) }));
    server.part(10_100, 902, peer(2), 0..100).unwrap();
    assert_eq!(server.unproven() as u64, per_network + 2, "there was room");
}

#[test]
fn spared_sessions_give_way_to_a_paused_server_and_its_driver() {
    let mut server = server();
    (0..3).for_each(|number| server.begin_in_turn(number, peer(number)).unwrap());
    assert!(!server.give_way(at(3)), "their time is promised");
    server.handle_timeout(at(10_002));
    server.pause(true);
    let whole = request(7, 0, 0, &hello(7, 100));
    let paused = server.handle_datagram(at(10_003), peer(7), None, &whole);
    assert_eq!((paused, server.unproven()), (Err(Discard::Paused), 2));
    assert!(server.give_way(at(10_003)) && server.give_way(at(10_003)));
    assert!(server.is_empty());
}

#[test]
fn a_session_whose_origin_is_gone_is_not_spared() {
    let mut server = server();
    for (number, finished) in [(1, true), (2, false)] {
        server.begin(number, peer(number)).unwrap();
        server.handle_origin_data(id(number), b"alert");
        if finished {
            server.handle_origin_finished(id(number));
        } else {
            server.handle_origin_lost(at(1), id(number));
        }
    }
    server.handle_timeout(at(9_999));
    assert_eq!(server.unproven(), 2, "its bytes are still owed to the client");
    server.handle_timeout(at(10_000));
    assert!(server.is_empty());
}

#[test]
fn fragments_give_way_before_spared_sessions() {
    let mut server = server();
    let all = u64::try_from(SESSIONS).unwrap();
    let half = all / 2;
    (0..half).for_each(|number| server.begin(number, peer(number)).unwrap());
    server.handle_timeout(at(10_000));
    let gathering = u64::try_from(SESSIONS_GATHERING).unwrap();
    for number in half..all - gathering {
        server.part(10_001, number, peer(number), 0..100).unwrap();
    }
    for number in all..all + 3 * gathering {
        server.part(10_001, number, peer(number), 0..50).unwrap();
    }
    assert_eq!((server.unproven(), server.spared.len()), (SESSIONS, SESSIONS / 2));
}

#[test]
fn spared_sessions_hold_at_most_half_of_all_slots_and_go_first() {
    let mut server = server();
    let all = u64::try_from(SESSIONS).unwrap();
    (0..all).for_each(|number| server.begin(number, peer(number)).unwrap());
    assert_eq!(server.begin(all, peer(all)), Err(Discard::SessionLimit));
    server.handle_timeout(at(0) + SESSION_LIFE);
    assert_eq!(server.unproven() as u64, all / 2);
    for number in all..all * 2 {
        server.part(10_001, number, peer(number), 0..100).unwrap();
    }
    assert_eq!(server.unproven() as u64, all);
    assert_eq!(server.spared.len(), 0, "all gave way");
    let one_more = server.part(10_001, all * 2, peer(all * 2), 0..100);
    assert_eq!(one_more, Err(Discard::SessionLimit));
}

#[test]
fn limits_client_bytes() {
    let mut server = server();
    server.begin(1, peer(1)).unwrap();
    let at_limit = request(1, 1, CLIENT_BYTES - 10, &[7; 10]);
    assert_eq!(server.datagram(peer(1), &at_limit), Ok(()));
    let over = request(1, 2, CLIENT_BYTES - 10, &[7; 11]);
    let too_far = u32::try_from(CLIENT_BYTES + 1).unwrap();
    assert_eq!(server.datagram(peer(1), &over), Err(Discard::Wire(WireError::Offset(too_far))));
}

#[test]
fn server_bytes_beyond_the_limit_wait_for_the_join() {
    let mut server = server();
    server.begin(1, peer(1)).unwrap();
    assert_eq!(server.handle_origin_data(id(1), &vec![1; SERVER_BYTES - 1]), SERVER_BYTES - 1);
    assert_eq!(server.handle_origin_data(id(1), &[2, 3]), 1);
    assert_eq!(server.handle_origin_data(id(1), &[3]), 0);
    let JoinOutcome::Joined(handover) = server.handle_join(at(1), peer(1), &join(1, 0, 0)) else {
        panic!("the session runs");
    };
    assert_eq!(handover.server_bytes.len(), SERVER_BYTES);
    assert_eq!(handover.server_bytes.last(), Some(&2));
    assert_eq!(server.handle_origin_data(id(1), &[3]), 0, "TCP carries it now");
}

#[test]
fn worst_case_memory_matches_the_limits() {
    assert_eq!(SESSIONS * (CLIENT_BYTES + SERVER_BYTES), 37_748_736);
    let mut server = server();
    server.begin(1, peer(1)).unwrap();
    // The worst growth: bytes that arrive one datagram at a time, from the middle on.
    for (seq, offset) in (1..).zip((8200..CLIENT_BYTES - 1200).step_by(1100)) {
        server.datagram(peer(1), &request(1, seq, offset, &[7; 1100])).unwrap();
    }
    server.datagram(peer(1), &request(1, 14, CLIENT_BYTES - 9, &[7; 9])).unwrap();
    while server.handle_origin_data(id(1), &[1; 999]) > 0 {}
    let allocated = server.sessions[&id(1)].allocated();
    assert_eq!(allocated, CLIENT_BYTES + SERVER_BYTES);
}

// W-SEQ-2
#[test]
fn a_request_gets_at_most_one_response() {
    let mut server = server();
    server.begin(1, peer(1)).unwrap();
    assert_eq!(server.transmitted().len(), 1, "the acknowledgement");
    server.handle_origin_data(id(1), &[1; 5000]);
    assert_eq!(server.transmitted().len(), 0, "no slot is left");
    for seq in [1, 2, 2, 1] {
        let _ = server.datagram(peer(1), &request(1, seq, 0, &[]));
    }
    let sent = server.transmitted();
    let offsets: Vec<_> = sent.iter().map(|bytes| Response::parse(bytes).unwrap().offset).collect();
    assert_eq!(offsets, [0, 1207]);
    assert!(sent.iter().all(|bytes| bytes.len() == DATAGRAM_MAX));
}

#[test]
fn a_session_is_joined_once() {
    let mut server = server();
    server.begin(1, peer(1)).unwrap();
    server.transmitted();
    let JoinOutcome::Joined(handover) = server.handle_join(at(1), peer(2), &join(1, 100, 0)) else {
        panic!("any address may join");
    };
    assert_eq!(handover.server_offset, 0);
    assert_eq!((handover.skip, handover.client_bytes.len(), handover.end), (0, 0, OriginEnd::Open));
    for offsets in [(100, 0), (0, 0)] {
        let again = join(1, offsets.0, offsets.1);
        assert_eq!(server.handle_join(at(2), peer(2), &again), JoinOutcome::Refused);
    }
    let slot = request(1, 1, 0, &[]);
    assert_eq!(server.handle_datagram(at(2), peer(1), None, &slot), Err(Discard::Ended));
    assert!(server.is_empty());
}

#[test]
fn impossible_offsets_are_refused_and_harm_nothing() {
    let mut server = server();
    server.begin(1, peer(1)).unwrap();
    server.handle_origin_data(id(1), &[9; 500]);
    server.datagram(peer(1), &request(1, 1, 0, &[])).unwrap();
    for (client, origin) in [(101, 0), (0, 501), (0xff_ffff, 0xff_ffff), (100, 501), (101, 500)] {
        let outcome = server.handle_join(at(1), peer(1), &join(1, client, origin));
        assert_eq!(outcome, JoinOutcome::Refused, "{client}/{origin}");
    }
    let JoinOutcome::Joined(handover) = server.handle_join(at(1), peer(1), &join(1, 40, 499))
    else {
        panic!("possible offsets are accepted");
    };
    assert_eq!((handover.skip, handover.server_bytes), (60, vec![9]));
}

#[test]
fn immediate_origin_bytes_replace_the_acknowledgement() {
    let mut server = server();
    server.begin(1, peer(1)).unwrap();
    server.datagram(peer(1), &request(1, 1, 0, &hello(1, 100))).unwrap();
    assert_eq!(server.handle_origin_data(id(1), b"flight"), 6);
    let sent = server.transmitted();
    let response = Response::parse(&sent[0]).unwrap();
    assert_eq!((sent.len(), response.ack, response.payload), (1, 100, &b"flight"[..]));
    // The next answers carry only bytes.
    server.datagram(peer(1), &request(1, 2, 0, &hello(1, 100))).unwrap();
    assert_eq!(server.transmitted().len(), 0);
}

#[test]
fn bytes_that_were_never_sent_cannot_be_acknowledged() {
    let mut server = server();
    server.begin(1, peer(1)).unwrap();
    assert_eq!(server.transmitted().len(), 1, "the acknowledgement");
    server.handle_origin_data(id(1), &[9; 500]);
    let outcome = server.handle_join(at(1), peer(1), &join(1, 100, 1));
    assert_eq!(outcome, JoinOutcome::Refused, "no slot carried a byte");
}

#[test]
fn a_join_of_an_unknown_session_is_fresh_only_from_the_start() {
    let mut server = server();
    server.begin(1, peer(1)).unwrap();
    assert_eq!(server.handle_join(at(1), peer(1), &join(2, 0, 0)), JoinOutcome::Fresh);
    assert_eq!(server.handle_join(at(1), peer(1), &join(3, 1, 0)), JoinOutcome::Refused);
    assert_eq!(server.handle_join(at(1), peer(1), &join(4, 0, 1)), JoinOutcome::Refused);
    assert_eq!(server.unproven(), 1, "a wrong key touches no session");
}

#[test]
fn answers_of_another_start_do_not_continue() {
    let tag = RouteTag([1; 4]);
    let earlier = RouteTag([2; 4]);
    for (tag_joined, offset, expected) in [
        (tag, 1, "joined"),
        (earlier, 1, "refused"),
        (earlier, 0, "fresh"),
        (RouteTag::default(), 0, "joined"),
    ] {
        let mut server = Server::new(ServerConfig { tag, ..ServerConfig::default() });
        server.begin(1, peer(1)).unwrap();
        server.datagram(peer(1), &request(1, 1, 0, &[])).unwrap();
        server.handle_origin_data(id(1), b"flight");
        let outcome = server.handle_join(
            at(0),
            peer(1),
            &Join { tag: tag_joined, ..join(1, offset, offset) },
        );
        let name = match outcome {
            JoinOutcome::Joined(..) => "joined",
            JoinOutcome::Fresh => "fresh",
            JoinOutcome::Refused => "refused",
            JoinOutcome::Elsewhere(_) => "elsewhere",
        };
        assert_eq!(name, expected, "{tag_joined:?} at {offset}");
    }
}

/// Returns the tag of the next response that was sent.
fn tag_sent(server: &mut Server) -> RouteTag {
    Response::parse(&server.transmitted()[0]).unwrap().tag
}

#[test]
fn the_server_stream_continues_where_a_record_begins() {
    let records = [&[22, 3, 3, 0, 95][..], &[7; 95], &[23, 3, 3, 1, 0], &[8; 256]].concat();
    for (asked, from) in [(0, 0), (99, 0), (100, 100), (300, 100)] {
        let mut server = server();
        server.begin(1, peer(1)).unwrap();
        server.transmitted();
        server.datagram(peer(1), &request(1, 1, 0, &[])).unwrap();
        server.handle_origin_data(id(1), &records);
        let outcome = server.handle_join(at(1), peer(1), &join(1, 100, asked));
        let JoinOutcome::Joined(handover) = outcome else { panic!("{asked}: {outcome:?}") };
        assert_eq!(handover.server_offset, from, "asked for {asked}");
        assert_eq!(handover.server_bytes, records[from as usize..]);
    }
}

#[test]
fn late_datagrams_of_a_fresh_stream_start_nothing() {
    let mut server = server();
    assert_eq!(server.handle_join(at(0), peer(1), &join(1, 0, 0)), JoinOutcome::Fresh);
    assert_eq!(server.begin(1, peer(1)), Err(Discard::Ended));
    assert!(server.is_empty() && server.happened().is_empty());
}

#[test]
fn a_join_overtakes_unfinished_fragments() {
    let mut server = server();
    server.datagram(peer(1), &request(1, 0, 0, &hello(1, 100)[..50])).unwrap();
    assert_eq!(server.handle_join(at(1), peer(1), &join(1, 0, 0)), JoinOutcome::Fresh);
    assert!(server.is_empty() && server.happened().is_empty());
}

// W-TAKEOVER-5
#[test]
fn a_join_needs_the_same_address_if_the_origin_is_told_it() {
    let config = ServerConfig { same_address: true, early_data: true, ..ServerConfig::default() };
    for (offset, expected) in [(0, JoinOutcome::Fresh), (100, JoinOutcome::Refused)] {
        let mut server = Server::new(config);
        server.begin(1, peer(1)).unwrap();
        server.happened();
        assert_eq!(server.handle_join(at(1), peer(2), &join(1, offset, 0)), expected);
        assert_eq!(server.happened(), [ServerEvent::Expired { id: id(1) }]);
    }
    let mut server = Server::new(config);
    server.datagram(peer(1), &request(1, 0, 0, &[hello(1, 100), vec![23; 50]].concat())).unwrap();
    server.datagram(peer(1), &request(1, 1, 150, &[23; 50])).unwrap();
    let [ServerEvent::Started { bytes, .. }] = &server.happened()[..] else {
        panic!("early data waits for the proof");
    };
    assert_eq!(bytes.len(), 100);
    let other_port = SocketAddr::new(peer(1).ip(), 1);
    let JoinOutcome::Joined(handover) = server.handle_join(at(1), other_port, &join(1, 0, 0))
    else {
        panic!("the port may differ");
    };
    assert_eq!((handover.client_bytes, handover.skip), (vec![23; 100], 200));
}

#[test]
fn early_data_is_passed_on_in_order_where_allowed() {
    let mut server = Server::new(ServerConfig { early_data: true, ..ServerConfig::default() });
    let stream = [hello(1, 100), (0..150).collect()].concat();
    for (seq, range) in [(0, 200..250), (1, 0..120), (2, 120..200)] {
        server.datagram(peer(1), &request(1, seq, range.start, &stream[range])).unwrap();
    }
    let passed: Vec<u8> = server
        .happened()
        .into_iter()
        .flat_map(|event| match event {
            ServerEvent::Started { bytes, .. } | ServerEvent::ClientBytes { bytes, .. } => bytes,
            ServerEvent::Expired { .. } => panic!("the session runs"),
        })
        .collect();
    assert_eq!(passed, stream);
}

// W-RUN-5, W-TAKEOVER-9
#[test]
fn early_data_waits_while_a_session_may_have_been_forgotten() {
    let mut server = Server::new(ServerConfig { early_data: true, ..ServerConfig::default() });
    let join_from_start = |server: &mut Server, millis, number| {
        server.handle_join(at(millis), peer(1), &join(number, 0, 0))
    };
    let joins = u64::try_from(RECENT_ENTRIES).unwrap();
    for number in 0..=joins {
        assert_eq!(join_from_start(&mut server, 0, number), JoinOutcome::Fresh);
    }
    assert_eq!(join_from_start(&mut server, 1, 0), JoinOutcome::Refused, "forgotten early");
    let stream = |number| [hello(number, 100), vec![23; 50]].concat();
    let passed = |server: &mut Server, millis, number, seq, range: Range<usize>| {
        let bytes = request(number, seq, range.start, &stream(number)[range]);
        server.handle_datagram(at(millis), peer(1), None, &bytes).unwrap();
        let bytes = server.happened().into_iter().map(|event| match event {
            ServerEvent::Started { bytes, .. } | ServerEvent::ClientBytes { bytes, .. } => {
                bytes.len()
            }
            ServerEvent::Expired { .. } => 0,
        });
        bytes.sum::<usize>()
    };
    let (held, other) = (joins + 1, joins + 2);
    assert_eq!(passed(&mut server, 9_999, held, 0, 0..120), 100);
    assert_eq!(passed(&mut server, 10_000, held, 1, 120..150), 0, "for as long as it runs");
    assert_eq!(passed(&mut server, 10_000, other, 0, 0..150), 150);
    assert_eq!(join_from_start(&mut server, 10_000, other + 1), JoinOutcome::Fresh);
}

#[test]
fn a_session_belongs_to_the_address_and_port_that_began_it() {
    let mut server = server();
    server.begin(1, peer(1)).unwrap();
    let other_port = SocketAddr::new(peer(1).ip(), 1);
    for stranger in [peer(2), other_port] {
        let conflicting = request(1, 1, 0, &[0; 50]);
        assert_eq!(server.datagram(stranger, &conflicting), Err(Discard::Address));
    }
    let other_hello = request(1, 3, 0, &hello(2, 100));
    assert_eq!(
        server.datagram(peer(2), &other_hello),
        Err(Discard::Address),
        "same id, other client"
    );
    let acknowledged = server.poll_transmit().map(|transmit| transmit.to);
    server.handle_origin_data(id(1), &[1; 100]);
    server.datagram(peer(1), &request(1, 3, 0, &[])).unwrap();
    let answered = server.poll_transmit().map(|transmit| transmit.to);
    assert_eq!([acknowledged, answered], [Some(peer(1)); 2]);
}

#[test]
fn bytes_that_disagree_are_dropped_whole() {
    let mut server = server();
    let bytes = hello(1, 100);
    server.datagram(peer(1), &request(1, 0, 0, &bytes[..50])).unwrap();
    let mut forged = bytes.clone();
    forged[20] ^= 1;
    let conflict = Err(Discard::Misfit(Misfit::Conflict));
    assert_eq!(server.datagram(peer(1), &request(1, 1, 0, &forged)), conflict);
    assert_eq!(
        server.datagram(peer(1), &request(1, 1, 0, &bytes)),
        Ok(()),
        "its sequence number is still free"
    );
    assert_eq!(server.happened().len(), 1);
}

#[test]
fn a_stream_without_a_hello_is_forgotten_at_once() {
    let mut server = server();
    let http = request(1, 0, 0, b"GET / HTTP/1.1\r\n");
    let not_tls = Err(Discard::Hello(HelloError::NotTls));
    assert_eq!(server.datagram(peer(1), &http), not_tls);
    assert!(server.is_empty() && server.transmitted().is_empty());
}

#[test]
fn one_hello_runs_once() {
    let mut server = server();
    let [two, three] = [2, 3].map(|number| request(number, 0, 0, &hello(1, 100)));
    server.begin(1, peer(1)).unwrap();
    assert_eq!(server.datagram(peer(2), &two), Err(Discard::HelloRuns), "replayed over UDP");
    let JoinOutcome::Joined(..) = server.handle_join(at(1), peer(1), &join(1, 0, 0)) else {
        panic!("the session runs");
    };
    assert_eq!(server.datagram(peer(1), &three), Err(Discard::HelloRuns), "after the join");
    assert_eq!(
        server.handle_plain(at(2), peer(1), &hello(1, 100)),
        Attachment::New,
        "the session was joined"
    );
    let later = at(2) + HELLO_MEMORY;
    assert_eq!(
        server.handle_datagram(later, peer(1), None, &three),
        Ok(()),
        "the hello is forgotten"
    );
}

#[test]
fn a_plain_stream_is_attached_to_its_running_hello() {
    let mut server = server();
    let bytes = hello(1, 100);
    server.begin(1, peer(1)).unwrap();
    server.handle_origin_data(id(1), &[4; 300]);
    assert_eq!(server.handle_plain(at(1), peer(2), &bytes), Attachment::New, "another address");
    assert_eq!(server.unproven(), 1);
    let port = SocketAddr::new(peer(1).ip(), 77);
    let Attachment::Attached(handover) = server.handle_plain(at(1), port, &bytes) else {
        panic!("the session runs");
    };
    assert_eq!((handover.skip, handover.server_bytes), (100, vec![4; 300]));
    assert!(server.is_empty());
    assert_eq!(server.handle_join(at(2), peer(1), &join(1, 0, 0)), JoinOutcome::Refused);
}

#[test]
fn a_plain_stream_is_attached_as_long_as_its_session_runs() {
    let mut server = server();
    server.begin(1, peer(1)).unwrap();
    server.handle_timeout(at(10_000));
    assert_eq!(server.unproven(), 1, "spared");
    let again =
        server.handle_datagram(at(15_000), peer(1), None, &request(2, 0, 0, &hello(1, 100)));
    assert_eq!(again, Err(Discard::HelloRuns));
    let outcome = server.handle_plain(at(15_000), peer(1), &hello(1, 100));
    assert!(matches!(outcome, Attachment::Attached(handover) if handover.id == id(1)));
}

#[test]
fn fragments_of_a_hello_that_came_on_tcp_free_their_slot() {
    let mut server = server();
    let bytes = hello(1, 100);
    server.datagram(peer(1), &request(1, 0, 0, &bytes[..50])).unwrap();
    server.datagram(peer(1), &request(2, 0, 0, &hello(2, 100)[..50])).unwrap();
    server.datagram(peer(2), &request(3, 0, 0, &bytes[..50])).unwrap();
    assert_eq!(server.handle_plain(at(0), peer(1), &bytes), Attachment::New);
    let left: Vec<_> = server.sessions.keys().copied().collect();
    let mut expected = [id(2), id(3)];
    expected.sort();
    assert_eq!(left, expected, "only fragments of the same address and bytes go");
}

#[test]
fn a_hello_that_runs_on_tcp_does_not_run_again_over_udp() {
    let mut server = server();
    assert_eq!(server.handle_plain(at(0), peer(1), &hello(1, 100)), Attachment::New);
    assert_eq!(server.begin(1, peer(1)), Err(Discard::HelloRuns));
    assert!(server.is_empty() && server.happened().is_empty() && server.transmitted().is_empty());
}

#[test]
fn an_origin_lost_before_its_first_byte_leaves_the_session_to_tcp() {
    let mut server = server();
    server.begin(1, peer(1)).unwrap();
    server.handle_origin_lost(at(1), id(1));
    assert!(server.is_empty());
    assert_eq!(server.handle_join(at(2), peer(1), &join(1, 0, 0)), JoinOutcome::Fresh);
}

#[test]
fn the_handover_reports_how_the_origin_ended() {
    for end in [OriginEnd::Finished, OriginEnd::Reset] {
        let mut server = server();
        server.begin(1, peer(1)).unwrap();
        server.handle_origin_data(id(1), &[1; 10]);
        match end {
            OriginEnd::Reset => server.handle_origin_lost(at(1), id(1)),
            _ => server.handle_origin_finished(id(1)),
        }
        let JoinOutcome::Joined(handover) = server.handle_join(at(2), peer(1), &join(1, 0, 0))
        else {
            panic!("the session runs");
        };
        assert_eq!((handover.server_bytes.len(), handover.end), (10, end));
    }
}

#[test]
fn calls_for_unknown_sessions_do_nothing() {
    let mut server = server();
    assert_eq!(server.handle_origin_data(id(1), &[1]), 0);
    server.handle_origin_finished(id(1));
    server.handle_origin_lost(at(1), id(1));
    server.handle_timeout(at(2));
    assert!(server.is_empty() && server.happened().is_empty() && server.transmitted().is_empty());
}

#[test]
fn a_hello_of_any_size_up_to_the_limit_runs_over_udp() {
    for size in [56, 1211, 1212, 1213, 2424, 2425, CLIENT_BYTES - 1, CLIENT_BYTES] {
        let mut server = server();
        let bytes = hello(1, size);
        for (seq, (index, piece)) in (0..).zip(bytes.chunks(REQUEST_PAYLOAD_MAX).enumerate()) {
            let datagram = request(1, seq, index * REQUEST_PAYLOAD_MAX, piece);
            assert_eq!(server.datagram(peer(1), &datagram), Ok(()), "{size}");
        }
        assert_eq!(server.happened().len(), 1, "{size}");
    }
}
