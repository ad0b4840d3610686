//! The state of paths, saved from connections that ended or go on: pure.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ipnet::IpNet;

use super::phases::{INITIAL_WINDOW, NoJump, Observed};
use crate::path::Bounded;

/// Paths remembered; about 150 bytes each, 600 kB. Anybody with addresses of many networks, of
/// which TCP proves each, can displace others: those begin with the initial window.
pub(super) const PATHS: usize = 4096;

/// Lifetime of a path's state: minutes where paths vary (RFC 9959 section 4.3.1), and no longer
/// than a visit to a site.
pub(super) const LIFETIME: Duration = Duration::from_secs(30 * 60);

/// Least window worth saving: four initial windows (RFC 9959 section 3.1), of the smallest usual
/// segment.
const WINDOW_MIN: u64 = 4 * INITIAL_WINDOW as u64 * 1200;

/// Windows that a connection has to carry before it may lower the one that is saved: with less it
/// may not have reached what the path bears.
const CARRIED_MIN: u64 = 4;

/// A path's state. There is one for each path (RFC 9959 section 3.1: "MUST NOT retain more").
#[derive(Debug)]
struct Saved {
    observed: Observed,
    at: Instant,
    /// Number of the connection that uses it.
    used_by: Option<u64>,
}

/// The state of all paths, by the address prefix of clients.
#[derive(Debug)]
pub(crate) struct Paths {
    prefixes: (u8, u8),
    table: Mutex<Table>,
}

#[derive(Debug)]
struct Table {
    saved: Bounded<IpNet, Saved>,
    connections: u64,
}

/// Right of one connection to use a path's state.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    path: IpNet,
    number: u64,
}

impl Paths {
    /// An empty table; paths are one by prefixes of these lengths, of IPv4 and IPv6.
    pub(crate) fn new(prefixes: (u8, u8)) -> Self {
        let table = Table { saved: Bounded::new(PATHS), connections: 0 };
        Self { prefixes, table: Mutex::new(table) }
    }

    /// Saves what a connection has observed, of which it has carried so many bytes.
    pub(crate) fn observe(&self, peer: SocketAddr, carried: u64, seen: Observed, now: Instant) {
        if seen.window < WINDOW_MIN || seen.rtt.is_zero() {
            return;
        }
        let (path, mut table) = (self.path(peer), self.lock());
        match table.saved.get(&path) {
            Some(saved) => {
                // Section 4.1: what is limited by the sender can be discounted.
                let is_conclusive = carried / CARRIED_MIN >= saved.observed.window;
                if seen.window >= saved.observed.window || is_conclusive || saved.is_old(now) {
                    (saved.observed, saved.at) = (seen, now);
                }
            }
            None => table.saved.insert(path, Saved { observed: seen, at: now, used_by: None }),
        }
    }

    /// Takes the state of a path for one connection, until it is [released](Self::release).
    ///
    /// # Errors
    /// The reason why there is none for it.
    pub(crate) fn take(
        &self,
        peer: SocketAddr,
        now: Instant,
    ) -> Result<(Observed, Ticket), NoJump> {
        let (path, mut table) = (self.path(peer), self.lock());
        table.connections += 1;
        let number = table.connections;
        // Section 3.2: another endpoint "MUST stop using Careful Resume".
        let saved = table.saved.get(&path).ok_or(NoJump::Unknown)?;
        // Section 3.2: after the lifetime "the saved CC parameters are deleted".
        if saved.is_old(now) {
            table.saved.remove(&path);
            return Err(NoJump::Expired);
        }
        // Section 3.2: "Only one connection can use a specific set of saved CC parameters".
        if saved.used_by.is_some() {
            return Err(NoJump::InUse);
        }
        saved.used_by = Some(number);
        Ok((saved.observed, Ticket { path, number }))
    }

    /// Lets other connections use the state.
    pub(crate) fn release(&self, ticket: &Ticket) {
        self.lock().with_owner(ticket, |saved| saved.used_by = None);
    }

    /// Removes the state, which proved wrong (RFC 9959 section 3.5).
    pub(crate) fn forget(&self, ticket: &Ticket) {
        let mut table = self.lock();
        if table.with_owner(ticket, |_| ()) {
            table.saved.remove(&ticket.path);
        }
    }

    /// Returns the number of paths whose state is saved.
    pub(crate) fn len(&self) -> usize {
        self.lock().saved.len()
    }

    fn path(&self, peer: SocketAddr) -> IpNet {
        let address = peer.ip().to_canonical();
        let (ipv4, ipv6) = self.prefixes;
        let length = if matches!(address, IpAddr::V4(_)) { ipv4 } else { ipv6 };
        IpNet::new(address, length).map_or_else(|_| address.into(), |network| network.trunc())
    }

    /// Locks the table, poisoned or not: a panic under the lock leaves nothing half done.
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Saved {
    fn is_old(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) > LIFETIME
    }
}

impl Table {
    /// Changes the state that a ticket is for, unless another has taken its place.
    fn with_owner(&mut self, ticket: &Ticket, change: impl FnOnce(&mut Saved)) -> bool {
        let saved = self.saved.get(&ticket.path).filter(|it| it.used_by == Some(ticket.number));
        saved.map(change).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEN: Observed = Observed { window: 1_000_000, rtt: Duration::from_millis(600) };

    fn peer(address: &str) -> SocketAddr {
        SocketAddr::new(address.parse().unwrap(), 40_000)
    }

    fn table() -> (Paths, Instant) {
        (Paths::new((24, 48)), Instant::now())
    }

    #[test]
    fn a_path_is_one_by_its_prefix_and_others_know_nothing() {
        let (paths, now) = table();
        paths.observe(peer("192.0.2.7"), 0, SEEN, now);
        paths.observe(peer("2001:db8:1::7"), 0, SEEN, now);
        for (address, known) in [
            ("192.0.2.200", true),
            ("::ffff:192.0.2.201", true),
            ("192.0.3.7", false),
            ("2001:db8:1:ffff::1", true),
            ("2001:db8:2::7", false),
        ] {
            let is_known = paths.take(peer(address), now) != Err(NoJump::Unknown);
            assert_eq!(is_known, known, "{address}");
        }
    }

    #[test]
    fn one_connection_at_a_time_uses_a_path() {
        let (paths, now) = table();
        let client = peer("192.0.2.7");
        assert_eq!(paths.take(client, now).unwrap_err(), NoJump::Unknown);
        paths.observe(client, 0, SEEN, now);
        let (observed, first) = paths.take(client, now).unwrap();
        assert_eq!(observed, SEEN);
        assert_eq!(paths.take(client, now).unwrap_err(), NoJump::InUse);
        paths.release(&first);
        let (_, second) = paths.take(client, now).unwrap();
        paths.release(&first);
        paths.forget(&first);
        assert_eq!(paths.take(client, now).unwrap_err(), NoJump::InUse, "not its owner any more");
        paths.forget(&second);
        assert_eq!(paths.take(client, now).unwrap_err(), NoJump::Unknown);
    }

    #[test]
    fn state_lives_as_long_as_its_lifetime() {
        let (paths, now) = table();
        let client = peer("192.0.2.7");
        paths.observe(client, 0, SEEN, now);
        let (_, ticket) = paths.take(client, now + LIFETIME).unwrap();
        paths.release(&ticket);
        let late = now + LIFETIME + Duration::from_millis(1);
        assert_eq!(paths.take(client, late).unwrap_err(), NoJump::Expired);
        assert_eq!(paths.take(client, late).unwrap_err(), NoJump::Unknown, "it was removed");
    }

    #[test]
    fn a_smaller_window_counts_from_those_that_could_have_found_a_larger_one() {
        let (paths, now) = table();
        let client = peer("192.0.2.7");
        for (carried, window, saved) in [
            (0, 1_000_000, 1_000_000),
            (3_999_999, 100_000, 1_000_000),
            (4_000_000, 100_000, 100_000),
            (0, 200_000, 200_000),
            // Not worth saving.
            (u64::MAX, WINDOW_MIN - 1, 200_000),
        ] {
            paths.observe(client, carried, Observed { window, ..SEEN }, now);
            let (observed, ticket) = paths.take(client, now).unwrap();
            paths.release(&ticket);
            assert_eq!(observed.window, saved, "{window} after {carried}");
        }
    }

    #[test]
    fn a_flood_of_prefixes_stays_bounded() {
        let (paths, now) = table();
        for number in 0..=u32::try_from(PATHS).unwrap() {
            let address = IpAddr::from((number << 8).to_be_bytes());
            paths.observe(SocketAddr::new(address, 1), 0, SEEN, now);
            assert!(paths.len() <= PATHS);
        }
        assert_eq!(paths.len(), PATHS);
        assert_eq!(paths.take(peer("0.0.0.1"), now).unwrap_err(), NoJump::Unknown, "the oldest");
        assert!(paths.take(peer("0.0.1.1"), now).is_ok());
    }
}
