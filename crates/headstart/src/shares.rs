//! Fair shares: no client takes all connections, however many it opens.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Permits that one owner may hold for each that is free.
///
/// An owner alone gets three quarters of all, two get three sevenths each, and n of them leave one
/// part in 3n+1 free: the next owner finds permits, and no owner waits while there are plenty.
const PER_FREE: usize = 3;

/// Party that a connection counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    /// A user of this machine, as the kernel says.
    User(u32),
    /// Another machine or container, by its IPv4 address or IPv6 network of 64 bits.
    Host(IpAddr),
    /// A program of this machine whose user the kernel does not tell: all of them are one.
    Unknown,
}

impl Owner {
    /// The owner of a connection of `user`, from `peer` where it has an address.
    pub(crate) fn new(user: Option<u32>, peer: Option<IpAddr>) -> Self {
        match (user, peer.map(|peer| peer.to_canonical())) {
            (Some(user), _) => Self::User(user),
            // One program may use any number of loopback addresses.
            (None, Some(peer)) if !peer.is_loopback() => Self::Host(network(peer)),
            (None, _) => Self::Unknown,
        }
    }
}

fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64))),
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
    /// Permits of those who have any, so there are no more entries than permits.
    by_owner: HashMap<Owner, usize>,
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

    /// As many permits as `all`; for an owner `most`, or what is fair.
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
        let own = taken.by_owner.get(&owner).copied().unwrap_or_default();
        let share = self.most.unwrap_or_else(|| free.saturating_mul(PER_FREE));
        if free == 0 || own >= share {
            return None;
        }
        taken.total += 1;
        taken.by_owner.insert(owner, own + 1);
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
        if let Some(own) = taken.by_owner.get_mut(&self.owner) {
            *own -= 1;
            if *own == 0 {
                taken.by_owner.remove(&self.owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(shares: &Arc<Shares>, owner: Owner) -> Vec<Permit> {
        std::iter::from_fn(|| shares.take(owner)).collect()
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
