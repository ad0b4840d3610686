//! Arms side by side, as a report compares them.

use std::collections::BTreeMap;

use super::folder::{Experiment, Folder};
use crate::lab::experiment::Moment;
use crate::lab::summary::CellSummary;
use crate::lab::trial::Row;
use crate::stats::{self, Estimate, Summary};
use crate::table::joined;
use headstart::base::failure::Failure;

/// The arm that all others are compared with, and the one in its place where an experiment has no
/// such arm.
pub(super) const BASELINE: &str = "tls13";
const BASELINES: [&str; 9] =
    [BASELINE, "tls13-0rtt", "today", "http", "plain", "direct", "haproxy", "sink", "waiting"];

/// Seed of intervals, so that a report is reproducible.
pub(super) const SEED: u64 = 1;

/// Effect of rounding on a figure between samples.csv and summary.json: a thousandth, or 1 us.
const ROUNDING: (f64, f64) = (1e-3, 1e-3);

/// The arms that were measured side by side.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) link: String,
    pub(super) path: String,
    pub(super) rtt_ms: Option<f64>,
    pub(super) suite: String,
    pub(super) variant: String,
    pub(super) cells: Vec<Cell>,
}

/// One arm in a group.
#[derive(Debug)]
pub(super) struct Cell {
    pub(super) summary: CellSummary,
    /// Rows of samples.csv.
    pub(super) trials: usize,
    /// The completed trial whose last response byte came nearest to the median.
    pub(super) typical: Option<Row>,
    measures: [Measure; 3],
}

#[derive(Debug, Default)]
struct Measure {
    times: Option<Summary>,
    /// Summary of completed trials, in order.
    samples: Vec<f64>,
    /// Summary of all trials: those that failed took for ever.
    ranked: Vec<f64>,
    ratio: Option<Estimate>,
    difference: Option<Estimate>,
}

impl Group {
    /// The arm that the others here are compared with.
    pub(super) fn baseline(&self) -> &'static str {
        let here = BASELINES.into_iter().find(|arm| self.cell(arm).is_some());
        here.unwrap_or(BASELINE)
    }

    pub(super) fn cell(&self, arm: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.summary.arm == arm)
    }

    /// Returns true if a median here rests on too few samples for an interval of 95 %.
    pub(super) fn few(&self) -> bool {
        let mut counts = self.cells.iter().map(|cell| cell.samples(Moment::Last).len());
        counts.any(|count| (1..stats::FEW).contains(&count))
    }

    /// Returns the name that a person would use.
    pub(super) fn name(&self) -> String {
        joined(&[&self.link, &self.suite, &self.variant], " · ")
    }
}

impl Cell {
    pub(super) fn times(&self, moment: Moment) -> Option<Summary> {
        self.measure(moment).times
    }

    /// Summary of completed trials in ms, in order.
    pub(super) fn samples(&self, moment: Moment) -> &[f64] {
        &self.measure(moment).samples
    }

    /// Returns the ratio of the medians to the [baseline](Group::baseline).
    pub(super) fn ratio(&self, moment: Moment) -> Option<Estimate> {
        self.measure(moment).ratio
    }

    /// Returns the difference of the medians from the [baseline](Group::baseline), in ms.
    pub(super) fn difference(&self, moment: Moment) -> Option<Estimate> {
        self.measure(moment).difference
    }

    const fn measure(&self, moment: Moment) -> &Measure {
        let [request, response, last] = &self.measures;
        match moment {
            Moment::Request => request,
            Moment::Response => response,
            Moment::Last => last,
        }
    }

    fn new(folder: &Folder, summary: &CellSummary, trials: &[&Row]) -> Result<Self, Failure> {
        let completed: Vec<&Row> = trials.iter().copied().filter(|trial| trial.ok).collect();
        let failed = trials.len() - completed.len();
        if failed as u64 != summary.failed
            || ![trials.len(), completed.len()].iter().any(|count| *count as u64 == summary.n)
        {
            let what = format!("{} trials, {failed} failed", trials.len());
            let stated = format!("n {}, failed {}", summary.n, summary.failed);
            return Err(contradiction(folder, summary, &what, &stated));
        }
        let mut measures = <[Measure; 3]>::default();
        for (measure, moment) in measures.iter_mut().zip(Moment::ALL) {
            let mut samples: Vec<f64> =
                completed.iter().filter_map(|trial| trial.time(moment)).collect();
            samples.sort_by(f64::total_cmp);
            let times = summary.times(moment);
            let ranked = stats::with_failed(&samples, failed);
            agree(times, &ranked).map_err(|(stated, what)| {
                let of = moment.title();
                contradiction(folder, summary, &format!("{of} {what}"), &format!("{of} {stated}"))
            })?;
            let times = times.map(|times| with_mean(times, &ranked));
            *measure = Measure { times, samples, ranked, ratio: None, difference: None };
        }
        let typical = typical(&completed, summary.last_response_byte).cloned();
        Ok(Self { summary: summary.clone(), trials: trials.len(), typical, measures })
    }
}

/// The cells of a folder side by side, in the order of the experiment.
pub(super) fn groups(folder: &Folder) -> Result<Vec<Group>, Failure> {
    let mut by_cell: BTreeMap<[&str; 4], Vec<&Row>> = BTreeMap::new();
    for trial in &folder.trials {
        let key = [&trial.arm, &trial.suite, &trial.link, &trial.variant].map(String::as_str);
        by_cell.entry(key).or_default().push(trial);
    }
    if let Some(trials) = by_cell.values().find_map(|trials| {
        let trial = trials.first()?;
        (!folder.cells.iter().any(|cell| cell.holds(trial))).then_some(trial)
    }) {
        let what = format!("{} over {} has trials", trials.arm, trials.link);
        return Err(mismatch(folder, &what, "nothing of it"));
    }
    let mut summaries: Vec<&CellSummary> = folder.cells.iter().collect();
    summaries.sort_by_key(|cell| folder.experiment.place(cell));
    let mut groups: Vec<Group> = Vec::new();
    for summary in summaries {
        let key = [&summary.arm, &summary.suite, &summary.link, &summary.variant];
        let trials = by_cell.get(&key.map(String::as_str)).map(Vec::as_slice).unwrap_or_default();
        let cell = Cell::new(folder, summary, trials)?;
        // Several variants of an experiment may have one name, each with arms of its own.
        match groups.iter_mut().find(|group| group.takes(summary)) {
            Some(group) => group.cells.push(cell),
            None => groups.push(Group::new(&folder.experiment, cell)),
        }
    }
    groups.iter_mut().for_each(Group::compare);
    Ok(groups)
}

impl Group {
    fn new(experiment: &Experiment, cell: Cell) -> Self {
        let summary = &cell.summary;
        let link = experiment.links.iter().find(|link| link.name == summary.link);
        Self {
            link: summary.link.clone(),
            path: link.map(|link| link.path.clone()).unwrap_or_default(),
            rtt_ms: link
                .and_then(|link| link.rtt_ms())
                .or(Some(summary.rtt_ms))
                .filter(|rtt| *rtt > 0.0),
            suite: summary.suite.clone(),
            variant: summary.variant.clone(),
            cells: vec![cell],
        }
    }

    fn takes(&self, cell: &CellSummary) -> bool {
        self.link == cell.link && self.suite == cell.suite && self.variant == cell.variant
    }

    fn compare(&mut self) {
        let name = self.baseline();
        let Some(baseline) = self.cell(name) else { return };
        let baseline = Moment::ALL.map(|moment| baseline.measure(moment).ranked.clone());
        for cell in self.cells.iter_mut().filter(|cell| cell.summary.arm != name) {
            for (measure, to) in cell.measures.iter_mut().zip(&baseline) {
                measure.ratio = stats::ratio_of_medians(&measure.ranked, to, SEED);
                measure.difference = stats::difference_of_medians(&measure.ranked, to, SEED);
            }
        }
    }
}

impl Experiment {
    /// Where a cell stands: as the file lists links, variants, suites and arms.
    fn place(&self, cell: &CellSummary) -> [usize; 4] {
        // A variant of first and later connections makes two, whose names begin with its own; one
        // of hosts makes one for each visit.
        let variant = self.variants.iter().rposition(|entry| {
            let name = entry.name.as_str();
            cell.variant
                .strip_prefix(name)
                .is_some_and(|rest| rest.is_empty() || name.is_empty() || rest.starts_with(' '))
        });
        [
            self.links.iter().position(|link| link.name == cell.link),
            variant,
            self.suites.iter().position(|suite| *suite == cell.suite),
            self.arms.iter().position(|arm| *arm == cell.arm),
        ]
        .map(|at| at.unwrap_or(usize::MAX))
    }
}

/// Older results have no means.
fn with_mean(times: Summary, ranked: &[f64]) -> Summary {
    match times.mean {
        Some(_) => times,
        None => {
            let own = Summary::from_samples(ranked);
            Summary { mean: own.and_then(|own| own.mean), sd: own.and_then(|own| own.sd), ..times }
        }
    }
}

fn typical<'t>(completed: &[&'t Row], last: Option<Summary>) -> Option<&'t Row> {
    let median = last?.p50.unwrap_or(f64::INFINITY);
    let from_median = completed.iter().map(|trial| {
        (trial.ms_to_last_response_byte.map_or(f64::INFINITY, |ms| (ms - median).abs()), *trial)
    });
    from_median.min_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, trial)| trial)
}

/// Checks that the percentiles are those of the samples; else returns the stated and the true ones.
fn agree(stated: Option<Summary>, samples: &[f64]) -> Result<(), (String, String)> {
    let computed = Summary::from_samples(samples);
    match (stated, computed) {
        (None, None) => Ok(()),
        (Some(stated), Some(computed))
            if same(stated.p50, computed.p50)
                && same(last(&stated), last(&computed))
                && (computed.n < stats::P90_LEAST || same(stated.p90, computed.p90)) =>
        {
            Ok(())
        }
        (stated, computed) => Err((
            stated.map_or("none".into(), percentiles),
            computed.map_or("none".into(), percentiles),
        )),
    }
}

/// Returns true if two figures differ by no more than rounding.
fn same(one: Option<f64>, other: Option<f64>) -> bool {
    let (relative, absolute) = ROUNDING;
    match (one, other) {
        (Some(one), Some(other)) => (one - other).abs() <= relative * other.abs() + absolute,
        (one, other) => one.is_none() && other.is_none(),
    }
}

/// The 99th percentile; older results call the maximum so, where there are too few trials for it.
fn last(times: &Summary) -> Option<f64> {
    times.p99.or(times.max)
}

fn percentiles(times: Summary) -> String {
    let [p50, last] =
        [times.p50, last(&times)].map(|ms| ms.map_or("failed".to_owned(), |ms| format!("{ms} ms")));
    format!("median {p50}, at the end {last}")
}

fn contradiction(folder: &Folder, cell: &CellSummary, what: &str, stated: &str) -> Failure {
    mismatch(folder, &format!("{} has {what}", cell.name()), stated)
}

fn mismatch(folder: &Folder, what: &str, stated: &str) -> Failure {
    let shown = folder.path.display();
    Failure::usage(format!("{shown}: in samples.csv {what}; summary.json says {stated}"))
        .hint("one of the files was changed or cut short: run the experiment again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_that_are_not_those_of_the_samples_are_found() {
        let samples = [1.0, 2.0, 3.0, 4.0];
        let whole = Summary::from_samples(&samples);
        // Rounded, and wrong.
        for (p50, agrees) in [(2.0, true), (2.001, true), (2.1, false)] {
            let stated = whole.map(|whole| Summary { p50: Some(p50), ..whole });
            assert_eq!(agree(stated, &samples).is_ok(), agrees, "{p50}");
        }
        assert!(agree(None, &samples).is_err());
        assert!(agree(None, &[]).is_ok());
        assert!(agree(whole, &[1.0, 2.0, 3.0, 4.0, f64::INFINITY]).is_err(), "one failed");
    }
}
