//! The edge's capacity for requests: permits to ask origins, and memory for buffered responses.
//!
//! All clients share both, and one that reads nothing must not take them from the others.
//!
//! A request holds a permit from when the edge asks the origin until the edge has the whole
//! response, however slowly the client reads it. Each connection and each address has a share of
//! the permits. Where permits are short, a request waits a moment for one, and connections take
//! turns. Where memory is short, the edge evicts connections of the address that has held most for
//! longest.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use ::metrics::Gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::metrics;
use crate::shares::{NETWORK, SITE, SITE_SHARE, network};

/// Time that a request waits for a permit before the edge answers 503.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(1);

/// Share of the permits that one connection may hold: one in this many.
///
/// A quarter of the default of 16,384 is more than HTTP/2 allows a connection; a small edge still
/// serves four connections.
const CONNECTION_SHARE: usize = 4;

/// Time in which a client reads next to nothing of a response before it counts as stalled: the edge
/// cancels it if permits are short.
///
/// Longer than the retransmissions of a lossy network usually take.
const STALLED: Duration = Duration::from_secs(5);

/// Minimum time between two searches for something to shed, for each shortage: a search looks at
/// all connections.
const SHED_EVERY: Duration = Duration::from_millis(20);

/// Limits on requests, for the whole edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::edge) struct CapacityLimits {
    /// Maximum number of concurrent requests to origins.
    pub(in crate::edge) requests: usize,
    /// Maximum number of concurrent requests to origins for clients at one address.
    pub(in crate::edge) requests_per_address: usize,
    /// Maximum number of bytes of responses that clients have still to read.
    pub(in crate::edge) memory: usize,
}

/// A connection that the edge can end to free its memory.
pub(super) trait Evictable: Send + Sync + std::fmt::Debug {
    /// Returns the client's address, if it is proven and the client has sent a request.
    fn address(&self) -> Option<IpAddr>;

    /// Returns the memory of responses that the client has still to read.
    fn buffered(&self) -> Buffered;

    /// Cancels responses of which the client has read next to nothing for `limit`: those that hold
    /// a permit of `address`, or any permit if that is `None`.
    fn shed_stalled(&self, limit: Duration, address: Option<&Arc<Semaphore>>);

    /// Makes the connection end, to free its memory for others.
    fn evict(&self);

    /// Returns true once [`evict`](Self::evict) was called.
    fn is_evicted(&self) -> bool;
}

/// Memory of responses that a client has still to read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Buffered {
    pub(super) bytes: usize,
    /// Sum over responses: bytes x (milliseconds without progress + 1,000).
    pub(super) weight: u64,
}

/// Permits that the requests of one connection share.
#[derive(Debug)]
pub(super) struct Share {
    permits: Arc<Semaphore>,
    /// Held by the only request of the connection that may wait for one of the edge's permits.
    turn: tokio::sync::Mutex<()>,
}

/// Permits and memory for requests; lives as long as the edge.
#[derive(Debug)]
pub(in crate::edge) struct Capacity {
    limits: CapacityLimits,
    permits: Arc<Semaphore>,
    addresses: Mutex<Addresses>,
    held: AtomicUsize,
    gauge: OnceLock<Gauge>,
    connections: Mutex<Connections>,
}

/// Address prefix, and its length in bits.
type Network = (IpAddr, u32);

/// Returns the network of `address` that counts as one client.
fn own_network(address: IpAddr) -> Network {
    (network(address, NETWORK), NETWORK)
}

/// Shares of the addresses and sites that hold a permit.
#[derive(Debug, Default)]
struct Addresses {
    shares: HashMap<Option<Network>, Weak<Semaphore>>,
    /// Number of entries at which unused ones are dropped.
    prune_at: usize,
}

/// All connections of HTTP clients.
#[derive(Debug, Default)]
struct Connections {
    all: Vec<Weak<dyn Evictable>>,
    /// Number of connections at which those that have ended are dropped.
    prune_at: usize,
    /// Time of the last search, for each shortage.
    searched: [Option<Instant>; 3],
}

/// Resource that has run short.
#[derive(Clone, Copy, Debug)]
enum Shortage {
    AddressPermits,
    Permits,
    Memory,
}

/// Permit to send one request to an origin.
#[derive(Debug)]
pub(super) struct Permit {
    _connection: OwnedSemaphorePermit,
    /// From the share of the address, and of its site if that is IPv6.
    address: Vec<OwnedSemaphorePermit>,
    _edge: OwnedSemaphorePermit,
}

impl Permit {
    /// Returns true if it is from this share, which is that of an address or a site.
    pub(super) fn is_for(&self, address: &Arc<Semaphore>) -> bool {
        self.address.iter().any(|permit| Arc::ptr_eq(permit.semaphore(), address))
    }
}

impl Capacity {
    pub(in crate::edge) fn new(limits: CapacityLimits) -> Self {
        Self {
            limits,
            permits: semaphore(limits.requests),
            addresses: Mutex::default(),
            held: AtomicUsize::new(0),
            gauge: OnceLock::new(),
            connections: Mutex::default(),
        }
    }

    /// Returns the permits that one connection may hold.
    pub(super) fn connection_share(&self) -> Share {
        let permits = semaphore(self.limits.requests.div_ceil(CONNECTION_SHARE));
        Share { permits, turn: tokio::sync::Mutex::default() }
    }

    /// Registers a connection, so that it can be evicted.
    pub(super) fn register(&self, connection: Weak<dyn Evictable>) {
        let mut connections = lock(&self.connections);
        if connections.all.len() >= connections.prune_at {
            connections.all.retain(|connection| connection.strong_count() > 0);
            connections.prune_at = 2 * connections.all.len() + 64;
        }
        connections.all.push(connection);
    }

    /// Acquires a permit for a request of the connection that has `share`, and whose client is at
    /// `address` if that is proven; `None` after [`QUEUE_TIMEOUT`].
    ///
    /// At most one request of a connection waits for one of the edge's permits: so connections take
    /// turns.
    pub(super) async fn acquire(&self, share: &Share, address: Option<IpAddr>) -> Option<Permit> {
        let address_shares = self.address_shares(address);
        let permit = async {
            let connection = Arc::clone(&share.permits).acquire_owned().await.ok()?;
            let mut address = Vec::with_capacity(2);
            for permits in address_shares {
                address.push(match Arc::clone(&permits).try_acquire_owned() {
                    Ok(permit) => permit,
                    Err(_) => {
                        self.shed_stalled(Some(&permits));
                        permits.acquire_owned().await.ok()?
                    }
                });
            }
            let _edge = match Arc::clone(&self.permits).try_acquire_owned() {
                Ok(permit) => permit,
                Err(_) => {
                    self.shed_stalled(None);
                    let _turn = share.turn.lock().await;
                    Arc::clone(&self.permits).acquire_owned().await.ok()?
                }
            };
            Some(Permit { _connection: connection, address, _edge })
        };
        tokio::time::timeout(QUEUE_TIMEOUT, permit).await.ok().flatten()
    }

    /// Returns the shares of `address` and of its site.
    ///
    /// All addresses of an IPv6 /64 count as one, since one client may have them all. So do all
    /// unproven addresses, which share half of the permits: a request in early data keeps a permit
    /// of that share until its response ends, even if its address is proven meanwhile.
    fn address_shares(&self, address: Option<IpAddr>) -> Vec<Arc<Semaphore>> {
        let per_address = self.limits.requests_per_address;
        let own = address.map(own_network);
        let permits =
            own.map_or(per_address.max(self.limits.requests.div_ceil(2)), |_| per_address);
        let own = self.address_share(own, permits);
        let site = address.map(|ip| (network(ip, SITE), SITE)).filter(|(ip, _)| ip.is_ipv6());
        let site =
            site.map(|site| self.address_share(Some(site), per_address.saturating_mul(SITE_SHARE)));
        std::iter::once(own).chain(site).collect()
    }

    fn address_share(&self, network: Option<Network>, permits: usize) -> Arc<Semaphore> {
        let mut addresses = lock(&self.addresses);
        if let Some(share) = addresses.shares.get(&network).and_then(Weak::upgrade) {
            return share;
        }
        if addresses.shares.len() >= addresses.prune_at {
            addresses.shares.retain(|_, share| share.strong_count() > 0);
            addresses.prune_at = 2 * addresses.shares.len() + 64;
        }
        let share = semaphore(permits);
        addresses.shares.insert(network, Arc::downgrade(&share));
        share
    }

    /// Adds to the memory of responses that clients have still to read.
    pub(super) fn hold(&self, bytes: usize) {
        let held = self.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.gauge().increment(bytes as f64);
        if held > self.limits.memory {
            self.shed_memory();
        }
    }

    /// Subtracts from the memory of responses that clients have still to read.
    pub(super) fn release(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
        self.gauge().decrement(bytes as f64);
    }

    /// Returns the gauge of memory held; made when first used, since metrics start after the edge's
    /// settings are read.
    fn gauge(&self) -> &Gauge {
        self.gauge.get_or_init(metrics::answer_memory)
    }

    /// Returns all connections for a search; `None` if the last one for the same shortage is too
    /// recent, or the list is in use.
    fn connections(&self, shortage: Shortage) -> Option<Vec<Arc<dyn Evictable>>> {
        let now = Instant::now();
        let mut connections = self.connections.try_lock().ok()?;
        let searched = &mut connections.searched[shortage as usize];
        if searched.is_some_and(|at| now.saturating_duration_since(at) < SHED_EVERY) {
            return None;
        }
        *searched = Some(now);
        Some(connections.all.iter().filter_map(Weak::upgrade).collect())
    }

    /// Cancels stalled responses that hold a permit of `address`, or any permit if that is `None`.
    fn shed_stalled(&self, address: Option<&Arc<Semaphore>>) {
        let shortage = match address {
            Some(_) => Shortage::AddressPermits,
            None => Shortage::Permits,
        };
        for connection in self.connections(shortage).into_iter().flatten() {
            connection.shed_stalled(STALLED, address);
        }
    }

    /// Evicts connections until an eighth of the memory is free: clients in descending order of
    /// weight, and each client's connections in the same way.
    fn shed_memory(&self) {
        let Some(connections) = self.connections(Shortage::Memory) else { return };
        let (evicted, staying): (Vec<_>, Vec<_>) = connections
            .into_iter()
            .map(|connection| (connection.buffered(), connection))
            .partition(|(_, connection)| connection.is_evicted());
        let leaving: usize = evicted.iter().map(|(buffered, _)| buffered.bytes).sum();
        let mut held = self.held.load(Ordering::Relaxed).saturating_sub(leaving);
        if held <= self.limits.memory {
            return;
        }
        // Reads each address once, since it may be proven in between.
        let mut candidates: Vec<_> = staying
            .into_iter()
            .filter(|(buffered, _)| buffered.bytes > 0)
            .map(|(buffered, connection)| (client(&connection), buffered, connection))
            .collect();
        let mut weights = HashMap::<_, u64>::new();
        for (client, buffered, _) in &candidates {
            let weight = weights.entry(*client).or_default();
            *weight = weight.saturating_add(buffered.weight);
        }
        candidates.sort_by_key(|(client, buffered, _)| {
            std::cmp::Reverse((weights[client], buffered.weight))
        });
        for (_, buffered, connection) in candidates {
            if held <= self.limits.memory / 8 * 7 {
                return;
            }
            held = held.saturating_sub(buffered.bytes);
            metrics::limit_hit("answer_memory");
            connection.evict();
        }
    }
}

fn semaphore(permits: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(permits.clamp(1, Semaphore::MAX_PERMITS)))
}

/// Client for which weights add up: all connections of a proven address, or one connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Client {
    Proven(Network),
    Connection(usize),
}

fn client(connection: &Arc<dyn Evictable>) -> Client {
    let unproven = Client::Connection(Arc::as_ptr(connection).addr());
    connection.address().map_or(unproven, |ip| Client::Proven(own_network(ip)))
}

/// Locks a mutex, poisoned or not: a panic under the lock leaves nothing half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capacity(requests: usize, requests_per_address: usize) -> Arc<Capacity> {
        Arc::new(Capacity::new(CapacityLimits {
            requests,
            requests_per_address,
            memory: usize::MAX,
        }))
    }

    fn ip(last: u8) -> Option<IpAddr> {
        Some([192, 0, 2, last].into())
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_and_an_address_have_a_share() {
        let capacity = capacity(8, 3);
        let one = capacity.connection_share();
        let held = [capacity.acquire(&one, ip(1)).await, capacity.acquire(&one, ip(1)).await];
        assert!(held.iter().all(Option::is_some));
        assert!(capacity.acquire(&one, ip(1)).await.is_none(), "a quarter is the connection's");
        let other = capacity.connection_share();
        let third = capacity.acquire(&other, ip(1)).await;
        assert!(third.is_some());
        assert!(capacity.acquire(&other, ip(1)).await.is_none(), "three are the address's");
        assert!(capacity.acquire(&other, ip(2)).await.is_some());
        drop(held);
        assert!(capacity.acquire(&one, ip(1)).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn connections_take_turns_where_permits_are_short() {
        let capacity = capacity(8, 8);
        let first: Vec<_> = (0..4).map(|_| capacity.connection_share()).collect();
        let mut held = Vec::new();
        for share in first.iter().chain(&first) {
            held.extend(capacity.acquire(share, ip(1)).await);
        }
        assert_eq!(held.len(), 8);
        let [greedy, modest] = [(); 2].map(|()| Arc::new(capacity.connection_share()));
        let (order, mut served) = tokio::sync::mpsc::unbounded_channel();
        for (name, share) in [("greedy", &greedy), ("greedy", &greedy), ("modest", &modest)] {
            let (capacity, share, order) =
                (Arc::clone(&capacity), Arc::clone(share), order.clone());
            tokio::spawn(async move {
                let permit = capacity.acquire(&share, ip(2)).await;
                let _ = order.send((name, permit));
            });
            tokio::task::yield_now().await;
        }
        held.truncate(6);
        let got = [served.recv().await.unwrap(), served.recv().await.unwrap()];
        assert_eq!(got.each_ref().map(|(name, _)| *name), ["greedy", "modest"]);
        assert!(got.iter().all(|(_, permit)| permit.is_some()));
    }

    #[test]
    fn addresses_of_one_network_are_one() {
        let texts = ["2001:db8::1", "2001:db8::ffff:1", "::ffff:192.0.2.1"];
        let [a, b, c] = texts.map(|text| own_network(text.parse().unwrap()));
        assert_eq!((a, c.0.to_string()), (b, "192.0.2.1".into()));
    }

    /// A site has 65,536 networks. Its limit is for IPv6 alone: a host may have IPv4 as well.
    #[tokio::test(start_paused = true)]
    async fn a_site_of_ipv6_has_the_permits_of_two_addresses() {
        let capacity = capacity(64, 2);
        let mut held = Vec::new();
        for number in 0..8u16 {
            let share = capacity.connection_share();
            let address = std::net::Ipv6Addr::new(0x2001, 0xdb8, 7, number, 0, 0, 0, 1);
            held.extend(capacity.acquire(&share, Some(address.into())).await);
        }
        assert_eq!(held.len(), 4, "each network is below its own limit");
        let share = capacity.connection_share();
        let other = std::net::Ipv6Addr::new(0x2001, 0xdb8, 8, 0, 0, 0, 0, 1);
        assert!(capacity.acquire(&share, Some(other.into())).await.is_some(), "another site");
        assert!(capacity.acquire(&share, ip(1)).await.is_some(), "and IPv4");
        drop(held);
        let first = std::net::Ipv6Addr::new(0x2001, 0xdb8, 7, 0, 0, 0, 0, 1);
        assert!(capacity.acquire(&share, Some(first.into())).await.is_some());
    }

    /// A connection whose bytes have waited for a second.
    #[derive(Debug)]
    struct Holder(Option<IpAddr>, usize, std::sync::atomic::AtomicBool);

    impl Evictable for Holder {
        fn address(&self) -> Option<IpAddr> {
            self.0
        }

        fn buffered(&self) -> Buffered {
            Buffered { bytes: self.1, weight: self.1 as u64 * 1000 }
        }

        fn shed_stalled(&self, _: Duration, _: Option<&Arc<Semaphore>>) {}

        fn evict(&self) {
            self.2.store(true, Ordering::Relaxed);
        }

        fn is_evicted(&self) -> bool {
            self.2.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn the_address_that_holds_most_memory_loses_a_connection() {
        let capacity =
            Capacity::new(CapacityLimits { requests: 1, requests_per_address: 1, memory: 1000 });
        // The largest of all connections is the only one of its address.
        let sizes = [(1, 300), (2, 200), (2, 250), (2, 0), (2, 200), (3, 51)];
        let all = sizes.map(|(address, bytes)| {
            let holder = Arc::new(Holder(ip(address), bytes, false.into()));
            let connection: Weak<Holder> = Arc::downgrade(&holder);
            capacity.register(connection);
            holder
        });
        let total = sizes.iter().map(|(_, bytes)| bytes).sum();
        capacity.hold(total);
        let evicted = all.each_ref().map(|holder| holder.is_evicted());
        assert_eq!(evicted, [false, false, true, false, false, false]);
    }

    #[test]
    fn a_search_for_one_shortage_delays_no_other() {
        let capacity = capacity(1, 1);
        for shortage in [Shortage::AddressPermits, Shortage::Permits, Shortage::Memory] {
            assert!(capacity.connections(shortage).is_some(), "{shortage:?}");
        }
    }
}
