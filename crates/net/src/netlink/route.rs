//! The route to an address, as `ip route get` shows it (rtnetlink(7)).

use std::io;
use std::net::IpAddr;

use headstart_sessions::Network;

use super::{address, ask, attributes, family, messages, number32, octets};

const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;

/// Bytes of `struct rtmsg`.
const ROUTE: usize = 12;

const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PREFSRC: u16 = 7;
/// Attribute of a gateway of the other family: its family in two bytes, and its address.
const RTA_VIA: u16 = 18;

/// Returns the network through which a connection to `destination` would leave now.
///
/// Ignores rules by user, mark or port: their changes affect all connections alike.
///
/// # Errors
/// There is no route there, or the kernel cannot be queried.
pub(crate) fn network_to(destination: IpAddr) -> io::Result<Network> {
    let destination = destination.to_canonical();
    let answer = ask(None, RTM_GETROUTE, &question(destination))?;
    let message = messages(&answer).next().ok_or(io::ErrorKind::InvalidData)?;
    parse(message.answer(RTM_NEWROUTE)?).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn question(destination: IpAddr) -> Vec<u8> {
    let octets = octets(destination);
    let bits = u8::try_from(octets.len() * 8).unwrap_or(u8::MAX);
    let mut question = vec![family(destination), bits];
    question.resize(ROUTE, 0);
    let length = u16::try_from(super::ATTRIBUTE_HEADER + octets.len()).unwrap_or(u16::MAX);
    question.extend(length.to_ne_bytes());
    question.extend(RTA_DST.to_ne_bytes());
    question.extend(octets);
    question
}

/// Returns `None` if the answer lacks the local address or the interface.
pub(super) fn parse(body: &[u8]) -> Option<Network> {
    let (mut local, mut interface, mut gateway) = (None, None, None);
    for (number, value) in attributes(body.get(ROUTE..)?) {
        match number {
            RTA_PREFSRC => local = address(value),
            RTA_OIF => interface = number32(value, 0),
            RTA_GATEWAY => gateway = address(value),
            RTA_VIA => gateway = value.get(2..).and_then(address),
            _ => {}
        }
    }
    Some(Network { local: local?, interface: interface?, gateway })
}
