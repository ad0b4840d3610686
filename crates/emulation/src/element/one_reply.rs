use std::time::Duration;

use super::flow_table::FlowTable;
use super::two_way::{Middlebox, TwoWay};
use super::{Kind, Outputs, Parse};
use crate::{Packet, Protocol};

/// Lets one UDP datagram in for each that went out on the same flow, as firewalls do that know UDP
/// from DNS only.
///
/// Datagrams that are no whole IP packets pass.
#[derive(Debug, Default)]
struct OneReply {
    /// Replies still due, by the flow of their requests.
    due: FlowTable<u32>,
}

impl Middlebox for OneReply {
    fn outbound(&mut self, _now: Duration, packet: Packet, out: &mut Outputs) {
        if let Some(flow) = packet.flow().filter(|flow| flow.protocol == Protocol::Udp) {
            match self.due.get_mut(&flow) {
                Some(due) => *due = due.saturating_add(1),
                None => drop(self.due.insert(flow, 1)),
            }
        }
        out.pass(packet);
    }

    fn inbound(&mut self, _now: Duration, packet: Packet, out: &mut Outputs) {
        let Some(flow) = packet.flow().filter(|flow| flow.protocol == Protocol::Udp) else {
            out.pass(packet);
            return;
        };
        if let Some(due) = self.due.get_mut(&flow.back()).filter(|due| **due > 0) {
            *due -= 1;
            out.pass(packet);
        }
    }
}

pub(super) const KIND: Kind = Kind {
    name: "one-reply",
    form: "one-reply",
    parse: Parse::TwoWay(|_| Ok(TwoWay::new(OneReply::default(), Vec::new()))),
};

#[cfg(test)]
mod tests {
    use crate::ip::udp;
    use crate::{Packet, Path};

    fn datagram(from: &str, to: &str) -> Packet {
        udp(from.parse().unwrap(), to.parse().unwrap(), b"x").unwrap()
    }

    #[test]
    fn as_many_replies_as_requests_on_each_flow() {
        let mut path: Path = "one-reply".parse().unwrap();
        let (client, other, server) = ("10.77.1.1:5000", "10.77.1.1:5001", "10.77.2.1:443");
        let now = std::time::Duration::ZERO;
        let steps = [(0, client, 0), (1, client, 1), (2, other, 0), (0, client, 2)];
        for (requests, to, replies) in steps {
            for _ in 0..requests {
                path.outbound.send(now, datagram(client, server));
            }
            for _ in 0..3 {
                path.inbound.send(now, datagram(server, to));
            }
            assert_eq!(std::iter::from_fn(|| path.inbound.poll(now)).count(), replies);
        }
        assert_eq!(path.inbound.counts().dropped, 9);
    }
}
