//! Connect times by address, and the success of second SYNs there.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::PathMemory;
use super::bounded::Bounded;

/// Addresses remembered; about 100 bytes each, 100 kB.
const ADDRESSES: usize = 1024;

/// One second SYN in this many connections may be in vain.
const IN_VAIN_ONE_IN: u32 = 100;

/// Connections after which older ones count half.
const MEMORY: u32 = 1024;

/// Samples from this on may be of a SYN that the kernel has repeated (RFC 6298 section 2), and say
/// nothing about the path.
pub(super) const REPEATED: Duration = Duration::from_secs(1);

/// Advice on a second SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SecondAdvice {
    /// Send it if there is no answer in time; the round trip, if it is known.
    Send(Option<Duration>),
    /// Too many were in vain.
    Never,
}

#[derive(Debug)]
pub(super) struct Connects(Bounded<SocketAddr, Seen>);

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Local address, which stands for the network.
    local: Option<IpAddr>,
    /// `None` if no connection has opened.
    rtt: Option<Duration>,
    connections: u32,
    in_vain: u32,
}

impl Default for Connects {
    fn default() -> Self {
        Self(Bounded::new(ADDRESSES))
    }
}

impl Connects {
    pub(super) fn forget_network(&mut self, local: IpAddr) {
        self.0.retain(|_, seen| seen.local != Some(local));
    }

    fn advise(&mut self, address: SocketAddr) -> SecondAdvice {
        let Some(seen) = self.0.get(&address) else { return SecondAdvice::Send(None) };
        // One in vain is none too many, however few connections there were.
        if seen.in_vain > 1 && seen.in_vain > seen.connections / IN_VAIN_ONE_IN {
            return SecondAdvice::Never;
        }
        SecondAdvice::Send(seen.rtt)
    }

    fn record(&mut self, address: SocketAddr, local: IpAddr, rtt: Duration) -> Duration {
        let seen = self.0.get_or_default(address);
        if seen.local != Some(local) {
            *seen = Seen { local: Some(local), ..Seen::default() };
        }
        seen.connections += 1;
        if seen.connections >= MEMORY {
            seen.connections /= 2;
            seen.in_vain /= 2;
        }
        match seen.rtt {
            Some(known) if rtt >= REPEATED && known < REPEATED => known,
            known => {
                // As TCP smooths it: RFC 6298 section 2.3.
                seen.rtt = Some(known.map_or(rtt, |known| (known * 7 + rtt) / 8));
                rtt
            }
        }
    }

    fn record_in_vain(&mut self, address: SocketAddr, local: IpAddr) {
        let seen = self.0.get_or_default(address);
        seen.local.get_or_insert(local);
        seen.in_vain += 1;
    }
}

impl PathMemory {
    /// Advises whether to send a second SYN to `address` if the first is not answered.
    pub(crate) fn advise_second(&self, address: SocketAddr) -> SecondAdvice {
        self.lock().connects.advise(address)
    }

    /// Returns the round trip of handshakes with `address`, if one is known.
    pub(crate) fn connect_rtt(&self, address: SocketAddr) -> Option<Duration> {
        self.lock().connects.0.get(&address).and_then(|seen| seen.rtt)
    }

    /// Learns from a handshake with `address` that took `rtt`, from `local`. Returns the round
    /// trip: another one that is known, where `rtt` may be that of a SYN sent again.
    pub(crate) fn record_connect(
        &self,
        address: SocketAddr,
        local: IpAddr,
        rtt: Duration,
    ) -> Duration {
        self.lock().connects.record(address, local, rtt)
    }

    /// Learns that a second SYN to `address` was in vain; the network is that of `local`.
    pub(crate) fn record_in_vain(&self, address: SocketAddr, local: IpAddr) {
        self.lock().connects.record_in_vain(address, local);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn address() -> SocketAddr {
        "192.0.2.1:443".parse().unwrap()
    }

    const RTT: Duration = Duration::from_millis(20);

    /// Returns the advice after connections: for each entry their number, and true if each had a
    /// second SYN in vain.
    fn after(connections: &[(usize, bool)]) -> SecondAdvice {
        let memory = PathMemory::default();
        for (count, in_vain) in connections {
            for _ in 0..*count {
                memory.record_connect(address(), LOCAL, RTT);
                if *in_vain {
                    memory.record_in_vain(address(), LOCAL);
                }
            }
        }
        memory.advise_second(address())
    }

    #[test]
    fn second_syns_end_where_more_than_one_in_a_hundred_is_in_vain() {
        let send = SecondAdvice::Send(Some(RTT));
        assert_eq!(after(&[]), SecondAdvice::Send(None));
        assert_eq!(after(&[(1, true)]), send);
        assert_eq!(after(&[(2, true)]), SecondAdvice::Never);
        assert_eq!(after(&[(198, false), (2, true)]), send);
        assert_eq!(after(&[(190, false), (2, true)]), SecondAdvice::Never);
        // Later ones count: they are sent again.
        assert_eq!(after(&[(2, true), (198, false)]), send);
    }

    #[test]
    fn the_round_trip_is_known_without_second_syns() {
        let memory = PathMemory::default();
        assert_eq!(memory.connect_rtt(address()), None);
        memory.record_connect(address(), LOCAL, RTT);
        memory.record_in_vain(address(), LOCAL);
        memory.record_in_vain(address(), LOCAL);
        assert_eq!(memory.advise_second(address()), SecondAdvice::Never);
        assert_eq!(memory.connect_rtt(address()), Some(RTT));
    }

    #[test]
    fn second_syns_end_where_nothing_has_ever_answered() {
        let memory = PathMemory::default();
        memory.record_in_vain(address(), LOCAL);
        assert_eq!(memory.advise_second(address()), SecondAdvice::Send(None));
        memory.record_in_vain(address(), LOCAL);
        assert_eq!(memory.advise_second(address()), SecondAdvice::Never);
        memory.forget_network(LOCAL);
        assert_eq!(memory.advise_second(address()), SecondAdvice::Send(None));
    }

    /// The connection that was faster may be one of the other family.
    #[test]
    fn a_second_syn_in_vain_leaves_what_is_known_of_its_address() {
        let memory = PathMemory::default();
        memory.record_connect(address(), LOCAL, RTT);
        memory.record_in_vain(address(), [192, 0, 2, 7].into());
        assert_eq!(memory.advise_second(address()), SecondAdvice::Send(Some(RTT)));
        memory.record_connect(address(), LOCAL, RTT);
        memory.record_in_vain(address(), [192, 0, 2, 7].into());
        assert_eq!(memory.advise_second(address()), SecondAdvice::Never);
    }

    #[test]
    fn a_repeated_syn_says_nothing_of_the_round_trip() {
        let memory = PathMemory::default();
        let ms = Duration::from_millis;
        let record = |millis| {
            let rtt = memory.record_connect(address(), LOCAL, ms(millis));
            (rtt, memory.advise_second(address()))
        };
        let send = |millis| SecondAdvice::Send(Some(ms(millis)));
        assert_eq!(record(1_040), (ms(1_040), send(1_040)), "all that is known");
        assert_eq!(record(40), (ms(40), send(915)));
        assert_eq!(record(1_040), (ms(915), send(915)));
    }

    #[test]
    fn another_network_begins_anew() {
        let memory = PathMemory::default();
        for _ in 0..2 {
            memory.record_connect(address(), LOCAL, RTT);
            memory.record_in_vain(address(), LOCAL);
        }
        assert_eq!(memory.advise_second(address()), SecondAdvice::Never);
        memory.record_connect(address(), [192, 0, 2, 7].into(), 2 * RTT);
        assert_eq!(memory.advise_second(address()), SecondAdvice::Send(Some(2 * RTT)));
        memory.forget_network([192, 0, 2, 7].into());
        assert_eq!(memory.advise_second(address()), SecondAdvice::Send(None));
    }
}
