//! Each decision at its limit and one over, in virtual time.

extern crate std;

use alloc::vec::Vec;

use headstart_testkit::hello::{CraftedHello, record};
use proptest::prelude::*;

use super::*;

const ROOM: usize = 1180;
const MS: Duration = Duration::from_millis(1);

/// Time at which the tests begin: not the epoch.
const BEGIN: Instant = Instant::from_epoch(Duration::from_secs(7));

/// Builds a ClientHello that makes its stream `bytes` long.
fn hello(bytes: usize) -> Vec<u8> {
    CraftedHello::default().padded_to(bytes).stream()
}

/// Builds a ClientHello that announces early data.
fn resuming() -> Vec<u8> {
    CraftedHello::default().with(42, []).ticket(&[0xc0; 208]).stream()
}

fn early_data() -> Vec<u8> {
    [record(20, &[1]), record(23, &[5; 100])].concat()
}

fn offered() -> FastOpen {
    let mut fast = FastOpen::new(ROOM);
    fast.offer(BEGIN, None);
    fast
}

/// Returns one whose SYN left with data at the beginning.
fn sent(rtt: Option<Duration>) -> FastOpen {
    let mut fast = FastOpen::new(ROOM);
    fast.offer(BEGIN, rtt);
    fast.handle_app_data(BEGIN, &hello(300));
    assert_eq!(fast.poll_flight().unwrap().bytes, 300);
    fast.handle_sent(BEGIN, 300);
    fast
}

fn events(fast: &mut FastOpen) -> Vec<FastOpenEvent> {
    core::iter::from_fn(|| fast.poll_event()).collect()
}

fn refused(fast: &mut FastOpen) -> NotFast {
    assert!(fast.is_over() && !fast.is_waiting() && fast.poll_flight().is_none());
    match events(fast).last() {
        Some(FastOpenEvent::NotFast(reason)) => *reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_syn_does_not_wait_without_an_offer() {
    let mut fast = FastOpen::new(ROOM);
    fast.handle_app_data(BEGIN, &hello(300));
    assert!(!fast.is_waiting() && fast.poll_flight().is_none() && fast.poll_timeout().is_none());
    fast.give_up();
    assert!(fast.is_over() && fast.poll_event().is_none());
}

#[test]
fn a_ready_client_hello_leaves_at_once() {
    let mut fast = FastOpen::new(ROOM);
    fast.handle_app_data(BEGIN, &hello(300));
    fast.offer(BEGIN, None);
    assert!(fast.is_waiting(), "the SYN has to carry it");
    let flight = fast.poll_flight().unwrap();
    assert_eq!((flight.bytes, flight.hello, flight.ticket_cookie), (300, 300, None));
    assert!(fast.poll_flight().is_none() && fast.is_waiting());
    fast.handle_sent(BEGIN, 300);
    assert!(!fast.is_waiting());
    let sent = FastOpenEvent::SynSent { bytes: 300, early_data: false };
    assert_eq!(events(&mut fast), [sent]);
}

#[test]
fn the_syn_waits_for_the_client_hello_up_to_the_limit() {
    let mut fast = offered();
    assert_eq!(events(&mut fast), [FastOpenEvent::Waiting]);
    assert_eq!(fast.poll_timeout(), Some(BEGIN + SYN_DATA_WAIT));
    let whole = hello(300);
    fast.handle_app_data(BEGIN + MS, &whole[..299]);
    fast.handle_timeout(BEGIN + SYN_DATA_WAIT - MS);
    assert!(fast.is_waiting() && fast.poll_flight().is_none());
    fast.handle_app_data(BEGIN + SYN_DATA_WAIT - MS, &whole);
    assert_eq!(fast.poll_flight().unwrap().bytes, 300);

    let mut fast = offered();
    fast.handle_app_data(BEGIN + MS, &whole[..299]);
    fast.handle_timeout(BEGIN + SYN_DATA_WAIT);
    assert_eq!(refused(&mut fast), NotFast::HelloLate);
    fast.handle_app_data(BEGIN + SYN_DATA_WAIT, &whole);
    assert!(fast.poll_flight().is_none(), "the SYN has left");
}

#[test]
fn one_wait_covers_the_offer_and_the_client_hello() {
    let mut fast = FastOpen::new(ROOM);
    fast.expect(BEGIN);
    assert!(fast.is_waiting() && fast.is_open_question());
    fast.offer(BEGIN + SYN_DATA_WAIT - MS, None);
    assert_eq!(fast.poll_timeout(), Some(BEGIN + SYN_DATA_WAIT));
    fast.handle_timeout(BEGIN + SYN_DATA_WAIT);
    assert_eq!(refused(&mut fast), NotFast::HelloLate);

    let mut fast = FastOpen::new(ROOM);
    fast.expect(BEGIN);
    fast.handle_app_data(BEGIN, &hello(300));
    assert!(fast.is_waiting() && fast.poll_flight().is_none());
    fast.offer(BEGIN + MS, None);
    assert_eq!(fast.poll_flight().unwrap().bytes, 300);

    let mut fast = FastOpen::new(ROOM);
    fast.expect(BEGIN);
    fast.handle_app_data(BEGIN, &hello(300));
    fast.handle_timeout(BEGIN + SYN_DATA_WAIT);
    assert_eq!(refused(&mut fast), NotFast::OfferLate);
}

#[test]
fn a_client_hello_may_fill_the_room_exactly() {
    let mut fast = offered();
    fast.handle_app_data(BEGIN, &hello(ROOM));
    assert_eq!(fast.poll_flight().unwrap().bytes, ROOM);

    let mut fast = offered();
    fast.handle_app_data(BEGIN, &hello(ROOM + 1));
    assert_eq!(refused(&mut fast), NotFast::TooLarge);

    // That is certain before it is complete, and before the server is known.
    let mut fast = FastOpen::new(ROOM);
    fast.expect(BEGIN);
    fast.handle_app_data(BEGIN, &hello(3000)[..ROOM]);
    assert_eq!(refused(&mut fast), NotFast::TooLarge);
}

#[test]
fn other_protocols_do_not_wait() {
    let mut fast = offered();
    fast.handle_app_data(BEGIN, b"GET / HTTP/1.1\r\n");
    assert_eq!(refused(&mut fast), NotFast::NotTls);
    let mut fast = offered();
    fast.handle_app_data(BEGIN, &record(22, &[2, 0, 0, 0]));
    assert_eq!(refused(&mut fast), NotFast::Hello);
}

#[test]
fn the_syn_waits_for_announced_early_data() {
    let (hello, early) = (resuming(), early_data());
    let mut fast = offered();
    fast.handle_app_data(BEGIN, &hello);
    let most = [&hello[..], &early[..early.len() - 1]].concat();
    fast.handle_app_data(BEGIN + MS, &most);
    assert!(fast.is_waiting() && fast.poll_flight().is_none());
    let all = [&hello[..], &early].concat();
    fast.handle_app_data(BEGIN + MS, &all);
    let flight = fast.poll_flight().unwrap();
    assert_eq!((flight.bytes, flight.hello), (all.len(), hello.len()));
    assert_eq!(flight.ticket_cookie, Some(Cookie::new([0xc0; 16])));
    fast.handle_sent(BEGIN + MS, all.len());
    let last = events(&mut fast).pop();
    assert_eq!(last, Some(FastOpenEvent::SynSent { bytes: all.len(), early_data: true }));

    // Without the early data, the ClientHello still leaves with the SYN.
    let mut fast = offered();
    fast.handle_app_data(BEGIN, &hello);
    fast.handle_timeout(BEGIN + SYN_DATA_WAIT);
    assert_eq!(fast.poll_flight().unwrap().bytes, hello.len());
}

#[test]
fn early_data_that_does_not_fit_is_cut() {
    let all = [resuming(), record(23, &[5; 3000])].concat();
    let mut fast = offered();
    fast.handle_app_data(BEGIN, &all);
    assert_eq!(fast.poll_flight().unwrap().bytes, ROOM);
}

#[test]
fn change_cipher_spec_alone_is_not_early_data() {
    assert!(!holds_early_data(&record(20, &[1])));
    assert!(holds_early_data(&early_data()));
    assert!(!holds_early_data(&[]) && !holds_early_data(&[23, 3, 3, 0]));
}

#[test]
fn a_syn_is_silent_after_300_ms_or_two_round_trips() {
    for (rtt, silence) in
        [(None, SYN_SILENCE), (Some(150 * MS), SYN_SILENCE), (Some(151 * MS), 302 * MS)]
    {
        let mut fast = sent(rtt);
        assert_eq!(fast.poll_timeout(), Some(BEGIN + silence));
        fast.handle_timeout(BEGIN + silence - MS);
        assert!(!fast.poll_beside());
        fast.handle_timeout(BEGIN + silence);
        assert!(fast.poll_beside() && !fast.poll_beside(), "once");
        assert_eq!(fast.poll_timeout(), None);
        assert_eq!(events(&mut fast).pop(), Some(FastOpenEvent::Silent));
    }
}

#[test]
fn plain_tcp_follows_a_failed_syn_once() {
    let mut fast = sent(None);
    fast.handle_failed();
    fast.handle_failed();
    assert!(fast.poll_beside() && !fast.poll_beside());
    assert_eq!(events(&mut fast).pop(), Some(FastOpenEvent::Failed));

    // After the silence, plain TCP runs already.
    let mut fast = sent(None);
    fast.handle_timeout(BEGIN + SYN_SILENCE);
    assert!(fast.poll_beside());
    fast.handle_failed();
    assert!(!fast.poll_beside());
}

fn nothing(_: &mut FastOpen) {}

fn silent(fast: &mut FastOpen) {
    fast.handle_timeout(BEGIN + SYN_SILENCE);
}

#[test]
fn verdicts_on_the_path() {
    use Verdict::*;
    let taken = Winner::Syn { accepted: true };
    let bare = Winner::Syn { accepted: false };
    let elsewhere = Winner::Elsewhere { took: SYN_SILENCE };
    type Happening = fn(&mut FastOpen);
    let failed: Happening = FastOpen::handle_failed;
    let cases: [(Happening, Winner, Option<Verdict>); 12] = [
        (nothing, taken, Some(Accepted)),
        (nothing, bare, Some(Refused)),
        (nothing, Winner::SameAddress, None),
        (nothing, elsewhere, None),
        (silent, taken, Some(Accepted)),
        (silent, bare, Some(Lost)),
        (silent, Winner::SameAddress, Some(Lost)),
        (silent, elsewhere, Some(Lost)),
        (failed, Winner::SameAddress, Some(Lost)),
        (failed, elsewhere, Some(Lost)),
        (failed, bare, Some(Lost)),
        (failed, taken, Some(Accepted)),
    ];
    for (case, (before, winner, verdict)) in cases.into_iter().enumerate() {
        let mut fast = sent(None);
        before(&mut fast);
        assert_eq!(fast.handle_connected(BEGIN + SYN_SILENCE, winner), verdict, "case {case}");
        assert!(fast.is_over() && !fast.poll_beside());
    }
    assert_eq!(offered().handle_connected(BEGIN, Winner::SameAddress), None);
}

/// A client tries another address after 250 ms, before the SYN counts as silent.
#[test]
fn an_overtaken_syn_is_lost_after_two_round_trips_and_slow_before() {
    for (rtt, took, verdict) in [
        (None, 20, Some(Verdict::Lost)),
        (None, 135, Some(Verdict::Lost)),
        (None, 136, None), // as slow as the other one
        (Some(150 * MS), 20, Some(Verdict::Lost)),
        (Some(151 * MS), 20, None), // its answer is on its way
    ] {
        let winner = Winner::Elsewhere { took: took * MS };
        assert_eq!(sent(rtt).handle_connected(BEGIN + 270 * MS, winner), verdict, "{rtt:?} {took}");
    }
}

#[test]
fn a_caller_without_a_cookie_lets_the_syn_go() {
    let mut fast = offered();
    fast.handle_app_data(BEGIN, &hello(300));
    fast.poll_flight().unwrap();
    fast.give_up();
    assert!(!fast.is_waiting() && fast.is_over());
    // A SYN that has left cannot be given up.
    let mut fast = sent(None);
    fast.give_up();
    assert!(!fast.is_over());
}

#[test]
fn whether_the_server_takes_cookies_is_open_until_it_is_known() {
    let mut fast = FastOpen::new(ROOM);
    assert!(fast.is_open_question());
    fast.expect(BEGIN);
    assert!(fast.is_open_question());
    fast.offer(BEGIN, None);
    assert!(!fast.is_open_question() && !sent(None).is_open_question());
}

/// Something that may happen before the decision.
#[derive(Clone, Debug)]
enum Step {
    Expect,
    Offer(Option<u64>),
    Write(usize),
    Pass(u64),
    GiveUp,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        Just(Step::Expect),
        proptest::option::of(0u64..1000).prop_map(Step::Offer),
        (1usize..600).prop_map(Step::Write),
        (1u64..6).prop_map(Step::Pass),
        Just(Step::GiveUp),
    ]
}

fn streams() -> impl Strategy<Value = Vec<u8>> {
    let early = [resuming(), early_data()].concat();
    prop_oneof![
        (100usize..2000).prop_map(hello),
        Just(early),
        proptest::collection::vec(any::<u8>(), 1..400),
    ]
}

proptest! {
    /// In any order of events, no SYN waits beyond the limit, and a flight fits the SYN and holds a
    /// whole ClientHello.
    #[test]
    fn no_wait_is_longer_and_no_flight_larger(
        stream in streams(),
        steps in proptest::collection::vec(step(), 0..40),
    ) {
        let mut fast = FastOpen::new(ROOM);
        let (mut now, mut written, mut waits_since) = (BEGIN, 0, None);
        for step in steps {
            match step {
                Step::Expect => fast.expect(now),
                Step::Offer(rtt) => fast.offer(now, rtt.map(Duration::from_millis)),
                Step::Write(bytes) => {
                    written = stream.len().min(written + bytes);
                    fast.handle_app_data(now, &stream[..written]);
                }
                Step::Pass(millis) => {
                    let end = now + Duration::from_millis(millis);
                    if let Some(timeout) = fast.poll_timeout().filter(|timeout| *timeout <= end) {
                        now = timeout;
                        fast.handle_timeout(now);
                        prop_assert!(fast.poll_timeout().is_none());
                    }
                    now = end;
                }
                Step::GiveUp => fast.give_up(),
            }
            if let Some(flight) = fast.poll_flight() {
                prop_assert!(flight.bytes <= ROOM && flight.hello <= flight.bytes);
                prop_assert!(flight.bytes <= written);
                let whole = hello::read(&stream[..flight.hello]);
                prop_assert!(matches!(whole, Ok(Progress::Complete(_))), "{whole:?}");
                fast.handle_sent(now, flight.bytes);
                prop_assert!(!fast.is_waiting());
                return Ok(());
            }
            match fast.is_waiting() {
                true => {
                    let since = *waits_since.get_or_insert(now);
                    prop_assert!(now.since(since) < SYN_DATA_WAIT);
                }
                false => waits_since = None,
            }
        }
    }
}
