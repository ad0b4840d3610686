//! Results of the loads beside the predictions: browser.json.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::arm::Arm;
use super::databases::DatabaseFacts;
use super::experiment::{CellSpec, Kind};
use super::load::Times;
use super::visit::Visit;
use crate::stats::{self, Estimate};
use crate::table::each_once;

/// Loads of a cell that fail, one after the other from the first on, until it is given up.
const GIVEN_UP: usize = 3;

/// The file of it in a folder of results.
pub(crate) const FILE: &str = "browser.json";

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Browser that loaded the pages, such as `Chrome/156.0.8078.79`.
    pub(crate) browser: String,
    pub(crate) databases: Vec<DatabaseFacts>,
    pub(crate) cells: Vec<CellOutcome>,
    /// Over all sites of a link.
    pub(crate) means: Vec<MeanOutcome>,
}

/// One site with one arm over one link.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CellOutcome {
    pub(crate) link: String,
    pub(crate) variant: String,
    pub(crate) arm: String,
    #[serde(flatten)]
    pub(crate) visit: Visit,
    pub(crate) n: usize,
    pub(crate) failed: usize,
    /// Loads while the forwarder sent a packet late: they count like others.
    #[serde(default)]
    pub(crate) flagged: usize,
    /// Loads in which the extension or the Early Hints of the arm did nothing, as for pages of
    /// which their database has nothing.
    #[serde(default)]
    pub(crate) idle: usize,
    /// Through Tor: the circuits that connections were on, by Tor's names.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) circuits: BTreeSet<String>,
    /// Means, in ms.
    pub(crate) page_load_ms: Option<Estimate>,
    pub(crate) largest_paint_ms: Option<Estimate>,
    /// Differences to `plain` of the same round.
    pub(crate) page_load_saved: Option<Saved>,
    pub(crate) largest_paint_saved: Option<Saved>,
    /// Prediction of `plan` from the recordings, with databases that speak with the document's
    /// head: the mean page load time in ms, and the share saved.
    pub(crate) predicted_ms: Option<f64>,
    pub(crate) predicted_saved: Option<f64>,
    /// The same with databases that speak at the start, to a changed browser; only of arms with
    /// databases that can.
    pub(crate) at_start_ms: Option<f64>,
    pub(crate) at_start_saved: Option<f64>,
}

/// Pairs of loads of one round.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Saved {
    /// The mean of the differences, in ms: what `plain` takes longer.
    pub(crate) ms: Estimate,
    /// The mean of the shares of `plain` that are saved.
    pub(crate) share: Estimate,
    /// Each difference, in the order of the rounds.
    pub(crate) differences_ms: Vec<f64>,
}

/// An arm over a link, as the mean of its sites.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct MeanOutcome {
    pub(crate) link: String,
    pub(crate) arm: String,
    #[serde(flatten)]
    pub(crate) visit: Visit,
    pub(crate) sites: usize,
    pub(crate) page_load_ms: f64,
    pub(crate) predicted_ms: Option<f64>,
    /// Share by which the prediction is too long.
    pub(crate) error: Option<f64>,
    pub(crate) saved: Option<f64>,
    pub(crate) predicted_saved: Option<f64>,
    pub(crate) at_start_saved: Option<f64>,
    /// Share that BLAST saved over Tor.
    pub(crate) published_saved: Option<f64>,
}

/// The loads of one cell, each by its round; none of one that failed.
#[derive(Debug, Default)]
pub(super) struct Loads {
    pub(super) rounds: Vec<(u32, Option<Times>)>,
    /// Loads while the forwarder sent a packet late.
    pub(super) flagged: usize,
    /// Loads in which what the arm has beside Chromium did nothing.
    pub(super) idle: usize,
    /// Tor's names of those that their connections were on.
    pub(super) circuits: BTreeSet<String>,
}

/// Predictions for a cell, in ms.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Predicted {
    pub(super) page_load_ms: Option<f64>,
    pub(super) at_start_ms: Option<f64>,
}

/// A cell with all that is known of it.
#[derive(Debug)]
pub(super) struct Known<'k> {
    pub(super) link: &'k str,
    pub(super) spec: &'k CellSpec,
    pub(super) loads: &'k Loads,
    pub(super) predicted: Predicted,
}

impl Outcome {
    /// Adds the cells of a link.
    pub(super) fn add(&mut self, cells: &[Known<'_>]) {
        let added = cells.iter().map(|cell: &Known<'_>| {
            let plain = cells.iter().find(|other: &&Known<'_>| {
                other.spec.arm == Arm::Plain && other.spec.variant == cell.spec.variant
            });
            CellOutcome::new(cell, plain)
        });
        let added: Vec<CellOutcome> = added.collect();
        self.cells.extend(added.iter().cloned());
        let kinds = each_once(cells.iter().map(|cell| cell.spec.kind()));
        self.means.extend(kinds.into_iter().filter_map(|kind| MeanOutcome::new(kind, &added)));
    }
}

impl CellOutcome {
    fn new(cell: &Known<'_>, plain: Option<&Known<'_>>) -> Self {
        let Known { link, spec, loads, predicted } = cell;
        // Other cells are compared with it.
        let plain = plain.filter(|_| spec.arm != Arm::Plain);
        let plain_ms = plain.and_then(|plain| plain.predicted.page_load_ms);
        Self {
            link: (*link).to_owned(),
            variant: spec.variant.clone(),
            arm: spec.arm.name().to_owned(),
            visit: spec.visit,
            n: loads.rounds.len(),
            failed: loads.rounds.iter().filter(|(_, times)| times.is_none()).count(),
            flagged: loads.flagged,
            idle: loads.idle,
            circuits: loads.circuits.clone(),
            page_load_ms: loads.mean(page_load),
            largest_paint_ms: loads.mean(largest_paint),
            page_load_saved: plain.and_then(|plain| Saved::new(loads, plain.loads, page_load)),
            largest_paint_saved: plain
                .and_then(|plain| Saved::new(loads, plain.loads, largest_paint)),
            predicted_ms: predicted.page_load_ms.map(rounded),
            predicted_saved: saved_share(predicted.page_load_ms, plain_ms),
            at_start_ms: predicted.at_start_ms.map(rounded),
            at_start_saved: saved_share(predicted.at_start_ms, plain_ms),
        }
    }
}

/// The share by which one time is shorter than another.
fn saved_share(ms: Option<f64>, plain_ms: Option<f64>) -> Option<f64> {
    Some(rounded(1.0 - ms? / plain_ms?))
}

fn page_load(times: &Times) -> Option<f64> {
    times.page_load_ms
}

fn largest_paint(times: &Times) -> Option<f64> {
    times.largest_paint_ms
}

impl Loads {
    /// Returns true if enough loads failed, and all of them, to try no more.
    pub(super) fn is_given_up(&self) -> bool {
        self.rounds.len() >= GIVEN_UP && self.rounds.iter().all(|(_, times)| times.is_none())
    }

    fn values(&self, of: fn(&Times) -> Option<f64>) -> Vec<f64> {
        self.rounds.iter().filter_map(|(_, times)| of(times.as_ref()?)).collect()
    }

    fn mean(&self, of: fn(&Times) -> Option<f64>) -> Option<Estimate> {
        stats::mean_of_few(&self.values(of)).map(|mean| mean.map(rounded))
    }

    fn in_round(&self, round: u32, of: fn(&Times) -> Option<f64>) -> Option<f64> {
        let (_, times) = self.rounds.iter().find(|(own, _)| *own == round)?;
        of(times.as_ref()?)
    }
}

impl Saved {
    /// Summarises pairs; `None` without any round in which both came to an end.
    fn new(loads: &Loads, plain: &Loads, of: fn(&Times) -> Option<f64>) -> Option<Self> {
        let pairs: Vec<(f64, f64)> = loads
            .rounds
            .iter()
            .filter_map(|(round, times): &(u32, Option<Times>)| {
                Some((plain.in_round(*round, of)?, of(times.as_ref()?)?))
            })
            .collect();
        let differences: Vec<f64> = pairs.iter().map(|(plain, own)| plain - own).collect();
        let shares: Vec<f64> = pairs.iter().map(|(plain, own)| 1.0 - own / plain).collect();
        Some(Self {
            ms: stats::mean_of_few(&differences)?.map(rounded),
            share: stats::mean_of_few(&shares)?.map(rounded),
            differences_ms: differences.into_iter().map(rounded).collect(),
        })
    }
}

impl MeanOutcome {
    /// Summarises the cells of one link that came to an end; `None` if none did.
    fn new((arm, visit): Kind, cells: &[CellOutcome]) -> Option<Self> {
        let own: Vec<&CellOutcome> = cells
            .iter()
            .filter(|cell| (cell.arm.as_str(), cell.visit) == (arm.name(), visit))
            .filter(|cell| cell.page_load_ms.is_some())
            .collect();
        let page_load_ms = mean_of_all(&own, |cell| Some(cell.page_load_ms?.value))?;
        let predicted_ms = mean_of_all(&own, |cell| cell.predicted_ms);
        Some(Self {
            link: own.first()?.link.clone(),
            arm: arm.name().to_owned(),
            visit,
            sites: own.len(),
            page_load_ms: rounded(page_load_ms),
            predicted_ms: predicted_ms.map(rounded),
            error: predicted_ms.map(|predicted| rounded(predicted / page_load_ms - 1.0)),
            saved: mean_of_all(&own, |cell| Some(cell.page_load_saved.as_ref()?.share.value))
                .map(rounded),
            predicted_saved: mean_of_all(&own, |cell| cell.predicted_saved).map(rounded),
            at_start_saved: mean_of_all(&own, |cell| cell.at_start_saved).map(rounded),
            published_saved: arm.published().map(|change| -change),
        })
    }
}

/// The mean of a figure of some cells; `None` if one lacks it.
fn mean_of_all(
    cells: &[&CellOutcome],
    figure: impl Fn(&CellOutcome) -> Option<f64>,
) -> Option<f64> {
    let all: Vec<f64> = cells.iter().map(|cell| figure(cell)).collect::<Option<_>>()?;
    (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
}

fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::lab::summary::tests::{assert_agree, folders, json};

    fn loads(ms: &[Option<f64>]) -> Loads {
        let rounds = (1..)
            .zip(ms.iter().map(|ms| {
                ms.map(|ms: f64| Times {
                    page_load_ms: Some(ms),
                    largest_paint_ms: Some(ms / 2.0),
                    ..Times::default()
                })
            }))
            .collect();
        Loads { rounds, ..Loads::default() }
    }

    fn spec(arm: Arm, variant: &str) -> CellSpec {
        CellSpec::first(variant, 0, arm)
    }

    fn known<'k>(spec: &'k CellSpec, loads: &'k Loads, page_load_ms: Option<f64>) -> Known<'k> {
        let predicted = Predicted { page_load_ms, at_start_ms: None };
        Known { link: "near", spec, loads, predicted }
    }

    #[test]
    fn savings_are_of_pairs_and_errors_of_means() {
        let plain = loads(&[Some(1000.0), Some(2000.0), None, Some(1500.0)]);
        let turbo = loads(&[Some(900.0), Some(1600.0), Some(10.0), None]);
        let specs = [spec(Arm::Plain, "news"), spec(Arm::TurboTls, "news")];
        let mut outcome = Outcome::default();
        outcome
            .add(&[known(&specs[0], &plain, Some(1650.0)), known(&specs[1], &turbo, Some(1320.0))]);
        let [first, second] = &outcome.cells[..] else { panic!("two cells") };
        assert_eq!((first.n, first.failed, second.failed), (4, 1, 1));
        assert!(first.page_load_saved.is_none() && first.predicted_saved.is_none());
        let saved = second.page_load_saved.as_ref().unwrap();
        assert_eq!(saved.differences_ms, [100.0, 400.0]);
        assert_eq!((saved.ms.value, saved.share.value), (250.0, 0.15));
        assert_eq!(second.predicted_saved, Some(0.2));
        assert_eq!(second.largest_paint_saved.as_ref().unwrap().differences_ms, [50.0, 200.0]);
        let [mean, other] = &outcome.means[..] else { panic!("two arms") };
        // 1650 said, 1500 measured.
        assert_eq!((mean.error, mean.saved), (Some(0.1), None));
        assert_eq!((other.saved, other.predicted_saved), (Some(0.15), Some(0.2)));
    }

    #[test]
    fn cells_without_loads_are_left_out_of_means() {
        let none = loads(&[None, None]);
        let plain = loads(&[Some(100.0), Some(100.0)]);
        let specs = [spec(Arm::Plain, "news"), spec(Arm::RedirectDb, "news")];
        let mut outcome = Outcome::default();
        outcome.add(&[known(&specs[0], &plain, None), known(&specs[1], &none, None)]);
        assert_eq!(outcome.cells[1].failed, 2);
        assert!(
            outcome.cells[1].page_load_ms.is_none() && outcome.cells[1].page_load_saved.is_none()
        );
        assert_eq!(outcome.means.len(), 1);
        assert_eq!(outcome.means[0].error, None);
        // Reads back what was written.
        let text = serde_json::to_string(&outcome).unwrap();
        let again: Outcome = serde_json::from_str(&text).unwrap();
        assert_eq!(again.cells.len(), 2);
    }

    /// Loads of a cell, as loads.jsonl has them.
    fn committed(lines: &[Value], cell: &CellOutcome) -> Loads {
        let own = lines.iter().filter(|line| {
            line["link"] == *cell.link
                && line["variant"] == *cell.variant
                && line["arm"] == *cell.arm
        });
        let mut loads =
            Loads { idle: cell.idle, circuits: cell.circuits.clone(), ..Loads::default() };
        for line in own {
            let [page_load_ms, largest_paint_ms] =
                ["page_load_ms", "largest_paint_ms"].map(|name| line[name].as_f64());
            let times = Times { page_load_ms, largest_paint_ms, ..Times::default() };
            let times = (line["ok"] == true).then_some(times);
            loads.rounds.push((line["trial"].as_u64().unwrap().try_into().unwrap(), times));
            loads.flagged += usize::from(line["flagged"] == true);
        }
        loads
    }

    /// Predictions are of the recordings and not of the loads, and stay as they were written.
    #[test]
    fn committed_outcomes_are_those_of_the_loads() {
        for folder in folders().iter().filter(|folder| folder.join(FILE).exists()) {
            let written: Outcome = json(&folder.join(FILE));
            let lines = std::fs::read_to_string(folder.join("loads.jsonl")).unwrap();
            let lines: Vec<Value> =
                lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let mut again = Outcome {
                browser: written.browser.clone(),
                databases: written.databases.clone(),
                ..Outcome::default()
            };
            for cells in written.cells.chunk_by(|one, other| one.link == other.link) {
                let specs = cells.iter().map(|cell| {
                    let arm = serde_json::from_value(cell.arm.as_str().into()).unwrap();
                    let mut spec = spec(arm, &cell.variant);
                    spec.visit = cell.visit;
                    spec
                });
                let specs: Vec<CellSpec> = specs.collect();
                let loads: Vec<Loads> = cells.iter().map(|cell| committed(&lines, cell)).collect();
                let known = cells.iter().zip(&specs).zip(&loads).map(|((cell, spec), loads)| {
                    let predicted = Predicted {
                        page_load_ms: cell.predicted_ms,
                        at_start_ms: cell.at_start_ms,
                    };
                    Known { link: &cell.link, spec, loads, predicted }
                });
                again.add(&known.collect::<Vec<_>>());
            }
            let place = folder.display().to_string();
            let written = json(&folder.join(FILE));
            assert_agree(&written, &serde_json::to_value(again).unwrap(), &place);
        }
    }
}
