//! The daemon: accepts, finds the origin by name, passes bytes.

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use headstart_net::dns::{DnsConfig, Resolver};
use headstart_net::{
    Acceptor, AcceptorConfig, Arrival, ConnectorConfig, Connector, Handoff, Opening as Opened,
    OpeningPolicy, RelayLimits, ServerConfig, ServerStream, Target,
};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::proxy_protocol;
use crate::daemon::{self, Places, Signal, Signals};
use crate::failure::Failure;
use crate::metrics::{self, Connection, Opening, Outcome, Role};
use crate::options::{EdgeOptions, HostPort, NameMap};
use crate::settings::{Invocation, Stop};

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
    let mut signals = Signals::listen()?;
    let (settings, current) = watch::channel(Arc::new(Settings::new(&options)?));
    let (stop, stopped) = watch::channel(false);
    let places = Places::new(options.max_connections.get());
    daemon::raise_file_limit();
    let mut listeners = JoinSet::new();
    for address in &options.listen {
        let acceptor = Acceptor::bind(*address, acceptor_config(&options))
            .map_err(|error| Failure::bind(*address, &error))?;
        tracing::info!(address = %acceptor.local_addr(), "listening");
        listeners.spawn(accept(acceptor, current.clone(), places.clone(), stopped.clone()));
    }
    let metrics = daemon::start_metrics(Role::Edge, options.metrics)?;
    metrics.as_ref().inspect(|metrics| metrics.set_ready(true));
    while signals.next().await == Signal::Reload {
        reload(invocation, &settings);
    }
    tracing::info!("stopping");
    metrics.as_ref().inspect(|metrics| metrics.set_ready(false));
    let _ = stop.send(true);
    while listeners.join_next().await.is_some() {}
    let left = places.empty(options.shutdown_timeout).await;
    if left > 0 {
        tracing::warn!(connections = left, "stopped before they ended");
    }
    Ok(ExitCode::SUCCESS)
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

/// A file with a mistake changes nothing: the daemon goes on as it was.
fn reload(invocation: &Invocation, settings: &watch::Sender<Arc<Settings>>) {
    let fresh = invocation.load::<EdgeOptions>().map_err(|stop| match stop {
        Stop::Failure(failure) => failure,
        Stop::Answer(_) => Failure::usage("no options"),
    });
    match fresh.and_then(|options| Settings::new(&options)) {
        Ok(fresh) => {
            settings.send_replace(Arc::new(fresh));
            tracing::info!("configuration read again");
        }
        Err(failure) => tracing::error!("configuration kept: {}", failure.message()),
    }
}

async fn accept(
    mut acceptor: Acceptor,
    mut settings: watch::Receiver<Arc<Settings>>,
    places: Places,
    mut stop: watch::Receiver<bool>,
) {
    let local = acceptor.local_addr();
    loop {
        if settings.has_changed().unwrap_or(false) {
            acceptor.configure(settings.borrow_and_update().server);
        }
        let next = async {
            let place = places.take().await;
            (place, acceptor.accept().await)
        };
        match daemon::until(&mut stop, next).await {
            Some((place, Ok(arrival))) => {
                let settings = Arc::clone(&settings.borrow());
                tokio::spawn(async move {
                    let _place = place;
                    serve(arrival, local, &settings).await;
                });
            }
            Some((_, Err(error))) => daemon::after_failed_accept(&error).await,
            None => break,
        }
    }
    drain(acceptor, local, &settings, &places).await;
}

/// Sessions that were answered over UDP are promised their TCP part.
async fn drain(
    mut acceptor: Acceptor,
    local: SocketAddr,
    settings: &watch::Receiver<Arc<Settings>>,
    places: &Places,
) {
    acceptor.stop_udp();
    let end = tokio::time::Instant::now() + JOIN_TIME;
    while acceptor.unproven() > 0 {
        let Some(place) = places.take().await else { return };
        let Ok(Ok(arrival)) = tokio::time::timeout_at(end, acceptor.accept()).await else { return };
        let settings = Arc::clone(&settings.borrow());
        tokio::spawn(async move {
            let _place = place;
            serve(arrival, local, &settings).await;
        });
    }
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
