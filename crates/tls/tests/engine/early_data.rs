//! Early data: taken once, answered early, and refused without harm.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use headstart_proto::hello::{self, ClientHello};
use headstart_tls::limits::{EARLY_DATA_MAX, OUTPUT_MAX, REPLAY_LIFE};
use headstart_tls::wire::binder_key;
use headstart_tls::{
    EarlyData, FirstSeen, MemoryFilter, NoEarlyData, Progress, Read, ReplayFilter, Session,
    TicketBinding, TlsError,
};

use crate::certificates::Certified;
use crate::site::{
    EARLY_MAX, NOW, Pair, Site, altered, filter, hands_out_cookies, pass, peer, read_all, renamed,
    takes_early_data, write,
};

const QUESTION: &[u8] = b"GET / early";
const ANSWER: &[u8] = b"200 early";

/// A client that has written the question early, and what it sends.
fn asks(site: &Site, session: Session) -> (Pair, Vec<u8>) {
    let mut pair = site.pair("a.test", Some(session));
    assert_eq!(pair.client.write_early(QUESTION), Ok(QUESTION.len()));
    assert_eq!(pair.client.handshake(), Ok(Progress::EarlyData));
    let flight = pair.client.poll_bytes().unwrap();
    (pair, flight)
}

/// The client's question of a whole connection, and what became of it.
fn ask(site: &Site, session: Session) -> EarlyData {
    let (mut pair, flight) = asks(site, session);
    pair.server.handle_bytes(&flight);
    finish(&mut pair)
}

/// Ends the handshake, and has the question arrive either way.
fn finish(pair: &mut Pair) -> EarlyData {
    pair.shake().unwrap();
    assert!(pair.client.facts().resumed && pair.server.facts().resumed);
    let became = pair.client.facts().early_data;
    assert_eq!(pair.server.facts().early_data, became);
    if became == EarlyData::Refused {
        write(&mut pair.client, QUESTION);
        pair.carry_to_server();
    }
    assert_eq!(read_all(&mut pair.server), QUESTION);
    let early = if became == EarlyData::Accepted { QUESTION.len() } else { 0 };
    assert_eq!(pair.server.facts().early_bytes, early as u64);
    became
}

#[test]
fn a_question_is_answered_before_the_client_has_finished() {
    let site = Site::with(takes_early_data);
    let (mut pair, flight) = asks(&site, site.session());
    pair.server.handle_bytes(&flight);
    assert_eq!(pair.server.handshake(), Ok(Progress::EarlyData));
    let facts = pair.server.facts();
    assert_eq!(facts.early_data, EarlyData::Accepted);
    assert!(facts.resumed && facts.version.is_some() && facts.group.is_some());
    let mut buffer = [0; 100];
    assert_eq!(pair.server.read(&mut buffer), Ok(Read::Bytes(QUESTION.len())));
    assert_eq!(&buffer[..QUESTION.len()], QUESTION);
    assert_eq!(pair.server.facts().early_bytes, QUESTION.len() as u64);
    write(&mut pair.server, ANSWER);

    pass(&mut pair.server, &mut pair.client);
    assert_eq!(read_all(&mut pair.client), ANSWER, "one flight each way");
    assert_eq!(pair.client.facts().early_data, EarlyData::Accepted);
    assert_eq!(pair.server.handshake(), Ok(Progress::EarlyData), "still without the Finished");

    write(&mut pair.client, b"later");
    pair.shake().unwrap();
    assert_eq!(read_all(&mut pair.server), b"later");
    assert_eq!(pair.server.facts().early_bytes, QUESTION.len() as u64, "later bytes are not early");
    assert_eq!(pair.sessions().len(), 1);
}

#[test]
fn early_data_may_come_in_pieces_and_the_answer_as_well() {
    let site = Site::with(takes_early_data);
    let (mut pair, flight) = asks(&site, site.session());
    for byte in &flight {
        pair.server.handle_bytes(&[*byte]);
        pair.server.handshake().unwrap();
    }
    assert_eq!(pair.client.write_early(b", more"), Ok(6));
    pair.carry_to_server();
    let mut got = Vec::new();
    let mut buffer = [0; 3];
    while let Read::Bytes(count) = pair.server.read(&mut buffer).unwrap() {
        got.extend_from_slice(&buffer[..count]);
    }
    assert_eq!(got, [QUESTION, b", more"].concat());
    for byte in ANSWER {
        write(&mut pair.server, &[*byte]);
    }
    pair.carry_to_client();
    assert_eq!(read_all(&mut pair.client), ANSWER);
    pair.carry_to_server();
    write(&mut pair.server, b"!");
    assert_eq!(pair.server.handshake(), Ok(Progress::Done));
    write(&mut pair.server, b"?");
    pair.carry_to_client();
    assert_eq!(read_all(&mut pair.client), b"!?");
}

#[test]
fn a_server_that_does_not_look_finds_early_data_after_the_handshake() {
    let site = Site::with(takes_early_data);
    assert_eq!(ask(&site, site.session()), EarlyData::Accepted);
}

#[test]
fn every_ticket_in_a_chain_takes_early_data() {
    let site = Site::with(|config| {
        takes_early_data(config);
        hands_out_cookies(config);
    });
    let mut session = site.session();
    for _ in 0..4 {
        let (mut pair, flight) = asks(&site, session);
        pair.server.handle_bytes(&flight);
        assert_eq!(finish(&mut pair), EarlyData::Accepted);
        let new = pair.sessions().pop().unwrap();
        assert_eq!(new.max_early_data, EARLY_MAX);
        session = new.session;
    }
}

#[test]
fn a_copy_is_resumed_and_its_early_data_refused() {
    let site = Site::with(takes_early_data);
    let (mut pair, flight) = asks(&site, site.session());
    pair.server.handle_bytes(&flight);
    assert_eq!(pair.server.handshake(), Ok(Progress::EarlyData));
    assert_eq!(read_all(&mut pair.server), QUESTION);
    for _ in 0..3 {
        let mut copy = site.accept();
        copy.handle_bytes(&flight);
        assert_eq!(copy.handshake(), Ok(Progress::Wait));
        assert_eq!(copy.read(&mut [0; 100]), Ok(Read::Wait));
        assert_eq!(copy.write(ANSWER), Ok(0), "nobody is there");
    }
    // It is the ClientHello that comes once; the same ticket may come in another one.
    let mut first = site.accept();
    let session = site.session();
    let (_, one) = asks(&site, session.clone());
    first.handle_bytes(&one);
    assert_eq!(first.handshake(), Ok(Progress::EarlyData));
    assert_eq!(ask(&site, session), EarlyData::Accepted);
}

/// OpenSSL gives up the session of a connection that ends without a close_notify, and a ClientHello
/// with early data of such a session fails.
#[test]
fn a_session_is_offered_again_after_a_connection_that_broke() {
    let site = Site::with(takes_early_data);
    let session = Session::from_bytes(site.session().as_bytes()).unwrap();
    let (mut pair, flight) = asks(&site, session.clone());
    pair.server.handle_bytes(&flight);
    assert_eq!(pair.server.handshake(), Ok(Progress::EarlyData));
    pass(&mut pair.server, &mut pair.client);
    assert_eq!(pair.client.handshake(), Ok(Progress::Done));
    drop(pair);
    assert_eq!(ask(&site, session), EarlyData::Accepted);
}

#[test]
fn a_copy_sent_to_the_client_of_the_original_ends_well() {
    let site = Site::with(takes_early_data);
    let (mut pair, flight) = asks(&site, site.session());
    let mut thief = site.accept();
    thief.handle_bytes(&flight);
    assert_eq!(thief.handshake(), Ok(Progress::EarlyData), "the copy came first");
    pair.server.handle_bytes(&flight);
    assert_eq!(finish(&mut pair), EarlyData::Refused);
}

#[test]
fn a_new_filter_refuses_until_copies_of_before_are_too_old() {
    let clock = Arc::new(AtomicU64::new(0));
    let shown = Arc::clone(&clock);
    let site = Site::with(|config| {
        config.early_data_max = EARLY_MAX;
        config.replay = Arc::new(
            MemoryFilter::with_clock(10, move || {
                Duration::from_millis(shown.load(Ordering::SeqCst))
            })
            .unwrap(),
        );
    });
    let life = u64::try_from(REPLAY_LIFE.as_millis()).unwrap();
    assert_eq!(ask(&site, site.session()), EarlyData::Refused);
    clock.store(life - 1, Ordering::SeqCst);
    assert_eq!(ask(&site, site.session()), EarlyData::Refused);
    clock.store(life, Ordering::SeqCst);
    assert_eq!(ask(&site, site.session()), EarlyData::Accepted);
}

#[test]
fn a_wall_clock_that_was_set_back_refuses_what_could_be_fresh_again() {
    let wall = Arc::new(AtomicU64::new(1_000_000));
    let shown = Arc::clone(&wall);
    let site = Site::with(|config| {
        let filter = MemoryFilter::with_clocks(
            10,
            || Duration::from_secs(60),
            move || Duration::from_secs(shown.load(Ordering::SeqCst)),
        );
        config.early_data_max = EARLY_MAX;
        config.replay = Arc::new(filter.unwrap());
    });
    let [one, two] = [site.session(), site.session()];
    assert_eq!(ask(&site, one), EarlyData::Accepted);
    wall.store(1_000_000 - 3600, Ordering::SeqCst);
    assert_eq!(ask(&site, two), EarlyData::Refused);
    assert_eq!(ask(&site, site.session()), EarlyData::Accepted, "made since");
}

#[test]
fn a_full_filter_refuses() {
    let site = Site::with(|config| {
        config.early_data_max = EARLY_MAX;
        config.replay = Arc::new(MemoryFilter::with_clock(2, || Duration::from_secs(60)).unwrap());
    });
    let became = [(); 4].map(|()| ask(&site, site.session()));
    use EarlyData::{Accepted, Refused};
    assert_eq!(became, [Accepted, Accepted, Refused, Refused]);
}

#[test]
fn tickets_of_another_instance_are_resumed_without_early_data() {
    let mut site = Site::with(takes_early_data);
    let session = site.session();
    site.reconfigure(|config| config.replay = Arc::new(filter()));
    assert_eq!(ask(&site, session), EarlyData::Refused, "it remembers nothing of the other");
    assert_eq!(ask(&site, site.session()), EarlyData::Accepted);
}

#[test]
fn a_reload_with_the_same_filter_keeps_early_data() {
    let mut site = Site::with(takes_early_data);
    let session = site.session();
    site.reconfigure(|_| ());
    assert_eq!(ask(&site, session), EarlyData::Accepted);
}

#[test]
fn early_data_that_is_switched_off_is_refused() {
    let mut site = Site::with(takes_early_data);
    let sessions = [site.session(), site.session()];
    let [one, two] = sessions;
    site.reconfigure(|config| config.replay = Arc::new(NoEarlyData));
    assert_eq!(ask(&site, one), EarlyData::Refused);
    site.reconfigure(|config| config.early_data_max = 0);
    assert_eq!(ask(&site, two), EarlyData::Refused);
}

#[test]
fn without_early_data_nothing_is_written_early() {
    let site = Site::with(takes_early_data);
    let mut pair = site.pair("a.test", Some(site.session()));
    pair.client.handshake().unwrap();
    pair.carry_to_server();
    assert_eq!(pair.server.handshake(), Ok(Progress::Wait));
    assert_eq!(pair.server.write(ANSWER), Ok(0));
    pair.shake().unwrap();
    assert_eq!(pair.server.facts().early_data, EarlyData::None);
    assert!(pair.server.facts().resumed);
}

#[test]
fn a_group_that_was_not_guessed_refuses_early_data() {
    let mut site = Site::with(takes_early_data);
    site.reconfigure_client(|config| config.groups = Some("X25519:P-256".to_owned()));
    let session = site.session();
    site.reconfigure(|config| config.groups = Some("P-256".to_owned()));
    let (mut pair, flight) = asks(&site, session);
    pair.server.handle_bytes(&flight);
    assert_eq!(pair.server.handshake(), Ok(Progress::Wait));
    assert_eq!(pair.server.write(ANSWER), Ok(0), "there are no keys yet");
    assert_eq!(finish(&mut pair), EarlyData::Refused);
}

#[test]
fn another_application_protocol_refuses_early_data() {
    let mut site = Site::with(|config| {
        takes_early_data(config);
        config.alpn = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    });
    site.reconfigure_client(|config| config.alpn = vec![b"h2".to_vec(), b"http/1.1".to_vec()]);
    let session = site.session();
    assert_eq!(ask(&site, site.session()), EarlyData::Accepted);
    site.reconfigure(|config| config.alpn = vec![b"http/1.1".to_vec()]);
    assert_eq!(ask(&site, session.clone()), EarlyData::Refused);
    site.reconfigure_client(|config| config.alpn = vec![b"http/1.1".to_vec()]);
    let mut pair = site.pair("a.test", Some(session));
    assert_eq!(
        pair.client.write_early(QUESTION),
        Ok(0),
        "a client that cannot keep to it has none"
    );
}

#[test]
fn a_host_of_the_same_certificate_is_another_for_early_data() {
    let mut site = Site::with(takes_early_data);
    let both = site.authority.issue(&["a.test", "b.test"]).certified();
    site.reconfigure(|config| {
        config.certificates = vec![both];
        config.ticket_binding = TicketBinding::Certificate;
    });
    assert_eq!(ask(&site, site.session()), EarlyData::Accepted);
    let mut pair = site.pair("b.test", Some(renamed(&site.session())));
    assert_eq!(pair.client.write_early(QUESTION), Ok(QUESTION.len()));
    assert_eq!(finish(&mut pair), EarlyData::Refused, "though it is resumed");
}

#[test]
fn a_client_writes_no_more_than_it_may() {
    let site = Site::with(takes_early_data);
    let max = usize::try_from(EARLY_MAX).unwrap();
    let mut pair = site.pair("a.test", Some(site.session()));
    let much = vec![b'x'; 2 * max];
    assert_eq!(pair.client.write_early(&much), Ok(max));
    assert_eq!(pair.client.write_early(&much), Ok(0));
    pair.shake().unwrap();
    assert_eq!(pair.client.facts().early_data, EarlyData::Accepted);
    assert_eq!(pair.client.facts().early_bytes, u64::from(EARLY_MAX));
    assert_eq!(read_all(&mut pair.server).len(), max);
}

#[test]
fn a_client_holds_no_more_than_a_server_may_ask_for() {
    let site = Site::with(|config| {
        takes_early_data(config);
        config.early_data_max = EARLY_DATA_MAX;
    });
    // DER of the limit: 64 KiB becomes more than 8 MB.
    let greedy = altered(&site.session(), &[2, 3, 1, 0, 0], &[2, 3, 0x7f, 0, 0]);
    let mut pair = site.pair("a.test", Some(greedy));
    let much = vec![b'x'; 4 * OUTPUT_MAX];
    assert_eq!(pair.client.write_early(&much), Ok(OUTPUT_MAX));
    assert_eq!(pair.client.write_early(&much), Ok(0), "nothing has left");
    let flight = pair.client.poll_bytes().unwrap();
    assert!(flight.len() < 2 * OUTPUT_MAX, "{}", flight.len());
    assert_eq!(pair.client.write_early(b"more"), Ok(4));
}

#[test]
fn a_client_that_writes_more_is_turned_away() {
    let site = Site::with(takes_early_data);
    // DER of EARLY_MAX becomes that of a higher limit, as only a client would do that breaks it.
    let greedy = altered(&site.session(), &[2, 2, 0x10, 0x92], &[2, 2, 0x70, 0x92]);
    let mut pair = site.pair("a.test", Some(greedy));
    let much = vec![b'x'; 2 * usize::try_from(EARLY_MAX).unwrap()];
    assert_eq!(pair.client.write_early(&much), Ok(much.len()));
    pair.carry_to_server();
    let error = pair.server.handshake().unwrap_err();
    assert!(matches!(error, TlsError::Limit(_)), "{error:?}");
    assert_eq!(pair.server.handshake(), Err(error), "it stays so");
    pair.carry_to_client();
    assert_eq!(pair.client.handshake(), Ok(Progress::Done), "the server's flight was whole");
    let alert = pair.client.read(&mut [0; 100]);
    assert_eq!(alert, Err(TlsError::Alert(10)), "unexpected_message");
}

#[test]
fn refused_early_data_is_skipped_up_to_a_limit() {
    let mut site = Site::with(takes_early_data);
    site.reconfigure(|config| config.early_data_max = EARLY_DATA_MAX);
    let session = site.session();
    site.reconfigure(|config| config.early_data_max = 0);
    let mut pair = site.pair("a.test", Some(session));
    let much = vec![b'x'; usize::try_from(EARLY_DATA_MAX).unwrap()];
    assert_eq!(pair.client.write_early(&much), Ok(much.len()));
    pair.shake().unwrap();
    assert_eq!(pair.client.facts().early_data, EarlyData::Refused);
    assert_eq!(read_all(&mut pair.server), b"");
}

#[test]
fn an_answer_may_end_the_connection() {
    let site = Site::with(takes_early_data);
    let (mut pair, flight) = asks(&site, site.session());
    pair.server.handle_bytes(&flight);
    assert_eq!(pair.server.handshake(), Ok(Progress::EarlyData));
    write(&mut pair.server, ANSWER);
    pair.server.close();
    assert!(matches!(pair.server.write(b"x"), Err(TlsError::Misuse(_))));
    pair.shake().unwrap();
    let mut buffer = [0; 100];
    assert_eq!(pair.client.read(&mut buffer), Ok(Read::Bytes(ANSWER.len())));
    assert_eq!(pair.client.read(&mut buffer), Ok(Read::End));
    assert_eq!(read_all(&mut pair.server), QUESTION, "what came early can still be read");
}

/// A filter that is asked before the handshake and has nothing to say in it.
struct AskedBefore;

const SCOPE: [u8; 16] = [7; 16];

impl ReplayFilter for AskedBefore {
    fn scope(&self) -> [u8; 16] {
        SCOPE
    }

    fn is_first(&self, _: [u8; 32]) -> bool {
        false
    }
}

fn asked_before() -> Site {
    Site::with(|config| {
        config.early_data_max = EARLY_MAX;
        config.replay = Arc::new(AskedBefore);
    })
}

fn read_hello(flight: &[u8]) -> ClientHello {
    match hello::read(flight) {
        Ok(hello::Progress::Complete(hello)) => hello,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_first_seen_answer_holds_for_one_client_hello_and_one_scope() {
    let site = asked_before();
    for case in ["as it is", "nothing", "another scope", "another ClientHello"] {
        let (mut pair, flight) = asks(&site, site.session());
        let hello = read_hello(&flight);
        assert!(hello.early_data);
        let first = FirstSeen { scope: SCOPE, binder: binder_key(&hello.binder.unwrap()) };
        let (first_seen, expected) = match case {
            "as it is" => (Some(first), EarlyData::Accepted),
            "nothing" => (None, EarlyData::Refused),
            "another scope" => (Some(FirstSeen { scope: [8; 16], ..first }), EarlyData::Refused),
            _ => (Some(FirstSeen { binder: [9; 32], ..first }), EarlyData::Refused),
        };
        pair.server = site.server.accept_first(peer(), NOW, first_seen).unwrap();
        pair.server.handle_bytes(&flight);
        assert_eq!(finish(&mut pair), expected, "{case}");
    }
}

#[test]
fn a_ring_knows_its_tickets_before_tls_looks_at_them() {
    for change in [|_: &mut headstart_tls::ServerConfig| (), hands_out_cookies] {
        let site = Site::with(|config| {
            takes_early_data(config);
            change(config);
        });
        let (_, flight) = asks(&site, site.session());
        let ticket = read_hello(&flight).psk_identities.remove(0);
        let ring = site.ring.current();
        assert!(ring.made(&ticket));
        for at in [0, 16, 40, ticket.len() - 1] {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert!(!ring.made(&changed), "byte {at}");
        }
        for cut in 0..ticket.len() {
            assert!(!ring.made(&ticket[..cut]), "{cut} bytes");
        }
        let rotated = ring.rotated(NOW).unwrap();
        assert!(rotated.made(&ticket), "of the epoch before");
        assert!(!rotated.rotated(NOW).unwrap().made(&ticket), "that is gone");
    }
}
