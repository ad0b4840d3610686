use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::balance::{Balance, pick};
use crate::ip::stable_hash;
use crate::splice::{Onward, Splices};
use crate::{Link, Packet, Protocol};

/// Ports joined in a star: what enters one goes to the port that owns its destination address.
///
/// On the way it passes the outbound link of the port it enters and the inbound link of the port it
/// leaves. Like a [`Link`] it has no clock and no sockets.
#[derive(Debug, Default)]
pub(crate) struct Switch {
    ports: Vec<Port>,
    routes: HashMap<IpAddr, Route>,
    diversions: Vec<Diversion>,
    /// Ports that stand beside another, by number.
    beside: HashMap<usize, usize>,
    unroutable: u64,
}

/// Route of the packets to one address.
#[derive(Debug)]
enum Route {
    Port(usize),
    Balanced(Balanced),
}

/// The servers that share an address.
#[derive(Debug)]
struct Balanced {
    balance: Balance,
    ports: Vec<usize>,
    /// Port of each listed server name.
    names: HashMap<String, usize>,
    splices: Splices,
}

impl Balanced {
    fn spliced(&mut self, packet: Packet, is_of_client: bool) -> Vec<Onward> {
        let Self { ports, names, splices, .. } = self;
        if !is_of_client {
            return splices.handle_server(packet);
        }
        splices.handle_client(packet, |name| {
            names.get(name).copied().or_else(|| pick(stable_hash(name.bytes()), ports))
        })
    }
}

/// A route for some packets only, which precedes all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Diversion {
    /// Number of the port where they enter.
    pub(crate) from: usize,
    pub(crate) protocol: Protocol,
    /// Their destination address.
    pub(crate) destination: IpAddr,
    /// Number of the port where they leave.
    pub(crate) to: usize,
}

/// The two links of one port.
#[derive(Debug, Default)]
pub(crate) struct Port {
    /// From the node into the network.
    pub(crate) outbound: Link,
    /// From the network to the node.
    pub(crate) inbound: Link,
}

/// A packet that leaves the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Departure {
    /// Number of the port where it leaves.
    pub(crate) port: usize,
    /// Time at which it was due.
    pub(crate) due: Duration,
    pub(crate) packet: Packet,
}

impl Switch {
    /// Adds a port that owns these addresses; returns its number, counted from 0.
    pub(crate) fn add_port(
        &mut self,
        addresses: impl IntoIterator<Item = IpAddr>,
        port: Port,
    ) -> usize {
        let number = self.ports.len();
        self.ports.push(port);
        for address in addresses {
            self.route_to(address, number);
        }
        number
    }

    /// Routes an address to a port in place of its earlier route, as for the outside address of a
    /// NAT.
    pub(crate) fn route_to(&mut self, address: IpAddr, port: usize) {
        self.routes.insert(address, Route::Port(port));
    }

    /// Adds a port to those that share an address, and sets the address's balancer. A balancer that
    /// reads server names sends `names` to this port.
    pub(crate) fn share(
        &mut self,
        address: IpAddr,
        balance: Balance,
        port: usize,
        names: &[String],
    ) {
        let (ports, splices) = (Vec::new(), Splices::default());
        let new = Balanced { balance, ports, names: HashMap::new(), splices };
        let mut balanced = match self.routes.remove(&address) {
            Some(Route::Balanced(balanced)) => Balanced { balance, ..balanced },
            _ => new,
        };
        balanced.ports.push(port);
        balanced.names.extend(names.iter().map(|name| (name.clone(), port)));
        self.routes.insert(address, Route::Balanced(balanced));
    }

    /// Sends some packets to another port than the owner of their destination address.
    pub(crate) fn divert(&mut self, diversion: Diversion) {
        self.diversions.push(diversion);
    }

    /// Moves a port to the node's side of another one's links.
    ///
    /// Its packets to and from that node pass only its own links; those to and from other nodes
    /// pass only the node's links.
    pub(crate) fn place_beside(&mut self, port: usize, node: usize) {
        self.beside.insert(port, node);
    }

    /// Returns the ports by number; replacing a link drops the packets in it.
    pub(crate) fn ports_mut(&mut self) -> &mut [Port] {
        &mut self.ports
    }

    /// Takes a packet that enters by a port at `now`.
    ///
    /// A packet without a route, such as multicast, is dropped before any element counts it.
    pub(crate) fn handle(&mut self, now: Duration, port: usize, packet: Packet) {
        let to = self.route(port, &packet);
        match to.and_then(|to| self.first_link(port, to)) {
            Some(link) => link.send(now, packet),
            None => self.unroutable += 1,
        }
        self.carry_replies();
    }

    /// Returns when to [`poll`](Switch::poll) next.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        let dues =
            self.ports.iter().flat_map(|port| [port.outbound.next_due(), port.inbound.next_due()]);
        dues.flatten().min()
    }

    /// Returns the next packet that is due by `now`; call until `None`.
    pub(crate) fn poll(&mut self, now: Duration) -> Option<Departure> {
        while let Some(due) = self.next_due().filter(|due| *due <= now) {
            self.cross(due);
            let departure = self.leave(due);
            self.carry_replies();
            if departure.is_some() {
                return departure;
            }
        }
        None
    }

    /// Returns the number of packets without a route.
    pub(crate) fn unroutable(&self) -> u64 {
        self.unroutable
    }

    /// Returns the port whose links join this one to the network.
    fn gate(&self, port: usize) -> usize {
        self.beside.get(&port).copied().unwrap_or(port)
    }

    /// Returns the first link of the path between two ports.
    fn first_link(&mut self, from: usize, to: usize) -> Option<&mut Link> {
        if self.beside.get(&to) == Some(&from) {
            return self.ports.get_mut(to).map(|port| &mut port.inbound);
        }
        let stays = self.beside.get(&from) == Some(&to);
        let first = if stays { from } else { self.gate(from) };
        self.ports.get_mut(first).map(|port| &mut port.outbound)
    }

    /// Moves packets from outbound to inbound links.
    fn cross(&mut self, due: Duration) {
        for port in 0..self.ports.len() {
            if self.gate(port) != port {
                continue;
            }
            while let Some(packet) =
                self.ports.get_mut(port).and_then(|port| port.outbound.poll(due))
            {
                for Onward { to, packet } in self.splice(port, packet) {
                    // Looked up again, as an element may have rewritten the address.
                    let to = to.or_else(|| self.route(port, &packet)).map(|to| self.gate(to));
                    match to.and_then(|to| self.ports.get_mut(to)) {
                        Some(to) => to.inbound.send(due, packet),
                        None => self.unroutable += 1,
                    }
                }
            }
        }
    }

    /// Passes a packet through the balancer by server name on its path, if there is one.
    fn splice(&mut self, from: usize, packet: Packet) -> Vec<Onward> {
        let ends = [packet.destination(), packet.source()];
        if packet.protocol == Protocol::Tcp && self.diverted(from, &packet).is_none() {
            for (address, is_of_client) in ends.into_iter().flatten().zip([true, false]) {
                match self.routes.get_mut(&address) {
                    Some(Route::Balanced(there)) if there.balance.reads_names() => {
                        return there.spliced(packet, is_of_client);
                    }
                    _ => {}
                }
            }
        }
        vec![Onward { to: None, packet }]
    }

    /// Moves the replies of elements into the links of the other direction.
    fn carry_replies(&mut self) {
        for Port { outbound, inbound } in &mut self.ports {
            loop {
                if let Some(reply) = outbound.take_placed_reply() {
                    inbound.carry_to_node(reply);
                } else if let Some(reply) = inbound.take_placed_reply() {
                    outbound.carry_to_core(reply);
                } else {
                    break;
                }
            }
        }
    }

    fn leave(&mut self, due: Duration) -> Option<Departure> {
        (0..self.ports.len()).find_map(|port| self.leave_by(port, due))
    }

    /// Returns the next packet that has passed its last link, if that link is one of this port's.
    fn leave_by(&mut self, port: usize, due: Duration) -> Option<Departure> {
        let links = self.ports.get_mut(port)?;
        if let Some(node) = self.beside.get(&port).copied() {
            if let Some(packet) = links.outbound.poll(due) {
                return Some(Departure { port: node, due, packet });
            }
            return Some(Departure { port, due, packet: links.inbound.poll(due)? });
        }
        let packet = links.inbound.poll(due)?;
        Some(Departure { port: self.behind(port, &packet), due, packet })
    }

    /// Returns the port where a packet leaves: `port` itself, unless the address is that of a port
    /// beside it.
    fn behind(&self, port: usize, packet: &Packet) -> usize {
        match packet.destination().and_then(|to| self.routes.get(&to)) {
            Some(Route::Port(to)) if self.gate(*to) == port => *to,
            _ => port,
        }
    }

    fn route(&self, from: usize, packet: &Packet) -> Option<usize> {
        self.diverted(from, packet).or_else(|| match self.routes.get(&packet.destination()?)? {
            Route::Port(port) => Some(*port),
            Route::Balanced(Balanced { balance, ports, .. }) => balance.choose(packet, ports),
        })
    }

    fn diverted(&self, from: usize, packet: &Packet) -> Option<usize> {
        let key = (from, packet.protocol, packet.destination()?);
        let mut diversions = self.diversions.iter();
        let diverted =
            diversions.find(|other| key == (other.from, other.protocol, other.destination));
        diverted.map(|diversion| diversion.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip::{TcpFields, tcp, udp};
    use crate::{Delay, Element, Loss, Outputs};

    const MS: Duration = Duration::from_millis(1);

    fn udp_to(last: u8) -> Packet {
        let mut bytes = vec![0x45; 20];
        bytes[9] = 17;
        bytes[16..].copy_from_slice(&[10, 77, last, 1]);
        Packet::from_ip(bytes).unwrap()
    }

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 77, last, 1])
    }

    /// Replaces each packet to address(3) by a reply to this address.
    #[derive(Debug)]
    struct Bounce(u8);

    impl Element for Bounce {
        fn handle(&mut self, _now: Duration, packet: Packet, out: &mut Outputs) {
            if packet.destination() == Some(address(3)) {
                out.reply(udp_to(self.0));
            } else {
                out.pass(packet);
            }
        }
    }

    #[test]
    fn replies_pass_the_link_of_the_other_direction() {
        let mut switch = star();
        switch.ports_mut()[0].outbound = Link::default().with(Delay::millis(5)).with(Bounce(1));
        switch.handle(Duration::ZERO, 0, udp_to(3));
        assert_eq!(drained(&mut switch), [(0, 12 * MS)]);
        let counts = switch.ports_mut()[0].outbound.counts();
        assert_eq!((counts.dropped, counts.replied, counts.added), (1, 1, 0));
        // From an inbound link, to a third node, and to no node.
        switch.ports_mut()[2].inbound = Link::default().with(Bounce(2));
        switch.ports_mut()[0].outbound = Link::default();
        switch.handle(20 * MS, 0, udp_to(3));
        assert_eq!(drained(&mut switch), [(1, 22 * MS)]);
        assert_eq!(switch.ports_mut()[2].outbound.counts().added, 1);
        switch.ports_mut()[2].inbound = Link::default().with(Bounce(99));
        switch.handle(30 * MS, 0, udp_to(3));
        assert_eq!((drained(&mut switch), switch.unroutable()), (vec![], 1));
    }

    /// A reply passes only the delays between the node and the element that sends it.
    #[test]
    fn replies_pass_only_what_lies_between() {
        for (path, answered) in [
            ("delay 5ms, mtu 1300, delay 20ms", Some(10 * MS)),
            ("mtu 1300, delay 20ms", Some(Duration::ZERO)),
            ("delay 20ms, mtu 1300 silent", None),
        ] {
            let mut switch = Switch::default();
            for (number, path) in [(1, path), (2, "")] {
                let path: crate::Path = path.parse().unwrap();
                let port = Port { outbound: path.outbound, inbound: path.inbound };
                switch.add_port([address(number)], port);
            }
            let long = udp((address(1), 9).into(), (address(2), 9).into(), &[0; 1400]).unwrap();
            switch.handle(Duration::ZERO, 0, long);
            assert_eq!(drained(&mut switch), answered.map(|due| (0, due)).as_slice());
        }
    }

    #[test]
    fn an_address_may_move_to_another_port() {
        let mut switch = star();
        switch.route_to(address(9), 1);
        switch.handle(Duration::ZERO, 2, udp_to(9));
        assert_eq!(drained(&mut switch), [(1, 2 * MS)]);
        switch.route_to(address(9), 2);
        switch.handle(3 * MS, 2, udp_to(9));
        assert_eq!(drained(&mut switch), [(2, 3 * MS)]);
    }

    /// Returns the server of three behind 10.77.100.1 that gets each flow.
    fn balanced(balance: Balance, flows: impl Iterator<Item = (u8, u16, bool)>) -> Vec<usize> {
        let mut switch = Switch::default();
        switch.add_port([], Port::default());
        for _ in 0..3 {
            let server = switch.add_port([], Port::default());
            switch.share(address(100), balance, server, &[]);
        }
        let each = flows.map(|(client, port, is_udp)| {
            let from = (address(client), port).into();
            let to = (address(100), 443).into();
            let packet =
                if is_udp { udp(from, to, b"x") } else { tcp(from, to, TcpFields::default()) };
            switch.handle(Duration::ZERO, 0, packet.unwrap());
            let departure = switch.poll(Duration::ZERO).unwrap();
            assert!((1..=3).contains(&departure.port));
            departure.port
        });
        each.collect()
    }

    #[test]
    fn a_balancer_by_flow_splits_by_ports_and_protocol() {
        let [ports, again] = [(); 2].map(|()| {
            balanced(Balance::Flow, (0..300_u16).map(|n| (1, 40_000 + n / 2, n % 2 == 0)))
        });
        assert_eq!(ports, again);
        for server in 1..=3 {
            let share = ports.iter().filter(|port| **port == server).count();
            // Five standard deviations of a binomial with n = 300, p = 1/3 are 41.
            assert!((59..=141).contains(&share), "{share}");
        }
        // TCP and UDP of one client port meet by chance only: one time in three.
        let together = ports.chunks(2).filter(|pair| pair[0] == pair[1]).count();
        assert!((21..=79).contains(&together), "{together}");
    }

    #[test]
    fn a_balancer_by_source_keeps_a_client_together() {
        let one = balanced(Balance::Source, (0..100_u16).map(|n| (7, n, n % 2 == 0)));
        assert!(one.iter().all(|port| *port == one[0]));
        let many = balanced(Balance::Source, (0..200).map(|client| (client, 1, true)));
        assert!((1..=3).all(|server| many.contains(&server)));
    }

    fn star() -> Switch {
        let mut switch = Switch::default();
        for (number, [out, back]) in [(1, [5, 7]), (2, [1, 2])] {
            let [outbound, inbound] =
                [out, back].map(|millis| Link::default().with(Delay::millis(millis)));
            switch.add_port([address(number)], Port { outbound, inbound });
        }
        switch.add_port([address(3)], Port::default());
        switch
    }

    fn drained(switch: &mut Switch) -> Vec<(usize, Duration)> {
        std::iter::from_fn(|| switch.poll(Duration::MAX))
            .map(|departure| (departure.port, departure.due))
            .collect()
    }

    #[test]
    fn both_links_on_the_way_count() {
        let mut switch = star();
        switch.handle(Duration::ZERO, 0, udp_to(2));
        switch.handle(Duration::ZERO, 1, udp_to(1));
        switch.handle(Duration::ZERO, 1, udp_to(3));
        switch.handle(Duration::ZERO, 2, udp_to(3));
        assert_eq!(switch.next_due(), Some(Duration::ZERO));
        assert_eq!(drained(&mut switch), [(2, Duration::ZERO), (2, MS), (1, 7 * MS), (0, 8 * MS)]);
        assert_eq!(switch.next_due(), None);
    }

    #[test]
    fn a_diversion_is_for_one_port_protocol_and_address() {
        let mut switch = star();
        let udp = Protocol::Udp;
        switch.divert(Diversion { from: 0, protocol: udp, destination: address(2), to: 2 });
        for (from, to) in [(0, 2), (0, 3), (1, 2)] {
            switch.handle(Duration::ZERO, from, udp_to(to));
        }
        let mut tcp = udp_to(2);
        tcp.protocol = Protocol::Tcp;
        switch.handle(Duration::ZERO, 0, tcp);
        let mut ports: Vec<_> = drained(&mut switch).into_iter().map(|(port, _)| port).collect();
        ports.sort_unstable();
        assert_eq!(ports, [1, 1, 2, 2]);
    }

    /// A switch with ports 0, 1 and 2, and 3 beside 1.
    fn with_neighbour() -> Switch {
        let mut switch = star();
        let [outbound, inbound] = [(); 2].map(|()| Link::default().with(Delay(MS / 2)));
        let neighbour = switch.add_port([address(4)], Port { outbound, inbound });
        switch.place_beside(neighbour, 1);
        switch
    }

    #[test]
    fn a_port_beside_another_is_behind_its_links() {
        for (from, to, port, due) in [
            (3, 2, 1, MS / 2),
            (1, 4, 3, MS / 2),
            // Through the links of port 1, outbound and inbound.
            (3, 1, 0, 8 * MS),
            (3, 3, 2, MS),
            (0, 4, 3, 7 * MS),
            (2, 4, 3, 2 * MS),
            // Other pairs are unaffected.
            (0, 2, 1, 7 * MS),
            (1, 1, 0, 8 * MS),
        ] {
            let mut switch = with_neighbour();
            switch.handle(Duration::ZERO, from, udp_to(to));
            assert_eq!(drained(&mut switch), [(port, due)], "from {from} to {to}");
        }
    }

    #[test]
    fn packets_diverted_to_a_neighbour_skip_the_nodes_links() {
        let mut switch = with_neighbour();
        let (protocol, destination) = (Protocol::Udp, address(1));
        switch.divert(Diversion { from: 1, protocol, destination, to: 3 });
        switch.handle(Duration::ZERO, 1, udp_to(1));
        assert_eq!(drained(&mut switch), [(3, MS / 2)]);
    }

    #[test]
    fn nothing_leaves_early() {
        let mut switch = star();
        switch.handle(Duration::ZERO, 0, udp_to(2));
        assert_eq!(switch.poll(7 * MS - Duration::from_nanos(1)), None);
        assert_eq!(switch.poll(7 * MS).map(|departure| departure.port), Some(1));
    }

    #[test]
    fn unroutable_packets_are_dropped_before_elements_count_them() {
        let mut switch = star();
        switch.ports_mut()[0].outbound = Link::default().with(Loss::exact([2]));
        switch.handle(Duration::ZERO, 0, udp_to(3));
        switch.handle(Duration::ZERO, 0, udp_to(200));
        switch.handle(Duration::ZERO, 9, udp_to(3));
        switch.handle(Duration::ZERO, 0, udp_to(3));
        switch.handle(Duration::ZERO, 0, udp_to(3));
        assert_eq!(drained(&mut switch).len(), 2);
        assert_eq!((switch.unroutable(), switch.ports_mut()[0].outbound.counts().dropped), (2, 1));
    }
}
