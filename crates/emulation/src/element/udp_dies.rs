use std::time::Duration;

use super::flow_table::FlowTable;
use super::two_way::{Middlebox, TwoWay};
use super::{Kind, Outputs, Parse};
use crate::ip::Flow;
use crate::{Packet, Protocol};

/// Lets datagrams pass for some time and drops them from then on, as networks do that let UDP
/// begin and then throttle or block it.
///
/// Datagrams that are no whole IP packets belong to no flow.
#[derive(Debug)]
struct UdpDies {
    life: Duration,
    begun: Begun,
}

/// Start of the time.
#[derive(Debug)]
enum Begun {
    /// Begins with the first packet that the box saw of any protocol, for all flows.
    Once(Option<Duration>),
    /// Begins with the first datagram of each flow, by that of the node's packets.
    WithEach(FlowTable<Duration>),
}

impl UdpDies {
    fn handle(&mut self, now: Duration, flow: Option<Flow>, packet: Packet, out: &mut Outputs) {
        let begun = match &mut self.begun {
            Begun::Once(begun) => *begun.get_or_insert(now),
            Begun::WithEach(flows) => match flow.filter(|flow| flow.protocol == Protocol::Udp) {
                Some(flow) => flows.get_mut(&flow).copied().unwrap_or_else(|| {
                    flows.insert(flow, now);
                    now
                }),
                None => now,
            },
        };
        if packet.protocol != Protocol::Udp || now.saturating_sub(begun) < self.life {
            out.pass(packet);
        }
    }
}

impl Middlebox for UdpDies {
    fn outbound(&mut self, now: Duration, packet: Packet, out: &mut Outputs) {
        self.handle(now, packet.flow(), packet, out);
    }

    fn inbound(&mut self, now: Duration, packet: Packet, out: &mut Outputs) {
        self.handle(now, packet.flow().map(Flow::back), packet, out);
    }
}

pub(super) const KIND: Kind = Kind {
    name: "udp-dies",
    form: "udp-dies after TIME [each-flow]",
    parse: Parse::TwoWay(|words| {
        words.expect("after")?;
        let life = words.time()?;
        let each = words.take_word("each-flow");
        let begun = if each { Begun::WithEach(FlowTable::default()) } else { Begun::Once(None) };
        Ok(TwoWay::new(UdpDies { life, begun }, Vec::new()))
    }),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Path;
    use crate::ip::{TcpFields, tcp, udp};

    const CLIENT: &str = "10.77.1.1:5000";
    const OTHER: &str = "10.77.1.1:5001";
    const SERVER: &str = "10.77.2.1:443";

    /// Tells whether a datagram of this client passes each way at this time, in ms.
    fn passes(path: &mut Path, millis: u64, client: &str) -> [bool; 2] {
        let now = Duration::from_millis(millis);
        let (client, server) = (client.parse().unwrap(), SERVER.parse().unwrap());
        path.outbound.send(now, udp(client, server, b"?").unwrap());
        path.inbound.send(now, udp(server, client, b"!").unwrap());
        [path.outbound.poll(now), path.inbound.poll(now)].map(|packet| packet.is_some())
    }

    #[test]
    fn each_flow_has_its_own_time() {
        let mut path: Path = "udp-dies after 1s each-flow".parse().unwrap();
        for (millis, client, expected) in [
            (5_000, CLIENT, true),
            (5_500, OTHER, true),
            (5_999, CLIENT, true),
            (6_000, CLIENT, false),
            (6_499, OTHER, true),
            (6_500, OTHER, false),
            (60_000, CLIENT, false),
        ] {
            let passed = passes(&mut path, millis, client);
            assert_eq!(passed, [expected; 2], "{client} at {millis} ms");
        }
    }

    #[test]
    fn all_udp_dies_together_and_tcp_lives_on() {
        let mut path: Path = "udp-dies after 1s".parse().unwrap();
        let (client, server) = (CLIENT.parse().unwrap(), SERVER.parse().unwrap());
        let syn = tcp(client, server, TcpFields::default()).unwrap();
        for (millis, expected) in [(5_000, true), (5_999, true), (6_000, false), (9_000, false)] {
            let now = Duration::from_millis(millis);
            path.outbound.send(now, syn.clone());
            assert_eq!(path.outbound.poll(now).as_ref(), Some(&syn));
            assert_eq!(passes(&mut path, millis, OTHER), [expected; 2], "at {millis} ms");
        }
    }
}
