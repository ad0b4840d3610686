//! The report for programs: the figures that HTML and text show.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use super::group::{Cell, Group};
use super::model::Run;
use super::paper::Line;
use crate::lab::bars::Tally;
use crate::lab::experiment::Moment;
use crate::lab::summary::CellSummary;
use crate::stats::Estimate;

#[derive(Serialize)]
struct RunEntry<'r> {
    folder: &'r Path,
    trials: u64,
    failed: u64,
    flagged: u64,
    bars: Tally,
    groups: Vec<GroupEntry<'r>>,
    /// Lines of the published table, ours beside them.
    published: &'r [Line],
}

#[derive(Serialize)]
struct GroupEntry<'r> {
    link: &'r str,
    suite: &'r str,
    variant: &'r str,
    rtt_ms: Option<f64>,
    baseline: &'r str,
    cells: Vec<CellEntry<'r>>,
}

#[derive(Serialize)]
struct CellEntry<'r> {
    #[serde(flatten)]
    summary: &'r CellSummary,
    /// Ratios of medians to the baseline, by the moment.
    to_baseline: BTreeMap<&'static str, Estimate>,
}

impl<'r> RunEntry<'r> {
    fn new(run: &'r Run) -> Self {
        Self {
            folder: &run.folder,
            trials: run.trials,
            failed: run.failed,
            flagged: run.flagged,
            bars: Tally::new(&run.verdicts),
            groups: run.groups.iter().map(GroupEntry::new).collect(),
            published: run.comparison.as_ref().map_or(&[], |comparison| &comparison.lines),
        }
    }
}

impl<'r> GroupEntry<'r> {
    fn new(group: &'r Group) -> Self {
        Self {
            link: &group.link,
            suite: &group.suite,
            variant: &group.variant,
            rtt_ms: group.rtt_ms,
            baseline: group.baseline(),
            cells: group.cells.iter().map(CellEntry::new).collect(),
        }
    }
}

impl<'r> CellEntry<'r> {
    fn new(cell: &'r Cell) -> Self {
        let ratios = Moment::ALL.into_iter();
        let to_baseline = ratios.filter_map(|moment| Some((moment.name(), cell.ratio(moment)?)));
        Self { summary: &cell.summary, to_baseline: to_baseline.collect() }
    }
}

/// The runs as an array.
pub(super) fn document(runs: &[Run]) -> String {
    let runs: Vec<_> = runs.iter().map(RunEntry::new).collect();
    serde_json::to_string_pretty(&runs).unwrap_or_default() + "\n"
}
