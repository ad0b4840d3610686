//! How many unjoined sessions an unproven address may have.

use alloc::collections::BTreeMap;
use core::net::IpAddr;

use crate::error::Discard;
use crate::limits::{SESSIONS_PER_ADDRESS, SESSIONS_PER_NETWORK};

/// Counts by address and by network. An entry exists only while its count is not zero.
#[derive(Debug, Default)]
pub(super) struct Admission {
    counts: BTreeMap<Block, u16>,
}

/// A block of addresses that is counted as one: its prefix length and its first bits.
type Block = (u8, u128);

impl Admission {
    pub(super) fn check(&self, address: IpAddr) -> Result<(), Discard> {
        let [host, network] = blocks(address);
        if self.count(host) >= SESSIONS_PER_ADDRESS {
            return Err(Discard::AddressLimit);
        }
        if self.count(network) >= SESSIONS_PER_NETWORK {
            return Err(Discard::NetworkLimit);
        }
        Ok(())
    }

    /// Whether at most half of what `address` and its network may have is in use.
    pub(super) fn is_half_free(&self, address: IpAddr) -> bool {
        let [host, network] = blocks(address);
        self.count(host) <= SESSIONS_PER_ADDRESS / 2
            && self.count(network) <= SESSIONS_PER_NETWORK / 2
    }

    pub(super) fn enter(&mut self, address: IpAddr) {
        for block in blocks(address) {
            let count = self.counts.entry(block).or_default();
            *count = count.saturating_add(1);
        }
    }

    pub(super) fn leave(&mut self, address: IpAddr) {
        for block in blocks(address) {
            if let Some(count) = self.counts.get_mut(&block) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    self.counts.remove(&block);
                }
            }
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    fn count(&self, block: Block) -> u16 {
        self.counts.get(&block).copied().unwrap_or_default()
    }
}

/// A host and its network: /32 and /24, or /64 and /48 of IPv6.
fn blocks(address: IpAddr) -> [Block; 2] {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let bits = u128::from(v4.to_bits());
            [(32, bits), (24, bits >> 8)]
        }
        IpAddr::V6(v6) => {
            let bits = v6.to_bits();
            [(64, bits >> 64), (48, bits >> 80)]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};

    fn fill(admission: &mut Admission, addresses: impl Iterator<Item = IpAddr>) -> usize {
        let mut admitted = 0;
        for address in addresses {
            if admission.check(address).is_ok() {
                admission.enter(address);
                admitted += 1;
            }
        }
        admitted
    }

    #[test]
    fn one_address_gets_its_share_and_gives_it_back() {
        let mut admission = Admission::default();
        let address = IpAddr::from([192, 0, 2, 1]);
        assert_eq!(fill(&mut admission, core::iter::repeat_n(address, 20)), 16);
        assert_eq!(admission.check(address), Err(Discard::AddressLimit));
        let mapped = IpAddr::V6(Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped());
        assert_eq!(admission.check(mapped), Err(Discard::AddressLimit));
        (0..16).for_each(|_| admission.leave(address));
        assert!(admission.counts.is_empty());
    }

    #[test]
    fn one_network_gets_its_share() {
        let mut admission = Admission::default();
        let hosts = (0..=255).map(|host| IpAddr::from([192, 0, 2, host]));
        assert_eq!(fill(&mut admission, hosts), 64);
        assert_eq!(admission.check(IpAddr::from([192, 0, 2, 200])), Err(Discard::NetworkLimit));
        assert_eq!(admission.check(IpAddr::from([192, 0, 3, 200])), Ok(()));
    }

    #[test]
    fn an_ipv6_host_is_its_64_and_its_network_its_48() {
        let address =
            |net: u16, host: u16| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, net, 0, 0, 0, host));
        let mut admission = Admission::default();
        assert_eq!(fill(&mut admission, (0..100).map(|host| address(0, host))), 16);
        assert_eq!(fill(&mut admission, (1..100).map(|net| address(net, 0))), 48);
    }
}
