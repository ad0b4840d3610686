//! The sharing audit on captures: formats, links, order of packets, and what handshakes say.

use std::net::SocketAddr;

use headstart_pageload::sharing::{AsTable, Audit, CostModel, Grouping, RecordingKind, Report};
use headstart_proto::hello::ClientHello;
use headstart_proto::join::Join;
use headstart_proto::wire::Request;
use headstart_proto::{JoinKey, RouteTag};
use proptest::prelude::*;

use crate::support::file::{LINKS, Link, Order, pcap, pcap_big_endian, pcapng};
use crate::support::ip::{Talk, Tcp, packet, tcp, udp, with_extension_headers};
use crate::support::tls::{self, Answer12, answer13, hello, hello12};
use crate::support::{EPOCH_MS, Visit, audited, capture};

const SERVER: &str = "198.51.100.1";
const SERVER6: &str = "2001:db8:1::1";

/// Full handshakes as they were, client only, client and server.
fn full(report: &Report) -> [u64; 3] {
    [report.today.full, report.client_only.full, report.client_and_server.full]
}

fn of_packets(link: Link, packets: &[Vec<u8>]) -> Report {
    audited(&pcap(link, packets.iter().map(|packet| (EPOCH_MS, packet.as_slice()))))
}

/// One handshake, full if the answer says so.
fn one(up: Vec<u8>, down: Vec<u8>) -> Report {
    audited(&capture(&[Visit::new(40_000, SERVER, 0, up, down)]))
}

#[test]
fn the_table_of_a_small_recording() {
    let visits = [
        Visit::full(40_001, "198.51.100.1", 0, "a.example"),
        Visit::full(40_002, "198.51.100.1", 10, "a.example"),
        Visit::resumed(40_003, "198.51.100.1", 20, "a.example"),
        Visit::full(40_004, "198.51.100.2", 30, "a.example"),
        Visit::full(40_005, "203.0.113.1", 40, "a.example"),
        Visit::full(40_006, "198.51.100.1", 50, "b.example"),
    ];
    let file = capture(&visits);
    let by_name = audited(&file);
    assert_eq!((by_name.connections, by_name.names, by_name.addresses), (6, 2, 3));
    assert_eq!(full(&by_name), [5, 4, 2]);
    assert_eq!(by_name.grouping, Grouping::NameOnly);
    assert_eq!(by_name.today.resumed, 1);
    assert_eq!(by_name.span.unwrap().length().as_secs(), 50);
    assert_eq!(by_name.span.unwrap().first_unix_ms, EPOCH_MS);

    let systems = AsTable::read("198.51.100.0/24,64500\n".as_bytes()).unwrap();
    let mut audit = Audit::new();
    let recording = audit.read("small.pcap", file.as_slice()).unwrap();
    assert_eq!((recording.kind, recording.is_cut_short), (RecordingKind::Pcap, false));
    // Three that open each, and one of each flight.
    assert_eq!((recording.packets, recording.connections), (6 * 5, 6));
    let by_system = audit.report(Some(&systems));
    assert_eq!(full(&by_system), [5, 4, 3]);
    assert_eq!(by_system.grouping, Grouping::AsAndName);
    assert_eq!((by_system.systems, by_system.addresses_without_as), (1, 1));

    let a = &by_system.services[0];
    assert_eq!((a.name.as_str(), a.connections, a.addresses, a.full), ("a.example", 5, 3, 4));
    assert_eq!((a.avoidable_client_only, a.avoidable_client_and_server), (1, 2));
    assert_eq!(by_system.services[1].name, "b.example");
    assert_eq!(by_system.revisits.connections, 4);
    let within: Vec<u64> =
        by_system.revisits.lifetimes.iter().map(|lifetime| lifetime.client_only).collect();
    assert_eq!(within, [2; 4]);
    assert_eq!(
        (by_system.tickets.offered.count, by_system.tickets.offered.largest_bytes),
        (1, 188)
    );
    assert_eq!(by_system.versions.tls13, 6);
}

#[test]
fn every_link_type_carries_both_families() {
    for link in LINKS {
        for server in [SERVER, SERVER6] {
            let visit = Visit::full(40_000, server, 0, "a.example");
            let packets = visit.packets();
            let packets = packets.iter().map(|(at, packet)| (*at, packet.as_slice()));
            let report = audited(&pcap(link, packets));
            assert_eq!(full(&report), [1; 3], "{link:?} {server}: {:?}", report.seen);
        }
    }
    for (link, server) in [(Link::Ipv4, SERVER), (Link::Ipv6, SERVER6)] {
        let packets = Visit::full(40_000, server, 0, "a.example").packets();
        let report = audited(&pcap(link, packets.iter().map(|(at, packet)| (*at, &packet[..]))));
        assert_eq!(report.connections, 1, "{link:?}");
    }
}

#[test]
fn a_link_type_that_is_not_known_is_counted() {
    let packets = Visit::full(40_000, SERVER, 0, "a.example").packets();
    let report = audited(&pcap(Link::Other, packets.iter().map(|(at, packet)| (*at, &packet[..]))));
    assert_eq!((report.connections, report.seen.unknown_link_packets), (0, 5));
}

#[test]
fn extension_headers_of_ipv6_are_looked_through() {
    let packets = Visit::full(40_000, SERVER6, 0, "a.example").packets();
    let packets: Vec<Vec<u8>> =
        packets.iter().map(|(_, packet)| with_extension_headers(packet)).collect();
    assert_eq!(of_packets(Link::Ethernet, &packets).connections, 1);
}

#[test]
fn every_format_says_the_same() {
    let visit = Visit::full(40_000, SERVER, 7, "a.example");
    let packets = visit.packets();
    let packets = packets.iter().map(|(at, packet)| (*at, packet.as_slice()));
    let files = [
        pcap(Link::Ethernet, packets.clone()),
        pcap_big_endian(Link::Ethernet, packets.clone()),
        pcapng(Order::Little, Link::Ethernet, packets.clone()),
        pcapng(Order::Big, Link::Ethernet, packets),
    ];
    for (at, file) in files.iter().enumerate() {
        let report = audited(file);
        assert_eq!(report.connections, 1, "{at}");
        assert_eq!(report.span.unwrap().first_unix_ms, EPOCH_MS + 7000, "{at}");
    }
}

#[test]
fn interfaces_have_links_and_clocks_of_their_own() {
    let visits = [
        Visit::full(40_000, SERVER, 0, "a.example"),
        Visit::full(40_001, SERVER, 60, "a.example"),
        Visit::full(40_002, SERVER, 120, "a.example"),
    ];
    // Nanoseconds, microseconds by default, 2^-10 s.
    let interfaces = [(Link::Raw, Some(9)), (Link::Ethernet, None), (Link::Cooked2, Some(0x8a))];
    let order = Order::Little;
    let mut file = order.section();
    file.extend(
        interfaces.iter().flat_map(|(link, resolution)| order.interface(*link, *resolution)),
    );
    file.extend(order.block(0xbad, &[1, 2, 3])); // of a kind that nobody knows
    for (index, (visit, (link, resolution))) in visits.iter().zip(interfaces).enumerate() {
        for (at, packet) in visit.packets() {
            let interface = u32::try_from(index).unwrap();
            let ticks = match resolution {
                Some(9) => at * 1_000_000,
                Some(_) => at * 1024 / 1000,
                None => at * 1000,
            };
            file.extend(order.packet(interface, ticks, &link.frame(&packet)));
        }
    }
    let report = audited(&file);
    assert_eq!(full(&report), [3, 1, 1]);
    assert_eq!(report.span.unwrap().length().as_secs(), 120);
    assert_eq!(report.recordings[0].kind, RecordingKind::Pcapng);
}

#[test]
fn simple_packets_and_several_sections() {
    let mut file = Vec::new();
    for (order, port) in [(Order::Little, 40_000), (Order::Big, 40_001)] {
        file.extend(order.section());
        file.extend(order.interface(Link::Ethernet, None));
        for (_, packet) in Visit::full(port, SERVER, 0, "a.example").packets() {
            file.extend(order.simple_packet(&Link::Ethernet.frame(&packet)));
        }
    }
    assert_eq!(audited(&file).connections, 2);
}

#[test]
fn packets_that_cannot_be_read_are_counted() {
    for order in [Order::Little, Order::Big] {
        let mut file = order.section();
        // Of interfaces that are not there.
        file.extend(order.packet(0, 0, &[0; 60]));
        file.extend(order.simple_packet(&[0; 60]));
        file.extend(order.interface(Link::Ethernet, None));
        // An obsolete Packet Block.
        file.extend(order.block(2, &[0; 80]));
        let seen = audited(&file).seen;
        assert_eq!((seen.packets, seen.unknown_link_packets), (3, 3), "{order:?}");
    }
}

#[test]
fn tls13_resumes_where_the_server_says_so() {
    let offer = hello("a.example").with(42, []).ticket(&[9; 200]).stream();
    let refused = one(offer.clone(), answer13(false));
    assert_eq!((refused.today.full, refused.today.resumed), (1, 0));
    assert_eq!((refused.seen.resumption_offered, refused.seen.resumption_refused), (1, 1));
    assert_eq!(refused.seen.early_data_offered, 1);
    let taken = one(offer, answer13(true));
    assert_eq!((taken.today.full, taken.today.resumed), (0, 1));
    assert_eq!((taken.seen.resumption_offered, taken.seen.resumption_refused), (1, 0));
    assert_eq!(taken.tickets.offered.mean_bytes, 200.0);
}

#[test]
fn after_a_retry_the_second_answer_counts() {
    for psk in [false, true] {
        let hellos = [0; 2].map(|_| hello("a.example").ticket(&[9; 100]).stream());
        let report = one(hellos.concat(), [tls::retry(), answer13(psk)].concat());
        assert_eq!((report.connections, report.today.resumed), (1, u64::from(psk)));
        assert_eq!(report.seen.hello_retry, 1);
    }
}

#[test]
fn tls12_resumes_where_the_handshake_is_abbreviated() {
    let full = Answer12 { certificate: 3000, ticket: Some(160), ..Answer12::default() };
    let abbreviated = Answer12 { abbreviated: true, ..Answer12::default() };
    let cases = [
        // What the client has, what the server does: offered, refused, resumed, ticket in clear.
        (hello12("a.example"), full, [0, 0, 0, 1]),
        (hello12("a.example").with(35, [7; 0]), full, [0, 0, 0, 1]),
        (hello12("a.example").with(35, [7; 180]), full, [1, 1, 0, 1]),
        (hello12("a.example").with(35, [7; 180]), abbreviated, [1, 0, 1, 0]),
        (
            hello12("a.example").with(35, [7; 180]),
            Answer12 { ticket: Some(99), ..abbreviated },
            [1, 0, 1, 1],
        ),
        (hello12("a.example").with_session_id(&[4; 32]), abbreviated, [1, 0, 1, 0]),
        // A client of TLS 1.3 sends a session id for middleboxes only.
        (hello("a.example").with_session_id(&[5; 32]), full, [0, 0, 0, 1]),
        (hello("a.example").with(35, [7; 70]), abbreviated, [1, 0, 1, 0]),
    ];
    for (at, (hello, answer, expected)) in cases.into_iter().enumerate() {
        let report = one(hello.stream(), answer.bytes());
        let seen = &report.seen;
        let got = [
            seen.resumption_offered,
            seen.resumption_refused,
            report.today.resumed,
            report.tickets.in_clear.count,
        ];
        assert_eq!(got, expected, "{at}: {seen:?}");
        assert_eq!((report.connections, report.versions.tls12), (1, 1), "{at}");
    }
    let report = one(hello12("a.example").stream(), full.bytes());
    assert_eq!(report.tickets.in_clear.mean_bytes, 160.0);
}

#[test]
fn sessions_with_client_certificates_are_not_shared() {
    let answer = Answer12 { certificate: 900, certificate_request: true, ..Answer12::default() };
    let visits = [0, 10, 20].map(|second: u16| {
        let hello = hello12("a.example").stream();
        Visit::new(40_000 + second, SERVER, second.into(), hello, answer.bytes())
    });
    let report = audited(&capture(&visits));
    assert_eq!(full(&report), [3, 3, 3]);
    assert_eq!(report.seen.client_certificate_requested, 3);
}

#[test]
fn without_a_name_the_address_is_what_is_shared() {
    let visits =
        [(40_000, "198.51.100.1", 0), (40_001, "198.51.100.1", 1), (40_002, "198.51.100.2", 2)]
            .map(|(port, server, at)| {
                Visit::new(port, server, at, hello("").stream(), answer13(false))
            });
    let report = audited(&capture(&visits));
    assert_eq!(full(&report), [3, 2, 2]);
    assert_eq!((report.seen.without_name, report.services.len()), (3, 0));
}

#[test]
fn encrypted_client_hellos_are_pointed_out() {
    let hello = hello("outer.example").with(0xfe0d, [0; 40]).ticket(&[9; 120]).stream();
    let report = one(hello, answer13(true));
    assert_eq!((report.seen.encrypted_client_hello, report.today.resumed), (1, 1));
    // What such a ClientHello shows may be noise.
    assert_eq!(report.tickets.offered.count, 0);
}

#[test]
fn after_a_warning_the_handshake_goes_on() {
    let full = Answer12 { certificate: 900, ..Answer12::default() };
    let abbreviated = Answer12 { abbreviated: true, ..Answer12::default() };
    for (answer, resumed) in [(full, 0), (abbreviated, 1)] {
        let down = [tls::warning(), answer.bytes()].concat();
        let report = one(hello12("a.example").with(35, [7; 50]).stream(), down);
        assert_eq!((report.connections, report.today.resumed), (1, resumed));
    }
    // Both bytes in segments of their own; then the end.
    let visit = Visit::new(
        40_000,
        SERVER,
        0,
        hello("a.example").stream(),
        [tls::warning(), tls::alert()].concat(),
    );
    let mut talk = visit.talk();
    talk.segment = 1;
    let mut packets = talk.open();
    packets.extend(talk.up(&visit.up));
    packets.extend(talk.down(&visit.down));
    let report = of_packets(Link::Raw, &packets);
    assert_eq!((report.connections, report.seen.unanswered), (0, 1));
}

#[test]
fn handshakes_without_an_answer_do_not_count() {
    for down in [Vec::new(), tls::alert(), b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()] {
        let report = one(hello("a.example").stream(), down);
        assert_eq!((report.connections, report.seen.unanswered), (0, 1));
    }
}

#[test]
fn other_protocols_do_not_count() {
    let cases: [(&[u8], &[u8]); 4] = [
        (b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n"),
        (b"", b"SSH-2.0-OpenSSH_9.2\r\n"),
        (b"EHLO x\r\n", b"220 mail\r\n"),
        (b"", b""),
    ];
    for (up, down) in cases {
        let report = one(up.to_vec(), down.to_vec());
        assert_eq!(
            (report.connections, report.seen.not_tls, report.seen.tcp_connections),
            (0, 1, 1)
        );
    }
}

#[test]
fn a_malformed_client_hello_is_counted_as_such() {
    let mut bytes = hello("a.example").stream();
    // The first extension claims more than there is.
    let at = 5 + 4 + 2 + 32 + 1 + 2 + 4 + 1 + 1 + 2 + 2;
    bytes[at] = 0xff;
    let report = one(bytes, answer13(false));
    assert_eq!((report.connections, report.seen.unreadable), (0, 1));
}

/// A datagram of QUIC with a long header.
fn initial(first: u8, version: u32) -> Vec<u8> {
    let mut datagram = vec![first];
    datagram.extend(version.to_be_bytes());
    datagram.resize(1200, 0);
    datagram
}

#[test]
fn quic_and_turbotls_are_seen_and_not_counted() {
    let client: SocketAddr = "192.0.2.7:50000".parse().unwrap();
    let server: SocketAddr = "198.51.100.1:443".parse().unwrap();
    let (key, tag) = (JoinKey::new([7; 16]), RouteTag::default());
    let request = Request { id: key.session_id(), seq: 0, offset: 0, payload: &[22] }.emit();
    let join = Join { key, tag, client_offset: 0, server_offset: 0 };
    let join = [join.emit(&ClientHello::default()), hello("a.example").stream()].concat();
    let [second, handshake, short, turbo, joining] =
        [50_001, 50_002, 50_003, 50_004, 50_005].map(|port| SocketAddr::new(client.ip(), port));
    let mut packets = vec![
        udp(client, server, &initial(0xc3, 1)),
        udp(server, client, &initial(0xc1, 1)),
        udp(second, server, &initial(0xd0, 0x6b33_43cf)),
        udp(handshake, server, &initial(0xe0, 1)), // a Handshake packet begins nothing
        udp(short, server, &[0x40; 60]),
        udp(turbo, server, &request),
        udp(turbo, server, &request),
    ];
    let mut talk = Talk::new(joining, server);
    packets.extend(talk.open());
    packets.extend(talk.up(&join));
    let report = of_packets(Link::Ethernet, &packets);
    let seen = &report.seen;
    assert_eq!((seen.quic_connections, seen.turbotls_datagrams, seen.turbotls_joins), (2, 2, 1));
    assert_eq!(report.connections, 0);
}

#[test]
fn packets_may_come_in_any_order() {
    let visit = Visit::new(
        40_000,
        SERVER,
        0,
        hello("a.example").with(0x7777, [0; 3000]).stream(),
        Answer12 { certificate: 5000, ticket: Some(200), ..Answer12::default() }.bytes(),
    );
    let packets: Vec<Vec<u8>> = visit.packets().into_iter().map(|(_, packet)| packet).collect();
    assert!(packets.len() > 9, "{}", packets.len());
    let (open, data) = packets.split_at(3);
    let reversed: Vec<Vec<u8>> = open.iter().chain(data.iter().rev()).cloned().collect();
    let twice: Vec<Vec<u8>> = packets.iter().chain(&packets).cloned().collect();
    for packets in [packets.clone(), reversed, twice] {
        let report = of_packets(Link::Raw, &packets);
        assert_eq!(report.connections, 1, "{:?}", report.seen);
        assert_eq!(report.seen.tcp_connections, 1);
        assert_eq!(report.tickets.in_clear.count, 1);
    }
}

#[test]
fn a_capture_may_begin_or_miss_packets_of_the_opening() {
    let visit = Visit::resumed(40_000, SERVER, 0, "a.example");
    let packets: Vec<Vec<u8>> = visit.packets().into_iter().map(|(_, packet)| packet).collect();
    for without in [vec![], vec![0], vec![1], vec![2], vec![0, 1], vec![1, 2], vec![0, 1, 2]] {
        let kept = packets.iter().enumerate().filter(|(at, _)| !without.contains(at));
        let kept: Vec<Vec<u8>> = kept.map(|(_, packet)| packet.clone()).collect();
        let report = of_packets(Link::Raw, &kept);
        assert_eq!(report.today.resumed, 1, "without {without:?}: {:?}", report.seen);
    }
    // From the middle of a connection nothing can be told, and nothing is made up.
    let report = of_packets(Link::Raw, &packets[4..]);
    assert_eq!((report.connections, report.seen.tcp_connections), (0, 0));
}

#[test]
fn data_in_the_syn_is_data() {
    let talk = Talk::new("192.0.2.7:40000".parse().unwrap(), "198.51.100.1:443".parse().unwrap());
    let (client, server) = (talk.client, talk.server);
    let hello = hello("a.example").stream();
    let count = u32::try_from(hello.len()).unwrap();
    let syn = Tcp { seq: 100, ack: None, syn: true, payload: &hello };
    let answer = Tcp { seq: 900, ack: Some(101 + count), syn: true, payload: &[] };
    let flight = answer13(false);
    let data = Tcp { seq: 901, ack: Some(101 + count), syn: false, payload: &flight };
    let packets =
        [tcp(client, server, syn), tcp(server, client, answer), tcp(server, client, data)];
    assert_eq!(of_packets(Link::Raw, &packets).today.full, 1);
}

#[test]
fn the_same_ports_again_are_another_connection() {
    let [first, second] = [0, 0].map(|at| Visit::full(40_000, SERVER, at, "a.example"));
    let mut packets: Vec<Vec<u8>> = first.packets().into_iter().map(|(_, packet)| packet).collect();
    let mut talk = second.talk();
    talk.client_seq = 5;
    talk.server_seq = 77;
    packets.extend(talk.open());
    packets.extend(talk.up(&second.up));
    packets.extend(talk.down(&second.down));
    let report = of_packets(Link::Raw, &packets);
    assert_eq!((full(&report), report.seen.tcp_connections), ([2, 1, 1], 2));
}

/// On both sides of a NAT, or of a proxy that passes TLS through, as `tcpdump -i any` sees it.
#[test]
fn a_handshake_that_is_seen_twice_counts_once() {
    let inside = Visit::full(40_000, SERVER, 0, "a.example");
    let outside = Visit { port: 50_000, ..inside.clone() };
    let report = audited(&capture(&[inside.clone(), outside]));
    assert_eq!((full(&report), report.seen.copies), ([1; 3], 1));
    assert_eq!(report.seen.tcp_connections, 2);
    // In captures of the same time, too, made at different places.
    let other = Visit::full(40_001, SERVER, 1, "a.example");
    let mut audit = Audit::new();
    audit.read("inside", capture(&[inside.clone(), other.clone()]).as_slice()).unwrap();
    let outside = [(&inside, 50_000), (&other, 50_001)];
    let outside = outside.map(|(visit, port)| Visit { port, ..visit.clone() });
    audit.read("outside", capture(&outside).as_slice()).unwrap();
    let report = audit.report(None);
    assert_eq!((report.connections, report.seen.copies), (2, 2));
    // A client that sends one ClientHello twice is answered twice.
    let again = Visit { port: 50_001, down: answer13(false), ..inside.clone() };
    let report = audited(&capture(&[inside, again]));
    assert_eq!((full(&report), report.seen.copies), ([2, 1, 1], 0));
}

#[test]
fn packets_cut_by_the_capture_are_pointed_out() {
    let packets = Visit::full(40_000, SERVER, 0, "a.example").packets();
    let cut = packets.iter().map(|(at, packet)| (*at, &packet[..packet.len().min(96)]));
    let report = audited(&pcap(Link::Raw, cut));
    assert_eq!((report.connections, report.seen.cut_off), (0, 1));
}

#[test]
fn fragments_of_ip_are_counted() {
    let (from, to) = ("192.0.2.7".parse().unwrap(), SERVER.parse().unwrap());
    let mut fragment = packet(from, to, 6, &[0; 64]);
    fragment[6] = 0x20; // more fragments
    let report = of_packets(Link::Raw, &[fragment, packet(from, to, 47, &[0; 64])]);
    assert_eq!((report.seen.fragments, report.seen.other_packets), (1, 1));
}

#[test]
fn a_connection_may_go_on_in_the_next_file() {
    let packets = Visit::full(40_000, SERVER, 0, "a.example").packets();
    let (first, second) = packets.split_at(4);
    let [first, second] = [first, second].map(|packets| {
        pcap(Link::Raw, packets.iter().map(|(at, packet)| (*at, packet.as_slice())))
    });
    let mut audit = Audit::new();
    audit.read("0", first.as_slice()).unwrap();
    assert_eq!(audit.read("1", second.as_slice()).unwrap().connections, 1);
    let report = audit.report(None);
    assert_eq!(report.connections, 1);
    let names: Vec<&str> = report.recordings.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(names, ["0", "1"]);
}

#[test]
fn a_client_hello_may_be_in_many_records() {
    let hello = hello12("a.example").with(35, [7; 300]);
    for length in [1, 7, 100] {
        let answer = Answer12 { abbreviated: true, ..Answer12::default() };
        let report = one(hello.in_records(length), answer.bytes());
        assert_eq!(report.tickets.offered.largest_bytes, 300, "{length}");
    }
}

#[test]
fn the_json_has_the_documented_fields() {
    let report = audited(&capture(&[Visit::full(40_000, SERVER, 0, "a.example")]));
    let json = serde_json::to_value(&report).unwrap();
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/sharing.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut missing = Vec::new();
    collect(&json, "", &mut |path| {
        if !page.contains(&format!("| `{path}` |")) {
            missing.push(path.to_owned());
        }
    });
    assert!(missing.is_empty(), "not in docs/sharing.md: {missing:?}");
}

/// The paths of all leaves, such as `today.full` and `services[].name`.
fn collect(value: &serde_json::Value, path: &str, each: &mut impl FnMut(&str)) {
    match value {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                collect(value, &path, each);
            }
        }
        serde_json::Value::Array(values) => {
            values.iter().take(1).for_each(|value| collect(value, &format!("{path}[]"), each));
        }
        _ => each(path),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is visited: the more is shared, the fewer full handshakes; and the cost follows
    /// them.
    #[test]
    fn more_sharing_never_costs_more(
        visits in prop::collection::vec((0usize..4, 1u8..6, 0u64..3000, any::<bool>()), 1..40),
    ) {
        let names = ["a.example", "b.example", "c.example", ""];
        let visits: Vec<Visit> = visits
            .iter()
            .enumerate()
            .map(|(at, (name, address, second, resumed))| {
                let port = 40_000 + u16::try_from(at).unwrap();
                let server = format!("198.51.100.{address}");
                let visit = if *resumed { Visit::resumed } else { Visit::full };
                visit(port, &server, *second, names[*name])
            })
            .collect();
        let systems = AsTable::read("198.51.100.0/30,1\n".as_bytes()).unwrap();
        for systems in [None, Some(&systems)] {
            let mut audit = Audit::new();
            audit.read("test", capture(&visits).as_slice()).unwrap();
            let report = audit.report(systems).with_costs(CostModel::PAPER);
            prop_assert_eq!(report.connections, visits.len() as u64);
            let [today, near, far] = full(&report);
            prop_assert!(far <= near && near <= today);
            let arms = [&report.today, &report.client_only, &report.client_and_server];
            for arm in arms {
                prop_assert_eq!(arm.full + arm.resumed, report.connections);
                prop_assert_eq!(arm.avoided, today - arm.full);
            }
            prop_assert!(arms.is_sorted_by(|one, next| one.latency_ms >= next.latency_ms));
            prop_assert!(arms.is_sorted_by(|one, next| one.energy_uah >= next.energy_uah));
        }
    }

    /// The order of a flight's packets, and which come twice, change nothing.
    #[test]
    fn order_and_copies_change_nothing(
        order in Just((0..11usize).collect::<Vec<usize>>()).prop_shuffle(),
        copies in prop::collection::vec(0usize..11, 0..6),
    ) {
        let visit = Visit::new(
            40_000,
            SERVER,
            0,
            hello("a.example").with(0x7777, [0; 4000]).stream(),
            Answer12 { certificate: 6000, ticket: Some(200), ..Answer12::default() }.bytes(),
        );
        let packets: Vec<Vec<u8>> = visit.packets().into_iter().map(|(_, packet)| packet).collect();
        let (open, data) = packets.split_at(3);
        let mut mixed = open.to_vec();
        mixed.extend(order.iter().chain(&copies).filter_map(|at| data.get(*at)).cloned());
        mixed.extend(data.iter().cloned()); // at last all have come
        let report = of_packets(Link::Raw, &mixed);
        prop_assert_eq!(report.connections, 1, "{:?}", report.seen);
        prop_assert_eq!(report.today.full, 1);
    }
}
