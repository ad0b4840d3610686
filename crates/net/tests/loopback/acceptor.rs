//! The acceptor on loopback, with a client that sends single frames and so can misbehave.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use headstart_net::{
    Acceptor, AcceptorConfig, Arrival, Carrier, ProvenBy, ServerConfig, ServerStream,
};
use headstart_proto::join::{Answer, Join};
use headstart_proto::limits::SESSION_LIFE_SPARE;
use headstart_proto::wire::{Request, Response};
use headstart_proto::{JoinKey, RouteTag};
use headstart_testkit::hello::{CraftedHello, record};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::hello::{BEHIND_HELLO, HELLO, hello};
use crate::join::{join, parsed};
use crate::time::{TIMEOUT, run_other_tasks, stop_clock};

/// More bytes behind a join than an edge reads with it.
const BEHIND_JOIN: usize = 20_000;

/// One session, seen from the client.
pub(crate) struct Client {
    pub(crate) edge: SocketAddr,
    udp: UdpSocket,
    key: JoinKey,
    hello: Vec<u8>,
    tag: RouteTag,
}

impl Client {
    pub(crate) async fn new(edge: SocketAddr) -> Self {
        let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        udp.connect(edge).await.unwrap();
        let key = JoinKey::new(rand::random());
        Self { edge, udp, key, hello: hello(rand::random()), tag: RouteTag::default() }
    }

    async fn send(&self, seq: u8) {
        let id = self.key.session_id();
        let request = Request { id, seq, offset: 0, payload: &self.hello };
        self.udp.send(&request.emit()).await.unwrap();
    }

    /// Sends the ClientHello and receives the acknowledgement.
    pub(crate) async fn flight(&mut self) {
        self.send(0).await;
        self.answered().await;
    }

    /// Receives a response; returns the sequence number that it answers.
    async fn answered(&mut self) -> u8 {
        let mut datagram = [0; 2048];
        let length = timeout(TIMEOUT, self.udp.recv(&mut datagram)).await.unwrap().unwrap();
        let response = Response::parse(&datagram[..length]).unwrap();
        self.tag = response.tag;
        response.seq
    }

    /// Joins where the ClientHello ends, and asks for the server stream from its start.
    pub(crate) async fn join(&self) -> (TcpStream, Answer) {
        self.join_at(BEHIND_HELLO, 0).await
    }

    /// Joins, and is accepted.
    pub(crate) async fn joined(&self) -> TcpStream {
        let (tcp, answer) = self.join().await;
        assert_eq!(answer, Answer::Accepted(0));
        tcp
    }

    pub(crate) async fn join_at(
        &self,
        client_offset: u32,
        server_offset: u32,
    ) -> (TcpStream, Answer) {
        let mut tcp = TcpStream::connect(self.edge).await.unwrap();
        let answer = self.join_over(&mut tcp, client_offset, server_offset).await;
        (tcp, answer)
    }

    pub(crate) async fn join_over(
        &self,
        tcp: &mut TcpStream,
        client_offset: u32,
        server_offset: u32,
    ) -> Answer {
        let (key, tag) = (self.key.clone(), self.tag);
        join(tcp, &Join { key, tag, client_offset, server_offset }, &self.hello, &[]).await
    }

    /// Has a join refused that comes with more bytes than an edge reads at first, and goes on to
    /// write. The clock has to stand still.
    pub(crate) async fn refused(&self) {
        let mut tcp = TcpStream::connect(self.edge).await.unwrap();
        let (key, tag) = (self.key.clone(), self.tag);
        let (client_offset, server_offset) = (BEHIND_HELLO, 500);
        let request = Join { key, tag, client_offset, server_offset };
        let answer = join(&mut tcp, &request, &self.hello, &[0; BEHIND_JOIN]).await;
        assert_eq!(answer, Answer::Refused);
        tcp.write_all(b"what was on its way").await.expect("a reset");
    }

    /// Begins a TCP connection with the ClientHello, as a client does that goes plain.
    async fn plain(&self) -> TcpStream {
        let mut tcp = TcpStream::connect(self.edge).await.unwrap();
        tcp.write_all(&self.hello).await.unwrap();
        tcp
    }
}

pub(crate) fn bind(config: AcceptorConfig) -> Acceptor {
    Acceptor::bind("127.0.0.1:0".parse().unwrap(), config).unwrap()
}

/// Returns the next arrival of an acceptor.
pub(crate) async fn accept(acceptor: &mut Acceptor) -> Arrival {
    timeout(TIMEOUT, acceptor.accept()).await.unwrap().unwrap()
}

/// Returns the next stream of an acceptor.
pub(crate) async fn next(acceptor: &mut Acceptor) -> ServerStream {
    accept(acceptor).await.establish().await.unwrap().unwrap()
}

/// Returns an acceptor with a client whose ClientHello has arrived over UDP.
async fn arrived(config: AcceptorConfig) -> (Acceptor, Client, Arrival) {
    let mut acceptor = bind(config);
    let mut client = Client::new(acceptor.local_addr()).await;
    client.flight().await;
    let arrival = accept(&mut acceptor).await;
    (acceptor, client, arrival)
}

/// Returns an acceptor with a client, and their session's stream.
pub(crate) async fn opened(config: AcceptorConfig) -> (Acceptor, Client, ServerStream) {
    let (acceptor, client, arrival) = arrived(config).await;
    (acceptor, client, arrival.establish().await.unwrap().unwrap())
}

/// Checks that a session's stream goes on over the TCP connection that joined it.
pub(crate) async fn carries(tcp: &mut TcpStream, stream: &mut ServerStream) {
    tcp.write_all(b"ready").await.unwrap();
    let mut bytes = [0; HELLO + 5];
    timeout(TIMEOUT, stream.read_exact(&mut bytes)).await.unwrap().unwrap();
    assert_eq!(bytes[HELLO..], *b"ready");
}

/// Accepts until the end of the test, and establishes every arrival.
pub(crate) fn establish_all(mut acceptor: Acceptor) {
    tokio::spawn(async move {
        while let Ok(arrival) = acceptor.accept().await {
            tokio::spawn(arrival.establish());
        }
    });
}

#[tokio::test]
async fn a_join_wakes_the_reader_although_another_task_wrote_last() {
    let (acceptor, client, stream) = opened(AcceptorConfig::default()).await;
    let (mut reader, mut writer) = tokio::io::split(stream);
    establish_all(acceptor);
    let read = tokio::spawn(async move {
        let mut bytes = [0; HELLO + 5];
        reader.read_exact(&mut bytes).await.map(|_| bytes)
    });
    run_other_tasks().await;
    let flight = vec![7; 3000];
    tokio::spawn(async move { writer.write_all(&flight).await }).await.unwrap().unwrap();
    let mut tcp = client.joined().await;
    tcp.write_all(b"ready").await.unwrap();
    let bytes = timeout(TIMEOUT, read).await.expect("the join did not wake the reader").unwrap();
    assert_eq!(bytes.unwrap()[HELLO..], *b"ready");
}

#[tokio::test]
async fn a_join_wakes_the_writer_although_another_task_read_last() {
    let (acceptor, client, stream) = opened(AcceptorConfig::default()).await;
    let (mut reader, mut writer) = tokio::io::split(stream);
    establish_all(acceptor);
    // More than a session and a socket hold, so the writer waits for the join.
    let size = 4 << 20;
    let written = tokio::spawn(async move { writer.write_all(&vec![7; size]).await });
    run_other_tasks().await;
    let read = tokio::spawn(async move { reader.read_to_end(&mut Vec::new()).await });
    run_other_tasks().await;
    let (tcp, _) = client.join().await;
    let (mut from_edge, mut to_edge) = tcp.into_split();
    to_edge.write_all(b"ready").await.unwrap();
    let mut bytes = vec![0; size];
    timeout(TIMEOUT, from_edge.read_exact(&mut bytes)).await.expect("bytes are missing").unwrap();
    written.await.unwrap().unwrap();
    to_edge.shutdown().await.unwrap();
    let length = timeout(TIMEOUT, read).await.expect("the end was not read").unwrap().unwrap();
    assert_eq!(length, HELLO + 5);
}

#[tokio::test]
async fn every_use_of_an_ended_session_fails() {
    let server = ServerConfig { same_address: true, ..ServerConfig::default() };
    let config = AcceptorConfig { server, ..AcceptorConfig::default() };
    let (acceptor, client, mut stream) = opened(config).await;
    let mut bytes = [0; HELLO];
    stream.read_exact(&mut bytes).await.unwrap();
    establish_all(acceptor);
    // A join from another address than the datagrams' ends the session.
    let other = TcpSocket::new_v4().unwrap();
    other.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut tcp = other.connect(client.edge).await.unwrap();
    assert_eq!(client.join_over(&mut tcp, BEHIND_HELLO, 0).await, Answer::Refused);
    for _ in 0..3 {
        let read = timeout(TIMEOUT, stream.read(&mut bytes)).await.unwrap();
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let written = timeout(TIMEOUT, stream.write(b"late")).await.unwrap();
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}

#[tokio::test]
async fn a_join_proves_the_address_of_its_tcp_connection() {
    let (acceptor, client, mut stream) = opened(AcceptorConfig::default()).await;
    let proven = stream.proven_addr();
    assert_eq!(proven.get(), None);
    establish_all(acceptor);
    let (mut tcp, _) = client.join().await;
    carries(&mut tcp, &mut stream).await;
    assert_eq!(proven.get(), Some(tcp.local_addr().unwrap()));
    assert_ne!(proven.get(), Some(stream.peer_addr()), "the datagrams have the same port");
    assert_eq!(proven.by(), Some(ProvenBy::Join));
}

#[tokio::test]
async fn a_plain_connection_proves_its_address() {
    let mut acceptor = bind(AcceptorConfig::default());
    let mut tcp = TcpStream::connect(acceptor.local_addr()).await.unwrap();
    tcp.write_all(&hello(rand::random())).await.unwrap();
    let stream = next(&mut acceptor).await;
    assert_eq!(stream.proven_addr().get(), Some(tcp.local_addr().unwrap()));
}

// W-ANSWER-3
#[tokio::test]
async fn a_join_with_impossible_offsets_leaves_the_session() {
    let (acceptor, client, mut stream) = opened(AcceptorConfig::default()).await;
    establish_all(acceptor);
    assert_eq!(client.join_at(BEHIND_HELLO + 1, 0).await.1, Answer::Refused);
    assert_eq!(client.join_at(0, 1).await.1, Answer::Refused);
    let mut tcp = client.joined().await;
    carries(&mut tcp, &mut stream).await;
}

/// Its client has bytes of another handshake.
#[tokio::test]
async fn a_join_that_names_another_start_of_the_edge_leaves_the_session() {
    let (acceptor, mut client, mut stream) = opened(AcceptorConfig::default()).await;
    establish_all(acceptor);
    let tag = std::mem::replace(&mut client.tag, RouteTag([255; 4]));
    assert_eq!(client.join().await.1, Answer::Refused);
    client.tag = tag;
    let mut tcp = client.joined().await;
    carries(&mut tcp, &mut stream).await;
}

/// A late copy of the flight may start a session after a restart: its ClientHello runs only once.
#[tokio::test]
async fn a_stream_from_its_start_gets_the_session_of_its_client_hello_whatever_its_join_names() {
    let (acceptor, mut client, mut stream) = opened(AcceptorConfig::default()).await;
    establish_all(acceptor);
    client.tag = RouteTag([255; 4]);
    let (mut tcp, answer) = client.join_at(0, 0).await;
    assert_eq!(answer, Answer::Accepted(0));
    tcp.write_all(&client.hello).await.unwrap();
    carries(&mut tcp, &mut stream).await;
}

#[tokio::test]
async fn a_plain_stream_gets_the_session_of_its_client_hello() {
    let (acceptor, client, mut stream) = opened(AcceptorConfig::default()).await;
    stream.write_all(b"flight").await.unwrap();
    establish_all(acceptor);
    let mut tcp = client.plain().await;
    carries(&mut tcp, &mut stream).await;
    let proven = stream.proven_addr();
    assert_eq!(proven.get(), Some(tcp.local_addr().unwrap()));
    assert_eq!(proven.by(), Some(ProvenBy::Start), "it saved nothing");
    let mut flight = [0; 6];
    timeout(TIMEOUT, tcp.read_exact(&mut flight)).await.unwrap().unwrap();
    assert_eq!(flight, *b"flight", "something came before the server stream");
}

#[tokio::test]
async fn the_server_stream_goes_on_from_the_start_of_the_record_that_holds_the_offset() {
    let (acceptor, mut client, mut stream) = opened(AcceptorConfig::default()).await;
    establish_all(acceptor);
    let (first, second) = (record(22, &[1; 90]), record(23, &[2; 900]));
    client.send(1).await;
    stream.write_all(&[first.clone(), second.clone()].concat()).await.unwrap();
    assert_eq!(client.answered().await, 1);
    let (mut tcp, answer) = client.join_at(BEHIND_HELLO, 500).await;
    let start = u32::try_from(first.len()).unwrap();
    assert_eq!(answer, Answer::Accepted(start));
    let mut bytes = vec![0; second.len()];
    timeout(TIMEOUT, tcp.read_exact(&mut bytes)).await.unwrap().unwrap();
    assert_eq!(bytes, second);
    carries(&mut tcp, &mut stream).await;
}

/// A client that sent early data joins even if it has delivered nothing.
#[tokio::test]
async fn a_join_from_the_start_of_an_unknown_session_begins_a_stream_once() {
    let mut acceptor = bind(AcceptorConfig::default());
    let client = Client::new(acceptor.local_addr()).await;
    let serves = async {
        let mut stream = next(&mut acceptor).await;
        let mut bytes = [0; HELLO];
        timeout(TIMEOUT, stream.read_exact(&mut bytes)).await.unwrap().unwrap();
        stream.write_all(b"flight").await.unwrap();
        bytes
    };
    let joins = async {
        // The answer waits neither for the ClientHello behind the join nor for the origin.
        let (mut tcp, answer) = client.join_at(0, 0).await;
        assert_eq!(answer, Answer::Accepted(0));
        tcp.write_all(&client.hello).await.unwrap();
        let mut flight = [0; 6];
        timeout(TIMEOUT, tcp.read_exact(&mut flight)).await.unwrap().unwrap();
        assert_eq!(flight, *b"flight");
    };
    let (hello, ()) = tokio::join!(serves, joins);
    assert_eq!(hello[..], client.hello);
    establish_all(acceptor);
    assert_eq!(client.join_at(0, 0).await.1, Answer::Refused);
}

/// The origin sees it, as it sees any other ClientHello.
#[tokio::test]
async fn a_second_join_on_a_connection_is_none() {
    let mut acceptor = bind(AcceptorConfig::default());
    let client = Client::new(acceptor.local_addr()).await;
    let second = random_join().emit(&parsed(&client.hello));
    let joins = async {
        let (mut tcp, answer) = client.join_at(0, 0).await;
        assert_eq!(answer, Answer::Accepted(0));
        tcp.write_all(&second).await.unwrap();
        tcp
    };
    let (mut stream, _tcp) = tokio::join!(next(&mut acceptor), joins);
    let mut bytes = vec![0; second.len()];
    timeout(TIMEOUT, stream.read_exact(&mut bytes)).await.unwrap().unwrap();
    assert_eq!(bytes, second);
}

// W-ADMIT-7
#[tokio::test]
async fn a_session_is_found_only_where_it_began() {
    let (acceptor, mut client, mut stream) = opened(AcceptorConfig::default()).await;
    let other = bind(AcceptorConfig::default());
    client.tag = RouteTag::default();
    let here = std::mem::replace(&mut client.edge, other.local_addr());
    establish_all(acceptor);
    establish_all(other);
    assert_eq!(client.join().await.1, Answer::Refused);
    client.edge = here;
    let mut tcp = client.joined().await;
    carries(&mut tcp, &mut stream).await;
}

#[tokio::test]
async fn a_restarted_edge_serves_clients_that_delivered_nothing_and_refuses_the_others() {
    let (before, mut client, _stream) = opened(AcceptorConfig::default()).await;
    drop(before);
    let mut after = bind(AcceptorConfig::default());
    client.edge = after.local_addr();
    let _plain = client.plain().await;
    let mut stream = next(&mut after).await;
    let mut bytes = [0; HELLO];
    timeout(TIMEOUT, stream.read_exact(&mut bytes)).await.unwrap().unwrap();
    assert_eq!(bytes[..], client.hello);
    establish_all(after);
    assert_eq!(client.join_at(BEHIND_HELLO, 500).await.1, Answer::Refused);
}

/// Closing with unread bytes would be a reset, which may overtake the answer.
#[tokio::test]
async fn a_refusal_arrives_although_bytes_behind_the_join_are_unread() {
    let acceptor = bind(AcceptorConfig::default());
    let client = Client::new(acceptor.local_addr()).await;
    let _clock = stop_clock();
    establish_all(acceptor);
    client.refused().await;
}

#[tokio::test]
async fn the_last_bytes_of_an_origin_arrive_although_bytes_behind_the_join_are_unread() {
    let (acceptor, client, mut stream) = opened(AcceptorConfig::default()).await;
    let _clock = stop_clock();
    let flight = record(23, &[7; 16_000]);
    stream.write_all(&flight).await.unwrap();
    stream.shutdown().await.unwrap();
    drop(stream);
    establish_all(acceptor);
    // Most of the flight waits at the edge until it is read.
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(1).unwrap();
    let mut tcp = socket.connect(client.edge).await.unwrap();
    let (key, tag) = (client.key.clone(), client.tag);
    let request = Join { key, tag, client_offset: BEHIND_HELLO, server_offset: 0 };
    let answer = join(&mut tcp, &request, &client.hello, &[0; BEHIND_JOIN]).await;
    assert_eq!(answer, Answer::Accepted(0));
    let mut last = Vec::new();
    tcp.read_to_end(&mut last).await.unwrap();
    assert_eq!(last, flight);
}

// W-TAG-3
#[tokio::test]
async fn each_start_of_an_edge_has_a_tag_of_its_own() {
    let (before, client, _stream) = opened(AcceptorConfig::default()).await;
    drop(before);
    let (_after, other, _stream) = opened(AcceptorConfig::default()).await;
    assert_ne!(client.tag, other.tag);
}

/// Sends this as the start of a TCP connection; checks that the origin gets it as it is, and that
/// the client gets nothing but the origin's answer.
async fn passes_unchanged(acceptor: &mut Acceptor, bytes: &[u8]) {
    let mut tcp = TcpStream::connect(acceptor.local_addr()).await.unwrap();
    tcp.write_all(bytes).await.unwrap();
    let mut stream = next(acceptor).await;
    assert_eq!(stream.opened_by(), Carrier::Tcp);
    assert_eq!(stream.client_hello(), Some(&parsed(bytes)));
    let mut got = vec![0; bytes.len()];
    timeout(TIMEOUT, stream.read_exact(&mut got)).await.unwrap().unwrap();
    assert_eq!(got, bytes);
    stream.write_all(b"answer").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut got = Vec::new();
    timeout(TIMEOUT, tcp.read_to_end(&mut got)).await.unwrap().unwrap();
    assert_eq!(got, b"answer");
}

/// Returns the start of a stream that resumes with this ticket, and with early data.
fn resumption(ticket: &[u8]) -> Vec<u8> {
    let hello = CraftedHello { random: rand::random(), ..CraftedHello::default() };
    let hello = hello.name("www.example").with(EARLY_DATA, []).ticket(ticket);
    [hello.stream(), record(23, b"early data")].concat()
}

/// Number of the extension early_data.
const EARLY_DATA: u16 = 42;

fn random_join() -> Join {
    let (key, tag) = (JoinKey::new(rand::random()), RouteTag::default());
    Join { key, tag, client_offset: 0, server_offset: 0 }
}

/// Even one with the very ticket of a join: the ClientHello's random makes the join.
#[tokio::test]
async fn a_resumption_with_early_data_reaches_the_origin_unchanged() {
    let mut acceptor = bind(AcceptorConfig::default());
    passes_unchanged(&mut acceptor, &resumption(&rand::random::<[u8; 32]>())).await;
    passes_unchanged(&mut acceptor, &resumption(&[7; 208])).await;
    let join = parsed(&random_join().emit(&parsed(&hello(rand::random()))));
    passes_unchanged(&mut acceptor, &resumption(&join.psk_identities[0])).await;
}

#[tokio::test]
async fn datagrams_may_have_a_port_of_their_own() {
    // No other test has this address, so that none takes the port for datagrams.
    let host = [127, 78, 0, 1];
    let taken = TcpListener::bind(SocketAddr::from((host, 0))).await.unwrap();
    let at = taken.local_addr().unwrap();
    let udp_port = NonZeroU16::new(at.port());
    let config = AcceptorConfig { udp_port, ..AcceptorConfig::default() };
    let _acceptor = Acceptor::bind((host, 0).into(), config).unwrap();
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (id, payload) = (JoinKey::new(rand::random()).session_id(), hello(rand::random()));
    let request = Request { id, seq: 0, offset: 0, payload: &payload };
    client.send_to(&request.emit(), at).await.unwrap();
    let mut answer = [0; 2048];
    let (length, from) = timeout(TIMEOUT, client.recv_from(&mut answer)).await.unwrap().unwrap();
    assert_eq!((from, Response::parse(&answer[..length]).unwrap().id), (at, id));
}

#[tokio::test]
async fn sessions_expire_although_no_more_datagrams_are_read() {
    let (mut acceptor, _client, mut stream) = opened(AcceptorConfig::default()).await;
    let mut bytes = [0; HELLO];
    stream.read_exact(&mut bytes).await.unwrap();
    acceptor.stop_udp();
    tokio::time::pause();
    let read = timeout(2 * SESSION_LIFE_SPARE, stream.read(&mut bytes)).await.expect("it ends");
    assert_eq!(read.unwrap_err().kind(), io::ErrorKind::TimedOut);
    assert_eq!(acceptor.unproven(), 0);
}

#[tokio::test]
async fn sessions_end_with_their_acceptor() {
    let (acceptor, _client, mut stream) = opened(AcceptorConfig::default()).await;
    let mut bytes = [0; HELLO];
    stream.read_exact(&mut bytes).await.unwrap();
    let reads = tokio::spawn(async move { stream.read(&mut bytes).await });
    run_other_tasks().await;
    drop(acceptor);
    let read = timeout(TIMEOUT, reads).await.expect("it ends").unwrap();
    assert_eq!(read.unwrap_err().kind(), io::ErrorKind::TimedOut);
}

#[tokio::test]
async fn the_port_is_free_once_its_acceptor_is_dropped() {
    // No other test has this address, so that none takes the port meanwhile.
    let acceptor = Acceptor::bind(([127, 77, 0, 2], 0).into(), AcceptorConfig::default()).unwrap();
    let local = acceptor.local_addr();
    drop(acceptor);
    for _ in 0..100 {
        drop(Acceptor::bind(local, AcceptorConfig::default()).expect("the port is free"));
    }
}

#[tokio::test]
async fn dropping_an_arrival_ends_its_session() {
    let (acceptor, _client, arrival) = arrived(AcceptorConfig::default()).await;
    assert_eq!((arrival.is_unproven(), acceptor.unproven()), (true, 1));
    drop(arrival);
    assert_eq!(acceptor.unproven(), 0);
}

#[tokio::test]
async fn a_session_that_ended_in_the_queue_is_not_served() {
    let (_acceptor, _client, arrival) = arrived(AcceptorConfig::default()).await;
    tokio::time::pause();
    tokio::time::sleep(2 * SESSION_LIFE_SPARE).await;
    assert_eq!(arrival.establish().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
}

#[tokio::test]
async fn a_session_that_was_joined_in_the_queue_is_served() {
    let (acceptor, client, arrival) = arrived(AcceptorConfig::default()).await;
    establish_all(acceptor);
    let mut tcp = client.joined().await;
    tcp.write_all(b"ready").await.unwrap();
    let mut stream = arrival.establish().await.unwrap().unwrap();
    assert!(stream.proven_addr().get().is_some());
    let mut bytes = [0; HELLO + 5];
    timeout(TIMEOUT, stream.read_exact(&mut bytes)).await.unwrap().unwrap();
    assert_eq!(bytes[HELLO..], *b"ready");
}

/// TCP may lose a join several times after a lost SYN: it then comes at 93 s
/// (limits::SESSION_LIFE_SPARE).
#[tokio::test]
async fn a_join_may_come_as_late_as_its_session_lives() {
    let (acceptor, client, mut stream) = opened(AcceptorConfig::default()).await;
    let mut bytes = [0; HELLO];
    stream.read_exact(&mut bytes).await.unwrap();
    let mut tcp = TcpStream::connect(client.edge).await.unwrap();
    establish_all(acceptor);
    run_other_tasks().await;
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(95)).await;
    tokio::time::resume();
    assert_eq!(client.join_over(&mut tcp, BEHIND_HELLO, 0).await, Answer::Accepted(0));
}

#[tokio::test]
async fn a_connection_gets_the_permit_of_a_session_that_outlived_its_time() {
    let (mut acceptor, client, mut stream) = opened(with_permits(1)).await;
    let serving = tokio::spawn(async move {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await
    });
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(acceptor.unproven(), 1, "the session ended although its permit was not needed");
    tokio::time::resume();
    let mut tcp = TcpStream::connect(client.edge).await.unwrap();
    tcp.write_all(&hello(rand::random())).await.unwrap();
    let _plain = timeout(TIMEOUT, next(&mut acceptor)).await.unwrap();
    assert!(serving.await.unwrap().is_err(), "the session was not ended");
}

fn with_permits(permits: usize) -> AcceptorConfig {
    AcceptorConfig { permits: Arc::new(Semaphore::new(permits)), ..AcceptorConfig::default() }
}

#[tokio::test]
async fn a_session_that_holds_the_last_permit_can_be_joined() {
    let (acceptor, client, mut stream) = opened(with_permits(1)).await;
    establish_all(acceptor);
    let mut tcp = client.joined().await;
    carries(&mut tcp, &mut stream).await;
}

#[tokio::test]
async fn without_a_free_permit_no_session_starts() {
    let mut acceptor = bind(with_permits(1));
    let mut client = Client::new(acceptor.local_addr()).await;
    let mut other = Client::new(acceptor.local_addr()).await;
    client.flight().await;
    let mut stream = next(&mut acceptor).await;
    other.send(0).await;
    // A later answer on the same socket shows that this one was read.
    client.send(1).await;
    stream.write_all(b"flight").await.unwrap();
    assert_eq!(client.answered().await, 1);
    assert_eq!(acceptor.unproven(), 1);
    drop(stream);
    other.send(1).await;
    assert_eq!(other.answered().await, 1, "the first was answered");
}

#[tokio::test]
async fn a_batch_of_datagrams_starts_no_more_sessions_than_permits() {
    let mut acceptor = bind(with_permits(2));
    let edge = acceptor.local_addr();
    let mut clients = Vec::new();
    for _ in 0..5 {
        clients.push(Client::new(edge).await);
    }
    for client in &clients {
        client.send(0).await;
    }
    let mut first = next(&mut acceptor).await;
    let second = next(&mut acceptor).await;
    assert_eq!(clients[0].answered().await, 0);
    // An answer to a later datagram on the same socket shows that all of them were read.
    clients[0].send(1).await;
    first.write_all(b"flight").await.unwrap();
    assert_eq!(clients[0].answered().await, 1);
    assert_eq!(acceptor.unproven(), 2);
    drop((first, second));
}

#[tokio::test]
async fn a_tcp_connection_waits_for_a_permit() {
    let (mut acceptor, _client, mut stream) = opened(with_permits(1)).await;
    let mut tcp = TcpStream::connect(acceptor.local_addr()).await.unwrap();
    tcp.write_all(&hello([0; 8])).await.unwrap();
    let (mut arrival, guard) = (accept(&mut acceptor).await, Arc::new(()));
    arrival.keep_while_read(Arc::clone(&guard));
    let waiting = tokio::spawn(arrival.establish());
    let read = async {
        while Arc::strong_count(&guard) > 1 {
            tokio::task::yield_now().await;
        }
    };
    timeout(TIMEOUT, read).await.expect("the guard is kept beyond the first bytes");
    let permit = stream.take_permit();
    drop(stream);
    run_other_tasks().await;
    assert!(!waiting.is_finished());
    drop(permit);
    let plain = timeout(TIMEOUT, waiting).await.expect("no permit became free").unwrap();
    assert!(plain.unwrap().is_some());
}

#[tokio::test]
async fn silent_tcp_connections_leave_room_for_sessions() {
    let mut acceptor = bind(AcceptorConfig { establishing: 1, ..AcceptorConfig::default() });
    let _silent = TcpStream::connect(acceptor.local_addr()).await.unwrap();
    let _waits = TcpStream::connect(acceptor.local_addr()).await.unwrap();
    let arrival = accept(&mut acceptor).await;
    let mut client = Client::new(acceptor.local_addr()).await;
    client.flight().await;
    assert!(accept(&mut acceptor).await.is_unproven());
    drop(arrival);
    assert!(!accept(&mut acceptor).await.is_unproven());
}

#[tokio::test]
async fn a_udp_port_in_use_is_an_error_and_no_panic() {
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    for udp_workers in [1, 2] {
        let config = AcceptorConfig { udp_workers, ..AcceptorConfig::default() };
        let error = Acceptor::bind(udp.local_addr().unwrap(), config).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
