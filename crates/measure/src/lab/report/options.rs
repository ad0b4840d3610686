//! Options of `headstart lab report`.

use std::path::PathBuf;

use clap::Args;

const EXAMPLES: &str = "\
Examples:
  The report of one run, written into its folder:
      headstart lab report results/2026-11-21-loss
  Several runs in one file:
      headstart lab report results/2026-11-21-* --html report.html";

/// Write the report of measurements: tables, distributions, timelines, published figures beside
/// ours
///
/// Reads what `headstart lab run` wrote and makes one HTML file that needs nothing else, no network
/// and no script. A summary of it goes to standard output.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = EXAMPLES)]
#[command(after_help = "See --help for examples.")]
pub(crate) struct LabReportOptions {
    /// Results folders, each of one run
    #[arg(value_name = "DIR", required = true)]
    pub folders: Vec<PathBuf>,

    /// Where the HTML goes [default: report.html in the folder, if it is only one]
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Print the figures as JSON, and write HTML only to a file of --html
    #[arg(long)]
    pub json: bool,
}
