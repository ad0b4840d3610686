//! Metrics of both daemons, for Prometheus.
//!
//! This module describes every metric; those of the transport are counted in headstart-net, where
//! things happen. Labels have fixed sets of values, never host names or addresses of others: their
//! number must not grow with what clients send.

pub mod options;
mod process;
mod recent;
mod server;
mod status;
mod zero;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use headstart_net::{Carrier, EdgeTimeline, Report};
use headstart_sessions::Counts;
use headstart_tls::{EarlyData, Facts, Version};
use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tracing::Level;

use crate::base::clock::wall_clock;
use crate::base::failure::Failure;
use crate::base::log_throttle::LogThrottle;
use crate::base::logging::ACCESS;
use crate::base::names::NamePattern;
use crate::base::value::HostPort;
use crate::qlog::{self, Trace};
use recent::{Recent, Record};
use server::Site;
pub use status::StatusPage;
pub(crate) use status::{Cell, Table};

const CONNECTIONS: &str = "headstart_connections_total";
const ACTIVE: &str = "headstart_connections_active";
const DATAGRAMS: &str = "headstart_udp_datagrams_total";
const FALLBACKS: &str = "headstart_fallbacks_total";
const LIMITS: &str = "headstart_limits_hit_total";
const RELAYED: &str = "headstart_relayed_bytes_total";
const SAVED: &str = "headstart_round_trips_saved_total";
const SAVED_RATIO: &str = "headstart_round_trips_saved_ratio";
const LIMIT: &str = "headstart_limit";
const QUIC_DATAGRAMS: &str = "headstart_quic_datagrams_total";
const QUIC_FLOWS: &str = "headstart_quic_flows";
const QUIC_EVENTS: &str = "headstart_quic_flows_total";
const UNPROVEN: &str = "headstart_sessions_unproven";
const JOINS: &str = "headstart_joins_total";
const FAST_OPEN: &str = "headstart_fastopen_syns_total";
const CAREFUL_JUMPS: &str = "headstart_careful_jumps_total";
const CAREFUL_ENDS: &str = "headstart_careful_ends_total";
const CAREFUL_PATHS: &str = "headstart_careful_paths";
const SYN_DATA: &str = "headstart_syn_data_total";
const SECOND_SYNS: &str = "headstart_second_syns_total";
const SPARES: &str = "headstart_spares_total";
const SPARES_HELD: &str = "headstart_spares_held";
const UPSTREAM: &str = "headstart_upstream_connections_total";
const BUILD: &str = "headstart_build_info";
const HANDSHAKES: &str = "headstart_tls_handshakes_total";
const REQUESTS: &str = "headstart_http_requests_total";
const EARLY: &str = "headstart_early_requests_total";
const ORIGIN_FAILURES: &str = "headstart_origin_failures_total";
const ORIGINS: &str = "headstart_origins";
const ORIGIN_UP: &str = "headstart_origin_up";
const ANSWER_MEMORY: &str = "headstart_answer_memory_bytes";
const EXPIRY: &str = "headstart_certificate_expiry_seconds";
const FILTER: &str = "headstart_early_data_filter_total";
const FORWARDS_FAILED: &str = "headstart_forwards_failed_total";
const RELOADS: &str = "headstart_reloads_total";
const SESSIONS_HELD: &str = "headstart_sessions_held";
const SESSIONS: &str = "headstart_sessions_total";
const OPENING_TIME: &str = "headstart_opening_seconds";
const HANDSHAKE_TIME: &str = "headstart_tls_handshake_seconds";
const ORIGIN_TIME: &str = "headstart_origin_seconds";

/// Limits that are reached: clients decide how often.
static LIMITS_REACHED: LogThrottle = LogThrottle::new();

/// Upper ends of the histograms' buckets, in seconds: from a rack to a satellite.
const BUCKETS: &[f64] =
    &[0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0];

/// Interval at which the exporter tidies its buffers, as its own server does.
const UPKEEP: Duration = Duration::from_secs(5);

/// Daemon that reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// `headstart edge`.
    Edge,
    /// `headstart agent`.
    Agent,
}

impl Role {
    /// Returns its name in metrics.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Edge => "edge",
            Self::Agent => "agent",
        }
    }
}

/// Outcome of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Both sides closed.
    Closed,
    /// One side reset it.
    Reset,
    /// An idle or total time limit ended it.
    TimedOut,
    /// The other side could not be connected to.
    Unreachable,
    /// The agent or edge refused it: a bad request, an unknown name.
    Refused,
    /// The committed case: the edge refused a join after server bytes were delivered.
    Committed,
}

impl Outcome {
    const ALL: [Self; 6] = [
        Self::Closed,
        Self::Reset,
        Self::TimedOut,
        Self::Unreachable,
        Self::Refused,
        Self::Committed,
    ];

    /// Returns that of a connection of this program's own, which was `answered` or not.
    #[must_use]
    pub const fn of_own(report: &Report, answered: bool) -> Self {
        match report.address {
            Some(_) if answered => Self::Closed,
            Some(_) => Self::Reset,
            None => Self::Unreachable,
        }
    }

    /// Returns its name in metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Reset => "reset",
            Self::TimedOut => "timed_out",
            Self::Unreachable => "unreachable",
            Self::Refused => "refused",
            Self::Committed => "committed",
        }
    }
}

/// Direction of bytes or datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From client to server.
    ToServer,
    /// From server to client.
    ToClient,
}

impl Direction {
    fn label(self) -> &'static str {
        match self {
            Self::ToServer => "to_server",
            Self::ToClient => "to_client",
        }
    }
}

/// A connection that counts as active until it is [finished](Self::finish) or dropped.
#[derive(Debug)]
pub struct Connection {
    role: Role,
    accepted: Instant,
    record: Record,
    /// Timeline at an edge.
    timeline: EdgeTimeline,
    /// Report of an agent, if connections are logged.
    report: Option<Report>,
    /// The server of an agent's connection, or the client of an edge's.
    remote: Option<SocketAddr>,
}

impl Connection {
    /// Counts a connection that has been accepted.
    pub fn accepted(role: Role) -> Self {
        gauge!(ACTIVE, "role" => role.label()).increment(1);
        Self {
            role,
            accepted: Instant::now(),
            record: Record::default(),
            timeline: EdgeTimeline::default(),
            report: None,
            remote: None,
        }
    }

    /// Notes for the metrics, the status page and qlog how an agent opened its side.
    pub fn note_report(&mut self, report: &Report) {
        if let Some(waited) = recent::waited(report) {
            histogram!(OPENING_TIME, "opening" => report.opened_by.name()).record(waited);
        }
        if Recent::of_process().is_some() {
            self.record.take_report(report);
        }
        if qlog::is_on() {
            self.report = Some(report.clone());
            self.remote = report.address;
        }
    }

    /// Notes for qlog what happens to an edge's client.
    pub fn note_timeline(&mut self, timeline: EdgeTimeline) {
        self.timeline = timeline;
    }

    /// Notes for the status page and qlog that an edge's client has opened its connection now.
    pub fn note_established(&mut self, client: SocketAddr) {
        self.remote = Some(client);
        self.record.established = Some(self.accepted.elapsed());
    }

    /// Notes for the status page where it goes, or comes from; only if names are shown.
    pub fn note_name(&mut self, name: impl FnOnce() -> String) {
        if Recent::of_process().is_some_and(Recent::shows_names) {
            self.record.name = Some(name());
        }
    }

    /// Counts how it was opened, by a word of the program, and how it ended.
    pub fn finish(mut self, opening: &'static str, outcome: Outcome) {
        let labels =
            [("role", self.role.label()), ("opening", opening), ("result", outcome.label())];
        counter!(CONNECTIONS, &labels).increment(1);
        if matches!(outcome, Outcome::Closed | Outcome::Reset | Outcome::TimedOut) {
            let (saved, plain) = recent::count_trips(opening);
            gauge!(SAVED_RATIO, "role" => self.role.label()).set(saved as f64 / plain as f64);
        }
        if let Some(recent) = Recent::of_process() {
            let lasted = self.accepted.elapsed();
            let (ended, result) = (wall_clock().0, outcome.label());
            let record = std::mem::take(&mut self.record);
            recent.push(Record { ended, opening, result, lasted, ..record });
        }
        self.log(opening, outcome.label());
    }

    /// Logs a connection that another one, another process or another edge goes on with, and
    /// counts.
    pub fn passed_on(self) {
        self.log(Carrier::TurboTls.name(), "passed_on");
    }

    /// Writes the qlog file, with addresses if the log has them.
    fn log(&self, opening: &'static str, result: &'static str) {
        if !qlog::is_on() {
            return;
        }
        let trace = match &self.report {
            Some(report) => Trace::opening(report, tracing::enabled!(Level::DEBUG)),
            None => {
                let shown = tracing::enabled!(target: ACCESS, Level::INFO);
                Trace::edge(&self.timeline, shown)
            }
        };
        qlog::log(trace.ended(opening, result, self.remote));
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        gauge!(ACTIVE, "role" => self.role.label()).decrement(1);
    }
}

/// Counts a limit that was reached, and logs it; `limit` is its name, a word of the program.
pub fn limit_hit(limit: &'static str) {
    count_limit(limit);
    if let Some(left_out) = LIMITS_REACHED.line_about(limit, Instant::now()) {
        tracing::warn!(limit, left_out, "limit reached");
    }
}

/// Counts a limit that was reached, about which the caller has a line of its own.
pub fn count_limit(limit: &'static str) {
    counter!(LIMITS, "limit" => limit).increment(1);
}

/// Shows a limit of this process; `limit` is its name, a word of the program.
pub fn limit(limit: &'static str, value: usize) {
    gauge!(LIMIT, "limit" => limit).set(value as f64);
}

/// Counts relayed bytes.
pub fn relayed(direction: Direction, bytes: u64) {
    counter!(RELAYED, "direction" => direction.label()).increment(bytes);
}

/// Counts a TLS handshake of the edge or the agent itself that is done, and has taken so long.
pub fn handshake(facts: &Facts, took: Duration) {
    let resumed = if facts.resumed { "yes" } else { "no" };
    let labels = [
        ("result", "done"),
        ("version", facts.version.map_or("none", version)),
        ("resumed", resumed),
        ("early_data", early_data(facts.early_data)),
    ];
    counter!(HANDSHAKES, &labels).increment(1);
    histogram!(HANDSHAKE_TIME, "resumed" => resumed).record(took);
}

/// Counts a TLS handshake of the edge or the agent itself that came to nothing; `result` says how.
pub fn handshake_failed(result: &'static str) {
    let labels =
        [("result", result), ("version", "none"), ("resumed", "no"), ("early_data", "none")];
    counter!(HANDSHAKES, &labels).increment(1);
}

const fn version(version: Version) -> &'static str {
    match version {
        Version::Tls12 => "1.2",
        Version::Tls13 => "1.3",
    }
}

const fn early_data(early_data: EarlyData) -> &'static str {
    match early_data {
        EarlyData::None => "none",
        EarlyData::Refused => "refused",
        EarlyData::Accepted => "accepted",
    }
}

/// Shows what the agent's session store holds, and what has happened to sessions so far.
pub fn sessions(counts: &Counts) {
    let held = [("servers", counts.servers), ("tickets", counts.tickets), ("bytes", counts.bytes)];
    for (what, count) in held {
        gauge!(SESSIONS_HELD, "what" => what).set(count as f64);
    }
    let events = [
        ("kept", counts.kept),
        ("taken", counts.taken),
        ("missed", counts.missed),
        ("given_back", counts.given_back),
        ("refused", counts.refused),
        ("outdated", counts.outdated),
        ("expired", counts.expired),
        ("evicted", counts.evicted),
        ("forgotten", counts.forgotten),
    ];
    for (event, count) in events {
        counter!(SESSIONS, "event" => event).absolute(count);
    }
}

/// Counts a response of the edge, by the first digit of the status.
pub fn request(is_h2: bool, status: u16) {
    let class = match status / 100 {
        1 => "1xx",
        2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        _ => "5xx",
    };
    let protocol = if is_h2 { "h2" } else { "http/1.1" };
    counter!(REQUESTS, "protocol" => protocol, "status" => class).increment(1);
}

/// Outcome of a request that came before the handshake was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EarlyRequest {
    /// It was passed on at once.
    Passed,
    /// It had to wait for the end of the handshake.
    Held,
    /// The response was 425.
    TooEarly,
}

/// Counts a request that came as early data.
pub fn early(request: EarlyRequest) {
    let outcome = match request {
        EarlyRequest::Passed => "passed",
        EarlyRequest::Held => "held",
        EarlyRequest::TooEarly => "too_early",
    };
    counter!(EARLY, "outcome" => outcome).increment(1);
}

/// Counts a reply of the filter in Redis, a word of the program; all but `first` reject the early
/// data.
pub fn early_data_filter(outcome: &'static str) {
    counter!(FILTER, "outcome" => outcome).increment(1);
}

/// True while an edge cannot connect to any origin.
static ORIGINS_DOWN: AtomicBool = AtomicBool::new(false);

/// Says whether an edge could connect to none of its origins, and so is not ready.
pub fn set_origins_down(down: bool) {
    ORIGINS_DOWN.store(down, Ordering::Relaxed);
}

/// Shows whether the last connection to `origin` succeeded; `None` if there was none, or it is no
/// origin any more, since a series cannot be taken back.
pub fn origin(origin: &HostPort, up: Option<bool>) {
    let value = up.map_or(f64::NAN, |up| if up { 1.0 } else { 0.0 });
    gauge!(ORIGIN_UP, "origin" => origin.to_string()).set(value);
}

/// Shows to how many origins the last connection succeeded, and to how many not.
pub fn origins(up: usize, down: usize) {
    gauge!(ORIGINS, "state" => "up").set(up as f64);
    gauge!(ORIGINS, "state" => "down").set(down as f64);
}

/// Counts a response of an origin, whose head came so long after the request was sent.
pub fn origin_responded(after: Duration) {
    histogram!(ORIGIN_TIME).record(after);
}

/// Counts a request without a response of the origin; `reason` is a word of the program.
pub fn origin_failed(reason: &'static str) {
    counter!(ORIGIN_FAILURES, "reason" => reason).increment(1);
}

/// Returns the gauge of bytes of responses that wait for clients.
pub fn answer_memory() -> metrics::Gauge {
    gauge!(ANSWER_MEMORY)
}

/// Shows when the certificate for `name` expires, in seconds since 1970; `None` if it is no longer
/// used, since a series cannot be taken back.
pub fn certificate_expiry(name: &str, seconds: Option<i64>) {
    let seconds = seconds.map_or(f64::NAN, |seconds| seconds as f64);
    gauge!(EXPIRY, "name" => name.to_owned()).set(seconds);
}

/// File that is read again while a daemon runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reloaded {
    /// Certificates with their private keys.
    Certificates,
    /// Keys of session tickets.
    Keys,
    /// The options of a daemon.
    Configuration,
}

/// Counts files that have changed, or keys that were renewed, and whether they could be used.
pub fn reloaded(what: Reloaded, ok: bool) {
    let what = match what {
        Reloaded::Certificates => "certificates",
        Reloaded::Keys => "keys",
        Reloaded::Configuration => "configuration",
    };
    counter!(RELOADS, "what" => what, "result" => if ok { "ok" } else { "kept" }).increment(1);
}

/// Listeners for those who read metrics and status.
#[derive(Debug, Default)]
pub struct Listeners {
    /// Serves `/metrics`, `/healthz` and `/readyz`.
    pub metrics: Option<TcpListener>,
    /// Serves the status page.
    pub status: Option<(TcpListener, StatusPage)>,
}

/// The metrics of this process, and whether it is ready to serve.
#[derive(Clone)]
pub struct Metrics {
    prometheus: PrometheusHandle,
    ready: Arc<AtomicBool>,
}

impl Metrics {
    /// Starts counting for this process. Until then, and without it, counting costs next to
    /// nothing and is forgotten.
    ///
    /// # Errors
    /// A second call in a process.
    pub fn install(role: Role) -> Result<Self, Failure> {
        let prometheus = PrometheusBuilder::new()
            .set_buckets(BUCKETS)
            .and_then(PrometheusBuilder::install_recorder)
            .map_err(|error| Failure::usage(format!("cannot start metrics: {error}")))?;
        describe(role);
        begin(role);
        let ready = Arc::default();
        Ok(Self { prometheus, ready })
    }

    /// Says at `/readyz` whether the daemon takes connections: from the end of its start to the
    /// beginning of its stop.
    pub fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Relaxed);
    }

    /// Serves on `listeners` until the task is aborted, to clients that call them by an address, a
    /// local name or one of `names`.
    pub fn serve(&self, listeners: Listeners, names: Vec<NamePattern>) -> JoinHandle<()> {
        let (metrics, names) = (self.clone(), Arc::<[NamePattern]>::from(names));
        let Listeners { metrics: figures, status } = listeners;
        let figures = figures.map(|listener| (listener, Site::Metrics));
        let status = status.map(|(listener, page)| (listener, Site::Status(page)));
        tokio::spawn(async move {
            let serve = async |site: Option<(TcpListener, Site)>| {
                if let Some((listener, site)) = site {
                    server::serve(listener, site, &metrics, Arc::clone(&names)).await;
                }
            };
            tokio::join!(metrics.tidy(), serve(figures), serve(status));
        })
    }

    async fn tidy(&self) {
        let mut interval = tokio::time::interval(UPKEEP);
        loop {
            interval.tick().await;
            self.prometheus.run_upkeep();
        }
    }

    fn render(&self) -> String {
        let mut text = self.prometheus.render();
        process::append(&mut text);
        text
    }

    fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed) && !ORIGINS_DOWN.load(Ordering::Relaxed)
    }
}

/// Shows the series of a daemon before anything has happened.
fn begin(role: Role) {
    let openings: &[&str] = match role {
        Role::Edge => &["plain", "fop", "turbo", "attached", "unjoined"],
        Role::Agent => &["plain", "spare", "fop", "turbo", "upstream", "optimistic"],
    };
    for opening in openings {
        for outcome in Outcome::ALL {
            let labels =
                [("role", role.label()), ("opening", opening), ("result", outcome.label())];
            counter!(CONNECTIONS, &labels).absolute(0);
        }
    }
    gauge!(ACTIVE, "role" => role.label()).set(0);
    relayed(Direction::ToServer, 0);
    relayed(Direction::ToClient, 0);
    zero::begin(role);
}

fn describe(role: Role) {
    let counters = [
        (CONNECTIONS, "Connections that ended, by opening and result"),
        (DATAGRAMS, "UDP datagrams, by direction and what became of them"),
        (FALLBACKS, "Connections that fell back to plain TLS, by reason"),
        (LIMITS, "Times a limit was reached, by limit"),
        (RELAYED, "Bytes relayed, by direction"),
        (JOINS, "TCP connections that asked to join a session, by outcome"),
        (CAREFUL_JUMPS, "Joins that could begin with a saved window, by whether they did"),
        (CAREFUL_ENDS, "Connections that began with a saved window, by how that ended"),
        (FAST_OPEN, "SYNs that the Fast Open program acted on, by what became of their cookie"),
        (SYN_DATA, "SYNs that left with data and a cookie, by what became of them"),
        (
            SECOND_SYNS,
            "Second SYNs beside one that was not answered in time, by whether theirs was used",
        ),
        (SPARES, "Spare connections that have ended, by whether they were used"),
        (
            UPSTREAM,
            "Connections through the upstream proxy, by manner (optimistic, waiting, fallback) and \
             result",
        ),
        (SAVED, "Round trips that connections did not wait for"),
        (QUIC_DATAGRAMS, "QUIC datagrams, by direction and what became of them"),
        (QUIC_EVENTS, "What happened to flows of QUIC clients, by event"),
        (
            HANDSHAKES,
            "TLS handshakes of this process itself, by result, version, resumption and early data",
        ),
        (REQUESTS, "HTTP requests, by protocol and class of the status"),
        (EARLY, "HTTP requests that came as early data, by what became of them"),
        (ORIGIN_FAILURES, "HTTP requests without a response of the origin, by reason"),
        (
            FILTER,
            "ClientHellos with early data that the filter in Redis was asked about, by its answer",
        ),
        (FORWARDS_FAILED, "Joins for other edges of the fleet that were decided here, by reason"),
        (RELOADS, "Certificates, keys and configuration read again, and whether they were taken"),
        (SESSIONS, "What happened to sessions in the store, by event"),
    ];
    let gauges = [
        (ORIGINS, "Origins, by whether the last connection succeeded"),
        (ORIGIN_UP, "Whether the last connection to an origin succeeded"),
        (ACTIVE, "Connections open now"),
        (SPARES_HELD, "Spare connections held now"),
        (
            SAVED_RATIO,
            "Part of the round trips before first flights that connections did not wait for",
        ),
        (LIMIT, "Limits of this process, by name"),
        (QUIC_FLOWS, "QUIC clients that have a flow now"),
        (CAREFUL_PATHS, "Paths whose window is remembered, for Careful Resume"),
        (UNPROVEN, "Sessions seen over UDP whose address is not proven yet"),
        (ANSWER_MEMORY, "Memory of requests, and of responses that wait for their clients"),
        (EXPIRY, "When certificates expire, by their first name, in seconds since 1970"),
        (SESSIONS_HELD, "What the session store holds: servers, tickets, bytes"),
        (BUILD, "Always 1; the labels tell the version and the role"),
    ];
    let histograms = [
        (
            OPENING_TIME,
            "Time from a server's address until its first flight could leave, by opening",
        ),
        (
            HANDSHAKE_TIME,
            "Time of TLS handshakes of this process itself that are done, by resumption",
        ),
        (ORIGIN_TIME, "Time from sending a request to the origin until the head of its response"),
    ];
    for (name, words) in counters {
        describe_counter!(name, words);
    }
    for (name, words) in gauges {
        describe_gauge!(name, words);
    }
    for (name, words) in histograms {
        describe_histogram!(name, words);
    }
    let labels = [("version", env!("CARGO_PKG_VERSION")), ("role", role.label())];
    gauge!(BUILD, &labels).set(1);
}

#[cfg(test)]
mod tests {
    use headstart_net::Carrier;

    use super::*;

    /// One test, because a process has one recorder.
    #[test]
    fn every_metric_is_described_counted_and_bounded() {
        let metrics = Metrics::install(Role::Edge).unwrap();
        assert!(Metrics::install(Role::Edge).is_err());
        // Tests of edges may open connections meanwhile, in this process.
        let first = Connection::accepted(Role::Agent);
        let second = Connection::accepted(Role::Agent);
        first.finish(Carrier::TurboTls.name(), Outcome::Closed);
        limit_hit("sessions");
        relayed(Direction::ToClient, 1500);
        let text = metrics.render();
        for line in [
            "headstart_connections_total{role=\"agent\",opening=\"turbo\",result=\"closed\"} 1",
            "headstart_connections_active{role=\"agent\"} 1",
            "headstart_limits_hit_total{limit=\"sessions\"} 1",
            "headstart_relayed_bytes_total{direction=\"to_client\"} 1500",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        // One of this process, with those of other tests.
        let ratio = format!("{SAVED_RATIO}{{role=\"agent\"}} ");
        let ratio = text.lines().find_map(|line| line.strip_prefix(&ratio)).unwrap();
        let ratio: f64 = ratio.parse().unwrap();
        assert!(ratio > 0.0 && ratio <= 1.0, "{ratio}");
        // These are there before anything has happened; the transport counts joins.
        for line in [
            "headstart_connections_total{role=\"edge\",opening=\"fop\",result=\"refused\"} 0",
            "headstart_joins_total{outcome=\"refused\"} 0",
            "headstart_reloads_total{what=\"configuration\",result=\"kept\"} 0",
            "headstart_tls_handshake_seconds_count{resumed=\"no\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        let [described, all] = ["# HELP headstart_", "# TYPE headstart_"]
            .map(|begin| text.lines().filter(|line| line.starts_with(begin)).count());
        // Other tests may add some.
        assert!(described == all && all >= 24, "{text}");
        drop(second);
        assert!(metrics.render().contains("headstart_connections_active{role=\"agent\"} 0"));
    }
}
