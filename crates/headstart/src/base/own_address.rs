//! Addresses of this machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use rustix::io::Errno;
use socket2::{Domain, Socket, Type};

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

/// Returns true unless the kernel was started without IPv6. Asks it: units hide /proc/net.
#[must_use]
pub fn has_ipv6() -> bool {
    let made = Socket::new(Domain::IPV6, Type::DGRAM, None);
    made.err().and_then(|error| Errno::from_io_error(&error)) != Some(Errno::AFNOSUPPORT)
}

/// Takes out each `[::]` and `[::1]` with its IPv4 counterpart beside it if there is no IPv6: the
/// defaults hold for such machines too.
pub fn leave_out_ipv6(addresses: &mut Vec<SocketAddr>) {
    let left_out = without_ipv6(addresses, has_ipv6());
    if !left_out.is_empty() {
        tracing::info!(addresses = ?left_out, "this machine has no IPv6: not listening there");
    }
}

fn without_ipv6(addresses: &mut Vec<SocketAddr>, has_ipv6: bool) -> Vec<SocketAddr> {
    let all = addresses.clone();
    let is_left_out = |address: &mut SocketAddr| {
        let v4 = match address.ip() {
            IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv4Addr::UNSPECIFIED,
            IpAddr::V6(Ipv6Addr::LOCALHOST) => Ipv4Addr::LOCALHOST,
            _ => return false,
        };
        !has_ipv6 && all.contains(&SocketAddr::from((v4, address.port())))
    };
    addresses.extract_if(.., is_left_out).collect()
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
    fn a_machine_without_ipv6_listens_on_ipv4() {
        let addresses = |texts: &[&str]| -> Vec<SocketAddr> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let default = addresses(&["0.0.0.0:443", "[::]:443"]);
        for (given, has_ipv6, left) in [
            (default.clone(), true, default.clone()),
            (default, false, addresses(&["0.0.0.0:443"])),
            (addresses(&["127.0.0.1:1", "[::1]:1"]), false, addresses(&["127.0.0.1:1"])),
            // Whoever asks for IPv6 alone, or for one address of it, gets an error.
            (addresses(&["[::]:443"]), false, addresses(&["[::]:443"])),
            (addresses(&["0.0.0.0:80", "[::]:443"]), false, addresses(&["0.0.0.0:80", "[::]:443"])),
            (addresses(&["0.0.0.0:80", "[::1]:80"]), false, addresses(&["0.0.0.0:80", "[::1]:80"])),
        ] {
            let mut listen = given.clone();
            let out = without_ipv6(&mut listen, has_ipv6);
            assert_eq!((listen.len() + out.len(), listen), (given.len(), left));
        }
    }

    #[test]
    fn packets_to_an_own_address_leave_from_it() {
        assert!(is_source(Ipv4Addr::LOCALHOST.into()));
        assert!(!is_source(Ipv4Addr::new(203, 0, 113, 77).into()));
    }
}
