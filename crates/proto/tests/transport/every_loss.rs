//! Every subset of lost datagrams, and reorderings, duplications and delays.

use std::ops::Range;
use std::time::Duration;

use headstart_emulation::{Delay, Duplicate, Link, Loss, Pick, Reorder};
use headstart_proto::ClientConfig;
use headstart_proto::limits::REQUEST_MIN;
use headstart_proto::wire::{REQUEST_HEADER, REQUEST_PAYLOAD_MAX, RESPONSE_PAYLOAD_MAX};

use crate::sim::{End, GRACE, HALF, Outcome, RTT, Scenario, Script, run};

/// Time at which TCP connects, relative to datagrams that take a round trip and meet an origin
/// without delay.
#[derive(Clone, Copy, Debug)]
enum Tcp {
    /// Datagrams take 8 ms longer.
    Before,
    /// At the same moment; the SYN-ACK is read first.
    WithFirst,
    /// At the same moment, and the datagrams are read first.
    WithLast,
    /// TCP takes 60 ms longer.
    After,
}

const TCP: [Tcp; 4] = [Tcp::Before, Tcp::WithFirst, Tcp::WithLast, Tcp::After];
const LAG: Duration = Duration::from_millis(8);
/// Bytes of the ClientHello in a slot.
const SLOT_PAYLOAD: usize = REQUEST_MIN - REQUEST_HEADER;

impl Tcp {
    fn connect(self) -> Duration {
        match self {
            Self::After => RTT + Duration::from_millis(60),
            _ => RTT,
        }
    }

    fn lag(self) -> Duration {
        match self {
            Self::Before => LAG,
            _ => Duration::ZERO,
        }
    }
}

/// A client flight of `up` and a server flight of `down` datagrams, some of them lost.
#[derive(Clone, Copy, Debug)]
struct Case {
    up: usize,
    down: usize,
    slots: u8,
    tcp: Tcp,
    /// Bitmap of lost client datagrams, the slots after the flight.
    lost_up: u32,
    /// Bitmap of lost responses, the acknowledgement first.
    lost_down: u32,
}

impl Case {
    fn script(&self) -> Script {
        let flight = (self.down - 1) * RESPONSE_PAYLOAD_MAX + 600;
        Script::tls13(self.hello(), flight, Duration::ZERO)
    }

    fn scenario(&self) -> Scenario {
        let config = ClientConfig { slots: self.slots, ..ClientConfig::default() };
        Scenario {
            offer: Some(config),
            up: Link::default().with(Delay(HALF)).with(Loss::exact(numbers(self.lost_up))),
            down: Link::default()
                .with(Delay(HALF + self.tcp.lag()))
                .with(Loss::exact(numbers(self.lost_down))),
            connect: Some(self.tcp.connect()),
            datagrams_first: matches!(self.tcp, Tcp::WithLast),
            ..Scenario::new(self.script())
        }
    }

    /// Returns true if everything one round trip needs arrives: every byte of the ClientHello in
    /// some datagram, and slots for a flight that loses nothing. The acknowledgement may be lost.
    fn is_whole(&self) -> bool {
        let sent = self.sent();
        let arrived = sent.iter().enumerate().filter(|(bit, _)| self.lost_up & (1 << bit) == 0);
        let arrived: Vec<_> = arrived.map(|(_, bytes)| bytes.clone()).collect();
        let slots = arrived.len() > self.down;
        let flight = self.lost_down & (bits(self.down) << 1) == 0;
        slots && flight && covers(arrived, self.hello())
    }

    fn hello(&self) -> usize {
        (self.up - 1) * REQUEST_PAYLOAD_MAX + 700
    }

    /// Returns the bytes of the ClientHello in each client datagram
    /// (docs/draft-headstart-turbotls.md#sending-datagrams).
    fn sent(&self) -> Vec<Range<usize>> {
        let hello = self.hello();
        let flight = (0..self.up).map(|n| n * REQUEST_PAYLOAD_MAX);
        let flight = flight.map(|start| start..hello.min(start + REQUEST_PAYLOAD_MAX));
        let around = hello.div_ceil(SLOT_PAYLOAD);
        let slots = (0..usize::from(self.slots)).map(|n| hello - n % around * SLOT_PAYLOAD);
        let slots = slots.map(|end| end.saturating_sub(SLOT_PAYLOAD)..end);
        flight.chain(slots).collect()
    }

    /// Runs the case, checks every guarantee, and returns true if it took one round trip.
    fn check(&self, scenario: Scenario) -> bool {
        let connect = self.tcp.connect();
        let script = scenario.script.clone();
        let outcome = run(scenario);
        check_streams(&script, &outcome).unwrap_or_else(|what| panic!("{what}: {self:?}"));
        let first_request = outcome.first_request.expect("the request leaves");
        let waited = outcome.waited(connect, GRACE);
        let plain = connect + RTT;
        assert!(first_request <= plain + waited, "{first_request:?}, plain {plain:?}: {self:?}");
        first_request <= connect.max(RTT + self.tcp.lag())
    }
}

/// Returns true if the ranges leave no gap in the first `len` bytes.
fn covers(mut ranges: Vec<Range<usize>>, len: usize) -> bool {
    ranges.sort_by_key(|range| range.start);
    ranges.iter().fold(
        0,
        |end: usize, range: &Range<usize>| {
            if range.start <= end { end.max(range.end) } else { end }
        },
    ) >= len
}

fn check_streams(script: &Script, outcome: &Outcome) -> Result<(), String> {
    let app = outcome.app == (script.server_stream(), Some(End::Finished));
    let origin = outcome.origin() == script.client_stream();
    match outcome {
        _ if !app => Err(format!("server stream differs, end {:?}", outcome.app.1)),
        _ if !origin => Err("client stream differs".into()),
        Outcome { hellos: 1, unproven: 0, .. } => Ok(()),
        _ => Err(format!("{} ClientHellos, {} sessions left", outcome.hellos, outcome.unproven)),
    }
}

fn bits(count: usize) -> u32 {
    (1 << count) - 1
}

/// Returns the numbers, from 1, of the bits that are set.
fn numbers(set: u32) -> Vec<u64> {
    (0..32).filter(|bit| set & (1 << bit) != 0).map(|bit| bit + 1).collect()
}

fn shapes() -> impl Iterator<Item = (usize, usize, Tcp)> {
    (1..=3).flat_map(|up| (1..=6).flat_map(move |down| TCP.map(move |tcp| (up, down, tcp))))
}

#[test]
fn tolerates_any_loss_in_both_flights() {
    let (mut count, mut one_rtt) = (0, 0);
    for (up, down, tcp) in shapes() {
        for lost_up in 0..=bits(up) {
            for lost_down in 0..=bits(down + 1) {
                let case = Case { up, down, slots: 7, tcp, lost_up, lost_down };
                let took_one = case.check(case.scenario());
                assert_eq!(took_one, case.is_whole(), "{case:?}");
                count += 1;
                one_rtt += usize::from(took_one);
            }
        }
    }
    println!("{count} subsets of lost datagrams, {one_rtt} of them harmless: 1 RTT");
    // 4 timings x (2 + 4 + 8) subsets of the flight x (4 + 8 + .. + 128) of the responses.
    assert_eq!(count, 4 * 14 * 252);
    // 4 timings x 6 server flights, the acknowledgement lost or not, x the subsets that slots
    // replace: all in a flight of one or two datagrams; in a flight of three, those with the first
    // datagram, since slots carry the end.
    assert_eq!(one_rtt, 4 * 6 * 2 * (2 + 4 + 4));
}

#[test]
fn tolerates_any_loss_of_fragments_and_slots() {
    let (mut count, mut one_rtt) = (0, 0);
    for (up, down, tcp) in shapes() {
        for lost_up in 0..=bits(up + 7) {
            let case = Case { up, down, slots: 7, tcp, lost_up, lost_down: 0 };
            let took_one = case.check(case.scenario());
            assert_eq!(took_one, case.is_whole(), "{case:?}");
            count += 1;
            one_rtt += usize::from(took_one);
        }
    }
    println!("{count} subsets of lost client datagrams, {one_rtt} of them harmless: 1 RTT");
    // 4 timings x 6 server flights x the subsets of client flight and slots.
    assert_eq!(count, 4 * 6 * (256 + 512 + 1024));
    assert!(one_rtt > count / 10 && one_rtt < count);
}

/// A fault of one datagram other than loss.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    Twice,
    /// Held back, so that later datagrams overtake it; with a copy if true.
    Late(Duration, bool),
}

const TROUBLES: [Trouble; 6] = [
    Trouble::Twice,
    Trouble::Late(Duration::from_millis(1), false),
    Trouble::Late(Duration::from_millis(20), false),
    Trouble::Late(Duration::from_millis(30), true),
    Trouble::Late(Duration::from_millis(110), false),
    Trouble::Late(Duration::from_millis(1500), true),
];

fn with_trouble(link: Link, number: u64, trouble: Trouble) -> Link {
    match trouble {
        Trouble::Twice => link.with(Duplicate::exact([number])),
        Trouble::Late(hold, false) => link.with(Reorder::new(Pick::exact([number]), hold)),
        Trouble::Late(hold, true) => {
            link.with(Duplicate::exact([number])).with(Reorder::new(Pick::exact([number]), hold))
        }
    }
}

impl Trouble {
    fn delays(self) -> bool {
        matches!(self, Self::Late(_, false))
    }
}

/// Returns the bit of the `number`th datagram, from 1, that is not lost.
fn bit_of(number: u64, lost: u32) -> u32 {
    let arriving = (0..32).map(|bit| 1 << bit).filter(|bit| lost & bit == 0);
    arriving.zip(1..).find(|(_, at)| *at == number).map_or(0, |(bit, _)| bit)
}

/// Tests each fault of each datagram in either direction, alone and while any other datagram is
/// lost. A late datagram does no more harm than a lost one, and a duplicate none.
#[test]
fn tolerates_any_late_or_duplicate_datagram() {
    let (mut count, mut harmless) = (0, 0);
    for (up, down, tcp) in shapes() {
        let (ups, downs) = (up as u64 + 7, down as u64 + 1);
        for (number, trouble) in (1..=ups + downs).flat_map(|n| TROUBLES.map(|t| (n, t))) {
            for lost in 0..=up + down + 1 {
                let lost_bit = (1 << lost) >> 1;
                let case = Case {
                    up,
                    down,
                    slots: 7,
                    tcp,
                    lost_up: lost_bit & bits(up),
                    lost_down: lost_bit >> up,
                };
                let (mut scenario, mut worst) = (case.scenario(), case);
                if number <= ups {
                    scenario.up = with_trouble(scenario.up, number, trouble);
                    worst.lost_up |= bit_of(number, case.lost_up);
                } else {
                    scenario.down = with_trouble(scenario.down, number - ups, trouble);
                    worst.lost_down |= bit_of(number - ups, case.lost_down);
                }
                let promised = if trouble.delays() { worst } else { case }.is_whole();
                assert!(case.check(scenario) || !promised, "{trouble:?} of {number}: {case:?}");
                count += 1;
                harmless += usize::from(promised);
            }
        }
    }
    println!(
        "{count} combinations of a late or duplicate datagram and a lost one, {harmless} harmless"
    );
    let expected: usize = shapes().map(|(up, down, _)| (up + down + 8) * 6 * (up + down + 2)).sum();
    assert_eq!(count, expected);
    assert_eq!(expected, 45_288);
    assert!(harmless > count / 4 && harmless < count);
}

/// Tests a whole flight reversed, or delayed, each way.
#[test]
fn tolerates_reversed_and_late_flights() {
    let mut count = 0;
    for (up, down, tcp) in shapes() {
        for (late_up, late_down) in
            [(0, 0), (10, 0), (0, 10), (60, 0), (0, 60), (60, 60), (2000, 0), (0, 2000)]
        {
            for (reverse_up, reverse_down) in
                [(false, false), (true, false), (false, true), (true, true)]
            {
                let case = Case { up, down, slots: 7, tcp, lost_up: 0, lost_down: 0 };
                let mut scenario = case.scenario();
                scenario.up = shaped(scenario.up, late_up, reverse_up);
                scenario.down = shaped(scenario.down, late_down, reverse_down);
                case.check(scenario);
                count += 1;
            }
        }
    }
    println!("{count} combinations of reversed and late flights");
    assert_eq!(count, 4 * 18 * 8 * 4);
}

fn shaped(link: Link, late: u64, reverse: bool) -> Link {
    let link = link.with(Delay::millis(late));
    if !reverse {
        return link;
    }
    (1..=10).fold(link, |link, number| {
        link.with(Reorder::exact([number], Duration::from_micros(200 * (11 - number))))
    })
}
