//! The daemon: takes connections of applications and opens each the best way there is.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use headstart_net::dns::{DnsConfig, Resolver};
use headstart_net::hello::{self, ClientHello, Progress};
use headstart_net::upstream::{NEGOTIATION_TIME, REPLY_TIME};
use headstart_net::{
    Carrier, ClientStream, Connector, ConnectorConfig, Context, RelayLimits, RelayReason,
    ResetReason, Side, Target, original_destination,
};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::harden::harden;
use super::inbound::{self, Inbound, Reason, Refusal, Timeouts, Via};
use super::inside;
use super::isolation::Isolation;
use super::managed::{self, AgentState, Clients};
use crate::agent::options::AgentOptions;
use crate::base::edge_address::edge_lookup;
use crate::base::failure::Failure;
use crate::base::log_throttle::LogThrottle;
use crate::base::logging::millis;
use crate::base::peer_user::tcp_user;
use crate::base::printable::printable_word;
use crate::base::settings::Invocation;
use crate::base::value::SecondSyn;
use crate::daemon::{self, AtStart, Daemon, Running, files};
use crate::listen;
use crate::metrics::{self, Cell, Connection, Outcome, Role, Table};
use crate::qlog::{self, Vantage};
use crate::shares::{Owner, Permit, Shares};
use crate::takeover::Takeover;

/// Time that a redirected client on a TLS port may take for its ClientHello before the connection
/// goes on without its name: it is on this machine, and believes itself connected.
const HELLO_TIME: Duration = Duration::from_millis(50);

/// Open files per client without a request yet: it takes one, and the others are for connections.
/// The proxy ports and managed TLS have their own.
const FILES_PER_WAITING: usize = 8;

/// Open files per requested connection: it takes two, its pipes four more, and the attempts of its
/// opening some for a while. The proxy ports and managed TLS have their own.
const FILES_PER_CONNECTION: usize = 8;

/// Open files per spare connection.
const FILES_PER_SPARE: usize = 16;

/// Interval at which expired sessions are wiped, and the metrics updated.
const TIDY_EVERY: Duration = Duration::from_secs(1);

/// Options that a reload does not apply.
const AT_START: &[&str] = &[
    "listen",
    "listen-for",
    "max-connections",
    "shutdown-timeout",
    "socket",
    "socket-mode",
    "socket-group",
    "managed-listen",
    "managed-token",
    "takeover",
    "master-worker",
    "metrics",
    "metrics-host",
    "status",
    "status-names",
    "log",
    "log-format",
    "qlog",
];

/// Connections that fail: web pages decide how many.
static FAILED: LogThrottle = LogThrottle::new();

/// Requests that cannot be served, which any program can send.
static REFUSED: LogThrottle = LogThrottle::new();

/// Runs the agent until it is told to stop.
///
/// # Errors
/// Options that contradict each other, an address that cannot be listened on.
pub async fn run(options: AgentOptions, invocation: &Invocation) -> Result<ExitCode, Failure> {
    harden();
    daemon::raise_file_limit();
    let at_start = AtStart::new(invocation, AT_START)?;
    let _writer = qlog::start(&options.qlog, Vantage::Agent)?;
    // First, since a predecessor may wait for no more than this.
    let (takeover, mut sockets) = Takeover::begin(Role::Agent, &options.takeover).await?;
    let settings = Settings::new(options.clone(), None)?;
    let connector = settings.connector.clone();
    let known = Arc::clone(&settings.known);
    let daemon = Daemon::new(Role::Agent, settings, options.max_connections)?;
    let daemon = daemon.with_metrics(&options.metrics, &mut sockets, Settings::tables)?;
    metrics::limit("spares", spares(&options));
    let following = tokio::spawn(follow_networks(connector.clone()));
    tokio::spawn(keep_spares(connector, daemon.running()));
    let permits = Permits::new(options.max_connections);
    let mut listening =
        managed::start(&options, &mut sockets, &permits.apart(), || daemon.running())?;
    for (wanted, context) in options.listen()? {
        let listener = sockets.tcp(wanted)?;
        let address = listener.local_addr().unwrap_or(wanted);
        match context {
            Some(context) => tracing::info!(context, %address, "listening for a context"),
            None => tracing::info!(%address, "listening"),
        }
        let context = context.map(Arc::from);
        listening.push(Box::pin(accept(listener, context, permits.clone(), daemon.running())));
    }
    let offer = takeover.ready(sockets, None).await?;
    let listeners: JoinSet<()> = listening.into_iter().collect();
    let tidying = tokio::spawn(tidy(known));
    let code = daemon
        .run(listeners, offer, options.shutdown_timeout, |before: &Settings| {
            let settings = Settings::new(daemon::load(invocation)?, Some(before))?;
            at_start.warn_of_changes(invocation);
            Ok(settings)
        })
        .await;
    following.abort();
    tidying.abort();
    code
}

async fn tidy(known: Arc<AgentState>) {
    loop {
        tokio::time::sleep(TIDY_EVERY).await;
        metrics::sessions(&known.tidy());
    }
}

/// Forgets what was got on networks that this machine leaves. Reloads share what is forgotten.
async fn follow_networks(connector: Connector) {
    let Err(error) = connector.follow_networks().await;
    tracing::warn!(%error, "cannot watch the networks of this machine: each connection looks by \
        itself");
}

/// Holds spare connections until the agent is told to stop. Reloads change how many.
async fn keep_spares(connector: Connector, mut running: Running<Settings>) {
    running.until_stop(connector.keep_spares()).await;
}

/// Settings by which connections are served; a reload replaces them as a whole.
pub(super) struct Settings {
    pub(super) options: AgentOptions,
    pub(super) connector: Connector,
    pub(super) limits: RelayLimits,
    /// State of managed TLS; reloads share it.
    pub(super) known: Arc<AgentState>,
    pub(super) clients: Clients,
    isolation: Arc<Isolation>,
}

impl Settings {
    /// Makes the settings of `options`; keeps what `before` has learnt of paths.
    pub(super) fn new(options: AgentOptions, before: Option<&Self>) -> Result<Self, Failure> {
        if before.is_some_and(|before| before.options.upstream != options.upstream) {
            return Err(Failure::usage("--upstream and its options cannot be changed by a reload")
                .hint(
                    "restart the agent: what it keeps was got the other way, and would show who \
                    is who",
                ));
        }
        let isolation = before.map_or_else(Arc::default, |before| Arc::clone(&before.isolation));
        let config = connector_config(&options, &isolation)?;
        let connector = match before {
            Some(before) => before.connector.reconfigured(config),
            None => Connector::new(config),
        };
        let limits = RelayLimits {
            idle: Some(options.idle_timeout),
            half_closed_idle: Some(daemon::HALF_CLOSED_IDLE),
            total: options.total_timeout,
        };
        let known = before.map_or_else(Arc::default, |before| Arc::clone(&before.known));
        let clients = Clients::new(&options.managed.client_certificate)?;
        Ok(Self { options, connector, limits, known, clients, isolation })
    }

    /// Returns the tables of the status page.
    fn tables(&self) -> Vec<Table> {
        let edges = self.options.edge.iter().flat_map(|edges| &edges.0);
        let rows = edges.map(|edge| vec![Cell::Text(edge.to_string())]);
        vec![Table { title: "Edges", columns: &["Edge"], rows: rows.collect() }]
    }

    /// Returns the time that a managed connection may take to open: the handshake as long again as
    /// TCP, and a proxy what it may.
    pub(super) fn opening_time(&self) -> Duration {
        let own = self.options.connect_timeout.saturating_mul(2);
        match self.options.upstream.upstream {
            None => own,
            Some(_) => own.saturating_add(NEGOTIATION_TIME + REPLY_TIME),
        }
    }

    /// Returns true if applications are told of the connection only once it stands: on ports where
    /// the server may speak first.
    pub(super) fn answers_late(&self, port: u16) -> bool {
        let Self { options, .. } = self;
        options.late_answer || !(options.is_tls_port(port) || options.upstream.speaks_first(port))
    }
}

pub(super) fn connector_config(
    options: &AgentOptions,
    isolation: &Arc<Isolation>,
) -> Result<ConnectorConfig, Failure> {
    let dns = DnsConfig { name_servers: options.resolver.clone(), ..DnsConfig::default() };
    let resolver = Resolver::new(&dns)
        .map_err(|error| Failure::usage(format!("cannot look up names: {error}")))?;
    Ok(ConnectorConfig {
        edges: edge_lookup(options.edges()?),
        filter: inside::filter(&options.allow_inside),
        opening: options.opening,
        second_syn: options.second_syn == SecondSyn::Auto,
        spares: spares(options),
        hold: options.hold,
        connect_timeout: options.connect_timeout,
        upstream: options.upstream.resolve(isolation)?.map(Arc::new),
        ..ConnectorConfig::new(resolver)
    })
}

/// Returns the number of spare connections that may be held.
fn spares(options: &AgentOptions) -> usize {
    options.spares.0.min(files() / FILES_PER_SPARE)
}

/// Permits of the connections of applications, which all proxy ports share.
#[derive(Clone)]
pub(super) struct Permits {
    /// Permits of clients without a request yet.
    pub(super) waiting: Arc<Shares>,
    /// Permits of requested connections.
    pub(super) running: Arc<Shares>,
}

impl Permits {
    fn new(connections: NonZeroUsize) -> Self {
        let waiting = connections.get().min(files() / FILES_PER_WAITING).max(1);
        let running = daemon::within_files(connections, files_allow()).get();
        metrics::limit("waiting_clients", waiting);
        metrics::limit("max_connections", running);
        Self { waiting: Shares::new(waiting), running: Shares::new(running) }
    }

    /// Makes as many for managed TLS: neither can take the other's.
    fn apart(&self) -> Self {
        Self { waiting: self.waiting.apart(), running: self.running.apart() }
    }
}

/// Returns the number of connections for which there are files, on the proxy ports as for managed
/// TLS.
pub(super) fn files_allow() -> usize {
    (files() / FILES_PER_CONNECTION).max(1)
}

/// An accepted connection, and whose it is.
struct Accepted {
    client: TcpStream,
    /// Original destination, if the packet filter redirected it here.
    redirected: Option<SocketAddr>,
    user: Option<u32>,
    owner: Owner,
    waiting: Permit,
}

impl Accepted {
    /// Finds out whose the connection is; none if its owner has too many that wait already.
    ///
    /// # Errors
    /// The client is gone.
    fn new(client: TcpStream, permits: &Permits) -> io::Result<Option<Self>> {
        let redirected = original_destination(&client)?;
        let user = tcp_user(&client, redirected);
        let owner = Owner::new(user, Some(client.peer_addr()?.ip()));
        let waiting = permits.waiting.take(owner);
        Ok(waiting.map(|waiting| Self { client, redirected, user, owner, waiting }))
    }
}

/// Takes connections of a listener, which may be for one context.
async fn accept(
    listener: TcpListener,
    context: Option<Arc<str>>,
    permits: Permits,
    mut running: Running<Settings>,
) {
    loop {
        let client = match running.until_stop(listener.accept()).await {
            Some(Ok((client, _))) => client,
            Some(Err(error)) => {
                listen::after_failed_accept(&error).await;
                continue;
            }
            None => break,
        };
        let accepted = match Accepted::new(client, &permits) {
            Ok(Some(accepted)) => accepted,
            Ok(None) => {
                metrics::limit_hit("waiting_clients");
                continue;
            }
            Err(error) => {
                tracing::debug!(%error, "client is gone");
                continue;
            }
        };
        let (settings, context) = (running.settings(), context.clone());
        let (shares, task) = (Arc::clone(&permits.running), running.permits.task());
        tokio::spawn(async move {
            let _task = task;
            serve(accepted, context.as_deref(), &settings, &shares).await;
        });
    }
}

async fn serve(
    accepted: Accepted,
    context: Option<&str>,
    settings: &Settings,
    shares: &Arc<Shares>,
) {
    let mut counted = Connection::accepted(Role::Agent);
    let Accepted { client, redirected, user, owner, waiting } = accepted;
    let _ = client.set_nodelay(true);
    let mut inbound = match inbound::accept(client, redirected, Timeouts::default()).await {
        Ok(inbound) => inbound,
        Err(refusal) => {
            log_refusal(&refusal);
            metrics::count_limit(refusal.label());
            counted.finish(Carrier::Tcp.name(), Outcome::Refused);
            return;
        }
    };
    let label = inbound.target.context.take().or_else(|| context.map(str::to_owned));
    let user = user.filter(|_| settings.connector.uses_contexts());
    let context = Context { uid: user, label };
    // A redirected client may wait for what its server says first, so it has a permit at once.
    let Some(_permit) = shares.take(owner) else {
        metrics::limit_hit("max_connections");
        let _ = inbound.answer.failure(Reason::Overloaded).await;
        counted.finish(Carrier::Tcp.name(), Outcome::Refused);
        return;
    };
    drop(waiting);
    let (opening, outcome) = pass(inbound, &context, settings, &mut counted).await;
    counted.finish(opening.name(), outcome);
}

/// An application's connection, ready for bytes, with those that are read already.
struct Client {
    tcp: TcpStream,
    head: Bytes,
}

async fn pass(
    inbound: Inbound,
    context: &Context,
    settings: &Settings,
    counted: &mut Connection,
) -> (Carrier, Outcome) {
    let Inbound { target, answer } = inbound;
    counted.note_name(|| format!("{}:{}", target.host, target.port));
    let tls = settings.options.is_tls_port(target.port);
    let late = settings.answers_late(target.port);
    let mut to = Target::new(target.host.to_string(), target.port);
    to.context = settings.known.context_of_cookies(context);
    // With late answers, a client waits for the connection; a redirected one does not.
    to.speaks_first = !late || (tls && target.via == Via::Redirect);
    let mut answer = Some(answer);
    let mut client = None;
    if target.via == Via::Redirect
        && tls
        && let Some(answer) = answer.take()
    {
        let Ok((tcp, head)) = answer.success().await else { return lost() };
        let Ok((found, hello)) = read_hello(tcp, head).await else { return lost() };
        to.server_name = hello.and_then(|hello| hello.server_name);
        client = Some(found);
    }
    let stream = match settings.connector.connect(&to) {
        Ok(stream) => stream,
        Err(error) => return refuse(answer, &to, &error.into()).await,
    };
    let (client, stream) = match (client, answer) {
        (Some(client), _) => (client, stream),
        (None, Some(answer)) => match answer_client(answer, stream, &to, late).await {
            Ok(both) => both,
            Err(outcome) => return (Carrier::Tcp, outcome),
        },
        (None, None) => return lost(),
    };
    relay(client, stream, &to, settings.limits, counted).await
}

/// Answers the application: at once, so that its ClientHello comes while TCP connects, or `late`.
async fn answer_client(
    answer: inbound::Answer,
    mut stream: ClientStream,
    to: &Target,
    late: bool,
) -> Result<(Client, ClientStream), Outcome> {
    stream.start();
    if late && let Err(error) = stream.connected().await {
        log_failed(&to.host, to.port, &error);
        let _ = answer.failure(Reason::from(&error)).await;
        return Err(Outcome::Unreachable);
    }
    let (tcp, head) = answer.success().await.map_err(|_| Outcome::Reset)?;
    Ok((Client { tcp, head }, stream))
}

async fn relay(
    client: Client,
    stream: ClientStream,
    to: &Target,
    limits: RelayLimits,
    counted: &mut Connection,
) -> (Carrier, Outcome) {
    let (mut opening, mut harm, mut reset) = (Carrier::Tcp, None, None);
    let outcome = daemon::bridge(stream, client.tcp, &client.head, limits, |stream| {
        let Some(report) = stream.report() else { return };
        counted.note_report(report);
        opening = report.opened_by;
        reset = report.reset;
        harm = if report.reset == Some(ResetReason::CommittedRefusal) {
            Some(Outcome::Committed)
        } else {
            report.address.is_none().then_some(Outcome::Unreachable)
        };
        let not_used = report.not_used.map(|reason| reason.name());
        let fop_not_used = report.fast_open_not_used.map(|reason| reason.name());
        let context = to.context.label.as_deref();
        tracing::debug!(
            host = %to.host,
            port = to.port,
            context,
            opening = opening.name(),
            not_used,
            fop_not_used,
            rtt_ms = report.rtt.map(millis),
            "opened"
        );
    });
    let relayed = outcome.await;
    let outcome = harm.unwrap_or_else(|| Outcome::from(&relayed));
    match (&relayed, reset) {
        (_, Some(reason)) => log_reset(to, reason),
        (RelayReason::Error(Side::A, error), None) if outcome == Outcome::Unreachable => {
            log_failed(&to.host, to.port, error);
        }
        (RelayReason::Reset(Side::A), None) if outcome == Outcome::Unreachable => {
            let error = io::Error::from(io::ErrorKind::ConnectionReset);
            log_failed(&to.host, to.port, &error);
        }
        _ => {}
    }
    tracing::debug!(host = %to.host, port = to.port, result = outcome.label(), "connection ended");
    (opening, outcome)
}

/// Says which server could not be reached, and why.
pub(super) fn log_failed(host: &str, port: u16, error: &dyn fmt::Display) {
    if let Some(left_out) = FAILED.line(Instant::now()) {
        let (host, error) = (printable_word(host), error.to_string());
        let error = printable_word(&error);
        tracing::warn!(%host, port, %error, left_out, "cannot connect");
    }
}

/// Logs a connection that its opening had to reset.
fn log_reset(to: &Target, reason: ResetReason) {
    if let Some(left_out) = FAILED.line_about(reason.name(), Instant::now()) {
        let (host, port, reason) = (printable_word(&to.host), to.port, reason.name());
        tracing::warn!(%host, port, reason, left_out, "connection reset while it opened");
    }
}

/// Logs a request that cannot be served. Browsers connect ahead of need, and leave again.
fn log_refusal(refusal: &Refusal) {
    let kind = refusal.label();
    match refusal {
        Refusal::Silent | Refusal::Closed | Refusal::Io(_) => {
            tracing::debug!(%refusal, "no request");
        }
        _ => {
            if let Some(left_out) = REFUSED.line_about(kind, Instant::now()) {
                tracing::warn!(%refusal, left_out, "request refused");
            }
        }
    }
}

/// Reads what a redirected client says first. A client that waits for the server says nothing.
async fn read_hello(mut tcp: TcpStream, head: Bytes) -> io::Result<(Client, Option<ClientHello>)> {
    let mut read = BytesMut::from(head);
    let hello = tokio::time::timeout(HELLO_TIME, async {
        loop {
            match hello::read(&read) {
                Ok(Progress::Complete(hello)) => return Ok(Some(hello)),
                Err(_) => return Ok(None),
                Ok(Progress::Incomplete) => {}
            }
            if tcp.read_buf(&mut read).await? == 0 {
                return Ok::<_, io::Error>(None);
            }
        }
    });
    let hello = hello.await.unwrap_or(Ok(None))?;
    Ok((Client { tcp, head: read.freeze() }, hello))
}

async fn refuse(
    answer: Option<inbound::Answer>,
    to: &Target,
    error: &io::Error,
) -> (Carrier, Outcome) {
    log_failed(&to.host, to.port, error);
    if let Some(answer) = answer {
        let _ = answer.failure(Reason::from(error)).await;
    }
    (Carrier::Tcp, Outcome::Unreachable)
}

/// The application went away before anything was connected.
const fn lost() -> (Carrier, Outcome) {
    (Carrier::Tcp, Outcome::Reset)
}
