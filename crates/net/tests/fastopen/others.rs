//! Connections without a private cookie, and what the kernel's own Fast Open is told: nothing.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use headstart_net::OpenedBy;
use socket2::{Domain, Socket, Type};

use crate::packet::Segment;
use crate::refused::{no_kernel_cookie, ordinary};
use crate::server::{Options, Server};
use crate::world::{LINE, PATIENCE, World};

/// Sends data with the SYN, or asks for a cookie (include/linux/socket.h).
const MSG_FASTOPEN: i32 = 0x2000_0000;

/// A server that leaves the program's maps alone.
fn without_maps(world: &World) -> Server {
    Server::with(world, Options { keys: None, hidden: false, ..Options::default() })
}

fn answer(mut stream: TcpStream) -> Vec<u8> {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    answer
}

/// An ordinary client.
fn connect(world: &World, to: SocketAddr) -> Vec<u8> {
    let connected = || {
        let mut stream = TcpStream::connect_timeout(&to, PATIENCE).unwrap();
        stream.write_all(LINE).unwrap();
        answer(stream)
    };
    world.client().run(connected).unwrap()
}

/// A client of the kernel's Fast Open, and the SYN that it sent.
fn kernel_client(world: &World, to: SocketAddr) -> Segment {
    world.seen.clear();
    let connected = || {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, None).unwrap();
        let sent = socket.send_to_with_flags(LINE, &to.into(), MSG_FASTOPEN).unwrap();
        assert_eq!(sent, LINE.len());
        answer(socket.into())
    };
    assert_eq!(world.client().run(connected).unwrap(), LINE);
    let [syn] = &world.seen.syns()[..] else { panic!("{:?}", world.seen.syns()) };
    assert_eq!(syn.fast_open().len(), 1, "{syn:?}");
    syn.clone()
}

pub(crate) fn ordinary_connections() {
    let world = World::new();
    let server = Server::start(&world);
    for (number, known) in [(0, 1), (2, 2)] {
        assert_eq!(connect(&world, world.to(number)), LINE);
        assert_eq!(server.served(known).pop(), Some((OpenedBy::Plain, LINE.to_vec())));
    }
    assert!(world.seen.cookies().is_empty());
    let counted: Vec<_> = world.stats().iter().filter(|(_, count)| *count > 0).collect();
    assert_eq!(counted, [("syns", 2)]);
    assert_eq!(world.client_status().unwrap().sent, 0);
}

/// It asks, in one form or the other, and is never given a cookie.
fn asks_in_vain(world: &World, server: &Server) {
    for known in 1..=3 {
        let syn = kernel_client(world, world.to(0));
        assert!(syn.data.is_empty(), "{syn:?}");
        assert_eq!(server.served(known).pop(), Some((OpenedBy::Plain, LINE.to_vec())));
        assert!(world.seen.syn_acks().iter().all(|answer| answer.fast_open().is_empty()));
    }
}

pub(crate) fn kernel_fast_open() {
    let world = World::new();
    let server = Server::start(&world);
    asks_in_vain(&world, &server);
    assert_eq!((world.stats().syns, world.stats().stripped), (3, 3));
}

pub(crate) fn detached_kernel_fast_open() {
    let world = World::bare();
    let server = without_maps(&world);
    asks_in_vain(&world, &server);
}

pub(crate) fn detached_private_cookie() {
    let world = World::bare();
    world.attach_client();
    let server = without_maps(&world);
    for (known, number) in [(0, 0), (1, 2)] {
        world.seen.clear();
        let opened = world.open(world.to(number), &world.cookie(number), LINE);
        ordinary(&world, &server, known, &opened);
    }
    no_kernel_cookie(&world);
}

/// A server with the kernel's Fast Open answers an unknown cookie with one of its own, which would be the same
/// for every connection of the client.
pub(crate) fn cookie_in_a_syn_ack() {
    let world = World::bare();
    world.attach_client();
    // All listeners, asked or not.
    world.set(world.server(), "tcp_fastopen", "1027").unwrap();
    let server = without_maps(&world);
    for known in [1, 2] {
        world.seen.clear();
        let cookie = world.cookie(0);
        let opened = world.open(world.to(0), &cookie, LINE);
        assert!(!opened.accepted && opened.answer == LINE, "{opened:?}");
        assert_eq!(server.served(known).pop(), Some((OpenedBy::Plain, LINE.to_vec())));
        let [syn] = &world.seen.syns()[..] else { panic!("{:?}", world.seen.syns()) };
        assert_eq!(syn.fast_open(), [&cookie.as_bytes()[..]]);
        let offered = &world.seen.syn_acks()[0];
        assert_eq!(offered.fast_open().len(), 1, "the server offers one: {offered:?}");
    }
    // The kernel has not kept it: it asks anew.
    let syn = kernel_client(&world, world.to(0));
    assert_eq!((syn.fast_open(), syn.data.len()), (vec![&[0_u8; 0][..]], 0));
}

/// Nobody checked a cookie there, so it is an ordinary connection.
pub(crate) fn direct_to_the_hidden_port() {
    let world = World::new();
    let server = Server::start(&world);
    for (known, hidden) in (1..).zip(server.hidden.into_iter().flatten()) {
        let connected = || {
            let mut stream = TcpStream::connect(hidden).unwrap();
            stream.write_all(LINE).unwrap();
            answer(stream)
        };
        assert_eq!(world.server().run(connected).unwrap(), LINE);
        assert_eq!(server.served(known).pop(), Some((OpenedBy::Plain, LINE.to_vec())));
    }
}
