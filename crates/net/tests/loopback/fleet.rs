//! Edges of one fleet on loopback: datagrams reach one edge, and TCP another.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use headstart_net::{
    Acceptor, AcceptorConfig, Fleet, Generations, RelayCounts, RelayLimits, ServerStream, TlsStream,
};
use headstart_proto::join::{Answer, Join, REFUSAL};
use headstart_proto::wire::{FORWARD_LEN, Forward, Request, Response};
use headstart_proto::{EdgeNumber, JoinKey, RouteTag, UnixSeconds};
use headstart_testkit::hello::record;
use headstart_tls::keyring::{FleetKey, KeyRing, PERIOD};
use headstart_tls::{LinkContext, SharedRing};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::generations::link;
use crate::hello::{BEHIND_HELLO, HELLO, hello};
use crate::join::{join, parsed};
use crate::proxied;
use crate::time::{TIMEOUT, stop_clock};

/// More than there are streams.
const TASKS: usize = 100;

static COUNTS: LazyLock<RelayCounts> = LazyLock::new(RelayCounts::default);

/// State that all edges of a site share.
struct Site {
    key: FleetKey,
    ring: KeyRing,
    listeners: Vec<Option<TcpListener>>,
    edges: BTreeMap<EdgeNumber, SocketAddr>,
    config: AcceptorConfig,
}

impl Site {
    /// Creates a site with this many edges, whose numbers count from 1.
    async fn new(edges: u8) -> Self {
        let ring = KeyRing::generate(UnixSeconds(1_790_000_000), PERIOD).unwrap();
        let mut site = Self {
            key: FleetKey::generate().unwrap(),
            ring,
            listeners: Vec::new(),
            edges: BTreeMap::new(),
            config: AcceptorConfig::default(),
        };
        for number in 1..=edges {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            site.edges.insert(edge(number), listener.local_addr().unwrap());
            site.listeners.push(Some(listener));
        }
        site
    }

    /// Starts an edge that has `key` for the others.
    fn start_with(&mut self, number: u8, key: &FleetKey, ring: &KeyRing) -> Edge {
        let ring = Arc::new(SharedRing::new(ring.clone()));
        let fleet = Arc::new(Fleet::new(
            edge(number),
            self.edges.clone(),
            LinkContext::new(key).unwrap(),
            Arc::clone(&ring),
            RelayLimits::default(),
            &COUNTS,
        ));
        let generations = Arc::new(Generations::default());
        let config = AcceptorConfig {
            fleet: Some(Arc::clone(&fleet)),
            generations: Some(Arc::clone(&generations)),
            ..self.config.clone()
        };
        let acceptor = Acceptor::bind("127.0.0.1:0".parse().unwrap(), config).unwrap();
        let listener = self.listeners[usize::from(number) - 1].take().unwrap();
        let tasks = Arc::new(Semaphore::new(TASKS));
        let links = fleet.serve(listener, Arc::clone(&generations), Arc::clone(&tasks));
        Edge { acceptor, ring, generations, tasks, links: tokio::spawn(links) }
    }

    fn start(&mut self, number: u8) -> Edge {
        let (key, ring) = (self.key.clone(), self.ring.clone());
        self.start_with(number, &key, &ring)
    }
}

struct Edge {
    acceptor: Acceptor,
    ring: Arc<SharedRing>,
    generations: Arc<Generations>,
    /// Permits of streams that are relayed.
    tasks: Arc<Semaphore>,
    /// Accepts joins from other edges.
    links: JoinHandle<()>,
}

impl Edge {
    fn address(&self) -> SocketAddr {
        self.acceptor.local_addr()
    }

    /// Returns the next stream.
    async fn next(&mut self) -> ServerStream {
        let arrival = timeout(TIMEOUT, self.acceptor.accept()).await.unwrap().unwrap();
        arrival.establish().await.unwrap().unwrap()
    }

    /// Establishes every arrival.
    fn establish_all(self) -> SocketAddr {
        let (address, mut acceptor) = (self.address(), self.acceptor);
        tokio::spawn(async move {
            while let Ok(arrival) = acceptor.accept().await {
                tokio::spawn(arrival.establish());
            }
        });
        address
    }

    /// Makes the edge unreachable for the others.
    async fn cut_off(&mut self) {
        self.links.abort();
        let _ = (&mut self.links).await;
    }
}

fn edge(number: u8) -> EdgeNumber {
    EdgeNumber::new(number).unwrap()
}

/// A client whose datagrams were answered by one edge.
struct Client {
    key: JoinKey,
    hello: Vec<u8>,
    tag: RouteTag,
}

impl Client {
    async fn with_session_at(owner: &Edge) -> Self {
        let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        udp.connect(owner.address()).await.unwrap();
        let (key, hello) = (JoinKey::new(rand::random()), hello(rand::random()));
        let request = Request { id: key.session_id(), seq: 0, offset: 0, payload: &hello };
        udp.send(&request.emit()).await.unwrap();
        let mut datagram = [0; 2048];
        let length = timeout(TIMEOUT, udp.recv(&mut datagram)).await.unwrap().unwrap();
        let tag = Response::parse(&datagram[..length]).unwrap().tag;
        Self { key, hello, tag }
    }

    fn join_from(&self, client_offset: u32) -> Join {
        Join { key: self.key.clone(), tag: self.tag, client_offset, server_offset: 0 }
    }

    /// Joins at `edge`; `bytes` follow the join at once.
    async fn join(&self, edge: SocketAddr, offset: u32, bytes: &[u8]) -> (TcpStream, Answer) {
        let mut tcp = TcpStream::connect(edge).await.unwrap();
        let answer = join(&mut tcp, &self.join_from(offset), &self.hello, bytes).await;
        (tcp, answer)
    }
}

#[tokio::test]
async fn a_join_at_another_edge_reaches_the_session() {
    let _stopped = stop_clock();
    let mut site = Site::new(3).await;
    let (mut owner, other) = (site.start(1), site.start(3));
    let client = Client::with_session_at(&owner).await;
    let mut stream = owner.next().await;
    let proven = stream.proven_addr();
    let other = other.establish_all();
    let (mut tcp, answer) = client.join(other, BEHIND_HELLO, b"and more").await;
    assert_eq!(answer, Answer::Accepted(0));
    let mut bytes = [0; HELLO + 8];
    timeout(TIMEOUT, stream.read_exact(&mut bytes)).await.unwrap().unwrap();
    assert_eq!(bytes[..HELLO], client.hello);
    assert_eq!(&bytes[HELLO..], b"and more");
    assert_eq!(proven.get(), tcp.local_addr().ok(), "the client's address, not the edge's");

    // A large transfer in both directions, each of which ends by itself.
    let size = 4 << 20;
    let served = tokio::spawn(async move {
        let mut got = Vec::new();
        stream.write_all(&vec![7; size]).await.unwrap();
        stream.shutdown().await.unwrap();
        stream.read_to_end(&mut got).await.unwrap();
        got.len()
    });
    let mut got = Vec::new();
    timeout(TIMEOUT, tcp.read_to_end(&mut got)).await.unwrap().unwrap();
    assert_eq!(got.len(), size);
    tcp.write_all(&vec![9; size]).await.unwrap();
    tcp.shutdown().await.unwrap();
    assert_eq!(timeout(TIMEOUT, served).await.unwrap().unwrap(), size);
}

/// The owner compares the client's address with that of its datagrams.
#[tokio::test]
async fn a_join_from_a_balancer_reaches_the_session() {
    let _stopped = stop_clock();
    let mut site = Site::new(2).await;
    site.config = proxied::config();
    let (mut owner, other) = (site.start(1), site.start(2));
    let client = Client::with_session_at(&owner).await;
    let mut stream = owner.next().await;
    let mut tcp = proxied::connect(other.establish_all()).await;
    let answer = join(&mut tcp, &client.join_from(BEHIND_HELLO), &client.hello, b"").await;
    assert_eq!(answer, Answer::Accepted(0));
    timeout(TIMEOUT, stream.joined()).await.unwrap().unwrap();
    assert_eq!(stream.proven_addr().get(), Some(proxied::CLIENT.into()));
}

/// The other edge asks the process that listens now.
#[tokio::test]
async fn a_forwarded_join_reaches_the_session_of_the_process_before() {
    let _stopped = stop_clock();
    let mut site = Site::new(2).await;
    let mut before = site.start(1);
    let client = Client::with_session_at(&before).await;
    let mut stream = before.next().await;
    let proven = stream.proven_addr();
    before.cut_off().await;
    let listener = TcpListener::bind(site.edges[&edge(1)]).await.unwrap();
    site.listeners[0] = Some(listener);
    let after = site.start(1);
    let _links = link(&before.generations, &after.generations);
    before.acceptor.stop_listening();
    before.establish_all();
    let other = site.start(2).establish_all();
    let (mut tcp, answer) = client.join(other, BEHIND_HELLO, b"and more").await;
    assert_eq!(answer, Answer::Accepted(0));
    let mut bytes = [0; HELLO + 8];
    timeout(TIMEOUT, stream.read_exact(&mut bytes)).await.unwrap().unwrap();
    assert_eq!(&bytes[HELLO..], b"and more");
    assert_eq!(proven.get(), tcp.local_addr().ok(), "the client's address, not a relay's");
    assert_eq!(after.tasks.available_permits(), TASKS - 1, "a stop has to wait for it");
    stream.write_all(b"answered").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut got = Vec::new();
    timeout(TIMEOUT, tcp.read_to_end(&mut got)).await.unwrap().unwrap();
    assert_eq!(got, b"answered");
    drop((tcp, stream));
    let all = after.tasks.acquire_many(u32::try_from(TASKS).unwrap());
    drop(timeout(TIMEOUT, all).await.unwrap().unwrap());
    // It is joined once.
    assert_eq!(client.join(other, BEHIND_HELLO, b"").await.1, Answer::Refused);
}

#[tokio::test]
async fn the_owners_flight_follows_its_answer() {
    let _stopped = stop_clock();
    let mut site = Site::new(2).await;
    let (mut owner, other) = (site.start(1), site.start(2));
    let client = Client::with_session_at(&owner).await;
    let mut stream = owner.next().await;
    let flight = [record(22, &[1; 90]), record(23, &[2; 3000])].concat();
    stream.write_all(&flight).await.unwrap();
    let (mut tcp, answer) = client.join(other.establish_all(), BEHIND_HELLO, b"").await;
    assert_eq!(answer, Answer::Accepted(0));
    let mut bytes = vec![0; flight.len()];
    timeout(TIMEOUT, tcp.read_exact(&mut bytes)).await.unwrap().unwrap();
    assert_eq!(bytes, flight);
}

#[tokio::test]
async fn a_client_that_delivered_nothing_is_served_by_any_edge_without_a_join() {
    let mut site = Site::new(2).await;
    let (mut owner, mut other) = (site.start(1), site.start(2));
    let client = Client::with_session_at(&owner).await;
    let _stream = owner.next().await;
    let mut tcp = TcpStream::connect(other.address()).await.unwrap();
    tcp.write_all(&client.hello).await.unwrap();
    let mut stream = other.next().await;
    let mut bytes = [0; HELLO];
    timeout(TIMEOUT, stream.read_exact(&mut bytes)).await.unwrap().unwrap();
    assert_eq!(bytes.as_slice(), client.hello);
}

#[tokio::test]
async fn a_broken_connection_breaks_at_the_owner() {
    let _stopped = stop_clock();
    let mut site = Site::new(2).await;
    let (mut owner, other) = (site.start(1), site.start(2));
    let client = Client::with_session_at(&owner).await;
    let mut stream = owner.next().await;
    let (tcp, answer) = client.join(other.establish_all(), 0, &client.hello).await;
    assert_eq!(answer, Answer::Accepted(0));
    let mut bytes = [0; HELLO];
    timeout(TIMEOUT, stream.read_exact(&mut bytes)).await.unwrap().unwrap();
    tcp.set_zero_linger().unwrap();
    drop(tcp);
    let broken = timeout(TIMEOUT, stream.read(&mut bytes)).await.unwrap();
    assert!(broken.is_err(), "a reset looked like an orderly end: {broken:?}");
}

#[tokio::test]
async fn edges_one_rotation_apart_find_each_other() {
    let _stopped = stop_clock();
    let mut site = Site::new(2).await;
    let (key, ring) = (site.key.clone(), site.ring.clone());
    let ahead = ring.rotated(UnixSeconds(1_790_000_001)).unwrap();
    let mut owner = site.start_with(1, &key, &ahead);
    let other = site.start_with(2, &key, &ring).establish_all();
    let client = Client::with_session_at(&owner).await;
    let _stream = owner.next().await;
    // The other edge does not know the session, and would accept a join from the start.
    assert_eq!(client.join(other, BEHIND_HELLO, b"").await.1, Answer::Accepted(0));
}

/// Holds for an edge that no longer gets TurboTLS clients, too.
#[tokio::test]
async fn replaced_keys_are_not_kept() {
    let mut site = Site::new(1).await;
    let mut owner = site.start(1);
    let _client = Client::with_session_at(&owner).await;
    let _stream = owner.next().await;
    let before = Arc::downgrade(&owner.ring.current());
    owner.ring.replace(site.ring.rotated(UnixSeconds(1_790_000_001)).unwrap());
    assert!(before.upgrade().is_none(), "the secret that left is wiped");
    assert_ne!(Client::with_session_at(&owner).await.tag, RouteTag::default());
}

/// Checks that a join from the start begins a stream at the edge where it came, and that one of a
/// client that has delivered something is refused.
async fn decides_alone(mut owner: Edge, mut other: Edge) {
    let _stopped = stop_clock();
    let clients = [Client::with_session_at(&owner).await, Client::with_session_at(&owner).await];
    let _streams = [owner.next().await, owner.next().await];
    owner.cut_off().await;
    let address = other.address();
    let joins = async {
        let [from_start, committed] = &clients;
        let (tcp, answer) = from_start.join(address, 0, &from_start.hello).await;
        assert_eq!(answer, Answer::Accepted(0));
        assert_eq!(committed.join(address, BEHIND_HELLO, b"").await.1, Answer::Refused);
        tcp
    };
    let served = async {
        let arrival = timeout(TIMEOUT, other.acceptor.accept()).await.unwrap().unwrap();
        let mut stream = arrival.establish().await.unwrap().expect("a stream of its own");
        let mut bytes = [0; HELLO];
        timeout(TIMEOUT, stream.read_exact(&mut bytes)).await.unwrap().unwrap();
        assert_eq!(bytes.as_slice(), clients[0].hello);
        other.establish_all();
    };
    tokio::join!(joins, served);
}

// W-FLEET-3
#[tokio::test]
async fn an_edge_decides_alone_if_the_owner_is_unreachable() {
    let mut site = Site::new(2).await;
    let (owner, other) = (site.start(1), site.start(2));
    decides_alone(owner, other).await;
}

#[tokio::test]
async fn an_edge_decides_alone_if_the_owner_is_unknown() {
    let mut site = Site::new(2).await;
    let mut owner = site.start(1);
    site.edges.remove(&edge(1));
    let other = site.start(2);
    owner.links = tokio::spawn(async {}); // it would answer if its address were known
    decides_alone(owner, other).await;
}

/// A list that leads back to where the join came: the join does not loop.
#[tokio::test]
async fn an_edge_decides_alone_if_the_list_leads_back_to_it() {
    let mut site = Site::new(2).await;
    let owner = site.start(1);
    let itself = site.edges[&edge(2)];
    site.edges.insert(edge(1), itself);
    let other = site.start(2);
    decides_alone(owner, other).await;
}

// W-FLEET-2
#[tokio::test]
async fn joins_are_not_forwarded_to_an_edge_with_another_key() {
    let mut site = Site::new(2).await;
    let (stranger, ring) = (FleetKey::generate().unwrap(), site.ring.clone());
    let mut owner = site.start_with(1, &stranger, &ring);
    let other = site.start(2).establish_all();
    let client = Client::with_session_at(&owner).await;
    let _stream = owner.next().await;
    assert_eq!(client.join(other, BEHIND_HELLO, b"").await.1, Answer::Refused);
    // The join had no effect there either: the session still waits.
    let owner = owner.establish_all();
    assert_eq!(client.join(owner, BEHIND_HELLO, b"").await.1, Answer::Accepted(0));
}

/// A peer that is not an edge connects to the port for edges.
#[tokio::test]
async fn the_port_for_edges_reveals_nothing_to_strangers() {
    let mut site = Site::new(1).await;
    let _owner = site.start(1);
    let address = site.edges[&edge(1)];
    let forwarded = forwarded(&random_join());
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &forwarded, &[22, 3, 1, 0, 1, 0]] {
        let mut tcp = TcpStream::connect(address).await.unwrap();
        tcp.write_all(bytes).await.unwrap();
        let mut got = Vec::new();
        let _ = timeout(TIMEOUT, tcp.read_to_end(&mut got)).await.expect("link still open");
        assert!(got.is_empty() || got[0] == 21, "more than an alert: {got:?}");
    }
    // The edge does not wait for a peer that sends nothing.
    let mut silent = TcpStream::connect(address).await.unwrap();
    let mut got = Vec::new();
    let _ = timeout(TIMEOUT, silent.read_to_end(&mut got)).await.expect("link still open");
}

fn random_join() -> Vec<u8> {
    let (key, tag) = (JoinKey::new(rand::random()), RouteTag::default());
    let join = Join { key, tag, client_offset: 0, server_offset: 0 };
    join.emit(&parsed(&hello(rand::random())))
}

/// Returns what an edge writes for a client that has sent these bytes.
fn forwarded(bytes: &[u8]) -> Vec<u8> {
    let client = "192.0.2.1:50000".parse().unwrap();
    [Forward { client }.emit(), bytes.to_vec()].concat()
}

/// Sends this to the only edge of a site as one that has its key; returns all that comes back.
async fn sent_to_edge(site: &Site, bytes: &[u8]) -> Vec<u8> {
    all_of(link_with(site, bytes).await).await
}

/// Returns a link to the only edge of a site, by which it got these bytes.
async fn link_with(site: &Site, bytes: &[u8]) -> TlsStream<TcpStream> {
    let context = LinkContext::new(&site.key).unwrap();
    let tcp = TcpStream::connect(site.edges[&edge(1)]).await.unwrap();
    let mut link = TlsStream::new(context.connect().unwrap(), tcp);
    link.write_all(bytes).await.unwrap();
    link.flush().await.unwrap();
    link
}

async fn all_of(mut link: TlsStream<TcpStream>) -> Vec<u8> {
    let mut got = Vec::new();
    let _ = timeout(TIMEOUT, link.read_to_end(&mut got)).await.expect("link still open");
    got
}

/// A peer that has the key, but sends what no edge would.
#[tokio::test]
async fn malformed_forwarded_joins_are_closed_at_once() {
    let _stopped = stop_clock();
    let mut site = Site::new(1).await;
    let _owner = site.start(1);
    let join = random_join();
    let mut version_1 = forwarded(&join);
    version_1[1] = 1;
    let client_hello = forwarded(&hello(rand::random()));
    let no_tls = forwarded(b"GET / HTTP/1.1\r\n\r\n");
    for bytes in [&[0xff; FORWARD_LEN], &join[..], &version_1, &client_hello, &no_tls] {
        let got = sent_to_edge(&site, bytes).await;
        assert!(got.is_empty(), "{got:?}");
    }
}

#[tokio::test]
async fn an_edge_does_not_wait_long_for_the_rest_of_a_forwarded_join() {
    let _stopped = stop_clock();
    let mut site = Site::new(1).await;
    let _owner = site.start(1);
    let whole = forwarded(&random_join());
    let mut links = Vec::new();
    for length in [1, FORWARD_LEN, whole.len() - 1] {
        links.push(link_with(&site, &whole[..length]).await);
    }
    tokio::time::advance(Duration::from_secs(3)).await;
    for link in links {
        assert!(all_of(link).await.is_empty(), "an answer to a part");
    }
}

/// The edge to which the client came decides whether it begins a new stream (W-FLEET-4).
#[tokio::test]
async fn an_edge_refuses_a_forwarded_join_of_a_session_that_it_does_not_have() {
    let _stopped = stop_clock();
    let mut site = Site::new(1).await;
    let _owner = site.start(1);
    assert_eq!(sent_to_edge(&site, &forwarded(&random_join())).await, REFUSAL);
}
