//! `headstart pageload validate`: the simulator against others, against real sockets, and against a
//! browser.

mod replays;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use flate2::read::MultiGzDecoder;
use headstart_pageload::blast::Logged;
use headstart_pageload::sim::published::{self, Agreement};
use serde::Serialize;

use self::replays::Replays;
use super::text::counted;
use crate::json::json;
use crate::lab::browser;
use crate::pageload::plan::options::ValidateOptions;
use crate::progress::Progress;
use crate::recordings;
use crate::recordings::unreadable;
use crate::table::table;
use headstart::base::failure::{Failure, NEGATIVE};
use headstart::base::output;

/// Where the loads are in a folder of data sets, first what is there before.
const IN_FOLDER: [&str; 4] = [
    "blast/blast-train.jsonl.gz",
    "blast/blast-train.jsonl",
    "blast-train.jsonl.gz",
    "blast-train.jsonl",
];

/// Names the folder of data sets.
const DATA: &str = "HEADSTART_DATA";

/// Compares, and prints how far the simulator is from what it is held against.
pub(super) fn run(options: &ValidateOptions) -> Result<ExitCode, Failure> {
    if let Some(folder) = &options.browser {
        let loads = browser::validate::Validation::read(folder)?;
        return print(options, &loads, loads.holds, || loads.text());
    }
    match &options.replays {
        Some(folder) => {
            let replays = Replays::read(folder)?;
            print(options, &replays, replays.holds, || replays.text())
        }
        None => {
            let validation = against_published(options)?;
            print(options, &validation, validation.holds, || validation.text())
        }
    }
}

fn print(
    options: &ValidateOptions,
    figures: &impl Serialize,
    holds: bool,
    text: impl Fn() -> String,
) -> Result<ExitCode, Failure> {
    let text = if options.json { json(figures)? } else { text() };
    output::print(text.as_bytes())?;
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::from(NEGATIVE) })
}

fn against_published(options: &ValidateOptions) -> Result<Validation, Failure> {
    let path = reference(options)?;
    let validation = Validation::from_loads(&read(&path)?, options.draws);
    if validation.settings.is_empty() {
        let name = recordings::name_of(&path);
        return Err(Failure::usage(format!("{name} has no results of the published simulator"))
            .hint("it is the `ref_sim` of the logged loads (set A)"));
    }
    Ok(validation)
}

fn reference(options: &ValidateOptions) -> Result<PathBuf, Failure> {
    let path = options.blast.clone().or_else(|| std::env::var_os(DATA).map(PathBuf::from));
    let path = path.ok_or_else(|| {
        Failure::usage("there is nothing to compare with").hint(format!(
            "add --blast FILE with the page loads published with BLAST, or set {DATA}"
        ))
    })?;
    if !path.is_dir() {
        return Ok(path);
    }
    let in_folder = IN_FOLDER.map(|name| path.join(name));
    in_folder.into_iter().find(|path| path.is_file()).ok_or_else(|| {
        Failure::usage(format!("there is no {} in {}", IN_FOLDER[0], path.display()))
            .hint("name the file itself")
    })
}

fn read(path: &Path) -> Result<Vec<Logged>, Failure> {
    let name = recordings::name_of(path);
    let file = File::open(path).map_err(|error| unreadable(&name, &error))?;
    let progress = Progress::with_bytes(file.metadata().ok().map(|file| file.len()));
    progress.stage(&name);
    let file = progress.wrap(file);
    let is_compressed = path.extension().is_some_and(|end| end == "gz");
    let input: Box<dyn Read> =
        if is_compressed { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
    let loads = recordings::logged(input, &name).map(|line| line.map(|(_, logged)| logged));
    let loads = loads.collect();
    progress.done();
    loads
}

#[derive(Debug, Serialize)]
struct Validation {
    /// True if all bars hold.
    holds: bool,
    /// The profile `blast` against the published simulator, by setting.
    settings: BTreeMap<String, Setting>,
}

/// One setting; times in seconds.
#[derive(Debug, Serialize)]
struct Setting {
    n: usize,
    mae_plt_s: f64,
    mae_resource_s: f64,
    mean_plt_s: f64,
    ref_mean_plt_s: f64,
    bar_s: f64,
    holds: bool,
}

impl Setting {
    fn from_agreement(name: &str, agreement: &Agreement) -> Self {
        let bar_s = Agreement::bar(name);
        Self {
            n: agreement.pages,
            mae_plt_s: agreement.page_error,
            mae_resource_s: agreement.resource_error,
            mean_plt_s: agreement.page_mean,
            ref_mean_plt_s: agreement.page_published,
            bar_s,
            holds: agreement.page_error <= bar_s && agreement.resource_error <= bar_s,
        }
    }

    fn row(&self, name: &str) -> Vec<String> {
        vec![
            name.to_owned(),
            self.n.to_string(),
            format!("{:.3}", self.mae_plt_s),
            format!("{:.3}", self.mae_resource_s),
            format!("{:.2}", self.bar_s),
            if self.holds { "kept" } else { "missed" }.to_owned(),
            format!("{:.2}", self.mean_plt_s),
            format!("{:.2}", self.ref_mean_plt_s),
        ]
    }
}

impl Validation {
    fn from_loads(loads: &[Logged], draws: u64) -> Self {
        let settings = published::agreement(loads, draws).into_iter();
        let settings: BTreeMap<String, Setting> = settings
            .map(|(name, of)| {
                let setting = Setting::from_agreement(&name, &of);
                (name, setting)
            })
            .collect();
        Self { holds: settings.values().all(|setting| setting.holds), settings }
    }

    fn text(&self) -> String {
        let most = self.settings.values().map(|setting| setting.n).max().unwrap_or_default();
        let header = [
            "setting",
            "loads",
            "page, s",
            "resource, s",
            "bar, s",
            "",
            "mean here, s",
            "published, s",
        ];
        let mut rows: Vec<Vec<String>> = vec![header.map(str::to_owned).into()];
        rows.extend(self.settings.iter().map(|(name, setting)| setting.row(name)));
        let missed = self.settings.values().filter(|setting| !setting.holds).count();
        let verdict = match missed {
            0 => "All bars are kept.".to_owned(),
            missed => format!("{} missed.", counted(missed as u64, "bar is", "bars are")),
        };
        format!(
            "Profile blast against the simulator published with BLAST, {}: mean absolute errors \
                of the page\n\
             load time (until 95 % is there) and of the mean time of a resource\n\n{}\n{verdict}\n",
            counted(most as u64, "load", "loads"),
            table(&rows, &[0])
        )
    }
}
