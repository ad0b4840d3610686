use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use super::flow_table::{FlowTable, MAX_FLOWS};
use super::two_way::{Middlebox, TwoWay};
use super::{Kind, Outputs, Parse};
use crate::Packet;
use crate::balance::pick;
use crate::ip::{Flow, Headers, Side};
use crate::words::{ParseError, Words};

/// The first port given out; below are those of well-known services.
const FIRST_PORT: u16 = 1024;

// A port comes round again only when its last mapping has been forgotten.
const _: () = assert!(MAX_FLOWS < (u16::MAX - FIRST_PORT) as usize);

/// Ports by which the first of each box differs from that of the one before: servers remember for a
/// minute which ports an address had, and a connection from one of them is answered late or never
/// (RFC 9293 section 3.6.1). With the 5 to 20 flows of a case, a hundred boxes share no port.
const NEXT_BOX: u16 = 331;

/// Boxes so far.
static BOXES: AtomicU16 = AtomicU16::new(0);

/// The first port that a new box gives out.
fn first_port() -> u16 {
    let places = (u16::MAX - FIRST_PORT) / NEXT_BOX;
    FIRST_PORT + BOXES.fetch_add(1, Ordering::Relaxed) % places * NEXT_BOX
}

/// Shows the node to others under other addresses, with ports of its own (RFC 2663's NAPT).
///
/// Each flow has its own mapping, and only its peer can answer (RFC 4787: address- and
/// port-dependent). TCP, UDP and ICMP errors about them are translated; other packets from the
/// node, or to its public addresses, are dropped, later fragments among them. A packet of a family
/// without a public address passes as it is.
#[derive(Debug)]
struct Nat {
    public: Vec<IpAddr>,
    change: Change,
    /// True if flows outlive a change of the address; false where a carrier gives new flows another
    /// one.
    keeps_flows: bool,
    /// Number of addresses used up; after the last, the first is next.
    changes: u64,
    packets: u64,
    began: Option<Duration>,
    next_port: u16,
    /// Public end by the flow of the node's packets.
    outbound: FlowTable<Mapping>,
    /// The node's end by the flow of its peer's packets.
    inbound: HashMap<Flow, SocketAddr>,
}

/// Rule by which the address changes.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// Never: a flow has one of all by its hash.
    ByFlow,
    /// After each batch of this many outbound packets; mappings end then unless flows are kept, and
    /// after the last address comes the first again.
    ///
    /// With one address only the ports change, as of a box that was restarted.
    Packets(u64),
    /// After each interval of this length since the first packet; otherwise the same.
    Time(Duration),
}

#[derive(Clone, Copy, Debug)]
struct Mapping {
    public: SocketAddr,
    /// The flow of the answers.
    back: Flow,
}

impl Nat {
    fn new(public: Vec<IpAddr>, change: Change, keeps_flows: bool) -> Nat {
        Nat {
            public,
            change,
            keeps_flows,
            changes: 0,
            packets: 0,
            began: None,
            next_port: first_port(),
            outbound: FlowTable::default(),
            inbound: HashMap::new(),
        }
    }

    /// Counts a packet of the node; says whether the address changes with it, which may end all
    /// mappings.
    fn count(&mut self, now: Duration) -> bool {
        let began = *self.began.get_or_insert(now);
        let changes = match self.change {
            Change::ByFlow => 0,
            Change::Packets(every) => self.packets / every.max(1),
            Change::Time(every) => {
                let passed = now.saturating_sub(began).as_nanos() / every.as_nanos().max(1);
                u64::try_from(passed).unwrap_or(u64::MAX)
            }
        };
        self.packets += 1;
        let has_changed = changes != self.changes;
        if has_changed {
            self.changes = changes;
        }
        if has_changed && !self.keeps_flows {
            self.outbound.clear();
            self.inbound.clear();
        }
        has_changed
    }

    /// The public address for a new flow; of the two families each has its own list.
    fn address(&self, flow: &Flow) -> Option<IpAddr> {
        let list: Vec<IpAddr> = self
            .public
            .iter()
            .filter(|address: &&IpAddr| address.is_ipv4() == flow.source.is_ipv4())
            .copied()
            .collect();
        if matches!(self.change, Change::ByFlow) {
            return pick(flow.stable_hash(), &list);
        }
        let length = u64::try_from(list.len()).ok()?;
        let current = usize::try_from(self.changes.checked_rem(length)?).ok()?;
        list.get(current).copied()
    }

    fn mapping(&mut self, flow: Flow) -> Option<SocketAddr> {
        if let Some(mapping) = self.outbound.get_mut(&flow) {
            return Some(mapping.public);
        }
        let public = SocketAddr::new(self.address(&flow)?, self.next_port);
        self.next_port = self.next_port.checked_add(1).unwrap_or(FIRST_PORT);
        let back = Flow { source: public, ..flow }.back();
        self.inbound.insert(back, flow.source);
        if let Some(forgotten) = self.outbound.insert(flow, Mapping { public, back }) {
            self.inbound.remove(&forgotten.back);
        }
        Some(public)
    }

    fn translates(&self, address: Option<IpAddr>) -> bool {
        self.public.iter().any(|public| Some(public.is_ipv4()) == address.map(|a| a.is_ipv4()))
    }

    /// Translates a packet from the node; `None` if it has no flow.
    fn outward(&mut self, bytes: &mut [u8]) -> Option<()> {
        let headers = Headers::read(bytes)?;
        if let Some(at) = headers.icmp_quote(bytes) {
            return self.outward_error(bytes, &headers, at);
        }
        let public = self.mapping(headers.flow(bytes)?)?;
        headers.set_end(bytes, Side::Source, public);
        Some(())
    }

    /// An ICMP error, by the node or a router before this box, quotes a packet that was translated
    /// here (RFC 5508 section 4.2).
    fn outward_error(&mut self, bytes: &mut [u8], headers: &Headers, at: usize) -> Option<()> {
        let quote = bytes.get_mut(at..)?;
        let quoted = Headers::quoted(quote)?;
        let public = self.outbound.get_mut(&quoted.flow(quote)?.back())?.public;
        quoted.set_end(quote, Side::Destination, public);
        headers.set_address(bytes, Side::Source, public.ip());
        headers.refresh_icmp(bytes);
        Some(())
    }

    /// Translates a packet to the node; `None` if no mapping is there for it.
    fn inward(&self, bytes: &mut [u8]) -> Option<()> {
        let headers = Headers::read(bytes)?;
        if let Some(at) = headers.icmp_quote(bytes) {
            return self.inward_error(bytes, &headers, at);
        }
        let node = *self.inbound.get(&headers.flow(bytes)?)?;
        headers.set_end(bytes, Side::Destination, node);
        Some(())
    }

    /// An ICMP error goes to whom the packet it quotes came from (RFC 5508 section 4.2).
    fn inward_error(&self, bytes: &mut [u8], headers: &Headers, at: usize) -> Option<()> {
        let quote = bytes.get_mut(at..)?;
        let quoted = Headers::quoted(quote)?;
        let node = *self.inbound.get(&quoted.flow(quote)?.back())?;
        quoted.set_end(quote, Side::Source, node);
        headers.set_address(bytes, Side::Destination, node.ip());
        headers.refresh_icmp(bytes);
        Some(())
    }
}

impl Middlebox for Nat {
    fn outbound(&mut self, now: Duration, mut packet: Packet, out: &mut Outputs) {
        if !self.translates(packet.source()) {
            out.pass(packet);
            return;
        }
        if self.count(now) {
            out.change();
        }
        if self.outward(&mut packet.bytes).is_some() {
            out.pass(packet);
        }
    }

    fn inbound(&mut self, _now: Duration, mut packet: Packet, out: &mut Outputs) {
        let to = packet.destination();
        let is_for_us = to.is_some_and(|to| self.public.contains(&to));
        if !is_for_us || self.inward(&mut packet.bytes).is_some() {
            out.pass(packet);
        }
    }
}

fn parse(words: &mut Words<'_>) -> Result<TwoWay, ParseError> {
    let public = words.addresses()?;
    if !words.take_word("change") {
        return Ok(TwoWay::new(Nat::new(public.clone(), Change::ByFlow, true), public));
    }
    let change = parse_change(words)?;
    let keeps_flows = words.take_word("for");
    if keeps_flows {
        words.expect("new")?;
        words.expect("flows")?;
    }
    Ok(TwoWay::new(Nat::new(public.clone(), change, keeps_flows), public))
}

fn parse_change(words: &mut Words<'_>) -> Result<Change, ParseError> {
    words.expect("after")?;
    let Some(packets) = words.take_count() else {
        return words.time().map(Change::Time);
    };
    words.expect("packets")?;
    Ok(Change::Packets(packets))
}

pub(super) const KIND: Kind = Kind {
    name: "nat",
    form: "nat ADDRESS,ADDRESS... [change after NUMBER packets | change after TIME] [for new \
        flows]",
    parse: Parse::TwoWay(parse),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Path;
    use crate::ip::{SYN, TcpFields, has_right_checksums, tcp, too_big, udp};

    const CLIENT: &str = "10.77.1.1:5000";
    const SERVER: &str = "10.77.2.1:443";
    const NOW: Duration = Duration::ZERO;

    fn path(text: &str) -> Path {
        text.parse().unwrap()
    }

    fn datagram(from: &str, to: &str) -> Packet {
        udp(from.parse().unwrap(), to.parse().unwrap(), b"hello").unwrap()
    }

    fn make(from: SocketAddr, to: SocketAddr, is_tcp: bool) -> Packet {
        let fields = TcpFields { seq: 9, flags: SYN, payload: b"data", ..TcpFields::default() };
        if is_tcp { tcp(from, to, fields) } else { udp(from, to, b"hello") }.unwrap()
    }

    /// The packet as it leaves the box towards the network, and who it seems to come from.
    fn out(path: &mut Path, now: Duration, packet: Packet) -> (Packet, SocketAddr) {
        path.outbound.send(now, packet);
        let packet = path.outbound.poll(now).unwrap();
        assert!(has_right_checksums(&packet));
        let source = packet.flow().unwrap().source;
        (packet, source)
    }

    fn back(path: &mut Path, packet: Packet) -> Option<Packet> {
        path.inbound.send(NOW, packet);
        path.inbound.poll(NOW)
    }

    #[test]
    fn there_and_back_for_both_protocols_and_families() {
        let mut path = path("nat 203.0.113.1,2001:db8::1");
        for (client, server, public) in [
            (CLIENT, SERVER, "203.0.113.1"),
            ("[fd77::1:1]:5000", "[fd77::2:1]:443", "2001:db8::1"),
        ] {
            let (client, server): (SocketAddr, SocketAddr) =
                (client.parse().unwrap(), server.parse().unwrap());
            for is_tcp in [false, true] {
                let (packet, source) = out(&mut path, NOW, make(client, server, is_tcp));
                assert_eq!(source.ip(), public.parse::<IpAddr>().unwrap());
                assert_eq!(packet, make(source, server, is_tcp));
                let again = out(&mut path, NOW, make(client, server, is_tcp)).1;
                assert_eq!(again, source);
                let answer = back(&mut path, make(server, source, is_tcp)).unwrap();
                assert_eq!(answer, make(server, client, is_tcp));
                // Another peer, or another protocol, gets no access.
                let stranger = SocketAddr::new(server.ip(), 53);
                assert_eq!(back(&mut path, make(stranger, source, is_tcp)), None);
                assert_eq!(back(&mut path, make(server, source, !is_tcp)), None);
            }
        }
    }

    #[test]
    fn a_datagram_without_checksum_keeps_none() {
        let mut path = path("nat 203.0.113.1");
        let mut packet = datagram(CLIENT, SERVER);
        packet.bytes[26..28].fill(0);
        path.outbound.send(NOW, packet);
        assert_eq!(path.outbound.poll(NOW).unwrap().bytes[26..28], [0, 0]);
    }

    #[test]
    fn icmp_errors_find_the_node() {
        let mut path = path("nat 203.0.113.1,2001:db8::1");
        for (client, server) in [(CLIENT, SERVER), ("[fd77::1:1]:5000", "[fd77::2:1]:443")] {
            let original = datagram(client, server);
            let (packet, _) = out(&mut path, NOW, original.clone());
            let error = back(&mut path, too_big(&packet.bytes, 1280).unwrap()).unwrap();
            assert_eq!(error, too_big(&original.bytes, 1280).unwrap());
            // ICMP about inbound packets finds its way out.
            let source = packet.flow().unwrap().source;
            let answer = datagram(server, &source.to_string());
            let inside = back(&mut path, answer.clone()).unwrap();
            path.outbound.send(NOW, too_big(&inside.bytes, 1280).unwrap());
            let error = path.outbound.poll(NOW).unwrap();
            assert!(has_right_checksums(&error));
            assert_eq!(error.source(), Some(source.ip()));
            let expected = too_big(&answer.bytes, 1280).unwrap();
            let (from, body) = if source.is_ipv4() { (12..16, 24) } else { (8..24, 44) };
            assert_eq!(error.bytes[body..], expected.bytes[body..]);
            assert_eq!(error.bytes[from.end..][..4], expected.bytes[from.end..][..4]);
        }
    }

    #[test]
    fn the_address_goes_on_changing_after_packets() {
        let mut path = path("nat 203.0.113.1,203.0.113.2,203.0.113.3 change after 2 packets");
        let sources: Vec<SocketAddr> =
            (0..14).map(|_| out(&mut path, NOW, datagram(CLIENT, SERVER)).1).collect();
        let last: Vec<u8> = sources
            .iter()
            .map(|source| match source.ip() {
                IpAddr::V4(address) => address.octets()[3],
                IpAddr::V6(_) => 0,
            })
            .collect();
        assert_eq!(last, [1, 1, 2, 2, 3, 3, 1, 1, 2, 2, 3, 3, 1, 1]);
        assert_eq!(path.outbound.counts().changed, 6);
        // The old mapping is gone, the new one lives.
        assert_eq!(back(&mut path, datagram(SERVER, &sources[0].to_string())), None);
        assert!(back(&mut path, datagram(SERVER, &sources[13].to_string())).is_some());
    }

    #[test]
    fn flows_outlive_a_change_where_they_are_kept() {
        let mut path = path("nat 203.0.113.1,203.0.113.2 change after 2 packets for new flows");
        let first: Vec<SocketAddr> =
            (0..5).map(|_| out(&mut path, NOW, datagram(CLIENT, SERVER)).1).collect();
        assert!(first.iter().all(|source| *source == first[0]), "{first:?}");
        assert_eq!(path.outbound.counts().changed, 2);
        let other = out(&mut path, NOW, datagram(CLIENT, SERVER)).1;
        assert_eq!(other, first[0]);
        let new = out(&mut path, NOW, datagram("10.77.1.1:5001", SERVER)).1;
        assert_ne!(new.ip(), first[0].ip());
        assert!(back(&mut path, datagram(SERVER, &first[0].to_string())).is_some());
        assert!(back(&mut path, datagram(SERVER, &new.to_string())).is_some());
    }

    /// A box that takes the place of another does not give its connections the ports of those that
    /// went before.
    #[test]
    fn boxes_begin_at_other_ports() {
        let ports = [(); 3]
            .map(|()| out(&mut path("nat 203.0.113.1"), NOW, datagram(CLIENT, SERVER)).1.port());
        assert!(ports.iter().all(|port| *port >= FIRST_PORT));
        assert!(ports[0] != ports[1] && ports[1] != ports[2] && ports[0] != ports[2], "{ports:?}");
    }

    /// Each family goes round its own list, also where that has one address only.
    #[test]
    fn families_change_together() {
        let mut path =
            path("nat 203.0.113.1,203.0.113.2,203.0.113.3,2001:db8::1 change after 1 packets");
        let [v4, v6] = [(CLIENT, SERVER), ("[fd77::1:1]:5000", "[fd77::2:1]:443")]
            .map(|(from, to)| [(); 4].map(|()| out(&mut path, NOW, datagram(from, to)).1));
        let v4 = v4.map(|source| source.ip().to_string());
        assert_eq!(v4, ["203.0.113.1", "203.0.113.2", "203.0.113.3", "203.0.113.1"]);
        assert!(v6.iter().all(|source| source.ip() == v6[0].ip()));
        assert!(v6.array_windows().all(|[one, next]| one.port() != next.port()));
    }

    #[test]
    fn the_address_goes_on_changing_after_time_and_not_before() {
        let mut path = path("nat 203.0.113.1,203.0.113.2 change after 1s");
        let sources = [0, 999, 1000, 1001, 1999, 2000, 9000, 9001, 9002]
            .map(|at| out(&mut path, Duration::from_millis(5000 + at), datagram(CLIENT, SERVER)).1);
        let last = sources.map(|source| source.ip().to_string().pop().unwrap());
        assert_eq!(last, ['1', '1', '2', '2', '2', '1', '2', '2', '2']);
        for (one, next) in [(0, 1), (3, 4), (6, 7)] {
            assert_eq!(sources[one], sources[next]);
        }
        assert_eq!(path.outbound.counts().changed, 3);
    }

    #[test]
    fn a_pool_spreads_flows_and_keeps_each() {
        let mut path = path("nat 203.0.113.1,203.0.113.2");
        let flows = (5000..6000).map(|port: u16| {
            let source = format!("10.77.1.1:{port}");
            let first = out(&mut path, NOW, datagram(&source, SERVER)).1;
            assert_eq!(out(&mut path, NOW, datagram(&source, SERVER)).1, first);
            first.ip()
        });
        let first = flows.filter(|source| *source == IpAddr::from([203, 0, 113, 1])).count();
        // Five standard deviations of a fair coin thrown 1,000 times are 79.
        assert!((421..=579).contains(&first), "{first}");
    }

    #[test]
    fn the_other_family_passes_and_what_has_no_ports_does_not() {
        let mut path = path("nat 203.0.113.1");
        let packet = datagram("[fd77::1:1]:5000", "[fd77::2:1]:443");
        assert_eq!(out(&mut path, NOW, packet.clone()).0, packet);
        let mut fragment = datagram(CLIENT, SERVER);
        fragment.bytes[7] = 1;
        path.outbound.send(NOW, fragment);
        assert_eq!(path.outbound.poll(NOW), None);
    }

    /// The node's own packets among others that never went through the box.
    #[test]
    fn packets_for_other_addresses_pass_inwards() {
        let mut path = path("nat 203.0.113.1");
        assert!(back(&mut path, datagram(SERVER, CLIENT)).is_some());
        assert!(back(&mut path, datagram(SERVER, "203.0.113.1:1024")).is_none());
    }
}
