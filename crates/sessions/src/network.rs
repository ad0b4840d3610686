use std::net::IpAddr;

/// The way that leads from this machine to a server: what would show that the machine has moved.
///
/// Cookies are bound to the client's address, and what was got on one network would tell on another
/// one who was on the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    /// The address that connections to the server come from.
    pub local: IpAddr,
    /// The number of the interface they leave by.
    pub interface: u32,
    /// The router they go through; none to a server on the same link.
    pub gateway: Option<IpAddr>,
}
