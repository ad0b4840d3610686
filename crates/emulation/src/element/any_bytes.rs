//! Invariants of all elements, whatever the bytes are.

use std::time::Duration;

use proptest::prelude::*;

use super::KINDS;
use crate::ip::{TcpFields, tcp, udp};
use crate::{Link, Packet, Path, Protocol};

/// Paths with each kind of element at least once.
const PATHS: &[&str] = &[
    "delay 5ms",
    "delay 5ms jitter 7ms",
    "delay 5ms jitter 3ms reordering seed 4",
    "drop udp",
    "udp drop tcp",
    "drop-syn 1,3",
    "drop-syn-ack 1 each-connection",
    "drop-syn-data",
    "duplicate 50%",
    "loss 30%",
    "bursts 30% mean-length 2.5",
    "reorder 30% by 2ms",
    "rate 1Mbit queue 3kB",
    "mtu 68",
    "mtu 100 silent",
    "strip-fast-open",
    "one-reply",
    "tcp one-reply",
    "udp-dies after 3ms",
    "udp-dies after 3ms each-flow",
    "dpi tls-only",
    "dpi tls-only port 444 names a.test b.test server-side swallow",
    "nat 203.0.113.1,2001:db8::1",
    "nat 10.77.2.1,10.77.1.1,fd77::1:1 change after 2 packets",
    "nat 203.0.113.1,203.0.113.2 change after 3ms",
    "nat 203.0.113.1,203.0.113.2 change after 2 packets for new flows",
    "dpi tls-only, nat 10.77.1.1, one-reply, mtu 90, strip-fast-open, delay 1ms jitter 2ms",
];

#[test]
fn paths_cover_all_kinds() {
    for kind in KINDS {
        assert!(
            PATHS.iter().any(|path| path.split(' ').any(|word| word == kind.name)),
            "{}",
            kind.name
        );
    }
}

/// Generates packets: arbitrary bytes, or a valid packet between ends that the paths know, perhaps
/// with some bytes changed and its tail cut off.
fn some_packet() -> impl Strategy<Value = Packet> {
    let protocol = prop_oneof![Just(Protocol::Udp), Just(Protocol::Tcp), Just(Protocol::Other)];
    let anything = (protocol, prop::collection::vec(any::<u8>(), 0..120))
        .prop_map(|(protocol, bytes)| Packet { protocol, bytes });
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    let cut = prop_oneof![3 => Just(None), 1 => any::<prop::sample::Index>().prop_map(Some)];
    let nearly_whole = (whole_packet(), changes, cut).prop_map(|(mut packet, changes, cut)| {
        for (index, byte) in changes {
            *index.get_mut(&mut packet.bytes) = byte;
        }
        if let Some(cut) = cut {
            packet.bytes.truncate(cut.index(packet.bytes.len()));
        }
        packet
    });
    prop_oneof![1 => anything, 1 => whole_packet(), 3 => nearly_whole]
}

fn whole_packet() -> impl Strategy<Value = Packet> {
    let ends = prop::sample::select(vec![
        ("10.77.1.1:443", "10.77.2.1:443"),
        ("10.77.2.1:443", "10.77.1.1:5000"),
        ("10.77.2.1:443", "203.0.113.1:1024"),
        ("[fd77::1:1]:5000", "[fd77::2:1]:443"),
        ("[fd77::2:1]:443", "[2001:db8::1]:1024"),
    ]);
    let options = prop::collection::vec(prop_oneof![Just(34), Just(254), 0..6u8], 0..40);
    let payload = prop::collection::vec(any::<u8>(), 0..60);
    (ends, any::<bool>(), any::<u8>(), 0..4u32, options, payload).prop_map(
        |((from, to), is_udp, flags, seq, options, payload)| {
            let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
            let (options, payload) = (options.as_slice(), payload.as_slice());
            let fields = TcpFields { seq, ack: seq, flags, window: 0, options, payload };
            if is_udp { udp(from, to, payload) } else { tcp(from, to, fields) }.unwrap()
        },
    )
}

/// Polls a link for the packets due until then, and checks each.
fn poll(link: &mut Link, until: Duration) -> Result<(), TestCaseError> {
    let mut last = Duration::ZERO;
    while let Some(due) = link.next_due().filter(|due| *due <= until) {
        prop_assert!(due >= last, "out of time order");
        last = due;
        prop_assert_eq!(
            due.checked_sub(Duration::from_nanos(1)).and_then(|early| link.poll(early)),
            None
        );
        while link.poll(due).is_some() {}
    }
    while let Some((at, _)) = link.take_reply() {
        prop_assert!(at <= until);
    }
    Ok(())
}

/// Sends packets over a link, one a millisecond, and checks each that comes out.
fn run(link: &mut Link, packets: &[Packet]) -> Result<(), TestCaseError> {
    let mut now = Duration::ZERO;
    for packet in packets {
        now += Duration::from_millis(1);
        link.send(now, packet.clone());
        poll(link, now)?;
    }
    poll(link, Duration::MAX)?;
    let counts = link.counts();
    prop_assert_eq!(counts.sent, packets.len() as u64);
    prop_assert_eq!(counts.sent + counts.added, counts.delivered + counts.dropped);
    prop_assert_eq!((counts.overflowed, link.queued()), (0, 0));
    Ok(())
}

proptest! {
    /// No panic, nothing early, everything accounted for.
    #[test]
    fn any_bytes_through_every_element(
        out in prop::collection::vec(some_packet(), 0..12),
        back in prop::collection::vec(some_packet(), 0..12),
    ) {
        for text in PATHS {
            let mut path: Path = text.parse().unwrap();
            run(&mut path.outbound, &out)?;
            run(&mut path.inbound, &back)?;
        }
    }

    #[test]
    fn any_path_parses_or_is_refused(words in prop::collection::vec(some_word(), 0..8)) {
        let _ = words.join(" ").parse::<Path>();
    }
}

fn some_word() -> impl Strategy<Value = String> {
    let known = KINDS.iter().flat_map(|kind| kind.form.split(' ')).map(str::to_owned);
    let more =
        ["up(", "down(", ")", "(", "preset", "lte", "5ms", "3%", "7", "1kB", "1Mbit", "10.0.0.1"];
    prop::sample::select(known.chain(more.map(str::to_owned)).collect::<Vec<_>>())
}
