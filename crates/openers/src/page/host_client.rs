//! Openings of each arm, and the state kept between connections.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use headstart_net::advert::Advert;
use headstart_net::dns::HTTPS_PORT;
use headstart_net::{Connector, Edge, Target};
use openssl::x509::X509;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_openssl::SslStream;

use super::plan::PagePlan;
use crate::arm::{Arm, Suite};
use crate::attempt::END;
use crate::client::{connector_config, edge};
use crate::error::PeerError;
use crate::fast_open::{FastOpenClient, VisitKey, Wire, established};
use crate::identity;
use crate::quic::{self, QuicClient};
use crate::sys;
use crate::tls::{Connection, Tls};
use crate::transport::{Transport, connect, connect_fast};
use crate::visit::Visit;
use headstart_proto::Carrier;

/// Bytes of a request that is early data at most: half of what servers take (see `EARLY_DATA_MAX`),
/// as they count records.
const EARLY_REQUEST_MAX: usize = 8 * 1024;

/// Clients of one arm for all hosts of a page.
pub(super) struct HostClients {
    arm: Arm,
    clients: Vec<HostClient>,
    turbo: Option<Turbo>,
}

/// Client for one host.
enum HostClient {
    Clear,
    Tls(Tls),
    FastOpen(Box<FastOpenClient>),
    Quic(Box<QuicClient>),
}

/// State that connections of TurboTLS share, whatever their host.
struct Turbo {
    edges: HashMap<String, Edge>,
    connect_timeout: Duration,
    connector: Mutex<Connector>,
}

/// A connection that takes requests.
pub(super) struct Opened {
    pub(super) channel: Channel,
    pub(super) opening: Carrier,
    /// True if TLS resumed a session; `None` where there is no TLS.
    pub(super) resumed: Option<bool>,
    /// Time at which the first request left, where it went with the opening.
    pub(super) sent: Option<Instant>,
}

/// Channel that requests go over.
pub(super) enum Channel {
    Stream(Box<dyn Duplex>),
    FastOpen(Box<(Wire, VisitKey)>),
    Quic(quic::Ready, quinn::Connection),
}

/// A byte stream of either kind.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Duplex for S {}

impl HostClients {
    /// Makes clients for all hosts of `plan`.
    pub(super) fn new(
        arm: Arm,
        suite: Suite,
        plan: &PagePlan,
        identity: &Path,
        connect_timeout: Duration,
    ) -> Result<Self, PeerError> {
        let roots = if arm.is_clear() { Vec::new() } else { identity::roots(identity, suite)? };
        let clients = plan.hosts.iter().map(|host| HostClient::new(arm, suite, &host.name, &roots));
        let clients = clients.collect::<Result<_, _>>()?;
        let turbo = arm.carrier() == Carrier::TurboTls;
        let turbo = turbo.then(|| Turbo::new(arm, plan, connect_timeout)).transpose()?;
        Ok(Self { arm, clients, turbo })
    }

    /// Returns true if the first request goes with the opening, so that a connection must know it.
    pub(super) fn need_request(&self) -> bool {
        let quic = self.arm.carrier() == Carrier::Quic;
        !quic && (self.arm.sends_early_data() || self.arm == Arm::HTTP_FAST_OPEN)
    }

    /// Returns true if a connection takes any number of requests at a time.
    pub(super) fn multiplex(&self) -> bool {
        self.arm.carrier() == Carrier::Quic
    }

    pub(super) fn forget(&self) -> Result<(), PeerError> {
        for client in &self.clients {
            match client {
                HostClient::Clear => {}
                HostClient::Tls(tls) => tls.forget(),
                HostClient::FastOpen(client) => client.forget(),
                HostClient::Quic(client) => client.forget(),
            }
        }
        self.turbo.as_ref().map_or(Ok(()), Turbo::forget)
    }

    /// Opens a connection to a host, which is called `name`; with its first request, if there is
    /// one and the arm can.
    pub(super) async fn open(
        &self,
        (host, name): (usize, &str),
        to: SocketAddr,
        first: Option<&[u8]>,
    ) -> Result<Opened, String> {
        let early = first.filter(|request| request.len() <= EARLY_REQUEST_MAX);
        let early = early.filter(|_| self.arm.sends_early_data());
        match (self.clients.get(host), &self.turbo) {
            (None, _) => Err(format!("there is no host {host}")),
            (Some(HostClient::Clear), _) => self.open_clear(to, first).await,
            (Some(HostClient::Tls(tls)), Some(turbo)) => {
                over_tls(tls, turbo.connect(name)?, early).await
            }
            (Some(HostClient::Tls(tls)), None) => {
                let tcp = connect(to).await.map_err(|error| no_connection(&error))?;
                over_tls(tls, tcp, early).await
            }
            (Some(HostClient::FastOpen(client)), _) => by_fast_open(client, to, early).await,
            (Some(HostClient::Quic(client)), _) => by_quic(client, to).await,
        }
    }

    /// Keeps what a connection that goes on has brought.
    pub(super) fn keep(&self, host: usize, channel: &mut Channel) {
        if let (Some(HostClient::FastOpen(client)), Channel::FastOpen(both)) =
            (self.clients.get(host), channel)
        {
            client.keep(&mut both.0, &both.1);
        }
    }

    async fn open_clear(&self, to: SocketAddr, first: Option<&[u8]>) -> Result<Opened, String> {
        let Some(request) = first.filter(|_| self.arm.opens_fast()) else {
            let tcp = connect(to).await.map_err(|error| no_connection(&error))?;
            return Ok(Opened::in_clear(tcp, Carrier::Tcp, None));
        };
        let (mut tcp, sent) = in_syn(to, request).await.map_err(|error| no_connection(&error))?;
        let taken = sys::syn_data_acknowledged(&tcp).unwrap_or(false);
        let rest = request.get(sent.0..).unwrap_or_default();
        tcp.write_all(rest).await.map_err(|error| no_connection(&error))?;
        let opening = if taken { Carrier::FastOpen } else { Carrier::Tcp };
        // Data in the SYN that the server did not accept leave again once connected.
        let left = if taken && rest.is_empty() { sent.1 } else { Instant::now() };
        Ok(Opened::in_clear(tcp, opening, Some(left)))
    }
}

impl Opened {
    fn in_clear(tcp: TcpStream, opening: Carrier, sent: Option<Instant>) -> Self {
        Self { channel: Channel::Stream(Box::new(tcp)), opening, resumed: None, sent }
    }
}

impl HostClient {
    fn new(arm: Arm, suite: Suite, name: &str, roots: &[X509]) -> Result<Self, PeerError> {
        Ok(match arm.carrier() {
            _ if arm.is_clear() => Self::Clear,
            Carrier::Tcp | Carrier::Spare | Carrier::TurboTls | Carrier::Proxy { .. } => {
                Self::Tls(Tls::client(suite, roots.to_vec(), name, arm.resumes())?)
            }
            Carrier::FastOpen | Carrier::Fop => {
                Self::FastOpen(Box::new(FastOpenClient::for_server(arm, suite, name, roots)?))
            }
            Carrier::Quic => {
                Self::Quic(Box::new(QuicClient::new(suite, roots, name, arm.sends_early_data())?))
            }
        })
    }
}

impl Turbo {
    fn new(arm: Arm, plan: &PagePlan, connect_timeout: Duration) -> Result<Self, PeerError> {
        let slots = Advert::default().slots;
        let edges = plan.hosts.iter().filter_map(|host| {
            Some((
                host.name.clone(),
                host.addresses.first().map(|to: &SocketAddr| edge(*to, slots, arm))?,
            ))
        });
        let edges: HashMap<_, _> = edges.collect();
        let connector = Mutex::new(connector(&edges, connect_timeout)?);
        Ok(Self { edges, connect_timeout, connector })
    }

    fn connect(&self, name: &str) -> Result<headstart_net::ClientStream, String> {
        let connector = self.connector.lock().unwrap_or_else(PoisonError::into_inner).clone();
        connector.connect(&Target::new(name, HTTPS_PORT)).map_err(|error| error.to_string())
    }

    fn forget(&self) -> Result<(), PeerError> {
        let new = connector(&self.edges, self.connect_timeout)?;
        *self.connector.lock().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }
}

fn connector(
    edges: &HashMap<String, Edge>,
    connect_timeout: Duration,
) -> Result<Connector, PeerError> {
    let edges = edges.clone();
    let mut config = connector_config(Arc::new(move |name| edges.get(name).cloned()))?;
    config.connect_timeout = connect_timeout;
    Ok(Connector::new(config))
}

/// TCP with as much of a request in the SYN as the system takes, once it is there; and how much
/// that was and when.
async fn in_syn(to: SocketAddr, request: &[u8]) -> std::io::Result<(TcpStream, (usize, Instant))> {
    let (tcp, taken) = connect_fast(to, request)?;
    let sent = Instant::now();
    established(&tcp).await?;
    Ok((tcp, (taken, sent)))
}

fn tls_error(error: impl std::fmt::Display) -> String {
    format!("TLS: {error}")
}

async fn over_tls(
    tls: &Tls,
    transport: impl Transport + 'static,
    early: Option<&[u8]>,
) -> Result<Opened, String> {
    let Connection { ssl, session } = tls.connection().map_err(tls_error)?;
    let allowed = session.is_some_and(|session| session.max_early_data() > 0);
    let early = early.filter(|_| allowed);
    let mut stream = SslStream::new(ssl, transport).map_err(tls_error)?;
    let begun = Instant::now();
    let mut left = early.unwrap_or_default();
    while !left.is_empty() {
        let written = Pin::new(&mut stream).write_early_data(left).await;
        let count = written.map_err(tls_error)?;
        left = left.get(count..).unwrap_or_default();
    }
    Pin::new(&mut stream).connect().await.map_err(tls_error)?;
    let accepted = early.is_some() && sys::early_data_accepted(stream.ssl());
    let (opening, _) = stream.get_ref().account();
    let resumed = Some(stream.ssl().session_reused());
    let sent = accepted.then_some(begun);
    Ok(Opened { channel: Channel::Stream(Box::new(stream)), opening, resumed, sent })
}

async fn by_fast_open(
    client: &FastOpenClient,
    to: SocketAddr,
    early: Option<&[u8]>,
) -> Result<Opened, String> {
    let ready = client.ready(&Visit::default(), to).map_err(|error| error.to_string())?;
    let opened = client.open_wire(ready, early).await?;
    Ok(Opened {
        opening: opened.account.opening,
        resumed: Some(opened.account.resumed),
        sent: opened.left,
        channel: Channel::FastOpen(Box::new((opened.wire, opened.key))),
    })
}

async fn by_quic(client: &QuicClient, to: SocketAddr) -> Result<Opened, String> {
    let ready = client.ready(to).map_err(|error| error.to_string())?;
    let (connection, early) = client.connect(&ready, to).await?;
    let resumed = Some(early.is_some());
    let channel = Channel::Quic(ready, connection);
    Ok(Opened { channel, opening: Carrier::Quic, resumed, sent: None })
}

fn no_connection(error: &std::io::Error) -> String {
    format!("cannot connect: {error}")
}

impl Channel {
    pub(super) async fn write(&mut self, request: &[u8]) -> Result<(), String> {
        match self {
            Self::Stream(stream) => stream.write_all(request).await.map_err(|error| broke(&error)),
            Self::FastOpen(both) => {
                both.0.write(request).await?;
                both.0.flush().await.map(drop)
            }
            Self::Quic(..) => Err("QUIC has a stream for each request".into()),
        }
    }

    /// Takes what is there of a response, at least one byte; how much that is, with none at the
    /// end.
    pub(super) async fn read(&mut self, buffer: &mut Vec<u8>) -> Result<usize, String> {
        match self {
            Self::Stream(stream) => {
                buffer.resize(READ, 0);
                let count = stream.read(buffer).await.map_err(|error| broke(&error))?;
                buffer.truncate(count);
            }
            Self::FastOpen(both) => {
                buffer.clear();
                buffer.extend_from_slice(both.0.read().await?.unwrap_or_default());
            }
            Self::Quic(..) => return Err("QUIC has a stream for each request".into()),
        }
        Ok(buffer.len())
    }

    /// Says that nothing more is asked for, and waits for the other side to say the same: tickets
    /// may come until then, and nothing of this connection disturbs the next load.
    pub(super) async fn close(&mut self) {
        // The page has arrived: how its connections end does not affect it.
        let _ = timeout(END, self.end()).await;
    }

    async fn end(&mut self) {
        match self {
            Self::Stream(stream) => {
                let _ = stream.shutdown().await;
            }
            Self::FastOpen(both) => {
                let _ = both.0.close().await;
            }
            Self::Quic(ready, connection) => {
                connection.close(0u32.into(), b"");
                ready.idle().await;
                return;
            }
        }
        let mut buffer = Vec::new();
        while self.read(&mut buffer).await.is_ok_and(|count| count > 0) {}
    }
}

/// Bytes read at a time: a whole TLS record.
const READ: usize = 16 * 1024;

fn broke(error: &std::io::Error) -> String {
    format!("the connection broke: {error}")
}
