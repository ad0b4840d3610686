//! The result of an audit, for people and programs.

use std::time::Duration;

use serde::Serialize;

use super::connection::{Findings, Names};
use super::cost::CostModel;
pub use super::counts::Versions;
use super::counts::{Sizes, TicketCount};
use super::seen::Seen;
use super::systems::AsTable;
use super::tally::{LIFETIMES, OfName, Shared, Tally};

/// Savings by shared sessions; docs/sharing.md describes the JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// Recordings read, in this order.
    pub recordings: Vec<Recording>,
    /// Number of TLS connections that count.
    pub connections: u64,
    /// Number of connections whose recording does not tell whether they resumed (HAR). They count
    /// as full, so that today's figures are an upper bound.
    pub connections_unknown: u64,
    /// Number of server names.
    pub names: u64,
    /// Number of server addresses.
    pub addresses: u64,
    /// Number of addresses missing from the table of autonomous systems; each counts as a system of
    /// its own.
    pub addresses_without_as: u64,
    /// Number of autonomous systems of the other addresses; 0 without a table.
    pub systems: u64,
    /// Period from the first connection to the last.
    pub span: Option<Span>,
    /// Property by which servers that share sessions were grouped.
    pub grouping: Grouping,
    /// Figures as recorded.
    pub today: Arm,
    /// Savings with one session store for all programs: grouped by address and name.
    pub client_only: Arm,
    /// Savings with session keys shared by servers, too: grouped by `grouping`.
    pub client_and_server: Arm,
    /// Model behind the figures for latency and energy, if one was given
    /// ([`Self::with_costs`]).
    pub cost_model: Option<CostModel>,
    /// Ages of sessions.
    pub revisits: Revisits,
    /// All names, those where sharing saves most first.
    pub services: Vec<Service>,
    /// Sizes of tickets.
    pub tickets: Tickets,
    /// Versions of TLS.
    pub versions: Versions,
    /// Counts of everything else, and of what could not be determined.
    pub seen: Seen,
}

/// A file that was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Recording {
    /// Name that the caller gave it.
    pub name: String,
    /// Kind of recording.
    pub kind: RecordingKind,
    /// Number of its packets.
    pub packets: u64,
    /// Number of its TLS connections with a whole handshake.
    pub connections: u64,
    /// True for a capture that ends within a packet.
    pub is_cut_short: bool,
}

/// The kind of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RecordingKind {
    /// tcpdump's format.
    Pcap,
    /// Wireshark's format.
    Pcapng,
    /// A browser's recording of requests.
    Har,
}

/// A period of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Span {
    /// Start, in milliseconds since 1970.
    pub first_unix_ms: u64,
    /// End, in milliseconds since 1970.
    pub last_unix_ms: u64,
}

impl Span {
    /// Returns its duration.
    pub fn length(&self) -> Duration {
        Duration::from_millis(self.last_unix_ms.saturating_sub(self.first_unix_ms))
    }
}

/// Property by which servers are assumed to share sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Grouping {
    /// Autonomous system and name, as in the paper.
    AsAndName,
    /// The name alone, without a table: at least as much is shared as by system and name.
    NameOnly,
}

/// One column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Arm {
    /// Full handshakes.
    pub full: u64,
    /// Share of full handshakes; 0 if there are no connections.
    pub full_share: f64,
    /// Resumptions.
    pub resumed: u64,
    /// Mean latency of a connection by the cost model, in milliseconds.
    pub latency_ms: Option<f64>,
    /// Mean energy of a connection by the cost model, in microampere-hours.
    pub energy_uah: Option<f64>,
    /// Number of today's full handshakes that are saved.
    pub avoided: u64,
    /// Number of handshakes that began before the first of their group could have had a ticket.
    pub avoided_by_waiting: u64,
    /// Number of groups of connections that share sessions; for today, of connections.
    pub groups: u64,
}

/// Number of connections that would have found a session, by its lifetime. Those that began before
/// the first of their group could have had a ticket find none.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Revisits {
    /// Number of connections to a name visited before, or without a name, to an address.
    pub connections: u64,
    /// Lifetimes, the shortest first.
    pub lifetimes: Vec<Lifetime>,
}

/// Revisits whose session is no older than a lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Lifetime {
    /// Lifetime of sessions, in milliseconds.
    pub lifetime_ms: u64,
    /// Revisits with one store for all programs.
    pub client_only: u64,
    /// Revisits with servers that share keys, too.
    pub client_and_server: u64,
    /// Shares of all revisits; 0 if there are none.
    pub shares: ArmShares,
}

/// Shares, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ArmShares {
    /// Share with one store for all programs.
    pub client_only: f64,
    /// Share with servers that share keys, too.
    pub client_and_server: f64,
}

/// Savings for one name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Service {
    /// The name.
    pub name: String,
    /// Number of TLS connections to it.
    pub connections: u64,
    /// Number of addresses that it was reached at.
    pub addresses: u64,
    /// Number of full handshakes today.
    pub full: u64,
    /// Number of handshakes that one store for all programs saves.
    pub avoidable_client_only: u64,
    /// Number of handshakes that servers with shared keys save as well.
    pub avoidable_client_and_server: u64,
    /// Both as shares of the full handshakes.
    pub shares: ArmShares,
}

/// Sizes of tickets in bytes, where they are visible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Tickets {
    /// First tickets that ClientHellos offer.
    pub offered: TicketSizes,
    /// Tickets that servers issued in clear, in TLS 1.2.
    pub in_clear: TicketSizes,
}

/// Sizes of some tickets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TicketSizes {
    /// Number of tickets.
    pub count: u64,
    /// Mean size; 0 if there are none.
    pub mean_bytes: f64,
    /// Largest size.
    pub largest_bytes: u64,
}

impl Report {
    pub(crate) fn new(
        found: Findings,
        recordings: Vec<Recording>,
        systems: Option<&AsTable>,
    ) -> Self {
        let Findings { connections, names, seen, tickets, versions, .. } = found;
        let first = connections.iter().map(|connection| connection.at).min();
        let last = connections.iter().map(|connection| connection.at).max();
        let tally = Tally::new(connections, names.len(), systems);
        Self {
            recordings,
            connections: tally.connections,
            connections_unknown: tally.unknown,
            names: names.len() as u64,
            addresses: tally.addresses,
            addresses_without_as: tally.addresses_without_system,
            systems: tally.systems,
            span: first.zip(last).map(|(first, last)| Span {
                first_unix_ms: whole_ms(first),
                last_unix_ms: whole_ms(last),
            }),
            grouping: if systems.is_some() { Grouping::AsAndName } else { Grouping::NameOnly },
            today: Arm::today(&tally),
            client_only: Arm::shared(&tally, &tally.client_only),
            client_and_server: Arm::shared(&tally, &tally.client_and_server),
            cost_model: None,
            revisits: Revisits::new(&tally),
            services: services(&tally, &names),
            tickets: tickets.sizes(),
            versions,
            seen,
        }
    }

    /// Returns the report with latency and energy by a model.
    #[must_use]
    pub fn with_costs(mut self, model: CostModel) -> Self {
        for arm in [&mut self.today, &mut self.client_only, &mut self.client_and_server] {
            arm.latency_ms = Some(model.latency_ms(arm.full, arm.resumed));
            arm.energy_uah = model.energy_uah(arm.full, arm.resumed);
        }
        Self { cost_model: Some(model), ..self }
    }

    /// Returns true if connections that were not counted may change the figures much: more than a
    /// tenth of all TLS handshakes, or any for lack of room.
    pub fn is_partial(&self) -> bool {
        let Seen { unreadable, unanswered, cut_off, displaced, left_out, har_incomplete, .. } =
            self.seen;
        let lost = unreadable + unanswered + cut_off + har_incomplete;
        displaced + left_out > 0 || lost * 10 > self.connections + lost
    }
}

impl Arm {
    fn new(tally: &Tally, full: u64, waiting: u64, groups: u64) -> Self {
        let resumed = tally.connections - full;
        Self {
            full,
            full_share: share(full, tally.connections),
            resumed,
            latency_ms: None,
            energy_uah: None,
            avoided: tally.full - full,
            avoided_by_waiting: waiting,
            groups,
        }
    }

    fn today(tally: &Tally) -> Self {
        Self::new(tally, tally.full, 0, tally.connections)
    }

    fn shared(tally: &Tally, shared: &Shared) -> Self {
        Self::new(tally, shared.full, shared.saved_by_waiting, shared.groups)
    }
}

impl Revisits {
    fn new(tally: &Tally) -> Self {
        let within = tally.client_only.within.into_iter().zip(tally.client_and_server.within);
        let lifetimes = LIFETIMES.into_iter().zip(within);
        Self {
            connections: tally.revisits,
            lifetimes: lifetimes
                .map(|(lifetime, (near, far)): (Duration, (u64, u64))| Lifetime {
                    lifetime_ms: whole_ms(lifetime),
                    client_only: near,
                    client_and_server: far,
                    shares: ArmShares::new(near, far, tally.revisits),
                })
                .collect(),
        }
    }
}

impl ArmShares {
    fn new(client_only: u64, client_and_server: u64, all: u64) -> Self {
        let (near, far) = (share(client_only, all), share(client_and_server, all));
        Self { client_only: near, client_and_server: far }
    }
}

fn services(tally: &Tally, names: &Names) -> Vec<Service> {
    let mut services: Vec<Service> =
        names.all().zip(&tally.names).map(|(name, of)| Service::new(name, of)).collect();
    // A name whose connection was not kept, for lack of room.
    services.retain(|service| service.connections > 0);
    services.sort_by(|one, other| {
        (other.avoidable_client_and_server, other.connections)
            .cmp(&(one.avoidable_client_and_server, one.connections))
            .then_with(|| one.name.cmp(&other.name))
    });
    services
}

impl Service {
    fn new(name: &str, of_name: &OfName) -> Self {
        let (near, far) = (of_name.avoidable_client_only, of_name.avoidable_client_and_server);
        Self {
            name: name.to_owned(),
            connections: of_name.connections,
            addresses: of_name.addresses,
            full: of_name.full,
            avoidable_client_only: near,
            avoidable_client_and_server: far,
            shares: ArmShares::new(near, far, of_name.full),
        }
    }
}

impl TicketCount {
    fn sizes(self) -> Tickets {
        Tickets { offered: self.offered.sizes(), in_clear: self.in_clear.sizes() }
    }
}

impl Sizes {
    pub(crate) fn add(&mut self, bytes: usize) {
        let bytes = bytes as u64;
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.largest = self.largest.max(bytes);
    }

    fn sizes(self) -> TicketSizes {
        TicketSizes {
            count: self.count,
            mean_bytes: share(self.bytes, self.count),
            largest_bytes: self.largest,
        }
    }
}

/// Returns the share; 0 if the total is 0.
fn share(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { part as f64 / all as f64 }
}

fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
