//! Predictions of loads in a browser against those that a run has measured.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;
use headstart_pageload::har;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::arm::Arm;
use super::databases::{Databases, Recorded};
use super::experiment::{BrowserExperiment, BrowserLink, BrowserVariant, CellSpec};
use super::outcome::{CellOutcome, FILE, Outcome};
use super::predict::{Predictor, TRAINING};
use super::run::file_name;
use crate::recordings::unreadable;
use crate::table::{each_once, table};
use headstart::base::failure::Failure;

/// Bar for the mean absolute error of the load time.
const TIME_MAX: f64 = 0.10;

/// Bar for how much more is promised than found, as a share of the load time.
const PROMISE_MAX: f64 = 0.04;

/// Results. The names are a contract.
#[derive(Debug, Serialize)]
pub(crate) struct Validation {
    /// True if sites that were held out meet both bars over each link.
    pub(crate) holds: bool,
    time_max: f64,
    promise_max: f64,
    groups: Vec<Group>,
    cells: Vec<Compared>,
}

/// Cells of one link, either held out or not.
#[derive(Debug, Serialize)]
struct Group {
    link: String,
    held_out: bool,
    n: usize,
    /// Means of the shares saved.
    found: f64,
    promised: f64,
    /// Promise of the run itself, by the simulator of its day.
    promised_then: f64,
    /// Cells of which more is promised than found.
    over: usize,
    /// Mean absolute difference of both.
    saving_error: f64,
    /// Mean absolute error of the load time, as a share of it.
    time_error: f64,
    /// The largest of these.
    time_error_most: f64,
}

/// One site with one arm over one link.
#[derive(Debug, Clone, Serialize)]
struct Compared {
    link: String,
    variant: String,
    arm: String,
    held_out: bool,
    /// Shares saved.
    found: f64,
    promised: f64,
    promised_then: f64,
    measured_ms: f64,
    predicted_ms: f64,
}

impl Validation {
    /// Predicts from the recordings of a run what its arms save.
    pub(crate) fn read(folder: &Path) -> Result<Self, Failure> {
        let path = folder.join("experiment.toml");
        let name = path.display().to_string();
        let text = fs::read_to_string(&path).map_err(|error| unreadable(&name, &error))?;
        let mut experiment = BrowserExperiment::parse(&name, &text)?;
        let environment: serde_json::Value = json(&folder.join("environment.json"))?;
        // The run may have had another (--seed); stale databases are drawn from it.
        experiment.seed = environment["seed"].as_u64().unwrap_or(experiment.seed);
        let outcome: Outcome = json(&folder.join(FILE))?;
        let mut cells = Vec::new();
        for link in experiment.link.iter().filter(|link| link.tor.is_none()) {
            cells.extend(compare(folder, &experiment, link, &outcome)?);
        }
        if cells.is_empty() {
            return Err(Failure::usage(format!("{} has no pairs to compare", folder.display()))
                .hint("`headstart lab run browser` writes such folders"));
        }
        Ok(Self::new(cells))
    }

    fn new(cells: Vec<Compared>) -> Self {
        let kinds = each_once(cells.iter().map(|cell| (cell.link.clone(), cell.held_out)));
        let groups: Vec<Group> = kinds
            .into_iter()
            .map(|(link, held_out)| {
                let own =
                    cells.iter().filter(|cell| (&cell.link, cell.held_out) == (&link, held_out));
                let own: Vec<&Compared> = own.collect();
                Group::new(link.clone(), held_out, &own)
            })
            .collect();
        let holds = groups.iter().filter(|group| group.held_out).all(Group::holds);
        Self { holds, time_max: TIME_MAX, promise_max: PROMISE_MAX, groups, cells }
    }

    pub(crate) fn text(&self) -> String {
        let header = ["link", "site", "arm", "found", "promised", "measured, s", "predicted, s"];
        let mut cells: Vec<Vec<String>> = vec![header.map(str::to_owned).into()];
        cells.extend(self.cells.iter().map(Compared::row));
        let header = [
            "link", "sites", "n", "found", "then", "promised", "over", "apart", "time off", "most",
        ];
        let mut groups: Vec<Vec<String>> = vec![header.map(str::to_owned).into()];
        groups.extend(self.groups.iter().map(Group::row));
        let missed = self.groups.iter().filter(|group| group.held_out && !group.holds()).count();
        let verdict = match missed {
            0 => "both bars are kept over all links".to_owned(),
            some => format!("missed over {some} of the links"),
        };
        format!(
            "What arms save of the page load time in a browser, and what recordings with nothing \
             promise\n\n{}\n\
             Means: found; promised then, by the simulator of the run, and now; cells with more \
             promised than found;\nhow far apart; how far the load time is off, and at \
             most\n\n{}\n\
             Held out: load time within {:.0} % on average, and at most {:.0} points more promised \
             than found: {verdict}.\n",
            table(&cells, &[0, 1, 2]),
            table(&groups, &[0, 1]),
            self.time_max * 100.0,
            self.promise_max * 100.0,
        )
    }
}

impl Group {
    fn new(link: String, held_out: bool, cells: &[&Compared]) -> Self {
        Self {
            link,
            held_out,
            n: cells.len(),
            found: mean(cells, |cell| cell.found),
            promised: mean(cells, |cell| cell.promised),
            promised_then: mean(cells, |cell| cell.promised_then),
            over: cells.iter().filter(|cell| cell.promised > cell.found).count(),
            saving_error: mean(cells, |cell| (cell.promised - cell.found).abs()),
            time_error: mean(cells, |cell| cell.time_error().abs()),
            time_error_most: cells.iter().map(|cell| cell.time_error().abs()).fold(0.0, f64::max),
        }
    }

    fn holds(&self) -> bool {
        self.time_error <= TIME_MAX && self.promised - self.found <= PROMISE_MAX
    }

    fn row(&self) -> Vec<String> {
        vec![
            self.link.clone(),
            if self.held_out { "held out" } else { TRAINING }.to_owned(),
            self.n.to_string(),
            percent(self.found),
            percent(self.promised_then),
            percent(self.promised),
            format!("{} of {}", self.over, self.n),
            percent(self.saving_error),
            percent(self.time_error),
            percent(self.time_error_most),
        ]
    }
}

impl Compared {
    fn time_error(&self) -> f64 {
        self.predicted_ms / self.measured_ms - 1.0
    }

    fn row(&self) -> Vec<String> {
        let [measured, predicted] =
            [self.measured_ms, self.predicted_ms].map(|ms| format!("{:.2}", ms / 1e3));
        let names = [&self.link, &self.variant, &self.arm].map(String::clone);
        let figures = [percent(self.found), percent(self.promised), measured, predicted];
        names.into_iter().chain(figures).collect()
    }
}

fn mean(cells: &[&Compared], of: impl Fn(&Compared) -> f64) -> f64 {
    cells.iter().map(|cell| of(cell)).sum::<f64>() / cells.len() as f64
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn json<T: DeserializeOwned>(path: &Path) -> Result<T, Failure> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|error| unreadable(&name, &error))?;
    serde_json::from_reader(file).map_err(|error| Failure::usage(format!("{name}: {error}")))
}

/// Predicts the cells of a link that were compared with `plain`.
fn compare(
    folder: &Path,
    experiment: &BrowserExperiment,
    link: &BrowserLink,
    outcome: &Outcome,
) -> Result<Vec<Compared>, Failure> {
    let sites = each_once(experiment.variant.iter().map(|variant| variant.site.clone()));
    let mut recorded = Vec::new();
    for (number, site) in sites.iter().enumerate() {
        let read = recordings(folder, link, site)?;
        recorded.extend(read.into_iter().map(|one| (number, one)));
    }
    let (numbers, recorded): (Vec<usize>, Vec<Recorded>) = recorded.into_iter().unzip();
    let databases = Databases::learn(&link.name, &recorded, experiment.seed)?;
    let cells = outcome.cells.iter().filter(|cell| cell.link == link.name);
    let compared = cells.filter_map(|cell| {
        let variant = experiment.variant.iter().find(|variant| variant.name == cell.variant)?;
        let site = sites.iter().position(|site| *site == variant.site)?;
        let own = numbers.iter().zip(&recorded).filter(|(number, _)| **number == site);
        let own: Vec<&har::Recording> = own.map(|(_, one)| &one.recording).collect();
        let arm = serde_json::from_value(cell.arm.as_str().into()).ok()?;
        let arms = [arm, Arm::Plain].map(|arm| spec(variant, site, cell, arm));
        let [predicted_ms, plain_ms] = arms.map(|spec| {
            Predictor::new(link, databases.known_to(spec.arm)).page_load_ms(&own, &spec)
        });
        let predicted_ms = predicted_ms?;
        Some(Compared {
            link: link.name.clone(),
            variant: cell.variant.clone(),
            arm: cell.arm.clone(),
            held_out: variant.site != TRAINING,
            found: cell.page_load_saved.as_ref()?.share.value,
            promised: 1.0 - predicted_ms / plain_ms?,
            promised_then: cell.predicted_saved?,
            measured_ms: cell.page_load_ms?.value,
            predicted_ms,
        })
    });
    Ok(compared.collect())
}

fn spec(variant: &BrowserVariant, site: usize, cell: &CellOutcome, arm: Arm) -> CellSpec {
    let mut spec = CellSpec::first(variant.name.clone(), site, arm);
    spec.visit = cell.visit;
    spec
}

/// The recordings of a site over a link.
fn recordings(folder: &Path, link: &BrowserLink, site: &str) -> Result<Vec<Recorded>, Failure> {
    let folder = folder.join("recordings");
    let begin = file_name(&format!("{} {site} {} ", link.name, Arm::Plain));
    let name = folder.display().to_string();
    let entries = fs::read_dir(&folder).map_err(|error| unreadable(&name, &error))?;
    let mut files: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|file| {
        file.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&begin))
    });
    files.sort();
    files.iter().map(|file| recording(file)).collect()
}

fn recording(path: &Path) -> Result<Recorded, Failure> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|error| unreadable(&name, &error))?;
    let mut har = Vec::new();
    GzDecoder::new(file).read_to_end(&mut har).map_err(|error| unreadable(&name, &error))?;
    let read = har::read(har.as_slice());
    let read = read.map_err(|error| Failure::usage(format!("{name}: {error}")))?;
    let recording = read.recordings.into_iter().next();
    let recording = recording.ok_or_else(|| Failure::usage(format!("{name} has no page")))?;
    Ok(Recorded { recording, har })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(held_out: bool, promised: f64) -> Compared {
        Compared {
            link: "near".into(),
            variant: "page".into(),
            arm: "turbotls".into(),
            held_out,
            found: 0.1,
            promised,
            promised_then: 0.3,
            measured_ms: 900.0,
            predicted_ms: 950.0,
        }
    }

    #[test]
    fn bars_are_about_sites_that_were_held_out() {
        assert!(Validation::new(vec![cell(true, 0.12), cell(false, 0.5)]).holds);
        let missed = Validation::new(vec![cell(true, 0.2)]);
        assert!(!missed.holds && missed.text().ends_with("missed over 1 of the links.\n"));
        let slow = Compared { predicted_ms: 1_000.0, ..cell(true, 0.1) };
        assert!(!Validation::new(vec![slow]).holds);
    }
}
