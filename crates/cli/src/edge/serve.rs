//! The daemon: accepts, finds the origin by name, passes bytes.

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use headstart_net::dns::{DnsConfig, Resolver};
use headstart_net::{
    Acceptor, AcceptorConfig, Arrival, Connector, ConnectorConfig, Handoff, Opening as Opened,
    OpeningPolicy, RelayLimits, ServerConfig, ServerStream, Target,
};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;

use super::proxy_protocol;
use crate::daemon::{self, Daemon, Running};
use crate::failure::Failure;
use crate::metrics::{self, Connection, Opening, Outcome, Role};
use crate::options::{EdgeOptions, HostPort, NameMap};
use crate::settings::Invocation;

/// How long a stop still takes the TCP part of sessions whose UDP part was answered: a client
/// farther away than this has to open its connection again.
const JOIN_TIME: Duration = Duration::from_secs(1);

/// Half-closed connections may be quiet this long; HAProxy's documentation suggests as much for
/// its `timeout client-fin`.
const HALF_CLOSED_IDLE: Duration = Duration::from_secs(30);

/// Runs the edge until it is told to stop.
///
/// # Errors
/// Options that contradict each other, an address that cannot be listened on.
pub async fn run(options: EdgeOptions, invocation: &Invocation) -> Result<ExitCode, Failure> {
    let settings = Settings::new(&options)?;
    let daemon = Daemon::new(Role::Edge, settings, options.max_connections)?;
    let mut listeners = JoinSet::new();
    for address in &options.listen {
        let acceptor = Acceptor::bind(*address, acceptor_config(&options))
            .map_err(|error| Failure::bind(*address, &error))?;
        tracing::info!(address = %acceptor.local_addr(), "listening");
        listeners.spawn(accept(acceptor, daemon.running()));
    }
    let reload =
        |_: &Settings| daemon::load(invocation).and_then(|options| Settings::new(&options));
    daemon.run(listeners, options.metrics, options.shutdown_timeout, reload).await
}

/// What connections are served with; replaced as a whole by a reload.
struct Settings {
    origins: NameMap<HostPort>,
    /// To origins that are names.
    connector: Connector,
    connect_timeout: Duration,
    limits: RelayLimits,
    proxy_protocol: bool,
    server: ServerConfig,
}

impl Settings {
    fn new(options: &EdgeOptions) -> Result<Self, Failure> {
        let resolver = Resolver::new(&DnsConfig::default())
            .map_err(|error| Failure::usage(format!("cannot look up names: {error}")))?;
        let connector = Connector::new(ConnectorConfig {
            opening: OpeningPolicy::Plain,
            connect_timeout: options.origin_connect_timeout,
            ..ConnectorConfig::new(resolver)
        });
        Ok(Self {
            origins: options.origins()?,
            connector,
            connect_timeout: options.origin_connect_timeout,
            limits: RelayLimits {
                idle: Some(options.idle_timeout),
                half_closed_idle: Some(HALF_CLOSED_IDLE),
                total: options.total_timeout,
            },
            proxy_protocol: options.proxy_protocol,
            server: server_config(options),
        })
    }
}

fn server_config(options: &EdgeOptions) -> ServerConfig {
    ServerConfig {
        origin_streams: options.max_connections.get(),
        early_data: options.early_data,
        same_address: options.proxy_protocol,
        ..ServerConfig::default()
    }
}

fn acceptor_config(options: &EdgeOptions) -> AcceptorConfig {
    AcceptorConfig {
        server: server_config(options),
        udp_workers: options.udp_workers.get(),
        ..AcceptorConfig::default()
    }
}

async fn accept(mut acceptor: Acceptor, mut running: Running<Settings>) {
    loop {
        if let Some(settings) = running.fresh_settings() {
            acceptor.configure(settings.server);
        }
        let places = running.places.clone();
        let next = async { (places.take().await, acceptor.accept().await) };
        match running.until_stop(next).await {
            Some((place, Ok(arrival))) => spawn(arrival, acceptor.local_addr(), &running, place),
            Some((_, Err(error))) => daemon::after_failed_accept(&error).await,
            None => break,
        }
    }
    drain(acceptor, &running).await;
}

/// Sessions that were answered over UDP are promised their TCP part.
async fn drain(mut acceptor: Acceptor, running: &Running<Settings>) {
    acceptor.stop_udp();
    let end = tokio::time::Instant::now() + JOIN_TIME;
    while acceptor.unproven() > 0 {
        let next = async { (running.places.take().await, acceptor.accept().await) };
        let Ok((place, Ok(arrival))) = tokio::time::timeout_at(end, next).await else { return };
        spawn(arrival, acceptor.local_addr(), running, place);
    }
}

/// Serves an arrival in a task of its own, which holds its place.
fn spawn(
    arrival: Arrival,
    local: SocketAddr,
    running: &Running<Settings>,
    place: Option<OwnedSemaphorePermit>,
) {
    let settings = running.settings();
    tokio::spawn(async move {
        let _place = place;
        serve(arrival, local, &settings).await;
    });
}

async fn serve(arrival: Arrival, local: SocketAddr, settings: &Settings) {
    let peer = arrival.peer_addr();
    let counted = Connection::accepted(Role::Edge);
    match arrival.establish().await {
        Ok(Some(stream)) => {
            let opening = match stream.opening() {
                Opened::Plain => Opening::Plain,
                Opened::TurboTls => Opening::Turbo,
            };
            let outcome = pass(stream, local, settings).await;
            tracing::debug!(%peer, ?opening, ?outcome, "connection ended");
            counted.finish(opening, outcome);
        }
        // It went on in the session that it joined, and is counted there.
        Ok(None) => {}
        Err(error) => {
            tracing::debug!(%peer, %error, "connection refused");
            counted.finish(Opening::Plain, Outcome::Refused);
        }
    }
}

async fn pass(stream: ServerStream, local: SocketAddr, settings: &Settings) -> Outcome {
    let name = stream.client_hello().and_then(|hello| hello.server_name.as_deref());
    let Some(origin) = settings.origins.find(name) else {
        metrics::limit_hit("unknown_name");
        stream.reset();
        return Outcome::Refused;
    };
    match connect(origin, &stream, local, settings).await {
        Ok(origin) => daemon::bridge(stream, origin, &[], settings.limits, |_| {}).await,
        Err(error) => {
            tracing::warn!(%origin, %error, "cannot connect to the origin");
            stream.reset();
            Outcome::Unreachable
        }
    }
}

async fn connect(
    origin: &HostPort,
    stream: &ServerStream,
    local: SocketAddr,
    settings: &Settings,
) -> io::Result<TcpStream> {
    let mut tcp = match origin.ip() {
        Some(ip) => {
            let connect = TcpStream::connect((ip, origin.port));
            tokio::time::timeout(settings.connect_timeout, connect).await??
        }
        None => by_name(origin, settings).await?,
    };
    tcp.set_nodelay(true)?;
    if settings.proxy_protocol {
        tcp.write_all(&proxy_protocol::header(stream.peer_addr(), local)?).await?;
    }
    Ok(tcp)
}

async fn by_name(origin: &HostPort, settings: &Settings) -> io::Result<TcpStream> {
    let target = Target::new(origin.host.as_str(), origin.port);
    let mut stream = settings.connector.connect(&target)?;
    stream.connected().await?;
    stream.into_tcp().ok_or_else(|| io::ErrorKind::NotConnected.into())
}
