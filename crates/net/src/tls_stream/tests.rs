mod key_updates;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use headstart_proto::UnixSeconds;
use headstart_tls::keyring::{KeyRing, PERIOD};
use headstart_tls::{
    CertifiedKey, ClientConfig, ClientContext, CookiePolicy, EarlyData, MemoryFilter, ServerConfig,
    ServerContext, Session, SharedRing, Trust,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex, split};
use tokio::time::timeout;

use super::*;
use crate::proven_addr::{ProvenAddr, ProvenBy};
use crate::time::{TIMEOUT, run_other_tasks};

const NAME: &str = "www.example.com";

type Stream = TlsStream<DuplexStream>;

/// Address of accepted clients.
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A server and its client.
struct Site {
    server: ServerContext,
    client: ClientContext,
    ring: Arc<SharedRing>,
}

impl Site {
    fn new() -> Self {
        let ring = Arc::new(SharedRing::new(KeyRing::generate(now(), PERIOD).unwrap()));
        // A replay filter that has run for an hour accepts early data.
        let replay = MemoryFilter::with_clock(100, || Duration::from_secs(3600)).unwrap();
        let config = ServerConfig {
            early_data_max: 16 * 1024,
            replay: Arc::new(replay),
            cookies: Some(CookiePolicy::default()),
            ..ServerConfig::new(vec![certificate()], Arc::clone(&ring))
        };
        Self {
            server: ServerContext::new(&config).unwrap(),
            client: ClientContext::new(&ClientConfig::new(Trust::Anyone)).unwrap(),
            ring,
        }
    }

    /// Returns both ends over a transport that holds `room` bytes in each direction.
    fn connect(&self, session: Option<Session>, room: usize) -> (Stream, Stream) {
        let (near, far) = duplex(room);
        let client = self.client.connect(NAME, session, false).unwrap();
        (TlsStream::new(client, near), self.accept(far))
    }

    fn accept(&self, far: DuplexStream) -> Stream {
        TlsStream::new(self.server.accept(PEER, now()).unwrap(), far)
    }

    /// Returns a session from a connection that ended in order.
    async fn session(&self) -> Session {
        let (mut client, mut server) = self.connect(None, 1 << 16);
        let serve = tokio::spawn(async move {
            server.write_all(b"hello").await.unwrap();
            server.shutdown().await.unwrap();
            server.read_to_end(&mut Vec::new()).await.unwrap();
        });
        let mut received = Vec::new();
        client.read_to_end(&mut received).await.unwrap();
        assert_eq!(received, b"hello");
        client.shutdown().await.unwrap();
        serve.await.unwrap();
        client.handle().take_session().expect("the server sends tickets").session
    }
}

fn now() -> UnixSeconds {
    UnixSeconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs())
}

/// Returns one certificate for all tests.
fn certificate() -> CertifiedKey {
    static CERTIFICATE: OnceLock<CertifiedKey> = OnceLock::new();
    CERTIFICATE.get_or_init(issue).clone()
}

fn issue() -> CertifiedKey {
    let issued = headstart_testkit::self_signed(&[NAME], 0..headstart_testkit::DAY);
    CertifiedKey::from_pem(&issued.chain, &issued.key).unwrap()
}

/// Returns bytes that are not all the same.
fn pattern(size: usize) -> Vec<u8> {
    (0..size).map(|at| u8::try_from(at % 251).unwrap()).collect()
}

/// Sends `sent` on one half; returns the bytes received on the other.
async fn exchange(stream: Stream, sent: Vec<u8>) -> (Vec<u8>, Stream) {
    let (mut reader, mut writer) = split(stream);
    let write = tokio::spawn(async move {
        writer.write_all(&sent).await.unwrap();
        writer.shutdown().await.unwrap();
        writer
    });
    let mut read = Vec::new();
    reader.read_to_end(&mut read).await.unwrap();
    (read, reader.unsplit(write.await.unwrap()))
}

#[tokio::test]
async fn bytes_pass_both_ways_at_once_and_end_in_order() {
    let site = Site::new();
    for room in [1 << 16, 500, 7] {
        let (client, server) = site.connect(None, room);
        // Each byte of the smallest transport is a wake-up.
        let size = if room < 100 { 20_000 } else { 300_000 };
        let (up, down) = (pattern(size), pattern(size / 2));
        let server = tokio::spawn(exchange(server, down.clone()));
        let at_client = timeout(TIMEOUT, exchange(client, up.clone())).await.expect("no hang");
        let at_server = timeout(TIMEOUT, server).await.expect("no hang").unwrap();
        assert!(at_client.0 == down && at_server.0 == up, "{room}");
        let moved = at_server.1.handle().byte_counts();
        assert_eq!((moved.read, moved.written), (up.len() as u64, down.len() as u64));
        assert!(moved.transport > moved.read + moved.written);
        assert!(at_client.1.handle().is_done());
    }
}

#[tokio::test]
async fn early_data_is_answered_before_the_client_is_proven() {
    let site = Site::new();
    let session = site.session().await;
    let (mut client, mut server) = site.connect(Some(session), 1 << 16);
    assert_eq!(client.write_early(b"question").await.unwrap(), 8);
    let (near, far) = (client.handle(), server.handle());
    timeout(TIMEOUT, far.opened()).await.expect("the request did not arrive").unwrap();
    let mut question = [0; 8];
    server.read_exact(&mut question).await.unwrap();
    assert_eq!(&question, b"question");
    server.write_all(b"answer").await.unwrap();
    assert!(!far.is_done(), "the client has sent nothing else");
    assert_eq!(far.facts().early_data, EarlyData::Accepted);
    let mut answer = [0; 6];
    timeout(TIMEOUT, client.read_exact(&mut answer)).await.expect("an answer").unwrap();
    assert_eq!(&answer, b"answer");
    assert_eq!(near.facts().early_data, EarlyData::Accepted);
    timeout(TIMEOUT, far.done()).await.expect("the client was not proven").unwrap();
    assert!(far.is_done() && near.is_done() && far.facts().resumed);
}

/// A TurboTLS client's TCP connection may take another path than its datagrams.
#[tokio::test]
async fn cookies_are_for_the_address_that_tcp_has_proven() {
    let site = Site::new();
    let (near, far) = duplex(1 << 16);
    let conn = site.server.accept(PEER, now()).unwrap();
    let proven = ProvenAddr::default();
    let mut server = TlsStream::from_engine(Engine::new(conn, far, Some(proven.clone())));
    let mut client = TlsStream::new(site.client.connect(NAME, None, true).unwrap(), near);
    let elsewhere: IpAddr = [192, 0, 2, 7].into();
    proven.set((elsewhere, 1).into(), ProvenBy::Join);
    let serve = tokio::spawn(async move {
        server.write_all(b"x").await.unwrap();
        server
    });
    timeout(TIMEOUT, client.read_exact(&mut [0; 1])).await.expect("an answer").unwrap();
    let cookies = client.handle().take_session().expect("a ticket").cookies;
    assert_eq!(cookies.len(), 1);
    let ring = site.ring.current().cookies();
    assert!(ring.verify(&cookies[0].cookie, now(), elsewhere).is_ok());
    assert!(ring.verify(&cookies[0].cookie, now(), PEER).is_err());
    drop(serve.await.unwrap());
}

#[tokio::test]
async fn early_data_that_another_task_took_wakes_the_reader() {
    let site = Site::new();
    let session = site.session().await;
    let (mut client, server) = site.connect(Some(session), 1 << 16);
    let handle = server.handle();
    let (mut reader, _writer) = split(server);
    let read = tokio::spawn(async move {
        let mut bytes = [0; 5];
        reader.read_exact(&mut bytes).await.map(|_| bytes)
    });
    run_other_tasks().await;
    // From now on each of these polls the transport last.
    let waits = [tokio::spawn(wait(handle.clone())), tokio::spawn(wait(handle))];
    run_other_tasks().await;
    client.write_early(b"early").await.unwrap();
    let bytes = timeout(TIMEOUT, read).await.expect("the reader was not woken").unwrap().unwrap();
    assert_eq!(&bytes, b"early");
    client.flush().await.unwrap();
    timeout(TIMEOUT, client.handle().done()).await.expect("done").unwrap();
    for wait in waits {
        timeout(TIMEOUT, wait).await.expect("a waiting task was not woken").unwrap();
    }
}

async fn wait(handle: TlsHandle<DuplexStream>) {
    handle.done().await.unwrap();
}

#[tokio::test]
async fn the_handshake_goes_on_without_a_reader() {
    let site = Site::new();
    let session = site.session().await;
    let (mut client, mut server) = site.connect(Some(session), 1 << 16);
    client.write_early(b"early").await.unwrap();
    let serve = tokio::spawn(async move {
        let handle = server.handle();
        handle.opened().await.unwrap();
        assert!(!handle.is_done());
        handle.done().await.unwrap();
        let mut bytes = [0; 5];
        server.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"early");
        server
    });
    timeout(TIMEOUT, client.handle().done()).await.expect("done").unwrap();
    let mut server = timeout(TIMEOUT, serve).await.expect("done").unwrap();
    client.write_all(b"later").await.unwrap();
    let mut bytes = [0; 5];
    server.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"later");
}

/// The same bytes are replayed: a session offered twice would make two different ClientHellos.
#[tokio::test]
async fn a_replay_yields_no_early_data() {
    let site = Site::new();
    let session = site.session().await;
    let mut client = site.client.connect(NAME, Some(session), false).unwrap();
    assert_eq!(client.write_early(b"early").unwrap(), 5);
    let flight: Vec<u8> = std::iter::from_fn(|| client.poll_bytes()).flatten().collect();
    for first in [true, false] {
        let (mut attacker, far) = duplex(1 << 16);
        let mut server = site.accept(far);
        attacker.write_all(&flight).await.unwrap();
        // An end of its own: bytes missing by then never come.
        attacker.shutdown().await.unwrap();
        let mut bytes = Vec::new();
        let read = timeout(TIMEOUT, server.read_to_end(&mut bytes)).await.expect("it ends");
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(bytes, if first { &b"early"[..] } else { b"" });
        assert!(!server.handle().is_done());
    }
}

#[tokio::test]
async fn an_answer_to_early_data_closes_after_the_handshake() {
    let site = Site::new();
    let session = site.session().await;
    let (mut client, mut server) = site.connect(Some(session), 1 << 16);
    client.write_early(b"question").await.unwrap();
    let serve = tokio::spawn(async move {
        server.read_exact(&mut [0; 8]).await.unwrap();
        server.write_all(b"answer").await.unwrap();
        server.shutdown().await.unwrap();
        assert!(server.handle().is_done());
    });
    let mut answer = Vec::new();
    timeout(TIMEOUT, client.read_to_end(&mut answer)).await.expect("it ends").unwrap();
    assert_eq!(answer, b"answer");
    timeout(TIMEOUT, serve).await.expect("it ends").unwrap();
}

#[tokio::test]
async fn a_truncated_stream_is_an_error() {
    let site = Site::new();
    let (mut client, mut server) = site.connect(None, 1 << 16);
    let serve = tokio::spawn(async move {
        server.write_all(b"half").await.unwrap();
        server.flush().await.unwrap();
        server.handle().close();
    });
    let mut received = Vec::new();
    let read = timeout(TIMEOUT, client.read_to_end(&mut received)).await.expect("it ends");
    assert_eq!(read.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    assert_eq!(received, b"half");
    serve.await.unwrap();
    assert_eq!(client.read(&mut [0; 1]).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

#[tokio::test]
async fn closing_wakes_the_reader() {
    let site = Site::new();
    let (_client, mut server) = site.connect(None, 1 << 16);
    let handle = server.handle();
    let read = tokio::spawn(async move { server.read(&mut [0; 1]).await });
    run_other_tasks().await;
    handle.close();
    let read = timeout(TIMEOUT, read).await.expect("the reader was not woken").unwrap();
    assert_eq!(read.unwrap_err().kind(), io::ErrorKind::NotConnected);
    assert!(handle.with_transport(|_| ()).is_none());
}

/// Returns the server's answer to a client that sends `received` and waits for the end.
async fn answer_to(received: &[u8]) -> Vec<u8> {
    let site = Site::new();
    let (mut attacker, far) = duplex(1 << 16);
    let mut server = site.accept(far);
    attacker.write_all(received).await.unwrap();
    let read = server.read(&mut [0; 1]).await;
    assert_eq!(read.unwrap_err().kind(), io::ErrorKind::InvalidData);
    let mut answer = Vec::new();
    timeout(TIMEOUT, attacker.read_to_end(&mut answer)).await.expect("it ends").unwrap();
    answer
}

#[tokio::test]
async fn a_record_without_a_client_hello_gets_an_alert_and_an_end() {
    let answer = answer_to(&[22, 3, 1, 0, 5, 1, 0, 0, 1, 0]).await;
    assert_eq!(answer.first(), Some(&21), "no alert (RFC 8446 section 5.1)");
}

#[tokio::test]
async fn other_protocols_get_an_end() {
    assert_eq!(answer_to(b"GET / HTTP/1.1\r\n\r\n").await, b"");
}

#[tokio::test]
async fn nothing_is_written_after_the_end() {
    let site = Site::new();
    let (mut client, mut server) = site.connect(None, 1 << 16);
    let serve = tokio::spawn(async move {
        server.read_to_end(&mut Vec::new()).await.unwrap();
        // The other direction is still open.
        server.write_all(b"late").await.unwrap();
        server.shutdown().await.unwrap();
    });
    client.write_all(b"x").await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(client.write(b"y").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    let mut received = Vec::new();
    timeout(TIMEOUT, client.read_to_end(&mut received)).await.expect("it ends").unwrap();
    assert_eq!(received, b"late");
    serve.await.unwrap();
}

/// Each call of the transport costs a system call: records go together, and a truncation is
/// reported after them.
#[tokio::test]
async fn records_go_together_and_a_truncation_is_reported_after_them() {
    const RECORDS: usize = 2 * 16 * 1024;
    let (mut client, mut server) = Site::new().connect(None, 1 << 17);
    let serve = tokio::spawn(async move {
        server.handle().done().await.unwrap();
        assert_eq!(server.write(&pattern(RECORDS)).await.unwrap(), RECORDS);
        server.handle().close();
    });
    client.handle().done().await.unwrap();
    timeout(TIMEOUT, serve).await.unwrap().unwrap();
    let mut room = vec![0; 2 * RECORDS];
    let count = client.read(&mut room).await.unwrap();
    assert_eq!((count, &room[..count]), (RECORDS, &pattern(RECORDS)[..]));
    for _ in 0..2 {
        let error = client.read(&mut room).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
