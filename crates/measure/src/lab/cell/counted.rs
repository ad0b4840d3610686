//! Counts of an edge that speaks TLS.

use std::net::SocketAddr;

use headstart_emulation::Namespace;

use super::agent::scrape;

/// The counter of handshakes at an edge.
const HANDSHAKES: &str = "headstart_tls_handshakes_total";

/// Handshakes at edges, or at servers that count them themselves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) full: u64,
    pub(crate) resumed: u64,
    /// Connections whose early data was accepted, among those resumed.
    pub(crate) early: u64,
    pub(crate) failed: u64,
}

impl Counted {
    /// All so far; none if the edge whose metrics are at `metrics` does not say.
    pub(crate) fn read(edge: &Namespace, metrics: SocketAddr) -> Option<Self> {
        Some(Self::from_text(&scrape(edge, metrics)?))
    }

    fn from_text(text: &str) -> Self {
        let lines = text.lines().filter(|line| line.starts_with(HANDSHAKES));
        let counters = lines.filter_map(|line| line.rsplit_once(' '));
        counters.fold(Self::default(), |mut sum, (labels, value)| {
            let value: u64 = value.parse().unwrap_or(0);
            match (labels.contains("result=\"done\""), labels.contains("resumed=\"yes\"")) {
                (true, false) => sum.full += value,
                (true, true) => sum.resumed += value,
                (false, _) => sum.failed += value,
            }
            if labels.contains("result=\"done\"") && labels.contains("early_data=\"accepted\"") {
                sum.early += value;
            }
            sum
        })
    }

    pub(crate) const fn and(self, other: Self) -> Self {
        Self {
            full: self.full + other.full,
            resumed: self.resumed + other.resumed,
            early: self.early + other.early,
            failed: self.failed + other.failed,
        }
    }

    /// Returns the counts that came after `before`: a process's counters never go back.
    pub(crate) const fn since(self, before: Self) -> Self {
        Self {
            full: self.full.saturating_sub(before.full),
            resumed: self.resumed.saturating_sub(before.resumed),
            early: self.early.saturating_sub(before.early),
            failed: self.failed.saturating_sub(before.failed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshakes_are_what_the_edge_counts() {
        let handshakes = [
            ("done", "1.3", "no", "none", 3),
            ("done", "1.2", "no", "none", 1),
            ("done", "1.3", "yes", "accepted", 5),
            ("done", "1.3", "yes", "refused", 2),
            ("failed", "1.3", "yes", "accepted", 6),
        ];
        let lines = handshakes.map(|(result, version, resumed, early, count)| {
            format!(
                "headstart_tls_handshakes_total{{result=\"{result}\",version=\"{version}\",\
                 resumed=\"{resumed}\",early_data=\"{early}\"}} {count}\n"
            )
        });
        let text = format!(
            "# TYPE headstart_tls_handshakes_total counter\n{}\
             headstart_connections_total{{result=\"done\"}} 9\n",
            lines.concat()
        );
        let all = Counted { full: 4, resumed: 7, early: 5, failed: 6 };
        assert_eq!(Counted::from_text(&text), all);
        assert_eq!(Counted::from_text(""), Counted::default());
        assert_eq!(all.and(all).since(all), all);
    }
}
