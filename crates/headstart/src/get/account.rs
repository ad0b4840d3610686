use std::time::Duration;

use headstart_net::{Carrier, FastOpenNotUsed, NotUsed, OpeningEvent, Report};
use headstart_tls::Facts;
use serde_json::{Value, json};

use super::tls::{cipher_name, group_name, version_name};
use crate::base::opening_event::words;

/// All that was measured of one fetch; times since the connection was asked for.
#[derive(Debug, Clone, Default)]
pub struct Account {
    /// Host of the URL.
    pub host: String,
    /// True if the URL is one of https.
    pub secure: bool,
    /// TLS was established.
    pub secured: Option<Duration>,
    /// The first request byte was handed to TLS.
    pub written: Option<Duration>,
    /// The first response byte came out of TLS.
    pub read: Option<Duration>,
    /// The last one did.
    pub done: Option<Duration>,
    /// Bytes of the body.
    pub bytes: u64,
    /// Negotiated parameters of TLS; `None` without it.
    pub facts: Option<Facts>,
    /// Report of the connection; `None` if not even the lookup began.
    pub report: Option<Report>,
}

impl Account {
    /// Time that TCP took to connect.
    pub fn rtt(&self) -> Option<Duration> {
        self.report.as_ref()?.rtt
    }

    /// Returns the time until an address was known; other times count from then.
    pub fn lookup(&self) -> Duration {
        self.report.as_ref().and_then(resolved).unwrap_or_default()
    }

    /// Time from the start of the connection to the first byte of the request.
    pub fn to_request(&self) -> Option<Duration> {
        Some(self.written?.saturating_sub(self.lookup()))
    }

    /// Time from the start of the connection to the first byte of the response.
    pub fn to_response(&self) -> Option<Duration> {
        Some(self.read?.saturating_sub(self.lookup()))
    }

    /// `time` in round trips, if it is known how long one is.
    pub fn round_trips(&self, time: Duration) -> Option<f64> {
        let rtt = self.rtt().filter(|rtt| !rtt.is_zero())?;
        Some(time.as_secs_f64() / rtt.as_secs_f64())
    }

    /// The opening that carried the first bytes.
    pub fn opened_by(&self) -> Carrier {
        self.report.as_ref().map_or(Carrier::Tcp, |report| report.opened_by)
    }

    /// Reason why TurboTLS was not used; `None` if it was.
    pub fn not_used(&self) -> Option<NotUsed> {
        self.report.as_ref()?.not_used.filter(|_| self.opened_by() == Carrier::Tcp)
    }

    /// Said only where the server takes cookies, or if it was asked for.
    pub fn fast_open_not_used(&self) -> Option<FastOpenNotUsed> {
        let unused = self.opened_by() != Carrier::Fop;
        self.report.as_ref()?.fast_open_not_used.filter(|_| unused)
    }

    /// The measurements for scripts; times in milliseconds.
    pub fn json(&self, status: u16) -> Value {
        let to_request = self.to_request();
        let to_end = self.done.map(|done| done.saturating_sub(self.lookup()));
        let round_trips = to_request.and_then(|time| self.round_trips(time));
        let address = self.report.as_ref().and_then(|report| report.address);
        json!({
            "opening": self.opened_by().name(),
            "rtt_ms": self.rtt().map(millis),
            "ms_to_address": millis(self.lookup()),
            "ms_to_first_request_byte": to_request.map(millis),
            "ms_to_first_response_byte": self.to_response().map(millis),
            "ms_to_last_response_byte": to_end.map(millis),
            "rtts_to_first_request_byte": round_trips.map(|count| rounded(count, 100.0)),
            "resumed": self.facts.as_ref().is_some_and(|facts| facts.resumed),
            "early_data": false,
            "not_used": self.not_used_json(),
            "status": status,
            "bytes": self.bytes,
            "address": address.map(|address| address.to_string()),
            "tls": self.facts.as_ref().map(tls_json),
            "timeline": self.timeline_json(),
        })
    }

    fn not_used_json(&self) -> Vec<Value> {
        let turbo = self.not_used().map(|r| unused(Carrier::TurboTls, r.name(), &r.to_string()));
        let fop = self.fast_open_not_used();
        let fop = fop.map(|r| unused(Carrier::Fop, r.name(), &r.to_string()));
        turbo.into_iter().chain(fop).collect()
    }

    fn timeline_json(&self) -> Vec<Value> {
        let moments = self.report.iter().flat_map(|report| &report.timeline);
        moments
            .map(|moment: &headstart_net::TimelineEntry| {
                let ms = moment.at.as_secs_f64() - self.lookup().as_secs_f64();
                json!({ "ms": rounded(ms * 1000.0, 1000.0), "event": words(&moment.event) })
            })
            .collect()
    }
}

fn unused(opening: Carrier, reason: &str, detail: &str) -> Value {
    json!({ "opening": opening.name(), "reason": reason, "detail": detail })
}

fn tls_json(facts: &Facts) -> Value {
    json!({
        "version": version_name(facts),
        "cipher": cipher_name(facts),
        "group": group_name(facts),
    })
}

/// Milliseconds to the microsecond.
pub fn millis(time: Duration) -> f64 {
    rounded(time.as_secs_f64() * 1000.0, 1000.0)
}

/// `value` to the nearest fraction of one `parts`-th.
pub fn rounded(value: f64, parts: f64) -> f64 {
    (value * parts).round() / parts
}

/// Returns the time at which the first address was known.
fn resolved(report: &Report) -> Option<Duration> {
    let mut timeline = report.timeline.iter();
    let found = timeline.find(|moment| matches!(moment.event, OpeningEvent::Resolved(_)));
    found.map(|moment| moment.at)
}
