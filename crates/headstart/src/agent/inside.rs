//! Names that lead inside: DNS does not send applications to addresses that only this machine or
//! its network can reach, unless the operator says so.
//!
//! The owner of a name can have it lead anywhere. To a browser a page of that name then shares its
//! origin with a router or a database of this network (DNS rebinding), and behind a proxy it sees
//! no address by which to tell.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Instant;

use headstart_net::dns::AddressFilter;
use ipnet::IpNet;

use crate::base::log_throttle::LogThrottle;
use crate::base::names::NamePattern;
use crate::base::own_address::is_own_address;
use crate::base::value::network;
use crate::metrics;

static NOT_CONNECTED: LogThrottle = LogThrottle::new();

/// Names or addresses for which DNS may lead inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inside {
    /// All names may lead to all addresses.
    All,
    /// Names may lead to the addresses of this network.
    Network(IpNet),
    /// These names may lead anywhere.
    Name(NamePattern),
}

impl Inside {
    fn permits(&self, name: &str, address: IpAddr) -> bool {
        match self {
            Self::All => true,
            Self::Network(network) => network.contains(&address),
            Self::Name(pattern) => pattern.matches(name),
        }
    }
}

impl FromStr for Inside {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self::All);
        }
        if let Ok(network) = network(text) {
            return Ok(Self::Network(network));
        }
        text.parse().map(Self::Name).map_err(|_| {
            format!("'{text}' is neither a name, nor a network such as 10.0.0.0/8, nor all")
        })
    }
}

impl fmt::Display for Inside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Network(network) => network.fmt(f),
            Self::Name(pattern) => pattern.fmt(f),
        }
    }
}

/// The filter of names that only these may pass on their way inside.
pub(super) fn filter(allowed: &[Inside]) -> AddressFilter {
    let allowed: Arc<[Inside]> = allowed.into();
    Arc::new(move |name, address| {
        let permitted = is_localhost(name)
            || allowed.iter().any(|one| one.permits(name, address))
            || !(is_inside(address) || is_own_address(address));
        if !permitted {
            note(name, address);
        }
        permitted
    })
}

fn note(name: &str, address: IpAddr) {
    metrics::count_limit("name_leads_inside");
    if let Some(left_out) = NOT_CONNECTED.line(Instant::now()) {
        tracing::warn!(
            name, %address, left_out, "names must not lead there; --allow-inside lets them"
        );
    }
}

/// Returns true for names of this machine, which no name server can have lead elsewhere (RFC 6761
/// section 6.3).
fn is_localhost(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

/// Returns true for addresses that mean this machine, its link or its private network.
fn is_inside(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => is_inside_v4(v4),
        IpAddr::V6(v6) => {
            v6.is_loopback()
                || v6.is_unspecified()
                || v6.is_unique_local()
                || v6.is_unicast_link_local()
                || v6.is_multicast()
                // Site-local, deprecated and still routed by some (RFC 3879).
                || v6.segments()[0] & 0xffc0 == 0xfec0
                // Translated within a network, in a form of its own (RFC 8215).
                || v6.segments()[..3] == [0x64, 0xff9b, 1]
                || embedded(v6).is_some_and(is_inside_v4)
        }
    }
}

fn is_inside_v4(v4: Ipv4Addr) -> bool {
    let [first, second, ..] = v4.octets();
    v4.is_loopback()
        || v4.is_private()
        || v4.is_link_local()
        || v4.is_multicast()
        // Reserved, and used by private networks; the last is a broadcast.
        || first >= 240
        // Linux takes 0.0.0.0 for this machine.
        || first == 0
        // Shared by the customers of a carrier, and used by private networks (RFC 6598).
        || (first == 100 && second & 0xc0 == 64)
}

/// Returns the IPv4 address to which a translator or tunnel takes packets to `v6`: NAT64 (RFC
/// 6052), 6to4 (RFC 3056), IPv4-compatible (RFC 4291 section 2.5.5.1) and IPv4-translated (RFC
/// 2765).
fn embedded(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, g, h] = v6.segments();
    let (high, low) = match (a, b) {
        (0x64, 0xff9b) if [c, d, e, f] == [0; 4] => (g, h),
        (0, 0) if [c, d, e, f] == [0; 4] || [c, d, e, f] == [0, 0, 0xffff, 0] => (g, h),
        (0x2002, high) => (high, c),
        _ => return None,
    };
    Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_permitted(allowed: &[&str], name: &str, address: &str) -> bool {
        let allowed: Vec<_> = allowed.iter().map(|text| text.parse().unwrap()).collect();
        filter(&allowed)(name, address.parse().unwrap())
    }

    #[test]
    fn addresses_inside_are_known_in_all_their_forms() {
        for inside in [
            "127.0.0.1",
            "127.255.0.1",
            "0.0.0.0",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "::",
            "::1",
            "::ffff:10.0.0.1",
            "fd00::1",
            "fe80::1",
            "fec0::1",
            "64:ff9b::7f00:1",
            "2002:a00:1::1",
            "64:ff9b:1::c000:201",
            "64:ff9b:1:c0:0:201::",
            "::10.0.0.1",
            "::ffff:0:10.0.0.1",
            "::ffff:0:7f00:1",
            "224.0.0.1",
            "239.255.255.250",
            "240.0.0.1",
            "255.255.255.255",
            "ff02::1",
            "ff0e::1",
        ] {
            assert!(!is_permitted(&[], "a.example", inside), "{inside}");
        }
        for outside in [
            "192.0.2.1",
            "172.32.0.1",
            "100.128.0.1",
            "2001:db8::1",
            "64:ff9b::c000:201",
            "2002:c000:201::1",
            "64:ff9b:2::1",
            "::192.0.2.1",
            "::ffff:0:192.0.2.1",
        ] {
            assert!(is_permitted(&[], "a.example", outside), "{outside}");
        }
    }

    #[test]
    fn operators_permit_by_name_network_or_all() {
        for (allowed, name, address, permitted) in [
            ("nas.example", "nas.example", "10.0.0.1", true),
            ("nas.example", "other.example", "10.0.0.1", false),
            ("*.corp.example", "a.b.corp.example", "10.0.0.1", true),
            ("*.corp.example", "corp.example", "10.0.0.1", false),
            ("10.1.0.0/16", "a.example", "10.1.255.255", true),
            ("10.1.0.0/16", "a.example", "10.2.0.0", false),
            ("fd00::/8", "a.example", "fd12::1", true),
            ("192.168.1.1", "a.example", "192.168.1.1", true),
            ("192.168.1.1", "a.example", "192.168.1.2", false),
            ("all", "a.example", "127.0.0.1", true),
        ] {
            assert_eq!(is_permitted(&[allowed], name, address), permitted, "{allowed} {name}");
        }
        for localhost in ["localhost", "app.localhost"] {
            assert!(is_permitted(&[], localhost, "127.0.0.1"));
        }
        assert!(!is_permitted(&[], "localhost.example", "127.0.0.1"));
    }

    #[test]
    fn what_is_permitted_is_written_as_it_is_read() {
        for text in ["all", "nas.example", "*.corp.example", "10.0.0.0/8", "fd00::/8"] {
            assert_eq!(text.parse::<Inside>().unwrap().to_string(), text);
        }
        for wrong in ["", "10.0.0.0/33", "a b", "*", "1.2.3.4.5/8"] {
            assert!(wrong.parse::<Inside>().is_err(), "{wrong}");
        }
    }
}
