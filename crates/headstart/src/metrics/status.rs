//! The status page: what a daemon does, as HTML and as JSON (docs/status.md).

mod escape;
mod page;
mod timeline;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::recent::{self, Recent, Record};
use super::{CONNECTIONS, FALLBACKS, LIMITS, Role};
use crate::base::clock::wall_clock;
use timeline::points;

/// Tables of the daemon, rendered for each request.
pub(crate) type Tables = Arc<dyn Fn() -> Vec<Table> + Send + Sync>;

/// A table about the configuration of a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    /// Title on the page; in small letters, the key in JSON.
    pub(crate) title: &'static str,
    /// Heads of the columns; in JSON, the keys of each row.
    pub(crate) columns: &'static [&'static str],
    pub(crate) rows: Vec<Vec<Cell>>,
}

/// A cell of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cell {
    Text(String),
    /// Seconds since 1970.
    Time(i64),
}

/// Content of a status page.
#[derive(Clone)]
pub struct StatusPage {
    role: Role,
    started: u64,
    tables: Tables,
}

impl fmt::Debug for StatusPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatusPage").field("role", &self.role).finish_non_exhaustive()
    }
}

impl StatusPage {
    /// Begins to keep connections for the page; with the names at their other ends, if `names`.
    pub(crate) fn start(role: Role, names: bool, tables: Tables) -> Self {
        Recent::start(names);
        Self { role, started: wall_clock().0, tables }
    }

    /// Returns the page; `metrics` is the text for Prometheus.
    pub(super) fn html(&self, metrics: &str) -> String {
        page::render(&self.status(metrics))
    }

    /// Returns the same as JSON.
    pub(super) fn json(&self, metrics: &str) -> String {
        let mut text = format!("{:#}", self.status(metrics).json());
        text.push('\n');
        text
    }

    fn status(&self, metrics: &str) -> Status {
        let recent = Recent::of_process();
        let (saved, plain) = recent::trips();
        Status {
            role: self.role,
            started: self.started,
            now: wall_clock().0,
            saved,
            plain,
            active: sums(metrics, super::ACTIVE, "role").into_values().sum(),
            connections: nonzero(sums(metrics, CONNECTIONS, "opening")),
            fallbacks: nonzero(sums(metrics, FALLBACKS, "reason")),
            limits: nonzero(sums(metrics, LIMITS, "limit")),
            tables: (self.tables)(),
            names: recent.is_some_and(Recent::shows_names),
            recent: recent.map(Recent::records).unwrap_or_default(),
        }
    }
}

/// The content security policy of the page: its own style, and nothing else.
pub(super) static POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = openssl::base64::encode_block(&openssl::sha::sha256(page::STYLE.as_bytes()));
    format!(
        "default-src 'none'; style-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    )
});

/// A daemon at one moment.
struct Status {
    role: Role,
    started: u64,
    now: u64,
    /// Round trips saved, of those that plain openings take.
    saved: u64,
    plain: u64,
    active: u64,
    connections: BTreeMap<String, u64>,
    fallbacks: BTreeMap<String, u64>,
    limits: BTreeMap<String, u64>,
    tables: Vec<Table>,
    names: bool,
    recent: Vec<Arc<Record>>,
}

impl Status {
    /// Returns the share of round trips saved; `None` before the first connection.
    fn share(&self) -> Option<f64> {
        (self.plain > 0).then(|| self.saved as f64 / self.plain as f64)
    }

    /// Returns the median time that recent connections by `opening` waited with their first flight.
    fn median_wait(&self, opening: &str) -> Option<Duration> {
        let of_opening = self.recent.iter().filter(|record| record.opening == opening);
        let mut waits: Vec<_> = of_opening.filter_map(|record| record.waited).collect();
        waits.sort_unstable();
        waits.get(waits.len() / 2).copied()
    }

    fn json(&self) -> Value {
        let openings: Map<_, _> = self
            .connections
            .iter()
            .map(|(opening, count)| {
                let wait = self.median_wait(opening).map(millis);
                (opening.clone(), json!({ "connections": count, "median_wait_ms": wait }))
            })
            .collect();
        let mut all = json!({
            "role": self.role.label(),
            "version": env!("CARGO_PKG_VERSION"),
            "started": self.started,
            "now": self.now,
            "round_trips": {
                "saved": self.saved,
                "plain": self.plain,
                "saved_ratio": self.share(),
            },
            "connections_active": self.active,
            "openings": openings,
            "fallbacks": self.fallbacks,
            "limits_hit": self.limits,
            "names_shown": self.names,
            "recent": self.recent.iter().map(|record| self.record_json(record)).collect::<Vec<_>>(),
        });
        for table in &self.tables {
            all[table.title.to_ascii_lowercase()] = table.json();
        }
        all
    }

    fn record_json(&self, record: &Record) -> Value {
        let timeline: Vec<_> = points(record, self.names)
            .iter()
            .map(|point| {
                let (ms, lane) = (millis(point.at), point.lane.name());
                json!({ "ms": ms, "lane": lane, "event": point.words })
            })
            .collect();
        json!({
            "ended": record.ended,
            "opening": record.opening,
            "result": record.result,
            "lasted_ms": millis(record.lasted),
            "rtt_ms": record.rtt.map(millis),
            "wait_ms": record.waited.map(millis),
            "turbo_not_used": record.not_used,
            "name": record.name,
            "timeline": timeline,
        })
    }
}

impl Table {
    fn json(&self) -> Value {
        let row = |cells: &Vec<Cell>| {
            let keys = self.columns.iter().map(|column| column.to_ascii_lowercase());
            let values = cells.iter().map(|cell| match cell {
                Cell::Text(text) => json!(text),
                Cell::Time(seconds) => json!(seconds),
            });
            Value::Object(keys.zip(values).collect())
        };
        self.rows.iter().map(row).collect()
    }
}

/// Milliseconds to the microsecond.
fn millis(time: Duration) -> f64 {
    time.as_micros() as f64 / 1000.0
}

/// Returns the sums of the series of `metric` by the values of `label`, out of a text for
/// Prometheus. Labels have words of the program as values, so that nothing in them is quoted.
fn sums(text: &str, metric: &str, label: &str) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for line in text.lines() {
        let series = line.strip_prefix(metric).and_then(|rest| rest.strip_prefix('{'));
        let Some((labels, value)) = series.and_then(|rest| rest.rsplit_once("} ")) else {
            continue;
        };
        let mut pairs = labels.split(',').filter_map(|pair| pair.split_once('='));
        let found = pairs.find_map(|(key, found)| (key == label).then_some(found));
        if let (Some(found), Ok(value)) = (found, value.parse::<u64>()) {
            *sums.entry(found.trim_matches('"').to_owned()).or_default() += value;
        }
    }
    sums
}

fn nonzero(sums: BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    sums.into_iter().filter(|(_, count)| *count > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRICS: &str = "\
# TYPE headstart_connections_total counter
headstart_connections_total{role=\"agent\",opening=\"turbo\",result=\"closed\"} 3
headstart_connections_total{role=\"agent\",opening=\"turbo\",result=\"reset\"} 1
headstart_connections_total{role=\"agent\",opening=\"plain\",result=\"closed\"} 0

headstart_connections_totals{opening=\"turbo\"} 7
headstart_fallbacks_total{reason=\"silence\"} 2
";

    pub(super) fn status() -> Status {
        let name = Some("<b>\"a\".example</b>".to_owned());
        let record = Record {
            ended: 990,
            opening: "turbo",
            result: "closed",
            waited: Some(Duration::from_micros(1500)),
            name,
            ..Record::default()
        };
        let rows = vec![vec![Cell::Text("<i>&'x".to_owned()), Cell::Time(1000 + 86_400 * 3)]];
        Status {
            role: Role::Edge,
            started: 400,
            now: 1000,
            saved: 3,
            plain: 4,
            active: 1,
            connections: nonzero(sums(METRICS, CONNECTIONS, "opening")),
            fallbacks: nonzero(sums(METRICS, FALLBACKS, "reason")),
            limits: BTreeMap::new(),
            tables: vec![Table { title: "Certificates", columns: &["Name", "Expires"], rows }],
            names: true,
            recent: vec![Arc::new(record)],
        }
    }

    #[test]
    fn series_are_summed_by_one_label() {
        let all = sums(METRICS, CONNECTIONS, "opening");
        assert_eq!(all, [("plain".to_owned(), 0), ("turbo".to_owned(), 4)].into());
    }

    #[test]
    fn json_has_the_figures_and_the_tables() {
        let json = status().json();
        assert_eq!(json["round_trips"], json!({ "saved": 3, "plain": 4, "saved_ratio": 0.75 }));
        assert_eq!(json["openings"]["turbo"], json!({ "connections": 4, "median_wait_ms": 1.5 }));
        assert_eq!(json["fallbacks"], json!({ "silence": 2 }));
        assert_eq!(json["certificates"][0]["expires"], 1000 + 86_400 * 3);
        assert_eq!(json["recent"][0]["name"], "<b>\"a\".example</b>");
    }

    #[test]
    fn before_the_first_connection_there_is_no_share() {
        let status = Status { plain: 0, saved: 0, recent: vec![], ..status() };
        assert!(status.json()["round_trips"]["saved_ratio"].is_null());
        assert!(page::render(&status).contains("no connection yet"));
    }
}
