use crate::Packet;
use crate::ip::{octets, stable_hash};

/// Rule by which a balancer in front of several servers with one address chooses among them.
///
/// By a hash that is the same in every run. What belongs to no port, such as ICMP and fragments, is
/// chosen by the source address in either way, and may go to another server than the flow it is
/// about, as in real networks (RFC 7690).
///
/// A balancer that goes by server name takes the client's connection before it hears of the name:
/// it answers the SYN itself, and opens the connection to the server once the ClientHello is whole,
/// from the client's address ("delayed binding"). From then on it changes sequence numbers and
/// nothing else: the two ends recover from losses together, where each would do so with a proxy.
/// No such connection has TCP options other than the segment size, or data in its SYN. A connection
/// that does not begin with TLS is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Balance {
    /// Hashes protocol, both addresses and both ports, as routers with several equal paths do
    /// (ECMP): a client's TCP and UDP meet servers that are chosen apart.
    Flow,
    /// Hashes the source address: everything of one client meets one server.
    Source,
    /// TCP by the server name of its ClientHello ([`Host::server_name`](crate::Host::server_name),
    /// else a hash of the name), all else like [`Flow`](Balance::Flow).
    NameElseFlow,
    /// The same, all else like [`Source`](Balance::Source).
    NameElseSource,
}

impl Balance {
    /// Returns true if TCP is balanced by server names.
    pub(crate) fn reads_names(self) -> bool {
        matches!(self, Balance::NameElseFlow | Balance::NameElseSource)
    }

    pub(crate) fn choose<T: Copy>(self, packet: &Packet, among: &[T]) -> Option<T> {
        let hashes_flows = matches!(self, Balance::Flow | Balance::NameElseFlow);
        let flow = packet.flow().filter(|_| hashes_flows);
        let hash = match flow {
            Some(flow) => flow.stable_hash(),
            None => stable_hash(octets(packet.source()?)),
        };
        pick(hash, among)
    }
}

/// The one of these that a hash stands for.
pub(crate) fn pick<T: Copy>(hash: u64, among: &[T]) -> Option<T> {
    let number = hash.checked_rem(u64::try_from(among.len()).ok()?)?;
    among.get(usize::try_from(number).ok()?).copied()
}
