//! Processes of one edge that take over from each other: datagrams reach one, and TCP another.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;

use headstart_net::{
    Acceptor, AcceptorConfig, Direction, Generations, Inherited, ListenAddress, ListenSockets,
    StrayJoin,
};
use headstart_proto::join::Answer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::{JoinHandle, JoinSet};

use crate::acceptor::{Client, carries, establish_all, next, opened};
use crate::hello::BEHIND_HELLO;
use crate::proxied;
use crate::time::stop_clock;

/// A process: what passes joins, and a configuration with it.
fn process() -> (Arc<Generations>, AcceptorConfig) {
    let generations = Arc::new(Generations::default());
    let config =
        AcceptorConfig { generations: Some(Arc::clone(&generations)), ..AcceptorConfig::default() };
    (generations, config)
}

/// Passes joins in a direction until it is aborted.
fn pass(from: &Generations, to: &Arc<Generations>, direction: Direction) -> JoinHandle<()> {
    let (mut joins, to) = (from.link(direction), Arc::clone(to));
    tokio::spawn(async move {
        while let Some(stray) = joins.recv().await {
            to.take(stray, direction).unwrap();
        }
    })
}

/// Links a process with the one that takes over from it.
pub(crate) fn link(before: &Arc<Generations>, after: &Arc<Generations>) -> [JoinHandle<()>; 2] {
    [pass(before, after, Direction::Onward), pass(after, before, Direction::Back)]
}

fn bind(config: AcceptorConfig) -> Acceptor {
    Acceptor::bind("127.0.0.1:0".parse().unwrap(), config).unwrap()
}

/// Binds an acceptor that establishes every arrival; returns its address.
fn serving(config: AcceptorConfig) -> SocketAddr {
    let acceptor = bind(config);
    let address = acceptor.local_addr();
    establish_all(acceptor);
    address
}

#[tokio::test]
async fn a_join_reaches_the_session_of_the_process_before() {
    let ((before, first), (after, second)) = (process(), process());
    let (mut acceptor, mut client, mut stream) = opened(first).await;
    let _links = link(&before, &after);
    acceptor.stop_listening();
    establish_all(acceptor);
    client.edge = serving(second);
    let mut tcp = client.joined().await;
    carries(&mut tcp, &mut stream).await;
    assert_eq!(stream.proven_addr().get(), Some(tcp.local_addr().unwrap()));
    // It is joined once, at whichever process.
    assert_eq!(client.join().await.1, Answer::Refused);
}

/// Datagrams have come to one address of the edge, TCP to another, as behind a balancer.
#[tokio::test]
async fn a_join_reaches_the_session_of_another_acceptor() {
    let (generations, config) = process();
    let (acceptor, mut client, mut stream) = opened(config).await;
    establish_all(acceptor);
    let other = Some(Arc::clone(&generations));
    client.edge = serving(AcceptorConfig { generations: other, ..AcceptorConfig::default() });
    let mut tcp = client.joined().await;
    carries(&mut tcp, &mut stream).await;
}

/// The process before does not answer, and as many wait for it as may of one host.
#[tokio::test]
async fn a_join_beyond_those_that_wait_is_refused() {
    const MOST: usize = 64;
    let (generations, config) = process();
    let waiting = generations.link(Direction::Back);
    let (acceptor, mut client, stream) = opened(AcceptorConfig::default()).await;
    drop((acceptor, stream));
    client.edge = serving(config);
    let client = Arc::new(client);
    let mut joins = JoinSet::new();
    for _ in 0..=MOST {
        let client = Arc::clone(&client);
        // Restarted here, it might send early data to the origin again.
        joins.spawn(async move { client.join_at(0, 0).await.1 });
    }
    assert_eq!(joins.join_next().await.unwrap().unwrap(), Answer::Refused);
    assert_eq!(waiting.len(), MOST);
}

#[tokio::test]
async fn a_join_from_a_balancer_reaches_the_session_of_the_process_before() {
    let ((before, first), (after, second)) = (process(), process());
    let [first, second] = [first, second].map(|AcceptorConfig { generations, .. }| {
        AcceptorConfig { generations, ..proxied::config() }
    });
    let (mut acceptor, client, mut stream) = opened(first).await;
    let _links = link(&before, &after);
    acceptor.stop_listening();
    establish_all(acceptor);
    let mut tcp = proxied::connect(serving(second)).await;
    assert_eq!(client.join_over(&mut tcp, BEHIND_HELLO, 0).await, Answer::Accepted(0));
    carries(&mut tcp, &mut stream).await;
    assert_eq!(stream.proven_addr().get(), Some(proxied::CLIENT.into()));
}

/// TCP was accepted before the process stopped listening, and the datagrams came after that.
#[tokio::test]
async fn a_join_reaches_the_session_of_the_process_after() {
    let ((before, first), (after, second)) = (process(), process());
    let _links = link(&before, &after);
    let (acceptor, mut client, mut stream) = opened(second).await;
    establish_all(acceptor);
    client.edge = serving(first);
    let mut tcp = client.joined().await;
    carries(&mut tcp, &mut stream).await;
}

#[tokio::test]
async fn a_join_passes_through_processes_between() {
    let processes = [(); 3].map(|()| process());
    let [(first, one), (second, two), (third, three)] = processes;
    let _links = [link(&first, &second), link(&second, &third)];
    let (mut acceptor, mut client, mut stream) = opened(one).await;
    acceptor.stop_listening();
    establish_all(acceptor);
    serving(two);
    client.edge = serving(three);
    let mut tcp = client.joined().await;
    carries(&mut tcp, &mut stream).await;
}

#[tokio::test]
async fn a_join_that_no_process_knows_is_refused() {
    let ((before, first), (after, second)) = (process(), process());
    let links = link(&before, &after);
    let (acceptor, mut client, stream) = opened(AcceptorConfig::default()).await;
    drop((acceptor, stream));
    let _first = serving(first);
    client.edge = serving(second);
    assert_eq!(client.join().await.1, Answer::Refused, "the process before has to say so");
    let clock = stop_clock();
    client.refused().await;
    drop(clock);
    tokio::time::resume();
    for link in links {
        link.abort();
        let _ = link.await;
    }
    assert_eq!(client.join().await.1, Answer::Refused, "nobody is before");
}

/// As a shortage of files it would make the acceptor pause.
#[tokio::test]
async fn a_join_whose_client_is_gone_is_no_reason_to_wait() {
    let (generations, config) = process();
    let (mut acceptor, mut client, _stream) = opened(config).await;
    let other = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    client.edge = other.local_addr().unwrap();
    let mut read = vec![0; 4096];
    let taking = async {
        let (mut tcp, _) = other.accept().await.unwrap();
        let length = tcp.read(&mut read).await.unwrap();
        (tcp, length)
    };
    let (mut tcp, length) = tokio::select! {
        taken = taking => taken,
        (_, answer) = client.join() => panic!("{answer:?}"),
    };
    read.truncate(length);
    tcp.shutdown().await.unwrap();
    while tcp.peer_addr().is_ok() {
        tokio::task::yield_now().await;
    }
    let stray = StrayJoin::new(tcp.into_std().unwrap(), None, read);
    generations.take(stray, Direction::Back).unwrap();
    let error = acceptor.accept().await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
}

/// Opens sockets of an acceptor; returns them with copies for another process.
fn sockets() -> [ListenSockets; 2] {
    let address = "127.0.0.1:0".parse().unwrap();
    let address = ListenAddress { tcp: address, udp_port: None, udp_workers: 1 };
    let sockets = ListenSockets::open(address, Inherited::default()).unwrap();
    let mut copies = sockets.copies().unwrap().into_iter();
    let tcp = copies.next().map(TcpListener::from);
    let udp = copies.map(UdpSocket::from).collect();
    let copies = ListenSockets::open(address, Inherited { tcp, udp }).unwrap();
    [sockets, copies]
}

/// Every step that can fail comes before the predecessor stops.
#[tokio::test]
async fn a_prepared_acceptor_leaves_the_sockets_to_the_process_before() {
    let [sockets, copies] = sockets();
    let mut before = Acceptor::new(sockets, AcceptorConfig::default()).unwrap();
    let mut after = Acceptor::prepared(copies, AcceptorConfig::default()).unwrap();
    // One of them would read each, and only one is asked.
    for _ in 0..20 {
        Client::new(before.local_addr()).await.flight().await;
        let _stream = next(&mut before).await;
    }
    before.stop_listening();
    let mut client = Client::new(after.local_addr()).await;
    after.start();
    client.flight().await;
    next(&mut after).await;
}

#[tokio::test]
async fn inherited_sockets_serve_as_those_that_were_opened() {
    let [sockets, copies] = sockets();
    let mut before = Acceptor::new(sockets, AcceptorConfig::default()).unwrap();
    before.stop_listening();
    let mut after = Acceptor::new(copies, AcceptorConfig::default()).unwrap();
    assert_eq!(after.local_addr(), before.local_addr());
    let mut client = Client::new(after.local_addr()).await;
    client.flight().await;
    let mut stream = next(&mut after).await;
    establish_all(after);
    let mut tcp = client.joined().await;
    carries(&mut tcp, &mut stream).await;
}
