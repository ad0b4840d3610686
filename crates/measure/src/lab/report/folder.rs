//! Files of a run, read by the types that wrote them; half a run is refused.

use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::lab::bars::Verdict;
use crate::lab::browser::outcome::{self, Outcome};
use crate::lab::raw;
use crate::lab::soak::{self, Event, Point};
use crate::lab::summary::CellSummary;
use crate::lab::trial::Row;
use headstart::base::failure::Failure;

/// Trials of one folder: two hours at 140 connections a second; about 300 MB of memory.
const TRIALS_MAX: usize = 1_000_000;

/// Name of the folder that a run writes into until it is whole.
const PARTIAL: &str = "partial";

const WRITTEN_BY: &str = "name a folder that `headstart lab run` has written";

/// The results of one run.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) path: PathBuf,
    pub(super) trials: Vec<Row>,
    pub(super) cells: Vec<CellSummary>,
    pub(super) verdicts: Vec<Verdict>,
    pub(super) environment: Map<String, Value>,
    pub(super) experiment: Experiment,
    /// Results of loads in a browser.
    pub(super) browser: Option<Outcome>,
    /// Values and events of a soak.
    pub(super) soak: Option<OverTime>,
}

impl Folder {
    /// Reads a folder.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        whole(path)?;
        let cells: Vec<CellSummary> = json(path, "summary.json")?;
        let trials = trials(path)?;
        if cells.is_empty() {
            return Err(Failure::usage(format!("{}: no results", in_folder(path, "summary.json")))
                .hint("run the experiment again"));
        }
        Ok(Self {
            path: path.to_owned(),
            trials,
            cells,
            verdicts: verdicts(path)?,
            environment: json(path, "environment.json")?,
            experiment: experiment(path)?,
            browser: browser(path)?,
            soak: soak(path)?,
        })
    }
}

/// Values of processes, and events.
pub(super) type OverTime = (Vec<Point>, Vec<Event>);

/// The parts of experiment.toml that the report needs.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Experiment {
    #[serde(default)]
    pub(super) title: String,
    #[serde(default)]
    pub(super) about: String,
    /// The published table that it reproduces.
    pub(super) reference: Option<String>,
    #[serde(default)]
    pub(super) arms: Vec<String>,
    #[serde(default)]
    pub(super) suites: Vec<String>,
    #[serde(default, rename = "link")]
    pub(super) links: Vec<LinkEntry>,
    #[serde(default, rename = "variant")]
    pub(super) variants: Vec<VariantEntry>,
    work: Option<toml::Value>,
}

impl Experiment {
    /// Returns true if a trial is a load of a page.
    pub(super) fn loads_pages(&self) -> bool {
        let works = self.variants.iter().filter_map(|variant| variant.work.as_ref());
        works.chain(&self.work).any(|work| work.get("page").is_some())
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct LinkEntry {
    pub(super) name: String,
    rtt: Option<toml::Value>,
    #[serde(default)]
    pub(super) path: String,
}

impl LinkEntry {
    /// The round-trip time in ms, written as a number of ms or as a text with a unit.
    pub(super) fn rtt_ms(&self) -> Option<f64> {
        let rtt = match self.rtt.as_ref()? {
            toml::Value::Float(ms) => *ms,
            toml::Value::Integer(ms) => i32::try_from(*ms).ok()?.into(),
            toml::Value::String(text) => in_ms(text)?,
            _ => return None,
        };
        (rtt.is_finite() && rtt > 0.0).then_some(rtt)
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct VariantEntry {
    #[serde(default)]
    pub(super) name: String,
    work: Option<toml::Value>,
}

/// Milliseconds of `0.3ms`, `261us` or `1s 500ms`; humantime knows no fractions.
fn in_ms(text: &str) -> Option<f64> {
    let text = text.trim();
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic() || c == 'µ').unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let per_ms = match unit {
        "ns" => 1e-6,
        "us" | "µs" => 1e-3,
        "ms" => 1.0,
        "s" => 1e3,
        _ => return humantime::parse_duration(text).ok().map(|time| time.as_secs_f64() * 1e3),
    };
    number.trim().parse::<f64>().ok().map(|number| number * per_ms)
}

fn whole(path: &Path) -> Result<(), Failure> {
    let shown = path.display();
    if path.extension().is_some_and(|extension| extension == PARTIAL) {
        return Err(Failure::usage(format!("{shown} is of a run that did not end"))
            .hint("run the experiment again; a whole run leaves a folder without .partial"));
    }
    if path.is_dir() {
        return Ok(());
    }
    let mut partial = path.as_os_str().to_owned();
    partial.push(format!(".{PARTIAL}"));
    let hint = match Path::new(&partial).is_dir() {
        true => format!("{shown}.{PARTIAL} is of a run that did not end: run the experiment again"),
        false => WRITTEN_BY.into(),
    };
    Err(Failure::usage(format!("{shown}: no such folder")).hint(hint))
}

fn text(path: &Path, name: &str) -> Result<String, Failure> {
    fs::read_to_string(path.join(name)).map_err(|error| unreadable(path, name, &error))
}

fn unreadable(path: &Path, name: &str, error: &io::Error) -> Failure {
    Failure::usage(format!("cannot read {}: {error}", in_folder(path, name))).hint(WRITTEN_BY)
}

/// Reads a file of a run.
pub(crate) fn json<T: DeserializeOwned>(path: &Path, name: &str) -> Result<T, Failure> {
    serde_json::from_str(&text(path, name)?).map_err(|error| not_understood(path, name, &error))
}

/// An experiment without demands, or an older version, leaves no such file.
pub(crate) fn verdicts(path: &Path) -> Result<Vec<Verdict>, Failure> {
    let name = "bars.json";
    if path.join(name).exists() { json(path, name) } else { Ok(Vec::new()) }
}

/// Other experiments leave no such file.
fn browser(path: &Path) -> Result<Option<Outcome>, Failure> {
    path.join(outcome::FILE).exists().then(|| json(path, outcome::FILE)).transpose()
}

/// Other experiments leave no such files.
fn soak(path: &Path) -> Result<Option<OverTime>, Failure> {
    if !raw::compressed(&path.join(soak::SERIES)).exists() {
        return Ok(None);
    }
    Ok(Some((table(path, soak::SERIES)?, table(path, soak::EVENTS)?)))
}

/// Reads a table of a few thousand lines at most.
fn table<T: DeserializeOwned>(path: &Path, name: &str) -> Result<Vec<T>, Failure> {
    let file = raw::open(&path.join(name)).map_err(|error| unreadable(path, name, &error))?;
    let rows = csv::Reader::from_reader(file).into_deserialize().take(TRIALS_MAX);
    rows.collect::<Result<_, _>>().map_err(|error| not_understood(path, name, &error))
}

fn experiment(path: &Path) -> Result<Experiment, Failure> {
    let name = "experiment.toml";
    toml::from_str(&text(path, name)?).map_err(|error| not_understood(path, name, &error))
}

fn trials(path: &Path) -> Result<Vec<Row>, Failure> {
    let name = "samples.csv";
    let file = raw::open(&path.join(name)).map_err(|error| unreadable(path, name, &error))?;
    let mut reader = csv::Reader::from_reader(file);
    let mut trials = Vec::new();
    for trial in reader.deserialize() {
        trials.push(trial.map_err(|error| not_understood(path, name, &error))?);
        if trials.len() > TRIALS_MAX {
            let shown = in_folder(path, name);
            return Err(Failure::usage(format!("{shown}: more than {TRIALS_MAX} trials"))
                .hint("report the runs apart"));
        }
    }
    if trials.is_empty() {
        return Err(Failure::usage(format!("{}: no trials", in_folder(path, name)))
            .hint("run the experiment again"));
    }
    match trials.iter().find(|trial| !sane(trial)) {
        Some(trial) => Err(Failure::usage(format!(
            "{}: trial {} of {} over {} has a time that is no time",
            in_folder(path, name),
            trial.trial,
            trial.arm,
            trial.link
        ))
        .hint("times are ms, not negative")),
        None => Ok(trials),
    }
}

fn sane(trial: &Row) -> bool {
    let times = [
        trial.ms_to_first_request_byte,
        trial.ms_to_first_response_byte,
        trial.ms_to_last_response_byte,
    ];
    times.into_iter().flatten().all(|ms| ms.is_finite() && ms >= 0.0)
}

fn not_understood(path: &Path, name: &str, error: &dyn std::fmt::Display) -> Failure {
    let error = error.to_string();
    Failure::usage(format!("{}: {}", in_folder(path, name), error.trim_end()))
        .hint("the file is damaged, or of another version of headstart")
}

fn in_folder(path: &Path, name: &str) -> String {
    path.join(name).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_are_numbers_or_texts() {
        for (text, expected) in [
            ("0.261", Some(0.261)),
            ("5", Some(5.0)),
            ("'0.3ms'", Some(0.3)),
            ("'261 us'", Some(0.261)),
            ("'1s 500ms'", Some(1_500.0)),
            ("'soon'", None),
            ("-1", None),
            ("nan", None),
        ] {
            let entry: LinkEntry = toml::from_str(&format!("name = 'x'\nrtt = {text}")).unwrap();
            assert_eq!(entry.rtt_ms(), expected, "{text}");
        }
    }
}
