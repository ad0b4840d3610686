//! Packets lost, duplicated and changed on the path, and missing parts of the server.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use headstart_emulation::{DropSynData, Duplicate, Loss, StripFastOpen};
use headstart_net::Carrier;
use headstart_net::fastopen::{
    AttachError, CookieState, HiddenListener, Unavailable, attach_server,
};

use crate::boxes::{Gather, HoldUp};
use crate::refused::{no_kernel_cookie, ordinary};
use crate::server::{Hidden, Options, Server};
use crate::world::{LINE, PORT, TIMEOUT, World, block_on};

/// The kernel repeats the SYN after a second, without data and without the cookie.
pub(crate) fn syn_lost() {
    let world = World::new();
    let server = Server::start(&world);
    world.fault(Some(Box::new(Loss::exact([1]))), None);
    let opened = world.open(world.to(0), &world.cookie(0), LINE);
    assert_eq!(opened.cookie, CookieState::Spent);
    ordinary(&world, &server, 0, &opened);
    let [first, second] = &world.capture.syns()[..] else { panic!("{:?}", world.capture.syns()) };
    assert_eq!((first.fast_open().len(), &first.data[..]), (1, LINE));
    assert_eq!((second.fast_open().len(), second.data.len()), (0, 0));
    assert_eq!((world.stats().syns, world.stats().steered), (1, 0));
}

/// The server has the data already, and acknowledges it again.
pub(crate) fn syn_ack_lost() {
    let world = World::new();
    let server = Server::start(&world);
    world.fault(None, Some(Box::new(Loss::exact([1]))));
    let opened = world.open(world.to(0), &world.cookie(0), LINE);
    assert!(opened.accepted && opened.answer == LINE, "{opened:?}");
    assert_eq!(server.served(1), [(Carrier::Fop, LINE.to_vec())]);
    assert!(world.capture.syn_acks().len() >= 2);
    no_kernel_cookie(&world);
}

/// The second SYN's cookie was removed: it is an ordinary SYN for a connection that exists.
pub(crate) fn syn_doubled() {
    let world = World::new();
    let server = Server::start(&world);
    world.fault(Some(Box::new(Duplicate::exact([1]))), None);
    let opened = world.open(world.to(0), &world.cookie(0), LINE);
    assert!(opened.accepted && opened.answer == LINE, "{opened:?}");
    assert_eq!(server.served(1), [(Carrier::Fop, LINE.to_vec())]);
    let stats = world.stats();
    assert_eq!((stats.syns, stats.steered, stats.replayed), (2, 1, 1));
}

/// A middlebox removes the option and leaves the data: they are ignored without it.
pub(crate) fn option_stripped() {
    let world = World::new();
    let server = Server::start(&world);
    world.fault(Some(Box::new(StripFastOpen)), None);
    let opened = world.open(world.to(0), &world.cookie(0), LINE);
    ordinary(&world, &server, 0, &opened);
    let counted: Vec<_> = world.stats().iter().filter(|(_, count)| *count > 0).collect();
    assert_eq!(counted, [("syns", 1)]);
}

pub(crate) fn syn_data_dropped() {
    let world = World::new();
    let server = Server::start(&world);
    world.fault(Some(Box::new(DropSynData)), None);
    let opened = world.open(world.to(0), &world.cookie(0), LINE);
    ordinary(&world, &server, 0, &opened);
    assert_eq!(world.capture.cookies().len(), 1);
}

pub(crate) fn detached_in_mid_flight() {
    let world = World::new();
    let server = Server::start(&world);
    let (go_on, told) = mpsc::channel();
    world.fault(Some(Box::new(HoldUp(Some(told)))), None);
    let cookie = world.cookie(0);
    let opened = thread::scope(|scope| {
        let client = scope.spawn(|| world.open(world.to(0), &cookie, LINE));
        let begun = Instant::now();
        while world.capture.syns().is_empty() {
            assert!(begun.elapsed() < TIMEOUT);
            thread::sleep(Duration::from_millis(1));
        }
        assert!(world.detach_server());
        go_on.send(()).unwrap();
        client.join().unwrap()
    });
    ordinary(&world, &server, 0, &opened);
}

/// The cookie counts as used: it was sent.
pub(crate) fn no_hidden_listener() {
    let world = World::new();
    let server = Server::with(&world, Options { hidden: Hidden::None, ..Options::default() });
    for known in [0, 1] {
        world.capture.clear();
        let opened = world.open(world.to(0), &world.cookie(0), LINE);
        ordinary(&world, &server, known, &opened);
    }
    assert_eq!((world.stats().no_listener, world.stats().steered), (2, 0));
    assert_eq!(world.server_status().unwrap().spent, 2);
}

/// Any local user can listen on the port once the edge is gone, however it ended.
pub(crate) fn impostor_on_the_hidden_port() {
    let world = World::new();
    let server = Server::with(&world, Options { hidden: Hidden::Ends, ..Options::default() });
    let port = server.hidden[0].unwrap();
    let impostor = world.server().run(|| TcpListener::bind(port)).unwrap().unwrap();
    impostor.set_nonblocking(true).unwrap();
    let opened = world.open(world.to(0), &world.cookie(0), LINE);
    ordinary(&world, &server, 0, &opened);
    assert_eq!(impostor.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(world.stats().no_listener, 1);
}

/// There is room for one unacknowledged connection: the others do their handshake first, with the
/// same listener.
pub(crate) fn queue_full() {
    const CLIENTS: usize = 4;
    let world = World::new();
    let server = Server::with(&world, Options { pending: 1, ..Options::default() });
    // All arrive before the first is acknowledged.
    world.fault(Some(Box::new(Gather::new(CLIENTS))), None);
    let cookies: Vec<_> = (0..CLIENTS).map(|_| world.cookie(0)).collect();
    let near = &world;
    let opened: Vec<_> = thread::scope(|scope| {
        let clients: Vec<_> = cookies
            .iter()
            .map(|cookie| scope.spawn(move || near.open(near.to(0), cookie, LINE)))
            .collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    assert!(opened.iter().all(|opened| opened.answer == LINE), "{opened:?}");
    let accepted = opened.iter().filter(|opened| opened.accepted).count();
    assert!((1..CLIENTS).contains(&accepted), "{accepted} opened by their SYN");
    assert_eq!(server.served(CLIENTS), vec![(Carrier::Fop, LINE.to_vec()); CLIENTS]);
    assert_eq!(world.stats().steered, 4);
    no_kernel_cookie(&world);
}

/// Connections of the hidden listener would be reset from then on, so it gets none.
pub(crate) fn syn_cookies_forced_later() {
    let world = World::new();
    let server = Server::start(&world);
    world.set(world.server(), "tcp_syncookies", "2").unwrap();
    server.refresh(&world);
    let opened = world.open(world.to(0), &world.cookie(0), LINE);
    ordinary(&world, &server, 0, &opened);
    world.set(world.server(), "tcp_syncookies", "1").unwrap();
    server.refresh(&world);
    assert!(world.open(world.to(0), &world.cookie(0), LINE).accepted);
    server.served(2);
    assert_eq!((world.stats().no_listener, world.stats().steered), (1, 1));
}

/// Nothing is attached, and no listener hidden, where their connections would be reset.
pub(crate) fn syn_cookies_forced() {
    let world = World::bare();
    world.set(world.server(), "tcp_syncookies", "2").unwrap();
    let attached = world.server().run(|| attach_server(&world.server_options())).unwrap();
    let error = attached.unwrap_err();
    assert!(matches!(error, AttachError::Unavailable(Unavailable::SynCookies)), "{error}");
    assert!(error.hint().contains("tcp_syncookies=1"), "{}", error.hint());
    let bound = async { HiddenListener::bind(([0; 4], PORT).into()).map(drop) };
    let error = world.server().run(|| block_on(bound)).unwrap().unwrap_err();
    assert!(matches!(error, Unavailable::SynCookies), "{error}");
}
