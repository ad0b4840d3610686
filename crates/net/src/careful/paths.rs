//! The state of paths, saved from connections that ended or go on: pure.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use headstart_proto::careful::{NoJump, Observed};
use ipnet::IpNet;

use crate::path::Bounded;

/// Paths remembered; about 150 bytes each, 600 kB. Anybody with addresses of many networks, of
/// which TCP proves each, can displace others: those begin with the initial window.
pub(super) const PATHS: usize = 4096;

/// Lifetime of a path's state: minutes where paths vary (RFC 9959 section 4.3.1), and no longer
/// than a visit to a site.
pub(super) const LIFETIME: Duration = Duration::from_secs(30 * 60);

/// Least window worth saving: four initial windows (RFC 9959 section 3.1) of ten of the smallest
/// usual segments.
const WINDOW_MIN: u64 = 4 * 10 * 1200;

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

/// The addresses between which a path is: RFC 9959 section 3.2 has a state for each pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) local: IpAddr,
    pub(crate) peer: IpAddr,
}

/// A path: this edge's address, and the prefix of clients.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Path {
    local: IpAddr,
    clients: IpNet,
}

/// The state of all paths.
#[derive(Debug)]
pub(crate) struct Paths {
    prefixes: (u8, u8),
    table: Mutex<Table>,
}

#[derive(Debug)]
struct Table {
    saved: Bounded<Path, Saved>,
    connections: u64,
}

/// Right of one connection to use a path's state, which others may do once it is dropped.
#[derive(Debug)]
pub(crate) struct Ticket {
    paths: Arc<Paths>,
    path: Path,
    number: u64,
}

impl Ticket {
    /// Removes the state, which proved wrong (RFC 9959 section 3.5).
    pub(crate) fn forget(self) {
        let mut table = self.paths.lock();
        if table.owned(&self).is_some() {
            table.saved.remove(&self.path);
        }
        // The ticket locks the table again when it is dropped.
        drop(table);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(saved) = self.paths.lock().owned(self) {
            saved.used_by = None;
        }
    }
}

impl Paths {
    /// An empty table; paths are one by prefixes of these lengths, of IPv4 and IPv6.
    pub(crate) fn new(prefixes: (u8, u8)) -> Self {
        let table = Table { saved: Bounded::new(PATHS), connections: 0 };
        Self { prefixes, table: Mutex::new(table) }
    }

    /// Saves what a connection has observed, of which it has carried so many bytes.
    pub(crate) fn observe(&self, ends: Ends, carried: u64, seen: Observed, now: Instant) {
        if seen.rtt.is_zero() {
            return;
        }
        let is_worth = seen.window >= WINDOW_MIN;
        let (path, mut table) = (self.path(ends), self.lock());
        match table.saved.get(&path) {
            Some(saved) => {
                // Section 4.1: what is limited by the sender can be discounted.
                let is_conclusive = carried / CARRIED_MIN >= saved.observed.window;
                let counts = seen.window >= saved.observed.window || is_conclusive;
                if !counts && !saved.is_old(now) {
                    return;
                }
                (saved.observed, saved.at) = (seen, now);
                if !is_worth {
                    table.saved.remove(&path);
                }
            }
            None if is_worth => {
                table.saved.insert(path, Saved { observed: seen, at: now, used_by: None });
            }
            None => {}
        }
    }

    /// Takes the state of a path for one connection, until the ticket is dropped.
    ///
    /// # Errors
    /// The reason why there is none for it.
    pub(crate) fn take(
        self: &Arc<Self>,
        ends: Ends,
        now: Instant,
    ) -> Result<(Observed, Ticket), NoJump> {
        let (path, mut table) = (self.path(ends), self.lock());
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
        Ok((saved.observed, Ticket { paths: Arc::clone(self), path, number }))
    }

    /// Returns the number of paths whose state is saved.
    pub(crate) fn len(&self) -> usize {
        self.lock().saved.len()
    }

    fn path(&self, ends: Ends) -> Path {
        let (local, peer) = (ends.local.to_canonical(), ends.peer.to_canonical());
        let (ipv4, ipv6) = self.prefixes;
        let length = if peer.is_ipv4() { ipv4 } else { ipv6 };
        let clients = IpNet::new(peer, length).map_or_else(|_| peer.into(), |net| net.trunc());
        Path { local, clients }
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
    /// Returns the state that a ticket is for, unless another has taken its place.
    fn owned(&mut self, ticket: &Ticket) -> Option<&mut Saved> {
        self.saved.get(&ticket.path).filter(|saved| saved.used_by == Some(ticket.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEN: Observed = Observed { window: 1_000_000, rtt: Duration::from_millis(600) };

    fn client(address: &str) -> Ends {
        Ends { local: "198.51.100.1".parse().unwrap(), peer: address.parse().unwrap() }
    }

    fn table() -> (Arc<Paths>, Instant) {
        (Arc::new(Paths::new((24, 48))), Instant::now())
    }

    /// Returns the reason why the state of a path is not given away.
    fn refusal(paths: &Arc<Paths>, ends: Ends, now: Instant) -> Option<NoJump> {
        paths.take(ends, now).err()
    }

    #[test]
    fn a_path_is_one_by_its_prefix_and_others_know_nothing() {
        let (paths, now) = table();
        paths.observe(client("192.0.2.7"), 0, SEEN, now);
        paths.observe(client("2001:db8:1::7"), 0, SEEN, now);
        for (address, known) in [
            ("192.0.2.200", true),
            ("::ffff:192.0.2.201", true),
            ("192.0.3.7", false),
            ("2001:db8:1:ffff::1", true),
            ("2001:db8:2::7", false),
        ] {
            let is_known = refusal(&paths, client(address), now) != Some(NoJump::Unknown);
            assert_eq!(is_known, known, "{address}");
        }
    }

    #[test]
    fn each_address_of_the_edge_has_paths_of_its_own() {
        let (paths, now) = table();
        paths.observe(client("192.0.2.7"), 0, SEEN, now);
        let [other, mapped] = ["198.51.100.2", "::ffff:198.51.100.1"]
            .map(|local| Ends { local: local.parse().unwrap(), ..client("192.0.2.7") });
        assert_eq!(refusal(&paths, other, now), Some(NoJump::Unknown));
        assert_eq!(refusal(&paths, mapped, now), None);
    }

    #[test]
    fn one_connection_at_a_time_uses_a_path() {
        let (paths, now) = table();
        let client = client("192.0.2.7");
        assert_eq!(refusal(&paths, client, now), Some(NoJump::Unknown));
        paths.observe(client, 0, SEEN, now);
        let (observed, first) = paths.take(client, now).unwrap();
        assert_eq!(observed, SEEN);
        assert_eq!(refusal(&paths, client, now), Some(NoJump::InUse));
        drop(first);
        let (_, second) = paths.take(client, now).unwrap();
        assert_eq!(refusal(&paths, client, now), Some(NoJump::InUse));
        second.forget();
        assert_eq!(refusal(&paths, client, now), Some(NoJump::Unknown));
    }

    #[test]
    fn a_ticket_of_state_that_was_replaced_changes_nothing() {
        let (paths, now) = table();
        let client = client("192.0.2.7");
        let take_new = || {
            paths.observe(client, u64::MAX, Observed { window: 1, ..SEEN }, now);
            paths.observe(client, 0, SEEN, now);
            paths.take(client, now).unwrap().1
        };
        let (first, second) = (take_new(), take_new());
        drop(first);
        assert_eq!(refusal(&paths, client, now), Some(NoJump::InUse));
        let third = take_new();
        second.forget();
        assert_eq!(refusal(&paths, client, now), Some(NoJump::InUse));
        drop(third);
        assert_eq!(refusal(&paths, client, now), None);
    }

    #[test]
    fn state_lives_as_long_as_its_lifetime() {
        let (paths, now) = table();
        let client = client("192.0.2.7");
        paths.observe(client, 0, SEEN, now);
        assert_eq!(refusal(&paths, client, now + LIFETIME), None);
        let late = now + LIFETIME + Duration::from_millis(1);
        assert_eq!(refusal(&paths, client, late), Some(NoJump::Expired));
        assert_eq!(refusal(&paths, client, late), Some(NoJump::Unknown), "it was removed");
    }

    #[test]
    fn a_smaller_window_counts_from_those_that_could_have_found_a_larger_one() {
        let (paths, now) = table();
        let client = client("192.0.2.7");
        for (carried, window, saved) in [
            (0, WINDOW_MIN - 1, None),
            (0, 1_000_000, Some(1_000_000)),
            (3_999_999, 100_000, Some(1_000_000)),
            (4_000_000, 100_000, Some(100_000)),
            (0, 200_000, Some(200_000)),
            (0, WINDOW_MIN - 1, Some(200_000)),
            // The path bears too little by now.
            (800_000, WINDOW_MIN - 1, None),
        ] {
            paths.observe(client, carried, Observed { window, ..SEEN }, now);
            let taken = paths.take(client, now).map(|(observed, _)| observed.window);
            assert_eq!(taken.ok(), saved, "{window} after {carried}");
        }
    }

    #[test]
    fn a_flood_of_prefixes_stays_bounded() {
        let (paths, now) = table();
        for number in 0..=u32::try_from(PATHS).unwrap() {
            let peer = IpAddr::from((number << 8).to_be_bytes());
            paths.observe(Ends { peer, ..client("0.0.0.0") }, 0, SEEN, now);
            assert!(paths.len() <= PATHS);
        }
        assert_eq!(paths.len(), PATHS);
        assert_eq!(refusal(&paths, client("0.0.0.1"), now), Some(NoJump::Unknown), "the oldest");
        assert_eq!(refusal(&paths, client("0.0.1.1"), now), None);
    }
}
