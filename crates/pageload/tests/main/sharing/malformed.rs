//! Damaged and hostile captures: clear errors, no panic, no endless loop, bounded memory.

use std::io::{self, Read};

use headstart_pageload::sharing::{Audit, Limits, ReadError, Report, limits};
use proptest::prelude::*;

use crate::support::file::{Link, Order, pcap, pcap_big_endian, pcap_header, pcap_packet, pcapng};
use crate::support::ip::{Talk, Tcp, tcp, udp};
use crate::support::tls::{self, Answer12, hello};
use crate::support::{EPOCH_MS, Visit, capture};

fn read(file: &[u8]) -> Result<Report, ReadError> {
    let mut audit = Audit::new();
    audit.read("test", file)?;
    Ok(audit.report(None))
}

fn visits() -> Vec<Visit> {
    let answer = Answer12 { certificate: 2000, ticket: Some(100), ..Answer12::default() };
    vec![
        Visit::full(40_000, "198.51.100.1", 0, "a.example"),
        Visit::resumed(40_001, "2001:db8::1", 1, "a.example"),
        Visit::new(
            40_002,
            "198.51.100.1",
            2,
            hello("b.example").with(35, [7; 90]).stream(),
            answer.bytes(),
        ),
        Visit::new(40_003, "198.51.100.1", 3, hello("b.example").stream(), tls::retry()),
    ]
}

/// The same packets in every format.
fn files() -> Vec<Vec<u8>> {
    let packets: Vec<(u64, Vec<u8>)> = visits().iter().flat_map(Visit::packets).collect();
    let packets = packets.iter().map(|(at, packet)| (*at, packet.as_slice()));
    vec![
        pcap(Link::Ethernet, packets.clone()),
        pcap_big_endian(Link::Cooked2, packets.clone()),
        pcapng(Order::Little, Link::Vlan, packets.clone()),
        pcapng(Order::Big, Link::Cooked, packets),
    ]
}

#[test]
fn cut_off_at_any_place_the_rest_counts() {
    for file in files() {
        let whole = read(&file).unwrap();
        assert_eq!(whole.connections, 3);
        for end in 1..file.len() {
            let read = read(&file[..end]);
            match read {
                Ok(report) => {
                    assert!(report.connections <= whole.connections);
                    assert!(report.seen.packets <= whole.seen.packets);
                    let short = report.recordings[0].is_cut_short;
                    assert!(short || report.seen.packets > 0 || end <= 100, "{end}");
                }
                // Too short to say what it is.
                Err(ReadError::Unrecognized) => assert!(end < 4),
                Err(error) => panic!("{end}: {error}"),
            }
        }
        // Within the last packet, to be sure that the flag means something.
        assert!(read(&file[..file.len() - 1]).unwrap().recordings[0].is_cut_short);
    }
}

#[test]
fn other_files_are_refused() {
    let cases: [(&[u8], &str, &str); 6] = [
        (b"", "it is empty", "stop tcpdump"),
        (b"GET / HTTP/1.1\r\n\r\n", "neither a packet capture nor a HAR file", "name a pcap"),
        (&[0xff; 64], "neither a packet capture nor a HAR file", "name a pcap"),
        (b"\x1f\x8b\x08\x00", "it is compressed", "zcat FILE | headstart pageload sharing -"),
        (b"\x28\xb5\x2f\xfd..", "it is compressed", "zstdcat"),
        (b"\xfd7zXZ\x00", "it is compressed", "xzcat"),
    ];
    for (file, words, hint) in cases {
        let error = read(file).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        assert!(error.hint().contains(hint), "{}", error.hint());
    }
}

#[test]
fn lengths_that_lie_are_errors_with_their_place() {
    let frame = Link::Ethernet.frame(&Visit::full(1, "198.51.100.1", 0, "a").packets()[0].1);
    let first = pcap_packet(EPOCH_MS, &frame);
    // A packet of pcap that claims 2 GiB.
    let mut file = [pcap_header(Link::Ethernet), first.clone(), first].concat();
    let place = 24 + 16 + frame.len();
    file[place + 8..place + 12].copy_from_slice(&0x8000_0000_u32.to_le_bytes());
    match read(&file).unwrap_err() {
        ReadError::TooLarge { at } => assert_eq!(at, place as u64),
        error => panic!("{error}"),
    }

    for order in [Order::Little, Order::Big] {
        let begin = [order.section(), order.interface(Link::Ethernet, None)].concat();
        let packet = order.packet(0, 0, &frame);
        let block = u32::try_from(packet.len()).unwrap();
        for (place, value, is_too_large, what) in [
            (20, block, false, "more captured than the block has"),
            (20, 1 << 21, false, "more captured than the buffer has"),
            (20, u32::MAX, false, "all that there can be"),
            (4, 8, false, "a block shorter than its header"),
            (4, 0, false, "a block of no length"),
            (packet.len() - 4, block + 4, false, "two lengths that differ"),
            (4, 0x7fff_fff0, true, "a block of 2 GiB"),
        ] {
            let mut lying = packet.clone();
            lying[place..place + 4].copy_from_slice(&order.u32(value));
            let file = [begin.clone(), lying, packet.clone()].concat();
            match read(&file).unwrap_err() {
                ReadError::TooLarge { at } if is_too_large => assert_eq!(at, begin.len() as u64),
                ReadError::Malformed { at } if !is_too_large => {
                    assert_eq!(at, begin.len() as u64, "{order:?}: {what}")
                }
                error => panic!("{order:?}: {what}: {error}"),
            }
        }
    }
}

#[test]
fn blocks_may_be_large() {
    let order = Order::Little;
    let packets = Visit::full(40_000, "198.51.100.1", 0, "a.example").packets();
    for length in [1 << 19, 3_000_000, limits::CAPTURE_BLOCK - 100, limits::CAPTURE_BLOCK] {
        let comment = order.block(0xbad, &vec![0; length]);
        let mut file = [order.section(), order.interface(Link::Raw, None), comment].concat();
        file.extend(packets.iter().flat_map(|(_, packet)| order.packet(0, 0, packet)));
        match read(&file) {
            Ok(report) => {
                assert!(length < limits::CAPTURE_BLOCK && report.connections == 1, "{length}");
            }
            Err(ReadError::TooLarge { .. }) => assert_eq!(length, limits::CAPTURE_BLOCK),
            Err(error) => panic!("{length}: {error}"),
        }
    }
}

#[test]
fn interfaces_are_bounded() {
    let order = Order::Little;
    let interface = order.interface(Link::Ethernet, None);
    let most = [order.section(), interface.repeat(limits::INTERFACES)].concat();
    assert!(read(&most).is_ok());
    // Each section has its own.
    assert!(read(&most.repeat(2)).is_ok());
    let error = read(&[most, interface].concat()).unwrap_err();
    assert!(matches!(error, ReadError::Interfaces), "{error}");
}

#[test]
fn errors_of_the_input_come_through() {
    struct Broken(Vec<u8>);
    impl Read for Broken {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.0.len().min(buffer.len()).min(7);
            if count == 0 {
                return Err(io::Error::other("the disk is gone"));
            }
            let rest = self.0.split_off(count);
            buffer[..count].copy_from_slice(&self.0);
            self.0 = rest;
            Ok(count)
        }
    }
    for file in files().into_iter().chain([b"{\"log\": {".to_vec()]) {
        let error = Audit::new().read("test", Broken(file)).map(|_| ()).unwrap_err();
        assert!(matches!(error, ReadError::Io(_)), "{error:?}");
        assert!(error.to_string().contains("the disk is gone"), "{error}");
    }
}

#[test]
fn segmentation_does_not_change_the_result() {
    struct Slow<'a>(&'a [u8]);
    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = buffer.len().min(1);
            self.0.read(&mut buffer[..count])
        }
    }
    for file in files() {
        let mut audit = Audit::new();
        audit.read("test", Slow(&file)).unwrap();
        assert_eq!(audit.report(None), read(&file).unwrap());
    }
}

#[test]
fn connections_and_names_are_bounded() {
    let limits = Limits { connections: 3, names: 3, ..Limits::default() };
    let names = ["a.example", "b.example", "a.example", "c.example", "b.example"];
    let visits: Vec<Visit> = names
        .iter()
        .zip(0..)
        .map(|(name, at)| Visit::full(40_000 + at, "198.51.100.1", at.into(), name))
        .collect();
    let mut audit = Audit::with_limits(limits);
    audit.read("test", capture(&visits).as_slice()).unwrap();
    let report = audit.report(None);
    // The third name came when there was no room for a connection.
    assert_eq!((report.connections, report.names, report.seen.left_out), (3, 2, 2));
    assert!(report.is_partial());

    let mut audit = Audit::with_limits(Limits { connections: 5, names: 2, ..limits });
    audit.read("test", capture(&visits).as_slice()).unwrap();
    let report = audit.report(None);
    assert_eq!((report.connections, report.names, report.seen.left_out), (4, 2, 1));
}

/// Connections that never say enough: what is silent for longest gives way, and is counted.
#[test]
fn open_connections_are_bounded() {
    let limits = Limits { flows: 10, ..Limits::default() };
    let hello = hello("a.example").stream();
    let mut packets = Vec::new();
    let mut talks: Vec<Talk> = (0..100)
        .map(|at| Visit::full(40_000 + at, "198.51.100.1", 0, "a.example").talk())
        .collect();
    for talk in &mut talks {
        packets.extend(talk.open());
        packets.extend(talk.up(&hello));
    }
    // The answers of all: only the last ten are waited for.
    for talk in &mut talks {
        packets.extend(talk.down(&tls::answer13(false)));
    }
    let file = pcap(Link::Raw, packets.iter().map(|packet| (EPOCH_MS, packet.as_slice())));
    let mut audit = Audit::with_limits(limits);
    audit.read("test", file.as_slice()).unwrap();
    let report = audit.report(None);
    assert_eq!((report.connections, report.seen.displaced), (10, 90));
}

#[test]
fn bytes_of_open_connections_are_bounded() {
    let limits = Limits { flow_bytes: 10 * (1000 + limits::PIECE), ..Limits::default() };
    let (client, server) = ("192.0.2.7:1".parse().unwrap(), "198.51.100.1:443".parse().unwrap());
    let mut packets = Vec::new();
    for at in 0..100_u16 {
        let mut client: std::net::SocketAddr = client;
        client.set_port(1000 + at);
        let syn = Tcp { seq: 0, ack: None, syn: true, payload: &[] };
        packets.push(tcp(client, server, syn));
        // A byte is missing before it.
        let ahead = Tcp { seq: 2, ack: Some(1), syn: false, payload: &[0; 1000] };
        packets.push(tcp(client, server, ahead));
    }
    let file = pcap(Link::Raw, packets.iter().map(|packet| (EPOCH_MS, packet.as_slice())));
    let mut audit = Audit::with_limits(limits);
    audit.read("test", file.as_slice()).unwrap();
    let report = audit.report(None);
    assert_eq!((report.seen.tcp_connections, report.seen.displaced), (100, 90));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Changed bytes make an error or other figures; never a panic, never a contradiction.
    #[test]
    fn nothing_makes_it_panic(
        which in 0usize..4,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
    ) {
        let mut file = files().swap_remove(which);
        for (at, byte) in changes {
            let at = at.index(file.len());
            file[at] = byte;
        }
        check(&file)?;
    }

    /// Any frames at all, of any link type.
    #[test]
    fn any_frames(
        link in prop::sample::select(
            [Link::Null, Link::Ethernet, Link::Raw, Link::Cooked, Link::Cooked2].to_vec(),
        ),
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..120), 0..20),
    ) {
        let mut file = pcap_header(link);
        file.extend(frames.iter().flat_map(|frame| pcap_packet(EPOCH_MS, frame)));
        let report = check(&file)?;
        prop_assert_eq!(report.map(|report| report.seen.packets), Some(frames.len() as u64));
    }

    /// Any blocks at all, of every kind that pcapng has: interfaces, simple packets, names,
    /// statistics, packets, a journal, secrets, custom ones, processes, and what nobody knows.
    #[test]
    fn any_blocks(
        is_big: bool,
        blocks in prop::collection::vec(
            (
                prop::sample::select(vec![
                    1_u32, 2, 3, 4, 5, 6, 9, 10, 0xbad, 0x4000_0bad, 0x8000_0001, 0x0a0d_0d0a, 77,
                ]),
                prop::collection::vec(prop_oneof![3 => 0u8..8, 1 => any::<u8>()], 0..80),
            ),
            0..12,
        ),
    ) {
        let order = if is_big { Order::Big } else { Order::Little };
        let mut file = [order.section(), order.interface(Link::Ethernet, None)].concat();
        file.extend(blocks.iter().flat_map(|(kind, body)| order.block(*kind, body)));
        check(&file)?;
    }

    /// Any streams at all in right packets, with what begins as TLS among them.
    #[test]
    fn any_streams(
        up in stream(),
        down in stream(),
        datagram in prop::collection::vec(any::<u8>(), 0..500),
        segment in 1usize..900,
    ) {
        let visit = Visit::new(40_000, "198.51.100.1", 0, up, down);
        let mut talk = visit.talk();
        talk.segment = segment;
        let mut packets = talk.open();
        packets.extend(talk.up(&visit.up));
        packets.extend(talk.down(&visit.down));
        packets.push(udp(talk.client, talk.server, &datagram));
        let file = pcap(Link::Raw, packets.iter().map(|packet| (EPOCH_MS, packet.as_slice())));
        prop_assert!(check(&file)?.is_some());
    }
}

/// A right flight, changed in some places, or anything.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let answer = Answer12 {
        certificate: 100,
        certificate_request: true,
        ticket: Some(50),
        ..Answer12::default()
    };
    let flights = vec![
        hello("a.example").ticket(&[9; 64]).stream(),
        hello("a.example").with(35, [7; 64]).in_records(50),
        tls::answer13(true),
        [tls::retry(), tls::answer13(false)].concat(),
        answer.bytes(),
        Answer12 { abbreviated: true, ..answer }.bytes(),
    ];
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    let changed = (prop::sample::select(flights), changes).prop_map(|(mut flight, changes)| {
        for (at, byte) in changes {
            let at = at.index(flight.len());
            flight[at] = byte;
        }
        flight
    });
    prop_oneof![4 => changed, 1 => prop::collection::vec(any::<u8>(), 0..300)]
}

/// The report, if it can be read, without contradictions.
fn check(file: &[u8]) -> Result<Option<Report>, TestCaseError> {
    let Ok(report) = read(file) else { return Ok(None) };
    prop_assert!(report.client_and_server.full <= report.client_only.full);
    prop_assert!(report.client_only.full <= report.today.full);
    prop_assert!(report.today.full <= report.connections);
    let seen = &report.seen;
    let ended = seen.not_tls
        + seen.unreadable
        + seen.unanswered
        + seen.cut_off
        + seen.displaced
        + seen.copies
        + seen.left_out
        + seen.turbotls_joins;
    // Every connection has one end.
    prop_assert_eq!(seen.tcp_connections, ended + report.connections);
    Ok(Some(report))
}
