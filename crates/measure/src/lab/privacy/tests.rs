use std::net::SocketAddr;

use headstart_emulation::{CapturedPacket, TcpSegment, UdpDatagram};
use headstart_proto::join::{Join, acceptance};
use headstart_proto::wire::{Request, Response};
use headstart_proto::{JoinKey, RouteTag, SessionId, hello};
use headstart_testkit::hello::CraftedHello;

use super::*;

mod committed;

const CLIENT: [u8; 4] = [10, 77, 1, 1];
const SERVER: [u8; 4] = [10, 100, 0, 1];

/// A capture that is made by hand, packet by packet.
#[derive(Clone, Default)]
struct Tape {
    packets: Vec<CapturedPacket>,
    cases: Vec<Case>,
    /// Milliseconds since it began, and ports used so far.
    now: u64,
    ports: u16,
}

/// Identifiers that one connection shows, and is handed in clear.
#[derive(Clone, Copy, Default)]
struct Shows<'b> {
    /// Empty to ask for one.
    cookie: Option<&'b [u8]>,
    ticket: Option<&'b [u8]>,
    answer: Option<&'b [u8]>,
}

const NOTHING: Shows<'_> = Shows { cookie: None, ticket: None, answer: None };

const fn asks(answer: &[u8]) -> Shows<'_> {
    Shows { cookie: Some(&[]), answer: Some(answer), ..NOTHING }
}

const fn cookie(cookie: &[u8]) -> Shows<'_> {
    Shows { cookie: Some(cookie), ..NOTHING }
}

const fn both<'b>(cookie: &'b [u8], ticket: &'b [u8]) -> Shows<'b> {
    Shows { cookie: Some(cookie), ticket: Some(ticket), ..NOTHING }
}

impl Tape {
    /// A case of some visits in front of the boundary and some behind.
    fn case(mut self, front: &[Shows<'_>], behind: &[Shows<'_>]) -> Self {
        let sides = [(front, false), (behind, true)];
        let mut case = Case::default();
        for (shows, behind) in sides {
            for one in shows {
                self.now += 200;
                case.visits.push(Visit { begun: self.at(), behind });
                self.now += 1;
                self.connect(SERVER, *one);
            }
        }
        self.now += 1000;
        self.cases.push(case);
        self
    }

    fn at(&self) -> Duration {
        Duration::from_secs(1_800_000_000) + Duration::from_millis(self.now)
    }

    /// A connection whose first flight is in its SYN if it shows a cookie, and after it otherwise.
    fn connect(&mut self, server: [u8; 4], shows: Shows<'_>) {
        self.ports += 1;
        let ends =
            (SocketAddr::from((CLIENT, 40_000 + self.ports)), SocketAddr::from((server, 443)));
        let [cookie, answer] =
            [shows.cookie, shows.answer].map(|cookie| cookie.map(fast_open).unwrap_or_default());
        let hello = client_hello(shows.ticket);
        let in_syn = shows.cookie.is_some_and(|cookie| !cookie.is_empty());
        let (syn, after) = if in_syn { (&hello[..], &[][..]) } else { (&[][..], &hello[..]) };
        self.packet(true, ends, SYN, 1000, &cookie, syn);
        self.packet(false, ends, SYN | ACK, 7, &answer, &[]);
        // In two segments, the second one first.
        let (one, two) = after.split_at(after.len() / 2);
        let middle = 1001 + u32::try_from(one.len()).unwrap();
        self.packet(true, ends, ACK, middle, &[], two);
        self.packet(true, ends, ACK, 1001, &[], one);
    }

    fn packet(
        &mut self,
        from_node: bool,
        (client, server): (SocketAddr, SocketAddr),
        flags: u8,
        seq: u32,
        options: &[u8],
        payload: &[u8],
    ) {
        let (from, to) = if from_node { (client, server) } else { (server, client) };
        let bytes = segment(from, to, flags, seq, options, payload);
        self.packets.push(CapturedPacket { at: self.at(), from_node, bytes });
    }

    /// Bytes of the server in clear, in two segments, as part of the visit whose last packet is the
    /// one at `after`.
    fn answer(&mut self, after: usize, bytes: &[u8]) {
        let CapturedPacket { at, bytes: last, .. } = self.packets[after].clone();
        let last = TcpSegment::read(&last).unwrap();
        let (one, two) = bytes.split_at(bytes.len() / 2);
        let (client, server) = (last.source, last.destination);
        let middle = 8 + u32::try_from(one.len()).unwrap();
        for (seq, payload) in [(8, one), (middle, two)] {
            let bytes = segment(server, client, ACK, seq, &[], payload);
            self.packets.insert(after + 1, CapturedPacket { at, from_node: false, bytes });
        }
    }

    fn datagram(&mut self, from_node: bool, at: Duration, payload: &[u8]) {
        let (client, server) = ((CLIENT, 50_000).into(), (SERVER, 443).into());
        let (source, destination) = if from_node { (client, server) } else { (server, client) };
        let bytes = UdpDatagram { source, destination, payload }.to_ip().unwrap();
        self.packets.push(CapturedPacket { at, from_node, bytes });
    }

    fn connections(&self) -> Vec<Connection> {
        connections(&self.packets)
    }

    fn decide(&self, boundary: Boundary) -> Finding {
        decide(boundary, &[SERVER.into()], &self.cases, &self.connections())
    }
}

const SYN: u8 = 2;
const ACK: u8 = 16;

fn fast_open(cookie: &[u8]) -> Vec<u8> {
    [&[1, 1, 34, u8::try_from(2 + cookie.len()).unwrap()][..], cookie].concat()
}

/// IPv4 and TCP without checksums, which nobody here looks at.
fn segment(
    from: SocketAddr,
    to: SocketAddr,
    flags: u8,
    seq: u32,
    options: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    let mut options = options.to_vec();
    options.resize(options.len().next_multiple_of(4), 0);
    let words = u8::try_from(5 + options.len() / 4).unwrap();
    let tcp = [
        &from.port().to_be_bytes()[..],
        &to.port().to_be_bytes(),
        &seq.to_be_bytes(),
        &[0; 4],
        &[words << 4, flags, 0, 0, 0, 0, 0, 0],
        &options,
        payload,
    ]
    .concat();
    let [source, destination] = [from, to].map(|end| match end {
        SocketAddr::V4(end) => end.ip().octets(),
        SocketAddr::V6(_) => panic!("IPv4 here"),
    });
    let length = u16::try_from(20 + tcp.len()).unwrap().to_be_bytes();
    [&[0x45, 0][..], &length, &[0, 0, 0, 0, 64, 6, 0, 0], &source, &destination, &tcp].concat()
}

/// Builds a ClientHello; with a ticket, with the identity of a pre-shared key and its binder.
fn client_hello(ticket: Option<&[u8]>) -> Vec<u8> {
    let hello = CraftedHello::default();
    ticket.map_or(hello.clone(), |ticket| hello.ticket(ticket)).stream()
}

const A: &[u8] = &[0xaa; 8];
const B: &[u8] = &[0xbb; 8];
const PRIVATE: [&[u8]; 4] = [&[1; 16], &[2; 16], &[3; 16], &[4; 16]];

const SERVER_ROWS: [Boundary; 7] = [
    Boundary::ThirdParties,
    Boundary::VirtualHosts,
    Boundary::PrivateMode,
    Boundary::Restart,
    Boundary::Applications,
    Boundary::AddressChange,
    Boundary::Nat,
];

#[test]
fn an_observer_links_what_is_shown_again() {
    let plain = Tape::default().case(&[asks(A)], &[cookie(A), cookie(A)]);
    let found = plain.decide(Boundary::Network);
    assert_eq!((found.linkable, found.viable), (Some(Linkable::Viable), 1));
    assert_eq!(found.evidence, ["case 1: visits 1 and 2 have cookie aaaaaaaa… in common"]);
    // One handed out in clear to the first visit suffices.
    let handed = Tape::default().case(&[asks(A)], &[cookie(A)]);
    assert_eq!(handed.decide(Boundary::Network).linkable, Some(Linkable::Viable));
    let [one, two, ..] = PRIVATE;
    let private = Tape::default().case(&[NOTHING], &[cookie(one), cookie(two)]);
    let found = private.decide(Boundary::Network);
    assert_eq!((found.linkable, found.blocked), (Some(Linkable::Blocked), 1));
}

#[test]
fn a_server_links_what_is_shown_on_both_sides_of_a_boundary() {
    for boundary in SERVER_ROWS {
        let plain = Tape::default().case(&[asks(A), cookie(A)], &[cookie(A), cookie(A)]);
        assert_eq!(plain.decide(boundary).linkable, Some(Linkable::Viable), "{boundary:?}");
        // Not the first visit behind, but a later one.
        let late = Tape::default().case(&[asks(A), cookie(A)], &[asks(B), cookie(A)]);
        assert_eq!(late.decide(boundary).linkable, Some(Linkable::Viable), "{boundary:?}");
    }
}

#[test]
fn a_server_links_nothing_where_the_first_visit_behind_shows_nothing() {
    let [one, two, ..] = PRIVATE;
    for boundary in SERVER_ROWS {
        let private = Tape::default().case(&[NOTHING, cookie(one)], &[NOTHING, cookie(two)]);
        let found = private.decide(boundary);
        assert_eq!(found.linkable, Some(Linkable::Blocked), "{boundary:?}: {found:?}");
        // As plain Fast Open from another address: a cookie is asked for, and another one given.
        let tape = Tape::default().case(&[asks(A), cookie(A)], &[asks(B), cookie(B)]);
        assert_eq!(tape.decide(boundary).linkable, Some(Linkable::Blocked), "{boundary:?}");
    }
}

#[test]
fn the_issuer_of_a_cookie_can_link_its_first_use() {
    let [one, two, three, _] = PRIVATE;
    for boundary in SERVER_ROWS {
        let shared = Tape::default().case(&[NOTHING, cookie(one)], &[cookie(two), cookie(three)]);
        let found = shared.decide(boundary);
        assert_eq!((found.linkable, found.bounded), (Some(Linkable::Bounded), 1), "{boundary:?}");
        assert_eq!(
            found.evidence,
            ["case 1: visit 3, the first behind, shows cookie 02020202…, which it was given \
                    before"]
        );
    }
}

#[test]
fn the_tracking_period_ends_with_the_cookie_or_never() {
    let [one, two, ..] = PRIVATE;
    let plain = Tape::default().case(&[asks(A), cookie(A)], &[cookie(A)]);
    let found = plain.decide(Boundary::Period);
    assert_eq!((found.linkable, found.period()), (Some(Linkable::Viable), Some("unrestricted")));
    let private = Tape::default().case(&[NOTHING, cookie(one)], &[NOTHING, cookie(two)]);
    let found = private.decide(Boundary::Period);
    assert_eq!((found.linkable, found.period()), (Some(Linkable::Bounded), Some("until expiry")));
    // A cookie shown after its expiry does not expire.
    let late = Tape::default().case(&[NOTHING, cookie(one)], &[cookie(two)]);
    assert_eq!(late.decide(Boundary::Period).linkable, Some(Linkable::Viable));
    assert_eq!(private.decide(Boundary::Restart).period(), None);
}

#[test]
fn tickets_are_looked_at_like_cookies_and_beside_them() {
    let [one, two, three, four] = PRIVATE;
    let (first, second) = ([one, &[8; 100]].concat(), [two, &[9; 100]].concat());
    let fresh = Tape::default().case(&[NOTHING], &[both(three, &first), both(four, &second)]);
    assert_eq!(fresh.decide(Boundary::Network).linkable, Some(Linkable::Blocked));
    // The same ticket twice, as from a client that keeps them.
    let reused = Tape::default().case(&[NOTHING], &[both(three, &first), both(four, &first)]);
    assert_eq!(reused.decide(Boundary::Network).linkable, Some(Linkable::Viable));
    // A cookie that another connection's ticket has in its name.
    let leaked = Tape::default().case(&[NOTHING], &[both(three, &first), cookie(one)]);
    assert_eq!(leaked.decide(Boundary::Network).linkable, Some(Linkable::Viable));
    // One connection may show a cookie in both places.
    let twice = Tape::default().case(&[NOTHING], &[both(one, &first), both(two, &second)]);
    assert_eq!(twice.decide(Boundary::Network).linkable, Some(Linkable::Blocked));
    let [first, second] = [&first, &second].map(|one| Shows { ticket: Some(one), ..NOTHING });
    let kept = Tape::default().case(&[NOTHING, first], &[second]);
    assert_eq!(kept.decide(Boundary::Restart).linkable, Some(Linkable::Bounded));
}

#[test]
fn nothing_is_decided_where_fast_open_did_not_work() {
    let silent = Tape::default().case(&[NOTHING, NOTHING], &[NOTHING]);
    for boundary in SERVER_ROWS.into_iter().chain([Boundary::Network, Boundary::Period]) {
        let found = silent.decide(boundary);
        assert_eq!((found.linkable, found.undecided), (None, 1), "{boundary:?}");
    }
    let mut lost = Tape::default().case(&[asks(A), cookie(A)], &[cookie(A)]);
    lost.packets.truncate(8);
    let found = lost.decide(Boundary::Restart);
    assert_eq!(found.evidence, ["case 1: the capture lacks a visit"]);
    assert_eq!(found.linkable, None);
}

/// There is no decision if Fast Open worked on one side only: what is never shown again cannot be
/// linked, whoever hands it out how often, and proves nothing.
#[test]
fn nothing_is_decided_where_fast_open_worked_on_one_side_only() {
    let [one, ..] = PRIVATE;
    let broken_behind = Tape::default().case(&[NOTHING, cookie(one)], &[NOTHING, NOTHING]);
    for boundary in SERVER_ROWS.into_iter().chain([Boundary::Period]) {
        let found = broken_behind.decide(boundary);
        assert_eq!((found.linkable, found.undecided), (None, 1), "{boundary:?}: {found:?}");
    }
    let found = broken_behind.decide(Boundary::Network);
    assert_eq!((found.linkable, found.undecided), (None, 1), "one cookie, compared with none");
    assert!(found.evidence[0].contains("none to compare it with"), "{found:?}");
}

/// It might have shown a ticket.
#[test]
fn nothing_is_decided_without_the_hello_of_a_visit() {
    let [one, two, ..] = PRIVATE;
    let mut tape = Tape::default().case(&[NOTHING, cookie(one)], &[NOTHING, cookie(two)]);
    assert_eq!(tape.decide(Boundary::Restart).linkable, Some(Linkable::Blocked));
    // The first half of the third visit's, which is not in its SYN.
    let lost = tape.packets.remove(11);
    assert!(!TcpSegment::read(&lost.bytes).unwrap().payload.is_empty());
    for boundary in [Boundary::Restart, Boundary::Network, Boundary::Period] {
        let found = tape.decide(boundary);
        assert_eq!(found.linkable, None, "{boundary:?}");
        assert_eq!(found.evidence, ["case 1: the capture lacks the ClientHello of visit 3"]);
    }
}

/// The mutation that every row is there to find: a client, or a server, with one private cookie for
/// all connections.
#[test]
fn a_private_cookie_that_is_shown_twice_makes_every_row_viable() {
    let [one, ..] = PRIVATE;
    let fixed = Tape::default().case(&[NOTHING, cookie(one)], &[NOTHING, cookie(one)]);
    for boundary in SERVER_ROWS.into_iter().chain([Boundary::Network, Boundary::Period]) {
        let found = fixed.decide(boundary);
        assert_eq!((found.linkable, found.viable), (Some(Linkable::Viable), 1), "{boundary:?}");
    }
}

/// A private cookie must not be in clear anywhere before it is shown, such as in the ticket of TLS
/// 1.2.
#[test]
fn a_cookie_handed_out_in_clear_outside_of_options_is_seen() {
    let [one, two, three, _] = PRIVATE;
    let mut tape = Tape::default().case(&[NOTHING, cookie(one)], &[NOTHING, cookie(two)]);
    let ticket = [&[22, 3, 3, 0, 90, 4, 0][..], three, one, &[7; 30]].concat();
    // After the packets of the first visit.
    tape.answer(3, &ticket);
    for boundary in [Boundary::Network, Boundary::Restart] {
        assert_eq!(
            tape.decide(boundary).linkable,
            // On one side of a boundary it tells nothing about the boundary.
            Some(if boundary == Boundary::Network { Linkable::Viable } else { Linkable::Blocked })
        );
    }
    let ticket = [&[22, 3, 3, 0, 90, 4, 0][..], two].concat();
    let mut tape = Tape::default().case(&[NOTHING, cookie(one)], &[NOTHING, cookie(two)]);
    tape.answer(3, &ticket);
    let found = tape.decide(Boundary::Restart);
    assert_eq!(found.linkable, Some(Linkable::Viable));
    let why = "case 1: cookie 02020202… stands in the packets of visit 1 as well";
    assert_eq!(found.evidence, [why]);
}

#[test]
fn the_worst_case_counts_and_the_undecided_are_not_forgotten() {
    let [one, two, three, _] = PRIVATE;
    let good = Tape::default().case(&[NOTHING, cookie(one)], &[NOTHING, cookie(three)]);
    let bounded = good.clone().case(&[NOTHING, cookie(one)], &[cookie(two)]);
    let found = bounded.decide(Boundary::Restart);
    assert_eq!((found.linkable, found.blocked, found.bounded), (Some(Linkable::Bounded), 1, 1));
    let undecided = good.case(&[NOTHING, NOTHING], &[NOTHING]);
    assert_eq!(undecided.decide(Boundary::Restart).linkable, None);
    let viable = undecided.case(&[asks(A), cookie(A)], &[cookie(A)]);
    let found = viable.decide(Boundary::Restart);
    assert_eq!((found.linkable, found.undecided), (Some(Linkable::Viable), 1));
}

#[test]
fn nothing_links_separate_cases() {
    // The same cookie in two cases: everything was forgotten in between, as a server's key may give
    // it again.
    let [front, behind] = [[asks(A), cookie(A)], [asks(B), cookie(B)]];
    let tape = Tape::default().case(&front, &behind).case(&front, &behind);
    assert_eq!(tape.decide(Boundary::AddressChange).linkable, Some(Linkable::Blocked));
}

#[test]
fn devices_are_told_apart_by_what_each_shows_again() {
    let [one, two, ..] = PRIVATE;
    for (front, behind, linkable) in [
        // Each device has a cookie of its own, or both have that of their address.
        ([asks(A), cookie(A)], [asks(B), cookie(B)], Some(Linkable::Viable)),
        ([asks(A), cookie(A)], [asks(A), cookie(A)], Some(Linkable::Blocked)),
        ([NOTHING, cookie(one)], [NOTHING, cookie(two)], Some(Linkable::Bounded)),
        ([NOTHING, cookie(one)], [NOTHING, NOTHING], None),
    ] {
        let found = Tape::default().case(&front, &behind).decide(Boundary::Devices);
        assert_eq!(found.linkable, linkable, "{found:?}");
    }
}

#[test]
fn a_ticket_outlives_its_cookie() {
    let [one, two, ..] = PRIVATE;
    let ticket = Shows { ticket: Some(&[0x5a; 100]), ..NOTHING };
    let late = [(ticket, Linkable::Bounded), (cookie(&[5; 16]), Linkable::Viable)];
    for (first, linkable) in late {
        let tape = Tape::default().case(&[NOTHING, cookie(one)], &[first, cookie(two)]);
        assert_eq!(tape.decide(Boundary::Period).linkable, Some(linkable));
    }
}

#[test]
fn connections_to_others_and_sent_again_do_not_count() {
    let [one, two, ..] = PRIVATE;
    let mut tape = Tape::default().case(&[NOTHING, cookie(one)], &[NOTHING, cookie(two)]);
    // Another arm's server, to which the same is shown.
    tape.connect([10, 100, 0, 2], cookie(one));
    assert_eq!(tape.decide(Boundary::Restart).linkable, Some(Linkable::Blocked));
    assert_eq!(tape.connections().len(), 5);
    // A retransmitted SYN is the same connection, and its cookie is shown once.
    let syn = tape.packets[4].clone();
    assert_eq!(connections(std::slice::from_ref(&syn))[0].shown.len(), 1);
    tape.packets.insert(5, syn);
    let all = tape.connections();
    assert_eq!((all.len(), all[1].shown.len(), all[1].shown[0].kind), (5, 1, Kind::Cookie));
    assert_eq!(tape.decide(Boundary::Network).linkable, Some(Linkable::Blocked));
    // A reused port is another connection.
    let mut reused = tape.packets[0].clone();
    reused.bytes[24] ^= 1;
    tape.packets.push(reused);
    assert_eq!(tape.connections().len(), 6);
}

/// A client that has no cookie any more may send its ticket over UDP.
#[test]
fn tickets_in_flights_over_udp_are_seen() {
    let [one, two, three, _] = PRIVATE;
    let ticket = [two, &[9; 100]].concat();
    let mut tape = Tape::default().case(&[NOTHING, cookie(one)], &[NOTHING, cookie(three)]);
    assert_eq!(tape.decide(Boundary::Restart).linkable, Some(Linkable::Blocked));
    let hello = client_hello(Some(&ticket));
    // In two pieces, the second first, as part of the first visit behind.
    let (first, second) = hello.split_at(80);
    let last = tape.packets[8].at;
    for (seq, offset, payload) in [(1, 80, second), (0, 0, first)] {
        let id = SessionId([7; 12]);
        tape.datagram(true, last, &Request { id, seq, offset, payload }.emit());
    }
    assert_eq!(tape.connections().len(), 5, "the flight beside four connections");
    let found = tape.decide(Boundary::Restart);
    assert_eq!(found.linkable, Some(Linkable::Bounded));
    assert!(found.evidence[0].contains("ticket 02020202…"), "{found:?}");
}

/// The ServerHello of a flight counts if TCP went on with it, and nowhere else: a connection that
/// went plain has another one.
#[test]
fn a_flight_over_udp_tells_of_a_resumption_once_it_is_joined() {
    let (key, hello) = (JoinKey::new([5; 16]), client_hello(Some(&[9; 100])));
    let mut tape = Tape::default();
    let id = key.session_id();
    tape.datagram(true, tape.at(), &Request { id, seq: 0, offset: 0, payload: &hello }.emit());
    // An answer to a join is shaped as a ServerHello that resumes.
    let (tag, payload) = (RouteTag([1; 4]), &acceptance(&key, 0)[..]);
    let answer = Response { id, seq: 0, tag, ack: 0, offset: 0, payload }.emit();
    tape.datagram(false, tape.at(), &answer);
    let resumed = |tape: &Tape| -> Vec<_> {
        tape.connections().into_iter().map(|connection| connection.resumed).collect()
    };
    assert_eq!(resumed(&tape), [None]);
    let own = hello::read(&hello).unwrap().complete().unwrap();
    let join = Join { key: key.clone(), tag, client_offset: 0, server_offset: 0 }.emit(&own);
    let ends = ((CLIENT, 40_001).into(), (SERVER, 443).into());
    tape.packet(true, ends, SYN, 1000, &[], &[]);
    tape.packet(false, ends, SYN | ACK, 7, &[], &[]);
    tape.packet(true, ends, ACK, 1001, &[], &join);
    tape.packet(false, ends, ACK, 8, &[], payload);
    assert_eq!(resumed(&tape), [Some(true), None]);
}

#[test]
fn rows_are_named_as_in_experiments() {
    for (boundary, name) in [(Boundary::ThirdParties, "third-parties"), (Boundary::Nat, "nat")] {
        assert_eq!(serde_json::to_value(boundary).unwrap(), name);
    }
    assert_eq!(
        [Linkable::Blocked, Linkable::Bounded, Linkable::Viable].map(Linkable::level),
        [0, 1, 2]
    );
    assert!(Linkable::Blocked < Linkable::Viable);
}
