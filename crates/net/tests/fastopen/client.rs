//! The client's programs by themselves.

use headstart_net::fastopen::{
    AttachError, ClientOptions, CookieState, Unavailable, attach_client, connect, cookie_state,
    probe, set_cookie,
};
use socket2::{Domain, Protocol, Socket, Type};

use crate::server::Server;
use crate::world::{LINE, World, block_on, probe_fails};

/// Linux's numbers (asm-generic/errno.h).
const ENOPROTOOPT: Option<i32> = Some(92);
const EOPNOTSUPP: Option<i32> = Some(95);

/// IPPROTO_MPTCP (linux/in.h).
const MPTCP: i32 = 262;

/// An ordinary connect does not spend it: nothing would be saved.
pub(crate) fn cookie_needs_data() {
    let world = World::new();
    let _server = Server::start(&world);
    for number in [0, 2] {
        let (to, cookie) = (world.to(number), world.cookie(number));
        let connected = || {
            let socket = Socket::new(Domain::for_address(to), Type::STREAM, None).unwrap();
            assert_eq!(cookie_state(&socket).unwrap(), CookieState::None);
            set_cookie(&socket, &cookie).unwrap();
            socket.connect(&to.into()).unwrap();
            cookie_state(&socket).unwrap()
        };
        assert_eq!(world.client().run(connected).unwrap(), CookieState::Unspent);
    }
    assert!(world.seen.cookies().is_empty());
    let status = world.client_status().unwrap();
    assert_eq!((status.sent, status.no_data), (0, 2));
}

/// A multipath SYN is sent by an inner socket, which would not know of the cookie.
pub(crate) fn not_plain_tcp() {
    let world = World::new();
    let refused = |socket: Socket| {
        let error = set_cookie(&socket, &world.cookie(0)).unwrap_err();
        assert_eq!(error.raw_os_error(), ENOPROTOOPT);
    };
    world.client().run(|| refused(Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap())).unwrap();
    let multipath = || Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::from(MPTCP)));
    match world.client().run(multipath).unwrap() {
        Ok(socket) => refused(socket),
        Err(error) => println!("  this kernel has no MPTCP: {error}"),
    }
}

pub(crate) fn detached() {
    let world = World::new();
    let to = world.to(0);
    world.client().run(probe).unwrap().unwrap();
    assert!(world.detach_client());
    assert!(!world.detach_client());
    assert_eq!(world.client_status(), None);
    let error = world.client().run(probe_fails).unwrap();
    assert!(matches!(error, Unavailable::NotAttached), "{error}");
    let cookie = world.cookie(0);
    let connected = || block_on(async { connect(to, None, &cookie, LINE).map(drop) });
    let error = world.client().run(connected).unwrap().unwrap_err();
    assert_eq!(error.raw_os_error(), ENOPROTOOPT);
    assert!(world.seen.all().is_empty(), "nothing was sent");
    world.attach_client();
    world.client().run(probe).unwrap().unwrap();
}

pub(crate) fn switched_off() {
    let world = World::new();
    let to = world.to(0);
    world.set(world.client(), "tcp_fastopen", "2").unwrap();
    let error = world.client().run(probe).unwrap().unwrap_err();
    assert!(matches!(error, Unavailable::TurnedOff(1)), "{error}");
    assert!(error.hint().contains("tcp_fastopen="), "{}", error.hint());
    let cookie = world.cookie(0);
    let connected = || block_on(async { connect(to, None, &cookie, LINE).map(drop) });
    let error = world.client().run(connected).unwrap().unwrap_err();
    assert_eq!(error.raw_os_error(), EOPNOTSUPP);
    let options = ClientOptions { dir: world.dir().to_owned(), cgroup: None };
    let error = world.client().run(|| attach_client(&options)).unwrap().unwrap_err();
    assert!(matches!(error, AttachError::Unavailable(Unavailable::TurnedOff(1))), "{error}");
}
