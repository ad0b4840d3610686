//! ClientHellos that no correct client sends, and the limits (RFC 8446 sections 4.1.2, 4.2, 5.1).

#![allow(clippy::unwrap_used)]

use headstart_proto::HelloError::{self, Malformed, NotHello, NotTls, TooLarge};
use headstart_proto::cookie::Cookie;
use headstart_proto::hello::{ClientHello, Progress, read};
use headstart_proto::limits::{CLIENT_BYTES, TICKET_MIN};
use headstart_testkit::hello::{CraftedHello, message, vector8, vector16};
use proptest::prelude::*;

const SERVER_NAME: u16 = 0;
const ALPN: u16 = 16;
const PADDING: u16 = 21;
const PRE_SHARED_KEY: u16 = 41;
const EARLY_DATA: u16 = 42;
const SUPPORTED_VERSIONS: u16 = 43;
const ECH: u16 = 0xfe0d;

fn craft() -> CraftedHello {
    CraftedHello::default().with_session_id(&[7; 32])
}

fn parse(craft: &CraftedHello) -> Result<ClientHello, HelloError> {
    whole(&craft.stream())
}

fn whole(stream: &[u8]) -> Result<ClientHello, HelloError> {
    match read(stream)? {
        Progress::Complete(hello) => Ok(hello),
        Progress::Incomplete => panic!("incomplete"),
    }
}

fn records(message: &[u8], size: usize) -> Vec<u8> {
    message.chunks(size).flat_map(|part: &[u8]| record([3, 1], part)).collect()
}

fn record(version: [u8; 2], fragment: &[u8]) -> Vec<u8> {
    [&[22][..], &version, &vector16(fragment)].concat()
}

fn host(name: &[u8]) -> Vec<u8> {
    vector16(&[&[0][..], &vector16(name)].concat())
}

fn server_name(name: &[u8]) -> Result<Option<String>, HelloError> {
    let hello = parse(&craft().with(SERVER_NAME, host(name)));
    hello.map(|hello| hello.server_name)
}

fn offered_psks(identities: &[&[u8]], binders: &[usize]) -> Vec<u8> {
    let identities =
        identities.iter().flat_map(|identity| [vector16(identity), vec![0; 4]].concat());
    let binders = binders.iter().flat_map(|length| vector8(&vec![1; *length]));
    let lists = [identities.collect::<Vec<u8>>(), binders.collect()];
    lists.iter().flat_map(|list| vector16(list)).collect()
}

#[test]
fn the_default_hello_is_valid() {
    let hello = parse(&craft()).unwrap();
    assert!(hello.tls13);
    assert_eq!(hello.end, craft().stream().len());
}

#[test]
fn other_protocols_are_not_tls() {
    let sslv2 = [0x80, 0x2e, 1, 0, 2, 0, 0x15, 0, 0, 0, 0x10];
    for other in [
        &b"GET / HTTP/1.1\r\n"[..],
        b"SSH-2.0-OpenSSH_9.2\r\n",
        &sslv2,
        &[21, 3, 1, 0, 2, 1, 0], // an alert
        &[22, 2, 0, 0, 4, 1],    // SSL 2.0 in the record
        &[22, 0xfe, 0xfd, 0, 0], // DTLS 1.2
        &[10, 0x10],             // a join
    ] {
        assert_eq!(read(other), Err(NotTls), "{other:02x?}");
    }
    assert_eq!(read(b"G"), Err(NotTls));
    assert_eq!(read(&[]), Ok(Progress::Incomplete));
}

#[test]
fn another_message_first_is_not_a_hello() {
    for kind in [0, 2, 4, 11, 0xff] {
        let stream = records(&message(kind, &[0; 40]), 1 << 14);
        assert_eq!(read(&stream), Err(NotHello));
        assert_eq!(read(&stream[..6]), Err(NotHello));
        assert_eq!(read(&stream[..5]), Ok(Progress::Incomplete));
    }
}

#[test]
fn the_minor_version_of_a_record_does_not_matter() {
    let message = craft().message();
    for minor in [0, 1, 2, 3, 4, 0xff] {
        assert!(whole(&record([3, minor], &message)).is_ok());
    }
    for major in [0, 2, 4] {
        assert_eq!(whole(&record([major, 1], &message)), Err(NotTls));
    }
    let mixed = [record([3, 1], &message[..9]), record([3, 3], &message[9..])].concat();
    assert!(whole(&mixed).is_ok());
}

#[test]
fn a_record_has_at_least_one_byte_and_at_most_16_kib() {
    let message = craft().message();
    let empty = record([3, 1], &[]);
    assert_eq!(read(&empty), Err(Malformed));
    let between = [record([3, 1], &message[..9]), empty].concat();
    assert_eq!(read(&between), Err(Malformed));
    assert_eq!(read(&[22, 3, 1, 0x40, 0x00, 1]), Ok(Progress::Incomplete));
    assert_eq!(read(&[22, 3, 1, 0x40, 0x01, 1]), Err(Malformed));
}

#[test]
fn another_record_type_inside_the_hello_is_not_tls() {
    let message = craft().message();
    let mut stream = record([3, 1], &message[..9]);
    stream.extend_from_slice(&[20, 3, 3, 0, 1, 1]);
    assert_eq!(read(&stream), Err(NotTls));
}

#[test]
fn a_message_may_be_longer_than_its_records() {
    let craft = craft().with(PADDING, vec![0; 5000]);
    let stream = records(&craft.message(), 700);
    assert_eq!(whole(&stream).unwrap().end, stream.len());
}

#[test]
fn bytes_after_the_hello_are_ignored_in_the_next_record_and_wrong_in_the_same() {
    let craft = craft();
    let mut stream = craft.stream();
    let end = stream.len();
    stream.extend_from_slice(b"anything");
    assert_eq!(whole(&stream).unwrap().end, end);
    let coalesced = [craft.message(), vec![1]].concat();
    assert_eq!(read(&records(&coalesced, 1 << 14)), Err(Malformed));
    let coalesced = [craft.message(), craft.message()].concat();
    assert_eq!(read(&records(&coalesced, 1 << 14)), Err(Malformed));
}

// W-HELLO-1
#[test]
fn a_hello_has_at_most_16_kib() {
    let stream = craft().padded_to(CLIENT_BYTES).stream();
    assert_eq!(stream.len(), CLIENT_BYTES);
    assert_eq!(whole(&stream).unwrap().end, CLIENT_BYTES);
    assert_eq!(read(&stream[..CLIENT_BYTES - 1]), Ok(Progress::Incomplete));

    let stream = craft().padded_to(CLIENT_BYTES + 1).stream();
    assert_eq!(read(&stream), Err(TooLarge));
    assert_eq!(read(&stream[..8]), Ok(Progress::Incomplete));
    assert_eq!(read(&stream[..9]), Err(TooLarge), "as soon as its length is known");
    assert_eq!(read(&record([3, 1], &[1, 1, 0, 0])), Err(TooLarge), "the length has three bytes");
}

#[test]
fn record_headers_count_towards_the_limit() {
    let message = craft().padded_to(4000).message();
    let stream = records(&message, 1);
    assert!(stream.len() > CLIENT_BYTES);
    assert_eq!(read(&stream), Err(TooLarge));
    assert_eq!(read(&stream[..CLIENT_BYTES]), Err(TooLarge));
    assert_eq!(read(&stream[..CLIENT_BYTES - 1]), Ok(Progress::Incomplete));
}

fn check(change: fn(&mut CraftedHello)) -> Result<(), HelloError> {
    let mut craft = craft();
    change(&mut craft);
    parse(&craft).map(|_| ())
}

#[test]
fn the_fixed_part_is_checked() {
    assert_eq!(check(|craft| craft.session_id.clear()), Ok(()));
    assert_eq!(check(|craft| craft.session_id.push(7)), Err(Malformed));
    assert_eq!(check(|craft| craft.cipher_suites.clear()), Err(Malformed));
    assert_eq!(check(|craft| craft.cipher_suites.push(0)), Err(Malformed));
    assert_eq!(check(|craft| craft.compression_methods.clear()), Err(Malformed));
    assert_eq!(check(|craft| craft.extensions.clear()), Ok(()));
}

#[test]
fn a_hello_without_an_extension_block_is_tls12() {
    let mut craft = craft();
    craft.extensions.clear();
    let mut body = craft.message().split_off(4);
    body.truncate(body.len() - 2);
    let hello = whole(&records(&message(1, &body), 1 << 14)).unwrap();
    assert!(!hello.tls13);
    body.push(0); // half a length
    assert_eq!(whole(&records(&message(1, &body), 1 << 14)), Err(Malformed));
}

#[test]
fn extensions_must_not_repeat() {
    for (number, body) in
        [(SERVER_NAME, host(b"a.example")), (EARLY_DATA, Vec::new()), (0x1234, vec![1])]
    {
        let once = craft().with(number, body.clone());
        assert!(parse(&once).is_ok());
        assert_eq!(parse(&once.with(number, body)), Err(Malformed), "{number}");
    }
}

#[test]
fn pre_shared_key_must_be_last() {
    let psk = offered_psks(&[b"ticket"], &[32]);
    let last = craft().with(PRE_SHARED_KEY, psk);
    let hello = parse(&last).unwrap();
    assert_eq!(hello.psk_identities, [b"ticket".to_vec()]);
    assert_eq!(parse(&last.with(PADDING, [])), Err(Malformed));
}

#[test]
fn every_identity_needs_a_binder() {
    let two = craft().with(PRE_SHARED_KEY, offered_psks(&[b"a", b"b"], &[32, 48]));
    let two = parse(&two).unwrap();
    assert_eq!(two.binder, Some(vec![1; 32]), "the first identity's");
    assert_eq!(parse(&craft()).unwrap().binder, None);
    for wrong in [
        offered_psks(&[b"a", b"b"], &[32]),
        offered_psks(&[b"a"], &[32, 32]),
        offered_psks(&[b"a"], &[31]),
        offered_psks(&[b""], &[32]),
        offered_psks(&[], &[]),
        [offered_psks(&[b"a"], &[32]), vec![0]].concat(),
        vec![],
    ] {
        let read = parse(&craft().with(PRE_SHARED_KEY, wrong.clone()));
        assert_eq!(read, Err(Malformed), "{wrong:02x?}");
    }
}

#[test]
fn the_reader_reports_early_data_and_ech() {
    let hello = craft().with(EARLY_DATA, []).with(ECH, [1, 2, 3]);
    let hello = parse(&hello).unwrap();
    assert!(hello.early_data && hello.ech);
    assert_eq!(parse(&craft().with(EARLY_DATA, [0])), Err(Malformed));
}

/// Returns a ticket of `length` bytes `fill`.
fn ticket(fill: u8, length: usize) -> Vec<u8> {
    vec![fill; length]
}

#[test]
fn the_cookie_is_the_start_of_the_first_ticket() {
    let (first, second) = (ticket(1, 200), ticket(2, 200));
    let hello = craft().with(PRE_SHARED_KEY, offered_psks(&[&first, &second], &[32, 32]));
    let hello = parse(&hello).unwrap();
    assert_eq!(hello.ticket(), Some(&first[..]));
    assert_eq!(hello.ticket_cookie(), Some(Cookie::new([1; 16])));
    assert_eq!(parse(&craft()).unwrap().ticket_cookie(), None);
}

#[test]
fn a_ticket_with_a_cookie_has_a_minimum_length() {
    for (length, cookie) in [(TICKET_MIN, true), (TICKET_MIN - 1, false), (32, false)] {
        let psks = offered_psks(&[&ticket(3, length)], &[32]);
        let hello = parse(&craft().with(PRE_SHARED_KEY, psks)).unwrap();
        assert_eq!(hello.ticket().map(<[u8]>::len), Some(length));
        assert_eq!(hello.ticket_cookie().is_some(), cookie, "{length}");
    }
}

#[test]
fn there_is_no_ticket_before_tls_1_3_or_under_ech() {
    let psks = offered_psks(&[&ticket(4, 200)], &[32]);
    let mut old = craft();
    old.extensions = vec![(SUPPORTED_VERSIONS, vec![2, 3, 3]), (PRE_SHARED_KEY, psks.clone())];
    assert_eq!(parse(&old).unwrap().ticket(), None);
    old.extensions = vec![(PRE_SHARED_KEY, psks.clone())];
    assert_eq!(parse(&old).unwrap().ticket(), None);
    let hidden = parse(&craft().with(ECH, [1, 2, 3]).with(PRE_SHARED_KEY, psks)).unwrap();
    assert_eq!((hidden.psk_identities.len(), hidden.ticket()), (1, None));
}

/// Checks that session_ticket (RFC 5077) is not read: TLS 1.2 showed it in clear (F-TICKET-3).
#[test]
fn a_ticket_of_tls_1_2_is_ignored() {
    const SESSION_TICKET: u16 = 35;
    let hello = parse(&craft().with(SESSION_TICKET, ticket(5, 200))).unwrap();
    assert_eq!(hello.ticket(), None);
}

#[test]
fn grease_is_tolerated_everywhere() {
    for value in (0..16).map(|n| 0x0a0a + n * 0x1010_u16) {
        let [high, low] = value.to_be_bytes();
        let mut craft = craft();
        craft.cipher_suites.splice(..0, [high, low]);
        craft.extensions = vec![
            (value, vec![]),
            (SUPPORTED_VERSIONS, vec![4, high, low, 3, 4]),
            (SERVER_NAME, host(b"a.example")),
            (ALPN, vector16(&[vector8(&[high, low]), vector8(b"h2")].concat())),
            (value ^ 0x1010, vec![0]),
        ];
        let hello = parse(&craft).unwrap();
        assert!(hello.tls13);
        assert_eq!(hello.server_name.as_deref(), Some("a.example"));
        assert_eq!(hello.alpn, [vec![high, low], b"h2".to_vec()]);
    }
}

#[test]
fn host_names_are_ascii_labels() {
    for (name, expected) in [
        (&b"example.com"[..], "example.com"),
        (b"EXAMPLE.Com", "example.com"),
        (b"example.com.", "example.com"),
        (b"xn--bcher-kva.example", "xn--bcher-kva.example"),
        (b"_dns.example", "_dns.example"),
        (b"localhost", "localhost"),
        (b"1.2.3", "1.2.3"),
    ] {
        assert_eq!(server_name(name), Ok(Some(expected.to_owned())));
    }
    for wrong in [
        &b""[..],
        b".",
        b"..",
        b"a..b",
        b".a",
        b"a b",
        b"a\0b",
        b"a/b",
        b"a\nb",
        b"*.example",
        b"a:443",
        b"<b>",
        "b\u{fc}cher.example".as_bytes(),
        b"\xff",
    ] {
        assert_eq!(server_name(wrong), Err(Malformed), "{wrong:?}");
    }
}

#[test]
fn host_names_end_at_253_bytes_and_labels_at_63() {
    let label = "a".repeat(63);
    assert!(server_name(label.as_bytes()).is_ok());
    assert_eq!(server_name("a".repeat(64).as_bytes()), Err(Malformed));
    let longest = [&label[..], &label, &label, &"a".repeat(61)].join(".");
    assert_eq!(longest.len(), 253);
    assert!(server_name(longest.as_bytes()).is_ok());
    assert!(server_name(format!("{longest}.").as_bytes()).is_ok());
    let longer = [&label[..], &label, &label, &"a".repeat(62)].join(".");
    assert_eq!(server_name(longer.as_bytes()), Err(Malformed));
}

#[test]
fn an_address_is_not_a_name() {
    for address in
        [&b"192.0.2.1"[..], b"192.0.2.1.", b"2001:db8::1", b"[2001:db8::1]", b"::ffff:192.0.2.1"]
    {
        assert_eq!(server_name(address), Ok(None));
    }
}

/// Reads the name in a list of these bytes.
fn list(body: &[u8]) -> Result<Option<String>, HelloError> {
    parse(&craft().with(SERVER_NAME, vector16(body))).map(|hello| hello.server_name)
}

fn entry(kind: u8, name: &[u8]) -> Vec<u8> {
    [&[kind][..], &vector16(name)].concat()
}

#[test]
fn the_name_list_holds_one_host() {
    let both = [entry(7, b"?"), entry(0, b"a.example")].concat();
    assert_eq!(list(&both), Ok(Some("a.example".to_owned())));
    assert_eq!(list(&entry(7, b"?")), Ok(None));
    let two = [entry(0, b"a.example"), entry(0, b"b.example")].concat();
    assert_eq!(list(&two), Err(Malformed));
    let address_first = [entry(0, b"192.0.2.1"), entry(0, b"b.example")].concat();
    assert_eq!(list(&address_first), Err(Malformed));
    assert_eq!(list(&[]), Err(Malformed), "an empty list");
    assert_eq!(list(&[0, 0, 9, b'a']), Err(Malformed), "truncated");
    let over = [host(b"a.example"), vec![0]].concat();
    assert_eq!(parse(&craft().with(SERVER_NAME, over)), Err(Malformed));
    assert_eq!(parse(&craft().with(SERVER_NAME, [])), Err(Malformed));
}

#[test]
fn alpn_names_are_not_empty() {
    let right = parse(&craft().with(ALPN, vector16(b"\x02h2")));
    assert_eq!(right.unwrap().alpn, [b"h2".to_vec()]);
    for wrong in [&b""[..], b"\x00", b"\x02h2\x00", b"\x03h2"] {
        let read = parse(&craft().with(ALPN, vector16(wrong)));
        assert_eq!(read, Err(Malformed), "{wrong:?}");
    }
}

#[test]
fn versions_come_in_pairs() {
    for (body, tls13) in [
        (&[3, 3, 3, 4][..], Ok(true)),
        (&[3, 3], Ok(false)),
        (&[], Err(Malformed)),
        (&[3], Err(Malformed)),
        (&[3, 4, 3], Err(Malformed)),
    ] {
        let mut craft = craft();
        craft.extensions = vec![(SUPPORTED_VERSIONS, vector8(body))];
        assert_eq!(parse(&craft).map(|hello| hello.tls13), tls13, "{body:?}");
    }
}

/// Generates variants of [`craft`].
fn crafts() -> impl Strategy<Value = CraftedHello> {
    let number = any::<u16>().prop_filter("known extensions have a format", |number| {
        ![0, 16, 41, 42, 43].contains(number)
    });
    let extensions =
        prop::collection::btree_map(number, prop::collection::vec(any::<u8>(), 0..300), 0..12);
    (extensions, 0..=32_usize).prop_map(|(extensions, session_id)| {
        let mut craft = craft();
        craft.session_id.truncate(session_id);
        craft.extensions.extend(extensions);
        craft
    })
}

proptest! {
    #[test]
    fn unknown_extensions_are_ignored(craft in crafts(), size in 1..2000_usize) {
        let stream = records(&craft.message(), size);
        if stream.len() <= CLIENT_BYTES {
            prop_assert_eq!(whole(&stream).unwrap().end, stream.len());
        }
    }

    #[test]
    fn no_prefix_of_a_hello_is_an_error(
        craft in crafts(),
        size in 1..2000_usize,
        cut: prop::sample::Index,
    ) {
        let stream = records(&craft.message(), size);
        if stream.len() <= CLIENT_BYTES {
            prop_assert_eq!(read(&stream[..cut.index(stream.len())]), Ok(Progress::Incomplete));
        }
    }

    #[test]
    fn later_bytes_do_not_repair_an_error(
        craft in crafts(),
        at: prop::sample::Index,
        wrong in 1..=255_u8,
        cut: prop::sample::Index,
    ) {
        let mut stream = craft.stream();
        let at = at.index(stream.len());
        stream[at] ^= wrong;
        let early = read(&stream[..cut.index(stream.len())]);
        match (early, read(&stream)) {
            (Err(first), last) => prop_assert_eq!(last, Err(first)),
            (Ok(Progress::Complete(first)), last) => {
                prop_assert_eq!(last, Ok(Progress::Complete(first)));
            }
            (Ok(Progress::Incomplete), _) => {}
        }
    }

    #[test]
    fn the_reader_never_panics(bytes: Vec<u8>) {
        let _ = read(&bytes);
        let _ = read(&record([3, 1], &message(1, &bytes)));
    }
}
