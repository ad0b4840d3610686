//! The header that tells a client's address: to origins, and from balancers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use headstart::edge::proxy_protocol::header;
use headstart_net::read_proxy_header as read;
use ppp::v2::{Addresses, Command, Header, Protocol, Version};

/// Any two addresses: the header says them as they are, in one family, no part of it is a header,
/// and edges behind this one read it so. Or any bytes of a balancer.
///
/// kind 1 (bits: which address is IPv4) | address 16 | port 2 | address 16 | port 2 | data
/// kind 1 (4 and above) | bytes
pub fn proxy_protocol(bytes: &[u8]) {
    let Some((&[kind], bytes)) = bytes.split_first_chunk() else { return };
    if kind >= 4 {
        return read_any(bytes);
    }
    let Some((client, bytes)) = address(bytes, kind & 1 == 1) else { return };
    let Some((edge, data)) = address(bytes, kind & 2 == 2) else { return };
    let written = header(client, edge).unwrap();
    let sent = [&written[..], data].concat();
    let read = Header::try_from(&sent[..]).unwrap();
    assert_eq!((read.version, read.command), (Version::Two, Command::Proxy));
    assert_eq!((read.protocol, read.len()), (Protocol::Stream, written.len()));
    let (from, to) = match read.addresses {
        Addresses::IPv4(of) => (
            SocketAddr::from((of.source_address, of.source_port)),
            SocketAddr::from((of.destination_address, of.destination_port)),
        ),
        Addresses::IPv6(of) => (
            SocketAddr::from((of.source_address, of.source_port)),
            SocketAddr::from((of.destination_address, of.destination_port)),
        ),
        other => panic!("{other:?}"),
    };
    assert_eq!(canonical(from), canonical(client));
    assert_eq!(canonical(to), canonical(edge));
    // Two families make it IPv6, and a mapped address is the one that it maps.
    let both_ipv4 = canonical(client).is_ipv4() && canonical(edge).is_ipv4();
    assert_eq!(from.is_ipv4(), both_ipv4);
    let told = if both_ipv4 { from } else { canonical(from) };
    assert_eq!(read_ok(&sent), Some((written.len(), Some(told))));
    for end in 0..written.len() {
        assert!(Header::try_from(&written[..end]).is_err(), "a part of it");
        assert_eq!(read_ok(&written[..end]), None, "a part of it");
    }
}

/// A header reads the same however much comes behind it, and as none while a part is missing.
fn read_any(bytes: &[u8]) {
    let Ok(Some((length, client))) = read(bytes) else { return };
    assert!((16..=bytes.len()).contains(&length));
    for more in 0..3 {
        let longer = [&bytes[..length], &[0x16, 3, 1][..more]].concat();
        assert_eq!(read_ok(&longer), Some((length, client)));
    }
    for end in 0..length {
        assert_eq!(read_ok(&bytes[..end]), None, "a part of it");
    }
}

fn read_ok(bytes: &[u8]) -> Option<(usize, Option<SocketAddr>)> {
    read(bytes).unwrap()
}

fn address(bytes: &[u8], is_ipv4: bool) -> Option<(SocketAddr, &[u8])> {
    let (ip, bytes) = bytes.split_first_chunk::<16>()?;
    let (port, rest) = bytes.split_first_chunk()?;
    let ip = match ip {
        [a, b, c, d, ..] if is_ipv4 => IpAddr::from(Ipv4Addr::new(*a, *b, *c, *d)),
        ip => IpAddr::from(Ipv6Addr::from(*ip)),
    };
    Some((SocketAddr::new(ip, u16::from_be_bytes(*port)), rest))
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
