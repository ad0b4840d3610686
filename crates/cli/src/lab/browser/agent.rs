//! What agents and edges count while a page is loaded.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use headstart_lab::Namespace;

use crate::lab::cell::{Counts, scrape};

/// Where an edge tells its counters, on its own node.
pub(super) const METRICS: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9100);

const CONNECTIONS: &str = "headstart_connections_total";
const FALLBACKS: &str = "headstart_fallbacks_total";
const HANDSHAKES: &str = "headstart_tls_handshakes_total";

/// How connections were opened, and why not better.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Openings {
    pub(super) by_name: BTreeMap<String, u64>,
    pub(super) fallbacks: BTreeMap<String, u64>,
}

impl Openings {
    /// Between two readings of an agent's counters.
    pub(super) fn between(before: &Counts, after: &Counts) -> Self {
        Self {
            by_name: grown(before, after, CONNECTIONS, "opening"),
            fallbacks: grown(before, after, FALLBACKS, "reason"),
        }
    }

    /// That of most connections.
    pub(super) fn most(&self) -> Option<&str> {
        let most = self.by_name.iter().max_by_key(|(_, count)| **count);
        most.map(|(name, _)| name.as_str())
    }

    /// What is not as it is for most, and why.
    pub(super) fn words(&self) -> String {
        let most = self.most().unwrap_or_default();
        let others = self.by_name.iter().filter(|(name, _)| *name != most);
        let all = others.chain(&self.fallbacks);
        all.map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
    }
}

/// Handshakes of an edge that speaks TLS.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Handshakes {
    pub(super) all: u64,
    pub(super) resumed: u64,
    /// With early data that was taken.
    pub(super) early: u64,
}

impl Handshakes {
    /// All so far; none if the edge does not say.
    pub(super) fn read(edge: &Namespace) -> Option<Self> {
        Some(Self::of(&scrape(edge, METRICS)?))
    }

    pub(super) fn since(self, before: Self) -> Self {
        Self {
            all: self.all.saturating_sub(before.all),
            resumed: self.resumed.saturating_sub(before.resumed),
            early: self.early.saturating_sub(before.early),
        }
    }

    fn of(text: &str) -> Self {
        let done = text
            .lines()
            .filter(|line| line.starts_with(HANDSHAKES) && line.contains("result=\"done\""));
        let count = |line: &str| line.rsplit(' ').next()?.parse::<u64>().ok();
        done.fold(Self::default(), |sum, line| {
            let more = count(line).unwrap_or_default();
            let is = |label: &str| if line.contains(label) { more } else { 0 };
            Self {
                all: sum.all + more,
                resumed: sum.resumed + is("resumed=\"yes\""),
                early: sum.early + is("early_data=\"accepted\""),
            }
        })
    }
}

/// By how much the counters of a metric have grown, by the value of a label.
fn grown(before: &Counts, after: &Counts, metric: &str, label: &str) -> BTreeMap<String, u64> {
    let mut grown = BTreeMap::new();
    for (name, count) in after.iter().filter(|(name, _)| name.starts_with(metric)) {
        let more = count.saturating_sub(before.get(name).copied().unwrap_or(0));
        let value =
            name.split_once(&format!("{label}=\"")).and_then(|(_, rest)| rest.split('"').next());
        if let Some(value) = value.filter(|_| more > 0) {
            *grown.entry(value.to_owned()).or_default() += more;
        }
    }
    grown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(all: &[(&str, u64)]) -> Counts {
        all.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    #[test]
    fn openings_are_what_was_counted_in_between() {
        let turbo = "headstart_connections_total{role=\"agent\",opening=\"turbo\"}";
        let plain = "headstart_connections_total{role=\"agent\",opening=\"plain\"}";
        let silence = "headstart_fallbacks_total{reason=\"silence\"}";
        let before = counts(&[(turbo, 3), (plain, 1)]);
        let after = counts(&[(turbo, 23), (plain, 3), (silence, 2)]);
        let openings = Openings::between(&before, &after);
        assert_eq!(
            (openings.most(), openings.words()),
            (Some("turbo"), "2 plain, 2 silence".into())
        );
        assert_eq!(Openings::between(&after, &after).most(), None);
    }

    #[test]
    fn handshakes_are_counted_by_what_they_were() {
        let text = "# TYPE headstart_tls_handshakes_total counter\n\
            headstart_tls_handshakes_total{result=\"done\",version=\"1.3\",resumed=\"no\",early_data=\"none\"} 20\n\
            headstart_tls_handshakes_total{result=\"done\",version=\"1.3\",resumed=\"yes\",early_data=\"accepted\"} 18\n\
            headstart_tls_handshakes_total{result=\"done\",version=\"1.3\",resumed=\"yes\",early_data=\"refused\"} 2\n\
            headstart_tls_handshakes_total{result=\"failed\",version=\"1.3\",resumed=\"yes\",early_data=\"accepted\"} 5\n";
        let all = Handshakes::of(text);
        assert_eq!(all, Handshakes { all: 40, resumed: 20, early: 18 });
        let before = Handshakes { all: 20, ..Handshakes::default() };
        assert_eq!(all.since(before), Handshakes { all: 20, resumed: 20, early: 18 });
    }
}
