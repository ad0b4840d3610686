use std::future::poll_fn;
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use headstart_net::advert::Advert;
use headstart_net::{Datagram, RecvBuffers, RecvError, UdpPort};
use headstart_proto::limits::SLOTS_MAX;
use headstart_proto::wire::RESPONSE_PAYLOAD_MAX;
use headstart_proto::{
    Client, ClientConfig, ClientEvent, GraceEstimator, JoinKey, SessionId, Wait,
};
use openssl::error::ErrorStack;
use openssl::ssl::{ErrorCode, SslStream};
use openssl::x509::X509;
use tokio::net::TcpStream;
use tokio::time::sleep_until;

use super::Key;
use crate::error::PeerError;
use crate::flight::{Memory, step};
use crate::options::ClientOptions;
use crate::tls::{Connection, Tls};
use crate::transport::connect;

/// Messages read in one system call: a server's flight arrives as one, or as few.
const BATCH: usize = 2;

/// A client of this arm, with what it remembers.
#[derive(Debug)]
pub(crate) struct PskClient {
    tls: Tls,
    to: SocketAddr,
    /// The slots to begin with and the most to send, instead of what it learns.
    slots: Option<u8>,
    /// The time to wait for an answer, instead of what it learns.
    grace: Option<Duration>,
    path: Mutex<Path>,
}

/// State of the path, as earlier connections have shown it.
#[derive(Clone, Copy, Debug)]
struct Path {
    grace: GraceEstimator,
    /// True if the last flight was answered.
    proven: bool,
    slots: u8,
}

/// TLS's states of one connection: of the handshake over UDP, and of the one on TCP.
pub(crate) struct Ready {
    over_udp: Connection,
    on_tcp: Connection,
}

/// A TCP connection on which nothing has been sent, and TLS's state for it.
pub(crate) struct Opened {
    pub(crate) tcp: TcpStream,
    pub(crate) tls: Connection,
    /// The reason why it has no key, or empty.
    pub(crate) reason: &'static str,
}

impl PskClient {
    pub(crate) fn new(options: &ClientOptions, roots: Vec<X509>) -> Result<Self, PeerError> {
        let tls = Tls::client(options.suite, roots, &options.name, false)?;
        let client = Self {
            tls,
            to: options.to,
            slots: options.slots,
            grace: options.grace,
            path: Mutex::new(Path::unknown(options.slots)),
        };
        // Mistakes show at once.
        client.ready()?;
        Ok(client)
    }

    pub(crate) fn ready(&self) -> Result<Ready, ErrorStack> {
        Ok(Ready { over_udp: self.tls.connection()?, on_tcp: self.tls.connection()? })
    }

    pub(crate) fn forget(&self) {
        *self.path() = Path::unknown(self.slots);
    }

    /// Connects TCP, and has the state for it offer a key if there is one in time.
    pub(crate) async fn open(&self, ready: Ready) -> io::Result<Opened> {
        let Ready { over_udp, on_tcp: mut tls } = ready;
        let (tcp, agreed) = self.agree(over_udp).await?;
        let offered = agreed.and_then(|Key { name, secret }| {
            tls.offer_key(&name, &*secret).map_err(|_| "key_not_offered")
        });
        Ok(Opened { tcp, tls, reason: offered.err().unwrap_or_default() })
    }

    /// Shakes hands over UDP while TCP connects. Returns the key, or the reason why there is none.
    async fn agree(&self, tls: Connection) -> io::Result<(TcpStream, Result<Key, &'static str>)> {
        let path = *self.path();
        let begun = Instant::now();
        let mut connecting = pin!(connect(self.to));
        // The SYN leaves first, as with TurboTLS.
        let mut tcp = match poll_fn(|cx| Poll::Ready(connecting.as_mut().poll(cx))).await {
            Poll::Ready(connected) => Some(connected?),
            Poll::Pending => None,
        };
        let slots = path.slots.min(self.slots.unwrap_or(SLOTS_MAX));
        let Ok(mut stage) = Stage::begin(tls, self.to, slots) else {
            let tcp = match tcp {
                Some(tcp) => tcp,
                None => connecting.await?,
            };
            return Ok((tcp, Err("no_udp")));
        };
        let delay = begun.elapsed();
        if tcp.is_some() {
            stage.connected(self.wait(path, Duration::ZERO, delay));
        }
        let outcome = loop {
            stage.send();
            if tcp.is_some()
                && let Some(outcome) = stage.outcome()
            {
                break outcome;
            }
            let deadline = stage.deadline();
            tokio::select! {
                // What is in the socket came in time, whatever else is due.
                biased;
                received = stage.port.recv(&mut stage.buffers) => stage.take(received),
                connected = &mut connecting, if tcp.is_none() => {
                    tcp = Some(connected?);
                    stage.connected(self.wait(path, begun.elapsed(), delay));
                }
                () = sleep_until(deadline.unwrap_or(begun).into()), if deadline.is_some() => {
                    stage.client.handle_timeout(stage.now());
                }
            }
        };
        self.learn(&stage, delay);
        Ok((tcp.ok_or(io::ErrorKind::NotConnected)?, outcome))
    }

    /// The time to wait for an answer, where TCP took `rtt` to connect and the flight left `delay`
    /// after its SYN.
    fn wait(&self, path: Path, rtt: Duration, delay: Duration) -> Option<Wait> {
        match self.grace {
            Some(grace) => Some(Wait { due: delay, ..Wait::within(grace) }),
            None => path.grace.wait(rtt, delay, path.proven),
        }
    }

    fn learn(&self, stage: &Stage, delay: Duration) {
        let mut path = self.path();
        path.proven = stage.answered.is_some();
        if let (Some(answered), Some(connected)) = (stage.answered, stage.connected) {
            path.grace.sample(answered.saturating_duration_since(connected + delay));
        }
        // A flight whose end did not come may have been longer.
        let needed = stage.flight.div_ceil(RESPONSE_PAYLOAD_MAX) + usize::from(!stage.is_whole);
        let needed = u8::try_from(needed).unwrap_or(SLOTS_MAX).min(SLOTS_MAX);
        path.slots = path.slots.max(needed);
    }

    /// No call can leave it half changed.
    fn path(&self) -> MutexGuard<'_, Path> {
        self.path.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Path {
    /// A path of which nothing is known, but for the slots that the server may have asked for.
    fn unknown(slots: Option<u8>) -> Self {
        let slots = slots.unwrap_or(Advert::default().slots);
        Self { grace: GraceEstimator::default(), proven: false, slots }
    }
}

/// The handshake over UDP: the client of TurboTLS, which never gets to its join, and TLS, whose
/// second flight nobody sends.
struct Stage {
    client: Client,
    id: SessionId,
    to: SocketAddr,
    port: UdpPort,
    buffers: RecvBuffers,
    tls: SslStream<Memory>,
    start: Instant,
    connected: Option<Instant>,
    /// When the first datagram of the server came.
    answered: Option<Instant>,
    /// The reason why the client would go on over TCP, once it would.
    plain: Option<&'static str>,
    /// Bytes of the server's flight so far, and whether those are all.
    flight: usize,
    is_whole: bool,
}

impl Stage {
    /// Makes the ClientHello, which is sent with this many slots, and one for an acknowledgement.
    fn begin(tls: Connection, to: SocketAddr, slots: u8) -> io::Result<Self> {
        let mut tls = SslStream::new(tls.ssl, Memory::default()).map_err(io::Error::other)?;
        step(tls.connect()).map_err(io::Error::other)?;
        let key = JoinKey::new(rand::random());
        let id = key.session_id();
        let mut client = Client::new(key, ClientConfig::default());
        client.offer_udp(ClientConfig { slots: slots + 1, ..ClientConfig::default() });
        let mut stage = Self {
            client,
            id,
            to,
            port: UdpPort::connect(to, None)?,
            buffers: RecvBuffers::new(BATCH),
            tls,
            start: Instant::now(),
            connected: None,
            answered: None,
            plain: None,
            flight: 0,
            is_whole: false,
        };
        let hello = mem::take(&mut stage.tls.get_mut().written);
        stage.client.handle_app_data(stage.now(), &hello);
        Ok(stage)
    }

    fn now(&self) -> headstart_proto::Instant {
        headstart_proto::Instant::from_epoch(self.start.elapsed())
    }

    fn deadline(&self) -> Option<Instant> {
        self.client.poll_timeout().map(|due| self.start + due.since_epoch())
    }

    fn connected(&mut self, wait: Option<Wait>) {
        self.connected = Some(Instant::now());
        self.client.handle_tcp_connected(self.now(), true, wait);
    }

    fn send(&mut self) {
        while let Some(bytes) = self.client.poll_datagram() {
            let datagram = Datagram { to: self.to, from: None, bytes: &bytes };
            // A datagram that cannot be sent now is lost, as on the network.
            let _ = self.port.try_send(&datagram);
        }
    }

    fn take(&mut self, received: Result<usize, RecvError>) {
        let now = self.now();
        match received {
            Ok(_) => {
                let datagrams = self.buffers.datagrams();
                datagrams.for_each(|datagram| self.client.handle_datagram(now, datagram.bytes));
            }
            Err(_) => self.client.handle_unreachable(now),
        }
    }

    /// Returns how it ended, once it has. Datagrams that somebody has forged may end it, or have it
    /// wait for a round trip: that costs the saving, and no more than this round trip.
    fn outcome(&mut self) -> Option<Result<Key, &'static str>> {
        while let Some(event) = self.client.poll_event() {
            match event {
                ClientEvent::DatagramReceived { .. } => {
                    self.answered.get_or_insert_with(Instant::now);
                }
                ClientEvent::Plain(reason) => self.plain = Some(reason.name()),
                _ => {}
            }
        }
        while let Some(bytes) = self.client.poll_app() {
            self.flight += bytes.len();
            self.tls.get_mut().to_read.extend_from_slice(&bytes);
        }
        match self.tls.connect() {
            Ok(()) => {
                self.is_whole = true;
                Some(Key::export(self.tls.ssl(), self.id).map_err(|_| "no_key"))
            }
            Err(error) if error.code() != ErrorCode::WANT_READ => Some(Err("udp_handshake")),
            Err(_) => {
                self.client.is_decided().then(|| Err(self.plain.unwrap_or("flight_incomplete")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::pin::Pin;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::arm::{Arm, Suite};
    use crate::content::request;
    use crate::identity;
    use crate::options::{NAME, ServerOptions};
    use crate::server::Server;
    use crate::sys;

    const BYTES: u64 = 1000;

    fn pair(directory: &std::path::Path) -> (Server, PskClient) {
        let (arm, suite) = (Arm::TURBO_PSK, Suite::P256);
        let options = ServerOptions::new(arm, suite, (Ipv4Addr::LOCALHOST, 0).into(), directory);
        // A port that is free for TCP may be in use for UDP.
        let server = (0..20).find_map(|_| Server::start(options.clone()).ok()).unwrap();
        let mut options = ClientOptions::new(arm, suite, server.local_addr(), directory);
        options.grace = Some(Duration::from_secs(5));
        let roots = identity::roots(directory, suite).unwrap();
        (server, PskClient::new(&options, roots).unwrap())
    }

    async fn agreed(client: &PskClient) -> Key {
        client.agree(client.tls.connection().unwrap()).await.unwrap().1.unwrap()
    }

    /// Offers a key on a TCP connection of its own, and gets a whole response there. Returns true
    /// if the server took the key, and the request behind it.
    async fn is_taken(client: &PskClient, key: &Key) -> Result<bool, openssl::ssl::Error> {
        let mut tls = client.tls.connection().unwrap();
        tls.offer_key(&key.name, &*key.secret).unwrap();
        let tcp = connect(client.to).await.unwrap();
        let mut stream = tokio_openssl::SslStream::new(tls.ssl, tcp).unwrap();
        let request = request(NAME, BYTES);
        Pin::new(&mut stream).write_early_data(&request).await?;
        Pin::new(&mut stream).connect().await?;
        let taken = stream.ssl().session_reused();
        assert_eq!(sys::early_data_accepted(stream.ssl()), taken);
        if !taken {
            stream.write_all(&request).await.unwrap();
        }
        let mut response = Vec::new();
        stream.read_to_end(&mut response).await.unwrap();
        assert!(response.len() > usize::try_from(BYTES).unwrap());
        Ok(taken)
    }

    #[tokio::test]
    async fn a_key_is_taken_once_and_then_the_handshake_is_a_full_one() {
        let directory = tempfile::tempdir().unwrap();
        let (_server, client) = pair(directory.path());
        let (first, second) = (agreed(&client).await, agreed(&client).await);
        assert_ne!(first.name, second.name);
        for (key, taken) in [(&first, true), (&first, false), (&second, true)] {
            assert_eq!(is_taken(&client, key).await.unwrap(), taken);
        }
        let unknown = Key { name: [7; 16], ..first };
        assert!(!is_taken(&client, &unknown).await.unwrap());
    }

    #[tokio::test]
    async fn who_has_the_name_of_a_key_alone_gets_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let (_server, client) = pair(directory.path());
        let key = Key { secret: [7; 32].into(), ..agreed(&client).await };
        assert!(is_taken(&client, &key).await.is_err());
    }
}
