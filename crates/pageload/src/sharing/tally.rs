//! Counts the full handshakes that an earlier connection of the same group would have saved.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::time::Duration;

use super::connection::{Connection, Handshake};
use super::systems::AsTable;

/// Lifetimes of sessions that revisits are counted for: 5, 15 and 60 minutes, a day.
pub(crate) const LIFETIMES: [Duration; 4] = [
    Duration::from_secs(5 * 60),
    Duration::from_secs(15 * 60),
    Duration::from_secs(60 * 60),
    Duration::from_secs(24 * 60 * 60),
];

/// Property by which servers at two addresses can accept each other's sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    /// The same autonomous system.
    System(u32),
    /// Nothing known: each address stands for itself.
    Address(IpAddr),
    /// The same name.
    Anywhere,
}

/// Figures of one way to share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shared {
    /// Number of remaining full handshakes.
    pub(crate) full: u64,
    /// Number of full handshakes that are saved only if connections wait for the first of their
    /// group: they began before a ticket of it could be there.
    pub(crate) saved_by_waiting: u64,
    pub(crate) groups: u64,
    /// Number of revisits with a session no older than each of [`LIFETIMES`].
    pub(crate) within: [u64; LIFETIMES.len()],
}

/// Figures of one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OfName {
    pub(crate) connections: u64,
    pub(crate) addresses: u64,
    pub(crate) full: u64,
    pub(crate) avoidable_client_only: u64,
    pub(crate) avoidable_client_and_server: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) connections: u64,
    /// Number of full handshakes as recorded, including those whose recording does not tell.
    pub(crate) full: u64,
    pub(crate) unknown: u64,
    pub(crate) client_only: Shared,
    pub(crate) client_and_server: Shared,
    /// Number of connections to a name visited before.
    pub(crate) revisits: u64,
    pub(crate) addresses: u64,
    /// Number of addresses without an autonomous system in the table.
    pub(crate) addresses_without_system: u64,
    pub(crate) systems: u64,
    /// Tallies, by the number of the name.
    pub(crate) names: Vec<OfName>,
}

impl Tally {
    /// Counts connections, in any order.
    pub(crate) fn new(
        mut connections: Vec<Connection>,
        names: usize,
        systems: Option<&AsTable>,
    ) -> Self {
        connections.sort_by_key(|connection| connection.at);
        let mut tally = Self { names: vec![OfName::default(); names], ..Self::default() };
        let mut places = Places::new(systems);
        let mut near = Groups::default();
        let mut far = Groups::default();
        for connection in &connections {
            let name = connection.name;
            let place = places.place(connection);
            let near = near.visit((name, connection.address), connection);
            let far = far.visit((name, place), connection);
            tally.count(connection, near, far);
        }
        near.finish(&mut tally.client_only);
        far.finish(&mut tally.client_and_server);
        for (name, _) in near.all.keys() {
            if let Some(of_name) = name.and_then(|name| tally.names.get_mut(name.index())) {
                of_name.addresses += 1;
            }
        }
        places.finish(&mut tally);
        tally
    }

    fn count(&mut self, connection: &Connection, near: Visit, far: Visit) {
        let is_full = connection.handshake != Handshake::Resumed;
        self.connections += 1;
        self.full += u64::from(is_full);
        self.unknown += u64::from(connection.handshake == Handshake::Unknown);
        self.client_only.count(is_full, near);
        self.client_and_server.count(is_full, far);
        let name = connection.name.and_then(|name| self.names.get_mut(name.index()));
        // Without a name, the address is what was visited.
        let is_revisit = name.as_ref().map_or(near.is_again, |name| name.connections > 0);
        self.revisits += u64::from(is_revisit);
        if let Some(name) = name {
            name.connections += 1;
            name.full += u64::from(is_full);
            name.avoidable_client_only += u64::from(is_full && near.is_shared());
            name.avoidable_client_and_server += u64::from(is_full && far.is_shared());
        }
    }
}

impl Shared {
    fn count(&mut self, is_full: bool, visit: Visit) {
        self.full += u64::from(is_full && !visit.is_shared());
        self.saved_by_waiting += u64::from(is_full && visit.is_shared() && visit.is_early);
        let age = visit.since.filter(|_| !visit.is_early);
        for (within, lifetime) in self.within.iter_mut().zip(LIFETIMES) {
            *within += u64::from(age.is_some_and(|age| age <= lifetime));
        }
    }
}

/// A connection as its group sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Visit {
    /// True if the group had a connection before.
    is_again: bool,
    /// Time since the last connection whose session may be shared.
    since: Option<Duration>,
    /// True if no ticket could be there yet.
    is_early: bool,
}

impl Visit {
    /// Returns true if it finds a session.
    fn is_shared(self) -> bool {
        self.since.is_some()
    }
}

/// Groups of connections that can share sessions.
#[derive(Debug)]
struct Groups<K> {
    all: HashMap<K, Group>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Group {
    /// Time of the last connection with a session to share.
    last: Option<Duration>,
    /// Time from which the first ticket can be used.
    ready: Duration,
}

impl<K> Default for Groups<K> {
    fn default() -> Self {
        Self { all: HashMap::new() }
    }
}

impl<K: Eq + Hash> Groups<K> {
    /// Adds a connection. Private ones take nothing from the group, and give nothing.
    fn visit(&mut self, key: K, connection: &Connection) -> Visit {
        let is_again = self.all.contains_key(&key);
        let group = self.all.entry(key).or_default();
        if connection.is_private {
            return Visit { is_again, ..Visit::default() };
        }
        let since = group.last.map(|last| connection.at.saturating_sub(last));
        let is_early = connection.at < group.ready;
        let ready =
            if since.is_none() { connection.ready } else { group.ready.min(connection.ready) };
        *group = Group { last: Some(connection.at), ready };
        Visit { is_again, since, is_early }
    }

    fn finish(&self, shared: &mut Shared) {
        shared.groups = self.all.len() as u64;
    }
}

/// Groups servers, asking once for each address.
struct Places<'a> {
    systems: Option<&'a AsTable>,
    known: HashMap<IpAddr, Option<u32>>,
}

impl<'a> Places<'a> {
    fn new(systems: Option<&'a AsTable>) -> Self {
        Self { systems, known: HashMap::new() }
    }

    fn place(&mut self, connection: &Connection) -> Place {
        let address = connection.address;
        let system = *self
            .known
            .entry(address)
            .or_insert_with(|| self.systems.and_then(|systems| systems.system(address)));
        match (connection.name, self.systems, system) {
            // Servers without a name share nothing but their address.
            (None, ..) | (_, Some(_), None) => Place::Address(address),
            (Some(_), _, Some(system)) => Place::System(system),
            (Some(_), None, None) => Place::Anywhere,
        }
    }

    fn finish(self, tally: &mut Tally) {
        tally.addresses = self.known.len() as u64;
        let mut systems: Vec<u32> = self.known.values().copied().flatten().collect();
        if self.systems.is_some() {
            tally.addresses_without_system = (self.known.len() - systems.len()) as u64;
        }
        systems.sort_unstable();
        systems.dedup();
        tally.systems = systems.len() as u64;
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::super::connection::{Findings, Found};
    use super::super::limits::Limits;
    use super::*;

    /// Name, last byte of the address, second, handshake.
    type Visits<'a> = &'a [(&'a str, u8, u64, Handshake)];

    const SYSTEMS: &str = "10.0.0.0/29,1\n10.0.0.8/29,2\n";

    fn tally(visits: Visits<'_>, systems: Option<&AsTable>) -> Tally {
        let mut found = Findings::default();
        for (name, address, second, handshake) in visits {
            found.push(visit(name, *address, *second, *handshake), &Limits::default());
        }
        Tally::new(found.connections, found.names.len(), systems)
    }

    fn visit(name: &str, address: u8, second: u64, handshake: Handshake) -> Found<'_> {
        let at = Duration::from_secs(second);
        Found {
            at,
            ready: at + Duration::from_millis(200),
            name: Some(name).filter(|name| !name.is_empty()),
            address: Ipv4Addr::new(10, 0, 0, address).into(),
            handshake,
            is_private: false,
        }
    }

    fn systems() -> AsTable {
        AsTable::read(SYSTEMS.as_bytes()).unwrap()
    }

    use Handshake::{Full, Resumed, Unknown};

    #[test]
    fn the_first_of_a_group_stays_full() {
        let visits =
            [("a", 1, 0, Full), ("a", 1, 10, Full), ("a", 1, 20, Full), ("b", 1, 30, Full)];
        let tally = tally(&visits, None);
        assert_eq!((tally.connections, tally.full), (4, 4));
        assert_eq!(tally.client_only.full, 2);
        assert_eq!(tally.client_and_server.full, 2);
        assert_eq!((tally.client_only.groups, tally.client_and_server.groups), (2, 2));
        assert_eq!((tally.addresses, tally.revisits), (1, 2));
    }

    #[test]
    fn another_address_needs_the_servers_help() {
        let visits =
            [("a", 1, 0, Full), ("a", 2, 10, Full), ("a", 9, 20, Full), ("a", 30, 30, Full)];
        let by_name = tally(&visits, None);
        assert_eq!((by_name.client_only.full, by_name.client_and_server.full), (4, 1));
        assert_eq!((by_name.systems, by_name.addresses_without_system), (0, 0));
        // 1 and 2 are in one system, 9 is in another, 30 in none.
        let by_system = tally(&visits, Some(&systems()));
        assert_eq!((by_system.client_only.full, by_system.client_and_server.full), (4, 3));
        assert_eq!((by_system.systems, by_system.addresses_without_system), (2, 1));
        assert_eq!(by_system.names[0].addresses, 4);
        assert_eq!(by_system.names[0].avoidable_client_only, 0);
        assert_eq!(by_system.names[0].avoidable_client_and_server, 1);
    }

    #[test]
    fn connections_that_resume_today_resume_in_every_column() {
        // Its session is from before the recording.
        let first = tally(&[("a", 1, 0, Resumed), ("a", 1, 10, Full)], None);
        assert_eq!((first.full, first.client_only.full, first.client_and_server.full), (1, 0, 0));
    }

    #[test]
    fn unknown_handshakes_count_as_full() {
        let tally = tally(&[("a", 1, 0, Unknown), ("a", 1, 10, Unknown)], None);
        assert_eq!((tally.full, tally.unknown, tally.client_only.full), (2, 2, 1));
    }

    #[test]
    fn the_order_of_the_recording_does_not_count() {
        let visits = [("a", 1, 20, Full), ("a", 1, 0, Full), ("a", 2, 10, Full)];
        let mut ordered = visits;
        ordered.sort_by_key(|visit| visit.2);
        assert_eq!(tally(&visits, None), tally(&ordered, None));
    }

    #[test]
    fn servers_without_a_name_share_nothing_but_an_address() {
        let tally = tally(&[("", 1, 0, Full), ("", 1, 1, Full), ("", 2, 2, Full)], None);
        assert_eq!((tally.client_only.full, tally.client_and_server.full), (2, 2));
        assert_eq!(tally.revisits, 1);
    }

    #[test]
    fn connections_with_client_certificates_are_left_alone() {
        let mut found = Findings::default();
        for second in 0..3 {
            let private = Found { is_private: second < 2, ..visit("a", 1, second, Full) };
            found.push(private, &Limits::default());
        }
        let tally = Tally::new(found.connections, 1, None);
        // Not even the third may use what the first two left.
        assert_eq!((tally.full, tally.client_only.full, tally.client_and_server.full), (3, 3, 3));
        assert_eq!((tally.revisits, tally.client_only.within), (2, [0; 4]));
    }

    #[test]
    fn connections_begun_before_a_ticket_arrives_would_have_to_wait() {
        let mut found = Findings::default();
        for ms in [0, 100, 199, 200] {
            let at = Duration::from_millis(ms);
            let ready = at + Duration::from_millis(200);
            found.push(Found { at, ready, ..visit("a", 1, 0, Full) }, &Limits::default());
        }
        let tally = Tally::new(found.connections, 1, None);
        assert_eq!((tally.client_only.full, tally.client_only.saved_by_waiting), (1, 2));
        // Nor could they be 0-RTT.
        assert_eq!((tally.revisits, tally.client_only.within), (3, [1; 4]));
    }

    #[test]
    fn revisits_by_the_age_of_the_session() {
        const MINUTE: u64 = 60;
        let visits = [
            ("a", 1, 0, Full),
            ("a", 1, 5 * MINUTE, Full),              // 5 min
            ("a", 2, 15 * MINUTE, Full),             // new here, 10 min
            ("a", 1, 65 * MINUTE, Full),             // 60 min here, 50 min
            ("a", 2, (15 + 24 * 60) * MINUTE, Full), // a day here, less elsewhere
            ("a", 1, 100_000 * MINUTE, Full),        // weeks
        ];
        let tally = tally(&visits, None);
        assert_eq!(tally.revisits, 5);
        assert_eq!(tally.client_only.within, [1, 1, 2, 3]);
        assert_eq!(tally.client_and_server.within, [1, 2, 3, 4]);
    }

    fn handshakes() -> impl Strategy<Value = Handshake> {
        prop_oneof![Just(Full), Just(Resumed), Just(Unknown)]
    }

    proptest! {
        #[test]
        fn more_sharing_never_costs_a_handshake(
            visits in prop::collection::vec(
                (0usize..5, 0u8..20, 0u64..200_000, handshakes(), any::<bool>()),
                0..80,
            ),
            with_systems: bool,
        ) {
            let names = ["", "a", "b", "c", "d"];
            let mut found = Findings::default();
            for (name, address, second, handshake, is_private) in &visits {
                let visit = visit(names[*name], *address, *second, *handshake);
                found.push(Found { is_private: *is_private, ..visit }, &Limits::default());
            }
            let systems = with_systems.then(systems);
            let tally = Tally::new(found.connections.clone(), found.names.len(), systems.as_ref());
            let (near, far) = (tally.client_only, tally.client_and_server);
            prop_assert!(far.full <= near.full && near.full <= tally.full);
            prop_assert!(tally.full <= tally.connections && far.groups <= near.groups);
            prop_assert_eq!(tally.connections, visits.len() as u64);
            // Entries that live longer are found more often, and in more places.
            for (near, far) in near.within.iter().zip(far.within) {
                prop_assert!(*near <= far && far <= tally.revisits);
            }
            prop_assert!(near.within.is_sorted() && far.within.is_sorted());
            let connections: u64 = tally.names.iter().map(|name| name.connections).sum();
            prop_assert!(connections <= tally.connections);
            let avoidable: u64 = tally.names.iter().map(|name| name.avoidable_client_only).sum();
            prop_assert!(avoidable <= tally.full - near.full);
            for name in &tally.names {
                prop_assert!(name.avoidable_client_only <= name.avoidable_client_and_server);
                prop_assert!(name.avoidable_client_and_server <= name.full);
                prop_assert!(name.addresses <= name.connections);
            }
        }
    }
}
