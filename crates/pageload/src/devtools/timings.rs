//! Splits the time of a request, in seconds, into the parts of HAR 1.2: `connect` includes `ssl`.

use serde_json::Value;

/// Parts of a request's time; parts that did not occur are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Timings {
    pub(super) blocked: Option<f64>,
    pub(super) dns: Option<f64>,
    pub(super) connect: Option<f64>,
    pub(super) ssl: Option<f64>,
    pub(super) send: f64,
    pub(super) wait: f64,
    pub(super) receive: f64,
}

impl Timings {
    /// Computes the timings of a request made at `issued` that ended at `end`; `timing` is
    /// `Network.ResourceTiming`.
    pub(super) fn new(issued: f64, timing: Option<&Value>, end: f64) -> Self {
        let Some(timing) = timing.filter(|timing| timing.is_object()) else {
            return Self { blocked: Some((end - issued).max(0.0)), ..Self::default() };
        };
        let began = number(timing, "requestTime").unwrap_or(issued);
        let (dns, connect) = (moment(timing, "dnsEnd"), moment(timing, "connectEnd"));
        let ssl = moment(timing, "sslEnd").filter(|end| *end > 0.0);
        let sent = moment(timing, "sendEnd").unwrap_or_default();
        let firsts = ["dnsStart", "connectStart", "sendStart"];
        let firsts = firsts.into_iter().filter_map(|key| moment(timing, key));
        let first = firsts.fold(f64::INFINITY, f64::min);
        let first = if first.is_finite() { first } else { 0.0 };
        let connecting = dns.unwrap_or(first);
        let sending = connect.unwrap_or(connecting).max(connecting);
        let sent = sent.max(sending);
        // The head of a response comes as a whole; Chromium before 115 says only when it was there.
        let answered = moment(timing, "receiveHeadersStart").filter(|at| *at >= sent);
        let answered = answered.or(moment(timing, "receiveHeadersEnd")).unwrap_or(sent).max(sent);
        Self {
            blocked: Some((began - issued).max(0.0) + first),
            dns: dns.map(|end| (end - first).max(0.0)),
            connect: connect.map(|end| (end - connecting).max(0.0)),
            ssl: ssl.map(|end| (end - moment(timing, "sslStart").unwrap_or(end)).max(0.0)),
            send: sent - sending,
            wait: answered - sent,
            receive: (end - began - answered).max(0.0),
        }
    }

    /// Returns the sum, in ms.
    pub(super) fn total(&self) -> f64 {
        let begun = [self.blocked, self.dns, self.connect].into_iter().flatten().sum::<f64>();
        ms(begun + self.send + self.wait + self.receive)
    }
}

/// Converts seconds to milliseconds, rounded to the microsecond.
pub(super) fn ms(seconds: f64) -> f64 {
    rounded(seconds * 1e3)
}

pub(super) fn rounded(ms: f64) -> f64 {
    (ms * 1e3).round() / 1e3
}

/// Returns a moment of `Network.ResourceTiming` in seconds since its `requestTime`; `None` where it
/// is -1.
fn moment(timing: &Value, key: &str) -> Option<f64> {
    number(timing, key).filter(|at| *at >= 0.0).map(|at| at / 1e3)
}

/// Returns a member that is a finite number.
pub(super) fn number(value: &Value, key: &str) -> Option<f64> {
    value.get(key).and_then(Value::as_f64).filter(|number| number.is_finite())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn timings(timing: &Value) -> Timings {
        Timings::new(100.0, Some(timing), 101.0)
    }

    fn close(one: f64, other: f64) -> bool {
        (one - other).abs() < 1e-6
    }

    #[test]
    fn a_new_connection_has_all_parts_and_they_add_up() {
        let all = timings(&json!({
            "requestTime": 100.01, "dnsStart": 5.0, "dnsEnd": 15.0, "connectStart": 15.0,
            "sslStart": 55.0, "sslEnd": 105.0, "connectEnd": 105.0,
            "sendStart": 105.5, "sendEnd": 106.0,
            "receiveHeadersStart": 206.0, "receiveHeadersEnd": 207.0,
        }));
        let parts = [
            (all.blocked.unwrap(), 0.015),
            (all.dns.unwrap(), 0.010),
            (all.connect.unwrap(), 0.090),
            (all.ssl.unwrap(), 0.050),
            (all.send, 0.001),
            (all.wait, 0.100),
            (all.receive, 0.784),
        ];
        assert!(parts.iter().all(|(part, expected)| close(*part, *expected)), "{all:?}");
        assert!(close(all.total(), 1000.0), "{}", all.total());
    }

    #[test]
    fn a_connection_that_was_there_has_no_parts_for_it() {
        let reused = timings(&json!({
            "requestTime": 100.0, "dnsStart": -1, "dnsEnd": -1, "connectStart": -1,
            "connectEnd": -1, "sslStart": -1, "sslEnd": -1, "sendStart": 2.0, "sendEnd": 2.5,
            "receiveHeadersEnd": 52.5,
        }));
        assert_eq!((reused.dns, reused.connect, reused.ssl), (None, None, None));
        assert!(close(reused.wait, 0.05) && close(reused.blocked.unwrap(), 0.002), "{reused:?}");
        assert!(close(reused.total(), 1000.0));
    }

    #[test]
    fn without_times_all_was_waiting() {
        let none = Timings::new(100.0, None, 100.5);
        assert!(close(none.blocked.unwrap(), 0.5) && close(none.total(), 500.0));
        assert!(Timings::new(100.0, Some(&json!({})), 99.0).total() >= 0.0);
    }
}
