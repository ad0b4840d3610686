//! The server side on sockets: TurboTLS and plain connections on one port.

mod arrival;
mod event;
mod fleet;
mod generations;
mod proxied;
mod quic;
mod session;
mod shared;
mod sockets;
mod stream;
mod transport;
mod worker;

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use headstart_proto::Carrier;
use headstart_proto::limits::SESSION_LIFE_SPARE;
use headstart_proto::{RouteTag, ServerConfig};
use ipnet::IpNet;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};

use crate::careful::CarefulResume;
use crate::fastopen::HiddenListener;

pub use arrival::Arrival;
pub use fleet::Fleet;
pub use generations::{Direction, Generations, StrayJoin};
#[doc(hidden)]
pub use proxied::read as read_proxy_header;
pub use quic::QuicServer;
pub use sockets::{Inherited, ListenAddress, ListenSockets, listen_tcp};
pub use stream::ServerStream;

use arrival::Unclassified;
use event::NewSession;
use generations::Stray;
use shared::Shared;
use transport::ClientTransport;
use worker::Receivers;

/// TCP connections at one time that have not yet sent enough to classify them, or wait for a
/// permit.
///
/// As many as the kernel's queue holds behind them. They count apart from the permits of served
/// streams: otherwise sessions that hold all permits would wait for joins that wait for a permit.
const ESTABLISHING_MAX: usize = 4096;

/// Configuration of an [`Acceptor`].
#[derive(Clone, Debug)]
pub struct AcceptorConfig {
    /// Limits of unproven sessions, and treatment of early data.
    pub server: ServerConfig,
    /// Threads that read datagrams, each with a socket of its own (SO_REUSEPORT); 0 turns UDP off.
    pub udp_workers: usize,
    /// Port of the datagrams, where it is not TCP's.
    pub udp_port: Option<NonZeroU16>,
    /// A server for QUIC datagrams, which are dropped without one.
    pub quic: Option<QuicServer>,
    /// Time that a client may take for its ClientHello or join once TCP is connected.
    pub hello_timeout: Duration,
    /// One permit for each stream served; several acceptors may share them. Without a free one no
    /// session starts over UDP, so that its client comes over TCP, and TCP connections wait.
    pub permits: Arc<Semaphore>,
    /// TCP connections at one time without a permit: in their first bytes, or waiting for one.
    pub establishing: usize,
    /// Balancers whose connections begin with a PROXY protocol version 2 header, which says the
    /// client's address.
    pub balancers: Vec<IpNet>,
    /// A second listener, of the same family, to which SYNs with valid cookies are steered: its
    /// streams were opened by Fast Open.
    pub hidden: Option<Arc<HiddenListener>>,
    /// The fleet that this edge belongs to: its tags name the edge, and the acceptor forwards joins
    /// with another edge's tag.
    pub fleet: Option<Arc<Fleet>>,
    /// The processes of this edge before and after this one.
    pub generations: Option<Arc<Generations>>,
    /// Careful Resume, if connections are to begin with windows of earlier ones.
    pub careful: Option<Arc<CarefulResume>>,
    /// True if each connection keeps a timeline of at most 96 events ([`Arrival::timeline`]).
    pub timelines: bool,
}

impl Default for AcceptorConfig {
    fn default() -> Self {
        Self {
            server: ServerConfig::default(),
            udp_workers: 1,
            udp_port: None,
            quic: None,
            // So that a join may arrive as late as its session lives. HAProxy's usual 10 s cut off
            // one client in 150 where 20 % of packets are lost each way.
            hello_timeout: SESSION_LIFE_SPARE,
            permits: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
            establishing: ESTABLISHING_MAX,
            balancers: Vec::new(),
            hidden: None,
            fleet: None,
            generations: None,
            careful: None,
            timelines: false,
        }
    }
}

/// Accepts connections on one address, on TCP and, unless told otherwise, on the UDP port of the
/// same number.
///
/// Dropping it ends the sessions that have not joined.
#[derive(Debug)]
pub struct Acceptor {
    /// Absent once another process listens.
    listener: Option<TcpListener>,
    hidden: Option<Arc<HiddenListener>>,
    local: SocketAddr,
    shared: Arc<Shared>,
    establishing: Arc<Semaphore>,
    sessions: mpsc::Receiver<NewSession>,
    /// Joins that another process of this edge has passed on.
    strays: mpsc::Receiver<Stray>,
    /// The threads that read datagrams.
    receivers: Option<Receivers>,
}

impl Acceptor {
    /// Listens on `address`; an IPv6 address never takes IPv4. Port 0 picks a free port.
    ///
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The system's error for binding either socket.
    pub fn bind(address: SocketAddr, config: AcceptorConfig) -> io::Result<Self> {
        let AcceptorConfig { udp_port, udp_workers, .. } = config;
        let address = ListenAddress { tcp: address, udp_port, udp_workers };
        Self::new(ListenSockets::open(address, Inherited::default())?, config)
    }

    /// Accepts on `sockets`, which decide of workers and ports.
    ///
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The system's error for starting a thread.
    pub fn new(sockets: ListenSockets, config: AcceptorConfig) -> io::Result<Self> {
        let acceptor = Self::prepared(sockets, config)?;
        acceptor.start();
        Ok(acceptor)
    }

    /// Makes an acceptor on `sockets` that leaves them alone until it is [started](Self::start), as
    /// another process may listen on them so far.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn prepared(sockets: ListenSockets, config: AcceptorConfig) -> io::Result<Self> {
        let ListenSockets { listener, workers } = sockets;
        let local = listener.local_addr()?;
        let ports = workers.iter().map(|worker| Arc::clone(&worker.port)).collect();
        let config = AcceptorConfig { server: with_tag(config.server), ..config };
        let (sessions_in, sessions) = mpsc::channel(headstart_proto::limits::SESSIONS);
        let establishing = Arc::new(Semaphore::new(config.establishing));
        let hidden = config.hidden.clone();
        let quic = config.quic;
        let shared = Arc::new(Shared::new(config, ports, sessions_in));
        shared.enter_fleet();
        let strays = shared.enter_generations();
        let receivers = Some(worker::spawn(&shared, workers, quic)?);
        let listener = Some(listener);
        Ok(Self { listener, hidden, local, shared, establishing, sessions, strays, receivers })
    }

    /// Takes datagrams from now on.
    pub fn start(&self) {
        self.receivers.iter().for_each(Receivers::start);
    }

    /// Returns the TCP listener, unless another process has it.
    #[must_use]
    pub const fn listener(&self) -> Option<&TcpListener> {
        self.listener.as_ref()
    }

    /// Returns the address on which connections are accepted.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Replaces the server's limits; running connections go on. The number of workers stays.
    pub fn configure(&self, server: ServerConfig) {
        self.shared.configure(server);
    }

    /// Stops taking datagrams; sessions answered before can still be joined in time.
    pub fn stop_udp(&mut self) {
        self.receivers = None;
    }

    /// Stops listening, because another process does on the same sockets: what is left are sessions
    /// that have begun, and joins that this process passes on.
    pub fn stop_listening(&mut self) {
        self.stop_udp();
        self.listener = None;
        self.hidden = None;
    }

    /// Returns the number of sessions answered over UDP, or about to be, that have not joined.
    #[must_use]
    pub fn unproven(&self) -> usize {
        self.shared.unproven()
    }

    /// Returns the next connection in its earliest state: run [`Arrival::establish`] in a task of
    /// its own.
    ///
    /// # Errors
    /// Errors of `accept(2)`; `EMFILE` and the like pass, so retry after a pause.
    pub async fn accept(&mut self) -> io::Result<Arrival> {
        let (listener, establishing) = (self.listener.as_ref(), &self.establishing);
        let (hidden, strays, shared) = (self.hidden.as_deref(), &mut self.strays, &self.shared);
        let tcp = async {
            let permit =
                Arc::clone(establishing).acquire_owned().await.map_err(io::Error::other)?;
            let first = tokio::select! {
                Some(stray) = strays.recv() => Unclassified::stray(Arc::clone(shared), stray)?,
                accepted = next(listener, hidden) => {
                    let (tcp, peer, opened_by) = accepted?;
                    // If the client has closed already, the first read reports it.
                    let _ = tcp.set_nodelay(true);
                    let transport = ClientTransport::Tcp(tcp, peer);
                    Unclassified::new(Arc::clone(shared), transport, opened_by)
                }
            };
            Ok(Arrival::tcp(permit, first))
        };
        tokio::select! {
            Some(new) = self.sessions.recv() => {
                Ok(Arrival::session(Arc::clone(&self.shared), new))
            }
            accepted = tcp => accepted,
        }
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// Returns the next connection of either listener, and how it was opened.
async fn next(
    public: Option<&TcpListener>,
    hidden: Option<&HiddenListener>,
) -> io::Result<(TcpStream, SocketAddr, Carrier)> {
    let steered = async {
        match hidden {
            Some(hidden) => {
                let (tcp, peer) = hidden.accept().await?;
                let steered = hidden.was_steered(&tcp);
                let opened_by = if steered { Carrier::Fop } else { Carrier::Tcp };
                Ok((tcp, peer, opened_by))
            }
            None => std::future::pending().await,
        }
    };
    let public = async {
        match public {
            Some(public) => public.accept().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        accepted = public => accepted.map(|(tcp, peer)| (tcp, peer, Carrier::Tcp)),
        accepted = steered => accepted,
    }
}

/// Draws a tag for this start of the edge; zero means no tag.
fn with_tag(config: ServerConfig) -> ServerConfig {
    // W-TAG-3
    let tag = RouteTag(rand::random_range(1..=u32::MAX).to_be_bytes());
    ServerConfig { tag, ..config }
}
