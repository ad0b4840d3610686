//! Key rings: what rotation keeps and forgets, and each way in which text is no ring.

use std::collections::HashSet;
use std::net::IpAddr;
use std::time::Duration;

use headstart_proto::UnixSeconds;
use headstart_proto::cookie::Cookie;
use headstart_tls::keyring::{
    Epoch, KeyRing, KeyRingError, PERIOD, PERIOD_MAX, PERIOD_MIN, Purpose, Role, TextError,
    TextFault,
};

const NOW: UnixSeconds = UnixSeconds(1_790_000_000);
const SECOND: Duration = Duration::from_secs(1);

fn new() -> KeyRing {
    KeyRing::generate(NOW, PERIOD).unwrap()
}

fn client() -> IpAddr {
    [192, 0, 2, 1].into()
}

fn mint(ring: &KeyRing) -> Cookie {
    ring.cookies().mint([3; 6], NOW + Duration::from_secs(600), client())
}

fn takes(ring: &KeyRing, cookie: &Cookie) -> bool {
    ring.cookies().verify(cookie, NOW, client()).is_ok()
}

/// Returns true if two epochs have one secret, as their keys tell.
fn same(one: &Epoch, other: &Epoch) -> bool {
    one.derive(Purpose::TicketCipher) == other.derive(Purpose::TicketCipher)
}

/// The hex digits of the secret in the line of `role`.
fn secret(ring: &KeyRing, role: Role) -> String {
    let text = ring.to_text();
    let line = text.lines().find(|line| line.starts_with(role.name())).unwrap();
    line.split(' ').next_back().unwrap().to_owned()
}

#[test]
fn a_new_ring_has_two_epochs_that_differ() {
    let ring = new();
    assert!(ring.previous.is_none());
    assert_eq!(ring.current.from, NOW);
    assert_eq!(ring.next.from, NOW + PERIOD);
    assert_eq!(ring.next.id, ring.current.id.wrapping_add(1));
    assert_eq!(ring.rotation_due(), NOW + PERIOD);
    assert!(!same(&ring.current, &ring.next));
    assert!(!same(&ring.current, &new().current));
}

fn generate(period: Duration) -> Result<Duration, KeyRingError> {
    KeyRing::generate(NOW, period).map(|ring| ring.period)
}

#[test]
fn a_period_has_a_shortest_and_a_longest() {
    assert_eq!((PERIOD_MIN.as_secs(), PERIOD_MAX.as_secs()), (3600, 604_800));
    for allowed in [PERIOD_MIN, PERIOD, PERIOD_MAX] {
        assert_eq!(generate(allowed), Ok(allowed));
    }
    for wrong in [Duration::ZERO, PERIOD_MIN - SECOND, PERIOD_MAX + SECOND] {
        assert_eq!(generate(wrong), Err(KeyRingError::Period), "{wrong:?}");
    }
    assert_eq!(generate(PERIOD + SECOND / 2), Ok(PERIOD));
}

#[test]
fn a_ring_is_due_at_the_end_of_its_period_and_when_it_starts_too_far_ahead() {
    let ring = new();
    assert!(!ring.is_due(NOW) && !ring.is_due(UnixSeconds(NOW.0 + PERIOD.as_secs() - 1)));
    assert!(ring.is_due(NOW + PERIOD));
    let [little, more, much] = [PERIOD, PERIOD + SECOND, 2 * PERIOD]
        .map(|before: Duration| UnixSeconds(NOW.0 - before.as_secs()));
    assert!(!ring.is_due(little), "a clock may be a little behind");
    assert!(ring.is_due(more), "made by a clock that was ahead");
    let right = ring.rotated(much).unwrap();
    assert!(!right.is_due(much), "and then it is right");
}

#[test]
fn rotation_moves_every_epoch_one_place() {
    let old = new();
    let later = NOW + PERIOD + SECOND;
    let ring = old.rotated(later).unwrap();
    let previous = ring.previous.as_ref().unwrap();
    assert!(same(previous, &old.current) && same(&ring.current, &old.next));
    assert_eq!((previous.id, previous.from), (old.current.id, NOW));
    assert_eq!((ring.current.id, ring.current.from), (old.next.id, later));
    assert_eq!(ring.next.id, old.next.id.wrapping_add(1));
    assert_eq!(ring.next.from, later + PERIOD);
    assert_eq!(ring.period, PERIOD);
    let fresh = [&old.current, &old.next].into_iter().all(|epoch| !same(epoch, &ring.next));
    assert!(fresh);
}

#[test]
fn a_retired_secret_is_nowhere_in_the_ring() {
    let first = new();
    let retired = secret(&first, Role::Current);
    let ring = first.rotated(NOW).unwrap();
    assert_eq!(secret(&ring, Role::Previous), retired);
    let ring = ring.rotated(NOW).unwrap();
    assert!(!ring.to_text().contains(&retired));
    assert!(ring.epoch(first.current.id).is_none());
}

#[test]
fn cookies_are_taken_by_a_ring_one_step_ahead_or_behind() {
    let first = new();
    let second = first.rotated(NOW).unwrap();
    let third = second.rotated(NOW).unwrap();
    let (of_first, of_second, of_third) = (mint(&first), mint(&second), mint(&third));
    assert!(takes(&first, &of_first) && takes(&first, &of_second) && !takes(&first, &of_third));
    assert!(takes(&second, &of_first) && takes(&second, &of_second) && takes(&second, &of_third));
    assert!(!takes(&third, &of_first) && takes(&third, &of_second) && takes(&third, &of_third));
}

#[test]
fn epochs_are_found_by_their_id() {
    let ring = new().rotated(NOW).unwrap();
    let ids: Vec<u8> = ring.epochs().map(|epoch| epoch.id).collect();
    let previous = ring.previous.as_ref().unwrap();
    assert_eq!(ids, [ring.current.id, previous.id, ring.next.id]);
    for id in 0..=u8::MAX {
        assert_eq!(ring.epoch(id).map(|epoch| epoch.id), ids.contains(&id).then_some(id));
    }
}

#[test]
fn ids_start_again_after_255_and_never_clash() {
    let wraps = parse(&text("254", "255")).unwrap().rotated(NOW).unwrap();
    assert_eq!((wraps.current.id, wraps.next.id), (255, 0));
    // Written by hand: the id after next is taken.
    let clash = parse(&text("5", "4")).unwrap().rotated(NOW).unwrap();
    let ids: HashSet<u8> = clash.epochs().map(|epoch| epoch.id).collect();
    assert_eq!((clash.next.id, ids.len()), (6, 3));
}

#[test]
fn every_purpose_has_a_key_of_its_own() {
    let ring = new();
    let all: HashSet<Vec<u8>> = ring
        .epochs()
        .flat_map(|epoch: &Epoch| Purpose::ALL.map(|purpose| epoch.derive(purpose).to_vec()))
        .collect();
    assert_eq!(all.len(), 2 * Purpose::ALL.len());
    let labels: HashSet<&str> = Purpose::ALL.map(Purpose::label).into();
    assert_eq!(labels.len(), Purpose::ALL.len());
    let secret = secret(&ring, Role::Current);
    assert!(!all.iter().any(|key: &Vec<u8>| hex(key) == secret));
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn written_rings_are_read_back() {
    for ring in [new(), new().rotated(NOW).unwrap()] {
        let text = ring.to_text();
        let again = KeyRing::parse(&text).unwrap();
        assert_eq!(*again.to_text(), *text);
        assert_eq!(again.previous.is_some(), ring.previous.is_some());
        assert!(same(&again.current, &ring.current) && same(&again.next, &ring.next));
        assert!(text.len() < 400, "{}", text.len());
    }
}

#[test]
fn debug_shows_no_secret() {
    let ring = parse(&text("200", "201")).unwrap();
    let shown = format!("{ring:?} {:#?}", ring.current);
    let name = hex(&ring.current.ticket_name());
    assert!(shown.contains("id: 200"), "{shown}");
    // As hex, and as the numbers of 0x1f and 0x2e.
    for part in ["1f1f", "31, 31", "2e2e", "46, 46", &name] {
        assert!(!shown.contains(part), "{part} in {shown}");
    }
}

fn text(current: &str, next: &str) -> String {
    let (one, two) = ("1f".repeat(32), "2e".repeat(32));
    format!(
        "headstart key ring 1\nperiod 43200\ncurrent {current} 1790000000 {one}\n\
         next {next} 1790043200 {two}\n"
    )
}

fn parse(text: &str) -> Result<KeyRing, TextError> {
    KeyRing::parse(text)
}

#[test]
fn people_may_write_comments_spaces_and_capitals() {
    let text = text("1", "2");
    let lines: Vec<&str> = text.lines().collect();
    let secret = "1F".repeat(32);
    let relaxed = format!(
        "# of the site\n\n  {}  \r\n# order is free\n{}\r\n  {}\ncurrent\t1   1790000000 {secret}",
        lines[0], lines[3], lines[1]
    );
    assert_eq!(*parse(&relaxed).unwrap().to_text(), text);
}

/// Parses a ring in which this line takes the place of its like.
fn parse_with(line: &str) -> Result<KeyRing, TextFault> {
    let text = text("1", "2");
    let word = line.split(' ').next().unwrap();
    let other = text.lines().filter(|other| !other.starts_with(word));
    parse(&other.chain([line]).collect::<Vec<_>>().join("\n")).map_err(|error| error.fault)
}

#[test]
fn each_number_has_its_bounds() {
    let secret = "ab".repeat(32);
    let period = TextFault::Ring(KeyRingError::Period);
    for (text, fault) in [
        ("period 3600".to_owned(), None),
        ("period 604800".into(), None),
        ("period 3599".into(), Some(period)),
        ("period 604801".into(), Some(period)),
        ("period 18446744073709551616".into(), Some(TextFault::Fields)),
        ("period +43200".into(), Some(TextFault::Fields)),
        ("period 12h".into(), Some(TextFault::Fields)),
        ("period".into(), Some(TextFault::Fields)),
        ("period 43200 1".into(), Some(TextFault::Fields)),
        (format!("next 255 0 {secret}"), None),
        (format!("next 256 0 {secret}"), Some(TextFault::Fields)),
        (format!("next -1 0 {secret}"), Some(TextFault::Fields)),
        (format!("next 3 253370764800 {secret}"), None),
        (format!("next 3 253370764801 {secret}"), Some(TextFault::Fields)),
        (format!("next 3 0 {secret} 1"), Some(TextFault::Fields)),
        (format!("next 3 0 {secret}0"), Some(TextFault::Secret)),
        (format!("next 3 0 {}", &secret[1..]), Some(TextFault::Secret)),
        (format!("next 3 0 +{}", &secret[1..]), Some(TextFault::Secret)),
        (format!("next 3 0 g{}", &secret[1..]), Some(TextFault::Secret)),
        (format!("next 3 0 \u{e9}{}", &secret[2..]), Some(TextFault::Secret)),
        ("next 3 0".into(), Some(TextFault::Secret)),
        ("next 3".into(), Some(TextFault::Fields)),
        ("next".into(), Some(TextFault::Fields)),
    ] {
        assert_eq!(parse_with(&text).err(), fault, "{text}");
    }
}

#[test]
fn errors_name_the_line() {
    let whole = text("1", "2");
    let lines: Vec<&str> = whole.lines().collect();
    let [version, period, current, next] = lines[..] else { panic!("{lines:?}") };
    let same_id = next.replace("next 2", "next 1");
    let same_secret = next.replace("2e", "1f");
    let cases: [(&[&str], usize, TextFault); 13] = [
        (&[], 1, TextFault::Version),
        (&["headstart key ring 2", period, current, next], 1, TextFault::Version),
        (&["# ours?", period, version], 2, TextFault::Version),
        (&[version], 1, TextFault::Missing),
        (&[version, period, current], 3, TextFault::Missing),
        (&[version, period, next], 3, TextFault::Missing),
        (&[version, current, next], 3, TextFault::Missing),
        (&[version, period, period, current, next], 3, TextFault::Repeated),
        (&[version, period, current, "", current, next], 5, TextFault::Repeated),
        (&[version, period, current, same_id.as_str()], 4, TextFault::Repeated),
        (&[version, period, current, same_secret.as_str()], 4, TextFault::Repeated),
        (&[version, period, current, next, "after 3 0 00"], 5, TextFault::Word),
        (&[version, period, current, next, version], 5, TextFault::Word),
    ];
    for (lines, line, fault) in cases {
        let error = parse(&lines.join("\n")).err();
        assert_eq!(error, Some(TextError { line, fault }), "{lines:?}");
    }
}

#[test]
fn errors_repeat_nothing_of_the_text() {
    let secret = "ab".repeat(31);
    for line in [format!("next 3 0 {secret}"), format!("{secret} 3 0"), format!("next {secret}")] {
        let error = parse(&format!("headstart key ring 1\n{line}\n")).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("abab"), "{error}");
        assert!(error.to_string().starts_with("line 2: "), "{error}");
    }
}
