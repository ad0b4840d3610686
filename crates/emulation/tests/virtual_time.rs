//! Elements and links in virtual time.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use headstart_emulation::{
    Delay, Duplicate, Element, Jitter, Link, Loss, MAX_QUEUED, Packet, Pick, Protocol, Rate,
    Reorder,
};
use proptest::prelude::*;

const MS: Duration = Duration::from_millis(1);

fn ms(millis: u32) -> Duration {
    MS * millis
}

/// Every packet of the link with the time it came out, polling only when the link says so.
fn drained(link: &mut Link) -> Vec<(Duration, Packet)> {
    let mut out = Vec::new();
    while let Some(due) = link.next_due() {
        while let Some(packet) = link.poll(due) {
            out.push((due, packet));
        }
    }
    out
}

/// Sends packets 1, 2, ... one millisecond apart and returns (time in ms, first byte) of what comes
/// out.
fn through(mut link: Link, protocols: &[Protocol]) -> Vec<(u128, u8)> {
    for (number, protocol) in (1..).zip(protocols) {
        link.send(ms(u32::from(number)), Packet { protocol: *protocol, bytes: vec![number] });
    }
    drained(&mut link).into_iter().map(|(at, packet)| (at.as_millis(), packet.bytes[0])).collect()
}

const FOUR_UDP: [Protocol; 4] = [Protocol::Udp; 4];
const MIXED: [Protocol; 6] =
    [Protocol::Udp, Protocol::Tcp, Protocol::Udp, Protocol::Other, Protocol::Tcp, Protocol::Udp];

#[test]
fn an_empty_link_passes_at_once() {
    assert_eq!(through(Link::default(), &FOUR_UDP), [(1, 1), (2, 2), (3, 3), (4, 4)]);
}

#[test]
fn delays_add_up() {
    let link = Link::new(vec![Box::new(Delay::millis(10)), Box::new(Delay::millis(15))]);
    assert_eq!(through(link, &FOUR_UDP), [(26, 1), (27, 2), (28, 3), (29, 4)]);
}

#[test]
fn nothing_comes_early() {
    let mut link = Link::default().with(Delay::millis(10));
    link.send(MS, Packet::udp([1]));
    assert_eq!(link.next_due(), Some(ms(11)));
    assert_eq!(link.poll(ms(11) - Duration::from_nanos(1)), None);
    assert_eq!(link.poll(ms(11)), Some(Packet::udp([1])));
    assert_eq!(link.next_due(), None);
}

#[test]
fn exact_loss() {
    assert_eq!(through(Link::default().with(Loss::exact([2, 4])), &FOUR_UDP), [(1, 1), (3, 3)]);
}

#[test]
fn exact_loss_of_one_protocol_counts_only_that() {
    let link = Link::default().with(Loss::exact([2]).only(Protocol::Udp));
    assert_eq!(through(link, &MIXED), [(1, 1), (2, 2), (4, 4), (5, 5), (6, 6)]);
    let link = Link::default().with(Loss::exact([1]).only(Protocol::Tcp));
    assert_eq!(through(link, &MIXED), [(1, 1), (3, 3), (4, 4), (5, 5), (6, 6)]);
}

#[test]
fn reordered_packets_are_overtaken() {
    let link = Link::default().with(Reorder::exact([1, 3], ms(2))).with(Delay::millis(5));
    // Packet 1 reaches the delay at 3 ms together with nothing, packet 3 at 5 ms; ties would keep
    // arrival order.
    assert_eq!(through(link, &FOUR_UDP), [(7, 2), (8, 1), (9, 4), (10, 3)]);
}

#[test]
fn packets_due_together_leave_in_the_order_they_arrived() {
    let mut link = Link::default().with(Reorder::exact([1], ms(2))).with(Delay::millis(5));
    link.send(ms(0), Packet::udp([1]));
    for number in 2..=5 {
        link.send(ms(2), Packet::udp([number]));
    }
    let order: Vec<_> =
        drained(&mut link).into_iter().map(|(at, packet)| (at, packet.bytes[0])).collect();
    assert_eq!(order, [1, 2, 3, 4, 5].map(|number| (ms(7), number)));
}

#[test]
fn duplicates_come_right_behind() {
    let link = Link::default().with(Duplicate::exact([2])).with(Delay::millis(5));
    assert_eq!(through(link, &FOUR_UDP), [(6, 1), (7, 2), (7, 2), (8, 3), (9, 4)]);
}

#[test]
fn a_copy_is_a_packet_of_its_own_for_what_follows() {
    let link = Link::default().with(Duplicate::exact([1])).with(Loss::exact([1]));
    assert_eq!(through(link, &FOUR_UDP), [(1, 1), (2, 2), (3, 3), (4, 4)]);
}

#[test]
fn blocked_or_late_udp_leaves_the_rest_alone() {
    assert_eq!(through(Link::default().with(Loss::all_udp()), &MIXED), [(2, 2), (4, 4), (5, 5)]);
    assert_eq!(
        through(Link::default().with(Delay::udp(ms(10))), &MIXED),
        [(2, 2), (4, 4), (5, 5), (11, 1), (13, 3), (16, 6)]
    );
}

#[test]
fn a_packet_may_be_lost_late_and_the_wait_says_so() {
    let mut link = Link::default().with(Delay::millis(10)).with(Loss(Pick::every()));
    link.send(Duration::ZERO, Packet::tcp([1]));
    assert_eq!(link.next_due(), Some(ms(10)));
    assert_eq!(link.poll(ms(10)), None);
    assert_eq!(link.next_due(), None);
    assert_eq!((link.counts().sent, link.counts().dropped, link.counts().delivered), (1, 1, 0));
}

#[test]
fn time_never_goes_back() {
    let mut link = Link::default().with(Delay::millis(10));
    link.send(ms(5), Packet::udp([1]));
    link.send(ms(3), Packet::udp([2]));
    assert_eq!(drained(&mut link), [(ms(15), Packet::udp([1])), (ms(15), Packet::udp([2]))]);
}

#[test]
fn a_link_is_full_at_its_limit_and_not_before() {
    let mut link = Link::default().with(Delay::millis(10));
    for _ in 0..MAX_QUEUED {
        link.send(Duration::ZERO, Packet::udp([]));
    }
    assert_eq!((link.queued(), link.counts().overflowed), (MAX_QUEUED, 0));
    link.send(Duration::ZERO, Packet::udp([]));
    assert_eq!((link.queued(), link.counts().overflowed), (MAX_QUEUED, 1));
    assert_eq!(drained(&mut link).len(), MAX_QUEUED);
}

#[test]
fn an_endless_delay_holds_for_ever_without_overflow() {
    let mut link = Link::default().with(Delay(Duration::MAX));
    link.send(MS, Packet::udp([1]));
    assert_eq!(link.next_due(), Some(Duration::MAX));
}

#[test]
fn text_makes_the_same_link() {
    let from_text: Link = "delay 5ms, udp loss packets 2".parse().unwrap();
    let built = Link::default().with(Delay::millis(5)).with(Loss::exact([2]).only(Protocol::Udp));
    assert_eq!(through(from_text, &MIXED), through(built, &MIXED));
}

#[test]
fn jitter_stays_within_its_bounds_and_uses_them() {
    let mut link = Link::default().with(Jitter::new(ms(25), ms(5), 7));
    // Far enough apart that none waits for the one before.
    for second in 0..1000 {
        link.send(Duration::from_secs(second), Packet::udp([]));
    }
    let out = (0..).zip(drained(&mut link));
    let delays: Vec<_> = out.map(|(second, (at, _))| at - Duration::from_secs(second)).collect();
    let (least, most) = (delays.iter().min().unwrap(), delays.iter().max().unwrap());
    assert!(*least >= ms(20) && *least < ms(21) && *most <= ms(30) && *most > ms(29));
    let mean = delays.iter().sum::<Duration>() / 1000;
    // Five standard errors of an even spread over 10 ms are 0.46 ms.
    assert!(mean > ms(24) && mean < ms(26), "{mean:?}");
}

/// The numbers of 100 packets as they come out.
fn order(jitter: Jitter) -> Vec<u8> {
    let mut link = Link::default().with(jitter);
    for number in 0..100 {
        link.send(MS * number / 10, Packet::udp([u8::try_from(number).unwrap()]));
    }
    drained(&mut link).into_iter().map(|(_, packet)| packet.bytes[0]).collect()
}

#[test]
fn jitter_keeps_order_unless_told_otherwise() {
    assert!(order(Jitter::new(ms(25), ms(5), 7)).is_sorted());
    let mixed = order(Jitter::new(ms(25), ms(5), 7).reordering());
    assert!(!mixed.is_sorted() && mixed.len() == 100);
    // Never below zero.
    assert!(order(Jitter::new(ms(1), ms(5), 7)).is_sorted());
}

/// 1,000 bytes at 8 Mbit/s take 1 ms each.
#[test]
fn a_rate_spaces_packets_and_its_queue_drops_the_last() {
    let mut link = Link::default().with(Rate::new(8_000_000, 3_000));
    for (at, number) in [
        // The first is under way, two wait; the fourth finds 3,000 bytes before it.
        (Duration::ZERO, 1),
        (Duration::ZERO, 2),
        (Duration::ZERO, 3),
        (Duration::ZERO, 4),
        // Half of the first has gone: there is still no room for a fifth; after the whole of it
        // there is.
        (MS / 2, 5),
        (MS, 6),
        // Idle again.
        (ms(10), 7),
    ] {
        let mut bytes = vec![0; 1000];
        bytes[0] = number;
        link.send(at, Packet::udp(bytes));
    }
    let out: Vec<_> = drained(&mut link)
        .into_iter()
        .map(|(at, packet)| (at.as_millis(), packet.bytes[0]))
        .collect();
    assert_eq!(out, [(1, 1), (2, 2), (3, 3), (4, 6), (11, 7)]);
    assert_eq!(link.counts().dropped, 2);
}

#[test]
fn an_idle_rate_takes_what_its_queue_never_could() {
    let mut link = Link::default().with(Rate::new(8, 0));
    link.send(Duration::ZERO, Packet::udp([0; 3]));
    link.send(Duration::ZERO, Packet::udp([0; 1]));
    assert_eq!(drained(&mut link), [(ms(3000), Packet::udp([0; 3]))]);
}

#[test]
fn bursts_lose_neighbours() {
    let link: Link = "bursts 20% mean-length 3 seed 5".parse().unwrap();
    let passed = through(link, &[Protocol::Udp; 40]);
    let lost: Vec<u8> = (1..=40).filter(|n| passed.iter().all(|(_, number)| number != n)).collect();
    assert_eq!(lost, SEED_5_IN_BURSTS);
}
const SEED_5_IN_BURSTS: &[u8] = &[4, 5, 6, 7, 25, 26, 27, 28, 31, 32, 33, 34];

/// A list of elements as text, so that a failing case prints itself.
fn some_elements() -> impl Strategy<Value = String> {
    let pick = prop_oneof![
        (0..=100u8, any::<u64>()).prop_map(|(percent, seed)| format!("{percent}% seed {seed}")),
        prop::collection::vec(1..20u64, 1..4).prop_map(|numbers| format!(
            "packets {}",
            numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
        )),
    ];
    let element = (prop_oneof![Just(""), Just("udp "), Just("tcp ")], pick, 0..20u8, 0..9u8)
        .prop_map(|(narrowed, pick, millis, kind)| match kind {
            0 => format!("{narrowed}delay {millis}ms"),
            4 => format!("{narrowed}delay 9ms jitter {millis}ms seed 3"),
            5 => format!("{narrowed}delay 9ms jitter {millis}ms reordering"),
            6 => format!("{narrowed}bursts {millis}% mean-length 3"),
            7 => format!("{narrowed}rate {}kbit queue 3B", 1 + millis),
            8 => format!("{narrowed}mtu 68, strip-fast-open, drop-syn-data"),
            1 => format!("{narrowed}loss {pick}"),
            2 => format!("{narrowed}duplicate {pick}"),
            _ => format!("{narrowed}reorder {pick} by {millis}ms"),
        });
    prop::collection::vec(element, 0..6).prop_map(|elements| elements.join(", "))
}

/// Packets as (milliseconds after the one before, protocol); each carries its number.
fn some_packets() -> impl Strategy<Value = Vec<(Duration, Packet)>> {
    let protocol = prop_oneof![Just(Protocol::Udp), Just(Protocol::Tcp), Just(Protocol::Other)];
    prop::collection::vec((0..5u32, protocol), 0..40).prop_map(|packets| {
        let mut at = Duration::ZERO;
        let numbered = (0u8..).zip(packets).map(|(number, (gap, protocol))| {
            at += ms(gap);
            (at, Packet { protocol, bytes: vec![number] })
        });
        numbered.collect()
    })
}

/// Sends at the given times, polling in between only as far as the next packet to send.
fn run(link: &mut Link, packets: &[(Duration, Packet)]) -> Vec<(Duration, Packet)> {
    let mut out = Vec::new();
    for (at, packet) in packets {
        while let Some(due) = link.next_due().filter(|due| due < at) {
            while let Some(packet) = link.poll(due) {
                out.push((due, packet));
            }
        }
        link.send(*at, packet.clone());
    }
    out.extend(drained(link));
    out
}

/// Sends everything first and polls afterwards, with the times lost.
fn run_late(link: &mut Link, packets: &[(Duration, Packet)]) -> Vec<Packet> {
    for (at, packet) in packets {
        link.send(*at, packet.clone());
    }
    std::iter::from_fn(|| link.poll(Duration::MAX)).collect()
}

fn packets_of(out: &[(Duration, Packet)]) -> Vec<Packet> {
    out.iter().map(|(_, packet)| packet.clone()).collect()
}

proptest! {
    #[test]
    fn same_seed_same_packets(elements in some_elements(), packets in some_packets()) {
        let [mut one, mut two] = [(); 2].map(|()| elements.parse::<Link>().unwrap());
        prop_assert_eq!(run(&mut one, &packets), run(&mut two, &packets));
        prop_assert_eq!(one.counts(), two.counts());
    }

    #[test]
    fn output_does_not_depend_on_when_it_is_polled(
        elements in some_elements(),
        packets in some_packets(),
    ) {
        let [mut one, mut two] = [(); 2].map(|()| elements.parse::<Link>().unwrap());
        prop_assert_eq!(packets_of(&run(&mut one, &packets)), run_late(&mut two, &packets));
    }

    #[test]
    fn packets_leave_in_time_order_never_early_and_unchanged(
        elements in some_elements(),
        packets in some_packets(),
    ) {
        let mut link: Link = elements.parse().unwrap();
        let out = run(&mut link, &packets);
        prop_assert!(out.is_sorted_by_key(|(at, _)| *at));
        for (at, packet) in &out {
            let (sent, original) = &packets[usize::from(packet.bytes[0])];
            prop_assert!(at >= sent);
            prop_assert_eq!(packet, original);
        }
    }

    #[test]
    fn every_packet_is_accounted_for(elements in some_elements(), packets in some_packets()) {
        let mut link: Link = elements.parse().unwrap();
        let out = run(&mut link, &packets);
        let counts = link.counts();
        prop_assert_eq!(counts.sent, packets.len() as u64);
        prop_assert_eq!(counts.delivered, out.len() as u64);
        prop_assert_eq!(counts.sent + counts.added, counts.delivered + counts.dropped);
        prop_assert_eq!((counts.overflowed, link.queued(), link.next_due()), (0, 0, None));
    }

    #[test]
    fn delay_alone_keeps_order_and_is_exact(millis in 0..1000u32, packets in some_packets()) {
        let mut link = Link::default().with(Delay(ms(millis)));
        let expected = packets.iter().map(|(at, packet)| (*at + ms(millis), packet.clone()));
        let expected: Vec<_> = expected.collect();
        prop_assert_eq!(run(&mut link, &packets), expected);
    }

    #[test]
    fn exact_loss_drops_those_and_no_others(
        lost in prop::collection::btree_set(1..40u64, 0..10),
        packets in some_packets(),
    ) {
        let mut link = Link::default().with(Loss::exact(lost.clone()));
        let kept = (1..).zip(&packets).filter(|(number, _)| !lost.contains(number));
        let expected: Vec<_> = kept.map(|(_, sent)| sent.clone()).collect();
        prop_assert_eq!(run(&mut link, &packets), expected);
    }

    #[test]
    fn reorder_and_duplicate_lose_nothing(
        probability in 0.0..=1.0f64,
        seed: u64,
        packets in some_packets(),
    ) {
        let link = Link::default().with(Reorder::random(probability, seed, ms(7)));
        let mut link = link.with(Duplicate::random(probability, seed));
        let out = run(&mut link, &packets).into_iter();
        let mut seen: Vec<u8> = out.map(|(_, packet)| packet.bytes[0]).collect();
        seen.sort_unstable();
        prop_assert_eq!(seen.len() as u64, packets.len() as u64 + link.counts().added);
        seen.dedup();
        prop_assert_eq!(seen.len(), packets.len());
    }

    #[test]
    fn any_text_parses_or_is_refused(text in "[a-z0-9%., \n-]{0,40}") {
        let _ = headstart_emulation::parse_elements(&text);
    }
}
