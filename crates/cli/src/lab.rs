//! `headstart lab`: emulated networks, and what is measured on them.

mod report;
mod stats;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::failure::Failure;
use crate::options::LabReportOptions;

/// Measurements on emulated networks
#[derive(Debug, Clone, Args)]
pub(crate) struct LabOptions {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Clone, Subcommand)]
enum Command {
    Report(LabReportOptions),
}

/// Runs the command.
///
/// # Errors
/// Those of the command.
pub(crate) fn run(options: &LabOptions) -> Result<ExitCode, Failure> {
    match &options.command {
        Command::Report(options) => report::run(options),
    }
}
