//! `headstart lab report`: one HTML file from the folders that runs have written, and a summary on
//! the terminal, both from one model.

mod answer;
mod browser;
mod distribution;
mod environment;
pub(crate) mod folder;
mod group;
mod html;
mod json;
mod model;
pub(crate) mod options;
mod paper;
mod privacy;
mod soak;
mod table;
mod text;
mod waterfall;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use self::folder::Folder;
use self::model::Run;
use crate::lab::report::options::LabReportOptions;
use headstart::base::failure::Failure;
use headstart::base::output;

/// Reads the folders, writes the report and prints its summary.
pub(crate) fn run(options: &LabReportOptions) -> Result<ExitCode, Failure> {
    let to = target(options)?;
    let runs = options.folders.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
    if let Some(to) = &to {
        let document = html::document(&runs).into_string();
        fs::write(to, document).map_err(|error| {
            Failure::usage(format!("cannot write {}: {error}", to.display()))
                .hint("--html FILE writes it elsewhere")
        })?;
    }
    let summary = if options.json { json::document(&runs) } else { text::summary(&runs) };
    output::print(summary.as_bytes())?;
    if let Some(to) = to {
        eprintln!("report: {}", to.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Where the HTML goes, if any is wanted.
fn target(options: &LabReportOptions) -> Result<Option<PathBuf>, Failure> {
    match (&options.html, options.folders.as_slice()) {
        (Some(file), _) => Ok(Some(file.clone())),
        (None, _) if options.json => Ok(None),
        (None, [folder]) => Ok(Some(folder.join("report.html"))),
        (None, _) => Err(Failure::usage("several folders make one report, and it has no name")
            .hint("add --html FILE")),
    }
}

fn read(path: &Path) -> Result<Run, Failure> {
    Run::new(Folder::read(path)?)
}
