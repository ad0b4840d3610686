//! The client's programs alone.

use std::io;
use std::path::Path;

use headstart_net::fastopen::{
    AttachError, ClientOptions, CookieState, Unavailable, attach_client, client_status, connect,
    cookie_state, detach_client, probe, set_cookie,
};
use socket2::{Domain, Protocol, Socket, Type};

use crate::server::Server;
use crate::support::{bpf, group};
use crate::world::{LINE, World, block_on, probe_fails};

/// Linux's numbers (asm-generic/errno.h).
const ENOPROTOOPT: Option<i32> = Some(92);
const EOPNOTSUPP: Option<i32> = Some(95);

/// IPPROTO_MPTCP (linux/in.h).
const MPTCP: i32 = 262;

/// An ordinary connect does not spend the cookie: it would save nothing.
pub(crate) fn cookie_needs_data() {
    let world = World::new();
    let _server = Server::start(&world);
    for number in [0, 2] {
        let (to, cookie) = (world.to(number), world.cookie(number));
        let state = world.client().run(|| {
            let socket = Socket::new(Domain::for_address(to), Type::STREAM, None).unwrap();
            assert_eq!(cookie_state(&socket).unwrap(), CookieState::None);
            set_cookie(&socket, &cookie).unwrap();
            socket.connect(&to.into()).unwrap();
            cookie_state(&socket).unwrap()
        });
        assert_eq!(state.unwrap(), CookieState::Unspent);
    }
    assert!(world.capture.cookies().is_empty());
    let status = world.client_status().unwrap();
    assert_eq!((status.sent, status.no_data), (0, 2));
}

/// An inner socket sends a multipath SYN, and would not know of the cookie.
pub(crate) fn not_plain_tcp() {
    let world = World::new();
    for (kind, protocol) in [(Type::DGRAM, None), (Type::STREAM, Some(Protocol::from(MPTCP)))] {
        let socket = world.client().run(|| Socket::new(Domain::IPV4, kind, protocol)).unwrap();
        match socket {
            Ok(socket) => {
                let error = set_cookie(&socket, &world.cookie(0)).unwrap_err();
                assert_eq!(error.raw_os_error(), ENOPROTOOPT);
            }
            Err(error) => {
                assert!(protocol.is_some(), "{error}");
                println!("  this kernel has no MPTCP: {error}");
            }
        }
    }
}

/// Programs see only the first page of a longer option. Before Linux 6.5 the kernel refuses it
/// unless they report that they did not change it; this affects all processes of the cgroup.
pub(crate) fn long_options_of_others() {
    let world = World::bare();
    world.attach_client();
    let done = world.client().run(|| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let mut name = b"reno".to_vec();
        for length in [4096, 4097, 8192, 70_000] {
            name.resize(length, 0);
            socket.set_tcp_congestion(&name).unwrap();
            assert!(socket.tcp_congestion().unwrap().starts_with(b"reno\0"));
        }
    });
    done.unwrap();
}

/// One program is attached to the whole machine by its owner, and one to a group by an experiment:
/// the inner one takes the cookie.
pub(crate) fn attached_twice() {
    let world = World::new();
    let cgroup = group().parent().map(Path::to_owned);
    let outer = ClientOptions { dir: bpf().join("outer"), cgroup };
    world.client().run(|| attach_client(&outer)).unwrap().unwrap();
    let server = Server::start(&world);
    let opened = world.open(world.to(0), &world.cookie(0), LINE);
    assert!(opened.accepted && opened.answer == LINE, "{opened:?}");
    assert_eq!(opened.cookie, CookieState::Spent);
    server.served(1);
    assert_eq!(world.client_status().unwrap().sent, 1);
    assert!(world.detach_client());
    // The other program has it now.
    assert!(world.open(world.to(0), &world.cookie(0), LINE).accepted);
    assert_eq!(client_status(&outer.dir).unwrap().unwrap().sent, 1);
    assert!(detach_client(&outer.dir).unwrap());
}

/// Tries to connect, and returns the error.
fn connect_error(world: &World) -> io::Error {
    let (to, cookie) = (world.to(0), world.cookie(0));
    let connected =
        world.client().run(|| block_on(async { connect(to, None, &cookie, LINE).map(drop) }));
    connected.unwrap().unwrap_err()
}

pub(crate) fn detached() {
    let world = World::new();
    world.client().run(probe).unwrap().unwrap();
    assert!(world.detach_client());
    assert!(!world.detach_client());
    assert_eq!(world.client_status(), None);
    let error = world.client().run(probe_fails).unwrap();
    assert!(matches!(error, Unavailable::NotAttached), "{error}");
    let error = connect_error(&world);
    assert_eq!(error.raw_os_error(), ENOPROTOOPT);
    assert!(world.capture.all().is_empty(), "a packet was sent");
    // Each detach takes effect at once, not with the kernel's last reference, which may take a
    // while.
    for _ in 0..20 {
        world.attach_client();
        world.client().run(probe).unwrap().unwrap();
        assert!(world.detach_client());
        let error = world.client().run(probe).unwrap().unwrap_err();
        assert!(matches!(error, Unavailable::NotAttached), "{error}");
    }
}

pub(crate) fn switched_off() {
    let world = World::new();
    world.set(world.client(), "tcp_fastopen", "2").unwrap();
    let error = world.client().run(probe).unwrap().unwrap_err();
    assert!(matches!(error, Unavailable::TurnedOff(1)), "{error}");
    assert!(error.hint().contains("tcp_fastopen="), "{}", error.hint());
    let error = connect_error(&world);
    assert_eq!(error.raw_os_error(), EOPNOTSUPP);
    let options = world.client_options();
    let error = world.client().run(|| attach_client(&options)).unwrap().unwrap_err();
    assert!(matches!(error, AttachError::Unavailable(Unavailable::TurnedOff(1))), "{error}");
}
