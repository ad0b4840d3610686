//! Counts of agents and edges while a page is loaded.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use crate::lab::cell::Counts;

/// Address of an edge's metrics, on its own node.
pub(super) const METRICS: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9100);

const CONNECTIONS: &str = "headstart_connections_total";
const FALLBACKS: &str = "headstart_fallbacks_total";

/// Openings of connections, with the reasons for lesser ones.
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

    /// Returns the opening of most connections.
    pub(super) fn most(&self) -> Option<&str> {
        let most = self.by_name.iter().max_by_key(|(_, count)| **count);
        most.map(|(name, _)| name.as_str())
    }

    /// Describes the connections that differ from most, with the reasons.
    pub(super) fn words(&self) -> String {
        let most = self.most().unwrap_or_default();
        let others = self.by_name.iter().filter(|(name, _)| *name != most);
        let all = others.chain(&self.fallbacks);
        all.map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
    }
}

/// Returns the growth of a metric's counters, by the value of a label.
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
}
