//! Ends in order, half-closes and resets get through to the other side, as without agent and edge.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::Receiver;

use headstart_testkit::hello::CraftedHello;

use crate::arms::{Arms, PLAIN, TURBO};
use crate::client::{on, socks};
use crate::daemon::Daemon;
use crate::net::{Net, PATIENCE, ms};
use crate::nginx::content;
use crate::origin::{self, read_to_end};

const HOST: &str = "www.four.test";

/// Three datagrams of the server's flight.
const FLIGHT: usize = 3_000;

/// Bytes that follow in either direction.
const AFTER: usize = 20_000;

type End = (Vec<u8>, Result<(), ErrorKind>);

/// Plays `client` by both arms against an origin that does `script` behind a first flight each way;
/// gives what each of them says to `check`, the client's first.
fn play(
    client: fn(TcpStream) -> Option<End>,
    script: fn(TcpStream) -> Option<End>,
    check: impl Fn(Option<End>, Option<End>),
) {
    let net = Net::new(ms(60));
    let seen = serve(&net, script);
    let _edge = Daemon::edge(&net, 0, &["--origin", "127.0.0.1:8443"]);
    let arms = Arms::start(&net, &[]);
    // The first with TurboTLS finds the daemons cold, and may take their slowness for blocked UDP.
    for port in [PLAIN, TURBO, TURBO, TURBO] {
        let client = on(net.client(), || {
            let mut tcp = socks(port, HOST, 443).unwrap().tcp;
            tcp.write_all(&client_hello()).unwrap();
            let mut flight = vec![0; FLIGHT];
            tcp.read_exact(&mut flight).unwrap();
            assert!(flight == content(FLIGHT), "other bytes in the flight");
            client(tcp)
        });
        check(client, seen.recv_timeout(PATIENCE).unwrap());
    }
    assert!(arms.turbo.saved() >= 1, "no connection used UDP");
}

/// Returns another one at each call: an edge runs each once.
fn client_hello() -> Vec<u8> {
    CraftedHello { random: rand::random(), ..CraftedHello::default() }.name(HOST).stream()
}

fn serve(net: &Net, script: fn(TcpStream) -> Option<End>) -> Receiver<Option<End>> {
    origin::serve(net.server(), "127.0.0.1:8443".parse().unwrap(), move |mut tcp| {
        let mut hello = vec![0; 5];
        tcp.read_exact(&mut hello).unwrap();
        let rest = u16::from_be_bytes([hello[3], hello[4]]);
        tcp.read_exact(&mut vec![0; rest.into()]).unwrap();
        tcp.write_all(&content(FLIGHT)).unwrap();
        script(tcp)
    })
}

pub(crate) fn by_the_origin() {
    play(
        |mut tcp: TcpStream| {
            tcp.write_all(b"again").unwrap();
            Some(read_to_end(&mut tcp))
        },
        |mut tcp: TcpStream| {
            tcp.read_exact(&mut [0; 5]).unwrap();
            origin::reset(tcp);
            None
        },
        |client, _| assert_eq!(client.unwrap(), (vec![], Err(ErrorKind::ConnectionReset))),
    );
}

pub(crate) fn by_the_client() {
    play(
        |mut tcp: TcpStream| {
            tcp.write_all(b"again").unwrap();
            tcp.read_exact(&mut [0; 5]).unwrap();
            origin::reset(tcp);
            None
        },
        |mut tcp: TcpStream| {
            tcp.read_exact(&mut [0; 5]).unwrap();
            tcp.write_all(b"reset").unwrap();
            Some(read_to_end(&mut tcp))
        },
        |_, origin| assert_eq!(origin.unwrap(), (vec![], Err(ErrorKind::ConnectionReset))),
    );
}

pub(crate) fn half_close() {
    play(say_then_hear, hear_then_say, both_have_all);
    play(hear_then_say, say_then_hear, both_have_all);
}

fn say_then_hear(mut tcp: TcpStream) -> Option<End> {
    tcp.write_all(&content(AFTER)).unwrap();
    tcp.shutdown(Shutdown::Write).unwrap();
    Some(read_to_end(&mut tcp))
}

fn hear_then_say(mut tcp: TcpStream) -> Option<End> {
    let received = read_to_end(&mut tcp);
    tcp.write_all(&content(AFTER)).unwrap();
    Some(received)
}

fn both_have_all(client: Option<End>, origin: Option<End>) {
    for (side, end) in [("client", client), ("origin", origin)] {
        let (bytes, end) = end.unwrap();
        assert_eq!(end, Ok(()), "{side}");
        assert!(
            bytes == content(AFTER),
            "{side}: {} bytes instead of {AFTER}, or others",
            bytes.len()
        );
    }
}
