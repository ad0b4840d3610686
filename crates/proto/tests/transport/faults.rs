//! Effects of misbehaving servers and forged packets on the client alone.

use std::time::Duration;

use headstart_proto::hello;
use headstart_proto::join::{Join, REFUSAL, acceptance};
use headstart_proto::limits::{CLIENT_BYTES, JOIN_ANSWER_LIFE, SESSION_LIFE};
use headstart_proto::wire::{Request, Response};
use headstart_proto::{
    Client, ClientConfig, ClientEvent, Instant, JoinKey, PlainReason, ResetReason, RouteTag, Wait,
};

use crate::sim::{GRACE, RTT, client_hello};

const WAIT: Option<Wait> = Some(Wait::within(GRACE));

const FLIGHT: &[u8] = b"a server flight of forty bytes, or so..";
const FLIGHT_LEN: u32 = 39;

fn at(millis: u64) -> Instant {
    Instant::from_epoch(Duration::from_millis(millis))
}

fn offered(early_data: bool) -> Client {
    let config = ClientConfig { slots: 11, early_data, hold: false };
    let mut client = Client::new(JoinKey::new([7; 16]), config);
    client.offer_udp(config);
    client.handle_app_data(at(0), &client_hello(300));
    client
}

fn response(client: &mut Client, seq: u8, ack: u32, payload: &[u8]) -> Vec<u8> {
    let id = JoinKey::new([7; 16]).session_id();
    while client.poll_datagram().is_some() {}
    let (tag, offset) = (RouteTag([1; 4]), 0);
    Response { id, seq, tag, ack, offset, payload }.emit()
}

/// Returns a committed client: TCP is connected, the flight was delivered, no join was sent.
fn committed() -> Client {
    let mut client = offered(false);
    let datagram = response(&mut client, 1, 300, FLIGHT);
    client.handle_datagram(at(90), &datagram);
    assert_eq!(client.poll_app(), None, "withheld until TCP is connected");
    client.handle_tcp_connected(at(100), true, WAIT);
    assert_eq!(client.poll_app().as_deref(), Some(FLIGHT));
    client
}

/// Returns a [`committed`] client that has sent its join.
fn joining() -> Client {
    let mut client = committed();
    client.handle_app_data(at(100), b"Finished");
    assert_eq!(after_join(&client.poll_tcp().unwrap_or_default()), Some(&b"Finished"[..]));
    client
}

/// Returns what follows the join; `None` if the bytes do not begin with one.
fn after_join(bytes: &[u8]) -> Option<&[u8]> {
    let hello = hello::read(bytes).ok()?.complete()?;
    Join::read(&hello).map(|_| &bytes[hello.end..])
}

fn answer(server_offset: u32) -> Vec<u8> {
    acceptance(&JoinKey::new([7; 16]), server_offset)
}

fn last_event(client: &mut Client) -> Option<ClientEvent> {
    std::iter::from_fn(|| client.poll_event()).last()
}

#[test]
fn a_refusal_resets_and_hides_what_follows_it() {
    let mut client = joining();
    client.handle_tcp_data(at(0), &[&REFUSAL, &b"garbage"[..]].concat());
    assert!(client.is_reset());
    assert_eq!(last_event(&mut client), Some(ClientEvent::Reset(ResetReason::CommittedRefusal)));
    client.handle_tcp_data(at(0), b"more");
    client.handle_tcp_finished();
    assert_eq!(client.poll_app(), None);
    assert_eq!(client.app_room(), 0);
    assert!(!client.is_app_finished() && !client.is_transparent() && !client.wants_tcp_finish());
}

#[test]
fn the_answer_of_a_server_that_is_no_edge_is_a_refusal() {
    let mut client = joining();
    client.handle_tcp_data(at(0), &acceptance(&JoinKey::new([8; 16]), 0));
    assert_eq!(last_event(&mut client), Some(ClientEvent::Reset(ResetReason::CommittedRefusal)));
}

/// The answer may begin earlier, with the record that holds what was asked for, and not later.
#[test]
fn a_join_accepted_at_another_offset_than_a_records_resets() {
    let mut client = joining();
    client.handle_tcp_data(at(0), &answer(FLIGHT_LEN + 1));
    assert_eq!(last_event(&mut client), Some(ClientEvent::Reset(ResetReason::Protocol)));
    for start in 0..=FLIGHT_LEN {
        let mut client = joining();
        let stream = [&FLIGHT[start as usize..], b"response"].concat();
        client.handle_tcp_data(at(0), &[answer(start), stream].concat());
        assert_eq!(client.poll_app().as_deref(), Some(&b"response"[..]), "from {start} on");
    }
}

#[test]
fn the_answer_may_come_byte_by_byte_between_datagrams() {
    let mut client = joining();
    let again = response(&mut client, 2, 300, FLIGHT);
    for byte in answer(FLIGHT_LEN) {
        assert!(!client.is_transparent());
        client.handle_tcp_data(at(0), &[byte]);
        client.handle_datagram(at(101), &again);
        assert_eq!(client.poll_app(), None);
    }
    assert!(client.is_transparent());
    client.handle_tcp_data(at(0), b"response");
    assert!(!client.is_transparent(), "bytes are queued");
    assert_eq!(client.poll_app().as_deref(), Some(&b"response"[..]));
    assert!(client.is_transparent());
}

// W-STREAM-1
#[test]
fn bytes_on_both_udp_and_tcp_reach_the_application_once() {
    let mut client = joining();
    let (head, tail) = FLIGHT.split_at(10);
    client.handle_tcp_data(at(0), &[answer(0), head.to_vec()].concat());
    assert!(!client.is_transparent(), "TCP repeats what was delivered");
    client.handle_tcp_data(at(0), &[tail, b"response"].concat());
    assert_eq!(client.poll_app().as_deref(), Some(&b"response"[..]));
    assert!(client.is_transparent());
}

#[test]
fn an_edge_that_has_answered_is_given_longer_for_server_bytes() {
    let first_bytes = GRACE * 2;
    let mut client = offered(false);
    let wait = Wait { first_bytes, ..Wait::within(GRACE) };
    client.handle_tcp_connected(at(100), true, Some(wait));
    assert_eq!(client.poll_timeout(), Some(at(100) + GRACE), "nothing has come");
    let ack = response(&mut client, 0, 300, b"");
    client.handle_datagram(at(101), &ack);
    assert_eq!(client.poll_timeout(), Some(at(100) + first_bytes));
    let first = response(&mut client, 1, 300, &FLIGHT[..10]);
    client.handle_datagram(at(110), &first);
    assert_eq!(client.poll_app().as_deref(), Some(&FLIGHT[..10]));
    assert_eq!(client.poll_timeout(), Some(at(110) + GRACE), "there are some");
}

#[test]
fn a_client_that_has_delivered_nothing_needs_no_join() {
    let mut client = offered(false);
    let ack = response(&mut client, 0, 300, b"");
    client.handle_datagram(at(100), &ack);
    client.handle_tcp_connected(at(100), true, WAIT);
    client.handle_timeout(at(125));
    let plain = ClientEvent::Plain(PlainReason::NoServerBytes);
    assert_eq!(last_event(&mut client), Some(plain));
    assert_eq!(client.poll_tcp(), Some(client_hello(300)));
    let late = response(&mut client, 1, 300, FLIGHT);
    client.handle_datagram(at(130), &late);
    assert_eq!(client.poll_app(), None);
    client.handle_tcp_data(at(0), FLIGHT);
    assert_eq!(client.poll_app().as_deref(), Some(FLIGHT));
}

#[test]
fn a_server_that_speaks_first_is_plain() {
    let mut client = offered(false);
    client.handle_tcp_connected(at(100), true, WAIT);
    client.handle_tcp_data(at(0), b"220 ready");
    assert_eq!(last_event(&mut client), Some(ClientEvent::FirstServerBytes { udp: false }));
    assert_eq!(client.poll_app().as_deref(), Some(&b"220 ready"[..]));
    assert_eq!(client.poll_tcp(), Some(client_hello(300)));
    let late = response(&mut client, 1, 300, FLIGHT);
    client.handle_datagram(at(110), &late);
    assert_eq!(client.poll_app(), None);
}

#[test]
fn the_application_sees_a_server_close_at_once() {
    let mut client = offered(false);
    client.handle_tcp_connected(at(100), true, WAIT);
    client.handle_tcp_finished();
    assert!(client.is_app_finished());
    let late = response(&mut client, 1, 300, FLIGHT);
    client.handle_datagram(at(110), &late);
    assert!(client.is_app_finished() && client.poll_app().is_none());
}

// W-STATE-8
#[test]
fn a_server_that_closes_on_a_committed_client_causes_a_reset() {
    let mut client = committed();
    client.handle_tcp_finished();
    assert_eq!(last_event(&mut client), Some(ClientEvent::Reset(ResetReason::Protocol)));
    let mut client = joining();
    client.handle_tcp_finished();
    assert_eq!(last_event(&mut client), Some(ClientEvent::Reset(ResetReason::CommittedRefusal)));
}

/// A process that stood still for eight seconds finds the datagram before its timer.
#[test]
fn a_late_timer_commits_nobody_to_a_session_that_may_be_forgotten() {
    for (millis, delivered) in [(7_999, Some(FLIGHT)), (8_000, None)] {
        let mut client = offered(false);
        client.handle_tcp_connected(at(100), true, WAIT);
        let datagram = response(&mut client, 1, 300, FLIGHT);
        client.handle_datagram(at(millis), &datagram);
        assert_eq!(client.poll_app().as_deref(), delivered);
        let is_join = client.poll_tcp().is_some_and(|bytes| after_join(&bytes).is_some());
        assert_eq!(is_join, delivered.is_some());
    }
}

#[test]
fn the_answer_to_a_join_has_two_minutes() {
    for (millis, open) in [(120_099, true), (120_100, false)] {
        let mut client = joining();
        client.handle_tcp_data(at(millis), &answer(FLIGHT_LEN));
        assert_eq!(client.is_reset(), !open);
        let lost = Some(ClientEvent::Reset(ResetReason::JoinLost));
        assert_eq!(last_event(&mut client) == lost, !open);
    }
    // A join that left late has what is left of them.
    let mut client = committed();
    client.handle_timeout(at(30_000));
    assert_eq!(client.poll_timeout(), Some(at(128_000)));
}

/// An edge that has forgotten the session begins another one, whose bytes are others.
#[test]
fn bytes_of_a_forgotten_session_are_not_mixed_with_those_of_another() {
    let mut client = offered(true);
    client.handle_app_data(at(1), b"early");
    client.handle_tcp_connected(at(100), true, WAIT);
    client.handle_timeout(at(125));
    assert!(client.poll_tcp().is_some_and(|bytes| after_join(&bytes).is_some()));
    let late = response(&mut client, 1, 300, FLIGHT);
    client.handle_datagram(at(130), &late);
    assert_eq!(client.poll_app(), None);
    client.handle_tcp_data(at(0), &[answer(0), b"another flight".to_vec()].concat());
    assert_eq!(client.poll_app().as_deref(), Some(&b"another flight"[..]));
}

#[test]
fn early_data_in_flight_never_falls_back_to_plain() {
    for closes in [false, true] {
        let mut client = offered(true);
        client.handle_app_data(at(1), b"early");
        client.handle_tcp_connected(at(100), true, WAIT);
        if closes {
            client.handle_tcp_finished();
            assert!(client.is_reset());
        } else {
            client.handle_unreachable(at(101));
            let bytes = client.poll_tcp().unwrap();
            assert_eq!(after_join(&bytes).map(<[u8]>::len), Some(305));
        }
    }
}

#[test]
fn forged_datagrams_are_ignored() {
    let mut client = offered(false);
    let good = response(&mut client, 0, 300, FLIGHT);
    let mut foreign = good.clone();
    foreign[5] ^= 1;
    let unsent_seq = response(&mut client, 15, 300, FLIGHT);
    let unsent_bytes = response(&mut client, 0, 301, FLIGHT);
    let far = Response {
        id: JoinKey::new([7; 16]).session_id(),
        seq: 0,
        tag: RouteTag([1; 4]),
        ack: 0,
        offset: 20 * 1024 - 1,
        payload: b"..",
    };
    for forged in [foreign, unsent_seq, unsent_bytes, far.emit(), vec![], good[..10].to_vec()] {
        while client.poll_event().is_some() {}
        client.handle_datagram(at(50), &forged);
        assert_eq!(last_event(&mut client), Some(ClientEvent::DatagramIgnored));
    }
    client.handle_datagram(at(50), &good);
    client.handle_datagram(at(50), &good);
    client.handle_tcp_connected(at(100), true, WAIT);
    assert_eq!(client.poll_app().as_deref(), Some(FLIGHT));
}

// W-STATE-15
#[test]
fn forged_unreachability_costs_the_saving_unless_an_answer_comes() {
    let mut client = offered(false);
    client.handle_unreachable(at(10));
    client.handle_tcp_connected(at(100), true, WAIT);
    let plain = ClientEvent::Plain(PlainReason::Unreachable);
    assert_eq!(last_event(&mut client), Some(plain));

    let mut client = offered(false);
    client.handle_unreachable(at(10));
    let datagram = response(&mut client, 0, 300, FLIGHT);
    client.handle_datagram(at(90), &datagram);
    client.handle_tcp_connected(at(100), true, WAIT);
    assert_eq!(client.poll_app().as_deref(), Some(FLIGHT));
}

#[test]
fn nothing_relies_on_a_session_that_may_have_ended() {
    let life = SESSION_LIFE.as_secs() * 1000;
    for (connected, relied_on) in [(life - 2001, true), (life - 2000, false), (life + 5000, false)]
    {
        let mut client = offered(false);
        let datagram = response(&mut client, 1, 300, FLIGHT);
        client.handle_datagram(at(90), &datagram);
        client.handle_tcp_connected(at(connected), true, WAIT);
        assert_eq!(client.poll_app().is_some(), relied_on);
        let plain = Some(ClientEvent::Plain(PlainReason::TcpLate));
        assert_eq!(last_event(&mut client) == plain, !relied_on);
    }
}

// W-STATE-16
#[test]
fn no_wait_outlasts_what_the_edge_promises() {
    let long = Duration::from_secs(4);
    let waits = [Wait::within(long), Wait { first_bytes: long, ..Wait::within(GRACE) }];
    for (wait, payload) in waits.into_iter().zip([FLIGHT, b""]) {
        let mut client = offered(false);
        let datagram = response(&mut client, 1, 300, payload);
        client.handle_datagram(at(90), &datagram);
        client.handle_tcp_connected(at(7900), true, Some(wait));
        assert_eq!(client.poll_timeout(), Some(at(8000)));
        client.handle_timeout(at(8000));
        assert!(client.is_decided());
    }
}

#[test]
fn bytes_of_an_application_that_stops_early_are_sent() {
    let mut client = offered(false);
    client.handle_app_finished(at(1));
    assert!(!client.wants_tcp_finish(), "TCP is not connected");
    client.handle_tcp_connected(at(100), true, WAIT);
    assert!(!client.wants_tcp_finish(), "it is undecided how TCP starts");
    client.handle_timeout(at(125));
    assert!(!client.wants_tcp_finish(), "bytes wait for TCP");
    assert!(!client.is_transparent(), "bytes wait for TCP");
    assert_eq!(client.poll_tcp(), Some(client_hello(300)));
    assert!(client.is_transparent());
    assert!(client.wants_tcp_finish());
}

#[test]
fn room_for_the_application_is_limited_in_every_state() {
    let mut client = offered(false);
    assert_eq!(client.app_room(), CLIENT_BYTES - 300);
    client.handle_app_data(at(0), &vec![0; CLIENT_BYTES - 300]);
    assert_eq!(client.app_room(), 0);
    client.handle_tcp_connected(at(100), true, WAIT);
    assert_eq!(client.app_room(), 0);
    client.handle_timeout(at(125));
    let queued = client.poll_tcp().unwrap();
    assert_eq!(queued.len(), CLIENT_BYTES);
    assert!(client.app_room() > 0);
}

// W-SEQ-1
#[test]
fn an_endless_flight_stops_at_the_last_sequence_number() {
    let mut client = offered(true);
    for _ in 0..100 {
        let bytes = vec![0x17; client.app_room().min(100)];
        client.handle_app_data(at(1), &bytes);
    }
    let datagrams: Vec<_> = std::iter::from_fn(|| client.poll_datagram()).collect();
    let seqs = datagrams.iter().map(|bytes| Request::parse(bytes).unwrap().seq);
    assert!(seqs.eq(0..16));
    // Everything that did not fit goes over TCP.
    client.handle_tcp_connected(at(100), true, WAIT);
    client.handle_timeout(Instant::ZERO + RTT + GRACE);
    let sent = client.poll_tcp().unwrap();
    assert_eq!(after_join(&sent).map(<[u8]>::len), Some(300 + 100 * 100));
}

#[test]
fn answers_of_two_starts_of_an_edge_are_not_mixed() {
    let mut client = offered(false);
    let first = response(&mut client, 1, 300, FLIGHT);
    let mut other = first.clone();
    other[2 + 12] = 2; // answers the next request
    other[2 + 12 + 1] = 2; // under another tag
    client.handle_datagram(at(90), &first);
    client.handle_datagram(at(90), &other);
    assert_eq!(last_event(&mut client), Some(ClientEvent::DatagramIgnored));
}

#[test]
fn a_forged_answer_does_not_use_up_its_sequence_number() {
    let mut client = offered(false);
    let first = response(&mut client, 1, 300, FLIGHT);
    let forged = response(&mut client, 2, 300, b"something that disagrees");
    let second = response(&mut client, 2, 300, FLIGHT);
    for datagram in [&first, &forged, &second] {
        client.handle_datagram(at(90), datagram);
    }
    assert!(matches!(last_event(&mut client), Some(ClientEvent::DatagramReceived { seq: 2, .. })));
}

/// The first one tells that the path lets datagrams through.
#[test]
fn an_answer_that_is_not_worth_a_wait_is_a_late_datagram() {
    assert!(!committed().awaits_late_datagram());
    let mut client = offered(false);
    assert!(!client.awaits_late_datagram());
    client.handle_tcp_connected(at(100), true, None);
    let plain = ClientEvent::Plain(PlainReason::NotAwaited);
    assert_eq!(last_event(&mut client), Some(plain));
    assert_eq!(client.poll_tcp(), Some(client_hello(300)));
    assert!(client.awaits_late_datagram());
    let late = response(&mut client, 0, 300, FLIGHT);
    client.handle_datagram(at(190), &late);
    assert_eq!(last_event(&mut client), Some(ClientEvent::LateDatagram));
    assert_eq!(client.poll_app(), None);
    assert!(!client.awaits_late_datagram());
}

#[test]
fn an_answer_that_is_there_already_needs_no_wait() {
    let mut client = offered(false);
    let first = response(&mut client, 0, 300, FLIGHT);
    client.handle_datagram(at(100), &first);
    client.handle_tcp_connected(at(100), true, None);
    assert_eq!(client.poll_app().as_deref(), Some(FLIGHT));
    client.handle_timeout(at(100));
    assert!(matches!(last_event(&mut client), Some(ClientEvent::JoinSent { .. })));
}

#[test]
fn the_grace_begins_when_the_answer_is_due() {
    let mut client = offered(false);
    let wait = Wait { due: Duration::from_millis(40), ..Wait::within(GRACE) };
    client.handle_tcp_connected(at(100), true, Some(wait));
    assert_eq!(client.poll_timeout(), Some(at(140) + GRACE));
    let first = response(&mut client, 1, 300, &FLIGHT[..10]);
    client.handle_datagram(at(142), &first);
    assert_eq!(client.poll_timeout(), Some(at(142) + GRACE));
    let second = response(&mut client, 2, 300, &FLIGHT[..10]);
    client.handle_datagram(at(180), &second);
    assert_eq!(client.poll_timeout(), Some(at(140) + GRACE * 2));
}

#[test]
fn the_wait_changes_until_the_first_datagram() {
    let mut client = offered(false);
    client.handle_tcp_connected(at(100), true, WAIT);
    client.set_wait(Wait::within(RTT));
    client.handle_timeout(at(100) + GRACE);
    assert_eq!(client.poll_timeout(), Some(at(100) + RTT));
    let first = response(&mut client, 1, 300, FLIGHT);
    client.handle_datagram(at(100), &first);
    client.set_wait(Wait::within(2 * RTT));
    assert_eq!(client.poll_timeout(), Some(at(100) + RTT));
}

#[test]
fn trickling_datagrams_cannot_stretch_the_wait_beyond_two_graces() {
    let mut client = offered(false);
    client.handle_tcp_connected(at(100), true, WAIT);
    let end = at(100) + GRACE * 2;
    for seq in 0..4 {
        let moment = at(100) + GRACE * u32::from(seq) / 2;
        let answer = response(&mut client, seq, 300, b"");
        client.handle_datagram(moment, &answer);
        assert!(client.poll_timeout().is_some_and(|deadline| deadline <= end), "{seq}");
    }
    client.handle_timeout(end);
    let plain = ClientEvent::Plain(PlainReason::NoServerBytes);
    assert_eq!(last_event(&mut client), Some(plain));
}

#[test]
fn a_client_reads_tcp_while_it_is_connected_and_the_application_keeps_up() {
    assert!(!offered(false).wants_tcp_data(), "TCP is not connected");
    let mut client = joining();
    assert!(client.wants_tcp_data(), "the answer to its join is to come");
    client.handle_tcp_data(at(101), &answer(FLIGHT_LEN));
    client.handle_tcp_data(at(101), &[0; 64 * 1024 - 1]);
    assert!(client.wants_tcp_data());
    client.handle_tcp_data(at(101), &[0]);
    assert!(!client.wants_tcp_data(), "the application reads nothing");
    assert!(client.poll_app().is_some() && client.wants_tcp_data());
    client.handle_tcp_failed();
    assert!(!client.wants_tcp_data());
}

#[test]
fn a_client_has_decided_once_it_joins_or_goes_on_over_tcp() {
    assert!(!offered(false).is_decided() && !committed().is_decided());
    let mut client = joining();
    assert!(client.is_decided(), "it has joined");
    client.handle_tcp_data(at(101), &answer(FLIGHT_LEN));
    assert!(client.is_decided());
    client.handle_tcp_failed();
    assert!(!client.is_decided());
}

#[test]
fn an_edge_is_offered_once_and_before_tcp_is_connected() {
    let config = ClientConfig { slots: 11, early_data: false, hold: false };
    let mut client = offered(false);
    while client.poll_datagram().is_some() {}
    client.offer_udp(ClientConfig { hold: true, ..config });
    assert_eq!(client.poll_datagram(), None);
    let datagram = response(&mut client, 1, 300, FLIGHT);
    client.handle_datagram(at(90), &datagram);
    client.handle_tcp_connected(at(100), true, WAIT);
    assert_eq!(client.poll_app().as_deref(), Some(FLIGHT), "held back by the second offer");

    let mut client = Client::new(JoinKey::new([7; 16]), config);
    client.handle_tcp_connected(at(100), true, WAIT);
    client.offer_udp(config);
    client.handle_app_data(at(100), &client_hello(300));
    assert_eq!(client.poll_datagram(), None);
    assert_eq!(client.poll_tcp(), Some(client_hello(300)));
}

/// Nothing of the session was delivered, so nothing has to hold until the answer is here.
#[test]
fn a_late_join_from_the_start_has_as_long_for_its_answer_as_any() {
    let mut client = offered(true);
    client.handle_app_data(at(1), b"early");
    client.handle_tcp_connected(at(9_000), true, WAIT);
    assert!(client.poll_tcp().is_some_and(|bytes| after_join(&bytes).is_some()));
    assert_eq!(client.poll_timeout(), Some(at(9_000) + JOIN_ANSWER_LIFE));
}

#[test]
fn a_refusal_before_the_first_server_byte_is_told_from_a_committed_one() {
    let mut client = offered(true);
    client.handle_app_data(at(1), b"early");
    client.handle_tcp_connected(at(100), true, WAIT);
    client.handle_timeout(at(125));
    client.handle_tcp_data(at(200), &REFUSAL);
    assert_eq!(last_event(&mut client), Some(ClientEvent::Reset(ResetReason::Refused)));
}

#[test]
fn an_answer_counts_once() {
    let mut client = offered(false);
    for seq in [1, 2] {
        let datagram = response(&mut client, seq, 300, FLIGHT);
        client.handle_datagram(at(90), &datagram);
        assert_ne!(last_event(&mut client), Some(ClientEvent::DatagramIgnored), "{seq}");
        client.handle_datagram(at(91), &datagram);
        assert_eq!(last_event(&mut client), Some(ClientEvent::DatagramIgnored), "{seq}");
    }
}
