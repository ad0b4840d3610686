//! The daemon: accepts, finds the origin by name, passes bytes.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use headstart_net::careful::{CarefulResume, PREFIXES};
use headstart_net::{
    Acceptor, AcceptorConfig, Arrival, Carrier, Generations, Handoff, ListenAddress, ListenSockets,
    ProvenBy, QuicServer, RelayLimits, ServerConfig, ServerStream,
};
use headstart_proto::limits::{HANDSHAKE_COST, SESSION_LIFE_SPARE, SESSIONS, UNPROVEN_WORK_SHARE};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::connection_shares::{ConnectionShares, establishing};
use super::dial::Dial;
use super::fleet_links::FleetLinks;
use super::health;
use super::keys::SiteKeys;
use super::proxy_protocol;
use super::settings::ConnectionSettings;
use super::terminate::{
    self, Capacity, CapacityLimits, Claims, ClientTimeouts, HttpOrigins, Termination, TlsServer,
    Unproven,
};
use crate::base::failure::Failure;
use crate::base::log_throttle::LogThrottle;
use crate::base::logging::{ACCESS, millis};
use crate::base::own_address::leave_out_ipv6;
use crate::base::printable::printable_word;
use crate::base::settings::Invocation;
use crate::base::value::HostPort;
use crate::daemon::{self, AtStart, Daemon, Next, Phase, Running};
use crate::edge::options::EdgeOptions;
use crate::fleet;
use crate::listen::{self, Sockets};
use crate::metrics::{self, Cell, Connection, Outcome, Role, Table};
use crate::qlog::{self, Vantage};
use crate::shares::Shares;
use crate::takeover::Takeover;

/// Time that a stop still takes the TCP part of sessions whose UDP part was answered: a client
/// farther away than this has to open its connection again.
const JOIN_TIME: Duration = Duration::from_secs(1);

/// Interval at which a process that drains looks for sessions: they are joined, and expire, in
/// tasks of their own.
const DRAINED_EVERY: Duration = Duration::from_millis(100);

/// Connections that are refused: anybody may open them.
static REFUSED: LogThrottle = LogThrottle::new();

/// Options that a reload does not apply, beside those that say so themselves.
const AT_START: &[&str] = &[
    "listen",
    "udp-port",
    "udp-workers",
    "workers",
    "quic",
    "quic-flows",
    "max-connections",
    "max-address-connections",
    "max-address-requests",
    "answer-memory",
    "proxy-protocol-from",
    "careful-resume",
    "fast-open",
    "fast-open-maps",
    "hello-timeout",
    "shutdown-timeout",
    "takeover",
    "master-worker",
    "metrics",
    "metrics-host",
    "status",
    "status-names",
    "log",
    "log-format",
    "access-log",
    "qlog",
    "health-check",
];

/// Returns the number of connections for which there are files.
pub(super) fn files_allow(options: &EdgeOptions) -> usize {
    connections_of(daemon::files(), options.careful_resume)
}

/// One file in eight is for all else. A connection takes two, and Careful Resume watches it by a
/// third. The pipes of bursts are few, and a connection without copies its bytes.
const fn connections_of(files: usize, careful_resume: bool) -> usize {
    let each = if careful_resume { 3 } else { 2 };
    files.saturating_sub(files / 8) / each
}

/// Runs the edge until it is told to stop.
///
/// # Errors
/// Options that contradict each other, an address that cannot be listened on.
pub async fn run(mut options: EdgeOptions, invocation: &Invocation) -> Result<ExitCode, Failure> {
    daemon::raise_file_limit();
    leave_out_ipv6(&mut options.listen);
    let at_start = AtStart::new(invocation, AT_START)?;
    check_udp_port(&options)?;
    let _writer = qlog::start(&options.qlog, Vantage::Edge)?;
    let connections = daemon::within_files(options.max_connections, files_allow(&options));
    let options = EdgeOptions { max_connections: connections, ..options };
    let streams = streams(&options);
    // First, since a predecessor may wait for no more than this.
    let (takeover, mut sockets) = Takeover::begin(Role::Edge, &options.takeover).await?;
    let settings = Settings::new(&options, streams, None)?;
    let (server, tls) = (settings.server, settings.termination.tls.clone());
    let (keys, fleet_links) = (Arc::clone(&settings.keys), settings.fleet_links.clone());
    keys.settled().await;
    tls.as_ref().map_or(Ok(()), |tls| tls.start_fast_open(&options, &mut sockets))?;
    let links = fleet_links.as_ref().map(|links| links.listen(&mut sockets)).transpose()?;
    let daemon = Daemon::new(Role::Edge, settings, options.max_connections)?;
    let daemon = daemon.with_metrics(&options.metrics, &mut sockets, Settings::tables)?;
    daemon.running().settings().show_origins();
    show_limits(&options);
    let quic = quic_server(&options).await?;
    let ports = listen(&options, &mut sockets)?;
    let careful = options.careful_resume.then(|| careful_resume(&ports)).flatten();
    let generations = Arc::new(Generations::default());
    let mut acceptors = Vec::new();
    for (address, port) in options.listen.iter().zip(ports) {
        let running = daemon.running();
        let hidden = tls.as_ref().and_then(|tls| tls.hidden_listener(*address));
        let config = acceptor_config(&options, server, running.permits.connections());
        let fleet = fleet_links.as_ref().map(|fleet_links| fleet_links.fleet());
        let (generations, careful) = (Some(Arc::clone(&generations)), careful.clone());
        let config = AcceptorConfig { hidden, fleet, quic, generations, careful, ..config };
        let acceptor =
            Acceptor::prepared(port, config).map_err(|error| Failure::bind(*address, &error))?;
        acceptors.push((acceptor, running));
    }
    // All that may fail comes before: from then on nobody else listens.
    let offer = takeover.ready(sockets, Some(Arc::clone(&generations))).await?;
    let mut listeners = JoinSet::new();
    for (acceptor, running) in acceptors {
        serve_fast_open(tls.as_deref(), &acceptor, offer.took_over())?;
        acceptor.start();
        tracing::info!(address = %acceptor.local_addr(), "listening");
        listeners.spawn(accept(acceptor, running));
    }
    if let (Some(fleet_links), Some(links)) = (&fleet_links, links) {
        let running = daemon.running();
        let serve = fleet_links.fleet().serve(links, generations, running.permits.tasks());
        listeners.spawn(forwarded(serve, running));
    }
    if let Some(every) = options.health_check {
        let running = daemon.running();
        tokio::spawn(health::watch(running, |settings: &Settings| &settings.connections, every));
    }
    daemon
        .run(listeners, offer, options.shutdown_timeout, |before: &Settings| {
            let fresh = daemon::load(invocation)?;
            let settings = Settings::new(&fresh, streams, Some(before))?;
            settings.show_origins();
            at_start.warn_of_changes(invocation);
            Ok(settings)
        })
        .await
}

/// Lets connections to `acceptor` open by Fast Open.
///
/// # Errors
/// The kernel refuses it; but not where nobody else listens, who could serve without it.
fn serve_fast_open(
    tls: Option<&TlsServer>,
    acceptor: &Acceptor,
    took_over: bool,
) -> Result<(), Failure> {
    let (Some(tls), Some(listener)) = (tls, acceptor.listener()) else { return Ok(()) };
    match tls.serve_fast_open(listener) {
        Err(failure) if took_over => {
            tracing::error!(hint = failure.advice(), "{}", failure.message());
            Ok(())
        }
        served => served,
    }
}

/// Opens the sockets of all addresses.
fn listen(options: &EdgeOptions, sockets: &mut Sockets) -> Result<Vec<ListenSockets>, Failure> {
    let (udp_port, udp_workers) = (options.udp_port, options.udp_workers.get());
    let address = |tcp: &SocketAddr| ListenAddress { tcp: *tcp, udp_port, udp_workers };
    options.listen.iter().map(|tcp| sockets.transport(address(tcp))).collect()
}

/// Takes joins that other edges forward, as long as sessions are promised theirs.
async fn forwarded(serve: impl Future<Output = ()>, mut running: Running<Settings>) {
    let mut serve = std::pin::pin!(serve);
    if running.until_stop(&mut serve).await.is_none() && running.phase() == Phase::Stopping {
        let _ = tokio::time::timeout(JOIN_TIME, serve).await;
    }
}

/// Settings by which connections are served; a reload replaces them as a whole.
struct Settings {
    connections: ConnectionSettings,
    termination: Termination,
    /// Keys of tickets, cookies and tags.
    keys: Arc<SiteKeys>,
    /// The other edges of the site, if joins are forwarded.
    fleet_links: Option<Arc<FleetLinks>>,
    server: ServerConfig,
    shares: ConnectionShares,
}

impl Settings {
    /// Makes the settings; `streams` is the result of [`streams`] at the start. Keeps from those
    /// `before` the parts that outlive a reload.
    fn new(options: &EdgeOptions, streams: usize, before: Option<&Self>) -> Result<Self, Failure> {
        let origins = Arc::new(options.origins()?);
        let states = before.map(|before| Arc::clone(before.connections.dial.states()));
        let dial = Arc::new(Dial::new(options, states.unwrap_or_default())?);
        let capacity = before.map_or_else(
            || Arc::new(Capacity::new(capacity_limits(options))),
            |before| Arc::clone(before.termination.http.capacity()),
        );
        options.check_fleet()?;
        let fleet = options.fleet.as_deref().map(fleet::load).transpose()?;
        let (source, limits) = (options.keys.as_ref(), limits(options));
        let (keys, prepared) = match before {
            None => (SiteKeys::start(source, fleet.as_ref())?, None),
            Some(before) => {
                let prepared = before.keys.prepare(source, fleet.as_ref())?;
                (Arc::clone(&before.keys), Some(prepared))
            }
        };
        // Last, because it changes the earlier settings in place.
        let tls = TlsServer::new(
            options,
            &keys,
            before.and_then(|before| before.termination.tls.as_ref()),
        )?;
        if let Some(prepared) = prepared {
            keys.reload(prepared);
        }
        let fleet_links = match before {
            None => FleetLinks::new(options, fleet, &keys, limits)?.map(Arc::new),
            Some(before) => {
                FleetLinks::reload(before.fleet_links.as_deref(), options, fleet);
                before.fleet_links.clone()
            }
        };
        Ok(Self {
            termination: Termination {
                tls,
                http: HttpOrigins::new(
                    Arc::clone(&dial),
                    options.origin_response_timeout,
                    capacity,
                ),
                claims: Arc::new(Claims::new(options.drop_header.clone())),
                client: ClientTimeouts {
                    head: options.request_head_timeout,
                    stalled: options.client_timeout,
                },
                unproven: Unproven::new(
                    options.max_unproven_handshakes.is_none(),
                    before.map_or_else(
                        || Arc::new(Semaphore::new(processors(options))),
                        |before| Arc::clone(before.termination.unproven.permits()),
                    ),
                ),
            },
            connections: ConnectionSettings {
                origins,
                dial,
                limits,
                hello_timeout: options.hello_timeout,
                proxy_protocol: options.proxy_protocol,
            },
            keys,
            fleet_links,
            server: ServerConfig {
                origin_streams: streams,
                unproven_work: unproven_work(options),
                early_data: options.early_data,
                // W-TAKEOVER-5
                same_address: options.proxy_protocol,
                ..ServerConfig::default()
            },
            shares: before
                .map_or_else(|| ConnectionShares::new(options), |before| before.shares.clone()),
        })
    }

    /// Shows the origins in the metrics.
    fn show_origins(&self) {
        let ConnectionSettings { origins, dial, .. } = &self.connections;
        dial.states().show(origins.values().map(|origin| &origin.address));
    }

    /// Returns the tables of the status page.
    fn tables(&self) -> Vec<Table> {
        let ConnectionSettings { origins, dial, .. } = &self.connections;
        let named = origins.iter().filter_map(|(name, server)| {
            let name = name.unwrap_or_else(|| "all others".to_owned());
            let state = dial.states().find(&server.address)?;
            Some(vec![
                Cell::Text(name),
                Cell::Text(server.to_string()),
                Cell::Text(state.name().to_owned()),
                Cell::Time(state.since()),
            ])
        });
        let certificates = self.termination.tls.iter().flat_map(|tls| tls.expiries());
        let certificates = certificates.map(|(name, at)| vec![Cell::Text(name), Cell::Time(at)]);
        let mut all = vec![
            Table {
                title: "Origins",
                columns: &["Name", "Server", "State", "Since"],
                rows: named.collect(),
            },
            Table {
                title: "Certificates",
                columns: &["Name", "Expires"],
                rows: certificates.collect(),
            },
        ];
        if self.termination.tls.is_some() {
            all.push(self.keys.table());
        }
        all
    }
}

/// Returns the limits of connections.
fn limits(options: &EdgeOptions) -> RelayLimits {
    RelayLimits {
        idle: Some(options.idle_timeout),
        half_closed_idle: Some(daemon::HALF_CLOSED_IDLE),
        total: options.total_timeout,
    }
}

/// Streams to origins for each address listened on: it grants unproven sessions their share of
/// them.
///
/// From the options of the start, as the number of permits.
fn streams(options: &EdgeOptions) -> usize {
    options.max_connections.get() / options.listen.len().max(1)
}

/// Returns the processor time a second for handshakes of clients whose addresses are not proven, on
/// each address listened on.
fn unproven_work(options: &EdgeOptions) -> Duration {
    let all = match options.max_unproven_handshakes {
        Some(count) => HANDSHAKE_COST.saturating_mul(count.get()),
        None => {
            let processors = u32::try_from(processors(options)).unwrap_or(u32::MAX);
            Duration::from_secs(1).saturating_mul(processors) / UNPROVEN_WORK_SHARE
        }
    };
    all / u32::try_from(options.listen.len().max(1)).unwrap_or(u32::MAX)
}

/// Returns how many processors the edge uses at one time.
fn processors(options: &EdgeOptions) -> usize {
    let all = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    options.workers.map_or(all, |workers| workers.get().min(all))
}

/// Requests that a browser has open for one page, beside streams that stay: a small edge gives an
/// address as many, up to half of its permits.
const PAGE: usize = 16;

/// Returns the limits on requests: as many at origins at one time as clients' connections.
fn capacity_limits(options: &EdgeOptions) -> CapacityLimits {
    let requests = options.max_connections.get();
    CapacityLimits {
        requests,
        requests_per_address: options.max_address_requests.map_or_else(
            || requests.div_ceil(8).max(requests.div_ceil(2).min(PAGE)),
            NonZeroUsize::get,
        ),
        memory: options.answer_memory.get().saturating_mul(1 << 20),
    }
}

/// Shows the limits that a start settles, by their names among those reached.
fn show_limits(options: &EdgeOptions) {
    let capacity = capacity_limits(options);
    metrics::limit("max_connections", capacity.requests);
    metrics::limit("answer_memory", capacity.memory);
    metrics::limit("session_limit", SESSIONS.saturating_mul(options.listen.len()));
    if options.quic.is_some() {
        metrics::limit("quic_flows", options.quic_flows.get());
    }
}

/// Refuses a UDP port that two of the addresses would share: each has sessions of its own, and the
/// kernel would give clients of one to the other.
pub(super) fn check_udp_port(options: &EdgeOptions) -> Result<(), Failure> {
    let is_one = |one: IpAddr, other: IpAddr| {
        one.is_ipv4() == other.is_ipv4()
            && (one == other || one.is_unspecified() || other.is_unspecified())
    };
    let mut rest = options.listen.as_slice();
    while let Some((one, others)) = rest.split_first() {
        let other = others.iter().find(|other| is_one(one.ip(), other.ip()));
        if let (Some(port), Some(other)) = (options.udp_port, other) {
            let what = format!("--udp-port {port}: {one} and {other} would share it");
            return Err(Failure::usage(what).hint("run an edge for each of them"));
        }
        rest = others;
    }
    Ok(())
}

/// Looks up the server for QUIC.
pub(super) async fn quic_server(options: &EdgeOptions) -> Result<Option<QuicServer>, Failure> {
    let Some(HostPort { host, port }) = &options.quic else { return Ok(None) };
    let found = tokio::net::lookup_host((host.as_str(), *port)).await;
    let failure = |error| {
        Failure::usage(format!("--quic: {host}: {error}")).hint("name a server as HOST:PORT")
    };
    let address = found.map_err(|error| failure(error.to_string()))?.next();
    let address = address.ok_or_else(|| failure("no address".to_owned()))?;
    Ok(Some(QuicServer { address, flows: options.quic_flows.get() }))
}

/// Advice where Careful Resume is refused.
pub(super) const ATTACH_CAREFUL: &str = "as root: headstart careful-resume attach --owner UID, \
    with the edge's user, for the cgroup in which its listeners are made";

/// Careful Resume, where the kernel allows it: without it connections are slower, and no more.
fn careful_resume(ports: &[ListenSockets]) -> Option<Arc<CarefulResume>> {
    match CarefulResume::new(PREFIXES, ports) {
        Ok(careful) => Some(Arc::new(careful)),
        Err(error) => {
            let hint = ATTACH_CAREFUL;
            tracing::warn!(%error, hint, "no window can be set: --careful-resume does nothing");
            None
        }
    }
}

fn acceptor_config(
    options: &EdgeOptions,
    server: ServerConfig,
    permits: Arc<Semaphore>,
) -> AcceptorConfig {
    AcceptorConfig {
        server,
        udp_workers: options.udp_workers.get(),
        udp_port: options.udp_port,
        quic: None,
        permits,
        establishing: establishing(options),
        hello_timeout: options.hello_timeout,
        balancers: options.proxy_protocol_from.clone(),
        hidden: None,
        fleet: None,
        generations: None,
        careful: None,
        timelines: options.qlog.qlog.is_some(),
    }
}

async fn accept(mut acceptor: Acceptor, mut running: Running<Settings>) {
    let arriving = running.settings().shares.arriving();
    loop {
        match running.next(acceptor.accept()).await {
            Next::Done(Ok(arrival)) => spawn(arrival, acceptor.local_addr(), &arriving, &running),
            Next::Done(Err(error)) => listen::after_failed_accept(&error).await,
            Next::Reloaded(settings) => acceptor.configure(settings.server),
            Next::Stop => break,
        }
    }
    let join_time = if running.phase() == Phase::HandedOver {
        acceptor.stop_listening();
        if let Some(tls) = &running.settings().termination.tls {
            tls.leave_fast_open();
        }
        running.stopped_listening();
        SESSION_LIFE_SPARE
    } else {
        acceptor.stop_udp();
        JOIN_TIME
    };
    drain(acceptor, &arriving, &running, join_time).await;
}

/// Sessions that were answered over UDP are promised their TCP part.
async fn drain(
    mut acceptor: Acceptor,
    arriving: &Arc<Shares>,
    running: &Running<Settings>,
    join_time: Duration,
) {
    let begun = Instant::now();
    while acceptor.unproven() > 0 && begun.elapsed() < join_time {
        match tokio::time::timeout(DRAINED_EVERY, acceptor.accept()).await {
            Ok(Ok(arrival)) => spawn(arrival, acceptor.local_addr(), arriving, running),
            Ok(Err(error)) => listen::after_failed_accept(&error).await,
            Err(_) => {}
        }
    }
}

/// Serves an arrival in a task of its own.
fn spawn(arrival: Arrival, local: SocketAddr, arriving: &Arc<Shares>, running: &Running<Settings>) {
    let (settings, task, stop) = (running.settings(), running.permits.task(), running.stopping());
    let arriving = Arc::clone(arriving);
    tokio::spawn(async move {
        let _task = task;
        serve(arrival, local, &arriving, &settings, stop).await;
    });
}

async fn serve(
    mut arrival: Arrival,
    local: SocketAddr,
    arriving: &Arc<Shares>,
    settings: &Settings,
    stop: impl Future<Output = ()>,
) {
    let (peer, shares) = (arrival.peer_addr(), &settings.shares);
    let (mut counted, begun) = (Connection::accepted(Role::Edge), Instant::now());
    counted.note_timeline(arrival.timeline());
    if !arrival.is_unproven() {
        let Ok(share) = shares.take(arriving, peer.ip()) else {
            return counted.finish(Carrier::Tcp.name(), Outcome::Refused);
        };
        arrival.keep_while_read(share);
    }
    match arrival.establish().await {
        Ok(Some(mut stream)) => {
            let (_permit, peer) = (stream.take_permit(), stream.peer_addr());
            // A session that has none has not been given to its origin: its client goes plain.
            let Ok(_share) = shares.take(&shares.served, peer.ip()) else {
                stream.reset();
                return counted.finish(Carrier::Tcp.name(), Outcome::Refused);
            };
            let (opened_by, proven) = (stream.opened_by(), stream.proven_addr());
            let _watch = stream.careful_watch();
            counted.note_established(peer);
            let hello = stream.client_hello();
            let name = hello.and_then(|hello| hello.server_name.as_deref()).unwrap_or("no name");
            counted.note_name(|| format!("{name} from {}", peer.ip()));
            let outcome = find(stream, local, settings, stop).await;
            let opening = opening(opened_by, proven.by());
            let (result, ms) = (outcome.label(), millis(begun.elapsed()));
            tracing::info!(target: ACCESS, client = %peer, opening, result, ms, "connection");
            counted.finish(opening, outcome);
        }
        // It continued in the session that it joined, which counts it.
        Ok(None) => counted.passed_on(),
        Err(error) => {
            log_refused(peer, &error);
            counted.finish(Carrier::Tcp.name(), Outcome::Refused);
        }
    }
}

/// Logs a connection that was refused before it was known what for: for the edge's limits, or for
/// its join. Clients that say nothing, or leave, are noise.
fn log_refused(client: SocketAddr, error: &io::Error) {
    let kind = match error.kind() {
        io::ErrorKind::ResourceBusy => "busy",
        io::ErrorKind::InvalidData => "invalid",
        _ => {
            tracing::debug!(%client, %error, "a client left, or sent nothing");
            return;
        }
    };
    if let Some(left_out) = REFUSED.line_about(kind, Instant::now()) {
        tracing::warn!(%client, %error, left_out, "connection refused");
    }
}

/// Names an opening by what it has saved the client: a session saves nothing unless TCP joins it.
const fn opening(opened_by: Carrier, proven_by: Option<ProvenBy>) -> &'static str {
    match (opened_by, proven_by) {
        (Carrier::TurboTls, None) => "unjoined",
        (Carrier::TurboTls, Some(ProvenBy::Start)) => "attached",
        (carrier, _) => carrier.name(),
    }
}

/// Serves a client as its origin wants it.
async fn find(
    stream: ServerStream,
    local: SocketAddr,
    settings: &Settings,
    stop: impl Future<Output = ()>,
) -> Outcome {
    let name = stream.client_hello().and_then(|hello| hello.server_name.as_deref());
    let Some(origin) = settings.connections.origins.find(name) else {
        metrics::count_limit("unknown_name");
        if let Some(left_out) = REFUSED.line_about("unknown_name", Instant::now()) {
            let (client, name) = (stream.peer_addr(), printable_word(name.unwrap_or("-")));
            tracing::info!(%client, %name, left_out, "no origin has this name");
        }
        stream.reset();
        return Outcome::Refused;
    };
    if origin.service.terminates() {
        let Settings { connections, termination, .. } = settings;
        terminate::serve(stream, origin, local, (connections, termination), stop).await
    } else {
        pass(stream, &origin.address, local, &settings.connections).await
    }
}

/// Passes TLS through.
async fn pass(
    stream: ServerStream,
    origin: &HostPort,
    local: SocketAddr,
    settings: &ConnectionSettings,
) -> Outcome {
    match connect(origin, &stream, local, settings).await {
        Ok(origin) => {
            Outcome::from(&daemon::bridge(stream, origin, &[], settings.limits, |_| {}).await)
        }
        Err(_) => {
            stream.reset();
            Outcome::Unreachable
        }
    }
}

async fn connect(
    origin: &HostPort,
    stream: &ServerStream,
    local: SocketAddr,
    settings: &ConnectionSettings,
) -> io::Result<TcpStream> {
    let mut tcp = settings.dial.connect(origin).await?;
    if settings.proxy_protocol {
        tcp.write_all(&proxy_protocol::header(stream.peer_addr(), local)?).await?;
    }
    Ok(tcp)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        edge: EdgeOptions,
    }

    fn options(arguments: &[&str]) -> EdgeOptions {
        Command::parse_from([&["edge"], arguments].concat()).edge
    }

    #[test]
    fn openings_are_named_by_what_they_save() {
        let [join, start] = [ProvenBy::Join, ProvenBy::Start].map(Some);
        let turbo = [None, join, start].map(|by| opening(Carrier::TurboTls, by));
        assert_eq!(turbo, ["unjoined", "turbo", "attached"]);
        assert_eq!(opening(Carrier::Tcp, start), "plain");
        assert_eq!(opening(Carrier::Fop, start), "fop");
    }

    #[test]
    fn a_watched_connection_takes_a_file_more() {
        assert_eq!([false, true].map(|careful| connections_of(2400, careful)), [1050, 700]);
        let [without, with] = [&[][..], &["--careful-resume"]].map(|it| files_allow(&options(it)));
        assert_eq!(without * 2 / 3, with);
    }

    #[test]
    fn addresses_share_the_streams() {
        assert_eq!(streams(&options(&["--max-connections", "1000"])), 500);
    }

    #[test]
    fn addresses_share_the_handshakes_of_unproven_clients() {
        let handshakes = ["--max-unproven-handshakes", "10"];
        assert_eq!(unproven_work(&options(&handshakes)), HANDSHAKE_COST * 5);
        let one = [&handshakes[..], &["--listen", "127.0.0.1:443"]].concat();
        assert_eq!(unproven_work(&options(&one)), HANDSHAKE_COST * 10);
        let share = unproven_work(&options(&["--workers", "1"]));
        assert_eq!(share, Duration::from_millis(25));
    }

    /// Listens on two addresses with one permit; an origin that echoes.
    #[tokio::test]
    async fn one_place_serves_all_addresses() {
        let origin = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = origin.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            while let Ok((mut tcp, _)) = origin.accept().await {
                let (mut from, mut to) = tcp.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
            }
        });
        let options = options(&["--origin", &address, "--max-connections", "1"]);
        let settings = Settings::new(&options, 1, None).unwrap();
        let server = settings.server;
        let daemon = Daemon::new(Role::Edge, settings, options.max_connections).unwrap();
        let addresses = [(); 2].map(|()| {
            let running = daemon.running();
            let config = acceptor_config(&options, server, running.permits.connections());
            let acceptor = Acceptor::bind("127.0.0.1:0".parse().unwrap(), config).unwrap();
            let address = acceptor.local_addr();
            tokio::spawn(accept(acceptor, running));
            address
        });
        for edge in addresses {
            let exchange = async {
                let mut tcp = TcpStream::connect(edge).await?;
                tcp.write_all(b"not TLS").await?;
                tcp.shutdown().await?;
                let mut reply = Vec::new();
                tcp.read_to_end(&mut reply).await?;
                io::Result::Ok(reply)
            };
            let reply = tokio::time::timeout(Duration::from_secs(120), exchange).await;
            assert_eq!(reply.expect("both have the permit in turn").unwrap(), b"not TLS");
        }
    }
}
