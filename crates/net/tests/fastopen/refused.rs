//! Refused cookies lead to an ordinary handshake, with the data delivered once and no cookie of the
//! kernel.

use headstart_emulation::{Element, Mtu, Protocol};
use headstart_net::Carrier;
use headstart_net::fastopen::{CookieState, ServerOptions, attach_server};
use headstart_proto::cookie::Cookie;

use crate::alter;
use crate::server::{Options, Server};
use crate::support::{key, mint, now, ring};
use crate::world::{LIFE, LINE, Opened, World};

/// Checks that the handshake was ordinary; `known` connections were served before.
pub(crate) fn ordinary(world: &World, server: &Server, known: usize, opened: &Opened) {
    assert!(!opened.accepted, "{opened:?}");
    assert_eq!(opened.answer, LINE);
    assert_eq!(server.served(known + 1).pop(), Some((Carrier::Tcp, LINE.to_vec())));
    no_kernel_cookie(world);
    let syns = world.capture.syns();
    let last = world.capture.syn_acks().pop().unwrap();
    assert_eq!(last.ack, syns[0].seq.wrapping_add(1), "data were acknowledged");
}

/// Checks that the server offered no cookie, and the client sent each of its own once.
pub(crate) fn no_kernel_cookie(world: &World) {
    for answer in world.capture.syn_acks() {
        assert!(answer.fast_open().is_empty(), "{answer:?}");
    }
    let mut cookies = world.capture.cookies();
    let count = cookies.len();
    cookies.sort_unstable();
    cookies.dedup();
    assert_eq!(cookies.len(), count, "a cookie was on the wire twice");
}

/// Tries a cookie that the program refuses, and checks the counter named `why`.
fn refused(cookie: impl Fn(&World) -> Cookie, why: &str) {
    let world = World::new();
    let server = Server::start(&world);
    for number in [0, 2] {
        world.capture.clear();
        let known = world.stats().syns;
        let opened = world.open(world.to(number), &cookie(&world), LINE);
        assert_eq!((opened.taken, opened.cookie), (LINE.len(), CookieState::Spent));
        ordinary(&world, &server, usize::try_from(known).unwrap(), &opened);
    }
    let counted: Vec<_> = world.stats().iter().filter(|(_, count)| *count > 0).collect();
    assert_eq!(counted, [("syns", 2), (why, 2)]);
}

pub(crate) fn replayed() {
    for number in [0, 2] {
        let world = World::new();
        let server = Server::start(&world);
        let cookie = world.cookie(number);
        let from = Some(world.client_ip(number));
        assert!(world.open_from(world.to(number), from, &cookie, LINE).accepted);
        // At another address of the server it is the same cookie.
        for (known, to) in [(1, number), (2, number + 1)] {
            world.capture.clear();
            let again = world.open_from(world.to(to), from, &cookie, LINE);
            ordinary(&world, &server, known, &again);
        }
        assert_eq!((world.stats().steered, world.stats().replayed), (1, 2));
    }
}

pub(crate) fn expired() {
    // For both families, by the address that the cookie is for.
    let world = World::new();
    let server = Server::start(&world);
    for (known, number) in [0, 2].into_iter().enumerate() {
        world.capture.clear();
        let from = world.client_ip(number);
        let cookie = mint(&key(1), now() - 1, from);
        let opened = world.open_from(world.to(number), Some(from), &cookie, LINE);
        ordinary(&world, &server, known, &opened);
    }
    assert_eq!((world.stats().expired, world.stats().steered), (2, 0));
}

pub(crate) fn of_another_client() {
    refused(|_| mint(&key(1), now() + LIFE, [10, 77, 1, 99].into()), "forged");
}

pub(crate) fn garbage() {
    refused(|_| Cookie::new(rand::random()), "forged");
}

pub(crate) fn of_a_retired_key() {
    let world = World::new();
    let server = Server::with(&world, Options { keys: Some(ring(key(2))), ..Options::default() });
    let opened = world.open(world.to(0), &world.cookie(0), LINE);
    ordinary(&world, &server, 0, &opened);
    assert_eq!(world.stats().forged, 1);
}

/// The edge sets a clock that is wrong by two hours, then right.
pub(crate) fn clock_stepped() {
    let world = World::new();
    for clock in [7200, -7200] {
        world.capture.clear();
        let server = Server::with(&world, Options { clock, ..Options::default() });
        let opened = world.open(world.to(0), &world.cookie(0), LINE);
        ordinary(&world, &server, 0, &opened);
    }
    assert_eq!(world.stats().expired, 2);
    let server = Server::start(&world);
    assert!(world.open(world.to(0), &world.cookie(0), LINE).accepted);
    server.served(1);
}

/// On the real kernel too, other forms of the option leave the SYN: the server's kernel sees none,
/// and the client gets none of its cookies.
pub(crate) fn of_another_form() {
    let forms: [alter::Replacement; 5] = [
        |_| vec![34, 2],
        |cookie| [&[34, 10][..], &cookie[..8]].concat(),
        |cookie| [&[34, 17][..], &cookie[..15]].concat(),
        |cookie| [&[34, 20][..], cookie, &[0; 2]].concat(),
        |cookie| [&[254, 20, 0xf9, 0x89][..], cookie].concat(),
    ];
    let world = World::new();
    let server = Server::start(&world);
    for (known, form) in forms.into_iter().enumerate() {
        for number in [0, 2] {
            let known = 2 * known + number / 2;
            world.capture.clear();
            world.fault(Some(Box::new(alter::ReplaceOption(form))), None);
            let opened = world.open(world.to(number), &world.cookie(number), LINE);
            ordinary(&world, &server, known, &opened);
        }
    }
    let counted: Vec<_> = world.stats().iter().filter(|(_, count)| *count > 0).collect();
    assert_eq!(counted, [("syns", 10), ("stripped", 10)]);
}

/// The program does not look behind extension headers.
pub(crate) fn behind_extension_headers() {
    let world = World::new();
    let server = Server::start(&world);
    world.fault(Some(Box::new(alter::ExtensionHeader)), None);
    let opened = world.open(world.to(2), &world.cookie(2), LINE);
    ordinary(&world, &server, 0, &opened);
    assert_eq!(world.stats().iter().map(|(_, count)| count).sum::<u64>(), 0);
}

pub(crate) fn spent_full() {
    let world = World::bare();
    world.attach_client();
    let options = ServerOptions { spent: 1, ..world.server_options() };
    world.server().run(|| attach_server(&options)).unwrap().unwrap();
    let server = Server::start(&world);
    // The same expiry for both, and so the same generation.
    let expiry = now() + LIFE / 2;
    let [first, second] = [(); 2].map(|()| mint(&key(1), expiry, world.client_ip(0)));
    assert!(world.open(world.to(0), &first, LINE).accepted);
    world.capture.clear();
    let opened = world.open(world.to(0), &second, LINE);
    ordinary(&world, &server, 1, &opened);
    assert_eq!((world.stats().steered, world.stats().full), (1, 1));
}

/// The options are in the second fragment, which the program does not inspect. IPv4 only: routers
/// do not fragment IPv6.
pub(crate) fn in_fragments() {
    let world = World::new();
    let server = Server::start(&world);
    // Without don't-fragment.
    world.set(world.client(), "ip_no_pmtu_disc", "1").unwrap();
    // 20 bytes of IP and 24 of TCP: room for the first option only.
    world.fault(Some(Box::new(Mtu::new(44).only(Protocol::Tcp))), None);
    let opened = world.open(world.to(0), &world.cookie(0), LINE);
    assert!(opened.cookie == CookieState::Spent && !opened.accepted, "{opened:?}");
    assert_eq!(opened.answer, LINE);
    assert_eq!(server.served(1), [(Carrier::Tcp, LINE.to_vec())]);
    no_kernel_cookie(&world);
    assert_eq!(world.stats().steered, 0);
    // The reassembled SYN kept its option, and the public listener ignored it.
    assert_eq!(world.server_status().unwrap().spent, 0);
}
