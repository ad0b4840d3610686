//! Connections without a private cookie, and the kernel's own Fast Open, which learns nothing.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use headstart_emulation::Node;
use headstart_net::Carrier;
use headstart_net::fastopen::{CookieState, connect as connect_fast, cookie_state, set_cookie};
use headstart_proto::cookie::Cookie;
use socket2::{Domain, SockRef, Socket, Type};

use crate::packet::Segment;
use crate::refused::{no_kernel_cookie, ordinary};
use crate::server::{Hidden, Options, Server};
use crate::support::succeeds;
use crate::world::{LINE, PORT, TIMEOUT, World, block_on};

/// Flag to send data with the SYN, or request a cookie (include/linux/socket.h).
const MSG_FASTOPEN: i32 = 0x2000_0000;

/// Starts a server that leaves the program's maps alone.
fn without_maps(world: &World) -> Server {
    Server::with(world, Options { keys: None, hidden: Hidden::None, ..Options::default() })
}

fn answer(mut stream: TcpStream) -> Vec<u8> {
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    answer
}

fn connect_from(node: &Node, to: SocketAddr) -> Vec<u8> {
    let answered = node.run(|| {
        let mut stream = TcpStream::connect_timeout(&to, TIMEOUT).unwrap();
        stream.write_all(LINE).unwrap();
        answer(stream)
    });
    answered.unwrap()
}

/// Connects an ordinary client.
fn connect(world: &World, to: SocketAddr) -> Vec<u8> {
    connect_from(world.client(), to)
}

/// Connects a client of the kernel's Fast Open; returns the SYN that it sent.
fn kernel_client(world: &World, to: SocketAddr) -> Segment {
    world.capture.clear();
    let answered = world.client().run(|| {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, None).unwrap();
        let sent = socket.send_to_with_flags(LINE, &to.into(), MSG_FASTOPEN).unwrap();
        assert_eq!(sent, LINE.len());
        answer(socket.into())
    });
    assert_eq!(answered.unwrap(), LINE);
    let [syn] = &world.capture.syns()[..] else { panic!("{:?}", world.capture.syns()) };
    assert_eq!(syn.fast_open().len(), 1, "{syn:?}");
    syn.clone()
}

pub(crate) fn ordinary_connections() {
    let world = World::new();
    let server = Server::start(&world);
    for (number, known) in [(0, 1), (2, 2)] {
        assert_eq!(connect(&world, world.to(number)), LINE);
        assert_eq!(server.served(known).pop(), Some((Carrier::Tcp, LINE.to_vec())));
    }
    assert!(world.capture.cookies().is_empty());
    let counted: Vec<_> = world.stats().iter().filter(|(_, count)| *count > 0).collect();
    assert_eq!(counted, [("syns", 2)]);
    assert_eq!(world.client_status().unwrap().sent, 0);
}

/// The client requests a cookie in both forms, and never gets one.
fn assert_no_cookie_granted(world: &World, server: &Server) {
    for known in 1..=3 {
        let syn = kernel_client(world, world.to(0));
        assert!(syn.data.is_empty(), "{syn:?}");
        assert_eq!(server.served(known).pop(), Some((Carrier::Tcp, LINE.to_vec())));
        assert!(world.capture.syn_acks().iter().all(|answer| answer.fast_open().is_empty()));
    }
}

pub(crate) fn kernel_fast_open() {
    let world = World::new();
    let server = Server::start(&world);
    assert_no_cookie_granted(&world, &server);
    assert_eq!((world.stats().syns, world.stats().stripped), (3, 3));
}

pub(crate) fn detached_kernel_fast_open() {
    let world = World::bare();
    let server = without_maps(&world);
    assert_no_cookie_granted(&world, &server);
}

pub(crate) fn detached_private_cookie() {
    let world = World::bare();
    world.attach_client();
    let server = without_maps(&world);
    for (known, number) in [(0, 0), (1, 2)] {
        world.capture.clear();
        let opened = world.open(world.to(number), &world.cookie(number), LINE);
        ordinary(&world, &server, known, &opened);
    }
    no_kernel_cookie(&world);
}

/// A server with the kernel's Fast Open answers an unknown cookie with one of its own, which would
/// be the same for every connection of the client.
pub(crate) fn cookie_in_a_syn_ack() {
    let world = World::bare();
    world.attach_client();
    // Fast Open is on for all listeners, whether they ask for it or not.
    world.set(world.server(), "tcp_fastopen", "1027").unwrap();
    let server = without_maps(&world);
    for known in [1, 2] {
        world.capture.clear();
        let cookie = world.cookie(0);
        let opened = world.open(world.to(0), &cookie, LINE);
        assert!(!opened.accepted && opened.answer == LINE, "{opened:?}");
        assert_eq!(server.served(known).pop(), Some((Carrier::Tcp, LINE.to_vec())));
        let [syn] = &world.capture.syns()[..] else { panic!("{:?}", world.capture.syns()) };
        assert_eq!(syn.fast_open(), [&cookie.as_bytes()[..]]);
        let offered = &world.capture.syn_acks()[0];
        assert_eq!(offered.fast_open().len(), 1, "the server must offer one cookie: {offered:?}");
    }
    // The kernel has not kept it: it requests a new one.
    let syn = kernel_client(&world, world.to(0));
    assert_eq!((syn.fast_open(), syn.data.len()), (vec![&[0_u8; 0][..]], 0));
}

/// A cookie of the kernel leaves no room for one of ours, which stays unspent.
pub(crate) fn no_room() {
    let world = World::bare();
    world.attach_client();
    world.set(world.server(), "tcp_fastopen", "1027").unwrap();
    let server = without_maps(&world);
    let to = world.to(0);
    // It requests a cookie, and gets one.
    assert!(kernel_client(&world, to).data.is_empty());
    world.capture.clear();
    let connected = world.client().run(|| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        set_cookie(&socket, &world.cookie(0)).unwrap();
        assert_eq!(socket.send_to_with_flags(LINE, &to.into(), MSG_FASTOPEN).unwrap(), LINE.len());
        let state = cookie_state(&socket).unwrap();
        (answer(socket.into()), state)
    });
    let (answer, state) = connected.unwrap();
    assert_eq!((&answer[..], state), (LINE, CookieState::Unspent));
    let [syn] = &world.capture.syns()[..] else { panic!("{:?}", world.capture.syns()) };
    assert_eq!((syn.fast_open()[0].len(), &syn.data[..]), (8, LINE));
    let status = world.client_status().unwrap();
    assert_eq!((status.sent, status.no_room), (0, 1));
    server.served(2);
}

/// A direct connection skips the cookie check, so it is an ordinary connection.
pub(crate) fn direct_to_the_hidden_port() {
    let world = World::new();
    let server = Server::start(&world);
    for (known, hidden) in (1..).zip(server.hidden.into_iter().flatten()) {
        let answered = world.server().run(|| {
            let mut stream = TcpStream::connect(hidden).unwrap();
            stream.write_all(LINE).unwrap();
            answer(stream)
        });
        assert_eq!(answered.unwrap(), LINE);
        assert_eq!(server.served(known).pop(), Some((Carrier::Tcp, LINE.to_vec())));
    }
}

/// A cookie opens the edge's connections, and not those of another server on the same port of
/// another address.
pub(crate) fn another_server_on_the_port() {
    const STRANGER: &[u8] = b"not the edge\n";
    let world = World::new();
    let public = [world.to(0), world.to(2)];
    let server = Server::with(&world, Options { public, ..Options::default() });
    let stranger = world.server().run(|| TcpListener::bind(world.to(1))).unwrap().unwrap();
    // The listener must get no client.
    SockRef::from(&stranger).set_read_timeout(Some(TIMEOUT)).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = stranger.accept().unwrap();
            let mut line = [0; LINE.len()];
            stream.read_exact(&mut line).unwrap();
            assert_eq!(line, LINE);
            stream.write_all(STRANGER).unwrap();
        });
        let opened = world.open(world.to(1), &world.cookie(0), LINE);
        assert!(!opened.accepted && opened.answer == STRANGER, "{opened:?}");
    });
    assert_eq!(server.served(0), []);
    assert_eq!((world.stats().steered, world.stats().no_listener), (0, 1));
    // No server at all: the kernel refuses, as it would without the program.
    let nobody = world.client().run(|| {
        block_on(async {
            let (stream, _) = connect_fast(world.to(3), None, &world.cookie(2), LINE).unwrap();
            stream.writable().await.and_then(|()| stream.take_error()).unwrap()
        })
    });
    assert_eq!(nobody.unwrap().unwrap().kind(), std::io::ErrorKind::ConnectionRefused);
    assert!(world.open(world.to(0), &world.cookie(0), LINE).accepted);
}

/// `net.ipv4.tcp_fastopen` can turn it on for all listeners (0x400), and for SYNs without a cookie
/// (0x200): this does not affect an edge's listeners (F-SERVER-4).
pub(crate) fn on_for_all_listeners() {
    let world = World::bare();
    world.set(world.server(), "tcp_fastopen", &0x603.to_string()).unwrap();
    world.attach_client();
    world.attach_server();
    let server = Server::start(&world);
    let cookie = Cookie::new(rand::random());
    for (known, number) in [0, 2].into_iter().enumerate() {
        world.capture.clear();
        let opened = world.open(world.to(number), &cookie, LINE);
        assert!(!opened.accepted && opened.answer == LINE, "{opened:?}");
        assert_eq!(server.served(known + 1).pop(), Some((Carrier::Tcp, LINE.to_vec())));
        no_kernel_cookie(&world);
    }
    // Also without the program.
    assert!(world.detach_server());
    world.capture.clear();
    let opened = world.open(world.to(0), &world.cookie(0), LINE);
    ordinary(&world, &server, 2, &opened);
}

/// Returns the states of the connections with port 40000 on a node.
fn states(node: &Node) -> Vec<String> {
    let table = node.run(|| fs::read_to_string("/proc/thread-self/net/tcp")).unwrap().unwrap();
    let lines = table.lines().filter(|line| line.contains(":9C40 "));
    lines.map(|line| line.split_whitespace().nth(3).unwrap().to_owned()).collect()
}

/// A client may reuse a port while the server keeps the last connection in TIME-WAIT: only that
/// state can tell whether the SYN is an old one.
pub(crate) fn in_time_wait() {
    const TIME_WAIT: &str = "06";
    let world = World::new();
    world.set(world.client(), "ip_local_port_range", "40000 40000").unwrap();
    let server = Server::start(&world);
    assert!(world.open(world.to(0), &world.cookie(0), LINE).accepted);
    let begun = Instant::now();
    while !states(world.client()).is_empty() || states(world.server()) != [TIME_WAIT] {
        assert!(begun.elapsed() < TIMEOUT, "{:?}", states(world.server()));
        thread::sleep(Duration::from_millis(2));
    }
    world.capture.clear();
    let opened = world.open(world.to(0), &world.cookie(0), LINE);
    ordinary(&world, &server, 1, &opened);
    assert_eq!(world.capture.syns().len(), 1, "more than one SYN");
    assert_eq!((world.stats().steered, world.stats().no_listener), (1, 1));
}

/// Returns the number of packets that a node has forwarded.
fn forwarded(node: &Node) -> usize {
    let table = node.run(|| fs::read_to_string("/proc/thread-self/net/snmp")).unwrap().unwrap();
    let mut lines = table.lines().filter(|line| line.starts_with("Ip: "));
    let column = lines.next().unwrap().split(' ').position(|name| name == "ForwDatagrams");
    lines.next().unwrap().split(' ').nth(column.unwrap()).unwrap().parse().unwrap()
}

/// Forwarded packets must not reach this machine's listeners: Linux drops a packet that has a
/// socket.
pub(crate) fn forwarded_syn() {
    let world = World::new();
    let _server = Server::start(&world);
    let there = world.to(1).ip().to_string();
    let node = world.server();
    for arguments in [
        &["address", "del", &there, "dev", "w0"][..],
        &["link", "add", "f0", "type", "veth", "peer", "name", "f1"],
        &["link", "set", "f0", "up"],
        &["link", "set", "f1", "up"],
        &["route", "add", &there, "dev", "f0"],
    ] {
        succeeds(node.command("ip").args(arguments));
    }
    world.set(node, "ip_forward", "1").unwrap();
    let cookie = world.cookie(0);
    let to = (there.parse::<std::net::IpAddr>().unwrap(), PORT).into();
    let connected = async { connect_fast(to, None, &cookie, LINE).unwrap() };
    let stream = world.client().run(|| block_on(connected)).unwrap();
    let begun = Instant::now();
    while forwarded(node) == 0 || forwarded(node) != world.capture.syns().len() {
        assert!(begun.elapsed() < TIMEOUT, "{} of {:?}", forwarded(node), world.capture.syns());
        thread::sleep(Duration::from_millis(2));
    }
    assert_eq!((world.stats().steered, world.stats().no_listener), (0, 1));
    drop(stream);
}
