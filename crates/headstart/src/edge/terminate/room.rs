//! Room for requests, of the whole edge: places at origins, and memory for answers that wait.
//!
//! Both are shared by all clients, and one that reads nothing must not take them from the others.
//! A request has a place from when the origin is asked until its whole answer is here, however
//! slowly the client takes that. Connections and addresses have a share of the places; where those
//! are short, a request waits a moment for one, and connections take turns. Where memory is short,
//! connections go of the address that holds most for longest.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use ::metrics::Gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::metrics;

/// Time that a request waits for a place before it is answered 503.
const PLACE_WAIT: Duration = Duration::from_secs(1);

/// A connection may have a quarter of the places: with the default of 16,384 that is more than
/// HTTP/2 allows it, while a small edge still serves four.
const CONNECTION_SHARE: usize = 4;

/// A site of IPv6 may have as many places as this number of addresses: it has networks by the
/// thousand.
const SITE_SHARE: usize = 2;

/// Bits that the networks of a site of IPv6 have in common: what most registries give to one.
const SITE: u32 = 48;

/// Bits that the addresses of a client of IPv6 have in common.
const NETWORK: u32 = 64;

/// Where places are short, an answer gives way of which the client has taken next to nothing for
/// this long: longer than the retransmissions of a lossy network usually take.
const STALLED: Duration = Duration::from_secs(5);

/// Pause between two looks for the same reason for somebody to give way; each looks at all
/// connections.
const SHED_EVERY: Duration = Duration::from_millis(20);

/// Bounds of what requests take, for the whole edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::edge) struct RoomLimits {
    /// Requests at origins at one time.
    pub(in crate::edge) places: usize,
    /// Requests of clients at one address at one time.
    pub(in crate::edge) address_places: usize,
    /// Bytes of answers that wait for clients.
    pub(in crate::edge) memory: usize,
}

/// A connection that takes room.
pub(super) trait Guest: Send + Sync + std::fmt::Debug {
    /// Returns its client's address, if it is proven and has asked for something.
    fn address(&self) -> Option<IpAddr>;

    /// Returns the memory that waits for its client.
    fn waiting(&self) -> Waiting;

    /// Cancels answers that hold a place of `address`, or any, and of which the client has taken
    /// next to nothing for `limit`.
    fn shed_stalled(&self, limit: Duration, address: Option<&Arc<Semaphore>>);

    /// Has the connection end, for others need its room.
    fn dismiss(&self);

    /// Returns true if it has to end.
    fn is_dismissed(&self) -> bool;
}

/// Memory that waits for a client.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waiting {
    pub(super) bytes: usize,
    /// The bytes, each times the milliseconds that its answer has not moved for, and a second.
    pub(super) weight: u64,
}

/// Places that the requests of one connection may have.
#[derive(Debug)]
pub(super) struct Share {
    places: Arc<Semaphore>,
    /// Held by the one of the requests that waits for a place of all.
    turn: tokio::sync::Mutex<()>,
}

/// Room for requests; lives as long as the edge.
#[derive(Debug)]
pub(in crate::edge) struct Room {
    limits: RoomLimits,
    free: Arc<Semaphore>,
    addresses: Mutex<Addresses>,
    held: AtomicUsize,
    gauge: OnceLock<Gauge>,
    clients: Mutex<Clients>,
}

/// Addresses that share the first so many bits.
type Network = (IpAddr, u32);

/// Places of each address that has any, and of each site.
#[derive(Debug, Default)]
struct Addresses {
    shares: HashMap<Option<Network>, Weak<Semaphore>>,
    /// Entries from which those that nobody uses are dropped.
    tidy_at: usize,
}

/// All connections of HTTP clients.
#[derive(Debug, Default)]
struct Clients {
    all: Vec<Weak<dyn Guest>>,
    /// Connections from which those that have ended are dropped.
    tidy_at: usize,
    /// When they were last looked at, for each reason.
    shed: [Option<Instant>; 3],
}

/// Something that is short, for which somebody has to give way.
#[derive(Clone, Copy, Debug)]
enum Short {
    AddressPlaces,
    Places,
    Memory,
}

/// A place at an origin.
#[derive(Debug)]
pub(super) struct Place {
    _connection: OwnedSemaphorePermit,
    /// Permits of the address, and of its site if it has one.
    address: Vec<OwnedSemaphorePermit>,
    _edge: OwnedSemaphorePermit,
}

impl Place {
    /// Returns true if it is one of `address`, or of that site.
    pub(super) fn is_for(&self, address: &Arc<Semaphore>) -> bool {
        self.address.iter().any(|place| Arc::ptr_eq(place.semaphore(), address))
    }
}

impl Room {
    pub(in crate::edge) fn new(limits: RoomLimits) -> Self {
        Self {
            limits,
            free: semaphore(limits.places),
            addresses: Mutex::default(),
            held: AtomicUsize::new(0),
            gauge: OnceLock::new(),
            clients: Mutex::default(),
        }
    }

    /// Returns the places that one connection may have.
    pub(super) fn connection_share(&self) -> Share {
        let places = semaphore(self.limits.places.div_ceil(CONNECTION_SHARE));
        Share { places, turn: tokio::sync::Mutex::default() }
    }

    /// Makes a connection known, so that it can be asked to give way.
    pub(super) fn enter(&self, client: Weak<dyn Guest>) {
        let mut clients = lock(&self.clients);
        if clients.all.len() >= clients.tidy_at {
            clients.all.retain(|client| client.strong_count() > 0);
            clients.tidy_at = 2 * clients.all.len() + 64;
        }
        clients.all.push(client);
    }

    /// Takes a place for a request of a connection with `client`'s share, whose address is
    /// `address` if it is proven.
    ///
    /// Only one request of a connection waits for the places of all: so connections take turns.
    pub(super) async fn place(&self, client: &Share, address: Option<IpAddr>) -> Option<Place> {
        let shares = self.address_shares(address);
        let taken = async {
            let connection = Arc::clone(&client.places).acquire_owned().await.ok()?;
            let mut address = Vec::with_capacity(2);
            for share in shares {
                address.push(match Arc::clone(&share).try_acquire_owned() {
                    Ok(place) => place,
                    Err(_) => {
                        self.shed_stalled(Some(&share));
                        share.acquire_owned().await.ok()?
                    }
                });
            }
            let _edge = match Arc::clone(&self.free).try_acquire_owned() {
                Ok(place) => place,
                Err(_) => {
                    self.shed_stalled(None);
                    let _turn = client.turn.lock().await;
                    Arc::clone(&self.free).acquire_owned().await.ok()?
                }
            };
            Some(Place { _connection: connection, address, _edge })
        };
        tokio::time::timeout(PLACE_WAIT, taken).await.ok().flatten()
    }

    /// Returns the places of `address`, and of its site; those of IPv6 are one by their network of
    /// 64 bits, which one client has. All that are not proven are one, which has half of the
    /// places: the answer to a request in early data keeps that share to its end.
    fn address_shares(&self, address: Option<IpAddr>) -> Vec<Arc<Semaphore>> {
        let places = self.limits.address_places;
        let own = address.map(|ip| network(ip, NETWORK));
        let own_places = own.map_or(places.max(self.limits.places.div_ceil(2)), |_| places);
        let own = self.address_share(own, own_places);
        let site = address.map(|ip| network(ip, SITE)).filter(|(ip, _)| ip.is_ipv6());
        let site =
            site.map(|site| self.address_share(Some(site), places.saturating_mul(SITE_SHARE)));
        std::iter::once(own).chain(site).collect()
    }

    fn address_share(&self, network: Option<Network>, places: usize) -> Arc<Semaphore> {
        let mut addresses = lock(&self.addresses);
        if let Some(share) = addresses.shares.get(&network).and_then(Weak::upgrade) {
            return share;
        }
        if addresses.shares.len() >= addresses.tidy_at {
            addresses.shares.retain(|_, share| share.strong_count() > 0);
            addresses.tidy_at = 2 * addresses.shares.len() + 64;
        }
        let share = semaphore(places);
        addresses.shares.insert(network, Arc::downgrade(&share));
        share
    }

    /// Counts memory that waits for a client.
    pub(super) fn hold(&self, bytes: usize) {
        let held = self.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.gauge().increment(bytes as f64);
        if held > self.limits.memory {
            self.shed_memory();
        }
    }

    /// Counts memory that no longer does.
    pub(super) fn release(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
        self.gauge().decrement(bytes as f64);
    }

    /// Returns the gauge of memory held. Metrics begin only after the edge's settings are there.
    fn gauge(&self) -> &Gauge {
        self.gauge.get_or_init(metrics::answer_memory)
    }

    /// Returns all connections, unless somebody has just looked at them for the same reason.
    fn clients(&self, short: Short) -> Option<Vec<Arc<dyn Guest>>> {
        let now = Instant::now();
        let mut clients = self.clients.try_lock().ok()?;
        let shed = &mut clients.shed[short as usize];
        if shed.is_some_and(|at| now.saturating_duration_since(at) < SHED_EVERY) {
            return None;
        }
        *shed = Some(now);
        Some(clients.all.iter().filter_map(Weak::upgrade).collect())
    }

    /// Ends answers of which their clients take nothing while they hold a place: one of `address`,
    /// or any.
    fn shed_stalled(&self, address: Option<&Arc<Semaphore>>) {
        let short = if address.is_some() { Short::AddressPlaces } else { Short::Places };
        for client in self.clients(short).into_iter().flatten() {
            client.shed_stalled(STALLED, address);
        }
    }

    /// Ends connections until an eighth of the memory is free: those first of the address for which
    /// most has waited for longest, and of these those for which it has.
    fn shed_memory(&self) {
        let Some(clients) = self.clients(Short::Memory) else { return };
        let (gone, held): (Vec<_>, Vec<_>) = clients
            .into_iter()
            .map(|client| (client.waiting(), client))
            .partition(|(_, client)| client.is_dismissed());
        let leaving: usize = gone.iter().map(|(waiting, _)| waiting.bytes).sum();
        let mut left = self.held.load(Ordering::Relaxed).saturating_sub(leaving);
        if left <= self.limits.memory {
            return;
        }
        // An address may be proven meanwhile: it is read once.
        let mut held: Vec<_> = held
            .into_iter()
            .filter(|(waiting, _)| waiting.bytes > 0)
            .map(|(waiting, client)| (host(&client), waiting, client))
            .collect();
        let mut weights = HashMap::<_, u64>::new();
        for (host, waiting, _) in &held {
            let weight = weights.entry(*host).or_default();
            *weight = weight.saturating_add(waiting.weight);
        }
        held.sort_by_key(|(host, waiting, _)| std::cmp::Reverse((weights[host], waiting.weight)));
        for (_, waiting, client) in held {
            if left <= self.limits.memory / 8 * 7 {
                return;
            }
            left = left.saturating_sub(waiting.bytes);
            metrics::limit_hit("answer_memory");
            client.dismiss();
        }
    }
}

fn semaphore(permits: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(permits.clamp(1, Semaphore::MAX_PERMITS)))
}

/// Returns the network of `bits` bits that has `address` of IPv6; one of IPv4 stands alone.
fn network(address: IpAddr, bits: u32) -> Network {
    match address.to_canonical() {
        IpAddr::V6(ip) => (IpAddr::V6((ip.to_bits() & !(u128::MAX >> bits)).into()), bits),
        ip @ IpAddr::V4(_) => (ip, u32::BITS),
    }
}

/// Whose answers are weighed together: those of a proven address, or of one connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Host {
    Proven(Network),
    Connection(usize),
}

fn host(client: &Arc<dyn Guest>) -> Host {
    let connection = Host::Connection(Arc::as_ptr(client).addr());
    client.address().map_or(connection, |ip| Host::Proven(network(ip, NETWORK)))
}

/// Nothing is half done when one of the steps with the lock held panics.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(places: usize, address_places: usize) -> Arc<Room> {
        Arc::new(Room::new(RoomLimits { places, address_places, memory: usize::MAX }))
    }

    fn ip(last: u8) -> Option<IpAddr> {
        Some([192, 0, 2, last].into())
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_and_an_address_have_a_share() {
        let room = room(8, 3);
        let one = room.connection_share();
        let held = [room.place(&one, ip(1)).await, room.place(&one, ip(1)).await];
        assert!(held.iter().all(Option::is_some));
        assert!(room.place(&one, ip(1)).await.is_none(), "a quarter is the connection's");
        let other = room.connection_share();
        let third = room.place(&other, ip(1)).await;
        assert!(third.is_some());
        assert!(room.place(&other, ip(1)).await.is_none(), "three are the address's");
        assert!(room.place(&other, ip(2)).await.is_some());
        drop(held);
        assert!(room.place(&one, ip(1)).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn connections_take_turns_where_places_are_short() {
        let room = room(8, 8);
        let first: Vec<_> = (0..4).map(|_| room.connection_share()).collect();
        let mut held = Vec::new();
        for client in first.iter().chain(&first) {
            held.extend(room.place(client, ip(1)).await);
        }
        assert_eq!(held.len(), 8);
        let [greedy, modest] = [(); 2].map(|()| Arc::new(room.connection_share()));
        let (order, mut served) = tokio::sync::mpsc::unbounded_channel();
        for (name, client) in [("greedy", &greedy), ("greedy", &greedy), ("modest", &modest)] {
            let (room, client, order) = (Arc::clone(&room), Arc::clone(client), order.clone());
            tokio::spawn(async move {
                let place = room.place(&client, ip(2)).await;
                let _ = order.send((name, place));
            });
            tokio::task::yield_now().await;
        }
        held.truncate(6);
        let got = [served.recv().await.unwrap(), served.recv().await.unwrap()];
        assert_eq!(got.each_ref().map(|(name, _)| *name), ["greedy", "modest"]);
        assert!(got.iter().all(|(_, place)| place.is_some()));
    }

    #[test]
    fn addresses_of_one_client_are_one() {
        let texts = ["2001:db8::1", "2001:db8::ffff:1", "::ffff:192.0.2.1"];
        let [a, b, c] = texts.map(|text| network(text.parse().unwrap(), NETWORK));
        assert_eq!((a, c.0.to_string()), (b, "192.0.2.1".into()));
    }

    /// A host with both versions of IP, and the 65,536 networks of a site.
    #[tokio::test(start_paused = true)]
    async fn a_site_of_ipv6_has_the_places_of_two_addresses() {
        let room = room(64, 2);
        let mut held = Vec::new();
        for number in 0..8u16 {
            let share = room.connection_share();
            let address = std::net::Ipv6Addr::new(0x2001, 0xdb8, 7, number, 0, 0, 0, 1);
            held.extend(room.place(&share, Some(address.into())).await);
        }
        assert_eq!(held.len(), 4, "each of them has a place of its own");
        let share = room.connection_share();
        let other = std::net::Ipv6Addr::new(0x2001, 0xdb8, 8, 0, 0, 0, 0, 1);
        assert!(room.place(&share, Some(other.into())).await.is_some(), "another site");
        assert!(room.place(&share, ip(1)).await.is_some(), "and IPv4");
        drop(held);
        let first = std::net::Ipv6Addr::new(0x2001, 0xdb8, 7, 0, 0, 0, 0, 1);
        assert!(room.place(&share, Some(first.into())).await.is_some());
    }

    /// A connection for which so many bytes wait for a second.
    #[derive(Debug)]
    struct Holder(Option<IpAddr>, usize, std::sync::atomic::AtomicBool);

    impl Guest for Holder {
        fn address(&self) -> Option<IpAddr> {
            self.0
        }

        fn waiting(&self) -> Waiting {
            Waiting { bytes: self.1, weight: self.1 as u64 * 1000 }
        }

        fn shed_stalled(&self, _: Duration, _: Option<&Arc<Semaphore>>) {}

        fn dismiss(&self) {
            self.2.store(true, Ordering::Relaxed);
        }

        fn is_dismissed(&self) -> bool {
            self.2.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn memory_is_short_for_the_address_that_takes_most_of_it() {
        let room = Room::new(RoomLimits { places: 1, address_places: 1, memory: 1000 });
        // The largest of all connections is the only one of its address.
        let sizes = [(1, 300), (2, 200), (2, 250), (2, 0), (2, 200), (3, 51)];
        let all = sizes.map(|(address, bytes)| {
            let holder = Arc::new(Holder(ip(address), bytes, false.into()));
            let guest: Weak<Holder> = Arc::downgrade(&holder);
            room.enter(guest);
            holder
        });
        let total = sizes.iter().map(|(_, bytes)| bytes).sum();
        room.hold(total);
        let gone = all.each_ref().map(|holder| holder.is_dismissed());
        assert_eq!(gone, [false, false, true, false, false, false]);
    }

    #[test]
    fn a_look_for_one_reason_is_none_for_another() {
        let room = room(1, 1);
        for short in [Short::AddressPlaces, Short::Places, Short::Memory] {
            assert!(room.clients(short).is_some(), "{short:?}");
        }
    }
}
