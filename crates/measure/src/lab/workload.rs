//! A workload of real programs: which of them connects to which virtual host, in which order, and
//! what became of the handshakes.

mod application;

use std::collections::BTreeMap;
use std::iter::repeat_n;
use std::net::IpAddr;

use headstart_emulation::{CapturedPacket, TcpSegment, UdpDatagram};
use headstart_pageload::sharing::CostModel;
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};

use super::cell::Counted;
use super::privacy::connections;

pub(crate) use application::{Application, Way};

/// Virtual hosts of a workload at most; each has a certificate of its own.
pub(crate) const HOSTS_MAX: usize = 16;

/// Shares of a workload at most, programs and hosts each: they are counts of some hundred
/// connections.
pub(crate) const SHARES_MAX: u32 = 10_000;

/// Programs with their shares of the connections.
pub(crate) type Shares = BTreeMap<Application, u32>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Visit {
    pub(crate) program: Application,
    /// Counted from 0.
    pub(crate) host: usize,
}

/// The connections of a workload: as many of each program and to each host as the shares say, in an
/// order by the seed.
///
/// Programs with a host of their own go there; the shares of hosts are about the others.
pub(crate) fn sequence(programs: &Shares, hosts: &[u32], count: usize, seed: u64) -> Vec<Visit> {
    let mut draws = Xoshiro256PlusPlus::seed_from_u64(seed);
    let shares: Vec<u32> = programs.values().copied().collect();
    let mut programs = in_shares(&programs.keys().copied().collect::<Vec<_>>(), &shares, count);
    programs.shuffle(&mut draws);
    let free = programs.iter().filter(|program| program.own_host().is_none()).count();
    let mut places = in_shares(&(0..hosts.len()).collect::<Vec<_>>(), hosts, free);
    places.shuffle(&mut draws);
    let mut places = places.into_iter();
    let last = hosts.len().saturating_sub(1);
    let visits = programs.into_iter().map(|program| {
        let own = program.own_host().map(|host| host.min(last));
        Visit { program, host: own.or_else(|| places.next()).unwrap_or_default() }
    });
    visits.collect()
}

/// `count` of `things`, each by its share of all; what is left over goes to the largest remainders,
/// the first of equals.
fn in_shares<T: Copy>(things: &[T], shares: &[u32], count: usize) -> Vec<T> {
    let whole: u64 = shares.iter().copied().map(u64::from).sum();
    if whole == 0 {
        return Vec::new();
    }
    let parts = shares.iter().map(|share| u64::from(*share) * count as u64);
    let mut counts: Vec<(u64, u64)> = parts.map(|part| (part / whole, part % whole)).collect();
    let given: u64 = counts.iter().map(|(count, _)| *count).sum();
    let mut order: Vec<usize> = (0..counts.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(counts.get(*at).map(|(_, rest)| *rest)));
    let left = usize::try_from((count as u64).saturating_sub(given)).unwrap_or(0);
    for at in order.into_iter().take(left) {
        if let Some((count, _)) = counts.get_mut(at) {
            *count += 1;
        }
    }
    let all = things.iter().zip(counts);
    all.flat_map(|(thing, (count, _))| repeat_n(*thing, usize::try_from(count).unwrap_or(0)))
        .collect()
}

/// Outcome of a cell's handshakes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Handshakes {
    /// Counts of the servers.
    pub(crate) full: u64,
    pub(crate) resumed: u64,
    /// Connections whose early data was accepted, among those resumed.
    #[serde(default)]
    pub(crate) early: u64,
    /// Counts from the client's packets; none if the capture lacks some.
    #[serde(default)]
    pub(crate) seen: Option<Seen>,
    /// Outcomes by the name of the program.
    pub(crate) programs: BTreeMap<String, OfProgram>,
}

/// Connections to some servers, as packets of a client show them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) full: u64,
    pub(crate) resumed: u64,
    /// Bytes of IP packets, both ways.
    pub(crate) bytes: u64,
}

/// The handshakes of one program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OfProgram {
    /// Way in which it takes part; without an agent, in which it would.
    pub(crate) way: String,
    pub(crate) full: u64,
    pub(crate) resumed: u64,
    #[serde(default)]
    pub(crate) early: u64,
}

impl Seen {
    /// Reads the connections whose ServerHello the packets show, which are those that came so far.
    pub(crate) fn from_packets(packets: &[CapturedPacket], servers: &[IpAddr]) -> Self {
        let connections = connections(packets).into_iter();
        let own = connections.filter(|one| servers.contains(&one.server.ip()));
        let resumed: Vec<bool> = own.filter_map(|one| one.resumed).collect();
        let bytes = packets
            .iter()
            .filter(|packet: &&CapturedPacket| {
                let tcp = TcpSegment::read(&packet.bytes);
                let ends = tcp.map(|segment| [segment.source, segment.destination]);
                let udp = UdpDatagram::read(&packet.bytes);
                let ends =
                    ends.or_else(|| udp.map(|datagram| [datagram.source, datagram.destination]));
                ends.into_iter().flatten().any(|end| servers.contains(&end.ip()))
            })
            .map(|packet| packet.bytes.len() as u64)
            .sum();
        let (all, resumed) = (resumed.len(), resumed.iter().filter(|resumed| **resumed).count());
        Self { full: (all - resumed) as u64, resumed: resumed as u64, bytes }
    }
}

impl Handshakes {
    /// Counts handshakes of a program.
    pub(crate) fn add(&mut self, program: Application, counted: Counted) {
        let Counted { full, resumed, early, .. } = counted;
        self.full += full;
        self.resumed += resumed;
        self.early += early;
        let of = self.programs.entry(program.name().to_owned()).or_default();
        program.way().name().clone_into(&mut of.way);
        of.full += full;
        of.resumed += resumed;
        of.early += early;
    }

    /// Mean energy of a connection's handshake, in microampere-hours, by the model of the paper on
    /// session sharing: on its phones and networks of 2019.
    pub(crate) fn energy_uah(&self) -> Option<f64> {
        let energy = CostModel::PAPER.energy_uah(self.full, self.resumed);
        energy.filter(|_| self.full + self.resumed > 0)
    }

    /// Full handshakes as a share of all.
    pub(crate) fn full_share(&self) -> Option<f64> {
        let all = self.full + self.resumed;
        (all > 0).then(|| self.full as f64 / all as f64)
    }

    /// Returns the contradiction between servers and packets, if there is one.
    pub(crate) fn contradiction(&self) -> Option<String> {
        let seen =
            self.seen.filter(|seen| (seen.full, seen.resumed) != (self.full, self.resumed))?;
        Some(format!(
            "servers counted {} full handshakes and {} resumed, packets show {} and {}",
            self.full, self.resumed, seen.full, seen.resumed
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares() -> Shares {
        BTreeMap::from([(Application::Curl, 3), (Application::Nginx, 2), (Application::Perl, 1)])
    }

    fn counted<T: Ord>(all: impl Iterator<Item = T>) -> BTreeMap<T, usize> {
        let mut counts = BTreeMap::new();
        all.for_each(|one| *counts.entry(one).or_default() += 1);
        counts
    }

    #[test]
    fn programs_and_hosts_have_their_shares() {
        let all = sequence(&shares(), &[50, 30, 20], 60, 7);
        let programs = counted(all.iter().map(|visit| visit.program));
        let expected = [(Application::Curl, 30), (Application::Nginx, 20), (Application::Perl, 10)];
        assert_eq!(programs, BTreeMap::from(expected));
        let free = all.iter().filter(|visit| visit.program.own_host().is_none());
        assert_eq!(
            counted(free.map(|visit| visit.host)),
            BTreeMap::from([(0, 20), (1, 12), (2, 8)])
        );
        let nginx = all.iter().filter(|visit| visit.program == Application::Nginx);
        assert_eq!(counted(nginx.map(|visit| visit.host)).len(), 1, "its own host");
    }

    #[test]
    fn remainders_are_distributed_by_size() {
        assert_eq!(in_shares(&['a', 'b', 'c'], &[1, 1, 1], 5), ['a', 'a', 'b', 'b', 'c']);
        assert_eq!(in_shares(&['a', 'b'], &[9, 1], 4), ['a', 'a', 'a', 'a']);
        assert_eq!(in_shares(&['a', 'b'], &[8, 2], 3), ['a', 'a', 'b']);
        assert!(in_shares(&['a'], &[0], 4).is_empty());
        for count in 0..50 {
            assert_eq!(in_shares(&[0, 1, 2, 3], &[44, 22, 15, 19], count).len(), count);
        }
    }

    #[test]
    fn the_order_is_that_of_the_seed() {
        let [first, again, other] = [1, 1, 2].map(|seed| sequence(&shares(), &[2, 1], 40, seed));
        assert_eq!(first, again);
        assert_ne!(first, other);
    }

    #[test]
    fn servers_and_packets_must_say_the_same() {
        let mut handshakes = Handshakes::default();
        assert_eq!(handshakes.full_share(), None);
        assert_eq!(handshakes.energy_uah(), None);
        handshakes.add(Application::Curl, Counted { full: 1, ..Counted::default() });
        handshakes.add(Application::Curl, Counted { resumed: 3, early: 2, ..Counted::default() });
        assert_eq!(handshakes.full_share(), Some(0.25));
        assert_eq!(handshakes.energy_uah(), Some((55.4 + 3.0 * 34.3) / 4.0));
        assert_eq!(handshakes.contradiction(), None, "no packets, no contradiction");
        handshakes.seen = Some(Seen { full: 1, resumed: 3, bytes: 9 });
        assert_eq!(handshakes.contradiction(), None);
        handshakes.seen = Some(Seen { full: 2, resumed: 2, bytes: 9 });
        assert!(handshakes.contradiction().unwrap().contains("packets show 2 and 2"));
        let expected = OfProgram { way: "library".into(), full: 1, resumed: 3, early: 2 };
        assert_eq!(handshakes.programs["curl"], expected);
    }
}
