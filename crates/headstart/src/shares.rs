//! Fair shares: no client takes all connections, however many it opens.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Permits that one owner may hold for each that is free.
///
/// An owner alone gets three quarters of all, two get three sevenths each, and n of them leave one
/// part in 3n+1 free: the next owner finds permits, and no owner waits while there are plenty.
const PER_FREE: usize = 3;

/// Permits that an IPv6 site may hold, in those that one owner may: it has thousands of networks,
/// each of which is an owner.
pub(crate) const SITE_SHARE: usize = 2;

/// Prefix length of an IPv6 site: what most registries assign to one.
pub(crate) const SITE: u32 = 48;

/// Prefix length of an IPv6 network, whose addresses one client may have.
pub(crate) const NETWORK: u32 = 64;

/// Party that a connection counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    /// A user of this machine, as the kernel says.
    User(u32),
    /// Another machine or container, by its IPv4 address or IPv6 network of 64 bits.
    Host(IpAddr),
    /// An IPv6 network of 48 bits, which counts together with each of its hosts.
    Site(IpAddr),
    /// A program of this machine whose user the kernel does not tell: all of them are one.
    Unknown,
}

impl Owner {
    /// The owner of a connection of `user`, from `peer` where it has an address.
    pub(crate) fn new(user: Option<u32>, peer: Option<IpAddr>) -> Self {
        match (user, peer.map(|peer| peer.to_canonical())) {
            (Some(user), _) => Self::User(user),
            // One program may use any number of loopback addresses.
            (None, Some(peer)) if !peer.is_loopback() => Self::Host(network(peer, NETWORK)),
            (None, _) => Self::Unknown,
        }
    }

    /// Returns the site of an IPv6 host.
    fn site(self) -> Option<Self> {
        match self {
            Self::Host(address @ IpAddr::V6(_)) => Some(Self::Site(network(address, SITE))),
            _ => None,
        }
    }
}

/// Returns the network of `bits` bits that an IPv6 `address` is in; an IPv4 address is its own.
pub(crate) fn network(address: IpAddr, bits: u32) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6((ip.to_bits() & !(u128::MAX >> bits)).into()),
        ip @ IpAddr::V4(_) => ip,
    }
}

/// Permits that all owners share.
#[derive(Debug)]
pub(crate) struct Shares {
    all: usize,
    /// Permits that an owner may hold whatever is free.
    most: Option<usize>,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    total: usize,
    /// Permits of those who have any, so there are at most two entries for each permit.
    by_owner: HashMap<Owner, usize>,
}

impl Taken {
    fn held(&self, owner: Owner) -> usize {
        self.by_owner.get(&owner).copied().unwrap_or_default()
    }
}

/// The permit of one connection; free again when it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    shares: Arc<Shares>,
    owner: Owner,
}

impl Shares {
    /// As many permits as `all`.
    pub(crate) fn new(all: usize) -> Arc<Self> {
        Self::with_most(all, None)
    }

    /// As many permits as `all`; for an owner `most`, or what is fair. A site of IPv6 may have
    /// [`SITE_SHARE`] times `most`, or what is fair for an owner.
    pub(crate) fn with_most(all: usize, most: Option<usize>) -> Arc<Self> {
        Arc::new(Self { all, most, taken: Mutex::default() })
    }

    /// Makes as many for others, who can take none of these.
    pub(crate) fn apart(&self) -> Arc<Self> {
        Self::with_most(self.all, self.most)
    }

    /// Takes a permit for a connection of `owner`, unless its share is used up.
    pub(crate) fn take(self: &Arc<Self>, owner: Owner) -> Option<Permit> {
        let mut taken = self.lock();
        let free = self.all.saturating_sub(taken.total);
        let share = self.most.unwrap_or_else(|| free.saturating_mul(PER_FREE));
        let of_site = self.most.map_or(share, |most| most.saturating_mul(SITE_SHARE));
        let is_full = owner.site().is_some_and(|site| taken.held(site) >= of_site);
        if free == 0 || is_full || taken.held(owner) >= share {
            return None;
        }
        taken.total += 1;
        for owner in [owner].into_iter().chain(owner.site()) {
            *taken.by_owner.entry(owner).or_default() += 1;
        }
        Some(Permit { shares: Arc::clone(self), owner })
    }

    /// Locks the counts, poisoned or not: a panic under the lock leaves nothing half done.
    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut taken = self.shares.lock();
        taken.total -= 1;
        for owner in [self.owner].into_iter().chain(self.owner.site()) {
            if let Entry::Occupied(mut held) = taken.by_owner.entry(owner) {
                *held.get_mut() -= 1;
                if *held.get() == 0 {
                    held.remove();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    fn fill(shares: &Arc<Shares>, owner: Owner) -> Vec<Permit> {
        std::iter::from_fn(|| shares.take(owner)).collect()
    }

    /// Takes what 99 networks of an IPv6 site get.
    fn fill_by_site(shares: &Arc<Shares>, site: u16) -> Vec<Permit> {
        let networks = (0..99).map(|number| Ipv6Addr::new(0x2001, 0xdb8, site, number, 0, 0, 0, 1));
        networks.flat_map(|ip| fill(shares, Owner::new(None, Some(ip.into())))).collect()
    }

    #[test]
    fn one_owner_gets_three_quarters_and_the_next_ones_find_room() {
        let shares = Shares::new(4096);
        let first = fill(&shares, Owner::User(1));
        assert_eq!(first.len(), 3072);
        let second = fill(&shares, Owner::User(2));
        assert_eq!(second.len(), 768, "three quarters of the rest");
        let unknown = fill(&shares, Owner::Unknown);
        assert_eq!(unknown.len(), 192);
        drop(first);
        assert_eq!(fill(&shares, Owner::User(3)).len(), 2352, "three quarters of what is free");
        drop((second, unknown));
        assert!(shares.lock().by_owner.is_empty(), "nothing is left of who is gone");
    }

    #[test]
    fn an_owner_gets_the_share_that_is_set() {
        let shares = Shares::with_most(8, Some(5));
        let first = fill(&shares, Owner::User(1));
        assert_eq!((first.len(), fill(&shares, Owner::User(2)).len()), (5, 3));
        let all = fill(&Shares::with_most(8, Some(9)), Owner::User(1));
        assert_eq!(all.len(), 8, "no more than there are");
    }

    /// Each of its 65,536 networks alone would get three quarters of what is free.
    #[test]
    fn all_networks_of_a_site_together_get_no_more_than_an_owner() {
        let shares = Shares::new(4096);
        let first = fill_by_site(&shares, 1);
        assert_eq!((first.len(), fill_by_site(&shares, 2).len()), (3072, 768));
        assert_eq!(fill(&shares, Owner::new(None, Some([192, 0, 2, 1].into()))).len(), 768);
        drop(first);
        assert!(shares.lock().by_owner.is_empty(), "nothing is left of who is gone");
        assert_eq!(fill_by_site(&Shares::with_most(64, Some(5)), 1).len(), 2 * 5);
    }

    #[test]
    fn the_smallest_number_of_permits_is_of_use() {
        let one = Shares::new(1);
        assert_eq!(fill(&one, Owner::Unknown).len(), 1);
        let four = Shares::new(4);
        let held = fill(&four, Owner::User(1));
        assert_eq!((held.len(), fill(&four, Owner::User(2)).len()), (3, 1));
    }

    #[test]
    fn owners_are_users_or_hosts_and_loopback_is_one() {
        assert_eq!(Owner::new(Some(0), Some([127, 0, 0, 1].into())), Owner::User(0));
        for local in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            assert_eq!(Owner::new(None, local.parse().ok()), Owner::Unknown, "{local}");
        }
        assert_eq!(Owner::new(None, None), Owner::Unknown);
        let [one, neighbour, other] = ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"]
            .map(|address| Owner::new(None, address.parse().ok()));
        assert_eq!(one, neighbour);
        assert_ne!(one, other);
    }
}
