use std::fmt;
use std::str::FromStr;

use crate::Packet;
use crate::ip::{octets, stable_hash};
use crate::words::ParseError;

/// Rule by which a balancer in front of several servers with one address chooses among them.
///
/// By a hash that is the same in every run. What belongs to no port, such as ICMP and fragments, is
/// chosen by the source address in either way, and may go to another server than the flow it is
/// about, as in real networks (RFC 7690).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Balance {
    /// Hashes protocol, both addresses and both ports: a client's TCP and UDP may meet different
    /// servers.
    Flow,
    /// Hashes the source address: everything of one client meets one server.
    Source,
}

impl Balance {
    pub(crate) fn choose<T: Copy>(self, packet: &Packet, among: &[T]) -> Option<T> {
        let flow = packet.flow().filter(|_| self == Balance::Flow);
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

impl fmt::Display for Balance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Balance::Flow => "flow",
            Balance::Source => "source",
        })
    }
}

/// Reads `flow` or `source`.
impl FromStr for Balance {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Balance, ParseError> {
        match text {
            "flow" => Ok(Balance::Flow),
            "source" => Ok(Balance::Source),
            other => Err(ParseError {
                expected: "`flow` or `source`".to_owned(),
                found: Some(other.to_owned()),
            }),
        }
    }
}
