use std::time::Duration;

use super::flow_table::FlowTable;
use super::{Element, Kind, Outputs, Parse};
use crate::ip::{ACK, Headers, SYN};
use crate::words::{ParseError, Words};
use crate::{Packet, Pick};

/// Drops the SYNs, or the SYN-ACKs, with these numbers; the first one is number 1, and a repeated
/// one counts again.
#[derive(Debug)]
struct DropSyn {
    /// Flags of the packets that count, among SYN and ACK.
    flags: u8,
    numbers: Vec<u64>,
    counted: Counted,
}

/// SYNs seen so far.
#[derive(Debug)]
enum Counted {
    /// Count of all connections together.
    Together(Pick),
    /// Counts by connection.
    Apart(FlowTable<Pick>),
}

impl Element for DropSyn {
    fn handle(&mut self, now: Duration, packet: Packet, out: &mut Outputs) {
        if !self.is_dropped(now, &packet) {
            out.pass(packet);
        }
    }
}

impl DropSyn {
    fn is_dropped(&mut self, now: Duration, packet: &Packet) -> bool {
        let headers = Headers::read(&packet.bytes);
        let parts = headers
            .and_then(|headers| headers.flow(&packet.bytes).zip(headers.segment(&packet.bytes)));
        let Some((flow, _)) = parts.filter(|(_, tcp)| tcp.flags & (SYN | ACK) == self.flags) else {
            return false;
        };
        match &mut self.counted {
            Counted::Together(pick) => pick.next_is_picked(now),
            Counted::Apart(flows) => {
                if let Some(pick) = flows.get_mut(&flow) {
                    return pick.next_is_picked(now);
                }
                let mut pick = Pick::exact(self.numbers.iter().copied());
                let is_picked = pick.next_is_picked(now);
                flows.insert(flow, pick);
                is_picked
            }
        }
    }
}

fn parse(words: &mut Words<'_>, flags: u8) -> Result<Box<dyn Element>, ParseError> {
    let numbers = words.packet_numbers()?;
    let counted = if words.take_word("each-connection") {
        Counted::Apart(FlowTable::default())
    } else {
        Counted::Together(Pick::exact(numbers.iter().copied()))
    };
    Ok(Box::new(DropSyn { flags, numbers, counted }))
}

pub(super) const SYN_KIND: Kind = Kind {
    name: "drop-syn",
    form: "drop-syn NUMBER,NUMBER... [each-connection]",
    parse: Parse::OneWay(|words| parse(words, SYN)),
};

pub(super) const SYN_ACK_KIND: Kind = Kind {
    name: "drop-syn-ack",
    form: "drop-syn-ack NUMBER,NUMBER... [each-connection]",
    parse: Parse::OneWay(|words| parse(words, SYN | ACK)),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Link;
    use crate::ip::{TcpFields, tcp, udp};

    const SYN_ACK: u8 = SYN | ACK;

    fn segment(port: u16, flags: u8) -> Packet {
        let (from, to) = (([10, 77, 1, 1], port).into(), ([10, 77, 2, 1], 443).into());
        tcp(from, to, TcpFields { flags, ..TcpFields::default() }).unwrap()
    }

    /// Tells of each packet, by its port and flags, whether it passes.
    fn passes(element: &str, packets: &[(u16, u8)]) -> Vec<bool> {
        let mut link: Link = element.parse().unwrap();
        let each = packets.iter().map(|(port, flags)| {
            link.send(Duration::ZERO, segment(*port, *flags));
            link.poll(Duration::ZERO).is_some()
        });
        each.collect()
    }

    #[test]
    fn those_of_the_list_are_lost_and_nothing_else_counts() {
        let packets = [(1, SYN), (1, ACK), (1, SYN_ACK), (2, SYN), (1, SYN), (3, SYN)];
        let [syn, syn_ack] = ["drop-syn 1,3", "drop-syn-ack 1"].map(|text| passes(text, &packets));
        assert_eq!(syn, [false, true, true, true, false, true]);
        assert_eq!(syn_ack, [true, true, false, true, true, true]);
    }

    #[test]
    fn each_connection_may_count_for_itself() {
        let packets = [(1, SYN), (2, SYN), (1, SYN), (1, SYN), (2, SYN), (2, ACK)];
        let passed = passes("drop-syn 1,3 each-connection", &packets);
        assert_eq!(passed, [false, false, true, false, true, true]);
    }

    #[test]
    fn datagrams_pass() {
        let mut link: Link = "drop-syn 1".parse().unwrap();
        let ends = ["10.77.1.1:1", "10.77.2.1:443"].map(|end| end.parse().unwrap());
        link.send(Duration::ZERO, udp(ends[0], ends[1], &[2; 40]).unwrap());
        assert!(link.poll(Duration::ZERO).is_some());
    }
}
