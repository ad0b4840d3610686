use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::{Link, Packet, Protocol};

/// Ports joined in a star: what enters one goes to the port that owns its destination address.
///
/// On the way it passes the outbound link of the port it enters and the inbound link of the port it leaves. Like a
/// [`Link`] it has no clock and no sockets.
#[derive(Debug, Default)]
pub struct Switch {
    ports: Vec<Port>,
    routes: HashMap<IpAddr, usize>,
    diversions: Vec<Diversion>,
    unroutable: u64,
}

/// A route for some packets only, before all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Diversion {
    /// Number of the port they enter by.
    pub from: usize,
    /// What they carry.
    pub protocol: Protocol,
    /// Where they go to.
    pub destination: IpAddr,
    /// Number of the port they leave by.
    pub to: usize,
}

/// The two links of one port.
#[derive(Debug, Default)]
pub struct Port {
    /// From the node into the network.
    pub outbound: Link,
    /// From the network to the node.
    pub inbound: Link,
}

/// A packet that leaves the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Number of the port it leaves by.
    pub port: usize,
    /// When it was due.
    pub due: Duration,
    /// The packet.
    pub packet: Packet,
}

impl Switch {
    /// Adds a port that owns these addresses; returns its number, counted from 0.
    pub fn add_port(&mut self, addresses: impl IntoIterator<Item = IpAddr>, port: Port) -> usize {
        let number = self.ports.len();
        self.ports.push(port);
        self.routes.extend(addresses.into_iter().map(|address| (address, number)));
        number
    }

    /// Sends some packets to another port than the owner of their destination address.
    pub fn divert(&mut self, diversion: Diversion) {
        self.diversions.push(diversion);
    }

    /// The ports by number; replacing a link drops the packets in it.
    pub fn ports_mut(&mut self) -> &mut [Port] {
        &mut self.ports
    }

    /// Takes a packet that enters by a port at `now`.
    ///
    /// One that goes to no port's address, such as multicast, is dropped before any element counts it.
    pub fn handle(&mut self, now: Duration, port: usize, packet: Packet) {
        let routable = self.route(port, &packet).is_some();
        match self.ports.get_mut(port) {
            Some(port) if routable => port.outbound.send(now, packet),
            _ => self.unroutable += 1,
        }
    }

    /// When to [`poll`](Switch::poll) next.
    pub fn next_due(&self) -> Option<Duration> {
        let dues =
            self.ports.iter().flat_map(|port| [port.outbound.next_due(), port.inbound.next_due()]);
        dues.flatten().min()
    }

    /// The next packet that is due at `now` or was before; call until `None`.
    pub fn poll(&mut self, now: Duration) -> Option<Departure> {
        while let Some(due) = self.next_due().filter(|due| *due <= now) {
            self.cross(due);
            if let Some(departure) = self.leave(due) {
                return Some(departure);
            }
        }
        None
    }

    /// Packets that went to no port's address.
    pub fn unroutable(&self) -> u64 {
        self.unroutable
    }

    /// Moves packets from outbound to inbound links.
    fn cross(&mut self, due: Duration) {
        for port in 0..self.ports.len() {
            while let Some(packet) =
                self.ports.get_mut(port).and_then(|port| port.outbound.poll(due))
            {
                // Asked again, as an element may have changed the address.
                match self.route(port, &packet).and_then(|to| self.ports.get_mut(to)) {
                    Some(to) => to.inbound.send(due, packet),
                    None => self.unroutable += 1,
                }
            }
        }
    }

    fn leave(&mut self, due: Duration) -> Option<Departure> {
        let mut ports = self.ports.iter_mut().enumerate();
        ports.find_map(|(port, links)| {
            Some(Departure { port, due, packet: links.inbound.poll(due)? })
        })
    }

    fn route(&self, from: usize, packet: &Packet) -> Option<usize> {
        let destination = packet.destination()?;
        let key = (from, packet.protocol, destination);
        let diverted = self
            .diversions
            .iter()
            .find(|other| key == (other.from, other.protocol, other.destination));
        diverted.map(|diversion| diversion.to).or_else(|| self.routes.get(&destination).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Delay, Loss};

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

    fn star() -> Switch {
        let mut switch = Switch::default();
        let delays = |out, back| Port {
            outbound: Link::default().with(Delay::millis(out)),
            inbound: Link::default().with(Delay::millis(back)),
        };
        switch.add_port([address(1)], delays(5, 7));
        switch.add_port([address(2)], delays(1, 2));
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

    #[test]
    fn nothing_leaves_early() {
        let mut switch = star();
        switch.handle(Duration::ZERO, 0, udp_to(2));
        assert_eq!(switch.poll(7 * MS - Duration::from_nanos(1)), None);
        assert_eq!(switch.poll(7 * MS).map(|departure| departure.port), Some(1));
    }

    #[test]
    fn what_has_no_port_is_dropped_before_elements_count_it() {
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
