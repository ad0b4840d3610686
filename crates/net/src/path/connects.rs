//! Connect times by address, and the success of second SYNs there.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::PathMemory;
use super::bounded::Bounded;

/// Addresses remembered; about 100 bytes each, 100 kB.
const ADDRESSES: usize = 1024;

/// One second SYN in so many connections may be in vain.
const IN_VAIN_ONE_IN: u32 = 100;

/// Connections after which older ones count half.
const MEMORY: u32 = 1024;

/// Samples from this on may be of a SYN that the kernel has repeated (RFC 6298 section 2), and say
/// nothing about the path.
const REPEATED: Duration = Duration::from_secs(1);

/// The part that a second SYN had in a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Second {
    /// There was none.
    None,
    /// It was answered first.
    Used,
    /// The first was answered all the same.
    InVain,
}

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

#[derive(Clone, Copy, Debug)]
struct Seen {
    /// Local address, which stands for the network.
    local: IpAddr,
    rtt: Duration,
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
        self.0.retain(|_, seen| seen.local != local);
    }

    fn advise(&mut self, address: SocketAddr) -> SecondAdvice {
        let Some(seen) = self.0.get(&address) else { return SecondAdvice::Send(None) };
        // One in vain is none too many, however few connections there were.
        if seen.in_vain > 1 && seen.in_vain > seen.connections / IN_VAIN_ONE_IN {
            return SecondAdvice::Never;
        }
        SecondAdvice::Send(Some(seen.rtt))
    }

    fn record(&mut self, address: SocketAddr, local: IpAddr, took: Duration, second: Second) {
        let new = Seen { local, rtt: took, connections: 0, in_vain: 0 };
        let mut seen = self.0.get(&address).copied().filter(|seen| seen.local == local);
        let seen = seen.get_or_insert(new);
        seen.connections += 1;
        seen.in_vain += u32::from(second == Second::InVain);
        if seen.connections >= MEMORY {
            seen.connections /= 2;
            seen.in_vain /= 2;
        }
        if took < REPEATED || seen.rtt >= REPEATED {
            // As TCP smooths it: RFC 6298 section 2.3.
            seen.rtt = (seen.rtt * 7 + took) / 8;
        }
        self.0.insert(address, *seen);
    }
}

impl PathMemory {
    /// Advises whether to send a second SYN to `address` if the first is not answered.
    pub(crate) fn advise_second(&self, address: SocketAddr) -> SecondAdvice {
        self.lock().connects.advise(address)
    }

    /// Learns from a connection to `address` that took so long, from `local`.
    pub(crate) fn record_connect(
        &self,
        address: SocketAddr,
        local: IpAddr,
        took: Duration,
        second: Second,
    ) {
        self.lock().connects.record(address, local, took, second);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn address() -> SocketAddr {
        "192.0.2.1:443".parse().unwrap()
    }

    fn after(seconds: &[(usize, Second)]) -> SecondAdvice {
        let memory = PathMemory::default();
        for (count, second) in seconds {
            for _ in 0..*count {
                memory.record_connect(address(), LOCAL, Duration::from_millis(20), *second);
            }
        }
        memory.advise_second(address())
    }

    #[test]
    fn second_syns_end_where_more_than_one_in_a_hundred_is_in_vain() {
        let send = SecondAdvice::Send(Some(Duration::from_millis(20)));
        assert_eq!(after(&[]), SecondAdvice::Send(None));
        assert_eq!(after(&[(1, Second::InVain)]), send);
        assert_eq!(after(&[(2, Second::InVain)]), SecondAdvice::Never);
        assert_eq!(after(&[(198, Second::None), (2, Second::InVain)]), send);
        assert_eq!(after(&[(190, Second::None), (2, Second::InVain)]), SecondAdvice::Never);
        // Later ones count: they are sent again.
        assert_eq!(after(&[(2, Second::InVain), (198, Second::None)]), send);
        assert_eq!(after(&[(500, Second::Used)]), send);
    }

    #[test]
    fn a_repeated_syn_says_nothing_of_the_round_trip() {
        let memory = PathMemory::default();
        let record = |millis| {
            let took = Duration::from_millis(millis);
            memory.record_connect(address(), LOCAL, took, Second::None);
            memory.advise_second(address())
        };
        let send = |millis| SecondAdvice::Send(Some(Duration::from_millis(millis)));
        assert_eq!(record(1_040), send(1_040), "all that is known");
        assert_eq!(record(40), send(915));
        assert_eq!(record(1_040), send(915));
    }

    #[test]
    fn another_network_begins_anew() {
        let memory = PathMemory::default();
        let took = Duration::from_millis(20);
        for _ in 0..2 {
            memory.record_connect(address(), LOCAL, took, Second::InVain);
        }
        assert_eq!(memory.advise_second(address()), SecondAdvice::Never);
        memory.record_connect(address(), [192, 0, 2, 7].into(), 2 * took, Second::None);
        assert_eq!(memory.advise_second(address()), SecondAdvice::Send(Some(2 * took)));
        memory.forget_network([192, 0, 2, 7].into());
        assert_eq!(memory.advise_second(address()), SecondAdvice::Send(None));
    }
}
