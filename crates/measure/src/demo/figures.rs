//! Results of the measurement.

use std::time::Duration;

use headstart_net::Carrier;
use serde_json::{Value, json};

use headstart::get::{millis, rounded};

#[derive(Debug, Clone)]
pub(super) struct Sample {
    /// Time from connecting to the first request byte.
    pub(super) request: Duration,
    /// Time from connecting to the first response byte.
    pub(super) response: Duration,
    /// Time that TCP took to connect.
    pub(super) rtt: Duration,
    /// True if TurboTLS opened it.
    pub(super) turbo: bool,
    /// The group of the key exchange.
    pub(super) group: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct Samples {
    pub(super) plain: Vec<Sample>,
    pub(super) turbo: Vec<Sample>,
}

/// A distribution, by nearest rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Quantiles {
    pub(super) p50: Duration,
    pub(super) p90: Duration,
    pub(super) p99: Duration,
}

impl Quantiles {
    fn new(times: impl Iterator<Item = Duration>) -> Self {
        let mut sorted: Vec<_> = times.collect();
        sorted.sort_unstable();
        let [p50, p90, p99] = [50, 90, 99].map(|percent| {
            let rank = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
            sorted.get(rank).copied().unwrap_or_default()
        });
        Self { p50, p90, p99 }
    }

    fn json(self) -> Value {
        json!({ "p50": millis(self.p50), "p90": millis(self.p90), "p99": millis(self.p99) })
    }
}

/// The connections of one kind.
#[derive(Debug)]
pub(super) struct Arm {
    pub(super) opening: Carrier,
    pub(super) count: usize,
    /// Connections that were to be TurboTLS and fell back.
    pub(super) fallbacks: usize,
    pub(super) request: Quantiles,
    pub(super) response: Quantiles,
}

impl Arm {
    fn new(opening: Carrier, samples: &[Sample]) -> Self {
        let plain = samples.iter().filter(|sample| !sample.turbo).count();
        Self {
            opening,
            count: samples.len(),
            fallbacks: if opening == Carrier::TurboTls { plain } else { 0 },
            request: Quantiles::new(samples.iter().map(|sample| sample.request)),
            response: Quantiles::new(samples.iter().map(|sample| sample.response)),
        }
    }

    fn json(&self) -> Value {
        json!({
            "name": self.opening.name(),
            "n": self.count,
            "ms_to_first_request_byte": self.request.json(),
            "ms_to_first_response_byte": self.response.json(),
            "fallbacks": self.fallbacks,
        })
    }
}

#[derive(Debug)]
pub(super) struct Figures {
    /// Round trip of the emulated link, as asked for.
    pub(super) rtt: Duration,
    /// Median round trip of TCP.
    pub(super) rtt_seen: Duration,
    /// Group of the key exchange, in all connections.
    pub(super) group: Option<String>,
    pub(super) plain: Arm,
    pub(super) turbo: Arm,
}

impl Figures {
    pub(super) fn new(rtt: Duration, samples: Samples) -> Self {
        let all: Vec<_> = samples.plain.iter().chain(&samples.turbo).collect();
        let group = all.first().and_then(|first| first.group.clone());
        Self {
            rtt,
            rtt_seen: Quantiles::new(all.iter().map(|sample| sample.rtt)).p50,
            group: group.filter(|_| all.windows(2).all(|pair| pair[0].group == pair[1].group)),
            plain: Arm::new(Carrier::Tcp, &samples.plain),
            turbo: Arm::new(Carrier::TurboTls, &samples.turbo),
        }
    }

    /// Median time until the request leaves, TurboTLS as a part of plain TLS.
    pub(super) fn ratio(&self) -> f64 {
        self.turbo.request.p50.as_secs_f64() / self.plain.request.p50.as_secs_f64()
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "rtt_ms": millis(self.rtt),
            "rtt_seen_ms": millis(self.rtt_seen),
            "group": self.group,
            "arms": [self.plain.json(), self.turbo.json()],
            "ratio": rounded(self.ratio(), 1000.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantiles(count: u64) -> [u128; 3] {
        let all = Quantiles::new((1..=count).rev().map(Duration::from_millis));
        [all.p50, all.p90, all.p99].map(|time| time.as_millis())
    }

    fn sample(turbo: bool) -> Sample {
        let [request, response, rtt] = [1, 2, 1].map(Duration::from_millis);
        Sample { request, response, rtt, turbo, group: None }
    }

    #[test]
    fn quantiles_are_values_that_were_measured() {
        assert_eq!(quantiles(1), [1, 1, 1]);
        assert_eq!(quantiles(2), [1, 2, 2]);
        assert_eq!(quantiles(10), [5, 9, 10]);
        assert_eq!(quantiles(100), [50, 90, 99]);
        assert_eq!(quantiles(0), [0, 0, 0]);
    }

    #[test]
    fn fallbacks_are_counted_where_they_are_not_wanted() {
        let samples =
            Samples { plain: vec![sample(false)], turbo: vec![sample(true), sample(false)] };
        let figures = Figures::new(Duration::from_millis(1), samples);
        assert_eq!((figures.plain.fallbacks, figures.turbo.fallbacks), (0, 1));
    }
}
