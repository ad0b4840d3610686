//! TurboTLS clients that do as little as the protocol allows (docs/wire.md), so that the edge is
//! what is measured.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use headstart_proto::wire::{JOIN_ANSWER_LEN, Join, JoinAnswer, Request, Response, Status};
use headstart_proto::{JoinKey, RouteTag};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, UdpSocket};

use super::tcp::{self, FLIGHT};
use super::{Failure, stats};

/// Slots behind the ClientHello: three for the server flight, one for the acknowledgement.
const SLOTS: u8 = 4;

/// A handshake that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(1);

/// The datagrams of one client, and the key to their session.
pub(crate) struct Flight {
    key: [u8; 16],
    pub(crate) datagrams: Vec<Vec<u8>>,
    client_bytes: usize,
}

impl Flight {
    pub(crate) fn new(hello: &[u8]) -> Self {
        let key = rand::random();
        let id = JoinKey::new(key).session_id();
        let mut datagrams = vec![Request { id, seq: 0, offset: 0, payload: hello }.emit()];
        datagrams
            .extend((1..=SLOTS).map(|seq| Request { id, seq, offset: 0, payload: &[] }.emit()));
        Self { key, datagrams, client_bytes: hello.len() }
    }

    /// Sends the flight, takes the server's over UDP, and joins; says how long the server flight
    /// took.
    pub(crate) async fn open(&self, udp: &UdpSocket, edge: SocketAddr) -> io::Result<Duration> {
        let begun = Instant::now();
        for datagram in &self.datagrams {
            udp.send_to(datagram, edge).await?;
        }
        let connect = TcpSocket::new_v4()?.connect(edge);
        let (answered, tcp) = tokio::join!(self.answers(udp), connect);
        let took = answered?.duration_since(begun);
        let mut tcp = tcp?;
        tcp.set_nodelay(true)?;
        tcp.write_all(&self.join()?).await?;
        let mut answer = [0; JOIN_ANSWER_LEN];
        tcp.read_exact(&mut answer).await?;
        match JoinAnswer::parse(&answer) {
            Ok(JoinAnswer { status: Status::Joined, .. }) => Ok(took),
            _ => Err(io::ErrorKind::ConnectionRefused.into()),
        }
    }

    /// When the server's whole flight was there.
    async fn answers(&self, udp: &UdpSocket) -> io::Result<Instant> {
        let id = JoinKey::new(self.key).session_id();
        let mut buffer = [0; 2048];
        let mut bytes = 0;
        while bytes < FLIGHT {
            let length = udp.recv(&mut buffer).await?;
            // Others belong to a handshake of this socket that was given up.
            if let Ok(response) = Response::parse(buffer.get(..length).unwrap_or_default())
                && response.id == id
            {
                bytes += response.payload.len();
            }
        }
        Ok(Instant::now())
    }

    fn join(&self) -> io::Result<Vec<u8>> {
        let offset = |bytes| u32::try_from(bytes).map_err(io::Error::other);
        let join = Join {
            key: JoinKey::new(self.key),
            tag: RouteTag::default(),
            client_offset: offset(self.client_bytes)?,
            server_offset: offset(FLIGHT)?,
        };
        Ok(join.emit())
    }
}

/// Durations of handshakes, in seconds and sorted, and the number of failed ones.
pub(crate) struct Handshakes {
    pub(crate) times: Vec<f64>,
    pub(crate) failed: u64,
    pub(crate) seconds: f64,
}

impl Handshakes {
    pub(crate) fn rate(&self) -> f64 {
        self.times.len() as f64 / self.seconds
    }

    pub(crate) fn quantile(&self, share: f64) -> f64 {
        stats::quantile(&self.times, share)
    }
}

/// Opens connections to `edge` for `time` from `clients` addresses: each again at once, or all of
/// them together `rate` in a second.
pub(crate) fn handshakes(
    edge: SocketAddr,
    clients: u16,
    rate: Option<f64>,
    time: Duration,
) -> Result<Handshakes, Failure> {
    let hello = tcp::client_hello()?;
    let work = async move {
        let all = Arc::new(Mutex::new((Vec::new(), 0)));
        let begun = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for client in 0..clients {
            let (all, mut hello) = (Arc::clone(&all), hello.clone());
            tasks.spawn(async move {
                let udp = UdpSocket::bind((address(client), 0)).await?;
                let between = rate.map(|rate| Duration::from_secs_f64(f64::from(clients) / rate));
                // Spread over the interval.
                let first =
                    between.map(|between| between.mul_f64(f64::from(client) / f64::from(clients)));
                let mut next = tokio::time::Instant::now() + first.unwrap_or_default();
                while begun.elapsed() < time {
                    if let Some(between) = between {
                        tokio::time::sleep_until(next).await;
                        next += between;
                    }
                    tcp::renew(&mut hello);
                    let flight = Flight::new(&hello);
                    let opened = tokio::time::timeout(PATIENCE, flight.open(&udp, edge)).await;
                    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
                    match opened {
                        Ok(Ok(took)) => all.0.push(took.as_secs_f64()),
                        _ => all.1 += 1,
                    }
                }
                Ok::<(), io::Error>(())
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        let seconds = begun.elapsed().as_secs_f64();
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut times, failed) = std::mem::take(&mut *all);
        times.sort_by(f64::total_cmp);
        Ok::<_, Failure>(Handshakes { times, failed, seconds })
    };
    tcp::on_thread(work).join().map_err(|_| "the clients panicked")??
}

/// In networks of 32 clients: an edge admits 64 unproven sessions of each.
fn address(client: u16) -> IpAddr {
    let [high, low] = (client / 32 * 256 + client % 32 + 1).to_be_bytes();
    IpAddr::from(Ipv4Addr::new(198, 19, 128 + high, low))
}

/// Opens one connection from `from`; its datagrams are returned.
pub(crate) fn open_once(from: SocketAddr, edge: SocketAddr) -> Result<Vec<Vec<u8>>, Failure> {
    let mut hello = tcp::client_hello()?;
    tcp::renew(&mut hello);
    let work = async move {
        let udp = UdpSocket::bind(from).await?;
        let flight = Flight::new(&hello);
        tokio::time::timeout(PATIENCE, flight.open(&udp, edge)).await??;
        Ok::<_, Failure>(flight.datagrams)
    };
    tcp::on_thread(work).join().map_err(|_| "the client panicked")??
}
