//! Addresses of this machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Returns true if this machine, in its network namespace, has the address.
#[must_use]
pub fn is_own_address(address: IpAddr) -> bool {
    let address = address.to_canonical();
    if address.is_loopback() {
        return true;
    }
    // Reserved (RFC 1112 section 4) and for discarding (RFC 6666): no machine has them, so where
    // they can be bound, net.ipv4.ip_nonlocal_bind has everything be.
    let nobodys = match address {
        IpAddr::V4(_) => IpAddr::from(Ipv4Addr::new(240, 0, 0, 1)),
        IpAddr::V6(_) => Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 1).into(),
    };
    is_bindable(address) && (!is_bindable(nobodys) || is_source(address))
}

fn is_bindable(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

/// Returns true if packets to the address would leave from it. No packet is sent.
fn is_source(address: IpAddr) -> bool {
    let any: SocketAddr = match address {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let local = UdpSocket::bind(any).and_then(|socket| {
        socket.connect((address, 1))?;
        socket.local_addr()
    });
    local.is_ok_and(|local| local.ip() == address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_this_machine_and_addresses_for_documentation_are_not() {
        assert!(is_own_address(Ipv4Addr::LOCALHOST.into()));
        assert!(is_own_address(Ipv4Addr::LOCALHOST.to_ipv6_mapped().into()));
        for address in ["203.0.113.77", "2001:db8:77::1"] {
            assert!(!is_own_address(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn packets_to_an_own_address_leave_from_it() {
        assert!(is_source(Ipv4Addr::LOCALHOST.into()));
        assert!(!is_source(Ipv4Addr::new(203, 0, 113, 77).into()));
    }
}
