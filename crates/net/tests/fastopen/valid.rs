//! Valid cookies.

use headstart_net::Carrier;
use headstart_net::fastopen::{CookieState, SYN_DATA_MAX, ServerOptions, attach_server, probe};

use crate::server::Server;
use crate::support::{key, mint, now};
use crate::world::{LIFE, LINE, World, block_on, open};

/// Checks the first packets of an opening that saved a round trip.
fn saved(world: &World, cookie: &[u8; 16], data: &[u8]) {
    let [syn] = &world.capture.syns()[..] else { panic!("{:?}", world.capture.all()) };
    assert_eq!((syn.fast_open(), &syn.data[..]), (vec![&cookie[..]], data));
    let [answer] = &world.capture.syn_acks()[..] else { panic!("{:?}", world.capture.all()) };
    let length = u32::try_from(data.len()).unwrap();
    assert_eq!(answer.ack, syn.seq.wrapping_add(1 + length), "the data were not acknowledged");
    assert!(answer.fast_open().is_empty(), "{answer:?}");
}

fn opens(client: usize, server: usize) {
    let world = World::new();
    world.client().run(probe).unwrap().unwrap();
    let running = Server::start(&world);
    let cookie = world.cookie(client);
    let opened = world.open_from(world.to(server), Some(world.client_ip(client)), &cookie, LINE);
    assert_eq!((opened.taken, opened.accepted), (LINE.len(), true));
    assert_eq!((opened.cookie, &opened.answer[..]), (CookieState::Spent, LINE));
    assert_eq!(running.served(1), [(Carrier::Fop, LINE.to_vec())]);
    saved(&world, cookie.as_bytes(), LINE);
    let stats = world.stats();
    assert_eq!((stats.syns, stats.steered), (1, 1), "{stats:?}");
    assert_eq!(world.client_status().unwrap().sent, 1);
    assert_eq!(world.server_status().unwrap().spent, 1);
    // The next one has another cookie, and nothing in common with this.
    world.capture.clear();
    let next = world.cookie(client);
    let opened = world.open_from(world.to(server), Some(world.client_ip(client)), &next, LINE);
    assert!(opened.accepted);
    assert_eq!(world.capture.cookies(), [next.as_bytes().to_vec()]);
    assert_ne!(cookie, next);
}

pub(crate) fn ipv4() {
    opens(0, 0);
}

pub(crate) fn ipv6() {
    opens(2, 2);
}

/// A cookie is bound to the client, and to no server address.
pub(crate) fn another_server_address() {
    opens(0, 1);
    opens(3, 3);
}

/// Loopback leaves checksums to hardware that does not exist.
pub(crate) fn over_loopback() {
    let world = World::bare();
    world.set(world.server(), "tcp_fastopen", "3").unwrap();
    world.attach_client();
    let options = ServerOptions { interfaces: vec!["lo".into()], ..world.server_options() };
    world.server().run(|| attach_server(&options)).unwrap().unwrap();
    let server = Server::start(&world);
    let targets = ["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()];
    for (number, to) in (1..).zip(targets) {
        let cookie = mint(&key(1), now() + LIFE, to);
        let to = (to, crate::world::PORT).into();
        let opened = world.server().run(|| block_on(open(to, None, &cookie, LINE))).unwrap();
        assert!(opened.accepted && opened.answer == LINE, "{opened:?}");
        assert_eq!(server.served(number).pop(), Some((Carrier::Fop, LINE.to_vec())));
    }
}

// F-SYN-1
pub(crate) fn more_than_a_syn_holds() {
    let world = World::new();
    let server = Server::start(&world);
    let mut data = vec![b'x'; 4000];
    data.push(b'\n');
    for number in [0, 2] {
        world.capture.clear();
        let cookie = world.cookie(number);
        let opened = world.open(world.to(number), &cookie, &data);
        assert_eq!((opened.taken, opened.accepted), (SYN_DATA_MAX, true));
        let [syn] = &world.capture.syns()[..] else { panic!("{:?}", world.capture.syns()) };
        assert_eq!(syn.data.len(), SYN_DATA_MAX);
    }
    let whole = (Carrier::Fop, data);
    assert_eq!(server.served(2), [whole.clone(), whole]);
}
