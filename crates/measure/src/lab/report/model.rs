//! Contents of a report, before it is HTML or text.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::environment::{self, List};
use super::folder::Folder;
use super::group::{Group, groups};
use super::paper::{Comparison, Paper};
use super::soak::Soak;
use crate::lab::bars::Verdict;
use crate::lab::browser::outcome::Outcome;
use crate::lab::experiment::Moment;
use crate::lab::summary::CellSummary;
use crate::lab::trial::Row;
use crate::table::joined;
use headstart::base::failure::Failure;

#[derive(Debug)]
pub(super) struct Run {
    pub(super) name: String,
    pub(super) title: String,
    pub(super) about: String,
    pub(super) folder: PathBuf,
    pub(super) trials: u64,
    pub(super) failed: u64,
    pub(super) flagged: u64,
    /// The environment as dotted names and texts.
    pub(super) environment: Vec<(String, String)>,
    /// Lists of the environment, for example of what the forwarder did, link by link.
    pub(super) lists: Vec<List>,
    /// Lateness of the forwarder's slowest packet in a hundred where that was worst, in us.
    pub(super) lateness_us: Option<f64>,
    pub(super) verdicts: Vec<Verdict>,
    pub(super) comparison: Option<Comparison>,
    pub(super) groups: Vec<Group>,
    /// True if trials are loads of pages.
    pub(super) loads_pages: bool,
    /// Results of loads in a browser.
    pub(super) browser: Option<Outcome>,
    pub(super) soak: Option<Soak>,
    /// Trials that failed, by cell and reason.
    pub(super) failures: Vec<Reason>,
    /// Trials that completed and say why not better.
    pub(super) reasons: Vec<Reason>,
}

/// Trials of a cell that ended alike.
#[derive(Debug)]
pub(super) struct Reason {
    pub(super) cell: String,
    pub(super) opening: String,
    pub(super) words: String,
    pub(super) count: u64,
    pub(super) of: u64,
    /// Number of the first such trial.
    pub(super) first: u64,
}

impl Run {
    /// Returns what is measured, the most important first.
    pub(super) const fn moments(&self) -> [Moment; 3] {
        match self.loads_pages {
            true => [Moment::Last, Moment::Request, Moment::Response],
            false => Moment::ALL,
        }
    }

    /// Returns the name of a moment for people: the last byte of a page is that of the page.
    pub(super) const fn title_of(&self, moment: Moment) -> &'static str {
        match moment {
            Moment::Last if self.loads_pages => "end of the page load",
            moment => moment.title(),
        }
    }

    /// The model of a folder.
    ///
    /// # Errors
    /// summary.json and samples.csv contradict each other, or the experiment's reference is
    /// unknown.
    pub(super) fn new(mut folder: Folder) -> Result<Self, Failure> {
        let soak = Soak::take(&mut folder);
        let groups = groups(&folder)?;
        let paper = folder.experiment.reference.as_deref().map(Paper::named).transpose()?;
        let named = folder.cells.first().map(|cell| cell.experiment.clone()).unwrap_or_default();
        let loads_pages = folder.experiment.loads_pages();
        let Folder { trials, experiment, environment, path, cells, verdicts, browser, .. } = folder;
        Ok(Self {
            title: if experiment.title.is_empty() { named.clone() } else { experiment.title },
            name: named,
            about: experiment.about,
            folder: path,
            trials: trials.len() as u64,
            failed: trials.iter().filter(|trial| !trial.ok).count() as u64,
            flagged: trials.iter().filter(|trial| trial.flagged).count() as u64,
            environment: environment::flat(&environment),
            lists: environment::lists(&environment),
            lateness_us: environment::lateness(&environment),
            verdicts,
            comparison: paper.map(|paper| Comparison::new(paper, &groups)),
            groups,
            loads_pages: loads_pages || browser.is_some(),
            browser,
            soak,
            failures: reasons(&cells, &trials, |trial| {
                (!trial.ok).then(|| words([&trial.error, &trial.reason]))
            }),
            reasons: reasons(&cells, &trials, |trial| {
                (trial.ok && !trial.reason.is_empty()).then(|| trial.reason.clone())
            }),
        })
    }
}

/// Trials counted by cell and words, most first.
fn reasons(
    cells: &[CellSummary],
    trials: &[Row],
    words: impl Fn(&Row) -> Option<String>,
) -> Vec<Reason> {
    let mut found: BTreeMap<(String, String, String), (u64, u64)> = BTreeMap::new();
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for trial in trials {
        let cell = cells.iter().find(|cell| cell.holds(trial));
        let name = cell.map(CellSummary::name).unwrap_or_default();
        *counts.entry(name.clone()).or_default() += 1;
        if let Some(words) = words(trial) {
            let entry = found
                .entry((name, trial.opening.clone(), words))
                .or_insert((0, trial.trial.into()));
            entry.0 += 1;
        }
    }
    let mut reasons: Vec<Reason> = found
        .into_iter()
        .map(|((cell, opening, words), (count, first))| {
            let of = counts.get(&cell).copied().unwrap_or_default();
            Reason { cell, opening, words, count, of, first }
        })
        .collect();
    reasons.sort_by_key(|reason| std::cmp::Reverse(reason.count));
    reasons
}

fn words(parts: [&str; 2]) -> String {
    let words = joined(&parts, "; ");
    if words.is_empty() { "no reason given".into() } else { words }
}
