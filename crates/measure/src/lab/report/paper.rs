//! Published figures, and ours beside them.

use serde::{Deserialize, Serialize};

use super::group::{BASELINE, Cell, Group, SEED};
use crate::lab::experiment::Moment;
use crate::stats::Summary;
use crate::stats::{self, Estimate};
use headstart::base::failure::Failure;

/// The tables that can be compared with, by the name that an experiment calls them.
const PAPERS: [(&str, &str); 5] = [
    ("turbotls", include_str!("../../../../../lab/papers/turbotls.toml")),
    ("fop", include_str!("../../../../../lab/papers/fop.toml")),
    ("fop-addresses", include_str!("../../../../../lab/papers/fop-addresses.toml")),
    ("sharing", include_str!("../../../../../lab/papers/sharing.toml")),
    ("cs244", include_str!("../../../../../lab/papers/cs244.toml")),
];

/// Round trips that differ by at most this share are the same place of a table. Ours are asked for
/// in ms or us, theirs were measured.
const SAME_RTT: f64 = 0.05;

/// A published table.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Paper {
    pub(super) title: String,
    pub(super) source: String,
    pub(super) about: String,
    unit: Unit,
    /// Our time that theirs corresponds to.
    pub(super) moment: Moment,
    /// The arm that the others of the table are compared with.
    #[serde(default = "usual_baseline")]
    pub(super) baseline: String,
    #[serde(rename = "row")]
    rows: Vec<Row>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Unit {
    Us,
    Ms,
}

/// Figures of one arm, in the table's unit until they are published as [`Figures`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    place: String,
    rtt: f64,
    /// Suite; `None` if it stands for every suite.
    suite: Option<String>,
    printed: String,
    arm: String,
    /// End of our column `variant`; `None` if it does not matter.
    variant: Option<String>,
    /// Share of connections whose request did not leave with the first packet.
    missed: Option<f64>,
    /// Share of full handshakes.
    full: Option<f64>,
    handshakes_per_s: Option<f64>,
    p50: Option<f64>,
    p90: Option<f64>,
    p99: Option<f64>,
    mean: Option<f64>,
    sd: Option<f64>,
}

/// A table beside our figures.
#[derive(Debug)]
pub(super) struct Comparison {
    pub(super) paper: Paper,
    pub(super) lines: Vec<Line>,
}

/// One row of the table: the published figures, and ours if we measured them.
#[derive(Debug, Serialize)]
pub(super) struct Line {
    pub(super) place: String,
    pub(super) printed: String,
    pub(super) arm: String,
    pub(super) theirs: Figures,
    pub(super) ours: Option<Ours>,
}

/// Figures in ms.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct Figures {
    pub(super) rtt: f64,
    pub(super) handshakes_per_s: Option<f64>,
    pub(super) p50: Option<f64>,
    pub(super) p90: Option<f64>,
    pub(super) p99: Option<f64>,
    pub(super) mean: Option<f64>,
    pub(super) sd: Option<f64>,
    /// Share, and no time.
    pub(super) missed: Option<f64>,
    /// To the same of the table's baseline.
    pub(super) to_baseline: Option<f64>,
}

/// Our measurement of the same.
#[derive(Debug, Serialize)]
pub(super) struct Ours {
    pub(super) link: String,
    pub(super) suite: String,
    pub(super) variant: String,
    pub(super) n: u64,
    pub(super) times: Option<Summary>,
    pub(super) mean: Option<Estimate>,
    pub(super) sd: Option<f64>,
    pub(super) missed: Option<Estimate>,
    /// Ours, median, mean or share as theirs, in parts of theirs.
    pub(super) to_paper: Option<Estimate>,
    pub(super) to_baseline: Option<Estimate>,
}

impl Paper {
    /// The table of this name.
    pub(super) fn named(name: &str) -> Result<Self, Failure> {
        let Some((_, text)) = PAPERS.iter().find(|(known, _)| *known == name) else {
            let known: Vec<_> = PAPERS.iter().map(|(known, _)| *known).collect();
            return Err(Failure::usage(format!("experiment.toml: no published table '{name}'"))
                .hint(format!("reference may be {}", known.join(" or "))));
        };
        toml::from_str(text)
            .map_err(|error| Failure::usage(format!("published table '{name}': {error}")))
    }
}

fn usual_baseline() -> String {
    BASELINE.to_owned()
}

impl Comparison {
    /// Returns true if it is of shares, and not of times.
    pub(super) fn is_of_shares(&self) -> bool {
        self.lines.iter().any(|line| line.theirs.missed.is_some())
    }

    /// Every line of the table, once for each of our groups that is like it.
    pub(super) fn new(paper: Paper, groups: &[Group]) -> Self {
        let mut lines = Vec::new();
        for row in &paper.rows {
            let theirs = paper.figures(row);
            let like = groups.iter().filter(|group| group.is_like(row, theirs.rtt));
            let mut ours: Vec<_> = like
                .filter_map(|group| Some(Ours::new(group, group.cell(&row.arm)?, &paper, &theirs)))
                .map(Some)
                .collect();
            if ours.is_empty() {
                ours.push(None);
            }
            lines.extend(ours.into_iter().map(|ours| Line {
                place: row.place.clone(),
                printed: row.printed.clone(),
                arm: row.arm.clone(),
                theirs,
                ours,
            }));
        }
        Self { paper, lines }
    }
}

impl Paper {
    fn figures(&self, row: &Row) -> Figures {
        let per_ms = match self.unit {
            Unit::Us => 1e3,
            Unit::Ms => 1.0,
        };
        let [p50, p90, p99, mean, sd] = [row.p50, row.p90, row.p99, row.mean, row.sd]
            .map(|time| time.map(|time| time / per_ms));
        let baseline = self.rows.iter().find(|other| {
            let (one, other_one) = (&row.variant, &other.variant);
            let alike = other.place == row.place && other.suite == row.suite && one == other_one;
            other.arm == self.baseline && alike
        });
        let to_baseline = baseline
            .filter(|_| row.arm != self.baseline)
            .and_then(|baseline| Some(row.middle()? / baseline.middle()?));
        Figures {
            rtt: row.rtt / per_ms,
            handshakes_per_s: row.handshakes_per_s,
            p50,
            p90,
            p99,
            mean,
            sd,
            missed: row.missed.or(row.full),
            to_baseline,
        }
    }
}

impl Row {
    fn middle(&self) -> Option<f64> {
        self.p50.or(self.mean)
    }
}

impl Group {
    fn is_like(&self, row: &Row, rtt: f64) -> bool {
        let suite = row.suite.as_ref().is_none_or(|suite| *suite == self.suite);
        let variant = row.variant.as_ref().is_none_or(|variant| self.is_variant(variant));
        suite
            && variant
            && self.rtt_ms.is_some_and(|ours: f64| (ours - rtt).abs() <= SAME_RTT * rtt)
    }
}

impl Group {
    /// Returns the ratio of the mean to that of the table's baseline, as papers with means have it.
    fn ratio_of_means(&self, cell: &Cell, paper: &Paper) -> Option<Estimate> {
        let baseline = self.cell(&paper.baseline)?;
        let [of, to] = [cell, baseline].map(|cell| cell.samples(paper.moment));
        // A failed trial took for ever, and is in no mean.
        let whole = [cell, baseline].iter().all(|cell| cell.summary.failed == 0);
        (whole && cell.summary.arm != baseline.summary.arm)
            .then(|| stats::ratio_of_means(of, to, SEED))
            .flatten()
    }

    /// Returns true if its variant has this name, or this part of a variant with several.
    fn is_variant(&self, name: &str) -> bool {
        let before = self.variant.strip_suffix(name);
        before.is_some_and(|before| before.is_empty() || before.ends_with(' '))
    }
}

impl Ours {
    fn new(group: &Group, cell: &Cell, paper: &Paper, theirs: &Figures) -> Self {
        let times = cell.times(paper.moment);
        let mean = theirs.mean.and_then(|_| stats::mean(cell.samples(paper.moment), SEED));
        let median = times.and_then(|times| {
            // A bound among the failed trials is infinite.
            let ci95 = times.ci95.map(|end| end.unwrap_or(f64::INFINITY));
            Some(Estimate { value: times.p50?, ci95 })
        });
        let n = cell.summary.n;
        let late = n.saturating_sub(cell.summary.zero_rtt);
        let (count, of) = match &cell.summary.handshakes {
            Some(handshakes) => (handshakes.full, handshakes.full + handshakes.resumed),
            None => (late, n),
        };
        let missed = theirs.missed.and_then(|_| stats::share(count, of));
        let to_paper = match (theirs.p50, theirs.mean, theirs.missed) {
            (Some(p50), ..) => median.map(|ours| ours.scaled(1.0 / p50)),
            (None, Some(theirs), _) => mean.map(|ours| ours.scaled(1.0 / theirs)),
            // Without a total there is no share.
            (None, None, Some(theirs)) if theirs > 0.0 => {
                missed.map(|ours| ours.scaled(1.0 / theirs))
            }
            (None, None, _) => None,
        };
        Self {
            link: group.link.clone(),
            suite: group.suite.clone(),
            variant: group.variant.clone(),
            n,
            times,
            mean,
            sd: times.and_then(|times| times.sd),
            missed,
            to_paper,
            to_baseline: match (theirs.mean, missed) {
                (_, Some(_)) => None,
                (Some(_), None) => group.ratio_of_means(cell, paper),
                (None, None) => cell.ratio(paper.moment),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_whole() {
        let turbo = Paper::named("turbotls").unwrap();
        assert_eq!(turbo.rows.len(), 4 * 2 * 2);
        let fop = Paper::named("fop").unwrap();
        assert_eq!(fop.rows.len(), 4 * 3 * 2);
        let addresses = Paper::named("fop-addresses").unwrap();
        assert_eq!(addresses.rows.len(), 2 * 3);
        let sharing = Paper::named("sharing").unwrap();
        assert_eq!(sharing.rows.len(), 3);
        let pages = Paper::named("cs244").unwrap();
        assert_eq!(pages.rows.len(), 2 * 3 * 2);
        let tables = [&turbo, &fop, &addresses, &sharing, &pages];
        for row in tables.iter().flat_map(|table| &table.rows) {
            let given = [row.p50, row.mean, row.missed, row.full].into_iter().flatten().count();
            assert_eq!(given, 1, "{row:?}");
        }
        let failure = Paper::named("turbo").unwrap_err();
        assert!(failure.is_usage() && failure.advice().is_some());
    }

    /// The abstract of the TurboTLS paper: one round trip of two is saved.
    #[test]
    fn published_ratios_are_as_the_papers_say() {
        let turbo = Paper::named("turbotls").unwrap();
        let far = turbo.rows.iter().filter(|row| row.rtt > 100_000.0 && row.arm == "turbo");
        for row in far {
            let ratio = turbo.figures(row).to_baseline.unwrap();
            assert!((0.49..0.51).contains(&ratio), "{row:?}");
        }
        // Resumed FOP at 100 ms takes 0.581 of resumed TCP, and initial connections take the same.
        let fop = Paper::named("fop").unwrap();
        let ratios = ["later", "first"].map(|variant| {
            let mut rows = fop.rows.iter().filter(|row| row.arm == "fop-0rtt" && row.rtt == 100.0);
            let row = rows.find(|row| row.variant.as_deref() == Some(variant)).unwrap();
            (fop.figures(row).to_baseline.unwrap() * 1e3).round()
        });
        assert_eq!(ratios, [581.0, 1001.0]);
        // "10.8-16.7 %" of the reproduction.
        let pages = Paper::named("cs244").unwrap();
        let fast = pages.rows.iter().filter(|row| row.arm == "http-tfo");
        let saved = fast.map(|row| 1.0 - pages.figures(row).to_baseline.unwrap());
        let saved: Vec<_> = saved.map(|saved| (saved * 1e3).round()).collect();
        assert_eq!(saved, [108.0, 136.0, 124.0, 167.0, 137.0, 118.0]);
        let oregon = turbo.figures(&turbo.rows[8]);
        assert_eq!((oregon.rtt, oregon.p50, oregon.p99), (133.021, Some(266.984), Some(268.54)));
    }
}
