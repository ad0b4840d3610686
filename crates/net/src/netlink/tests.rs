//! Messages as the kernel writes them, truncated and altered, and answers of this machine's kernel.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use headstart_sessions::Network;
use headstart_testkit::pair;
use proptest::prelude::*;
use tokio::net::{TcpListener, TcpStream};

use super::*;

fn attribute(number: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(ATTRIBUTE_HEADER + value.len()).unwrap();
    let mut bytes = [&length.to_ne_bytes()[..], &number.to_ne_bytes(), value].concat();
    bytes.resize(aligned(bytes.len()), 0);
    bytes
}

fn message(kind: u16, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADER + body.len()).unwrap();
    let mut bytes = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 10], body].concat();
    bytes.resize(aligned(bytes.len()), 0);
    bytes
}

#[test]
fn consecutive_messages_and_attributes_are_read() {
    let datagram = [message(7, b"abcde"), message(8, b"")].concat();
    let found: Vec<_> = messages(&datagram).collect();
    let expected = [Message { kind: 7, body: b"abcde" }, Message { kind: 8, body: b"" }];
    assert_eq!(found, expected);

    let list = [attribute(1, b"x"), attribute(2, b""), attribute(3, b"abcd")].concat();
    let found: Vec<_> = attributes(&list).collect();
    assert_eq!(found, [(1, &b"x"[..]), (2, b""), (3, b"abcd")]);
}

#[test]
fn a_wrong_length_ends_the_list() {
    let mut datagram = [message(7, b"ab"), message(8, b"cd")].concat();
    for length in [0_u32, 15, 999] {
        datagram[20..24].copy_from_slice(&length.to_ne_bytes());
        assert_eq!(messages(&datagram).count(), 1, "{length}");
    }
    for length in [0_u16, 3, 99] {
        let list = [&length.to_ne_bytes()[..], &[0; 6]].concat();
        assert_eq!(attributes(&list).count(), 0, "{length}");
    }
}

#[test]
fn kernel_errors_are_negative_numbers() {
    for (number, kind) in [
        (-2, io::ErrorKind::NotFound),
        (0, io::ErrorKind::InvalidData),
        (5, io::ErrorKind::InvalidData),
        (i32::MIN, io::ErrorKind::InvalidData),
    ] {
        let body = [&number.to_ne_bytes()[..], &[0; 16]].concat();
        let error = Message { kind: NLMSG_ERROR, body: &body }.answer(1).unwrap_err();
        assert_eq!(error.kind(), kind, "{number}");
    }
    let other = Message { kind: 3, body: &[] }.answer(1).unwrap_err();
    assert_eq!(other.kind(), io::ErrorKind::InvalidData);
}

#[test]
fn a_route_names_its_gateway() {
    let body = [
        vec![0; 12],
        attribute(1, &[192, 0, 2, 1]),
        attribute(4, &7_u32.to_ne_bytes()),
        attribute(5, &[10, 0, 0, 254]),
        attribute(7, &[10, 0, 0, 1]),
    ]
    .concat();
    let found = route::parse(&body).unwrap();
    let gateway = Some(Ipv4Addr::new(10, 0, 0, 254).into());
    assert_eq!(found, Network { local: [10, 0, 0, 1].into(), interface: 7, gateway });
    // Without a local address, the networks cannot be compared.
    assert_eq!(route::parse(&body[..body.len() - 8]), None);
}

#[test]
fn a_gateway_may_be_of_the_other_family() {
    let via = [&10_u16.to_ne_bytes()[..], &Ipv6Addr::LOCALHOST.octets()].concat();
    let body = [
        vec![0; 12],
        attribute(4, &7_u32.to_ne_bytes()),
        attribute(7, &[10, 0, 0, 1]),
        attribute(18, &via),
    ]
    .concat();
    let found = route::parse(&body).unwrap();
    assert_eq!(found.gateway, Some(Ipv6Addr::LOCALHOST.into()));
}

#[test]
fn the_route_to_this_machine_is_the_loopback_interface() {
    for local in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
        let network = match network_to(local) {
            Ok(network) => network,
            // A machine without IPv6.
            Err(_) if local.is_ipv6() => continue,
            Err(error) => panic!("{local}: {error}"),
        };
        assert_eq!((network.local, network.gateway), (local, None));
        assert_eq!(network, network_to(local).unwrap());
    }
    let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped().into();
    assert_eq!(network_to(mapped).unwrap().local, Ipv4Addr::LOCALHOST);
}

fn removed(kind: u16, body: &[u8]) -> Option<Change> {
    changes::removed(Message { kind, body })
}

#[test]
fn removed_addresses_and_downed_interfaces_are_changes() {
    let local = [vec![0; 8], attribute(1, &[10, 0, 0, 9]), attribute(2, &[10, 0, 0, 1])].concat();
    assert_eq!(removed(21, &local), Some(Change::Address([10, 0, 0, 1].into())));
    let v6 = [vec![0; 8], attribute(1, &Ipv6Addr::LOCALHOST.octets())].concat();
    assert_eq!(removed(21, &v6), Some(Change::Address(Ipv6Addr::LOCALHOST.into())));
    assert_eq!(removed(20, &local), None, "a new address counted as removed");

    let link =
        |flags: u32| [&[0; 4][..], &3_u32.to_ne_bytes(), &flags.to_ne_bytes(), &[0; 4]].concat();
    assert_eq!(removed(16, &link(0x41)), None);
    assert_eq!(removed(16, &link(0x1)), Some(Change::Interface(3)));
    assert_eq!(removed(17, &link(0x41)), Some(Change::Interface(3)));
    assert_eq!(removed(16, &link(0x1)[..12]), None);
}

const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 4000);
const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1080);

/// An answer about the socket from `client` to `server`.
struct Diag {
    family: u8,
    state: u8,
    client: SocketAddr,
    server: SocketAddr,
    uid: u32,
    inode: u32,
}

impl Diag {
    const fn new() -> Self {
        Self { family: AF_INET, state: 1, client: CLIENT, server: SERVER, uid: 1000, inode: 42 }
    }

    fn bytes(&self) -> Vec<u8> {
        [
            &[self.family, self.state, 0, 0][..],
            &self.client.port().to_be_bytes(),
            &self.server.port().to_be_bytes(),
            &self.padded(self.client.ip()),
            &self.padded(self.server.ip()),
            &[0; 24],
            &self.uid.to_ne_bytes(),
            &self.inode.to_ne_bytes(),
        ]
        .concat()
    }

    /// Returns an address padded to sixteen bytes.
    fn padded(&self, ip: IpAddr) -> Vec<u8> {
        let mut bytes = match ip {
            IpAddr::V4(v4) if self.family == AF_INET6 => v4.to_ipv6_mapped().octets().to_vec(),
            _ => octets(ip),
        };
        bytes.resize(16, 0);
        bytes
    }

    fn owner(&self) -> Option<u32> {
        owner::parse(&self.bytes(), CLIENT, SERVER)
    }
}

#[test]
fn a_socket_in_use_has_an_owner() {
    assert_eq!(Diag::new().owner(), Some(1000));
    assert_eq!(Diag { uid: 0, ..Diag::new() }.owner(), Some(0));
    assert_eq!(Diag { family: AF_INET6, ..Diag::new() }.owner(), Some(1000), "mapped IPv4");
    for state in [4, 5, 8] {
        assert_eq!(Diag { state, ..Diag::new() }.owner(), Some(1000), "half closed: {state}");
    }
    assert_eq!(owner::parse(&Diag::new().bytes()[..71], CLIENT, SERVER), None);
}

#[test]
fn incomplete_answers_name_no_owner() {
    let other = SocketAddr::new([127, 0, 0, 2].into(), 4000);
    for (why, diag) in [
        ("in TIME-WAIT the user is always 0", Diag { state: 6, ..Diag::new() }),
        ("a listener of that port", Diag { state: 10, ..Diag::new() }),
        ("closing", Diag { state: 11, ..Diag::new() }),
        ("closed by its process after its end", Diag { state: 5, inode: 0, uid: 0, ..Diag::new() }),
        ("closed by its process", Diag { inode: 0, uid: 0, ..Diag::new() }),
        ("a user of another namespace", Diag { uid: 65534, ..Diag::new() }),
        ("another client", Diag { client: other, ..Diag::new() }),
        ("another server", Diag { server: CLIENT, ..Diag::new() }),
    ] {
        assert_eq!(diag.owner(), None, "{why}");
    }
}

fn owner_of(server: &TcpStream) -> Option<u32> {
    tcp_owner(server.peer_addr().unwrap(), server.local_addr().unwrap()).unwrap()
}

#[tokio::test]
async fn a_client_on_this_machine_belongs_to_this_user() {
    let me = rustix::process::getuid().as_raw();
    let (client, server) = pair().await;
    assert_eq!(owner_of(&server), Some(me));
    assert_eq!(owner_of(&client), Some(me), "the server's end is this user's too");
    drop(client);
    assert_eq!(owner_of(&server), None, "a closed socket has an owner");
}

#[tokio::test]
async fn clients_over_ipv6_and_mapped_ipv4_have_owners() {
    let me = rustix::process::getuid().as_raw();
    let Ok(listener) = TcpListener::bind("[::]:0").await else {
        eprintln!("skipped: no IPv6 here");
        return;
    };
    let port = listener.local_addr().unwrap().port();
    for ip in [IpAddr::from(Ipv6Addr::LOCALHOST), Ipv4Addr::LOCALHOST.into()] {
        let client = TcpStream::connect((ip, port));
        let (_client, accepted) = tokio::join!(client, listener.accept());
        assert_eq!(owner_of(&accepted.unwrap().0), Some(me), "{ip}");
    }
}

#[test]
fn addresses_without_a_socket_have_no_owner() {
    assert_eq!(tcp_owner("192.0.2.1:1".parse().unwrap(), SERVER).unwrap(), None);
    assert_eq!(tcp_owner("[::1]:1".parse().unwrap(), SERVER).unwrap(), None);
}

/// A listener at the specific address is preferred to one at all addresses, as for connections.
#[test]
fn the_user_of_a_listener_is_found() {
    let me = rustix::process::getuid().as_raw();
    for at in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"] {
        let Ok(listener) = std::net::TcpListener::bind(at) else {
            eprintln!("skipped: no IPv6 here");
            continue;
        };
        let port = listener.local_addr().unwrap().port();
        let ip = if at.starts_with("[::1]") {
            IpAddr::from(Ipv6Addr::LOCALHOST)
        } else {
            Ipv4Addr::LOCALHOST.into()
        };
        let at = SocketAddr::new(ip, port);
        assert_eq!(tcp_listener(at).unwrap(), Some(me), "{at}");
        let connected = std::net::TcpStream::connect(at).unwrap();
        let client = connected.local_addr().unwrap();
        assert_eq!(tcp_listener(client).unwrap(), None, "a connected socket takes no connections");
        drop(listener);
        assert_eq!(tcp_listener(at).unwrap(), None, "{at}");
    }
}

#[tokio::test]
async fn listening_for_changes_needs_no_privilege() {
    let mut changes = Changes::listen().unwrap();
    let waits = tokio::time::timeout(std::time::Duration::from_millis(1), changes.next()).await;
    // Either result is fine: a change may come during the test.
    assert!(waits.is_err() || waits.unwrap().is_ok());
}

proptest! {
    #[test]
    fn parsers_never_panic(bytes: Vec<u8>) {
        for message in messages(&bytes) {
            let _ = changes::removed(message);
            let _ = message.answer(20);
        }
        let _ = (route::parse(&bytes), owner::parse(&bytes, CLIENT, SERVER));
        for (_, value) in attributes(&bytes) {
            let _ = address(value);
        }
    }
}
