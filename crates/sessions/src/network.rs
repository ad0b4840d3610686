use std::net::IpAddr;

/// The network path from this machine to a server: a change reveals that the machine has moved.
///
/// Cookies are bound to the client's address. One received on a first network and shown on a second
/// would reveal there who was on the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    /// Source address of connections to the server.
    pub local: IpAddr,
    /// Index of the outgoing interface.
    pub interface: u32,
    /// The router on the way; `None` to a server on the same link.
    pub gateway: Option<IpAddr>,
}
