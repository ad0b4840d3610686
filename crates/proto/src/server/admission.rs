//! Tracks and limits the unjoined sessions of each unproven address.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::recent::Recent;
use crate::error::Discard;
use crate::id::SessionId;
use crate::limits::{SESSIONS_PER_ADDRESS, SESSIONS_PER_JOINER, SESSIONS_PER_NETWORK};
use crate::time::Instant;

/// Sessions by network, the oldest first. A network has an entry only while it has a session.
///
/// Visiting one network visits at most 2 x [`SESSIONS_PER_JOINER`] slots: that many that are not
/// spared, and that many that run or are spared.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, Hash))]
pub(super) struct Admission {
    networks: BTreeMap<IpAddr, Vec<Slot>>,
    /// Sessions that each host has joined of its own, until it joins none for a while.
    joined: Recent<IpAddr, usize>,
}

#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(Hash))]
struct Slot {
    host: IpAddr,
    id: SessionId,
    stage: Stage,
}

/// Progress of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub(super) enum Stage {
    Gathering,
    Running,
    Spared,
}

impl Admission {
    /// Checks that there is room for one more. Spared sessions do not count: they give way once it
    /// runs.
    pub(super) fn check(&self, now: Instant, address: IpAddr) -> Result<(), Discard> {
        let (host, count) = self.count(address, |stage| stage != Stage::Spared);
        let share = self.share(now, address);
        // W-ADMIT-1
        if host >= share {
            return Err(Discard::AddressLimit);
        }
        // W-ADMIT-2
        if count >= SESSIONS_PER_NETWORK.max(share) {
            return Err(Discard::NetworkLimit);
        }
        Ok(())
    }

    /// Returns the oldest spared session that has to give way now that one of `address` runs.
    pub(super) fn crowded_out(&self, now: Instant, address: IpAddr) -> Option<SessionId> {
        let (host, count) = self.count(address, |stage| stage != Stage::Gathering);
        let share = self.share(now, address);
        let of_host = (host > share).then(|| self::host(address));
        if of_host.is_none() && count <= SESSIONS_PER_NETWORK.max(share) {
            return None;
        }
        let spared = self.of_network(address).filter(|slot| slot.stage == Stage::Spared);
        spared.filter(|slot| of_host.is_none_or(|host| slot.host == host)).map(|p| p.id).next()
    }

    /// Records that TCP from `address` has taken over a session of that address.
    pub(super) fn joined(&mut self, now: Instant, address: IpAddr) {
        let host = host(address);
        let joined = self.joined.get(now, &host).copied().unwrap_or(0);
        self.joined.insert(now, host, (joined + 1).min(SESSIONS_PER_JOINER));
    }

    /// Forgets hosts that have joined nothing for a while.
    pub(super) fn expire(&mut self, now: Instant) {
        self.joined.expire(now);
    }

    /// Returns how many sessions the host of `address` may have.
    fn share(&self, now: Instant, address: IpAddr) -> usize {
        let joined = self.joined.get(now, &host(address)).copied().unwrap_or(0);
        (SESSIONS_PER_ADDRESS + joined).min(SESSIONS_PER_JOINER)
    }

    pub(super) fn enter(&mut self, address: IpAddr, id: SessionId) {
        let slots = self.networks.entry(network(address)).or_default();
        slots.push(Slot { host: host(address), id, stage: Stage::Gathering });
    }

    pub(super) fn advance(&mut self, address: IpAddr, id: SessionId, stage: Stage) {
        let mut slots = self.networks.get_mut(&network(address)).into_iter().flatten();
        if let Some(slot) = slots.find(|slot| slot.id == id) {
            slot.stage = stage;
        }
    }

    pub(super) fn leave(&mut self, address: IpAddr, id: SessionId) {
        let network = network(address);
        if let Some(slots) = self.networks.get_mut(&network) {
            slots.retain(|slot| slot.id != id);
            if slots.is_empty() {
                self.networks.remove(&network);
            }
        }
    }

    /// Yields the sessions of the host that `address` belongs to, oldest first.
    pub(super) fn of_host(&self, address: IpAddr) -> impl Iterator<Item = SessionId> + '_ {
        let host = host(address);
        let slots = self.of_network(address);
        slots.filter(move |slot| slot.host == host).map(|slot| slot.id)
    }

    /// Yields every session with its stage.
    #[cfg(test)]
    pub(super) fn all(&self) -> impl Iterator<Item = (SessionId, Stage)> + '_ {
        self.networks.values().flatten().map(|slot| (slot.id, slot.stage))
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.networks.is_empty()
    }

    /// Counts the sessions of the host and of its network whose stage matches.
    fn count(&self, address: IpAddr, counts: impl Fn(Stage) -> bool) -> (usize, usize) {
        let host = host(address);
        let counted = self.of_network(address).filter(|slot| counts(slot.stage));
        counted.fold((0, 0), |(of_host, all), slot| {
            (of_host + usize::from(slot.host == host), all + 1)
        })
    }

    fn of_network(&self, address: IpAddr) -> impl Iterator<Item = &Slot> {
        self.networks.get(&network(address)).into_iter().flatten()
    }
}

/// Returns what stands for a host or household: the IPv4 address, or the /64 of an IPv6 address.
#[must_use]
pub fn host(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => first_bits(v6, 64),
        v4 => v4,
    }
}

/// Returns the /24 of an IPv4 address, or the /48 of an IPv6 address.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() >> 8 << 8)),
        IpAddr::V6(v6) => first_bits(v6, 48),
    }
}

fn first_bits(address: Ipv6Addr, length: u32) -> IpAddr {
    let rest = u128::BITS - length;
    IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> rest << rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::JoinKey;
    use crate::limits::HELLO_MEMORY;

    fn id(number: u8) -> SessionId {
        JoinKey::new([number; 16]).session_id()
    }

    fn fill(admission: &mut Admission, addresses: impl Iterator<Item = IpAddr>) -> u8 {
        let mut admitted = 0_u8;
        for address in addresses {
            if admission.check(Instant::ZERO, address).is_ok() {
                admission.enter(address, id(admitted));
                admitted += 1;
            }
        }
        admitted
    }

    #[test]
    fn an_address_gets_its_share_and_returns_it() {
        let mut admission = Admission::default();
        let address = IpAddr::from([192, 0, 2, 1]);
        assert_eq!(fill(&mut admission, core::iter::repeat_n(address, 20)), 16);
        assert_eq!(admission.check(Instant::ZERO, address), Err(Discard::AddressLimit));
        let mapped = IpAddr::V6(Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped());
        assert_eq!(admission.check(Instant::ZERO, mapped), Err(Discard::AddressLimit));
        (0..16).for_each(|number| admission.leave(address, id(number)));
        assert!(admission.is_empty());
    }

    #[test]
    fn addresses_that_joined_do_not_stay_in_memory() {
        let (address, begun) = (IpAddr::from([192, 0, 2, 1]), Instant::ZERO);
        let mut admission = Admission::default();
        admission.joined(begun, address);
        assert!(admission.joined.get(begun, &host(address)).is_some());
        admission.expire(begun + HELLO_MEMORY * 2);
        assert!(admission.joined.get(begun, &host(address)).is_none());
    }

    #[test]
    fn an_address_that_joins_gets_more_until_it_joins_no_more() {
        let (address, neighbour) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let admitted = |joins: usize, address, now| {
            let mut admission = Admission::default();
            (0..joins).for_each(|_| admission.joined(Instant::ZERO, [192, 0, 2, 1].into()));
            (0..200)
                .take_while(|number| {
                    let admitted = admission.check(now, address).is_ok();
                    admission.enter(address, id(*number));
                    admitted
                })
                .count()
        };
        let begun = Instant::ZERO;
        assert_eq!(
            [0, 1, 112, 500].map(|joins| admitted(joins, address, begun)),
            [16, 17, 128, 128]
        );
        assert_eq!(admitted(500, neighbour, begun), 16, "another address");
        assert_eq!(admitted(500, address, begun + HELLO_MEMORY), 16, "too long ago");
    }

    #[test]
    fn one_network_gets_its_share() {
        let mut admission = Admission::default();
        let hosts = (0..=255).map(|host| IpAddr::from([192, 0, 2, host]));
        assert_eq!(fill(&mut admission, hosts), 64);
        let check = |address: [u8; 4]| admission.check(Instant::ZERO, address.into());
        assert_eq!(check([192, 0, 2, 200]), Err(Discard::NetworkLimit));
        assert_eq!(check([192, 0, 3, 200]), Ok(()));
    }

    #[test]
    fn ipv6_hosts_are_64s_and_networks_48s() {
        let address =
            |net: u16, host: u16| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, net, 0, 0, 0, host));
        let mut admission = Admission::default();
        assert_eq!(fill(&mut admission, (0..100).map(|host| address(0, host))), 16);
        assert_eq!(fill(&mut admission, (1..100).map(|net| address(net, 0))), 48);
    }
}
