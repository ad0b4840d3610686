//! Spare connections on real sockets: which openings take one, and what a dead one costs.
//!
//! The clock stands still unless a test moves it: no spare is too old, and none silent for too
//! long.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::mpsc::Sender;
use std::time::Duration;

use headstart_net::dns::{DnsConfig, Resolver};
use headstart_net::{
    Carrier, ClientStream, Connector, ConnectorConfig, Context, OpeningEvent, Target,
};
use headstart_testkit::hello::CraftedHello;
use socket2::{SockFilter, SockRef};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::advance;

use crate::time::stop_clock;

const FLIGHT: &[u8] = b"the server's flight";
/// Number of early_data (RFC 8446 section 4.2).
const EARLY_DATA: u16 = 42;

/// A client that holds spares, and its server.
struct World {
    connector: Connector,
    address: SocketAddr,
    /// Connections in the order of their SYNs.
    connections: UnboundedReceiver<TcpStream>,
    accepting: JoinHandle<()>,
    keeper: JoinHandle<()>,
    _clock: Sender<()>,
}

impl World {
    async fn new(spares: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, connections) = unbounded_channel();
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let _ = sender.send(stream);
            }
        });
        let connector = Connector::new(config(address, spares));
        let keeping = connector.clone();
        let keeper = tokio::spawn(async move {
            keeping.keep_spares().await;
        });
        Self { connector, address, connections, accepting, keeper, _clock: stop_clock() }
    }

    /// Creates a world in which one spare is open; returns the server's end.
    async fn with_spare() -> (Self, TcpStream) {
        let mut world = Self::new(8).await;
        for _ in 0..2 {
            let target = world.target();
            assert_eq!(world.exchange(&target).await, Carrier::Tcp);
        }
        let spare = world.next().await;
        settle().await;
        (world, spare)
    }

    fn target(&self) -> Target {
        let target = Target::new(self.address.ip().to_string(), self.address.port());
        Target { context: Context::user(1000), ..target }
    }

    /// Begins an opening with a ClientHello.
    async fn open(&self, target: &Target, hello: &[u8]) -> ClientStream {
        let mut stream = self.connector.connect(target).unwrap();
        stream.write_all(hello).await.unwrap();
        stream
    }

    async fn next(&mut self) -> TcpStream {
        self.connections.recv().await.unwrap()
    }

    /// Returns true if no connection waits.
    async fn is_unasked(&mut self) -> bool {
        settle().await;
        self.connections.is_empty()
    }

    /// Opens over the next connection that the server accepts, a second after the last.
    async fn exchange(&mut self, target: &Target) -> Carrier {
        let hello = hello();
        let stream = self.open(target, &hello).await;
        let serving = async { serve(self.next().await, &hello).await };
        let (carrier, ()) = tokio::join!(answered(stream), serving);
        advance(Duration::from_secs(1)).await;
        carrier
    }
}

fn config(address: SocketAddr, spares: usize) -> ConnectorConfig {
    let dns = DnsConfig { name_servers: vec![address], ..DnsConfig::default() };
    ConnectorConfig { spares, ..ConnectorConfig::new(Resolver::new(&dns).unwrap()) }
}

fn hello() -> Vec<u8> {
    CraftedHello { random: rand::random(), ..CraftedHello::sized(300) }.stream()
}

/// Runs a case with a clock of its own.
fn run(case: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(case);
}

/// Lets all tasks and the loopback do what they can while the clock stands still.
async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Answers a ClientHello, which must be all that comes.
async fn serve(mut stream: TcpStream, hello: &[u8]) {
    let mut read = vec![0; hello.len()];
    stream.read_exact(&mut read).await.unwrap();
    assert_eq!(read, hello);
    stream.write_all(FLIGHT).await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0, "bytes behind the ClientHello");
}

/// Reads the flight to its end.
async fn answered(mut stream: ClientStream) -> Carrier {
    let mut read = Vec::new();
    stream.read_to_end(&mut read).await.unwrap();
    assert_eq!(read, FLIGHT);
    stream.report().unwrap().opened_by
}

/// Has the server's kernel lose all that comes: nothing is acknowledged.
fn lose_all(stream: &TcpStream) {
    // `ret 0` of classic BPF.
    SockRef::from(stream).attach_filter(&[SockFilter::new(6, 0, 0, 0)]).unwrap();
}

/// Checks that a hello goes over a fresh connection and not over the spare.
async fn opens_afresh(world: &mut World, stream: ClientStream, hello: &[u8]) {
    let serving = async { serve(world.next().await, hello).await };
    let (carrier, ()) = tokio::join!(answered(stream), serving);
    assert_eq!(carrier, Carrier::Tcp);
}

#[tokio::test]
async fn a_spare_carries_the_next_opening_without_a_syn() {
    let (mut world, spare) = World::with_spare().await;
    let hello = hello();
    let mut stream = world.open(&world.target(), &hello).await;
    // The ClientHello is with the server before anything else has happened.
    serve_first(spare, &hello, &mut stream).await;
    let report = stream.report().unwrap();
    assert_eq!(report.opened_by, Carrier::Spare);
    assert_eq!(report.address, Some(world.address));
    let is_syn = |event: &OpeningEvent| matches!(event, OpeningEvent::Syn(_));
    assert!(!report.timeline.iter().any(|entry| is_syn(&entry.event)), "{:?}", report.timeline);
    // The one that was used is replaced.
    world.next().await;
    assert!(world.is_unasked().await);
}

/// Serves both directions on after the first flight.
async fn serve_first(mut spare: TcpStream, hello: &[u8], stream: &mut ClientStream) {
    let mut read = vec![0; hello.len()];
    spare.read_exact(&mut read).await.unwrap();
    assert_eq!(read, hello);
    spare.write_all(FLIGHT).await.unwrap();
    let mut flight = vec![0; FLIGHT.len()];
    stream.read_exact(&mut flight).await.unwrap();
    assert_eq!(flight, FLIGHT);
    stream.write_all(b"Finished").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut rest = Vec::new();
    spare.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"Finished");
}

#[test]
fn a_spare_closed_before_is_not_used() {
    for resets in [false, true] {
        run(async {
            let (mut world, spare) = World::with_spare().await;
            if resets {
                spare.set_zero_linger().unwrap();
            }
            drop(spare);
            settle().await;
            let hello = hello();
            let stream = world.open(&world.target(), &hello).await;
            opens_afresh(&mut world, stream, &hello).await;
        });
    }
}

#[tokio::test]
async fn a_spare_on_which_the_server_speaks_is_not_used() {
    let (mut world, mut spare) = World::with_spare().await;
    spare.write_all(b"220 ready").await.unwrap();
    settle().await;
    assert!(world.is_unasked().await, "not renewed");
    let hello = hello();
    let stream = world.open(&world.target(), &hello).await;
    opens_afresh(&mut world, stream, &hello).await;
}

#[test]
fn a_hello_that_no_byte_arrived_of_is_sent_again() {
    for resets in [false, true] {
        run(async {
            let (mut world, spare) = World::with_spare().await;
            lose_all(&spare);
            let hello = hello();
            let mut stream = world.open(&world.target(), &hello).await;
            assert!(world.is_unasked().await, "the spare has it");
            if resets {
                spare.set_zero_linger().unwrap();
            }
            drop(spare);
            poll_fn(|cx| Pin::new(&mut stream).poll_flush(cx)).await.unwrap();
            opens_afresh(&mut world, stream, &hello).await;
        });
    }
}

#[tokio::test]
async fn a_silent_spare_gives_way_to_a_fresh_connection() {
    let (mut world, spare) = World::with_spare().await;
    lose_all(&spare);
    let hello = hello();
    let stream = world.open(&world.target(), &hello).await;
    let reading = tokio::spawn(answered(stream));
    assert!(world.is_unasked().await, "the spare has it");
    advance(Duration::from_millis(60)).await;
    serve(world.next().await, &hello).await;
    assert_eq!(reading.await.unwrap(), Carrier::Tcp);
}

#[tokio::test]
async fn a_silent_spare_does_not_hide_that_the_server_is_gone() {
    let (mut world, spare) = World::with_spare().await;
    lose_all(&spare);
    let mut stream = world.open(&world.target(), &hello()).await;
    assert!(world.is_unasked().await, "the spare has it");
    world.accepting.abort();
    settle().await;
    let reading = tokio::spawn(async move { stream.read(&mut [0]).await });
    settle().await;
    advance(Duration::from_millis(60)).await;
    let refused = reading.await.unwrap().unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
}

#[test]
fn a_server_that_got_the_hello_gets_no_other() {
    for resets in [false, true] {
        run(async {
            let (mut world, mut spare) = World::with_spare().await;
            let hello = hello();
            let mut stream = world.open(&world.target(), &hello).await;
            let mut read = vec![0; hello.len()];
            spare.read_exact(&mut read).await.unwrap();
            assert_eq!(read, hello);
            if resets {
                spare.set_zero_linger().unwrap();
            }
            drop(spare);
            // As over plain TLS.
            let ended = stream.read(&mut [0; 16]).await;
            match resets {
                true => assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::ConnectionReset),
                false => assert_eq!(ended.unwrap(), 0),
            }
            if !resets {
                // Takes the place of the one that was used.
                world.next().await;
            }
            assert!(world.is_unasked().await);
        });
    }
}

/// A context has four spares in vain at first, and any number that are used.
#[test]
fn a_spare_whose_application_gives_up_is_used_only_if_it_was_acknowledged() {
    for acknowledged in [false, true] {
        run(async {
            let (mut world, mut spare) = World::with_spare().await;
            for given_up in 1..=5 {
                if !acknowledged {
                    lose_all(&spare);
                }
                let stream = world.open(&world.target(), &hello()).await;
                assert!(world.is_unasked().await, "the spare has it");
                drop(stream);
                let target = world.target();
                assert_eq!(world.exchange(&target).await, Carrier::Tcp);
                if world.is_unasked().await {
                    assert_eq!((given_up, acknowledged), (4, false));
                    return;
                }
                spare = world.next().await;
            }
            assert!(acknowledged, "those in vain are not counted");
        });
    }
}

#[tokio::test]
async fn contexts_share_no_spare() {
    let (mut world, spare) = World::with_spare().await;
    let labelled = Context { label: Some("x".into()), ..Context::user(1000) };
    for context in [Context::user(1001), labelled, Context::UNKNOWN] {
        let other = Target { context, ..world.target() };
        assert_eq!(world.exchange(&other).await, Carrier::Tcp, "{:?}", other.context);
    }
    let late = Target { speaks_first: false, ..world.target() };
    assert_eq!(world.exchange(&late).await, Carrier::Tcp);
    let hello = hello();
    let stream = world.open(&world.target(), &hello).await;
    let (carrier, ()) = tokio::join!(answered(stream), serve(spare, &hello));
    assert_eq!(carrier, Carrier::Spare);
}

#[tokio::test]
async fn early_data_wait_for_tcp() {
    let (mut world, _spare) = World::with_spare().await;
    let hello = CraftedHello { random: rand::random(), ..CraftedHello::sized(300) };
    let hello = hello.with(EARLY_DATA, []).ticket(&[7; 100]).stream();
    let stream = world.open(&world.target(), &hello).await;
    opens_afresh(&mut world, stream, &hello).await;
}

#[test]
fn spares_are_closed() {
    type Ending = fn(&World);
    let endings: [(&str, Ending); 4] = [
        ("reload", |world| {
            let _ = world.connector.reconfigured(config(world.address, 8));
        }),
        ("stop", |world| world.keeper.abort()),
        ("context forgotten", |world| world.connector.forget_context(&Context::user(1000))),
        ("age", |_| {}),
    ];
    for (name, end) in endings {
        run(async {
            let (mut world, mut spare) = World::with_spare().await;
            assert_eq!(spare.try_read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
            end(&world);
            if name == "age" {
                advance(Duration::from_secs(46)).await;
            }
            assert_eq!(spare.read(&mut [0]).await.unwrap(), 0, "{name}");
            let hello = hello();
            let stream = world.open(&world.target(), &hello).await;
            opens_afresh(&mut world, stream, &hello).await;
        });
    }
}

#[tokio::test]
async fn there_are_none_unless_asked_for() {
    let mut world = World::new(0).await;
    for _ in 0..4 {
        let target = world.target();
        assert_eq!(world.exchange(&target).await, Carrier::Tcp);
    }
    assert!(world.is_unasked().await);
}
